"""Matrices as products of factors: principal components, non-negative factors, mixtures, embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def pca(X: Array, k: int = 5) -> tuple[Array, float]:
    """Project on the first k principal components; the objective is the variance they explain."""
    n = len(X)
    mean = X.mean(axis=0)
    C = (X.T @ X) / (n - 1) - np.outer(mean, mean) * (n / (n - 1))
    values, vectors = np.linalg.eigh(C)
    top = vectors[:, ::-1][:, :k]
    top = top * np.sign(top[np.abs(top).argmax(axis=0), np.arange(k)])
    scores = (X - mean) @ top
    return scores, float(values[::-1][:k].sum() / values.sum())


def pnmf(X: Array, W: Array, H: Array, steps: int = 20, eps: float = 1e-9) -> tuple[Array, Array, float]:
    """Poisson non-negative factors, by multiplication."""
    objective = 0.0
    for _ in range(steps):
        H = H * (W.T @ (X / (W @ H + eps))) / W.sum(axis=0)[:, None]
        W = W * ((X / (W @ H + eps)) @ H.T) / H.sum(axis=1)
    objective = (W @ H).sum() - (X * np.log(W @ H + eps)).sum()
    return W, H, float(objective)


def nmf(X: Array, W: Array, H: Array, steps: int = 20, eps: float = 1e-9) -> tuple[Array, Array, float]:
    """Non-negative factors for least squares, in place."""
    W, H = W.copy(), H.copy()
    for _ in range(steps):
        H *= (W.T @ X) / (W.T @ W @ H + eps)
        W *= (X @ H.T) / (W @ (H @ H.T) + eps)
    return W, H, float(((X - W @ H) ** 2).sum())


def gaussian_mixture(X: Array, means: Array, steps: int = 10) -> tuple[Array, float]:
    """Expectation and maximisation with diagonal covariances."""
    n, d = X.shape
    k = len(means)
    variances = np.ones((k, d)) * X.var(axis=0)
    weights = np.full(k, 1 / k)
    likelihood = -np.inf
    for _ in range(steps):
        precisions = 1 / variances
        logs = (np.log(weights) - 0.5 * (d * np.log(2 * np.pi) + np.log(variances).sum(axis=1)
                + (means ** 2 * precisions).sum(axis=1))
                + X @ (means * precisions).T - 0.5 * (X ** 2 @ precisions.T))
        top = logs.max(axis=1, keepdims=True)
        norm = top + np.log(np.exp(logs - top).sum(axis=1, keepdims=True))
        R = np.exp(logs - norm)
        last, likelihood = likelihood, norm.mean()
        mass = R.sum(axis=0) + 1e-10
        weights = mass / n
        means = R.T @ X / mass[:, None]
        variances = R.T @ X ** 2 / mass[:, None] - means ** 2 + 1e-6
        if abs(likelihood - last) < 1e-9:
            break
    return means, float(likelihood)


def embedding(P: Array, Y: Array, steps: int = 10, rate: float = 50.0) -> tuple[Array, float]:
    """Descend as t-SNE does; `P` are the affinities of all pairs."""
    n = len(Y)
    velocity = np.zeros_like(Y)
    divergence = 0.0
    for step in range(steps):
        squares = (Y ** 2).sum(axis=1)
        num = 1 / (1 + squares[:, None] + squares - 2 * (Y @ Y.T))
        num[np.arange(n), np.arange(n)] = 0.0
        Q = np.maximum(num / num.sum(), 1e-12)
        L = (P - Q) * num
        gradient = 4 * (L.sum(axis=1)[:, None] * Y - L @ Y)
        velocity = (0.5 if step < 5 else 0.8) * velocity - rate * gradient
        Y = Y + velocity
        Y = Y - Y.mean(axis=0)
        divergence = (P * np.log(np.maximum(P, 1e-12) / Q)).sum()
    return Y, float(divergence)


def table(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return rows that lie near a plane of few dimensions."""
    return ((rng.standard_normal((rows, 6)) @ rng.standard_normal((6, 60))
             + 0.1 * rng.standard_normal((rows, 60))).astype(dtype),)


def positive(rows: int, dtype: Any, rng: np.random.Generator, k: int = 10) -> tuple[Any, ...]:
    """Return positive numbers and factors to start with."""
    X = rng.random((rows, k)) @ rng.random((k, 100)) + 0.1
    return X.astype(dtype), rng.random((rows, k)).astype(dtype), rng.random((k, 100)).astype(dtype)


def mixture(rows: int, dtype: Any, rng: np.random.Generator, k: int = 8) -> tuple[Any, ...]:
    """Return points, and k of them."""
    X = (rng.standard_normal((k, 16))[rng.integers(0, k, rows)] * 2
         + rng.standard_normal((rows, 16))).astype(dtype)
    return X, X[:k].copy()


def affinities(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return affinities of pairs of points, at most 3,000, and where these start."""
    n = min(rows, 3000)
    X = rng.standard_normal((n, 5)) + 4 * rng.integers(0, 3, (n, 1))
    D = ((X[:, None] - X) ** 2).sum(axis=2)
    P = np.exp(-D / 2)
    np.fill_diagonal(P, 0)
    return (P / P.sum()).astype(dtype), (1e-2 * rng.standard_normal((n, 2))).astype(dtype)
