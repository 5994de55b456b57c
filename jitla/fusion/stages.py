"""The stages of row kernels: what they pass on to each other, and what it takes to begin them.

Knows: the memo table, prices, how high blocks of rows may be. Must not know: when a kernel is legal, plans.
Receives what kernels compute; returns bytes and seconds.
"""

from __future__ import annotations

from typing import NamedTuple

from jitla.fusion.mates import Mates
from jitla.fusion.memo import Memo, members
from jitla.fusion.price import Prices


class Passed(NamedTuple):
    """Seconds for reading anew, and for leaving in the cache, what the stages of a row kernel share.

    `nbytes` are those of what is left there, `given` of arrays read by rows; how many `stages`, about.
    """

    again: float
    passed: float
    nbytes: int
    given: int
    stages: int


class Stages:
    """What the stages of row kernels take beside what every one of them reads, writes and computes."""

    def __init__(self, memo: Memo, prices: Prices, mates: Mates) -> None:
        self._memo, self._prices, self._mates = memo, prices, mates
        self.wide = memo.set(h for h in memo.values if memo.row[memo.number[h]] is not None
                              and memo.is_wide(memo.number[h])) if mates.by_rows else 0
        self._shared: dict[int, Passed] = {}
        self._depths: dict[int, int] = {}
        self._nbytes = [h.meta.nbytes for h in memo.values]
        #: The values that lie by so many rows, and those that have them along any axis.
        self._lying: dict[int, tuple[int, int]] = {}

    def beginning(self, results: int, body: int) -> float:
        """Return the seconds for beginning the stages of a row kernel at every block of rows."""
        passed, rows = self.passed(body), self._memo.rows[results.bit_length() - 1]
        nbytes = passed.given + passed.nbytes + self._by_rows(results, rows)
        return self._prices.begins(
            passed.stages, rows, nbytes, bool(body & self.wide), bool(results & self._mates.turns))

    def _by_rows(self, values: int, rows: int) -> int:
        """Return the bytes of the values that lie by so many rows."""
        return sum([self._nbytes[i] for i in members(values & self._lies(rows)[0])])

    def _lies(self, rows: int) -> tuple[int, int]:
        found = self._lying.get(rows)
        if found is None:
            shapes = [h.meta.shape for h in self._memo.values]
            found = self._lying[rows] = (sum([1 << i for i, s in enumerate(shapes) if s[:1] == (rows,)]),
                                         sum([1 << i for i, s in enumerate(shapes) if rows in s]))
        return found

    def least(self, value: int, body: int, needs: int) -> float:
        """Return the least that beginning takes in a row kernel for `value`, whatever else it makes.

        It computes `body` and reads `needs` in any case.
        """
        memo = self._memo
        rows = memo.rows[value]
        nbytes = self._by_rows(1 << value, rows) + sum(
            [self._nbytes[i] for i in members(needs & self._lies(rows)[1])])
        depth = self._depth(body)
        return min([self._prices.begins(depth, rows, nbytes, wide, turns)
                    for wide, turns in self._heights(1 << value, body)])

    def _depth(self, body: int) -> int:
        """Return how many stages at least follow on each other in a row kernel that computes `body`."""
        found = self._depths.get(body)
        if found is None:
            memo, stage = self._memo, dict[int, int]()
            for i in members(body):
                loop = memo.loop[i] or 0
                stage[i] = max([stage[o] + (not loop >> o & 1) for o in members(memo.operands[i] & body)],
                               default=0)
            found = self._depths[body] = max(stage.values()) + 1
        return found

    def is_settled(self, results: int, body: int) -> bool:
        """Tell whether no other result of a row kernel makes its blocks higher."""
        return len(self._heights(results, body)) == 1

    def _heights(self, results: int, body: int) -> list[tuple[bool, bool]]:
        """Return what may decide how high the blocks of a kernel are that makes `results`, and maybe more."""
        wide, turns = self.wide, self._mates.turns
        if body & wide or results & turns:
            return [(bool(body & wide), bool(results & turns))]
        same = self._mates.rows[self._memo.rows[results.bit_length() - 1]]
        found = [(False, False)]
        if same & wide:
            found.append((True, False))
        if same & turns and not body & self._mates.sums:
            found.append((False, True))
        return found

    def passed(self, body: int) -> Passed:
        """Return what the stages of a row kernel over `body` share."""
        found = self._shared.get(body)
        if found is None:
            found = self._shared[body] = self._pass(body)
        return found

    def _pass(self, body: int) -> Passed:
        memo = self._memo
        again, passes = self._prices.again, self._prices.passes
        stage: dict[int, int] = {}
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for i in members(body):
            at, loop, operands = 0, memo.loop[i] or 0, memo.operands[i]
            for o in members(operands & body):
                after = stage[o] if loop >> o & 1 else stage[o] + 1
                if after > at:
                    at = after
            stage[i] = at
            for o in members(operands & memo.arrays):
                known = last.get(o)
                if known is None:
                    first[o] = last[o] = at
                elif at > known:
                    last[o] = at
                elif at < first[o]:
                    first[o] = at
        read, write, nbytes, given = 0.0, 0.0, 0, 0
        lies = self._lies(memo.rows[body.bit_length() - 1])[1]
        for o, at in last.items():
            if o not in stage and lies >> o & 1:
                given += self._nbytes[o]
            if at > (stage[o] if o in stage else first[o]):
                read += again(memo.values[o])
                if o in stage:
                    write += passes(memo.values[o])
                    nbytes += self._nbytes[o]
        left = sum([1 << o for o, at in last.items() if at > stage.get(o, at)])
        apart = [i for i in members(body & self._mates.aggregates) if memo.operands[i] & left]
        return Passed(read, write, nbytes, given, max(stage.values()) + 1 + len(apart))
