"""What is done at the stored positions of a matrix of compressed rows, as IR.

Knows: kinds of elements and indices. Must not know: arrays, how many threads there are.
Receives dtypes; returns modules with the entry @k. The first operand says where the rows of each unit
begin, and where the last ones end.

Where rows begin and the columns of entries are looked at as they are used: what lies outside of the
operands sets the word %fault to 1 and is passed over.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.indexing_code import ENTRY, bits_of, block_head, to_word
from jitla.codegen.lanes import Lanes
from jitla.codegen.layout import Target

__all__ = ["REAL", "UNITS", "bounds_at", "csr_product_text", "entries_text", "index_at", "vector_at"]

_PRODUCT = ("cuts", "data", "columns", "starts", "x", "out", "fault")
REAL = {4: "float", 8: "double"}


def index_at(name: str, base: str, at: str, kind: np.dtype) -> str:
    """Lines that load an index as the word `name`."""
    bits = f"i{bits_of(kind)}"
    return (f"  {name}.p = getelementptr {bits}, ptr {base}, i64 {at}\n"
            f"  {name}.k = load {bits}, ptr {name}.p, align {kind.itemsize}\n"
            + to_word(name, f"{name}.k", kind))


def bounds_at(kind: np.dtype) -> str:
    """Lines that load where the entries of row %i begin and end, %from and %to; none if that is no run."""
    return f"""{index_at("%given", "%starts", "%i", kind)}  %after = add i64 %i, 1
{index_at("%last", "%starts", "%after", kind)}\
  %ordered = icmp ule i64 %given, %last
  %inside = icmp ule i64 %last, %total
  %run = and i1 %ordered, %inside
  %to = select i1 %run, i64 %last, i64 0
  %from = select i1 %run, i64 %given, i64 0
"""


UNITS = """  br label %units
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
    place = "" if form == "row" else f"""{index_at("%column", "%columns", "%k", index)}\
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
{UNITS}  br label %each
each:
  %i = phi i64 [ %first, %unit ], [ %i.next, %entries ]
  %more = icmp ult i64 %i, %stop
  br i1 %more, label %row, label %unit.end
row:
  %i.next = add i64 %i, 1
  %below = mul i64 %i, %down
  %line = getelementptr i8, ptr %x, i64 %below
{bounds_at(index)}  br i1 %run, label %entries, label %broken
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


def vector_at(w: Lanes, name: str, base: str, at: str) -> str:
    """Lines that load the vector at element `at`."""
    return (f"  {name}.p = getelementptr {w.real}, ptr {base}, i64 {at}\n"
            f"  {name} = load {w.vector}, ptr {name}.p, align {w.size}\n")


def csr_product_text(dtype: np.dtype, index: np.dtype, target: Target) -> str:
    """Return the module that multiplies rows with a matrix of `depth` columns, which lies row after row.

    Operands: cuts, entries, columns, starts, the matrix, results, fault. Results are zeros; every entry adds
    to a row of them.
    """
    w = Lanes(REAL[dtype.itemsize], dtype.itemsize, target.lanes(dtype.itemsize))
    return f"""target triple = "{target.triple}"
{ENTRY}{block_head(_PRODUCT, ("width", "total", "depth"))}{UNITS}  br label %each
each:
  %i = phi i64 [ %first, %unit ], [ %after, %entries ]
  %more = icmp ult i64 %i, %stop
  br i1 %more, label %row, label %unit.end
row:
  %o.skip = mul i64 %i, %depth
  %o = getelementptr {w.real}, ptr %out, i64 %o.skip
{bounds_at(index)}  br i1 %run, label %entries, label %broken
broken:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %entries
entries:
  %k = phi i64 [ %from, %row ], [ %from, %broken ], [ %k.next, %rest ], [ %k.next, %lost ]
  %left = icmp ult i64 %k, %to
  br i1 %left, label %one, label %each
one:
  %k.next = add i64 %k, 1
{index_at("%column", "%columns", "%k", index)}  %known = icmp ult i64 %column, %width
  br i1 %known, label %found, label %lost
found:
{_scalar("%e", "%data", "%k", dtype)}\
  %e.0 = insertelement {w.vector} poison, {w.real} %e, i64 0
  %e.v = shufflevector {w.vector} %e.0, {w.vector} poison, <{w.width} x i32> zeroinitializer
  %x.skip = mul i64 %column, %depth
  %x.row = getelementptr {w.real}, ptr %x, i64 %x.skip
  br label %vectors
vectors:
  %j = phi i64 [ 0, %found ], [ %j.next, %vector ]
  %j.next = add i64 %j, {w.width}
  %some = icmp ule i64 %j.next, %depth
  br i1 %some, label %vector, label %rest
vector:
{vector_at(w, "%xv", "%x.row", "%j")}{vector_at(w, "%ov", "%o", "%j")}\
  %ev = fmul {w.vector} %xv, %e.v
  %sv = fadd {w.vector} %ov, %ev
  store {w.vector} %sv, ptr %ov.p, align {w.size}
  br label %vectors
{_odd_columns(w, dtype)}lost:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %entries
unit.end:
  br label %units
exit:
  ret void
}}
"""


def _odd_columns(w: Lanes, dtype: np.dtype) -> str:
    """Lines from label rest: columns that are no whole vector."""
    return f"""rest:
  %l = phi i64 [ %j, %vectors ], [ %l.next, %single ]
  %few = icmp ult i64 %l, %depth
  br i1 %few, label %single, label %entries
single:
{_scalar("%xl", "%x.row", "%l", dtype)}{_scalar("%ol", "%o", "%l", dtype)}\
  %el = fmul {w.real} %xl, %e
  %sl = fadd {w.real} %ol, %el
  store {w.real} %sl, ptr %ol.p, align {w.size}
  %l.next = add i64 %l, 1
  br label %rest
"""


def _scalar(name: str, base: str, at: str, dtype: np.dtype) -> str:
    """Lines that load one element."""
    real = REAL[dtype.itemsize]
    return (f"  {name}.p = getelementptr {real}, ptr {base}, i64 {at}\n"
            f"  {name} = load {real}, ptr {name}.p, align {dtype.itemsize}\n")
