"""Noise for sparse matrices of SciPy: results as wrong as is allowed to compiled code."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

# Products, sums and functions of entries with noise

ULPS = 3
Draw = Callable[[tuple[int, ...]], Any]  # draws, for a shape, numbers from -1 to 1
# Methods whose entries are not rounded as NumPy rounds.
SMOOTH = frozenset(
    "power expm1 log1p sin sinh tan tanh arcsin arcsinh arctan arctanh".split()
)


def is_sparse(*operands: Any) -> bool:
    """Say whether a sparse matrix is among some operands."""
    return any(map(sp.issparse, operands))


def times(left: Any, right: Any, draw: Draw) -> Any:
    """Do ``left * right``: a product of matrices if one is of the old classes and none a number."""
    old = any(isinstance(x, sp.spmatrix) for x in (left, right))
    if old and np.ndim(left) and np.ndim(right):
        return product(left, right, draw, operator.mul)
    return left * right


def power(left: Any, right: Any, draw: Draw) -> Any:
    """Do ``left ** right``: products of matrices in the old classes."""
    result = left**right
    if right in (1, 2) and not isinstance(left, sp.spmatrix):
        return result
    scale = np.abs(entries(result)).max(initial=0) if isinstance(left, sp.spmatrix) else None
    return _moved(result, _bound(result, scale, 4 * left.shape[0]), draw)


def entrywise(name: str, x: Any, given: tuple[Any, ...], draw: Draw) -> Any:
    """Do ``x.name(...)``, a function of each entry."""
    result = getattr(x, name)(*given)
    if name == "power" and given and given[0] in (1, 2) or not is_sparse(result):
        return result
    return _moved(result, _bound(result, None, ULPS), draw)


def product(left: Any, right: Any, draw: Draw, function: Callable[..., Any] = operator.matmul) -> Any:
    """Multiply matrices; what is added up may be added in another order."""
    result = function(left, right)
    if not np.ndim(left) or not np.ndim(right):  # `dot` with a number: entries are rounded as usual
        return result
    length = np.shape(left)[-1]
    with np.errstate(all="ignore"):
        sizes = function(_sizes(left), _sizes(right))
    return _moved(result, _bound(result, sizes, 2 * length), draw)


def total(x: Any, name: str, given: tuple[Any, ...], options: dict[str, Any], draw: Draw) -> Any:
    """Do ``x.sum(...)`` or ``x.mean(...)``; entries may be added in another order."""
    result = getattr(x, name)(*given, **options)
    cells = entries(x)
    if cells.dtype.kind == "f" and np.isposinf(cells).any() and np.isneginf(cells).any():
        np.add.reduce(cells[np.isinf(cells)])  # warns, unless a NaN is met before
    with np.errstate(all="ignore"):
        sizes = getattr(_sizes(x), name)(*given, **options)
    return _moved(result, _bound(result, sizes, 2 * max(x.nnz, 1)), draw)


def keeps_order(x: Any, name: str, given: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Say whether ``x.sum(...)`` or ``x.mean(...)`` adds entries as they lie: in SciPy's order, whoever does.

    A sum along an axis is else a product with ones, as every mean along one is; before it adds up all
    entries SciPy sorts them, and adds up those at one position.
    """
    axis = given[0] if given else options.get("axis")
    if axis is not None:
        return name == "sum" and axis in {"csr": (1, -1), "csc": (0, -2)}.get(x.format, ())
    if x.format not in ("csr", "csc", "coo"):
        return True
    found = x.copy()
    found.sum_duplicates()
    return bool(found.data.tobytes() == x.data.tobytes())


def entries(x: Any) -> np.ndarray:
    """Return the numbers that a result is made of."""
    return np.asarray(x.data if sp.issparse(x) else x)


def _sizes(x: Any) -> Any:
    """Return finite magnitudes as floats: what is not finite stays so, whatever the order."""
    if not sp.issparse(x):
        return np.where(np.isfinite(x), np.abs(np.multiply(x, 1.0)), 0)
    plain = x if x.format in ("csr", "csc", "coo") else x.tocsr()
    sizes = plain.astype(np.result_type(x.dtype, "f8"))  # abs(x) would add up entries at one position first
    sizes.data = np.where(np.isfinite(sizes.data), np.abs(sizes.data), 0)
    return sizes


def _bound(result: Any, sizes: Any, steps: int) -> Any:
    """Say how far from SciPy's an element may be: so many roundings of what has these sizes."""
    cells = entries(result)
    if cells.dtype.kind not in "fc":
        return None
    if sizes is None:
        sizes = np.abs(cells)
    elif sp.issparse(result):  # positions may differ: the largest for all
        sizes = np.full(cells.shape, np.abs(entries(sizes)).max(initial=0))
    else:
        sizes = np.asarray(sizes.toarray() if sp.issparse(sizes) else sizes).reshape(cells.shape)
    with np.errstate(all="ignore"):
        return sizes * (steps * np.finfo(cells.dtype).eps)


def _moved(result: Any, bound: Any, draw: Draw) -> Any:
    """Return a result with noise; where sums may overflow on the way, anything."""
    if bound is None:
        return result
    cells = entries(result)
    with np.errstate(all="ignore"):
        nudge = np.where(np.isfinite(bound), bound, 0) * draw(cells.shape)
        shaken = np.asarray(cells + (nudge if cells.dtype.kind == "f" else nudge * (1 + 1j)))
        shaken = shaken.astype(cells.dtype)
        strange = ~np.isfinite(np.asarray(bound).astype(cells.real.dtype)) & np.isfinite(cells)
        shaken = np.where(strange, np.nan, shaken)
    if sp.issparse(result):
        found = result.copy()
        found.data = shaken.astype(cells.dtype).reshape(found.data.shape)
        return found
    if isinstance(result, np.ndarray):
        found = np.empty_like(result)
        found[...] = shaken.reshape(result.shape)
        return found if result.flags.owndata else found.view()
    return type(result)(shaken[()]) if isinstance(result, np.generic) else result


# Entries of one matrix at the positions of another: which sums vanish depends on noise.

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
