"""What else programs get beside plain arrays of numbers: dates, text, objects, records, subclasses."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.arrays import Box, array

RECORD = np.dtype([("a", "f8"), ("b", "i4"), ("c", "f4", (2,))])
WORDS = ("a", "bb", "stone", "", "zeta", "mill", "Ob")


class Tagged(np.ndarray):
    """A subclass whose results keep a label."""

    label = "none"

    def __array_finalize__(self, base: Any) -> None:
        self.label = getattr(base, "label", "none")


class Net(Box):
    """An object whose methods, not decorated, change its state."""

    def forward(self, a: Any) -> Any:
        """Remember the last input."""
        self.last = a * self.rate
        return self.last + 1

    def decay(self, by: float = 0.5) -> Any:
        """Replace the state."""
        self.v = by * self.v
        return self.v

    def shift(self, by: Any) -> Net:
        """Change the state in place."""
        self.v -= by
        return self

    @property
    def total(self) -> Any:
        """Return the sum of the state."""
        return self.v.sum()

    @staticmethod
    def squash(a: Any) -> Any:
        """Bound values."""
        return np.clip(a, -1, 1)

    def __call__(self, a: Any) -> Any:
        """Count the calls."""
        self.calls = getattr(self, "calls", 0) + 1
        return a * self.calls


def foreign(kind: str, n: int, m: int, seed: int) -> Any:
    """Make a value of some kind with n cells, or n x m; equal arguments give equal values."""
    return MAKERS[kind](n, m, np.random.default_rng(seed))


def _dates(n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    days = np.datetime64("2020-02-27") + rng.integers(0, 9, n).astype("m8[D]")
    days[rng.random(n) < 0.1] = np.datetime64("NaT")
    return days


def _objects(n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    cells = np.empty(n, object)
    cells[:] = [int(k) if k % 2 else float(k) / 4 for k in rng.integers(-9, 10, n)]
    return cells


def _records(n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    cells = np.zeros(n, RECORD)
    cells["a"], cells["b"] = rng.integers(-8, 9, n) / 4, rng.integers(-3, 4, n)
    cells["c"] = rng.integers(-8, 9, (n, 2)) / 2
    return cells


def _masked(n: int, m: int, rng: np.random.Generator) -> np.ma.MaskedArray:
    return np.ma.array(rng.integers(-8, 9, n) / 4, mask=rng.random(n) < 0.3)


def _tagged(n: int, m: int, rng: np.random.Generator) -> Tagged:
    cells = array((n,), "f8", "C", "nice", int(rng.integers(99))).view(Tagged)
    cells.label = "given"
    return cells


def _sparse(name: str) -> Callable[[int, int, np.random.Generator], Any]:
    def make(n: int, m: int, rng: np.random.Generator) -> Any:
        sparse = importlib.import_module("scipy.sparse")
        cells = rng.integers(-8, 9, (n, m)) / 4 * (rng.random((n, m)) < 0.3)
        return getattr(sparse, name)(cells)

    return make


def _plain(dtype: str) -> Callable[[int, int, np.random.Generator], np.ndarray]:
    return lambda n, m, rng: (rng.integers(-16, 17, n) / 4).astype(dtype)


MAKERS: dict[str, Callable[[int, int, np.random.Generator], Any]] = {
    "dates": _dates,
    "spans": lambda n, m, rng: rng.integers(-40, 90, n).astype("m8[s]"),
    "text": lambda n, m, rng: rng.choice(np.array(WORDS), n),
    "bytes": lambda n, m, rng: rng.choice(np.array(WORDS, "S5"), n),
    "objects": _objects,
    "records": _records,
    "masked": _masked,
    "tagged": _tagged,
    "swapped": _plain(">f8"),
    "long": _plain("g"),
    "half": _plain("f2"),
    "matrix": lambda n, m, rng: np.asmatrix(rng.integers(-8, 9, (n, m)) / 4),
    "csr": _sparse("csr_matrix"),
    "csc": _sparse("csc_array"),
    "coo": _sparse("coo_array"),
    "rows": _sparse("csr_array"),
}
