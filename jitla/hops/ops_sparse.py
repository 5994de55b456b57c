"""The op table, part five: what is done at the stored positions of a sparse matrix.

A matrix of compressed rows is three vectors: where the entries of every row begin (`starts`, one more
than there are rows), the column of every entry, and its value. The tracer hands them over one by one, so
that a sparse value is a vector of its entries, and positions that are not stored are in no hop at all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.hops import sparsity as nnz
from jitla.hops.meta import Meta
from jitla.hops.ops_matrix import call
from jitla.hops.opspec import (
    Attrs,
    Kind,
    OpSpec,
    Zeros,
    by_numpy,
    register,
)

BLOCK = 1 << 14  # entries whose factors the reference gathers at once
STORED = frozenset({  # there are loops
    "sampled", "by_row", "by_column", "sampled_product", "csr_product", "csr_vector", "csr_transposed_vector",
    "csr_transposed_product", "csr_row_sums"})
PER_ENTRY = 4.0  # additions that finding the operands of an entry takes


def _rows_of(starts: np.ndarray) -> np.ndarray:
    """Return the row of every entry."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _sampled(x: Any, starts: Any, columns: Any) -> Any:
    return x[_rows_of(starts), columns]


def _sampled_meta(x: Meta, starts: Meta, columns: Meta) -> Meta:
    if x.ndim != 2 or starts.shape != (x.shape[0] + 1,) or columns.ndim != 1:
        raise ValueError(x.shape)
    return Meta(columns.shape, x.dtype)


def _by_column(x: Any, columns: Any) -> Any:
    return x[columns]


def _by_column_meta(x: Meta, columns: Meta) -> Meta:
    if x.ndim != 1 or columns.ndim != 1:
        raise ValueError(x.shape)
    return Meta(columns.shape, x.dtype)


def _by_row(x: Any, starts: Any, columns: Any) -> Any:
    return x[_rows_of(starts)]


def _by_row_meta(x: Meta, starts: Meta, columns: Meta) -> Meta:
    if x.ndim != 1 or starts.shape != (x.shape[0] + 1,) or columns.ndim != 1:
        raise ValueError(x.shape)
    return Meta(columns.shape, x.dtype)


def _sampled_product(a: Any, b: Any, starts: Any, columns: Any) -> Any:
    rows = _rows_of(starts)
    found = np.empty(len(columns), np.result_type(a, b))
    for k in range(0, len(columns), BLOCK):
        part = slice(k, k + BLOCK)
        found[part] = np.einsum("ij,ij->i", a[rows[part]], b[columns[part]])
    return found


def _sampled_product_meta(a: Meta, b: Meta, starts: Meta, columns: Meta) -> Meta:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or starts.shape != (a.shape[0] + 1,):
        raise ValueError(a.shape)
    return Meta(columns.shape, np.result_type(a.dtype, b.dtype))


