"""Elements or rows of a table that indices name, as IR.

Knows: sizes of elements, kinds of indices. Must not know: arrays, how many threads there are.
Receives sizes and dtypes; returns a module with the entry @k.

A block of indices is looked at before it is used: where none is negative or beyond the end, elements
are copied without another look. Operands: table, indices, result, and a word that is set to 1 where an
index names nothing.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.indexing_code import (
    BLOCK_OF_INDICES,
    ENTRY,
    bits_of,
    block_head,
    smaller,
    to_word,
    within,
)

__all__ = ["TAKE_UNIT", "places_text", "take_rows_text", "take_text"]

TAKE_UNIT = 16 * BLOCK_OF_INDICES  # indices of one unit
_RANGE = "i64 %from, i64 %to"
_FAST = f"define internal void @fast(ptr %table, ptr %index, ptr %out, {_RANGE}, i64 %size) nounwind"
_SLOW = ("define internal i1 @slow(ptr %table, ptr %index, ptr %out, "
         f"{_RANGE}, i64 %length, i64 %size) nounwind")
_TURN = 8  # elements of one turn of the loop


def _blocks(fast: str, slow: str, declared: str, triple: str) -> str:
    """Return the module: @fast and @slow do blocks of indices, of the second kind some are checked."""
    head = block_head(("table", "index", "out", "bad"), ("length", "most", "total", "size"))
    return f"""target triple = "{triple}"
{declared}{fast}{slow}{ENTRY}{head}\
  %first = mul i64 %begin, {TAKE_UNIT}
  %far = mul i64 %end, {TAKE_UNIT}
{smaller("%last", "%far", "%total")}\
  br label %blocks
blocks:
  %i = phi i64 [ %first, %entry ], [ %to, %fast ], [ %to, %good ]
  %more = icmp ult i64 %i, %last
  br i1 %more, label %look, label %exit
look:
  %ahead = add i64 %i, {BLOCK_OF_INDICES}
{smaller("%to", "%ahead", "%last")}\
  %within = call i1 @within(ptr %index, i64 %i, i64 %to, i64 %most)
  br i1 %within, label %fast, label %slow
fast:
  call void @fast(ptr %table, ptr %index, ptr %out, i64 %i, i64 %to, i64 %size)
  br label %blocks
slow:
  %named = call i1 @slow(ptr %table, ptr %index, ptr %out, i64 %i, i64 %to, i64 %length, i64 %size)
  br i1 %named, label %good, label %fault
good:
  br label %blocks
fault:
  store atomic i64 1, ptr %bad monotonic, align 8
  br label %exit
exit:
  ret void
}}
"""


def take_text(itemsize: int, index: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module for elements of `itemsize` bytes: a power of two, at most 16."""
    kind, element, align = f"i{bits_of(index)}", f"i{8 * itemsize}", min(itemsize, 8)
    turn = "".join(
        f"  %at{u} = add i64 %i, {u}\n{_one(f'{u}', f'%at{u}', kind, element, align, index)}"
        for u in range(_TURN))
    fast = f"""{_FAST} {{
entry:
  br label %turns
turns:
  %i = phi i64 [ %from, %entry ], [ %i.next, %turn ]
  %i.next = add i64 %i, {_TURN}
  %more = icmp ule i64 %i.next, %to
  br i1 %more, label %turn, label %rest
turn:
{turn}  br label %turns
rest:
  %j = phi i64 [ %i, %turns ], [ %j.next, %single ]
  %left = icmp ult i64 %j, %to
  br i1 %left, label %single, label %done
single:
{_one("s", "%j", kind, element, align, index)}  %j.next = add i64 %j, 1
  br label %rest
done:
  ret void
}}
"""
    copy = f"""  %p = getelementptr {element}, ptr %table, i64 %place
  %x = load {element}, ptr %p, align {align}
  %q = getelementptr {element}, ptr %out, i64 %i
  store {element} %x, ptr %q, align {align}
"""
    return _blocks(fast, _slow(index, copy), within(index, vector_bytes), triple)


