"""Where the units of a kernel over rows begin, as IR.

Knows: argument blocks, where compressed rows begin. Must not know: what is done with rows.
Receives how what is to do before a place is found; returns the text of @bound, and of other shares.

Units are a fixed number of blocks of rows, unless entries are read: rows of some matrices have a thousand
times as many as others, and then units have about as many entries. Both follow from the operands alone, so
that what is added up over rows does not depend on the threads.
"""

from __future__ import annotations

from jitla.codegen.layout import HEADER

__all__ = ["BOUND", "halved", "unit_begins"]

PER_ROW = 4  # entries that take as long as a row without any


def unit_begins(places: str, label: str, there: str) -> str:
    """Lines, from block `label` on, that return the first of `places` before which unit %u's share is done.

    %from and %to are what is done before the first place and behind the last; the lines `there` find %there,
    what is done before place %middle.
    """
    return f"""\
  %all = sub i64 %to, %from
  %each = udiv i64 %all, %units
  %left = urem i64 %all, %units
  %many = mul i64 %each, %u
  %few = mul i64 %left, %u
  %more = udiv i64 %few, %units
  %before = add i64 %many, %more
  %wanted = add i64 %from, %before
{halved(label, "0", places, "%wanted", there)}"""


def halved(label: str, low: str, high: str, wanted: str, there: str) -> str:
    """Lines, from block `label` on, that return the first place from `low` to `high` not below `wanted`.

    The lines `there` find %there, what place %middle has; no place has less than those before it.
    """
    return f"""\
  br label %half
half:
  %low = phi i64 [ {low}, %{label} ], [ %low.next, %nearer ]
  %high = phi i64 [ {high}, %{label} ], [ %high.next, %nearer ]
  %apart = icmp ult i64 %low, %high
  br i1 %apart, label %nearer, label %found
nearer:
  %sum = add i64 %low, %high
  %middle = lshr i64 %sum, 1
  %after = add i64 %middle, 1
{there}\
  %short = icmp slt i64 %there, {wanted}
  %low.next = select i1 %short, i64 %after, i64 %low
  %high.next = select i1 %short, i64 %high, i64 %middle
  br label %half
found:
  ret i64 %low
"""


_BEFORE_BLOCK = """\
  %row.far = mul i64 %middle, %height
  %row = call i64 @llvm.umin.i64(i64 %row.far, i64 %rows)
  %there = call i64 @weight(ptr %starts, i64 %itemsize, i64 %row)
"""
BOUND = f"""
; What is to do before a row: an entry each, and something for every row.
define internal i64 @weight(ptr %starts, i64 %itemsize, i64 %row) nounwind {{
entry:
  %long = icmp eq i64 %itemsize, 8
  br i1 %long, label %eight, label %four
eight:
  %p8 = getelementptr i64, ptr %starts, i64 %row
  %w8 = load i64, ptr %p8, align 8
  br label %known
four:
  %p4 = getelementptr i32, ptr %starts, i64 %row
  %i4 = load i32, ptr %p4, align 4
  %w4 = sext i32 %i4 to i64
  br label %known
known:
  %entries = phi i64 [ %w8, %eight ], [ %w4, %four ]
  %rows = mul i64 %row, {PER_ROW}
  %all = add i64 %entries, %rows
  ret i64 %all
}}

; The block of rows with which unit %u begins: the same however threads share units. Whatever lies in the
; operand, the first unit begins with the first block, and the last one ends with the last, so that every
; block is some unit's.
define internal i64 @bound(ptr %block, i64 %units, i64 %blocks, i64 %per, i64 %operand, i64 %itemsize,
                           i64 %height, i64 %rows, i64 %u) nounwind {{
entry:
  %even = icmp eq i64 %operand, 0
  %some = icmp ne i64 %u, 0
  %inner = icmp ult i64 %u, %units
  %within = and i1 %some, %inner
  %flat = mul i64 %u, %per
  %flat.end = call i64 @llvm.umin.i64(i64 %flat, i64 %blocks)
  %edge = select i1 %some, i64 %blocks, i64 0
  %known = select i1 %even, i64 %flat.end, i64 %edge
  %uneven = xor i1 %even, true
  %look = and i1 %within, %uneven
  br i1 %look, label %weigh, label %at
at:
  ret i64 %known
weigh:
  %word = add i64 %operand, {HEADER - 1}
  %starts.at = getelementptr i64, ptr %block, i64 %word
  %starts = load ptr, ptr %starts.at, align 8
  %from = call i64 @weight(ptr %starts, i64 %itemsize, i64 0)
  %to = call i64 @weight(ptr %starts, i64 %itemsize, i64 %rows)
{unit_begins("%blocks", "weigh", _BEFORE_BLOCK)}}}
"""
