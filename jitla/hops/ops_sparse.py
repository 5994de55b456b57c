"""Op table: operators on the stored positions of a sparse matrix.

A CSR matrix is three vectors: the offsets at which rows begin (`starts`, one more than there are rows),
the column of every entry, and its value. The tracer passes them one by one: a sparse value is the vector
of its entries, and no hop contains positions that are not stored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.hops import sparsity as nnz
from jitla.hops.node import (
    Attrs,
    Kind,
    Meta,
    OpSpec,
    Zeros,
    by_numpy,
    register,
)
from jitla.hops.ops_matrix import declare_call

GATHER_BLOCK_ENTRIES = 1 << 14  # entries that the reference gathers factors for at once
SPARSE_KERNEL_OPS = frozenset({  # operators with compiled kernels
    "sampled", "by_row", "by_column", "sampled_product", "csr_product", "csr_vector", "csr_transposed_vector",
    "csr_transposed_product", "csr_row_sums"})
ENTRY_FLOPS = 4.0  # cost in additions of loading the operands of one entry


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
    sums = np.empty(len(columns), np.result_type(a, b))
    for k in range(0, len(columns), GATHER_BLOCK_ENTRIES):
        block = slice(k, k + GATHER_BLOCK_ENTRIES)
        sums[block] = np.einsum("ij,ij->i", a[rows[block]], b[columns[block]])
    return sums


def _sampled_product_meta(a: Meta, b: Meta, starts: Meta, columns: Meta) -> Meta:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or starts.shape != (a.shape[0] + 1,):
        raise ValueError(a.shape)
    return Meta(columns.shape, np.result_type(a.dtype, b.dtype))


def _sampled_flops(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    return metas[3].size * (2.0 * metas[0].shape[1] + ENTRY_FLOPS)


def _without_warnings(ref: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `ref` so that it emits no floating-point warnings, as SciPy's loops do."""
    def quiet(*operands: Any, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return ref(*operands, **attrs)

    return quiet


def _csr_matmul(data: Any, columns: Any, starts: Any, x: Any, width: int | None = None) -> Any:
    """Return SciPy's product of a CSR matrix with `x`, or of its transpose, which has `width` rows.

    The three vectors are set directly: SciPy's constructor would scan the indices for a narrower dtype.
    `scipy.sparse` is imported already wherever such matrices exist.
    """
    sparse: Any = sys.modules["scipy.sparse"]
    shape, kind = (len(starts) - 1, len(x)), sparse.csr_array
    if width is not None:
        shape, kind = (width, len(x)), sparse.csc_array
    matrix = kind(shape, dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, columns, starts
    return matrix @ x


def _csr_product(data: Any, columns: Any, starts: Any, x: Any) -> Any:
    return _csr_matmul(data, columns, starts, x)


def _csr_product_meta(data: Meta, columns: Meta, starts: Meta, x: Meta) -> Meta:
    if not data.ndim == columns.ndim == starts.ndim == 1 or x.ndim != 2 or not starts.size:
        raise ValueError(x.shape)
    return Meta((starts.size - 1, *x.shape[1:]), np.result_type(data.dtype, x.dtype))


def _csr_vector(data: Any, columns: Any, starts: Any, x: Any) -> Any:
    return _csr_matmul(data, columns, starts, x)


def _csr_vector_meta(data: Meta, columns: Meta, starts: Meta, x: Meta) -> Meta:
    if not data.ndim == columns.ndim == starts.ndim == x.ndim == 1 or data.shape != columns.shape:
        raise ValueError(x.shape)
    return Meta((_row_count(starts),), np.result_type(data.dtype, x.dtype))


def _csr_transposed_vector(data: Any, columns: Any, starts: Any, x: Any, *, width: int) -> Any:
    return _csr_matmul(data, columns, starts, x, width)


def _csr_transposed_product(data: Any, columns: Any, starts: Any, x: Any, *, width: int) -> Any:
    return _csr_matmul(data, columns, starts, x, width)


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
    nonempty = np.flatnonzero(np.diff(starts))
    sums = np.zeros(len(starts) - 1, np.add.reduce(data[:0]).dtype)
    if nonempty.size:
        sums[nonempty] = np.add.reduceat(data, starts[nonempty])
    return sums


def _csr_row_sums_meta(data: Meta, starts: Meta) -> Meta:
    if not data.ndim == starts.ndim == 1:
        raise ValueError(data.shape)
    return Meta((_row_count(starts),), np.add.reduce(np.empty(0, data.dtype)).dtype)


def _vector_flops(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    return metas[0].size * (2.0 + ENTRY_FLOPS)


def _product_flops(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    return metas[0].size * (2.0 * metas[3].shape[1] + ENTRY_FLOPS)


declare_call("sampled", _sampled, _sampled_meta, "elements of a matrix at the stored positions of another",
     arity=3, zeros=Zeros.NONE, flops=ENTRY_FLOPS, bound=nnz.gather_bound)
declare_call("by_column", _by_column, _by_column_meta, "for every stored position, the element of its column",
     arity=2, zeros=Zeros.NONE, flops=ENTRY_FLOPS, bound=nnz.gather_bound)
declare_call("by_row", _by_row, _by_row_meta, "for every stored position, the element of its row",
     arity=3, zeros=Zeros.NONE, flops=ENTRY_FLOPS, bound=nnz.gather_bound)
declare_call("sampled_product", _sampled_product, _sampled_product_meta,
     "elements of `a @ b.T` at the stored positions of another matrix", arity=4, zeros=Zeros.NONE,
     flops=_sampled_flops, bound=nnz.sampled_product_bound)
declare_call("csr_product", _csr_product, _csr_product_meta,
     "a matrix of compressed rows times a matrix, entry by entry", arity=4, zeros=Zeros.NONE,
     flops=_product_flops, bound=nnz.csr_product_bound)
declare_call("csr_vector", _csr_vector, _csr_vector_meta,
     "a matrix of compressed rows times a vector", arity=4, zeros=Zeros.NONE, flops=_vector_flops,
     bound=nnz.csr_product_bound)
declare_call("csr_transposed_vector", _csr_transposed_vector, _transposed_meta(1),
     "the transposed of a matrix of compressed rows times a vector", arity=4, zeros=Zeros.NONE,
     flops=_vector_flops, bound=nnz.csr_product_bound)
declare_call("csr_transposed_product", _csr_transposed_product, _transposed_meta(2),
     "the transposed of a matrix of compressed rows times a matrix", arity=4, zeros=Zeros.NONE,
     flops=_product_flops, bound=nnz.csr_product_bound)
declare_call("csr_row_sums", _csr_row_sums, _csr_row_sums_meta, "sums of the entries of every row", arity=2,
     zeros=Zeros.NONE, flops=lambda metas, attrs: float(metas[0].size + metas[1].size),
     bound=nnz.csr_row_sums_bound)


# -- element by element, as SciPy's loops over two structures do it: without warnings -----------------


def _declare_merge(ufunc: np.ufunc, name: str, doc: str) -> None:
    """Register an element-wise operator of two sparse structures: `ufunc` without its warnings."""
    spec = by_numpy(ufunc)
    assert spec is not None
    register(OpSpec(
        name=name, kind=Kind.CELL, arity=2, ref=_without_warnings(ufunc), meta=spec.meta,
        resolve=spec.resolve,
        emit=spec.emit, zeros=spec.zeros, doc=doc,
    ))


_declare_merge(np.add, "stored_add", "sum of stored elements")
_declare_merge(np.subtract, "stored_sub", "difference of stored elements")
_declare_merge(np.multiply, "stored_mul", "product of stored elements")
