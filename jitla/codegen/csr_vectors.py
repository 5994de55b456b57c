"""Products of compressed rows with vectors, as IR: row by vector, and rows summed with weights.

Knows: vectors of elements. Must not know: how rows are shared out.
Receives lanes and the kind of indices; returns the function @rows and what it calls.

No branch depends on where a short row ends: a processor does not foresee that, and so loses the time of
twenty entries. Entries are multiplied in one run, whatever rows they are of.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.csr_entries import (
    GROUP,
    TURN,
    by_blocks,
    by_turns,
    column_of,
    element_at,
    fetched,
    in_all_lanes,
    loaded,
    row_start,
)
from jitla.codegen.lanes import Lanes

__all__ = ["rows_by_vector", "rows_summed"]


def rows_by_vector(w: Lanes, index: np.dtype) -> str:
    """@rows: an element for every row."""
    given = "ptr %data, ptr %columns, ptr %x, i64 %most, i64"
    rows = by_blocks(w, index, f"""  %known = call i1 @multiply({given} %a, i64 %z, ptr %room)
  br i1 %known, label %good, label %lost
good:
  br label %each
each:
  %i = phi i64 [ %r, %good ], [ %i.next, %summed ]
  %from = phi i64 [ %a, %good ], [ %to, %summed ]
  %left = icmp ult i64 %i, %e
  br i1 %left, label %row, label %next
row:
  %i.next = add i64 %i, 1
{row_start("to", "%i.next", index)}  %n = sub i64 %to, %from
  %skip = sub i64 %from, %a
{element_at("%its", "%room", "%skip", w.real)}{_added_up(w)}{element_at("%o", "%out", "%i", w.real)}\
  store {w.real} %sum, ptr %o, align {w.size}
  br label %each
""", f"""  %p.known = call i1 @multiply({given} %p, i64 %q, ptr %room)
  br i1 %p.known, label %p.good, label %lost
p.good:
  %p.n = sub i64 %q, %p
  %p.sum = call {w.real} @total(ptr %room, i64 %p.n)
  %so.next = fadd {w.real} %so.far, %p.sum
  br label %part.end
""")
    rows = rows.replace(
        "@CARRIED@", f"  %so.far = phi {w.real} [ 0.0, %long ], [ %so.next, %part.end ]\n").replace(
        "@ENDED@", f"{element_at('%o.long', '%out', '%r', w.real)}  store {w.real} %so.far, ptr %o.long, "
        f"align {w.size}\n")
    total = f"""define internal {w.real} @total(ptr %its, i64 %n) nounwind {{
entry:
  br label %row
row:
{_added_up(w)}  ret {w.real} %sum
}}
"""
    return _multiply(w, index) + total + rows


def _added_up(w: Lanes) -> str:
    """Lines from label row to label summed: %sum, of the %n elements from %its on.

    Behind them is room for a group, of which only lanes are added that belong to the elements.
    """
    vectors = range(GROUP // w.width)
    i64s = f"<{w.width} x i64>"
    lanes = [", ".join(f"i64 {v * w.width + k}" for k in range(w.width)) for v in vectors]
    text = "  br label %groups\ngroups:\n  %t = phi i64 [ 0, %row ], [ %t.next, %group ]\n"
    text += "".join(f"  %s{v} = phi {w.vector} [ zeroinitializer, %row ], [ %s.next{v}, %group ]\n"
                    for v in vectors)
    text += f"  %t.next = add i64 %t, {GROUP}\n  %t.more = icmp ule i64 %t.next, %n\n"
    text += element_at("%g", "%its", "%t", w.real) + "  br i1 %t.more, label %group, label %summed\ngroup:\n"
    for v in vectors:
        text += loaded(f"%y{v}", "%g", str(v * w.width), w.vector, w.size)
        text += f"  %s.next{v} = fadd {w.vector} %s{v}, %y{v}\n"
    text += "  br label %groups\nsummed:\n  %few = sub i64 %n, %t\n"
    text += (f"  %few.0 = insertelement {i64s} poison, i64 %few, i64 0\n"
             f"  %few.v = shufflevector {i64s} %few.0, {i64s} poison, <{w.width} x i32> zeroinitializer\n")
    sums = []
    for v in vectors:
        text += loaded(f"%l{v}", "%g", str(v * w.width), w.vector, w.size)
        text += (f"  %own{v} = icmp ult {i64s} <{lanes[v]}>, %few.v\n"
                 f"  %m{v} = select <{w.width} x i1> %own{v}, {w.vector} %l{v}, {w.vector} zeroinitializer\n"
                 f"  %e{v} = fadd {w.vector} %s{v}, %m{v}\n")
        sums.append(f"%e{v}")
    while len(sums) > 1:
        text += f"  {sums[0]}j = fadd {w.vector} {sums[0]}, {sums[1]}\n"
        sums = [*sums[2:], f"{sums[0]}j"]
    return text + w.fold("%sum", sums[0])


def _multiply(w: Lanes, index: np.dtype) -> str:
    """@multiply: every entry times the element of x that its column names."""
    vectors = range(TURN // w.width)
    turn = fetched("%i", w, index, TURN)
    for v in vectors:
        for k in range(w.width):
            n = v * w.width + k
            before = "poison" if k == 0 else f"%x{v}.{k - 1}"
            turn += (f"  %i{n} = add i64 %i, {n}\n" + column_of(f"{n}", f"%i{n}", index)
                     + loaded(f"%e{n}", "%x", f"%c{n}", w.real, w.size)
                     + f"  %x{v}.{k} = insertelement {w.vector} {before}, {w.real} %e{n}, i64 {k}\n")
    for v in vectors:
        at = f"%i{v * w.width}"
        turn += loaded(f"%d{v}", "%data", at, w.vector, w.size)
        turn += f"  %p{v} = fmul {w.vector} %d{v}, %x{v}.{w.width - 1}\n"
        turn += f"  %at{v} = sub i64 {at}, %from\n" + element_at(f"%o{v}", "%room", f"%at{v}", w.real)
        turn += f"  store {w.vector} %p{v}, ptr %o{v}, align {w.size}\n"
    one = (loaded("%e", "%x", "%c", w.real, w.size)
           + loaded("%d", "%data", "%j", w.real, w.size) + f"  %p = fmul {w.real} %d, %e\n"
           + "  %at = sub i64 %j, %from\n" + element_at("%o", "%room", "%at", w.real)
           + f"  store {w.real} %p, ptr %o, align {w.size}\n")
    return by_turns("@multiply(ptr %data, ptr %columns, ptr %x, i64 %most, i64 %from, i64 %to, ptr %room)",
                 TURN, turn, one, index)


def rows_summed(w: Lanes, index: np.dtype) -> str:
    """@rows: the element of every row is put beside its entries, then these are gone through."""
    given = "ptr %data, ptr %columns, ptr %room, i64 %most, i64"

    def repeated(tag: str, base: str, until: str, before: str, after: str) -> str:
        text = (f"  br label %fill{tag}\nfill{tag}:\n"
                f"  %f{tag} = phi i64 [ 0, %{before} ], [ %f.next{tag}, %fill{tag} ]\n"
                f"  %f.next{tag} = add i64 %f{tag}, {GROUP}\n"
                + element_at(f"%fp{tag}", base, f"%f{tag}", w.real))
        for v in range(0, GROUP, w.width):
            text += element_at(f"%fq{tag}.{v}", f"%fp{tag}", str(v), w.real)
            text += f"  store {w.vector} %xv{tag}, ptr %fq{tag}.{v}, align {w.size}\n"
        return text + (f"  %f.more{tag} = icmp ult i64 %f.next{tag}, {until}\n"
                       f"  br i1 %f.more{tag}, label %fill{tag}, label %{after}\n")

    whole = f"""  br label %each
