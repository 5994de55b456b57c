"""Products and sums of sparse matrices, products sampled at stored positions, and the table of handlers."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from jitla.profiling.call_classes import sparse_classes
from jitla.tracing.lazy import LazyArray
from jitla.tracing.sparse import elementwise
from jitla.tracing.sparse.elementwise import (
    Entries,
    dense_operand,
    entries_of,
    indices_of,
    is_scalar,
    is_sparse,
    scale,
    unmasked_entries,
)
from jitla.tracing.sparse.lazy_sparse import (
    RECORDERS,
    LazySparse,
    Pattern,
    PendingProduct,
    install_methods,
)

Session = Any


def sampled_product(session: Session, x: Any, y: Any, reciprocal: bool = False) -> Any:
    """Record ``x.multiply(y)`` with a dense `y`: coordinates in the order of the entries of `x`.

    With `reciprocal` entries are multiplied by the reciprocals of `y`.
    """
    dense, operand = dense_operand(session, y), unmasked_entries(session, x)
    if dense is None or operand is None or operand.values.dtype.kind not in "biufc":
        return NotImplemented
    if operand.pattern.format == "coo":
        operand = _as_rows(session, operand)
    if operand is None or 1 in operand.pattern.shape or dense.size == 1:
        return NotImplemented
    elements = dense_at_positions(session, operand.pattern, dense)
    if type(elements) is not LazyArray:
        return NotImplemented
    is_canonical = not operand.pattern.axis and operand.check_canonical()
    values = np.multiply(operand.values, np.divide(1, elements) if reciprocal else elements)
    if type(values) is not LazyArray:
        return NotImplemented
    return LazySparse(session, operand.pattern.as_coordinates(is_canonical), values)


def _as_rows(session: Session, operand: Entries) -> Entries | None:
    """Return coordinates converted to compressed rows, as SciPy does first; None if that reorders entries."""
    if operand.memory is not None:
        return unmasked_entries(session, operand.memory.tocsr())
    pattern = operand.pattern
    if pattern.indptr is None or pattern.axis or not pattern.canonical:
        return None
    return Entries(pattern.as_compressed(), operand.values, None, None)


def dense_at_positions(session: Session, pattern: Pattern, dense: LazyArray) -> Any:
    """Record the elements of a dense operand, broadcast along one axis, at the stored positions."""
    if (proxies := indices_of(session, pattern)) is None:
        return NotImplemented
    indptr, indices = proxies
    shape, by_columns = dense.shape, bool(pattern.axis)
    if shape == pattern.shape:
        return session.try_record("sampled", (dense.T if by_columns else dense, indptr, indices))
    if shape not in ((pattern.shape[1],), (1, pattern.shape[1]), (pattern.shape[0], 1)):
        return NotImplemented
    is_column = shape[-1] == 1  # one element per row
    line = dense if dense.ndim == 1 else session.try_record("reshape", (dense,), (("shape", (dense.size,)),))
    if is_column == by_columns:
        return session.try_record("by_column", (line, indices))
    return session.try_record("by_row", (line, indptr, indices))


def multiply_entries(session: Session, x: Any, y: Any) -> Any:
    """Record ``x.multiply(y)`` with a number or a dense array."""
    return scale(session, x, y) if is_scalar(y) else sampled_product(session, x, y)


def divide_by_dense(session: Session, x: Any, y: Any) -> Any:
    """Record ``x / y`` with a dense array: SciPy multiplies by the reciprocals."""
    return sampled_product(session, x, y, reciprocal=True)


_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_AXES = {0: 0, -2: 0, 1: 1, -1: 1}

# -- sums ------------------------------------------------------------------------------------------


def sum_entries(session: Session, x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Record ``x.sum(axis)``."""
    if dtype is not None or out is not None:
        return NotImplemented
    operand = entries_of(session, x)
    if operand is None:
        return NotImplemented
    if axis is None:
        return _sum_of_all(session, x, operand)
    if type(axis) is not int or axis not in _AXES or operand.values.dtype not in _FLOATS:
        return NotImplemented
    return _sum_along(session, operand, _AXES[axis])


def _sum_of_all(session: Session, x: Any, operand: Entries) -> Any:
    is_unshared = operand.memory is None and x._base is None and not _has_pending_view(session, x)
    if is_unshared and operand.values.dtype in _FLOATS:
        x._sums_duplicates = True  # other uses of the matrix see duplicates summed
    elif not operand.check_canonical():
        return NotImplemented
    return operand.values.sum()


