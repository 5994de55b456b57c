"""Element-wise operators of sparse matrices."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.profiling.call_classes import kinds
from jitla.tracing.lazy import LAZY, LazyArray, LazyScalar
from jitla.tracing.mutation import lazy_array
from jitla.tracing.sparse.lazy_sparse import (
    IN_MEMORY,
    LazySparse,
    Pattern,
    Product,
    Unions,
    pattern_of,
    settled,
)
from jitla.tracing.tape import KIND_CODE

Session = Any  # the session that the arguments belong to

_DOUBLE = np.dtype(np.float64)
_MOST_INT = np.iinfo(np.int32).max
#: SciPy's methods that are a function of each entry, and give 0 for 0.
UNARY = ("sin", "tan", "arcsin", "arctan", "sinh", "tanh", "arcsinh", "arctanh", "rint", "sign", "expm1",
         "log1p", "deg2rad", "rad2deg", "floor", "ceil", "trunc", "sqrt")


class Entries(NamedTuple):
    """A sparse operand: its pattern, its entries, what is 0 where none is; the matrix if it is in memory.

    `lazy` stands for coordinates that are not in memory.
    """

    pattern: Pattern
    values: Any  # a proxy
    kept: LazyArray | None
    memory: Any
    lazy: Any = None

    def stay(self) -> bool:
        """Whether SciPy leaves them where it adds up duplicates first; it notes that it looked."""
        if self.memory is not None:
            return bool(self.memory.has_canonical_format)
        found = self.pattern.canonical
        if found and self.lazy is not None:
            self.lazy._summed = True
        return found


class Known(NamedTuple):
    """What was found of a matrix of compressed lines in memory, as long as none of it is written."""

    matrix: Callable[[], Any]  # a reference
    data: np.ndarray
    pattern: Pattern
    values: LazyArray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The memory that this is about."""
        return self.pattern.arrays

    def is_of(self, x: Any) -> bool:
        """Whether `x` is that matrix, with the same arrays."""
        pattern = self.pattern
        same: bool = self.matrix() is x and x.data is self.data and x.indices is pattern.places \
            and x.indptr is pattern.starts and x.shape == pattern.shape and type(x) is pattern.kind
        return same


def entries_of(session: Session, x: Any) -> Entries | None:
    """Return what a sparse matrix consists of; None if it is none, or its parts are no plain arrays."""
    if type(x) is LazySparse:
        summed = x._summed and not x._pattern.canonical
        if x._made is None and x._session is session and not summed and type(x._whole) is not Product:
            return Entries(x._pattern, x._values, x._kept, None, x if x._pattern.format == "coo" else None)
        x = settled(x)
    known = session.known.get(id(x))
    if known is not None and known.is_of(x) and session.foreigners.get(id(known.data)) is known.values:
        return Entries(known.pattern, known.values, None, x)
    if type(x) not in kinds(sys.modules["scipy.sparse"]):
        return None
    pattern = pattern_of(x)
    values = session.argument(x.data) if pattern is not None else None
    if pattern is None or type(values) is not LazyArray:
        return None
    if pattern.starts is not None:
        key, remembered = id(x), session.known
        gone = ref(x, lambda _: remembered.pop(key, None))
        remembered[key] = Known(gone, values._v, pattern, values)
    return Entries(pattern, values, None, x)


def indices_of(session: Session, pattern: Pattern) -> tuple[Any, Any] | None:
    """Return the proxies of where lines begin and of the places in them; None if they are no plain arrays."""
    read = pattern.read
    if read is not None and read[0] is session:
        found: tuple[Any, Any] = read[1:]
        return found
    starts, places = session.argument(pattern.starts), session.argument(pattern.places)
    if type(starts) is not LazyArray or type(places) is not LazyArray:
        return None
    pattern.read = session, starts, places
    return starts, places


def whole_entries(session: Session, x: Any) -> Entries | None:
    """Like `entries_of`; if some entries may not be stored, those that are, in memory."""
    found = entries_of(session, x)
    return found if found is None or found.kept is None else entries_of(session, settled(x))


