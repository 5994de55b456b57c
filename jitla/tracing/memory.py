"""Writing into memory: stores fused with what computes them, and the reads that must come first.

Knows: which pending values and ghosts read which memory. Must not know: how blocks are run.
Receives arrays about to be written; computes what reads them before.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from jitla.source import live_locals
from jitla.tracing import frames
from jitla.tracing.array import Lazy, LazyArray, in_memory
from jitla.tracing.closing import LISTED, Closing, Store
from jitla.tracing.enacting import address
from jitla.tracing.keeping import forget_written
from jitla.tracing.signature import LAYOUTS, layout_id
from jitla.tracing.stored import forget_known, settle_stored
from jitla.tracing.tape import LEAF

SMALL = 1 << 20  # bytes: arrays up to this size are in a cache, where a copy of them costs little
REACHES = (0, 1, 2, 4, 8)

_getrefcount = sys.getrefcount


class Memory(Closing):
    """The part of a session that writes into arrays in memory."""

    __slots__ = ()

    stored: list[Any]  # references to pending sparse matrices
    known: dict[int, Any]  # what was found of those in memory, by their identity

    def is_quiet(self) -> bool:
        """Say whether the call goes on plain and nothing is pending that reads memory."""
        return self.over and not (self.nodes or self.ghosts or self.kept or self.stored or self.known)

    def before_write(self, target: np.ndarray) -> None:
        """Compute what reads `target`'s memory, before it is written by other means than the tape."""
        if self.leaves and any(np.may_share_memory(target, leaf) for leaf in self.leaves):
            self.close()
        self.settle_ghosts(target)

    def settle_ghosts(self, target: np.ndarray | None = None, alone: bool = False) -> None:
        """Compute the ghosts that may still be read and whose recipe reads `target` (None: anything).

        `alone`: the open block stays as it is.
        """
        if self.kept:
            forget_written(self.kept, target)
        if self.stored:
            settle_stored(self, target)
        if self.known:
            forget_known(self.known, target)
        if not self.ghosts:
            return
        alive = [g for g in self.ghosts if _getrefcount(g) > LISTED and g._r is not None and g._v is None]
        self.ghosts = []
        blocks = {id(g._r[0]): g._r[0].leaves for g in alive}
        if target is not None and not any(
                np.may_share_memory(target, leaf) for leaves in blocks.values() for leaf in leaves):
            self.ghosts = alive
            return
        proven = self._proven_dead(alive)
        written = {key for key, leaves in blocks.items()
                   if target is None or any(np.may_share_memory(target, leaf) for leaf in leaves)}
        for ghost in alive:
            if id(ghost._r[0]) not in written:
                self.ghosts.append(ghost)
            elif id(ghost) in proven:
                continue  # nobody asks for it again
            elif alone:
                self.compute_alone(ghost)
            else:
                self.value(ghost)

    def _proven_dead(self, ghosts: list[Lazy]) -> set[int]:
        """Return ids of ghosts that only dead local variables refer to."""
        counts = {id(g): 0 for g in ghosts}
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
        return {id(g) for g in ghosts if _getrefcount(g) - LISTED <= counts[id(g)]}

    def store(self, target: np.ndarray, index: int, consumed: tuple[int, int]) -> None:
        """Write entry `index`, which has the shape and dtype of `target`, into `target` now."""
        if self.ghosts or self.stored or self.kept or self.known:
            self.settle_ghosts(target, alone=True)
        layout, at = layout_id(target), address(target)
        low, high = LAYOUTS[layout].low, LAYOUTS[layout].high
        slot, alike = -1, True
        aliases: list[int] = []
        apart: list[int] = []
        met = zip(self.leaves, [e[1] for e in self.ops if e[0] == LEAF], strict=True)
        for k, (leaf, its) in enumerate(met):
            far = address(leaf) - at
            if its == layout and not far:
                if (slot < 0 or leaf is target) and leaf.flags.writeable:
                    slot = k  # what is read before it is overwritten can be asked for afterwards
                continue
            other = LAYOUTS[its]
            if far + other.low < high and low < far + other.high and other.low < other.high:
                aliases.append(k)
                apart.append(abs(far))
                alike = alike and its == layout
        if slot < 0:
            slot = len(self.leaves)
            self.enter(in_memory(self, target, layout))
        reach = _reach(target, max(apart)) if aliases and alike and target.nbytes > SMALL else -1
        self.close(store=Store(index, slot, tuple(aliases), reach), consumed=consumed)


def _reach(target: np.ndarray, apart: int) -> int:
    """Return how many steps of its longest stride `target` begins away from others that lie alike, or -1.

    The farthest is `apart` bytes away. The number is rounded up, so that few plans are made.
    """
    spans = [(s, n) for s, n in zip(target.strides, target.shape, strict=True) if n > 1]
    longest = max(spans)[0]
    if min(spans)[0] <= 0:
        return -1
    slab = sum(s * (n - 1) for s, n in spans if s != longest) + target.itemsize
    least = -(-(apart + slab) // longest) - 1
    return next((r for r in REACHES if r >= least), -1)


def lazy_array(session: Memory, array: np.ndarray) -> LazyArray:
    """Return a proxy of `array`, which is known to be traceable."""
    return in_memory(session, array, layout_id(array))
