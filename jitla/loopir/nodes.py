"""Nodes of the loop IR, and affine indices with quotients, remainders and minima."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from jitla.classes import dataclass


@dataclass(frozen=True, slots=True)
class Quotient:
    """The index `of` divided by the constant `by`, rounded down."""

    of: Index
    by: int


@dataclass(frozen=True, slots=True)
class Remainder:
    """The remainder of the index `of` divided by the constant `by`."""

    of: Index
    by: int


@dataclass(frozen=True, slots=True)
class Minimum:
    """The smaller of the index `of` and the constant `limit`."""

    of: Index
    limit: int


Atom = str | Quotient | Remainder | Minimum
#: Inclusive bounds of every variable.
Ranges = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Index:
    """An affine index in normal form: a sum of multiples of atoms, and a constant.

    An atom is a loop variable, or a quotient, remainder or minimum of an index.
    """

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Index | int) -> Index:
        addend = number(other) if isinstance(other, int) else other
        terms = dict(self.terms)
        for atom, times in addend.terms:
            terms[atom] = terms.get(atom, 0) + times
        return _normalised(terms, self.constant + addend.constant)

    def __sub__(self, other: Index | int) -> Index:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, times: int) -> Index:
        return _normalised({a: t * times for a, t in self.terms}, self.constant * times)

    def __str__(self) -> str:
        text = " + ".join(_format_term(a, t) for a, t in self.terms)
        if not text:
            return str(self.constant)
        if self.constant:
            text += f" {'-' if self.constant < 0 else '+'} {abs(self.constant)}"
        return text.replace("+ -", "- ")

    @property
    def variables(self) -> frozenset[str]:
        """The names of all loop variables in the index."""
        names: set[str] = set()
        for atom, _ in self.terms:
            names |= {atom} if isinstance(atom, str) else atom.of.variables
        return frozenset(names)

    @property
    def single_variable(self) -> str | None:
        """The name of the variable if the index is exactly one variable, else None."""
        if len(self.terms) == 1 and self.constant == 0 and self.terms[0][1] == 1:
            atom = self.terms[0][0]
            return atom if isinstance(atom, str) else None
        return None


def _normalised(terms: Mapping[Atom, int], plus: int) -> Index:
    """Return the index of `terms`, without zeros and in a fixed order."""
    nonzero = [(a, t) for a, t in terms.items() if t]
    return Index(tuple(sorted(nonzero, key=lambda term: (-abs(term[1]), _format_atom(term[0])))), plus)


def _format_term(atom: Atom, times: int) -> str:
    text = _format_atom(atom)
    return text if times == 1 else f"-{text}" if times == -1 else f"{times}*{text}"


def _format_atom(atom: Atom) -> str:
    match atom:
        case Quotient(of, by):
            return f"(({of}) // {by})"
        case Remainder(of, by):
            return f"(({of}) % {by})"
        case Minimum(of, limit):
            return f"min({of}, {limit})"
        case str(name):
            return name


def number(value: int) -> Index:
    """Return the constant index `value`."""
    return Index((), value)


def variable(name: str) -> Index:
    """Return the index that is the loop variable `name`."""
    return Index(((name, 1),))


def quotient(of: Index, by: int) -> Index:
    """Return `of` divided by `by`, rounded down."""
    return Index(((Quotient(of, by), 1),)) if of.terms and by != 1 else number(of.constant // by) \
        if not of.terms else of


def remainder(of: Index, by: int) -> Index:
    """Return the remainder of `of` divided by `by`."""
    return Index(((Remainder(of, by), 1),)) if of.terms and by != 1 else number(of.constant % by)


def minimum(of: Index, limit: int) -> Index:
    """Return the smaller of `of` and the constant `limit`."""
    return Index(((Minimum(of, limit), 1),)) if of.terms else number(min(of.constant, limit))


def substitute_index(index: Index, by: Mapping[str, Index]) -> Index:
    """Return `index` with variables replaced by indices."""
    if not index.variables & by.keys():
        return index
    result = number(index.constant)
    for atom, times in index.terms:
        match atom:
            case Quotient(of, divisor):
                term = quotient(substitute_index(of, by), divisor)
            case Remainder(of, divisor):
                term = remainder(substitute_index(of, by), divisor)
            case Minimum(of, limit):
                term = minimum(substitute_index(of, by), limit)
            case str(name):
                term = by.get(name) or variable(name)
        result = result + term * times
    return result


def value_range(index: Index, ranges: Ranges) -> tuple[int, int]:
    """Return lower and upper bounds of `index`, by interval arithmetic."""
    low = high = index.constant
    for atom, times in index.terms:
        ends = sorted(times * end for end in _atom_range(atom, ranges))
        low, high = low + ends[0], high + ends[1]
    return low, high


def _atom_range(atom: Atom, ranges: Ranges) -> tuple[int, int]:
    if isinstance(atom, str):
        return ranges[atom]
    low, high = value_range(atom.of, ranges)
    match atom:
        case Quotient(_, by):
            return low // by, high // by
        case Remainder(_, by):
            return (low % by, high % by) if low // by == high // by else (0, by - 1)
        case Minimum(_, limit):
            return min(low, limit), min(high, limit)


def evaluate(index: Index, values: Mapping[str, int]) -> int:
    """Return the value of `index` for these values of loop variables."""
    total = index.constant
    for atom, times in index.terms:
        if isinstance(atom, str):
            total += times * values[atom]
            continue
        inner = evaluate(atom.of, values)
        match atom:
            case Quotient(_, by):
                total += times * (inner // by)
            case Remainder(_, by):
                total += times * (inner % by)
            case Minimum(_, limit):
                total += times * min(inner, limit)
    return total


def split_index(index: Index, inner: frozenset[str]) -> tuple[Index, Index] | None:
    """Split `index` into a part that does not depend on the `inner` variables, and the remaining part.

    None if an atom mixes them with other variables.
    """
    fixed: dict[Atom, int] = {}
    moving: dict[Atom, int] = {}
    for atom, times in index.terms:
        names = frozenset({atom}) if isinstance(atom, str) else atom.of.variables
        if names <= inner:
            moving[atom] = times
        elif names & inner:
            return None
        else:
            fixed[atom] = times
    return _normalised(fixed, 0), _normalised(moving, index.constant)


class Scope(Enum):
    """The memory that holds a buffer."""

    MEMORY = "memory"
    CACHE = "cache"
    REGISTER = "register"
    SCRATCHPAD = "scratchpad"  # of an accelerator: filled and emptied by load and store instructions


class LoopKind(Enum):
    """How the iterations of a loop are run; they are independent in all kinds but `SERIAL` and `UNROLLED`."""

    SERIAL = "serial"
    UNROLLED = "unrolled"
    PARALLEL = "parallel"
    VECTORISED = "vectorised"
    BOUND = "bound"  # one iteration per thread of a device


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named array of fixed shape."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    scope: Scope = Scope.MEMORY


# --------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Load:
    """An element of a buffer as a value."""

    buffer: str
    index: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A constant as bytes, which distinguish NaNs and the two zeros."""

    dtype: np.dtype
    bits: bytes


