"""Kernels of sparse matrices: which there are, how they are launched, and the IR of sampled products.

An entry of a product of two matrices at the stored positions of a third one takes a row of each matrix, and
those of the second one are named by columns, so that they are met in no order. Columns are therefore gone
through a tile at a time by all rows of a unit: the rows that a tile names are first copied to one place,
whole vectors each, which then stays in the second cache. What a tile is decides nothing about bits: every
product is added up in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from jitla.classes import dataclass
from jitla.codegen.csr_kernels import (
    OPERANDS,
    SHARED,
    UNITS,
    bounds_at,
    csr_text,
    entries_text,
    in_all_lanes,
    ranges_text,
    row_sums_text,
    shares,
    specialised_columns,
)
from jitla.codegen.indexing.gather import ENTRY, bits_of, block_head, most_of, pack_indexed
from jitla.codegen.ir import Lanes
from jitla.codegen.jit import Jit, Library
from jitla.codegen.kernel_abi import hints
from jitla.codegen.target import Target
from jitla.fusion import SparseProduct
from jitla.hops import lookup
from jitla.runtime import empty
from jitla.runtime import threads as runtime_threads

__all__ = [
    "AHEAD", "CHUNKS", "CompressedRows", "SHORTEST", "SparseThresholds", "Stored", "are_indices",
    "pack_entries", "sampled_product_text",
]


# ------------------------------------------------------------------------ IR of products at stored positions


AHEAD = 6  # rows
SHORTEST = 1 << 31  # columns are looked at as indices, the narrowest of which are that many
_COUNTS = (4, 2, 1)  # entries of a row that are multiplied together
_FORESEEN = 12  # entries
_CHAINS = 2  # running sums of a product, each of which waits for its last addition
_REAL = {4: "float", 8: "double"}
_NAMES = ("marks", "a", "b", "starts", "columns", "room", "out", "fault")


class _Walk(NamedTuple):
    """Entries of a row that are gone through: the letter of its names, where rows of `b` lie.

    `stride`: elements between them; `padded`: they are whole vectors; `other`: the label for a column
    that is not among those of the walk.
    """

    tag: str
    rows: str
    stride: str
    padded: bool
    other: str


_TILE = _Walk("t", "%tile.rows", "%wide", True, "t.ended")
_REST = _Walk("d", "%b", "%depth", False, "d.lost")


def _load(w: Lanes, name: str, base: str, at: str) -> str:
    """Lines that load the vector at element `at`."""
    return (f"  {name}.p = getelementptr {w.real}, ptr {base}, i64 {at}\n"
            f"  {name} = load {w.vector}, ptr {name}.p, align {w.size}\n")


def _span(walk: _Walk, index: np.dtype, begin: str, length: str) -> str:
    """Lines that make vectors of the first column of a walk, and of how many there are."""
    kind, t = f"i{bits_of(index)}", walk.tag
    text = "".join(f"  %{t}.{name}.x = trunc i64 {value} to {kind}\n" if kind != "i64" else
                   f"  %{t}.{name}.x = add i64 {value}, 0\n"
                   for name, value in (("begin", begin), ("span", length)))
    return text + "".join(in_all_lanes(f"%{t}.{name}{c}", f"%{t}.{name}.x", kind, c)
                          for name in ("begin", "span") for c in _COUNTS)


def _look(walk: _Walk, index: np.dtype, count: int, less: str) -> str:
    """Lines from label look<count>: branch to found<count> if `count` entries have the walk's columns."""
    t, c, kind = f"{walk.tag}{count}", count, f"i{bits_of(index)}"
    v = f"<{c} x {kind}>"
    return f"""{t}.look:
  %{t}.far = add i64 %{walk.tag}.k, {c}
  %{t}.left = icmp ule i64 %{t}.far, %{walk.tag}.to
  br i1 %{t}.left, label %{t}.read, label %{walk.tag + ".ended" if c == 1 else less}
{t}.read:
  %{t}.at = getelementptr {kind}, ptr %columns, i64 %{walk.tag}.k
  %{t}.given = load {v}, ptr %{t}.at, align {index.itemsize}
  %{t}.own = sub {v} %{t}.given, %{walk.tag}.begin{c}
  %{t}.in = icmp ult {v} %{t}.own, %{walk.tag}.span{c}
  %{t}.bits = bitcast <{c} x i1> %{t}.in to i{c}
  %{t}.all = icmp eq i{c} %{t}.bits, -1
  br i1 %{t}.all, label %{t}.found, label %{less}
"""