def is_sparse(x: Any) -> bool:
    """Tell whether `x` is a sparse matrix of a class that is recorded."""
    return type(x) is LazySparse or type(x) in kinds(sys.modules["scipy.sparse"])


def is_scalar(x: Any) -> bool:
    """Tell whether `x` is a number, or will be one."""
    return type(x) is LazyScalar or type(x) in KIND_CODE


def with_entries(session: Session, x: Entries, values: Any) -> Any:
    """Return the proxy of a matrix with other entries at the same positions; where it had 0 it has 0."""
    if type(values) is not LazyArray:
        return NotImplemented
    return LazySparse(session, x.pattern.copied(), values, x.kept)


# -- numbers ---------------------------------------------------------------------------------------


def scaled(session: Session, x: Any, factor: Any) -> Any:
    """Do ``x * factor`` with a number."""
    given = entries_of(session, x)
    if given is not None and given.kept is not None and not _is_finite(factor):
        given = whole_entries(session, x)
    if given is None:
        return NotImplemented
    return with_entries(session, given, np.multiply(given.values, factor))


def _is_finite(factor: Any) -> bool:
    return type(factor) in (int, float) and abs(factor) < 1e9  # 0 stays 0, whatever the dtype


def divided(session: Session, x: Any, divisor: Any) -> Any:
    """Do ``x / divisor`` with a number, which SciPy multiplies by the reciprocal."""
    given = whole_entries(session, x)
    if given is None or type(divisor) in (int, float, bool, complex) and not divisor:
        return NotImplemented
    values = given.values
    if values.dtype != _DOUBLE:
        if values.dtype.kind == "c" or not given.pattern.canonical:
            return NotImplemented
        values = values.astype(_DOUBLE)
    return with_entries(session, given, np.multiply(values, 1 / divisor))


def power(session: Session, x: Any, n: Any, dtype: Any = None) -> Any:
    """Do ``x.power(n)``."""
    given = entries_of(session, x) if type(n) in (int, float) and n > 0 else whole_entries(session, x)
    if given is None or dtype is not None or type(n) not in (int, float) or not n or not given.stay():
        return NotImplemented
    return with_entries(session, given, given.values ** n)


def operator_power(session: Session, x: Any, n: Any) -> Any:
    """Do ``x ** n``, which is a product of matrices for those that are no arrays."""
    return power(session, x, n) if is_sparse(x) and _is_array(x) else NotImplemented


def _is_array(x: Any) -> bool:
    kind: str = x.__class__.__name__
    return kind.endswith("array")


# -- functions of each entry -----------------------------------------------------------------------


def negative(session: Session, x: Any) -> Any:
    """Do ``-x``."""
    given = entries_of(session, x)
    if given is None or given.values.dtype.kind == "b":
        return NotImplemented
    return with_entries(session, given, np.negative(given.values))


