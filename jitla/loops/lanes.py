"""Loops whose statements are about slices of arrays, all of the same places: each place could go its own way.

Knows: syntax trees. Must not know: values, kinds, lines of text.
Receives a loop; returns its statements as those of one place, a lane; None where lanes are not independent.

In ``for k in range(1, n): y[:, k] = x[:, k] - a * y[:, k - 1]`` no row of `y` asks for another. Which turns
there are, and what each does, must not depend on any element.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import field

from jitla.classes import dataclass
from jitla.loops.names import Loop, read_outside

OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
MOST_STATEMENTS = 60
_SCOPES = ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp, ast.ListComp


@dataclass(frozen=True)
class Place:
    """What a subscript means in one lane: an array, how its axes of lanes are cut, an index behind them."""

    name: str
    cuts: tuple[tuple[int, int | None], ...]
    index: ast.expr | None


@dataclass
class Lanes:
    """A loop that can be done lane by lane."""

    turn: ast.For
    axes: int = 0
    places: dict[ast.Subscript, Place] = field(default_factory=dict)
    # Names that hold values of lanes; of these, those that turns begin with; arrays that are stored.
    names: set[str] = field(default_factory=set)
    carried: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    # Names that are read as they were given: numbers, or one element for each lane.
    bare: set[str] = field(default_factory=set)

    @property
    def target(self) -> str:
        """The name that counts turns."""
        assert isinstance(self.turn.target, ast.Name)
        return self.turn.target.id

    @property
    def fresh(self) -> set[str]:
        """The names that every turn assigns before it reads them."""
        return {self.target} | self.names - self.carried


class _No(Exception):
    """A loop is none of these."""


def lanes(loop: Loop) -> Lanes | None:
    """Return a loop as lanes, if it is one of those."""
    try:
        return _Reader(loop).made if isinstance(loop, ast.For) else None
    except _No:
        return None


def settled(function: ast.AST, made: Lanes) -> bool:
    """Say whether no value of a lane is read after the loop of a function, wherever that goes on."""
    body: list[ast.stmt] = function.body  # type: ignore[attr-defined]
    if made.turn not in body:
        return not made.carried and read_outside(function, made.turn).isdisjoint(made.names)
    later = {name for each in body[body.index(made.turn) + 1:] for name in _read(each)}
    inner = {name for node in ast.walk(function) if isinstance(node, _SCOPES) and node is not function
             for name in _read(node)}
    return later.union(inner).isdisjoint(made.names)


def _read(node: ast.AST) -> Iterator[str]:
    """Yield the names that are read, deleted, or changed in a tree."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Store):
            yield part.id
        elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            yield part.target.id


def whole(node: ast.expr) -> int | None:
    """Return the integer that is written there; None if it is none."""
    match node:
        case ast.Constant(value=int() as value) if type(value) is int:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)) if type(value) is int:
            return -value
    return None