def _dots(w: Lanes, walk: _Walk, index: np.dtype, count: int) -> str:
    """Lines from label found<count>: products of %a.row with `count` rows; the label behind is entries."""
    t, kind, each = f"{walk.tag}{count}", f"i{bits_of(index)}", range(count)
    runs = [(e, n) for e in each for n in range(_CHAINS)]
    text = f"{t}.found:\n"
    for e in each:
        text += f"  %{t}.own{e} = extractelement <{count} x {kind}> %{t}.own, i64 {e}\n"
        text += (f"  %{t}.row{e} = zext {kind} %{t}.own{e} to i64\n" if kind != "i64" else
                 f"  %{t}.row{e} = add i64 %{t}.own{e}, 0\n")
        text += (f"  %{t}.skip{e} = mul i64 %{t}.row{e}, {walk.stride}\n"
                 f"  %{t}.b{e} = getelementptr {w.real}, ptr {walk.rows}, i64 %{t}.skip{e}\n")
    text += "" if walk.padded else "".join(_foreseen(w, walk, index, count, e) for e in each)
    text += (f"  br label %{t}.turns\n{t}.turns:\n"
             f"  %{t}.i = phi i64 [ 0, %{t}.found ], [ %{t}.next, %{t}.turn ]\n")
    text += "".join(f"  %{t}.s{e}.{n} = phi {w.vector} [ zeroinitializer, %{t}.found ], "
                    f"[ %{t}.u{e}.{n}, %{t}.turn ]\n" for e, n in runs)
    text += (f"  %{t}.next = add i64 %{t}.i, {_CHAINS * w.width}\n"
             f"  %{t}.more = icmp ule i64 %{t}.next, %depth\n"
             f"  br i1 %{t}.more, label %{t}.turn, label %{t}.joined\n{t}.turn:\n")
    text += "" if walk.padded else "".join(
        f"  %{t}.n{e}.p = getelementptr {w.real}, ptr %{t}.n{e}, i64 %{t}.i\n"
        f"  call void @llvm.prefetch.p0(ptr %{t}.n{e}.p, i32 0, i32 2, i32 1)\n" for e in each)
    for n in range(_CHAINS):
        text += f"  %{t}.i{n} = add i64 %{t}.i, {n * w.width}\n"
        text += _load(w, f"%{t}.x{n}", "%a.row", f"%{t}.i{n}")
        text += "".join(_load(w, f"%{t}.y{e}.{n}", f"%{t}.b{e}", f"%{t}.i{n}")
                        + w.fma(f"%{t}.u{e}.{n}", f"%{t}.x{n}", f"%{t}.y{e}.{n}", f"%{t}.s{e}.{n}")
                        for e in each)
    text += f"  br label %{t}.turns\n{t}.joined:\n"
    for e in each:
        sums = [f"%{t}.s{e}.{n}" for n in range(_CHAINS)]
        while len(sums) > 1:
            text += f"  {sums[0]}j = fadd {w.vector} {sums[0]}, {sums[1]}\n"
            sums = [*sums[2:], f"{sums[0]}j"]
        text += f"  %{t}.w{e} = fadd {w.vector} {sums[0]}, zeroinitializer\n"
    return text + _last(w, walk, count) + _stored(w, walk, count)


def _foreseen(w: Lanes, walk: _Walk, index: np.dtype, count: int, e: int) -> str:
    """Lines that say which row of `b` an entry further on needs, while the rows of these are read."""
    t = f"{walk.tag}{count}"
    kind = f"i{bits_of(index)}"
    text = (f"  %{t}.n{e}.far = add i64 %{walk.tag}.k, {e + _FORESEEN}\n"
            f"  %{t}.n{e}.at = call i64 @llvm.umin.i64(i64 %{t}.n{e}.far, i64 %last.entry)\n"
            f"  %{t}.n{e}.q = getelementptr {kind}, ptr %columns, i64 %{t}.n{e}.at\n"
            f"  %{t}.n{e}.c = load {kind}, ptr %{t}.n{e}.q, align {index.itemsize}\n")
    text += (f"  %{t}.n{e}.row = zext {kind} %{t}.n{e}.c to i64\n" if kind != "i64" else
             f"  %{t}.n{e}.row = add i64 %{t}.n{e}.c, 0\n")
    return text + (f"  %{t}.n{e}.skip = mul i64 %{t}.n{e}.row, {walk.stride}\n"
                   f"  %{t}.n{e} = getelementptr {w.real}, ptr {walk.rows}, i64 %{t}.n{e}.skip\n")


