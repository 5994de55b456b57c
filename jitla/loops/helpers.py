"""Functions that nests call for a number: what they do is written out where they are called.

Knows: syntax trees, functions. Must not know: values, arrays, lines of text.
Receives functions of the user's; returns the statements of those that make a number of numbers.

Such a function has names, ``if`` and ``return``, and no loops, elements or variables of other functions.
Whatever goes wrong in it goes wrong in the statement that calls it: Python does that one, and calls it.
"""

from __future__ import annotations

import ast
from types import CodeType, FunctionType
from typing import Any

from jitla.classes import dataclass
from jitla.loops.kinds import Refused
from jitla.loops.names import computed
from jitla.loops.nests import EXPRESSIONS, check
from jitla.loops.within import is_users
from jitla.source import tree_of

__all__ = ["DEEPEST", "LONGEST_WAY", "Helper", "Helpers"]

# Functions that call the next; statements that are written out for one call, those behind an ``if`` twice.
DEEPEST, LONGEST_WAY = 4, 40
_GENERATORS = 0x20 | 0x80 | 0x200


@dataclass(frozen=True)
class Helper:
    """A function that makes a number of numbers, as its code was."""

    function: FunctionType
    code: CodeType
    names: tuple[str, ...]
    body: tuple[ast.stmt, ...]


class Helpers:
    """The functions that the nests of one function may call, and why others are none."""

    def __init__(self, caller: FunctionType) -> None:
        self._caller = caller
        self._met: dict[int, tuple[Any, Helper | str]] = {}

    def of(self, function: Any) -> Helper | str:
        """Return what a function does, or what of it is not for nests."""
        _, known = self._met.get(id(function), (None, None))
        if known is None or isinstance(known, Helper) and function.__code__ is not known.code:
            try:
                made: Helper | str = _helper(function, self._caller)
            except Refused as refused:
                made = refused.reason
            self._met[id(function)] = function, made
        return self._met[id(function)][1]


def _helper(function: Any, caller: FunctionType) -> Helper:
    if type(function) is not FunctionType or not is_users(function, caller):
        raise Refused("")
    code = function.__code__
    source = None if code.co_flags & _GENERATORS or function.__closure__ else tree_of(function)
    if source is None or not isinstance(source.node, ast.FunctionDef):
        raise Refused("its text is not known, or it has variables of another function")
    args = source.node.args
    if args.vararg or args.kwarg or args.kwonlyargs:
        raise Refused("it takes any number of arguments, or named ones")
    for each in source.node.body:
        _allowed(each)
    names = tuple(arg.arg for arg in (*args.posonlyargs, *args.args))
    return Helper(function, code, names, tuple(source.node.body))


def _allowed(node: ast.stmt) -> None:
    """Refuse statements of a function that do more than to make a number."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return
        case ast.If(test=test, body=body, orelse=orelse):
            _arithmetic(test)
            for each in (*body, *orelse):
                _allowed(each)
        case ast.Assign(targets=[ast.Name()], value=value) | ast.AugAssign(target=ast.Name(), value=value):
            _arithmetic(value)
        case ast.AnnAssign(target=ast.Name(), value=ast.expr() as value) \
                | ast.Return(value=ast.expr() as value):
            _arithmetic(value)
        case _:
            raise Refused(f"it has a {type(node).__name__.lower()} statement")


def _arithmetic(node: ast.expr) -> None:
    check(node)
    for part in computed(node):
        if not isinstance(part, EXPRESSIONS) or isinstance(part, (ast.Subscript, ast.Slice, ast.Tuple)):
            raise Refused("it has elements, or more than one number")
        if isinstance(part, ast.Name) and part.id.startswith("__"):
            raise Refused(f"{part.id} may be another name in a class")
