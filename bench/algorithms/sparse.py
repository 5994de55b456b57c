"""Algorithms on sparse matrices as users of SciPy write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

Array = np.ndarray
EPS = 1e-9


def logistic_regression(X: Any, y: Array, steps: int) -> tuple[Array, float]:
    """Descend along the gradient of the logistic loss; labels are 0 and 1."""
    n, weight = X.shape[0], 1e-4
    rate = 4 * n / X.multiply(X).sum()  # the loss is nowhere more curved than allows it
    w = np.zeros(X.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(X @ w)))
        w = w - rate * (X.T @ (p - y) / n + weight * w)
    z = X @ w
    loss = (np.maximum(z, 0) - y * z + np.log1p(np.exp(-np.abs(z)))).sum() / n
    return w, loss + weight / 2 * (w @ w)


def svm(X: Any, y: Array, steps: int) -> tuple[Array, float]:
    """Fit a support vector machine with squared hinge loss; labels are -1 and 1."""
    weight, inner = 1.0, 5
    w = np.zeros(X.shape[1])
    Xw = np.zeros(X.shape[0])
    g = X.T @ y
    s = g.copy()
    for _ in range(steps):
        Xd = X @ s
        wd, dd, step = weight * (w @ s), weight * (s @ s), 0.0
        for _ in range(inner):
            out = 1 - y * (Xw + step * Xd)
            held = out > 0
            slope = wd + step * dd - (out * held * y * Xd).sum()
            step = step - slope / (dd + (Xd * held * Xd).sum())
        w = w + step * s
        Xw = Xw + step * Xd
        out = np.maximum(1 - y * Xw, 0)
        objective = 0.5 * (out * out).sum() + weight / 2 * (w @ w)
        new = X.T @ (out * y) - weight * w
        s = (new @ new) / (g @ g) * s + new
        g = new
    return w, float(objective)


def pagerank(G: Any, steps: int) -> tuple[Array, float]:
    """Follow links at random; pages without links lead anywhere."""
    n, follow = G.shape[0], 0.85
    links = np.asarray(G.sum(axis=1)).ravel()
    share = np.where(links > 0, 1 / np.maximum(links, 1e-300), 0)
    r = np.full(n, 1 / n)
    for _ in range(steps):
        last = r
        lost = r[links == 0].sum()
        r = follow * (G.T @ (r * share) + lost / n) + (1 - follow) / n
    return r, float(np.abs(r - last).sum())


def nmf(X: Any, W: Array, H: Array, steps: int) -> tuple[Array, Array, float]:
    """Factorise, for least squares, by multiplication; factors are W and H."""
    for _ in range(steps):
        H = H * (X.T @ W).T / (W.T @ W @ H + EPS)
        W = W * (X @ H.T) / (W @ (H @ H.T) + EPS)
    squares = X.multiply(X).sum() - 2 * (W * (X @ H.T)).sum() + ((W.T @ W) * (H @ H.T)).sum()
    return W, H, float(squares)


def nmf_of_counts(X: Any, W: Array, H: Array, steps: int) -> tuple[Array, Array, float]:
    """Factorise, for least divergence after Kullback and Leibler, by multiplication."""
    for _ in range(steps):
        Q = X.multiply(1 / (W @ H + EPS))
        H = H * (Q.T @ W).T / W.sum(axis=0)[:, None]
        Q = X.multiply(1 / (W @ H + EPS))
        W = W * (Q @ H.T) / H.sum(axis=1)
    divergence = W.sum(axis=0) @ H.sum(axis=1) - X.multiply(np.log(W @ H + EPS)).sum()
    return W, H, float(divergence)


def weighted_factors(X: Any, U: Array, V: Array, steps: int) -> tuple[Array, Array, float]:
    """Fit what is rated only, alternating, with conjugate gradients; factors are U and V."""
    weight = 0.1
    rated = X != 0
    for _ in range(steps):
        U = _solved(X, rated, U, V, weight)
        V = _solved(X.T.tocsr(), rated.T.tocsr(), V, U, weight)
    error = rated.multiply(U @ V.T) - X
    loss = error.multiply(error).sum() + weight * ((U * U).sum() + (V * V).sum())
    return U, V, float(loss)


def _solved(X: Any, rated: Any, U: Array, V: Array, weight: float, inner: int = 3) -> Array:
    """Improve U while V stays."""
    R = (X - rated.multiply(U @ V.T)) @ V - weight * U
    S, squares = R, (R * R).sum()
    for _ in range(inner):
        Q = rated.multiply(S @ V.T) @ V + weight * S
        alpha = squares / (S * Q).sum()
        U = U + alpha * S
        R = R - alpha * Q
        before, squares = squares, (R * R).sum()
        S = R + squares / before * S
    return U


@dataclass(frozen=True)
class Algorithm:
    """A function, and how its arguments are made of a matrix of which all entries are positive."""

    name: str
    plain: Callable[..., tuple[Any, ...]]
    arguments: Callable[[Any, np.random.Generator], tuple[Any, ...]]
    steps: int  # in benchmarks


def _labels(low: float) -> Callable[[Any, np.random.Generator], tuple[Any, ...]]:
    def make(X: Any, rng: np.random.Generator) -> tuple[Any, ...]:
        z = X @ rng.standard_normal(X.shape[1])
        return X, np.where(z > np.median(z), 1.0, low)

    return make


def _factors(rank: int, turned: bool) -> Callable[[Any, np.random.Generator], tuple[Any, ...]]:
    def make(X: Any, rng: np.random.Generator) -> tuple[Any, ...]:
        left, right = (rng.uniform(0.1, 1.0, (size, rank)) for size in X.shape)
        return X, left, np.ascontiguousarray(right.T) if turned else right

    return make


def graph(X: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Link rows with columns, and columns with rows."""
    links = (X != 0).astype(np.float64)
    return (type(X)(sp.block_array([[None, links], [links.T, None]], format="csr")),)


RANK = 10
ALGORITHMS = (
    Algorithm("logistic regression", logistic_regression, _labels(0.0), 20),
    Algorithm("L2SVM", svm, _labels(-1.0), 10),
    Algorithm("PageRank", pagerank, graph, 20),
    Algorithm("NMF, Frobenius", nmf, _factors(RANK, True), 10),
    Algorithm("NMF, KL", nmf_of_counts, _factors(RANK, True), 2),
    Algorithm("ALS, weighted", weighted_factors, _factors(RANK, False), 1),
)


def drawn(rows: int, columns: int, density: float, rng: np.random.Generator, kind: type) -> Any:
    """Draw a matrix of positive entries, about as many in every row."""
    counts = rng.binomial(columns, density, rows)
    starts = np.concatenate(([0], np.cumsum(counts)))
    places = np.concatenate([
        np.sort(rng.choice(columns, count, replace=False, shuffle=False)) for count in counts])
    entries = rng.uniform(0.5, 5.0, starts[-1])
    return kind((entries, places.astype(np.int32), starts.astype(np.int32)), shape=(rows, columns))
