"""Cost model of operators: floating-point operations, bytes moved, and the machine's rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import inf, log2
from typing import Any, NamedTuple

import numpy as np

from jitla.hops.node import (
    Hop,
    Kind,
    leaf,
    lookup,
    make,
    substitute,
)
from jitla.hops.ops_matrix import is_roll_of_ring


class TypedValue(NamedTuple):
    """A value of which only the dtype is known."""

    dtype: np.dtype


# Cost of one element, in vectorised float64 additions with data in the cache, measured with 32-byte vectors.
# Narrower elements cost their share of a vector.
_FLOAT_WEIGHTS = {
    "copysign": 1.0, "minimum": 3.0, "maximum": 3.0, "fmin": 2.0, "fmax": 2.0, "muladd": 1.0,
    "div": 5.0, "sqrt": 12.0, "floordiv": 40.0, "rem": 24.0, "fmod": 19.0,
}
# The same for integers, by itemsize: some sizes have no vector instruction.
_INTEGER_WEIGHTS: dict[str, dict[int, float]] = {
    "mul": {8: 2.5, 1: 0.5}, "shr": {8: 3.0, 1: 0.5}, "minimum": {8: 1.5}, "maximum": {8: 1.5},
    "fmin": {8: 1.5}, "fmax": {8: 1.5},
    "floordiv": {8: 38.0, 4: 14.0, 2: 11.0, 1: 7.0}, "rem": {8: 38.0, 4: 14.0, 2: 11.0, 1: 8.0},
    "fmod": {8: 38.0, 4: 14.0, 2: 11.0, 1: 8.0},
}
# Rough costs of NumPy and SciPy, used to decide whether compiling can pay off.
NUMPY_SECONDS_PER_BYTE, NUMPY_SECONDS_PER_FLOP, NUMPY_CALL_SECONDS = 5e-11, 5e-11, 1e-6
_FLOAT_TO_INT64_WEIGHT, _INT64_TO_FLOAT_WEIGHT = 12.0, 4.0
_FLOAT32_MATH_FACTOR = 0.35  # float32 over float64: the polynomials are shorter, too


def _verb_weight(verb: str, dtype: np.dtype) -> float:
    """Return the cost of one element of `verb` on operands of `dtype`, in float64 additions."""
    size = dtype.itemsize
    share = size / 8
    if dtype.kind in "fc":
        return _FLOAT_WEIGHTS.get(verb, 1.0) * share
    return _INTEGER_WEIGHTS.get(verb, {}).get(size, share)


def _counting_verb(name: str) -> Callable[..., TypedValue]:
    """Return a verb that counts its cost; its result has the dtype of the last operand."""

    def verb(self: CountingBuilder, *xs: TypedValue) -> TypedValue:
        self.flops += _verb_weight(name, xs[-1].dtype)
        return TypedValue(xs[-1].dtype)

    return verb


def _counting_comparison(name: str) -> Callable[..., TypedValue]:
    """Return a verb that counts its cost; its result is a bool."""

    def verb(self: CountingBuilder, *xs: TypedValue) -> TypedValue:
        self.flops += _verb_weight(name, xs[-1].dtype)
        return TypedValue(np.dtype(np.bool_))

    return verb


class CountingBuilder:
    """A `ScalarBuilder` that adds up the cost of a recipe; the unit is one float64 addition."""

    def __init__(self) -> None:
        self.flops = 0.0

    add, sub, mul, neg, abs = map(_counting_verb, ("add", "sub", "mul", "neg", "abs"))
    copysign, select, muladd = map(_counting_verb, ("copysign", "select", "muladd"))
    floor, ceil, trunc, rint = map(_counting_verb, ("floor", "ceil", "trunc", "rint"))
    minimum, maximum, fmin, fmax = map(_counting_verb, ("minimum", "maximum", "fmin", "fmax"))
    and_, or_, xor, not_, shl, shr = map(_counting_verb, ("and_", "or_", "xor", "not_", "shl", "shr"))
    div, sqrt, floordiv, rem, fmod = map(_counting_verb, ("div", "sqrt", "floordiv", "rem", "fmod"))
    eq, ne, lt, le, gt, ge = map(_counting_comparison, ("eq", "ne", "lt", "le", "gt", "ge"))

    def const(self, value: Any, dtype: np.dtype) -> TypedValue:
        """Cost nothing."""
        return TypedValue(dtype)

    def cast(self, x: TypedValue, dtype: np.dtype) -> TypedValue:
        """Count a conversion: the wider dtype's share of a vector, or an emulated instruction sequence."""
        weight = max(x.dtype.itemsize, dtype.itemsize) / 8
        if x.dtype.kind == "f" and dtype.kind in "iu" and dtype.itemsize == 8:
            weight = _FLOAT_TO_INT64_WEIGHT
        if dtype.kind == "f" and x.dtype.kind in "iu" and x.dtype.itemsize == 8:
            weight = _INT64_TO_FLOAT_WEIGHT
        self.flops += weight
        return TypedValue(dtype)

    def real(self, x: TypedValue) -> TypedValue:
        """Cost nothing."""
        return TypedValue(x.dtype.type(0).real.dtype)

    imag = real

    def pair(self, re: TypedValue, im: TypedValue) -> TypedValue:
        """Cost nothing."""
        return TypedValue(np.result_type(re.dtype, np.complex64))

    def flag(self, kind: str, c: TypedValue) -> None:
        """Cost nothing."""

    def math(self, name: str, *xs: TypedValue) -> TypedValue:
        """Count the cost that the op table gives for `name`."""
        weight = lookup(name).flops
        assert not callable(weight)
        self.flops += weight * (1.0 if xs[0].dtype.itemsize == 8 else _FLOAT32_MATH_FACTOR)
        return TypedValue(xs[0].dtype)


