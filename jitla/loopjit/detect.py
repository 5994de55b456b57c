"""Detection of loops that are worth compiling: loops over elements and over slices."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import islice
from types import ModuleType
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.loopjit.types import Refused

Loop = ast.For | ast.While
# Where they are reached, the interpreter goes on.
EXITS = (ast.Return, ast.Raise)
ATTRIBUTES = frozenset({"shape", "size", "ndim"})


def assigned(target: ast.expr) -> Iterator[str]:
    """Yield the names that a target assigns."""
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            for each in elts:
                yield from assigned(each)
        case ast.Starred(value=value):
            yield from assigned(value)


def computed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all that is in a loop but what only the interpreter does: where it is left."""
    yield node
    if not isinstance(node, EXITS):
        for child in ast.iter_child_nodes(node):
            yield from computed(child)


def loads(node: ast.Name) -> bool:
    """Say whether a name is read."""
    return isinstance(node.ctx, ast.Load)


def named(loop: Loop) -> Iterator[str]:
    """Yield the names of functions and modules."""
    for node in computed(loop):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                yield name
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr not in ATTRIBUTES:
                yield name


def reads(loop: Loop) -> Iterator[str]:
    """Yield the names that are read for what they hold; not those of functions and modules."""
    nodes = list(computed(loop))
    others = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    others |= {id(node.value) for node in nodes
               if isinstance(node, ast.Attribute) and node.attr not in ATTRIBUTES}
    others |= {id(node.annotation) for node in nodes if isinstance(node, ast.AnnAssign)}
    for node in nodes:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Name) and loads(node) and id(node) not in others:
            yield node.id


def read_outside(node: ast.AST, loop: Loop) -> set[str]:
    """Return the names that a function reads, or deletes, outside of a loop, or where it leaves it."""
    if node is loop:
        outs = (each for each in ast.walk(loop) if isinstance(each, EXITS))
        return {part.id for each in outs for part in ast.walk(each)
                if isinstance(part, ast.Name) and loads(part)}
    found: set[str] = set()
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
        found.add(node.id)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        found.add(node.target.id)
    return found.union(*(read_outside(child, loop) for child in ast.iter_child_nodes(node)))


def chain(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """Return what is indexed, once or in turn, and all its indices."""
    indices: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        part = node.slice
        indices = [*(part.elts if isinstance(part, ast.Tuple) else [part]), *indices]
        node = node.value
    return node, indices


OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
MOST_STATEMENTS = 60
_SCOPES = ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp, ast.ListComp


@dataclass(frozen=True)
class LaneSubscript:
    """What a subscript means in one lane: an array, how its axes of lanes are cut, an index behind them."""

    name: str
    cuts: tuple[tuple[int, int | None], ...]
    index: ast.expr | None


@dataclass
class LaneLoop:
    """A loop that can be done lane by lane."""

    turn: ast.For
    axes: int = 0
    places: dict[ast.Subscript, LaneSubscript] = field(default_factory=dict)
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


def lanes(loop: Loop) -> LaneLoop | None:
    """Return a loop as lanes, if it is one of those."""
    try:
        return _Reader(loop).made if isinstance(loop, ast.For) else None
    except _No:
        return None


def settled(function: ast.AST, made: LaneLoop) -> bool:
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
        self.made = made = LaneLoop(loop)
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
                self.viewed.add(self.parse_subscript(value).name)
            elif isinstance(value, ast.Name):
                self.viewed.add(value.id)

    def stores(self, target: ast.expr) -> set[str]:
        """Read what is assigned to; return names."""
        if isinstance(target, ast.Name):
            return {target.id}
        self.parse_subscript(target)
        return set()

    def parse_subscript(self, node: ast.expr) -> LaneSubscript:
        """Return the parts of a subscript of slices; raise `_No` for any other expression."""
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
        found = LaneSubscript(node.value.id, cuts if rest else (), rest[0] if rest else None)
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
                self.parse_subscript(node)
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


SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Pass, ast.Break, ast.Continue)
EXPRESSIONS = (
    ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Subscript,
    ast.Tuple, ast.Attribute, ast.Call, ast.operator, ast.unaryop, ast.cmpop, ast.boolop,
    ast.expr_context, ast.Slice,
)
NESTS_MOST_STATEMENTS = 200
# What makes a number of a row, as NumPy's functions and as methods.
REDUCING = frozenset({"sum", "max", "min"})
# Functions of Python that see all variables.
_ASKING = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"})


