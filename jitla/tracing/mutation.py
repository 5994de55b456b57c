"""Writes into arrays: stores of computed values, dependences on memory, deferred in-place operations."""

from __future__ import annotations

import sys
from sys import getrefcount
from typing import Any

import numpy as np

from jitla.instrument import live_locals
from jitla.tracing import frames
from jitla.tracing.force import COMPREHENSION_REFS, BlockCloser, LeafWrite
from jitla.tracing.hoisting import invalidate_hoisted
from jitla.tracing.lazy import Lazy, LazyArray, Placeholder, append_entry, proxy_in_memory
from jitla.tracing.sparse.lazy_sparse import invalidate_memos, materialize_pending
from jitla.tracing.tape import (
    LAYOUTS,
    LEAF,
    METAS,
    OP_ID,
    TRACED,
    data_address,
    layout_id,
    meta_id,
    store_cast,
)

MAX_CACHED_BYTES = 1 << 20  # bytes: copies of arrays up to this size stay in a cache, and cost little
REACH_STEPS = (0, 1, 2, 4, 8)  # rounded values of `_reach`

_getrefcount = sys.getrefcount


class MemoryWriter(BlockCloser):
    """Base of sessions that writes into arrays; computes pending values that read the memory before."""

    __slots__ = ()

    stored: list[Any]  # references to pending sparse matrices
    memory_facts: dict[int, Any]  # facts about arrays in memory, by their identity

    def has_no_dependents(self) -> bool:
        """Return whether the call continues untraced and no pending value reads memory."""
        return self.ended and not (
            self.nodes or self.rematerialisable or self.hoisted or self.stored or self.memory_facts)

    def before_write(self, target: np.ndarray) -> None:
        """Compute the pending values that read memory of `target`, before it is written outside the tape."""
        if self.leaves and any(np.may_share_memory(target, leaf) for leaf in self.leaves):
            self.close()
        self.compute_readers(target)

    def compute_readers(self, target: np.ndarray | None = None, separately: bool = False) -> None:
        """Compute the live rematerialisable values whose recipes read `target` (None: any memory).

        `separately`: without ending the open block.
        """
        if self.hoisted:
            invalidate_hoisted(self.hoisted, target)
        if self.stored:
            materialize_pending(self, target)
        if self.memory_facts:
            invalidate_memos(self.memory_facts, target)
        if not self.rematerialisable:
            return
        alive = [g for g in self.rematerialisable
                 if _getrefcount(g) > COMPREHENSION_REFS and g._r is not None and g._v is None]
        self.rematerialisable = []
        blocks = {id(g._r[0]): g._r[0].leaves for g in alive}
        if target is not None and not any(
                np.may_share_memory(target, leaf) for leaves in blocks.values() for leaf in leaves):
            self.rematerialisable = alive
            return
        dead = self._dead_by_liveness(alive)
        written = {key for key, leaves in blocks.items()
                   if target is None or any(np.may_share_memory(target, leaf) for leaf in leaves)}
        for pending_value in alive:
            if id(pending_value._r[0]) not in written:
                self.rematerialisable.append(pending_value)
            elif id(pending_value) in dead:
                continue  # it is dead
            elif separately:
                self.compute_separately(pending_value)
            else:
                self.value(pending_value)

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
        if self.rematerialisable or self.stored or self.hoisted or self.memory_facts:
            self.compute_readers(target, separately=True)
        layout, at = layout_id(target), data_address(target)
        low, high = LAYOUTS[layout].low, LAYOUTS[layout].high
        slot, has_equal_layouts = -1, True
        aliases: list[int] = []
        offsets: list[int] = []
        leaf_layouts = zip(self.leaves, [e[1] for e in self.ops if e[0] == LEAF], strict=True)
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
            slot = len(self.leaves)
            self.enter(proxy_in_memory(self, target, layout))
        reach = _reach(target, max(offsets)) \
            if aliases and has_equal_layouts and target.nbytes > MAX_CACHED_BYTES else -1
        self.close(store=LeafWrite(index, slot, tuple(aliases), reach), consumed=consumed)


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


def lazy_array(session: MemoryWriter, array: np.ndarray) -> LazyArray:
    """Return a proxy of `array`, which has to be traceable."""
    return proxy_in_memory(session, array, layout_id(array))


_TAKE = OP_ID["take"]
# For short masks that select fewer than 1 in `SPARSE_MASK_RATIO` elements, or all, NumPy is as fast.
SPARSE_MASK_RATIO = 32


