"""Two classifiers as anybody would write them in NumPy; the demo runs them plain and decorated.

Knows: NumPy. Must not know: jitla.
Receives a feature matrix, labels of -1 and +1 and the weight of the penalty; returns a `Fit`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Fit(NamedTuple):
    """A fitted linear model: weights, objective, and the work it took."""

    w: Array
    objective: float
    outer: int
    inner: int


def line_search(Xw: Array, Xd: Array, y: Array, wd: float, dd: float) -> tuple[float, int]:
    """Step along `Xd` that minimises the squared hinge: Newton on one variable."""
    step = 0.0
    evaluations = 0
    while True:
        out = 1.0 - y * (Xw + step * Xd)
        sv = out > 0
        out = out * sv
        g = wd + step * dd - (out * y * Xd).sum()
        h = dd + (Xd * sv * Xd).sum()
        step = step - g / h
        evaluations += 1
        if g * g / h < 1e-10 or evaluations == 50:
            return step, evaluations


def l2svm(X: Array, y: Array, lam: float = 1.0, tol: float = 1e-6, max_iter: int = 100) -> Fit:
    """L2-regularised support vector machine with squared hinge, by nonlinear conjugate gradients."""
    w = np.zeros(X.shape[1])
    Xw = np.zeros(X.shape[0])
    g_old = X.T @ y
    s = g_old
    inner = 0
    for outer in range(1, max_iter + 1):
        Xd = X @ s
        wd = lam * (w * s).sum()
        dd = lam * (s * s).sum()
        step, evaluations = line_search(Xw, Xd, y, wd, dd)
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


def logistic_loss(Xw: Array, y: Array) -> float:
    """Sum of log(1 + exp(-margin)), safe for large margins."""
    margin = y * Xw
    return (np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0.0)).sum()


def logistic_regression(X: Array, y: Array, lam: float = 1.0, tol: float = 1e-9,
                        max_iter: int = 30) -> Fit:
    """L2-regularised logistic regression by Newton's method with conjugate gradients inside."""
    w = np.zeros(X.shape[1])
    Xw = np.zeros(X.shape[0])
    objective = logistic_loss(Xw, y)
    inner = 0
    for outer in range(1, max_iter + 1):
        p = 1.0 / (1.0 + np.exp(-y * Xw))
        g = X.T @ ((p - 1.0) * y) + lam * w
        h = p * (1.0 - p)
        # conjugate gradients: solve (X'HX + lam I) s = -g
        s = np.zeros_like(w)
        r = -g
        d = r
        rr = (r * r).sum()
        small = 1e-2 * rr
        while rr > small:
            q = X.T @ (h * (X @ d)) + lam * d
            alpha = rr / (d * q).sum()
            s = s + alpha * d
            r = r - alpha * q
            rr_new = (r * r).sum()
            d = r + (rr_new / rr) * d
            rr = rr_new
            inner += 1
        # halve the step until the objective falls enough
        Xs = X @ s
        slope = (g * s).sum()
        step = 1.0
        while True:
            w_new = w + step * s
            Xw_new = Xw + step * Xs
            new = logistic_loss(Xw_new, y) + 0.5 * lam * (w_new * w_new).sum()
            if new <= objective + 1e-4 * step * slope or step < 1e-10:
                break
            step = 0.5 * step
        w, Xw = w_new, Xw_new
        done = objective - new < tol * new
        objective = new
        if done:
            break
    return Fit(w, float(objective), outer, inner)
