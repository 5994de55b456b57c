"""What loops store along their way, and how often.

Knows: syntax trees. Must not know: values, lines of text.
Receives loops; returns what they assign, and truth values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitla.loops.names import chain


def breaks(body: list[ast.stmt]) -> bool:
    """Say whether a statement of the body of a loop ends it."""
    return any(breaks([*node.body, *node.orelse]) if isinstance(node, ast.If) else isinstance(node, ast.Break)
               for node in body)


def stored_names(loop: ast.For | ast.While) -> Iterator[str]:
    """Yield the names that a loop assigns."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def innermost(loop: ast.For) -> bool:
    """Say whether a loop goes to its end, and has no other in it, nor rows."""
    return not any(isinstance(node, (ast.For, ast.While, ast.Return, ast.Raise, ast.Slice))
                   for each in loop.body for node in ast.walk(each)) and not breaks(loop.body)


def carried(loop: ast.For) -> bool:
    """Say whether a turn of a loop may read what another has stored: elsewhere along its variable.

    One that chooses what it does is not asked: without jumps compilers need not guess.
    """
    assert isinstance(loop.target, ast.Name)
    if any(isinstance(node, ast.If) for node in loop.body):
        return False
    places = [(_array(place), _indices(place)) for place in stored_places(loop)]
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            array, indices = _array(node), _indices(node)
            for other, stored in places:
                if array is not None and other is not None and array.id == other.id and any(
                        a != b and loop.target.id in a + b
                        for a, b in zip(indices, stored, strict=False)):
                    return True
    return False


def _indices(place: ast.Subscript) -> list[str]:
    parts = place.slice.elts if isinstance(place.slice, ast.Tuple) else [place.slice]
    return [ast.unparse(part) for part in parts]


def stored_places(loop: ast.For | ast.While) -> list[ast.Subscript]:
    """Return the elements that a loop assigns."""
    return [node for node in ast.walk(loop)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]


def _array(place: ast.Subscript) -> ast.Name | None:
    inner, _ = chain(place)
    return inner if isinstance(inner, ast.Name) else None
