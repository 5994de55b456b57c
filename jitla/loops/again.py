"""What a loop does that can be done again, and how much of it there is.

Knows: syntax trees. Must not know: values, lines of text.
Receives loops; returns names and elements that they assign.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

# What cannot be done again: it may not end, or ends the nest.
_ONCE = (ast.While, ast.Return, ast.Raise)


def again(loop: ast.For) -> bool:
    """Say whether all that a loop does can be undone: it stores where its own variables have no say."""
    names = set(stored_names(loop))
    for node in ast.walk(loop):
        if isinstance(node, _ONCE):
            return False
    return all(names.isdisjoint(part.id for part in ast.walk(place) if isinstance(part, ast.Name))
               for place in stored_places(loop)) and not any(
        isinstance(part, ast.Subscript) for place in stored_places(loop) for part in ast.walk(place.slice))


def parted(loop: ast.For) -> bool:
    """Say whether all that some turns of a loop do can be undone: what they store is told by its variable."""
    names = list(stored_names(loop))
    assert isinstance(loop.target, ast.Name)
    if names.count(loop.target.id) > 1 or any(isinstance(node, _ONCE) for node in ast.walk(loop)) \
            or any(_breaks(node) for node in loop.body):
        return False
    others = {*names} - {loop.target.id}
    return all(others.isdisjoint(part.id for part in ast.walk(place) if isinstance(part, ast.Name))
               for place in stored_places(loop)) and not any(
        isinstance(part, ast.Subscript) for place in stored_places(loop) for part in ast.walk(place.slice))


def _breaks(node: ast.stmt) -> bool:
    """Say whether a statement ends the loop that it is in."""
    if isinstance(node, ast.If):
        return any(map(_breaks, (*node.body, *node.orelse)))
    return isinstance(node, ast.Break)


def stored_names(loop: ast.For) -> Iterator[str]:
    """Yield the names that a loop assigns."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def stored_places(loop: ast.For | ast.While) -> list[ast.Subscript]:
    """Return the elements that a loop assigns."""
    return [node for node in ast.walk(loop)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]


def deeper(loop: ast.For | ast.While, axes: dict[str, int]) -> bool:
    """Say whether a nest does much more than to go once over each array that it stores elements of."""
    stored = {inner.id for inner in map(_array, stored_places(loop)) if inner is not None}
    return all(axes.get(name, _NEVER) < _depth(loop) for name in stored)


_NEVER = 1 << 10
# Turns of loops that are hardly any.
FEW = 8


def _array(place: ast.Subscript) -> ast.Name | None:
    inner: ast.expr = place
    while isinstance(inner, ast.Subscript):
        inner = inner.value
    return inner if isinstance(inner, ast.Name) else None


def _depth(node: ast.AST) -> int:
    """Return how many loops are in one another, but those of few turns."""
    inner = max((_depth(child) for child in ast.iter_child_nodes(node)), default=0)
    if isinstance(node, ast.For):
        return inner + (not _few(node.iter))
    return inner + isinstance(node, ast.While)


def _few(source: ast.expr) -> bool:
    match source:
        case ast.Call(args=args):
            ends = [ast.unparse(arg) for arg in args]
            return all(end.lstrip("-").isdigit() and abs(int(end)) <= FEW for end in ends)
    return False
