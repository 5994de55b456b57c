"""What no plan goes below, whatever kernels share: found without pricing any.

Knows: what every result needs and computes, which results no kernel makes together. Must not know: kernels
that were chosen, the search.
Receives results and values in memory; returns seconds, and what they are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        self._duties: list[dict[int, Duty]] = [{} for _ in self._around]
        self._least: dict[tuple[int, int], float] = {}
        self._calls: dict[int, float | None] = {}

    def duty(self, value: int, memory: int) -> Duty:
        """Return what there is to do for `value`."""
        known, there = self._duties[value], memory & self._around[value]
        found = known.get(there)
        if found is None:
            found = known[there] = self._duty(value, memory)
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
        several = self._several([(1 << d.value, d.needs) for d in duties])
        return [Chain(x, n, self.kernels.source_read[x]) for n, some in several for x in members(some)]

    def values(self, duties: Sequence[Duty]) -> list[Chain]:
        """Return the values that several kernels compute, whatever they share."""
        several = self._several([(1 << d.value, d.body) for d in duties])
        return [Chain(x, n, self.kernels.work[x]) for n, some in several for x in members(some)]

    def _several(self, wanted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return what is wanted for several values that no kernel makes together, by how many it takes."""
        several = once = 0
        for _, some in wanted:
            several |= some & once
            once |= some
        found = []
        while several:
            bit = several & -several
            values, same = 0, several
            for value, some in wanted:
                if some & bit:
                    values |= value
                    same &= some
                else:
                    same &= ~some
            several ^= same
            n = self.kernels.mates.count(values)
            if n > 1:
                found.append((n, same))
        return found

    def together(self, results: int, memory: int) -> float:
        """Return what no kernels for `results` go below, if not more than `memory` can be read."""
        found = self._least.get((results, memory))
        if found is None:
            found = self._least[results, memory] = self._together(results, memory)
        return found

    def _together(self, results: int, memory: int) -> float:
        kernels, mates = self.kernels, self.kernels.mates
        duties = [self.duty(i, memory) for i in members(results)]
        needs = body = 0
        write = work = 0.0
        for _, needed, computed, least, _, written, _ in duties:
            needs |= needed
            write += written
            if least:
                work += least
            else:
                body |= computed
        read = kernels.reading_sources(needs)
        work += kernels.working(body)
        if mates.count(results) == 1:
            work += max([d.lost for d in duties])
            return write + max(read, work) + max([d.alone for d in duties])
        for n, some in self._several([(1 << d.value, d.needs) for d in duties]):
            read += (n - 1) * kernels.reading_sources(some)
        for n, some in self._several([(1 << d.value, d.body) for d in duties]):
            work += (n - 1) * kernels.working(some)
        work += mates.clique([(d.value, d.lost) for d in duties if d.lost])
        return write + max(read, work) + mates.clique([(d.value, d.alone) for d in duties])
