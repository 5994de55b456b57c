"""Kernels of sparse matrices: which there are, and how they are launched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.codegen.indexing.gather import most_of, pack_indexed
from jitla.codegen.jit import Jit, Library
from jitla.codegen.kernel_abi import hints
from jitla.codegen.sparse.csr_kernels import (
    OPERANDS,
    csr_text,
    entries_text,
    ranges_text,
    row_sums_text,
    specialised_columns,
)
from jitla.codegen.sparse.sampled import AHEAD, SHORTEST, sampled_product_text
from jitla.fusion import SparseProduct
from jitla.hops import lookup
from jitla.runtime import empty
from jitla.runtime import threads as runtime_threads

__all__ = ["CHUNKS", "CompressedRows", "SERIAL", "Stored", "are_indices", "pack_entries"]


SERIAL = 1 << 15  # entries, or products of them, that one thread does
CHUNKS = 4  # units per thread: rows may differ much in what they cost
# Results that are added up at the end, whatever the number of threads: so many at most, if to each is added
# so many times what it has of elements; of a few, which cost less to add up, less will do.
MAX_COPIES, LARGE_SHARE = 64, 64
FEW_COPIES, SHARE = 8, 8
LONG = 512  # entries of a row, as a mean, from which on it is cut for threads that share results out
LOOK = 512  # entries
RANGES = 2  # units per thread: entries of each are searched for in every row
_NS = 0.6  # per entry


class CompressedRows:
    """The loops of one backend, compiled when they are met, on up to `threads` threads; 0: as is usual."""

    def __init__(self, jit: Jit, launch: Callable[..., int], threads: int) -> None:
        self._jit, self._launch, self._threads = jit, launch, threads
        self._libraries: dict[tuple[Any, ...], Library] = {}

    def operator(self, name: str) -> Callable[..., np.ndarray] | None:
        """Return what computes the operator `name`, by its reference where loops do not fit; None if it
        is none of theirs.
        """
        loops: dict[str, Callable[..., np.ndarray | None]] = {
            "csr_vector": self._vector, "csr_product": self._product,
            "csr_transposed_vector": self._transposed, "csr_transposed_product": self._transposed,
            "csr_row_sums": self._row_sums}
        loop = loops.get(name)
        if loop is None:
            return None
        reference: Callable[..., np.ndarray] = lookup(name).ref

        def run(*operands: Any, **attrs: Any) -> np.ndarray:
            made = loop(*operands, **attrs)
            return reference(*operands, **attrs) if made is None else made

        return run

    def _vector(
        self, data: np.ndarray, columns: np.ndarray, starts: np.ndarray, x: np.ndarray
    ) -> np.ndarray | None:
        return self._by_rows("dot", data, columns, starts, x)

    def _product(
        self, data: np.ndarray, columns: np.ndarray, starts: np.ndarray, x: np.ndarray
    ) -> np.ndarray | None:
        return self._by_rows("dots", data, columns, starts, x)

    def _by_rows(
        self, form: str, data: np.ndarray, columns: np.ndarray, starts: np.ndarray, x: np.ndarray
    ) -> np.ndarray | None:
        data, x = _alike(data, x)
        if not _fits(data, columns, starts):
            return None
        depth = _depth(x)
        out = empty((len(starts) - 1, *x.shape[1:]), data.dtype)
        work = len(data) * (1 + depth / 4)
        threads = (self._threads or runtime_threads()) if work >= SERIAL else 1
        units = threads * CHUNKS if threads > 1 else 1
        operands = data, columns, starts, np.ascontiguousarray(x), out
        fine = self._run(form, units, operands, (len(x), len(data), depth, 0), work)
        return out if fine else None

    def _transposed(
        self, data: np.ndarray, columns: np.ndarray, starts: np.ndarray, x: np.ndarray, width: int
    ) -> np.ndarray | None:
        data, x = _alike(data, x)
        if not _fits(data, columns, starts):
            return None
        depth = _depth(x)
        size = width * depth
        copies = _copies(len(data) * depth, size)
        if len(data) >= LONG * max(len(starts) - 1, 1) and (x.ndim > 1 or copies == 1):
            copies = 1  # with the bits of ranges
            if (made := self._in_ranges(data, columns, starts, x, width)) is not None:
                return made
        several = (copies,) if copies > 1 else ()
        out = empty((*several, width, *x.shape[1:]), data.dtype)
        operands = data, columns, starts, np.ascontiguousarray(x), out
        words = width, len(data), depth, size * data.itemsize
        fine = self._run("sums" if x.ndim > 1 else "sum", copies, operands, words,
                         len(data) * (1 + depth / 4))
        if not fine:
            return None
        if not several:
            return out
        with np.errstate(all="ignore"):  # SciPy's loops say nothing
            total: np.ndarray = np.add.reduce(out, axis=0)
        return total

    def _in_ranges(
        self, data: np.ndarray, columns: np.ndarray, starts: np.ndarray, x: np.ndarray, width: int
    ) -> np.ndarray | None:
        """Share results out, where columns of rows of many entries are in order; None where they are not."""
        rows, depth = len(starts) - 1, _depth(x)
        if not rows or not _in_order(columns, starts):
            return None
        several = x.ndim > 1
        specialised = specialised_columns(depth, data.dtype) if several else 0
        key = "ranges", several, data.dtype, columns.dtype, specialised
        library = self._libraries.get(key)
        if library is None:
            text = ranges_text(*key[1:4], self._jit.target, key[4])
            library = self._libraries[key] = self._jit.load(text, ("k",))
        work = len(data) * (1 + depth / 4)
        threads = (self._threads or runtime_threads()) if work >= SERIAL else 1
        units = threads * RANGES if threads > 1 else 1
        out, fault = empty((width, *x.shape[1:]), data.dtype), np.zeros(1, np.int64)
        template = pack_indexed(
            library.addresses["k"], len(OPERANDS), (width, len(data), depth, rows, units), units, 1,
            hints(work * _NS, True, self._threads))
        self._launch(template, data, columns, starts, np.ascontiguousarray(x), out, fault)
        return None if fault[0] else out

    def _row_sums(self, data: np.ndarray, starts: np.ndarray) -> np.ndarray | None:
        """Add up rows; where that raises flags, NumPy has to say so."""
        run = data.flags.c_contiguous and data.flags.aligned and data.dtype.char in "fd"
        if not run or not are_indices(starts, starts) or starts[-1] != len(data):
            return None
        out, fault = empty((len(starts) - 1,), data.dtype), np.zeros(1, np.int64)
        key = "row_sums", data.dtype, starts.dtype
        library = self._libraries.get(key)
        if library is None:
            text = row_sums_text(data.dtype, starts.dtype, self._jit.target.triple)
            library = self._libraries[key] = self._jit.load(text, ("k",))
        threads = (self._threads or runtime_threads()) if len(data) >= SERIAL else 1
        units = threads * CHUNKS if threads > 1 else 1
        template = pack_indexed(
            library.addresses["k"], 4, (len(data), len(starts) - 1, units), units, 1,
            hints(len(data) * _NS, True, self._threads))
        flags = self._launch(template, data, starts, out, fault)
        return None if flags or fault[0] else out

    def _run(
        self, form: str, units: int, operands: tuple[np.ndarray, ...], words: tuple[int, ...], work: float,
    ) -> bool:
        """Fill the last operand; say whether all indices name something."""
        data, columns, starts = operands[:3]
        key = form, data.dtype, columns.dtype, self._jit.target, specialised_columns(words[2], data.dtype)
        library = self._libraries.get(key)
        if library is None:
            text = csr_text(*key)
            library = self._libraries[key] = self._jit.load(text, ("k", "stage"))
        fault = np.zeros(1, np.int64)
        template = pack_indexed(
            library.addresses["k"], len(OPERANDS),
            (*words, most_of(columns.dtype, words[0]), len(starts) - 1, units), units, 1,
            hints(work * _NS, True, self._threads))
        self._launch(template, *operands, fault)
        return not fault[0]


def pack_entries(entry: int, entries: SparseProduct, index: np.dtype) -> bytes:
    """Return the argument block of the stage that does one block of rows."""
    return pack_indexed(entry, len(OPERANDS) - 1, (*entries, most_of(index, entries.width)), 1, 1, 0)


def _alike(data: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both in the dtype of their product."""
    dtype = np.result_type(data, x)
    return data.astype(dtype, copy=False), x.astype(dtype, copy=False)