@dataclass(eq=False)
class DetectedNest:
    """One nest: its loop, the statements in it by number, the names it reads and assigns."""

    loop: Loop
    labels: dict[ast.AST, int] = field(default_factory=dict)
    # Names that it is given, those of the module that it reads, and those that it assigns.
    takes: tuple[str, ...] = ()
    globals: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    # Of those it assigns, the ones that are read outside of it, or when it runs again.
    live: tuple[str, ...] = ()
    # Its statements as those of lanes, if they are about slices.
    lanes: LaneLoop | None = None

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.loop.lineno


@dataclass
class DetectedNests:
    """The nests of a function, and why other loops over elements are none."""

    nests: list[DetectedNest]
    refused: list[tuple[int, str]]
    local: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()


def find(function: ast.AST, local: frozenset[str], free: frozenset[str]) -> DetectedNests:
    """Find the outermost nests over elements among the statements of a function.

    `local` are its variables, `free` those of functions around it.
    """
    found = DetectedNests([], [], local, free)
    body: list[ast.stmt] = function.body  # type: ignore[attr-defined]
    args = function.args  # type: ignore[attr-defined]
    given = (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg)
    _search(body, {arg.arg for arg in given if arg is not None}, found)
    for nest in list(found.nests):
        others = read_outside(function, nest.loop)
        asked = not others.isdisjoint(_ASKING)
        nest.live = tuple(name for name in nest.writes if asked or name in others or name in nest.takes)
        if nest.lanes is not None and (asked or not settled(function, nest.lanes)):
            found.nests.remove(nest)
    return found


def _search(body: list[ast.stmt], bound: set[str], found: DetectedNests) -> set[str]:
    """Look for nests in `body`; return the names that surely have a value after it."""
    for statement in body:
        bound = _step(statement, bound, found)
    return bound


