"""Linear classifiers for JAX."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def improved(X: Any, Y: Any, P: Any, B: Any, lam: float, inner: int, delta: Any) -> Any:
    """Conjugate gradients within the region."""
    n = X.shape[0]
    G = X.T @ (P - Y) / n + lam * B

    def body(state: Any) -> Any:
        S, R, D, rr, step, _ = state
        Q = P * (X @ D)
        HD = X.T @ (Q - P * Q.sum(axis=1, keepdims=True)) / n + lam * D
        alpha = rr / (D * HD).sum()
        S_new = S + alpha * D
        outside = jnp.sqrt((S_new ** 2).sum()) > delta
        dd, sd, ss = (D * D).sum(), (S * D).sum(), (S * S).sum()
        reach = (jnp.sqrt(sd ** 2 + dd * (delta ** 2 - ss)) - sd) / dd
        alpha = jnp.where(outside, reach, alpha)
        R = R - alpha * HD
        rr_new = (R * R).sum()
        go = ~outside & (rr_new >= 1e-12)
        return S + alpha * D, R, R + rr_new / rr * D, rr_new, step + 1, go

    start = (jnp.zeros_like(B), -G, -G, (G * G).sum(), 0, True)
    S, R, *_ = lax.while_loop(lambda s: s[5] & (s[4] < inner), body, start)
    return S, -0.5 * ((S * G).sum() - (S * R).sum())


def probabilities(X: Any, Y: Any, B: Any, lam: float) -> Any:
    """Of the classes, and the loss."""
    scores = X @ B
    P = jnp.exp(scores - scores.max(axis=1, keepdims=True))
    P = P / P.sum(axis=1, keepdims=True)
    return P, -(Y * jnp.log(P)).sum() / X.shape[0] + 0.5 * lam * (B ** 2).sum()


@partial(jax.jit, static_argnums=(3, 4))
def fitted(X: Any, Y: Any, lam: float, steps: int, inner: int) -> Any:
    """Run the iterations."""

    def body(_: Any, state: Any) -> Any:
        B, P, loss, delta = state
        S, predicted = improved(X, Y, P, B, lam, inner, delta)
        P_new, loss_new = probabilities(X, Y, B + S, lam)
        rho = (loss - loss_new) / predicted
        good = rho > 1e-4
        B, P, loss = jnp.where(good, B + S, B), jnp.where(good, P_new, P), jnp.where(good, loss_new, loss)
        delta = jnp.where(rho < 0.25, delta * 0.5, jnp.where(rho > 0.75, delta * 2.0, delta))
        return B, P, loss, delta

    B = jnp.zeros((X.shape[1], Y.shape[1]), X.dtype)
    return lax.fori_loop(0, steps, body, (B, *probabilities(X, Y, B, lam), jnp.ones((), X.dtype)))


def multinomial(X: Any, Y: Any, lam: float = 1e-3, steps: int = 10, inner: int = 10) -> Any:
    """Several classes."""
    B, _, loss, _ = fitted(X, Y, lam, steps, inner)
    return B, float(loss)


@partial(jax.jit, static_argnums=3)
def svm_of_classes(X: Any, Y: Any, lam: float = 1e-2, steps: int = 30) -> Any:
    """One squared hinge for each class."""
    n, m = X.shape
    rate = 1 / (lam + (X ** 2).sum() / n)

    def body(_: Any, state: Any) -> Any:
        W, V, t, _ = state
        out = jnp.maximum(1 - Y * (X @ V), 0)
        G = lam * V - X.T @ (Y * out) / n
        W_new = V - rate * G
        t_new = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
        V = W_new + (t - 1) / t_new * (W_new - W)
        return W_new, V, t_new, 0.5 * (out ** 2).sum() / n + 0.5 * lam * (V ** 2).sum()

    W = jnp.zeros((m, Y.shape[1]), X.dtype)
    one = jnp.ones((), X.dtype)
    W, _, _, objective = lax.fori_loop(0, steps, body, (W, W, one, one))
    return W, objective


@partial(jax.jit, static_argnums=2)
def naive_bayes(X: Any, labels: Any, k: int) -> Any:
    """Gaussian naive Bayes."""
    n = X.shape[0]
    means, variances, scores = [], [], []
    for c in range(k):
        of = (labels == c).astype(X.dtype)
        count = of.sum()
        mean = of @ X / count
        means.append(mean)
        variances.append(of @ (X - mean) ** 2 / count + 1e-9)
        scores.append(jnp.log(count / n) - 0.5 * (
            jnp.log(2 * jnp.pi * variances[c]) + (X - mean) ** 2 / variances[c]).sum(axis=1))
    table = jnp.stack(scores, axis=1)
    top = table.max(axis=1)
    evidence = top + jnp.log(jnp.exp(table - top[:, None]).sum(axis=1))
    return jnp.stack(means), evidence.mean()
