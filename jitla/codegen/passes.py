"""Loops over the rows of a matrix, as IR: which function takes which rows, what is fetched ahead.

Knows: argument blocks of products. Must not know: what is done with rows, how these are cut into blocks.
Receives names of functions; returns the entry @k that calls them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from jitla.codegen.lanes import Lanes
from jitla.codegen.layout import HEADER

__all__ = [
    "AHEAD", "CACHE_LINE", "SHARE", "SPAN", "Pass", "by_rows", "fetch_ahead", "head", "next_rows",
    "pack_product"]

#: Name of a pass's function, how many rows it takes at once, and the bytes of its first column.
Pass = tuple[str, int, int]

SPAN = "ptr %x, ptr %v, ptr %out, i64 %i, i64 %n, i64 %step, i64 %apart, i64 %beyond"
AHEAD = 512  # bytes: what is fetched while earlier rows are still worked on
CACHE_LINE = 64
SHARE = 4  # sums find their rows in the cache; they fetch so much less of what comes next
OPERANDS = 3
# Words of the geometry: rows, elements of a row, bytes from row to row, and of the vectors.
ROWS, LENGTH, STEP, APART = range(4)


def pack_product(entry: int, rows: int, length: int, step: int, apart: int) -> bytes:
    """Return the argument block of a product with `rows` rows of `length` elements."""
    base = HEADER + 2 * OPERANDS
    words = [rows, length, step, apart]
    block = [entry, base + len(words), 1, 1, 0, 0, 0, OPERANDS, *([0] * 2 * OPERANDS), *words]
    return struct.pack(f"<{len(block)}q", *block)


def head(w: Lanes) -> str:
    """Lines that load the operands and the geometry."""
    base = HEADER + 2 * OPERANDS
    return "".join(
        f"  %{name}.p = getelementptr i64, ptr %block, i64 {at}\n"
        f"  %{name} = load {kind}, ptr %{name}.p, align 8\n"
        for name, at, kind in (
            ("x", HEADER, "ptr"), ("v", HEADER + 1, "ptr"), ("out", HEADER + 2, "ptr"),
            ("rows", base + ROWS, "i64"), ("n", base + LENGTH, "i64"),
            ("step", base + STEP, "i64"), ("apart", base + APART, "i64")))


def by_rows(w: Lanes, passes: Sequence[Pass], limit: int = 0) -> str:
    """@k: for every pass its function of so many rows as long as there are, then of one row.

    Rows of more bytes than a limit are taken one by one.
    """
    short = f"  %short = icmp sle i64 %n, {limit // w.size}\n" if limit else \
        "  %short = icmp eq i64 0, 0\n"
    text = "".join(_PASS.format(p=p, name=name, many=many, less=many - 1, first=first)
                   for p, (name, many, first) in enumerate(passes))
    return f"define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{\nentry:\n" \
        f"{head(w)}{_BEYOND}{short}{text}  ret void\n}}\n"


_PASS = """  br label %pass{p}
pass{p}:
  %v{p} = getelementptr i8, ptr %v, i64 {first}
  %out{p} = getelementptr i8, ptr %out, i64 {first}
  %full{p} = sub i64 %rows, {less}
  %several{p} = select i1 %short, i64 %full{p}, i64 0
  br label %many{p}
many{p}:
  %i{p} = phi i64 [ 0, %pass{p} ], [ %i{p}.next, %do{p} ]
  %more{p} = icmp slt i64 %i{p}, %several{p}
  br i1 %more{p}, label %do{p}, label %single{p}
do{p}:
  call void @{name}{many}(ptr %x, ptr %v{p}, ptr %out{p}, i64 %i{p}, i64 %n, i64 %step,
                                i64 %apart, i64 %beyond)
  %i{p}.next = add i64 %i{p}, {many}
  br label %many{p}
single{p}:
  %j{p} = phi i64 [ %i{p}, %many{p} ], [ %j{p}.next, %one{p} ]
  %left{p} = icmp slt i64 %j{p}, %rows
  br i1 %left{p}, label %one{p}, label %done{p}
one{p}:
  call void @{name}1(ptr %x, ptr %v{p}, ptr %out{p}, i64 %j{p}, i64 %n, i64 %step,
                                i64 %apart, i64 %beyond)
  %j{p}.next = add i64 %j{p}, 1
  br label %single{p}
done{p}:
"""

_BEYOND = f"""  %bytes = mul i64 %rows, %step
  %beyond = add i64 %bytes, {AHEAD}
"""


def next_rows(share: int) -> str:
    """Lines of %soon, in the next block of rows: one byte in `share` as far as row %i in this one."""
    return (f"  %soon.x = getelementptr i8, ptr %x, i64 %beyond\n"
            f"  %part.i = udiv i64 %i, {share}\n  %part = mul i64 %part.i, %step\n"
            "  %soon = getelementptr i8, ptr %soon.x, i64 %part\n")


def fetch_ahead(each: int, turns: int) -> str:
    """Lines that fetch `each` bytes behind %soon per element from %j on, of `turns` elements."""
    return (f"  %used = mul i64 %j, {each}\n  %next = getelementptr i8, ptr %soon, i64 %used\n"
            + "".join(f"  %line{b} = getelementptr i8, ptr %next, i64 {b}\n"
                      f"  call void @llvm.prefetch.p0(ptr %line{b}, i32 0, i32 3, i32 1)\n"
                      for b in range(0, each * turns, CACHE_LINE)))
