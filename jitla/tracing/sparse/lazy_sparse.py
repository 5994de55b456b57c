"""Pending sparse matrices: sparsity patterns, proxies, and the unions of patterns."""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.events import record_sparse_matrix
from jitla.tiering.call_classes import sparse_classes
from jitla.tracing.lazy import LazyArray

_INDICES = frozenset({np.dtype(np.int32), np.dtype(np.int64)})
_NARROW, _MOST = np.dtype(np.int32), int(np.iinfo(np.int32).max)


def has_large_sparse(function: Any, args: tuple, min_entries: int) -> bool:
    """Return whether a call that falls back to SciPy has a sparse operand of at least `min_entries`."""
    scipy = sys.modules.get("scipy.sparse")
    if scipy is None:
        return False
    sparse_kinds = sparse_classes(scipy)
    operands = (*args, function.__self__) if type(function) is MethodType else args
    return any(type(x) in sparse_kinds and len(x.data) >= min_entries for x in operands)


class Pattern:
    """The sparsity pattern of a matrix: the positions of its entries in their order, and its SciPy class.

    Compressed lines along `axis` (0: rows) have `indptr` and `indices`, and so have coordinates made from
    them; other coordinates have `rows` and `columns`. New matrices get copies of the index arrays, made once
    in `index_copies`; it is None for a matrix in memory. Coordinates `from_dense`, of a product with a dense
    array, share index arrays with their source, as SciPy's do. `lazy_indices` is a memo: a session and the
    proxies of `indptr` and `indices` there.
    """

    __slots__ = ("kind", "shape", "axis", "indptr", "indices", "rows", "columns", "index_copies",
                 "from_dense", "known_canonical", "lazy_indices", "_sorted")

    kind: Any
    shape: tuple[int, int]
    axis: int
    indptr: Any
    indices: Any
    rows: Any
    columns: Any
    index_copies: list[np.ndarray] | None
    from_dense: bool
    known_canonical: bool
    lazy_indices: Any
    _sorted: bool | None

    @property
    def format(self) -> str:
        """SciPy's name of the format."""
        name: str = self.kind.__name__[:3]
        return name

    @property
    def is_array(self) -> bool:
        """Whether it is a sparse array, not a matrix: ``*`` is elementwise."""
        return bool(self.kind.__name__.endswith("array"))

    @property
    def may_narrow(self) -> bool:
        """Whether `build` may narrow the indices of the matrix in memory, as SciPy's matrix classes do."""
        return self.index_copies is None and not self.is_array and self.arrays[0].dtype != _NARROW

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The index arrays."""
        return (self.rows, self.columns) if self.indptr is None else (self.indptr, self.indices)

    @property
    def canonical(self) -> bool:
        """Whether entries are sorted and without duplicates, in SciPy's sense."""
        if self._sorted is None:
            self._sorted = self._check_canonical()
        return self._sorted

    def _check_canonical(self) -> bool:
        if self.indptr is not None:
            if self.format == "coo" and self.axis:
                return False
            no_data = np.broadcast_to(False, len(self.indices))
            canonical: bool = self._compressed_matrix(no_data, self.indptr, self.indices).has_canonical_format
            return canonical
        down = np.diff(self.rows)
        return bool(np.all((down > 0) | (down == 0) & (np.diff(self.columns) > 0)))

    def _replace(self, kind: Any, **changes: Any) -> Pattern:
        pattern = Pattern()
        for name in Pattern.__slots__:
            setattr(pattern, name, getattr(self, name))
        pattern.kind = kind
        for name, value in changes.items():
            setattr(pattern, name, value)
        return pattern

    def _class_in_family(self, form: str) -> Any:
        """Return SciPy's class of the format `form` in the same family (arrays or matrices)."""
        return getattr(sys.modules["scipy.sparse"], f"{form}_{'array' if self.is_array else 'matrix'}")

    def with_copied_indices(self) -> Pattern:
        """Return the pattern of a new matrix with other entries: with copies of the index arrays."""
        return self._replace(self.kind, index_copies=[], from_dense=False, known_canonical=False)

    def with_indices(self, indptr: np.ndarray, indices: np.ndarray) -> Pattern:
        """Return a canonical compressed pattern of the same class and shape with these index arrays."""
        return self._replace(
            self.kind, indptr=indptr, indices=indices, index_copies=[], from_dense=False,
            known_canonical=False, lazy_indices=None,
            _sorted=True)

    def as_coordinates(self, known_canonical: bool) -> Pattern:
        """Return the same positions as coordinates; `known_canonical`: SciPy's flag is set."""
        is_sorted = known_canonical or (self._sorted if not self.axis else False)
        return self._replace(
            self._class_in_family("coo"), from_dense=True, known_canonical=known_canonical, _sorted=is_sorted)

    def as_compressed(self) -> Pattern:
        """Return the same positions of coordinates in compressed format."""
        is_sorted = self._sorted if not self.axis else None
        return self._replace(
            self._class_in_family("csc" if self.axis else "csr"), index_copies=[], from_dense=False,
            known_canonical=False, _sorted=is_sorted)

    def with_shape(self, shape: tuple[int, int]) -> Pattern:
        """Return a placeholder pattern: only its class and shape are valid."""
        return self._replace(self.kind, shape=shape, index_copies=[], lazy_indices=None, _sorted=None)

    def transposed(self) -> Pattern:
        """Return the pattern of the transposed matrix, with the same entries."""
        form = {"csr": "csc", "csc": "csr", "coo": "coo"}[self.format]
        is_sorted = None if form == "coo" else self._sorted
        return self._replace(
            self._class_in_family(form), shape=self.shape[::-1], axis=1 - self.axis, rows=self.columns,
            columns=self.rows, known_canonical=False, _sorted=is_sorted)

    def _owned_indices(self) -> tuple[np.ndarray, ...]:
        """Return the index arrays of a matrix that is built."""
        if self.index_copies is None:
            return self.arrays
        if not self.index_copies:
            kind = self._index_dtype()
            self.index_copies.extend(part.astype(kind) for part in self.arrays)
        return tuple(self.index_copies)

    def _index_dtype(self) -> np.dtype:
        """Return SciPy's dtype of index arrays: its matrix classes narrow them to int32 if they fit."""
        dtype: np.dtype = self.arrays[0].dtype
        if dtype == _NARROW or self.is_array or max(self.shape) > _MOST:
            return dtype
        fits = all(-_MOST <= part.min(initial=0) and part.max(initial=0) <= _MOST for part in self.arrays)
        return _NARROW if fits else dtype

    def _compressed_matrix(self, data: Any, indptr: np.ndarray, indices: np.ndarray) -> Any:
        """Return SciPy's compressed matrix of these arrays, without copies."""
        kind = self._class_in_family("csc" if self.axis else "csr")
        return kind((data, indices, indptr), shape=self.shape)

    def build(self, data: np.ndarray) -> Any:
        """Return SciPy's matrix of the entries `data`."""
        if self.format != "coo":
            indptr, indices = self._owned_indices()
            return self.kind((data, indices, indptr), shape=self.shape, dtype=data.dtype)
        if self.indptr is None:
            return self.kind((data, self._owned_indices()), shape=self.shape, dtype=data.dtype)
        lines = self._compressed_matrix(data, *self._owned_indices())
        lines.has_canonical_format = self.known_canonical  # else SciPy would check
        matrix = lines.tocoo(copy=False)
        if self.axis or not self.from_dense:
            matrix.coords = tuple([x.copy() if k != self.axis else x for k, x in enumerate(matrix.coords)])
        matrix.data = data.ravel() if self.from_dense else data  # a view, as SciPy's
        return matrix

    def build_where(self, data: np.ndarray, mask: np.ndarray) -> Any:
        """Return SciPy's compressed matrix of the entries with a nonzero `mask`."""
        if np.count_nonzero(mask) == len(mask):
            return self.build(data)
        stored = mask != 0
        offsets = np.zeros(len(stored) + 1, self.indptr.dtype)
        np.cumsum(stored, out=offsets[1:])
        arrays = [x[stored] if offsets[-1] or len(x) > 1 else x.copy()[:0] for x in (data, self.indices)]
        return self.kind((*arrays, offsets[self.indptr]), shape=self.shape)

    def has_same_positions(self, other: Pattern) -> bool:
        """Return whether `other` has the same positions, because it shares the index arrays."""
        return self is other or self.axis == other.axis and self.shape == other.shape and \
            (self.indptr is None) == (other.indptr is None) and \
            all(map(_is_same, self.arrays, other.arrays))