def _last(w: Lanes, walk: _Walk, count: int) -> str:
    """Lines that go on with whole vectors one by one, and with the elements that are left."""
    t, each = f"{walk.tag}{count}", range(count)
    text = (f"  br label %{t}.vectors\n{t}.vectors:\n"
            f"  %{t}.j = phi i64 [ %{t}.i, %{t}.joined ], [ %{t}.j.next, %{t}.vector ]\n")
    text += "".join(f"  %{t}.v{e} = phi {w.vector} [ %{t}.w{e}, %{t}.joined ], [ %{t}.z{e}, %{t}.vector ]\n"
                    for e in each)
    text += (f"  %{t}.j.next = add i64 %{t}.j, {w.width}\n"
             f"  %{t}.some = icmp ule i64 %{t}.j.next, %depth\n"
             f"  br i1 %{t}.some, label %{t}.vector, label %{t}.tail\n{t}.vector:\n")
    text += _load(w, f"%{t}.vx", "%a.row", f"%{t}.j") + "".join(
        _load(w, f"%{t}.vy{e}", f"%{t}.b{e}", f"%{t}.j")
        + w.fma(f"%{t}.z{e}", f"%{t}.vx", f"%{t}.vy{e}", f"%{t}.v{e}") for e in each)
    text += (f"  br label %{t}.vectors\n{t}.tail:\n"
             f"  br i1 %odd, label %{t}.few, label %{t}.summed\n{t}.few:\n")
    for e in each:
        text += f"  %{t}.fq{e} = getelementptr {w.real}, ptr %{t}.b{e}, i64 %{t}.j\n"
        text += (f"  %{t}.fy{e} = load {w.vector}, ptr %{t}.fq{e}, align {w.size}\n" if walk.padded else
                 w.masked(f"%{t}.fy{e}", f"%{t}.fq{e}"))
        text += w.fma(f"%{t}.f{e}", "%a.tail", f"%{t}.fy{e}", f"%{t}.v{e}")
    return text + f"  br label %{t}.summed\n{t}.summed:\n" + "".join(
        f"  %{t}.all{e} = phi {w.vector} [ %{t}.v{e}, %{t}.tail ], [ %{t}.f{e}, %{t}.few ]\n" for e in each)


def _stored(w: Lanes, walk: _Walk, count: int) -> str:
    """Lines that add up the lanes of every sum and store them next to each other."""
    t = f"{walk.tag}{count}"
    text, sums = w.folds(f"%{t}.sum", [f"%{t}.all{e}" for e in range(count)])
    each = count // len(sums)
    text += f"  %{t}.k.next = add i64 %{walk.tag}.k, {count}\n"
    for i, name in enumerate(sums):
        text += (f"  %{t}.o{i}.at = add i64 %{walk.tag}.k, {i * each}\n"
                 f"  %{t}.o{i} = getelementptr {w.real}, ptr %out, i64 %{t}.o{i}.at\n"
                 f"  store <{each} x {w.real}> {name}, ptr %{t}.o{i}, align {w.size}\n")
    return text + f"  br label %{walk.tag}.entries\n"


def _row(w: Lanes, walk: _Walk, index: np.dtype, lost: str) -> str:
    """Lines of the loop over the rows of a unit, from label each to label ended, which goes on to each.

    Of every row come the entries from its mark on, as long as their columns are the walk's, the most at
    once first.
    """
    t = walk.tag
    phis = "".join(f", [ %{t}{c}.k.next, %{t}{c}.summed ]" for c in _COUNTS) + lost
    text = f"""  %{t}.skip = mul i64 %{t}.r, 2
  %{t}.p = getelementptr i64, ptr %marks, i64 %{t}.skip
  %{t}.from = load i64, ptr %{t}.p, align 8
  %{t}.e = getelementptr i64, ptr %{t}.p, i64 1
  %{t}.to = load i64, ptr %{t}.e, align 8
  %{t}.a.skip = mul i64 %{t}.r, %depth
  %{t}.a.row = getelementptr {w.real}, ptr %a, i64 %{t}.a.skip
  %{t}.a.end = getelementptr {w.real}, ptr %{t}.a.row, i64 %whole
{w.masked(f"%{t}.a.tail", f"%{t}.a.end")}{_fetch(w, walk, index)}  br label %{t}.entries
{t}.entries:
  %{t}.k = phi i64 [ %{t}.from, %{t}.row ]{phis}
  br label %{t}{_COUNTS[0]}.look
"""
    text += "".join(_look(walk, index, c, f"{t}{d}.look" if d else walk.other)
                    for c, d in pairwise((*_COUNTS, 0)))
    dots = "".join(_dots(w, walk, index, c) for c in _COUNTS)
    return text + dots.replace("%a.row", f"%{t}.a.row").replace("%a.tail", f"%{t}.a.tail")


