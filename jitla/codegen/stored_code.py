"""What is done at the stored positions of a matrix of compressed rows, as IR.

Knows: kinds of elements and indices. Must not know: arrays, how many threads there are.
Receives dtypes; returns modules with the entry @k. The first operand says where the rows of each unit
begin, and where the last ones end.

Where rows begin and the columns of entries are looked at as they are used: what lies outside of the
operands sets the word %fault to 1 and is passed over.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from jitla.codegen.indexing_code import ENTRY, bits_of, block_head, to_word
from jitla.codegen.lanes import Lanes
from jitla.codegen.layout import Target

__all__ = ["AHEAD", "entries_text", "sampled_product_text"]

AHEAD = 6  # rows
_COUNTS = (4, 2)  # entries of a row that are multiplied together
_CHAINS = 8  # running sums of a product, each of which waits for its last addition
_REAL = {4: "float", 8: "double"}


def _index(name: str, base: str, at: str, kind: np.dtype) -> str:
    """Lines that load an index as the word `name`."""
    bits = f"i{bits_of(kind)}"
    return (f"  {name}.p = getelementptr {bits}, ptr {base}, i64 {at}\n"
            f"  {name}.k = load {bits}, ptr {name}.p, align {kind.itemsize}\n"
            + to_word(name, f"{name}.k", kind))


def _bounds(kind: np.dtype) -> str:
    """Lines that load where the entries of row %i begin and end, %from and %to; none if that is no run."""
    return f"""{_index("%given", "%starts", "%i", kind)}  %after = add i64 %i, 1
{_index("%last", "%starts", "%after", kind)}\
  %ordered = icmp ule i64 %given, %last
  %inside = icmp ule i64 %last, %total
  %run = and i1 %ordered, %inside
  %to = select i1 %run, i64 %last, i64 0
  %from = select i1 %run, i64 %given, i64 0
"""


_UNITS = """  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %unit.end ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %first.p = getelementptr i64, ptr %cuts, i64 %u
  %first = load i64, ptr %first.p, align 8
  %stop.p = getelementptr i64, ptr %cuts, i64 %u.next
  %stop = load i64, ptr %stop.p, align 8
"""


def entries_text(form: str, itemsize: int, index: np.dtype, triple: str) -> str:
    """Return the module that copies one element for every entry.

    Operands: cuts, elements, starts, columns, results, fault. Form "sampled": the element in the row and
    column of the entry, both axes as far apart as the words %down and %right say; "row": that of its row.
    """
    element = f"i{8 * itemsize}"
    copy = f"""  %e = load {element}, ptr %at, align {itemsize}
  %q = getelementptr {element}, ptr %out, i64 %k
  store {element} %e, ptr %q, align {itemsize}
"""
    place = "" if form == "row" else f"""{_index("%column", "%columns", "%k", index)}\
  %known = icmp ult i64 %column, %width
  br i1 %known, label %found, label %lost
found:
  %across = mul i64 %column, %right
"""
    across = "0" if form == "row" else "%across"
    names = ("cuts", "x", "starts", "columns", "out", "fault")
    found = "one" if form == "row" else "found"
    lost = "" if form == "row" else """lost:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %entries
"""
    more = "" if form == "row" else ", [ %k.next, %lost ]"
    return f"""target triple = "{triple}"
{ENTRY}{block_head(names, ("width", "total", "down", "right"))}\
{_UNITS}  br label %each
each:
  %i = phi i64 [ %first, %unit ], [ %i.next, %entries ]
  %more = icmp ult i64 %i, %stop
  br i1 %more, label %row, label %unit.end
row:
  %i.next = add i64 %i, 1
  %below = mul i64 %i, %down
  %line = getelementptr i8, ptr %x, i64 %below
{_bounds(index)}  br i1 %run, label %entries, label %broken
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


