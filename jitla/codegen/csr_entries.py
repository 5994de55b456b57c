"""Entries of compressed rows, some hundred at a time, as IR: where rows end, which columns are known.

Knows: kinds of elements and indices, vectors. Must not know: what is done with entries.
Receives dtypes and lines; returns lines and functions.

Entries are taken block by block, whole rows of them, or parts of one that has more. Where rows begin is
looked at row by row; columns by vectors, before any is used.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.indexing_code import bits_of, to_word
from jitla.codegen.lanes import Lanes

__all__ = [
    "BLOCK", "GROUP", "TURN", "by_blocks", "by_turns", "column_of", "element_at", "fetched", "in_all_lanes",
    "loaded", "row_start"]

BLOCK = 512  # entries that are looked at, multiplied and added up before the next ones
AHEAD = 512  # entries that are fetched before they are needed, their columns twice as many: these come first
TURN = 16  # entries that are looked at and multiplied at once
GROUP = 16  # entries of a row that are added up at once, whether they are all its own or not
LINE = 64
_TAKES = ("ptr %starts, i64 %rows, ptr %data, ptr %columns, i64 %total, i64 %most, ptr %x, ptr %out, "
          "i64 %depth")


def element_at(name: str, base: str, at: str, kind: str) -> str:
    """Line of the address of an element."""
    return f"  {name} = getelementptr {kind}, ptr {base}, i64 {at}\n"


def row_start(name: str, at: str, index: np.dtype) -> str:
    """Lines of the word %name: where the row number `at` begins."""
    bits = f"i{bits_of(index)}"
    return (element_at(f"%{name}.p", "%starts", at, bits)
            + f"  %{name}.i = load {bits}, ptr %{name}.p, align {index.itemsize}\n"
            + to_word(f"%{name}", f"%{name}.i", index))


def column_of(tag: str, at: str, index: np.dtype) -> str:
    """Lines of the word %c: the column of an entry, which is known to be one."""
    bits = f"i{bits_of(index)}"
    wide = f"  %c{tag} = add i64 %c.i{tag}, 0\n" if index.itemsize == 8 else \
        f"  %c{tag} = zext {bits} %c.i{tag} to i64\n"
    return (element_at(f"%c.p{tag}", "%columns", at, bits)
            + f"  %c.i{tag} = load {bits}, ptr %c.p{tag}, align {index.itemsize}\n" + wide)


def loaded(name: str, base: str, at: str, kind: str, size: int) -> str:
    """Lines that load an element, or a vector of them."""
    return element_at(f"{name}.p", base, at, kind.split()[-1].rstrip(">")) + \
        f"  {name} = load {kind}, ptr {name}.p, align {size}\n"


def fetched(at: str, w: Lanes, index: np.dtype, count: int) -> str:
    """Lines that fetch what comes some entries behind `at`, of as many entries as a turn takes."""
    text = ""
    for name, kind, ahead, size in (("columns", f"i{bits_of(index)}", 2 * AHEAD, index.itemsize),
                                    ("data", w.real, AHEAD, w.size)):
        for k in range(-(-count * size // LINE)):
            text += (element_at(f"%h.{name}.{k}", f"%{name}", f"%h.{name}.{k}.i", kind)
                     + f"  call void @llvm.prefetch.p0(ptr %h.{name}.{k}, i32 0, i32 3, i32 1)\n").replace(
                f"  %h.{name}.{k} =", f"  %h.{name}.{k}.i = add i64 {at}, {ahead + k * LINE // size}\n"
                f"  %h.{name}.{k} =", 1)
    return text


def in_all_lanes(name: str, x: str, w: Lanes) -> str:
    """Lines that put an element in all lanes."""
    return (f"  {name}.0 = insertelement {w.vector} poison, {w.real} {x}, i64 0\n"
            f"  {name} = shufflevector {w.vector} {name}.0, {w.vector} poison, "
            f"<{w.width} x i32> zeroinitializer\n")


def by_blocks(w: Lanes, index: np.dtype, whole: str, part: str, before: str = "") -> str:
    """@rows: `whole` for as many rows as make a block, `part` for a piece of a longer row.

    Rows %r up to %e have the entries %a up to %z; both lines go on to the label next. Pieces of the row
    %r have the entries %p up to %q; they go on to the label part.end. It returns whether all is in order.
    """
    return f"""define internal i1 @rows({_TAKES}) nounwind {{
entry:
  %room = alloca [{BLOCK + GROUP} x {w.real}], align 64
{before}  br label %block
block:
  %r = phi i64 [ 0, %entry ], [ %e, %next ], [ %r.after, %long.end ]
  %more = icmp ult i64 %r, %rows
  br i1 %more, label %take, label %done
take:
  %r.after = add i64 %r, 1
{row_start("a", "%r", index)}  br label %scan
scan:
  %e = phi i64 [ %r, %take ], [ %e.next, %look ]
  %z = phi i64 [ %a, %take ], [ %z.next, %look ]
  %inside = icmp ult i64 %e, %rows
  br i1 %inside, label %look, label %got
look:
  %e.next = add i64 %e, 1
{row_start("z.next", "%e.next", index)}  %up = icmp ule i64 %z, %z.next
  %near = icmp ule i64 %z.next, %total
  %right = and i1 %up, %near
  %span = sub i64 %z.next, %a
  %fits = icmp ule i64 %span, {BLOCK}
  %goes = and i1 %right, %fits
  br i1 %goes, label %scan, label %full
full:
  br i1 %right, label %got, label %lost
got:
  %none = icmp eq i64 %e, %r
  br i1 %none, label %long, label %go
go:
{whole}next:
  br label %block
long:
{row_start("last", "%r.after", index)}  br label %parts
parts:
  %p = phi i64 [ %a, %long ], [ %q, %part.end ]
@CARRIED@  %p.more = icmp ult i64 %p, %last
  br i1 %p.more, label %part, label %ended
part:
  %p.far = add i64 %p, {BLOCK}
  %p.over = icmp ult i64 %p.far, %last
  %q = select i1 %p.over, i64 %p.far, i64 %last
{part}part.end:
  br label %parts
ended:
@ENDED@  br label %long.end
long.end:
  br label %block
done:
  ret i1 true
lost:
  ret i1 false
}}
"""


def by_turns(head: str, width: int, turn: str, one: str, index: np.dtype) -> str:
    """Return a function of the entries %from to %to: `turn` for `width` of them from %i on, `one` for %j.

    It ends with false as soon as a column is none, before it is used.
    """
    kind = f"i{bits_of(index)}"
    many = f"<{width} x {kind}>"
    narrow = "add i64 %most, 0" if index.itemsize == 8 else f"trunc i64 %most to {kind}"
    return f"""define internal i1 {head} nounwind {{
entry:
  %edge = {narrow}
  %edge.0 = insertelement {many} poison, {kind} %edge, i64 0
  %edges = shufflevector {many} %edge.0, {many} poison, <{width} x i32> zeroinitializer
  br label %turns
turns:
  %i = phi i64 [ %from, %entry ], [ %i.next, %turn ]
  %i.next = add i64 %i, {width}
  %i.more = icmp ule i64 %i.next, %to
  br i1 %i.more, label %look, label %rest
look:
{loaded("%all", "%columns", "%i", many, index.itemsize)}  %in = icmp ult {many} %all, %edges
  %in.bits = bitcast <{width} x i1> %in to i{width}
  %in.all = icmp eq i{width} %in.bits, -1
  br i1 %in.all, label %turn, label %lost
turn:
{turn}  br label %turns
rest:
  %j = phi i64 [ %i, %turns ], [ %j.next, %one ]
  %j.more = icmp ult i64 %j, %to
  br i1 %j.more, label %single, label %done
single:
  %j.next = add i64 %j, 1
{column_of("", "%j", index)}  %known = icmp ult i64 %c, %most
  br i1 %known, label %one, label %lost
one:
{one}  br label %rest
done:
  ret i1 true
lost:
  ret i1 false
}}
"""
