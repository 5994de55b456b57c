"""Lazy sparse matrices: their pattern and stored entries."""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.events import stored
from jitla.profiling.call_classes import kinds
from jitla.tracing.lazy import LazyArray

_INDICES = frozenset({np.dtype(np.int32), np.dtype(np.int64)})
_NARROW, _MOST = np.dtype(np.int32), int(np.iinfo(np.int32).max)
LARGE = 1 << 16  # entries, or elements beside them: for fewer SciPy is as fast


def is_large(function: Any, args: tuple) -> bool:
    """Tell whether a call that SciPy does is on a sparse matrix for which a record would have paid."""
    scipy = sys.modules.get("scipy.sparse")
    if scipy is None:
        return False
    known = kinds(scipy)
    given = (*args, function.__self__) if type(function) is MethodType else args
    return any(type(x) in known and len(x.data) >= LARGE for x in given)


class Pattern:
    """Positions of entries in the order of the entries, and the class of the matrix that has them.

    `starts` and `places` are those of compressed lines along `axis` (0: rows); coordinates that come from
    such lines keep them, too. Coordinates of their own are `rows` and `columns`. What is made gets index
    arrays of its own, the copies `own` once they are needed; `fresh` coordinates, those of a product with a
    dense array, share those of the matrix they come from, as SciPy's: None if that is in memory. `read`
    stands for `starts` and `places` where they are read; it is kept for whoever reads them.
    """

    __slots__ = ("kind", "shape", "axis", "starts", "places", "rows", "columns", "own", "fresh", "flag",
                 "read", "_sorted")

    kind: Any
    shape: tuple[int, int]
    axis: int
    starts: Any
    places: Any
    rows: Any
    columns: Any
    own: list[np.ndarray] | None
    fresh: bool
    flag: bool
    read: Any
    _sorted: bool | None

    @property
    def format(self) -> str:
        """SciPy's name of the format."""
        name: str = self.kind.__name__[:3]
        return name

    @property
    def is_array(self) -> bool:
        """Whether operators are those of arrays, not of matrices."""
        return bool(self.kind.__name__.endswith("array"))

    @property
    def narrowed(self) -> bool:
        """Whether `made` may have narrower indices than the matrix in memory, as its class narrows them."""
        return self.own is None and not self.is_array and self.arrays[0].dtype != _NARROW

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The index arrays that say where entries are."""
        return (self.rows, self.columns) if self.starts is None else (self.starts, self.places)

    @property
    def canonical(self) -> bool:
        """Whether entries are in SciPy's order and no two at one position: adding those up keeps all."""
        if self._sorted is None:
            self._sorted = self._look()
        return self._sorted

    def _look(self) -> bool:
        if self.starts is not None:
            if self.format == "coo" and self.axis:
                return False
            none = np.broadcast_to(False, len(self.places))
            given: bool = self._lines(none, self.starts, self.places).has_canonical_format
            return given
        down = np.diff(self.rows)
        return bool(np.all((down > 0) | (down == 0) & (np.diff(self.columns) > 0)))

    def _other(self, kind: Any, **changes: Any) -> Pattern:
        made = Pattern()
        for name in Pattern.__slots__:
            setattr(made, name, getattr(self, name))
        made.kind = kind
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    def _called(self, form: str) -> Any:
        """Return the class of this family that has the format `form`."""
        return getattr(sys.modules["scipy.sparse"], f"{form}_{'array' if self.is_array else 'matrix'}")

    def copied(self) -> Pattern:
        """Return the pattern of what SciPy makes with other entries: with copies of the index arrays."""
        return self._other(self.kind, own=[], fresh=False, flag=False)

    def placed(self, starts: np.ndarray, places: np.ndarray) -> Pattern:
        """Return the pattern of compressed lines with other entries, in order and without duplicates."""
        return self._other(
            self.kind, starts=starts, places=places, own=[], fresh=False, flag=False, read=None,
            _sorted=True)

    def coordinates(self, flag: bool) -> Pattern:
        """Return the pattern of fresh coordinates; `flag`: SciPy knows that they are canonical."""
        known = flag or (self._sorted if not self.axis else False)
        return self._other(self._called("coo"), fresh=True, flag=flag, _sorted=known)

    def compressed(self) -> Pattern:
        """Return the pattern of the same positions, compressed again."""
        known = self._sorted if not self.axis else None
        return self._other(
            self._called("csc" if self.axis else "csr"), own=[], fresh=False, flag=False, _sorted=known)

    def of_shape(self, shape: tuple[int, int]) -> Pattern:
        """Return a pattern of which only class and shape are known."""
        return self._other(self.kind, shape=shape, own=[], read=None, _sorted=None)

    def turned(self) -> Pattern:
        """Return the pattern of the transposed matrix, with the same entries."""
        form = {"csr": "csc", "csc": "csr", "coo": "coo"}[self.format]
        known = None if form == "coo" else self._sorted
        return self._other(
            self._called(form), shape=self.shape[::-1], axis=1 - self.axis, rows=self.columns,
            columns=self.rows, flag=False, _sorted=known)

    def _parts(self) -> tuple[np.ndarray, ...]:
        """Return the index arrays of what is made."""
        if self.own is None:
            return self.arrays
        if not self.own:
            kind = self._index_dtype()
            self.own.extend(part.astype(kind) for part in self.arrays)
        return tuple(self.own)

    def _index_dtype(self) -> np.dtype:
        """Return the dtype that SciPy gives to index arrays: matrices that are no arrays get narrow ones."""
        given: np.dtype = self.arrays[0].dtype
        if given == _NARROW or self.is_array or max(self.shape) > _MOST:
            return given
        fits = all(-_MOST <= part.min(initial=0) and part.max(initial=0) <= _MOST for part in self.arrays)
        return _NARROW if fits else given

    def _lines(self, data: Any, starts: np.ndarray, places: np.ndarray) -> Any:
        """Return the compressed matrix of these arrays, without copies."""
        kind = self._called("csc" if self.axis else "csr")
        return kind((data, places, starts), shape=self.shape)

    def made(self, data: np.ndarray) -> Any:
        """Return SciPy's matrix of the entries `data`."""
        if self.format != "coo":
            starts, places = self._parts()
            return self.kind((data, places, starts), shape=self.shape, dtype=data.dtype)
        if self.starts is None:
            return self.kind((data, self._parts()), shape=self.shape, dtype=data.dtype)
        lines = self._lines(data, *self._parts())
        lines.has_canonical_format = self.flag  # else SciPy would look
        found = lines.tocoo(copy=False)
        if self.axis or not self.fresh:
            found.coords = tuple([x.copy() if k != self.axis else x for k, x in enumerate(found.coords)])
        found.data = data.ravel() if self.fresh else data  # a view, as SciPy's
        return found

    def picked(self, data: np.ndarray, telling: np.ndarray) -> Any:
        """Return SciPy's compressed matrix of those entries where `telling` is not 0."""
        if np.count_nonzero(telling) == len(telling):
            return self.made(data)
        kept = telling != 0
        counted = np.zeros(len(kept) + 1, self.starts.dtype)
        np.cumsum(kept, out=counted[1:])
        found = [x[kept] if counted[-1] or len(x) > 1 else x.copy()[:0] for x in (data, self.places)]
        return self.kind((*found, counted[self.starts]), shape=self.shape)

    def is_at(self, other: Pattern) -> bool:
        """Whether `other` has the same positions, because it has the same index arrays."""
        return self is other or self.axis == other.axis and self.shape == other.shape and \
            (self.starts is None) == (other.starts is None) and \
            all(map(_is_same, self.arrays, other.arrays))


