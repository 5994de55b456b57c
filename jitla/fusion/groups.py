"""Which results share a kernel, once it is settled what lies in memory.

Knows: candidates, their prices. Must not know: how the values in memory are chosen.
Receives results and values in memory; returns the cheapest kernels that make these results.

Exact, unless the budget runs out: branch and bound over the ways to divide results. Sums of what the
groups cost already, and of what is still to be read, computed and written once, bound it from below.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isinf

from jitla.fusion.candidates import CALL, LOOP, Candidate, Candidates
from jitla.fusion.memo import members
from jitla.fusion.waiting import closes, cyclic, untangled

STEPS = 4  # divisions looked at for every kernel that may be priced,
SHARE = 12  # and of these, for one set of results, this part at most
MAX_WIDE = 40  # results divided exactly; more are put together one by one
NEAR, NEAREST = 6, 2  # groups that a result is tried in, one result after the other; without a budget
EXACT = 1.0 - 1e-12  # what is cheaper by rounding is not cheaper

Grouped = tuple[float, tuple[Candidate, ...]]


class Spent(Exception):
    """The budget has run out."""


class Groups:
    """Kernels for the results of a partition.

    `spent` tells whether the budget of priced kernels ran out, so that results may not be divided best.
    Once something is found, `hurried` is set; then `Spent` is raised when it runs out.
    """

    def __init__(self, kernels: Candidates, budget: float = inf) -> None:
        self.kernels = kernels
        self.memo = kernels.memo
        self.budget = kernels.limit = budget
        self.steps = 0
        self.spent = self.hurried = False
        self._known: dict[tuple[int, int], Grouped] = {}
        self._divisions: dict[tuple[int, int], _Division] = {}

    def exhausted(self) -> bool:
        """Tell whether the budget has run out."""
        return self.kernels.priced > self.budget or self.steps > STEPS * self.budget

    def arrange(self, results: int, memory: int, most: float = inf) -> Grouped | None:
        """Return the cheapest kernels that make `results`, and their cost; None if it is not below `most`."""
        parts = self._parts(results, memory)
        floors = [self._floor(part, memory) for part in parts]
        total = sum(floors)
        chosen: list[Candidate] = []
        for part, floor in zip(parts, floors, strict=True):
            found = self._together(part, memory, most - (total - floor)) if total < most else None
            if found is None:
                return None
            total += found[0] - floor
            chosen += found[1]
        if cyclic(chosen, self.kernels):
            found = self._known.get((results, memory)) or self._joint(results, memory)
            self._known[results, memory] = found
            return found if found[0] < most else None
        return total, tuple(chosen)

    def _joint(self, results: int, memory: int) -> Grouped:
        """Divide all results at once, so that kernels do not wait for each other."""
        items = members(results)
        found = self._one_by_one(items, memory)
        if len(items) > MAX_WIDE or self.exhausted():
            self.spent = True
            return found
        return self._division(results, memory).run(found)

    def _floor(self, results: int, memory: int) -> float:
        """Return what no division of `results` goes below, without looking for one."""
        known = self._known.get((results, memory & self.kernels.below(results)))
        if known is not None:
            return known[0]
        return 0.0 if results & results - 1 == 0 else self._division(results, memory).floor

    def _division(self, results: int, memory: int) -> _Division:
        key = results, memory & self.kernels.below(results)
        found = self._divisions.get(key)
        if found is None:
            found = self._divisions[key] = _Division(self, members(results), memory)
        return found

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
            if self.hurried and self.exhausted():
                raise Spent
            for kind, group in kernels.groups(i):
                for o in touched:
                    parent[find(readers.setdefault((kind, group, o), i))] = find(i)
        found: dict[int, int] = {}
        for i in parent:
            at = find(i)
            found[at] = found.get(at, 0) | 1 << i
        return list(found.values())

    def _together(self, results: int, memory: int, most: float) -> Grouped | None:
        """Return the cheapest way to put `results` into kernels, None if it is not below `most`."""
        key = results, memory & self.kernels.below(results)
        found = self._known.get(key)
        if found is None:
            found = self._divide(results, memory, most)
            if found is not None:
                self._known[key] = found
        return found if found is not None and (found[0] < most or most == inf) else None

    def _divide(self, results: int, memory: int, most: float) -> Grouped | None:
        """One loop for all is best where it is legal; else start from a good division."""
        whole = self.kernels.best(results, memory)
        if results & results - 1 == 0 or whole.form == LOOP and not isinf(whole.seconds):
            return whole.seconds, (whole,)
        items = members(results)
        found: Grouped = most, ()
        if most == inf:
            found = self._one_by_one(items, memory)
        if whole.seconds < found[0]:
            found = whole.seconds, (whole,)
        if len(items) > MAX_WIDE or self.exhausted():
            self.spent = True
        else:
            found = self._division(results, memory).run(found)
        return found if found[1] else None

    def _one_by_one(self, items: Sequence[int], memory: int) -> Grouped:
        """Put results together in turn, never so that kernels wait for each other."""
        kernels = self.kernels
        groups: list[Candidate] = []
        for i in items:
            if self.hurried and self.exhausted():
                raise Spent
            alone = kernels.best(1 << i, memory)
            options: list[tuple[float, int, Candidate]] = []
            for g in self._nearest(groups, alone, i):
                wider = kernels.best(groups[g].results | 1 << i, memory)
                if wider.seconds - groups[g].seconds < alone.seconds:
                    options.append((wider.seconds - groups[g].seconds, g, wider))
            for _, g, wider in sorted(options, key=lambda o: o[:2]):
                if not closes(groups, g, wider, kernels):
                    groups[g] = wider
                    break
            else:
                groups.append(alone)
        return sum(g.seconds for g in groups), tuple(groups)

    def _nearest(self, groups: Sequence[Candidate], alone: Candidate, value: int) -> list[int]:
        """Return the groups that may take `value` in, those first that have most to read in common."""
        kernels = self.kernels
        mine, _ = kernels.touches(alone.body)
        found = []
        for g, group in enumerate(groups):
            if kernels.mates.may_share(group.results, value):
                theirs, _ = kernels.touches(group.body)
                found.append((-kernels.reading_sources(mine & theirs), -g))
        return [-g for _, g in sorted(found)[:NEAREST if self.exhausted() else NEAR]]


class _Division:
    """Branch and bound over the divisions of `items`, operands first, into groups."""

    def __init__(self, groups: Groups, items: Sequence[int], memory: int) -> None:
        self.owner = groups
        self.kernels = groups.kernels
        self.items = items
        self.memory = memory
        self.found: Grouped = inf, ()
        self.groups: list[Candidate] = []
        self.owed: list[tuple[int, int]] = []  # of every group: sources it has to read, values to compute
        self.near: list[tuple[int, int]] = []  # of every group: sources it reads, values it computes
        kernels, memo = self.kernels, groups.memo
        self.write = [0.0] * (len(items) + 1)
        self.rest: list[tuple[int, int, int]] = []  # of items: number, needed sources, body
        self.alone: dict[int, float] = {}
        self.spared: dict[int, float] = {}  # of calls: seconds that a kernel with others may do without
        for i in items:
            body, optional = kernels.grow(1 << i, memory)
            needs = kernels.inputs(body) & memo.arrays & ~optional
            self.rest.append((i, memo.shared(needs), body))
            busy = kernels.write[i] + max(kernels.reading(needs), kernels.working(body))
            self.alone[i] = kernels.least_launch + kernels.slack(busy)
            call = kernels.best(1 << i, memory)
            if call.form == CALL:  # what it reads and computes is in its price alone
                self.rest[-1] = i, 0, 0
                self.alone[i] = min(self.alone[i], max(call.seconds - kernels.write[i], 0.0))
                self.spared[i] = max(call.seconds - kernels.write[i] - kernels.least_launch, 0.0)
        for at in range(len(items) - 1, -1, -1):
            self.write[at] = self.write[at + 1] + kernels.write[items[at]]
        self.chains = self._chains()
        self.floor = self._bound(0, 0.0, 0.0, 0.0, 0.0)

    def run(self, found: Grouped) -> Grouped:
        """Return the cheapest division, `found` if nothing is cheaper."""
        self.found = found
        self.last = self.owner.steps + STEPS * self.owner.budget / SHARE
        self._put(0, 0.0, 0.0, 0.0, 0.0)
        return self.found

    def _chains(self) -> list[list[tuple[int, int, float]]]:
        """For the rest from every item on, find sources that several kernels will read, and how many."""
        kernels = self.kernels
        found = []
        for at in range(len(self.rest) + 1):
            rest = self.rest[at:]
            several, once = 0, 0
            for _, needs, _ in rest:
                several, once = several | needs & once, once | needs
            times = [(x, int(kernels.mates.clique([(i, 1.0) for i, needs, _ in rest if needs >> x & 1])))
                     for x in members(several)]
            found.append([(x, n, kernels.source_read(x)) for x, n in times if n > 1])
        return found

    def _bound(self, at: int, cost: float, read: float, work: float, busy: float) -> float:
        """Return what no completion goes below.

        The rest is written; what no group can share with it is read and computed, in further groups.
        """
        near, kernels = self.near, self.kernels
        sources = bodies = called = 0
        orphans: list[tuple[int, float]] = []
        for i, needs, body in self.rest[at:]:
            orphan = True
            for group, (reads, computes) in zip(self.groups, near, strict=True):
                if kernels.mates.may_share(group.results, i):
                    needs &= ~reads
                    body &= ~computes
                    orphan = False
                    called |= group.results if group.form == CALL else 0
            sources |= needs
            bodies |= body
            if orphan:
                orphans.append((i, self.alone[i]))
        read += kernels.reading_sources(sources)
        for x, times, seconds in self.chains[at]:
            times -= sources >> x & 1
            for reads, _ in near:
                times -= reads >> x & 1
            if times > 0:
                read += times * seconds
        work += kernels.working(bodies)
        cost -= sum([self.spared[i] for i in members(called)])
        return cost + self.write[at] + max(read - busy, work - busy, 0.0) + kernels.mates.clique(orphans)

    def _put(self, at: int, cost: float, read: float, work: float, busy: float) -> None:
        """Try item `at` in every group and in one of its own, what adds least first."""
        self.owner.steps += 1
        if self._bound(at, cost, read, work, busy) >= self.found[0] * EXACT:
            return
        if self.owner.steps > self.last or self.owner.exhausted():
            self.owner.spent = True
            return
        if at == len(self.items):
            most = self.found[0] * EXACT
            self.found = untangled(self.groups, self.kernels, self.memory, most) or self.found
            return
        own, groups = self.items[at], self.groups
        alone = self.kernels.best(1 << own, self.memory)
        options = [(alone.seconds, len(groups), alone)]
        for g, group in enumerate(groups):
            if self.kernels.mates.may_share(group.results, own):
                wider = self.kernels.best(group.results | 1 << own, self.memory)
                if not isinf(wider.seconds):
                    options.append((wider.seconds - group.seconds, g, wider))
        for more, g, c in sorted(options, key=lambda o: o[:2]):
            before, beside = groups[g:g + 1], self.near[g:g + 1]
            groups[g:g + 1] = [c]
            self.near[g:g + 1] = [self.kernels.touches(c.body) if c.form != CALL else (0, 0)]
            # what a group need not compute, and does to read less, a wider one may not
            needs, body = self.rest[at][1:]
            b = max(c.read, c.work)
            r, w = 0.0, 0.0
            owed = self.owed[g:g + 1]
            for old, (sources, bodies) in zip(before, owed, strict=True):
                needs, body = needs | sources, body | bodies
                b -= max(old.read, old.work)
                r, w = -self.kernels.reading_sources(sources), -self.kernels.working(bodies)
            self.owed[g:g + 1] = [(needs, body)]
            r, w = r + self.kernels.reading_sources(needs), w + self.kernels.working(body)
            self._put(at + 1, cost + more, read + r, work + w, busy + b)
            groups[g:g + 1], self.near[g:g + 1], self.owed[g:g + 1] = before, beside, owed