@lru_cache(maxsize=4096)
def _recipe_flops(
    name: str, dtypes: tuple[np.dtype, ...], attrs: tuple[tuple[str, Any], ...],
) -> float | None:
    """Return the operations per element of an operator's recipe; None without a recipe for `dtypes`."""
    emit = lookup(name).emit
    counter = CountingBuilder()
    if emit is None or emit(counter, *map(TypedValue, dtypes), dict(attrs)) is None:
        return None
    return counter.flops


def has_recipe(hop: Hop) -> bool:
    """Return whether `hop` is a cell with a recipe for the dtypes of its inputs."""
    return hop.op.kind is Kind.CELL and _cell_flops(hop) is not None


def _cell_flops(hop: Hop) -> float | None:
    """Return the operations per element of the cell `hop`; None if it has no recipe."""
    return _recipe_flops(hop.op.name, tuple([i.meta.dtype for i in hop.inputs]), hop.attrs)


def flops(hop: Hop) -> float:
    """Return the number of operations for computing `hop` from its inputs."""
    weight = hop.op.flops
    if callable(weight):
        return weight(tuple([i.meta for i in hop.inputs]), dict(hop.attrs))
    counted = _cell_flops(hop) if hop.op.kind is Kind.CELL else None
    return (weight if counted is None else counted) * hop.meta.size


# Operators that return a view in NumPy (`reshape` nearly always does).
VIEW_OPS = frozenset((
    "transpose", "reshape", "ravel", "broadcast_to", "expand_dims", "squeeze", "flip", "getitem",
    "diagonal", "part", "windows",
))


def bytes_of(hop: Hop) -> int:
    """Return the bytes that `hop`, run alone, reads and writes; 0 for leaves and views."""
    if hop.op.kind is Kind.LEAF or hop.op.name in VIEW_OPS or is_roll_of_ring(hop):
        return 0
    return hop.meta.nbytes + sum(i.meta.nbytes for i in set(hop.inputs))


def numpy_seconds(hops: Iterable[Hop]) -> float:
    """Estimate the seconds that NumPy and SciPy need for operators, call overhead excluded."""
    return sum(NUMPY_SECONDS_PER_BYTE * bytes_of(h) + NUMPY_SECONDS_PER_FLOP * flops(h) for h in hops)


def replace_by_leaves(roots: Iterable[Hop], slots: Mapping[Hop, int]) -> tuple[Hop, ...]:
    """Rebuild `roots` with the nodes in `slots` replaced by leaves of these slots.

    A root that is itself replaced, or a view of a replaced node, becomes a copy: the caller keeps that value.
    """
    leaves = {h: leaf(slot, h.meta, "array" if h.meta.shape else "scalar") for h, slot in slots.items()}
    copies = {h: make("cast", (leaf_hop,), h.line, dtype=h.meta.dtype) for h, leaf_hop in leaves.items()}
    return tuple(substitute((r,), copies if _base_of_view(r) in leaves else leaves)[0] for r in roots)


def _base_of_view(hop: Hop) -> Hop:
    """Return the node that owns the memory of `hop`: views are looked through."""
    while hop.op.name in VIEW_OPS:
        hop = hop.inputs[0]
    return hop


# (miss ratio of a footprint equal to the capacity, increase per doubling of the footprint). LRU caches lose
# cyclically read data once the footprint exceeds the capacity; small caches are shared and fill unevenly.
NEAREST_MISS_CURVE, MISS_CURVE = (0.6, 0.2), (0.7, 0.8)
_NON_RATE_FIELDS = frozenset({"name", "threads", "levels", "stream", "processors"})


class Rate(NamedTuple):
    """Bytes per second of one thread, and of all threads together."""

    one: float
    all: float

    def at(self, threads: int) -> float:
        """Return the rate of `threads` threads."""
        return min(self.one * threads, max(self.all, self.one))