def _has_pending_view(session: Session, x: LazySparse) -> bool:
    """Return whether `x` has a pending view."""
    alive = [each() for each in session.stored]
    return any(each is not None and each._base is x for each in alive)


def _sum_along(session: Session, operand: Entries, axis: int, as_product: bool = False) -> Any:
    """Record sums along `axis`: within compressed lines or across them.

    `as_product` adds up in the order of SciPy's products with ones.
    """
    pattern, values = operand.pattern, operand.values
    if pattern.indptr is None:
        return NotImplemented
    if (proxies := indices_of(session, pattern)) is None:
        return NotImplemented
    indptr, indices = proxies
    along_lines = axis != pattern.axis
    # SciPy sums coordinates by products with ones.
    reduced = along_lines and not as_product and pattern.format != "coo"
    if session.site.bitwise and not reduced:
        return NotImplemented  # compiled loops add in another order
    if reduced:
        sums = session.try_record("csr_row_sums", (values, indptr))
    else:
        ones = session.argument(np.ones(pattern.shape[axis], values.dtype))
        width = () if along_lines else (("width", pattern.shape[1 - axis]),)
        name = "csr_vector" if along_lines else "csr_transposed_vector"
        sums = session.try_record(name, (values, indices, indptr, ones), width)
    if type(sums) is not LazyArray or pattern.is_array:
        return sums
    return _as_matrix(session.value(sums), axis, reduced)


def _as_matrix(sums: np.ndarray, axis: int, reduced: bool) -> np.matrix:
    """Return sums along `axis` as a `np.matrix`, as SciPy's matrix classes do."""
    if reduced:
        matrix: Any = sums.view(np.matrix)
        return (matrix.T if axis else matrix).sum(axis=())
    return sums.reshape((-1, 1) if axis else (1, -1)).view(np.matrix)


