"""Kernels run one after the other on a block of rows that stays in the cache, as words.

Knows: argument blocks of kernels, where the rows of an operand lie. Must not know: what kernels compute.
Receives the argument blocks of stages; returns one argument block whose entry runs them all.

A unit is a fixed number of blocks of rows, so that what is added up over rows does not depend on the
threads: every unit has partial results of its own, which are combined in order. The code is the same
for all; only the words differ.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from jitla.codegen.layout import HEADER
from jitla.codegen.rows_code import COMBINE, OWN, PLACE, PLACES
from jitla.errors import BackendError
from jitla.fusion import BEFORE, Combine, Cut, Stage

__all__ = ["pack_rows"]

MAX_WORDS = 8192  # of all stages' blocks, which are copied to the stack

def pack_rows(
    entry: int, finish: int, kinds: Sequence[int], stages: Sequence[Stage],
    combines: Sequence[Combine], cut: Cut, grain: int, flags: int,
) -> bytes:
    """Return the argument block, everything filled in but the operands; `kinds` are the operands'."""
    n = len(kinds)
    base = HEADER + 2 * n
    busy_at = base + OWN
    stages_at = busy_at + cut.slots
    combines_at = stages_at + sum(PLACES + PLACE * len(s.places) for s in stages)
    blobs_at = combines_at + COMBINE * len(combines)
    table: list[int] = []
    blobs = b""
    for stage in stages:
        if not stage.whole:  # of a kernel that failed and that NumPy runs
            raise BackendError("a stage of rows has no machine code")
        at: list[int] = []
        for blob in (stage.whole, stage.last, stage.first):
            at.append(blobs_at + len(blobs) // 8 if blob else at[0])
            blobs += blob
        table += [*at, len(stage.places), stage.once, _words(stage)]
        table += [w for p in stage.places for w in p]
    for combine in combines:
        table += [blobs_at + len(blobs) // 8, combine.operand, combine.offset, combine.size,
                  combine.mirrored, combine.itemsize]
        blobs += combine.block
    copied = max(sum(map(_words, stages)), *(len(c.block) // 8 for c in combines), 0)
    if copied > MAX_WORDS:
        raise BackendError(f"the stages of rows have blocks of {8 * copied} bytes")
    free = next((i for i, s in enumerate(stages) if s.first), len(stages))
    before = sum(s.once == BEFORE for s in stages)
    own = [cut.blocks, cut.per_unit, cut.slots, cut.room, cut.part, busy_at, len(stages), stages_at,
           len(combines), combines_at, cut.spare, copied, free, before, 0, 0, *cut.shares]
    scratch = (cut.units - 1) * cut.part + cut.slots * cut.room + cut.shared
    words = [*([0] * n), *kinds, *own, *([0] * cut.slots), *table]
    size = HEADER + len(words) + len(blobs) // 8
    head = [entry, size, cut.units, grain, finish if combines else 0, scratch, 0, n | flags]
    return struct.pack(f"<{HEADER + len(words)}q", *head, *words) + blobs


def _words(stage: Stage) -> int:
    """Words that hold either of a stage's blocks, in whole cache lines."""
    words = max(map(len, (stage.whole, stage.last, stage.first))) // 8
    return words + -words % 8
