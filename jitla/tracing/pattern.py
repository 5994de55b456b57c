"""Where the entries of a sparse matrix are, and what SciPy makes of them.

Knows: SciPy's classes of compressed rows, compressed columns and coordinates. Must not know: the tape,
what entries are. Receives matrices in memory; returns patterns, and matrices of a pattern and its entries.

A pattern has the index arrays that were there when an operation was recorded: a matrix that is given
others afterwards is another one.
"""

from __future__ import annotations

import sys
from types import MethodType
from typing import Any

import numpy as np

from jitla.cold import kinds

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
