"""Entries of one sparse matrix at the positions of another: noise decides, too, which sums vanish."""

from __future__ import annotations

from typing import Any

import numpy as np

Parts = dict[str, Any]


def placed(path: str, mine: Parts, other: Parts) -> np.ndarray | None:
    """Return entries of `other`, 0 where it has none; None if it is not known which are which."""
    matrix, found, _ = path.rpartition(".data")
    if not found:
        return None
    here, there = _positions(matrix, mine), _positions(matrix, other)
    if here is None or there is None or len(np.unique(there)) < len(there):
        return None
    values, order = np.asarray(other[f"{matrix}.data"]), np.argsort(there)
    if values.shape != there.shape:
        return None
    at = np.searchsorted(there, here, sorter=order)
    known = at < len(there)
    known[known] = there[order[at[known]]] == here[known]
    result = np.zeros(here.shape, values.dtype)
    result[known] = values[order[at[known]]]
    return result


def _positions(matrix: str, parts: Parts) -> np.ndarray | None:
    """Return one number for the position of each entry."""
    along, starts = parts.get(f"{matrix}.indices"), parts.get(f"{matrix}.indptr")
    if starts is not None and np.ndim(along) == 1 and np.all(np.diff(starts) >= 0):
        lines = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    else:
        lines, along = parts.get(f"{matrix}.coords[0]"), parts.get(f"{matrix}.coords[1]")
    if lines is None or along is None or np.shape(lines) != np.shape(along):
        return None
    return np.asarray(lines, np.int64) << 32 | np.asarray(along, np.int64)
