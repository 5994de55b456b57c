"""Products without the zeros of a factor, for `jitla.sparsify`: a cost model, and the condition of safety.

Zeros are skipped if multiplying the stored elements alone is predicted to be faster, all factors are finite
and no sum can overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.config import current
from jitla.hops import Meta, Sketch, apply, csr_sketch, error_state, estimate_nnz, leaf

Rows = Any  # a csr_array or csc_array of SciPy
Factor = tuple[Rows, float]  # and the maximum magnitude of its elements
# Times of a product: reading an element and multiplying one, dense and stored; multiplying a pair of stored
# elements with equal inner index; writing an element of a dense result.
DENSE_READ_NS, DENSE_MULTIPLY_NS, STORED_READ_NS, STORED_MULTIPLY_NS = 0.25, 0.04, 1.2, 0.6
PAIR_MULTIPLY_NS, WRITE_NS = 15.0, 1.0
# The same of compiled loops over stored elements, on all threads; starting one; columns that they support.
LOOP_READ_NS, LOOP_MULTIPLY_NS, LOOP_START_NS, MAX_LOOP_COLUMNS = 0.36, 0.1, 2e4, 32

# A quarter of the greatest number, by dtype.
_QUARTER = {char: float(np.finfo(char).max) / 4 for char in "fd"}


def skipping_pays(size: int, stored: float, columns: int, loops: bool = False) -> bool:
    """Return whether multiplying only the stored elements by `columns` columns is faster than all `size`.

    `loops`: compiled loops are available beside SciPy's.
    """
    times = [_stored_ns(stored, columns)]
    if loops and columns <= MAX_LOOP_COLUMNS:
        times.append(LOOP_START_NS + stored * (LOOP_READ_NS + LOOP_MULTIPLY_NS * columns))
    return min(times) < _dense_ns(size, columns)


def _dense_ns(size: int, columns: int) -> float:
    return size * max(DENSE_READ_NS, DENSE_MULTIPLY_NS * columns)


def _stored_ns(stored: float, columns: int) -> float:
    return stored * (STORED_READ_NS + STORED_MULTIPLY_NS * columns)


def max_magnitude(values: np.ndarray) -> float:
    """Return the maximum magnitude; NaN if there is one."""
    if not values.size:
        return 0.0
    highest, lowest = float(np.maximum.reduce(values, None)), -float(np.minimum.reduce(values, None))
    return lowest if lowest > highest else highest  # where one is NaN, both are


# An error state, held so that its id stays unique, and whether it ignores underflow.
_underflow_memo: tuple[Any, bool] = (None, False)


def _ignores_underflow() -> bool:
    global _underflow_memo
    state, ignored = _underflow_memo
    if error_state() is not state:
        state, ignored = error_state(), np.geterr()["under"] == "ignore"
        _underflow_memo = state, ignored
    return ignored


def is_silent(x: float, y: float, inner: int, dtype: np.dtype) -> bool:
    """Return whether a product can neither overflow nor see NaN, and bits may differ from NumPy's."""
    if not x * y * inner < _QUARTER[dtype.char]:  # NaN is not
        return False
    return current().numerics != "strict" and _ignores_underflow()


def zero_skipping_factors(
    factor: Factor, other: Any, left: bool, traced: bool
) -> tuple[Rows, np.ndarray] | None:
    """Return both factors in the dtype of the product if skipping zeros is safe and pays; else None.

    `left`: the sparse rows are the left factor. `traced`: the product is recorded if there are loops for it.
    """
    rows, magnitude = factor
    if type(other) is not np.ndarray or other.ndim not in (1, 2) or not other.size:
        return None
    stored, other_dtype = rows.data, other.dtype
    result_length, inner = rows.shape if left else rows.shape[::-1]
    dtype = stored.dtype if stored.dtype is other_dtype else np.result_type(stored.dtype, other_dtype)
    if other.shape[0 if left else -1] != inner or dtype.char not in _QUARTER or \
            other_dtype.char not in _QUARTER:
        return None
    loops = traced and other_dtype == dtype and has_loops(other, left)
    if not skipping_pays(result_length * inner, len(stored), other.size // inner, loops):
        return None
    if not is_silent(magnitude, max_magnitude(other), inner, dtype):
        return None
    if stored.dtype != dtype:
        rows = rows.astype(dtype)
    return rows, other if other_dtype == dtype else other.astype(dtype)


def has_loops(other: np.ndarray, left: bool) -> bool:
    """Return whether there are compiled loops for stored elements and this dense factor."""
    return other.ndim == 1 or left and other.shape[1] > 1


def multiply_stored(rows: Rows, other: np.ndarray, left: bool) -> np.ndarray:
    """Return the product in NumPy's memory layout."""
    if left:
        product = rows @ other
    else:
        product = rows.T @ other if other.ndim == 1 else (rows.T @ other.T).T
    return product if product.flags.owndata else np.array(product, order="C")


def product_of_sparse(a: Factor, b: Factor) -> Rows | None:
    """Return the sparse product of two sparse factors; None if that is slower or could warn."""
    (x, magnitude_x), (y, magnitude_y) = a, b
    dtype = np.result_type(x.dtype, y.dtype)
    if x.shape[1] != y.shape[0] or dtype.char not in "fd":
        return None
    left, right = sketch_of(x), sketch_of(y)
    pair_count = float(left.columns @ right.rows)
    m, n = x.shape[0], y.shape[1]
    alternative_ns = min(_dense_ns(m * x.shape[1], n), _stored_ns(x.nnz, n), _stored_ns(y.nnz, m))
    pairs_ns = pair_count * PAIR_MULTIPLY_NS
    if not pairs_ns < alternative_ns or not is_silent(magnitude_x, magnitude_y, x.shape[1], dtype):
        return None
    stored = estimated_nonzeros(left, right)
    if pairs_ns + (0.0 if skipping_pays(m * n, stored, 1) else m * n * WRITE_NS) >= alternative_ns:
        return None
    return x.astype(dtype, copy=False).tocsr() @ y.astype(dtype, copy=False).tocsr()


def sketch_of(rows: Rows) -> Sketch:
    """Return the sketch of a sparse matrix: its counts per row and column."""
    if rows.format == "csc":
        return sketch_of(rows.T).T
    return csr_sketch(rows.indptr, rows.indices, rows.shape)


def estimated_nonzeros(left: Sketch, right: Sketch) -> float:
    """Estimate the nonzeros of a product by the configured estimator."""
    dtype = np.dtype(float)
    x, y = (leaf(k, Meta(s.shape, dtype, int(s.nnz))) for k, s in enumerate((left, right)))
    product = apply("matmul", x, y)
    return estimate_nnz([product], current().estimator, {x: left, y: right})[product]
