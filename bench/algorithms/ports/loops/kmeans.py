"""Lloyd's k-means as loops for Numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(parallel=True)
def _assigned(X, squares, C, nearest):  # type: ignore[no-untyped-def]
    norms = (C ** 2).sum(axis=1)
    total = 0.0
    for i in numba.prange(len(X)):
        best, at = np.inf, 0
        for k in range(len(C)):
            dot = 0.0
            for j in range(X.shape[1]):
                dot += X[i, j] * C[k, j]
            d = squares[i] - 2 * dot + norms[k]
            if d < best:
                best, at = d, k
        nearest[i] = at
        total += best
    return total


@numba.njit(parallel=True)
def _sums(X, nearest, k):  # type: ignore[no-untyped-def]
    parts = numba.get_num_threads()
    sums, counts = np.zeros((parts, k, X.shape[1])), np.zeros((parts, k))
    step = (len(X) + parts - 1) // parts
    for part in numba.prange(parts):
        for i in range(part * step, min((part + 1) * step, len(X))):
            counts[part, nearest[i]] += 1
            for j in range(X.shape[1]):
                sums[part, nearest[i], j] += X[i, j]
    return sums.sum(axis=0), counts.sum(axis=0)


def kmeans(X: Any, starts: Any, steps: int = 20, tol: float = 1e-6) -> Any:
    """Start at each of `starts` and keep the best."""
    best, best_cost = starts[0], np.inf
    squares = (X ** 2).sum(axis=1)
    nearest = np.empty(len(X), np.int64)
    for start in starts:
        C = start.copy()
        cost = np.inf
        for _ in range(steps):
            last, cost = cost, _assigned(X, squares, C, nearest)
            sums, counts = _sums(X, nearest, len(C))
            for k in range(len(C)):
                if counts[k]:
                    C[k] = sums[k] / counts[k]
            if last - cost < tol * abs(cost):
                break
        if cost < best_cost:
            best, best_cost = C, cost
    return best, best_cost
