"""Elements of arrays: where they lie, how they are read and written; lengths.

Knows: arrays that a nest is given, bounds of indices. Must not know: statements, other expressions.
Receives syntax trees of subscripts, and values; writes lines, and returns values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import FunctionType
from typing import Any

from jitla.loops.ahead import SIZE, Ahead
from jitla.loops.given import Array, Given, Scalar, Variable, variable
from jitla.loops.kinds import BITS, HELD, INTEGERS, RANGES, Refused
from jitla.loops.names import chain
from jitla.loops.needs import needs
from jitla.loops.nests import Nest
from jitla.loops.values import START, STOP, WIDE, Span, Value, endless

ZERO = {"i": "int64(0)", "d": "float64(0.0)", "s": "float32(0.0)", "b": "bool_(0)"}


class Elements(Ahead):
    """Reads and writes elements."""

    def __init__(self, nest: Nest, given: Mapping[str, Given], resolve: Callable[..., Any]) -> None:
        super().__init__()
        self.nest = nest
        self.given = given
        # What a name outside of the function stands for; whoever is asked makes sure that it stays so.
        self.resolve = resolve
        self.variables: dict[str, Variable] = {}
        self.arrays: dict[str, Array] = {}
        self.written: set[str] = set()
        self.definite: set[str] = set()
        self.needs = needs(nest.loop)
        # Inside of a function that is written out: which one, what its names are, how long its ways are.
        self.within: FunctionType | None = None
        self.scope: dict[str, Value] = {}
        self.way: list[int] = []
        self.counters = 0
        # The loops around, and the bits of how many turns each has at most; none where that is not known.
        self.around: list[tuple[ast.For | ast.While, int | None]] = []
        self.changed = False
        self.rounds = 0
        # What proves before the loop that indices are in bounds, which are not checked then.
        self.proofs: list[str] = []
        # Of arrays that are written, the bounds of each index; whether some are not known.
        self.boxes: dict[str, list[list[tuple[str, str]]]] = {}
        self.loose = False
        # Lengths along which an index may count from the end.
        self.wrapping: set[str] = set()
        # Variables that were read before it is known what they may hold.
        self.unknown: set[str] = set()
        for name, what in given.items():
            if isinstance(what, Array):
                self.arrays[name] = what
                if name in nest.writes:
                    raise Refused(f"{name} is an array, and is assigned", nest.line, element=False)
            elif isinstance(what, Scalar):
                self.variables[name] = variable(what)
        for name in nest.writes:
            self.variables.setdefault(name, Variable(frozenset()))

    def expression(self, node: ast.expr) -> Value:
        """Translate an expression."""
        raise NotImplementedError

    def length(self, name: str, axis: int) -> Value:
        """Return how long an array is along an axis."""
        text = f"d_{name}_{axis}"
        bound = f"float64({text})"
        return Value(text, frozenset({"int"}), "i", "", SIZE, True, (), (bound, bound))

    def place_of(self, node: ast.Subscript) -> tuple[str, list[ast.expr]]:
        """Return array and indices of an element."""
        inner, indices = chain(node)
        if not isinstance(inner, ast.Name) or inner.id not in self.arrays:
            raise Refused(f"{ast.unparse(inner)} is no array", element=False)
        name = inner.id
        if len(indices) != self.arrays[name].ndim:
            raise Refused(f"{ast.unparse(node)} is no element", element=False)
        return name, indices

    def place(self, node: ast.Subscript, stored: bool = False) -> tuple[str, str]:
        """Return array and position of an element, after its indices were checked."""
        name, indices = self.place_of(node)
        parts = []
        before, self.indexing = self.indexing, True
        try:
            values = [self.integer(index, " as an index") for index in indices]
        finally:
            self.indexing = before
        if stored and self.quick:
            self.boxes.setdefault(name, []).append(
                [self.bounds(value, f"d_{name}_{axis}") for axis, value in enumerate(values)])
        for axis, value in enumerate(values):
            place = self.index(value, f"d_{name}_{axis}", isinstance(indices[axis], ast.Subscript))
            stride = self.stride(name, axis)
            parts.append(place if stride == "1" else f"{place} * {stride}")
        return name, self.fresh(" + ".join(parts))

    def bounds(self, value: Value, length: str) -> tuple[str, str]:
        """Return the bounds of an index; if they are not known, those of the array."""
        if value.span is not None and _proven(value) and not self.local(value.span):
            return value.span
        self.loose = True
        return "0.0", f"(float64({length}) - 1.0)"

    def index(self, value: Value, length: str, read: bool = False) -> str:
        """Return the position that an index means along an axis; one that is read is hardly ever negative."""
        if not value.kinds:
            return "int64(0)"
        place = value.text
        if self.quick and _proven(value):
            assert value.span is not None
            low, high = value.span
            if self.local(value.span):
                if self.proven_ahead(value.span, length):
                    return place
            else:
                self.proofs += [f"{low} >= 0.0", f"{high} < float64({length})"]
                return place
        if self.quick and self.counted_down(value.span):
            assert value.span is not None
            self.proofs.append(f"{value.span[1]} < float64({length})")
            if not value.positive:
                self.wrapping.add(length)
                place = self.fresh(f"{place} + {length} if {place} < 0 else {place}")
                self.bail(f"{place} < 0", hard=True)
            return place
        if not value.positive and not (read and self.quick):
            self.wrapping.add(length)
            place = self.fresh(f"{place} + {length} if {place} < 0 else {place}")
        self.bail(f"outside({place}, {length})", hard=True)
        return place

    def counted_down(self, span: Span) -> bool:
        """Say whether what is counted down begins where a loop has come to: at places of arrays."""
        return span is not None and endless(span) and "INF" not in span[1] and not self.local(span) \
            and (START in span[1] or STOP in span[1])

    def steady(self, node: ast.Subscript) -> Value | None:
        """Return an element that an index is made of, if it stays the same in the innermost loop."""
        if not self.quick or not self.indexing or not self.turns or not self.certain(self.turns[-1]):
            return None
        name, indices = self.place_of(node)
        kind, stored = self.arrays[name].kind, self.turns[-1].stored
        if kind not in INTEGERS or name in self.written or not all(
                isinstance(index, ast.Constant) or isinstance(index, ast.Name)
                and index.id in self.definite and index.id not in stored for index in indices):
            return None
        parts = []
        for axis, index in enumerate(indices):
            value, length = self.integer(index, " as an index"), f"d_{name}_{axis}"
            if not _proven(value) or self.index(value, length) != value.text:
                return None
            parts.append(f"{value.text} * {self.stride(name, axis)}")
        read = self.read_ahead(f"int64(p_{name}[{' + '.join(parts)}])")
        bound = f"float64({read})"
        return Value(read, frozenset({kind}), "i", "", min(BITS[kind], SIZE + 1),
                     RANGES[kind][0] == 0, (), (bound, bound))

    def stride(self, name: str, axis: int) -> str:
        """Return the text of the elements from one position to the next."""
        array = self.arrays[name]
        return "1" if array.contiguous and axis == array.ndim - 1 else f"s_{name}_{axis}"

    def integer(self, node: ast.expr, where: str = "") -> Value:
        """Return a value that counts."""
        value = self.settled(self.expression(node))
        if not value.kinds <= INTEGERS:
            raise Refused(f"a {min(value.kinds - INTEGERS)}{where} where an integer is needed", element=False)
        return value

    def load(self, name: str, place: str) -> Value:
        """Read an element."""
        kind = self.arrays[name].kind
        bits = BITS.get(kind, WIDE)
        return self.fetched(Value(f"p_{name}[{place}]", frozenset({kind}), HELD[kind], "", bits))

    def fetched(self, value: Value) -> Value:
        """Return an element as what holds its kind."""
        kind = value.kind
        text = {"i": f"int64({value.text})", "b": f"({value.text} != 0)"}.get(value.held, value.text)
        positive = kind in RANGES and RANGES[kind][0] == 0
        return replace(value, text=self.fresh(text), positive=positive)

    def element(self, name: str, value: Value) -> str:
        """Return the text of `value` as an element; where NumPy would complain the interpreter goes on."""
        array = self.arrays[name]
        self.written.add(name)
        if not array.writeable:
            raise Refused(f"{name} is read-only")
        kind, how = array.kind, HELD[array.kind]
        if not value.kinds:
            return ZERO[how]
        if how in "ds":
            if value.held == "d" and how == "s":
                text = self.fresh(f"float32({value.text})")
                self.bail(f"lost({value.text}, {text})")
                return text
            text = self.held(value, "d") if value.held == "i" else value.text
            return f"float{64 if how == 'd' else 32}({text})"
        if how == "b":
            return f"uint8({value.text} != 0)" if value.held != "b" else f"uint8({value.text})"
        text = value.text
        if value.held in "ds":
            self.bail(f"not (abs({text}) < 9007199254740992.0)", hard=True)
            text = self.fresh(f"int64({text})")
            value = Value(text, value.kinds, "i", "", 53)
        elif value.held == "b":
            text = f"int64({text})"
        if value.kinds != {kind} or value.held != how:
            self.in_range(text, kind, value)
        return f"{'u' if kind[0] == 'u' else ''}int{8 * int(kind[1])}({text})"

    def store(self, name: str, place: str, value: Value) -> None:
        """Write an element."""
        text = self.element(name, value)
        self.flush()
        self.put(f"p_{name}[{place}] = {text}")
        self.forget("p_")


def _proven(value: Value) -> bool:
    """Say whether the bounds of an index are known before the nest."""
    return value.span is not None and not value.span[0].startswith("-") and not endless(value.span)
