"""Data flow in loops: what is assigned, whether it can be repeated, and which results are needed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import field

from jitla.classes import dataclass
from jitla.loopjit.detect import ATTRIBUTES, Loop, chain


def breaks(body: list[ast.stmt]) -> bool:
    """Say whether a statement of the body of a loop ends it."""
    return any(breaks([*node.body, *node.orelse]) if isinstance(node, ast.If) else isinstance(node, ast.Break)
               for node in body)


def stored_names(loop: ast.For | ast.While) -> Iterator[str]:
    """Yield the names that a loop assigns."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def update_count_bits(around: Sequence[tuple[ast.For | ast.While, int | None]], name: str) -> int | None:
    """Return the bits of the number of updates of a variable between assignments; None if unknown.

    `around` are the enclosing loops, the outermost first, with the bits of their trip counts.
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


NeedsLoop = ast.For | ast.While
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_ENDS = (ast.Return, ast.Raise)
LEAVING = (*_ENDS, ast.Break, ast.Continue)


@dataclass
class Needs:
    """Statements whose results are needed; for each loop the variables whose last values may not be."""

    needed: set[ast.AST] = field(default_factory=set)
    # Comparisons of a new extreme with the one before, and variables that hold extremes.
    compared: set[ast.AST] = field(default_factory=set)
    extremes: set[str] = field(default_factory=set)
    after: dict[ast.AST, list[str]] = field(default_factory=dict)


def needs(nest: NeedsLoop) -> Needs:
    """Find what is needed for sure in a nest."""
    found = Needs()
    _block(nest.body, [nest], found)
    return found


def _block(body: list[ast.stmt], around: list[NeedsLoop], found: Needs) -> None:
    for number, node in enumerate(body):
        if isinstance(node, ast.If):
            _extreme(node, around, found)
        match node:
            case ast.AugAssign(target=ast.Name(id=name), op=op) if isinstance(op, _ARITHMETIC):
                if _accumulated(around[-1], name):
                    found.needed.add(node)
                    names = found.after.setdefault(around[-1], [])
                    names += [] if name in names else [name]
            case ast.Assign(targets=[ast.Name(id=name)]) if _used(name, body[number + 1:]):
                found.needed.add(node)
            case ast.Assign(targets=[ast.Subscript() as place]) \
                    | ast.AugAssign(target=ast.Subscript() as place) \
                    if _renewed(around[0], place) or _once(around, place):
                found.needed.add(node)
        for name in ("body", "orelse"):
            inside = [*around, node] if isinstance(node, (ast.For, ast.While)) else around
            _block(getattr(node, name, []), inside, found)


def _extreme(node: ast.If, around: list[NeedsLoop], found: Needs) -> None:
    """Note what is computed to be compared with an extreme, and is the next one if it is beyond.

    Whether it is cannot be known before it is computed, unless extremes are constants: those are hidden.
    """
    place = _raised(node)
    if isinstance(place, ast.Name):
        loop = around[-1]
        others = [other for other, target in _stores(loop)
                  if isinstance(target, ast.Name) and target.id == place.id]
        if any(isinstance(each, _ENDS) for each in ast.walk(loop)) \
                or any(other is not node.body[0] for other in others):
            return
        found.extremes.add(place.id)
        names = found.after.setdefault(loop, [])
        names += [] if place.id in names else [place.id]
    elif isinstance(place, ast.Subscript):
        if any(other is not node.body[0] for other, target in _stores(around[0])
               if isinstance(target, ast.Subscript) and _array_needs(target) == _array_needs(place)):
            return
    if place is not None:
        found.needed.add(node.body[0])
        found.compared.add(node.test)


def _raised(node: ast.If) -> ast.expr | None:
    """Return where a statement keeps what it computes if it is beyond what is there."""
    match node:
        case ast.If(test=ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()],
                                     comparators=[right]),
                    body=[ast.Assign(targets=[ast.Name() | ast.Subscript() as place], value=value), *_]):
            for made, other in ((left, right), (right, left)):
                if isinstance(made, ast.BinOp) and isinstance(made.op, _ARITHMETIC) \
                        and ast.unparse(made) == ast.unparse(value) \
                        and ast.unparse(other) == ast.unparse(place):
                    return place
    return None


def _stores(loop: NeedsLoop) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """Yield the statements of a loop that assign, with what they assign."""
    for node in ast.walk(loop):
        if isinstance(node, ast.For):
            yield node, node.target
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    yield node, part
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            yield node, node.target


def _accumulated(loop: NeedsLoop, name: str) -> bool:
    """Say whether each value of a variable in a loop is made of the one before."""
    return not any(isinstance(node, _ENDS) for node in ast.walk(loop)) and all(
        isinstance(node, ast.AugAssign) and isinstance(node.op, _ARITHMETIC)
        for node, target in _stores(loop) if isinstance(target, ast.Name) and target.id == name)


def _used(name: str, following: list[ast.stmt]) -> bool:
    """Say whether statements that come next compute with a variable before it has another value."""
    for node in following:
        if any(isinstance(part, ast.Slice) for part in ast.walk(node)):
            return False  # there may be no element
        match node:
            case ast.Assign(value=value) | ast.AugAssign(value=value) if _operand(value, name):
                return True
            case ast.AugAssign(target=ast.Name(id=other), op=op, value=value) if isinstance(op, _ARITHMETIC) \
                    and name in (other, value.id if isinstance(value, ast.Name) else ""):
                return True
        if any(isinstance(part, (*LEAVING, ast.While)) or isinstance(part, ast.Name) and part.id == name
               and isinstance(part.ctx, ast.Store) for part in ast.walk(node)):
            return False
    return False


def _operand(value: ast.expr, name: str) -> bool:
    """Say whether an expression computes with a variable, whatever else it does."""
    match value:
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
            return any(isinstance(side, ast.Name) and side.id == name or _operand(side, name)
                       for side in (left, right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _operand(operand, name)
    return False


def _renewed(nest: NeedsLoop, place: ast.Subscript) -> bool:
    """Say whether elements of an array are only replaced by what is computed of them."""
    for node, target in _stores(nest):
        if isinstance(target, ast.Subscript) and _array_needs(target) == _array_needs(place):
            match node:
                case ast.AugAssign(op=op) if isinstance(op, _ARITHMETIC):
                    continue
                case ast.Assign(targets=[_], value=value) if _reads(value, ast.unparse(target)):
                    continue
            return False
    return True


def _reads(value: ast.expr, place: str) -> bool:
    """Say whether an expression computes with an element, whatever else it does."""
    match value:
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
            return any(ast.unparse(side) == place or _reads(side, place) for side in (left, right))
        case ast.Call(func=ast.Attribute(attr="sqrt"), args=[only]):
            return ast.unparse(only) == place or _reads(only, place)
    return False


def _once(around: list[NeedsLoop], place: ast.Subscript) -> bool:
    """Say whether each element is assigned once: each loop has an index, and other places are others."""
    indices = _indices_needs(place)
    for loop in around:
        if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) \
                or not any(_counts(index, loop.target.id) for index in indices):
            return False
        if [t.id for _, t in _stores(around[0]) if isinstance(t, ast.Name)].count(loop.target.id) > 1:
            return False
    others = [t for _, t in _stores(around[0])
              if isinstance(t, ast.Subscript) and t is not place and _array_needs(t) == _array_needs(place)]
    return all(any(isinstance(a, ast.Constant) and isinstance(b, ast.Constant) and type(a.value) is int
                   and type(b.value) is int and a.value != b.value and min(a.value, b.value) >= 0
                   for a, b in zip(indices, _indices_needs(other), strict=False)) for other in others)


def _counts(index: ast.expr, name: str) -> bool:
    """Say whether an index is a variable, or so much more or less."""
    match index:
        case ast.Name(id=found) | ast.BinOp(
                left=ast.Name(id=found), op=ast.Add() | ast.Sub(), right=ast.Constant()):
            return found == name
    return False


def _array_needs(place: ast.expr) -> str:
    while isinstance(place, ast.Subscript):
        place = place.value
    return ast.unparse(place)


def _indices_needs(place: ast.Subscript) -> list[ast.expr]:
    inner = _indices_needs(place.value) if isinstance(place.value, ast.Subscript) else []
    return [*inner, *(place.slice.elts if isinstance(place.slice, ast.Tuple) else [place.slice])]
