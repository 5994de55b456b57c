"""Which results share a kernel, once it is settled what lies in memory.

Knows: candidates, their prices. Must not know: how the values in memory are chosen.
Receives results and values in memory; returns the cheapest kernels that make these results.

Exact, unless the budget runs out: branch and bound over the ways to divide results. Sums of what the
groups cost already, and of what is still to be read, computed and written once, bound it from below.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isinf

from jitla.fusion.candidates import LOOP, Candidate, Candidates
from jitla.fusion.memo import members

STEPS = 4  # divisions looked at for every kernel that may be priced
MAX_WIDE = 40  # results divided exactly; more are put together one by one
NEAR = 6  # groups that a result is tried in, when results are put together one by one
EXACT = 1.0 - 1e-12  # what is cheaper by rounding is not cheaper

Grouped = tuple[float, tuple[Candidate, ...]]


class Groups:
    """Kernels for the results of a partition; `others` are those with several results elsewhere.

    `spent` tells whether the budget of priced kernels ran out, so that results may not be divided best.
    """

    def __init__(self, kernels: Candidates, others: Sequence[Candidate] = (), budget: float = inf) -> None:
        self.kernels = kernels
        self.memo = kernels.memo
        self.others = tuple(others)
        self.budget = budget
        self.steps = 0
        self.spent = False
        self._known: dict[tuple[int, int], Grouped] = {}

    def exhausted(self) -> bool:
        """Tell whether the budget has run out."""
        return self.kernels.priced > self.budget or self.steps > STEPS * self.budget

    def arrange(self, results: int, memory: int) -> Grouped:
        """Return the cheapest kernels that make `results`, and their cost."""
        total, chosen = 0.0, []
        for part in self._parts(results, memory):
            seconds, kernels = self._together(part, memory)
            total += seconds
            chosen += kernels
        if isinf(total) or self._cyclic([*chosen, *self.others]):
            return self._one_by_one(members(results), memory)
        return total, tuple(chosen)

    def _parts(self, results: int, memory: int) -> list[int]:
        """Divide results into sets that gain nothing from a kernel with results of another one."""
        memo, kernels = self.memo, self.kernels
        parent: dict[int, int] = {}

        def find(i: int) -> int:
            while parent[i] != i:
                parent[i] = i = parent[parent[i]]
            return i

        readers: dict[tuple[str, int, int], int] = {}
        for i in members(results):
            parent[i] = i
            body = kernels.best(1 << i, memory).body
            touched = members(memo.shared(body | kernels.inputs(body)))
            for kind, group in kernels.groups(i):
                for o in touched:
                    parent[find(readers.setdefault((kind, group, o), i))] = find(i)
        found: dict[int, int] = {}
        for i in parent:
            at = find(i)
            found[at] = found.get(at, 0) | 1 << i
        return list(found.values())

    def _together(self, results: int, memory: int) -> Grouped:
        """Return the cheapest way to put `results` into kernels."""
        key = results, memory & self.kernels.below(results)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._divide(results, memory)
        return found

    def _divide(self, results: int, memory: int) -> Grouped:
        """One loop for all is best where it is legal; else start from a good division."""
        whole = self.kernels.best(results, memory)
        if results & results - 1 == 0 or whole.form == LOOP and not isinf(whole.seconds):
            return whole.seconds, (whole,)
        items = members(results)
        found = self._one_by_one(items, memory)
        if whole.seconds < found[0]:
            found = whole.seconds, (whole,)
        if len(items) > MAX_WIDE or self.exhausted():
            self.spent = True
            return found
        return _Division(self, items, memory, found).run()

    def _one_by_one(self, items: Sequence[int], memory: int) -> Grouped:
        """Put results together in turn, never so that kernels wait for each other."""
        kernels = self.kernels
        groups: list[Candidate] = []
        for i in items:
            alone = kernels.best(1 << i, memory)
            options: list[tuple[float, int, Candidate]] = []
            for g in reversed(range(len(groups))):
                group = groups[g]
                if kernels.may_share(group.results, i) and len(options) < NEAR:
                    wider = kernels.best(group.results | 1 << i, memory)
                    if wider.seconds - group.seconds < alone.seconds:
                        options.append((wider.seconds - group.seconds, g, wider))
            for _, g, wider in sorted(options, key=lambda o: o[:2]):
                if not self._cyclic([*groups[:g], wider, *groups[g + 1:], *self.others]):
                    groups[g] = wider
                    break
            else:
                groups.append(alone)
        return sum(g.seconds for g in groups), tuple(groups)

    def _cyclic(self, groups: Sequence[Candidate]) -> bool:
        """Tell whether kernels with several results wait for each other."""
        several = [g for g in groups if g.results & g.results - 1]
        if len(several) < 2:
            return False
        left = [(self.kernels.waits(g.body), g.results) for g in several]
        while left:
            pending = 0
            for _, results in left:
                pending |= results
            still = [(needs, results) for needs, results in left if needs & pending]
            if len(still) == len(left):
                return True
            left = still
        return False


class _Division:
    """Branch and bound over the divisions of `items`, operands first, into groups."""

    def __init__(self, groups: Groups, items: Sequence[int], memory: int, found: Grouped) -> None:
        self.owner = groups
        self.kernels = groups.kernels
        self.items = items
        self.memory = memory
        self.found = found
        self.groups: list[Candidate] = []
        kernels, memo = self.kernels, groups.memo
        size = len(items) + 1
        self.write, self.bodies, self.needs = [0.0] * size, [0] * size, [0] * size
        for at in range(len(items) - 1, -1, -1):
            body, optional = kernels.grow(1 << items[at], memory)
            self.write[at] = self.write[at + 1] + kernels.write[items[at]]
            self.bodies[at] = self.bodies[at + 1] | body
            self.needs[at] = self.needs[at + 1] | kernels.inputs(body) & memo.arrays & ~optional
        self.depth = kernels.depth(items)

    def run(self) -> Grouped:
        """Return the cheapest division."""
        self._put(0, 0.0)
        return self.found

    def _bound(self, at: int, cost: float) -> float:
        """Return what no completion goes below: the rest is written, read and computed once."""
        read = work = busy = 0.0
        inputs = bodies = 0
        for g in self.groups:
            read += g.read
            work += g.work
            busy += g.read if g.read > g.work else g.work
            inputs |= self.kernels.inputs(g.body)
            bodies |= g.body
        kernels = self.kernels
        read += kernels.reading_beside(self.needs[at], inputs)
        work += kernels.working(self.bodies[at] & ~bodies)
        launches = max(self.depth - len(self.groups), 0) * kernels.least_launch
        return cost + self.write[at] + max(read - busy, work - busy, 0.0) + launches

    def _put(self, at: int, cost: float) -> None:
        """Try item `at` in every group and in one of its own, what adds least first."""
        self.owner.steps += 1
        if self._bound(at, cost) >= self.found[0] * EXACT:
            return
        if self.owner.exhausted():
            self.owner.spent = True
            return
        if at == len(self.items):
            if not self.owner._cyclic(self.groups):
                self.found = cost, tuple(self.groups)
            return
        own, groups = self.items[at], self.groups
        alone = self.kernels.best(1 << own, self.memory)
        options = [(alone.seconds, len(groups), alone)]
        for g, group in enumerate(groups):
            if self.kernels.may_share(group.results, own):
                wider = self.kernels.best(group.results | 1 << own, self.memory)
                if not isinf(wider.seconds):
                    options.append((wider.seconds - group.seconds, g, wider))
        for more, g, candidate in sorted(options, key=lambda o: o[:2]):
            before = groups[g:g + 1]
            groups[g:g + 1] = [candidate]
            self._put(at + 1, cost + more)
            groups[g:g + 1] = before
