"""Operations of sparse matrices: element-wise operators, products, sums, and the table of handlers.

Products of dense factors that are sampled at stored positions are recorded, too.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.tiering.call_classes import sparse_classes
from jitla.tracing.lazy import LAZY, LazyArray, LazyScalar, lazy_array
from jitla.tracing.sparse.lazy_sparse import (
    IN_MEMORY,
    RECORDERS,
    LazySparse,
    Pattern,
    PendingProduct,
    UnionCache,
    install_methods,
    pattern_of,
    scipy_matrix,
)
from jitla.tracing.tape import KIND_CODE

# --------------------------------------------------------------------------- element-wise operators


Session = Any

_DOUBLE = np.dtype(np.float64)
_MAX_INT32 = np.iinfo(np.int32).max
#: SciPy's elementwise methods that map 0 to 0.
UNARY = ("sin", "tan", "arcsin", "arctan", "sinh", "tanh", "arcsinh", "arctanh", "rint", "sign", "expm1",
         "log1p", "deg2rad", "rad2deg", "floor", "ceil", "trunc", "sqrt")


class Entries(NamedTuple):
    """A sparse operand: its pattern, its entries, the mask of stored ones; the matrix if it is in memory.

    Entries with a zero `stored_mask` are not stored. `lazy` is the proxy of pending coordinates.
    """

    pattern: Pattern
    values: Any  # a proxy
    stored_mask: LazyArray | None
    memory: Any
    lazy: Any = None

    def check_canonical(self) -> bool:
        """Return whether summing duplicates keeps all entries; set SciPy's flag as its check does."""
        if self.memory is not None:
            return bool(self.memory.has_canonical_format)
        canonical = self.pattern.canonical
        if canonical and self.lazy is not None:
            self.lazy._sums_duplicates = True
        return canonical


class MatrixMemo(NamedTuple):
    """The memo of a compressed matrix in memory; it is valid until its arrays are written."""

    matrix: Callable[[], Any]  # a weak reference
    data: np.ndarray
    pattern: Pattern
    values: LazyArray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays whose writes invalidate the memo."""
        return self.pattern.arrays

    def matches(self, x: Any) -> bool:
        """Return whether `x` is this matrix with the same arrays."""
        pattern = self.pattern
        same: bool = self.matrix() is x and x.data is self.data and x.indices is pattern.indices \
            and x.indptr is pattern.indptr and x.shape == pattern.shape and type(x) is pattern.kind
        return same


def entries_of(session: Session, x: Any) -> Entries | None:
    """Return pattern and entries of a sparse matrix; None for anything else or unusual parts."""
    if type(x) is LazySparse:
        summed = x._sums_duplicates and not x._pattern.canonical
        if x._matrix is None and x._session is session and not summed and type(x._base) is not PendingProduct:
            lazy = x if x._pattern.format == "coo" else None
            return Entries(x._pattern, x._values, x._stored_mask, None, lazy)
        x = scipy_matrix(x)
    memo = session.memory.facts.get(id(x))
    if memo is not None and memo.matches(x) and session.boundary.foreigners.get(id(memo.data)) is memo.values:
        return Entries(memo.pattern, memo.values, None, x)
    if type(x) not in sparse_classes(sys.modules["scipy.sparse"]):
        return None
    pattern = pattern_of(x)
    values = session.boundary.argument(x.data) if pattern is not None else None
    if pattern is None or type(values) is not LazyArray:
        return None
    if pattern.indptr is not None:
        key, memos = id(x), session.memory.facts
        reference = ref(x, lambda _: memos.pop(key, None))
        memos[key] = MatrixMemo(reference, values._v, pattern, values)
    return Entries(pattern, values, None, x)


def indices_of(session: Session, pattern: Pattern) -> tuple[Any, Any] | None:
    """Return the proxies of `indptr` and `indices`; None if they are no plain arrays."""
    lazy_indices = pattern.lazy_indices
    if lazy_indices is not None and lazy_indices[0] is session:
        proxies: tuple[Any, Any] = lazy_indices[1:]
        return proxies
    indptr, indices = session.boundary.argument(pattern.indptr), session.boundary.argument(pattern.indices)
    if type(indptr) is not LazyArray or type(indices) is not LazyArray:
        return None
    pattern.lazy_indices = session, indptr, indices
    return indptr, indices


def unmasked_entries(session: Session, x: Any) -> Entries | None:
    """Return pattern and entries as `entries_of`, computing a matrix that has a mask of stored entries."""
    operand = entries_of(session, x)
    return operand if operand is None or operand.stored_mask is None else entries_of(session, scipy_matrix(x))


def is_sparse(x: Any) -> bool:
    """Return whether `x` is a sparse matrix of a class that is recorded."""
    return type(x) is LazySparse or type(x) in sparse_classes(sys.modules["scipy.sparse"])


def is_scalar(x: Any) -> bool:
    """Return whether `x` is a number or the proxy of one."""
    return type(x) is LazyScalar or type(x) in KIND_CODE


def with_entries(session: Session, x: Entries, values: Any) -> Any:
    """Return the proxy of a matrix with other entries at the same positions."""
    if type(values) is not LazyArray:
        return NotImplemented
    return LazySparse(session, x.pattern.with_copied_indices(), values, x.stored_mask)


# -- numbers ---------------------------------------------------------------------------------------


def scale(session: Session, x: Any, factor: Any) -> Any:
    """Record ``x * factor`` with a number."""
    operand = entries_of(session, x)
    if operand is not None and operand.stored_mask is not None and not _is_finite_factor(factor):
        operand = unmasked_entries(session, x)
    if operand is None:
        return NotImplemented
    return with_entries(session, operand, np.multiply(operand.values, factor))


def _is_finite_factor(factor: Any) -> bool:
    return type(factor) in (int, float) and abs(factor) < 1e9  # 0 stays 0, whatever the dtype


def divide_by_scalar(session: Session, x: Any, divisor: Any) -> Any:
    """Record ``x / divisor`` with a number: SciPy multiplies by the reciprocal."""
    operand = unmasked_entries(session, x)
    if operand is None or type(divisor) in (int, float, bool, complex) and not divisor:
        return NotImplemented
    values = operand.values
    if values.dtype != _DOUBLE:
        if values.dtype.kind == "c" or not operand.pattern.canonical:
            return NotImplemented
        values = values.astype(_DOUBLE)
    return with_entries(session, operand, np.multiply(values, 1 / divisor))


def elementwise_power(session: Session, x: Any, n: Any, dtype: Any = None) -> Any:
    """Record ``x.power(n)``."""
    operand = entries_of(session, x) if type(n) in (int, float) and n > 0 else unmasked_entries(session, x)
    if operand is None or dtype is not None or type(n) not in (int, float) or not n or \
            not operand.check_canonical():
        return NotImplemented
    return with_entries(session, operand, operand.values ** n)


def operator_power(session: Session, x: Any, n: Any) -> Any:
    """Record ``x ** n`` of a sparse array; for SciPy's matrix classes it is a product."""
    return elementwise_power(session, x, n) if is_sparse(x) and _is_array(x) else NotImplemented


