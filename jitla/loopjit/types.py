"""Types in loops: of arguments, scalars and values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import cache
from typing import Any

import numpy as np

from jitla.classes import dataclass

# The type of each kind of number that a loop may be compiled for.
TYPES: dict[str, type] = {
    "int": int, "float": float, "bool": bool, "b1": np.bool_, "i1": np.int8, "i2": np.int16,
    "i4": np.int32, "i8": np.int64, "u1": np.uint8, "u2": np.uint16, "u4": np.uint32,
    "f4": np.float32, "f8": np.float64,
}
KIND_OF = {made: kind for kind, made in TYPES.items()}
# Numbers that say which kind a variable holds; 0 says that it was not assigned.
CODES = {kind: code for code, kind in enumerate(TYPES, 1)}
BY_CODE = dict(enumerate(TYPES.values(), 1))
# What a number is held in: i a 64-bit integer, d and s floats, b a truth value.
STORAGE = {kind: "i" for kind in ("int", "i1", "i2", "i4", "i8", "u1", "u2", "u4")} | {
    "float": "d", "f8": "d", "f4": "s", "bool": "b", "b1": "b"}
RANGES = {kind: (int(np.iinfo(TYPES[kind]).min), int(np.iinfo(TYPES[kind]).max))
          for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4")}
BITS = {kind: max(high.bit_length(), 1) for kind, (_, high) in RANGES.items()} | {
    "bool": 1, "b1": 1, "int": 63}
INTEGERS = frozenset(kind for kind, held in STORAGE.items() if held == "i")
TRUTHS = frozenset({"bool", "b1"})
PYTHON = frozenset({"int", "float", "bool"})
# Elements of arrays: the characters of their types. Others of the same size are other types.
BY_CHAR = {np.dtype(TYPES[kind]).char: kind for kind in TYPES if kind not in PYTHON}
ITEM = {kind: np.dtype(TYPES[kind]).itemsize for kind in TYPES if kind not in PYTHON}

OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "Pow": operator.pow,
    "BitAnd": operator.and_, "BitOr": operator.or_, "BitXor": operator.xor,
    "LShift": operator.lshift, "RShift": operator.rshift,
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
    "Eq": operator.eq, "NotEq": operator.ne,
    "USub": operator.neg, "UAdd": operator.pos, "Invert": operator.invert, "Abs": abs,
}


class Refused(Exception):
    """A loop that Python has to run: why, and at which line."""

    def __init__(self, reason: str, line: int = 0, element: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        # Whether it still may be a loop over elements, not one over whole arrays.
        self.element = element


@cache
def result(name: str, *kinds: str) -> str:
    """Return the kind that an operation makes of numbers of `kinds`."""
    try:
        with np.errstate(all="ignore"):
            made = OPERATORS[name](*(TYPES[kind](1) for kind in kinds))
    except TypeError as error:
        raise Refused(f"Python raises TypeError: {error}") from error
    found = KIND_OF.get(type(made))
    if found is None:
        raise Refused(f"{name} of {' and '.join(kinds)} is a {type(made).__name__}")
    return found


EXACT, WIDE = 53, 63  # bits of integers: that a float64 holds, that an int64 does
Span = tuple[str, str] | None
# What a part of the outermost loop begins and ends with, and the loop.
FROM, TO, START, STOP = "FIRST", "LIMIT", "BEGIN", "END"
LONGEST = 300  # characters of a text of a bound
STEP = 16  # bits of a constant beside what is counted up or down without an end that is known


@dataclass(frozen=True)
class TypedNumber:
    """A number: its text, its possible kinds, its storage, and the text of its kind's code."""

    text: str
    kinds: frozenset[str]
    storage: str
    tag: str = ""
    bits: int = WIDE
    positive: bool = False
    # At most two to the power of `bits` away from zero; not below zero.
    # Steps whose flags are not looked at yet: operands and result of each.
    steps: tuple[tuple[str, str, str], ...] = ()
    # Texts of the least and the largest it can be, of what does not change in the loop.
    span: Span = None
    # Whether it is so much more or less than the variable that it is assigned to.
    counted: bool = False

    @property
    def code(self) -> str:
        """Text of the code of the kind that it has."""
        return self.tag or str(CODES[min(self.kinds)])

    @property
    def kind(self) -> str:
        """Its only kind."""
        if len(self.kinds) != 1:
            raise Refused(f"a value may be {' or '.join(sorted(self.kinds))}")
        return next(iter(self.kinds))


def whole(span: Span) -> Span:
    """Return the bounds in all of the outermost loop of what has these in a part of it."""
    if span is None:
        return None
    low, high = (each.replace(FROM, START).replace(TO, STOP) for each in span)
    return low, high


