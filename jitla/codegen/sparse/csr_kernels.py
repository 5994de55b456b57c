"""IR of kernels over the stored entries of CSR matrices."""

from __future__ import annotations

from functools import cache

import numpy as np

from jitla.codegen.indexing.gather import (
    ENTRY,
    Carried,
    bits_of,
    block_head,
    counted_loop_ir,
    in_lanes,
    to_word,
    within,
)
from jitla.codegen.ir import Lanes
from jitla.codegen.kernel_abi import Target
from jitla.codegen.kernels.row import halved, unit_begins
from jitla.codegen.sparse.csr_products import (
    element_at,
    row_start,
    rows_by_matrix,
    rows_by_vector,
    rows_summed,
)

__all__ = [
    "OPERANDS", "SHARED", "STAGE_WORDS", "UNITS", "bounds_at", "csr_text", "entries_text",
    "specialised_columns",
    "index_at", "ranges_text", "row_sums_text", "shares",
]


def index_at(name: str, base: str, at: str, kind: np.dtype) -> str:
    """Lines that load an index as the word `name`."""
    bits = f"i{bits_of(kind)}"
    return (f"  {name}.p = getelementptr {bits}, ptr {base}, i64 {at}\n"
            f"  {name}.k = load {bits}, ptr {name}.p, align {kind.itemsize}\n"
            + to_word(name, f"{name}.k", kind))


def bounds_at(kind: np.dtype) -> str:
    """Lines that load where the entries of row %i begin and end, %from and %to; none if that is no run."""
    return f"""{index_at("%given", "%starts", "%i", kind)}  %after = add i64 %i, 1
{index_at("%last", "%starts", "%after", kind)}\
  %ordered = icmp ule i64 %given, %last
  %inside = icmp ule i64 %last, %total
  %run = and i1 %ordered, %inside
  %to = select i1 %run, i64 %last, i64 0
  %from = select i1 %run, i64 %given, i64 0
"""


SHARED = ("rows", "parts")  # words by which rows are shared out
UNITS = """  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %unit.end ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %first = call i64 @share(ptr %starts, i64 %rows, i64 %parts, i64 %u)
  %stop.found = call i64 @share(ptr %starts, i64 %rows, i64 %parts, i64 %u.next)
  %stop.known = icmp uge i64 %stop.found, %first
  br i1 %stop.known, label %shared, label %unshared
unshared:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %shared
shared:
  %stop = select i1 %stop.known, i64 %stop.found, i64 %first
"""


def shares(index: np.dtype) -> str:
    """@share(starts, rows, units, u): the first row of unit `u`, or where the last unit ends.

    Units have as many entries as can be. Where rows do not begin in order, units may end before they begin.
    """
    return f"""define internal i64 @share(ptr %starts, i64 %rows, i64 %units, i64 %u) nounwind {{
entry:
  %none = icmp eq i64 %u, 0
  %last = icmp uge i64 %u, %units
  %edge = or i1 %none, %last
  %whole = select i1 %none, i64 0, i64 %rows
  br i1 %edge, label %at, label %look
at:
  ret i64 %whole
look:
{index_at("%from", "%starts", "0", index)}{index_at("%to", "%starts", "%rows", index)}\
{unit_begins("%rows", "look", index_at("%there", "%starts", "%middle", index))}}}
"""