def _is_array(x: Any) -> bool:
    kind: str = x.__class__.__name__
    return kind.endswith("array")


# -- functions of each entry -----------------------------------------------------------------------


def negative(session: Session, x: Any) -> Any:
    """Record ``-x``."""
    operand = entries_of(session, x)
    if operand is None or operand.values.dtype.kind == "b":
        return NotImplemented
    return with_entries(session, operand, np.negative(operand.values))


def _canonical_unary(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the handler of an elementwise function that maps 0 to 0 and needs canonical entries.

    SciPy sums duplicates first.
    """
    def handler(session: Session, x: Any, *more: Any) -> Any:
        operand = entries_of(session, x)
        if operand is None or not operand.check_canonical() or \
                _yields_half_precision(function, operand.values.dtype):
            return NotImplemented
        return with_entries(session, operand, function(operand.values, *more))

    return handler


def _yields_half_precision(function: Callable[..., Any], dtype: np.dtype) -> bool:
    """Return whether results are float16, which SciPy refuses after NumPy has computed them and warned."""
    return dtype.itemsize == 1 and type(function) is np.ufunc and \
        function.resolve_dtypes((dtype, None))[1].char == "e"


absolute_entries = _canonical_unary(np.absolute)


def round_entries(session: Session, x: Any, ndigits: Any = 0) -> Any:
    """Record ``round(x, ndigits)``."""
    return _canonical_unary(np.around)(session, x, ndigits) if type(ndigits) is int else NotImplemented


UNARY_METHODS = {name: _canonical_unary(getattr(np, name)) for name in UNARY}


def conjugate(session: Session, x: Any, copy: Any = True) -> Any:
    """Record ``x.conjugate()``: a copy if entries are real."""
    operand = entries_of(session, x)
    if operand is None or copy is not True:
        return NotImplemented
    if operand.values.dtype.kind != "c":
        return copy_matrix(session, x)
    return with_entries(session, operand, np.conjugate(operand.values))


def copy_matrix(session: Session, x: Any) -> Any:
    """Record ``x.copy()`` of a pending matrix; SciPy copies one in memory."""
    operand = entries_of(session, x)
    if operand is None or operand.memory is not None:
        return NotImplemented
    return with_entries(session, operand, _copy(operand.values))


def _copy(values: LazyArray) -> Any:
    return np.logical_or(values, values) if values.dtype.kind == "b" else np.positive(values)


def astype(session: Session, x: Any, dtype: Any, casting: Any = "unsafe", copy: Any = True) -> Any:
    """Record ``x.astype(dtype)`` of canonical entries: SciPy sums duplicates afterwards."""
    operand = entries_of(session, x)
    if operand is None or casting != "unsafe" or copy is not True or not operand.pattern.canonical:
        return NotImplemented
    target, source = np.dtype(dtype), operand.values.dtype
    if target == source:
        return copy_matrix(session, x)
    if target.char not in "?bhilBHILfdFD" or source.kind == "c" and target.kind != "c":
        return NotImplemented
    return with_entries(session, operand, operand.values.astype(target))


# -- comparisons, which drop entries ---------------------------------------------------------------


def _zero_dropping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the handler of a function of each entry and a number, after which SciPy drops zeros."""
    def handler(session: Session, x: Any, other: Any) -> Any:
        if type(other) not in (int, float) or function(0, other) or other != other:
            return NotImplemented
        operand = unmasked_entries(session, x)
        if operand is None or operand.pattern.format == "coo" or operand.values.dtype.kind not in "iuf" \
                or not operand.check_canonical():
            return NotImplemented
        values = function(operand.values, other)
        if type(values) is not LazyArray:
            return NotImplemented
        memory = operand.memory.data if operand.memory is not None and function is np.not_equal else None
        all_stored = memory is not None and other == 0 and np.count_nonzero(memory) == len(memory)
        return LazySparse(session, operand.pattern.with_copied_indices(), values,
                          None if all_stored else values)

    return handler


COMPARISONS = {name: _zero_dropping(function) for name, function in {
    "ne": np.not_equal, "lt": np.less, "gt": np.greater, "le": np.less_equal, "ge": np.greater_equal,
    "eq": np.equal, "maximum": np.maximum, "minimum": np.minimum}.items()}


# -- the same entries in another order or format ----------------------------------------------------


def transpose(session: Session, x: Any) -> Any:
    """Record ``x.T``: a view."""
    if type(x) is LazySparse and x._matrix is None:
        if x._sums_duplicates or type(x._base) is PendingProduct:
            return NotImplemented
        return LazySparse(session, x._pattern.transposed(), x._values, x._stored_mask, x, "transpose")
    operand = entries_of(session, x)
    if operand is None or operand.pattern.indptr is None or operand.pattern.format == "coo":
        return NotImplemented
    pattern = operand.pattern
    if pattern.indices.dtype.itemsize == 4 and max(pattern.shape) > _MAX_INT32:
        return NotImplemented  # SciPy widens the index arrays
    return LazySparse(session, pattern.transposed(), operand.values, None, IN_MEMORY)


def _conversion(form: str) -> Callable[..., Any]:
    """Return the handler of ``x.to<form>()`` of a pending matrix; in the same format, the matrix."""
    def handler(session: Session, x: Any, copy: Any = False) -> Any:
        if type(x) is not LazySparse or x._matrix is not None or x._sums_duplicates or copy is not False \
                or type(x._base) is PendingProduct:
            return NotImplemented
        pattern = x._pattern
        if pattern.format == form:
            return x
        if pattern.format != "coo" or pattern.indptr is None or form != ("csc" if pattern.axis else "csr"):
            return NotImplemented
        if pattern.axis or not pattern.canonical:
            return NotImplemented  # SciPy sorts entries or sums duplicates
        return LazySparse(session, pattern.as_compressed(), _copy(x._values))

    return handler


CONVERSIONS = {f"to{form}": _conversion(form) for form in ("csr", "csc", "coo")}


def _dense_or_none(session: Session, dense: Any) -> Any:
    return session.recorder.operand(dense) if type(dense) in LAZY or type(dense) is np.ndarray else None


def dense_operand(session: Session, y: Any) -> Any:
    """Return the proxy of a dense operand; None for anything else."""
    proxy = _dense_or_none(session, y)
    return proxy if type(proxy) is LazyArray else None


Operation = Callable[[Session, Any, Any], Any]
_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_INT = np.dtype(np.int32)


def _stored_operator(name: str) -> Operation:
    return lambda session, x, y: session.recorder.try_record(name, (x, y))


def _maximum(session: Session, x: Any, y: Any) -> Any:
    return np.where(np.less(x, y), y, x)


def _minimum(session: Session, x: Any, y: Any) -> Any:
    return np.where(np.less(y, x), y, x)


OPERATIONS: dict[str, Operation] = {
    "add": _stored_operator("stored_add"), "sub": _stored_operator("stored_sub"),
    "multiply": _stored_operator("stored_mul"),
    "maximum": _maximum, "minimum": _minimum,
}


def combine(session: Session, name: str, x: Any, y: Any) -> Any:
    """Record the operation `name` of two sparse matrices of equal shape, on the union of their patterns."""
    if x.shape != y.shape or len(x.shape) != 2 or not {x.dtype, y.dtype} <= _FLOATS:
        return NotImplemented
    form = x.format if x.format != "coo" else "csr"
    left, right = _entries_in_format(session, x, form), _entries_in_format(session, y, form)
    if left is None or right is None:
        return NotImplemented
    if not left.pattern.is_array and {_INT} != {g.pattern.indices.dtype for g in (left, right)}:
        return NotImplemented  # SciPy checks the values to choose the index dtype
    aligned = _align(session, left, right)
    if aligned is None:
        return NotImplemented
    pattern, a, b = aligned
    dtype = np.result_type(a.dtype, b.dtype)
    a, b = (z if z.dtype == dtype else z.astype(dtype) for z in (a, b))
    values = OPERATIONS[name](session, a, b)
    if type(values) is not LazyArray:
        return NotImplemented
    return LazySparse(session, pattern, values, values)


def _entries_in_format(session: Session, x: Any, form: str) -> Entries | None:
    """Return the entries of `x` in the format `form`; None if converting would sort or sum them."""
    operand = entries_of(session, x)
    if operand is None:
        return None
    pattern = operand.pattern
    if operand.memory is None and not pattern.is_array and {_INT} != {x.dtype for x in pattern.arrays}:
        return None  # SciPy narrows indices in the conversion if they fit
    if pattern.format != form:
        if operand.memory is not None:
            operand = entries_of(session, getattr(operand.memory, f"to{form}")())
        elif pattern.indptr is not None and pattern.axis == (form == "csc") and pattern.canonical:
            operand = operand._replace(pattern=pattern.as_compressed())
        else:
            return None
    return operand


def _align(session: Session, x: Entries, y: Entries) -> Any:
    """Return the union of two patterns and both operands' entries there, or 0; None if not canonical."""
    if x.pattern.has_same_positions(y.pattern):
        return (x.pattern.with_copied_indices(), x.values, y.values) if x.pattern.canonical else None
    if session.site.unions is None:
        session.site.unions = UnionCache()
    union = session.site.unions.union_of(x.pattern, y.pattern)
    if union is None:
        return None
    tables = [session.closer.value(each.values) if at is not None else None
              for each, at in zip((x, y), union.entry_maps, strict=True)]
    a, b = (each.values if table is None else _gather_entries(session, table, at)
            for each, table, at in zip((x, y), tables, union.entry_maps, strict=True))
    return x.pattern.with_indices(union.indptr, union.indices), a, b


def _gather_entries(session: Session, table: np.ndarray, at: tuple[np.ndarray, np.ndarray]) -> Any:
    """Record a gather from `table`: the elements numbered by an entry map, 0 at missing ones."""
    source = session.tape.tables.get(id(table))
    if source is None:
        source = session.tape.tables[id(table)] = lazy_array(session, table)
    indices, here = (lazy_array(session, x) for x in at)
    return np.where(here, session.recorder.try_record("take", (source, indices)), table.dtype.type(0))


# --------------------------------------------------------------------------- products and sums


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
        return session.recorder.try_record("sampled", (dense.T if by_columns else dense, indptr, indices))
    if shape not in ((pattern.shape[1],), (1, pattern.shape[1]), (pattern.shape[0], 1)):
        return NotImplemented
    is_column = shape[-1] == 1  # one element per row
    line = dense
    if dense.ndim != 1:
        line = session.recorder.try_record("reshape", (dense,), (("shape", (dense.size,)),))
    if is_column == by_columns:
        return session.recorder.try_record("by_column", (line, indices))
    return session.recorder.try_record("by_row", (line, indptr, indices))


def multiply_entries(session: Session, x: Any, y: Any) -> Any:
    """Record ``x.multiply(y)`` with a number or a dense array."""
    return scale(session, x, y) if is_scalar(y) else sampled_product(session, x, y)


def divide_by_dense(session: Session, x: Any, y: Any) -> Any:
    """Record ``x / y`` with a dense array: SciPy multiplies by the reciprocals."""
    return sampled_product(session, x, y, reciprocal=True)


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
    alive = [each() for each in session.memory.pending_matrices]
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
        sums = session.recorder.try_record("csr_row_sums", (values, indptr))
    else:
        ones = session.boundary.argument(np.ones(pattern.shape[axis], values.dtype))
        width = () if along_lines else (("width", pattern.shape[1 - axis]),)
        name = "csr_vector" if along_lines else "csr_transposed_vector"
        sums = session.recorder.try_record(name, (values, indices, indptr, ones), width)
    if type(sums) is not LazyArray or pattern.is_array:
        return sums
    return _as_matrix(session.closer.value(sums), axis, reduced)


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
            or dtype != right.values.dtype or not _is_finite_array(left.values) \
            or not _is_finite_array(right.values):
        return NotImplemented
    shape = patterns[0].shape[0], patterns[1].shape[1]
    both = PendingProduct(*(each._replace(memory=None) for each in (left, right)))
    return LazySparse(session, patterns[0].with_shape(shape), left.values, None, both)


def _multiply_chain(session: Session, x: LazySparse, y: Any) -> Any:
    """Record ``(a @ b) @ y`` as ``a @ (b @ y)`` once; a second use of ``a @ b`` computes it.

    Both differ if y is not finite, so it has to be in memory to be checked.
    """
    dense = dense_operand(session, y)
    if dense is None or session.closer.value(dense) is None or not _is_finite_array(dense):
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
    if is_coo_matrix and not _is_finite_array(dense):
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


def _is_finite_array(dense: LazyArray) -> bool:
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
        return session.recorder.try_record(name, operands, (("width", pattern.shape[0]),))
    return session.recorder.try_record("csr_vector" if dense.ndim == 1 else "csr_product", operands)


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
        return scale(session, x, y)
    if is_sparse(y) and x.__class__.__name__.endswith("array"):
        return combine(session, "multiply", x, y)
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
    return divide_by_scalar(session, x, y) if is_scalar(y) else divide_by_dense(session, x, y)


def _multiply_method(session: Session, x: Any, y: Any) -> Any:
    """Record ``x.multiply(y)``."""
    return combine(session, "multiply", x, y) if is_sparse(y) else multiply_entries(session, x, y)


def _binary_handler(name: str) -> Callable[..., Any]:
    """Return the handler of an operation on two sparse matrices."""
    def handler(session: Session, x: Any, y: Any) -> Any:
        both = is_sparse(x) and is_sparse(y)
        return combine(session, name, x, y) if both else NotImplemented

    return handler


def _extreme_handler(name: str) -> Callable[..., Any]:
    """Return the handler of ``x.maximum(y)`` or ``x.minimum(y)`` with a sparse matrix or a number."""
    def handler(session: Session, x: Any, y: Any) -> Any:
        both = is_sparse(x) and is_sparse(y)
        if both:
            return combine(session, name, x, y)
        return COMPARISONS[name](session, x, y)

    return handler


_METHODS: dict[Any, Callable[..., Any]] = {
    "multiply": _multiply_method, "dot": dot, "sum": sum_entries, "mean": mean_of_entries,
    "power": elementwise_power, "astype": astype, "copy": copy_matrix,
    "conjugate": conjugate, "conj": conjugate, "transpose": transpose,
    "maximum": _extreme_handler("maximum"), "minimum": _extreme_handler("minimum"),
    **UNARY_METHODS, **CONVERSIONS,
}
_HANDLERS: dict[Any, Callable[..., Any]] = {
    **_METHODS,
    **{getattr(np, name): UNARY_METHODS[name] for name in UNARY
       if name not in _NUMBERS_ONLY},
    **{getattr(operator, name): COMPARISONS[name]
       for name in ("ne", "lt", "gt", "le", "ge", "eq")},
    operator.add: _binary_handler("add"), operator.sub: _binary_handler("sub"), operator.mul: _multiply,
    np.multiply: _multiply_by_name, operator.matmul: matmul, operator.truediv: _divide,
    operator.neg: negative, np.negative: negative,
    abs: absolute_entries, operator.abs: absolute_entries,
    np.absolute: absolute_entries,
    operator.pow: operator_power, round: round_entries,
    np.sum: sum_entries, np.mean: mean_of_entries,
}

install_methods(_METHODS)
RECORDERS[__name__] = record_sparse_call
