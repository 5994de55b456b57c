"""What no plan goes below, whatever kernels share: found without pricing any.

Knows: what every result needs and computes, which results no kernel makes together. Must not know: kernels
that were chosen, the search.
Receives results and values in memory; returns seconds, and what they are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jitla.fusion.candidates import CALL, Candidates
from jitla.fusion.memo import members


class Duty(NamedTuple):
    """What any kernel that makes `value` has to do, with what lies in memory settled.

    `needs` are the arrays it reads, by their numbers, `body` what it computes; `alone` what its own kernel
    takes beside reading, writing and computing; `lost` is lost at the ends of rows. Where a call may make
    it, computing it takes `least`.
    """

    value: int
    needs: int
    body: int
    least: float
    alone: float
    write: float
    lost: float


class Chain(NamedTuple):
    """An array, or a value, that at least so many kernels read, or compute, in `seconds` each."""

    number: int
    times: int
    seconds: float


class Floors:
    """The least that results take together, each found once."""

    def __init__(self, kernels: Candidates) -> None:
        self.kernels = kernels
        self.memo = kernels.memo
        self._around = kernels.cones.around
        self._duties: dict[tuple[int, int], Duty] = {}
        self._calls: dict[int, float | None] = {}

    def duty(self, value: int, memory: int) -> Duty:
        """Return what there is to do for `value`."""
        key = value, memory & self._around[value]
        found = self._duties.get(key)
        if found is None:
            found = self._duties[key] = self._duty(value, memory)
        return found

    def _duty(self, value: int, memory: int) -> Duty:
        kernels = self.kernels
        body, optional = kernels.grow(1 << value, memory)
        needs = kernels.inputs(body) & self.memo.arrays & ~optional
        read, work, write = kernels.reading(needs), kernels.working(body), kernels.write[value]
        lost = kernels.losing(body)
        least, alone = 0.0, kernels.least_launch + kernels.slack(write + max(read, work + lost))
        needs = self.memo.shared(needs)
        called = self._call(value) if body == 1 << value else None
        if called is not None:
            room = max(called - write - kernels.least_launch, 0.0)
            least = min(work, room)
            needs, read = (needs, read) if read <= room else (0, 0.0)
            body, lost = body if least else 0, 0.0
            alone = min(alone, max(called - write - max(least, read), 0.0))
        return Duty(value, needs, body, least, alone, write, lost)

    def _call(self, value: int) -> float | None:
        """Return the seconds of a call that makes `value`; None if its own kernel is legal, and better."""
        if value not in self._calls:
            alone = self.kernels.price(1 << value, 1 << value, -1)
            self._calls[value] = alone.seconds if alone.form == CALL else None
        return self._calls[value]

    def arrays(self, duties: Sequence[Duty]) -> list[Chain]:
        """Return the arrays that several kernels read, whatever they share."""
        return self._several([(d.value, d.needs) for d in duties], self.kernels.source_read)

    def values(self, duties: Sequence[Duty]) -> list[Chain]:
        """Return the values that several kernels compute, whatever they share."""
        return self._several([(d.value, d.body) for d in duties], self.kernels.work.__getitem__)

    def _several(self, wanted: Sequence[tuple[int, int]], seconds: Callable[[int], float]) -> list[Chain]:
        """Return what is wanted for several values that no kernel makes together."""
        several = once = 0
        for _, some in wanted:
            several, once = several | some & once, once | some
        found = dict.fromkeys(members(several), 0)
        for value, some in wanted:
            for x in members(some & several):
                found[x] |= 1 << value
        count = self.kernels.mates.count
        return [Chain(x, n, seconds(x)) for x, values in found.items() if (n := count(values)) > 1]

    def together(self, results: int, memory: int) -> float:
        """Return what no kernels for `results` go below, if not more than `memory` can be read."""
        kernels = self.kernels
        duties = [self.duty(i, memory) for i in members(results)]
        needs = body = 0
        write = work = 0.0
        for duty in duties:
            needs |= duty.needs
            write += duty.write
            if duty.least:
                work += duty.least
            else:
                body |= duty.body
        read = kernels.reading_sources(needs) + sum([(c.times - 1) * c.seconds for c in self.arrays(duties)])
        work += kernels.working(body) + sum([(c.times - 1) * c.seconds for c in self.values(duties)])
        work += kernels.mates.clique([(d.value, d.lost) for d in duties])
        return write + max(read, work) + kernels.mates.clique([(d.value, d.alone) for d in duties])
