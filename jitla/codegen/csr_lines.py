"""Products of compressed rows with matrices, as IR: rows of results, and rows added to rows.

Knows: vectors of elements. Must not know: how rows are shared out.
Receives lanes, the kind of indices and the number of columns; returns the function @rows and what it calls.

Entries are added one after the other, each product rounded: SciPy's order, and its bits.
"""

from __future__ import annotations

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
from jitla.codegen.lanes import Lanes

__all__ = ["rows_by_matrix"]


def rows_by_matrix(dots: bool, w: Lanes, index: np.dtype, columns: int) -> str:
    """@rows: for every entry, a row of x, times it, is added to a row of out: its own, with `dots`."""

    def bases(row: str, tag: str) -> str:
        own = "%out" if dots else "%x"
        return (f"  %own{tag} = mul i64 {row}, %depth\n"
                + element_at(f"%mine{tag}", own, f"%own{tag}", w.real))

    def called(tag: str, a: str, z: str) -> str:
        other = "%x" if dots else "%out"
        return (f"  %known{tag} = call i1 @line(ptr %data, ptr %columns, ptr %mine{tag}, ptr {other}, "
                f"i64 {a}, i64 {z}, i64 %most, i64 %depth)\n")

    def zeros(tag: str) -> str:
        if not dots:
            return ""
        count = columns * w.size if columns else f"%bytes{tag}"
        return f"""  %bytes{tag} = mul i64 %depth, {w.size}
  call void @llvm.memset.p0.i64(ptr align {w.size} %mine{tag}, i8 0, i64 {count}, i1 false)
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
    return (_narrow_line(dots, w, index, columns) if columns else _line(dots, w, index)) + rows


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


def _narrow_line(dots: bool, w: Lanes, index: np.dtype, columns: int) -> str:
    """@line for so many columns: its own row is in registers, in vectors and parts of one."""
    pieces: list[tuple[int, str]] = []
    at, width = 0, w.width
    while at < columns:
        while width > columns - at:
            width //= 2
        pieces.append((at, f"<{width} x {w.real}>"))
        at += width
    mine = "".join(loaded(f"%mine{a}", "%mine", str(a), kind, w.size) for a, kind in pieces)
    held = "".join(f"  %s{a} = phi {kind} [ %mine{a}, %entry ], [ %s.next{a}, %one ]\n"
                   for a, kind in pieces) if dots else ""
    step = ""
    for kind in dict.fromkeys(kind for _, kind in pieces):
        width = int(kind[1:].split()[0])
        step += (f"  %d{width}.0 = insertelement {kind} poison, {w.real} %d, i64 0\n"
                 f"  %d{width} = shufflevector {kind} %d{width}.0, {kind} poison, <{width} x i32> "
                 "zeroinitializer\n")
    for a, kind in pieces:
        factor = f"%d{kind[1:].split()[0]}"
        step += loaded(f"%o{a}", "%far", str(a), kind, w.size)
        if dots:
            step += f"  %m{a} = fmul {kind} %o{a}, {factor}\n  %s.next{a} = fadd {kind} %s{a}, %m{a}\n"
        else:
            step += (f"  %m{a} = fmul {kind} %mine{a}, {factor}\n  %n{a} = fadd {kind} %o{a}, %m{a}\n"
                     f"  store {kind} %n{a}, ptr %o{a}.p, align {w.size}\n")
    kept = "".join(f"  store {kind} %s{a}, ptr %mine{a}.p, align {w.size}\n"
                   for a, kind in pieces) if dots else ""
    return f"""define internal i1 @line(ptr %data, ptr %columns, ptr %mine, ptr %other, i64 %from, i64 %to,
                              i64 %most, i64 %depth) nounwind {{
entry:
{mine}  br label %entries
entries:
  %k = phi i64 [ %from, %entry ], [ %k.next, %one ]
{held}  %left = icmp ult i64 %k, %to
  br i1 %left, label %look, label %done
look:
  %k.next = add i64 %k, 1
{column_of("", "%k", index)}  %known = icmp ult i64 %c, %most
  br i1 %known, label %one, label %lost
one:
{loaded("%d", "%data", "%k", w.real, w.size)}  %skip = mul i64 %c, {columns}
{element_at("%far", "%other", "%skip", w.real)}{step}  br label %entries
done:
{kept}  ret i1 true
lost:
  ret i1 false
}}
"""
