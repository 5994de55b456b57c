"""Products of a matrix of compressed rows, and of its transpose, as IR.

Knows: kinds of elements and indices, vectors. Must not know: arrays, how many threads there are.
Receives dtypes; returns modules with the entries @k, rows that are shared out by their entries, and
@stage, one block of rows.

What lies outside of the operands is not read: the word %fault is set to 1, and the unit ends.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from jitla.codegen.csr_entries import (
    by_blocks,
    column_of,
    element_at,
    fetched,
    in_all_lanes,
    loaded,
    row_start,
)
from jitla.codegen.csr_vectors import rows_by_vector, rows_summed
from jitla.codegen.indexing_code import bits_of, block_head
from jitla.codegen.lanes import Lanes
from jitla.codegen.layout import Target

__all__ = ["OPERANDS", "STAGE_WORDS", "csr_text"]

OPERANDS = ("data", "columns", "starts", "x", "out", "fault")
STAGE_WORDS = ("rows", "width", "total", "depth")
_REAL = {4: "float", 8: "double"}


@cache
def csr_text(form: str, dtype: np.dtype, index: np.dtype, target: Target) -> str:
    """Return the module of one product.

    "dot": the rows times a vector; "dots": times a matrix of `depth` columns; "sum" and "sums": the
    rows, each times its element, or its row, of x, added up in what the results hold.
    """
    w = Lanes(_REAL[dtype.itemsize], dtype.itemsize, target.lanes(dtype.itemsize))
    vectors = {"dot": rows_by_vector, "sum": rows_summed}
    body = vectors[form](w, index) if form in vectors else _lines(form, w, index)
    return f"""target triple = "{target.triple}"
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
{body}{_entry(form, w, index)}{_stage(form, w)}"""


def _lines(form: str, w: Lanes, index: np.dtype) -> str:
    """@rows of "dots" and "sums": for every entry, a row of x, times it, is added to a row of out."""
    dots = form == "dots"

    def bases(row: str, tag: str) -> str:
        own = "%out" if dots else "%x"
        return (f"  %own{tag} = mul i64 {row}, %depth\n"
                + element_at(f"%mine{tag}", own, f"%own{tag}", w.real))

    def called(tag: str, a: str, z: str) -> str:
        other = "%x" if dots else "%out"
        return (f"  %known{tag} = call i1 @line(ptr %data, ptr %columns, ptr %mine{tag}, ptr {other}, "
                f"i64 {a}, i64 {z}, i64 %most, i64 %depth)\n")

    def zeros(tag: str) -> str:
        return "" if not dots else f"""  %bytes{tag} = mul i64 %depth, {w.size}
  call void @llvm.memset.p0.i64(ptr align {w.size} %mine{tag}, i8 0, i64 %bytes{tag}, i1 false)
"""

    whole = f"""  br label %each
each:
  %i = phi i64 [ %r, %go ], [ %i.next, %row ]
  %from = phi i64 [ %a, %go ], [ %to, %row ]
  %left = icmp ult i64 %i, %e
  br i1 %left, label %row, label %next
row:
  %i.next = add i64 %i, 1
{row_start("to", "%i.next", index)}{bases("%i", "")}{zeros("")}{called("", "%from", "%to")}\
  br i1 %known, label %each, label %lost
"""
    part = f"{bases('%r', '.p')}{called('.p', '%p', '%q')}  br i1 %known.p, label %part.end, label %lost\n"
    rows = by_blocks(w, index, whole, part).replace("@CARRIED@", "").replace("@ENDED@", "")
    rows = rows.replace("long:\n", f"long:\n{bases('%r', '.l')}{zeros('.l')}", 1)
    return _line(dots, w, index) + rows


def _line(dots: bool, w: Lanes, index: np.dtype) -> str:
    """@line: the entries %from to %to of a row whose own row, of out or of x, is %mine."""
    source, target = ("%far", "%mine") if dots else ("%mine", "%far")

    def step(tag: str, at: str, kind: str, factor: str) -> str:
        return (loaded(f"%y{tag}", source, at, kind, w.size) + loaded(f"%o{tag}", target, at, kind, w.size)
                + f"  %m{tag} = fmul {kind} %y{tag}, {factor}\n  %s{tag} = fadd {kind} %o{tag}, %m{tag}\n"
                f"  store {kind} %s{tag}, ptr %o{tag}.p, align {w.size}\n")

    return f"""define internal i1 @line(ptr %data, ptr %columns, ptr %mine, ptr %other, i64 %from, i64 %to,
                              i64 %most, i64 %depth) nounwind {{
entry:
  br label %entries
entries:
  %k = phi i64 [ %from, %entry ], [ %k.next, %rest ]
  %left = icmp ult i64 %k, %to
  br i1 %left, label %look, label %done
look:
  %k.next = add i64 %k, 1
{fetched("%k", w, index, 1)}{column_of("", "%k", index)}  %known = icmp ult i64 %c, %most
  br i1 %known, label %one, label %lost
one:
{loaded("%d", "%data", "%k", w.real, w.size)}{in_all_lanes("%dv", "%d", w)}\
  %skip = mul i64 %c, %depth
{element_at("%far", "%other", "%skip", w.real)}  br label %vectors
vectors:
  %j = phi i64 [ 0, %one ], [ %j.next, %vector ]
  %j.next = add i64 %j, {w.width}
  %some = icmp ule i64 %j.next, %depth
  br i1 %some, label %vector, label %rest
vector:
{step("v", "%j", w.vector, "%dv")}  br label %vectors
rest:
  %l = phi i64 [ %j, %vectors ], [ %l.next, %single ]
  %few = icmp ult i64 %l, %depth
  br i1 %few, label %single, label %entries
single:
  %l.next = add i64 %l, 1
{step("s", "%l", w.real, "%d")}  br label %rest
done:
  ret i1 true
lost:
  ret i1 false
}}
"""


def _entry(form: str, w: Lanes, index: np.dtype) -> str:
    """@k: a unit is the rows between two cuts; sums have results of their own for each, %apart bytes."""
    mine = f"""  %o.skip = mul i64 %u, %apart
  %out.u = getelementptr i8, ptr %out, i64 %o.skip
  call void @llvm.memset.p0.i64(ptr align {w.size} %out.u, i8 0, i64 %apart, i1 false)
  %x.skip = mul i64 %first, %depth
{element_at("%x.u", "%x", "%x.skip", w.real)}"""
    if form in ("dot", "dots"):
        mine = f"""  %o.skip = mul i64 %first, %depth
{element_at("%out.u", "%out", "%o.skip", w.real)}{element_at("%x.u", "%x", "0", w.real)}"""
    words = (*STAGE_WORDS[1:], "apart", "most")
    return f"""define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{block_head(("cuts", *OPERANDS), words)}  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %unit ], [ %u.next, %bad ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
{element_at("%first.p", "%cuts", "%u", "i64")}  %first = load i64, ptr %first.p, align 8
{element_at("%stop.p", "%cuts", "%u.next", "i64")}  %stop = load i64, ptr %stop.p, align 8
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
