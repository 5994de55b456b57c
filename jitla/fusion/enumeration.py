"""Branch-and-bound enumeration of fusion plans within a partition.

See Boehm et al., "On Optimizing Operator Fusion Plans for Large-Scale Machine Learning in SystemML",
PVLDB 11(12), 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from math import inf, isinf
from typing import NamedTuple

from jitla.classes import dataclass
from jitla.concurrency import rest
from jitla.fusion.bounds import Chain, Duty, Floors, closes, cyclic, untangled
from jitla.fusion.candidates import CALL, LOOP, Candidate, Candidates
from jitla.fusion.memo import Memo, members
from jitla.fusion.partitions import Partition

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


MAX_WIDE = 40  # results divided exactly; more are put together one by one
NEAR, NEAREST = 6, 2  # groups that a result is tried in, one result after the other; without a budget


class Groups:
    """Kernels for the results of a partition, which has `values`."""

    def __init__(self, kernels: Candidates, values: int = 0, budget: float = inf) -> None:
        self.kernels = kernels
        self.memo = kernels.memo
        self.purse = Purse(kernels, budget)
        self._known: dict[tuple[int, int], Grouped] = {}
        self._divisions: dict[tuple[int, int], Division] = {}
        self.floors = Floors(kernels, values)
        self._touched: dict[tuple[int, int], int] = {}
        self._kinds: dict[tuple[str, int], int] = {}

    def arrange(self, results: int, memory: int, most: float = inf) -> Grouped | None:
        """Return the cheapest kernels that make `results`, and their cost; None if it is not below `most`."""
        if results.bit_count() == 1:
            return self._together(results, memory, most)
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

    def guess(self, results: int, memory: int) -> Grouped:
        """Return good kernels that make `results`, without a search."""
        chosen: list[Candidate] = []
        for part in self._parts(results, memory):
            chosen += self._first(part, memory)[1]
        if cyclic(chosen, self.kernels):
            return self._one_by_one(members(results), memory)
        return sum([c.seconds for c in chosen]), tuple(chosen)

    def _first(self, results: int, memory: int, most: float = inf) -> Grouped:
        """Return one kernel for all, which is best if it is a loop, or those found one by one."""
        whole = self.kernels.best(results, memory)
        if results & results - 1 == 0 or whole.form == LOOP and not isinf(whole.seconds):
            return whole.seconds, (whole,)
        found = self._one_by_one(members(results), memory) if most == inf else (most, ())
        return (whole.seconds, (whole,)) if whole.seconds < found[0] else found

    def _joint(self, results: int, memory: int) -> Grouped:
        """Divide all results at once, so that kernels do not wait for each other."""
        items = members(results)
        found = self._one_by_one(items, memory)
        if len(items) > MAX_WIDE or self.purse.exhausted():
            self.purse.spent = True
            return found
        return self._division(results, memory).run(found)

    def _floor(self, results: int, memory: int) -> float:
        """Return what no division of `results` goes below, without looking for one."""
        if results & results - 1 == 0:
            return self.kernels.best(results, memory).seconds
        known = self._known.get((results, memory & self.kernels.reach(results)))
        return known[0] if known is not None else self._division(results, memory).floor

    def _division(self, results: int, memory: int) -> Division:
        key = results, memory & self.kernels.reach(results)
        found = self._divisions.get(key)
        if found is None:
            items = [self.floors.duty(i, memory) for i in members(results)]
            found = self._divisions[key] = Division(self.floors, self.purse, items, memory)
        return found

    def _touches(self, value: int, memory: int) -> int:
        """Return the arrays that a kernel for `value` reads or makes, once for every kind of kernel."""
        key = value, memory & self.kernels.cones.around[value]
        found = self._touched.get(key)
        if found is None:
            body = self.kernels.best(1 << value, memory).body
            arrays, found = self.memo.shared(body | self.kernels.inputs(body)), 0
            for kind in self.kernels.groups(value):
                found |= arrays << len(self.memo.values) * self._kinds.setdefault(kind, len(self._kinds))
            self._touched[key] = found
        return found

    def _parts(self, results: int, memory: int) -> list[int]:
        """Divide results into sets that gain nothing from a kernel with results of another one."""
        found: list[tuple[int, int]] = []
        for i in members(results):
            part, touched = 1 << i, self._touches(i, memory)
            self.purse.hurry()
            near = [p for p in found if p[1] & touched]
            if not near:
                found.append((part, touched))
                continue
            for values, arrays in near:
                part, touched = part | values, touched | arrays
            found[found.index(near[0])] = part, touched
            for p in near[1:]:
                found.remove(p)
        return [part for part, _ in found]

    def _together(self, results: int, memory: int, most: float) -> Grouped | None:
        """Return the cheapest way to put `results` into kernels, None if it is not below `most`."""
        key = results, memory & self.kernels.reach(results)
        found = self._known.get(key)
        if found is None:
            found = self._divide(results, memory, most)
            if found is not None:
                self._known[key] = found
        return found if found is not None and (found[0] < most or most == inf) else None

    def _divide(self, results: int, memory: int, most: float) -> Grouped | None:
        found = self._first(results, memory, most)
        whole = len(found[1]) == 1 and found[1][0].results == results
        if results & results - 1 == 0 or whole and found[1][0].form == LOOP:
            return found
        if results.bit_count() > MAX_WIDE or self.purse.exhausted():
            self.purse.spent = True
        else:
            found = self._division(results, memory).run(found)
        return found if found[1] else None

    def _one_by_one(self, items: Sequence[int], memory: int) -> Grouped:
        """Put results together in turn, never so that kernels wait for each other."""
        kernels = self.kernels
        groups: list[Candidate] = []
        for i in items:
            self.purse.hurry()
            alone = kernels.best(1 << i, memory)
            options: list[tuple[float, int, Candidate]] = []
            for g in self._nearest(groups, alone, i):
                seconds = groups[g].seconds
                wider = kernels.gains(groups[g].results | 1 << i, memory, alone.seconds + seconds)
                if wider is not None:
                    options.append((wider.seconds - seconds, g, wider))
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
        return [-g for _, g in sorted(found)[:NEAREST if self.purse.exhausted() else NEAR]]


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
