"""The cheapest plan of a partition: which of its points are kept in memory.

Knows: points, what the kernels for a choice of them cost. Must not know: what kernels compute.
Receives partitions; returns kernels, and what the search has looked at.

Exact, unless the budget runs out: branch and bound over the points. Boehm et al., PVLDB 11(12), 2018,
section 4.4 and 4.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from math import inf, isinf

from jitla.classes import dataclass
from jitla.fusion.candidates import Candidate, Candidates
from jitla.fusion.division import EXACT, Grouped, Spent
from jitla.fusion.groups import Groups
from jitla.fusion.memo import Memo, members
from jitla.fusion.points import Partition

BUDGET = 600  # kernels priced for one plan: what is found by then is taken, whatever the load
INSIDE = 100  # of these, for the loops inside of one row kernel
MANY = 12  # points: of more, the search may end before all choices of small ones were looked at
SMALLER = 64  # times that a value costs less to keep than the largest
FEW = 3  # points; of more, choices are given up when they cost more than the best, not the second


@dataclass(slots=True)
class Found:
    """What the search of a partition has found and looked at; counts are choices of points.

    `partially`: of the `costed`, those given up when they cost more than the `second` best.
    `known`: it was searched before, in this or another program. `spent`: the budget ran out, so that
    something cheaper may have been missed.
    """

    partition: Partition
    seconds: float = inf
    chosen: int = 0
    kernels: tuple[Candidate, ...] = ()
    costed: int = 0
    partially: int = 0
    cut_by_cost: int = 0
    spent: bool = False
    known: bool = False
    second: tuple[float, int] | None = None
    tried: dict[int, float] = field(default_factory=dict)


class Search:
    """The search of one partition."""

    def __init__(
        self, partition: Partition, memo: Memo, kernels: Candidates, budget: float = inf, prune: bool = True,
    ) -> None:
        self.partition = partition
        self.memo = memo
        self.kernels = kernels
        self.groups = Groups(kernels, partition.values, budget)
        self.floors = self.groups.floors
        self.purse = self.groups.purse
        self.prune = prune
        self.found = Found(partition)
        self.guessed: dict[int, float] = {}
        self.results = partition.values & ~memo.views
        self._known: float | None = None

    def run(self) -> Found:
        """Search; return the best found."""
        found = self.found
        try:
            self._enumerate(self.partition.points)
        except Spent:
            found.spent = True
        found.spent |= self.purse.spent
        return found

    # ------------------------------------------------------------------ points

    def _enumerate(self, points: Sequence[int]) -> None:
        """Look at all choices of points but those that cannot be cheaper than the best found."""
        if not points:
            self._cost(0)
            return
        everything = sum([1 << p for p in points])
        if self.prune and len(points) > 1:
            for kept in (*([self._small(points)] if len(points) > MANY else []), everything, 0):
                self._guess(kept)
            self._climb(points, self.found.chosen, self._guess)
            self._hope(0)
            self._climb(points, self.found.chosen, self._hope)
        else:
            self._cost(everything)
            self._cost(0)

        def descend(at: int, kept: int) -> None:
            if self.prune and self._is_hopeless(kept, points[at:]):
                self.found.cut_by_cost += 1 << len(points) - at
            elif at == len(points):
                self._cost(kept)
            else:
                descend(at + 1, kept)
                descend(at + 1, kept | 1 << points[at])

        descend(0, 0)

    def _small(self, points: Sequence[int]) -> int:
        """Return the points that are cheap to keep, such as rows and columns that larger values are made of.

        Where there are many points, what is climbed from decides whether one loop for the rest is found.
        """
        most = max([self.kernels.write[p] for p in points]) / SMALLER
        return sum([1 << p for p in points if self.kernels.write[p] <= most])

    def _climb(self, points: Sequence[int], kept: int, look: Callable[[int], float]) -> None:
        """Change one point after the other while that helps: a good plan makes the search short."""
        least, last = look(kept), -1
        while last != kept:
            last = kept
            for p in points:
                seconds = look(kept ^ 1 << p)
                if seconds < least:
                    least, kept = seconds, kept ^ 1 << p

    # ------------------------------------------------------------------ bounds

    def least(self) -> float:
        """Return what no plan of the partition goes below, found once."""
        if self._known is None:
            self._known = self._least()
        return self._known

    def _least(self) -> float:
        """Find the least of any plan.

        Every value is computed once. Every array is read once, again by what no kernel computes together
        with its other readers. Results that no two of share a kernel are made by one each.
        """
        memo, kernels = self.memo, self.kernels
        work = write = 0.0
        readers: dict[int, list[tuple[int, float]]] = {}
        memory = kernels.in_memory(0) & memo.arrays & ~self.partition.values
        for i in members(self.results):
            work += self.floors.working(i)
            for x in members(memo.shared(memo.operands[i] & memory)):
                readers.setdefault(x, []).append((i, 1.0))
            write += self.floors.written(i) if memo.forced >> i & 1 else 0.0
        read = sum([kernels.source_read[x] * kernels.mates.clique(some) for x, some in readers.items()])
        forced = members(self.results & memo.forced)
        made = [(i, kernels.least_launch + kernels.slack(self.floors.written(i))) for i in forced]
        together = write + max(read, work) + kernels.mates.clique(made)
        return max(together, kernels.mates.clique([(i, self._alone(i)) for i in forced]))

    def _alone(self, value: int) -> float:
        """Return what a kernel that makes `value` takes at least, whatever else it makes."""
        memo, kernels = self.memo, self.kernels
        if memo.loop[value] is None:
            return kernels.least_launch + self.floors.written(value)
        everything = kernels.in_memory(self.partition.values)
        body, optional = kernels.grow(1 << value, everything)
        needs = kernels.inputs(body) & memo.arrays & ~optional
        busy = self.floors.written(value) + max(kernels.reading(needs), kernels.working(body))
        return kernels.least_launch + busy + kernels.slack(busy)

    def _bound(self, kept: int) -> float:
        """Return what no plan that keeps `kept` in memory, each for somebody to read, goes below."""
        return self.least() + sum([self.floors.written(i) for i in members(kept)])

    def _is_hopeless(self, kept: int, left: Sequence[int]) -> bool:
        """Tell whether nothing that keeps `kept` in memory, and of the other points some `left`, is best."""
        least = self.found.seconds * EXACT
        if self._bound(kept) >= least:
            return True
        self.purse.step()
        results = self.results & self.kernels.in_memory(kept)
        memory = self.kernels.in_memory(kept | sum([1 << p for p in left]))
        return self.floors.together(results, memory) >= least

    # ------------------------------------------------------------------ the cost of one choice

    def _cost(self, kept: int) -> float:
        """Return the least cost with exactly `kept` of the points in memory."""
        found = self.found
        if kept in found.tried:
            return found.tried[kept]
        self.purse.hurried = not isinf(found.seconds)  # some plan there has to be
        self.purse.hurry()
        found.costed += 1
        most = found.second[0] if self.prune and found.second else inf
        if len(self.partition.points) > FEW:
            most = min(most, found.seconds)
        arranged = self._arrange(kept, most)
        if arranged is None:
            found.partially += 1
            found.tried[kept] = inf
            return inf
        found.tried[kept] = arranged[0]
        self._take(kept, *arranged)
        return arranged[0]

    def _hope(self, kept: int) -> float:
        """Return the least cost of a choice, if it can be the best."""
        chosen = kept == self.found.chosen
        return inf if not chosen and self._is_hopeless(kept, ()) else self._cost(kept)

    def _guess(self, kept: int) -> float:
        """Return what some plan for a choice costs, maybe not the best one, if any can be the best."""
        if kept not in self.guessed:
            self.guessed[kept] = inf
            if not isinf(self.found.seconds) and self.purse.half():
                return inf
            if not self._is_hopeless(kept, ()):
                self.purse.hurried = not isinf(self.found.seconds)
                self.purse.step()
                memory = self.kernels.in_memory(kept)
                seconds, kernels = self.groups.guess(self.results & memory, memory)
                self.guessed[kept] = seconds
                self._take(kept, seconds, kernels)
        return self.guessed[kept]

    def _take(self, kept: int, seconds: float, kernels: tuple[Candidate, ...]) -> None:
        """Keep a plan, if it is the best or the second so far."""
        found = self.found
        if seconds < found.seconds:
            if not isinf(found.seconds) and kept != found.chosen:
                found.second = found.seconds, found.chosen
            found.seconds, found.chosen, found.kernels = seconds, kept, kernels
        elif kept != found.chosen and not isinf(seconds):
            if found.second is None or (seconds, kept) < found.second:
                found.second = seconds, kept

    def arrange(self, kept: int) -> Grouped:
        """Return the cheapest kernels that make what is in memory, and their cost."""
        found = self._arrange(kept, inf)
        assert found is not None
        return found

    def within(self, kept: int) -> Grouped | None:
        """Return the cheapest kernels that make what is in memory; None if that is more than the budget.

        Without any their cost is inf.
        """
        self.purse.hurried = True
        try:
            return self._arrange(kept, inf) or (inf, ())
        except Spent:
            return None

    def _arrange(self, kept: int, most: float) -> Grouped | None:
        memory = self.kernels.in_memory(kept)
        return self.groups.arrange(self.results & memory, memory, most)
