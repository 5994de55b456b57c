"""Products with wide matrices, tile by tile from packed panels."""

from __future__ import annotations

import struct
from functools import cache

import numpy as np

from jitla.codegen.ir import Lanes
from jitla.codegen.kernel_abi import HEADER
from jitla.codegen.target import Target
from jitla.fusion import FROM_PANELS, PACK_ONLY, Tile

__all__ = ["TURNS", "any_panel", "edge", "pack_wide", "panel", "tile", "wide_text"]


def panel(w: Lanes, vectors: int) -> str:
    """Write @panel2 or @panel3: copy the rows of a full panel, which lie in one run."""
    size = w.width * w.size
    copy = "".join(
        f"  %f{c} = getelementptr i8, ptr %v, i64 {c * size}\n"
        f"  %t{c} = getelementptr i8, ptr %p, i64 {c * size}\n"
        f"  %e{c} = load {w.vector}, ptr %f{c}, align {w.size}\n"
        f"  store {w.vector} %e{c}, ptr %t{c}, align {size}\n" for c in range(vectors))
    return f"""define internal void @panel{vectors}(ptr %to, ptr %from, i64 %kc, i64 %down) nounwind {{
entry:
  br label %row
row:
  %k = phi i64 [ 0, %entry ], [ %k.next, %go ]
  %p = phi ptr [ %to, %entry ], [ %p.next, %go ]
  %v = phi ptr [ %from, %entry ], [ %v.next, %go ]
  %more = icmp slt i64 %k, %kc
  br i1 %more, label %go, label %end
go:
{copy}  %p.next = getelementptr i8, ptr %p, i64 {vectors * size}
  %v.next = getelementptr i8, ptr %v, i64 %down
  %k.next = add i64 %k, 1
  br label %row
end:
  ret void
}}
"""


def any_panel(w: Lanes) -> str:
    """Write @panel: copy columns that lie anyhow."""
    return _ANY_PANEL.replace("@REAL@", w.real).replace("@SIZE@", str(w.size))


def edge(w: Lanes) -> str:
    """Write @edge: store the first columns of some rows, or add them to what is there."""
    return _EDGE.replace("@REAL@", w.real).replace("@SIZE@", str(w.size))


_ANY_PANEL = """
define internal void @panel(ptr %p, ptr %v, i64 %kc, i64 %down, i64 %across, i64 %cols,
                            i64 %width) nounwind {
entry:
  %wide = mul i64 %width, @SIZE@
  br label %column
column:
  %c = phi i64 [ 0, %entry ], [ %c.next, %column.end ]
  %last = sub i64 %cols, 1
  %real = call i64 @llvm.umin.i64(i64 %c, i64 %last)
  %fo = mul i64 %real, %across
  %f0 = getelementptr i8, ptr %v, i64 %fo
  %t0 = getelementptr @REAL@, ptr %p, i64 %c
  br label %row
row:
  %k = phi i64 [ 0, %column ], [ %k.next, %put ]
  %f = phi ptr [ %f0, %column ], [ %f.next, %put ]
  %t = phi ptr [ %t0, %column ], [ %t.next, %put ]
  %more = icmp slt i64 %k, %kc
  br i1 %more, label %put, label %column.end
put:
  %e = load @REAL@, ptr %f, align @SIZE@
  store @REAL@ %e, ptr %t, align @SIZE@
  %f.next = getelementptr i8, ptr %f, i64 %down
  %t.next = getelementptr i8, ptr %t, i64 %wide
  %k.next = add i64 %k, 1
  br label %row
column.end:
  %c.next = add i64 %c, 1
  %left = icmp slt i64 %c.next, %width
  br i1 %left, label %column, label %end
end:
  ret void
}
"""

