"""Lower bounds on the cost of plans, and the check that kernels do not wait for each other in a cycle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import inf
from typing import NamedTuple

from jitla.fusion.candidates import CALL, Candidate, Candidates
from jitla.fusion.memo import members


def closes(groups: Sequence[Candidate], at: int, wider: Candidate, kernels: Candidates) -> bool:
    """Tell whether a group would wait for itself by way of others if it were `wider`."""
    needs = kernels.waits(wider.body)
    left = [g for k, g in enumerate(groups) if k != at and g.results & g.results - 1]
    while near := [g for g in left if g.results & needs]:
        left = [g for g in left if not g.results & needs]
        for g in near:
            needs |= kernels.waits(g.body)
    return bool(needs & wider.results)


def cyclic(groups: Sequence[Candidate], kernels: Candidates) -> bool:
    """Tell whether kernels with several results wait for each other."""
    return bool(_waiting(groups, kernels))


def _waiting(groups: Sequence[Candidate], kernels: Candidates) -> list[Candidate]:
    """Return the kernels with several results that some others in a circle wait for, or that are in it."""
    left = [g for g in groups if g.results & g.results - 1]
    while len(left) > 1:
        pending = 0
        for g in left:
            pending |= g.results
        still = [g for g in left if kernels.waits(g.body) & pending]
        if len(still) == len(left):
            return left
        left = still
    return []


def untangled(
    groups: Sequence[Candidate], kernels: Candidates, memory: int, most: float,
) -> tuple[float, tuple[Candidate, ...]] | None:
    """Return the cheapest kernels for the same results that no order is impossible of, below `most`.

    Of those in a circle, one has to compute what it would read of another, or of what waits for that.
    """
    best: tuple[float, tuple[Candidate, ...]] | None = None

    def part(some: tuple[Candidate, ...], readable: tuple[int, ...]) -> None:
        nonlocal best
        seconds = sum([g.seconds for g in some])
        if seconds >= (most if best is None else best[0]):
            return
        circle = _waiting(some, kernels)
        if not circle:
            best = seconds, some
        for first, second in permutations(circle, 2):
            behind = sum([1 << i for i in members(kernels.inputs(first.body))
                          if kernels.below(1 << i) & second.results])
            if behind and first in some:
                at = some.index(first)
                less = readable[at] & ~behind
                anew = kernels.best(first.results, less)
                if anew.seconds < inf:
                    part((*some[:at], anew, *some[at + 1:]), (*readable[:at], less, *readable[at + 1:]))

    part(tuple(groups), (memory,) * len(groups))
    return best


class Duty(NamedTuple):
    """What any kernel that makes `value` has to do, with what lies in memory settled.

    `needs` are the arrays it reads, by their numbers, `body` what it computes; `alone` what its own kernel
    takes beside reading, writing and computing; `lost` is lost at the ends of rows and blocks. Where a call
    may make it, computing it takes `least`.
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

    def __init__(self, kernels: Candidates, values: int = 0) -> None:
        self.kernels = kernels
        self.memo = kernels.memo
        #: What some kernel computes, whatever lies in memory, and what that reads which is there anyway.
        self.every = values & ~self.memo.views
        self._there = kernels.in_memory(0) & self.memo.arrays & ~values
        self._rest: dict[int, tuple[int, float]] = {}
        self._around = kernels.cones.around
        self._duties: list[dict[int, Duty]] = [{} for _ in self._around]
        self._by_body: list[dict[tuple[int, int], Duty]] = [{} for _ in self._around]
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
        body, optional = self.kernels.grow(1 << value, memory)
        known = self._by_body[value]
        key = body, optional & self.kernels.inputs(body)
        found = known.get(key)
        if found is None:
            found = known[key] = self._priced(value, *key)
        return found

    def _priced(self, value: int, body: int, optional: int) -> Duty:
        """Say what it takes to compute `body`, if the kernel need not read what is `optional`."""
        kernels = self.kernels
        needs = kernels.inputs(body) & self.memo.arrays & ~optional
        read, work, write = kernels.reading(needs), kernels.working(body), kernels.write[value]
        lost = kernels.losing(body) + kernels.least_beginning(value, body, needs)
        least, alone = 0.0, kernels.launch + kernels.slack(write + max(read, work + lost))
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

    def _elsewhere(self, rest: int) -> tuple[int, float]:
        """Return the arrays that are there anyway and read for `rest`, and the seconds to compute it once."""
        found = self._rest.get(rest)
        if found is None:
            memo = self.memo
            needs, work = 0, 0.0
            for i in members(rest):
                needs |= memo.operands[i]
                work += self.working(i)
            found = self._rest[rest] = memo.shared(needs & self._there), work
        return found

    def written(self, value: int) -> float:
        """Return the seconds for writing a value; of a product that may be a call, the least that takes."""
        memo, kernels = self.memo, self.kernels
        if memo.loop[value] is not None:
            return kernels.write[value]
        called = kernels.prices.call(memo.values[value]) - kernels.reading(memo.operands[value])
        return min(kernels.write[value], max(called - kernels.least_launch, 0.0))

    def working(self, value: int) -> float:
        """Return the seconds for computing a value; of a product that may be a call, the least that takes."""
        memo, kernels = self.memo, self.kernels
        if memo.loop[value] is not None:
            return kernels.work[value]
        called = kernels.prices.call(memo.values[value]) - self.written(value) - kernels.least_launch
        return min(kernels.work[value], max(called, 0.0))

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
        """Return what no kernels for `results` go below, if not more than `memory` can be read.

        Whatever of that is not a result is made by other kernels, once at least.
        """
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
        outside, more = self._elsewhere(self.every & ~(results | body))
        needs |= outside
        work += more
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
