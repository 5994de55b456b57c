"""Branch and bound over the ways to divide results among kernels.

Knows: candidates, their prices, what is left of the budget. Must not know: how values in memory are chosen.
Receives results as items; returns the cheapest kernels that make all of them.

Sums of what the groups cost already, and of what is still to be read, computed and written once, bound
a division from below.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from jitla.fusion.candidates import CALL, LOOP, Candidate, Candidates
from jitla.fusion.floors import Chain, Duty, Floors
from jitla.fusion.memo import members
from jitla.fusion.waiting import untangled
from jitla.rests import rest

STEPS = 6  # divisions looked at for every kernel that may be priced,
SHARE = 18  # and of these, for one set of results, this part at most
EXACT = 1.0 - 1e-12  # what is cheaper by rounding is not cheaper

Grouped = tuple[float, tuple[Candidate, ...]]


class Spent(Exception):
    """The budget has run out."""


class Purse:
    """What a search may spend: so many kernels priced, and divisions looked at for each.

    `spent` tells whether it ran out, so that results may not be divided best. Once something is found,
    `hurried` is set; then `Spent` is raised when it runs out.
    """

    def __init__(self, kernels: Candidates, budget: float) -> None:
        self.kernels = kernels
        self.budget = kernels.limit = budget
        self.most = STEPS * budget
        self.steps = 0
        self.spent = False
        self.hurried = False

    def exhausted(self) -> bool:
        """Tell whether nothing is left."""
        return self.kernels.priced > self.budget or self.steps > self.most

    def half(self) -> bool:
        """Tell whether half is spent."""
        return self.kernels.priced > self.budget / 2 or self.steps > self.most / 2

    def step(self) -> None:
        """Spend a step."""
        rest()
        self.steps += 1
        self.hurry()

    def hurry(self) -> None:
        """Raise `Spent` if nothing is left, and something was found."""
        if self.hurried and self.exhausted():
            raise Spent


class _Group(NamedTuple):
    """Results of one kernel: what it does not read or compute, what all its results need, and its time.

    `work` is with what is `lost` at the ends of rows and blocks.
    """

    kernel: Candidate
    results: int
    unread: int
    uncomputed: int
    needs: int
    body: int
    lost: float
    read: float
    work: float
    busy: float
    spared: float  # seconds that a kernel with more results may do without


def _repeated(chains: Sequence[Chain], without: Sequence[int]) -> float:
    """Return what is left of `chains` where each of `without` tells what a kernel does not do."""
    more = 0.0
    for x, times, seconds in chains:
        times -= sum([not lacks >> x & 1 for lacks in without])
        if times > 0:
            more += times * seconds
    return more


class Division:
    """The divisions of results, by their duties, into kernels that do not wait for each other."""

    def __init__(self, floors: Floors, purse: Purse, items: Sequence[Duty], memory: int) -> None:
        self.floors = floors
        self.kernels = kernels = floors.kernels
        self.purse = purse
        self.items = items
        self.memory = memory
        self.found: Grouped = inf, ()
        self.last = inf
        apart = kernels.mates.apart
        self.apart = [(*apart[i.value], i) for i in items]
        self.rest = [self.apart[at:] for at in range(len(items) + 1)]
        self.write = [0.0] * (len(items) + 1)
        for at in range(len(items) - 1, -1, -1):
            self.write[at] = self.write[at + 1] + items[at].write
        self._chains: list[tuple[list[Chain], list[Chain]] | None] = [None] * (len(items) + 1)
        self.floor = self._bound(0, (), 0.0, 0.0, 0.0, 0.0)

    def run(self, found: Grouped) -> Grouped:
        """Return the cheapest division, `found` if nothing is cheaper."""
        self.found = found
        self.last = self.purse.steps + self.purse.most / SHARE
        self._put(0, (), 0.0, 0.0, 0.0, 0.0)
        return self.found

    def chains(self, at: int) -> tuple[list[Chain], list[Chain]]:
        """For the rest from an item on, return what several kernels will read, and what they will compute."""
        found = self._chains[at]
        if found is None:
            rest = self.items[at:]
            found = self._chains[at] = self.floors.arrays(rest), self.floors.values(rest)
        return found

    def _bound(
        self, at: int, groups: Sequence[_Group], cost: float, read: float, work: float, busy: float,
    ) -> float:
        """Return what no completion goes below.

        The rest is written; what no group can share with it is read and computed, in further groups.
        """
        kernels = self.kernels
        sources = bodies = called = 0
        orphans: list[tuple[int, float]] = []
        losing: list[tuple[int, float]] = []
        for no_loop, no_row, item in self.rest[at]:
            i, needs, body, least, alone, _, lost = item
            orphan = True
            for g, (_, results, unread, uncomputed, *_, spared) in enumerate(groups):
                if not results & no_loop or not results & no_row:
                    needs &= unread
                    body &= uncomputed
                    orphan = False
                    called |= 1 << g if spared else 0
            sources |= needs
            if not least:
                bodies |= body
            elif body:
                work += least
            if orphan:
                orphans.append((i, alone))
                losing.append((i, lost))
        read += kernels.reading_sources(sources)
        work += kernels.working(bodies) + kernels.mates.clique(losing)
        arrays, values = self.chains(at)
        if arrays:
            read += _repeated(arrays, [~sources, *[g.unread for g in groups]])
        if values:
            work += _repeated(values, [~bodies, *[g.uncomputed for g in groups]])
        cost -= sum([groups[g].spared for g in members(called)])
        return cost + self.write[at] + max(read - busy, work - busy, 0.0) + kernels.mates.clique(orphans)

    def _put(
        self, at: int, groups: tuple[_Group, ...], cost: float, read: float, work: float, busy: float,
    ) -> None:
        """Try item `at` in every group and in one of its own, what adds least first."""
        purse = self.purse
        purse.steps += 1
        if self._bound(at, groups, cost, read, work, busy) >= self.found[0] * EXACT:
            return
        if purse.steps > self.last or purse.exhausted():
            purse.spent = True
            return
        if at == len(self.items):
            made = [g.kernel for g in groups]
            most = self.found[0] * EXACT
            self.found = untangled(made, self.kernels, self.memory, most) or self.found
            return
        item, behind = self.items[at], cost + self.write[at + 1]
        behind -= self._spared(self.kernels.best(1 << item.value, self.memory), item)
        behind -= sum([g.spared for g in groups])
        for more, g, kernel in self._options(at, groups, self.found[0] * EXACT - behind):
            if behind + more >= self.found[0] * EXACT:
                break
            old = groups[g] if g < len(groups) else None
            new = self._group(kernel, item, old)
            r, w, b = new.read, new.work, new.busy
            if old is not None:
                r, w, b = r - old.read, w - old.work, b - old.busy
            some = (*groups[:g], new, *groups[g + 1:])
            self._put(at + 1, some, cost + more, read + r, work + w, busy + b)

    def _options(
        self, at: int, groups: Sequence[_Group], most: float,
    ) -> list[tuple[float, int, Candidate]]:
        """Return what kernels with item `at` add, by the number of the group, the least first."""
        no_loop, no_row, item = self.apart[at]
        own = self.kernels.best(1 << item.value, self.memory)
        found = [(own.seconds, len(groups), own)]
        for g, group in enumerate(groups):
            results = group.results
            if not results & no_loop or not results & no_row:
                seconds = group.kernel.seconds
                wider = self.kernels.gains(results | 1 << item.value, self.memory, most + seconds)
                if wider is not None:
                    found.append((wider.seconds - seconds, g, wider))
        found.sort()
        return found

    def _group(self, kernel: Candidate, item: Duty, old: _Group | None) -> _Group:
        """Return a group with one more item: what one of fewer need not compute, a wider one may not."""
        needs, body, lost = item.needs, item.body, item.lost
        if old is not None:
            needs, body, lost = needs | old.needs, body | old.body, max(lost, old.lost)
        if kernel.form == CALL:  # what it reads and computes is in its price alone
            spared = self._spared(kernel, item)
            return _Group(kernel, kernel.results, -1, -1, needs, body, lost, 0.0, 0.0, 0.0, spared)
        kernels = self.kernels
        return _Group(
            kernel, kernel.results, ~kernels.touches(kernel.body)[0], ~kernel.body, needs, body, lost,
            kernels.reading_sources(needs), kernels.working(body) + lost, max(kernel.read, kernel.work),
            self._spared(kernel, item))

    def _spared(self, kernel: Candidate, item: Duty) -> float:
        """Return what a row kernel that takes a call or a loop in may do without.

        A row kernel may compute something anew only because it were a loop else, which is dearer: a wider
        one is not. Other results may make the blocks higher.
        """
        kernels = self.kernels
        if kernel.form == CALL:
            return max(kernel.seconds - item.write - kernels.least_launch, 0.0)
        if kernel.form == LOOP:
            return kernel.seconds - kernels.in_rows(kernel)
        body, _ = kernels.grow(kernel.results, self.memory)
        higher = kernels.higher(kernel)
        if body == kernel.body:
            return higher
        least = kernels.price(kernel.results, body, self.memory)
        return max(kernel.seconds - kernels.in_rows(least), higher) if least.form == LOOP else higher
