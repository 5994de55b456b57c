"""Operators at the stored positions of a sparse matrix, run on several threads.

Knows: which arrays there are loops for. Must not know: plans, SciPy, IR.
Receives operators by name, then ndarrays; returns what their references return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.codegen.csr import CHUNKS, SERIAL, CompressedRows, are_indices
from jitla.codegen.indexing_code import pack_indexed
from jitla.codegen.jit import Jit, Library
from jitla.codegen.layout import hints
from jitla.codegen.sampled_code import AHEAD, SHORTEST, sampled_product_text
from jitla.codegen.stored_code import entries_text
from jitla.hops import lookup
from jitla.runtime import empty
from jitla.runtime import threads as runtime_threads

__all__ = ["Stored"]

NEAR = 768 << 10  # bytes of the second cache that rows named by columns may fill
PIECE = 1 << 12  # entries whose columns are read in one go
UNIT = 1 << 20  # entries whose columns and products stay in the last cache from tile to tile
COARSE = 2  # units per thread where each copies all rows of a matrix, a tile at a time
MAX_UNITS = 32  # each has a tile of its own
PER_TILE = 32  # bytes of the entries of a row in a tile
PER_COPY = 4  # entries that read a row of the second matrix once it is copied
_NS = 1.0


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
        flags = hints(work * _NS, True, self._threads)
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
