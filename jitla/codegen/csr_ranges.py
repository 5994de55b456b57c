"""Transposed products of compressed rows of many entries each, as IR: threads share columns out.

Knows: kinds of elements and indices, vectors. Must not know: arrays, how many threads there are.
Receives dtypes; returns the module with the entry @k.

A unit goes through all rows, and adds up what its range of columns gets, which it finds by halving: no
result is made twice, and sums are added up row after row, as SciPy's are, however columns are shared out.
Columns out of order, or of no row of results, set the word %fault to 1, and the unit ends.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from jitla.codegen.csr_code import OPERANDS
from jitla.codegen.csr_entries import element_at, row_start
from jitla.codegen.csr_lines import rows_by_matrix
from jitla.codegen.csr_vectors import rows_summed
from jitla.codegen.indexing_code import Carried, bits_of, block_head, in_lanes, turns
from jitla.codegen.lanes import Lanes
from jitla.codegen.layout import Target
from jitla.codegen.row_shares import halved
from jitla.codegen.stored_code import index_at

__all__ = ["ranges_text"]

_REAL = {4: "float", 8: "double"}
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
{_among(index, target.vector_bytes)}{_place(index)}{rows}{_entry(w)}"""


def _among(index: np.dtype, vector_bytes: int) -> str:
    """@among(index, from, to, low, span): are all of these indices at `low`, or less than `span` beyond?"""
    lanes, kind = vector_bytes // index.itemsize, f"i{bits_of(index)}"
    vector, mask = f"<{lanes} x {kind}>", f"<{lanes} x i1>"
    narrow = "add i64 {}, 0" if kind == "i64" else f"trunc i64 {{}} to {kind}"
    loop = turns(
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


def _entry(w: Lanes) -> str:
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
