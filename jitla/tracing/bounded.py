"""Between which integers the elements of an index lie: looked up once, known until its memory is written.

Knows: the tape's sums of an index and a number. Must not know: what an index is for.
Receives a session and the proxy of an index; returns the least and the greatest element, or None.

With that, neighbours of one place, ``table[i, k]`` and ``table[i, k + 1]``, cost one look, and end no block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.tracing.array import LazyArray
from jitla.tracing.signature import METAS
from jitla.tracing.tape import OP_ID, scalars_of

Session = Any  # the session that the arrays belong to
_SIGNS = {OP_ID["add"]: 1, OP_ID["subtract"]: -1}


class Bounds(NamedTuple):
    """The least and the greatest element of an array in memory, as long as it is not written."""

    array: Callable[[], Any]  # a reference: what is known keeps nothing alive
    least: int
    greatest: int

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The memory that this is about."""
        array = self.array()
        return () if array is None else (array,)


def bounds_of(session: Session, index: LazyArray) -> tuple[int, int] | None:
    """Return between which integers `index` lies, if it is in memory, or so much more than what is."""
    found = shifted(session, index)
    if found is None:
        return None
    memory, plus = found
    if not memory.flags.c_contiguous or not memory.size:
        return None
    known = session.known.get(id(memory))
    if type(known) is not Bounds or known.array() is not memory:
        known = _looked_up(session, memory)
    least, greatest = known.least + plus, known.greatest + plus
    limits = np.iinfo(METAS[index._m].dtype)
    return (least, greatest) if limits.min <= least and greatest <= limits.max else None


def few_of(session: Session, index: LazyArray) -> np.ndarray:
    """Return the elements of an index of few, without an end of the block where that is possible."""
    found = shifted(session, index) if index._v is None else None
    if found is None:
        memory: np.ndarray = session.value(index)
        return memory
    made = found[0].astype(METAS[index._m].dtype)
    if found[1]:
        with np.errstate(all="ignore"):
            made += np.array(found[1]).astype(made.dtype)  # it wraps where a sum of integers does
    return made


def _looked_up(session: Session, memory: np.ndarray) -> Bounds:
    """Look at all elements."""
    found = session.site.at_once("bounds", memory.size, memory.reshape(-1))
    least, greatest = (int(memory.min()), int(memory.max())) if found is None else found
    key, remembered = id(memory), session.known
    made = Bounds(ref(memory, lambda _: remembered.pop(key, None)), least, greatest)
    remembered[key] = made
    return made


def shifted(session: Session, index: LazyArray) -> tuple[np.ndarray, int] | None:
    """Return an array in memory and what is added to it, which is `index`; None if it is no such sum."""
    if index._v is not None:
        return index._v, 0
    if index._n < 0:
        return None
    entry = session.ops[index._n]
    sign = _SIGNS.get(entry[0])
    if sign is None or len(entry) != 3:
        return None
    a, b = entry[1:]
    if a < 0 <= b and sign > 0:
        a, b = b, a
    if a < 0 or b >= 0:
        return None
    base = next((p for p in reversed(session.entered) if p._n == a), None)
    plus = session.scalars[len(session.scalars) - scalars_of(session.ops[index._n:])]
    if type(base) is not LazyArray or type(plus) is not int or METAS[base._m].shape != METAS[index._m].shape:
        return None
    return base._v, sign * plus
