"""Fifteen small programs of many kinds, and arguments for them: what explanations are tested on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

ROWS, COLUMNS = 4000, 24


def standardize(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def hinge(X, y, w):
    out = np.maximum(1.0 - y * (X @ w), 0.0)
    return 0.5 * (out * out).sum(), -(X.T @ (out * y))


def logistic(X, y, w):
    p = 1.0 / (1.0 + np.exp(-(X @ w)))
    return X.T @ (p - y), -(y * np.log(p)).mean()


def softmax(X):
    e = np.exp(X - X.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def nearest(X, C):
    return ((X[:, None] - C) ** 2).sum(-1).argmin(1)


def ridge(X, y, w, turns):
    for _ in range(turns):
        w = w - 1e-6 * ((X.T @ X) @ w + 0.1 * w - X.T @ y)
    return w


def power(X, v):
    while True:
        new = X.T @ (X @ v)
        new /= np.sqrt((new * new).sum())
        if np.abs(new - v).max() < 1e-3:
            return new
        v = new


def blur(image):
    inner = image[1:-1, 1:-1]
    return 0.5 * inner + 0.125 * (image[:-2, 1:-1] + image[2:, 1:-1] + image[1:-1, :-2] + image[1:-1, 2:])


def clipped(x):
    x[x < 0.0] = 0.0
    np.minimum(x, 0.75, out=x)
    return x.sum()


def polynomial(x):
    return 1.0 + x * (2.0 + x * (3.0 + x * (4.0 + x * 5.0)))


def chain(A, B, v):
    return A @ B @ v


def ranked(x):
    y = 2.0 * x + 1.0
    order = np.argsort(y)
    return y[order] - y.mean()


def counted(labels, weights):
    return np.bincount(labels, weights=weights * weights, minlength=8)


def halves(x):
    return (x >> 1) * 3 + (x & 1)


def pagerank(P, r):
    return 0.85 * (P @ r) + 0.15 / r.size


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Return the programs by name, with arguments that are the same every time."""
    rng = np.random.default_rng(10)
    X = rng.normal(size=(ROWS, COLUMNS))
    w, y = rng.normal(size=COLUMNS), np.sign(X[:, 0])
    x = np.linspace(-1.0, 1.0, 20_000)
    where = rng.integers(0, ROWS, (2, 3 * ROWS))
    P = sp.csr_matrix((np.ones(3 * ROWS), tuple(where)), shape=(ROWS, ROWS))
    found = {
        standardize: (X,), hinge: (X, y, w), logistic: (X, (y > 0) * 1.0, 0.01 * w), softmax: (X,),
        nearest: (X[:400], X[:10]), ridge: (X, y, w, 12), power: (X, w), blur: (X[:900].reshape(120, 180),),
        clipped: (x.copy(),), polynomial: (x.astype(np.float32),), chain: (X[:300].T, X[:300], w),
        ranked: (x,), counted: (rng.integers(0, 8, 20_000), x), halves: (np.arange(20_000),),
        pagerank: (P, np.full(ROWS, 1.0 / ROWS)),
    }
    return {function.__name__: (function, args) for function, args in found.items()}
