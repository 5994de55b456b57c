"""Counts of values in bins of one width, as IR.

Knows: how NumPy finds the bin of a value, rounding and all. Must not know: arrays, threads.
Receives the dtypes; returns a module with the entry @k.

NumPy scales what lies in the range, cuts it off to an integer, and moves it by one bin where the edges
say otherwise. Vectors do the first for a block of values, then each is counted by itself.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from jitla.codegen.indexing_code import ENTRY, block_head, smaller
from jitla.codegen.vector import element_type

__all__ = ["HISTOGRAM_BANKS", "histogram_text"]

HISTOGRAM_BANKS = 4
_BLOCK = 512  # values whose bins are found at once


def histogram_text(element: np.dtype, ratio: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module for values of dtype `element`, whose place in the range is found as a `ratio`.

    Operands: values, the range's ends and the edges of the bins (`element`), its width and the number of
    bins (`ratio`), and for every unit `HISTOGRAM_BANKS` tables of three counts more than there are bins.
    Instead of the outer edges there are infinities, which nothing is moved across, and two more: of what
    is outside. Behind the number of bins it says which parts of a bin's width are surely farther from an
    edge than all rounding: where all of a block lie between them, the edges are not looked at.
    """
    kind, scaled, lanes = element_type(element), element_type(ratio), vector_bytes // 8
    ends = (("first", kind), ("last", kind), ("width", scaled), ("number", scaled), ("top", "i32"),
            ("beyond", "i32"), ("low", scaled), ("high", scaled))
    turn, quick = ("".join(f"  %c{k}{tag} = add i64 %c{tag}, {k}\n" + step(f"{k}{tag}", f"%c{k}{tag}", k)
                           for k in range(HISTOGRAM_BANKS))
                   for tag, step in (("", partial(_count, element)), (".q", _quick)))
    return _MODULE.format(
        triple=triple, entry=ENTRY, block=_BLOCK, kind=kind, size=element.itemsize, scaled=scaled,
        scale=ratio.itemsize, lanes=lanes, vector=f"<{lanes} x {kind}>", banks=HISTOGRAM_BANKS,
        head=block_head(("x", "ends", "edges", "scale", "tables"), ("total", "each", "bins", "stride")),
        spreads="".join(_spread(name, of, lanes) for name, of in ends),
        first=smaller("%from", "%u.from", "%total"), last=smaller("%to", "%u.far", "%total"),
        nearer=smaller("%base.next", "%base.far", "%to"), tables=_TABLES,
        several=_bins(kind, scaled, lanes, "v", "%xv"), single=_bins(kind, scaled, 0, "o", "%x1"), turn=turn,
        count=_count(element, "s", "%d", 0), quick=quick, near=_near(scaled, lanes))


def _spread(name: str, of: str, lanes: int) -> str:
    """Lines that put a number in all lanes."""
    w = f"<{lanes} x {of}>"
    return (f"  %{name}.1 = insertelement {w} poison, {of} %{name}, i64 0\n"
            f"  %{name}.v = shufflevector {w} %{name}.1, {w} poison, <{lanes} x i32> zeroinitializer\n")


def _bins(kind: str, scaled: str, lanes: int, tag: str, x: str) -> str:
    """Lines of %k: the bin of every lane (one value if none); of what is outside, one nobody looks at."""
    mark = ".v" if lanes else ""
    w, t, ints, bit = (f"<{lanes} x {of}>" if lanes else of for of in (kind, scaled, "i32", "i1"))
    step = "bitcast" if kind == scaled else "fpext"
    return f"""  %ge{tag} = fcmp oge {w} {x}, %first{mark}
  %le{tag} = fcmp ole {w} {x}, %last{mark}
  %in{tag} = and {bit} %ge{tag}, %le{tag}
  %y{tag} = select {bit} %in{tag}, {w} {x}, {w} %first{mark}
  %o{tag} = fsub {w} %y{tag}, %first{mark}
  %e{tag} = {step} {w} %o{tag} to {t}
  %f{tag} = fdiv {t} %e{tag}, %width{mark}
  %h{tag} = fmul {t} %f{tag}, %number{mark}
  %i{tag} = fptosi {t} %h{tag} to {ints}
  %m{tag} = icmp slt {ints} %i{tag}, %top{mark}
  %c{tag} = select {bit} %m{tag}, {ints} %i{tag}, {ints} %top{mark}
  %k{tag} = select {bit} %in{tag}, {ints} %c{tag}, {ints} %beyond{mark}
"""


def _near(scaled: str, lanes: int) -> str:
    """Lines of %near.v: whether a value is inside, and so near to an edge that rounding may matter."""
    t, bit = f"<{lanes} x {scaled}>", f"<{lanes} x i1>"
    return f"""  %whole = sitofp <{lanes} x i32> %iv to {t}
  %over = fsub {t} %hv, %whole
  %over.low = fcmp olt {t} %over, %low.v
  %over.high = fcmp ogt {t} %over, %high.v
  %edge = or {bit} %over.low, %over.high
  %near.v = and {bit} %edge, %inv
  %near.next = or {bit} %near, %near.v
"""


def _quick(tag: str, at: str, bank: int) -> str:
    """Lines that count a value where the first guess says."""
    return f"""  %gp{tag} = getelementptr i32, ptr %found, i64 {at}
  %g32{tag} = load i32, ptr %gp{tag}, align 4
  %g{tag} = zext i32 %g32{tag} to i64
  %tp{tag} = getelementptr i64, ptr %table{bank}, i64 %g{tag}
  %tc{tag} = load i64, ptr %tp{tag}, align 8
  %td{tag} = add i64 %tc{tag}, 1
  store i64 %td{tag}, ptr %tp{tag}, align 8
"""


