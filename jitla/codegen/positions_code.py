"""Positions of the elements that a mask keeps, as IR.

Knows: units of a mask. Must not know: arrays, how many threads there are, what positions are for.
Receives a target; returns a module with the entry @k.

As the copy of what is kept, it is told where the positions of every unit begin, and writes nowhere else.
"""

from __future__ import annotations

from jitla.codegen.compress_code import BOUNDS, MASK_UNIT, SPARSE
from jitla.codegen.indexing_code import ENTRY, block_head, over_units

__all__ = ["positions_text"]

_TURN = 8  # elements of a short word of the mask
_LONG = 64  # of a long one


def positions_text(triple: str) -> str:
    """Return the module that writes where a mask keeps elements, as words of 32 bits.

    Operands: mask, starts, result.
    """
    lanes = f"<{_TURN} x i32>"
    nearest = ", ".join(f"i64 {_nearest(word)}" for word in range(1 << _TURN))
    body = _POSITIONS.format(lanes=lanes, turn=_TURN, sparse=SPARSE, long=_LONG)
    return f"""target triple = "{triple}"
declare i{_TURN} @llvm.ctpop.i{_TURN}(i{_TURN})
declare i{_LONG} @llvm.cttz.i{_LONG}(i{_LONG}, i1)
@kept = internal constant [{1 << _TURN} x i64] [{nearest}], align 64
{ENTRY}{block_head(("mask", "starts", "out"), ("total",))}{over_units(BOUNDS + body, MASK_UNIT)}"""


# Where little is kept, long words of the mask are taken apart bit by bit; else the numbers of the bits of
# short ones are looked up. A place is written only if it is one of the unit's.
_POSITIONS = """  %kept = sub i64 %ended, %begun
  %length = sub i64 %to, %from
  %dozens = mul i64 %kept, {sparse}
  %sparse = icmp ult i64 %dozens, %length
  br i1 %sparse, label %looks, label %turns
looks:
  %li = phi i64 [ %from, %unit ], [ %li.next, %bits ]
  %lj = phi i64 [ %begun, %unit ], [ %bj, %bits ]
  %li.next = add i64 %li, {long}
  %l.more = icmp ule i64 %li.next, %to
  br i1 %l.more, label %look, label %turns
look:
  %lp = getelementptr i8, ptr %mask, i64 %li
  %lx = load <{long} x i8>, ptr %lp, align 1
  %lt = icmp ne <{long} x i8> %lx, zeroinitializer
  %lw = bitcast <{long} x i1> %lt to i{long}
  br label %bits
bits:
  %bw = phi i{long} [ %lw, %look ], [ %bw.next, %bit ]
  %bj = phi i64 [ %lj, %look ], [ %bj.next, %bit ]
  %b.any = icmp ne i{long} %bw, 0
  %b.room = icmp ult i64 %bj, %ended
  %b.more = and i1 %b.any, %b.room
  br i1 %b.more, label %bit, label %looks
bit:
  %bn = call i{long} @llvm.cttz.i{long}(i{long} %bw, i1 true)
  %bi = add i64 %li, %bn
  %bi.low = trunc i64 %bi to i32
  %bo = getelementptr i32, ptr %out, i64 %bj
  store i32 %bi.low, ptr %bo, align 4
  %bj.next = add i64 %bj, 1
  %bw.less = sub i{long} %bw, 1
  %bw.next = and i{long} %bw, %bw.less
  br label %bits
turns:
  %i = phi i64 [ %from, %unit ], [ %li, %looks ], [ %i.next, %turn ]
  %j = phi i64 [ %begun, %unit ], [ %lj, %looks ], [ %j.next, %turn ]
  %i.next = add i64 %i, {turn}
  %j.far = add i64 %j, {turn}
  %i.more = icmp ule i64 %i.next, %to
  %j.more = icmp ule i64 %j.far, %ended
  %more = and i1 %i.more, %j.more
  br i1 %more, label %turn, label %rest
turn:
  %p = getelementptr i8, ptr %mask, i64 %i
  %bytes = load <{turn} x i8>, ptr %p, align 1
  %bits.of = icmp ne <{turn} x i8> %bytes, zeroinitializer
  %word = bitcast <{turn} x i1> %bits.of to i{turn}
  %wide = zext i{turn} %word to i64
  %row = getelementptr i64, ptr @kept, i64 %wide
  %few = load <{turn} x i8>, ptr %row, align 8
  %near = zext <{turn} x i8> %few to {lanes}
  %low = trunc i64 %i to i32
  %first = insertelement {lanes} poison, i32 %low, i64 0
  %base = shufflevector {lanes} %first, {lanes} poison, {lanes} zeroinitializer
  %there = add {lanes} %base, %near
  %q = getelementptr i32, ptr %out, i64 %j
  store {lanes} %there, ptr %q, align 4
  %count = call i{turn} @llvm.ctpop.i{turn}(i{turn} %word)
  %step = zext i{turn} %count to i64
  %j.next = add i64 %j, %step
  br label %turns
rest:
  %ri = phi i64 [ %i, %turns ], [ %ri.next, %next ]
  %rj = phi i64 [ %j, %turns ], [ %rj.next, %next ]
  %ri.more = icmp ult i64 %ri, %to
  %rj.more = icmp ult i64 %rj, %ended
  %r.more = and i1 %ri.more, %rj.more
  br i1 %r.more, label %one, label %run
one:
  %m = getelementptr i8, ptr %mask, i64 %ri
  %b = load i8, ptr %m, align 1
  %t = icmp ne i8 %b, 0
  br i1 %t, label %copy, label %next
copy:
  %here = trunc i64 %ri to i32
  %o = getelementptr i32, ptr %out, i64 %rj
  store i32 %here, ptr %o, align 4
  br label %next
next:
  %w = zext i1 %t to i64
  %rj.next = add i64 %rj, %w
  %ri.next = add i64 %ri, 1
  br label %rest
"""


def _nearest(word: int) -> int:
    """Return the numbers of the bits of `word`, a byte each, the lowest first."""
    return int.from_bytes(bytes(k for k in range(_TURN) if word >> k & 1), "little")
