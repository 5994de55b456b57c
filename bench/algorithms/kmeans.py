"""Lloyd's k-means with several runs."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def kmeans(X: Array, starts: list[Array], steps: int = 20, tol: float = 1e-6) -> tuple[Array, float]:
    """Start at each of `starts` and keep the best."""
    best, best_cost = starts[0], np.inf
    squares = (X ** 2).sum(axis=1)
    for C in starts:
        C = C.copy()
        cost = np.inf
        for _ in range(steps):
            D = squares[:, None] - 2 * X @ C.T + (C ** 2).sum(axis=1)
            nearest = D.argmin(axis=1)
            last, cost = cost, D.min(axis=1).sum()
            for k in range(len(C)):
                members = X[nearest == k]
                if len(members):
                    C[k] = members.mean(axis=0)
            if last - cost < tol * abs(cost):
                break
        if cost < best_cost:
            best, best_cost = C, cost
    return best, float(best_cost)


def kmeans_by_membership(X: Array, C: Array, steps: int = 20) -> tuple[Array, float]:
    """One run with a matrix of memberships, as programs in R and DML are written."""
    cost = 0.0
    for _ in range(steps):
        D = -2 * (X @ C.T) + (C ** 2).sum(axis=1)
        least = D.min(axis=1)
        cost = least.sum() + (X ** 2).sum()
        P = (D <= least[:, None]).astype(X.dtype)
        P = P / P.sum(axis=1, keepdims=True)
        C = (P.T @ X) / P.sum(axis=0)[:, None]
    return C, float(cost)


def clouds(rows: int, dtype: Any, rng: np.random.Generator, columns: int = 20,
           k: int = 10) -> tuple[Any, ...]:
    """Return points around k centres, and three choices of k of them to start at."""
    centres = rng.standard_normal((k, columns)) * 3
    X = (centres[rng.integers(0, k, rows)] + rng.standard_normal((rows, columns))).astype(dtype)
    return X, [X[rng.choice(rows, k, replace=False)] for _ in range(3)]


def one_cloud(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return points, and ten of them to start at."""
    X, starts = clouds(rows, dtype, rng)
    return X, starts[0]
