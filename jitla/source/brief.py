"""Loops over a few literals, whose turns put together the neighbours of every element, or add up a few.

Knows: syntax. Must not know: hooks, arrays.
Receives syntax nodes; returns whether the turns of a loop are best seen together.

The turns of other loops are blocks of their own, so that all have one plan. Of these every turn has another
one, with shifts of its own, and what they add up reads the same memory again and again.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

__all__ = ["is_brief"]

MOST = 9  # turns of a loop that stay together


def is_brief(
    iterables: Sequence[ast.expr], body: Sequence[ast.AST], targets: Sequence[ast.expr] = ()
) -> bool:
    """Tell whether loops over `iterables` have a few turns each, and put together neighbours in their body.

    They roll arrays, or add up what an index that depends on `targets` reads.
    """
    names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return all(0 < _turns(each) <= MOST for each in iterables) and any(
        _rolls(each) or _adds_up(each, names) for part in body for each in ast.walk(part))


def _turns(iterable: ast.expr) -> int:
    """Return how many elements are written there; 0 if that is not said."""
    match iterable:
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return len(elements) if all(map(_is_literal, elements)) else 0
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if all(map(_is_literal, args)):
            try:
                return len(range(*map(ast.literal_eval, args)))
            except (TypeError, ValueError):
                return 0
    return 0


def _is_literal(node: ast.expr) -> bool:
    match node:
        case ast.Constant() | ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case ast.Tuple(elts=elements):
            return all(map(_is_literal, elements))
    return False


def _adds_up(node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.AugAssign(target=ast.Name(), op=ast.Add() | ast.Sub(), value=value):
            return any(isinstance(each, ast.Subscript) and _is_about(each.slice, names)
                       for each in ast.walk(value))
    return False


def _is_about(index: ast.expr, names: set[str]) -> bool:
    """Tell whether several axes are read at places some of which depend on `names`."""
    return isinstance(index, ast.Tuple) and any(
        isinstance(each, ast.Name) and each.id in names for each in ast.walk(index))


def _rolls(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="roll") | ast.Name(id="roll")):
            return True
    return False
