"""What a loop does that can be done again, and what it only adds up.

Knows: syntax trees. Must not know: values, lines of text.
Receives loops; returns names and elements that they assign.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitla.loops.nests import assigned

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


def stored_places(loop: ast.For) -> list[ast.Subscript]:
    """Return the elements that a loop assigns."""
    return [node for node in ast.walk(loop)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]


def summed(loop: ast.For) -> set[str]:
    """Return the names that a loop assigns by adding to them, or subtracting from them, only."""
    sums: set[str] = set()
    others: set[str] = set()
    for node in ast.walk(loop):
        match node:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add() | ast.Sub()):
                sums.add(name)
            case ast.Assign(targets=[ast.Name(id=name)],
                            value=ast.BinOp(left=ast.Name(id=first), op=ast.Add() | ast.Sub())) \
                    if name == first:
                sums.add(name)
            case ast.Assign(targets=targets):
                others |= {name for target in targets for name in assigned(target)}
            case ast.AugAssign(target=ast.Name(id=name)) | ast.AnnAssign(target=ast.Name(id=name)) \
                    | ast.For(target=ast.Name(id=name)):
                others.add(name)
    return sums - others


def summed_up(loop: ast.For) -> ast.Subscript | None:
    """Return the element that a loop adds to, or subtracts from, if that is all that it stores."""
    places = stored_places(loop)
    sums = [node.target for node in ast.walk(loop)
            if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub))]
    if not places or len({ast.unparse(place) for place in places}) > 1 \
            or any(place not in sums for place in places):
        return None
    names = {*stored_names(loop)}
    for part in ast.walk(places[0]):
        if isinstance(part, ast.Name) and part.id in names or isinstance(part, ast.Subscript) \
                and part is not places[0]:
            return None
    return places[0]
