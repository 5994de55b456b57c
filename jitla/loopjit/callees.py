"""Finds calls outside of loops of functions that have loops, and redirects them to their loop functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

from jitla.instrument import walk_tree
from jitla.introspection import is_decorated, is_installed, package_of

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def bindings(function: ast.AST) -> list[str]:
    """Return the names that are bound anywhere in a function, as often as they are."""
    found = []
    for node in walk_tree(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name) \
                    | ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name) \
                    | ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
                found.append(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) \
                    if node is not function:
                found.append(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                found += names
            case ast.alias():
                found.append((node.asname or node.name).partition(".")[0])
    return found


def called(
    function: FunctionType, tree: ast.AST, but: Sequence[ast.AST],
) -> list[tuple[ast.Call, FunctionType]]:
    """Return the calls in a tree, not in what is in `but`, of functions of the user's, as names are now."""
    local = {*bindings(tree), *function.__code__.co_freevars}
    found = []
    for node in _outside(tree, but):
        if isinstance(node, ast.Call):
            given = _named(node.func, function.__globals__, local)
            if type(given) is FunctionType and given is not function and is_users(given, function):
                found.append((node, given))
    return found


def _outside(node: ast.AST, but: Sequence[ast.AST]) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if child not in but:
            yield from _outside(child, but)


def _named(node: ast.expr, space: dict[str, Any], local: set[str]) -> Any:
    """Return what a name of the module is, or a name in a module that it names."""
    match node:
        case ast.Name(id=name):
            return None if name in local else space.get(name)
        case ast.Attribute(value=value, attr=attr):
            module = _named(value, space, local)
            return vars(module).get(attr) if isinstance(module, ModuleType) else None
    return None


def is_users(given: FunctionType, caller: FunctionType) -> bool:
    """Say whether a function is of the program that calls it, and not decorated."""
    if is_decorated(given):
        return False
    return not is_installed(given.__code__.co_filename) or package_of(given) == package_of(caller)


class CalleeVersion:
    """Selects what a compiled function calls: the version of a callee with loops, or the callee itself."""

    __slots__ = ("loop_function",)

    def __init__(self, loop_function: Any) -> None:
        self.loop_function = loop_function

    def of(self, function: Any) -> Any:
        """Return the version of `function` if it is the function that was seen, and unchanged."""
        loops = self.loop_function
        return loops.version if function is loops.function and loops.is_current() else function


def handed(call: ast.Call, key: str) -> None:
    """Let a call in a tree select its callee by the object that `key` stands for."""
    asked = ast.Call(ast.Attribute(ast.Constant(key), "of", ast.Load()), [call.func], [])
    for node in (asked, asked.func, asked.func.value):  # type: ignore[attr-defined]
        ast.copy_location(node, call.func)
    call.func = asked