def entries_text(form: str, itemsize: int, index: np.dtype, triple: str) -> str:
    """Return the module that copies one element for every entry.

    Operands: elements, starts, columns, results, fault. Form "sampled": the element in the row and
    column of the entry, both axes as far apart as the words %down and %right say; "row": that of its row.
    """
    element = f"i{8 * itemsize}"
    copy = f"""  %e = load {element}, ptr %at, align {itemsize}
  %q = getelementptr {element}, ptr %out, i64 %k
  store {element} %e, ptr %q, align {itemsize}
"""
    place = "" if form == "row" else f"""{index_at("%column", "%columns", "%k", index)}\
  %known = icmp ult i64 %column, %width
  br i1 %known, label %found, label %lost
found:
  %across = mul i64 %column, %right
"""
    across = "0" if form == "row" else "%across"
    names = ("x", "starts", "columns", "out", "fault")
    found = "one" if form == "row" else "found"
    lost = "" if form == "row" else """lost:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %entries
"""
    more = "" if form == "row" else ", [ %k.next, %lost ]"
    return f"""target triple = "{triple}"
{shares(index)}{ENTRY}{block_head(names, ("width", "total", "down", "right", *SHARED))}\
{UNITS}  br label %each
each:
  %i = phi i64 [ %first, %shared ], [ %i.next, %entries ]
  %more = icmp ult i64 %i, %stop
  br i1 %more, label %row, label %unit.end
row:
  %i.next = add i64 %i, 1
  %below = mul i64 %i, %down
  %line = getelementptr i8, ptr %x, i64 %below
{bounds_at(index)}  br i1 %run, label %entries, label %broken
broken:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %entries
entries:
  %k = phi i64 [ %from, %row ], [ %from, %broken ], [ %k.next, %{found} ]{more}
  %left = icmp ult i64 %k, %to
  br i1 %left, label %one, label %each
one:
  %k.next = add i64 %k, 1
{place}  %at = getelementptr i8, ptr %line, i64 {across}
{copy}  br label %entries
{lost}unit.end:
  br label %units
exit:
  ret void
}}
"""


OPERANDS = ("data", "columns", "starts", "x", "out", "fault")
MOST_BYTES = 256  # of rows of results that are held in registers
STAGE_WORDS = ("rows", "width", "total", "depth")
_REAL = {4: "float", 8: "double"}


@cache
def csr_text(form: str, dtype: np.dtype, index: np.dtype, target: Target, columns: int = 0) -> str:
    """Return the module of one product; `columns` is `depth`, or 0 for any.

    "dot": the rows times a vector; "dots": times a matrix of `depth` columns; "sum" and "sums": the
    rows, each times its element, or its row, of x, added up in what the results hold.
    """
    w = Lanes(_REAL[dtype.itemsize], dtype.itemsize, target.lanes(dtype.itemsize))
    vectors = {"dot": rows_by_vector, "sum": rows_summed}
    body = vectors[form](w, index) if form in vectors else \
        within(index, target.vector_bytes) + rows_by_matrix(form == "dots", w, index, columns)
    return f"""target triple = "{target.triple}"
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{body}{_entry(form, w, index)}{_stage(form, w)}"""


def specialised_columns(columns: int, dtype: np.dtype) -> int:
    """Return the number of columns that code is specialised for: `columns`, or 0 for any number."""
    return columns if 1 < columns <= MOST_BYTES // dtype.itemsize else 0


def _entry(form: str, w: Lanes, index: np.dtype) -> str:
    """@k: a unit is a share of the rows; sums have results of their own for each, %apart bytes."""
    mine = f"""  %o.skip = mul i64 %u, %apart
  %out.u = getelementptr i8, ptr %out, i64 %o.skip
  call void @llvm.memset.p0.i64(ptr align {w.size} %out.u, i8 0, i64 %apart, i1 false)
  %x.skip = mul i64 %first, %depth
{element_at("%x.u", "%x", "%x.skip", w.real)}"""
    if form in ("dot", "dots"):
        mine = f"""  %o.skip = mul i64 %first, %depth
{element_at("%out.u", "%out", "%o.skip", w.real)}{element_at("%x.u", "%x", "0", w.real)}"""
    words = (*STAGE_WORDS[1:], "apart", "most", "all.rows", "parts")
    return f"""{shares(index)}define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{block_head(OPERANDS, words)}  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %share ], [ %u.next, %bad ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %first = call i64 @share(ptr %starts, i64 %all.rows, i64 %parts, i64 %u)
  %stop = call i64 @share(ptr %starts, i64 %all.rows, i64 %parts, i64 %u.next)
  %shared = icmp uge i64 %stop, %first
  br i1 %shared, label %share, label %bad
share:
  %rows = sub i64 %stop, %first
{element_at("%starts.u", "%starts", "%first", f"i{bits_of(index)}")}{mine}{_called(".u")}\
  br i1 %fine, label %units, label %bad
bad:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %units
exit:
  ret void
}}
"""


