"""What there is to decide: partitions of the values, and in each the values that may be kept in memory.

The reference (Boehm et al., PVLDB 11(12), 2018, section 4.2) decides for every edge whether its value is
read from memory. Here a point is a value: whether it is in memory at all. A kernel then reads it or
computes it anew, whichever is cheaper, so one choice of values stands for many of edges.
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

# Values of a block from which on not every refinement of a plan is looked at: that takes the cube of them.
MANY = 1000


@dataclass(frozen=True, slots=True)
class Partition:
    """Values whose kernels depend on each other's: `values`, of them `points` to decide, largest first."""

    values: int
    points: tuple[int, ...]


def partitions(memo: Memo, kernels: Candidates) -> list[Partition]:
    """Return the partitions; what cannot be computed together is made `forced` in the table."""
    points = _points(memo, kernels)
    keep_apart(memo, kernels, points)
    points &= ~memo.forced
    found: list[Partition] = []
    for values in _parts(memo, kernels):
        mine = sorted(members(values & points), key=lambda i: (-kernels.write[i], i))
        found.append(Partition(values, tuple(mine)))
    return found


def _points(memo: Memo, kernels: Candidates) -> int:
    """Values that some plan worth having keeps in memory though nobody has to."""
    level, by_rows, readers = _levels(memo, kernels), _by_rows(memo, kernels), _readers(memo)
    found, many = 0, memo.computed.bit_count() > MANY
    for i in members(memo.computed & ~memo.forced & ~memo.views):
        users = list(members(memo.users[i]))
        if memo.is_call(i) or not users:
            continue
        alone = len(users) == 1 and all(
            memo.loop[u] is not None and (memo.loop[u] or 0) >> i & 1 and level[u] == level[i]
            and (not by_rows >> i & 1 or (memo.row[u] or 0) >> i & 1) for u in users)
        if not (alone and (many or not _has_host(i, users[0], readers, kernels))) and \
                not _always_cheaper_anew(i, users, memo, kernels):
            found |= 1 << i
    return found


def _levels(memo: Memo, kernels: Candidates) -> list[int]:
    """Count the borders in front of every value: edges over which no kernel computes the operand."""
    level = [0] * len(memo.values)
    for i in members(memo.computed):
        for o in members(memo.operands[i] & memo.computed):
            level[i] = max(level[i], level[o] + (0 if kernels.take[i] >> o & 1 else 1))
    return level


def _by_rows(memo: Memo, kernels: Candidates) -> int:
    """Return the values with something in front of them that only row kernels compute together with them."""
    found = 0
    for i in members(memo.computed):
        row = memo.row[i] or 0 if kernels.rows else 0
        if row & (found | ~(memo.loop[i] or 0)):
            found |= 1 << i
    return found


def _readers(memo: Memo) -> list[int]:
    """For every array, by the number of its memory, return the values computed that read it."""
    found = [0] * len(memo.values)
    for i in members(memo.computed):
        for x in members(memo.shared(memo.operands[i])):
            found[x] |= 1 << i
    return found


def _has_host(i: int, user: int, readers: list[int], kernels: Candidates) -> bool:
    """Tell whether another kernel than that of the only user reads what value `i` is computed from.

    It may have time to compute while it reads.
    """
    memo, hosts = kernels.memo, 0
    cone, _ = kernels.grow(1 << i, memo.forced)
    for x in members(memo.shared((kernels.inputs(cone) | cone) & memo.arrays)):
        hosts |= readers[x]
    return any(kernels.mates.are_mates(i, j) and not kernels.mates.are_mates(j, user)
               for j in members(hosts & ~cone & ~(1 << user)))


def _always_cheaper_anew(i: int, users: list[int], memo: Memo, kernels: Candidates) -> bool:
    """Tell whether writing value `i` costs more than computing it from memory for every user."""
    if any(not (memo.loop[u] or 0) >> i & 1 for u in users):
        return False
    cone, _ = kernels.grow(1 << i, memo.forced)
    inputs = kernels.inputs(cone) & memo.arrays
    if inputs.bit_count() > 6 or any(memo.loop[h] is None for h in members(cone)):
        return False
    again = sum(kernels.read[o] for o in members(inputs)) + sum(kernels.work[h] for h in members(cone))
    longer = 1.0 if kernels.near else kernels.prices.busy(again) / again if again else 1.0
    return len(users) * longer * (again - kernels.read[i]) <= kernels.write[i]


def keep_apart(memo: Memo, kernels: Candidates, points: int) -> None:
    """Force values into memory until every kernel is legal when all points are there."""
    waiting = [i for i in members(memo.computed) if not memo.is_call(i)]
    while waiting:
        i = waiting.pop()
        memory = kernels.in_memory(points)
        if memory >> i & 1 and isinf(kernels.best(1 << i, memory).seconds):
            body, _ = kernels.grow(1 << i, memory)
            inner = list(members(body & ~(1 << i)))
            if inner:
                large = len(inner) >= min(MAX_BODY, MAX_ARRAYS) - 1
                apart = inner[len(inner) // 2 if large else -1]
                memo.forced |= 1 << apart
                waiting += [i, apart]


def _parts(memo: Memo, kernels: Candidates) -> list[int]:
    """Sets of values that hang together: by what a kernel may take in, or by arrays kernels may share."""
    parent = list(range(len(memo.values)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    mine = [i for i in members(memo.computed) if not memo.is_call(i) or memo.views >> i & 1]
    readers: dict[tuple[str, int, int], int] = {}
    for i in mine:
        for o in members(kernels.take[i]):
            parent[find(o)] = find(i)
        for o in members(memo.shared(memo.operands[i])):
            for kind, group in kernels.groups(i):
                other = readers.setdefault((kind, group, o), i)
                parent[find(other)] = find(i)
    found: dict[int, int] = {}
    for i in mine:
        found[find(i)] = found.get(find(i), 0) | 1 << i
    return list(found.values())