_EDGE = """
; Store the first columns of some rows, or add them to what is there.
define internal void @edge(ptr %from, i64 %wide, ptr %o, i64 %apart, i64 %rows, i64 %cols,
                           i1 %first) nounwind {
entry:
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r.next, %row.end ]
  %fo = mul i64 %r, %wide
  %f = getelementptr i8, ptr %from, i64 %fo
  %to = mul i64 %r, %apart
  %t = getelementptr i8, ptr %o, i64 %to
  br label %column
column:
  %c = phi i64 [ 0, %row ], [ %c.next, %put ]
  %fc = getelementptr @REAL@, ptr %f, i64 %c
  %tc = getelementptr @REAL@, ptr %t, i64 %c
  %e = load @REAL@, ptr %fc, align @SIZE@
  br i1 %first, label %put, label %add
add:
  %before = load @REAL@, ptr %tc, align @SIZE@
  %sum = fadd @REAL@ %before, %e
  br label %put
put:
  %value = phi @REAL@ [ %e, %column ], [ %sum, %add ]
  store @REAL@ %value, ptr %tc, align @SIZE@
  %c.next = add i64 %c, 1
  %more = icmp slt i64 %c.next, %cols
  br i1 %more, label %column, label %row.end
row.end:
  %r.next = add i64 %r, 1
  %left = icmp slt i64 %r.next, %rows
  br i1 %left, label %row, label %end
end:
  ret void
}
"""


TURNS = 4  # elements of the rows per turn of the loop
TILE = "ptr %x, i64 %step, i64 %along, ptr %p, i64 %kc, ptr %o, i64 %apart, i1 %first, " \
    "i64 %far, ptr %soon, i64 %by"


def _step(
    w: Lanes, rows: int, vectors: int, tag: str, off: str, pointer: str, names: tuple[str, str]
) -> str:
    """Lines that add the products of one element of every row; `names` of sums before and after."""
    v, size, (before, after) = w.vector, w.width * w.size, names
    text = "".join(
        f"  %b{tag}{c}.p = getelementptr i8, ptr {pointer}, i64 {c * size}\n"
        f"  %b{tag}{c} = load {v}, ptr %b{tag}{c}.p, align {size}\n" for c in range(vectors))
    for r in range(rows):
        text += (f"  %e{tag}{r}.p = getelementptr i8, ptr %x{r}, i64 {off}\n"
                 f"  %e{tag}{r}.s = load {w.real}, ptr %e{tag}{r}.p, align {w.size}\n"
                 f"  %e{tag}{r}.0 = insertelement {v} poison, {w.real} %e{tag}{r}.s, i64 0\n"
                 f"  %e{tag}{r} = shufflevector {v} %e{tag}{r}.0, {v} poison, "
                 f"<{w.width} x i32> zeroinitializer\n")
        text += "".join(w.fma(f"%{after}{r}_{c}", f"%e{tag}{r}", f"%b{tag}{c}", f"%{before}{r}_{c}")
                        for c in range(vectors))
    return text


def _turns(w: Lanes, rows: int, vectors: int, fetches: bool) -> str:
    """Lines of one turn of the loop: some elements of every row, one after the other.

    If it `fetches`, what lies `far` behind its lines comes into the cache, whichever way the elements of a
    line go, along a row or across rows; and of what begins at `soon` a turn's share.
    """
    text, size = "", vectors * w.width * w.size
    if fetches:
        text = _fetch("%sp") + "".join(
            f"  %f{r} = getelementptr i8, ptr %x{r}, i64 %off{r % TURNS or ''}\n"
            f"  %g{r} = getelementptr i8, ptr %f{r}, i64 %far\n" + _fetch(f"%g{r}") for r in range(rows))
    for u in range(TURNS):
        names = ("a" if u == 0 else f"u{u - 1}x", "n" if u == TURNS - 1 else f"u{u}x")
        off = "%off" if u == 0 else f"%off{u}"
        text += f"  %pp{u} = getelementptr i8, ptr %pp, i64 {u * size}\n"
        text += _step(w, rows, vectors, f"u{u}_", off, f"%pp{u}", names)
    return "".join(f"  %off{u + 1} = add i64 %off{u or ''}, %along\n" for u in range(TURNS)) + text


def _fetch(at: str, writes: bool = False) -> str:
    return f"  call void @llvm.prefetch.p0(ptr {at}, i32 {int(writes)}, i32 3, i32 1)\n"


