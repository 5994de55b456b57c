"""Statements that read variables of several types: a statement is lowered once for each type.

Behind the statement the paths meet again; a statement that ends a path for one of the types, such as
``if best is None: continue``, leaves the others. A type for which the statement raises in Python, or has no
program, leaves the iteration to Python.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from jitla.instrument import walk_tree
from jitla.loopir import program as ir
from jitla.loopjit.builder import ProgramBuilder
from jitla.loopjit.flow import Environment, Meeting
from jitla.loopjit.values import (
    Abstract,
    LoweringRefused,
    NeverCompiled,
    Tup,
    Union,
)


class Paths(Protocol):
    """The lowering of statements, as far as paths are concerned."""

    b: ProgramBuilder
    env: Environment
    reachable: bool

    def continue_from(self, meeting: Meeting) -> None:
        """Go on behind a meeting point, if it is reached."""
        ...


@cache
def names_decided(node: ast.AST) -> tuple[str, ...]:
    """Return the names that a statement reads before the statements within it, in the order of the text."""
    match node:
        case ast.If(test=part) | ast.For(iter=part):
            parts: list[ast.AST] = [part]
        case ast.While():
            parts = []
        case _:
            parts = [node]
    names = [part.id for root in parts for part in walk_tree(root) if isinstance(part, ast.Name)
             and (isinstance(part.ctx, ast.Load) or isinstance(node, ast.AugAssign) and part is node.target)]
    return tuple(dict.fromkeys(names))


def undecided(env: Environment, names: tuple[str, ...]) -> str | None:
    """Return the first of some variables that is of several types, or None."""
    return next((name for name in names if has_union(env.get(name))), None)


def has_union(value: Abstract | None) -> bool:
    """Return whether a value is of several types, or an item of it."""
    return isinstance(value, Union) or isinstance(value, Tup) and any(map(has_union, value.items))


def options_of(value: Abstract) -> tuple[ir.Value | None, list[Abstract]]:
    """Return the number of the option of the first part of a value with several types, and the value of each.
    """
    if isinstance(value, Union):
        return value.number, list(value.options)
    assert isinstance(value, Tup)
    place = next(k for k, item in enumerate(value.items) if has_union(item))
    number, options = options_of(value.items[place])
    return number, [Tup((*value.items[:place], option, *value.items[place + 1:]), value.is_list)
                    for option in options]


def lower_by_type(lowering: Paths, name: str, lower: Callable[[], None]) -> None:
    """Lower statements once for each type of a variable, and join the paths."""
    b, before = lowering.b, dict(lowering.env)
    number, options = options_of(before[name])
    assert number is not None
    number = b.temporary(number)
    meeting = Meeting.empty()
    paths: list[list[Any]] = []
    refused: LoweringRefused | None = None
    lowered = False
    for option in options:
        lowering.env, lowering.reachable = {**before, name: option}, True
        with b.into([]) as statements:
            try:
                lower()
                lowered = True
            except NeverCompiled:
                raise
            except LoweringRefused as error:
                refused = error
                b.leave(error.reason)
                lowering.reachable = False
            if lowering.reachable:
                meeting.reach(b, lowering.env)
        paths.append(statements)
    if not lowered:
        assert refused is not None
        raise refused
    otherwise = paths[-1]
    for k in reversed(range(len(options) - 1)):
        test = ir.Apply("equal", (number, ir.constant(k, ir.dtype_of_value(number))), ir.BOOL)
        otherwise = [ir.If(test, paths[k], otherwise)]  # type: ignore[arg-type]
    for statement in otherwise:
        b.emit(statement)
    lowering.continue_from(meeting)
