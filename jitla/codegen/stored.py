"""Operators at the stored positions of a sparse matrix, run on several threads.

Knows: which arrays there are loops for. Must not know: plans, SciPy, IR.
Receives operators by name, then ndarrays; returns what their references return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.codegen.csr import CHUNKS, SERIAL, CompressedRows, are_indices, cuts_of
from jitla.codegen.indexing_code import pack_indexed
from jitla.codegen.jit import Jit, Library
from jitla.codegen.layout import hints
from jitla.codegen.stored_code import AHEAD, entries_text, sampled_product_text
from jitla.hops import lookup
from jitla.runtime import empty
from jitla.runtime import threads as runtime_threads

__all__ = ["Stored"]

NEAR = 384 << 10  # bytes of the second cache that rows named by columns may fill
PIECE = 1 << 12  # entries whose columns are read in one go
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
        if not are_indices(starts, columns) or a.dtype != b.dtype or a.dtype.char not in "fd" or not len(b):
            return None
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        out = empty(columns.shape, a.dtype)
        library = self._library(
            ("sampled_product", a.dtype, columns.dtype), sampled_product_text, a.dtype, columns.dtype,
            self._jit.target)
        depth = a.shape[1]
        tile = max(1, NEAR // max(depth * a.itemsize, 1))
        words = (len(b), len(columns), depth, tile)
        marks = np.zeros((len(a) + AHEAD, 2), np.int64)  # those ahead of the last row are fetched, too
        operands = marks, a, b, starts, columns, out
        return self._run(library, starts, operands, words, len(columns) * (1 + depth / 8))

    def _library(self, key: tuple[Any, ...], text: Callable[..., str], *args: Any) -> Library:
        """Return the loop `text(*args)`, compiled once."""
        found = self._libraries.get(key)
        if found is None:
            found = self._libraries[key] = self._jit.load(text(*args), ("k",))
        return found

    def _run(
        self, library: Library, starts: np.ndarray, operands: tuple[np.ndarray, ...],
        words: tuple[int, ...], work: float,
    ) -> np.ndarray | None:
        """Return the last operand, filled; None where an index names nothing."""
        fault = np.zeros(1, np.int64)
        threads = (self._threads or runtime_threads()) if work >= SERIAL else 1
        cuts = cuts_of(starts, threads * CHUNKS if threads > 1 else 1)
        flags = hints(work * _NS, True, self._threads)
        template = pack_indexed(
            library.addresses["k"], len(operands) + 2, words, len(cuts) - 1, 1, flags)
        self._launch(template, cuts, *operands, fault)
        return None if fault[0] else operands[-1]