def _summed_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make what does a function of each entry that is 0 of 0, before which SciPy adds up duplicates."""
    def handler(session: Session, x: Any, *more: Any) -> Any:
        given = entries_of(session, x)
        if given is None or not given.stay() or _is_half(function, given.values.dtype):
            return NotImplemented
        return with_entries(session, given, function(given.values, *more))

    return handler


def _is_half(function: Callable[..., Any], dtype: np.dtype) -> bool:
    """Tell of results of two bytes, which SciPy refuses once NumPy has made them, which warns once."""
    return dtype.itemsize == 1 and type(function) is np.ufunc and \
        function.resolve_dtypes((dtype, None))[1].char == "e"


absolute = _summed_first(np.absolute)


def rounded(session: Session, x: Any, ndigits: Any = 0) -> Any:
    """Do ``round(x, ndigits)``."""
    return _summed_first(np.around)(session, x, ndigits) if type(ndigits) is int else NotImplemented


UNARY_METHODS = {name: _summed_first(getattr(np, name)) for name in UNARY}


def conjugate(session: Session, x: Any, copy: Any = True) -> Any:
    """Do ``x.conjugate()``: a copy, if there is nothing to conjugate."""
    given = entries_of(session, x)
    if given is None or copy is not True:
        return NotImplemented
    if given.values.dtype.kind != "c":
        return copied(session, x)
    return with_entries(session, given, np.conjugate(given.values))


def copied(session: Session, x: Any) -> Any:
    """Do ``x.copy()``: SciPy copies what is in memory."""
    given = entries_of(session, x)
    if given is None or given.memory is not None:
        return NotImplemented
    return with_entries(session, given, _copy(given.values))


def _copy(values: LazyArray) -> Any:
    return np.logical_or(values, values) if values.dtype.kind == "b" else np.positive(values)


def astype(session: Session, x: Any, dtype: Any, casting: Any = "unsafe", copy: Any = True) -> Any:
    """Do ``x.astype(dtype)``, after which SciPy adds up duplicates."""
    given = entries_of(session, x)
    if given is None or casting != "unsafe" or copy is not True or not given.pattern.canonical:
        return NotImplemented
    wanted, known = np.dtype(dtype), given.values.dtype
    if wanted == known:
        return copied(session, x)
    if wanted.char not in "?bhilBHILfdFD" or known.kind == "c" and wanted.kind != "c":
        return NotImplemented
    return with_entries(session, given, given.values.astype(wanted))


# -- what drops entries ----------------------------------------------------------------------------


def _dropping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make what does a function of each entry and a number, after which SciPy drops zeros."""
    def handler(session: Session, x: Any, other: Any) -> Any:
        if type(other) not in (int, float) or function(0, other) or other != other:
            return NotImplemented
        given = whole_entries(session, x)
        if given is None or given.pattern.format == "coo" or given.values.dtype.kind not in "iuf" \
                or not given.stay():
            return NotImplemented
        values = function(given.values, other)
        if type(values) is not LazyArray:
            return NotImplemented
        memory = given.memory.data if given.memory is not None and function is np.not_equal else None
        all_kept = memory is not None and other == 0 and np.count_nonzero(memory) == len(memory)
        return LazySparse(session, given.pattern.copied(), values, None if all_kept else values)

    return handler


COMPARISONS = {name: _dropping(function) for name, function in {
    "ne": np.not_equal, "lt": np.less, "gt": np.greater, "le": np.less_equal, "ge": np.greater_equal,
    "eq": np.equal, "maximum": np.maximum, "minimum": np.minimum}.items()}


# -- the same entries, otherwise arranged ----------------------------------------------------------


def transposed(session: Session, x: Any) -> Any:
    """Do ``x.T``: a view."""
    if type(x) is LazySparse and x._made is None:
        if x._summed or type(x._whole) is Product:
            return NotImplemented
        return LazySparse(session, x._pattern.turned(), x._values, x._kept, x, "transpose")
    given = entries_of(session, x)
    if given is None or given.pattern.starts is None or given.pattern.format == "coo":
        return NotImplemented
    pattern = given.pattern
    if pattern.places.dtype.itemsize == 4 and max(pattern.shape) > _MOST_INT:
        return NotImplemented  # SciPy makes other index arrays
    return LazySparse(session, pattern.turned(), given.values, None, IN_MEMORY)


def _as(form: str) -> Callable[..., Any]:
    """Make what returns a pending matrix in another format; in its own it is the matrix itself."""
    def handler(session: Session, x: Any, copy: Any = False) -> Any:
        if type(x) is not LazySparse or x._made is not None or x._summed or copy is not False \
                or type(x._whole) is Product:
            return NotImplemented
        pattern = x._pattern
        if pattern.format == form:
            return x
        if pattern.format != "coo" or pattern.starts is None or form != ("csc" if pattern.axis else "csr"):
            return NotImplemented
        if pattern.axis or not pattern.canonical:
            return NotImplemented  # SciPy orders them, or adds some up
        return LazySparse(session, pattern.compressed(), _copy(x._values))

    return handler


CONVERSIONS = {f"to{form}": _as(form) for form in ("csr", "csc", "coo")}


