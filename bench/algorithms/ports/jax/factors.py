"""Matrices as products of factors, for JAX."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


@partial(jax.jit, static_argnums=1)
def pca(X: Any, k: int = 5) -> Any:
    """Project on the first k principal components."""
    n = len(X)
    mean = X.mean(axis=0)
    C = (X.T @ X) / (n - 1) - jnp.outer(mean, mean) * (n / (n - 1))
    values, vectors = jnp.linalg.eigh(C)
    top = vectors[:, ::-1][:, :k]
    top = top * jnp.sign(top[jnp.abs(top).argmax(axis=0), jnp.arange(k)])
    return (X - mean) @ top, values[::-1][:k].sum() / values.sum()


@partial(jax.jit, static_argnums=3)
def pnmf(X: Any, W: Any, H: Any, steps: int = 20, eps: float = 1e-9) -> Any:
    """Poisson non-negative factors."""

    def body(_: Any, state: Any) -> Any:
        W, H = state
        H = H * (W.T @ (X / (W @ H + eps))) / W.sum(axis=0)[:, None]
        W = W * ((X / (W @ H + eps)) @ H.T) / H.sum(axis=1)
        return W, H

    W, H = lax.fori_loop(0, steps, body, (W, H))
    return W, H, (W @ H).sum() - (X * jnp.log(W @ H + eps)).sum()


@partial(jax.jit, static_argnums=3)
def nmf(X: Any, W: Any, H: Any, steps: int = 20, eps: float = 1e-9) -> Any:
    """Non-negative factors for least squares."""

    def body(_: Any, state: Any) -> Any:
        W, H = state
        H = H * (W.T @ X) / (W.T @ W @ H + eps)
        W = W * (X @ H.T) / (W @ (H @ H.T) + eps)
        return W, H

    W, H = lax.fori_loop(0, steps, body, (W, H))
    return W, H, ((X - W @ H) ** 2).sum()


@partial(jax.jit, static_argnums=2)
def gaussian_mixture(X: Any, means: Any, steps: int = 10) -> Any:
    """Expectation and maximisation with diagonal covariances."""
    n, d = X.shape
    k = len(means)

    def go(state: Any) -> Any:
        _, _, _, likelihood, last, at = state
        return (at < steps) & ~(jnp.abs(likelihood - last) < 1e-9)

    def body(state: Any) -> Any:
        means, variances, weights, last, _, at = state
        precisions = 1 / variances
        logs = (jnp.log(weights) - 0.5 * (d * jnp.log(2 * jnp.pi) + jnp.log(variances).sum(axis=1)
                + (means ** 2 * precisions).sum(axis=1))
                + X @ (means * precisions).T - 0.5 * (X ** 2 @ precisions.T))
        top = logs.max(axis=1, keepdims=True)
        norm = top + jnp.log(jnp.exp(logs - top).sum(axis=1, keepdims=True))
        R = jnp.exp(logs - norm)
        mass = R.sum(axis=0) + 1e-10
        means = R.T @ X / mass[:, None]
        variances = R.T @ X ** 2 / mass[:, None] - means ** 2 + 1e-6
        return means, variances, mass / n, norm.mean(), last, at + 1

    infinite = jnp.full((), -jnp.inf, X.dtype)
    start = (means, jnp.ones((k, d), X.dtype) * X.var(axis=0), jnp.full(k, 1 / k, X.dtype),
             infinite, infinite, 0)
    means, _, _, likelihood, *_ = lax.while_loop(go, body, start)
    return means, likelihood


@partial(jax.jit, static_argnums=2)
def embedding(P: Any, Y: Any, steps: int = 10, rate: float = 50.0) -> Any:
    """Descend as t-SNE does."""
    n = len(Y)

    def body(step: Any, state: Any) -> Any:
        Y, velocity, _ = state
        squares = (Y ** 2).sum(axis=1)
        num = 1 / (1 + squares[:, None] + squares - 2 * (Y @ Y.T))
        num = num.at[jnp.arange(n), jnp.arange(n)].set(0.0)
        Q = jnp.maximum(num / num.sum(), 1e-12)
        L = (P - Q) * num
        gradient = 4 * (L.sum(axis=1)[:, None] * Y - L @ Y)
        velocity = jnp.where(step < 5, 0.5, 0.8) * velocity - rate * gradient
        Y = Y + velocity
        Y = Y - Y.mean(axis=0)
        return Y, velocity, (P * jnp.log(jnp.maximum(P, 1e-12) / Q)).sum()

    Y, _, divergence = lax.fori_loop(0, steps, body, (Y, jnp.zeros_like(Y), jnp.zeros((), Y.dtype)))
    return Y, divergence
