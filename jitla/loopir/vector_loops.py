"""Innermost loops of loop programs whose iterations can be computed several at a time, and how.

`find_vector_loop` decides from the statements alone. What it cannot know is left to tests before the loop:
that views have the strides that were assumed, and that the memory of views does not overlap. Where a test
fails the loop is run one iteration at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jitla.classes import dataclass
from jitla.loopir.program import (
    INT64,
    Apply,
    Assign,
    Check,
    Element,
    ExitKind,
    Extent,
    For,
    Foreign,
    Number,
    Pointer,
    Read,
    StoreElement,
    Stride,
    Value,
    dtype_of_value,
)
from jitla.loopir.program_facts import ProgramFacts, count_reads
from jitla.loopir.program_text import show_value
from jitla.loopir.program_uses import assigned_in, operands_of, variables_of_value

__all__ = ["LinearAccess", "Linear", "Reduction", "VectorLoop", "find_vector_loop", "show_vector_loop"]

MAX_TESTS = 12  # pairs of accesses whose memory is compared before a loop
MAX_STATEMENTS = 64
VECTOR_BYTES = 32  # for which costs are estimated
WIN = 0.9  # of the time of single iterations that vectors may take
#: Operators that reduce integers or bools in any order.
_REDUCTIONS = frozenset({"add", "multiply", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and",
                         "logical_or", "maximum", "minimum"})
#: Costs of an operation on one element and on a vector, in loads: what is not here costs 1 and 1.
_SLOW = {"divide": (8, 4), "sqrt": (9, 4), "floor_divide": (12, 8), "remainder": (12, 8)}
GATHER, SCATTER = 2.2, 2.6  # costs of one element of a vector that is not contiguous


@dataclass(frozen=True, slots=True)
class Linear:
    """An int64 as a linear function of the counter: ``factor * counter + sum(times * value) + constant``."""

    factor: int
    terms: tuple[tuple[Value, int], ...]
    constant: int


class LoopValues:
    """How values depend on the iteration of a loop.

    `changed` are the variables that iterations assign, `linear` those that are linear functions of the
    counter. `stored` are the views that refer to memory which iterations read and others may have stored.
    """

    def __init__(self, loop: For, stored: frozenset[str]) -> None:
        self.changed = assigned_in(loop.body) | {loop.name}
        self.linear: dict[str, Linear] = {loop.name: Linear(1, (), 0)}
        self.stored = stored

    def is_invariant(self, value: Value) -> bool:
        """Return whether a value is the same in all iterations."""
        match value:
            case Number():
                return True
            case Read(name):
                return name not in self.changed
            case Extent() | Stride() | Pointer(_, ()):
                return True
            case Element(view, index):
                return view not in self.stored and all(map(self.is_invariant, index))
            case Apply() | Foreign():
                return all(map(self.is_invariant, operands_of(value)))
        return False

    def linear_of(self, value: Value) -> Linear | None:
        """Return an int64 as a linear function of the counter; None if it is no such function."""
        if dtype_of_value(value) != INT64:
            return None
        match value:
            case Number(_, bits):
                return Linear(0, (), int(np.frombuffer(bits, np.int64)[0]))
            case Read(name) if name in self.linear:
                return self.linear[name]
            case Apply("add" | "subtract" as op, (x, y)):
                return _combined(self.linear_of(x), self.linear_of(y), 1 if op == "add" else -1)
            case Apply("multiply", (x, y)):
                for one, other in ((x, y), (y, x)):
                    linear = self.linear_of(one)
                    if isinstance(other, Number) and linear is not None:
                        return _scaled(linear, int(np.frombuffer(other.bits, np.int64)[0]))
        return Linear(0, ((value, 1),), 0) if self.is_invariant(value) else None


class NotVectorised(Exception):
    """A loop that is run one iteration at a time: why."""


@dataclass(frozen=True, slots=True)
class LinearAccess:
    """An element that is read or stored in each iteration.

    `index` are its components as functions of the counter. `kind` is "unit" (neighbours follow each other
    in memory), "same" (one element in all iterations), or "strided". It is that if strides are what `strides`
    says: by axis, "unit" or "zero".
    """

    view: str
    index: tuple[Linear, ...]
    kind: str
    strides: tuple[tuple[int, str], ...]
    is_store: bool
    position: int  # of the statement


@dataclass(frozen=True, slots=True)
class Reduction:
    """A scalar that `op` combines with a value in each iteration."""

    name: str
    op: str
    value: Value


@dataclass(frozen=True, slots=True)
class VectorLoop:
    """A loop whose iterations are computed `lanes` at a time, for vectors of `itemsize` bytes an element.

    `accesses` has the elements that are read or stored by view and index. Memory of the pairs in `apart` must
    not overlap. With `keeps_last` the last iteration is run by itself, as it sets scalars that are read
    elsewhere; where a check fails they are not set, as the program is undone.
    """

    loop: For
    itemsize: int
    values: LoopValues
    accesses: dict[tuple[str, tuple[Value, ...]], LinearAccess]
    reductions: dict[str, Reduction]
    apart: tuple[tuple[LinearAccess, LinearAccess], ...]
    keeps_last: bool


def find_vector_loop(loop: For, facts: ProgramFacts) -> VectorLoop | str:
    """Return how a loop is computed several iterations at a time, or why it is not."""
    try:
        return _Search(loop, facts).find()
    except NotVectorised as reason:
        return str(reason)


class _Search:
    """Looks at the statements of one loop in order."""

    def __init__(self, loop: For, facts: ProgramFacts) -> None:
        self.loop, self.facts = loop, facts
        stored = {s.view for s in loop.body if isinstance(s, StoreElement)}
        # what one iteration stores, and reads afterwards, is not read before the loop
        shared = {view.name for view in facts.program.views if not loop.independent or len(loop.body) > 1
                  if any(facts.may_share_memory(view.name, target) for target in stored)}
        self.values = LoopValues(loop, frozenset(shared))
        self.assigned: set[str] = set()  # before the statement
        self.accesses: dict[tuple[str, tuple[Value, ...]], LinearAccess] = {}
        self.order: list[LinearAccess] = []
        self.reductions: dict[str, Reduction] = {}
        self.itemsize = 1
        self.scalar_cost = self.vector_cost = self.lane_cost = 0.0  # of an iteration, a vector, each lane
        self.stored = False

    def find(self) -> VectorLoop:
        """Return how the loop is computed."""
        loop = self.loop
        if loop.step != 1:
            raise NotVectorised("its step is not 1")
        if len(loop.body) > MAX_STATEMENTS:
            raise NotVectorised("it has many statements")
        for position, statement in enumerate(loop.body):
            self.statement(position, statement)
        if not self.stored and not self.reductions:
            raise NotVectorised("it stores nothing")
        lanes = VECTOR_BYTES / self.itemsize
        if self.vector_cost + lanes * self.lane_cost > WIN * lanes * self.scalar_cost:
            raise NotVectorised("most of its accesses are strided")
        inside = count_reads(loop.body)
        outside = {name for name in self.values.changed - self.reductions.keys()
                   if name in self.facts.results or self.facts.reads[name] > inside[name]}
        return VectorLoop(loop, self.itemsize, self.values, self.accesses, self.reductions,
                          () if loop.independent else tuple(self.pairs()), bool(outside))

    # -- statements -----------------------------------------------------------------------------

    def statement(self, position: int, statement: object) -> None:
        """Look at one statement."""
        match statement:
            case Assign(name, value):
                self.assign(position, name, value)
            case StoreElement(view, index, value):
                self.value(position, value)
                self.widen(dtype_of_value(value))
                access = self.access(position, view, index, True)
                if access.kind == "same":
                    raise NotVectorised("it stores to one element again and again")
                self.stored = True
                self.assigned.add(view)
            case Check(test, number):
                if self.stored or self.facts.program.exits[number].kind is not ExitKind.UNDO:
                    raise NotVectorised("it may be left behind a store")
                self.value(position, test)
            case _:
                raise NotVectorised(f"it has a {type(statement).__name__}")

    def assign(self, position: int, name: str, value: Value) -> None:
        """Look at an assignment: of a linear function, a reduction, or a value of this iteration."""
        if name == self.loop.name or name in self.assigned:
            raise NotVectorised(f"{name} is assigned twice")
        if name not in self.assigned and self.is_read(value, name):
            self.reduction(position, name, value)
            return
        linear = self.values.linear_of(value)
        if linear is not None:
            self.values.linear[name] = linear
        else:
            self.value(position, value)
        self.assigned.add(name)

    @staticmethod
    def is_read(value: Value, name: str) -> bool:
        """Return whether a value depends on a variable."""
        return name in variables_of_value(value)

    def reduction(self, position: int, name: str, value: Value) -> None:
        """Look at ``name = op(name, x)``."""
        if not isinstance(value, Apply) or value.op not in _REDUCTIONS or value.dtype.kind not in "biu" \
                or value.attrs or len(value.args) != 2:
            raise NotVectorised(f"{name} depends on the iteration before")
        own = Read(name, value.dtype)
        one, other = value.args
        if one != own:
            one, other = other, one
        if one != own or dtype_of_value(other) != value.dtype or self.is_read(other, name) \
                or count_reads(self.loop.body)[name] != 1:
            raise NotVectorised(f"{name} depends on the iteration before")
        self.value(position, other)
        self.reductions[name] = Reduction(name, value.op, other)
        self.assigned.add(name)

    # -- values ---------------------------------------------------------------------------------

    def value(self, position: int, value: Value) -> None:
        """Look at a value that is computed for several iterations at once."""
        if self.values.is_invariant(value):
            return
        dtype = dtype_of_value(value)
        if self.values.linear_of(value) is not None:
            self.widen(dtype)
            return
        match value:
            case Read(name):
                if name not in self.assigned:
                    raise NotVectorised(f"{name} depends on the iteration before")
            case Element(view, index):
                self.access(position, view, index, False)
            case Apply(op, args):
                for arg in args:
                    self.value(position, arg)
                scalar, vector = _SLOW.get(op, (1, 1)) if dtype.kind != "b" else (1, 1)
                self.scalar_cost += scalar
                self.vector_cost += vector
            case _:
                raise NotVectorised(f"it computes {show_value(value)}")
        self.widen(dtype)

    def widen(self, dtype: np.dtype) -> None:
        """Take elements of a dtype into account for the number of lanes."""
        self.itemsize = max(self.itemsize, dtype.itemsize // (2 if dtype.kind == "c" else 1))

    def access(self, position: int, view: str, index: tuple[Value, ...], is_store: bool) -> LinearAccess:
        """Look at an element that is read or stored."""
        found: list[Linear] = []
        for component in index:
            linear = self.values.linear_of(component)
            if linear is None:
                raise NotVectorised("an index depends on data")
            found.append(linear)
        kind, strides = self.kind(view, found)
        access = LinearAccess(view, tuple(found), kind, strides, is_store, position)
        self.accesses[view, index] = access
        self.order.append(access)
        self.scalar_cost += 1.0
        if kind == "strided":
            self.lane_cost += SCATTER if is_store else GATHER
        else:
            self.vector_cost += 1.0 if kind == "unit" else 0.3
        return access

    def kind(self, view: str, index: Sequence[Linear]) -> tuple[str, tuple[tuple[int, str], ...]]:
        """Return how the addresses of an element differ between iterations, as is likely."""
        moving = {axis: self.facts.likely_stride(view, axis) for axis, linear in enumerate(index)
                  if linear.factor}
        strides = tuple((axis, stride) for axis, stride in moving.items() if stride != "other")
        kinds = [stride for stride in moving.values() if stride != "zero"]
        if not kinds:
            return "same", strides
        if kinds == ["unit"] and all(index[axis].factor == 1 for axis in moving if moving[axis] == "unit"):
            return "unit", strides
        return "strided", ()

    # -- dependences ----------------------------------------------------------------------------

    def pairs(self) -> Iterator[tuple[LinearAccess, LinearAccess]]:
        """Return the pairs of accesses whose memory must not overlap."""
        found: dict[tuple[LinearAccess, LinearAccess], None] = {}
        for store in self.order:
            if not store.is_store:
                continue
            for other in self.order:
                if other is store or not self.facts.may_share_memory(store.view, other.view) \
                        or other.is_store and other.position < store.position:
                    continue
                if not self.is_ordered(store, other):
                    found[store, other] = None
        if len(found) > MAX_TESTS:
            raise NotVectorised("many of its accesses may overlap")
        yield from found

    def is_ordered(self, store: LinearAccess, other: LinearAccess) -> bool:
        """Return whether two accesses of one view touch the same elements in the same order in vectors."""
        if store.view != other.view:
            return False
        if store.index == other.index:
            return True
        apart = [(one, two) for one, two in zip(store.index, other.index, strict=True) if one != two]
        if any((one.factor, one.terms) != (two.factor, two.terms) for one, two in apart):
            return False
        if any(not one.factor for one, _ in apart):
            return True  # other rows
        if len(apart) > 1:
            return False
        ((one, two),) = apart
        distance = two.constant - one.constant
        if distance % one.factor:
            return True
        if distance // one.factor > 0 and not other.is_store and other.position <= store.position:
            return True  # elements are read before they are stored
        raise NotVectorised("an element is read that an iteration before has stored")


def _combined(a: Linear | None, b: Linear | None, sign: int) -> Linear | None:
    """Return ``a + sign * b``."""
    if a is None or b is None:
        return None
    terms = dict(a.terms)
    for value, times in b.terms:
        terms[value] = terms.get(value, 0) + sign * times
    ordered = sorted(((value, times) for value, times in terms.items() if times), key=lambda t: repr(t[0]))
    return Linear(a.factor + sign * b.factor, tuple(ordered), a.constant + sign * b.constant)


def _scaled(a: Linear, times: int) -> Linear | None:
    """Return ``times * a``."""
    if abs(times) >= 1 << 16:
        return None
    return Linear(times * a.factor, tuple((value, times * own) for value, own in a.terms if times),
                  times * a.constant)


def show_vector_loop(loop: VectorLoop) -> str:
    """Return what the vectors of a loop are: accesses, reductions, and what is tested before it."""
    lines = [f"{loop.loop.label}: vectors of {loop.itemsize} bytes an element"]
    lines += [f"  {access.kind} {'store' if access.is_store else 'load'} "
              f"{access.view}[{', '.join(map(show_value, index))}]"
              for (_, index), access in loop.accesses.items()]
    lines += [f"  {reduction.op} into {name}" for name, reduction in loop.reductions.items()]
    lines += [f"  {one.view} and {other.view} must not overlap" for one, other in loop.apart]
    if loop.keeps_last:
        lines.append("  the last iteration by itself")
    return "\n".join(lines)
