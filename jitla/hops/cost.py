"""Floating-point operations and bytes of operators, and the machine they run on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import inf, log2
from typing import Any, NamedTuple

import numpy as np

from jitla.hops.node import Hop, leaf, make, substitute
from jitla.hops.ops_matrix import is_turn
from jitla.hops.opspec import Kind, lookup


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


def given(roots: Iterable[Hop], slots: Mapping[Hop, int]) -> tuple[Hop, ...]:
    """Rebuild `roots` with the values in `slots` as leaves in these slots.

    A root that is one of them, or a view of one, becomes a copy: whoever gave the value keeps it.
    """
    made = {h: leaf(slot, h.meta, "array" if h.meta.shape else "scalar") for h, slot in slots.items()}
    copies = {h: make("cast", (own,), h.line, dtype=h.meta.dtype) for h, own in made.items()}
    return tuple(substitute((r,), copies if _memory_of(r) in made else made)[0] for r in roots)


def _memory_of(hop: Hop) -> Hop:
    while hop.op.name in VIEWS:
        hop = hop.inputs[0]
    return hop


# Which part is missed at a capacity, and how much more with every doubling. What is read in turn is lost
# as soon as it does not fit as a whole. Small caches are filled unevenly, and by others, too.
NEAR_BORDER, BORDER = (0.6, 0.2), (0.7, 0.8)
_NO_RATES = frozenset({"name", "threads", "levels", "stream", "processors"})


class Rate(NamedTuple):
    """Bytes per second of one thread, and of all threads together."""

    one: float
    all: float

    def at(self, threads: int) -> float:
        """Return the rate of so many threads."""
        return min(self.one * threads, max(self.all, self.one))


class Level(NamedTuple):
    """A level of memory: the bytes that stay in it, how fast they are read and written there."""

    name: str
    capacity: float
    read: Rate
    write: Rate


class Machine(NamedTuple):
    """What predictions depend on.

    `levels` begin next to the processor and end with memory. `stream`: writing around the caches.
    `unit`: seconds that one thread takes for one addition of float64 in vectors. `product`:
    floating-point operations per second of BLAS, all threads, float64. `scalar`: how much longer
    NumPy's loops of functions such as exp take than the compiler's. `launch`, `wake`, `call`:
    seconds of starting a kernel, of sharing it among threads, of calling NumPy. `fault`: seconds per
    byte of memory that the operating system hands out. `rouse`: seconds of sharing among threads that
    sleep. `processors`: how many there are, 0 if one for each thread.
    """

    name: str
    threads: int
    levels: tuple[Level, ...]
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
    def at_once(self) -> int:
        """How many threads run at once: more than there are processors take turns."""
        return min(self.threads, self.processors or self.threads)

    def break_even(self, cost: float) -> float:
        """Return how many seconds of one thread are worth sharing where that costs `cost` seconds."""
        others = max(self.threads, 2) - 1
        return cost * (others + 1) / others

    def with_threads(self, threads: int) -> Machine:
        """Return the machine as it is for kernels that may use `threads` threads; 0: all."""
        if threads in (0, self.threads):
            return self
        share = min(threads / self.at_once, 1.0)
        return self._replace(threads=threads, product=self.product * share,
                             processors=self.processors or self.threads)

    def record(self) -> dict[str, Any]:
        """Return all constants as numbers, names, lists and dictionaries; see `from_record`."""
        return {**self._asdict(), "levels": [level._asdict() for level in self.levels]}

    def reading(self, nbytes: float, footprint: float, threads: int = 0) -> float:
        """Return the seconds for reading `nbytes` that were last used `footprint` bytes ago."""
        return nbytes * _per_byte(self, False, footprint, threads or self.at_once)

    def writing(self, nbytes: float, footprint: float, threads: int = 0) -> float:
        """Return the seconds for writing `nbytes` that were last used `footprint` bytes ago."""
        return nbytes * _per_byte(self, True, footprint, threads or self.at_once)


def _per_byte(machine: Machine, writing: bool, footprint: float, threads: int) -> float:
    """Return seconds per byte: around a level's capacity, part of the bytes is found there."""
    rates = [(lv.write if writing else lv.read).at(threads) for lv in machine.levels]
    found = 1.0 / rates[0]
    for k, (level, rate) in enumerate(zip(machine.levels, rates[1:], strict=False)):
        missed = _beyond(footprint / level.capacity, *(BORDER if k else NEAR_BORDER))
        found = (1.0 - missed) * found + missed / rate
    return found


def _beyond(part: float, middle: float, slope: float) -> float:
    """Return how much of what takes `part` of a capacity does not stay in it."""
    return min(max(middle + slope * log2(max(part, 1e-9)), 0.0), 1.0)


def from_record(record: Mapping[str, Any]) -> Machine:
    """Return the machine of `record`; ValueError, TypeError or KeyError if it describes none."""
    levels = tuple(
        Level(lv["name"], float(lv["capacity"]), *(Rate(*map(float, lv[k])) for k in ("read", "write")))
        for lv in record["levels"])
    rest = {k: v for k, v in record.items() if k not in ("levels", "stream")}
    made = Machine(**rest, levels=levels, stream=Rate(*map(float, record["stream"])))
    numbers = [getattr(made, name) for name in made._fields if name not in _NO_RATES]
    if not levels or made.threads < 1 or not all(type(n) is float and n >= 0 for n in numbers):
        raise ValueError("a rate is missing or negative")
    return made


# Round numbers, so that what fixtures and golden files show does not depend on where they run.
REFERENCE = Machine(
    "reference", threads=2,
    levels=(
        Level("near", 512 << 10, Rate(80e9, 160e9), Rate(60e9, 120e9)),
        Level("shared", 32 << 20, Rate(50e9, 100e9), Rate(25e9, 50e9)),
        Level("memory", inf, Rate(20e9, 40e9), Rate(15e9, 30e9)),
    ),
    stream=Rate(50e9, 50e9), unit=50e-12, product=100e9, scalar=4.0,
    launch=0.5e-6, wake=5e-6, call=1e-6, fault=100e-12,
)
