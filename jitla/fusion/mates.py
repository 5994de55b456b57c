"""Which values may be results of one kernel, whatever else it makes.

Knows: the memo table. Must not know: prices, plans.
Receives values; returns what can be said before any kernel is looked at.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from jitla.fusion.memo import Memo, members
from jitla.fusion.templates import MAGG
from jitla.hops import Kind


class Mates:
    """For every value, the earlier ones that some kernel, with `rows` a row kernel, might make with it."""

    def __init__(self, memo: Memo, rows: bool) -> None:
        self.memo = memo
        self.by_rows = rows
        #: The values that loops over one space compute, and row kernels over so many rows, by their numbers.
        self.loops: dict[int, int] = {}
        self.rows: dict[int, int] = {}
        #: The values with operands that no loop takes in.
        self.borders = 0
        self.aggregates = memo.set(h for h in memo.values if h.op.kind is Kind.AGG)
        self.tallies = memo.set(h for h in memo.values if h.op.kind is Kind.TALLY)
        #: The values to which blocks of rows are added in turn, and those that add up several: never both.
        self.turns, self.sums = memo.turns()
        self._mates = self._shared()
        self._together = [loop | row for loop, row in self._mates]
        self._counts: dict[int, int] = {}
        #: For every value, those that no loop, and those that no row kernel, makes with it, if in front.
        self.apart = [(~loop, ~row) for loop, row in self._mates]

    def _shared(self) -> list[tuple[int, int]]:
        """For every value, find the earlier ones that may be results of the same loop, or row kernel.

        No value waits for another one there over a border, which no kernel of that form computes across.
        """
        memo = self.memo
        apart: tuple[list[int], list[int]] = [], []
        loops, rows = self.loops, self.rows
        found = []
        for i in range(len(memo.values)):
            takes = memo.loop[i] or 0, memo.row[i] or 0 if self.by_rows else 0
            for own, take in zip(apart, takes, strict=True):
                behind = 0
                for o in members(memo.operands[i]):
                    behind |= own[o] if take >> o & 1 else memo.before[o] | 1 << o
                own.append(behind)
            if memo.operands[i] & memo.computed & ~takes[0]:
                self.borders |= 1 << i
            loop = row = 0
            if memo.loop[i] is not None:
                loop = loops.get(memo.spaces[i], 0) & ~apart[0][i] & ~self._otherwise(i)
                loops[memo.spaces[i]] = loops.get(memo.spaces[i], 0) | 1 << i
            if self.by_rows and memo.row[i] is not None:
                row = rows.get(memo.rows[i], 0) & ~apart[1][i]
                row &= ~(self.sums if self.turns >> i & 1 else self.turns if self.sums >> i & 1 else 0)
                rows[memo.rows[i]] = rows.get(memo.rows[i], 0) | 1 << i
            found.append((loop, row))
        return found

    def _otherwise(self, value: int) -> int:
        """Return the aggregates in front of `value` that no loop takes together with it."""
        if not self.aggregates >> value & 1:
            return 0
        hop = self.memo.values[value]
        return sum([1 << o for o in members(self.aggregates & (1 << value) - 1)
                    if self.memo.spaces[o] == self.memo.spaces[value]
                    and not MAGG.merge(self.memo.values[o], hop)])

    def may_share(self, results: int, value: int) -> bool:
        """Tell whether some kernel might make `results`, all in front of `value`, and it."""
        loop, row = self._mates[value]
        return results & ~loop == 0 or results & ~row == 0

    def are_mates(self, a: int, b: int) -> bool:
        """Tell whether some kernel might make both values."""
        return self.may_share(1 << min(a, b), max(a, b))

    def count(self, values: int) -> int:
        """Return how many kernels it takes at least to make `values`."""
        found = self._counts.get(values)
        if found is None:
            found = self._counts[values] = int(self.clique([(i, 1.0) for i in members(values)]))
        return found

    def clique(self, items: Iterable[tuple[int, float]]) -> float:
        """Return the largest sum of what is said of some `items`, operands first, that no two of can share.

        It is not always found; then what is returned is less.
        """
        found: list[tuple[float, int]] = []  # the lightest first
        best, seen, together = 0.0, 0, self._together
        for i, more in items:
            mine, apart = together[i], 0
            if seen & ~mine:
                for weight, others in reversed(found):
                    if not others & mine:
                        apart = others
                        more += weight
                        break
            bit = 1 << i
            seen |= bit
            insort(found, (more, apart | bit))
            if more > best:
                best = more
        return best