@dataclass(frozen=True, slots=True)
class Apply:
    """An element-wise operator of the op table applied to `args`; `dtype` is that of the result."""

    op: str
    args: tuple[Any, ...]  # values of the same kind: those of nests, or those of loop programs
    dtype: np.dtype
    attrs: tuple[tuple[str, Any], ...] = ()


Value = Load | Number | Apply

# --------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Store:
    """Assignment to an element."""

    buffer: str
    index: tuple[Index, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class Update:
    """Reduction into an element, ``element = op(element, value)``; the iteration order is its order."""

    buffer: str
    index: tuple[Index, ...]
    op: str
    value: Value


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop over `name` from 0 to `extent` (exclusive)."""

    name: str
    extent: int
    body: tuple[Statement, ...]
    kind: LoopKind = LoopKind.SERIAL


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition: `body` runs if `index` is less than `below`."""

    index: Index
    below: int
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Alloc:
    """Allocation of a buffer for the statements that follow, fresh in every iteration."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a buffer that an intrinsic works on: from `index`, in the extent that it declares."""

    buffer: str
    index: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Invoke:
    """An intrinsic run on windows."""

    intrinsic: str
    windows: tuple[Window, ...]


Statement = Store | Update | Loop | Guard | Alloc | Invoke


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A machine instruction, declared by the nest that it is equivalent to."""

    name: str
    operands: tuple[Buffer, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Nest:
    """A loop nest that computes `outputs` from `inputs` by `body`; outputs may hold values on entry."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    intrinsics: tuple[Intrinsic, ...] = ()

    def intrinsic(self, name: str) -> Intrinsic:
        """Return the intrinsic called `name`."""
        return next(i for i in self.intrinsics if i.name == name)


def dtype_of(value: Value, buffers: Mapping[str, Buffer]) -> np.dtype:
    """Return the dtype of a value."""
    return buffers[value.buffer].dtype if isinstance(value, Load) else value.dtype
