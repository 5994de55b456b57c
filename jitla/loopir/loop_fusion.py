"""Fusion of loop nests over the elements of arrays, and removal of temporary arrays that are read no more.

Two nests over the same indices that follow each other become one if an element that one of them stores is
only accessed by the other at the same indices. What the first one has stored is then read from a scalar.
Between them may be statements that do not depend on memory: they are moved before the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from jitla.classes import dataclass
from jitla.loopir.program import (
    Address,
    Allocate,
    Apply,
    Assign,
    BindView,
    Block,
    Check,
    Checked,
    Element,
    ExitKind,
    Expires,
    Extent,
    For,
    Foreign,
    If,
    LoopProgram,
    Number,
    Pointer,
    Read,
    Repeat,
    ScalarVariable,
    Statement,
    StoreElement,
    Value,
    dtype_of_value,
    program_nodes,
    variables_in,
)
from jitla.loopir.program_facts import ProgramFacts
from jitla.loopir.program_uses import assigned_in, is_pure

__all__ = ["fuse_loops"]

MAX_STATEMENTS = 24  # of a fused body
MAX_NODES = 400  # of a fused body
#: A value or view as a tree of words in which equal trees stand for equal values.
Key = Any


def fuse_loops(program: LoopProgram) -> LoopProgram:
    """Return a program with nests fused, and without stores to temporary arrays that are not read."""
    fusion = _Fusion(program)
    body = fusion.body(program.body)
    if not fusion.scalars:
        return program
    fused = replace(program, body=body, scalars=(*program.scalars, *fusion.scalars))
    return replace(fused, body=_without_stores(body, _unread(fused)))


@dataclass(eq=False)
class _Nest:
    """A nest of independent loops around stores.

    `accesses` are keys of elements, with their views and whether they are stored.
    """

    loops: tuple[For, ...]
    inner: tuple[Statement, ...]
    accesses: list[tuple[Key, str, bool]]
    ends: tuple[Key, ...]


class _Fusion:
    """Goes through lists of statements; keys are those at the present statement."""

    def __init__(self, program: LoopProgram) -> None:
        self.program = program
        self.facts = ProgramFacts(program)
        self.scalars: list[ScalarVariable] = []
        self.versions: dict[str, int] = {}
        self.count = 0
        self.values: dict[str, Key] = {}  # of scalars that are copies of others, or others and a constant
        self.views: dict[str, Key] = {}
        self.lengths: dict[str, tuple[Key, ...]] = {}
        self.equal: dict[Key, Key] = {}

    # -- keys -----------------------------------------------------------------------------------

    def find(self, key: Key) -> Key:
        """Return the key that stands for all that are known to be equal."""
        while key in self.equal:
            key = self.equal[key]
        return key

    def key(self, value: Value, counters: dict[str, int]) -> Key:
        """Return the key of a value; `counters` are the levels of loops by their variables."""
        match value:
            case Number(dtype, bits):
                return "number", dtype.str, bits
            case Read(name) if name in counters:
                return "counter", counters[name]
            case Read(name):
                return self.values.get(name) or ("scalar", name, self.versions.get(name, 0))
            case Extent(view, axis):
                lengths = self.lengths.get(view)
                return lengths[axis] if lengths is not None else ("extent", self.view(view), axis)
            case Element(view, index):
                return "element", self.view(view), *(self.key(i, counters) for i in index)
            case Apply(op, args, dtype, attrs):
                operands = cast(tuple[Value, ...], args)
                return op, dtype.str, attrs, *(self.key(a, counters) for a in operands)
            case Checked(op, args, dtype):
                return f"checked {op}", dtype.str, *(self.key(a, counters) for a in args)
            case Foreign(function, args):
                return "call", function, *(self.key(a, counters) for a in args)
        self.count += 1
        return "unknown", self.count

    def view(self, name: str) -> Key:
        """Return the key of a view: views with equal keys have equal elements at equal indices."""
        return self.views.get(name) or ("view", name, self.versions.get(name, 0))

    def note(self, statement: Statement) -> None:
        """Follow a statement: variables that it assigns have other values from now on."""
        definition: tuple[Key, tuple[Key, ...]] | None = None
        number: Key = None
        match statement:
            case BindView(_, source, points, axes):
                lengths = tuple(self.key(axis.length, {}) for axis in axes)
                identity = not points and len(axes) == self.facts.ndim(source) and all(
                    axis.axis == k and axis.begin == _ZERO and axis.step == _ONE
                    for k, axis in enumerate(axes))
                key = self.view(source) if identity else (
                    "part", self.view(source), tuple((axis, self.key(at, {})) for axis, at in points),
                    tuple((axis.axis, self.key(axis.begin, {}), self.key(axis.step, {})) for axis in axes))
                definition = key, lengths
            case Allocate(_, shape):
                self.count += 1
                definition = ("allocated", self.count), tuple(self.key(size, {}) for size in shape)
            case Check(Apply("not_equal", (a, b))):
                one, other = self.find(self.key(a, {})), self.find(self.key(b, {}))
                if one != other:
                    self.equal[one] = other
            case Assign(_, Read() as value):
                number = self.key(value, {})
            case Assign(_, Apply("add" | "subtract", (Read(), Number()) | (Number(), Read())) as value):
                number = self.key(value, {})
        self.forget(statement)
        if number is not None:
            self.values[cast(Assign, statement).name] = number
        if definition is not None:
            name = cast(BindView | Allocate, statement).name
            self.views[name], self.lengths[name] = definition

    # -- lists of statements --------------------------------------------------------------------

    def body(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """Return statements with nests fused."""
        done: list[Statement] = []
        nest: _Nest | None = None  # that the next one may be fused with
        place = 0  # where it is
        for statement in body:
            following = self.nest(statement) if isinstance(statement, For) else None
            if following is not None:
                fused = None if nest is None else self.fused(nest, done[place + 1:], following)
                if fused is not None:
                    done[place:] = [*done[place + 1:], fused]
                    statement = fused
                    following = self.nest(fused)
                else:
                    done.append(statement)
                nest, place = following, len(done) - 1
                self.note(statement)
                continue
            if not self.is_movable(statement):
                nest = None
                statement = self.inside(statement)
            done.append(statement)
            self.note(statement)
        return tuple(done)

    def inside(self, statement: Statement) -> Statement:
        """Return a statement with the nests in it fused: within it variables may have other values."""
        if not isinstance(statement, (For, Repeat, Block, If)):
            return statement
        parts = []
        bodies = (statement.then, statement.otherwise) if isinstance(statement, If) else (statement.body,)
        for body in bodies:
            self.forget(statement)
            known = dict(self.equal)
            parts.append(self.body(body))
            self.equal = known  # sizes that are equal there need not be behind
        return replace(statement, then=parts[0], otherwise=parts[1]) if isinstance(statement, If) else \
            replace(statement, body=parts[0])

    def forget(self, statement: Statement) -> None:
        """Give up what is known of the variables that a statement assigns somewhere."""
        for name in assigned_in((statement,)):
            self.count += 1
            self.versions[name] = self.count
            self.values.pop(name, None)
            self.views.pop(name, None)
            self.lengths.pop(name, None)

    def is_movable(self, statement: Statement) -> bool:
        """Return whether a statement does not depend on memory, and may be done earlier."""
        match statement:
            case Assign(_, value):
                return is_pure(value)
            case Check(test, number):
                return is_pure(test) and self.program.exits[number].kind is ExitKind.UNDO
        return isinstance(statement, (BindView, Allocate))

    def nest(self, loop: For) -> _Nest | None:
        """Return a loop as a nest, if it is one that may be fused."""
        loops: list[For] = []
        body: tuple[Statement, ...] = (loop,)
        while len(body) == 1 and isinstance(body[0], For):
            inner = body[0]
            if not inner.independent or inner.step != 1 or inner.begin != _ZERO:
                return None
            loops.append(inner)
            body = inner.body
        own = {scalar.name for scalar in self.scalars}
        if not body or not all(isinstance(s, StoreElement) or isinstance(s, Assign) and s.name in own
                               for s in body):
            return None
        counters = {each.name: level for level, each in enumerate(loops)}
        accesses = list(self.accesses(body, counters))
        ends = tuple(self.find(self.key(each.end, {})) for each in loops)
        return _Nest(tuple(loops), body, accesses, ends)

    def accesses(
        self, body: Sequence[Statement], counters: dict[str, int],
    ) -> Iterator[tuple[Key, str, bool]]:
        """Return the elements that statements access."""
        for node in program_nodes(tuple(body)):
            if isinstance(node, Element):
                yield self.key(node, counters), node.view, False
            elif isinstance(node, StoreElement):
                yield ("element", self.view(node.view), *(self.key(i, counters) for i in node.index)), \
                    node.view, True

    # -- fusion ---------------------------------------------------------------------------------

    def fused(self, first: _Nest, between: list[Statement], second: _Nest) -> For | None:
        """Return two nests as one, or None; `between` is moved before both."""
        if len(first.loops) != len(second.loops) or any(
                self.find(a) != self.find(b) for a, b in zip(first.ends, second.ends, strict=True)):
            return None
        if len(first.inner) + len(second.inner) > MAX_STATEMENTS:
            return None
        nest, moved = first.loops[:1], tuple(between)
        if variables_in(program_nodes(nest)) & assigned_in(moved) or \
                variables_in(program_nodes(moved)) & assigned_in(nest):
            return None
        shares = {key for key, _, _ in first.accesses} & {key for key, _, _ in second.accesses}
        if not shares or not all(self.is_ordered(a, b) for a in first.accesses for b in second.accesses):
            return None
        inner = self.joined(first, second)
        if len(program_nodes(inner)) > MAX_NODES:
            return None
        for loop in reversed(first.loops):
            inner = (replace(loop, body=inner),)
        return cast(For, inner[0])

    def is_ordered(self, a: tuple[Key, str, bool], b: tuple[Key, str, bool]) -> bool:
        """Return whether two accesses touch one element only in the same iteration."""
        if not a[2] and not b[2] or a[0] == b[0]:
            return True
        return not self.facts.may_share_memory(a[1], b[1]) or _are_apart(a[0][1], b[0][1])

    def joined(self, first: _Nest, second: _Nest) -> tuple[Statement, ...]:
        """Return the statements of both nests; elements that the first one stores are read from scalars."""
        levels = {loop.name: level for level, loop in enumerate(first.loops)}
        body: list[Statement] = []
        stored: dict[Key, Value] = {}
        for statement in first.inner:
            if isinstance(statement, StoreElement):
                value = statement.value
                if not isinstance(value, (Read, Number)):
                    name = self.fresh(value)
                    body.append(Assign(name, value))
                    value = Read(name, self.scalars[-1].dtype)
                statement = replace(statement, value=value)
                key = "element", self.view(statement.view), *(self.key(i, levels) for i in statement.index)
                stored[key] = value
            body.append(statement)
        renamed = {loop.name: Read(own.name, np.dtype(np.int64))
                   for own, loop in zip(first.loops, second.loops, strict=True)}
        levels = {loop.name: level for level, loop in enumerate(second.loops)}
        for statement in second.inner:
            match statement:
                case Assign(name, value):
                    body.append(Assign(name, self.replaced(value, renamed, stored, levels)))
                case StoreElement(view, index, value):
                    places = tuple(self.replaced(i, renamed, stored, levels) for i in index)
                    body.append(StoreElement(view, places, self.replaced(value, renamed, stored, levels)))
        return tuple(body)

    def replaced(self, value: Value, renamed: dict[str, Read], stored: dict[Key, Value],
                 levels: dict[str, int]) -> Value:
        """Return a value with other counters, and scalars for elements that are stored."""
        match value:
            case Read(name):
                return renamed.get(name, value)
            case Element(view, index, dtype):
                found = stored.get(self.key(value, levels))
                if found is not None:
                    return found
                return Element(view, tuple(self.replaced(i, renamed, stored, levels) for i in index), dtype)
            case Apply() | Checked() | Foreign():
                operands = cast(tuple[Value, ...], value.args)
                return replace(value, args=tuple(
                    self.replaced(a, renamed, stored, levels) for a in operands))
        return value

    def fresh(self, value: Value) -> str:
        """Declare a scalar for a value."""
        name = f"fused.{len(self.scalars) + 1}"
        self.scalars.append(ScalarVariable(name, dtype_of_value(value)))
        return name


_INT64 = np.dtype(np.int64)
_ZERO, _ONE = (Number(_INT64, np.int64(k).tobytes()) for k in (0, 1))


def _are_apart(a: Key, b: Key) -> bool:
    """Return whether two parts of a view have a point on one axis at indices that differ by a constant."""
    if a[0] != "part" or b[0] != "part" or a[1] != b[1]:
        return False
    others = dict(b[2])
    for axis, key in a[2]:
        if axis in others:
            (base, offset), (other, distance) = _offset(key), _offset(others[axis])
            if base == other and offset != distance:
                return True
    return False


def _offset(key: Key) -> tuple[Key, int]:
    """Return an int64 as a value and a constant that is added to it."""
    if key[0] == "number" and key[1] == _INT64.str:
        return None, int(np.frombuffer(key[2], np.int64)[0])
    if key[0] in ("add", "subtract", "checked add", "checked sub"):
        one, other = key[-2:]
        (base, offset), (term, distance) = _offset(one), _offset(other)
        sign = 1 if key[0] in ("add", "checked add") else -1
        if term is None:
            return base, offset + sign * distance
        if base is None and sign == 1:
            return term, offset + distance
    return key, 0


# --------------------------------------------------------------------------- arrays that are read no more


def _unread(program: LoopProgram) -> frozenset[str]:
    """Return the views whose memory the program has allocated, and that nothing reads."""
    nodes = program_nodes(program.body)
    facts = ProgramFacts(program)
    read = {node.view for node in nodes if isinstance(node, (Element, Pointer, Address, Expires))}
    read |= {view.name for view in program.views if view.name in program.results}
    used = frozenset[str]().union(*map(facts.allocations_of, read))
    unread = set()
    for view in program.views:
        memory = facts.memory_of(view.name)
        if memory and memory <= facts.allocations_of(view.name) and not memory & used:
            unread.add(view.name)
    return frozenset(unread)


def _without_stores(body: Sequence[Statement], unread: frozenset[str]) -> tuple[Statement, ...]:
    """Return statements without stores to views that nothing reads."""
    kept: list[Statement] = []
    for statement in body:
        match statement:
            case StoreElement(view) if view in unread:
                continue
            case For() | Repeat() | Block():
                kept.append(replace(statement, body=_without_stores(statement.body, unread)))
            case If(test, then, otherwise):
                kept.append(If(test, _without_stores(then, unread), _without_stores(otherwise, unread)))
            case _:
                kept.append(statement)
    return tuple(kept)