def _fetch(w: Lanes, walk: _Walk, index: np.dtype) -> str:
    """Lines that fetch where a row further on goes on: no processor foresees that."""
    t = walk.tag
    return f"""  %{t}.h.skip = add i64 %{t}.skip, {2 * AHEAD}
  %{t}.h.p = getelementptr i64, ptr %marks, i64 %{t}.h.skip
  %{t}.h = load i64, ptr %{t}.h.p, align 8
  %{t}.h.columns = getelementptr i{bits_of(index)}, ptr %columns, i64 %{t}.h
  call void @llvm.prefetch.p0(ptr %{t}.h.columns, i32 0, i32 3, i32 1)
  %{t}.h.more = getelementptr i8, ptr %{t}.h.columns, i64 64
  call void @llvm.prefetch.p0(ptr %{t}.h.more, i32 0, i32 3, i32 1)
  %{t}.h.out = getelementptr {w.real}, ptr %out, i64 %{t}.h
  call void @llvm.prefetch.p0(ptr %{t}.h.out, i32 1, i32 3, i32 1)
"""


def _marking(index: np.dtype) -> str:
    """Lines that note for every row of a unit where its entries go on, and where they end."""
    return f"""  br label %marking
marking:
  %i = phi i64 [ %first, %shared ], [ %after, %noted ]
  %i.more = icmp ult i64 %i, %stop
  br i1 %i.more, label %mark, label %tiles
mark:
{bounds_at(index)}  br i1 %run, label %noted, label %broken
broken:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %noted
noted:
  %m.skip = mul i64 %i, 2
  %m.p = getelementptr i64, ptr %marks, i64 %m.skip
  store i64 %from, ptr %m.p, align 8
  %e.p = getelementptr i64, ptr %m.p, i64 1
  store i64 %to, ptr %e.p, align 8
  br label %marking
"""


def _packing(w: Lanes) -> str:
    """Lines from label packing to label packed: copy the rows of a tile, zeros behind the last elements."""
    return f"""packing:
  %y = phi i64 [ 0, %strip ], [ %y.next, %packed.row ]
  %y.more = icmp ult i64 %y, %span
  br i1 %y.more, label %pack, label %packed
pack:
  %y.next = add i64 %y, 1
  %y.row = add i64 %c, %y
  %y.skip = mul i64 %y.row, %depth
  %y.p = getelementptr {w.real}, ptr %b, i64 %y.skip
  %y.to = mul i64 %y, %wide
  %y.q = getelementptr {w.real}, ptr %tile.rows, i64 %y.to
  br label %pieces
pieces:
  %x = phi i64 [ 0, %pack ], [ %x.next, %piece ]
  %x.more = icmp ult i64 %x, %whole
  br i1 %x.more, label %piece, label %pieced
piece:
  %x.next = add i64 %x, {w.width}
{_load(w, "%x.v", "%y.p", "%x")}  %x.q = getelementptr {w.real}, ptr %y.q, i64 %x
  store {w.vector} %x.v, ptr %x.q, align {w.size}
  br label %pieces
pieced:
  br i1 %odd, label %pad, label %packed.row
pad:
  %z.p = getelementptr {w.real}, ptr %y.p, i64 %whole
{w.masked("%z", "%z.p")}  %z.q = getelementptr {w.real}, ptr %y.q, i64 %whole
  store {w.vector} %z, ptr %z.q, align {w.size}
  br label %packed.row
packed.row:
  br label %packing
"""