def tile(w: Lanes, rows: int, vectors: int, fetches: bool) -> str:
    """@tile: `rows` rows times one panel; sums are stored, or added to what is there."""
    cells = [(r, c) for r in range(rows) for c in range(vectors)]
    bytes_of, v = w.width * w.size, w.vector
    at = "".join(f"  %k{r} = mul i64 %step, {r}\n  %x{r} = getelementptr i8, ptr %x, i64 %k{r}\n"
                 f"  %q{r} = mul i64 %apart, {r}\n  %o{r} = getelementptr i8, ptr %o, i64 %q{r}\n"
                 for r in range(rows))

    asked = "".join(
        f"  %w{r}_{b} = getelementptr i8, ptr %o{r}, i64 {b}\n" + _fetch(f"%w{r}_{b}", True)
        for r in range(rows) for b in (0, vectors * bytes_of - 1)) if fetches else ""
    sums = "".join(f"  %a{r}_{c} = phi {v} [ zeroinitializer, %entry ], [ %n{r}_{c}, %body ]\n"
                   for r, c in cells)
    rest = "".join(f"  %r{r}_{c} = phi {v} [ %a{r}_{c}, %loop ], [ %m{r}_{c}, %one ]\n" for r, c in cells)
    places = "".join(f"  %d{r}_{c} = getelementptr i8, ptr %o{r}, i64 {c * bytes_of}\n" for r, c in cells)
    fresh = "".join(f"  store {v} %r{r}_{c}, ptr %d{r}_{c}, align {w.size}\n" for r, c in cells)
    added = "".join(f"  %h{r}_{c} = load {v}, ptr %d{r}_{c}, align {w.size}\n"
                    f"  %t{r}_{c} = fadd {v} %h{r}_{c}, %r{r}_{c}\n"
                    f"  store {v} %t{r}_{c}, ptr %d{r}_{c}, align {w.size}\n" for r, c in cells)
    return f"""define internal void @tile{vectors}_{rows}({TILE}) nounwind {{
entry:
{at}{asked}  %whole = and i64 %kc, -{TURNS}
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k.next, %body ]
  %off = phi i64 [ 0, %entry ], [ %off{TURNS}, %body ]
  %pp = phi ptr [ %p, %entry ], [ %pp.next, %body ]
  %sp = phi ptr [ %soon, %entry ], [ %sp.next, %body ]
{sums}  %more = icmp slt i64 %k, %whole
  br i1 %more, label %body, label %odd
body:
{_turns(w, rows, vectors, fetches)}  %pp.next = getelementptr i8, ptr %pp, i64 {TURNS * vectors * bytes_of}
  %sp.next = getelementptr i8, ptr %sp, i64 %by
  %k.next = add i64 %k, {TURNS}
  br label %loop
odd:
  %l = phi i64 [ %k, %loop ], [ %l.next, %one ]
  %offl = phi i64 [ %off, %loop ], [ %offl.next, %one ]
  %pl = phi ptr [ %pp, %loop ], [ %pl.next, %one ]
{rest}  %left = icmp slt i64 %l, %kc
  br i1 %left, label %one, label %end
one:
{_step(w, rows, vectors, "z", "%offl", "%pl", ("r", "m"))}\
  %pl.next = getelementptr i8, ptr %pl, i64 {vectors * bytes_of}
  %offl.next = add i64 %offl, %along
  %l.next = add i64 %l, 1
  br label %odd
end:
{places}  br i1 %first, label %fresh, label %added
fresh:
{fresh}  ret void
added:
{added}  ret void
}}
"""


DEPTH = 256  # elements of a row that meet a panel at once
VECTORS = 3  # of a panel
OPERANDS = 3
LINE = 64  # bytes: what panels are aligned to
WORDS = Tile._fields
FEW_REGISTERS = 32  # bytes of the vectors of a processor with 16 of them


def _rows_at_once(w: Lanes) -> int:
    """Rows whose sums are in registers, beside a panel's row and one element."""
    return 4 if w.width * w.size <= FEW_REGISTERS else 8


def pack_wide(entry: int, tile: Tile, itemsize: int, vector_bytes: int) -> bytes:
    """Return the argument block of a product."""
    width = VECTORS * vector_bytes // itemsize
    scratch = (DEPTH + 8) * width * itemsize + LINE
    base = HEADER + 2 * OPERANDS
    block = [entry, base + len(tile), 1, 1, 0, scratch, 0, OPERANDS, *([0] * 2 * OPERANDS), *tile]
    return struct.pack(f"<{len(block)}q", *block)


