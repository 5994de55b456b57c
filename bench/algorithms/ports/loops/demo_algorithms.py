"""The support vector machine as loops for Numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(parallel=True)
def _search(Xw, Xd, y, wd, dd):  # type: ignore[no-untyped-def]
    step = 0.0
    evaluations = 0
    searching = True
    while searching:
        g, h = wd + step * dd, dd
        for i in numba.prange(len(y)):
            out = 1.0 - y[i] * (Xw[i] + step * Xd[i])
            if out > 0:
                g -= out * y[i] * Xd[i]
                h += Xd[i] * Xd[i]
        step = step - g / h
        evaluations += 1
        searching = g * g / h > 1e-10 and evaluations < 50
    return step, evaluations


@numba.njit(parallel=True)
def _move(Xw, Xd, y, step, out):  # type: ignore[no-untyped-def]
    loss = 0.0
    for i in numba.prange(len(y)):
        Xw[i] += step * Xd[i]
        left = max(1.0 - y[i] * Xw[i], 0.0)
        loss += left * left
        out[i] = left * y[i]
    return loss


@numba.njit
def l2svm(X: Any, y: Any, lam: float = 1.0, tol: float = 1e-6, max_iter: int = 100) -> Any:
    """Linear support vector machine."""
    w = np.zeros(X.shape[1], X.dtype)
    Xw, out = np.zeros(X.shape[0], X.dtype), np.empty(X.shape[0], X.dtype)
    g_old = np.dot(y, X)
    s = g_old
    objective = 0.0
    for outer in range(max_iter):
        Xd = np.dot(X, s)
        step, evaluations = _search(Xw, Xd, y, lam * np.dot(w, s), lam * np.dot(s, s))
        w = w + step * s
        loss = _move(Xw, Xd, y, step, out)
        objective = 0.5 * loss + 0.5 * lam * np.dot(w, w)
        g_new = np.dot(out, X) - lam * w
        if step * np.dot(s, g_old) < tol * objective:
            break
        s = np.dot(g_new, g_new) / np.dot(g_old, g_old) * s + g_new
        g_old = g_new
    return w, objective
