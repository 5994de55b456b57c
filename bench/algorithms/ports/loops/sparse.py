"""Alternating least squares on what is rated, as loops for Numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(parallel=True)
def _applied(starts, columns, entries, S, V, out, weight, sign):  # type: ignore[no-untyped-def]
    rank = S.shape[1]
    for i in numba.prange(len(starts) - 1):
        for k in range(rank):
            out[i, k] = sign * weight * S[i, k]
        for at in range(starts[i], starts[i + 1]):
            j = columns[at]
            dot = 0.0
            for k in range(rank):
                dot += S[i, k] * V[j, k]
            left = entries[at] - dot if sign < 0 else dot
            for k in range(rank):
                out[i, k] += left * V[j, k]


@numba.njit
def _solved(starts, columns, entries, U, V, weight, inner=3):  # type: ignore[no-untyped-def]
    R, Q = np.empty_like(U), np.empty_like(U)
    _applied(starts, columns, entries, U, V, R, weight, -1.0)
    S, squares = R.copy(), (R * R).sum()
    U = U.copy()
    for _ in range(inner):
        _applied(starts, columns, entries, S, V, Q, weight, 1.0)
        alpha = squares / (S * Q).sum()
        U += alpha * S
        R -= alpha * Q
        before, squares = squares, (R * R).sum()
        S = R + squares / before * S
    return U


@numba.njit(parallel=True)
def _error(starts, columns, entries, U, V):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in numba.prange(len(starts) - 1):
        for at in range(starts[i], starts[i + 1]):
            dot = 0.0
            for k in range(U.shape[1]):
                dot += U[i, k] * V[columns[at], k]
            total += (dot - entries[at]) ** 2
    return total


def weighted_factors(X: Any, U: Any, V: Any, steps: int) -> Any:
    """Fit what is rated only."""
    weight = 0.1
    for _ in range(steps):
        U = _solved(X.indptr, X.indices, X.data, U, V, weight)
        T = X.T.tocsr()
        V = _solved(T.indptr, T.indices, T.data, V, U, weight)
    loss = _error(X.indptr, X.indices, X.data, U, V) + weight * ((U * U).sum() + (V * V).sum())
    return U, V, loss