def _one(tag: str, at: str, kind: str, element: str, align: int, index: np.dtype) -> str:
    return (f"  %n{tag} = getelementptr {kind}, ptr %index, i64 {at}\n"
            f"  %k{tag} = load {kind}, ptr %n{tag}, align {index.itemsize}\n"
            # below the bound there is no sign
            + (f"  %w{tag} = add i64 %k{tag}, 0\n" if index.itemsize == 8 else
               f"  %w{tag} = zext {kind} %k{tag} to i64\n") +
            f"  %p{tag} = getelementptr {element}, ptr %table, i64 %w{tag}\n"
            f"  %x{tag} = load {element}, ptr %p{tag}, align {align}\n"
            f"  %q{tag} = getelementptr {element}, ptr %out, i64 {at}\n"
            f"  store {element} %x{tag}, ptr %q{tag}, align {align}\n")


def _slow(index: np.dtype, copy: str) -> str:
    """@slow: indices count from the end where they are negative; 0 as soon as one names nothing."""
    kind = f"i{bits_of(index)}"
    return f"""{_SLOW} {{
entry:
  br label %each
each:
  %i = phi i64 [ %from, %entry ], [ %i.next, %found ]
  %more = icmp ult i64 %i, %to
  br i1 %more, label %one, label %done
one:
  %n = getelementptr {kind}, ptr %index, i64 %i
  %k = load {kind}, ptr %n, align {index.itemsize}
{to_word("%w", "%k", index)}\
  %negative = icmp slt i64 %w, 0
  %turned = add i64 %w, %length
  %place = select i1 %negative, i64 %turned, i64 %w
  %known = icmp ult i64 %place, %length
  br i1 %known, label %found, label %lost
found:
{copy}\
  %i.next = add i64 %i, 1
  br label %each
done:
  ret i1 true
lost:
  ret i1 false
}}
"""


def take_rows_text(index: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module for rows of any number of bytes."""
    copy = """  %skip = mul i64 %place, %size
  %p = getelementptr i8, ptr %table, i64 %skip
  %into = mul i64 %i, %size
  %q = getelementptr i8, ptr %out, i64 %into
  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %q, ptr align 1 %p, i64 %size, i1 false)
"""
    # without a second look
    slow = _slow(index, copy)
    fast = f"""{_FAST} {{
entry:
  %all = call i1 @slow(ptr %table, ptr %index, ptr %out, i64 %from, i64 %to, i64 -1, i64 %size)
  ret void
}}
"""
    declared = within(index, vector_bytes) + "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
    return _blocks(fast, slow, declared, triple)


def places_text(index: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module that writes which elements of the table are meant, from 0 on, as 32 bits."""
    kind, lanes = f"i{bits_of(index)}", 2 * vector_bytes // index.itemsize
    given, made = f"<{lanes} x {kind}>", f"<{lanes} x i32>"

    def narrowed(name: str, x: str, of: str, to: str) -> str:
        step = {8: "trunc", 4: "bitcast"}.get(index.itemsize, "zext")
        return f"  {name} = {step} {of} {x} to {to}\n"

    fast = f"""{_FAST} {{
entry:
  br label %vectors
vectors:
  %i = phi i64 [ %from, %entry ], [ %i.next, %vector ]
  %i.next = add i64 %i, {lanes}
  %more = icmp ule i64 %i.next, %to
  br i1 %more, label %vector, label %rest
vector:
  %p = getelementptr {kind}, ptr %index, i64 %i
  %x = load {given}, ptr %p, align {index.itemsize}
{narrowed("%y", "%x", given, made)}\
  %q = getelementptr i32, ptr %out, i64 %i
  store {made} %y, ptr %q, align 4
  br label %vectors
rest:
  %j = phi i64 [ %i, %vectors ], [ %j.next, %single ]
  %left = icmp ult i64 %j, %to
  br i1 %left, label %single, label %done
single:
  %ps = getelementptr {kind}, ptr %index, i64 %j
  %xs = load {kind}, ptr %ps, align {index.itemsize}
{narrowed("%ys", "%xs", kind, "i32")}\
  %qs = getelementptr i32, ptr %out, i64 %j
  store i32 %ys, ptr %qs, align 4
  %j.next = add i64 %j, 1
  br label %rest
done:
  ret void
}}
"""
    copy = """  %near = trunc i64 %place to i32
  %q = getelementptr i32, ptr %out, i64 %i
  store i32 %near, ptr %q, align 4
"""
    return _blocks(fast, _slow(index, copy), within(index, vector_bytes), triple)
