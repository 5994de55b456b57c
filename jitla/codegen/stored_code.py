"""What is done at the stored positions of a matrix of compressed rows, as IR.

Knows: kinds of elements and indices. Must not know: arrays, how many threads there are.
Receives dtypes; returns modules with the entry @k. Rows are shared out among units by their entries.

Where rows begin and the columns of entries are looked at as they are used: what lies outside of the
operands sets the word %fault to 1 and is passed over.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.indexing_code import ENTRY, bits_of, block_head, to_word
from jitla.codegen.row_shares import unit_begins

__all__ = ["SHARED", "UNITS", "bounds_at", "entries_text", "index_at", "shares"]


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


SHARED = ("rows", "parts")  # words by which rows are shared out
UNITS = """  br label %units
units:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %unit.end ]
  %u.more = icmp ult i64 %u, %end
  br i1 %u.more, label %unit, label %exit
unit:
  %u.next = add i64 %u, 1
  %first = call i64 @share(ptr %starts, i64 %rows, i64 %parts, i64 %u)
  %stop.found = call i64 @share(ptr %starts, i64 %rows, i64 %parts, i64 %u.next)
  %stop.known = icmp uge i64 %stop.found, %first
  br i1 %stop.known, label %shared, label %unshared
unshared:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %shared
shared:
  %stop = select i1 %stop.known, i64 %stop.found, i64 %first
"""


def shares(index: np.dtype) -> str:
    """@share(starts, rows, units, u): the first row of unit `u`, or where the last unit ends.

    Units have as many entries as can be. Where rows do not begin in order, units may end before they begin.
    """
    return f"""define internal i64 @share(ptr %starts, i64 %rows, i64 %units, i64 %u) nounwind {{
entry:
  %none = icmp eq i64 %u, 0
  %last = icmp uge i64 %u, %units
  %edge = or i1 %none, %last
  %whole = select i1 %none, i64 0, i64 %rows
  br i1 %edge, label %at, label %look
at:
  ret i64 %whole
look:
{index_at("%from", "%starts", "0", index)}{index_at("%to", "%starts", "%rows", index)}\
{unit_begins("%rows", "look", index_at("%there", "%starts", "%middle", index))}}}
"""


def entries_text(form: str, itemsize: int, index: np.dtype, triple: str) -> str:
    """Return the module that copies one element for every entry.

    Operands: elements, starts, columns, results, fault. Form "sampled": the element in the row and
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
    names = ("x", "starts", "columns", "out", "fault")
    found = "one" if form == "row" else "found"
    lost = "" if form == "row" else """lost:
  store atomic i64 1, ptr %fault monotonic, align 8
  br label %entries
"""
    more = "" if form == "row" else ", [ %k.next, %lost ]"
    return f"""target triple = "{triple}"
{shares(index)}{ENTRY}{block_head(names, ("width", "total", "down", "right", *SHARED))}\
{UNITS}  br label %each
each:
  %i = phi i64 [ %first, %shared ], [ %i.next, %entries ]
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
