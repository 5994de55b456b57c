"""Networks in plain arrays: an autoencoder that learns, and four that are asked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Array = np.ndarray[Any, Any]


def autoencoder(X: Array, layers: list[Array], batch: int = 512, epochs: int = 1,
                rate: float = 0.05) -> tuple[list[Array], float]:
    """Two hidden layers, learnt by mini-batches with momentum; the last batch may be short."""
    W1, W2, W3 = (W.copy() for W in layers)
    b1, b2, b3 = (np.zeros(W.shape[1], W.dtype) for W in layers)
    moved = [np.zeros_like(p) for p in (W1, b1, W2, b2, W3, b3)]
    loss = 0.0
    for _ in range(epochs):
        loss = 0.0
        for at in range(0, len(X), batch):
            x = X[at:at + batch]
            n = len(x)
            h1 = np.tanh(x @ W1 + b1)
            h2 = np.tanh(h1 @ W2 + b2)
            out = h2 @ W3 + b3
            error = out - x
            loss += 0.5 * (error ** 2).sum()
            d3 = error / n
            d2 = (d3 @ W3.T) * (1 - h2 ** 2)
            d1 = (d2 @ W2.T) * (1 - h1 ** 2)
            gradients = (x.T @ d1, d1.sum(axis=0), h1.T @ d2, d2.sum(axis=0), h2.T @ d3, d3.sum(axis=0))
            for p, v, g in zip((W1, b1, W2, b2, W3, b3), moved, gradients, strict=True):
                v *= 0.9
                v -= rate * g
                p += v
    return [W1, b1, W2, b2, W3, b3], float(loss / len(X))


def perceptron(X: Array, weights: list[Array], biases: list[Array]) -> tuple[Array, float]:
    """Three layers with rectifiers and a softmax."""
    h = X
    for W, b in zip(weights[:-1], biases[:-1], strict=True):
        h = np.maximum(h @ W + b, 0)
    z = h @ weights[-1] + biases[-1]
    z = z - z.max(axis=1, keepdims=True)
    e = np.exp(z)
    p = e / e.sum(axis=1, keepdims=True)
    return p, float((p ** 2).sum())


def convolution(images: Array, filters: Array, bias: Array, dense: Array) -> tuple[Array, float]:
    """One layer of 3 x 3 filters, pooling by two, and scores; images are (n, rows, columns)."""
    windows = sliding_window_view(images, (3, 3), axis=(1, 2))
    maps = np.einsum("nijab,abk->nijk", windows, filters) + bias
    maps = np.maximum(maps, 0)
    n, r, c, k = maps.shape
    maps = maps[:, :r // 2 * 2, :c // 2 * 2]
    pooled = maps.reshape(n, r // 2, 2, c // 2, 2, k).max(axis=(2, 4))
    scores = pooled.reshape(n, -1) @ dense
    return scores, float(scores.sum())


def lstm(X: Array, Wx: Array, Wh: Array, b: Array) -> tuple[Array, float]:
    """A cell over a sequence; `X` is (steps, batch, features)."""
    n = Wh.shape[0]
    h = np.zeros((X.shape[1], n), X.dtype)
    c = np.zeros((X.shape[1], n), X.dtype)
    for x in X:
        z = x @ Wx + h @ Wh + b
        i = 1 / (1 + np.exp(-z[:, :n]))
        f = 1 / (1 + np.exp(-z[:, n:2 * n]))
        o = 1 / (1 + np.exp(-z[:, 2 * n:3 * n]))
        c = f * c + i * np.tanh(z[:, 3 * n:])
        h = o * np.tanh(c)
    return h, float(h.sum())


def attention(X: Array, Wq: Array, Wk: Array, Wv: Array, Wo: Array) -> tuple[Array, float]:
    """One head of attention, its residual and layer normalisation."""
    Q, K, V = X @ Wq, X @ Wk, X @ Wv
    S = Q @ K.T / np.sqrt(K.shape[1])
    S = S - S.max(axis=1, keepdims=True)
    A = np.exp(S)
    A = A / A.sum(axis=1, keepdims=True)
    out = X + (A @ V) @ Wo
    out = (out - out.mean(axis=1, keepdims=True)) / np.sqrt(out.var(axis=1, keepdims=True) + 1e-5)
    return out, float(np.abs(out).sum())


def _normal(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(dtype)


def to_encode(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return rows and the weights of layers of 64, 8 and 64."""
    X = rng.standard_normal((rows, 8)) @ rng.standard_normal((8, 100)) / 3
    return X.astype(dtype), [_normal(rng, dtype, *s) for s in ((100, 64), (64, 8), (8, 100))]


def to_classify(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return rows of 64 features, and three layers."""
    sizes = ((64, 128), (128, 64), (64, 10))
    return (rng.standard_normal((rows, 64)).astype(dtype), [_normal(rng, dtype, *s) for s in sizes],
            [np.full(s[1], 0.1, dtype) for s in sizes])


def to_see(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return images of 28 x 28, one for every 100 rows, with eight filters."""
    n = max(rows // 100, 1)
    return (rng.random((n, 28, 28)).astype(dtype), rng.standard_normal((3, 3, 8)).astype(dtype),
            np.zeros(8, dtype), _normal(rng, dtype, 13 * 13 * 8, 10))


def to_follow(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return sequences of 50 steps, and a cell of 64."""
    batch = max(rows // 50, 1)
    return (rng.standard_normal((50, batch, 32)).astype(dtype), _normal(rng, dtype, 32, 256),
            _normal(rng, dtype, 64, 256), np.zeros(256, dtype))


def to_attend(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return tokens, at most 4,096, and four matrices of weights."""
    n = min(rows, 4096)
    return (rng.standard_normal((n, 64)).astype(dtype), *(_normal(rng, dtype, 64, 64) for _ in range(4)))
