"""Small integers for what is known of a traced value, and the size-free key of a block.

Knows: metas and layouts as interned ids; which of their facts a plan depends on.
Must not know: sessions, proxies. Receives shapes, dtypes, strides; returns ids and keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jitla.hops import Meta, Shape
from jitla.locks import relock


class Same(frozenset[np.dtype]):
    """A set of dtypes; what has metadata or is of another C type is equal to one, but not the same."""

    def __contains__(self, dtype: Any) -> bool:
        return id(dtype) in _TRACED_IDS or (
            super().__contains__(dtype) and dtype.char in _TRACED_CHARS and dtype.metadata is None)


# The dtypes that are traced; everything else stays with NumPy.
TRACED = Same(np.dtype(t) for t in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "f4", "f8",
    "c8", "c16"))
_TRACED_IDS = frozenset(map(id, TRACED))
_BOOL = np.dtype(bool)
_TRACED_CHARS = frozenset(dtype.char for dtype in TRACED)
INTEGRAL = frozenset("biu")
# What an entry of the tape that is an array in memory begins with.
LEAF_OP = 0
# What holds the memory of arrays that NumPy makes of strides: windows.
_HELD = type(np.lib.stride_tricks.as_strided(np.empty(1)).base)


def is_traced(shape: Shape, dtype: np.dtype) -> bool:
    """Tell whether arrays like this may be proxies.

    Empty masks may not: as an index of an array that is none, NumPy takes empty objects for integers.
    """
    return dtype in TRACED and (dtype is not _BOOL or 0 not in shape)


def owns_memory(array: np.ndarray) -> bool:
    """Say whether the memory belongs to an ndarray, so that it cannot disappear under the tracer.

    Windows that are written to may overlap themselves: these are left to NumPy.
    """
    base = array.base
    while base is not None:
        if type(base) is _HELD and not array.flags.writeable:
            base = base.base
        if type(base) is not np.ndarray:
            return False
        array, base = base, base.base
    return bool(array.flags.owndata)


class Layout(NamedTuple):
    """One exact memory layout: its meta id, shape, strides, byte extent, size-free class, and entry."""

    meta: int
    shape: Shape
    strides: tuple[int, ...]
    low: int
    high: int
    group: tuple
    entry: tuple[int, int]


# Interned; `forget` empties all when sizes keep changing and no session is open.
METAS: list[Meta] = []
NBYTES: list[int] = []  # of each meta: every turn of every loop asks
_META_ID: dict[tuple[Shape, np.dtype], int] = {}
LAYOUTS: list[Layout] = []
LAYOUT_ID: dict[tuple[np.dtype, Shape, tuple[int, ...]], int] = {}
_INTERNING = relock()


def meta_id(shape: Shape, dtype: np.dtype) -> int:
    """Return the id of (`shape`, `dtype`); index into `METAS`."""
    key = (shape, dtype)
    found = _META_ID.get(key)
    if found is None:
        meta = Meta(shape, dtype)
        with _INTERNING:
            found = _META_ID.get(key)
            if found is None:
                found = len(METAS)
                NBYTES.append(meta.nbytes)
                METAS.append(meta)
                _META_ID[key] = found
    return found


def layout_id(array: np.ndarray) -> int:
    """Return the id of the array's dtype, shape and strides; index into `LAYOUTS`."""
    key = (array.dtype, array.shape, array.strides)
    found = LAYOUT_ID.get(key)
    if found is None:
        dtype, shape, strides = key
        reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True) if n > 1]
        low = sum(r for r in reach if r < 0)
        high = sum(r for r in reach if r > 0) + dtype.itemsize if 0 not in shape else low
        group = _group(shape, strides, dtype.itemsize)
        meta = meta_id(shape, dtype)
        with _INTERNING:
            found = LAYOUT_ID.get(key)
            if found is None:
                found = len(LAYOUTS)
                LAYOUTS.append(Layout(meta, shape, strides, low, high, group, (LEAF_OP, found)))
                LAYOUT_ID[key] = found
    return found


def _group(shape: Shape, strides: tuple[int, ...], itemsize: int) -> tuple:
    """The part of a layout a plan may depend on: C or Fortran order, else axis order and repeats."""
    if _packed(shape, strides, itemsize):
        return ("C",)
    if _packed(shape[::-1], strides[::-1], itemsize):
        return ("F",)
    order = tuple(sorted(range(len(shape)), key=lambda i: (-abs(strides[i]), i)))
    return ("N", order, tuple(s == 0 for s in strides))


def _packed(shape: Shape, strides: tuple[int, ...], itemsize: int) -> bool:
    expected = itemsize
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n == 0:
            return True
        if n > 1:
            if s != expected:
                return False
            expected *= n
    return True


class Sight:
    """Recognises the layouts of arrays that own their memory; natively, once that is installed.

    `find(array)` returns (layout id, meta id), or None: then `see` looks with Python and remembers.
    """

    def __init__(self) -> None:
        self.find: Callable[[np.ndarray], tuple[int, int] | None] = _nothing_found
        self._remember: Callable[..., None] | None = None
        self._forget: Callable[[], None] = _nothing_to_do
        self._held: list[Any] = []
        # Ids given out before the last `reset` mean nothing any more.
        self.generation = 0
        self.resetting = False
        self.lock = relock()

    def reset(self, keep: int, in_use: Callable[[], bool]) -> None:
        """Forget all ids of layouts and metas but the first `keep`, unless they are in use.

        Whoever begins to use ids says so first and then, if `resetting`, waits for `lock`.
        """
        with self.lock:
            self.resetting = True
            try:
                if not in_use():
                    forget(keep)
                    self.generation += 1
            finally:
                self.resetting = False

    def use(self, find: Any, remember: Any, forget: Any) -> None:
        """Use a native table."""
        self.find, self._remember, self._forget = find, remember, forget

    def see(self, array: np.ndarray) -> int:
        """Return the layout id of a traceable array."""
        layout = layout_id(array)
        if self._remember is not None and len(array.shape) in range(1, 5):
            if len(self._held) >= 2 * _SEEN:
                self.forget()
            found = (layout, LAYOUTS[layout].meta)
            self._held += (found, array.dtype)
            self._remember(array, found)
        return layout

    def forget(self) -> None:
        """Recognise nothing."""
        self._forget()
        self._held.clear()


_SEEN = 2048  # half of the native table's slots


def _nothing_found(array: np.ndarray) -> None:
    return None


def _nothing_to_do() -> None:
    return None


SIGHT = Sight()


def forget(keep: int) -> None:
    """Drop all layouts and all metas but the first `keep`; ids given out before mean nothing any more."""
    SIGHT.forget()
    for key in [k for k, i in _META_ID.items() if i >= keep]:
        del _META_ID[key]
    del METAS[keep:], NBYTES[keep:]
    LAYOUT_ID.clear()
    LAYOUTS.clear()


class Symbols:
    """Numbers sizes by first appearance: 0 and 1 stay literal, equal sizes share a symbol."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number: dict[int, int] = {}

    def of(self, shape: Shape) -> tuple[int, ...]:
        """Return `shape` with each size above 1 replaced by minus (its symbol + 1)."""
        number = self.number
        return tuple(n if n < 2 else -1 - number.setdefault(n, len(number)) for n in shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes seen, by symbol."""
        return tuple(self.number)