class MemoryLevel(NamedTuple):
    """A level of the memory hierarchy: capacity in bytes, and its read and write rates."""

    name: str
    capacity: float
    read: Rate
    write: Rate


class Machine(NamedTuple):
    """Constants of a machine that cost predictions depend on.

    `levels` begin next to the processor and end with memory. `stream`: rate of non-temporal stores.
    `unit`: seconds of one vectorised float64 addition on one thread. `product`: floating-point operations
    per second of BLAS in float64, all threads. `scalar`: time of NumPy's transcendental loops over that of
    compiled ones. `launch`, `wake`, `call`: seconds for starting a kernel, for sharing it among threads,
    for a NumPy call. `fault`: seconds per byte of fresh memory (page faults). `rouse`: seconds for sharing
    among sleeping threads. `processors`: their number, 0 if there is one for each thread.
    """

    name: str
    threads: int
    levels: tuple[MemoryLevel, ...]
    stream: Rate
    unit: float
    product: float
    scalar: float
    launch: float
    wake: float
    call: float
    fault: float
    rouse: float = 50e-6
    processors: int = 0

    @property
    def concurrent_threads(self) -> int:
        """Number of threads that run at the same time: at most one per processor."""
        return min(self.threads, self.processors or self.threads)

    def break_even(self, cost: float) -> float:
        """Return the single-thread seconds above which sharing pays, if sharing costs `cost` seconds."""
        others = max(self.threads, 2) - 1
        return cost * (others + 1) / others

    def with_threads(self, threads: int) -> Machine:
        """Return the machine as seen by kernels limited to `threads` threads; 0 means all."""
        if threads in (0, self.threads):
            return self
        share = min(threads / self.concurrent_threads, 1.0)
        return self._replace(threads=threads, product=self.product * share,
                             processors=self.processors or self.threads)

    def record(self) -> dict[str, Any]:
        """Return all constants as a JSON-compatible dictionary; the inverse is `machine_from_record`."""
        return {**self._asdict(), "levels": [level._asdict() for level in self.levels]}

    def reading(self, nbytes: float, footprint: float, threads: int = 0) -> float:
        """Return the seconds for reading `nbytes` with a reuse distance of `footprint` bytes."""
        return nbytes * _per_byte(self, False, footprint, threads or self.concurrent_threads)

    def writing(self, nbytes: float, footprint: float, threads: int = 0) -> float:
        """Return the seconds for writing `nbytes` with a reuse distance of `footprint` bytes."""
        return nbytes * _per_byte(self, True, footprint, threads or self.concurrent_threads)


def _per_byte(machine: Machine, writing: bool, footprint: float, threads: int) -> float:
    """Return the seconds per byte: a mix of the levels' rates, weighted by the miss ratio of each level."""
    rates = [(lv.write if writing else lv.read).at(threads) for lv in machine.levels]
    seconds = 1.0 / rates[0]
    for k, (level, rate) in enumerate(zip(machine.levels, rates[1:], strict=False)):
        miss_ratio = _missed_share(footprint / level.capacity, *(MISS_CURVE if k else NEAREST_MISS_CURVE))
        seconds = (1.0 - miss_ratio) * seconds + miss_ratio / rate
    return seconds


def _missed_share(ratio: float, at_capacity: float, slope: float) -> float:
    """Return the miss ratio of a footprint that is `ratio` times the capacity."""
    return min(max(at_capacity + slope * log2(max(ratio, 1e-9)), 0.0), 1.0)


def machine_from_record(record: Mapping[str, Any]) -> Machine:
    """Return the machine of `record`; raise ValueError, TypeError or KeyError if it is malformed."""
    levels = tuple(
        MemoryLevel(lv["name"], float(lv["capacity"]), *(Rate(*map(float, lv[k])) for k in ("read", "write")))
        for lv in record["levels"])
    fields = {k: v for k, v in record.items() if k not in ("levels", "stream")}
    machine = Machine(**fields, levels=levels, stream=Rate(*map(float, record["stream"])))
    numbers = [getattr(machine, name) for name in machine._fields if name not in _NON_RATE_FIELDS]
    if not levels or machine.threads < 1 or not all(type(n) is float and n >= 0 for n in numbers):
        raise ValueError("a rate is missing or negative")
    return machine


# Round numbers: fixtures and golden files must not depend on the machine they run on.
REFERENCE_MACHINE = Machine(
    "reference", threads=2,
    levels=(
        MemoryLevel("near", 512 << 10, Rate(80e9, 160e9), Rate(60e9, 120e9)),
        MemoryLevel("shared", 32 << 20, Rate(50e9, 100e9), Rate(25e9, 50e9)),
        MemoryLevel("memory", inf, Rate(20e9, 40e9), Rate(15e9, 30e9)),
    ),
    stream=Rate(50e9, 50e9), unit=50e-12, product=100e9, scalar=4.0,
    launch=0.5e-6, wake=5e-6, call=1e-6, fault=100e-12,
)