@cache
def wide_text(dtype: np.dtype, target: Target, fetches: bool = False) -> str:
    """Return the module of products of `dtype`, for all shapes and strides.

    If it `fetches`, rows come from memory: they are asked for before they are needed. Rows that are in the
    cache would only lose their place to others.
    """
    real = {"d": "double", "f": "float"}[dtype.char]
    w = Lanes(real, dtype.itemsize, target.lanes(dtype.itemsize))
    many = _rows_at_once(w)
    text = "".join(tile(w, rows, vectors, fetches and rows == many)
                   for vectors in (2, VECTORS) for rows in (many, 1))
    text += "".join(_rows(w, many, vectors) for vectors in (2, VECTORS))
    text += "".join(panel(w, vectors) for vectors in (2, VECTORS)) + any_panel(w) + edge(w) + _entry(w)
    return f'target triple = "{target.triple}"\n' + text + w.declared() + \
        "declare i64 @llvm.umax.i64(i64, i64)\n"


def _rows(w: Lanes, many: int, vectors: int) -> str:
    """@rows: all rows of the block times one panel; one that is not full is computed aside."""
    width = vectors * w.width * w.size

    def step(rows: int, i: str, far: str) -> str:
        tag = f".{rows}"
        return f"""  %xo{tag} = mul i64 {i}, %step
  %xi{tag} = getelementptr i8, ptr %x, i64 %xo{tag}
  %oo{tag} = mul i64 {i}, %apart
  %oi{tag} = getelementptr i8, ptr %o, i64 %oo{tag}
  br i1 %full, label %go{tag}, label %aside{tag}
go{tag}:
  call void @tile{vectors}_{rows}(ptr %xi{tag}, i64 %step, i64 %along, ptr %p, i64 %kc, ptr %oi{tag},
                                  i64 %apart, i1 %first, i64 {far}, ptr %s, i64 %by)
  br label %done{tag}
aside{tag}:
  call void @tile{vectors}_{rows}(ptr %xi{tag}, i64 %step, i64 %along, ptr %p, i64 %kc, ptr %edge,
                                  i64 {width}, i1 true, i64 {far}, ptr %s, i64 %by)
  call void @edge(ptr %edge, i64 {width}, ptr %oi{tag}, i64 %apart, i64 {rows}, i64 %cols, i1 %first)
  br label %done{tag}
done{tag}:
"""

    return f"""define internal void @rows{vectors}(ptr %x, i64 %rows, i64 %step, i64 %along, ptr %p, i64 %kc,
    ptr %o, i64 %apart, i1 %first, i64 %cols, ptr %edge, i64 %far, i64 %low, i64 %high,
    ptr %soon, i64 %by) nounwind {{
entry:
  %turns = udiv i64 %kc, {TURNS}
  %passed = mul i64 %turns, %by
  %full = icmp eq i64 %cols, {vectors * w.width}
  %several = sub i64 %rows, {many - 1}
  br label %many
many:
  %i = phi i64 [ 0, %entry ], [ %i.next, %done.{many} ]
  %s = phi ptr [ %soon, %entry ], [ %s.next, %done.{many} ]
  %more = icmp slt i64 %i, %several
  br i1 %more, label %do, label %single
do:
  %above = icmp sge i64 %i, %low
  %below = icmp slt i64 %i, %high
  %its = and i1 %above, %below
  %far.i = select i1 %its, i64 %far, i64 0
{step(many, "%i", "%far.i")}  %s.next = getelementptr i8, ptr %s, i64 %passed
  %i.next = add i64 %i, {many}
  br label %many
single:
  %j = phi i64 [ %i, %many ], [ %j.next, %done.1 ]
  %left = icmp slt i64 %j, %rows
  br i1 %left, label %one, label %end
one:
{step(1, "%j", "0")}  %j.next = add i64 %j, 1
  br label %single
end:
  ret void
}}
"""


