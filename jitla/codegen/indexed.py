"""What NumPy does at once where indices, masks or labels say, and down columns, on several threads.

Knows: which arrays there are loops for, what NumPy returns for them. Must not know: tracing, IR.
Receives ndarrays; returns what NumPy returns, or None where NumPy has to do it: it is then as if
nothing had been tried. So whoever calls hands errors and warnings to NumPy, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.codegen.compress_code import MASK_UNIT, compress_rows_text, compress_text, count_text
from jitla.codegen.histogram_code import HISTOGRAM_BANKS, histogram_text
from jitla.codegen.indexing_code import most_of, pack_indexed
from jitla.codegen.jit import Jit, Library
from jitla.codegen.layout import hints
from jitla.codegen.running_code import running_text
from jitla.codegen.spread_code import spread_text
from jitla.codegen.take_code import TAKE_UNIT, take_rows_text, take_text
from jitla.codegen.tally_code import BANKS, bounds_text, tally_text, weigh_text
from jitla.hops import ANY
from jitla.runtime import empty
from jitla.runtime import threads as runtime_threads

__all__ = ["Indexed"]

SERIAL = 1 << 15  # elements that one thread does
MANY = 1 << 21  # indices that threads share, though each of them has to look at all
SIZES = frozenset({1, 2, 4, 8, 16})  # bytes of elements that are copied by themselves
SHORT = 1 << 10  # bins whose tables stay in the first cache, all banks of them
FAR = 1 << 13  # elements of a table that is not in the first cache
MOST_BINS = 1 << 16
APART = 32  # words: tables of two threads share no cache line, nor one and the line that is fetched with it
EXACT = float(1 << 53)  # integers below are doubles
_INTP, _DOUBLE = np.dtype(np.intp), np.dtype(np.float64)
_FLOATS = frozenset({np.dtype(np.float32), _DOUBLE})
STRIP = 4096  # bytes of rows that a thread has at least: of fewer it would read what others do
_NS = 1.0  # what an element takes


class Indexed:
    """The loops of one backend, compiled when they are met, on up to `threads` threads; 0: as is usual."""

    def __init__(self, jit: Jit, launch: Callable[..., int], threads: int) -> None:
        self._jit, self._launch, self._threads = jit, launch, threads
        self._libraries: dict[tuple[Any, ...], Library] = {}

    # ------------------------------------------------------------------ copies

    def take(self, table: Any, index: Any) -> np.ndarray | None:
        """Return ``table[index]`` of an array of integers, ``np.take(table, index, 0)``."""
        if not _plain(table) or not _integers(index) or not index.size or not table.size:
            return None
        size = table.itemsize * (table.size // len(table))
        out = empty(index.shape + table.shape[1:], table.dtype)
        bad = np.zeros(1, np.int64)
        words = (len(table), most_of(index.dtype, len(table)), index.size, size)
        if size in SIZES:
            key: tuple[Any, ...] = ("take", size, index.dtype)
            library = self._library(key, take_text, size, index.dtype)
        else:
            library = self._library(("rows", index.dtype), take_rows_text, index.dtype)
        units = -(-index.size // TAKE_UNIT)
        self._run(library, (table, index, out, bad), words, units, index.size * (1 + size / 16))
        return None if bad[0] else out

    def compress(self, x: Any, mask: Any) -> np.ndarray | None:
        """Return ``x[mask]``."""
        if not _plain(x) or not _mask(mask) or not mask.size or x.shape[:mask.ndim] != mask.shape:
            return None
        rest = x.shape[mask.ndim:]
        size = x.itemsize * (x.size // mask.size)
        if not size:
            return None
        starts = self._starts(mask)
        out = empty((int(starts[-1]), *rest), x.dtype)
        if size in SIZES:
            library = self._library(("compress", size), compress_text, size, plain=True)
        else:
            library = self._library(("compress",), compress_rows_text, plain=True)
        if out.size:
            self._run(library, (x, mask, starts, out), (mask.size, size), len(starts) - 1,
                      mask.size * (1 + size / 16))
        return out

    def _starts(self, mask: np.ndarray) -> np.ndarray:
        """Return where the elements that every unit keeps begin, and where the last ones end."""
        units = -(-mask.size // MASK_UNIT)
        starts = np.zeros(units + 1, np.int64)
        library = self._library(("count",), count_text, plain=True)
        self._run(library, (mask, starts[1:]), (mask.size,), units, mask.size / 8)
        return np.cumsum(starts, out=starts)

    # ------------------------------------------------------------------ sums by label

    def bincount(self, labels: Any, weights: Any, minlength: int) -> np.ndarray | None:
        """Return ``np.bincount(labels, weights, minlength)``."""
        if not _integers(labels) or labels.ndim != 1 or not labels.size or labels.dtype == np.uint64:
            return None
        if weights is not None and (not _weights(weights) or weights.shape != labels.shape):
            return None
        sums = self._binned(labels, weights, minlength) if 0 < minlength <= MOST_BINS else None
        if sums is None:
            bounds = self._bounds(labels)
            bins = max(bounds[1] + 1, minlength)
            if bounds[0] < 0 or bins > max(MOST_BINS, 4 * labels.size):
                return None
            sums = self._binned(labels, weights, bins)
        return sums

    def _bounds(self, labels: np.ndarray) -> tuple[int, int]:
        """Return the least and the greatest label."""
        units, each = self._parts(labels.size)
        found = np.empty((2, units), np.int64)
        library = self._library(("bounds", labels.dtype), bounds_text, labels.dtype)
        self._run(library, (labels, found[0], found[1]), (labels.size, each), units, labels.size / 4)
        return int(found[0].min()), int(found[1].max())

    def _binned(self, labels: np.ndarray, weights: Any, bins: int) -> np.ndarray | None:
        """Count or add up; None if a label has no place."""
        sums: np.ndarray
        if bins > FAR:
            if weights is None:
                sums, given = np.zeros(bins, _INTP), np.ones(1, _INTP)
            else:
                sums = np.zeros(bins)
                given = weights if weights.dtype.kind == "f" else weights.astype(_DOUBLE)
            return sums if self._spread(sums, labels, given, False) else None
        fault = np.zeros(1, np.int64)
        banks = BANKS if weights is None and bins <= SHORT else 1
        inexact = weights is not None and weights.dtype.kind == "f"
        units, each = (1, labels.size) if inexact else self._parts(labels.size, bins)
        row = -(-banks * (bins + 1) // APART) * APART
        tables = np.zeros((units, row), _DOUBLE if inexact else np.int64)
        words = (labels.size, each, bins, row)
        if weights is None:
            key: tuple[Any, ...] = ("tally", labels.dtype, banks)
            library = self._library(key, tally_text, labels.dtype, banks, plain=True)
            self._run(library, (labels, tables, fault), words, units, labels.size)
        else:
            key = ("weigh", labels.dtype, weights.dtype)
            library = self._library(key, weigh_text, labels.dtype, weights.dtype, plain=True)
            self._run(library, (labels, weights, tables, fault), words, units, labels.size)
        if fault[0]:
            return None
        sums = _added(tables[:, :banks * (bins + 1)].reshape(-1, bins + 1), bins)
        return sums if weights is None else sums.astype(_DOUBLE, copy=False)

    def histogram(self, x: Any, bins: int, ends: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """Return ``np.histogram(x, bins, ends)`` of floats."""
        if not _plain(x) or x.dtype not in _FLOATS or not x.size or not 0 < bins <= MOST_BINS:
            return None
        found = (x.min(), x.max()) if ends is None else ends
        ratio = x.dtype if ends is None else _DOUBLE
        if not all(map(np.isfinite, found)) or not found[0] < found[1]:
            return None
        if max(map(abs, map(float, found))) > float(np.finfo(x.dtype).max) / 4:
            return None
        first, last = x.dtype.type(found[0]), x.dtype.type(found[1])
        width = ratio.type(found[1]) - ratio.type(found[0])
        if not first < last:
            return None
        try:
            edges = np.histogram_bin_edges(x[:0], bins, found)
        except ValueError:
            return None  # so many bins have no width
        if edges.dtype != x.dtype:
            return None
        inf = x.dtype.type(np.inf)
        guards = np.concatenate([edges[:-1], np.array([inf, -inf, inf], x.dtype)])
        guards[0] = -inf
        # A guess is off by a few roundings of the value's place, an edge by some of its own.
        reach = max(map(abs, map(float, found))) / float(width)
        near = bins * float(np.finfo(x.dtype).eps) * 16 * (1 + reach)
        scale = np.array([width, bins, near, 1 - near] if near < 0.25 else [width, bins, 1, 0], ratio)
        return self._histogram(x, np.array([first, last]), guards, scale, bins), edges

    def _histogram(
        self, x: np.ndarray, ends: np.ndarray, edges: np.ndarray, scale: np.ndarray, bins: int
    ) -> np.ndarray:
        units, each = self._parts(x.size, bins)
        row = -(-HISTOGRAM_BANKS * (bins + 3) // APART) * APART
        tables = np.zeros((units, row), np.int64)
        library = self._library(
            ("histogram", x.dtype, scale.dtype), histogram_text, x.dtype, scale.dtype)
        self._run(library, (x, ends, edges, scale, tables), (x.size, each, bins, row), units, 2 * x.size)
        return _added(tables[:, :HISTOGRAM_BANKS * (bins + 3)].reshape(-1, bins + 3), bins)

    def add_at(self, target: Any, index: Any, values: Any) -> bool:
        """Do ``np.add.at(target, index, values)``; if not, `target` is as before."""
        if not _plain(target) or not target.flags.writeable or target.ndim != 1 or not target.size:
            return False
        if target.dtype not in _FLOATS and (target.dtype.kind not in "iu"):
            return False
        if not _integers(index) or index.ndim != 1 or not index.size or index.dtype == np.uint64:
            return False
        single = values.ndim == 0
        if values.dtype != target.dtype or target.size > 4 * index.size or \
                not single and (not _plain(values) or values.shape != index.shape):
            return False
        if np.may_share_memory(target, index) or np.may_share_memory(target, values):
            return False
        before = empty(target.shape, target.dtype)
        before[...] = target
        if not self._spread(target, index, values.reshape(1) if single else values, True):
            target[...] = before
            return False
        return True

    def _spread(self, target: np.ndarray, index: np.ndarray, values: np.ndarray, signed: bool) -> bool:
        """Add values to elements; whether all of them have a place, and NumPy would not warn.

        `signed` indices count from the end where they are negative, and NumPy listens to flags.
        """
        fault, single = np.zeros(1, np.int64), values.size == 1 < index.size
        key = ("spread", index.dtype, target.dtype, values.dtype, single, signed)
        library = self._library(key, spread_text, *key[1:])
        several = index.size >= MANY and len(target) >= FAR
        ranges = self._threads or runtime_threads() if several else 1
        most = most_of(index.dtype, len(target))
        words = (index.size, -(-len(target) // ranges), len(target), most, ranges)
        flags = self._run(library, (target, index, values, fault), words, ranges, 2 * index.size)
        return not fault[0] and not (signed and flags & ANY)

    def running(self, x: Any) -> np.ndarray | None:
        """Return ``np.cumsum(x, axis=0)`` of a matrix, or of more dimensions."""
        if not _plain(x) or x.ndim < 2 or x.dtype.char not in "fdlL" or not x.size:
            return None
        columns, out = x.size // len(x), empty(x.shape, x.dtype)
        units = max(1, min(self._threads or runtime_threads(), columns * x.itemsize // STRIP))
        each = -(-columns // units)
        library, words = self._library(("running", x.dtype), running_text, x.dtype), (len(x), columns, each)
        flags = self._run(library, (x, out), words, -(-columns // each), x.size)
        return None if x.dtype.kind == "f" and flags & ANY else out

    # ------------------------------------------------------------------ running

    def _library(
        self, key: tuple[Any, ...], text: Callable[..., str], *args: Any, plain: bool = False
    ) -> Library:
        """Return the loop `text(*args)`, compiled once."""
        found = self._libraries.get(key)
        if found is None:
            target = self._jit.target
            rest = (target.triple,) if plain else (target.triple, target.vector_bytes)
            found = self._libraries[key] = self._jit.load(text(*args, *rest), ("k",))
        return found

    def _parts(self, size: int, table: int = 1) -> tuple[int, int]:
        """Return into how many runs so many elements are cut, and how long these are.

        Tables of so many words, which are cleared and added up, must be worth it.
        """
        threads = self._threads or runtime_threads()
        several = threads if table > SHORT else 4 * threads
        units = 1 if size < max(SERIAL, 8 * table) else several
        each = -(-size // units)
        return -(-size // each), each

    def _run(
        self, library: Library, operands: tuple[np.ndarray, ...], words: tuple[int, ...], units: int,
        work: float,
    ) -> int:
        """Run a loop; its floating-point flags."""
        threads = (self._threads or runtime_threads()) if work >= SERIAL else 1
        grain = units if threads == 1 else max(1, units // (8 * threads))
        flags = hints(work * _NS, True, self._threads)
        template = pack_indexed(library.addresses["k"], len(operands), words, units, grain, flags)
        return self._launch(template, *operands)


def _plain(x: Any) -> bool:
    """Tell whether it is an array in one run, of elements that are nothing but their bytes."""
    return type(x) is np.ndarray and x.ndim > 0 and x.dtype.kind in "biufcmM" and x.dtype.isnative \
        and x.flags.c_contiguous and x.flags.aligned


def _integers(x: Any) -> bool:
    return _plain(x) and x.dtype.kind in "iu"


def _mask(x: Any) -> bool:
    return _plain(x) and x.dtype.kind == "b"


def _weights(x: Any) -> bool:
    """Tell whether sums of them are known: of integers they must be exact in any order, as doubles are."""
    if not _plain(x):
        return False
    exact = x.dtype.kind in "biu" and x.dtype.itemsize <= 4
    return x.dtype in _FLOATS or exact and x.size * 2.0 ** (8 * x.dtype.itemsize) < EXACT


def _added(tables: np.ndarray, bins: int) -> np.ndarray:
    """Return the first `bins` sums over tables of a row each, in memory of their own."""
    sums: np.ndarray = tables[0, :bins].copy()
    for table in tables[1:]:
        sums += table[:bins]
    return sums
