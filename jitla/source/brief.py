"""Loops over a few literals, whose turns put together the neighbours of every element.

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


def is_brief(iterables: Sequence[ast.expr], body: Sequence[ast.AST]) -> bool:
    """Tell whether loops over `iterables` have a few turns each, and roll arrays in their body."""
    return all(0 < _turns(each) <= MOST for each in iterables) and any(
        _rolls(each) for part in body for each in ast.walk(part))


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


def _rolls(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="roll") | ast.Name(id="roll")):
            return True
    return False
