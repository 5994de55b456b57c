"""Products and extremes of narrow rows that lie column by column, as IR: lanes are rows.

Knows: vectors, registers, argument blocks of products. Must not know: how rows are cut into blocks.
Receives a form, a dtype and a target; returns the text of a module whose entry is @k.

What is made of a block of narrow rows is read again at once, by loops over its rows. Where each column of it
is one run, these have whole vectors, however few columns there are, and an extreme of a row is a comparison
of lanes. Sums have the order they have in `skinny`. The last rows of a block are computed twice where they
fill no vectors: the results are the same.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from jitla.codegen.flags import quiet
from jitla.codegen.lanes import Lanes
from jitla.codegen.layout import Target
from jitla.codegen.order import Order
from jitla.codegen.passes import AHEAD, CACHE_LINE, head

__all__ = ["upright_text"]

VECTORS = 2  # of rows at once, which share an element of the matrix
ABREAST = 4  # vectors of rows that are searched at once: each waits for its last comparison
REGISTERS = {True: 9, False: 5}  # columns whose sums are held at once, with 32 registers and with 16
MANY_REGISTERS = "avx512vl"


@cache
def upright_text(form: str, dtype: np.dtype, columns: int, target: Target) -> str:
    """Return the module of `form`: "dot" with so many `columns`, "argmin" or "argmax" of rows."""
    real = {"d": "double", "f": "float"}[dtype.char]
    w = Lanes(real, dtype.itemsize, target.lanes(dtype.itemsize))
    if form == "dot":
        text = _dot(w, columns, REGISTERS[MANY_REGISTERS in target.features]) + w.declared()
    else:
        text = _extreme(Order(dtype, form, w.width)) + "declare i64 @llvm.umin.i64(i64, i64)\n"
        text = quiet(text, target.features)
    return f'target triple = "{target.triple}"\n' + text


def _dot(w: Lanes, columns: int, most: int) -> str:
    """@k: every column of results is the sum over the columns of rows times an element of the matrix."""
    parts = -(-columns // most)
    bounds = [columns * k // parts for k in range(parts + 1)]
    counts = [b - a for a, b in zip(bounds, bounds[1:], strict=False)]
    text = "".join(_tile(w, count) for count in dict.fromkeys(counts))
    calls = "".join(
        f"  %v{k} = getelementptr i8, ptr %v, i64 {bounds[k] * w.size}\n"
        f"  %o.far{k} = mul i64 %column, {bounds[k]}\n"
        f"  %o{k} = getelementptr i8, ptr %out, i64 %o.far{k}\n"
        f"  call void @tile{count}(ptr %x.at, ptr %v{k}, ptr %o{k}, i64 %r, i64 %n, i64 %step, i64 %apart, "
        f"i64 %column)\n" for k, count in enumerate(counts))
    scalar = w.real
    return text + f"""declare {scalar} @llvm.fmuladd.f{8 * w.size}({scalar}, {scalar}, {scalar})
define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{head(w)}  %column = mul i64 %rows, {w.size}
  %few = icmp ult i64 %rows, {VECTORS * w.width}
  %last = sub i64 %rows, {VECTORS * w.width}
  br i1 %few, label %singles, label %tiles
tiles:
  %i = phi i64 [ 0, %entry ], [ %i.next, %tiles ]
  %r = call i64 @llvm.umin.i64(i64 %i, i64 %last)
  %skip = mul i64 %r, %step
  %x.at = getelementptr i8, ptr %x, i64 %skip
{calls}  %i.next = add i64 %i, {VECTORS * w.width}
  %more = icmp ult i64 %i.next, %rows
  br i1 %more, label %tiles, label %done
{_one_by_one(w, columns)}done:
  ret void
}}
"""


def _one_by_one(w: Lanes, columns: int) -> str:
    """Lines that make the results of fewer rows than a tile has."""
    scalar = w.real
    return f"""singles:
  %s = phi i64 [ 0, %entry ], [ %s.next, %row.end ]
  %s.more = icmp ult i64 %s, %rows
  br i1 %s.more, label %row, label %done
row:
  %c = phi i64 [ 0, %singles ], [ %c.next, %element.end ]
  %c.more = icmp ult i64 %c, {columns}
  br i1 %c.more, label %element, label %row.end
element:
  %j = phi i64 [ 0, %row ], [ %j.next, %add ]
  %sum = phi {scalar} [ 0.0, %row ], [ %sum.next, %add ]
  %j.more = icmp ult i64 %j, %n
  br i1 %j.more, label %add, label %element.end
