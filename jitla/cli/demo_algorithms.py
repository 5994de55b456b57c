"""Two linear classifiers in plain NumPy; the demo runs them with and without jitla.

Programs of a user, as far as jitla is concerned: the file has nothing else, and benchmarks run it, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Fit(NamedTuple):
    """A fitted linear model: weights, objective, and the numbers of outer and inner iterations."""

    w: Array
    objective: float
    outer: int
    inner: int


def hinge_search(Xw: Array, Xd: Array, y: Array, wd: float, dd: float) -> tuple[float, int]:
    """Return the step along `Xd` that minimises the squared hinge loss, by Newton's method."""
    step = 0.0
    evaluations = 0
    searching = True
    while searching:
        out = 1.0 - y * (Xw + step * Xd)
        sv = out > 0
        out = out * sv
        g = wd + step * dd - (out * y * Xd).sum()
        h = dd + (Xd * sv * Xd).sum()
        step = step - g / h
        evaluations += 1
        searching = g * g / h > 1e-10 and evaluations < 50
    return step, evaluations


def l2svm(X: Array, y: Array, lam: float = 1.0, tol: float = 1e-6, max_iter: int = 100) -> Fit:
    """Fit a linear support vector machine with squared hinge loss and L2 penalty by conjugate gradients."""
    w = np.zeros(X.shape[1])
    Xw = np.zeros(X.shape[0])
    g_old = X.T @ y
    s = g_old
    inner = 0
    for outer in range(1, max_iter + 1):
        Xd = X @ s
        wd = lam * (w * s).sum()
        dd = lam * (s * s).sum()
        step, evaluations = hinge_search(Xw, Xd, y, wd, dd)
        inner += evaluations
        w = w + step * s
        Xw = Xw + step * Xd
        out = 1.0 - y * Xw
        out = out * (out > 0)
        objective = 0.5 * (out * out).sum() + 0.5 * lam * (w * w).sum()
        g_new = X.T @ (out * y) - lam * w
        if step * (s * g_old).sum() < tol * objective:
            break
        beta = (g_new * g_new).sum() / (g_old * g_old).sum()
        s = beta * s + g_new
        g_old = g_new
    return Fit(w, float(objective), outer, inner)


def logistic_search(Xw: Array, Xd: Array, y: Array, wd: float, dd: float) -> tuple[float, int]:
    """Return the step along `Xd` that minimises the logistic loss, by Newton's method."""
    step = 0.0
    evaluations = 0
    searching = True
    while searching:
        p = 1.0 / (1.0 + np.exp(y * (Xw + step * Xd)))
        g = wd + step * dd - (p * y * Xd).sum()
        h = dd + (p * (1.0 - p) * Xd * Xd).sum()
        step = step - g / h
        evaluations += 1
        searching = g * g / h > 1e-10 and evaluations < 50
    return step, evaluations


def logistic(X: Array, y: Array, lam: float = 1.0, tol: float = 1e-6, max_iter: int = 100) -> Fit:
    """Fit a logistic regression with L2 penalty by conjugate gradients."""
    w = np.zeros(X.shape[1])
    Xw = np.zeros(X.shape[0])
    g_old = X.T @ (0.5 * y)
    s = g_old
    inner = 0
    for outer in range(1, max_iter + 1):
        Xd = X @ s
        wd = lam * (w * s).sum()
        dd = lam * (s * s).sum()
        step, evaluations = logistic_search(Xw, Xd, y, wd, dd)
        inner += evaluations
        w = w + step * s
        Xw = Xw + step * Xd
        margin = y * Xw
        # log(1 + exp(-margin)) without overflow
        loss = np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0.0)
        objective = loss.sum() + 0.5 * lam * (w * w).sum()
        g_new = X.T @ (y / (1.0 + np.exp(margin))) - lam * w
        if step * (s * g_old).sum() < tol * objective:
            break
        beta = (g_new * g_new).sum() / (g_old * g_old).sum()
        s = beta * s + g_new
        g_old = g_new
    return Fit(w, float(objective), outer, inner)
