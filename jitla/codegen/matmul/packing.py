"""Packing of matrices into panels, and passes over them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from jitla.codegen.ir import Lanes
from jitla.codegen.kernel_abi import HEADER

__all__ = [
    "AHEAD", "CACHE_LINE", "Pass", "SHARE", "SPAN", "by_rows", "fetch_ahead", "head", "next_block",
    "next_rows", "pack_product", "pack_text",
]


#: Name of a pass's functions, how many rows they take at once, the most first; bytes of its first column.
Pass = tuple[str, tuple[int, ...], int]

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


def head() -> str:
    """Lines that load the operands and the geometry."""
    base = HEADER + 2 * OPERANDS
    return "".join(
        f"  %{name}.p = getelementptr i64, ptr %block, i64 {at}\n"
        f"  %{name} = load {kind}, ptr %{name}.p, align 8\n"
        for name, at, kind in (
            ("x", HEADER, "ptr"), ("v", HEADER + 1, "ptr"), ("out", HEADER + 2, "ptr"),
            ("rows", base + ROWS, "i64"), ("n", base + LENGTH, "i64"),
            ("step", base + STEP, "i64"), ("apart", base + APART, "i64")))


def by_rows(
    w: Lanes, passes: Sequence[Pass], limit: int = 0, elements: bool = False, emptied: bool = False
) -> str:
    """@k: for every pass its functions, that of most rows while there are as many, at last that of one row.

    Rows of more bytes than a limit are taken one by one. With `elements` these are taken instead of rows:
    functions then are told the number of rows, not of elements. With `emptied` the results, as many as a
    row has elements, are 0 before the first.
    """
    short = f"  %short = icmp sle i64 %n, {limit // w.size}\n" if limit else \
        "  %short = icmp eq i64 0, 0\n"
    sizes = ("%n", "%rows") if elements else ("%rows", "%n")
    text = "".join(_pass(p, sizes, *of) for p, of in enumerate(passes))
    if emptied:
        text = f"  %out.bytes = mul i64 %n, {w.size}\n{_EMPTY}{text}"
    declared = _MEMSET if emptied else ""
    return f"{declared}define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{\nentry:\n" \
        f"{head()}{_BEYOND}{short}{text}  ret void\n}}\n"


def _pass(p: int, sizes: tuple[str, str], name: str, counts: tuple[int, ...], first: int) -> str:
    """Lines of pass number `p`: loops with fewer and fewer rows at once.

    No loop goes so far that only single rows are left where the next could take several.
    """
    text = f"""  br label %pass{p}
pass{p}:
  %v{p} = getelementptr i8, ptr %v, i64 {first}
  %out{p} = getelementptr i8, ptr %out, i64 {first}
"""
    before, start = f"pass{p}", "0"
    for at, count in enumerate(counts):
        tag = f"{p}.{count}"
        fewer = counts[at + 1] if at + 1 < len(counts) else 1
        text += f"""  br label %loop{tag}
loop{tag}:
  %i{tag} = phi i64 [ {start}, %{before} ], [ %i{tag}.next, %do{tag} ]
  %left{tag} = sub i64 {sizes[0]}, %i{tag}
  %enough{tag} = icmp sge i64 %left{tag}, {count}
  %over{tag} = sub i64 %left{tag}, {count + 2}
  %odd{tag} = icmp ult i64 %over{tag}, {max(fewer - 2, 0)}
  %even{tag} = xor i1 %odd{tag}, true
  %go{tag} = and i1 %enough{tag}, %even{tag}
"""
        if count > 1:
            text += f"  %take{tag} = and i1 %go{tag}, %short\n"
        else:
            text += f"  %take{tag} = and i1 %go{tag}, true\n"
        text += f"""  br i1 %take{tag}, label %do{tag}, label %end{tag}
do{tag}:
  call void @{name}{count}(ptr %x, ptr %v{p}, ptr %out{p}, i64 %i{tag}, i64 {sizes[1]}, i64 %step,
                                i64 %apart, i64 %beyond)
  %i{tag}.next = add i64 %i{tag}, {count}
  br label %loop{tag}
end{tag}:
"""
        before, start = f"end{tag}", f"%i{tag}"
    return text


_BEYOND = f"""  %bytes = mul i64 %rows, %step
  %beyond = add i64 %bytes, {AHEAD}
"""


_MEMSET = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n"
_EMPTY = "  call void @llvm.memset.p0.i64(ptr %out, i8 0, i64 %out.bytes, i1 false)\n"


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


def next_block(w: Lanes, half: int, columns: int) -> str:
    """Lines that prefetch the part in the next block of `columns` columns, which begin at %x0, %x1 ...

    Products over columns come in pairs: each fetches one half of what both will read.
    """
    return (f"  %far.n = mul i64 %n, {w.size * (2 + half)}\n  %far.j = mul i64 %j, {w.size}\n"
            "  %far.all = add i64 %far.n, %far.j\n  %far = lshr i64 %far.all, 1\n"
            + "".join(f"  %far.x{k} = getelementptr i8, ptr %x{k}, i64 %far\n"
                      f"  call void @llvm.prefetch.p0(ptr %far.x{k}, i32 0, i32 3, i32 1)\n"
                      for k in range(columns)))


def pack_text(w: Lanes) -> str:
    """Return the entry @k that copies rows of any distances, between elements too, one after the other."""
    return _PACK.replace("@REAL@", w.real).replace("@SIZE@", str(w.size)).replace("@HEAD@", head())


_PACK = """define void @k(ptr %block, i64 %begin, i64 %end) nounwind {
entry:
@HEAD@  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row.end ]
  %more = icmp ult i64 %i, %rows
  br i1 %more, label %go, label %done
go:
  %skip = mul i64 %i, %step
  %from = getelementptr i8, ptr %x, i64 %skip
  %before = mul i64 %i, %n
  br label %element
element:
  %j = phi i64 [ 0, %go ], [ %j.next, %put ]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %put, label %row.end
put:
  %far = mul i64 %j, %apart
  %p = getelementptr i8, ptr %from, i64 %far
  %e = load @REAL@, ptr %p, align @SIZE@
  %at = add i64 %before, %j
  %to = getelementptr @REAL@, ptr %out, i64 %at
  store @REAL@ %e, ptr %to, align @SIZE@
  %j.next = add i64 %j, 1
  br label %element
row.end:
  %i.next = add i64 %i, 1
  br label %row
done:
  ret void
}
"""