def _owned(session: Session, dense: Any) -> Any:
    return session.operand(dense) if type(dense) in LAZY or type(dense) is np.ndarray else None


def dense_operand(session: Session, y: Any) -> Any:
    """Return the proxy of a dense operand; None if it is none, or not traced."""
    found = _owned(session, y)
    return found if type(found) is LazyArray else None


Operation = Callable[[Session, Any, Any], Any]
_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_INT = np.dtype(np.int32)


def _cell(name: str) -> Operation:
    return lambda session, x, y: session.traced(name, (x, y))


def _larger(session: Session, x: Any, y: Any) -> Any:
    return np.where(np.less(x, y), y, x)


def _smaller(session: Session, x: Any, y: Any) -> Any:
    return np.where(np.less(y, x), y, x)


OPERATIONS: dict[str, Operation] = {
    "add": _cell("stored_add"), "sub": _cell("stored_sub"), "multiply": _cell("stored_mul"),
    "maximum": _larger, "minimum": _smaller,
}


def merged(session: Session, name: str, x: Any, y: Any) -> Any:
    """Do the operation `name` with two sparse matrices of one shape."""
    if x.shape != y.shape or len(x.shape) != 2 or not {x.dtype, y.dtype} <= _FLOATS:
        return NotImplemented
    form = x.format if x.format != "coo" else "csr"
    left, right = _compressed(session, x, form), _compressed(session, y, form)
    if left is None or right is None:
        return NotImplemented
    if not left.pattern.is_array and {_INT} != {g.pattern.places.dtype for g in (left, right)}:
        return NotImplemented  # SciPy looks whether they fit, also at what is no index
    made = _aligned(session, left, right)
    if made is None:
        return NotImplemented
    pattern, a, b = made
    dtype = np.result_type(a.dtype, b.dtype)
    a, b = (z if z.dtype == dtype else z.astype(dtype) for z in (a, b))
    values = OPERATIONS[name](session, a, b)
    if type(values) is not LazyArray:
        return NotImplemented
    return LazySparse(session, pattern, values, values)


def _compressed(session: Session, x: Any, form: str) -> Entries | None:
    """Return the entries of `x` in the format `form`; None if they are others there, or not plain."""
    given = entries_of(session, x)
    if given is None:
        return None
    pattern = given.pattern
    if given.memory is None and not pattern.is_array and {_INT} != {x.dtype for x in pattern.arrays}:
        return None  # SciPy makes indices narrow on the way, if they fit
    if pattern.format != form:
        if given.memory is not None:
            given = entries_of(session, getattr(given.memory, f"to{form}")())
        elif pattern.starts is not None and pattern.axis == (form == "csc") and pattern.canonical:
            given = given._replace(pattern=pattern.compressed())
        else:
            return None
    return given


def _aligned(session: Session, x: Entries, y: Entries) -> Any:
    """Return the pattern of both and their entries there, 0 where there is none; None if out of order."""
    if x.pattern.is_at(y.pattern):
        return (x.pattern.copied(), x.values, y.values) if x.pattern.canonical else None
    if session.site.unions is None:
        session.site.unions = Unions()
    union = session.site.unions.of(x.pattern, y.pattern)
    if union is None:
        return None
    tables = [session.value(each.values) if at is not None else None
              for each, at in zip((x, y), union.at, strict=True)]
    a, b = (each.values if table is None else _taken(session, table, at)
            for each, table, at in zip((x, y), tables, union.at, strict=True))
    return x.pattern.placed(union.starts, union.places), a, b


def _taken(session: Session, table: np.ndarray, at: tuple[np.ndarray, np.ndarray]) -> Any:
    """Return the elements of `table` at the positions where there are some, and 0 elsewhere."""
    source = session.tables.get(id(table))
    if source is None:
        source = session.tables[id(table)] = lazy_array(session, table)
    places, here = (lazy_array(session, x) for x in at)
    return np.where(here, session.traced("take", (source, places)), table.dtype.type(0))
