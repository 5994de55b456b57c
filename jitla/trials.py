"""A few functions of the usual kinds, timed plain and decorated in turn: does it pay here?

Knows: NumPy, the clock, the public interface. Must not know: rooms.
Receives sizes and seconds; returns what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from jitla.api import jit

__all__ = ["SIZES", "Trial", "trials"]

SIZES = 100_000
COLUMNS = 20
Array = np.ndarray[Any, Any]


class Trial(NamedTuple):
    """What a function took: plain and decorated, medians of calls in turn, and decorated at first."""

    name: str
    plain: float
    fast: float
    first: float


def _standardise(X: Array, y: Array, w: Array) -> Array:
    made: Array = (X - X.mean(axis=0)) / X.std(axis=0)
    return made


def _logistic(X: Array, y: Array, w: Array) -> Array:
    p = 1.0 / (1.0 + np.exp(-(X @ w)))
    made: Array = X.T @ (p - y)
    return made


def _softmax(X: Array, y: Array, w: Array) -> Array:
    e = np.exp(X - X.max(axis=1, keepdims=True))
    made: Array = e / e.sum(axis=1, keepdims=True)
    return made


def _hinge(X: Array, y: Array, w: Array) -> tuple[Any, Array]:
    out = np.maximum(1.0 - y * (X @ w), 0.0)
    return 0.5 * (out * out).sum(), -(X.T @ (out * y))


def _distances(X: Array, y: Array, w: Array) -> Array:
    made: Array = np.sqrt(((X - w) ** 2).sum(axis=1))
    return made


def _polynomial(X: Array, y: Array, w: Array) -> Array:
    return 1.0 + y * (2.0 + y * (3.0 + y * (4.0 + y * 5.0)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "standardise": _standardise, "logistic": _logistic, "softmax": _softmax, "hinge": _hinge,
    "distances": _distances, "polynomial": _polynomial}


def trials(rows: int, seconds: float) -> Iterator[Trial]:
    """Yield what every function takes on matrices of so many rows, for about so many seconds each."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(rows, COLUMNS))
    args = X, (X[:, 0] > 0) * 1.0, 0.1 * rng.normal(size=COLUMNS)
    for name, function in FUNCTIONS.items():
        fast = jit(function, compile="sync")
        first = _timed(fast, args)
        pairs: list[tuple[float, float]] = []
        end = perf_counter() + seconds
        while not pairs or perf_counter() < end:
            pairs.append((_timed(function, args), _timed(fast, args)))
        plain, quick = (median(column) for column in zip(*pairs, strict=True))
        yield Trial(name, plain, quick, first)


def _timed(function: Callable[..., Any], args: tuple[Any, ...]) -> float:
    start = perf_counter()
    function(*args)
    return perf_counter() - start