def _step(node: ast.stmt, bound: set[str], found: DetectedNests) -> set[str]:
    match node:
        case ast.For() | ast.While():
            _loop(node, bound, found)
            return bound
        case ast.If(body=body, orelse=orelse):
            first = _search(body, set(bound), found)
            second = _search(orelse, set(bound), found)
            return second if leaves(body) else first if leaves(orelse) else first & second
        case ast.With(items=items, body=body):
            taken = {n for item in items if item.optional_vars for n in assigned(item.optional_vars)}
            _search(body, bound | taken, found)
            return bound
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
            for part in (body, *(handler.body for handler in handlers), orelse, final):
                _search(part, set(bound), found)
            return bound
        case ast.Delete(targets=targets):
            return bound - {name for target in targets for name in assigned(target)}
        case ast.Assign(targets=targets):
            return bound | {name for target in targets for name in assigned(target)}
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
            return bound | {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return bound | {alias.asname or alias.name.partition(".")[0] for alias in names}
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return bound | {name}
    return bound


def leaves(body: list[ast.stmt]) -> bool:
    """Say whether what follows `body` is not reached from its end."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return leaves(last.body) and leaves(last.orelse)
    return isinstance(last, (ast.Return, ast.Raise, ast.Break, ast.Continue))


def _loop(loop: Loop, bound: set[str], found: DetectedNests) -> None:
    """Take a loop as a nest, or look for nests inside of it."""
    if not _elements(loop):
        if (made := lanes(loop)) is not None and (nest := _laned(loop, made, bound, found)) is not None:
            found.nests.append(nest)
            return
        inside = bound | ({*assigned(loop.target)} if isinstance(loop, ast.For) else set())
        _search(loop.body, inside, found)
        return
    try:
        found.nests.append(_nest(loop, bound, found))
    except Refused as refused:
        before = len(found.nests)
        inside = bound | ({*assigned(loop.target)} if isinstance(loop, ast.For) else set())
        _search(loop.body, inside, found)
        if len(found.nests) == before:
            found.refused.append((refused.line, refused.reason))


def _laned(loop: Loop, made: LaneLoop, bound: set[str], found: DetectedNests) -> DetectedNest | None:
    """Return a nest of lanes, if all that it begins with has a value."""
    read = [name for name in dict.fromkeys(reads(loop)) if name not in made.fresh]
    takes = tuple(name for name in read if name in found.local or name in found.free)
    if not made.names | {made.target} <= found.local or not {*takes} <= bound | found.free \
            or not made.carried <= {*takes} or any(name.startswith("__") for name in read):
        return None
    return DetectedNest(loop, {loop: 1}, takes, tuple(n for n in read if n not in takes), (made.target,),
                        lanes=made)


def _elements(loop: Loop) -> bool:
    """Say whether an array is indexed inside of `loop`, not sliced only."""
    return any(isinstance(node, ast.Subscript) and _one(_parts(node.slice)) for node in ast.walk(loop))


def _one(parts: list[ast.expr]) -> bool:
    """Say whether indices change from turn to turn, and begin with one, or have no slice."""
    if any(isinstance(part, ast.Slice) for part in parts):
        return not isinstance(parts[0], (ast.Slice, ast.Constant))
    return not all(isinstance(part, ast.Constant) for part in parts)


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _nest(loop: Loop, bound: set[str], found: DetectedNests) -> DetectedNest:
    nest = DetectedNest(loop)
    _number(loop, nest, 0)
    if len(nest.labels) > NESTS_MOST_STATEMENTS:
        raise Refused("it has too many statements", loop.lineno)
    if _whole(loop):
        raise Refused("a slice", loop.lineno)
    written = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and not loads(node)}
    writes = [node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and node.id in written]
    if not written <= found.local:
        raise Refused(f"{min(written - found.local)} is no variable of the function alone", loop.lineno)
    takes: dict[str, None] = {}
    outside: dict[str, None] = {}
    for name in reads(loop):
        if name.startswith("__"):
            raise Refused(f"{name} may be another name in a class", loop.lineno)
        if name in found.free or name in found.local and name in bound:
            takes[name] = None
        elif name not in found.local:
            outside[name] = None
        elif name not in written:
            raise Refused(f"{name} may have no value yet", loop.lineno)
    for name in named(loop):
        if name in found.free or name in found.local:
            raise Refused(f"what is in the variable {name} is called, or has attributes", loop.lineno)
    nest.takes, nest.globals, nest.writes = tuple(takes), tuple(outside), tuple(dict.fromkeys(writes))
    return nest


def _number(node: ast.stmt, nest: DetectedNest, depth: int) -> None:
    """Give the statements numbers, outside in and in order; refuse what has no place in a nest."""
    nest.labels[node] = len(nest.labels) + 1
    match node:
        case ast.For(target=target, iter=source, body=body, orelse=orelse):
            if not isinstance(target, ast.Name):
                raise Refused("the target of a loop is no name", node.lineno)
            check(source)
            _body(body, orelse, nest, depth + 1)
        case ast.While(test=test, body=body, orelse=orelse):
            check(test)
            if not _moves(node):
                raise Refused("a loop that only something else could end", node.lineno)
            _body(body, orelse, nest, depth + 1)
        case ast.If(test=test, body=body, orelse=orelse):
            check(test)
            for each in (*body, *orelse):
                _number(each, nest, depth)
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
            check(node)
            if isinstance(node, ast.AnnAssign) and node.value is None:
                raise Refused("an annotation without a value", node.lineno)
        case ast.Expr(value=ast.Constant()):
            pass
        case ast.Expr(value=ast.Call(func=called)):
            raise Refused(f"{ast.unparse(called)}(...) is called for what it does", node.lineno)
        case _ if not isinstance(node, (*SIMPLE, *EXITS)):
            raise Refused(f"a {type(node).__name__.lower()} statement", node.lineno)


def _moves(loop: ast.While) -> bool:
    """Say whether a loop assigns something that it asks for: else it waits, for another thread maybe."""
    asked = [loop.test, *(node.test for node in ast.walk(loop) if isinstance(node, ast.If))]
    names = {part.id for test in asked for part in ast.walk(test) if isinstance(part, ast.Name)}
    return any(isinstance(part, ast.Name) and part.id in names
               for node in ast.walk(loop) if isinstance(node, (ast.Name, ast.Subscript))
               and isinstance(node.ctx, ast.Store) for part in ast.walk(node))


def _body(body: list[ast.stmt], orelse: list[ast.stmt], nest: DetectedNest, depth: int) -> None:
    if orelse:
        raise Refused("a loop with else", orelse[0].lineno)
    for each in body:
        _number(each, nest, depth)


def reduction(node: ast.AST) -> tuple[str, ast.expr] | None:
    """Return how a number is made of a row, and of which: or of the products of two."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=how), args=[operand], keywords=[]) \
                | ast.Call(func=ast.Attribute(value=operand, attr=how), args=[], keywords=[]):
            rows = [operand]
            if how == "sum" and isinstance(operand, ast.BinOp) and isinstance(operand.op, ast.Mult):
                rows = [operand.left, operand.right]
            kinds = {type(each) for each in rows}
            if how in REDUCING and ast.Subscript in kinds and kinds <= {ast.Subscript, ast.Name}:
                return how, operand
    return None


def check(node: ast.AST) -> None:
    """Refuse expressions that are no arithmetic of elements."""
    reduced = {id(part) for each in ast.walk(node) if reduction(each) for part in ast.walk(each)}
    for part in ast.walk(node):
        if isinstance(part, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            continue
        line = getattr(part, "lineno", getattr(node, "lineno", 0))
        if isinstance(part, ast.Slice) and (
                part.step is not None or id(part) not in reduced and not _row(node)):
            raise Refused("a slice", line)
        if not isinstance(part, EXPRESSIONS):
            raise Refused(f"{type(part).__name__} is no arithmetic of numbers", line)
        if isinstance(part, ast.MatMult):
            raise Refused("a matrix product", line)
        if isinstance(part, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            raise Refused("a question of identity or membership", line)
        if isinstance(part, ast.Call) and (part.keywords or not _plain(part.func) and not reduction(part)):
            raise Refused(f"a call of {ast.unparse(part.func)}", line)
        if isinstance(part, ast.Constant) and type(part.value) not in (int, float, bool):
            raise Refused(f"the constant {part.value!r} is no number", line)


def _row(node: ast.AST) -> bool:
    """Say whether a statement stores a row of an array."""
    targets = node.targets[:1] if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(part, ast.Slice) for target in targets if isinstance(target, ast.Subscript)
               for part in _parts(target.slice))


def _whole(loop: Loop) -> bool:
    """Say whether a loop stores rows only, and reads no elements: there tracing has something to win."""
    places = [node for node in ast.walk(loop)
              if isinstance(node, ast.Subscript) and not isinstance(node.value, ast.Attribute)]
    sliced = [any(isinstance(part, ast.Slice) for part in _parts(place.slice)) for place in places]
    return all(sliced) and bool(sliced)


def _plain(called: ast.expr) -> bool:
    """Say whether what is called is a name, or an attribute of one."""
    if isinstance(called, ast.Attribute):
        called = called.value
    return isinstance(called, ast.Name)


# Functions that make no arrays.
_PLAIN = frozenset({"len", "int", "float", "bool", "range", "dict", "list", "set", "str", "tuple", "math.log",
                    "math.sqrt", "math.exp"})

_BUILT_IN = int, float, complex, str, bytes, set, frozenset, range
# How many values of a collection are looked at.
_LOOKED_AT = 8


def alone(function: ast.AST, given: Mapping[str, Any]) -> bool:
    """Say whether the outermost loops of a function read single elements of what is given, and no more."""
    axes = {name: value.ndim for name, value in given.items() if type(value) is np.ndarray}
    numbers = {name for name, value in given.items() if isinstance(value, (int, float, np.generic))}
    ways = (name for name, value in given.items() if _has_arrays(value))
    made = {*_made_of_more(function, axes), *ways}
    return all(_single(loop, axes, numbers) and made.isdisjoint(_names(loop))
               for loop in _outermost(function))


def _has_arrays(value: Any) -> bool:
    """Say whether a value may be the way to arrays: an object, or a collection that begins with one."""
    if isinstance(value, (list, tuple, dict)):
        return any(isinstance(each, np.ndarray)
                   for each in islice(value.values() if isinstance(value, dict) else value, _LOOKED_AT))
    return not (value is None or callable(value)
                or isinstance(value, (np.ndarray, np.generic, ModuleType, *_BUILT_IN)))


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _made_of_more(function: ast.AST, axes: Mapping[str, int]) -> Iterator[str]:
    """Yield variables that may be arrays: made before loops, of arrays or by functions that are not known."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            calls = {ast.unparse(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
            if calls - _PLAIN or _names(node) & {*axes} and not calls and not _shapes(node):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (name for target in targets for name in assigned(target))
        elif not isinstance(node, (ast.For, ast.While)):
            yield from _made_of_more(node, axes)


def _shapes(node: ast.AST) -> bool:
    """Say whether a statement asks for a length, or for an element."""
    return any(isinstance(part, ast.Subscript) or isinstance(part, ast.Attribute) and part.attr in ATTRIBUTES
               for part in ast.walk(node))


def _outermost(node: ast.AST) -> Iterator[ast.For | ast.While]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.For, ast.While)):
            yield child
        else:
            yield from _outermost(child)


def _single(loop: ast.For | ast.While, axes: Mapping[str, int], numbers: set[str]) -> bool:
    counters = {name for node in ast.walk(loop) if isinstance(node, ast.For)
                for name in assigned(node.target)}
    elements: set[int] = set()
    for node in ast.walk(loop):
        if isinstance(node, (ast.Slice, ast.MatMult, ast.AsyncFor, ast.Await)):
            return False
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if axes.get(node.value.id) == len(indices):
                elements.add(id(node.value))
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES \
                or isinstance(node, ast.Call) and ast.unparse(node.func) in ("len", "range"):
            elements.update(id(part) for part in ast.walk(node) if isinstance(part, ast.Name))
    whole = (node for node in ast.walk(loop) if isinstance(node, ast.Name) and id(node) not in elements)
    if any(node.id in axes for node in whole):
        return False
    return all(_of_numbers(node, elements, counters | numbers) for node in ast.walk(loop)
               if isinstance(node, ast.Call))


def _of_numbers(call: ast.Call, elements: set[int], numbers: set[str]) -> bool:
    """Say whether a function of a module is given numbers; of others nothing is asked."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="math" | "cmath")) | ast.Name():
            return True
        case ast.Attribute(value=ast.Name(id="np" | "numpy")):
            return all(id(node) in elements or node.id in numbers for arg in call.args
                       for node in ast.walk(arg) if isinstance(node, ast.Name))
        case ast.Attribute(attr="append" | "add" | "get" | "pop" | "extend" | "setdefault"):
            return True
    return False
