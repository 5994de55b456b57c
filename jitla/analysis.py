"""Matrices looked at for zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from jitla.errors import TraceError
from jitla.tracing import Sparsified, pays

_BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}
SMALL = 1 << 16  # elements: a product with fewer takes as long as deciding how to do it
NARROW = 1 << 31  # elements that indices of four bytes can number


def analysed(x: Any) -> Any:
    """Return what stands for a copy of `x` if a product with a vector is faster without its zeros."""
    if type(x) is Sparsified:
        return x
    if not isinstance(x, np.ndarray):
        raise TraceError(f"sparsify needs an ndarray, not {type(x).__name__}")
    if type(x) is not np.ndarray or x.ndim != 2 or x.dtype not in _BITS or x.size < SMALL:
        return x
    if x.flags.f_contiguous:
        found = analysed_rows(x.T)
        return x if found is None else found.T
    found = analysed_rows(x)
    return x if found is None else found


def analysed_rows(x: np.ndarray) -> Sparsified | None:
    """Return what stands for a copy of `x`, None if too much is other than 0.0 or not finite."""
    bits = x.view(_BITS[x.dtype])  # -0.0 is stored
    if not pays(x.size, int(np.count_nonzero(bits)), 1, loops=True):
        return None
    at = np.nonzero(bits)
    data = x[at]
    if not np.isfinite(data).all():
        return None
    if x.size < NARROW:  # such indices are read faster
        at = tuple(each.astype(np.int32) for each in at)
    rows = sparse.csr_array((data, at), shape=x.shape)
    copy = np.zeros(x.shape, x.dtype)  # pages without elements take no memory
    copy[at] = data
    copy.flags.writeable = False
    return Sparsified(rows, copy.view())  # a view of read-only memory stays read-only
