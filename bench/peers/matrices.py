"""Rows that go through a matrix row by row: two products with what lies between, softmax, distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import get_num_threads, prange

from bench.peers.row import EXP, LOG, Array, Function, Row, normals


def weighted(X: Array, w: Array, v: Array) -> Array:
    return X.T @ (w * (X @ v))


def weighted_loop(X, w, v):
    m, n = X.shape
    parts = get_num_threads()
    sums = np.zeros((parts, n))
    for p in prange(parts):
        mine = np.zeros(n)
        for i in range(p * m // parts, (p + 1) * m // parts):
            s = 0.0
            for j in range(n):
                s += X[i, j] * v[j]
            s *= w[i]
            for j in range(n):
                mine[j] += s * X[i, j]
        sums[p] = mine
    return sums.sum(axis=0)


def multinomial(X: Array, P: Array, V: Array) -> Array:
    Q = P * (X @ V)
    return X.T @ (Q - P * Q.sum(axis=1, keepdims=True))


def multinomial_loop(X, P, V):
    m, n = X.shape
    k = V.shape[1]
    parts = get_num_threads()
    sums = np.zeros((parts, n, k))
    for p in prange(parts):
        mine, q = np.zeros((n, k)), np.zeros(k)
        for i in range(p * m // parts, (p + 1) * m // parts):
            q[:] = 0.0
            for j in range(n):
                for c in range(k):
                    q[c] += X[i, j] * V[j, c]
            total = 0.0
            for c in range(k):
                q[c] *= P[i, c]
                total += q[c]
            for c in range(k):
                q[c] -= P[i, c] * total
            for j in range(n):
                for c in range(k):
                    mine[j, c] += X[i, j] * q[c]
        sums[p] = mine
    return sums.sum(axis=0)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def softmax_loop(x):
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        top, total = x[i, 0], 0.0
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - top)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] *= 1.0 / total
    return out


def log_sum_exp(x: Array) -> Array:
    top = x.max(axis=1, keepdims=True)
    return np.log(np.exp(x - top).sum(axis=1)) + top[:, 0]


def log_sum_exp_loop(x):
    out = np.empty(x.shape[0])
    for i in prange(x.shape[0]):
        top, total = x[i, 0], 0.0
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        for j in range(x.shape[1]):
            total += math.exp(x[i, j] - top)
        out[i] = math.log(total) + top
    return out


def standardised(X: Array) -> Array:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def standardised_loop(X):
    m, n = X.shape
    parts = get_num_threads()
    sums, squares = np.zeros((parts, n)), np.zeros((parts, n))
    for p in prange(parts):
        for i in range(p * m // parts, (p + 1) * m // parts):
            for j in range(n):  # less the first row, so that squares do not cancel
                d = X[i, j] - X[0, j]
                sums[p, j] += d
                squares[p, j] += d * d
    mean = sums.sum(axis=0) / m
    scale = 1.0 / np.sqrt(squares.sum(axis=0) / m - mean * mean)
    mean += X[0]
    out = np.empty_like(X)
    for i in prange(m):
        for j in range(n):
            out[i, j] = (X[i, j] - mean[j]) * scale[j]
    return out


def norms(X: Array) -> Array:
    return np.sqrt((X * X).sum(axis=1))


def norms_loop(X):
    out = np.empty(X.shape[0])
    for i in prange(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            total += X[i, j] * X[i, j]
        out[i] = math.sqrt(total)
    return out


def nearest(X: Array, C: Array) -> Array:
    return ((X[:, None, :] - C[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)


def nearest_by_product(X: Array, C: Array) -> Array:
    return ((C * C).sum(axis=1) - 2.0 * (X @ C.T)).argmin(axis=1)


def nearest_array(xp: Any, X: Any, C: Any) -> Any:
    return ((X[:, None, :] - C[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)


def nearest_by_product_array(xp: Any, X: Any, C: Any) -> Any:
    return ((C * C).sum(axis=1) - 2.0 * (X @ C.T)).argmin(axis=1)


def nearest_loop(X, C):
    (m, n), k = X.shape, C.shape[0]
    T = C.T.copy()
    squares = (C * C).sum(axis=1)
    out = np.empty(m, np.int64)
    for i in prange(m):
        distances = squares.copy()
        for j in range(n):
            x = -2.0 * X[i, j]
            for c in range(k):
                distances[c] += x * T[j, c]
        out[i] = distances.argmin()
    return out


def running(X: Array) -> Array:
    return np.cumsum(0.5 * X + 1.0, axis=1)


def running_loop(X):
    out = np.empty_like(X)
    for i in prange(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            total += 0.5 * X[i, j] + 1.0
            out[i, j] = total
    return out


def closest(X: Array, v: Array) -> Array:
    return np.argmin(np.abs(X - v), axis=1)


def closest_loop(X, v):
    out = np.empty(X.shape[0], np.int64)
    for i in prange(X.shape[0]):
        least, at = math.inf, 0
        for j in range(X.shape[1]):
            d = abs(X[i, j] - v[j])
            if d < least:
                least, at = d, j
        out[i] = at
    return out


def products(factor: float) -> Function:
    """Work of so many products of the first argument with the last."""
    return lambda X, *others: factor * X.size * others[-1].size / X.shape[1]


WIDE = normals((200_000, 100))
CENTRES = normals((100_000, 50), (20, 50))
ROWS = (
    Row("X.T@(w*(X@v)) 1e6x100", weighted, normals((1_000_000, 100), 1_000_000, 100),
        numba=weighted_loop, array=lambda xp, X, w, v: X.T @ (w * (X @ v))),
    Row("multinomial 4e5x100, k=5", multinomial, normals((400_000, 100), (400_000, 5), (100, 5)),
        numba=multinomial_loop, array=lambda xp, X, P, V: multinomial(X, P, V), work=products(2)),
    Row("softmax rows 1e5x100", softmax, normals((100_000, 100)), numba=softmax_loop,
        jax=lambda jax, x: jax.nn.softmax(x, axis=1), work=lambda x: (EXP + 5) * x.size,
        torch=lambda torch, x: torch.softmax(x, 1)),
    Row("log-sum-exp rows 1e5x100", log_sum_exp, normals((100_000, 100)), numba=log_sum_exp_loop,
        jax=lambda jax, x: jax.nn.logsumexp(x, axis=1), torch=lambda torch, x: torch.logsumexp(x, 1),
        work=lambda x: (EXP + 3) * x.size + LOG * len(x)),
    Row("standardise 2e5x100", standardised, WIDE, numba=standardised_loop, passes=2,
        jax=lambda jax, X: (X - X.mean(axis=0)) / X.std(axis=0),
        torch=lambda torch, X: (X - X.mean(0)) / X.std(0, correction=0)),
    Row("row norms 2e5x100", norms, WIDE, numba=norms_loop,
        numexpr=lambda ne, X: np.sqrt(ne.evaluate("sum(X * X, axis=1)")),
        array=lambda xp, X: xp.sqrt((X * X).sum(axis=1))),
    Row("k-means 1e5x50, k=20, differences", nearest, CENTRES, numba=nearest_loop,
        array=nearest_array, work=products(1)),
    Row("k-means 1e5x50, k=20, product", nearest_by_product, CENTRES, numba=nearest_loop,
        array=nearest_by_product_array, work=products(1)),
    Row("cumsum along rows 2e5x100", running, WIDE, numba=running_loop,
        array=lambda xp, X: xp.cumsum(0.5 * X + 1.0, axis=1)),
    Row("argmin of rows 2e5x100", closest, normals((200_000, 100), 100), numba=closest_loop,
        array=lambda xp, X, v: xp.argmin(abs(X - v), axis=1)),
)
