"""Products of compressed rows with matrices, as IR: rows of results, and rows added to rows.

Knows: vectors of elements. Must not know: how rows are shared out.
Receives lanes, the kind of indices and the number of columns; returns the function @rows.

Entries are added one after the other, each product rounded: SciPy's order, and its bits.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.csr_entries import (
    Around,
    by_rows,
    column_of,
    element_at,
    fetched,
    in_all_lanes,
    loaded,
)
from jitla.codegen.lanes import Lanes

__all__ = ["rows_by_matrix"]


def rows_by_matrix(
    dots: bool, w: Lanes, index: np.dtype, columns: int, around: Around = by_rows
) -> str:
    """@rows: for every entry, a row of x, times it, is added to a row of out: its own, with `dots`."""
    own, other = ("%out", "%x") if dots else ("%x", "%out")
    depth = str(columns or "%depth")
    before = f"  %own = mul i64 %i, {depth}\n" + element_at("%mine", own, "%own", w.real)
    entry = (column_of("", "%k", index) + loaded("%d", "%data", "%k", w.real, w.size) + fetched()
             + f"  %skip = mul i64 %c, {depth}\n" + element_at("%far", other, "%skip", w.real))
    return around(index, _held(dots, w, columns, before, entry) if columns else _any(dots, w, before, entry))


def _any(dots: bool, w: Lanes, before: str, entry: str) -> str:
    """Lines for any number of columns: rows of results are in memory."""
    source, target = ("%far", "%mine") if dots else ("%mine", "%far")
    zeros = f"""  %bytes = mul i64 %depth, {w.size}
  call void @llvm.memset.p0.i64(ptr align {w.size} %mine, i8 0, i64 %bytes, i1 false)
""" if dots else ""

    def step(tag: str, at: str, kind: str, factor: str) -> str:
        return (loaded(f"%y{tag}", source, at, kind, w.size) + loaded(f"%o{tag}", target, at, kind, w.size)
                + f"  %m{tag} = fmul {kind} %y{tag}, {factor}\n  %s{tag} = fadd {kind} %o{tag}, %m{tag}\n"
                f"  store {kind} %s{tag}, ptr %o{tag}.p, align {w.size}\n")

    return f"""{before}{zeros}  br label %entries
entries:
  %k = phi i64 [ %from, %known ], [ %k.next, %rest ]
  %left = icmp ult i64 %k, %to
  br i1 %left, label %one, label %next
one:
  %k.next = add i64 %k, 1
{entry}{in_all_lanes("%dv", "%d", w.real, w.width)}  br label %vectors
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
"""


def _pieces(w: Lanes, columns: int) -> list[tuple[int, int]]:
    """Share columns out: the first of each vector, or part of one, and how many it has."""
    found, at, width = [], 0, w.width
    while at < columns:
        while width > columns - at:
            width //= 2
        found.append((at, width))
        at += width
    return found


def _held(dots: bool, w: Lanes, columns: int, before: str, entry: str) -> str:
    """Lines for so many columns: the row's own, of out or of x, is in registers."""
    pieces = [(at, width, f"<{width} x {w.real}>") for at, width in _pieces(w, columns)]
    first = step = held = kept = ""
    for width in dict.fromkeys(width for _, width, _ in pieces):
        step += in_all_lanes(f"%d{width}", "%d", w.real, width)
    for at, width, kind in pieces:
        step += loaded(f"%o{at}", "%far", str(at), kind, w.size)
        if dots:
            held += f"  %s{at} = phi {kind} [ zeroinitializer, %known ], [ %s.next{at}, %one ]\n"
            step += (f"  %m{at} = fmul {kind} %o{at}, %d{width}\n"
                     f"  %s.next{at} = fadd {kind} %s{at}, %m{at}\n")
            kept += element_at(f"%q{at}", "%mine", str(at), w.real)
            kept += f"  store {kind} %s{at}, ptr %q{at}, align {w.size}\n"
        else:
            first += loaded(f"%mine{at}", "%mine", str(at), kind, w.size)
            step += (f"  %m{at} = fmul {kind} %mine{at}, %d{width}\n  %n{at} = fadd {kind} %o{at}, %m{at}\n"
                     f"  store {kind} %n{at}, ptr %o{at}.p, align {w.size}\n")
    return f"""{before}{first}  br label %entries
entries:
  %k = phi i64 [ %from, %known ], [ %k.next, %one ]
{held}  %left = icmp ult i64 %k, %to
  br i1 %left, label %one, label %ended
one:
  %k.next = add i64 %k, 1
{entry}{step}  br label %entries
ended:
{kept}  br label %next
"""
