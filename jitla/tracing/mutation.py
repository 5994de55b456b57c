"""Dependences of pending values on memory, and stores of computed values into arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from jitla.instrument import live_locals
from jitla.tracing import frames
from jitla.tracing.force import COMPREHENSION_REFS, BlockCloser, LeafWrite
from jitla.tracing.hoisting import invalidate_hoisted
from jitla.tracing.lazy import Lazy, proxy_in_memory
from jitla.tracing.open_tape import Tape
from jitla.tracing.sparse.lazy_sparse import invalidate_memos, materialize_pending
from jitla.tracing.tape import LAYOUTS, LEAF, data_address, layout_id

MAX_CACHED_BYTES = 1 << 20  # bytes: copies of arrays up to this size stay in a cache, and cost little
REACH_STEPS = (0, 1, 2, 4, 8)  # rounded values of `_reach`

_getrefcount = sys.getrefcount


class MemoryDependences:
    """What depends on the memory of arrays: computes or drops it before the memory is written.

    These are the open block, rematerialisable values, pending sparse matrices, hoisted values,
    and facts about arrays.
    """

    __slots__ = ("session", "tape", "closer", "pending_matrices", "hoisted", "facts")

    def __init__(self, session: Any, tape: Tape, closer: BlockCloser) -> None:
        self.session = session
        self.tape = tape
        self.closer = closer
        self.pending_matrices: list[Any] = []  # references to pending sparse matrices
        self.hoisted: dict[Any, Any] = {}  # values hoisted out of blocks, and the last inputs of blocks
        self.facts: dict[int, Any] = {}  # facts about arrays in memory, by their identity

    def has_no_dependents(self) -> bool:
        """Return whether no pending value reads memory."""
        closer = self.closer
        return not (
            self.tape.nodes or closer.rematerialisable or self.hoisted or self.pending_matrices or self.facts)

    def before_write(self, target: np.ndarray) -> None:
        """Compute the pending values that depend on `target`, before it is written outside the tape."""
        tape = self.tape
        if any(np.may_share_memory(target, key) for key, _ in tape.positions.values()):
            self.closer.close()
        if tape.leaves and any(np.may_share_memory(target, leaf) for leaf in tape.leaves):
            self.closer.close()
        self.compute_readers(target)

    def compute_readers(self, target: np.ndarray | None = None, separately: bool = False) -> None:
        """Compute the live rematerialisable values whose recipes read `target` (None: any memory).

        `separately`: without ending the open block.
        """
        if self.hoisted:
            invalidate_hoisted(self.hoisted, target)
        if self.pending_matrices:
            materialize_pending(self.session, target)
        if self.facts:
            invalidate_memos(self.facts, target)
        closer = self.closer
        if not closer.rematerialisable:
            return
        alive = [g for g in closer.rematerialisable
                 if _getrefcount(g) > COMPREHENSION_REFS and g._r is not None and g._v is None]
        closer.rematerialisable = []
        blocks = {id(g._r[0]): g._r[0].leaves for g in alive}
        if target is not None and not any(
                np.may_share_memory(target, leaf) for leaves in blocks.values() for leaf in leaves):
            closer.rematerialisable = alive
            return
        dead = self._dead_by_liveness(alive)
        written = {key for key, leaves in blocks.items()
                   if target is None or any(np.may_share_memory(target, leaf) for leaf in leaves)}
        for pending_value in alive:
            if id(pending_value._r[0]) not in written:
                closer.rematerialisable.append(pending_value)
            elif id(pending_value) in dead:
                continue  # it is dead
            elif separately:
                closer.compute_separately(pending_value)
            else:
                closer.value(pending_value)

    def _dead_by_liveness(self, rematerialisable: list[Lazy]) -> set[int]:
        """Return the ids of the rematerialisable values that only dead local variables refer to."""
        counts = {id(g): 0 for g in rematerialisable}
        for frame in frames.user_frames():
            live = live_locals(frame.f_code, frame.f_lasti)
            if live is None:
                continue
            names = frame.f_locals
            for name in [n for n, v in names.items() if id(v) in counts]:
                if name not in live:
                    counts[id(names[name])] += 1
            if type(names) is dict:
                names.clear()  # before Python 3.13 a copy that the frame keeps
        return {id(g) for g in rematerialisable if _getrefcount(g) - COMPREHENSION_REFS <= counts[id(g)]}

    def store(self, target: np.ndarray, index: int, consumed: tuple[int, int]) -> None:
        """End the block with a store of entry `index` into `target`, which has its shape and dtype."""
        tape, closer = self.tape, self.closer
        if closer.rematerialisable or self.pending_matrices or self.hoisted or self.facts:
            self.compute_readers(target, separately=True)
        layout, at = layout_id(target), data_address(target)
        low, high = LAYOUTS[layout].low, LAYOUTS[layout].high
        slot, has_equal_layouts = -1, True
        aliases: list[int] = []
        offsets: list[int] = []
        leaf_layouts = zip(tape.leaves, [e[1] for e in tape.ops if e[0] == LEAF], strict=True)
        for k, (leaf, leaf_layout) in enumerate(leaf_layouts):
            offset = data_address(leaf) - at
            if leaf_layout == layout and not offset:
                if (slot < 0 or leaf is target) and leaf.flags.writeable:
                    slot = k  # reading and writing through one leaf keeps its old elements available
                continue
            other = LAYOUTS[leaf_layout]
            if offset + other.low < high and low < offset + other.high and other.low < other.high:
                aliases.append(k)
                offsets.append(abs(offset))
                has_equal_layouts = has_equal_layouts and leaf_layout == layout
        if slot < 0:
            slot = len(tape.leaves)
            tape.enter(proxy_in_memory(self.session, target, layout))
        reach = _reach(target, max(offsets)) \
            if aliases and has_equal_layouts and target.nbytes > MAX_CACHED_BYTES else -1
        closer.close(store=LeafWrite(index, slot, tuple(aliases), reach), consumed=consumed)


def _reach(target: np.ndarray, offset: int) -> int:
    """Return the distance of `target` from aliases of equal strides, in units of its longest stride, or -1.

    `offset` is the greatest distance in bytes. The result is rounded up to one of `REACH_STEPS`, so that
    there are few plans.
    """
    spans = [(s, n) for s, n in zip(target.strides, target.shape, strict=True) if n > 1]
    longest = max(spans)[0]
    if min(spans)[0] <= 0:
        return -1
    slab = sum(s * (n - 1) for s, n in spans if s != longest) + target.itemsize
    steps = -(-(offset + slab) // longest) - 1
    return next((r for r in REACH_STEPS if r >= steps), -1)
