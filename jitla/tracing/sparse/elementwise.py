"""Element-wise operators of sparse matrices."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.profiling.call_classes import sparse_classes
from jitla.tracing.lazy import LAZY, LazyArray, LazyScalar
from jitla.tracing.mutation import lazy_array
from jitla.tracing.sparse.lazy_sparse import (
    IN_MEMORY,
    LazySparse,
    Pattern,
    PendingProduct,
    UnionCache,
    pattern_of,
    scipy_matrix,
)
from jitla.tracing.tape import KIND_CODE

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
    memo = session.memory_facts.get(id(x))
    if memo is not None and memo.matches(x) and session.foreigners.get(id(memo.data)) is memo.values:
        return Entries(memo.pattern, memo.values, None, x)
    if type(x) not in sparse_classes(sys.modules["scipy.sparse"]):
        return None
    pattern = pattern_of(x)
    values = session.argument(x.data) if pattern is not None else None
    if pattern is None or type(values) is not LazyArray:
        return None
    if pattern.indptr is not None:
        key, memos = id(x), session.memory_facts
        reference = ref(x, lambda _: memos.pop(key, None))
        memos[key] = MatrixMemo(reference, values._v, pattern, values)
    return Entries(pattern, values, None, x)


def indices_of(session: Session, pattern: Pattern) -> tuple[Any, Any] | None:
    """Return the proxies of `indptr` and `indices`; None if they are no plain arrays."""
    lazy_indices = pattern.lazy_indices
    if lazy_indices is not None and lazy_indices[0] is session:
        proxies: tuple[Any, Any] = lazy_indices[1:]
        return proxies
    indptr, indices = session.argument(pattern.indptr), session.argument(pattern.indices)
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
    if operand is not None and operand.stored_mask is not None and not _is_finite(factor):
        operand = unmasked_entries(session, x)
    if operand is None:
        return NotImplemented
    return with_entries(session, operand, np.multiply(operand.values, factor))


def _is_finite(factor: Any) -> bool:
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
    return session.operand(dense) if type(dense) in LAZY or type(dense) is np.ndarray else None


def dense_operand(session: Session, y: Any) -> Any:
    """Return the proxy of a dense operand; None for anything else."""
    proxy = _dense_or_none(session, y)
    return proxy if type(proxy) is LazyArray else None


Operation = Callable[[Session, Any, Any], Any]
_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_INT = np.dtype(np.int32)


def _stored_operator(name: str) -> Operation:
    return lambda session, x, y: session.try_record(name, (x, y))


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
    tables = [session.value(each.values) if at is not None else None
              for each, at in zip((x, y), union.entry_maps, strict=True)]
    a, b = (each.values if table is None else _gather_entries(session, table, at)
            for each, table, at in zip((x, y), tables, union.entry_maps, strict=True))
    return x.pattern.with_indices(union.indptr, union.indices), a, b


def _gather_entries(session: Session, table: np.ndarray, at: tuple[np.ndarray, np.ndarray]) -> Any:
    """Record a gather from `table`: the elements numbered by an entry map, 0 at missing ones."""
    source = session.tables.get(id(table))
    if source is None:
        source = session.tables[id(table)] = lazy_array(session, table)
    indices, here = (lazy_array(session, x) for x in at)
    return np.where(here, session.try_record("take", (source, indices)), table.dtype.type(0))