def _called(tag: str) -> str:
    return (f"  %fine = call i1 @rows(ptr %starts{tag}, i64 %rows, ptr %data, ptr %columns, i64 %total, "
            f"i64 %most, ptr %x{tag}, ptr %out{tag}, i64 %depth)\n")


def _stage(form: str, w: Lanes) -> str:
    """@stage: one block of rows. If something is out of order, its results are no numbers."""
    count = "width" if form in ("sum", "sums") else "rows"
    return f"""define void @stage(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{block_head(OPERANDS[:-1], (*STAGE_WORDS, "most"))}{_called("")}  br i1 %fine, label %exit, label %bad
bad:
  %lost = mul i64 %{count}, %depth
  %lost.bytes = mul i64 %lost, {w.size}
  call void @llvm.memset.p0.i64(ptr align {w.size} %out, i8 -1, i64 %lost.bytes, i1 false)
  br label %exit
exit:
  ret void
}}
"""


_WORDS = ("width", "total", "depth", "rows", "parts")


@cache
def ranges_text(several: bool, dtype: np.dtype, index: np.dtype, target: Target, columns: int = 0) -> str:
    """Return the module of the rows, each times its element of x, or its row if `several`, added up.

    `columns` is `depth`, or 0 for any.
    """
    w = Lanes(_REAL[dtype.itemsize], dtype.itemsize, target.lanes(dtype.itemsize))
    rows = rows_by_matrix(False, w, index, columns, _by_ranges) if several else \
        rows_summed(w, index, _by_ranges)
    return f"""target triple = "{target.triple}"
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{_among(index, target.vector_bytes)}{_place(index)}{rows}{_entry_csr_ranges(w)}"""


def _among(index: np.dtype, vector_bytes: int) -> str:
    """@among(index, from, to, low, span): are all of these indices at `low`, or less than `span` beyond?"""
    lanes, kind = vector_bytes // index.itemsize, f"i{bits_of(index)}"
    vector, mask = f"<{lanes} x {kind}>", f"<{lanes} x i1>"
    narrow = "add i64 {}, 0" if kind == "i64" else f"trunc i64 {{}} to {kind}"
    loop = counted_loop_ir(
        ("%from", "%to"), ("entry", "done"), lanes,
        f"""  %p = getelementptr {kind}, ptr %index, i64 %i
  %x = load {vector}, ptr %p, align {index.itemsize}
  %x.own = sub {vector} %x, %lows
  %x.off = icmp uge {vector} %x.own, %spans
  %wrong.next = or {mask} %wrong, %x.off
""",
        f"""  %q = getelementptr {kind}, ptr %index, i64 %j
  %y = load {kind}, ptr %q, align {index.itemsize}
  %y.own = sub {kind} %y, %low.k
  %y.off = icmp uge {kind} %y.own, %span.k
  %bad.next = or i1 %bad, %y.off
""",
        [Carried("wrong", mask, "zeroinitializer")],
        f"  %first = call i1 @llvm.vector.reduce.or.v{lanes}i1({mask} %wrong)\n",
        [Carried("bad", "i1", "%first")])
    return f"""declare i1 @llvm.vector.reduce.or.v{lanes}i1({mask})
define internal i1 @among(ptr %index, i64 %from, i64 %to, i64 %low, i64 %span) nounwind {{
entry:
  %low.k = {narrow.format("%low")}
  %span.k = {narrow.format("%span")}
{in_lanes("%lows", "%low.k", kind, lanes)}{in_lanes("%spans", "%span.k", kind, lanes)}{loop}done:
  %ok = xor i1 %bad, true
  ret i1 %ok
}}
"""


def _place(index: np.dtype) -> str:
    """@place(columns, from, to, least): the first entry whose column is no less, where they are in order."""
    return f"""define internal i64 @place(ptr %columns, i64 %from, i64 %to, i64 %least) nounwind {{
entry:
{halved("entry", "%from", "%to", "%least", index_at("%there", "%columns", "%middle", index))}}}
"""