class _Reader:
    """Reads one loop; raises `_No` where its lanes may not be independent."""

    def __init__(self, loop: ast.For) -> None:
        self.made = made = Lanes(loop)
        if not isinstance(loop.target, ast.Name) or loop.orelse \
                or sum(isinstance(node, ast.stmt) for node in ast.walk(loop)) > MOST_STATEMENTS:
            raise _No
        self.target = loop.target.id
        made.names = {node.id for each in loop.body for node in ast.walk(each)
                      if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        if self.target in made.names:
            raise _No
        match loop.iter:
            case ast.Call(func=ast.Name(id="range"), args=[_, *_] as args, keywords=[]) if len(args) <= 3:
                for arg in args:
                    self.counts(arg, False)
                if len(args) == 3 and not whole(args[2]):
                    raise _No
            case _:
                raise _No
        # Of names: assigned what something else is called, too; changed in place. Arrays that have views.
        self.shared = False
        self.changed: set[str] = set()
        self.viewed: set[str] = set()
        self.block(loop.body, set())
        self.check()

    def check(self) -> None:
        """Raise `_No` where one lane may read what another stores, or two names mean the same memory."""
        made = self.made
        stored = {place for node, place in made.places.items() if isinstance(node.ctx, ast.Store)}
        made.stored = {place.name for place in stored}
        if not any(place.index is not None for place in stored):
            raise _No
        if self.changed and (self.shared or self.changed & made.carried):
            raise _No
        if self.viewed & made.stored or made.names & {place.name for place in made.places.values()}:
            raise _No
        for name in made.stored:
            if len({(place.cuts, place.index is None)
                    for place in made.places.values() if place.name == name}) > 1:
                raise _No

    def block(self, body: list[ast.stmt], known: set[str]) -> set[str]:
        """Read statements; return the names that surely have a value of this turn after them."""
        for each in body:
            known = self.statement(each, known)
        return known

    def statement(self, node: ast.stmt, known: set[str]) -> set[str]:
        """Read one."""
        match node:
            case ast.Assign(targets=targets, value=value):
                self.value(value, known)
                self.aliases(targets, value)
                return known.union(*(self.stores(target) for target in targets))
            case ast.AugAssign(target=target, op=op, value=value) if type(op) in OPERATORS:
                self.value(value, known)
                names = self.stores(target)
                self.made.carried |= names - known
                self.made.bare |= names - known
                self.changed |= names
                return known | names
            case ast.If(test=test, body=body, orelse=orelse):
                self.test(test)
                return self.block(body, set(known)) & self.block(orelse, set(known))
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return known
        raise _No

    def aliases(self, targets: list[ast.expr], value: ast.expr) -> None:
        """Note where a name is given to what has another already."""
        if any(isinstance(target, ast.Name) for target in targets):
            self.shared |= len(targets) > 1 or isinstance(value, (ast.Name, ast.Subscript))
            if isinstance(value, ast.Subscript):
                self.viewed.add(self.place(value).name)
            elif isinstance(value, ast.Name):
                self.viewed.add(value.id)

    def stores(self, target: ast.expr) -> set[str]:
        """Read what is assigned to; return names."""
        if isinstance(target, ast.Name):
            return {target.id}
        self.place(target)
        return set()

    def place(self, node: ast.expr) -> Place:
        """Read a subscript."""
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            raise _No
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        slices = [part for part in parts if isinstance(part, ast.Slice)]
        rest = parts[len(slices):]
        if not slices or parts[:len(slices)] != slices or len(rest) > 1:
            raise _No
        for index in rest:
            self.counts(index)
        cuts = tuple(map(_cut, slices))
        if rest:
            if self.made.axes not in (0, len(slices)):
                raise _No
            self.made.axes = len(slices)
        elif any(cut != (0, None) for cut in cuts):
            raise _No
        found = Place(node.value.id, cuts if rest else (), rest[0] if rest else None)
        return self.made.places.setdefault(node, found)

    def value(self, node: ast.expr, known: set[str]) -> None:
        """Read an expression of lanes."""
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                self.value(left, known)
                self.value(right, known)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                self.value(operand, known)
            case ast.Name(id=name):
                if name not in known:
                    self.made.bare.add(name)
                    if name in self.made.names:
                        self.made.carried.add(name)
            case ast.Constant(value=number) if type(number) in (int, float):
                pass
            case ast.Subscript():
                self.place(node)
            case _:
                raise _No

    def counts(self, node: ast.expr, inside: bool = True) -> None:
        """Read an integer that does not depend on elements."""
        match node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
                self.counts(left, inside)
                self.counts(right, inside)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                self.counts(operand, inside)
            case ast.Name(id=name) if name not in self.made.names and (inside or name != self.target):
                pass
            case ast.Constant(value=number) if type(number) is int:
                pass
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"),
                               slice=ast.Constant(value=int())) if name not in self.made.names:
                pass
            case _:
                raise _No

    def test(self, node: ast.expr) -> None:
        """Read a question that all lanes answer alike."""
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
                self.counts(left)
                self.counts(right)
            case ast.BoolOp(values=values):
                for each in values:
                    self.test(each)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.test(operand)
            case _:
                raise _No


def _cut(part: ast.Slice) -> tuple[int, int | None]:
    """Return what a slice leaves out at both ends: from where, and up to where, below zero from the end."""
    first = 0 if part.lower is None else whole(part.lower)
    last = None if part.upper is None else whole(part.upper)
    if part.step is not None or first is None or first < 0 or part.upper is not None and last is None:
        raise _No
    return first, last
