"""Functions that are one pass over the rows of a matrix, dense or sparse, or two.

Each gets a matrix, a value for each row and a value for each column.
"""

from __future__ import annotations

import numpy as np


def gram_vector(X, w, v):
    return X.T @ (w * (X @ v))


def logistic(X, w, v):
    p = 1.0 / (1.0 + np.exp(-(X @ v)))
    return X.T @ (p - w) + 0.5 * v, p


def hinge(X, w, v):
    out = np.maximum(1.0 - w * (X @ v), 0.0)
    return 0.5 * (out * out).sum(), -(X.T @ (out * w))


def two_sums(X, w, v):
    return X.T @ w, X.T @ (w * w)


def one_behind_the_other(X, w, v):
    g = X.T @ (w * (X @ v))
    h = X.T @ (w * (X @ g))
    return g, h


def total_between(X, w, v):
    t = X @ v
    return X.T @ (t / t.max()), t
