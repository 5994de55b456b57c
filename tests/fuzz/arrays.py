"""Arrays of every layout and kind of value, and the objects that hold them: what programs get."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

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
