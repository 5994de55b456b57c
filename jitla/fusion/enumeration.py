"""Partitions of a DAG's values, and branch-and-bound enumeration of the fusion plans of each.

See Boehm et al., "On Optimizing Operator Fusion Plans for Large-Scale Machine Learning in SystemML", PVLDB
11(12), 2018. A partition has points: values that a plan may store in memory or not. In the reference
(section 4.2) a point is an edge: whether its value is read from memory. Here a point is a value: whether it
is in memory at all. A kernel then reads or recomputes it, whichever is cheaper, so one choice of values
covers many choices of edges.

Two nested searches: `Search` chooses which points are stored in memory, `GroupingSearch` which of the stored
values are results of the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from math import inf, isinf
from typing import NamedTuple

from jitla.classes import dataclass
from jitla.fusion.bounds import (
    LowerBounds,
    Requirement,
    SharedCost,
    break_cycles,
    creates_cycle,
    has_cycle,
)
from jitla.fusion.candidates import CALL, LOOP, MAX_ARRAYS, MAX_BODY, Candidate, Candidates
from jitla.fusion.memo import Memo, members

# --------------------------------------------------------------------------- partitions


# Values of a block beyond which the search is less thorough: its time grows with the cube of their number.
MANY_VALUES = 1000


@dataclass(frozen=True, slots=True)
class Partition:
    """Values whose kernels interact; `points` are the open ones, the most expensive to write first."""

    values: int
    points: tuple[int, ...]


def partitions(memo: Memo, kernels: Candidates) -> list[Partition]:
    """Return the partitions; values that cannot be fused are marked `forced` in the memo table."""
    points = _open_points(memo, kernels)
    store_until_legal(memo, kernels, points)
    points &= ~memo.forced
    parts: list[Partition] = []
    for values in _connected_sets(memo, kernels):
        open_points = sorted(members(values & points), key=lambda i: (-kernels.write[i], i))
        parts.append(Partition(values, tuple(open_points)))
    return parts


def _open_points(memo: Memo, kernels: Candidates) -> int:
    """Return the values that a good plan may store in memory although no reader requires it."""
    level, by_rows, readers = _barrier_levels(memo, kernels), _needing_rows(memo, kernels), _readers(memo)
    points, many = 0, memo.computed.bit_count() > MANY_VALUES
    for i in members(memo.computed & ~memo.forced & ~memo.views):
        users = list(members(memo.users[i]))
        if memo.is_call(i) or not users:
            continue
        is_always_fused = len(users) == 1 and all(
            memo.loop_operands[u] is not None and (memo.loop_operands[u] or 0) >> i & 1
            and level[u] == level[i] and (not by_rows >> i & 1 or (memo.row_operands[u] or 0) >> i & 1)
            for u in users)
        if not (is_always_fused and (many or not _has_other_reader(i, users[0], readers, kernels))) and \
                not _is_cheaper_recomputed(i, users, memo, kernels):
            points |= 1 << i
    return points


def _barrier_levels(memo: Memo, kernels: Candidates) -> list[int]:
    """Return, for every value, the most barriers on a path to it: edges that no kernel fuses over."""
    level = [0] * len(memo.values)
    for i in members(memo.computed):
        for o in members(memo.operands[i] & memo.computed):
            level[i] = max(level[i], level[o] + (0 if kernels.fusable_operands[i] >> o & 1 else 1))
    return level


def _needing_rows(memo: Memo, kernels: Candidates) -> int:
    """Return the values with an ancestor that only row kernels compute together with them."""
    values = 0
    for i in members(memo.computed):
        row = memo.row_operands[i] or 0 if kernels.with_rows else 0
        if row & (values | ~(memo.loop_operands[i] or 0)):
            values |= 1 << i
    return values


def _readers(memo: Memo) -> list[int]:
    """Return, for every array, by memory number, the computed values that read it."""
    readers = [0] * len(memo.values)
    for i in members(memo.computed):
        for x in members(memo.source_set(memo.operands[i])):
            readers[x] |= 1 << i
    return readers


def _has_other_reader(i: int, user: int, readers: list[int], kernels: Candidates) -> bool:
    """Return whether a kernel other than the only user's reads the operands of value `i`.

    Such a kernel may have time to compute it while it waits for memory.
    """
    memo, others = kernels.memo, 0
    cone, _ = kernels.closure(1 << i, memo.forced)
    for x in members(memo.source_set((kernels.inputs(cone) | cone) & memo.arrays)):
        others |= readers[x]
    are_compatible = kernels.compatibility.are_compatible
    return any(are_compatible(i, j) and not are_compatible(j, user)
               for j in members(others & ~cone & ~(1 << user)))


def _is_cheaper_recomputed(i: int, users: list[int], memo: Memo, kernels: Candidates) -> bool:
    """Return whether writing value `i` costs more than recomputing it from memory for every user."""
    if any(not (memo.loop_operands[u] or 0) >> i & 1 for u in users):
        return False
    cone, _ = kernels.closure(1 << i, memo.forced)
    inputs = kernels.inputs(cone) & memo.arrays
    if inputs.bit_count() > 6 or any(memo.loop_operands[h] is None for h in members(cone)):
        return False
    recompute = sum(kernels.read[o] for o in members(inputs)) + sum(kernels.work[h] for h in members(cone))
    idle_factor = 1.0
    if recompute and not kernels.in_cache:
        idle_factor = kernels.cost_model.elapsed(recompute) / recompute
    return len(users) * idle_factor * (recompute - kernels.read[i]) <= kernels.write[i]


def store_until_legal(memo: Memo, kernels: Candidates, points: int) -> None:
    """Force values into memory until every kernel is legal when all points are stored."""
    waiting = [i for i in members(memo.computed) if not memo.is_call(i)]
    while waiting:
        i = waiting.pop()
        memory = kernels.in_memory(points)
        if memory >> i & 1 and isinf(kernels.best(1 << i, memory).seconds):
            body, _ = kernels.closure(1 << i, memory)
            inner = list(members(body & ~(1 << i)))
            if inner:
                large = len(inner) >= min(MAX_BODY, MAX_ARRAYS) - 1
                stored = inner[len(inner) // 2 if large else -1]
                memo.forced |= 1 << stored
                waiting += [i, stored]


def _connected_sets(memo: Memo, kernels: Candidates) -> list[int]:
    """Return sets of values connected by fusion, or by arrays that kernels may share."""
    parent = list(range(len(memo.values)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    values = [i for i in members(memo.computed) if not memo.is_call(i) or memo.views >> i & 1]
    readers: dict[tuple[str, int, int], int] = {}
    for i in values:
        for o in members(kernels.fusable_operands[i]):
            parent[find(o)] = find(i)
        for o in members(memo.source_set(memo.operands[i])):
            for kind, group in kernels.kernel_keys(i):
                other = readers.setdefault((kind, group, o), i)
                parent[find(other)] = find(i)
    sets: dict[int, int] = {}
    for i in values:
        sets[find(i)] = sets.get(find(i), 0) | 1 << i
    return list(sets.values())


# --------------------------------------------------------------------------- enumeration


STEPS_PER_KERNEL = 6  # partial groupings examined for every kernel in the budget,
DIVISIONS_PER_BUDGET = 18  # at most one part in that many of them for one set of results
ROUNDING_MARGIN = 1.0 - 1e-12  # a plan that is cheaper only by rounding is not cheaper

Grouping = tuple[float, tuple[Candidate, ...]]


class BudgetExhausted(Exception):
    """The search budget is exhausted."""


class EnumerationBudget:
    """The budget of a search: kernels that may be evaluated, and steps of `GroupingSearch` for each of them.

    `was_exhausted`: the budget ran out, so a grouping may not be the cheapest. Once a plan exists,
    `may_abort` is set; from then on `BudgetExhausted` is raised when it runs out.
    """

    def __init__(self, kernels: Candidates, budget: float) -> None:
        self.kernels = kernels
        self.max_kernels = kernels.limit = budget
        self.max_steps = STEPS_PER_KERNEL * budget
        self.steps = 0
        self.was_exhausted = False
        self.may_abort = False

    def is_exhausted(self) -> bool:
        """Return whether nothing is left."""
        return self.kernels.evaluated > self.max_kernels or self.steps > self.max_steps

    def is_half_spent(self) -> bool:
        """Return whether more than half is spent."""
        return self.kernels.evaluated > self.max_kernels / 2 or self.steps > self.max_steps / 2

    def step(self) -> None:
        """Spend a step."""
        self.steps += 1
        self.check()

    def check(self) -> None:
        """Raise `BudgetExhausted` if nothing is left and a plan exists."""
        if self.may_abort and self.is_exhausted():
            raise BudgetExhausted


class _Group(NamedTuple):
    """Results of one kernel, in a partial grouping.

    `not_read` and `not_computed` are the complements of the arrays the kernel reads and the values it
    computes; `needs`, `body` and `overhead` are the joint requirements of its results. `work` includes
    `overhead`.
    """

    kernel: Candidate
    results: int
    not_read: int
    not_computed: int
    needs: int
    body: int
    overhead: float
    read: float
    work: float
    busy: float
    avoidable: float  # seconds that a kernel with more results may save


def _repeated_seconds(costs: Sequence[SharedCost], excluded: Sequence[int]) -> float:
    """Return the total of `costs` after removing the kernels that cannot be among those counted.

    Each mask in `excluded` has the arrays or values that one kernel does not read or compute.
    """
    total = 0.0
    for x, kernels, seconds in costs:
        kernels -= sum([not mask >> x & 1 for mask in excluded])
        if kernels > 0:
            total += kernels * seconds
    return total


class GroupingSearch:
    """Branch-and-bound search for the cheapest acyclic grouping of results into kernels.

    Results are placed one by one, each into one of the groups or into a new one.
    """

    def __init__(
        self, bounds: LowerBounds, budget: EnumerationBudget, items: Sequence[Requirement], memory: int,
    ) -> None:
        self.bounds = bounds
        self.kernels = kernels = bounds.kernels
        self.budget = budget
        self.items = items
        self.memory = memory
        self.best: Grouping = inf, ()
        self.step_limit = inf
        incompatible = kernels.compatibility.incompatible
        self.incompatible = [(*incompatible[i.value], i) for i in items]
        self.remaining = [self.incompatible[at:] for at in range(len(items) + 1)]
        self.write = [0.0] * (len(items) + 1)
        for at in range(len(items) - 1, -1, -1):
            self.write[at] = self.write[at + 1] + items[at].write
        self._shared_costs: list[tuple[list[SharedCost], list[SharedCost]] | None] = [None] * (len(items) + 1)
        self.lower_bound = self._bound(0, (), 0.0, 0.0, 0.0, 0.0)

    def run(self, incumbent: Grouping) -> Grouping:
        """Return the cheapest grouping, or `incumbent` if none is cheaper."""
        self.best = incumbent
        self.step_limit = self.budget.steps + self.budget.max_steps / DIVISIONS_PER_BUDGET
        self._place(0, (), 0.0, 0.0, 0.0, 0.0)
        return self.best

    def shared_costs(self, at: int) -> tuple[list[SharedCost], list[SharedCost]]:
        """Return the arrays and values that several kernels for the items from `at` on read and compute."""
        costs = self._shared_costs[at]
        if costs is None:
            remaining = self.items[at:]
            costs = self._shared_costs[at] = (
                self.bounds.reread_arrays(remaining), self.bounds.recomputed_values(remaining))
        return costs

    def _bound(
        self, at: int, groups: Sequence[_Group], cost: float, read: float, work: float, busy: float,
    ) -> float:
        """Return a lower bound on the cost of all completions of a partial grouping.

        Items from `at` on are written. What no compatible group reads or computes for them adds to the read
        and compute seconds. Items without a compatible group need kernels of their own.
        """
        kernels = self.kernels
        sources = bodies = avoidable_groups = 0
        orphans: list[tuple[int, float]] = []
        overheads: list[tuple[int, float]] = []
        for no_loop, no_row, item in self.remaining[at]:
            i, needs, body, min_work, own_kernel, _, overhead = item
            orphan = True
            for g, (_, results, not_read, not_computed, *_, avoidable) in enumerate(groups):
                if not results & no_loop or not results & no_row:
                    needs &= not_read
                    body &= not_computed
                    orphan = False
                    avoidable_groups |= 1 << g if avoidable else 0
            sources |= needs
            if not min_work:
                bodies |= body
            elif body:
                work += min_work
            if orphan:
                orphans.append((i, own_kernel))
                overheads.append((i, overhead))
        read += kernels.source_read_seconds(sources)
        work += kernels.work_seconds(bodies) + kernels.compatibility.heaviest_clique(overheads)
        arrays, values = self.shared_costs(at)
        if arrays:
            read += _repeated_seconds(arrays, [~sources, *[g.not_read for g in groups]])
        if values:
            work += _repeated_seconds(values, [~bodies, *[g.not_computed for g in groups]])
        cost -= sum([groups[g].avoidable for g in members(avoidable_groups)])
        return cost + self.write[at] + max(read - busy, work - busy, 0.0) + \
            kernels.compatibility.heaviest_clique(orphans)

    def _place(
        self, at: int, groups: tuple[_Group, ...], cost: float, read: float, work: float, busy: float,
    ) -> None:
        """Place item `at` into every compatible group and into a new one, in the order of the cost added."""
        budget = self.budget
        budget.steps += 1
        if self._bound(at, groups, cost, read, work, busy) >= self.best[0] * ROUNDING_MARGIN:
            return
        if budget.steps > self.step_limit or budget.is_exhausted():
            budget.was_exhausted = True
            return
        if at == len(self.items):
            chosen = [g.kernel for g in groups]
            limit = self.best[0] * ROUNDING_MARGIN
            self.best = break_cycles(chosen, self.kernels, self.memory, limit) or self.best
            return
        item, base = self.items[at], cost + self.write[at + 1]
        base -= self._avoidable_seconds(self.kernels.best(1 << item.value, self.memory), item)
        base -= sum([g.avoidable for g in groups])
        for added, g, kernel in self._placements(at, groups, self.best[0] * ROUNDING_MARGIN - base):
            if base + added >= self.best[0] * ROUNDING_MARGIN:
                break
            old = groups[g] if g < len(groups) else None
            new = self._group(kernel, item, old)
            r, w, b = new.read, new.work, new.busy
            if old is not None:
                r, w, b = r - old.read, w - old.work, b - old.busy
            extended = (*groups[:g], new, *groups[g + 1:])
            self._place(at + 1, extended, cost + added, read + r, work + w, busy + b)

    def _placements(
        self, at: int, groups: Sequence[_Group], limit: float,
    ) -> list[tuple[float, int, Candidate]]:
        """Return (added seconds, group number, kernel) of groups that item `at` fits, cheapest first."""
        no_loop, no_row, item = self.incompatible[at]
        own = self.kernels.best(1 << item.value, self.memory)
        options = [(own.seconds, len(groups), own)]
        for g, group in enumerate(groups):
            results = group.results
            if not results & no_loop or not results & no_row:
                seconds = group.kernel.seconds
                wider = self.kernels.best_below(results | 1 << item.value, self.memory, limit + seconds)
                if wider is not None:
                    options.append((wider.seconds - seconds, g, wider))
        options.sort()
        return options

    def _group(self, kernel: Candidate, item: Requirement, old: _Group | None) -> _Group:
        """Return a group extended by an item.

        Its requirements are the union of the items', not the values of `kernel`: a wider kernel may compute
        less.
        """
        needs, body, overhead = item.needs, item.body, item.overhead
        if old is not None:
            needs, body, overhead = needs | old.needs, body | old.body, max(overhead, old.overhead)
        if kernel.form == CALL:  # its cost is not split into reading and computing
            avoidable = self._avoidable_seconds(kernel, item)
            return _Group(kernel, kernel.results, -1, -1, needs, body, overhead, 0.0, 0.0, 0.0, avoidable)
        kernels = self.kernels
        return _Group(
            kernel, kernel.results, ~kernels.touched_sources(kernel.body)[0], ~kernel.body, needs, body,
            overhead, kernels.source_read_seconds(needs), kernels.work_seconds(body) + overhead,
            max(kernel.read, kernel.work), self._avoidable_seconds(kernel, item))

    def _avoidable_seconds(self, kernel: Candidate, item: Requirement) -> float:
        """Return an upper bound on the seconds that `kernel` could save if it had more results.

        A call or a loop may become part of a row kernel. A row kernel that recomputes values, as its minimal
        body would be a more expensive loop, need not do so with further results, and these may make its
        blocks higher.
        """
        kernels = self.kernels
        if kernel.form == CALL:
            return max(kernel.seconds - item.write - kernels.min_launch, 0.0)
        if kernel.form == LOOP:
            return kernel.seconds - kernels.seconds_as_stage(kernel)
        body, _ = kernels.closure(kernel.results, self.memory)
        height_gain = kernels.max_height_gain(kernel)
        if body == kernel.body:
            return height_gain
        minimal = kernels.evaluate(kernel.results, body, self.memory)
        if minimal.form != LOOP:
            return height_gain
        return max(kernel.seconds - kernels.seconds_as_stage(minimal), height_gain)


MAX_EXACT_RESULTS = 40  # results grouped exactly; more are grouped greedily
MAX_GROUPS_TRIED, MAX_GROUPS_TRIED_OVER_BUDGET = 6, 2  # per result of a greedy grouping; after the budget


class KernelGrouper:
    """Groups the results of a partition with `values` into kernels, memoised."""

    def __init__(self, kernels: Candidates, values: int = 0, budget: float = inf) -> None:
        self.kernels = kernels
        self.memo = kernels.memo
        self.budget = EnumerationBudget(kernels, budget)
        self._groupings: dict[tuple[int, int], Grouping] = {}
        self._searches: dict[tuple[int, int], GroupingSearch] = {}
        self.bounds = LowerBounds(kernels, values)
        self._touched_by_value: dict[tuple[int, int], int] = {}
        self._kinds: dict[tuple[str, int], int] = {}

    def arrange(self, results: int, memory: int, limit: float = inf) -> Grouping | None:
        """Return the cheapest grouping of `results`; None if its cost is not below `limit`."""
        if results.bit_count() == 1:
            return self._group(results, memory, limit)
        parts = self._independent_parts(results, memory)
        bounds = [self._min_seconds(part, memory) for part in parts]
        total = sum(bounds)
        chosen: list[Candidate] = []
        for part, floor in zip(parts, bounds, strict=True):
            grouping = self._group(part, memory, limit - (total - floor)) if total < limit else None
            if grouping is None:
                return None
            total += grouping[0] - floor
            chosen += grouping[1]
        if has_cycle(chosen, self.kernels):
            grouping = self._groupings.get((results, memory)) or self._divide_jointly(results, memory)
            self._groupings[results, memory] = grouping
            return grouping if grouping[0] < limit else None
        return total, tuple(chosen)

    def guess(self, results: int, memory: int) -> Grouping:
        """Return a good grouping of `results`, without a search."""
        chosen: list[Candidate] = []
        for part in self._independent_parts(results, memory):
            chosen += self._initial(part, memory)[1]
        if has_cycle(chosen, self.kernels):
            return self._group_greedily(members(results), memory)
        return sum([c.seconds for c in chosen]), tuple(chosen)

    def _initial(self, results: int, memory: int, limit: float = inf) -> Grouping:
        """Return one kernel for all results (optimal if it is a loop), or a cheaper greedy grouping."""
        whole = self.kernels.best(results, memory)
        if results & results - 1 == 0 or whole.form == LOOP and not isinf(whole.seconds):
            return whole.seconds, (whole,)
        grouping = self._group_greedily(members(results), memory) if limit == inf else (limit, ())
        return (whole.seconds, (whole,)) if whole.seconds < grouping[0] else grouping

    def _divide_jointly(self, results: int, memory: int) -> Grouping:
        """Return the best grouping of all results at once, without cycles."""
        items = members(results)
        grouping = self._group_greedily(items, memory)
        if len(items) > MAX_EXACT_RESULTS or self.budget.is_exhausted():
            self.budget.was_exhausted = True
            return grouping
        return self._search(results, memory).run(grouping)

    def _min_seconds(self, results: int, memory: int) -> float:
        """Return a lower bound on the cost of grouping `results`, without a search."""
        if results & results - 1 == 0:
            return self.kernels.best(results, memory).seconds
        grouping = self._groupings.get((results, memory & self.kernels.reachable(results)))
        return grouping[0] if grouping is not None else self._search(results, memory).lower_bound

    def _search(self, results: int, memory: int) -> GroupingSearch:
        key = results, memory & self.kernels.reachable(results)
        search = self._searches.get(key)
        if search is None:
            items = [self.bounds.requirement(i, memory) for i in members(results)]
            search = self._searches[key] = GroupingSearch(self.bounds, self.budget, items, memory)
        return search

    def _touched_sources(self, value: int, memory: int) -> int:
        """Return the arrays that a kernel for `value` reads or writes, as a mask for each kind of kernel."""
        key = value, memory & self.kernels.closures.reachable_from[value]
        touched = self._touched_by_value.get(key)
        if touched is None:
            body = self.kernels.best(1 << value, memory).body
            arrays, touched = self.memo.source_set(body | self.kernels.inputs(body)), 0
            for kind in self.kernels.kernel_keys(value):
                touched |= arrays << len(self.memo.values) * self._kinds.setdefault(kind, len(self._kinds))
            self._touched_by_value[key] = touched
        return touched

    def _independent_parts(self, results: int, memory: int) -> list[int]:
        """Return sets of results that share no array, so that no kernel across sets is a gain."""
        parts: list[tuple[int, int]] = []
        for i in members(results):
            part, touched = 1 << i, self._touched_sources(i, memory)
            self.budget.check()
            overlapping = [p for p in parts if p[1] & touched]
            if not overlapping:
                parts.append((part, touched))
                continue
            for values, arrays in overlapping:
                part, touched = part | values, touched | arrays
            parts[parts.index(overlapping[0])] = part, touched
            for p in overlapping[1:]:
                parts.remove(p)
        return [part for part, _ in parts]

    def _group(self, results: int, memory: int, limit: float) -> Grouping | None:
        """Return the cheapest grouping of `results`, None if it is not below `limit`."""
        key = results, memory & self.kernels.reachable(results)
        grouping = self._groupings.get(key)
        if grouping is None:
            grouping = self._divide(results, memory, limit)
            if grouping is not None:
                self._groupings[key] = grouping
        return grouping if grouping is not None and (grouping[0] < limit or limit == inf) else None

    def _divide(self, results: int, memory: int, limit: float) -> Grouping | None:
        grouping = self._initial(results, memory, limit)
        whole = len(grouping[1]) == 1 and grouping[1][0].results == results
        if results & results - 1 == 0 or whole and grouping[1][0].form == LOOP:
            return grouping
        if results.bit_count() > MAX_EXACT_RESULTS or self.budget.is_exhausted():
            self.budget.was_exhausted = True
        else:
            grouping = self._search(results, memory).run(grouping)
        return grouping if grouping[1] else None

    def _group_greedily(self, items: Sequence[int], memory: int) -> Grouping:
        """Return a grouping that adds every item to the group where it costs least, without cycles."""
        kernels = self.kernels
        groups: list[Candidate] = []
        for i in items:
            self.budget.check()
            own = kernels.best(1 << i, memory)
            options: list[tuple[float, int, Candidate]] = []
            for g in self._closest_groups(groups, own, i):
                seconds = groups[g].seconds
                wider = kernels.best_below(groups[g].results | 1 << i, memory, own.seconds + seconds)
                if wider is not None:
                    options.append((wider.seconds - seconds, g, wider))
            for _, g, wider in sorted(options, key=lambda o: o[:2]):
                if not creates_cycle(groups, g, wider, kernels):
                    groups[g] = wider
                    break
            else:
                groups.append(own)
        return sum(g.seconds for g in groups), tuple(groups)

    def _closest_groups(self, groups: Sequence[Candidate], own: Candidate, value: int) -> list[int]:
        """Return the compatible groups of `value`, those first that share most reading with it."""
        kernels = self.kernels
        own_sources, _ = kernels.touched_sources(own.body)
        ranked = []
        for g, group in enumerate(groups):
            if kernels.compatibility.is_compatible(group.results, value):
                group_sources, _ = kernels.touched_sources(group.body)
                ranked.append((-kernels.source_read_seconds(own_sources & group_sources), -g))
        limit = MAX_GROUPS_TRIED_OVER_BUDGET if self.budget.is_exhausted() else MAX_GROUPS_TRIED
        return [-g for _, g in sorted(ranked)[:limit]]


BUDGET = 600  # kernels evaluated for one plan; a count, not a time, so that plans do not depend on the load
STAGE_BUDGET = 100  # of these, for the loops inside of one row kernel
MANY_POINTS = 12  # beyond, the budget may run out before all choices of small values are costed
SMALL_VALUE_RATIO = 64  # of the cost of writing the largest point to that of a small one
FEW_POINTS = 3  # beyond, choices are given up when they cost more than the best, not the second best


@dataclass(slots=True)
class EnumerationResult:
    """The outcome of the search of a partition; counts are choices of stored points.

    `chosen` are the points stored in memory. `costed_partially`: choices given up while they were costed, as
    they exceeded the limit. `from_cache`: the plan comes from an earlier search, of this or another program.
    `budget_exhausted`: the budget ran out, so a cheaper plan may have been missed.
    """

    partition: Partition
    seconds: float = inf
    chosen: int = 0
    kernels: tuple[Candidate, ...] = ()
    costed: int = 0
    costed_partially: int = 0
    pruned_by_cost: int = 0
    budget_exhausted: bool = False
    from_cache: bool = False
    second_best: tuple[float, int] | None = None
    costs: dict[int, float] = field(default_factory=dict)


class Search:
    """The search for the points of one partition to store in memory."""

    def __init__(
        self, partition: Partition, memo: Memo, kernels: Candidates, budget: float = inf, prune: bool = True,
    ) -> None:
        self.partition = partition
        self.memo = memo
        self.kernels = kernels
        self.groups = KernelGrouper(kernels, partition.values, budget)
        self.bounds = self.groups.bounds
        self.budget = self.groups.budget
        self.prune = prune
        self.result = EnumerationResult(partition)
        self.heuristic_costs: dict[int, float] = {}
        self.results = partition.values & ~memo.views
        self._minimum: float | None = None

    def run(self) -> EnumerationResult:
        """Search; return the best result."""
        result = self.result
        try:
            self._enumerate(self.partition.points)
        except BudgetExhausted:
            result.budget_exhausted = True
        result.budget_exhausted |= self.budget.was_exhausted
        return result

    # ------------------------------------------------------------------ points

    def _enumerate(self, points: Sequence[int]) -> None:
        """Enumerate all choices of points, except those pruned by a lower bound.

        Heuristic plans, improved by hill climbing, come first: a good incumbent prunes most of the search
        tree.
        """
        if not points:
            self._cost(0)
            return
        everything = sum([1 << p for p in points])
        if self.prune and len(points) > 1:
            small = [self._small_points(points)] if len(points) > MANY_POINTS else []
            for stored in (*small, everything, 0):
                self._heuristic_cost(stored)
            self._hill_climb(points, self.result.chosen, self._heuristic_cost)
            self._cost_unless_pruned(0)
            self._hill_climb(points, self.result.chosen, self._cost_unless_pruned)
        else:
            self._cost(everything)
            self._cost(0)

        def descend(at: int, stored: int) -> None:
            if self.prune and self._is_pruned(stored, points[at:]):
                self.result.pruned_by_cost += 1 << len(points) - at
            elif at == len(points):
                self._cost(stored)
            else:
                descend(at + 1, stored)
                descend(at + 1, stored | 1 << points[at])

        descend(0, 0)

    def _small_points(self, points: Sequence[int]) -> int:
        """Return the points that are cheap to store, such as rows and columns broadcast into larger values.

        With many points, whether hill climbing finds one loop for the larger values depends on where it
        starts.
        """
        threshold = max([self.kernels.write[p] for p in points]) / SMALL_VALUE_RATIO
        return sum([1 << p for p in points if self.kernels.write[p] <= threshold])

    def _hill_climb(self, points: Sequence[int], stored: int, cost: Callable[[int], float]) -> None:
        """Flip one point after the other while that makes the plan cheaper."""
        best, previous = cost(stored), -1
        while previous != stored:
            previous = stored
            for p in points:
                seconds = cost(stored ^ 1 << p)
                if seconds < best:
                    best, stored = seconds, stored ^ 1 << p

    # ------------------------------------------------------------------ bounds

    def min_seconds(self) -> float:
        """Return a lower bound on the cost of any plan of the partition, memoised."""
        if self._minimum is None:
            self._minimum = self._min_seconds()
        return self._minimum

    def _min_seconds(self) -> float:
        """Return a lower bound on the cost of any plan.

        Every value is computed once. Every array is read once by each kernel of a set of readers of which no
        two can share a kernel. Stored results of which no two can share a kernel are written by one kernel
        each.
        """
        memo, kernels = self.memo, self.kernels
        work = write = 0.0
        readers: dict[int, list[tuple[int, float]]] = {}
        memory = kernels.in_memory(0) & memo.arrays & ~self.partition.values
        for i in members(self.results):
            work += self.bounds.min_work_seconds(i)
            for x in members(memo.source_set(memo.operands[i] & memory)):
                readers.setdefault(x, []).append((i, 1.0))
            write += self.bounds.min_write_seconds(i) if memo.forced >> i & 1 else 0.0
        heaviest_clique = kernels.compatibility.heaviest_clique
        read = sum([kernels.seconds_per_source[x] * heaviest_clique(some) for x, some in readers.items()])
        forced = members(self.results & memo.forced)
        launches = [(i, kernels.min_launch + kernels.idle_seconds(self.bounds.min_write_seconds(i)))
                    for i in forced]
        together = write + max(read, work) + heaviest_clique(launches)
        return max(together, heaviest_clique([(i, self._min_kernel_seconds(i)) for i in forced]))

    def _min_kernel_seconds(self, value: int) -> float:
        """Return the least seconds of any kernel with `value` as a result."""
        memo, kernels = self.memo, self.kernels
        if memo.loop_operands[value] is None:
            return kernels.min_launch + self.bounds.min_write_seconds(value)
        everything = kernels.in_memory(self.partition.values)
        body, optional = kernels.closure(1 << value, everything)
        needs = kernels.inputs(body) & memo.arrays & ~optional
        busy = self.bounds.min_write_seconds(value)
        busy += max(kernels.read_seconds(needs), kernels.work_seconds(body))
        return kernels.min_launch + busy + kernels.idle_seconds(busy)

    def _bound(self, stored: int) -> float:
        """Return a lower bound on the cost of plans with `stored` in memory."""
        return self.min_seconds() + sum([self.bounds.min_write_seconds(i) for i in members(stored)])

    def _is_pruned(self, stored: int, undecided: Sequence[int]) -> bool:
        """Return whether no plan with `stored` and any of the `undecided` points can be the best."""
        best = self.result.seconds * ROUNDING_MARGIN
        if self._bound(stored) >= best:
            return True
        self.budget.step()
        results = self.results & self.kernels.in_memory(stored)
        memory = self.kernels.in_memory(stored | sum([1 << p for p in undecided]))
        return self.bounds.lower_bound(results, memory) >= best

    # ------------------------------------------------------------------ the cost of one choice

    def _cost(self, stored: int) -> float:
        """Return the least cost with exactly the points `stored` in memory."""
        result = self.result
        if stored in result.costs:
            return result.costs[stored]
        self.budget.may_abort = not isinf(result.seconds)  # the search may not end without a plan
        self.budget.check()
        result.costed += 1
        limit = result.second_best[0] if self.prune and result.second_best else inf
        if len(self.partition.points) > FEW_POINTS:
            limit = min(limit, result.seconds)
        arranged = self._arrange(stored, limit)
        if arranged is None:
            result.costed_partially += 1
            result.costs[stored] = inf
            return inf
        result.costs[stored] = arranged[0]
        self._record(stored, *arranged)
        return arranged[0]

    def _cost_unless_pruned(self, stored: int) -> float:
        """Return the least cost of a choice; infinity if a lower bound excludes that it is the best."""
        chosen = stored == self.result.chosen
        return inf if not chosen and self._is_pruned(stored, ()) else self._cost(stored)

    def _heuristic_cost(self, stored: int) -> float:
        """Return the cost of a heuristic plan for a choice; infinity if it is pruned."""
        if stored not in self.heuristic_costs:
            self.heuristic_costs[stored] = inf
            if not isinf(self.result.seconds) and self.budget.is_half_spent():
                return inf
            if not self._is_pruned(stored, ()):
                self.budget.may_abort = not isinf(self.result.seconds)
                self.budget.step()
                memory = self.kernels.in_memory(stored)
                seconds, kernels = self.groups.guess(self.results & memory, memory)
                self.heuristic_costs[stored] = seconds
                self._record(stored, seconds, kernels)
        return self.heuristic_costs[stored]

    def _record(self, stored: int, seconds: float, kernels: tuple[Candidate, ...]) -> None:
        """Record a plan if it is the best or the second best so far."""
        result = self.result
        if seconds < result.seconds:
            if not isinf(result.seconds) and stored != result.chosen:
                result.second_best = result.seconds, result.chosen
            result.seconds, result.chosen, result.kernels = seconds, stored, kernels
        elif stored != result.chosen and not isinf(seconds):
            if result.second_best is None or (seconds, stored) < result.second_best:
                result.second_best = seconds, stored

    def arrange(self, stored: int) -> Grouping:
        """Return the least cost of kernels that compute what is in memory, and these."""
        grouping = self._arrange(stored, inf)
        assert grouping is not None
        return grouping

    def arrange_within_budget(self, stored: int) -> Grouping | None:
        """Return the least cost of kernels that compute what is in memory, and these; None beyond the budget.

        The cost is infinite if there are none.
        """
        self.budget.may_abort = True
        try:
            return self._arrange(stored, inf) or (inf, ())
        except BudgetExhausted:
            return None

    def _arrange(self, stored: int, limit: float) -> Grouping | None:
        memory = self.kernels.in_memory(stored)
        return self.groups.arrange(self.results & memory, memory, limit)
