"""Products that leave out the zeros of matrices whose elements are finite.

Knows: when the result is the same, and what the ways to it take. Must not know: proxies, sessions.
Receives compressed rows with the greatest magnitude in them, and arrays; returns what to multiply, or
products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.config import current
from jitla.hops import Meta, Sketch, apply, error_state, estimated, leaf, of_rows

Rows = Any  # a csr_array or csc_array of SciPy
Factor = tuple[Rows, float]  # and the greatest magnitude of an element
# Nanoseconds: of an element read in a product and of a multiplication of elements, dense and stored; of
# a multiplication of stored elements that meet; of an element of an array written.
READ, MULTIPLIED, READ_STORED, MULTIPLIED_STORED, MET, WRITTEN = 0.25, 0.04, 1.2, 0.6, 15.0, 1.0
# The same of the compiler's loops over what is stored, on all threads; of beginning one; columns they take.
READ_LOOP, MULTIPLIED_LOOP, BEGUN, MOST_COLUMNS = 0.36, 0.1, 2e4, 32

# A quarter of the greatest number, by dtype.
_QUARTER = {char: float(np.finfo(char).max) / 4 for char in "fd"}


def pays(size: int, stored: float, columns: int, loops: bool = False) -> bool:
    """Tell whether multiplying what is stored by so many columns takes less time than all elements.

    `loops`: by the compiler's loops or SciPy's, else by SciPy's.
    """
    times = [_time_stored(stored, columns)]
    if loops and columns <= MOST_COLUMNS:
        times.append(BEGUN + stored * (READ_LOOP + MULTIPLIED_LOOP * columns))
    return min(times) < _time_dense(size, columns)


def _time_dense(size: int, columns: int) -> float:
    return size * max(READ, MULTIPLIED * columns)


def _time_stored(stored: float, columns: int) -> float:
    return stored * (READ_STORED + MULTIPLIED_STORED * columns)


def greatest(values: np.ndarray) -> float:
    """Return the greatest magnitude; NaN if there is one."""
    if not values.size:
        return 0.0
    high, low = float(np.maximum.reduce(values, None)), -float(np.minimum.reduce(values, None))
    return low if low > high else high  # where one is NaN, both are


# An error state, kept so that its id stays its own, and whether it ignores numbers that become too small.
_asked: tuple[Any, bool] = (None, False)


def _ignores_underflow() -> bool:
    global _asked
    state, ignored = _asked
    if error_state() is not state:
        state, ignored = error_state(), np.geterr()["under"] == "ignore"
        _asked = state, ignored
    return ignored


def is_silent(x: float, y: float, inner: int, dtype: np.dtype) -> bool:
    """Tell whether no sum of products overflows, nothing is NaN, and NumPy's own bits are not asked for."""
    if not x * y * inner < _QUARTER[dtype.char]:  # NaN is not
        return False
    return current().numerics != "strict" and _ignores_underflow()


def factors(given: Factor, other: Any, left: bool, traced: bool) -> tuple[Rows, np.ndarray] | None:
    """Return both factors in the dtype of the product, if zeros can be left out and that pays.

    `left`: the rows are the left one of them. `traced`: the product is recorded if there are loops for it.
    """
    rows, most = given
    if type(other) is not np.ndarray or other.ndim not in (1, 2) or not other.size:
        return None
    stored, given_dtype = rows.data, other.dtype
    here, there = rows.shape if left else rows.shape[::-1]
    dtype = stored.dtype if stored.dtype is given_dtype else np.result_type(stored.dtype, given_dtype)
    if other.shape[0 if left else -1] != there or dtype.char not in _QUARTER or \
            given_dtype.char not in _QUARTER:
        return None
    loops = traced and given_dtype == dtype and has_loops(other, left)
    if not pays(here * there, len(stored), other.size // there, loops):
        return None
    if not is_silent(most, greatest(other), there, dtype):
        return None
    if stored.dtype != dtype:
        rows = rows.astype(dtype)
    return rows, other if given_dtype == dtype else other.astype(dtype)


def has_loops(other: np.ndarray, left: bool) -> bool:
    """Tell whether the compiler has loops for stored elements and this factor."""
    return other.ndim == 1 or left and other.shape[1] > 1


def multiplied(rows: Rows, other: np.ndarray, left: bool) -> np.ndarray:
    """Return the product, as NumPy lays it out."""
    if left:
        found = rows @ other
    else:
        found = rows.T @ other if other.ndim == 1 else (rows.T @ other.T).T
    return found if found.flags.owndata else np.array(found, order="C")


def of_both(a: Factor, b: Factor) -> Rows | None:
    """Return the rows of a product of which neither factor's zeros are looked at; None if that is slower."""
    (x, most_x), (y, most_y) = a, b
    dtype = np.result_type(x.dtype, y.dtype)
    if x.shape[1] != y.shape[0] or dtype.char not in "fd":
        return None
    left, right = sketched(x), sketched(y)
    met = float(left.columns @ right.rows)
    m, n = x.shape[0], y.shape[1]
    others = min(_time_dense(m * x.shape[1], n), _time_stored(x.nnz, n), _time_stored(y.nnz, m))
    if not met * MET < others or not is_silent(most_x, most_y, x.shape[1], dtype):
        return None
    stored = nonzeros(left, right)
    if met * MET + (0.0 if pays(m * n, stored, 1) else m * n * WRITTEN) >= others:
        return None
    return x.astype(dtype, copy=False).tocsr() @ y.astype(dtype, copy=False).tocsr()


def sketched(rows: Rows) -> Sketch:
    """Return the sketch of a matrix."""
    if rows.format == "csc":
        return sketched(rows.T).T
    return of_rows(rows.indptr, rows.indices, rows.shape)


def nonzeros(left: Sketch, right: Sketch) -> float:
    """Estimate the nonzeros of a product by the method that the options say."""
    dtype = np.dtype(float)
    x, y = (leaf(k, Meta(s.shape, dtype, int(s.nnz))) for k, s in enumerate((left, right)))
    product = apply("matmul", x, y)
    return estimated([product], current().estimator, {x: left, y: right})[product]
