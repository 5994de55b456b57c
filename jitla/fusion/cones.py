"""What kernels for a value may compute and read, and what they have to.

Knows: the memo table. Must not know: prices, which results belong together.
Receives sets of results and of values in memory; returns sets of values.
"""

from __future__ import annotations

from jitla.fusion.memo import Memo, members


class Cones:
    """What can be computed for values, with `rows` in row kernels, too; each found once."""

    def __init__(self, memo: Memo, rows: bool) -> None:
        self.memo = memo
        #: The operands that some kernel takes in at every value.
        self.take = [(loop or 0) | (row or 0) if rows else loop or 0
                     for loop, row in zip(memo.loop, memo.row, strict=True)]
        self._cones: list[int] = []
        #: What kernels for a value may compute or read.
        self.around: list[int] = []
        for i, take in enumerate(self.take):
            cone, around = 1 << i, 1 << i | memo.operands[i]
            for o in members(take):
                cone |= self._cones[o]
                around |= self.around[o]
            self._cones.append(cone)
            self.around.append(around)
        self._reach: dict[int, int] = {}
        self._below: dict[int, int] = {}
        self._grown: list[dict[int, tuple[int, int]]] = [{} for _ in self.take]

    def reach(self, values: int) -> int:
        """Return all values that kernels for `values` may compute or read."""
        found = self._reach.get(values)
        if found is None:
            found = 0
            for i in members(values):
                found |= self.around[i]
            self._reach[values] = found
        return found

    def below(self, values: int) -> int:
        """Return everything in front of `values`, themselves included."""
        found = self._below.get(values)
        if found is None:
            found = values
            for i in members(values):
                found |= self.memo.before[i]
            self._below[values] = found
        return found

    def grow(self, results: int, memory: int) -> tuple[int, int]:
        """Return what has to be computed for `results`, and the values in memory that could be."""
        body = optional = 0
        for i in members(results):
            known, there = self._grown[i], memory & self._cones[i]
            found = known.get(there)
            if found is None:
                found = known[there] = self._grow(i, there)
            body |= found[0]
            optional |= found[1]
        return body, optional & ~body

    def _grow(self, value: int, memory: int) -> tuple[int, int]:
        """Return what has to be computed for `value`; operands have smaller numbers than their readers."""
        body = left = 1 << value
        taken, absent, take = 0, ~memory, self.take
        while left:
            i = left.bit_length() - 1
            takes = take[i]
            taken |= takes
            new = takes & absent & ~body
            body |= new
            left = left ^ 1 << i | new
        return body, taken & memory & ~body
