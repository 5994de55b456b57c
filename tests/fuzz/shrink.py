"""Make a failing program small: delete statements, simplify arguments, reduce sizes."""

from __future__ import annotations

import ast
import copy
import re
import time
from collections.abc import Callable, Iterator

Test = Callable[[str], bool]
# What ends a `while`: without it the program never would; and which calls are made.
NEEDED = re.compile(r"n\d+ \+= 1$|CALLS = ")


class _Enough(Exception):
    """The time for making a program small is over."""


def shrink(source: str, fails: Test, seconds: float = 30.0) -> str:
    """Return the smallest source found in a time that still fails."""
    end = time.monotonic() + seconds
    best = [source]

    def counted(text: str) -> bool:
        if time.monotonic() > end:
            raise _Enough
        failed = fails(text)
        if failed:
            best[0] = text
        return failed

    try:
        size = len(source) + 1
        while len(best[0]) < size:
            size = len(best[0])
            for step in (
                _without_runs,
                _without_statements,
                _flattened,
                _simpler_expressions,
                _smaller_sizes,
            ):
                _descend(best[0], step, counted)
    except _Enough:
        pass
    return best[0]


def _descend(source: str, step: Callable[[str], Iterator[str]], fails: Test) -> None:
    found = True
    while found:
        found = False
        for text in step(source):
            if text != source and len(text) <= len(source) and fails(text):
                source, found = text, True
                break


def _without_runs(source: str) -> Iterator[str]:
    """Leave out half, a quarter, an eighth of the statements of the longest body."""
    tree = ast.parse(source)
    bodies = _bodies(tree)
    place = max(range(len(bodies)), key=lambda n: len(bodies[n]) * (bodies[n] is not tree.body))
    length = len(bodies[place])
    for width in (length // 2, length // 4, length // 8):
        for start in range(0, length - 1, width) if width > 1 else ():
            other = copy.deepcopy(tree)
            del _bodies(other)[place][start : min(start + width, length - 1)]
            yield ast.unparse(ast.fix_missing_locations(other))


def _bodies(tree: ast.Module) -> list[list[ast.stmt]]:
    return [
        value
        for node in ast.walk(tree)
        for name in ("body", "orelse")
        if isinstance(value := getattr(node, name, None), list) and value and not isinstance(node, ast.Lambda)
    ]


def _without_statements(source: str) -> Iterator[str]:
    """Leave out one statement, from the last to the first; never the last of a body."""
    tree = ast.parse(source)
    for place, body in reversed(list(enumerate(_bodies(tree)))):
        for at in reversed(range(len(body))):
            if isinstance(body[at], (ast.Import, ast.ImportFrom)) or NEEDED.match(ast.unparse(body[at])):
                continue
            other = copy.deepcopy(tree)
            lines = _bodies(other)[place]
            if len(lines) == 1:
                lines[0] = ast.Pass()
            else:
                del lines[at]
            yield ast.unparse(ast.fix_missing_locations(other))


def _flattened(source: str) -> Iterator[str]:
    """Put the body of a branch or loop in its place."""
    tree = ast.parse(source)
    for place, body in enumerate(_bodies(tree)):
        for at, line in enumerate(body):
            if isinstance(line, (ast.If, ast.For, ast.While, ast.Try)):
                other = copy.deepcopy(tree)
                lines = _bodies(other)[place]
                lines[at : at + 1] = lines[at].body  # type: ignore[attr-defined]
                yield ast.unparse(ast.fix_missing_locations(other))


def _smaller_sizes(source: str) -> Iterator[str]:
    """Make numbers in the table of sizes smaller, and seeds and layouts plain."""
    found = re.search(r"= (\[\(.*?\)\])\[call\]", source)
    if found:
        for number in re.finditer(r"\d+", found.group(1)):
            for value in ("1", "2", "3", "17", str(int(number.group()) // 2)):
                if int(value) < int(number.group()):
                    at = found.start(1) + number.start()
                    yield source[:at] + value + source[at + len(number.group()) :]
    for old, new in (
        (r"'(sliced|reversed|permuted|broadcast|readonly|offset|F)'", "'C'"),
        (r"'(special|wide|normal|uniform)'", "'nice'"),
        (r"'(f4|i1|u1|i4|i8)'", "'f8'"),
        (r"\('C', 'C'\)\[call > 2\]", "'C'"),
        (r"\('f8', 'f8'\)\[call > 2\]", "'f8'"),
    ):
        for match in re.finditer(old, source):
            yield source[: match.start()] + new + source[match.end() :]


def _simpler_expressions(source: str) -> Iterator[str]:
    """Put an operand in the place of an expression."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    for at, node in enumerate(nodes):
        for name in ("operand", "left", "right"):
            if isinstance(node, (ast.BinOp, ast.UnaryOp)) and hasattr(node, name):
                yield _replaced(tree, at, lambda n, name=name: getattr(n, name))
        if isinstance(node, ast.Call):
            for number in range(len(node.args)):
                yield _replaced(tree, at, lambda n, number=number: n.args[number])
            if isinstance(node.func, ast.Attribute) and not node.args:
                yield _replaced(tree, at, lambda n: n.func.value)
        if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) > 1:
            for number in range(len(node.elts)):
                yield _dropped(tree, at, number)


def _replaced(tree: ast.Module, at: int, part: Callable[[ast.AST], ast.AST]) -> str:
    other = copy.deepcopy(tree)
    target = list(ast.walk(other))[at]

    class Swap(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return part(node) if node is target else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Swap().visit(other)))


def _dropped(tree: ast.Module, at: int, number: int) -> str:
    other = copy.deepcopy(tree)
    target = list(ast.walk(other))[at]
    del target.elts[number]  # type: ignore[attr-defined]
    return ast.unparse(ast.fix_missing_locations(other))


def as_test(source: str, name: str, said: str) -> str:
    """Return a pytest file that runs one program."""
    return (
        f"\"\"\"{said}\"\"\"\n\nfrom tests.fuzz.runner import run\n\nSOURCE = r'''\n{source}\n'''\n\n\n"
        f"def test_program() -> None:\n    assert run(SOURCE, {name!r}).faults == []\n"
    )