def _is_same(a: np.ndarray, b: np.ndarray) -> bool:
    return a is b or a.shape == b.shape and a.dtype == b.dtype and a.strides == b.strides and \
        a.ctypes.data == b.ctypes.data


def pattern_of(x: Any) -> Pattern | None:
    """Return the pattern of a matrix in memory; None if its parts are no plain arrays that fit."""
    if len(x.shape) != 2:
        return None
    made = Pattern()
    made.kind, made.shape, made.read, made._sorted = type(x), x.shape, None, None
    made.own, made.fresh, made.flag = None, False, False
    if made.format == "coo":
        made.axis, made.starts, made.places = 0, None, None
        made.rows, made.columns = x.coords
        parts = made.rows, made.columns, x.data
        fits = len(made.rows) == len(made.columns) == len(x.data)
    else:
        made.axis, made.starts, made.places = int(made.kind.__name__[:3] == "csc"), x.indptr, x.indices
        made.rows = made.columns = None
        parts = made.starts, made.places, x.data
        fits = len(made.places) == len(x.data) and len(made.starts) == x.shape[made.axis] + 1
    for part in parts:
        if not fits or type(part) is not np.ndarray or part.ndim != 1 or not part.flags.c_contiguous:
            return None
    if parts[0].dtype != parts[1].dtype or parts[0].dtype not in _INDICES or not len(x.data):
        return None
    if made.starts is not None and (made.starts[0] or made.starts[-1] != len(x.data)):
        return None
    return made


