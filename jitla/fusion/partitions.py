"""Partitions of the values of a DAG, and in each the points: values that a plan may store in memory or not.

In the reference (Boehm et al., PVLDB 11(12), 2018, section 4.2) a point is an edge: whether its value is read
from memory. Here a point is a value: whether it is in memory at all. A kernel then reads or recomputes it,
whichever is cheaper, so one choice of values covers many choices of edges.
"""

from __future__ import annotations

from math import isinf

from jitla.classes import dataclass
from jitla.fusion.candidates import (
    MAX_ARRAYS,
    MAX_BODY,
    Candidates,
)
from jitla.fusion.memo import (
    Memo,
    members,
)

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
