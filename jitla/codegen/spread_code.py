"""Values added where indices say, each element's in the order of the array, as IR.

Knows: kinds of indices and values. Must not know: arrays, how many threads there are.
Receives dtypes; returns a module with the entry @k.

A unit is a range of the target: it picks, a block of indices at a time, those that fall into it. So
threads do not meet, the order of sums is that of one loop, and a range stays in a thread's cache. One
unit alone takes all. A word is set to 1 where an index names nothing; the target is then of no use.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.indexing_code import ENTRY, bits_of, block_head, smaller, to_word, within
from jitla.codegen.vector import element_type

__all__ = ["spread_text"]

_BLOCK = 512  # indices, and copies of what is picked of them and of their values: all stay in the first cache
_TURN = 4


def spread_text(
    index: np.dtype, target: np.dtype, value: np.dtype, single: bool, wraps: bool, triple: str,
    vector_bytes: int,
) -> str:
    """Return the module that adds values, or a `single` one, of dtype `value` to elements of `target`.

    If it `wraps`, negative indices count from the end. Operands: target, indices, values, fault.
    """
    kind, size = element_type(value), value.itemsize
    adds = _loop(_add(target, value, single), "", "  ret void\n", kind, single)
    picks = _loop(_pick(kind, size, single), "%c", "  ret i64 %c\n", kind, single)
    wide = index.itemsize == 8
    near = "" if wide else "  call void @widen(ptr %index.at, ptr %words, i64 %n)\n"
    return _MODULE.format(
        triple=triple, within=within(index, vector_bytes), entry=ENTRY, block=_BLOCK, kind=kind, size=size,
        head=block_head(
            ("target", "index", "values", "fault"), ("total", "range", "length", "most", "ranges")),
        smaller=smaller("%end.at", "%far", "%length"), nearer=smaller("%to", "%ahead", "%total"),
        index=f"i{bits_of(index)}", element=element_type(target), adds=adds, picks=picks, near=near,
        where="%index.at" if wide else "%words", source="%values" if single else "%kept",
        stride=0 if single else 1, **_widening(index, wraps))


def _widening(index: np.dtype, wraps: bool) -> dict[str, str]:
    """Functions that write a block of indices as words: known to be in bounds, and not."""
    kind = f"i{bits_of(index)}"
    load = (f"  %p = getelementptr {kind}, ptr %index, i64 %i\n"
            f"  %x = load {kind}, ptr %p, align {index.itemsize}\n")
    extend = "  %w = add i64 %x, 0\n" if index.itemsize == 8 else f"  %w = zext {kind} %x to i64\n"
    turn = """  %minus = icmp slt i64 %v, 0
  %turned = add i64 %v, %length
  %w = select i1 %minus, i64 %turned, i64 %v
"""
    return {"load": load, "extend": extend,
            "wrap": to_word("%v", "%x", index) + (turn if wraps else "  %w = add i64 %v, 0\n")}


def _add(target: np.dtype, value: np.dtype, single: bool) -> str:
    """Lines that add element @i to what its word names."""
    to, of, size = element_type(target), element_type(value), target.itemsize
    add = "fadd" if target.kind == "f" else "add"
    step = "fpext" if to != of else "bitcast"
    load = "" if single else (f"  %h@t = getelementptr {of}, ptr %values, i64 @i\n"
                              f"  %g@t = load {of}, ptr %h@t, align {value.itemsize}\n")
    given = "%only" if single else "%g@t"
    return f"""  %n@t = getelementptr i64, ptr %places, i64 @i
  %w@t = load i64, ptr %n@t, align 8
{load}  %v@t = {step} {of} {given} to {to}
  %p@t = getelementptr {to}, ptr %target, i64 %w@t
  %x@t = load {to}, ptr %p@t, align {size}
  %y@t = {add} {to} %x@t, %v@t
  store {to} %y@t, ptr %p@t, align {size}
"""


def _pick(kind: str, size: int, single: bool) -> str:
    """Lines that copy element @i and its word to place @c, and move on if it is in the range."""
    copy = "" if single else f"""  %h@t = getelementptr {kind}, ptr %values, i64 @i
  %g@t = load {kind}, ptr %h@t, align {size}
  %k@t = getelementptr {kind}, ptr %kept, i64 @c
  store {kind} %g@t, ptr %k@t, align {size}
"""
    return f"""  %n@t = getelementptr i64, ptr %places, i64 @i
  %w@t = load i64, ptr %n@t, align 8
  %z@t = sub i64 %w@t, %from
  %q@t = getelementptr i64, ptr %picked, i64 @c
  store i64 %z@t, ptr %q@t, align 8
{copy}  %in@t = icmp ult i64 %z@t, %width
  %one@t = zext i1 %in@t to i64
  %c@t = add i64 @c, %one@t
