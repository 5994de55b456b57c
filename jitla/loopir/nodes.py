"""Nodes of the loop IR, and affine indices."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from jitla.classes import dataclass


@dataclass(frozen=True, slots=True)
class Quotient:
    """`of` divided by `by`, rounded down."""

    of: Index
    by: int


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of `of` divided by `by`."""

    of: Index
    by: int


@dataclass(frozen=True, slots=True)
class Least:
    """The smaller of an index and a number."""

    of: Index
    most: int


Atom = str | Quotient | Rest | Least
#: What every variable is at least, and at most.
Ranges = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Index:
    """A sum of multiples of atoms, and a number."""

    terms: tuple[tuple[Atom, int], ...] = ()
    plus: int = 0

    def __add__(self, other: Index | int) -> Index:
        more = number(other) if isinstance(other, int) else other
        found = dict(self.terms)
        for atom, times in more.terms:
            found[atom] = found.get(atom, 0) + times
        return _sorted(found, self.plus + more.plus)

    def __sub__(self, other: Index | int) -> Index:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, times: int) -> Index:
        return _sorted({a: t * times for a, t in self.terms}, self.plus * times)

    def __str__(self) -> str:
        text = " + ".join(_term(a, t) for a, t in self.terms)
        if not text:
            return str(self.plus)
        if self.plus:
            text += f" {'-' if self.plus < 0 else '+'} {abs(self.plus)}"
        return text.replace("+ -", "- ")

    @property
    def variables(self) -> frozenset[str]:
        """Names of all loop variables in it."""
        found: set[str] = set()
        for atom, _ in self.terms:
            found |= {atom} if isinstance(atom, str) else atom.of.variables
        return frozenset(found)

    @property
    def single(self) -> str | None:
        """The variable that it is, if it is nothing else."""
        if len(self.terms) == 1 and self.plus == 0 and self.terms[0][1] == 1:
            atom = self.terms[0][0]
            return atom if isinstance(atom, str) else None
        return None


def _sorted(terms: Mapping[Atom, int], plus: int) -> Index:
    left = [(a, t) for a, t in terms.items() if t]
    return Index(tuple(sorted(left, key=lambda term: (-abs(term[1]), _atom(term[0])))), plus)


def _term(atom: Atom, times: int) -> str:
    text = _atom(atom)
    return text if times == 1 else f"-{text}" if times == -1 else f"{times}*{text}"


def _atom(atom: Atom) -> str:
    match atom:
        case Quotient(of, by):
            return f"(({of}) // {by})"
        case Rest(of, by):
            return f"(({of}) % {by})"
        case Least(of, most):
            return f"min({of}, {most})"
        case str(name):
            return name


def number(value: int) -> Index:
    """Return the index that is always `value`."""
    return Index((), value)


def variable(name: str) -> Index:
    """Return the index that is the loop variable `name`."""
    return Index(((name, 1),))