def _takes(w: Lanes) -> str:
    """Blocks of @k that copy a panel and have all rows meet it, one for every width."""
    return "".join(f"""take{t}:
  br i1 %lies, label %ready{t}, label %panel{t}
panel{t}:
  %to{t} = select i1 %packs, ptr %q, ptr %room
  %runs{t} = and i1 %in.line, %full{t}
  br i1 %runs{t}, label %copy{t}, label %gather{t}
copy{t}:
  call void @panel{t}(ptr %to{t}, ptr %vc, i64 %kc, i64 %down)
  br label %made{t}
gather{t}:
  call void @panel(ptr %to{t}, ptr %vc, i64 %kc, i64 %down, i64 %across, i64 %cols{t}, i64 {t * w.width})
  br label %made{t}
made{t}:
  br i1 %packs, label %panel.end, label %ready{t}
ready{t}:
  %at{t} = phi ptr [ %q, %take{t} ], [ %room, %made{t} ]
  %far{t} = add i64 %c0, %cols{t}
  %near{t} = call i64 @llvm.umin.i64(i64 %far{t}, i64 %rows)
  %rows{t} = select i1 %all.rows, i64 %rows, i64 %near{t}
{_shares(w, t)}  call void @rows{t}(ptr %xk, i64 %rows{t}, i64 %step, i64 %along, ptr %at{t}, i64 %kc,
                     ptr %oc, i64 %apart, i1 %first, i64 %cols{t}, ptr %edge, i64 %behind, i64 %low{t},
                     i64 %high{t}, ptr %soon{t}, i64 %by{t})
  br label %panel.end
""" for t in (2, VECTORS))


def _shares(w: Lanes, t: int) -> str:
    """Lines of what is fetched while a panel is met, if it belongs to the next block of rows: its share."""
    return f"""  %low.all{t} = mul i64 %rows, %c0
  %low.part{t} = sdiv i64 %low.all{t}, %columns
  %high.all{t} = mul i64 %rows, %far{t}
  %high.part{t} = sdiv i64 %high.all{t}, %columns
  %low{t} = select i1 %by.blocks, i64 %low.part{t}, i64 0
  %high{t} = select i1 %by.blocks, i64 %high.part{t}, i64 %rows
  %wide{t} = mul i64 %cols{t}, {TURNS * w.size}
  %by.more{t} = add i64 %wide{t}, %tiles.less
  %by.part{t} = udiv i64 %by.more{t}, %tiles
  %by{t} = select i1 %in.run, i64 %by.part{t}, i64 0
  %soon.of{t} = mul i64 %c0, %kc
  %soon.at{t} = mul i64 %soon.of{t}, {w.size}
  %soon.in{t} = getelementptr i8, ptr %vk, i64 %soon.at{t}
  %soon.far{t} = getelementptr i8, ptr %soon.in{t}, i64 %v.bytes
  %soon{t} = select i1 %in.run, ptr %soon.far{t}, ptr %xk
"""


def _next(w: Lanes) -> str:
    """Lines of where that lies which is fetched: the rows after those that meet a panel.

    Where a block's elements of all rows lie side by side, rows being columns of what is added up, these
    are all there once one panel has met the first: then the next block's come, and what it meets.
    """
    return f"""  %adds.some = icmp ne i64 %adds, 0
  %side.by.side = icmp slt i64 %step, %along
  %by.blocks = and i1 %adds.some, %side.by.side
  %x.bytes = mul i64 %depth, %along
  %v.bytes = mul i64 %depth, %down
  %x.rows = mul i64 %step, {_rows_at_once(w)}
  %behind = select i1 %by.blocks, i64 %x.bytes, i64 %x.rows
  %v.row = mul i64 %columns, {w.size}
  %v.runs = icmp eq i64 %down, %v.row
  %v.near = and i1 %in.line, %v.runs
  %v.comes = icmp ne i64 %cold, 0
  %v.asked = and i1 %v.near, %v.comes
  %in.run = and i1 %v.asked, %by.blocks
  %tiles.any = udiv i64 %rows, {_rows_at_once(w)}
  %tiles = call i64 @llvm.umax.i64(i64 %tiles.any, i64 1)
  %tiles.less = sub i64 %tiles, 1
"""