def _is_same(a: np.ndarray, b: np.ndarray) -> bool:
    return a is b or a.shape == b.shape and a.dtype == b.dtype and a.strides == b.strides and \
        a.ctypes.data == b.ctypes.data


def pattern_of(x: Any) -> Pattern | None:
    """Return the pattern of a matrix in memory; None if its parts are no consistent plain arrays."""
    if len(x.shape) != 2:
        return None
    pattern = Pattern()
    pattern.kind, pattern.shape, pattern.lazy_indices, pattern._sorted = type(x), x.shape, None, None
    pattern.index_copies, pattern.from_dense, pattern.known_canonical = None, False, False
    if pattern.format == "coo":
        pattern.axis, pattern.indptr, pattern.indices = 0, None, None
        pattern.rows, pattern.columns = x.coords
        parts = pattern.rows, pattern.columns, x.data
        fits = len(pattern.rows) == len(pattern.columns) == len(x.data)
    else:
        pattern.axis = int(pattern.kind.__name__[:3] == "csc")
        pattern.indptr, pattern.indices = x.indptr, x.indices
        pattern.rows = pattern.columns = None
        parts = pattern.indptr, pattern.indices, x.data
        fits = len(pattern.indices) == len(x.data) and len(pattern.indptr) == x.shape[pattern.axis] + 1
    for part in parts:
        if not fits or type(part) is not np.ndarray or part.ndim != 1 or not part.flags.c_contiguous:
            return None
    if parts[0].dtype != parts[1].dtype or parts[0].dtype not in _INDICES or not len(x.data):
        return None
    if pattern.indptr is not None and (pattern.indptr[0] or pattern.indptr[-1] != len(x.data)):
        return None
    return pattern


