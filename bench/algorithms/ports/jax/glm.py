"""Generalised linear models for JAX."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def until_still(step: Any, beta: Any, steps: int, tol: float) -> Any:
    """Repeat `step` until the deviance stays."""

    def go(state: Any) -> Any:
        _, deviance, last, at = state
        return (at < steps) & ~(jnp.abs(last - deviance) < tol * (jnp.abs(deviance) + 0.1))

    def body(state: Any) -> Any:
        beta, deviance, _, at = state
        return *step(beta), deviance, at + 1

    infinite = jnp.full((), jnp.inf, beta.dtype)
    return lax.while_loop(go, body, (beta, infinite, infinite, 0))[:2]


@partial(jax.jit, static_argnums=2)
def poisson(X: Any, y: Any, steps: int = 25, tol: float = 1e-10) -> Any:
    """Counts with a logarithmic link."""

    def step(beta: Any) -> Any:
        eta = X @ beta
        mu = jnp.exp(eta)
        z = eta + (y - mu) / mu
        beta = jnp.linalg.solve(X.T @ (mu[:, None] * X), X.T @ (mu * z))
        mu = jnp.exp(X @ beta)
        ratio = jnp.where(y > 0, y / mu, 1.0)
        return beta, 2 * (y * jnp.log(ratio) - (y - mu)).sum()

    return until_still(step, jnp.zeros(X.shape[1], X.dtype).at[0].set(jnp.log(y.mean())), steps, tol)


@partial(jax.jit, static_argnums=(2, 3))
def binomial(X: Any, y: Any, link: str = "logit", steps: int = 25, tol: float = 1e-10) -> Any:
    """Successes and failures."""

    def step(beta: Any) -> Any:
        eta = X @ beta
        if link == "logit":
            mu = 1 / (1 + jnp.exp(-eta))
            slope = mu * (1 - mu)
        elif link == "cauchit":
            mu = 0.5 + jnp.arctan(eta) / jnp.pi
            slope = 1 / (jnp.pi * (1 + eta ** 2))
        else:
            e = jnp.exp(eta)
            mu = 1 - jnp.exp(-e)
            slope = e * jnp.exp(-e)
        mu = jnp.clip(mu, 1e-10, 1 - 1e-10)
        w = slope ** 2 / (mu * (1 - mu))
        z = eta + (y - mu) / jnp.maximum(slope, 1e-10)
        beta = jnp.linalg.solve((X * w[:, None]).T @ X, X.T @ (w * z))
        return beta, -2 * (y * jnp.log(mu) + (1 - y) * jnp.log(1 - mu)).sum()

    return until_still(step, jnp.zeros(X.shape[1], X.dtype), steps, tol)
