"""How the values of row kernels read their operands.

Knows: the memo table. Must not know: prices, candidates, plans. Receives a memo table; returns sets of
values as bits.
"""

from __future__ import annotations

from jitla.fusion.memo import Memo, members


class Links:
    """How row kernels read the operands of every value: row by row along axis 0 or axis 1, or as a whole.

    `along[o]` are the values that read operand o along axis 0; `across[i]` and `whole[i]` the operands
    that value i reads otherwise, `others` the values that have such. `borders` have operands that no row
    kernel takes in.
    """

    def __init__(self, memo: Memo) -> None:
        self.along = [0] * len(memo.values)
        self.across: dict[int, int] = {}
        self.whole: dict[int, int] = {}
        self.borders = self.others = 0
        for i, row in enumerate(memo.row):
            if row is None:
                continue
            along, across = memo.links(i)
            whole = memo.operands[i] & memo.arrays & ~(along | across)
            for o in members(along):
                self.along[o] |= 1 << i
            if across | whole:
                self.across[i], self.whole[i] = across, whole
                self.others |= 1 << i
            if memo.operands[i] & memo.computed & ~row:
                self.borders |= 1 << i