def _dots(w: Lanes, count: int) -> str:
    """Lines from label found<count>: products of the run %a.row with `count` rows of b, whose columns are
    known; the label behind is entries. Sums are kept in `_CHAINS` vectors for each but of many at once.
    """
    c, chains, each = count, max(2, _CHAINS // count), range(count)
    runs = [(e, n) for e in each for n in range(chains)]
    text = f"found{c}:\n  %k.next{c} = add i64 %k, {c}\n" + "".join(
        f"  %b.skip{c}.{e} = mul i64 %column{c}.{e}, %depth\n"
        f"  %b{c}.{e} = getelementptr {w.real}, ptr %b, i64 %b.skip{c}.{e}\n" for e in each)
    text += f"  br label %turns{c}\nturns{c}:\n  %t{c} = phi i64 [ 0, %found{c} ], [ %t.next{c}, %turn{c} ]\n"
    text += "".join(f"  %s{c}.{e}.{n} = phi {w.vector} [ zeroinitializer, %found{c} ], [ %u{c}.{e}.{n}, "
                    f"%turn{c} ]\n" for e, n in runs)
    text += (f"  %t.next{c} = add i64 %t{c}, {chains * w.width}\n"
             f"  %t.more{c} = icmp ule i64 %t.next{c}, %depth\n"
             f"  br i1 %t.more{c}, label %turn{c}, label %joined{c}\nturn{c}:\n")
    for n in range(chains):
        text += f"  %i{c}.{n} = add i64 %t{c}, {n * w.width}\n"
        text += _load(w, f"%x{c}.{n}", "%a.row", f"%i{c}.{n}")
        text += "".join(_load(w, f"%y{c}.{e}.{n}", f"%b{c}.{e}", f"%i{c}.{n}")
                        + w.fma(f"%u{c}.{e}.{n}", f"%x{c}.{n}", f"%y{c}.{e}.{n}", f"%s{c}.{e}.{n}")
                        for e in each)
    text += f"  br label %turns{c}\njoined{c}:\n"
    for e in each:
        sums = [f"%s{c}.{e}.{n}" for n in range(chains)]
        while len(sums) > 1:
            text += f"  {sums[0]}j = fadd {w.vector} {sums[0]}, {sums[1]}\n"
            sums = [*sums[2:], f"{sums[0]}j"]
        text += f"  %w{c}.{e} = fadd {w.vector} {sums[0]}, zeroinitializer\n"
    text += (f"  br label %vectors{c}\nvectors{c}:\n"
             f"  %j{c} = phi i64 [ %t{c}, %joined{c} ], [ %j.next{c}, %vector{c} ]\n")
    text += "".join(
        f"  %v{c}.{e} = phi {w.vector} [ %w{c}.{e}, %joined{c} ], [ %v.next{c}.{e}, %vector{c} ]\n"
        for e in each)
    text += (f"  %j.next{c} = add i64 %j{c}, {w.width}\n  %some{c} = icmp ule i64 %j.next{c}, %depth\n"
             f"  br i1 %some{c}, label %vector{c}, label %tail{c}\nvector{c}:\n")
    text += _load(w, f"%vx{c}", "%a.row", f"%j{c}") + "".join(
        _load(w, f"%vy{c}.{e}", f"%b{c}.{e}", f"%j{c}")
        + w.fma(f"%v.next{c}.{e}", f"%vx{c}", f"%vy{c}.{e}", f"%v{c}.{e}") for e in each)
    text += (f"  br label %vectors{c}\ntail{c}:\n  %odd{c} = icmp ult i64 %j{c}, %depth\n"
             f"  br i1 %odd{c}, label %few{c}, label %summed{c}\nfew{c}:\n"
             f"  %fp{c} = getelementptr {w.real}, ptr %a.row, i64 %j{c}\n" + w.masked(f"%fx{c}", f"%fp{c}"))
    text += "".join(
        f"  %fq{c}.{e} = getelementptr {w.real}, ptr %b{c}.{e}, i64 %j{c}\n"
        + w.masked(f"%fy{c}.{e}", f"%fq{c}.{e}")
        + w.fma(f"%f{c}.{e}", f"%fx{c}", f"%fy{c}.{e}", f"%v{c}.{e}") for e in each)
    text += f"  br label %summed{c}\nsummed{c}:\n" + "".join(
        f"  %all{c}.{e} = phi {w.vector} [ %v{c}.{e}, %tail{c} ], [ %f{c}.{e}, %few{c} ]\n" for e in each)
    for e in each:
        text += w.fold(f"%sum{c}.{e}", f"%all{c}.{e}") + (
            f"  %o.at{c}.{e} = add i64 %k, {e}\n"
            f"  %o{c}.{e} = getelementptr {w.real}, ptr %out, i64 %o.at{c}.{e}\n"
            f"  store {w.real} %sum{c}.{e}, ptr %o{c}.{e}, align {w.size}\n")
    return text + "  br label %entries\n"


def _load(w: Lanes, name: str, base: str, at: str) -> str:
    """Lines that load the vector at element `at`."""
    return (f"  {name}.p = getelementptr {w.real}, ptr {base}, i64 {at}\n"
            f"  {name} = load {w.vector}, ptr {name}.p, align {w.size}\n")


def _several(index: np.dtype, count: int, less: str) -> str:
    """Lines from label look<count>: go to found<count> if the columns of so many entries are next."""
    c = count
    text = (f"look{c}:\n  %k.far{c} = add i64 %k, {c}\n  %left{c} = icmp ule i64 %k.far{c}, %n.to\n"
            f"  br i1 %left{c}, label %read{c}, label %{less}\nread{c}:\n")
    last = ""
    for e in range(c):
        text += f"  %k{c}.{e} = add i64 %k, {e}\n"
        text += _index(f"%column{c}.{e}", "%columns", f"%k{c}.{e}", index)
        if e:
            text += (f"  %far{c}.{e}.c = icmp ugt i64 {last}, %column{c}.{e}\n"
                     f"  %far{c}.{e} = select i1 %far{c}.{e}.c, i64 {last}, i64 %column{c}.{e}\n")
        last = f"%far{c}.{e}" if e else f"%column{c}.{e}"
    return text + (f"  %now{c} = icmp ult i64 {last}, %limit\n"
                   f"  br i1 %now{c}, label %found{c}, label %{less}\n")


def _marking(index: np.dtype) -> str:
    """Lines that note for every row of a unit where its entries go on, and where they end."""
    return f"""  br label %marking
marking:
  %i = phi i64 [ %first, %unit ], [ %after, %noted ]
  %i.more = icmp ult i64 %i, %stop
  br i1 %i.more, label %mark, label %tiles
mark:
{_bounds(index)}  br i1 %run, label %noted, label %broken
broken:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %noted
noted:
  %m.skip = mul i64 %i, 2
  %m.p = getelementptr i64, ptr %marks, i64 %m.skip
  store i64 %from, ptr %m.p, align 8
  %e.p = getelementptr i64, ptr %m.p, i64 1
  store i64 %to, ptr %e.p, align 8
  br label %marking
"""


def _products(w: Lanes, index: np.dtype) -> str:
    """Lines from label entries: those of a row whose columns are in the tile, the most at once first."""
    looks = "".join(_several(index, c, f"look{d}") for c, d in pairwise((*_COUNTS, 1)))
    dots = "".join(_dots(w, c) for c in (*_COUNTS, 1))
    phis = "".join(f", [ %k.next{c}, %summed{c} ]" for c in (*_COUNTS, 1))
    return f"""entries:
  %k = phi i64 [ %n.from, %row ], [ %k.next, %lost ]{phis}
  br label %look{_COUNTS[0]}
{looks}look1:
  %left = icmp ult i64 %k, %n.to
  br i1 %left, label %look, label %ended
look:
{_index("%column1.0", "%columns", "%k", index)}  %now = icmp ule i64 %column1.0, %edge
  br i1 %now, label %one, label %ended
one:
  %k.next = add i64 %k, 1
  %known = icmp ult i64 %column1.0, %width
  br i1 %known, label %found1, label %lost
{dots}lost:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %entries
"""


def _fetch(index: np.dtype, w: Lanes) -> str:
    """Lines that fetch where a row further on goes on: no processor foresees that."""
    return f"""  %h.skip = add i64 %n.skip, {2 * AHEAD}
  %h.p = getelementptr i64, ptr %marks, i64 %h.skip
  %h = load i64, ptr %h.p, align 8
  %h.columns = getelementptr i{bits_of(index)}, ptr %columns, i64 %h
  call void @llvm.prefetch.p0(ptr %h.columns, i32 0, i32 3, i32 1)
  %h.out = getelementptr {w.real}, ptr %out, i64 %h
  call void @llvm.prefetch.p0(ptr %h.out, i32 1, i32 3, i32 1)
"""


def sampled_product_text(dtype: np.dtype, index: np.dtype, target: Target) -> str:
    """Return the module that multiplies, for every entry, its row of `a` with its column's row of `b`.

    Operands: cuts, two words for every row, a, b, starts, columns, results, fault; both matrices of
    `depth` columns lie row after row.
    Columns are gone through `tile` at a time by all rows of a unit, so that the rows of `b` they name
    stay in the second cache: that wants sorted columns; others are done last.
    """
    w = Lanes(_REAL[dtype.itemsize], dtype.itemsize, target.lanes(dtype.itemsize))
    names = ("cuts", "marks", "a", "b", "starts", "columns", "out", "fault")
    rest = f"  %rest = and i64 %depth, {w.width - 1}\n{w.tail_mask()}"
    return f"""target triple = "{target.triple}"
{w.declared()}{ENTRY}{block_head(names, ("width", "total", "depth", "tile"))}\
{rest}{_UNITS}{_marking(index)}tiles:
  %c = phi i64 [ 0, %marking ], [ %c.next, %each ]
  %c.more = icmp ult i64 %c, %width
  br i1 %c.more, label %strip, label %unit.end
strip:
  %c.next = add i64 %c, %tile
  %inner = icmp ult i64 %c.next, %width
  %before = sub i64 %c.next, 1
  %edge = select i1 %inner, i64 %before, i64 -1
  %limit = select i1 %inner, i64 %c.next, i64 %width
  br label %each
each:
  %r = phi i64 [ %first, %strip ], [ %r.next, %ended ]
  %r.more = icmp ult i64 %r, %stop
  br i1 %r.more, label %row, label %tiles
row:
  %r.next = add i64 %r, 1
  %n.skip = mul i64 %r, 2
  %n.p = getelementptr i64, ptr %marks, i64 %n.skip
  %n.from = load i64, ptr %n.p, align 8
  %n.e = getelementptr i64, ptr %n.p, i64 1
  %n.to = load i64, ptr %n.e, align 8
  %a.skip = mul i64 %r, %depth
  %a.row = getelementptr {w.real}, ptr %a, i64 %a.skip
{_fetch(index, w)}  br label %entries
{_products(w, index)}ended:
  store i64 %k, ptr %n.p, align 8
  br label %each
unit.end:
  br label %units
exit:
  ret void
}}
"""