def sampled_product_text(dtype: np.dtype, index: np.dtype, target: Target) -> str:
    """Return the module that multiplies, for every entry, its row of `a` with its column's row of `b`.

    Operands: two words for every row, a, b, starts, columns, room, results, fault; both matrices
    of `depth` columns lie row after row. The room has a tile for every unit: `tile` rows of b, each as
    many whole vectors as it takes. Tiles want columns in order: other entries are done last, and so
    are all if `tile` is 0.
    """
    w = Lanes(_REAL[dtype.itemsize], dtype.itemsize, target.lanes(dtype.itemsize))
    lost = ", [ %d.k.next, %d.lost ]"
    return f"""target triple = "{target.triple}"
{w.declared()}{shares(index)}{ENTRY}\
{block_head(_NAMES, ("width", "total", "depth", "tile", *SHARED))}\
  %rest = and i64 %depth, {w.width - 1}
  %odd = icmp ne i64 %rest, 0
  %whole = sub i64 %depth, %rest
  %more.wide = add i64 %depth, {w.width - 1}
  %wide = and i64 %more.wide, {-w.width}
  %tile.size = mul i64 %wide, %tile
  %tiled = icmp ne i64 %tile, 0
  %last.entry = sub i64 %total, 1
  %columns.tiled = select i1 %tiled, i64 %width, i64 0
{w.tail_mask()}{_span(_REST, index, "0", "%width")}{UNITS}{_marking(index)}tiles:
  %c = phi i64 [ 0, %marking ], [ %c.next, %t.each ]
  %c.more = icmp ult i64 %c, %columns.tiled
  br i1 %c.more, label %strip, label %d.each
strip:
  %c.next = add i64 %c, %tile
  %c.left = sub i64 %width, %c
  %span = call i64 @llvm.umin.i64(i64 %c.left, i64 %tile)
  %room.at = mul i64 %u, %tile.size
  %tile.rows = getelementptr {w.real}, ptr %room, i64 %room.at
{_span(_TILE, index, "%c", "%span")}  br label %packing
{_packing(w)}packed:
  br label %t.each
t.each:
  %t.r = phi i64 [ %first, %packed ], [ %t.r.next, %t.ended ]
  %t.r.more = icmp ult i64 %t.r, %stop
  br i1 %t.r.more, label %t.row, label %tiles
t.row:
  %t.r.next = add i64 %t.r, 1
{_row(w, _TILE, index, "")}t.ended:
  store i64 %t.k, ptr %t.p, align 8
  br label %t.each
d.each:
  %d.r = phi i64 [ %first, %tiles ], [ %d.r.next, %d.ended ]
  %d.r.more = icmp ult i64 %d.r, %stop
  br i1 %d.r.more, label %d.row, label %unit.end
d.row:
  %d.r.next = add i64 %d.r, 1
{_row(w, _REST, index, lost)}d.lost:
  %d.k.next = add i64 %d.k, 1
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %d.entries
d.ended:
  br label %d.each
unit.end:
  br label %units
exit:
  ret void
}}
"""


# --------------------------------------------------------------------------- kernels


@dataclass(frozen=True)
class SparseThresholds:
    """Sizes at which kernels of sparse matrices are launched in another way."""

    #: Entries, or products of them, for which threads are woken.
    min_parallel_entries: int = 1 << 15
    #: Mean entries of a row from which on rows are cut for threads that share results out.
    min_cut_row_entries: int = 512
    #: Entries of one row whose order stands for that of all.
    max_sampled_entries: int = 512
    #: Bytes of the second-level cache that the rows named by columns may fill.
    max_tile_bytes: int = 768 << 10
    #: Entries whose columns and products stay in the last cache from tile to tile.
    max_unit_entries: int = 1 << 20
    #: Bytes of the entries that a row has in a tile on average, and entries that read a row of the second
    #: matrix once it is copied: with fewer, tiles cost more than they save.
    min_tile_row_bytes: int = 32
    min_copy_reads: int = 4


CHUNKS = 4  # units per thread: rows may differ much in what they cost
# Copies of the result that threads add to, and that are summed at the end: at most `MAX_COPIES`, if each gets
# at least `LARGE_SHARE` additions per element; up to `FEW_COPIES`, if it gets `SHARE`.
MAX_COPIES, LARGE_SHARE = 64, 64
FEW_COPIES, SHARE = 8, 8
RANGES = 2  # units per thread: entries of each are searched for in every row
_NS = 0.6  # per entry