add:
  %xs.far = mul i64 %s, %step
  %xs.row = getelementptr i8, ptr %x, i64 %xs.far
  %xs.p = getelementptr {scalar}, ptr %xs.row, i64 %j
  %xs = load {scalar}, ptr %xs.p, align {w.size}
  %vs.far = mul i64 %j, %apart
  %vs.row = getelementptr i8, ptr %v, i64 %vs.far
  %vs.p = getelementptr {scalar}, ptr %vs.row, i64 %c
  %vs = load {scalar}, ptr %vs.p, align {w.size}
  %sum.next = call {scalar} @llvm.fmuladd.f{8 * w.size}({scalar} %xs, {scalar} %vs, {scalar} %sum)
  %j.next = add i64 %j, 1
  br label %element
element.end:
  %os.far = mul i64 %c, %column
  %os.column = getelementptr i8, ptr %out, i64 %os.far
  %os = getelementptr {scalar}, ptr %os.column, i64 %s
  store {scalar} %sum, ptr %os, align {w.size}
  %c.next = add i64 %c, 1
  br label %row
row.end:
  %s.next = add i64 %s, 1
  br label %singles
"""


def _tile(w: Lanes, columns: int) -> str:
    """@tile: so many columns of as many rows as `VECTORS` vectors have lanes, from row %r on.

    A square of elements is turned in registers, so that a vector has one element of each row.
    """
    v, groups, size = w.vector, range(VECTORS), w.size
    cells = [(g, c) for g in groups for c in range(columns)]
    starts = "".join(
        f"  %skip{k} = mul i64 %step, {k}\n  %x{k} = getelementptr i8, ptr %x, i64 %skip{k}\n"
        for k in range(VECTORS * w.width))
    ahead = "".join(
        f"  %line{b} = getelementptr i8, ptr %next, i64 {b}\n"
        f"  call void @llvm.prefetch.p0(ptr %line{b}, i32 0, i32 3, i32 1)\n"
        for b in range(0, VECTORS * w.width * w.width * size, CACHE_LINE))
    body, pv = _squares(w, columns)
    odd = _odd(w, columns)
    sums = "".join(f"  %a{g}_{c} = phi {v} [ zeroinitializer, %entry ], [ %a{g}_{c}.n, %body ]\n"
                   for g, c in cells)
    rest = "".join(f"  %a{g}_{c}.r = phi {v} [ %a{g}_{c}, %loop ], [ %a{g}_{c}.m, %one ]\n"
                   for g, c in cells)
    stored = "".join(
        f"  %of{g}_{c} = mul i64 %column, {c}\n"
        f"  %oc{g}_{c} = getelementptr i8, ptr %out, i64 %of{g}_{c}\n"
        f"  %or{g}_{c} = add i64 %r, {g * w.width}\n"
        f"  %op{g}_{c} = getelementptr {w.real}, ptr %oc{g}_{c}, i64 %or{g}_{c}\n"
        f"  store {v} %a{g}_{c}.r, ptr %op{g}_{c}, align {size}\n" for g, c in cells)
    return f"""define internal void @tile{columns}(ptr %x, ptr %v, ptr %out, i64 %r, i64 %n, i64 %step,
                                            i64 %apart, i64 %column) nounwind {{
entry:
{starts}  %whole = and i64 %n, -{w.width}
  %all = mul i64 %step, {VECTORS * w.width}
  %further = add i64 %all, {AHEAD}
  %soon = getelementptr i8, ptr %x, i64 %further
  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %j.next, %body ]
  %pv = phi ptr [ %v, %entry ], [ {pv}, %body ]
{sums}  %more = icmp ult i64 %j, %whole
  br i1 %more, label %body, label %odd
body:
  %used = mul i64 %j, {VECTORS * w.width * size}
  %next = getelementptr i8, ptr %soon, i64 %used
{ahead}{body}  %j.next = add i64 %j, {w.width}
  br label %loop
odd:
  %l = phi i64 [ %j, %loop ], [ %l.next, %one ]
  %pl = phi ptr [ %pv, %loop ], [ %pl.next, %one ]
{rest}  %left = icmp ult i64 %l, %n
  br i1 %left, label %one, label %end
one:
{odd}  %pl.next = getelementptr i8, ptr %pl, i64 %apart
  %l.next = add i64 %l, 1
  br label %odd
end:
{stored}  ret void
}}
"""


def _squares(w: Lanes, columns: int) -> tuple[str, str]:
    """Lines that add as many elements of each row as a vector has lanes, and where the matrix goes on."""
    body, pv = "", "%pv"
    for g in range(VECTORS):
        for k in range(w.width):
            row = g * w.width + k
            body += (f"  %p{row} = getelementptr {w.real}, ptr %x{row}, i64 %j\n"
                     f"  %e{g}.0.{k} = load {w.vector}, ptr %p{row}, align {w.size}\n")
        body += _turned(w, g)
    for u in range(w.width):
        before, after = (f".u{u - 1}" if u else ""), (f".u{u}" if u < w.width - 1 else ".n")
        elements = [f"%e{g}.{w.shift}.{u}" for g in range(VECTORS)]
        body += _column(w, columns, pv, f"u{u}", elements, before, after)
        body += f"  %pv{u} = getelementptr i8, ptr {pv}, i64 %apart\n"
        pv = f"%pv{u}"
    return body, pv


def _odd(w: Lanes, columns: int) -> str:
    """Lines that add one element of each row."""
    odd = ""
    for g in range(VECTORS):
        last = "poison"
        for k in range(w.width):
            row = g * w.width + k
            odd += (f"  %q{row} = getelementptr {w.real}, ptr %x{row}, i64 %l\n"
                    f"  %f{row} = load {w.real}, ptr %q{row}, align {w.size}\n"
                    f"  %g{row} = insertelement {w.vector} {last}, {w.real} %f{row}, i64 {k}\n")
            last = f"%g{row}"
    elements = [f"%g{g * w.width + w.width - 1}" for g in range(VECTORS)]
    return odd + _column(w, columns, "%pl", "o", elements, ".r", ".m")


def _turned(w: Lanes, g: int) -> str:
    """Lines that turn the square of elements of group `g`: %e`g`.0.row to %e`g`.`shift`.column."""
    text, n = "", w.width
    for level in range(w.shift):
        apart = 1 << level
        for k in range(n):
            low, high = f"%e{g}.{level}.{k & ~apart}", f"%e{g}.{level}.{k | apart}"
            lanes = [(i if k & apart == 0 else i | apart) if i & apart == 0 else
                     (n + (i & ~apart) if k & apart == 0 else n + i) for i in range(n)]
            text += (f"  %e{g}.{level + 1}.{k} = shufflevector {w.vector} {low}, {w.vector} {high}, "
                     f"<{n} x i32> <{', '.join(f'i32 {i}' for i in lanes)}>\n")
    return text


def _column(w: Lanes, columns: int, at: str, tag: str, elements: list[str], before: str, after: str) -> str:
    """Lines that add one element of each row times a row of the matrix to the sums."""
    text = ""
    for c in range(columns):
        name = f"%m{tag}_{c}"
        text += (f"  {name}.p = getelementptr {w.real}, ptr {at}, i64 {c}\n"
                 f"  {name}.s = load {w.real}, ptr {name}.p, align {w.size}\n"
                 f"  {name}.0 = insertelement {w.vector} poison, {w.real} {name}.s, i64 0\n"
                 f"  {name} = shufflevector {w.vector} {name}.0, {w.vector} poison, "
                 f"<{w.width} x i32> zeroinitializer\n")
        text += "".join(w.fma(f"%a{g}_{c}{after}", x, name, f"%a{g}_{c}{before}")
                        for g, x in enumerate(elements))
    return text


def _extreme(of: Order) -> str:
    """@k: for every row where it has its extreme, the first of several, a NaN before all others."""
    return "".join(_search(of, count) for count in (ABREAST, 1)) + _one(of) + f"""
