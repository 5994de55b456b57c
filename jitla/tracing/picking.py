"""Elements that masks and indices name, as entries of the tape: read where they are used.

Knows: for which arrays and keys there are positions, how long they hold. Must not know: loops.
Receives arrays and keys in memory; returns proxies, or None where NumPy has to read now.

How many elements a mask keeps is known when its positions are, so what is read has a shape before it is
read. Positions are made once for each key: they hold as long as the block in which they are is open and
nobody writes into the key.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.tracing.array import LazyArray, pending
from jitla.tracing.memory import Memory, lazy_array
from jitla.tracing.signature import METAS, TRACED, meta_id
from jitla.tracing.tape import OP_ID

_TAKE = OP_ID["take"]
SPARSE = 32  # of so many elements a shorter mask keeps less than one, or all: NumPy is as fast
LEAST_LATER = 1 << 18  # elements of a key; for fewer, a look at all of them before costs more than it saves
FEW = 1 << 13  # elements that NumPy reads as fast


class Picking(Memory):
    """The part of a session that reads elements at positions."""

    __slots__ = ()

    #: By identity of keys and how many elements they read from: the key, and a proxy of positions.
    positions: dict[tuple[int, int], tuple[np.ndarray, LazyArray]]
    #: By identity of arrays that are read there: a proxy that stands for nothing else on the tape.
    tables: dict[int, LazyArray]
    #: By identity of arrays of labels that are on the tape: the least and the greatest.
    extremes: dict[int, tuple[int, int]]

    def wrap(self, value: Any) -> Any:
        """Return a proxy for an ndarray that NumPy just made; anything else unchanged."""
        raise NotImplementedError

    def pick(self, table: Any, key: np.ndarray) -> Any:
        """Return ``table[key]`` as an entry of the tape; None if it is to be read now."""
        if key.ndim != 1 or type(table) is not np.ndarray:
            return None
        if key.size < LEAST_LATER:
            if key.dtype != bool or key.shape != table.shape or table.dtype not in TRACED:
                return None
            kept = np.count_nonzero(key)
            return self.wrap(table[key]) if kept < key.size // SPARSE or kept == key.size else None
        if table.ndim != 1 or table.dtype not in TRACED or not table.flags.c_contiguous:
            return None
        places = self._positions(key, len(table))
        if type(places) is not LazyArray:
            return None if places is None else self.wrap(table[places])
        source = self.tables.get(id(table))
        if source is None:
            source = self.tables[id(table)] = lazy_array(self, table)
        operands = [p._n if p._n >= 0 else self.enter(p) for p in (source, places)]
        return pending(self, (_TAKE, *operands), meta_id(METAS[places._m].shape, table.dtype))

    def source(self, array: LazyArray) -> np.ndarray | None:
        """Return the memory that the elements of `array` are in, among others; None if they are computed."""
        if array._v is None and array._n >= 0:
            entry = self.ops[array._n]
            return next((t._v for t in self.tables.values() if entry[0] == _TAKE and t._n == entry[1]), None)
        memory: np.ndarray | None = array._v
        return memory

    def lent(self, array: LazyArray) -> bool:
        """Say whether `array` is pending, and NumPy's would be a view of memory that nobody else sees."""
        entry = self.ops[array._n] if array._n >= 0 else ()
        return len(entry) > 3 and entry[0] == _TAKE

    def _positions(self, key: np.ndarray, length: int) -> Any:
        """Return which elements of an array of so many `key` reads; few are no entry of the tape."""
        known = self.positions.get((id(key), length))
        if known is not None:
            return known[1]
        made = self.site.at_once("positions", key.size, key, length)
        if made is None or made.size < FEW:
            return made
        found = lazy_array(self, made)
        self.positions[id(key), length] = key, found
        return found

    def before_write(self, target: np.ndarray) -> None:
        """Forget the positions of keys that are about to be written, too."""
        if any(np.may_share_memory(target, key) for key, _ in self.positions.values()):
            self.close()
        super().before_write(target)
