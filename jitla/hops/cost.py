"""What an operator costs: floating-point operations by counting recipes, bytes, and the machine.

Knows: recipes, shapes. Must not know: plans; which operators share a loop is decided elsewhere.
Receives hops; returns numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from jitla.hops.node import Hop
from jitla.hops.spec import Kind, lookup


@dataclass(frozen=True, slots=True)
class Machine:
    """Limits with all `threads` busy, per second: bytes read, bytes written, operations."""

    name: str
    read_bw: float
    write_bw: float
    flops: float
    threads: int


# Round numbers, so that what fixtures and golden files show does not depend on where they run.
REFERENCE = Machine("reference", read_bw=50e9, write_bw=25e9, flops=200e9, threads=2)


@dataclass(frozen=True, slots=True)
class Typed:
    """A value of which only the dtype is known."""

    dtype: np.dtype


def _verb(weight: float) -> Callable[..., Typed]:
    """A verb whose result has the dtype of its last operand."""

    def verb(self: CountingBuilder, *xs: Typed) -> Typed:
        self.flops += weight
        return Typed(xs[-1].dtype)

    return verb


def _test(self: CountingBuilder, *xs: Typed) -> Typed:
    """A verb whose result is a bool."""
    self.flops += 1
    return Typed(np.dtype(np.bool_))


class CountingBuilder:
    """A `ScalarBuilder` that adds up operations; one addition is the unit."""

    def __init__(self) -> None:
        self.flops = 0.0

    add = sub = mul = neg = abs = copysign = select = _verb(1)
    floor = ceil = trunc = rint = minimum = maximum = _verb(1)
    fmin = fmax = muladd = _verb(2)
    and_ = or_ = xor = not_ = shl = shr = _verb(1)
    div = sqrt = _verb(4)
    floordiv = rem = fmod = _verb(8)
    eq = ne = lt = le = gt = ge = _test

    def const(self, value: Any, dtype: np.dtype) -> Typed:
        """Cost nothing."""
        return Typed(dtype)

    def cast(self, x: Typed, dtype: np.dtype) -> Typed:
        """Cost one operation."""
        self.flops += 1
        return Typed(dtype)

    def real(self, x: Typed) -> Typed:
        """Cost nothing."""
        return Typed(x.dtype.type(0).real.dtype)

    imag = real

    def pair(self, re: Typed, im: Typed) -> Typed:
        """Cost nothing."""
        return Typed(np.result_type(re.dtype, np.complex64))

    def flag(self, kind: str, c: Typed) -> None:
        """Cost nothing."""

    def math(self, name: str, *xs: Typed) -> Typed:
        """Cost what the op table says of `name`."""
        weight = lookup(name).flops
        assert not callable(weight)
        self.flops += weight
        return Typed(xs[0].dtype)


@lru_cache(maxsize=4096)
def _recipe_flops(
    name: str, dtypes: tuple[np.dtype, ...], attrs: tuple[tuple[str, Any], ...],
) -> float | None:
    """Operations per element of a cell's recipe, None where it has no recipe for `dtypes`."""
    emit = lookup(name).emit
    counter = CountingBuilder()
    if emit is None or emit(counter, *map(Typed, dtypes), dict(attrs)) is None:
        return None
    return counter.flops


def expressible(hop: Hop) -> bool:
    """Say whether `hop` is a cell with a recipe for the dtypes of its inputs."""
    return hop.op.kind is Kind.CELL and _count(hop) is not None


def _count(hop: Hop) -> float | None:
    return _recipe_flops(hop.op.name, tuple([i.meta.dtype for i in hop.inputs]), hop.attrs)


def flops(hop: Hop) -> float:
    """Return the operations that computing `hop` from its inputs takes."""
    weight = hop.op.flops
    if callable(weight):
        return weight(tuple([i.meta for i in hop.inputs]), dict(hop.attrs))
    if hop.op.kind is Kind.AGG:
        return weight * hop.inputs[0].meta.size
    counted = _count(hop) if hop.op.kind is Kind.CELL else None
    return (weight if counted is None else counted) * hop.meta.size


# NumPy returns these without touching the elements (a reshape nearly always).
_VIEWS = frozenset((
    "transpose", "reshape", "ravel", "broadcast_to", "expand_dims", "squeeze", "flip", "getitem",
))


def bytes_of(hop: Hop) -> int:
    """Return the bytes that `hop`, run alone, reads and writes; leaves and views move none."""
    if hop.op.kind is Kind.LEAF or hop.op.name in _VIEWS:
        return 0
    return hop.meta.nbytes + sum(i.meta.nbytes for i in set(hop.inputs))
