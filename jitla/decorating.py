"""Programs as they are, with functions in them decorated: for notebooks and the command line.

Knows: syntax trees. Must not know: what the decorator does.
Receives the tree of a module, names and options; returns the tree with decorators in it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

__all__ = ["decorate", "functions"]


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the functions of a module's outermost level by name, methods as ``Class.method``."""
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            found |= {f"{owner.name}.{node.name}": node for node in owner.body
                      if isinstance(node, ast.FunctionDef)}
    return found


def decorate(tree: ast.Module, names: Collection[str] | None = None,
             options: Mapping[str, str | int | bool] | None = None) -> ast.Module:
    """Put ``jitla.jit`` below all decorators of the functions called `names`, all but methods if None.

    Lines and columns stay as they are. Functions that `jit` decorates already stay as well.
    """
    for name, function in functions(tree).items():
        chosen = "." not in name if names is None else name in names
        if chosen and not any(map(_is_jit, function.decorator_list)):
            function.decorator_list.append(_jit(options or {}, function))
    return tree


def _is_jit(decorator: ast.expr) -> bool:
    """Tell whether a decorator is written as ``jit``, ``jitla.jit``, or a call of these."""
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")) == "jit"


def _jit(options: Mapping[str, str | int | bool], at: ast.FunctionDef) -> ast.expr:
    """Return ``__import__("jitla").jit(**options)``: no name of the program can stand in its way."""
    module = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("jitla")], [])
    words = [ast.keyword(name, ast.Constant(value)) for name, value in options.items()]
    made = ast.Call(ast.Attribute(module, "jit", ast.Load()), [], words)
    for node in ast.walk(made):
        ast.copy_location(node, at)
    return made