def quotient(of: Index, by: int) -> Index:
    """Return `of` divided by `by`, rounded down."""
    return Index(((Quotient(of, by), 1),)) if of.terms and by != 1 else number(of.plus // by) \
        if not of.terms else of


def rest(of: Index, by: int) -> Index:
    """Return what is left of `of` divided by `by`."""
    return Index(((Rest(of, by), 1),)) if of.terms and by != 1 else number(of.plus % by)


def least(of: Index, most: int) -> Index:
    """Return the smaller of `of` and a number."""
    return Index(((Least(of, most), 1),)) if of.terms else number(min(of.plus, most))


def replaced(index: Index, by: Mapping[str, Index]) -> Index:
    """Return `index` with variables exchanged for indices."""
    if not index.variables & by.keys():
        return index
    found = number(index.plus)
    for atom, times in index.terms:
        match atom:
            case Quotient(of, divisor):
                part = quotient(replaced(of, by), divisor)
            case Rest(of, divisor):
                part = rest(replaced(of, by), divisor)
            case Least(of, most):
                part = least(replaced(of, by), most)
            case str(name):
                part = by.get(name) or variable(name)
        found = found + part * times
    return found


def reach(index: Index, ranges: Ranges) -> tuple[int, int]:
    """Return what `index` is at least, and at most."""
    low = high = index.plus
    for atom, times in index.terms:
        ends = sorted(times * end for end in _reach(atom, ranges))
        low, high = low + ends[0], high + ends[1]
    return low, high


def _reach(atom: Atom, ranges: Ranges) -> tuple[int, int]:
    if isinstance(atom, str):
        return ranges[atom]
    low, high = reach(atom.of, ranges)
    match atom:
        case Quotient(_, by):
            return low // by, high // by
        case Rest(_, by):
            return (low % by, high % by) if low // by == high // by else (0, by - 1)
        case Least(_, most):
            return min(low, most), min(high, most)


def evaluate(index: Index, values: Mapping[str, int]) -> int:
    """Return the number that `index` is where loop variables have these values."""
    found = index.plus
    for atom, times in index.terms:
        if isinstance(atom, str):
            found += times * values[atom]
            continue
        inner = evaluate(atom.of, values)
        match atom:
            case Quotient(_, by):
                found += times * (inner // by)
            case Rest(_, by):
                found += times * (inner % by)
            case Least(_, most):
                found += times * min(inner, most)
    return found


def parted(index: Index, inner: frozenset[str]) -> tuple[Index, Index] | None:
    """Return what of `index` does not change with the `inner` variables, and the rest of it.

    None if a part of it mixes them with others.
    """
    fixed: dict[Atom, int] = {}
    moving: dict[Atom, int] = {}
    for atom, times in index.terms:
        mine = frozenset({atom}) if isinstance(atom, str) else atom.of.variables
        if mine <= inner:
            moving[atom] = times
        elif mine & inner:
            return None
        else:
            fixed[atom] = times
    return _sorted(fixed, 0), _sorted(moving, index.plus)


class Scope(Enum):
    """Where a buffer lies."""

    MEMORY = "memory"
    CACHE = "cache"
    REGISTER = "register"
    SCRATCHPAD = "scratchpad"  # of an accelerator: filled and emptied by its own instructions


class LoopKind(Enum):
    """How the turns of a loop are run; in all kinds but `SERIAL` and `UNROLLED` they are independent."""

    SERIAL = "serial"
    UNROLLED = "unrolled"
    PARALLEL = "parallel"
    VECTORISED = "vectorised"
    BOUND = "bound"  # to the threads of a device


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
    """One element of a buffer."""

    buffer: str
    index: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A constant, by its bytes: NaN and the two zeros are told apart."""

    dtype: np.dtype
    bits: bytes


@dataclass(frozen=True, slots=True)
class Apply:
    """An element-wise operator of the op table; `dtype` is that of its value."""

    op: str
    args: tuple[Value, ...]
    dtype: np.dtype
    attrs: tuple[tuple[str, Any], ...] = ()


Value = Load | Number | Apply

# --------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Store:
    """An element is set."""

    buffer: str
    index: tuple[Index, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class Update:
    """An element becomes ``op(element, value)``: the order of turns is the order of the reduction."""

    buffer: str
    index: tuple[Index, ...]
    op: str
    value: Value


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` for `name` from 0 to `extent`."""

    name: str
    extent: int
    body: tuple[Statement, ...]
    kind: LoopKind = LoopKind.SERIAL


@dataclass(frozen=True, slots=True)
class Guard:
    """`body` where `index` is less than `below`."""

    index: Index
    below: int
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Alloc:
    """A buffer of its own for what follows, anew in every turn."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a buffer that an intrinsic works on: from `index` on, as large as it declares."""

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
    """An instruction of a machine, declared by the nest it stands for."""

    name: str
    operands: tuple[Buffer, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Nest:
    """What is computed: `outputs` from `inputs` by `body`; outputs begin with what is in them."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    intrinsics: tuple[Intrinsic, ...] = ()

    def intrinsic(self, name: str) -> Intrinsic:
        """Return the intrinsic of that name."""
        return next(i for i in self.intrinsics if i.name == name)


def dtype_of(value: Value, buffers: Mapping[str, Buffer]) -> np.dtype:
    """Return the dtype of a value."""
    return buffers[value.buffer].dtype if isinstance(value, Load) else value.dtype