def _by_ranges(index: np.dtype, body: str) -> str:
    """@rows: `body` for every row %i, with its entries %from up to %to of columns from %low up to %high.

    What two units look for in a row they find at one place: an entry that no range takes is some unit's
    that it does not belong to.
    """
    return f"""define internal i1 @rows(ptr %starts, i64 %rows, ptr %data, ptr %columns, i64 %total, ptr %x,
                           ptr %out, i64 %depth, i64 %low, i64 %high, i64 %width) nounwind {{
entry:
  %lowest = icmp eq i64 %low, 0
  %highest = icmp eq i64 %high, %width
  %span = sub i64 %high, %low
{row_start("begin", "0", index)}  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %row.from = phi i64 [ %begin, %entry ], [ %row.to, %next ]
  %more = icmp ult i64 %i, %rows
  br i1 %more, label %row, label %done
row:
  %i.next = add i64 %i, 1
{row_start("row.to", "%i.next", index)}  %up = icmp ule i64 %row.from, %row.to
  %near = icmp ule i64 %row.to, %total
  %right = and i1 %up, %near
  br i1 %right, label %bounded, label %lost
bounded:
  %low.until = select i1 %lowest, i64 %row.from, i64 %row.to
  %high.since = select i1 %highest, i64 %row.to, i64 %row.from
  %from = call i64 @place(ptr %columns, i64 %row.from, i64 %low.until, i64 %low)
  %to = call i64 @place(ptr %columns, i64 %high.since, i64 %row.to, i64 %high)
  %ordered = icmp ule i64 %from, %to
  br i1 %ordered, label %look, label %lost
look:
  %fine = call i1 @among(ptr %columns, i64 %from, i64 %to, i64 %low, i64 %span)
  br i1 %fine, label %known, label %lost
known:
{body}next:
  br label %each
done:
  ret i1 true
lost:
  ret i1 false
}}
"""


def _entry_csr_ranges(w: Lanes) -> str:
    """@k: a unit is a range of columns."""
    return f"""define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{block_head(OPERANDS, _WORDS)}  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %unit ], [ %u.next, %bad ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %low.all = mul i64 %u, %width
  %low = udiv i64 %low.all, %parts
  %high.all = mul i64 %u.next, %width
  %high = udiv i64 %high.all, %parts
  %skip = mul i64 %low, %depth
{element_at("%out.u", "%out", "%skip", w.real)}  %span = sub i64 %high, %low
  %cells = mul i64 %span, %depth
  %bytes = mul i64 %cells, {w.size}
  call void @llvm.memset.p0.i64(ptr align {w.size} %out.u, i8 0, i64 %bytes, i1 false)
  %fine = call i1 @rows(ptr %starts, i64 %rows, ptr %data, ptr %columns, i64 %total, ptr %x, ptr %out,
                        i64 %depth, i64 %low, i64 %high, i64 %width)
  br i1 %fine, label %units, label %bad
bad:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %units
exit:
  ret void
}}
"""


_ABREAST, _LEAF = 8, 128  # running sums, and elements, of a leaf of NumPy's tree

_NAMES = ("data", "starts", "out", "fault")


def _first() -> str:
    """Return what NumPy's sums of less than eight elements begin with, which differs by its version."""
    minus = np.signbit(np.add.reduceat(np.full(3, -0.0), [0])[0])
    return "-0.0" if minus else "0.0"


def _folded(real: str, half: int, name: str) -> str:
    """Lines that add lanes of %r of `half` pairs to their neighbours; the results are `name`."""
    wide = f"<{2 * half} x {real}>"
    pick = [", ".join(f"i32 {2 * k + odd}" for k in range(half)) for odd in (0, 1)]
    lines = "".join(
        f"  {name}.{side} = shufflevector {wide} %r{2 * half}, {wide} poison, <{half} x i32> <{lanes}>\n"
        for side, lanes in zip("lr", pick, strict=True))
    return lines + f"  {name} = fadd <{half} x {real}> {name}.l, {name}.r\n"