define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{head(of.lanes)}  %column = mul i64 %rows, {of.dtype.itemsize}
  %many = icmp uge i64 %rows, {ABREAST * of.width}
  %some = icmp uge i64 %rows, {of.width}
  %last.many = sub i64 %rows, {ABREAST * of.width}
  %last.some = sub i64 %rows, {of.width}
  br i1 %many, label %wide, label %less
wide:
  %i = phi i64 [ 0, %entry ], [ %i.next, %wide ]
  %r = call i64 @llvm.umin.i64(i64 %i, i64 %last.many)
  call void @search{ABREAST}(ptr %x, ptr %out, i64 %r, i64 %n, i64 %column)
  %i.next = add i64 %i, {ABREAST * of.width}
  %i.more = icmp ult i64 %i.next, %rows
  br i1 %i.more, label %wide, label %done
less:
  br i1 %some, label %vector, label %singles
vector:
  %k = phi i64 [ 0, %less ], [ %k.next, %vector ]
  %q = call i64 @llvm.umin.i64(i64 %k, i64 %last.some)
  call void @search1(ptr %x, ptr %out, i64 %q, i64 %n, i64 %column)
  %k.next = add i64 %k, {of.width}
  %k.more = icmp ult i64 %k.next, %rows
  br i1 %k.more, label %vector, label %done
singles:
  %s = phi i64 [ 0, %less ], [ %s.next, %single ]
  %s.more = icmp ult i64 %s, %rows
  br i1 %s.more, label %single, label %done
