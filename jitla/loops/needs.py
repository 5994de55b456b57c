"""Which results of a nest something needs for sure, so that compilers compute them as often as Python does.

Knows: syntax trees. Must not know: values, lines of text.
Receives a loop; returns statements, and the variables that are needed once a loop is done.

Whether an operation of floats was odd, the processor notes when it is done. Compilers leave out what nothing
needs; what is an operand of another operation, or is left in memory, is needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import field

from jitla.classes import dataclass

Loop = ast.For | ast.While
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


def needs(nest: Loop) -> Needs:
    """Find what is needed for sure in a nest."""
    found = Needs()
    _block(nest.body, [nest], found)
    return found


def _block(body: list[ast.stmt], around: list[Loop], found: Needs) -> None:
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


def _extreme(node: ast.If, around: list[Loop], found: Needs) -> None:
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
               if isinstance(target, ast.Subscript) and _array(target) == _array(place)):
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


def _stores(loop: Loop) -> Iterator[tuple[ast.stmt, ast.expr]]:
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


def _accumulated(loop: Loop, name: str) -> bool:
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


def _renewed(nest: Loop, place: ast.Subscript) -> bool:
    """Say whether elements of an array are only replaced by what is computed of them."""
    for node, target in _stores(nest):
        if isinstance(target, ast.Subscript) and _array(target) == _array(place):
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


def _once(around: list[Loop], place: ast.Subscript) -> bool:
    """Say whether each element is assigned once: each loop has an index, and other places are others."""
    indices = _indices(place)
    for loop in around:
        if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) \
                or not any(_counts(index, loop.target.id) for index in indices):
            return False
        if [t.id for _, t in _stores(around[0]) if isinstance(t, ast.Name)].count(loop.target.id) > 1:
            return False
    others = [t for _, t in _stores(around[0])
              if isinstance(t, ast.Subscript) and t is not place and _array(t) == _array(place)]
    return all(any(isinstance(a, ast.Constant) and isinstance(b, ast.Constant) and type(a.value) is int
                   and type(b.value) is int and a.value != b.value and min(a.value, b.value) >= 0
                   for a, b in zip(indices, _indices(other), strict=False)) for other in others)


def _counts(index: ast.expr, name: str) -> bool:
    """Say whether an index is a variable, or so much more or less."""
    match index:
        case ast.Name(id=found) | ast.BinOp(
                left=ast.Name(id=found), op=ast.Add() | ast.Sub(), right=ast.Constant()):
            return found == name
    return False


def _array(place: ast.expr) -> str:
    while isinstance(place, ast.Subscript):
        place = place.value
    return ast.unparse(place)


def _indices(place: ast.Subscript) -> list[ast.expr]:
    inner = _indices(place.value) if isinstance(place.value, ast.Subscript) else []
    return [*inner, *(place.slice.elts if isinstance(place.slice, ast.Tuple) else [place.slice])]
