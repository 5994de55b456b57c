"""What an operator costs: operations by counting recipes, and bytes.

Knows: recipes, shapes. Must not know: machines, plans; which operators share a loop is decided elsewhere.
Receives hops; returns numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from jitla.hops.node import Hop
from jitla.hops.spec import Kind, lookup
from jitla.hops.table_rings import is_turn


class Typed(NamedTuple):
    """A value of which only the dtype is known."""

    dtype: np.dtype


# What one element takes, in additions of float64, in vectors that stay in the cache: measured with the
# compiler's kernels where vectors have 32 bytes. Narrower elements take their share of a vector's time.
_FLOAT = {
    "copysign": 1.0, "minimum": 3.0, "maximum": 3.0, "fmin": 2.0, "fmax": 2.0, "muladd": 1.0,
    "div": 5.0, "sqrt": 12.0, "floordiv": 40.0, "rem": 24.0, "fmod": 19.0,
}
# The same of integers, by their bytes: some sizes have no vector instructions of their own.
_WHOLE: dict[str, dict[int, float]] = {
    "mul": {8: 2.5, 1: 0.5}, "shr": {8: 3.0, 1: 0.5}, "minimum": {8: 1.5}, "maximum": {8: 1.5},
    "fmin": {8: 1.5}, "fmax": {8: 1.5},
    "floordiv": {8: 38.0, 4: 14.0, 2: 11.0, 1: 7.0}, "rem": {8: 38.0, 4: 14.0, 2: 11.0, 1: 8.0},
    "fmod": {8: 38.0, 4: 14.0, 2: 11.0, 1: 8.0},
}
# Seconds of NumPy's and SciPy's for a byte, an operation and a call, roughly: they tell what is worth a try.
NUMPY_BYTE, NUMPY_FLOP, NUMPY_CALL = 5e-11, 5e-11, 1e-6
_TO_LONG, _FROM_LONG = 12.0, 4.0  # casts of floats to integers of eight bytes, and back
_MATH_OF_SINGLES = 0.35  # float32 over float64: shorter polynomials, too


def _weight(verb: str, dtype: np.dtype) -> float:
    """Return the weight of `verb` on operands of `dtype`."""
    size = dtype.itemsize
    share = size / 8
    if dtype.kind in "fc":
        return _FLOAT.get(verb, 1.0) * share
    return _WHOLE.get(verb, {}).get(size, share)


def _verb(name: str) -> Callable[..., Typed]:
    """A verb whose result has the dtype of its last operand."""

    def verb(self: CountingBuilder, *xs: Typed) -> Typed:
        self.flops += _weight(name, xs[-1].dtype)
        return Typed(xs[-1].dtype)

    return verb


def _test(name: str) -> Callable[..., Typed]:
    """A verb whose result is a bool."""

    def verb(self: CountingBuilder, *xs: Typed) -> Typed:
        self.flops += _weight(name, xs[-1].dtype)
        return Typed(np.dtype(np.bool_))

    return verb


class CountingBuilder:
    """A `ScalarBuilder` that adds up operations; one addition of float64 is the unit."""

    def __init__(self) -> None:
        self.flops = 0.0

    add, sub, mul, neg, abs = map(_verb, ("add", "sub", "mul", "neg", "abs"))
    copysign, select, muladd = map(_verb, ("copysign", "select", "muladd"))
    floor, ceil, trunc, rint = map(_verb, ("floor", "ceil", "trunc", "rint"))
    minimum, maximum, fmin, fmax = map(_verb, ("minimum", "maximum", "fmin", "fmax"))
    and_, or_, xor, not_, shl, shr = map(_verb, ("and_", "or_", "xor", "not_", "shl", "shr"))
    div, sqrt, floordiv, rem, fmod = map(_verb, ("div", "sqrt", "floordiv", "rem", "fmod"))
    eq, ne, lt, le, gt, ge = map(_test, ("eq", "ne", "lt", "le", "gt", "ge"))

    def const(self, value: Any, dtype: np.dtype) -> Typed:
        """Cost nothing."""
        return Typed(dtype)

    def cast(self, x: Typed, dtype: np.dtype) -> Typed:
        """Cost the wider side's share of a vector, or what takes the place of an instruction."""
        weight = max(x.dtype.itemsize, dtype.itemsize) / 8
        if x.dtype.kind == "f" and dtype.kind in "iu" and dtype.itemsize == 8:
            weight = _TO_LONG
        if dtype.kind == "f" and x.dtype.kind in "iu" and x.dtype.itemsize == 8:
            weight = _FROM_LONG
        self.flops += weight
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
        self.flops += weight * (1.0 if xs[0].dtype.itemsize == 8 else _MATH_OF_SINGLES)
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
    counted = _count(hop) if hop.op.kind is Kind.CELL else None
    return (weight if counted is None else counted) * hop.meta.size


# NumPy returns these without touching the elements (a reshape nearly always).
VIEWS = frozenset((
    "transpose", "reshape", "ravel", "broadcast_to", "expand_dims", "squeeze", "flip", "getitem",
    "diagonal", "part", "windows",
))


def bytes_of(hop: Hop) -> int:
    """Return the bytes that `hop`, run alone, reads and writes; leaves and views move none."""
    if hop.op.kind is Kind.LEAF or hop.op.name in VIEWS or is_turn(hop):
        return 0
    return hop.meta.nbytes + sum(i.meta.nbytes for i in set(hop.inputs))


def numpy_work(hops: Iterable[Hop]) -> float:
    """Return the seconds that NumPy and SciPy take for operators, roughly, but for calls."""
    return sum(NUMPY_BYTE * bytes_of(h) + NUMPY_FLOP * flops(h) for h in hops)
