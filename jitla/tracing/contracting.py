"""Sums over sparse matrices and their products with dense arrays, recorded.

Knows: what SciPy's methods return, and in which shape. Must not know: loops, which calls are worth it.
Receives a session and operands; returns proxies, matrices of NumPy, or NotImplemented where SciPy has
to do it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from jitla.tracing.array import LazyArray
from jitla.tracing.entries import (
    Entries,
    dense_operand,
    entries_of,
    indices_of,
    is_scalar,
    is_sparse,
    scaled,
    whole_entries,
)
from jitla.tracing.stored import LazySparse, Product
from jitla.tracing.turned import other_form

Session = Any  # the session that the arguments belong to
_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_AXES = {0: 0, -2: 0, 1: 1, -1: 1}

# -- sums ------------------------------------------------------------------------------------------


def total(session: Session, x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Do ``x.sum(axis)``."""
    if dtype is not None or out is not None:
        return NotImplemented
    given = entries_of(session, x)
    if given is None:
        return NotImplemented
    if axis is None:
        return _sum_of_all(session, x, given)
    if type(axis) is not int or axis not in _AXES or given.values.dtype not in _FLOATS:
        return NotImplemented
    return _in_lines(session, given, _AXES[axis])


def _sum_of_all(session: Session, x: Any, given: Entries) -> Any:
    alone = given.memory is None and x._whole is None and not _is_seen(session, x)
    if alone and given.values.dtype in _FLOATS:
        x._summed = True  # whoever asks for more than the sum finds no duplicates
    elif not given.stay():
        return NotImplemented
    return given.values.sum()


def _is_seen(session: Session, x: LazySparse) -> bool:
    """Tell whether there is a pending view of `x`."""
    alive = [each() for each in session.stored]
    return any(each is not None and each._whole is x for each in alive)


def _in_lines(session: Session, given: Entries, axis: int, multiplied: bool = False) -> Any:
    """Add up along `axis`: within compressed lines, or across them; `multiplied`: as SciPy's products do."""
    pattern, values = given.pattern, given.values
    if pattern.starts is None:
        return NotImplemented
    if (indices := indices_of(session, pattern)) is None:
        return NotImplemented
    starts, places = indices
    within = axis != pattern.axis
    # Of coordinates SciPy makes products with ones.
    reduced = within and not multiplied and pattern.format != "coo"
    if session.site.bitwise and not reduced:
        return NotImplemented  # loops add up in another order
    if reduced:
        found = session.traced("csr_row_sums", (values, starts))
    else:
        ones = session.argument(np.ones(pattern.shape[axis], values.dtype))
        width = () if within else (("width", pattern.shape[1 - axis]),)
        name = "csr_vector" if within else "csr_transposed_vector"
        found = session.traced(name, (values, places, starts, ones), width)
    if type(found) is not LazyArray or pattern.is_array:
        return found
    return _as_matrix(session.value(found), axis, reduced)


def _as_matrix(sums: np.ndarray, axis: int, reduced: bool) -> np.matrix:
    """Return sums along `axis` as SciPy's matrices do; `reduced`: by NumPy, line by line."""
    if reduced:
        made: Any = sums.view(np.matrix)
        return (made.T if axis else made).sum(axis=())
    return sums.reshape((-1, 1) if axis else (1, -1)).view(np.matrix)


