"""Where two sparse matrices have entries together, and which entry of each is there.

Knows: how SciPy merges compressed lines. Must not know: entries, the tape.
Receives patterns; returns what is there in both together, remembered as long as the index arrays are the
same: what is compared is what is in them.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from jitla.tracing.pattern import Pattern

MOST = 1 << 28  # bytes of what is remembered
MOST_MET = 64  # pairs of patterns that were met once
SAMPLE = 128  # places that tell patterns apart before all are compared
_LOW = (1 << 32) - 1


class Union:
    """Compressed lines with the positions of two patterns, and for both which entry is at each of them.

    An `at` is None if every position has an entry. Else it is the numbers of the entries, any where
    there is none, and a mask of where there is one.
    """

    __slots__ = ("given", "starts", "places", "at", "nbytes")

    def __init__(self, a: Pattern, b: Pattern) -> None:
        merged = _numbered(a, 0) + _numbered(b, 32)
        self.starts, self.places = merged.indptr, merged.indices
        self.at = _found(merged.data & _LOW), _found(merged.data >> 32)
        self.given = tuple(x.copy() for x in (a.starts, a.places, b.starts, b.places))
        parts = [self.starts, self.places, *self.given, *(x for at in self.at if at for x in at)]
        self.nbytes = sum(x.nbytes for x in parts)

    def is_of(self, a: Pattern, b: Pattern) -> bool:
        """Tell whether it is that of two patterns that have no duplicates and are in order."""
        asked = a.starts, a.places, b.starts, b.places
        return all(x.shape == y.shape for x, y in zip(asked, self.given, strict=True)) and all(
            np.array_equal(x, y) for x, y in zip(asked, self.given, strict=True))


def _numbered(x: Pattern, shift: int) -> Any:
    """Return compressed rows whose entries say, from bit `shift` on, which they are, counted from 1."""
    numbers = np.arange(1, len(x.places) + 1, dtype=np.int64) << shift
    shape = len(x.starts) - 1, x.shape[1 - x.axis]
    return sys.modules["scipy.sparse"].csr_array((numbers, x.places, x.starts), shape=shape)


def _found(counted: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    here = counted != 0
    if here.all():
        return None
    return np.maximum(counted - 1, 0).astype(np.int32), here


class Unions:
    """The unions that one function met; to find one takes SciPy longer than to merge the entries once.

    So it is looked for when two patterns seem to be there for the second time.
    """

    def __init__(self) -> None:
        self._known: list[Union] = []
        self._met: set[tuple] = set()

    def of(self, a: Pattern, b: Pattern) -> Union | None:
        """Return the union of two patterns; None if they are out of order, or not met before."""
        for each in self._known:
            if each.is_of(a, b):
                return each
        seen = (*_sample(a), *_sample(b))
        if seen not in self._met:
            if len(self._met) >= MOST_MET:
                self._met.clear()
            self._met.add(seen)
            return None
        if not a.canonical or not b.canonical or max(len(a.places), len(b.places)) >= _LOW >> 2:
            return None
        made = Union(a, b)
        known = list(self._known)
        while known and sum(each.nbytes for each in known) + made.nbytes > MOST:
            known.pop(0)
        self._known = [*known, made]
        return made


def _sample(x: Pattern) -> tuple[int, int, bytes]:
    step = max(1, len(x.places) // SAMPLE)
    return len(x.starts), len(x.places), x.places[::step].tobytes()