each:
  %i = phi i64 [ %r, %go ], [ %i.next, %filled ]
  %from = phi i64 [ %a, %go ], [ %to, %filled ]
  %left = icmp ult i64 %i, %e
  br i1 %left, label %row, label %add
row:
  %i.next = add i64 %i, 1
{row_start("to", "%i.next", index)}  %n = sub i64 %to, %from
  %skip = sub i64 %from, %a
{element_at("%its", "%room", "%skip", w.real)}{loaded("%xe", "%x", "%i", w.real, w.size)}\
{in_all_lanes("%xv", "%xe", w)}\
{repeated("", "%its", "%n", "row", "filled")}filled:
  br label %each
add:
  %known = call i1 @scatter({given} %a, i64 %z, ptr %out)
  br i1 %known, label %next, label %lost
"""
    part = f"""  %p.n = sub i64 %q, %p
{loaded("%xep", "%x", "%r", w.real, w.size)}{in_all_lanes("%xv.p", "%xep", w)}\
{repeated(".p", "%room", "%p.n", "part", "p.add")}p.add:
  %p.known = call i1 @scatter({given} %p, i64 %q, ptr %out)
  br i1 %p.known, label %part.end, label %lost
"""
    rows = by_blocks(w, index, whole, part).replace("@CARRIED@", "").replace("@ENDED@", "")
    return _scatter(w, index) + rows


def _scatter(w: Lanes, index: np.dtype) -> str:
    """@scatter: every entry times what is beside it is added to the element of out that its column names."""
    turn = fetched("%i", w, index, TURN)
    for v in range(0, TURN, w.width):
        turn += f"  %i{v} = add i64 %i, {v}\n  %at{v} = sub i64 %i{v}, %from\n"
        turn += loaded(f"%u{v}", "%room", f"%at{v}", w.vector, w.size)
        turn += loaded(f"%d{v}", "%data", f"%i{v}", w.vector, w.size)
        turn += f"  %p{v} = fmul {w.vector} %d{v}, %u{v}\n"
        for k in range(w.width):
            n = v + k
            turn += f"  %i{n} = add i64 %i, {n}\n" * (k > 0) + column_of(f"{n}", f"%i{n}", index)
            turn += f"  %q{n} = extractelement {w.vector} %p{v}, i64 {k}\n"
            turn += _adds(f"{n}", f"%c{n}", f"%q{n}", w)
    one = ("  %atj = sub i64 %j, %from\n"
           + loaded("%uj", "%room", "%atj", w.real, w.size) + loaded("%dj", "%data", "%j", w.real, w.size)
           + f"  %pj = fmul {w.real} %dj, %uj\n" + _adds("j", "%c", "%pj", w))
    return by_turns("@scatter(ptr %data, ptr %columns, ptr %room, i64 %most, i64 %from, i64 %to, ptr %out)",
                 TURN, turn, one, index)


def _adds(tag: str, at: str, x: str, w: Lanes) -> str:
    """Lines that add `x` to an element of out."""
    return (loaded(f"%o{tag}", "%out", at, w.real, w.size)
            + f"  %s{tag} = fadd {w.real} %o{tag}, {x}\n"
            f"  store {w.real} %s{tag}, ptr %o{tag}.p, align {w.size}\n")