def mean(session: Session, x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Do ``x.mean(axis)``: SciPy adds up entries times the reciprocal of how many elements there are."""
    given = whole_entries(session, x)
    if given is None or dtype is not None or out is not None or given.values.dtype.kind not in "f":
        return NotImplemented
    if axis is not None and (type(axis) is not int or axis not in _AXES):
        return NotImplemented
    shape = given.pattern.shape
    scale = 1.0 / (math.prod(shape) if axis is None else shape[_AXES[axis]])
    made = scaled(session, x, scale)
    if made is NotImplemented or axis is None:
        return made if made is NotImplemented else total(session, made)
    summed = entries_of(session, made)
    return NotImplemented if summed is None else _in_lines(session, summed, _AXES[axis], True)


# -- products --------------------------------------------------------------------------------------


def matmul(session: Session, x: Any, y: Any) -> Any:
    """Do ``x @ y``, one of them sparse."""
    if is_sparse(x):
        if is_sparse(y):
            return _product_of(session, x, y)
        if type(x) is LazySparse and type(x._whole) is Product and x._made is None and not x._seen:
            return _in_chain(session, x, y)
        return _times(session, whole_entries(session, x), y)
    if not is_sparse(y) or (dense := dense_operand(session, x)) is None:
        return NotImplemented
    given = whole_entries(session, y)
    if given is None:
        return NotImplemented
    turned = Entries(given.pattern.turned(), given.values, None, None)
    made = _times(session, turned, dense if dense.ndim == 1 else dense.T)
    return made.T if type(made) is LazyArray else NotImplemented


def _product_of(session: Session, x: Any, y: Any) -> Any:
    """Do ``x @ y``, both sparse: what comes next may be a product with the right one first."""
    left, right = whole_entries(session, x), whole_entries(session, y)
    if left is None or right is None or session.site.bitwise:
        return NotImplemented
    patterns = left.pattern, right.pattern
    if patterns[0].shape[1] != patterns[1].shape[0]:
        return NotImplemented
    dtype = left.values.dtype
    if any(p.starts is None or p.format == "coo" or p.narrowed for p in patterns) or dtype not in _FLOATS \
            or dtype != right.values.dtype or not _is_finite(left.values) or not _is_finite(right.values):
        return NotImplemented
    shape = patterns[0].shape[0], patterns[1].shape[1]
    both = Product(*(each._replace(memory=None) for each in (left, right)))
    return LazySparse(session, patterns[0].of_shape(shape), left.values, None, both)


def _in_chain(session: Session, x: LazySparse, y: Any) -> Any:
    """Do ``(a @ b) @ y`` as ``a @ (b @ y)``, once: a product that is used again is made.

    Where y is not finite they differ, so that it has to be in memory.
    """
    dense = dense_operand(session, y)
    if dense is None or session.value(dense) is None or not _is_finite(dense):
        return NotImplemented
    x._seen = "multiplied"
    right = _times(session, x._whole.right, y)
    return NotImplemented if right is NotImplemented else _times(session, x._whole.left, right)


def dot(session: Session, x: Any, y: Any) -> Any:
    """Do ``x.dot(y)``: with a number it is ``x * y``."""
    return scaled(session, x, y) if is_scalar(y) else matmul(session, x, y)


def _times(session: Session, given: Entries | None, y: Any) -> Any:
    dense = dense_operand(session, y)
    if given is None or dense is None or given.pattern.starts is None:
        return NotImplemented
    shape, pattern, values = dense.shape, given.pattern, given.values
    if len(shape) not in (1, 2) or shape[0] != pattern.shape[1]:
        return NotImplemented
    if values._m != dense._m and values.dtype is not dense.dtype or values.dtype not in _FLOATS:
        dtype = _common(values.dtype, dense.dtype)
        if dtype is None:
            return NotImplemented
        values, dense = (z if z.dtype == dtype else z.astype(dtype) for z in (values, dense))
    if session.site.bitwise and (pattern.axis or len(shape) == 1 or shape[1] == 1):
        return NotImplemented  # loops add up in another order
    rows = len(shape) > 1 and shape[1] > 1 and pattern.format == "coo"
    if rows and not _is_finite(dense):
        return NotImplemented  # of coordinates SciPy leaves out entries that are 0
    if len(shape) == 2 and shape[1] == 1:
        made = _product(session, given, values, dense.reshape(-1))
        return NotImplemented if made is NotImplemented else made.reshape(-1, 1)
    made = _product(session, given, values, dense)
    return made[...] if rows and type(made) is LazyArray else made  # SciPy returns a view


@lru_cache(maxsize=64)
def _common(a: np.dtype, b: np.dtype) -> np.dtype | None:
    """Return the dtype of a product, if there are loops for it."""
    dtype = np.result_type(a, b)
    return dtype if dtype in _FLOATS and a.kind == b.kind == "f" else None


def _is_finite(dense: LazyArray) -> bool:
    """Tell whether a matrix is in memory and finite; one whose sum overflows need not be found so."""
    with np.errstate(all="ignore"):
        return dense._v is not None and bool(np.isfinite(np.add.reduce(dense._v, axis=None)))


def _product(session: Session, given: Entries, values: Any, dense: Any) -> Any:
    pattern, axis = given.pattern, given.pattern.axis
    if (other := other_form(session, pattern, values, dense.ndim == 1)) is not None:
        values, places, starts, axis = other
    elif (indices := indices_of(session, pattern)) is None:
        return NotImplemented
    else:
        starts, places = indices
    operands = values, places, starts, dense
    if axis:
        name = "csr_transposed_vector" if dense.ndim == 1 else "csr_transposed_product"
        return session.traced(name, operands, (("width", pattern.shape[0]),))
    return session.traced("csr_vector" if dense.ndim == 1 else "csr_product", operands)
