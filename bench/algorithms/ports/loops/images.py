"""Pipelines over images as loops for Numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(parallel=True)
def blur(image: Any) -> Any:
    """A box of 3 x 3, columns first, both in one pass."""
    n, m = image.shape
    out = np.empty((n - 2, m - 2), image.dtype)
    sums = np.zeros(n - 2)
    for i in numba.prange(n - 2):
        for j in range(m - 2):
            total = image.dtype.type(0)
            for a in range(3):
                total += (image[i + a, j] + image[i + a, j + 1] + image[i + a, j + 2]) / 3
            out[i, j] = total / 3
            sums[i] += out[i, j]
    return out, sums.sum() / out.size


@numba.njit(parallel=True)
def harris(image: Any, k: float = 0.04) -> Any:
    """Corners; gradients of three rows are kept, so that none is computed twice."""
    n, m = image.shape
    out = np.empty((n - 4, m - 4), image.dtype)
    sums = np.zeros(n - 4)
    for i in numba.prange(n - 4):
        xx, yy, xy = np.zeros(m - 2), np.zeros(m - 2), np.zeros(m - 2)
        for a in range(3):
            r = i + a
            for j in range(m - 2):
                gx = (image[r, j + 2] - image[r, j] + 2 * (image[r + 1, j + 2] - image[r + 1, j])
                      + image[r + 2, j + 2] - image[r + 2, j]) / 12
                gy = (image[r + 2, j] - image[r, j] + 2 * (image[r + 2, j + 1] - image[r, j + 1])
                      + image[r + 2, j + 2] - image[r, j + 2]) / 12
                xx[j] += gx * gx
                yy[j] += gy * gy
                xy[j] += gx * gy
        for j in range(m - 4):
            sxx = xx[j] + xx[j + 1] + xx[j + 2]
            syy = yy[j] + yy[j + 1] + yy[j + 2]
            sxy = xy[j] + xy[j + 1] + xy[j + 2]
            out[i, j] = sxx * syy - sxy * sxy - k * (sxx + syy) ** 2
            sums[i] += abs(out[i, j])
    return out, sums.sum() / out.size
