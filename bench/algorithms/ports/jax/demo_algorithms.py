"""The support vector machine for JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def hinge_search(Xw: Any, Xd: Any, y: Any, wd: Any, dd: Any) -> Any:
    """Step along `Xd`."""

    def body(state: Any) -> Any:
        step, evaluations, _ = state
        out = 1.0 - y * (Xw + step * Xd)
        sv = out > 0
        out = out * sv
        g = wd + step * dd - (out * y * Xd).sum()
        h = dd + (Xd * sv * Xd).sum()
        step = step - g / h
        evaluations += 1
        return step, evaluations, (g * g / h > 1e-10) & (evaluations < 50)

    return lax.while_loop(lambda state: state[2], body, (jnp.zeros((), Xw.dtype), 0, True))[:2]


@jax.jit
def fitted(X: Any, y: Any, lam: float, tol: float, max_iter: int) -> Any:
    """Run the iterations."""
    g = X.T @ y

    def body(state: Any) -> Any:
        w, Xw, g_old, s, _, outer, inner, _ = state
        Xd = X @ s
        wd = lam * (w * s).sum()
        dd = lam * (s * s).sum()
        step, evaluations = hinge_search(Xw, Xd, y, wd, dd)
        w = w + step * s
        Xw = Xw + step * Xd
        out = 1.0 - y * Xw
        out = out * (out > 0)
        objective = 0.5 * (out * out).sum() + 0.5 * lam * (w * w).sum()
        g_new = X.T @ (out * y) - lam * w
        go = step * (s * g_old).sum() >= tol * objective
        beta = (g_new * g_new).sum() / (g_old * g_old).sum()
        return w, Xw, g_new, beta * s + g_new, objective, outer + 1, inner + evaluations, go

    start = (jnp.zeros_like(g), jnp.zeros_like(y), g, g, jnp.zeros((), X.dtype), 0, 0, True)
    return lax.while_loop(lambda state: state[7] & (state[5] < max_iter), body, start)


def l2svm(X: Any, y: Any, lam: float = 1.0, tol: float = 1e-6, max_iter: int = 100) -> Any:
    """Linear support vector machine."""
    w, _, _, _, objective, *_ = fitted(X, y, lam, tol, max_iter)
    return w, float(objective)
