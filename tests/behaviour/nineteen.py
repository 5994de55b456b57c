"""Nineteen functions as data scientists write them, and their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp


def standardize(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def ridge_by_cg(X, y, lam):
    w = np.zeros(X.shape[1])
    r = X.T @ (X @ w - y) + lam * w
    p = -r
    rs = r @ r
    tol = 1e-10 * rs
    i = 0
    while rs > tol and i < 200:
        q = X.T @ (X @ p) + lam * p
        alpha = rs / (p @ q)
        w += alpha * p
        r += alpha * q
        new = r @ r
        p = -r + (new / rs) * p
        rs = new
        i += 1
    return w, i


def logistic_regression(X, y, steps, rate):
    w = np.zeros(X.shape[1])
    for _ in range(steps):
        p = 1.0 / (1.0 + np.exp(-(X @ w)))
        w -= rate * (X.T @ (p - y)) / len(y)
    return w


def softmax(Z):
    e = np.exp(Z - Z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def kmeans(X, C, rounds):
    for _ in range(rounds):
        d = ((X[:, None, :] - C[None, :, :]) ** 2).sum(axis=2)
        nearest = d.argmin(axis=1)
        for k in range(len(C)):
            mine = nearest == k
            if mine.any():
                C[k] = X[mine].mean(axis=0)
    return C, nearest


def pagerank(A, damping, rounds):
    n = A.shape[0]
    r = np.full(n, 1.0 / n)
    for _ in range(rounds):
        new = damping * (A @ r) + (1.0 - damping) / n
        if np.abs(new - r).sum() < 1e-12:
            break
        r = new
    return r


def nmf(V, W, H, rounds):
    for _ in range(rounds):
        H *= (W.T @ V) / (W.T @ W @ H + 1e-9)
        W *= (V @ H.T) / (W @ H @ H.T + 1e-9)
    return W, H, np.linalg.norm(V - W @ H)


def pca(X, k):
    centred = X - X.mean(axis=0)
    U, s, Vt = np.linalg.svd(centred, full_matrices=False)
    return centred @ Vt[:k].T, (s**2 / (len(X) - 1))[:k]


def clipped(X):
    Y = np.maximum(np.clip(X, -1.0, 1.0), 0.0)
    return Y / Y.sum(axis=1, keepdims=True)


def medians(X):
    return np.median(X, axis=0)


def bilinear(X, M, Y):
    return np.einsum("ij,jk,ik->i", X, M, Y)


def mean_of_large(X):
    return X[X > 0.5].mean()


def update(params, grads):
    for name in params:
        params[name] = params[name] - 0.1 * grads[name]
    params["norm"] = np.sqrt(sum((p * p).sum() for p in params.values()))
    return params


def increment(x32):
    return x32 + 1


def total(x32):
    return x32.sum()


def cut(X):
    X[X > 0.9] = 0
    return X


def exponential(X, o):
    np.exp(X, out=o)
    return o


def label(X):
    norm = np.linalg.norm(X)
    return f"norm {norm:.3f} of {X.shape}"


def running(X):
    X[1:] += X[:-1]
    return X


FUNCTIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (
    standardize, ridge_by_cg, logistic_regression, softmax, kmeans, pagerank, nmf, pca, clipped,
    medians, bilinear, mean_of_large, update, increment, total, cut, exponential, label, running)}


def _table(seed: int = 0, rows: int = 400, columns: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def _graph() -> sp.csr_matrix:
    links = sp.random(300, 300, 0.02, format="csr", random_state=1)
    return sp.csr_matrix(links.multiply(1.0 / np.maximum(links.sum(axis=0), 1e-12)))


def _labels() -> np.ndarray:
    return (_table().sum(axis=1) > 0).astype(float)


ARGUMENTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "standardize": lambda: (_table(),),
    "ridge_by_cg": lambda: (_table(), _labels(), 0.5),
    "logistic_regression": lambda: (_table(), _labels(), 60, 0.5),
    "softmax": lambda: (_table(),),
    "kmeans": lambda: (_table(), _table()[:5].copy(), 8),
    "pagerank": lambda: (_graph(), 0.85, 50),
    "nmf": lambda: (np.abs(_table()), np.abs(_table(1, 400, 3)), np.abs(_table(2, 3, 7)), 30),
    "pca": lambda: (_table(), 3),
    "clipped": lambda: (_table(),),
    "medians": lambda: (_table(),),
    "bilinear": lambda: (_table(), _table(1, 7, 7), _table(2)),
    "mean_of_large": lambda: (_table(),),
    "update": lambda: ({"W": _table(), "b": _table(1)[0]}, {"W": _table(2), "b": _table(3)[0]}),
    "increment": lambda: (_table().astype("f4"),),
    "total": lambda: (np.full(4_000_000, 0.1, "f4"),),
    "cut": lambda: (_table(),),
    "exponential": lambda: (_table(), np.empty((400, 7))),
    "label": lambda: (_table(),),
    "running": lambda: (np.ones(6),),
}