Session = Any  # the session that the arguments belong to
Recorder = Callable[[Session, Any, tuple, dict], Any]

#: What records calls on sparse matrices, or says NotImplemented. Filled when there is one.
RECORDERS: dict[str, Recorder] = {}  # by the file that has one
IN_MEMORY = object()
CROWD = 64  # references to pending matrices, from which on those that are gone are looked for


class Product(NamedTuple):
    """Two sparse matrices whose product was asked for: patterns and entries of both."""

    left: Any
    right: Any

    def reads(self, target: np.ndarray) -> bool:
        """Whether positions or entries, those in memory, are in `target`."""
        arrays = [part for each in self for part in each.pattern.arrays]
        arrays += [each.values._v for each in self if each.values._v is not None]
        return any(np.may_share_memory(target, part) for part in arrays)

    def made(self, session: Session) -> Any:
        """Return SciPy's product."""
        left, right = (each.pattern.made(session.value(each.values)) for each in self)
        return left @ right


class LazySparse:
    """What SciPy would have made with the entries `values` at the positions of `pattern`.

    Where the vector `kept` is 0 nothing is stored, and entries are 0. A view of a pending matrix `whole`
    is what the method `seen` of that one returns; that of a matrix `IN_MEMORY` shares its arrays. Where
    entries of a `Product` are is known once it is made: of its pattern only class and shape are true, of its
    entries the dtype. `seen` says whether it was multiplied already.
    """

    _session: Any
    _pattern: Pattern
    _values: Any
    _kept: Any
    _whole: Any
    _seen: str
    _summed: bool
    _made: Any

    __slots__ = ("_session", "_pattern", "_values", "_kept", "_whole", "_seen", "_summed", "_made",
                 "__weakref__")

    __array_priority__ = 1e6

    def __init__(
        self, session: Session, pattern: Pattern, values: LazyArray, kept: LazyArray | None = None,
        whole: Any = None, seen: str = "",
    ) -> None:
        put = object.__setattr__  # other attributes are SciPy's
        put(self, "_session", session)
        put(self, "_pattern", pattern)
        put(self, "_values", values)
        put(self, "_kept", kept)
        put(self, "_whole", whole)
        put(self, "_seen", seen)
        put(self, "_summed", False)  # SciPy adds up duplicates, in the matrix itself, before it sums
        put(self, "_made", None)
        stored = session.stored
        if len(stored) >= CROWD:
            stored[:] = [each for each in stored if each() is not None]
        stored.append(ref(self))

    @property
    def __class__(self) -> type:
        kind: type = self._pattern.kind
        return kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, known without computing."""
        return self._pattern.shape if self._made is None else self._made.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return 2

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the entries, known without computing."""
        return self._values.dtype if self._made is None else self._made.dtype

    @property
    def format(self) -> str:
        """SciPy's name of the format."""
        return self._pattern.format

    @property
    def nnz(self) -> int:
        """Number of entries, known without computing if all are kept."""
        known = self._made is None and self._kept is None and not self._summed \
            and type(self._whole) is not Product
        return self._values.size if known else settled(self).nnz

    @property
    def T(self) -> Any:
        """The transposed matrix, with the same entries."""
        return self.transpose()

    def __getattr__(self, name: str) -> Any:
        return getattr(settled(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in LazySparse.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(settled(self), name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return settled(self).__reduce_ex__(protocol)


def settled(lazy: LazySparse) -> Any:
    """Return the object of SciPy that `lazy` stands for."""
    if lazy._made is None:
        lazy._made = _made(lazy)
        if lazy._whole is None:
            stored(lazy._made, len(lazy._values))
        for each in [given() for given in lazy._session.stored]:  # they share its memory as it is now
            if each is not None and each._whole is lazy:
                settled(each)
    return lazy._made


def _made(lazy: LazySparse) -> Any:
    if type(lazy._whole) is Product:
        return lazy._whole.made(lazy._session)
    session = lazy._session
    if type(lazy._whole) is LazySparse:
        made = getattr(settled(lazy._whole), lazy._seen)()
    elif lazy._kept is not None:
        return lazy._pattern.picked(session.value(lazy._values), session.value(lazy._kept))
    else:
        made = lazy._pattern.made(session.value(lazy._values))
    if lazy._summed:
        made.sum_duplicates()
    return made


def settle_stored(session: Session, target: np.ndarray | None) -> None:
    """Make what pending matrices stand for, if their positions are in `target` (None: anywhere)."""
    alive = [each for given in session.stored if (each := given()) is not None and each._made is None]
    for each in alive:
        if each._made is None and (target is None or _is_in(each, target)):
            settled(each)
    session.stored[:] = [ref(each) for each in alive if each._made is None]


def _is_in(lazy: LazySparse, target: np.ndarray) -> bool:
    """Tell whether what `lazy` is made of, but for entries on the tape, is in memory of `target`."""
    if type(lazy._whole) is Product:
        return lazy._whole.reads(target)
    return any(np.may_share_memory(target, part) for part in lazy._pattern.arrays)


def forget_known(known: dict[int, Any], target: np.ndarray | None) -> None:
    """Forget what was found of arrays that share memory with `target`, which is written (None: anywhere)."""
    for key, found in list(known.items()):
        if target is None or any(np.may_share_memory(target, part) for part in found.arrays):
            del known[key]


def _operator(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: LazySparse, *args: Any) -> Any:
        given = (*args, self) if reflected else (self, *args)
        made = _recorded(self, function, given, {})
        return self._session.outside(function, given, {}) if made is NotImplemented else made

    return method


def _method(name: str) -> Callable[..., Any]:
    def method(self: LazySparse, *args: Any, **kwargs: Any) -> Any:
        made = _recorded(self, name, (self, *args), kwargs)
        return self._session.outside(getattr(settled(self), name), args, kwargs) \
            if made is NotImplemented else made

    method.__name__ = name
    return method


def _recorded(lazy: LazySparse, function: Any, args: tuple, kwargs: dict) -> Any:
    for recorder in RECORDERS.values():
        made = recorder(lazy._session, function, args, kwargs)
        if made is not NotImplemented:
            return made
    return NotImplemented


def install(names: Iterable[str]) -> None:
    """Give proxies these methods, which are recorded where that is possible."""
    for name in names:
        setattr(LazySparse, name, _method(name))


def _install() -> None:
    for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow"):
        function = getattr(operator, name)
        setattr(LazySparse, f"__{name}__", _operator(function))
        setattr(LazySparse, f"__r{name}__", _operator(function, True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "getitem", "setitem", "contains", "abs"):
        setattr(LazySparse, f"__{name}__", _operator(getattr(operator, name)))
    asked: dict[str, Callable[..., Any]] = {
        "bool": bool, "len": len, "iter": iter, "repr": repr, "str": str, "hash": hash, "round": round,
        "float": float, "int": int, "complex": complex, "copy": copy.copy, "deepcopy": copy.deepcopy,
    }
    for name, function in asked.items():
        setattr(LazySparse, f"__{name}__", _operator(function))


_install()


MOST = 1 << 28  # bytes of what is remembered
MOST_MET = 64  # pairs of patterns that were met once
SAMPLE = 128  # places that tell patterns apart before all are compared
_LOW = (1 << 32) - 1


class Union:
    """Compressed lines with the positions of two patterns, and for both which entry is at each of them.

    An `at` is None if every position has an entry. Else it is the numbers of the entries, any where
    there is none, and a mask of where there is one.
    """

    __slots__ = ("given", "starts", "places", "at", "nbytes")

    def __init__(self, a: Pattern, b: Pattern) -> None:
        merged = _numbered(a, 0) + _numbered(b, 32)
        self.starts, self.places = merged.indptr, merged.indices
        self.at = _found(merged.data & _LOW), _found(merged.data >> 32)
        self.given = tuple(x.copy() for x in (a.starts, a.places, b.starts, b.places))
        parts = [self.starts, self.places, *self.given, *(x for at in self.at if at for x in at)]
        self.nbytes = sum(x.nbytes for x in parts)

    def is_of(self, a: Pattern, b: Pattern) -> bool:
        """Tell whether it is that of two patterns that have no duplicates and are in order."""
        asked = a.starts, a.places, b.starts, b.places
        return all(x.shape == y.shape for x, y in zip(asked, self.given, strict=True)) and all(
            np.array_equal(x, y) for x, y in zip(asked, self.given, strict=True))


def _numbered(x: Pattern, shift: int) -> Any:
    """Return compressed rows whose entries say, from bit `shift` on, which they are, counted from 1."""
    numbers = np.arange(1, len(x.places) + 1, dtype=np.int64) << shift
    shape = len(x.starts) - 1, x.shape[1 - x.axis]
    return sys.modules["scipy.sparse"].csr_array((numbers, x.places, x.starts), shape=shape)


def _found(counted: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    here = counted != 0
    if here.all():
        return None
    return np.maximum(counted - 1, 0).astype(np.int32), here


class Unions:
    """The unions that one function met; to find one takes SciPy longer than to merge the entries once.

    So it is looked for when two patterns seem to be there for the second time.
    """

    def __init__(self) -> None:
        self._known: list[Union] = []
        self._met: set[tuple] = set()

    def of(self, a: Pattern, b: Pattern) -> Union | None:
        """Return the union of two patterns; None if they are out of order, or not met before."""
        for each in self._known:
            if each.is_of(a, b):
                return each
        seen = (*_sample(a), *_sample(b))
        if seen not in self._met:
            if len(self._met) >= MOST_MET:
                self._met.clear()
            self._met.add(seen)
            return None
        if not a.canonical or not b.canonical or max(len(a.places), len(b.places)) >= _LOW >> 2:
            return None
        made = Union(a, b)
        known = list(self._known)
        while known and sum(each.nbytes for each in known) + made.nbytes > MOST:
            known.pop(0)
        self._known = [*known, made]
        return made


def _sample(x: Pattern) -> tuple[int, int, bytes]:
    step = max(1, len(x.places) // SAMPLE)
    return len(x.starts), len(x.places), x.places[::step].tobytes()
