"""What a machine can do per second: the constants that predictions are made of.

Knows: rates, capacities, how values spread over levels of memory. Must not know: hops, plans, how
constants are measured. Receives sizes; returns seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log2
from typing import Any, NamedTuple

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
