"""Arrays of a nest that need not be kept: done once more from anywhere, a nest stores the same in them.

Knows: syntax trees. Must not know: values, lines of text.
Receives loops and names of arrays; returns truth values.

That holds for an array that is not read, and for one whose elements are read only after the turn that stores
them: what is stored twice is then made of the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from jitla.loops.names import ATTRIBUTES, Loop, chain

# An element: the loops around it, and its indices.
Place = tuple[tuple[Loop, ...], list[ast.expr]]


def unread(nest: Loop, name: str) -> bool:
    """Say whether a nest only stores elements of an array."""
    found = _places(nest, name)
    return found is not None and not found[0]


def ordered(nest: Loop, name: str, axes: int) -> bool:
    """Say whether each element that is read, and indexed as it stands there, was stored in a turn before."""
    found = _places(nest, name)
    if found is None:
        return False
    reads, stores = found
    return all(len(indices) == axes for _, indices in reads + stores) and all(
        _before(read, store) for read in reads for store in stores)


def _places(nest: Loop, name: str) -> tuple[list[Place], list[Place]] | None:
    """Return the elements of an array that are read and stored; None where it is used otherwise."""
    reads: list[Place] = []
    stores: list[Place] = []
    for node, around in _walked(nest, ()):
        match node:
            case ast.AugAssign(target=ast.Subscript() as target) if _is(chain(target)[0], name):
                return None
            case ast.Subscript():
                base, indices = chain(node)
                if _is(base, name):
                    if any(isinstance(index, ast.Slice) for index in indices):
                        return None
                    (stores if isinstance(node.ctx, ast.Store) else reads).append((around, indices))
            case ast.Name() if node.id == name:
                return None
    return reads, stores


def _walked(node: ast.AST, around: tuple[Loop, ...]) -> Iterator[tuple[ast.AST, tuple[Loop, ...]]]:
    """Yield what is in a nest with the loops around it; not what elements are of, nor lengths."""
    yield node, around
    match node:
        case ast.Subscript():
            base: ast.expr = node
            while isinstance(base, ast.Subscript):
                yield from _walked(base.slice, around)
                base = base.value
            if not isinstance(base, ast.Name):
                yield from _walked(base, around)
        case ast.Attribute(value=ast.Name(), attr=attr) if attr in ATTRIBUTES:
            return
        case ast.Call(func=ast.Name(id="len")):
            return
        case ast.For(target=target, iter=source, body=body):
            yield from _walked(target, around)
            yield from _walked(source, around)
            for each in body:
                yield from _walked(each, (*around, node))
        case ast.While():
            for child in ast.iter_child_nodes(node):
                yield from _walked(child, (*around, node))
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _walked(child, around)


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _before(read: Place, store: Place) -> bool:
    """Say whether a turn that stores what is read comes before the one that reads it."""
    for loop, other in zip(read[0], store[0], strict=False):
        way = _way(loop)
        if loop is not other or way == 0:
            return False
        assert isinstance(loop, ast.For) and isinstance(loop.target, ast.Name)
        name = loop.target.id
        steps = [a - b for a, b in ((_beside(one, name), _beside(two, name))
                                    for one, two in zip(read[1], store[1], strict=True))
                 if a is not None and b is not None]
        if not steps or steps[0] * way > 0:
            return False
        if steps[0]:
            return True
    return False


def _way(loop: Loop) -> int:
    """Return whether a loop counts up or down; zero if that is not known, or something else counts, too."""
    match loop:
        case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=args)):
            if sum(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
                   for node in ast.walk(loop)) > 1:
                return 0
            match args:
                case [_] | [_, _] | [_, _, ast.Constant(value=1)]:
                    return 1
                case [_, _, ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))]:
                    return -1
    return 0


def _beside(index: ast.expr, name: str) -> int | None:
    """Return how much more than a variable an index is; None if it is something else."""
    match index:
        case ast.Name(id=found) if found == name:
            return 0
        case ast.BinOp(left=ast.Name(id=found), op=ast.Add(), right=ast.Constant(value=int() as more)) \
                if found == name:
            return more
        case ast.BinOp(left=ast.Name(id=found), op=ast.Sub(), right=ast.Constant(value=int() as less)) \
                if found == name:
            return -less
    return None
