"""Calls written as text: statements that make arguments, then a call of a function of a module."""

from __future__ import annotations

import ast
from typing import Any


class CallText:
    """Setup statements and a call, such as `n = 9; f(n, 2)`."""

    def __init__(self, text: str) -> None:
        tree = ast.parse("\n".join(part.strip() for part in _statements(text)))
        last = tree.body[-1]
        if not isinstance(last, ast.Expr) or not isinstance(last.value, ast.Call):
            raise ValueError(f"no call at the end of {text!r}")
        if not isinstance(last.value.func, ast.Name):
            raise ValueError(f"no call of a function by its name at the end of {text!r}")
        self.function = last.value.func.id
        self._setup = ast.Module(tree.body[:-1], [])
        self._arguments = ast.Expression(ast.Tuple(last.value.args, ast.Load()))

    def arguments(self, namespace: dict[str, Any]) -> tuple[Any, ...]:
        """Run the setup statements beside the names of a module, and return the arguments of the call."""
        names = dict(namespace)
        ast.fix_missing_locations(self._setup)
        ast.fix_missing_locations(self._arguments)
        exec(compile(self._setup, "<setup>", "exec"), names)
        values = eval(compile(self._arguments, "<arguments>", "eval"), names)
        return tuple(values)


def _statements(text: str) -> list[str]:
    """Split at semicolons outside of brackets and quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == ";" and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    parts.append(text[begin:])
    return [part for part in parts if part.strip()]
