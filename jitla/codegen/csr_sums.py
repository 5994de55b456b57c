"""Sums of the entries of compressed rows, as IR.

Knows: kinds of elements and indices, NumPy's order of summation. Must not know: arrays, how many threads
there are. Receives dtypes; returns the module with the entry @k.

SciPy has `numpy.add.reduceat` do it: the first entry, to which the sum of all others is added, these in
NumPy's order for a run of elements. Where rows begin is looked at as it is used: what lies outside of the
operands sets the word %fault to 1.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.indexing_code import ENTRY, block_head
from jitla.codegen.stored_code import SHARED, UNITS, bounds_at, shares

__all__ = ["row_sums_text"]

_ABREAST, _LEAF = 8, 128  # running sums, and elements, of a leaf of NumPy's tree
_REAL = {4: "float", 8: "double"}
_NAMES = ("data", "starts", "out", "fault")


def _first() -> str:
    """Return what NumPy's sums of less than eight elements begin with, which differs by its version."""
    minus = np.signbit(np.add.reduceat(np.full(3, -0.0), [0])[0])
    return "-0.0" if minus else "0.0"


def _folded(real: str, half: int, name: str) -> str:
    """Lines that add lanes of %r of `half` pairs to their neighbours; the results are `name`."""
    wide = f"<{2 * half} x {real}>"
    pick = [", ".join(f"i32 {2 * k + odd}" for k in range(half)) for odd in (0, 1)]
    lines = "".join(
        f"  {name}.{side} = shufflevector {wide} %r{2 * half}, {wide} poison, <{half} x i32> <{lanes}>\n"
        for side, lanes in zip("lr", pick, strict=True))
    return lines + f"  {name} = fadd <{half} x {real}> {name}.l, {name}.r\n"


def _pairwise(real: str, size: int) -> str:
    """@pairwise: the sum of `n` elements in NumPy's order."""
    wide = f"<{_ABREAST} x {real}>"
    folds = "".join(_folded(real, half, f"%r{half}") for half in (4, 2, 1))
    return f"""define internal {real} @pairwise(ptr %a, i64 %n) nounwind {{
entry:
  %short = icmp ult i64 %n, {_ABREAST}
  br i1 %short, label %few, label %some
some:
  %leaf = icmp ule i64 %n, {_LEAF}
  br i1 %leaf, label %many, label %tree
many:
  %begun = load {wide}, ptr %a, align {size}
  br label %turns
turns:
  %i = phi i64 [ {_ABREAST}, %many ], [ %i.next, %turn ]
  %r{_ABREAST} = phi {wide} [ %begun, %many ], [ %r.next, %turn ]
  %i.next = add i64 %i, {_ABREAST}
  %more = icmp ule i64 %i.next, %n
  br i1 %more, label %turn, label %fold
turn:
  %p = getelementptr {real}, ptr %a, i64 %i
  %v = load {wide}, ptr %p, align {size}
  %r.next = fadd {wide} %r{_ABREAST}, %v
  br label %turns
fold:
{folds}  %total = extractelement <1 x {real}> %r1, i64 0
  br label %few
few:
  %from = phi i64 [ 0, %entry ], [ %i, %fold ]
  %begin = phi {real} [ {_first()}, %entry ], [ %total, %fold ]
  br label %rest
rest:
  %j = phi i64 [ %from, %few ], [ %j.next, %one ]
  %t = phi {real} [ %begin, %few ], [ %t.next, %one ]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %one, label %done
one:
  %q = getelementptr {real}, ptr %a, i64 %j
  %x = load {real}, ptr %q, align {size}
  %t.next = fadd {real} %t, %x
  %j.next = add i64 %j, 1
  br label %rest
done:
  ret {real} %t
tree:
  %half = lshr i64 %n, 1
  %whole = and i64 %half, {-_ABREAST}
  %other = sub i64 %n, %whole
  %b = getelementptr {real}, ptr %a, i64 %whole
  %low = call {real} @pairwise(ptr %a, i64 %whole)
  %high = call {real} @pairwise(ptr %b, i64 %other)
  %both = fadd {real} %low, %high
  ret {real} %both
}}
"""


def row_sums_text(dtype: np.dtype, index: np.dtype, triple: str) -> str:
    """Return the module that adds up the entries of every row; the sum of none is 0.

    Operands: entries, where rows begin, results, fault; words: `total` entries, and how rows are shared.
    """
    real, size = _REAL[dtype.itemsize], dtype.itemsize
    return f"""target triple = "{triple}"
{shares(index)}{_pairwise(real, size)}{ENTRY}{block_head(_NAMES, ("total", *SHARED))}\
{UNITS}  br label %each
each:
  %i = phi i64 [ %first, %shared ], [ %i.next, %summed ]
  %more = icmp ult i64 %i, %stop
  br i1 %more, label %row, label %unit.end
row:
  %i.next = add i64 %i, 1
{bounds_at(index)}  br i1 %run, label %known, label %broken
broken:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %known
known:
  %n = sub i64 %to, %from
  %some = icmp ne i64 %n, 0
  br i1 %some, label %begun, label %summed
begun:
  %p = getelementptr {real}, ptr %data, i64 %from
  %x = load {real}, ptr %p, align {size}
  %several = icmp ugt i64 %n, 1
  br i1 %several, label %others, label %summed
others:
  %m = sub i64 %n, 1
  %q = getelementptr {real}, ptr %p, i64 1
  %sum = call {real} @pairwise(ptr %q, i64 %m)
  %added = fadd {real} %x, %sum
  br label %summed
summed:
  %result = phi {real} [ 0.0, %known ], [ %x, %begun ], [ %added, %others ]
  %o = getelementptr {real}, ptr %out, i64 %i
  store {real} %result, ptr %o, align {size}
  br label %each
unit.end:
  br label %units
exit:
  ret void
}}
"""
