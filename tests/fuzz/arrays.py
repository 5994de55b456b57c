"""Arrays of every layout and kind, other values, and the objects that hold them: arguments of programs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

# Arrays, and the objects that hold them

LAYOUTS = ("C", "F", "sliced", "reversed", "permuted", "broadcast", "readonly", "offset", "unaligned")
ROW = 1 << 14
VALUES = ("nice", "uniform", "normal", "wide", "special")
SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-310, 1e300, 1.0, -1.0, 0.5, 2.0**53)


class Box:
    """An object with attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def array(
    shape: tuple[int, ...], dtype: str = "f8", layout: str = "C", values: str = "nice", seed: int = 0
) -> np.ndarray:
    """Make an array; equal arguments give equal arrays, in memory of their own."""
    return _lay_out(_cells(tuple(shape), dtype, values, seed).copy(), layout)


def window(
    shape: tuple[int, ...], dtype: str = "f8", layout: str = "C", values: str = "nice", seed: int = 0
) -> np.ndarray:
    """Make an array as `array` does, soon: its cells stand somewhere in a row drawn once."""
    size = prod(shape)
    if size >= ROW:
        cells = np.resize(_row(dtype, values), shape).copy()
    else:
        start = seed * 7919 % (ROW - size)
        cells = _row(dtype, values)[start : start + size].reshape(shape).copy()
    return _lay_out(cells, layout)


@lru_cache(None)
def _row(dtype: str, values: str) -> np.ndarray:
    return _cells((ROW,), dtype, values, 1)


# Both sides of a comparison make the same arrays.
@lru_cache(256)
def _cells(shape: tuple[int, ...], name: str, values: str, seed: int) -> np.ndarray:
    rng, dtype = np.random.default_rng(seed), np.dtype(name)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        if values == "special":
            info = np.iinfo(dtype)
            return rng.choice(np.array([info.min, info.max, 0, 1, 2], dtype), shape)
        return rng.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype)
    with np.errstate(over="ignore"):
        cells = np.asarray(_floats(rng, shape, values)).astype(dtype)
        if dtype.kind == "c":
            cells.imag = _floats(rng, shape, values)
        return cells


def _floats(rng: np.random.Generator, shape: tuple[int, ...], values: str) -> np.ndarray:
    if values == "nice":
        return rng.integers(-16, 17, shape) / 4.0
    if values == "uniform":
        return rng.uniform(0.1, 2.0, shape)
    if values == "wide":
        return rng.standard_normal(shape) * 10.0 ** rng.integers(-8, 9, shape)
    cells = rng.standard_normal(shape)
    if values == "special":
        return np.where(rng.random(shape) < 0.15, rng.choice(SPECIALS, shape), cells)
    return cells


def _lay_out(cells: np.ndarray, layout: str) -> np.ndarray:
    if cells.ndim == 0 or layout == "C":
        return cells
    if layout == "F":
        return np.asfortranarray(cells)
    if layout == "sliced":
        room = np.zeros((*cells.shape[:-1], 2 * cells.shape[-1] + 1), cells.dtype)
        view = room[..., 1::2]
    elif layout == "offset":
        room = np.zeros((*cells.shape[:-1], cells.shape[-1] + 3), cells.dtype)
        view = room[..., 2:-1]
    elif layout == "reversed":
        view = np.zeros(cells.shape, cells.dtype)[(slice(None, None, -1),) * cells.ndim]
    elif layout == "permuted":
        axes = (*range(1, cells.ndim), 0)
        room = np.zeros(tuple(cells.shape[a] for a in axes), cells.dtype)
        view = room.transpose(cells.ndim - 1, *range(cells.ndim - 1))
    elif layout == "broadcast":
        first = cells[:1].copy() if cells.shape[0] else cells
        return np.broadcast_to(first, cells.shape)
    elif layout == "unaligned":
        room = np.zeros(cells.nbytes + 1, np.uint8)
        view = room[1:].view(cells.dtype).reshape(cells.shape)
    else:
        cells.flags.writeable = False
        return cells
    view[...] = cells
    return view


# Dates, text, objects, records, subclasses

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
