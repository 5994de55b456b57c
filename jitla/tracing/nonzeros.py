"""Products of dense matrices in memory that are mostly zero: recorded over what is not, where that pays.

Knows: how few elements are looked at to guess how many are 0, what products take. Must not know: when a form
is made, how writes are noted, loops, plans.
Receives operands of a product; returns its proxy, or NotImplemented: it is a product of dense matrices.

Zeros are left out as `jitla.sparsify` does it: only of matrices that are finite, and where the other factor,
which is computed for that, is finite and so small that no sum can overflow. -0.0 is an element like others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from jitla.tracing.array import LazyArray
from jitla.tracing.enacting import address
from jitla.tracing.forms import MOST, Way, form_of
from jitla.tracing.keeping import owner_of
from jitla.tracing.skipping import (
    BEGUN,
    MOST_COLUMNS,
    MULTIPLIED,
    MULTIPLIED_LOOP,
    READ,
    READ_LOOP,
    greatest,
    is_silent,
)

#: Elements: smaller matrices are multiplied before they are looked at.
LARGE = 1 << 19
LOOKED, GOLDEN = 512, 0.6180339887498949  # elements that are looked at, and how far apart, of all of them
ADDED = 0.5  # nanoseconds more of an element that is added to what is elsewhere
#: Nanoseconds of an element, and of one that is not 0, that finding them takes.
FOUND, KEPT = 2.6, 10.0
LOADED = 1e8  # nanoseconds that loading SciPy's matrices takes
SHARED = 0.5  # part of the reading of a matrix that a product pays: two of them read it once
_BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}
_MOST = int(np.iinfo(np.int32).max)

# By memory: who owns it, how often it was used, the share found to be other than 0.
_seen: dict[tuple[Any, ...], tuple[Any, int, float]] = {}


def product_of_nonzeros(session: Any, x: LazyArray, y: LazyArray) -> Any:
    """Record ``x @ y`` without the zeros of one, if that is worth it and sure to be the same."""
    if session.site.keeper is None or session.site.bitwise:
        return NotImplemented
    left = x.ndim == 2 and x._v is not None and (
        y.ndim == 1 or y.ndim == 2 and 1 < y.shape[1] <= MOST_COLUMNS)
    if not left and (y.ndim != 2 or x.ndim != 1 or y._v is None):
        return NotImplemented
    matrix, other = (x._v, y) if left else (y._v.T, x)
    if matrix.size < LARGE or matrix.dtype not in _BITS or matrix.dtype != other.dtype or \
            matrix.shape[1] != other.shape[0] or not matrix.flags.forc or matrix.size > _MOST:
        return NotImplemented
    found = _found(session.site, matrix, other.size // max(matrix.shape[1], 1))
    if found is None or not is_silent(
            found[3], greatest(session.value(other)), matrix.shape[1], matrix.dtype):
        return NotImplemented
    data, places, starts = map(session.argument, found[:3])
    operands = data, places, starts, other
    if matrix.flags.c_contiguous:
        return session.traced("csr_vector" if other.ndim == 1 else "csr_product", operands)
    name = "csr_transposed_vector" if other.ndim == 1 else "csr_transposed_product"
    return session.traced(name, operands, (("width", matrix.shape[0]),))


def _found(site: Any, matrix: np.ndarray, columns: int) -> tuple[Any, ...] | None:
    """Return entries, places, starts and the greatest of a matrix, if they are kept or made now."""
    share = _share(matrix)
    across = not matrix.flags.c_contiguous
    each = READ_LOOP + ADDED * across + MULTIPLIED_LOOP * columns
    most = max(SHARED * READ, MULTIPLIED * columns) / each  # of which leaving out zeros pays
    saves = matrix.size * (most - share) * each - BEGUN
    if saves <= 0.0:
        return None
    lines = matrix.T if across else matrix
    costs = matrix.size * (FOUND + share * KEPT) + LOADED * ("scipy.sparse" not in sys.modules)
    make = partial(_made, lines, most * matrix.size, site.keeper.ready)
    way = Way("nonzeros", saves, costs, make, "compressed rows of dense", lines.shape)
    form = form_of(site, (lines,), [way])
    return None if form is None else form.value


def _share(matrix: np.ndarray) -> float:
    """Return about which part of the elements is not 0: all of a matrix that is met for the first time.

    Some are looked at whenever it has been met twice as often.
    """
    key, owner = (address(matrix), matrix.shape, matrix.strides, matrix.dtype.char), owner_of(matrix)
    known, met, share = _seen.get(key, (None, 0, 1.0))
    if known is None or known() is not owner:
        if known is None and len(_seen) >= MOST:
            del _seen[next(iter(_seen))]
        known, met, share = ref(owner), 0, 1.0
    met += 1
    if met > 1 and not met & met - 1:
        elements = matrix.ravel("K")
        at = (np.arange(LOOKED) * GOLDEN % 1.0 * elements.size).astype(np.intp)
        share = np.count_nonzero(elements[at].view(_BITS[matrix.dtype])) / LOOKED
    _seen[key] = known, met, share
    return share


def _made(
    lines: np.ndarray, limit: float, ready: Callable[[], Any]
) -> tuple[tuple[Any, ...], int] | None:
    """Return what is stored of a matrix in C order, and its bytes; None if it is too much, or not finite."""
    elements = lines.reshape(-1)
    bits = elements.view(_BITS[lines.dtype])
    if np.count_nonzero(bits) > limit:
        return None
    at = np.flatnonzero(bits)
    data = elements[at]
    most = greatest(data)
    if not np.isfinite(most):
        return None
    ready()
    rows, columns = lines.shape
    starts = np.searchsorted(at, np.arange(rows + 1) * columns).astype(np.int32)
    places = (at - np.repeat(np.arange(rows) * columns, np.diff(starts))).astype(np.int32)
    return (data, places, starts, most), data.nbytes + places.nbytes + starts.nbytes