class CompressedRows:
    """The loops of one backend, compiled when they are met, on up to `threads` threads; 0: as is usual."""

    def __init__(
        self, jit: Jit, launch: Callable[..., int], threads: int, thresholds: SparseThresholds | None = None,
    ) -> None:
        self._jit, self._launch, self._threads = jit, launch, threads
        self._thresholds = thresholds or SparseThresholds()
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
        threads = (self._threads or runtime_threads()) if work >= self._thresholds.min_parallel_entries else 1
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
        work = len(data) * depth
        copies = _copies(work, size) if work >= self._thresholds.min_parallel_entries else 1
        if len(data) >= self._thresholds.min_cut_row_entries * max(len(starts) - 1, 1) \
                and (x.ndim > 1 or copies == 1):
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
        if not rows or not _in_order(columns, starts, self._thresholds.max_sampled_entries):
            return None
        several = x.ndim > 1
        specialised = specialised_columns(depth, data.dtype) if several else 0
        key = "ranges", several, data.dtype, columns.dtype, specialised
        library = self._libraries.get(key)
        if library is None:
            text = ranges_text(*key[1:4], self._jit.target, key[4])
            library = self._libraries[key] = self._jit.load(text, ("k",))
        work = len(data) * (1 + depth / 4)
        threads = (self._threads or runtime_threads()) if work >= self._thresholds.min_parallel_entries else 1
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
        is_parallel = len(data) >= self._thresholds.min_parallel_entries
        threads = (self._threads or runtime_threads()) if is_parallel else 1
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


def _in_order(columns: np.ndarray, starts: np.ndarray, most: int) -> bool:
    """Return whether up to `most` columns of a row in the middle are sorted: as a rule, all rows are then."""
    row = len(starts) // 2
    some = columns[max(int(starts[row - 1]), 0):max(int(starts[row]), 0)][:most]
    return bool((some[1:] >= some[:-1]).all())


def _copies(work: int, size: int) -> int:
    """Return how many results of `size` elements are made; it must not depend on the number of threads."""
    few = min(FEW_COPIES, work // max(SHARE * size, 1))
    return max(1, few, min(MAX_COPIES, work // max(LARGE_SHARE * size, 1)))


def are_indices(starts: np.ndarray, columns: np.ndarray) -> bool:
    """Tell whether loops can read them: both of one integer type, in one run."""
    return starts.dtype == columns.dtype and columns.dtype.char in "il" and all(
        x.flags.c_contiguous and x.flags.aligned for x in (starts, columns))


PIECE = 1 << 12  # entries whose columns are read in one go
COARSE = 2  # units per thread where each copies all rows of a matrix, a tile at a time
MAX_UNITS = 32  # each has a tile of its own
_STORED_NS = 1.0


class Stored:
    """The loops of one backend, compiled when they are met, on up to `threads` threads; 0: as is usual."""

    def __init__(
        self, jit: Jit, launch: Callable[..., int], threads: int, thresholds: SparseThresholds | None = None,
    ) -> None:
        self._jit, self._launch, self._threads = jit, launch, threads
        self._thresholds = thresholds or SparseThresholds()
        self._products = CompressedRows(jit, launch, threads, self._thresholds)
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
        least = min(len(columns) // self._thresholds.max_unit_entries, MAX_UNITS)
        units = max(self._units(work, COARSE), least)
        tile = self._tile(row, len(a), len(b), len(columns), a.itemsize, units)
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
        """Return the number of units of work that rows are divided into, a fixed number for each thread."""
        threads = (self._threads or runtime_threads()) if work >= self._thresholds.min_parallel_entries else 1
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

    def _tile(
        self, nbytes: int, rows: int, columns: int, entries: int, itemsize: int, units: int,
    ) -> int:
        """Return the number of columns of a tile; the rows they name take `nbytes` each; 0: no tiles.

        A tile that few entries of a row are in costs more than it saves, and so does copying what few need.
        """
        thresholds = self._thresholds
        tiles = max(-(-columns * nbytes // thresholds.max_tile_bytes), 1)
        pays = entries * itemsize >= thresholds.min_tile_row_bytes * rows * tiles \
            and entries >= thresholds.min_copy_reads * columns * units
        return -(-columns // tiles) if pays else 0
