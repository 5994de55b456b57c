"""Linear regression for JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


@jax.jit
def solved(X: Any, y: Any, lam: float, steps: int, tol: float) -> Any:
    """Run the iterations."""
    r = -(X.T @ y)
    norm = (r * r).sum()
    target = norm * tol ** 2

    def body(state: Any) -> Any:
        w, r, p, norm, step = state
        q = X.T @ (X @ p) + lam * p
        alpha = norm / (p @ q)
        w = w + alpha * p
        r = r + alpha * q
        last, norm = norm, (r * r).sum()
        return w, r, -r + norm / last * p, norm, step + 1

    w, *_ = lax.while_loop(
        lambda s: (s[3] >= target) & (s[4] < steps), body, (jnp.zeros_like(r), r, -r, norm, 0))
    error = X @ w - y
    return w, (error ** 2).sum() + lam * (w @ w)


def conjugate_gradients(X: Any, y: Any, lam: float = 1e-3, steps: int = 30, tol: float = 1e-12) -> Any:
    """Least squares with a ridge."""
    w, value = solved(X, y, lam, steps, tol)
    return w, float(value)


@jax.jit
def kernel_ridge(X: Any, y: Any, Z: Any, gamma: float = 0.05, lam: float = 1e-2) -> Any:
    """Fit with a Gaussian kernel and predict at `Z`."""
    squares = (X ** 2).sum(axis=1)
    K = jnp.exp(-gamma * (squares[:, None] + squares - 2 * X @ X.T))
    a = jnp.linalg.solve(K + lam * jnp.eye(len(X)), y)
    D = (Z ** 2).sum(axis=1)[:, None] + squares - 2 * Z @ X.T
    return jnp.exp(-gamma * D) @ a, a @ y
