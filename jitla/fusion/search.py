"""The cheapest plan of a partition: which points are kept in memory, which results share a kernel.

Knows: points, candidates, their prices. Must not know: what kernels compute.
Receives partitions; returns kernels, and what the search has looked at.

Exact, unless the budget runs out: branch and bound over the points, and for every choice of them over
the ways to put results together. Boehm et al., PVLDB 11(12), 2018, section 4.4 and 4.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isinf

from jitla.fusion.candidates import LOOP, Candidate, Candidates
from jitla.fusion.memo import Memo, members
from jitla.fusion.points import Partition

MAX_STEPS = 4000  # ways to put results together, for one choice of points
BUDGET = 600  # kernels priced for one plan: what is found by then is taken, whatever the load


@dataclass(slots=True)
class Found:
    """What the search of a partition has found and looked at; counts are choices of points."""

    partition: Partition
    seconds: float = inf
    chosen: int = 0
    kernels: tuple[Candidate, ...] = ()
    costed: int = 0
    cut_by_cost: int = 0
    bound: float = 0.0
    spent: bool = False
    second: tuple[float, int] | None = None
    tried: dict[int, float] = field(default_factory=dict)


class _Spent(Exception):
    """The budget has run out."""


class Search:
    """The search of one partition; `others` are kernels with several results in other partitions."""

    def __init__(
        self, partition: Partition, memo: Memo, kernels: Candidates,
        others: Sequence[Candidate] = (), budget: float = inf, prune: bool = True,
    ) -> None:
        self.partition = partition
        self.memo = memo
        self.kernels = kernels
        self.others = tuple(others)
        self.budget = budget
        self.prune = prune
        self.found = Found(partition)
        self.results = partition.values & ~memo.views
        self._arranged: dict[tuple[int, int], tuple[float, tuple[Candidate, ...]]] = {}
        self._static = self._least()

    def run(self) -> Found:
        """Search; return the best found."""
        found = self.found
        found.bound = self._static
        try:
            self._enumerate(self.partition.points)
        except _Spent:
            found.spent = True
        rest = sorted((s, c) for c, s in found.tried.items() if c != found.chosen and not isinf(s))
        found.second = rest[0] if rest else None
        return found

    # ------------------------------------------------------------------ points

    def _enumerate(self, points: Sequence[int]) -> None:
        """Look at all choices of points but those that cannot be cheaper than the best found."""
        self._cost(0)
        self._cost(sum(1 << p for p in points))
        if self.prune and len(points) > 3:
            self._climb(points)

        def descend(at: int, kept: int) -> None:
            if self.prune and self._bound(kept) >= self.found.seconds:
                self.found.cut_by_cost += 1 << len(points) - at
            elif at == len(points):
                self._cost(kept)
            else:
                descend(at + 1, kept)
                descend(at + 1, kept | 1 << points[at])

        descend(0, 0)

    def _climb(self, points: Sequence[int]) -> None:
        """Change one point after the other while that helps: a good plan makes the search short."""
        best = -1
        while best != self.found.chosen:
            best = self.found.chosen
            for p in points:
                self._cost(self.found.chosen ^ 1 << p)

    # ------------------------------------------------------------------ bounds

    def _least(self) -> float:
        """What no plan of the partition goes below: every array read once, every value computed once."""
        memo, kernels = self.memo, self.kernels
        read, work, write, inputs = 0.0, 0.0, 0.0, 0
        for i in members(self.results):
            if memo.loop[i] is not None and not memo.is_call(i):
                work += kernels.work[i]
                inputs |= memo.operands[i] & memo.arrays
                if memo.forced >> i & 1:
                    write += kernels.write[i]
        memory = kernels.in_memory(0) & ~self.partition.values
        read = sum(kernels.read[o] for o in memo.sources(inputs & memory))
        return write + max(read, work)

    def _bound(self, kept: int) -> float:
        """Return what no plan that keeps `kept` in memory, each for somebody to read, goes below."""
        kernels = self.kernels
        return self._static + sum(kernels.write[i] for i in members(kept))

    # ------------------------------------------------------------------ the cost of one choice

    def _cost(self, kept: int) -> float:
        """Return the least cost with exactly `kept` of the points in memory."""
        found = self.found
        if kept in found.tried:
            return found.tried[kept]
        if isinf(found.seconds):
            pass  # some plan there has to be
        elif self.kernels.priced > self.budget:
            raise _Spent
        found.costed += 1
        seconds, kernels = self.arrange(kept)
        found.tried[kept] = seconds
        if seconds < found.seconds:
            found.seconds, found.chosen, found.kernels = seconds, kept, kernels
        return seconds

    def arrange(self, kept: int) -> tuple[float, tuple[Candidate, ...]]:
        """Return the cheapest kernels that make what is in memory, and their cost."""
        memory = self.kernels.in_memory(kept)
        single = {i: self.kernels.best(1 << i, memory) for i in members(self.results & memory)}
        total, chosen = 0.0, []
        for part in self._mergeable(single):
            seconds, kernels = self._together(part, memory)
            total += seconds
            chosen += kernels
        if self._cyclic(chosen):
            return self._one_by_one(list(single), memory)
        return total, tuple(chosen)

    def _mergeable(self, single: dict[int, Candidate]) -> list[int]:
        """Divide results into sets that gain nothing from a kernel with results of another one."""
        memo, kernels = self.memo, self.kernels
        parts: list[list[int]] = []  # results, arrays by loops, arrays by rows
        for i, candidate in single.items():
            touched = memo.shared(candidate.body | kernels.inputs(candidate.body))
            mine = [1 << i, {}]
            for kind, group in kernels.groups(i):
                mine[1][kind, group] = touched
            near = [p for p in parts if any(p[1].get(k, 0) & t for k, t in mine[1].items())]
            for part in near:
                parts.remove(part)
                mine[0] |= part[0]
                for k, t in part[1].items():
                    mine[1][k] = mine[1].get(k, 0) | t
            parts.append(mine)
        return [p[0] for p in parts]

    def _together(self, results: int, memory: int) -> tuple[float, tuple[Candidate, ...]]:
        """Return the cheapest way to put `results` into kernels."""
        key = results, memory & self.kernels.below(results)
        if key not in self._arranged:
            self._arranged[key] = self._divide(results, memory)
        return self._arranged[key]

    def _divide(self, results: int, memory: int) -> tuple[float, tuple[Candidate, ...]]:
        whole = self.kernels.best(results, memory)
        if results & results - 1 == 0 or whole.form == LOOP and not isinf(whole.seconds):
            return whole.seconds, (whole,)
        items = list(members(results))
        after = [0.0] * (len(items) + 1)
        for at in range(len(items) - 1, -1, -1):
            after[at] = after[at + 1] + self.kernels.write[items[at]]
        best, chosen, steps = inf, (), 0
        groups: list[Candidate] = []

        def put(at: int, cost: float) -> None:
            nonlocal best, chosen, steps
            steps += 1
            if cost + after[at] >= best or steps > MAX_STEPS:
                return
            if chosen and self.kernels.priced > self.budget:
                steps = MAX_STEPS + 1
                return
            if at == len(items):
                if not self._cyclic(groups):
                    best, chosen = cost, tuple(groups)
                return
            own = 1 << items[at]
            options = []
            for g, group in enumerate(groups):
                wider = self.kernels.best(group.results | own, memory)
                if not isinf(wider.seconds):
                    options.append((wider.seconds - group.seconds, g, wider))
            alone = self.kernels.best(own, memory)
            options.append((alone.seconds, len(groups), alone))
            for more, g, candidate in sorted(options, key=lambda o: o[:2]):
                if g == len(groups):
                    groups.append(candidate)
                    put(at + 1, cost + more)
                    groups.pop()
                else:
                    before, groups[g] = groups[g], candidate
                    put(at + 1, cost + more)
                    groups[g] = before

        put(0, 0.0)
        if steps > MAX_STEPS:
            self.found.spent = True
        return (best, chosen) if chosen else self._one_by_one(items, memory)

    def _one_by_one(self, items: Sequence[int], memory: int) -> tuple[float, tuple[Candidate, ...]]:
        """Put results together in turn, never so that kernels wait for each other."""
        groups: list[Candidate] = []
        for i in items:
            alone = self.kernels.best(1 << i, memory)
            best, at, chosen = alone.seconds, len(groups), alone
            for g, group in enumerate(groups):
                wider = self.kernels.best(group.results | 1 << i, memory)
                if wider.seconds - group.seconds < best and not self._cyclic(
                        [*groups[:g], wider, *groups[g + 1:]]):
                    best, at, chosen = wider.seconds - group.seconds, g, wider
            groups[at:at + 1] = [chosen]
        return sum(g.seconds for g in groups), tuple(groups)

    def _cyclic(self, groups: Sequence[Candidate]) -> bool:
        """Tell whether kernels with several results wait for each other."""
        several = [g for g in (*groups, *self.others) if g.results & g.results - 1]
        if len(several) < 2:
            return False
        needs = [self.kernels.below(self.kernels.inputs(g.body)) for g in several]
        waits = [[j for j, other in enumerate(several) if j != i and needs[i] & other.results]
                 for i in range(len(several))]
        state = [0] * len(several)

        def visit(i: int) -> bool:
            if state[i]:
                return state[i] == 1
            state[i] = 1
            if any(visit(j) for j in waits[i]):
                return True
            state[i] = 2
            return False

        return any(visit(i) for i in range(len(several)))
