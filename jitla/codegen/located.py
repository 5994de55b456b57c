"""Where keys say that elements are, found before they are read; and what labels there are.

Knows: which keys there are loops for. Must not know: what is read there, tracing, IR.
Receives ndarrays; returns what it found, or None where NumPy has to look.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.codegen.indexed import Indexed
from jitla.codegen.indexing_code import most_of
from jitla.codegen.kinds import are_integers, is_plain
from jitla.codegen.positions_code import positions_text
from jitla.codegen.take_code import TAKE_UNIT, places_text
from jitla.hops import POSITION
from jitla.runtime import empty

__all__ = ["Located"]

MOST = 1 << 31  # elements of which each has a position


class Located(Indexed):
    """Loops that look at keys and labels, beside those that do at once what they say."""

    def positions(self, key: Any, length: int) -> np.ndarray | None:
        """Return which elements of an array of so many ``array[key]`` reads; `key` has one dimension."""
        if not is_plain(key) or key.ndim != 1 or not key.size or not 0 < length <= MOST:
            return None
        if key.dtype.kind == "b":
            return self._kept(key) if key.size == length else None
        if not are_integers(key):
            return None
        out, bad = empty(key.shape, POSITION), np.zeros(1, np.int64)
        library = self._library(("places", key.dtype), places_text, key.dtype)
        words = (length, most_of(key.dtype, length), key.size, 0)
        self._run(library, (key, key, out, bad), words, -(-key.size // TAKE_UNIT), key.size / 4)
        return None if bad[0] else out

    def _kept(self, mask: np.ndarray) -> np.ndarray:
        """Return where a mask is true."""
        starts = self._starts(mask)
        out = empty((int(starts[-1]),), POSITION)
        if out.size:
            library = self._library(("positions",), positions_text, plain=True)
            self._run(library, (mask, starts, out), (mask.size,), len(starts) - 1, mask.size / 8)
        return out

    def bounds(self, labels: Any) -> tuple[int, int] | None:
        """Return the least and the greatest of an array of integers."""
        if not are_integers(labels) or not labels.size or labels.dtype == np.uint64:
            return None
        return self._bounds(labels)