Session = Any
Recorder = Callable[[Session, Any, tuple, dict], Any]

#: Functions that record calls on sparse matrices or return NotImplemented. `products` enters one when loaded.
RECORDERS: dict[str, Recorder] = {}  # by module name
IN_MEMORY = object()
MAX_UNPRUNED_REFERENCES = 64  # weak references; more are pruned of dead ones


class PendingProduct(NamedTuple):
    """A pending product of two sparse matrices: patterns and entries of both."""

    left: Any
    right: Any

    def reads(self, target: np.ndarray) -> bool:
        """Return whether index arrays or entries in memory may overlap `target`."""
        arrays = [part for each in self for part in each.pattern.arrays]
        arrays += [each.values._v for each in self if each.values._v is not None]
        return any(np.may_share_memory(target, part) for part in arrays)

    def build(self, session: Session) -> Any:
        """Compute the product by SciPy."""
        left, right = (each.pattern.build(session.closer.value(each.values)) for each in self)
        return left @ right


class LazySparse:
    """The proxy of a sparse matrix with the entries `values` at the positions of `pattern`.

    Entries with a zero `stored_mask` are 0 and not stored. A view has a `base`: a pending matrix, whose
    method `view_method` returns it, or `IN_MEMORY`, where it shares the arrays of its pattern. A base that is
    a `PendingProduct` makes this a pending product: of the pattern only class and shape are valid, of the
    entries the dtype; `view_method` is set once it was multiplied as part of a chain.
    """

    _session: Any
    _pattern: Pattern
    _values: Any
    _stored_mask: Any
    _base: Any
    _view_method: str
    _sums_duplicates: bool
    _matrix: Any

    __slots__ = ("_session", "_pattern", "_values", "_stored_mask", "_base", "_view_method",
                 "_sums_duplicates", "_matrix", "__weakref__")

    __array_priority__ = 1e6

    def __init__(
        self, session: Session, pattern: Pattern, values: LazyArray, stored_mask: LazyArray | None = None,
        base: Any = None, view_method: str = "",
    ) -> None:
        set_attribute = object.__setattr__  # setting other attributes materialises the matrix
        set_attribute(self, "_session", session)
        set_attribute(self, "_pattern", pattern)
        set_attribute(self, "_values", values)
        set_attribute(self, "_stored_mask", stored_mask)
        set_attribute(self, "_base", base)
        set_attribute(self, "_view_method", view_method)
        set_attribute(self, "_sums_duplicates", False)  # SciPy's sum sums duplicates in place first
        set_attribute(self, "_matrix", None)
        stored = session.memory.pending_matrices
        if len(stored) >= MAX_UNPRUNED_REFERENCES:
            stored[:] = [each for each in stored if each() is not None]
        stored.append(ref(self))

    @property
    def __class__(self) -> type:
        kind: type = self._pattern.kind
        return kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, known without computing."""
        return self._pattern.shape if self._matrix is None else self._matrix.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return 2

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the entries, known without computing."""
        return self._values.dtype if self._matrix is None else self._matrix.dtype

    @property
    def format(self) -> str:
        """SciPy's name of the format."""
        return self._pattern.format

    @property
    def nnz(self) -> int:
        """Number of entries, known without computing if no mask drops some."""
        is_known = self._matrix is None and self._stored_mask is None and not self._sums_duplicates \
            and type(self._base) is not PendingProduct
        return self._values.size if is_known else scipy_matrix(self).nnz

    @property
    def T(self) -> Any:
        """The transposed matrix, with the same entries."""
        return self.transpose()

    def __getattr__(self, name: str) -> Any:
        return getattr(scipy_matrix(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in LazySparse.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(scipy_matrix(self), name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return scipy_matrix(self).__reduce_ex__(protocol)


def scipy_matrix(lazy: LazySparse) -> Any:
    """Return SciPy's matrix of a proxy, computing it if it is pending, and with it its pending views."""
    if lazy._matrix is None:
        lazy._matrix = _build(lazy)
        if lazy._base is None:
            record_sparse_matrix(lazy._matrix, len(lazy._values))
        # views share its memory
        for each in [reference() for reference in lazy._session.memory.pending_matrices]:
            if each is not None and each._base is lazy:
                scipy_matrix(each)
    return lazy._matrix


def _build(lazy: LazySparse) -> Any:
    if type(lazy._base) is PendingProduct:
        return lazy._base.build(lazy._session)
    session = lazy._session
    if type(lazy._base) is LazySparse:
        matrix = getattr(scipy_matrix(lazy._base), lazy._view_method)()
    elif lazy._stored_mask is not None:
        return lazy._pattern.build_where(
            session.closer.value(lazy._values), session.closer.value(lazy._stored_mask))
    else:
        matrix = lazy._pattern.build(session.closer.value(lazy._values))
    if lazy._sums_duplicates:
        matrix.sum_duplicates()
    return matrix


def materialize_pending(session: Session, target: np.ndarray | None) -> None:
    """Compute pending matrices whose index arrays may overlap `target`, which is written (None: all)."""
    alive = [each for reference in session.memory.pending_matrices
             if (each := reference()) is not None and each._matrix is None]
    for each in alive:
        if each._matrix is None and (target is None or _is_in(each, target)):
            scipy_matrix(each)
    session.memory.pending_matrices[:] = [ref(each) for each in alive if each._matrix is None]


def _is_in(lazy: LazySparse, target: np.ndarray) -> bool:
    """Return whether the memory of `lazy`, entries on the tape excepted, may overlap `target`."""
    if type(lazy._base) is PendingProduct:
        return lazy._base.reads(target)
    return any(np.may_share_memory(target, part) for part in lazy._pattern.arrays)


def invalidate_memos(memos: dict[int, Any], target: np.ndarray | None) -> None:
    """Drop the memos of arrays that may overlap `target`, which is written (None: all)."""
    for key, memo in list(memos.items()):
        if target is None or any(np.may_share_memory(target, part) for part in memo.arrays):
            del memos[key]


def _operator(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: LazySparse, *args: Any) -> Any:
        operands = (*args, self) if reflected else (self, *args)
        result = _record(self, function, operands, {})
        if result is NotImplemented:
            result = self._session.boundary.call_opaque(function, operands, {})
        return result

    return method


def _method(name: str) -> Callable[..., Any]:
    def method(self: LazySparse, *args: Any, **kwargs: Any) -> Any:
        result = _record(self, name, (self, *args), kwargs)
        return self._session.boundary.call_opaque(getattr(scipy_matrix(self), name), args, kwargs) \
            if result is NotImplemented else result

    method.__name__ = name
    return method


def _record(lazy: LazySparse, function: Any, args: tuple, kwargs: dict) -> Any:
    for recorder in RECORDERS.values():
        result = recorder(lazy._session, function, args, kwargs)
        if result is not NotImplemented:
            return result
    return NotImplemented


def install_methods(names: Iterable[str]) -> None:
    """Add methods to `LazySparse` that record calls, with the SciPy fallback."""
    for name in names:
        setattr(LazySparse, name, _method(name))


def _install_operators() -> None:
    for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"):
        function = getattr(operator, name)
        setattr(LazySparse, f"__{name}__", _operator(function))
        setattr(LazySparse, f"__r{name}__", _operator(function, True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "getitem", "setitem", "contains", "abs"):
        setattr(LazySparse, f"__{name}__", _operator(getattr(operator, name)))
    builtins: dict[str, Callable[..., Any]] = {
        "bool": bool, "len": len, "iter": iter, "repr": repr, "str": str, "hash": hash, "round": round,
        "float": float, "int": int, "complex": complex, "copy": copy.copy, "deepcopy": copy.deepcopy,
    }
    for name, function in builtins.items():
        setattr(LazySparse, f"__{name}__", _operator(function))


_install_operators()


MAX_UNION_BYTES = 1 << 28  # bytes of cached unions of one function
MAX_SAMPLED_PAIRS = 64  # pairs of patterns seen once
SAMPLED_POSITIONS = 128  # positions compared before all are
_LOW = (1 << 32) - 1


class PatternUnion:
    """The union of two compressed patterns, and for both operands the map from its positions to entries.

    An entry map is None if every position has an entry. Else it is a pair: entry numbers, arbitrary at
    missing ones, and the mask of present entries.
    """

    __slots__ = ("source_indices", "indptr", "indices", "entry_maps", "nbytes")

    def __init__(self, a: Pattern, b: Pattern) -> None:
        merged = _with_entry_numbers(a, 0) + _with_entry_numbers(b, 32)
        self.indptr, self.indices = merged.indptr, merged.indices
        self.entry_maps = _entry_map(merged.data & _LOW), _entry_map(merged.data >> 32)
        self.source_indices = tuple(x.copy() for x in (a.indptr, a.indices, b.indptr, b.indices))
        parts = [self.indptr, self.indices, *self.source_indices,
                 *(x for entry_map in self.entry_maps if entry_map for x in entry_map)]
        self.nbytes = sum(x.nbytes for x in parts)

    def matches(self, a: Pattern, b: Pattern) -> bool:
        """Return whether this is the union of two canonical patterns."""
        arrays = a.indptr, a.indices, b.indptr, b.indices
        return all(x.shape == y.shape for x, y in zip(arrays, self.source_indices, strict=True)) and all(
            np.array_equal(x, y) for x, y in zip(arrays, self.source_indices, strict=True))


def _with_entry_numbers(x: Pattern, shift: int) -> Any:
    """Return compressed rows whose entries are their own numbers, from 1, shifted left by `shift` bits."""
    numbers = np.arange(1, len(x.indices) + 1, dtype=np.int64) << shift
    shape = len(x.indptr) - 1, x.shape[1 - x.axis]
    return sys.modules["scipy.sparse"].csr_array((numbers, x.indices, x.indptr), shape=shape)


def _entry_map(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    present = numbers != 0
    if present.all():
        return None
    return np.maximum(numbers - 1, 0).astype(np.int32), present


class UnionCache:
    """A cache of the unions of patterns that one function combines.

    Computing a union takes longer than SciPy's own merge, so it waits until a pair seems to occur again.
    """

    def __init__(self) -> None:
        self._unions: list[PatternUnion] = []
        self._sampled_pairs: set[tuple] = set()

    def union_of(self, a: Pattern, b: Pattern) -> PatternUnion | None:
        """Return the union of two patterns; None if they are not canonical, or seen for the first time."""
        for each in self._unions:
            if each.matches(a, b):
                return each
        sample = (*_sample(a), *_sample(b))
        if sample not in self._sampled_pairs:
            if len(self._sampled_pairs) >= MAX_SAMPLED_PAIRS:
                self._sampled_pairs.clear()
            self._sampled_pairs.add(sample)
            return None
        if not a.canonical or not b.canonical or max(len(a.indices), len(b.indices)) >= _LOW >> 2:
            return None
        union = PatternUnion(a, b)
        unions = list(self._unions)
        while unions and sum(each.nbytes for each in unions) + union.nbytes > MAX_UNION_BYTES:
            unions.pop(0)
        self._unions = [*unions, union]
        return union


def _sample(x: Pattern) -> tuple[int, int, bytes]:
    step = max(1, len(x.indices) // SAMPLED_POSITIONS)
    return len(x.indptr), len(x.indices), x.indices[::step].tobytes()
