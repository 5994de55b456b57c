"""Which arrays there are loops for where indices, masks or labels say.

Knows: dtypes, layouts. Must not know: the loops.
Receives anything; returns yes or no.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["EXACT", "FLOATS", "are_integers", "are_weights", "is_forward", "is_mask", "is_plain"]

EXACT = float(1 << 53)  # integers below are doubles
FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


def is_plain(x: Any) -> bool:
    """Tell whether it is an array in one run, of elements that are nothing but their bytes."""
    return type(x) is np.ndarray and x.ndim > 0 and x.dtype.kind in "biufcmM" and x.dtype.isnative \
        and x.flags.c_contiguous and x.flags.aligned


def is_forward(x: Any) -> bool:
    """Tell whether it is an array of one dimension that lies forward in memory, in one run or not."""
    return type(x) is np.ndarray and x.ndim == 1 and (is_plain(x) or x.strides[0] > 0 and is_plain(x[:1]))


def are_integers(x: Any) -> bool:
    """Tell whether it is such an array of integers."""
    return is_plain(x) and x.dtype.kind in "iu"


def is_mask(x: Any) -> bool:
    """Tell whether it is such an array of bools."""
    return is_plain(x) and x.dtype.kind == "b"


def are_weights(x: Any) -> bool:
    """Tell whether sums of them are known: of integers they must be exact in any order, as doubles are."""
    if not is_plain(x):
        return False
    exact = x.dtype.kind in "biu" and x.dtype.itemsize <= 4
    return x.dtype in FLOATS or exact and x.size * 2.0 ** (8 * x.dtype.itemsize) < EXACT
