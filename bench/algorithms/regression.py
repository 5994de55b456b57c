"""Linear regression: conjugate gradients, step by step over features, and ridge with a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def conjugate_gradients(X: Array, y: Array, lam: float = 1e-3, steps: int = 30,
                        tol: float = 1e-12) -> tuple[Array, float]:
    """Least squares with a ridge; the matrix of the normal equations is never made."""
    w = np.zeros(X.shape[1])
    r = -(X.T @ y)
    p = -r
    norm = (r * r).sum()
    target = norm * tol ** 2
    for _ in range(steps):
        q = X.T @ (X @ p) + lam * p
        alpha = norm / (p @ q)
        w += alpha * p
        r += alpha * q
        last, norm = norm, (r * r).sum()
        if norm < target:
            break
        p = -r + norm / last * p
    error = X @ w - y
    return w, float((error ** 2).sum() + lam * (w @ w))


def stepwise(X: Array, y: Array, most: int = 10) -> tuple[list[int], float]:
    """Add the feature that lowers Akaike's criterion most, until none does."""
    n, m = X.shape
    chosen: list[int] = []
    left = list(range(m))
    A = np.ones((n, 1))
    beta = np.linalg.solve(A.T @ A, A.T @ y)
    error = y - A @ beta
    best = n * np.log((error ** 2).sum() / n) + 2
    while left and len(chosen) < most:
        found, found_at = best, -1
        for j in left:
            B = np.hstack([A, X[:, j:j + 1]])
            beta = np.linalg.solve(B.T @ B, B.T @ y)
            error = y - B @ beta
            criterion = n * np.log((error ** 2).sum() / n) + 2 * B.shape[1]
            if criterion < found:
                found, found_at = criterion, j
        if found_at < 0:
            break
        best = found
        chosen.append(found_at)
        left.remove(found_at)
        A = np.hstack([A, X[:, found_at:found_at + 1]])
    return chosen, float(best)


def kernel_ridge(X: Array, y: Array, Z: Array, gamma: float = 0.05, lam: float = 1e-2) -> tuple[Array, float]:
    """Fit with a Gaussian kernel and predict at `Z`."""
    squares = (X ** 2).sum(axis=1)
    K = np.exp(-gamma * (squares[:, None] + squares - 2 * X @ X.T))
    a = np.linalg.solve(K + lam * np.eye(len(X)), y)
    D = (Z ** 2).sum(axis=1)[:, None] + squares - 2 * Z @ X.T
    return np.exp(-gamma * D) @ a, float(a @ y)


def targets(rows: int, dtype: Any, rng: np.random.Generator, columns: int = 100) -> tuple[Any, ...]:
    """Return features and what depends on them."""
    X = rng.standard_normal((rows, columns)).astype(dtype)
    y = X @ rng.standard_normal(columns) + rng.standard_normal(rows)
    return X, y.astype(dtype)


def few_targets(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return 20 features of which six matter."""
    X = rng.standard_normal((rows, 20)).astype(dtype)
    y = X[:, :6] @ np.arange(1.0, 7.0) + rng.standard_normal(rows)
    return X, y.astype(dtype)


def pairs(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return a quarter of the rows to fit, and all to predict at: `rows` is bounded, the kernel is dense."""
    n = min(rows, 8000)
    X, y = targets(n // 4, dtype, rng, 10)
    return X, y, rng.standard_normal((n, 10)).astype(dtype)
