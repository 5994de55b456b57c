"""Positions of the elements that a mask keeps, as IR.

Knows: units of a mask. Must not know: arrays, how many threads there are, what positions are for.
Receives a target; returns a module with the entry @k.

As the copy of what is kept, it is told where the positions of every unit begin, and writes nowhere else.
"""

from __future__ import annotations

from jitla.codegen.compress_code import (
    BOUNDS,
    LONG,
    MASK_UNIT,
    SPARSE,
    bit_by_bit,
    one_by_one,
    word_of_mask,
)
from jitla.codegen.indexing_code import ENTRY, block_head, over_units

__all__ = ["positions_text"]

_TURN = 8  # elements of a short word of the mask


def positions_text(triple: str) -> str:
    """Return the module that writes where a mask keeps elements, as words of 32 bits.

    Operands: mask, starts, result.
    """
    lanes = f"<{_TURN} x i32>"
    nearest = ", ".join(f"i64 {_nearest(word)}" for word in range(1 << _TURN))
    body = _POSITIONS.format(
        lanes=lanes, turn=_TURN, sparse=SPARSE, long=LONG, word=word_of_mask("lw", "%li"),
        bit=bit_by_bit("%li", _put("b", "%bi", "%bj"), "looks"),
        rest=one_by_one("turns", _put("r", "%ri", "%rj")))
    return f"""target triple = "{triple}"
declare i{_TURN} @llvm.ctpop.i{_TURN}(i{_TURN})
declare i{LONG} @llvm.cttz.i{LONG}(i{LONG}, i1)
@kept = internal constant [{1 << _TURN} x i64] [{nearest}], align 64
{ENTRY}{block_head(("mask", "starts", "out"), ("total",))}{over_units(BOUNDS + body, MASK_UNIT)}"""


def _put(tag: str, i: str, j: str) -> str:
    """Lines that write the position `i` to place `j`."""
    return (f"  %{tag}.low = trunc i64 {i} to i32\n  %{tag}.to = getelementptr i32, ptr %out, i64 {j}\n"
            f"  store i32 %{tag}.low, ptr %{tag}.to, align 4\n")


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
{word}  br label %bits
bits:
  %bw = phi i{long} [ %lw, %look ], [ %bw.next, %bit ]
  %bj = phi i64 [ %lj, %look ], [ %bj.next, %bit ]
{bit}turns:
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
{rest}"""


def _nearest(word: int) -> int:
    """Return the numbers of the bits of `word`, a byte each, the lowest first."""
    return int.from_bytes(bytes(k for k in range(_TURN) if word >> k & 1), "little")
