"""Lower bounds on the cost of plans, and detection of cyclic dependencies between kernels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import inf
from typing import NamedTuple

from jitla.fusion.candidates import CALL, Candidate, Candidates
from jitla.fusion.memo import members


def creates_cycle(groups: Sequence[Candidate], at: int, wider: Candidate, kernels: Candidates) -> bool:
    """Return whether replacing group `at` by `wider` makes it depend on itself by way of other groups."""
    needs = kernels.prerequisites(wider.body)
    left = [g for k, g in enumerate(groups) if k != at and g.results & g.results - 1]
    while near := [g for g in left if g.results & needs]:
        left = [g for g in left if not g.results & needs]
        for g in near:
            needs |= kernels.prerequisites(g.body)
    return bool(needs & wider.results)


def has_cycle(groups: Sequence[Candidate], kernels: Candidates) -> bool:
    """Return whether kernels with several results depend on each other in a cycle."""
    return bool(_cycle_members(groups, kernels))


def _cycle_members(groups: Sequence[Candidate], kernels: Candidates) -> list[Candidate]:
    """Return the kernels with several results that are in a cycle or depend on one; none without.

    Kernels that need no result of a pending one are removed until nothing changes.
    """
    left = [g for g in groups if g.results & g.results - 1]
    while len(left) > 1:
        pending = 0
        for g in left:
            pending |= g.results
        still = [g for g in left if kernels.prerequisites(g.body) & pending]
        if len(still) == len(left):
            return left
        left = still
    return []


def break_cycles(
    groups: Sequence[Candidate], kernels: Candidates, memory: int, limit: float,
) -> tuple[float, tuple[Candidate, ...]] | None:
    """Return the cheapest acyclic kernels for the same results that cost less than `limit`, or None.

    Of two kernels in a cycle, one has to recompute the values it would read from the other, or from kernels
    that depend on it. All choices are tried by branch and bound.
    """
    best: tuple[float, tuple[Candidate, ...]] | None = None

    def search(kernels_now: tuple[Candidate, ...], readable: tuple[int, ...]) -> None:
        nonlocal best
        seconds = sum([g.seconds for g in kernels_now])
        if seconds >= (limit if best is None else best[0]):
            return
        cycle = _cycle_members(kernels_now, kernels)
        if not cycle:
            best = seconds, kernels_now
        for first, second in permutations(cycle, 2):
            blocked = sum([1 << i for i in members(kernels.inputs(first.body))
                          if kernels.with_ancestors(1 << i) & second.results])
            if blocked and first in kernels_now:
                at = kernels_now.index(first)
                allowed = readable[at] & ~blocked
                replacement = kernels.best(first.results, allowed)
                if replacement.seconds < inf:
                    search((*kernels_now[:at], replacement, *kernels_now[at + 1:]),
                           (*readable[:at], allowed, *readable[at + 1:]))

    search(tuple(groups), (memory,) * len(groups))
    return best


class Requirement(NamedTuple):
    """The work of any kernel that computes `value`, once the set of values in memory is fixed.

    `needs` are the arrays it reads, as memory numbers; `body` are the values it computes; `own_kernel` are
    the seconds of a kernel of its own beside reading, writing and computing; `overhead` are those lost at the
    ends of rows and blocks. Where a call may produce it, computing it takes at least `min_work`, else
    `min_work` is 0.
    """

    value: int
    needs: int
    body: int
    min_work: float
    own_kernel: float
    write: float
    overhead: float


class SharedCost(NamedTuple):
    """An array or a value that at least `kernels` kernels read or compute, at `seconds` each."""

    number: int
    kernels: int
    seconds: float


class LowerBounds:
    """Lower bounds on the seconds of sets of results, memoised."""

    def __init__(self, kernels: Candidates, values: int = 0) -> None:
        self.kernels = kernels
        self.memo = kernels.memo
        #: The values that kernels compute, whichever are in memory, and the arrays stored in any case.
        self.computed_values = values & ~self.memo.views
        self._stored_arrays = kernels.in_memory(0) & self.memo.arrays & ~values
        self._outside_costs: dict[int, tuple[int, float]] = {}
        self._reachable_from = kernels.closures.reachable_from
        self._requirements: list[dict[int, Requirement]] = [{} for _ in self._reachable_from]
        self._by_body: list[dict[tuple[int, int], Requirement]] = [{} for _ in self._reachable_from]
        self._lower_bounds: dict[tuple[int, int], float] = {}
        self._calls: dict[int, float | None] = {}

    def requirement(self, value: int, memory: int) -> Requirement:
        """Return the work that `value` requires if `memory` can be read."""
        memo, readable = self._requirements[value], memory & self._reachable_from[value]
        requirement = memo.get(readable)
        if requirement is None:
            requirement = memo[readable] = self._requirement(value, memory)
        return requirement

    def _requirement(self, value: int, memory: int) -> Requirement:
        body, optional = self.kernels.closure(1 << value, memory)
        memo = self._by_body[value]
        key = body, optional & self.kernels.inputs(body)
        requirement = memo.get(key)
        if requirement is None:
            requirement = memo[key] = self._compute_requirement(value, *key)
        return requirement

    def _compute_requirement(self, value: int, body: int, optional: int) -> Requirement:
        """Return the work of computing `body`, for a kernel that need not read the `optional` values."""
        kernels = self.kernels
        needs = kernels.inputs(body) & self.memo.arrays & ~optional
        read, work, write = kernels.read_seconds(needs), kernels.work_seconds(body), kernels.write[value]
        overhead = kernels.row_end_seconds(body) + kernels.min_start_seconds(value, body, needs)
        min_work, own_kernel = 0.0, kernels.launch + kernels.idle_seconds(write + max(read, work + overhead))
        needs = self.memo.source_set(needs)
        call_seconds = self._call_seconds(value) if body == 1 << value else None
        if call_seconds is not None:
            budget = max(call_seconds - write - kernels.min_launch, 0.0)
            min_work = min(work, budget)
            needs, read = (needs, read) if read <= budget else (0, 0.0)
            body, overhead = body if min_work else 0, 0.0
            own_kernel = min(own_kernel, max(call_seconds - write - max(min_work, read), 0.0))
        return Requirement(value, needs, body, min_work, own_kernel, write, overhead)

    def _call_seconds(self, value: int) -> float | None:
        """Return the seconds of a call that produces `value`; None if its own kernel is legal and cheaper."""
        if value not in self._calls:
            own_kernel = self.kernels.evaluate(1 << value, 1 << value, -1)
            self._calls[value] = own_kernel.seconds if own_kernel.form == CALL else None
        return self._calls[value]

    def _outside_cost(self, values: int) -> tuple[int, float]:
        """Return the stored arrays read for `values`, and the seconds to compute each of these once."""
        cost = self._outside_costs.get(values)
        if cost is None:
            memo = self.memo
            needs, work = 0, 0.0
            for i in members(values):
                needs |= memo.operands[i]
                work += self.min_work_seconds(i)
            cost = self._outside_costs[values] = memo.source_set(needs & self._stored_arrays), work
        return cost

    def min_write_seconds(self, value: int) -> float:
        """Return the least seconds for writing a value, as part of a kernel or of a call."""
        memo, kernels = self.memo, self.kernels
        if memo.loop_operands[value] is not None:
            return kernels.write[value]
        call_seconds = kernels.cost_model.call(memo.values[value])
        call_seconds -= kernels.read_seconds(memo.operands[value])
        return min(kernels.write[value], max(call_seconds - kernels.min_launch, 0.0))

    def min_work_seconds(self, value: int) -> float:
        """Return the least seconds for computing a value, in a kernel or in a call."""
        memo, kernels = self.memo, self.kernels
        if memo.loop_operands[value] is not None:
            return kernels.work[value]
        call_seconds = kernels.cost_model.call(memo.values[value])
        call_seconds = call_seconds - self.min_write_seconds(value) - kernels.min_launch
        return min(kernels.work[value], max(call_seconds, 0.0))

    def reread_arrays(self, requirements: Sequence[Requirement]) -> list[SharedCost]:
        """Return the arrays that several kernels must read, however results are grouped."""
        several = self._needed_by_several([(1 << d.value, d.needs) for d in requirements])
        seconds = self.kernels.seconds_per_source
        return [SharedCost(x, n, seconds[x]) for n, some in several for x in members(some)]

    def recomputed_values(self, requirements: Sequence[Requirement]) -> list[SharedCost]:
        """Return the values that several kernels must compute, however results are grouped."""
        several = self._needed_by_several([(1 << d.value, d.body) for d in requirements])
        return [SharedCost(x, n, self.kernels.work[x]) for n, some in several for x in members(some)]

    def _needed_by_several(self, needs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return pairs of a number of kernels, at least two, and the set of what that many kernels must need.

        `needs` are pairs of a result and the set it needs; results that no kernel can share are in different
        kernels.
        """
        several = needed = 0
        for _, some in needs:
            several |= some & needed
            needed |= some
        shared = []
        while several:
            bit = several & -several
            values, same = 0, several
            for value, some in needs:
                if some & bit:
                    values |= value
                    same &= some
                else:
                    same &= ~some
            several ^= same
            n = self.kernels.compatibility.min_kernels(values)
            if n > 1:
                shared.append((n, same))
        return shared

    def lower_bound(self, results: int, memory: int) -> float:
        """Return a lower bound on the seconds of kernels for `results` that read at most `memory`.

        Every value of the partition that is not a result is computed by other kernels, at least once.
        """
        bound = self._lower_bounds.get((results, memory))
        if bound is None:
            bound = self._lower_bounds[results, memory] = self._lower_bound(results, memory)
        return bound

    def _lower_bound(self, results: int, memory: int) -> float:
        kernels, compatibility = self.kernels, self.kernels.compatibility
        requirements = [self.requirement(i, memory) for i in members(results)]
        needs = body = 0
        write = work = 0.0
        for _, needed, computed, min_work, _, written, _ in requirements:
            needs |= needed
            write += written
            if min_work:
                work += min_work
            else:
                body |= computed
        outside, more = self._outside_cost(self.computed_values & ~(results | body))
        needs |= outside
        work += more
        read = kernels.source_read_seconds(needs)
        work += kernels.work_seconds(body)
        if compatibility.min_kernels(results) == 1:
            work += max([d.overhead for d in requirements])
            return write + max(read, work) + max([d.own_kernel for d in requirements])
        for n, some in self._needed_by_several([(1 << d.value, d.needs) for d in requirements]):
            read += (n - 1) * kernels.source_read_seconds(some)
        for n, some in self._needed_by_several([(1 << d.value, d.body) for d in requirements]):
            work += (n - 1) * kernels.work_seconds(some)
        work += compatibility.heaviest_clique([(d.value, d.overhead) for d in requirements if d.overhead])
        own_kernels = compatibility.heaviest_clique([(d.value, d.own_kernel) for d in requirements])
        return write + max(read, work) + own_kernels