class PositionReader(MemoryWriter):
    """Base of sessions that records reads by masks and integer arrays as reads at positions."""

    __slots__ = ()

    #: By identity of a key and length of the array it reads: the key, and a proxy of positions.
    positions: dict[tuple[int, int], tuple[np.ndarray, LazyArray]]
    #: By identity of an array that is read at positions: a separate proxy for these reads.
    tables: dict[int, LazyArray]
    #: By identity of an array of labels on the tape: its minimum and maximum.
    extremes: dict[int, tuple[int, int]]

    def wrap(self, value: Any) -> Any:
        """Return a proxy for a new ndarray of NumPy, other values unchanged."""
        raise NotImplementedError

    def read_at(self, table: Any, key: np.ndarray) -> Any:
        """Record ``table[key]``; None if NumPy has to read it now."""
        if key.ndim != 1 or type(table) is not np.ndarray:
            return None
        if key.size < self.site.thresholds.min_deferred_key_elements:
            if key.dtype != bool or key.shape != table.shape or table.dtype not in TRACED:
                return None
            selected = np.count_nonzero(key)
            return self.wrap(table[key]) \
                if selected < key.size // SPARSE_MASK_RATIO or selected == key.size else None
        if table.ndim != 1 or table.dtype not in TRACED or not table.flags.c_contiguous:
            return None
        positions = self._positions(key, len(table))
        if type(positions) is not LazyArray:
            return None if positions is None else self.wrap(table[positions])
        source = self.tables.get(id(table))
        if source is None:
            source = self.tables[id(table)] = lazy_array(self, table)
        operands = [p._n if p._n >= 0 else self.enter(p) for p in (source, positions)]
        return append_entry(self, (_TAKE, *operands), meta_id(METAS[positions._m].shape, table.dtype))

    def source(self, array: LazyArray) -> np.ndarray | None:
        """Return the array in memory whose elements `array` has; None if they are computed."""
        if array._v is None and array._n >= 0:
            entry = self.ops[array._n]
            return next((t._v for t in self.tables.values() if entry[0] == _TAKE and t._n == entry[1]), None)
        memory: np.ndarray | None = array._v
        return memory

    def is_pending_gather_view(self, array: LazyArray) -> bool:
        """Return whether `array` is a pending gather whose NumPy result would be a view of other memory."""
        entry = self.ops[array._n] if array._n >= 0 else ()
        return len(entry) > 3 and entry[0] == _TAKE

    def _positions(self, key: np.ndarray, length: int) -> Any:
        """Return the positions that `key` selects from an array of `length`: a proxy, if few an ndarray."""
        cached = self.positions.get((id(key), length))
        if cached is not None:
            return cached[1]
        selected = self.site.run_index_loop("positions", key.size, key, length)
        if selected is None or selected.size < self.site.thresholds.min_positions:
            return selected
        proxy = lazy_array(self, selected)
        self.positions[id(key), length] = key, proxy
        return proxy

    def before_write(self, target: np.ndarray) -> None:
        """Compute the pending values that depend on `target`, also through keys of reads."""
        if any(np.may_share_memory(target, key) for key, _ in self.positions.values()):
            self.close()
        super().before_write(target)


_CAST = OP_ID["cast"]


class UpdateDeferrer(PositionReader):
    """Base of sessions that defers in-place operations, so that a sequence of them is one kernel."""

    __slots__ = ()

    #: By identity of memory: the position of its last in-place operation in this loop iteration.
    updates: dict[int, tuple[int, ...]]
    foreigners: dict[int, LazyArray]

    def defer_update(self, array: LazyArray, memory: np.ndarray, ufunc: Any, other: Any) -> bool:
        """Make ``ufunc(array, other)`` the pending value of `array` if its memory has no other references.

        Return whether that was done.
        """
        if memory.size < self.site.thresholds.min_update_elements or not self._is_repeated_update(memory):
            return False
        if _references(memory) > _SOLE_REFERENCES + sum([leaf is memory for leaf in self.leaves]):
            return False  # other references, such as views
        if not memory.flags.owndata or not memory.flags.c_contiguous or id(memory) in self.foreigners \
                or self.has_pending_views(array):
            return False
        before = proxy_in_memory(self, memory, array._l)
        for k, entered in enumerate(self.entered):
            if entered is array:
                self.entered[k] = before
                before._n, array._n = array._n, -1
        result = self.call_ufunc(ufunc, before, other)
        meta = METAS[result._m]
        attrs = store_cast(ufunc, meta.dtype, memory.dtype)
        if type(result) is not LazyArray or result._v is not None or meta.shape != memory.shape or not attrs:
            return False
        n = result._n
        self.nodes[n] = Placeholder(result._m)
        result._n = -1
        if meta.dtype != memory.dtype:
            n = self.append((_CAST, n, attrs), Placeholder(array._m))
        array._v, array._n = None, n
        self.nodes[n] = array
        return True

    def _is_repeated_update(self, memory: np.ndarray) -> bool:
        """Record the running operation; return whether it is known to be one of several on its array."""
        place = (frames.path() or ())[:2]
        before = self.updates.get(id(memory))
        if before is not None:
            self.site.fused_updates |= {before, place}
        self.updates[id(memory)] = place
        return place in self.site.fused_updates

    def has_pending_views(self, array: LazyArray) -> bool:
        """Return whether `array` is a pending view or has pending views."""
        raise NotImplementedError

    def call_ufunc(self, ufunc: Any, x: Any, y: Any) -> Any:
        """Record or run ``ufunc(x, y)``."""
        raise NotImplementedError


def _references(memory: np.ndarray) -> int:
    return getrefcount(memory)


def _sole_references() -> int:
    """Measure the reference count, as `defer_update` sees it, of memory that only a proxy refers to."""
    arrays = [np.empty(0)]

    def defer_update(memory: np.ndarray) -> int:
        return _references(memory)

    memory = arrays[0]
    return defer_update(memory)


_SOLE_REFERENCES = _sole_references()
