"""Kernels of indexed reads and writes: which there are, and how they are launched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.indexing.compress import (
    MASK_UNIT,
    compress_rows_text,
    compress_text,
    count_text,
    positions_text,
    squeezed_lanes,
)
from jitla.codegen.indexing.gather import (
    BYTES,
    LOOKUP_UNIT,
    TAKE_UNIT,
    bounds_text,
    lookup_text,
    most_of,
    pack_indexed,
    places_text,
    shuffle_of,
    take_rows_text,
    take_text,
)
from jitla.codegen.indexing.scatter import (
    BANKS,
    HISTOGRAM_BANKS,
    Binned,
    binned,
    histogram_text,
    merge_text,
    running_text,
    spread_text,
)
from jitla.codegen.jit import Jit, Library
from jitla.codegen.kernel_abi import hints
from jitla.hops import ALL_FLAGS, POSITION_DTYPE
from jitla.runtime import empty
from jitla.runtime import threads as runtime_threads

__all__ = [
    "EXACT", "FLOATS", "IndexThresholds", "Indexed", "Located", "are_integers", "are_weights", "is_forward",
    "is_mask", "is_plain",
]


EXACT = float(1 << 53)  # integers below are doubles
FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


def is_plain(x: Any) -> bool:
    """Tell whether it is an array in one run, of elements that are nothing but their bytes."""
    return type(x) is np.ndarray and x.ndim > 0 and x.dtype.kind in "biufcmM" and x.dtype.isnative \
        and x.flags.c_contiguous and x.flags.aligned


def is_forward(x: Any) -> bool:
    """Tell whether it is an array of one dimension that lies forward in memory, in one run or not."""
    return type(x) is np.ndarray and x.ndim == 1 and (is_plain(x) or x.strides[0] > 0 and is_plain(x[:1]))


def are_integers(x: Any) -> bool:
    """Tell whether it is such an array of integers."""
    return is_plain(x) and x.dtype.kind in "iu"


def is_mask(x: Any) -> bool:
    """Tell whether it is such an array of bools."""
    return is_plain(x) and x.dtype.kind == "b"


def are_weights(x: Any) -> bool:
    """Tell whether sums of them are known: of integers they must be exact in any order, as doubles are."""
    if not is_plain(x):
        return False
    exact = x.dtype.kind in "biu" and x.dtype.itemsize <= 4
    return x.dtype in FLOATS or exact and x.size * 2.0 ** (8 * x.dtype.itemsize) < EXACT


@dataclass(frozen=True)
class IndexThresholds:
    """Sizes at which indexed loops are launched in another way."""

    #: Elements for which threads are woken; floats that are added up in several runs.
    min_parallel_elements: int = 1 << 15
    min_parallel_floats: int = 1 << 18
    #: Elements of a table that there may be two of; of all tables of more than two runs.
    max_table_elements: int = 1 << 22
    max_tables_elements: int = 1 << 19


RUNS = (1, 2, 4, 6, 12)  # numbers of runs, which few threads share evenly
SHARE = 4  # elements of a run for each one of its table
MERGE_STRIP = 1 << 10  # elements of a target to which rows are added at once
SIZES = frozenset({1, 2, 4, 8, 16})  # bytes of elements that are copied by themselves
SHORT = 1 << 10  # bins whose tables stay in the first cache, all banks of them
MOST_BINS = 1 << 16
APART = 32  # words: tables of two threads share no cache line, nor one and the line that is fetched with it
_INTP, _DOUBLE = np.dtype(np.intp), np.dtype(np.float64)
MIN_ROW_BYTES = 4096  # of rows that a thread has at least: of fewer it would read what others do
_NS = 1.0  # what an element takes


class Indexed:
    """The loops of one backend, compiled when they are met, on up to `threads` threads; 0: as is usual.

    If `ordered`, floats are always added in NumPy's order.
    """

    def __init__(
        self, jit: Jit, launch: Callable[..., int], threads: int, ordered: bool = False,
        thresholds: IndexThresholds | None = None,
    ) -> None:
        self._jit, self._launch, self._threads, self._ordered = jit, launch, threads, ordered
        self._thresholds = thresholds or IndexThresholds()
        self._libraries: dict[tuple[Any, ...], Library] = {}

    # ------------------------------------------------------------------ copies

    def take(self, table: Any, index: Any) -> np.ndarray | None:
        """Return ``table[index]`` of an array of integers, ``np.take(table, index, 0)``."""
        if not is_plain(table) or not are_integers(index) or not index.size or not table.size:
            return None
        size = table.itemsize * (table.size // len(table))
        out = empty(index.shape + table.shape[1:], table.dtype)
        bad = np.zeros(1, np.int64)
        if size == 1 and index.dtype == np.uint8 and shuffle_of(self._jit.target):
            return out if self._looked_up(table, index, out) else None
        words = (len(table), most_of(index.dtype, len(table)), index.size, size)
        if size in SIZES:
            key: tuple[Any, ...] = ("take", size, index.dtype)
            library = self._library(key, take_text, size, index.dtype)
        else:
            library = self._library(("rows", index.dtype), take_rows_text, index.dtype)
        units = -(-index.size // TAKE_UNIT)
        self._run(library, (table, index, out, bad), words, units, index.size * (1 + size / 16))
        return None if bad[0] else out

    def _looked_up(self, table: np.ndarray, index: np.ndarray, out: np.ndarray) -> bool:
        """Write the bytes that bytes name; whether there are all of them."""
        checked, fault = len(table) < BYTES, np.zeros(1, np.int64)
        if checked:
            short, table = table, np.zeros(BYTES, np.uint8)
            table[:len(short)] = short.reshape(-1).view(np.uint8)
        library = self._library(
            ("lookup", checked), lookup_text, shuffle_of(self._jit.target), checked, plain=True)
        words = (index.size, most_of(index.dtype, BYTES if not checked else len(short)))
        self._run(library, (table, index, out, fault), words, -(-index.size // LOOKUP_UNIT), index.size / 8)
        return not fault[0]

    def compress(self, x: Any, mask: Any) -> np.ndarray | None:
        """Return ``x[mask]``."""
        if not is_plain(x) or not is_mask(mask) or not mask.size or x.shape[:mask.ndim] != mask.shape:
            return None
        rest = x.shape[mask.ndim:]
        size = x.itemsize * (x.size // mask.size)
        if not size:
            return None
        starts = self._starts(mask)
        out = empty((int(starts[-1]), *rest), x.dtype)
        if size in SIZES:
            lanes = squeezed_lanes(size, self._jit.target)
            library = self._library(("compress", size), compress_text, size, lanes, plain=True)
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
        if not are_integers(labels) or labels.ndim != 1 or not labels.size or labels.dtype == np.uint64:
            return None
        if weights is not None and (not are_weights(weights) or weights.shape != labels.shape):
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
        inexact = weights is not None and weights.dtype.kind == "f"
        sums = empty((bins,), _DOUBLE if inexact else _INTP)
        sums.fill(0)
        flags = self._spread(sums, labels, weights, False, BANKS if weights is None and bins <= SHORT else 1)
        if flags is None:
            return None
        if inexact and flags & ALL_FLAGS and labels.size >= self._thresholds.min_parallel_floats:
            # infinities may come from the order of sums
            sums.fill(0)
            self._spread(sums, labels, weights, False, alone=True)
        return sums if weights is None else sums.astype(_DOUBLE, copy=False)

    def histogram(self, x: Any, bins: int, ends: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """Return ``np.histogram(x, bins, ends)`` of floats."""
        if not is_plain(x) or x.dtype not in FLOATS or not x.size or not 0 < bins <= MOST_BINS:
            return None
        bounds = binned(x, bins, ends)
        return None if bounds is None else (self._histogram(x, bounds, bins), bounds.edges)

    def _histogram(self, x: np.ndarray, of: Binned, bins: int) -> np.ndarray:
        units, each = self._parts(x.size, bins)
        row = -(-HISTOGRAM_BANKS * (bins + 3) // APART) * APART
        tables = np.zeros((units, row), np.int64)
        library = self._library(
            ("histogram", x.dtype, of.scale.dtype), histogram_text, x.dtype, of.scale.dtype)
        operands = x, of.ends, of.guards, of.scale, tables
        self._run(library, operands, (x.size, each, bins, row), units, 2 * x.size)
        banks = tables[:, :HISTOGRAM_BANKS * (bins + 3)].reshape(-1, bins + 3)
        counts: np.ndarray = banks[:, :bins].sum(axis=0)
        return counts

    def add_at(self, target: Any, index: Any, values: Any) -> bool:
        """Do ``np.add.at(target, index, values)``; if not, `target` is as before."""
        if not is_forward(target) or not target.flags.writeable or not target.size:
            return False
        if target.dtype not in FLOATS and (target.dtype.kind not in "iu"):
            return False
        integers = is_forward(index) and index.dtype.kind in "iu" and index.dtype != np.uint64
        if not integers or not index.size:
            return False
        single = values.ndim == 0
        if values.dtype != target.dtype or target.size > 4 * index.size or \
                not single and (not is_forward(values) or values.shape != index.shape):
            return False
        if np.may_share_memory(target, index) or np.may_share_memory(target, values):
            return False
        if target.size > self._thresholds.max_table_elements:
            return False  # one run is little faster than NumPy, and the copy is large
        copy = empty(target.shape, target.dtype)
        copy[...] = target
        into, other = (target, copy) if target.flags.c_contiguous else (copy, target)
        index, values = map(np.ascontiguousarray, (index, values))
        flags = self._spread(into, index, values.reshape(1) if single else values, True)
        done = flags is not None and not flags & ALL_FLAGS  # else NumPy would warn
        if done is (into is copy):
            target[...] = copy
        return done

    def _spread(
        self, target: np.ndarray, index: np.ndarray, values: np.ndarray | None, wraps: bool,
        banks: int = 1, alone: bool = False,
    ) -> int | None:
        """Add values, or ones, to elements; the flags of that, or None where an index names nothing.

        Negative indices count from the end if it `wraps`. All is done by one run, in order, if `alone`.
        """
        fault, single = np.zeros(1, np.int64), values is not None and values.size == 1 < index.size
        key = (index.dtype, target.dtype, None if values is None else values.dtype, single, wraps, banks)
        library = self._library(("spread", *key), spread_text, *key)
        length = len(target)
        runs = 1 if alone else self._runs(index.size, banks * length, target.dtype.kind == "f")
        stride = -(-length // APART) * APART
        rows = empty((runs * banks - 1, stride), target.dtype)
        words = (index.size, -(-index.size // runs), length, most_of(index.dtype, length), stride)
        given = fault if values is None else values
        flags = self._run(library, (target, rows, index, given, fault), words, runs, index.size)
        if fault[0]:
            return None
        if len(rows):
            library = self._library(("merge", target.dtype), merge_text, target.dtype)
            strips = -(-length // MERGE_STRIP)
            cut = (length, MERGE_STRIP, len(rows), stride)
            flags |= self._run(library, (target, rows), cut, strips, rows.size / 4)
        return flags

    def _runs(self, size: int, table: int, inexact: bool) -> int:
        """Return the number of runs, each with its own table, into which `size` elements are split.

        That of floats depends on sizes alone, as their sums depend on it.
        """
        thresholds = self._thresholds
        if size < (thresholds.min_parallel_floats if inexact else thresholds.min_parallel_elements) or (
                self._ordered if inexact else (self._threads or runtime_threads()) == 1):
            return 1
        most = min(size // (SHARE * table), max(thresholds.max_tables_elements // table, 2)) \
            if table <= thresholds.max_table_elements else 1
        return max(runs for runs in RUNS if runs <= max(most, 1))

    def running(self, x: Any) -> np.ndarray | None:
        """Return ``np.cumsum(x, axis=0)`` of a matrix, or of more dimensions."""
        if not is_plain(x) or x.ndim < 2 or x.dtype.char not in "fdlL" or not x.size:
            return None
        columns, out = x.size // len(x), empty(x.shape, x.dtype)
        units = max(1, min(self._threads or runtime_threads(), columns * x.itemsize // MIN_ROW_BYTES))
        each = -(-columns // units)
        library, words = self._library(("running", x.dtype), running_text, x.dtype), (len(x), columns, each)
        flags = self._run(library, (x, out), words, -(-columns // each), x.size)
        return None if x.dtype.kind == "f" and flags & ALL_FLAGS else out

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
        """Return the number of runs into which `size` elements are split, and the length of a run.

        Clearing and adding up tables of `table` words must be worth it.
        """
        threads = self._threads or runtime_threads()
        several = threads if table > SHORT else 4 * threads
        units = 1 if size < max(self._thresholds.min_parallel_elements, 8 * table) else several
        each = -(-size // units)
        return -(-size // each), each

    def _run(
        self, library: Library, operands: tuple[np.ndarray, ...], words: tuple[int, ...], units: int,
        work: float,
    ) -> int:
        """Run a loop; its floating-point flags."""
        is_parallel = work >= self._thresholds.min_parallel_elements
        threads = (self._threads or runtime_threads()) if is_parallel else 1
        grain = units if threads == 1 else max(1, units // (8 * threads))
        flags = hints(work * _NS, True, self._threads)
        template = pack_indexed(library.addresses["k"], len(operands), words, units, grain, flags)
        return self._launch(template, *operands)


MOST = 1 << 31  # elements of which each has a position


class Located(Indexed):
    """Loops that look at keys and labels, beside those that do at once what they say."""

    def positions(self, key: Any, length: int) -> np.ndarray | None:
        """Return the indices that ``array[key]`` reads of `length` elements; `key` has one axis."""
        if not is_plain(key) or key.ndim != 1 or not key.size or not 0 < length <= MOST:
            return None
        if key.dtype.kind == "b":
            return self._kept(key) if key.size == length else None
        if not are_integers(key):
            return None
        out, bad = empty(key.shape, POSITION_DTYPE), np.zeros(1, np.int64)
        library = self._library(("places", key.dtype), places_text, key.dtype)
        words = (length, most_of(key.dtype, length), key.size, 0)
        self._run(library, (key, key, out, bad), words, -(-key.size // TAKE_UNIT), key.size / 4)
        return None if bad[0] else out

    def _kept(self, mask: np.ndarray) -> np.ndarray:
        """Return where a mask is true."""
        starts = self._starts(mask)
        out = empty((int(starts[-1]),), POSITION_DTYPE)
        if out.size:
            library = self._library(("positions",), positions_text, plain=True)
            self._run(library, (mask, starts, out), (mask.size,), len(starts) - 1, mask.size / 8)
        return out

    def bounds(self, labels: Any) -> tuple[int, int] | None:
        """Return the least and the greatest of an array of integers."""
        if not are_integers(labels) or not labels.size or labels.dtype == np.uint64:
            return None
        return self._bounds(labels)
