"""Running sums down the columns of a matrix, as IR.

Knows: NumPy's order, row after row. Must not know: arrays, how many threads there are.
Receives a dtype; returns a module with the entry @k.

Every row is the row before, as it was stored, and what is read: so sums are those of NumPy, which goes
down one column after the other, and reads and writes a line of memory for every element.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.indexing_code import ENTRY, block_head, smaller
from jitla.codegen.vector import element_type

__all__ = ["running_text"]

_AT_ONCE = 2  # vectors of one turn
_FIRST = """  %bytes = mul i64 %n, {size}
  call void @llvm.memcpy.p0.p0.i64(ptr align {size} %there, ptr align {size} %here, i64 %bytes, i1 false)
"""


def _odd(kind: str, size: int, add: str) -> str:
    """Lines from label rest: elements of a row that are no whole vectors."""
    return f"""rest:
  %j = phi i64 [ %i, %vectors ], [ %j.next, %one ]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %one, label %joined
one:
  %op = getelementptr {kind}, ptr %from, i64 %j
  %oq = getelementptr {kind}, ptr %above, i64 %j
  %ot = getelementptr {kind}, ptr %to, i64 %j
  %o = load {kind}, ptr %op, align {size}
  %u = load {kind}, ptr %oq, align {size}
  %t = {add} {kind} %u, %o
  store {kind} %t, ptr %ot, align {size}
  %j.next = add i64 %j, 1
  br label %rest
"""


def running_text(dtype: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module for `dtype`; operands: a matrix, the result; rows, columns, those of a unit."""
    kind, size = element_type(dtype), dtype.itemsize
    lanes = _AT_ONCE * vector_bytes // size
    vector, add = f"<{lanes} x {kind}>", "fadd" if dtype.kind == "f" else "add"
    return f"""target triple = "{triple}"
{ENTRY}{block_head(("x", "out"), ("rows", "columns", "each"))}\
  %first = mul i64 %begin, %each
  %far = mul i64 %end, %each
{smaller("%last", "%far", "%columns")}\
  %n = sub i64 %last, %first
  %part = urem i64 %n, {lanes}
  %whole = sub i64 %n, %part
  %here = getelementptr {kind}, ptr %x, i64 %first
  %there = getelementptr {kind}, ptr %out, i64 %first
{_FIRST.format(size=size)}\
  br label %down
down:
  %r = phi i64 [ 1, %entry ], [ %r.next, %joined ]
  %above = phi ptr [ %there, %entry ], [ %to, %joined ]
  %before = phi ptr [ %here, %entry ], [ %from, %joined ]
  %more = icmp ult i64 %r, %rows
  br i1 %more, label %row, label %exit
row:
  %to = getelementptr {kind}, ptr %above, i64 %columns
  %from = getelementptr {kind}, ptr %before, i64 %columns
  br label %vectors
vectors:
  %i = phi i64 [ 0, %row ], [ %i.next, %vector ]
  %wide = icmp ult i64 %i, %whole
  br i1 %wide, label %vector, label %rest
vector:
  %vp = getelementptr {kind}, ptr %from, i64 %i
  %vq = getelementptr {kind}, ptr %above, i64 %i
  %vt = getelementptr {kind}, ptr %to, i64 %i
  %v = load {vector}, ptr %vp, align {size}
  %w = load {vector}, ptr %vq, align {size}
  %s = {add} {vector} %w, %v
  store {vector} %s, ptr %vt, align {size}
  %i.next = add i64 %i, {lanes}
  br label %vectors
{_odd(kind, size, add)}joined:
  %r.next = add i64 %r, 1
  br label %down
exit:
  ret void
}}
"""
