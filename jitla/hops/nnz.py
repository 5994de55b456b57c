"""At most how many elements of a result are other than 0: the bound that goes with shape and dtype.

Knows: counts of the operands, which elements of them an element of the result is made of.
Must not know: which operator it is, values.
Receives metas, the shape of the result and attributes; returns a bound, None where nothing is known.

A bound holds where operands are finite: 0 times infinity is not 0.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from jitla.hops.meta import Meta, Shape
from jitla.hops.spec import Attrs, Zeros

Bound = Callable[[tuple[Meta, ...], Shape, Attrs], int | None]


def count(x: Meta) -> int:
    """Return at most how many elements of `x` are other than 0."""
    return x.size if x.nnz is None else x.nnz


def bounded(meta: Meta, nnz: int | None) -> Meta:
    """Return `meta` with a bound, if it says anything."""
    return Meta(meta.shape, meta.dtype, nnz if nnz is not None and nnz < meta.size else None)


def of_cell(zeros: Zeros) -> Bound:
    """Return the bound of an element-wise result; a broadcast operand repeats its nonzeros."""

    def bound(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
        size = prod(shape)
        repeated = [count(m) * (size // max(m.size, 1)) for m in metas]
        return min(repeated) if zeros is Zeros.ANY else sum(repeated) if zeros is Zeros.ALL else None

    return bound


def kept(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a result that has elements of its first operand, each once at most."""
    return metas[0].nnz


def repeated(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a result in which all elements of its operand are as often."""
    x = metas[0]
    return count(x) * (prod(shape) // x.size) if x.size else None


def joined(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a result that has all elements of all operands."""
    return sum(map(count, metas))


def of_nothing(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a result that is 0 if there is nothing in the operand that it takes elements of."""
    return 0 if metas[0].nnz == 0 else None


def of_factors(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound sums of products of which only the first two operands are factors."""
    return 0 if 0 in (metas[0].nnz, metas[1].nnz) else None


def of_rows(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound the product of a matrix, given by its entries, with what the last operand is.

    A row without entries is 0, and so is a column of the result where the operand's is.
    """
    data, x = metas[0], metas[-1]
    return min(shape[0], count(data)) * min(prod(shape[1:]), count(x))


def of_lines_of_entries(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound sums of vectors that lie one after the other, some of them empty."""
    return count(metas[0])


def of_lines(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a reduction that is 0 where all that it joins is; `ddof` elements are not enough."""
    x = metas[0]
    joins = x.size // max(prod(shape), 1)
    return count(x) if joins > attrs.get("ddof", 0) else None


def of_full_lines(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a reduction that is 0 where something that it joins is."""
    x = metas[0]
    joins = x.size // max(prod(shape), 1)
    return count(x) // joins if joins else None


def running(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound running sums along an axis: what is not 0 is in all that follow."""
    x, axis = metas[0], attrs["axis"]
    return count(x) * (x.size if axis is None or not x.ndim else x.shape[axis])


def of_product(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound a product over one axis: a row of x with nothing in it gives a row of nothing."""
    x, y = metas
    size = prod(shape)
    if not x.ndim or not y.ndim:
        return of_cell(Zeros.ANY)(metas, shape, attrs)
    rows = prod(x.shape[:-1])
    columns = prod(y.shape) // max(y.shape[-2 if y.ndim > 1 else 0], 1)
    if rows * columns == size:
        return min(rows, count(x)) * min(columns, count(y))
    high, wide = x.shape[-2] if x.ndim > 1 else 1, y.shape[-1] if y.ndim > 1 else 1
    batch = size // max(high * wide, 1)
    often_x = batch // max(prod(x.shape[:-2]), 1)
    often_y = batch // max(prod(y.shape[:-2]), 1)
    return min(count(x) * often_x * wide, count(y) * often_y * high)


def of_terms(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound sums of products that have a factor of every operand."""
    return 0 if any(m.nnz == 0 for m in metas) else None


def of_tally(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Bound sums by label: what is added to one place at least, or nothing."""
    return count(metas[1]) if len(metas) > 1 else metas[0].size


def of_diagonal(metas: tuple[Meta, ...], shape: Shape, attrs: Attrs) -> int | None:
    """Count the ones of an `eye`."""
    n, m = shape
    k: int = attrs["k"]
    return max(min(n, m - k) if k >= 0 else min(n + k, m), 0)