"""


def _loop(step: str, carried: str, end: str, kind: str, single: bool) -> str:
    """Lines of a function's body: `step` for elements 0 to %n, with a count `carried` if it has one."""
    def one(tag: str, at: str, count: str) -> str:
        return step.replace("@t", tag).replace("@i", at).replace("@c", count)

    turn, count = "", "%c"
    for k in range(_TURN):
        turn += (f"  %i{k} = add i64 %i, {k}\n" if k else "") + one(f"{k}", f"%i{k}" if k else "%i", count)
        count = f"%c{k}"
    counts = ("", "") if not carried else (
        f"  %c.t = phi i64 [ 0, %entry ], [ {count}, %turn ]\n",
        "  %c = phi i64 [ %c.t, %turns ], [ %cs, %one ]\n")
    turn = turn.replace("i64 %c\n", "i64 %c.t\n").replace("i64 %c,", "i64 %c.t,")
    only = f"  %only = load {kind}, ptr %values, align 1\n" if single and not carried else ""
    return f"""entry:
{only}  br label %turns
turns:
  %i = phi i64 [ 0, %entry ], [ %i.next, %turn ]
{counts[0]}  %i.next = add i64 %i, {_TURN}
  %more = icmp ule i64 %i.next, %n
  br i1 %more, label %turn, label %rest
turn:
{turn}  br label %turns
rest:
  %j = phi i64 [ %i, %turns ], [ %j.next, %one ]
{counts[1]}  %left = icmp ult i64 %j, %n
  br i1 %left, label %one, label %done
one:
{one("s", "%j", "%c")}  %j.next = add i64 %j, 1
  br label %rest
done:
{end}}}
"""


_MODULE = """target triple = "{triple}"
{within}define internal void @adds(ptr %target, ptr %places, ptr %values, i64 %n) nounwind {{
{adds}
define internal i64 @picks(ptr %places, ptr %values, i64 %n, i64 %from, i64 %width, ptr %picked, ptr %kept)
    nounwind {{
{picks}
define internal void @widen(ptr %index, ptr %places, i64 %n) nounwind {{
entry:
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %one ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %done
one:
{load}{extend}  %q = getelementptr i64, ptr %places, i64 %i
  store i64 %w, ptr %q, align 8
  %i.next = add i64 %i, 1
  br label %each
done:
  ret void
}}
define internal i1 @wrap(ptr %index, ptr %places, i64 %n, i64 %length) nounwind {{
entry:
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %known ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %done
one:
{load}{wrap}  %ok = icmp ult i64 %w, %length
  br i1 %ok, label %known, label %lost
known:
  %q = getelementptr i64, ptr %places, i64 %i
  store i64 %w, ptr %q, align 8
  %i.next = add i64 %i, 1
  br label %each
done:
  ret i1 true
lost:
  ret i1 false
}}
{entry}  %words = alloca [{block} x i64], align 64
  %picked = alloca [{block} x i64], align 64
  %kept = alloca [{block} x {kind}], align 64
{head}  %whole = icmp eq i64 %ranges, 1
  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %blocks ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %from = mul i64 %u, %range
  %far = mul i64 %u.next, %range
{smaller}  %width = sub i64 %end.at, %from
  %part = getelementptr {element}, ptr %target, i64 %from
  br label %blocks
blocks:
  %i = phi i64 [ 0, %unit ], [ %to, %all ], [ %to, %some ]
  %more = icmp ult i64 %i, %total
  br i1 %more, label %look, label %units
look:
  %ahead = add i64 %i, {block}
{nearer}  %n = sub i64 %to, %i
  %index.at = getelementptr {index}, ptr %index, i64 %i
  %values.i = mul i64 %i, {stride}
  %values.at = getelementptr {kind}, ptr %values, i64 %values.i
  %within = call i1 @within(ptr %index, i64 %i, i64 %to, i64 %most)
  br i1 %within, label %near, label %other
near:
{near}  br label %ready
other:
  %known = call i1 @wrap(ptr %index.at, ptr %words, i64 %n, i64 %length)
  br i1 %known, label %ready, label %lost
ready:
  %places = phi ptr [ {where}, %near ], [ %words, %other ]
  br i1 %whole, label %all, label %some
all:
  call void @adds(ptr %part, ptr %places, ptr %values.at, i64 %n)
  br label %blocks
some:
  %count = call i64 @picks(ptr %places, ptr %values.at, i64 %n, i64 %from, i64 %width, ptr %picked, ptr %kept)
  call void @adds(ptr %part, ptr %picked, ptr {source}, i64 %count)
  br label %blocks
lost:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %exit
exit:
  ret void
}}
"""
