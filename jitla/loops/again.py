"""What loops store along their way, and how often.

Knows: syntax trees. Must not know: values, lines of text.
Receives loops; returns what they assign, and truth values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

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


def turns_since(around: Sequence[tuple[ast.For | ast.While, int | None]], name: str) -> int | None:
    """Return the bits of how often a variable may be added to before it is assigned anew; None if not known.

    `around` are the loops, the outermost first, with the bits of their turns.
    """
    outermost = around[0][0]
    bits = sum(found == name for found in stored_names(outermost)).bit_length()
    inside: ast.AST | None = None
    for loop, turns in reversed(around):
        if inside is not None and _assigned_before(loop.body, inside, name):
            return bits
        if turns is None:
            return None
        bits, inside = bits + turns, loop
    return bits


def _assigned_before(body: list[ast.stmt], inside: ast.AST, name: str) -> bool:
    """Say whether each way through a body to what is `inside` of it assigns a variable first."""
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)]) if found == name:
                return True
        if any(part is inside for part in ast.walk(node)):
            return False
    return False


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
