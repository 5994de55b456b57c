"""Lloyd's k-means for JAX."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


@partial(jax.jit, static_argnums=2)
def one_run(X: Any, C: Any, steps: int, tol: float) -> Any:
    """From one choice of centres."""
    squares = (X ** 2).sum(axis=1)

    def go(state: Any) -> Any:
        _, cost, last, at = state
        return (at < steps) & ~(last - cost < tol * jnp.abs(cost))

    def body(state: Any) -> Any:
        C, cost, _, at = state
        D = squares[:, None] - 2 * X @ C.T + (C ** 2).sum(axis=1)
        nearest = D.argmin(axis=1)
        counts = jnp.zeros(len(C), X.dtype).at[nearest].add(1)
        sums = jnp.zeros_like(C).at[nearest].add(X)
        C = jnp.where(counts[:, None] > 0, sums / counts[:, None], C)
        return C, D.min(axis=1).sum(), cost, at + 1

    infinite = jnp.full((), jnp.inf, X.dtype)
    return lax.while_loop(go, body, (C, infinite, infinite, 0))[:2]


def kmeans(X: Any, starts: Any, steps: int = 20, tol: float = 1e-6) -> Any:
    """Start at each of `starts` and keep the best."""
    found = [one_run(X, C, steps, tol) for C in starts]
    best, cost = min(found, key=lambda run: float(run[1]))
    return best, float(cost)


@partial(jax.jit, static_argnums=2)
def kmeans_by_membership(X: Any, C: Any, steps: int = 20) -> Any:
    """One run with a matrix of memberships."""

    def body(_: Any, state: Any) -> Any:
        C, _ = state
        D = -2 * (X @ C.T) + (C ** 2).sum(axis=1)
        least = D.min(axis=1)
        cost = least.sum() + (X ** 2).sum()
        P = (D <= least[:, None]).astype(X.dtype)
        P = P / P.sum(axis=1, keepdims=True)
        return (P.T @ X) / P.sum(axis=0)[:, None], cost

    return lax.fori_loop(0, steps, body, (C, jnp.zeros((), X.dtype)))