single:
  call void @one(ptr %x, ptr %out, i64 %s, i64 %n, i64 %column)
  %s.next = add i64 %s, 1
  br label %singles
done:
  ret void
}}
"""


_SEARCH = "ptr %x, ptr %out, i64 %r, i64 %n, i64 %column"


def _kept(of: Order, tag: str, kind: str, mask: str) -> str:
    """Lines of %stay: what was found is no worse than the element, or is NaN, and this one is not first."""
    worse = {"fcmp olt": "fcmp oge", "fcmp ogt": "fcmp ole"}[of.before]
    return (f"  %less{tag} = {worse} {kind} %e{tag}, %b{tag}\n"
            f"  %nan{tag} = fcmp uno {kind} %b{tag}, %b{tag}\n"
            f"  %stay{tag} = or {mask} %less{tag}, %nan{tag}\n")


def _search(of: Order, count: int) -> str:
    """@search: the rows of `count` vectors."""
    v, masks, size = of.vector, of.masks, of.dtype.itemsize
    ways = range(count)

    def load(k: int, name: str, column: str) -> str:
        return (f"  {name}.p = getelementptr {of.element}, ptr {column}, i64 {k * of.width}\n"
                f"  {name} = load {v}, ptr {name}.p, align {size}\n")

    phis = "".join(
        f"  %b{k} = phi {v} [ %first{k}, %entry ], [ %b{k}.next, %turn ]\n"
        f"  %at{k} = phi {masks} [ zeroinitializer, %entry ], [ %at{k}.next, %turn ]\n" for k in ways)
    turn = "".join(
        load(k, f"%e{k}", "%here") + _kept(of, str(k), v, of.lanes.mask)
        + f"  %b{k}.next = select {of.lanes.mask} %stay{k}, {v} %b{k}, {v} %e{k}\n"
          f"  %at{k}.next = select {of.lanes.mask} %stay{k}, {masks} %at{k}, {masks} %places\n" for k in ways)
    word = f"<{of.width} x i64>"
    ends = "".join(
        (f"  %w{k} = zext {masks} %at{k} to {word}\n" if of.index != "i64" else
         f"  %w{k} = add {word} %at{k}, zeroinitializer\n")
        + f"  %o.at{k} = add i64 %r, {k * of.width}\n  %o{k} = getelementptr i64, ptr %out, i64 %o.at{k}\n"
          f"  store {word} %w{k}, ptr %o{k}, align 8\n" for k in ways)
    return f"""define internal void @search{count}({_SEARCH}) nounwind {{
entry:
  %begin = getelementptr {of.element}, ptr %x, i64 %r
{"".join(load(k, f"%first{k}", "%begin") for k in ways)}  br label %loop
loop:
  %c = phi i64 [ 1, %entry ], [ %c.next, %turn ]
  %so.far = phi ptr [ %begin, %entry ], [ %here, %turn ]
  %places = phi {masks} [ splat ({of.index} 1), %entry ], [ %places.next, %turn ]
{phis}  %more = icmp ult i64 %c, %n
  br i1 %more, label %turn, label %end
turn:
  %here = getelementptr i8, ptr %so.far, i64 %column
{turn}  %places.next = add {masks} %places, splat ({of.index} 1)
  %c.next = add i64 %c, 1
  br label %loop
end:
{ends}  ret void
}}
"""


def _one(of: Order) -> str:
    """@one: one row, element by element."""
    kind, size = of.element, of.dtype.itemsize
    return f"""define internal void @one({_SEARCH}) nounwind {{
entry:
  %begin = getelementptr {kind}, ptr %x, i64 %r
  %first = load {kind}, ptr %begin, align {size}
  br label %loop
loop:
  %c = phi i64 [ 1, %entry ], [ %c.next, %turn ]
  %so.far = phi ptr [ %begin, %entry ], [ %here, %turn ]
  %b = phi {kind} [ %first, %entry ], [ %b.next, %turn ]
  %at = phi i64 [ 0, %entry ], [ %at.next, %turn ]
  %more = icmp ult i64 %c, %n
  br i1 %more, label %turn, label %end
turn:
  %here = getelementptr i8, ptr %so.far, i64 %column
  %e = load {kind}, ptr %here, align {size}
{_kept(of, "", kind, "i1")}  %b.next = select i1 %stay, {kind} %b, {kind} %e
  %at.next = select i1 %stay, i64 %at, i64 %c
  %c.next = add i64 %c, 1
  br label %loop
end:
  %o = getelementptr i64, ptr %out, i64 %r
  store i64 %at, ptr %o, align 8
  ret void
}}
"""