def endless(span: Span) -> bool:
    """Say whether one of the bounds is none: of what is counted up or down while something holds."""
    return span is not None and any("INF" in each for each in span)


def number(value: int | float | bool) -> TypedNumber:
    """Return the value of a constant."""
    kind = type(value).__name__
    if kind == "int":
        if abs(value) >= 1 << WIDE:
            raise Refused(f"the constant {value} has more than 64 bits")
        return TypedNumber(f"int64({value})", frozenset({kind}), "i", "", int(value).bit_length(), value >= 0,
                           (),
                           (f"{value}.0", f"{value}.0"))
    if kind == "bool":
        return TypedNumber(f"bool_({int(value)})", frozenset({kind}), "b", "", 1, True)
    text = {"inf": "INF", "-inf": "(-INF)", "nan": "NAN"}.get(repr(value), repr(value))
    return TypedNumber(f"float64({text})", frozenset({kind}), "d")


def storage_of(kinds: Iterable[str]) -> str:
    """Return the storage for values of any of `kinds`: a letter of `STORAGE`."""
    found = {STORAGE[kind] for kind in kinds}
    if len(found) == 1:
        return found.pop()
    if found <= {"i", "b"}:
        return "i"
    if "b" in found:
        raise Refused("a value is a truth value at times, and a float")
    return "d"


@dataclass(frozen=True)
class Scalar:
    """What is known of a number that a nest is given: its kind, and bits of an integer of Python."""

    kind: str
    bits: int = WIDE


@dataclass(frozen=True)
class Array:
    """What is known of an array that a nest is given."""

    kind: str
    ndim: int
    contiguous: bool
    writeable: bool


# What a nest is given; of what is neither, the name of its type.
Given = Scalar | Array | str


@dataclass
class Variable:
    """A name that the nest assigns, or that holds a number."""

    kinds: frozenset[str]
    bits: int = 0
    # Bits of what it is assigned, but by counting.
    base: int = 0
    positive: bool = True
    # What it may be between: as found in the round before, and in this one; None once it is not followed.
    span: Span = None
    spans: set[Span] | None = field(default_factory=set)

    def start_round(self) -> bool:
        """Start a round of the fixpoint with the bounds of the last one; return whether they changed."""
        before, found = self.span, self.spans
        self.span = None
        if found and None not in found:
            lows, highs = zip(*sorted(each for each in found if each), strict=True)
            # what is counted up is never less than what it is assigned elsewhere
            low = ", ".join(dict.fromkeys(each for each in lows if each != "INF")) or "(-INF)"
            high = ", ".join(dict.fromkeys(each for each in highs if each != "(-INF)")) or "INF"
            low, high = f"min({low})" if ", " in low else low, f"max({high})" if ", " in high else high
            if len(low) + len(high) < LONGEST:
                self.span = low, high
        if found is not None:
            self.spans = set()
        return self.span != before

    @property
    def storage(self) -> str:
        """The letter of its storage."""
        return storage_of(self.kinds) if self.kinds else "i"


def variable(what: Scalar) -> Variable:
    """Return the variable that holds what it is given."""
    bits = min(what.bits, BITS.get(what.kind, WIDE))
    low = RANGES.get(what.kind, (-1, 0))[0]
    return Variable(frozenset({what.kind}), bits, bits, low == 0)


# Of the flags of arrays; those that compiled code depends on.
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
FLAGS = CONTIGUOUS | ALIGNED | WRITEABLE
_ndarray = np.ndarray
_BITS = (31, 62, 63)
LARGE = "an integer of more than 64 bits"


def signature(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what compiled code depends on of `values`."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is _ndarray:
            found.append((value.dtype, value.ndim, value.flags.num & FLAGS))
        elif kind is int:
            bits = value.bit_length()
            found.append(bits > 31 if bits <= 62 else bits)
        else:
            found.append(kind)
    return tuple(found)


def described(value: Any) -> Given:
    """Say what a nest may know of a value."""
    kind = type(value)
    if kind is _ndarray:
        return _array(value) or f"an array of {value.dtype}"
    if kind is int:
        bits = next((bits for bits in _BITS if value.bit_length() <= bits), 0)
        return Scalar("int", bits) if bits else LARGE
    if kind in KIND_OF:
        return Scalar(KIND_OF[kind])
    return f"a {kind.__name__}"


def _array(value: np.ndarray) -> Array | None:
    kind = BY_CHAR.get(value.dtype.char)
    flags = value.flags.num
    if kind is None or not value.dtype.isnative or not flags & ALIGNED or not value.ndim:
        return None
    if any(stride % ITEM[kind] for stride in value.strides):
        return None
    return Array(kind, value.ndim, bool(flags & CONTIGUOUS), bool(flags & WRITEABLE))
