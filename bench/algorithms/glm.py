"""Generalised linear models by iteratively reweighted least squares."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def poisson(X: Array, y: Array, steps: int = 25, tol: float = 1e-10) -> tuple[Array, float]:
    """Counts with a logarithmic link."""
    beta = np.zeros(X.shape[1])
    beta[0] = np.log(y.mean())
    deviance = np.inf
    for _ in range(steps):
        eta = X @ beta
        mu = np.exp(eta)
        z = eta + (y - mu) / mu
        H = X.T @ (mu[:, None] * X)
        beta = np.linalg.solve(H, X.T @ (mu * z))
        last = deviance
        mu = np.exp(X @ beta)
        ratio = np.where(y > 0, y / mu, 1.0)
        deviance = 2 * (y * np.log(ratio) - (y - mu)).sum()
        if abs(last - deviance) < tol * (abs(deviance) + 0.1):
            break
    return beta, float(deviance)


def binomial(X: Array, y: Array, link: str = "logit", steps: int = 25,
             tol: float = 1e-10) -> tuple[Array, float]:
    """Successes and failures; links are logit, cauchit and cloglog."""
    beta = np.zeros(X.shape[1])
    deviance = np.inf
    for _ in range(steps):
        eta = X @ beta
        if link == "logit":
            mu = 1 / (1 + np.exp(-eta))
            slope = mu * (1 - mu)
        elif link == "cauchit":
            mu = 0.5 + np.arctan(eta) / np.pi
            slope = 1 / (np.pi * (1 + eta ** 2))
        else:
            e = np.exp(eta)
            mu = 1 - np.exp(-e)
            slope = e * np.exp(-e)
        mu = np.clip(mu, 1e-10, 1 - 1e-10)
        w = slope ** 2 / (mu * (1 - mu))
        z = eta + (y - mu) / np.maximum(slope, 1e-10)
        beta = np.linalg.solve((X * w[:, np.newaxis]).T @ X, X.T @ (w * z))
        last, deviance = deviance, -2 * (y * np.log(mu) + (1 - y) * np.log(1 - mu)).sum()
        if abs(last - deviance) < tol * (abs(deviance) + 0.1):
            break
    return beta, float(deviance)


def counts(rows: int, dtype: Any, rng: np.random.Generator, columns: int = 50) -> tuple[Any, ...]:
    """Return features, the first of them ones, and counts that depend on them."""
    X = rng.standard_normal((rows, columns))
    X[:, 0] = 1.0
    y = rng.poisson(np.exp(X @ (rng.standard_normal(columns) * 0.1) + 0.5))
    return X.astype(dtype), y.astype(dtype)


def successes(rows: int, dtype: Any, rng: np.random.Generator, columns: int = 50) -> tuple[Any, ...]:
    """Return features and a success or failure for each row."""
    X = rng.standard_normal((rows, columns))
    y = rng.random(rows) < 1 / (1 + np.exp(-(X @ (rng.standard_normal(columns) * 0.2))))
    return X.astype(dtype), y.astype(dtype)
