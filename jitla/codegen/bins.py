"""Bins of one width as NumPy makes them, and what a loop has to know of them.

Knows: NumPy's edges, how they and places between them are rounded. Must not know: IR, threads.
Receives floats, a number of bins and a range; returns edges and numbers, or None where NumPy has to look.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Binned", "binned"]

_DOUBLE = np.dtype(np.float64)


class Binned(NamedTuple):
    """Operands of the loop: `edges` as NumPy returns them, the others as `histogram_code` has them."""

    edges: np.ndarray
    ends: np.ndarray
    guards: np.ndarray
    scale: np.ndarray


def binned(x: np.ndarray, bins: int, ends: Any) -> Binned | None:
    """Return what ``np.histogram(x, bins, ends)`` counts by."""
    if ends is None:
        return _between(x.dtype, bins, x.min(), x.max(), x.dtype)
    found = _kept(x.dtype, bins, *ends)
    if found is None:
        return None
    edges = found.edges.copy()  # the caller's to change
    return found._replace(edges=edges if found.edges.flags.owndata else edges.view())


@lru_cache(16, typed=True)
def _kept(dtype: np.dtype, bins: int, least: Any, most: Any) -> Binned | None:
    """Return the bins of a range that is given, which calls in a loop have in common."""
    return _between(dtype, bins, least, most, _DOUBLE)


def _between(dtype: np.dtype, bins: int, least: Any, most: Any, ratio: np.dtype) -> Binned | None:
    found = least, most
    if not all(map(np.isfinite, found)) or not least < most:
        return None
    if max(map(abs, map(float, found))) > float(np.finfo(dtype).max) / 4:
        return None
    first, last = dtype.type(least), dtype.type(most)
    width = ratio.type(most) - ratio.type(least)
    if not first < last:
        return None
    try:
        edges = np.histogram_bin_edges(np.empty(0, dtype), bins, found)
    except ValueError:
        return None  # so many bins have no width
    if edges.dtype != dtype:
        return None
    inf = dtype.type(np.inf)
    guards = np.concatenate([edges[:-1], np.array([inf, -inf, inf], dtype)])
    guards[0] = -inf
    scale = _scale(bins, width, max(map(abs, map(float, found))), dtype)
    return Binned(edges, np.array([first, last]), guards, scale)


def _scale(bins: int, width: Any, most: float, dtype: np.dtype) -> np.ndarray:
    """Return `SCALE` for a range of this width, whose ends are at most so far from zero.

    A place in the range is off by a few roundings, an edge by some of its own.
    """
    info = np.finfo(dtype)
    near = bins * float(info.eps) * 16 * (1 + most / float(width))
    clear = near < 0.25 and float(width) / bins > float(info.tiny) / float(info.eps)
    rate, reach = (bins / float(width), 0.5 - near) if clear else (1.0, -1.0)
    return np.array([width, bins, rate, reach, -1.5, bins + 0.5], type(width))