def mean_of_entries(session: Session, x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Record ``x.mean(axis)``: SciPy sums entries times the reciprocal of the number of elements."""
    entries_x = unmasked_entries(session, x)
    if entries_x is None or dtype is not None or out is not None or entries_x.values.dtype.kind not in "f":
        return NotImplemented
    if axis is not None and (type(axis) is not int or axis not in _AXES):
        return NotImplemented
    shape = entries_x.pattern.shape
    factor = 1.0 / (math.prod(shape) if axis is None else shape[_AXES[axis]])
    scaled = scale(session, x, factor)
    if scaled is NotImplemented or axis is None:
        return scaled if scaled is NotImplemented else sum_entries(session, scaled)
    scaled_entries = entries_of(session, scaled)
    if scaled_entries is None:
        return NotImplemented
    return _sum_along(session, scaled_entries, _AXES[axis], True)


# -- products --------------------------------------------------------------------------------------


def matmul(session: Session, x: Any, y: Any) -> Any:
    """Record ``x @ y`` with at least one sparse operand."""
    if is_sparse(x):
        if is_sparse(y):
            return _lazy_product(session, x, y)
        if type(x) is LazySparse and type(x._base) is PendingProduct and x._matrix is None \
                and not x._view_method:
            return _multiply_chain(session, x, y)
        return _multiply_dense(session, unmasked_entries(session, x), y)
    if not is_sparse(y) or (dense := dense_operand(session, x)) is None:
        return NotImplemented
    operand = unmasked_entries(session, y)
    if operand is None:
        return NotImplemented
    transposed = Entries(operand.pattern.transposed(), operand.values, None, None)
    product = _multiply_dense(session, transposed, dense if dense.ndim == 1 else dense.T)
    return product.T if type(product) is LazyArray else NotImplemented


def _lazy_product(session: Session, x: Any, y: Any) -> Any:
    """Return a pending ``x @ y`` of two sparse operands; a following product may be reassociated."""
    left, right = unmasked_entries(session, x), unmasked_entries(session, y)
    if left is None or right is None or session.site.bitwise:
        return NotImplemented
    patterns = left.pattern, right.pattern
    if patterns[0].shape[1] != patterns[1].shape[0]:
        return NotImplemented
    dtype = left.values.dtype
    if any(p.indptr is None or p.format == "coo" or p.may_narrow for p in patterns) or dtype not in _FLOATS \
            or dtype != right.values.dtype or not _is_finite(left.values) or not _is_finite(right.values):
        return NotImplemented
    shape = patterns[0].shape[0], patterns[1].shape[1]
    both = PendingProduct(*(each._replace(memory=None) for each in (left, right)))
    return LazySparse(session, patterns[0].with_shape(shape), left.values, None, both)


def _multiply_chain(session: Session, x: LazySparse, y: Any) -> Any:
    """Record ``(a @ b) @ y`` as ``a @ (b @ y)`` once; a second use of ``a @ b`` computes it.

    Both differ if y is not finite, so it has to be in memory to be checked.
    """
    dense = dense_operand(session, y)
    if dense is None or session.value(dense) is None or not _is_finite(dense):
        return NotImplemented
    x._view_method = "multiplied"
    right = _multiply_dense(session, x._base.right, y)
    return NotImplemented if right is NotImplemented else _multiply_dense(session, x._base.left, right)


def dot(session: Session, x: Any, y: Any) -> Any:
    """Record ``x.dot(y)``; with a number it is ``x * y``."""
    return scale(session, x, y) if is_scalar(y) else matmul(session, x, y)


def _multiply_dense(session: Session, operand: Entries | None, y: Any) -> Any:
    dense = dense_operand(session, y)
    if operand is None or dense is None or operand.pattern.indptr is None:
        return NotImplemented
    shape, pattern, values = dense.shape, operand.pattern, operand.values
    if len(shape) not in (1, 2) or shape[0] != pattern.shape[1]:
        return NotImplemented
    if values._m != dense._m and values.dtype is not dense.dtype or values.dtype not in _FLOATS:
        dtype = _common_dtype(values.dtype, dense.dtype)
        if dtype is None:
            return NotImplemented
        values, dense = (z if z.dtype == dtype else z.astype(dtype) for z in (values, dense))
    if session.site.bitwise and (pattern.axis or len(shape) == 1 or shape[1] == 1):
        return NotImplemented  # compiled loops add in another order
    is_coo_matrix = len(shape) > 1 and shape[1] > 1 and pattern.format == "coo"
    if is_coo_matrix and not _is_finite(dense):
        return NotImplemented  # SciPy's product with coordinates skips zero entries
    if len(shape) == 2 and shape[1] == 1:
        product = _record_product(session, operand, values, dense.reshape(-1))
        return NotImplemented if product is NotImplemented else product.reshape(-1, 1)
    product = _record_product(session, operand, values, dense)
    # SciPy's result is a view
    return product[...] if is_coo_matrix and type(product) is LazyArray else product


@lru_cache(maxsize=64)
def _common_dtype(a: np.dtype, b: np.dtype) -> np.dtype | None:
    """Return the dtype of a product; None if there are no loops for it."""
    dtype = np.result_type(a, b)
    return dtype if dtype in _FLOATS and a.kind == b.kind == "f" else None


def _is_finite(dense: LazyArray) -> bool:
    """Return whether a matrix is in memory and certainly finite: its sum is (the sum may overflow)."""
    with np.errstate(all="ignore"):
        return dense._v is not None and bool(np.isfinite(np.add.reduce(dense._v, axis=None)))


def _record_product(session: Session, operand: Entries, values: Any, dense: Any) -> Any:
    pattern = operand.pattern
    if (proxies := indices_of(session, pattern)) is None:
        return NotImplemented
    indptr, indices = proxies
    operands = values, indices, indptr, dense
    if pattern.axis:
        name = "csr_transposed_vector" if dense.ndim == 1 else "csr_transposed_product"
        return session.try_record(name, operands, (("width", pattern.shape[0]),))
    return session.try_record("csr_vector" if dense.ndim == 1 else "csr_product", operands)


_NUMBERS_ONLY = frozenset({"floor", "ceil", "trunc", "sign"})  # as ufuncs, NumPy does not call the matrix
_FUNCTION_TYPES = frozenset({BuiltinFunctionType, FunctionType, np.ufunc, type(np.sum), type})


def record_sparse_call(session: Session, function: Any, args: tuple, kwargs: dict) -> Any:
    """Record a call of `function` on sparse matrices by its handler; NotImplemented is the SciPy fallback."""
    scipy = sys.modules.get("scipy.sparse")
    if scipy is None:
        return NotImplemented
    if type(function) is MethodType:
        if type(function.__self__) not in sparse_classes(scipy):
            return NotImplemented
        function, args = function.__name__, (function.__self__, *args)
    elif type(function) not in _FUNCTION_TYPES and type(function) is not str:
        return NotImplemented
    handler = _HANDLERS.get(function)
    if handler is None or not args or not _is_worth_recording(
            args, session.site.thresholds.min_sparse_elements):
        return NotImplemented
    try:
        return handler(session, *args, **kwargs)
    except TypeError:
        return NotImplemented  # SciPy raises the error


def _is_worth_recording(args: tuple, min_elements: int) -> bool:
    """Return whether an operand is sparse, and one is pending or has `min_elements`."""
    sparse_kinds = sparse_classes(sys.modules["scipy.sparse"])
    sparse = large = False
    for x in args:
        kind = type(x)
        if kind is LazySparse:
            return True
        if kind in sparse_kinds:
            sparse, large = True, large or len(x.data) >= min_elements
        elif kind is LazyArray or kind is np.ndarray:
            large = large or x.size >= min_elements
    return sparse and large


def _multiply(session: Session, x: Any, y: Any) -> Any:
    """Record ``x * y``; for SciPy's matrix classes it is the matrix product."""
    if not is_sparse(x):
        x, y, is_reflected = y, x, True
    else:
        is_reflected = False
    if is_scalar(y):
        return elementwise.scale(session, x, y)
    if is_sparse(y) and x.__class__.__name__.endswith("array"):
        return elementwise.combine(session, "multiply", x, y)
    if is_sparse(y):
        return NotImplemented
    if x.__class__.__name__.endswith("array"):
        return sampled_product(session, x, y)
    return matmul(session, y, x) if is_reflected else matmul(session, x, y)


def _multiply_by_name(session: Session, x: Any, y: Any) -> Any:
    """Record ``np.multiply(x, y)``; NumPy treats the matrix as an object beside the elements of an array."""
    single = all(is_sparse(each) or is_scalar(each) for each in (x, y))
    return _multiply(session, x, y) if single else NotImplemented


def _divide(session: Session, x: Any, y: Any) -> Any:
    """Record ``x / y``."""
    if not is_sparse(x) or is_sparse(y):
        return NotImplemented
    return elementwise.divide_by_scalar(session, x, y) if is_scalar(y) else divide_by_dense(session, x, y)


def _multiply_method(session: Session, x: Any, y: Any) -> Any:
    """Record ``x.multiply(y)``."""
    return elementwise.combine(session, "multiply", x, y) if is_sparse(y) else multiply_entries(session, x, y)


def _binary_handler(name: str) -> Callable[..., Any]:
    """Return the handler of an operation on two sparse matrices."""
    def handler(session: Session, x: Any, y: Any) -> Any:
        both = is_sparse(x) and is_sparse(y)
        return elementwise.combine(session, name, x, y) if both else NotImplemented

    return handler


def _extreme_handler(name: str) -> Callable[..., Any]:
    """Return the handler of ``x.maximum(y)`` or ``x.minimum(y)`` with a sparse matrix or a number."""
    def handler(session: Session, x: Any, y: Any) -> Any:
        both = is_sparse(x) and is_sparse(y)
        if both:
            return elementwise.combine(session, name, x, y)
        return elementwise.COMPARISONS[name](session, x, y)

    return handler



_METHODS: dict[Any, Callable[..., Any]] = {
    "multiply": _multiply_method, "dot": dot, "sum": sum_entries, "mean": mean_of_entries,
    "power": elementwise.elementwise_power, "astype": elementwise.astype, "copy": elementwise.copy_matrix,
    "conjugate": elementwise.conjugate, "conj": elementwise.conjugate, "transpose": elementwise.transpose,
    "maximum": _extreme_handler("maximum"), "minimum": _extreme_handler("minimum"),
    **elementwise.UNARY_METHODS, **elementwise.CONVERSIONS,
}
_HANDLERS: dict[Any, Callable[..., Any]] = {
    **_METHODS,
    **{getattr(np, name): elementwise.UNARY_METHODS[name] for name in elementwise.UNARY
       if name not in _NUMBERS_ONLY},
    **{getattr(operator, name): elementwise.COMPARISONS[name]
       for name in ("ne", "lt", "gt", "le", "ge", "eq")},
    operator.add: _binary_handler("add"), operator.sub: _binary_handler("sub"), operator.mul: _multiply,
    np.multiply: _multiply_by_name, operator.matmul: matmul, operator.truediv: _divide,
    operator.neg: elementwise.negative, np.negative: elementwise.negative,
    abs: elementwise.absolute_entries, operator.abs: elementwise.absolute_entries,
    np.absolute: elementwise.absolute_entries,
    operator.pow: elementwise.operator_power, round: elementwise.round_entries,
    np.sum: sum_entries, np.mean: mean_of_entries,
}

install_methods(_METHODS)
RECORDERS[__name__] = record_sparse_call