def _rooms(w: Lanes) -> str:
    """Lines that say where panels are: made once, %panels.at, or else at %room; edges aside."""
    return f"""  %over = add i64 %given, {LINE - 1}
  %aligned = and i64 %over, -{LINE}
  %room = inttoptr i64 %aligned to ptr
  %edge = getelementptr i8, ptr %room, i64 {DEPTH * VECTORS * w.width * w.size}
  %lies = icmp eq i64 %panels, {FROM_PANELS}
  %packs = icmp eq i64 %panels, {PACK_ONLY}
  %side = select i1 %packs, ptr %o, ptr %v
  %side.word = ptrtoint ptr %side to i64
  %side.over = add i64 %side.word, {LINE - 1}
  %side.aligned = and i64 %side.over, -{LINE}
  %panels.at = inttoptr i64 %side.aligned to ptr
"""


def _entry(w: Lanes) -> str:
    base = HEADER + 2 * OPERANDS
    loads = "".join(
        f"  %{name}.w = getelementptr i64, ptr %block, i64 {at}\n"
        f"  %{name} = load {kind}, ptr %{name}.w, align 8\n" for name, at, kind in (
            ("given", 6, "i64"), ("x", HEADER, "ptr"), ("v", HEADER + 1, "ptr"), ("o", HEADER + 2, "ptr"),
            *((name, base + i, "i64") for i, name in enumerate(WORDS))))
    widths = "".join(
        f"  %cols{t} = call i64 @llvm.umin.i64(i64 %left, i64 {t * w.width})\n"
        f"  %full{t} = icmp eq i64 %cols{t}, {t * w.width}\n" for t in (2, VECTORS))
    return f"""define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
{loads}{_rooms(w)}  %in.line = icmp eq i64 %across, {w.size}
{_next(w)}  %anew = icmp eq i64 %adds, 0
  %all.rows = icmp eq i64 %upper, 0
  %none = icmp sle i64 %columns, 0
  br i1 %none, label %end.all, label %deep
deep:
  %k0 = phi i64 [ 0, %entry ], [ %k1, %deep.end ]
  %q0 = phi ptr [ %panels.at, %entry ], [ %q.next, %deep.end ]
  %kleft = sub i64 %depth, %k0
  %kc = call i64 @llvm.umin.i64(i64 %kleft, i64 {DEPTH})
  %at.start = icmp eq i64 %k0, 0
  %first = and i1 %at.start, %anew
  %xko = mul i64 %k0, %along
  %xk = getelementptr i8, ptr %x, i64 %xko
  %vko = mul i64 %k0, %down
  %vk = getelementptr i8, ptr %v, i64 %vko
  br label %panel
panel:
  %c0 = phi i64 [ 0, %deep ], [ %c1, %panel.end ]
  %q = phi ptr [ %q0, %deep ], [ %q.next, %panel.end ]
  %left = sub i64 %columns, %c0
  %vco = mul i64 %c0, %across
  %vc = getelementptr i8, ptr %vk, i64 %vco
  %oco = mul i64 %c0, {w.size}
  %oc = getelementptr i8, ptr %o, i64 %oco
{widths}  %much = icmp sgt i64 %left, {4 * w.width}
  %four = icmp sgt i64 %left, {VECTORS * w.width}
  %two = icmp sle i64 %left, {2 * w.width}
  %even = or i1 %four, %two
  %odd = xor i1 %even, true
  %three = or i1 %much, %odd
  %taken = select i1 %three, i64 {VECTORS * w.width}, i64 {2 * w.width}
  %taken.all = mul i64 %taken, %kc
  %taken.bytes = mul i64 %taken.all, {w.size}
  %q.next = getelementptr i8, ptr %q, i64 %taken.bytes
  br i1 %three, label %take{VECTORS}, label %take2
{_takes(w)}panel.end:
  %c1 = add i64 %c0, %taken
  %columns.left = icmp slt i64 %c1, %columns
  br i1 %columns.left, label %panel, label %deep.end
deep.end:
  %k1 = add i64 %k0, {DEPTH}
  %more = icmp slt i64 %k1, %depth
  br i1 %more, label %deep, label %end.all
end.all:
  ret void
}}
"""