def _pairwise(real: str, size: int) -> str:
    """@pairwise: the sum of `n` elements in NumPy's order."""
    wide = f"<{_ABREAST} x {real}>"
    folds = "".join(_folded(real, half, f"%r{half}") for half in (4, 2, 1))
    return f"""define internal {real} @pairwise(ptr %a, i64 %n) nounwind {{
entry:
  %short = icmp ult i64 %n, {_ABREAST}
  br i1 %short, label %few, label %some
some:
  %leaf = icmp ule i64 %n, {_LEAF}
  br i1 %leaf, label %many, label %tree
many:
  %begun = load {wide}, ptr %a, align {size}
  br label %turns
turns:
  %i = phi i64 [ {_ABREAST}, %many ], [ %i.next, %turn ]
  %r{_ABREAST} = phi {wide} [ %begun, %many ], [ %r.next, %turn ]
  %i.next = add i64 %i, {_ABREAST}
  %more = icmp ule i64 %i.next, %n
  br i1 %more, label %turn, label %fold
turn:
  %p = getelementptr {real}, ptr %a, i64 %i
  %v = load {wide}, ptr %p, align {size}
  %r.next = fadd {wide} %r{_ABREAST}, %v
  br label %turns
fold:
{folds}  %total = extractelement <1 x {real}> %r1, i64 0
  br label %few
few:
  %from = phi i64 [ 0, %entry ], [ %i, %fold ]
  %begin = phi {real} [ {_first()}, %entry ], [ %total, %fold ]
  br label %rest
rest:
  %j = phi i64 [ %from, %few ], [ %j.next, %one ]
  %t = phi {real} [ %begin, %few ], [ %t.next, %one ]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %one, label %done
one:
  %q = getelementptr {real}, ptr %a, i64 %j
  %x = load {real}, ptr %q, align {size}
  %t.next = fadd {real} %t, %x
  %j.next = add i64 %j, 1
  br label %rest
done:
  ret {real} %t
tree:
  %half = lshr i64 %n, 1
  %whole = and i64 %half, {-_ABREAST}
  %other = sub i64 %n, %whole
  %b = getelementptr {real}, ptr %a, i64 %whole
  %low = call {real} @pairwise(ptr %a, i64 %whole)
  %high = call {real} @pairwise(ptr %b, i64 %other)
  %both = fadd {real} %low, %high
  ret {real} %both
}}
"""


def row_sums_text(dtype: np.dtype, index: np.dtype, triple: str) -> str:
    """Return the module that adds up the entries of every row; the sum of none is 0.

    Operands: entries, where rows begin, results, fault; words: `total` entries, and how rows are shared.
    """
    real, size = _REAL[dtype.itemsize], dtype.itemsize
    return f"""target triple = "{triple}"
{shares(index)}{_pairwise(real, size)}{ENTRY}{block_head(_NAMES, ("total", *SHARED))}\
{UNITS}  br label %each
each:
  %i = phi i64 [ %first, %shared ], [ %i.next, %summed ]
  %more = icmp ult i64 %i, %stop
  br i1 %more, label %row, label %unit.end
row:
  %i.next = add i64 %i, 1
{bounds_at(index)}  br i1 %run, label %known, label %broken
broken:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %known
known:
  %n = sub i64 %to, %from
  %some = icmp ne i64 %n, 0
  br i1 %some, label %begun, label %summed
begun:
  %p = getelementptr {real}, ptr %data, i64 %from
  %x = load {real}, ptr %p, align {size}
  %several = icmp ugt i64 %n, 1
  br i1 %several, label %others, label %summed
others:
  %m = sub i64 %n, 1
  %q = getelementptr {real}, ptr %p, i64 1
  %sum = call {real} @pairwise(ptr %q, i64 %m)
  %added = fadd {real} %x, %sum
  br label %summed
summed:
  %result = phi {real} [ 0.0, %known ], [ %x, %begun ], [ %added, %others ]
  %o = getelementptr {real}, ptr %out, i64 %i
  store {real} %result, ptr %o, align {size}
  br label %each
unit.end:
  br label %units
exit:
  ret void
}}
"""
