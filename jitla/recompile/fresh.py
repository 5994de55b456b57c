"""Fresh arrays that lie as results do.

Knows: layouts, which arrays are small. Must not know: programs, kernels.
Receives what allocates memory; returns arrays, and what makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from jitla.fusion import Layout, contiguous

SMALL_COPY = 1 << 16  # bytes for which NumPy has memory at hand


def maker(
    empty: Callable[..., np.ndarray], dtype: np.dtype, place: Layout, view: bool = False
) -> Callable[[], np.ndarray]:
    """Return what makes a fresh array that lies as `place` says; a 0-d result gets one element.

    If it is a `view`, another array owns its memory.
    """
    if view:
        owner = maker(empty, dtype, place)
        return lambda: owner()[...]
    if place.shape == ():
        return partial(np.empty, 1, dtype)
    if place == contiguous(place.shape, dtype.itemsize):
        return partial(empty, place.shape, dtype)
    # of two axes with one stride, the one of length 1 lies further in
    axes = sorted(range(len(place.shape)), key=lambda i: (-place.strides[i], place.shape[i] == 1))
    return partial(empty, place.shape, dtype, tuple(axes))


def copied(empty: Callable[..., np.ndarray], array: np.ndarray) -> np.ndarray:
    """Return a copy that lies as `array` does; a large one in memory that is used again."""
    if array.nbytes <= SMALL_COPY and array.flags.c_contiguous:
        return array.copy()
    axes = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    copy = empty(array.shape, array.dtype, tuple(axes))
    copy[...] = array
    return copy