def _count(element: np.dtype, tag: str, at: str, bank: int) -> str:
    """Lines that count the value whose first guess is in %found, where the edges say it is."""
    kind, size = element_type(element), element.itemsize
    return f"""  %gp{tag} = getelementptr i32, ptr %found, i64 {at}
  %g32{tag} = load i32, ptr %gp{tag}, align 4
  %g{tag} = zext i32 %g32{tag} to i64
  %xp{tag} = getelementptr {kind}, ptr %begun, i64 {at}
  %xv{tag} = load {kind}, ptr %xp{tag}, align {size}
  %ep{tag} = getelementptr {kind}, ptr %edges, i64 %g{tag}
  %e0{tag} = load {kind}, ptr %ep{tag}, align {size}
  %eq{tag} = getelementptr {kind}, ptr %ep{tag}, i64 1
  %e1{tag} = load {kind}, ptr %eq{tag}, align {size}
  %lt{tag} = fcmp olt {kind} %xv{tag}, %e0{tag}
  %gt{tag} = fcmp oge {kind} %xv{tag}, %e1{tag}
  %dn{tag} = zext i1 %lt{tag} to i64
  %up{tag} = zext i1 %gt{tag} to i64
  %g1{tag} = sub i64 %g{tag}, %dn{tag}
  %g2{tag} = add i64 %g1{tag}, %up{tag}
  %tp{tag} = getelementptr i64, ptr %table{bank}, i64 %g2{tag}
  %tc{tag} = load i64, ptr %tp{tag}, align 8
  %td{tag} = add i64 %tc{tag}, 1
  store i64 %td{tag}, ptr %tp{tag}, align 8
"""


_TABLES = "".join(
    f"  %bank{k} = mul i64 %row, {k}\n  %table{k} = getelementptr i64, ptr %table, i64 %bank{k}\n"
    for k in range(HISTOGRAM_BANKS))

_MODULE = """target triple = "{triple}"
{entry}  %found = alloca [{block} x i32], align 64
{head}  %bins32 = trunc i64 %bins to i32
  %top = sub i32 %bins32, 1
  %beyond = add i32 %bins32, 1
  %row = add i64 %bins, 3
  %first = load {kind}, ptr %ends, align {size}
  %last.p = getelementptr {kind}, ptr %ends, i64 1
  %last = load {kind}, ptr %last.p, align {size}
  %width = load {scaled}, ptr %scale, align {scale}
  %number.p = getelementptr {scaled}, ptr %scale, i64 1
  %number = load {scaled}, ptr %number.p, align {scale}
  %low.p = getelementptr {scaled}, ptr %scale, i64 2
  %low = load {scaled}, ptr %low.p, align {scale}
  %high.p = getelementptr {scaled}, ptr %scale, i64 3
  %high = load {scaled}, ptr %high.p, align {scale}
{spreads}  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %blocks ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %u.from = mul i64 %u, %each
  %u.far = mul i64 %u.next, %each
{first}{last}  %own = mul i64 %u, %stride
  %table = getelementptr i64, ptr %tables, i64 %own
{tables}  br label %blocks
blocks:
  %base = phi i64 [ %from, %unit ], [ %base.next, %counts ], [ %base.next, %quicks ]
  %base.more = icmp ult i64 %base, %to
  br i1 %base.more, label %values, label %units
values:
  %base.far = add i64 %base, {block}
{nearer}  %n = sub i64 %base.next, %base
  %begun = getelementptr {kind}, ptr %x, i64 %base
  br label %vectors
vectors:
  %i = phi i64 [ 0, %values ], [ %i.next, %vector ]
  %near = phi <{lanes} x i1> [ zeroinitializer, %values ], [ %near.next, %vector ]
  %i.next = add i64 %i, {lanes}
  %i.more = icmp ule i64 %i.next, %n
  br i1 %i.more, label %vector, label %found.all
vector:
  %p = getelementptr {kind}, ptr %begun, i64 %i
  %xv = load {vector}, ptr %p, align {size}
{several}{near}  %q = getelementptr i32, ptr %found, i64 %i
  store <{lanes} x i32> %kv, ptr %q, align 4
  br label %vectors
found.all:
  %nears = bitcast <{lanes} x i1> %near to i{lanes}
  %far = icmp eq i{lanes} %nears, 0
  %full = icmp eq i64 %n, {block}
  %sure = and i1 %far, %full
  br i1 %sure, label %quicks, label %rest
quicks:
  %c.q = phi i64 [ 0, %found.all ], [ %c.q.next, %quick ]
  %c.q.next = add i64 %c.q, {banks}
  %c.q.more = icmp ule i64 %c.q.next, %n
  br i1 %c.q.more, label %quick, label %blocks
quick:
{quick}  br label %quicks
rest:
  %j = phi i64 [ %i, %found.all ], [ %j.next, %one ]
  %j.more = icmp ult i64 %j, %n
  br i1 %j.more, label %one, label %turns
one:
  %p1 = getelementptr {kind}, ptr %begun, i64 %j
  %x1 = load {kind}, ptr %p1, align {size}
{single}  %q1 = getelementptr i32, ptr %found, i64 %j
  store i32 %ko, ptr %q1, align 4
  %j.next = add i64 %j, 1
  br label %rest
turns:
  %c = phi i64 [ 0, %rest ], [ %c.next, %turn ]
  %c.next = add i64 %c, {banks}
  %c.more = icmp ule i64 %c.next, %n
  br i1 %c.more, label %turn, label %counts
turn:
{turn}  br label %turns
counts:
  %d = phi i64 [ %c, %turns ], [ %d.next, %single ]
  %d.more = icmp ult i64 %d, %n
  br i1 %d.more, label %single, label %blocks
single:
{count}  %d.next = add i64 %d, 1
  br label %counts
exit:
  ret void
}}
"""