def _fits(data: np.ndarray, columns: np.ndarray, starts: np.ndarray) -> bool:
    """Tell whether there are loops for entries and indices like these."""
    run = data.flags.c_contiguous and data.flags.aligned and len(data) == len(columns)
    return run and data.dtype.char in "fd" and are_indices(starts, columns)


def _depth(x: np.ndarray) -> int:
    return 1 if x.ndim == 1 else x.shape[1]


def _in_order(columns: np.ndarray, starts: np.ndarray) -> bool:
    """Look at some columns in the middle: they tell, as a rule, whether rows are in order."""
    row = len(starts) // 2
    some = columns[max(int(starts[row - 1]), 0):max(int(starts[row]), 0)][:LOOK]
    return bool((some[1:] >= some[:-1]).all())


def _copies(work: int, size: int) -> int:
    """Return how many results of `size` elements are made; it must not depend on the number of threads."""
    if work < SERIAL:
        return 1
    few = min(FEW_COPIES, work // max(SHARE * size, 1))
    return max(1, few, min(MAX_COPIES, work // max(LARGE_SHARE * size, 1)))


def are_indices(starts: np.ndarray, columns: np.ndarray) -> bool:
    """Tell whether loops can read them: both of one integer type, in one run."""
    return starts.dtype == columns.dtype and columns.dtype.char in "il" and all(
        x.flags.c_contiguous and x.flags.aligned for x in (starts, columns))


NEAR = 768 << 10  # bytes of the second cache that rows named by columns may fill
PIECE = 1 << 12  # entries whose columns are read in one go
UNIT = 1 << 20  # entries whose columns and products stay in the last cache from tile to tile
COARSE = 2  # units per thread where each copies all rows of a matrix, a tile at a time
MAX_UNITS = 32  # each has a tile of its own
PER_TILE = 32  # bytes of the entries of a row in a tile
PER_COPY = 4  # entries that read a row of the second matrix once it is copied
_STORED_NS = 1.0


class Stored:
    """The loops of one backend, compiled when they are met, on up to `threads` threads; 0: as is usual."""

    def __init__(self, jit: Jit, launch: Callable[..., int], threads: int) -> None:
        self._jit, self._launch, self._threads = jit, launch, threads
        self._products = CompressedRows(jit, launch, threads)
        self._libraries: dict[tuple[Any, ...], Library] = {}

    def operator(self, name: str) -> Callable[..., np.ndarray]:
        """Return what computes the operator `name`: its loop, or its reference where there is none."""
        reference: Callable[..., np.ndarray] = lookup(name).ref
        loops: dict[str, Callable[..., np.ndarray | None]] = {
            "sampled": self._sampled, "by_row": self._by_row, "by_column": self._by_column,
            "sampled_product": self._sampled_product,
        }
        loop = loops.get(name)
        if loop is None:
            return self._products.operator(name) or reference

        def run(*operands: Any, **attrs: Any) -> np.ndarray:
            made = loop(*operands, **attrs)
            return reference(*operands, **attrs) if made is None else made

        return run

    def _sampled(self, x: np.ndarray, starts: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        if x.dtype.itemsize not in (1, 2, 4, 8, 16):
            return None
        words = (x.shape[1], len(columns), *x.strides)
        key = ("sampled", x.dtype.itemsize, columns.dtype)
        return self._entries(key, x, starts, columns, words)

    def _by_row(self, x: np.ndarray, starts: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        words = (0, len(columns), x.strides[0], 0)
        return self._entries(("row", x.dtype.itemsize, columns.dtype), x, starts, columns, words)

    def _by_column(self, x: np.ndarray, columns: np.ndarray) -> np.ndarray | None:
        """Read the one row of a matrix, at positions that are cut into pieces for the threads."""
        if x.dtype.itemsize not in (1, 2, 4, 8, 16):
            return None
        starts = np.append(np.arange(0, len(columns), PIECE), len(columns)).astype(columns.dtype)
        words = (len(x), len(columns), 0, x.strides[0])
        return self._entries(("sampled", x.dtype.itemsize, columns.dtype), x, starts, columns, words)

    def _entries(
        self, key: tuple[Any, ...], x: np.ndarray, starts: np.ndarray, columns: np.ndarray,
        words: tuple[int, ...],
    ) -> np.ndarray | None:
        if not are_indices(starts, columns):
            return None
        out = empty(columns.shape, x.dtype)
        library = self._library(key, entries_text, *key, self._jit.target.triple)
        return self._run(library, starts, (x, starts, columns, out), words, len(columns))

    def _sampled_product(
        self, a: np.ndarray, b: np.ndarray, starts: np.ndarray, columns: np.ndarray
    ) -> np.ndarray | None:
        kind = np.result_type(a, b)
        if not are_indices(starts, columns) or kind.char not in "fd" or not len(b):
            return None
        a, b = np.ascontiguousarray(a, kind), np.ascontiguousarray(b, kind)
        out = empty(columns.shape, a.dtype)
        library = self._library(
            ("sampled_product", a.dtype, columns.dtype), sampled_product_text, a.dtype, columns.dtype,
            self._jit.target)
        depth = a.shape[1]
        lanes = self._jit.target.lanes(a.itemsize)
        row = -(-depth // lanes) * lanes * a.itemsize
        work = len(columns) * (1 + depth / 8)
        units = max(self._units(work, COARSE), min(len(columns) // UNIT, MAX_UNITS))
        tile = _tile(row, len(a), len(b), len(columns), a.itemsize, units)
        words = (min(len(b), SHORTEST), len(columns), depth, tile)
        marks = np.zeros((len(a) + AHEAD, 2), np.int64)  # those ahead of the last row are fetched, too
        room = empty((units, max(tile * row, 1)), np.dtype(np.uint8))
        operands = marks, a, b, starts, columns, room, out
        return self._run(library, starts, operands, words, work, units)

    def _library(self, key: tuple[Any, ...], text: Callable[..., str], *args: Any) -> Library:
        """Return the loop `text(*args)`, compiled once."""
        found = self._libraries.get(key)
        if found is None:
            found = self._libraries[key] = self._jit.load(text(*args), ("k",))
        return found

    def _units(self, work: float, chunks: int = CHUNKS) -> int:
        """Return among how many units rows are shared out, so many for each thread."""
        threads = (self._threads or runtime_threads()) if work >= SERIAL else 1
        return threads * chunks if threads > 1 else 1

    def _run(
        self, library: Library, starts: np.ndarray, operands: tuple[np.ndarray, ...],
        words: tuple[int, ...], work: float, units: int = 0,
    ) -> np.ndarray | None:
        """Return the last operand, filled; None where an index names nothing."""
        fault = np.zeros(1, np.int64)
        units = units or self._units(work)
        flags = hints(work * _STORED_NS, True, self._threads)
        template = pack_indexed(
            library.addresses["k"], len(operands) + 1, (*words, len(starts) - 1, units), units, 1, flags)
        self._launch(template, *operands, fault)
        return None if fault[0] else operands[-1]


def _tile(nbytes: int, rows: int, columns: int, entries: int, itemsize: int, units: int) -> int:
    """Return how many columns make a tile, rows named by which take so many bytes each; 0 for no tiles.

    A tile that few entries of a row are in costs more than it saves, and so does copying what few need.
    """
    tiles = max(-(-columns * nbytes // NEAR), 1)
    pays = entries * itemsize >= PER_TILE * rows * tiles and entries >= PER_COPY * columns * units
    return -(-columns // tiles) if pays else 0
