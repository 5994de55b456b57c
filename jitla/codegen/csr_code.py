"""Products of a matrix of compressed rows, and of its transpose, as IR.

Knows: kinds of elements and indices, vectors. Must not know: arrays, how many threads there are.
Receives dtypes; returns modules with the entries @k, rows that are shared out by their entries, and
@stage, one block of rows.

What lies outside of the operands is not read: the word %fault is set to 1, and the unit ends.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from jitla.codegen.csr_entries import element_at
from jitla.codegen.csr_lines import rows_by_matrix
from jitla.codegen.csr_vectors import rows_by_vector, rows_summed
from jitla.codegen.indexing_code import bits_of, block_head, within
from jitla.codegen.lanes import Lanes
from jitla.codegen.layout import Target
from jitla.codegen.stored_code import shares

__all__ = ["OPERANDS", "STAGE_WORDS", "csr_text", "held_columns"]

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


def held_columns(columns: int, dtype: np.dtype) -> int:
    """Return for how many columns there is code of its own: `columns`, or 0 for any number."""
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
