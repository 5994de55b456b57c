"""Operations in place, one after the other, on memory that nobody else sees: they stay pending together.

Knows: who holds the memory of a proxy, where operations in place followed each other. Must not know: plans.
Receives a proxy whose memory is to be changed; returns whether it becomes a pending value instead.

What is stored is computed at once, and ends the block. Where nobody else sees the memory, a new value does as
well: ``num += a; num += b`` is one loop. Where turns of a loop are blocks that does not pay, for every one
would take new memory: it has to be seen that a second operation follows the first before a turn ends.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np

from jitla.tracing import frames
from jitla.tracing.array import Gone, LazyArray, in_memory
from jitla.tracing.narrowing import conversion
from jitla.tracing.picking import Picking
from jitla.tracing.signature import METAS
from jitla.tracing.tape import OP_ID

LEAST = 1 << 15  # elements: with fewer a kernel takes no longer than finding this out
_CAST = OP_ID["cast"]


class Together(Picking):
    """The part of a session that keeps operations in place pending."""

    __slots__ = ()

    #: By identity of memory: where it was changed in place since the last turn of a loop ended.
    updates: dict[int, tuple[int, ...]]
    foreigners: dict[int, LazyArray]

    def moves_on(self, array: LazyArray, memory: np.ndarray, ufunc: Any, other: Any) -> bool:
        """Make ``ufunc(array, other)`` the pending value of `array`, if nobody sees its memory.

        Say whether that was done.
        """
        if memory.size < LEAST or not self._follows(memory):
            return False
        if _references(memory) > _ALONE + sum([leaf is memory for leaf in self.leaves]):
            return False  # somebody else, views among them
        if not memory.flags.owndata or not memory.flags.c_contiguous or id(memory) in self.foreigners \
                or self.viewed(array):
            return False
        before = in_memory(self, memory, array._l)
        for k, entered in enumerate(self.entered):
            if entered is array:
                self.entered[k] = before
                before._n, array._n = array._n, -1
        result = self.ufuncs(ufunc, before, other)
        known = METAS[result._m]
        attrs = conversion(ufunc, known.dtype, memory.dtype)
        if type(result) is not LazyArray or result._v is not None or known.shape != memory.shape or not attrs:
            return False
        n = result._n
        self.nodes[n] = Gone(result._m)
        result._n = -1
        if known.dtype != memory.dtype:
            n = self.append((_CAST, n, attrs), Gone(array._m))
        array._v, array._n = None, n
        self.nodes[n] = array
        return True

    def _follows(self, memory: np.ndarray) -> bool:
        """Say whether the running operation is one of several, as far as was seen; take note of it."""
        place = (frames.path() or ())[:2]
        before = self.updates.get(id(memory))
        if before is not None:
            self.site.together |= {before, place}
        self.updates[id(memory)] = place
        return place in self.site.together

    def viewed(self, array: LazyArray) -> bool:
        """Say whether `array` is a pending view or has pending views."""
        raise NotImplementedError

    def ufuncs(self, ufunc: Any, x: Any, y: Any) -> Any:
        """Record or run ``ufunc(x, y)``."""
        raise NotImplementedError


def _references(memory: np.ndarray) -> int:
    return getrefcount(memory)


def _lonely() -> int:
    """Return how many references there seem to be to memory that only a proxy holds."""
    held = [np.empty(0)]

    def moves_on(memory: np.ndarray) -> int:
        return _references(memory)

    memory = held[0]
    return moves_on(memory)


_ALONE = _lonely()