def _sampled_flops(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    return metas[3].size * (2.0 * metas[0].shape[1] + PER_ENTRY)


def _quiet(ref: Callable[..., Any]) -> Callable[..., Any]:
    """Make a reference that says nothing about what overflows or is no number, as SciPy's loops."""
    def quiet(*operands: Any, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return ref(*operands, **attrs)

    return quiet


def _times(data: Any, columns: Any, starts: Any, x: Any, width: int | None = None) -> Any:
    """Return what SciPy makes of compressed rows, or their transposed of `width` rows, times `x`.

    The three vectors are set as they are: SciPy would look through indices for narrower ones. It is loaded
    where there are such matrices.
    """
    sparse: Any = sys.modules["scipy.sparse"]
    shape, kind = (len(starts) - 1, len(x)), sparse.csr_array
    if width is not None:
        shape, kind = (width, len(x)), sparse.csc_array
    matrix = kind(shape, dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, columns, starts
    return matrix @ x


def _csr_product(data: Any, columns: Any, starts: Any, x: Any) -> Any:
    return _times(data, columns, starts, x)


def _csr_product_meta(data: Meta, columns: Meta, starts: Meta, x: Meta) -> Meta:
    if not data.ndim == columns.ndim == starts.ndim == 1 or x.ndim != 2 or not starts.size:
        raise ValueError(x.shape)
    return Meta((starts.size - 1, *x.shape[1:]), np.result_type(data.dtype, x.dtype))


def _csr_vector(data: Any, columns: Any, starts: Any, x: Any) -> Any:
    return _times(data, columns, starts, x)


def _csr_vector_meta(data: Meta, columns: Meta, starts: Meta, x: Meta) -> Meta:
    if not data.ndim == columns.ndim == starts.ndim == x.ndim == 1 or data.shape != columns.shape:
        raise ValueError(x.shape)
    return Meta((_row_count(starts),), np.result_type(data.dtype, x.dtype))


def _csr_transposed_vector(data: Any, columns: Any, starts: Any, x: Any, *, width: int) -> Any:
    return _times(data, columns, starts, x, width)


def _csr_transposed_product(data: Any, columns: Any, starts: Any, x: Any, *, width: int) -> Any:
    return _times(data, columns, starts, x, width)


def _transposed_meta(ndim: int) -> Callable[..., Meta]:
    def meta(data: Meta, columns: Meta, starts: Meta, x: Meta, *, width: int) -> Meta:
        if not data.ndim == columns.ndim == starts.ndim == 1 or data.shape != columns.shape:
            raise ValueError(data.shape)
        if x.ndim != ndim or x.shape[0] != _row_count(starts):
            raise ValueError(x.shape)
        return Meta((width, *x.shape[1:]), np.result_type(data.dtype, x.dtype))

    return meta


def _row_count(starts: Meta) -> int:
    if not starts.size:
        raise ValueError(starts.shape)
    return starts.size - 1


def _csr_row_sums(data: Any, starts: Any) -> Any:
    some = np.flatnonzero(np.diff(starts))
    found = np.zeros(len(starts) - 1, np.add.reduce(data[:0]).dtype)
    if some.size:
        found[some] = np.add.reduceat(data, starts[some])
    return found


def _csr_row_sums_meta(data: Meta, starts: Meta) -> Meta:
    if not data.ndim == starts.ndim == 1:
        raise ValueError(data.shape)
    return Meta((_row_count(starts),), np.add.reduce(np.empty(0, data.dtype)).dtype)


def _vector_flops(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    return metas[0].size * (2.0 + PER_ENTRY)


def _product_flops(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    return metas[0].size * (2.0 * metas[3].shape[1] + PER_ENTRY)


call("sampled", _sampled, _sampled_meta, "elements of a matrix at the stored positions of another",
     arity=3, zeros=Zeros.NONE, flops=PER_ENTRY, bound=nnz.of_nothing)
call("by_column", _by_column, _by_column_meta, "for every stored position, the element of its column",
     arity=2, zeros=Zeros.NONE, flops=PER_ENTRY, bound=nnz.of_nothing)
call("by_row", _by_row, _by_row_meta, "for every stored position, the element of its row",
     arity=3, zeros=Zeros.NONE, flops=PER_ENTRY, bound=nnz.of_nothing)
call("sampled_product", _sampled_product, _sampled_product_meta,
     "elements of `a @ b.T` at the stored positions of another matrix", arity=4, zeros=Zeros.NONE,
     flops=_sampled_flops, bound=nnz.of_factors)
call("csr_product", _csr_product, _csr_product_meta,
     "a matrix of compressed rows times a matrix, entry by entry", arity=4, zeros=Zeros.NONE,
     flops=_product_flops, bound=nnz.of_rows)
call("csr_vector", _csr_vector, _csr_vector_meta,
     "a matrix of compressed rows times a vector", arity=4, zeros=Zeros.NONE, flops=_vector_flops,
     bound=nnz.of_rows)
call("csr_transposed_vector", _csr_transposed_vector, _transposed_meta(1),
     "the transposed of a matrix of compressed rows times a vector", arity=4, zeros=Zeros.NONE,
     flops=_vector_flops, bound=nnz.of_rows)
call("csr_transposed_product", _csr_transposed_product, _transposed_meta(2),
     "the transposed of a matrix of compressed rows times a matrix", arity=4, zeros=Zeros.NONE,
     flops=_product_flops, bound=nnz.of_rows)
call("csr_row_sums", _csr_row_sums, _csr_row_sums_meta, "sums of the entries of every row", arity=2,
     zeros=Zeros.NONE, flops=lambda metas, attrs: float(metas[0].size + metas[1].size),
     bound=nnz.of_lines_of_entries)


# -- element by element, as SciPy's loops over two structures do it: nothing is said ------------------


def _merging(ufunc: np.ufunc, name: str, doc: str) -> None:
    """Declare what `ufunc` does, without its warnings."""
    known = by_numpy(ufunc)
    assert known is not None
    register(OpSpec(
        name=name, kind=Kind.CELL, arity=2, ref=_quiet(ufunc), meta=known.meta, resolve=known.resolve,
        emit=known.emit, zeros=known.zeros, doc=doc,
    ))


_merging(np.add, "stored_add", "sum of stored elements")
_merging(np.subtract, "stored_sub", "difference of stored elements")
_merging(np.multiply, "stored_mul", "product of stored elements")
