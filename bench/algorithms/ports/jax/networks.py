"""Networks for JAX."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


@partial(jax.jit, donate_argnums=())
def learned(x: Any, parameters: Any, moved: Any, rate: float) -> Any:
    """One step on one batch."""
    W1, b1, W2, b2, W3, b3 = parameters
    n = len(x)
    h1 = jnp.tanh(x @ W1 + b1)
    h2 = jnp.tanh(h1 @ W2 + b2)
    error = h2 @ W3 + b3 - x
    d3 = error / n
    d2 = (d3 @ W3.T) * (1 - h2 ** 2)
    d1 = (d2 @ W2.T) * (1 - h1 ** 2)
    gradients = (x.T @ d1, d1.sum(axis=0), h1.T @ d2, d2.sum(axis=0), h2.T @ d3, d3.sum(axis=0))
    moved = [0.9 * v - rate * g for v, g in zip(moved, gradients, strict=True)]
    return [p + v for p, v in zip(parameters, moved, strict=True)], moved, 0.5 * (error ** 2).sum()


def autoencoder(X: Any, layers: Any, batch: int = 512, epochs: int = 1, rate: float = 0.05) -> Any:
    """Two hidden layers."""
    parameters = [p for W in layers for p in (W, jnp.zeros(W.shape[1], W.dtype))]
    moved = [jnp.zeros_like(p) for p in parameters]
    loss = 0.0
    for _ in range(epochs):
        loss = 0.0
        for at in range(0, len(X), batch):
            parameters, moved, more = learned(X[at:at + batch], parameters, moved, rate)
            loss += more
    return parameters, float(loss / len(X))


@jax.jit
def perceptron(X: Any, weights: Any, biases: Any) -> Any:
    """Three layers with rectifiers and a softmax."""
    h = X
    for W, b in zip(weights[:-1], biases[:-1], strict=True):
        h = jnp.maximum(h @ W + b, 0)
    z = h @ weights[-1] + biases[-1]
    z = z - z.max(axis=1, keepdims=True)
    e = jnp.exp(z)
    p = e / e.sum(axis=1, keepdims=True)
    return p, (p ** 2).sum()


@jax.jit
def convolution(images: Any, filters: Any, bias: Any, dense: Any) -> Any:
    """One layer of 3 x 3 filters, pooling by two, and scores."""
    maps = lax.conv_general_dilated(
        images[..., None], filters[:, :, None, :], (1, 1), "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC")) + bias
    maps = jnp.maximum(maps, 0)
    n, r, c, k = maps.shape
    maps = maps[:, :r // 2 * 2, :c // 2 * 2]
    pooled = maps.reshape(n, r // 2, 2, c // 2, 2, k).max(axis=(2, 4))
    scores = pooled.reshape(n, -1) @ dense
    return scores, scores.sum()


@jax.jit
def lstm(X: Any, Wx: Any, Wh: Any, b: Any) -> Any:
    """A cell over a sequence."""
    n = Wh.shape[0]

    def body(state: Any, x: Any) -> Any:
        h, c = state
        z = x @ Wx + h @ Wh + b
        i = 1 / (1 + jnp.exp(-z[:, :n]))
        f = 1 / (1 + jnp.exp(-z[:, n:2 * n]))
        o = 1 / (1 + jnp.exp(-z[:, 2 * n:3 * n]))
        c = f * c + i * jnp.tanh(z[:, 3 * n:])
        return (o * jnp.tanh(c), c), None

    zeros = jnp.zeros((X.shape[1], n), X.dtype)
    (h, _), _ = lax.scan(body, (zeros, zeros), X)
    return h, h.sum()


@jax.jit
def attention(X: Any, Wq: Any, Wk: Any, Wv: Any, Wo: Any) -> Any:
    """One head of attention, its residual and layer normalisation."""
    Q, K, V = X @ Wq, X @ Wk, X @ Wv
    S = Q @ K.T / jnp.sqrt(K.shape[1])
    S = S - S.max(axis=1, keepdims=True)
    A = jnp.exp(S)
    A = A / A.sum(axis=1, keepdims=True)
    out = X + (A @ V) @ Wo
    out = (out - out.mean(axis=1, keepdims=True)) / jnp.sqrt(out.var(axis=1, keepdims=True) + 1e-5)
    return out, jnp.abs(out).sum()
