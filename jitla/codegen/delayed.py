"""The skeleton of kernels that overwrite what they still have to read, some rows further on.

Knows: how far apart reading and writing are, in rows. Must not know: what is computed.
Receives a `Loop`; returns IR text of functions whose results are those of a copy of all that is read.

The rows are cut into bands, one per unit. A row is computed into memory of its own, a slot, and goes where
it belongs as soon as no later row of its band reads what lies there: beside a row that is computed the
one goes that it was waited for. The first and the last rows of a band are read by others: they stay in
their slots until all bands are done, and @fin stores them.
"""

from __future__ import annotations

from math import prod

from jitla.codegen import layout
from jitla.codegen.bands import apart, bands
from jitla.codegen.layout import COLD, DEPTH, HEADER, INNER, ROWS, STEP, Loop, seek, word
from jitla.codegen.scalar import MathCall
from jitla.fusion import Geometry

LATE_BYTES = 32 << 20  # of rows that wait, in all bands; only one band may have more
DELAYS = 8  # times as many rows as they wait for are in a band at least: it keeps some of them to the end
GROUP, GROUP_BYTES = 16, 8192  # most rows that are computed at once, and bytes of them
LAG = layout.BLOCKS  # geometry word: elements that stores must stay behind, in rows that far behind
UNITS = 2  # word of the block, here the number of bands
# Of the row `i` of a band, `t` before its end: the first `delay` rows, the last ones, then a ring; and how
# many rows from there on lie in one run.
_SLOT = """define internal i64 @slot(i64 %i, i64 %t, i64 %delay, i64 %ring) {
entry:
  %twice = shl i64 %delay, 1
  %first = icmp ult i64 %i, %delay
  %last = icmp ule i64 %t, %delay
  %from.end = sub i64 %twice, %t
  %inside = sub i64 %i, %delay
  %turn = urem i64 %inside, %ring
  %behind = add i64 %twice, %turn
  %later = select i1 %last, i64 %from.end, i64 %behind
  %slot = select i1 %first, i64 %i, i64 %later
  ret i64 %slot
}
define internal i64 @run(i64 %i, i64 %t, i64 %delay, i64 %ring) {
entry:
  %first = icmp ult i64 %i, %delay
  %last = icmp ule i64 %t, %delay
  %begun = sub i64 %delay, %i
  %head = call i64 @llvm.umin.i64(i64 %begun, i64 %t)
  %inside = sub i64 %i, %delay
  %turn = urem i64 %inside, %ring
  %round = sub i64 %ring, %turn
  %free = sub i64 %t, %delay
  %middle = call i64 @llvm.umin.i64(i64 %round, i64 %free)
  %later = select i1 %last, i64 %t, i64 %middle
  %run = select i1 %first, i64 %head, i64 %later
  ret i64 %run
}
"""

# Row %v is stored meanwhile, unless other bands read what lies there: then a row goes where it lies.
_MEANWHILE = """  %stores = icmp uge i64 %i, %delay2
  %until = sub i64 %delay2, %i
  %i.v = sub i64 %i, %delay
  %slot.v = call i64 @slot(i64 %i.v, i64 -1, i64 %delay, i64 %ring)
  %run.v = call i64 @run(i64 %i.v, i64 -1, i64 %delay, i64 %ring)
  %near.v = call i64 @llvm.umin.i64(i64 %run.v, i64 %beside.v)
  %few.v = select i1 %stores, i64 %near.v, i64 %until
  %many = call i64 @llvm.umin.i64(i64 %few.here, i64 %few.v)
  %room.v.at = mul i64 %slot.v, %rowbytes
  %room.v = getelementptr i8, ptr %mem, i64 %room.v.at
  %home.v = call ptr @home(ptr %block, i64 %v)
  %from = select i1 %stores, ptr %room.v, ptr %room
  %to = select i1 %stores, ptr %home.v, ptr %room
"""

_BOUNDS = """  %j.next = add i64 %j, 1
  %lower = mul i64 %height, %j
  %b = udiv i64 %lower, %bands
  %upper = mul i64 %height, %j.next
  %e = udiv i64 %upper, %bands
  %mem.at = mul i64 %j, %share
  %mem = getelementptr i8, ptr %scratch, i64 %mem.at
"""


def band_units(loop: Loop, geometry: Geometry, most: int) -> tuple[int, tuple[int, ...], int]:
    """Return the number of bands, `most` of them, the first geometry words and the bytes of all slots.

    In one dimension rows are runs of elements. When an element is computed, those that lie more than
    `geometry.apart` before it may be overwritten.
    """
    inner, out, size = geometry.dims[-1], geometry.strides[-1], loop.operands[-1].dtype.itemsize
    step = inner if loop.rank else min(layout.BLOCK, inner)
    rows = prod(geometry.dims[:-1]) if loop.rank else -(-inner // step)
    far = out[-2] if loop.rank else step * size
    delay = min(-(-(geometry.apart + step * size) // far) - 1, rows)
    lag = -(-max(geometry.apart - delay * far, 0) // (size * loop.lanes)) * loop.lanes
    waiting = slots(delay, step * size) * step * size
    bands = max(1, min(most, rows // (DELAYS * (delay + 1)), LATE_BYTES // waiting))
    return bands, (inner, step, lag, delay, rows), bands * waiting


def slots(delay: int, row_bytes: int) -> int:
    """Return how many rows a band needs memory for."""
    return 3 * delay + max(1, min(GROUP, GROUP_BYTES // row_bytes))


def delayed_kernel(loop: Loop, math: MathCall, entry: list[str]) -> str:
    """Return the functions of a kernel that stores its one result late; `entry` are its first lines."""
    out = loop.operands[-1]
    size = out.dtype.itemsize
    lines = [*entry, *_sizes(loop)]
    lines[2:2] = [f"  %apart = alloca [{len(loop.operands)} x i64], align 16"]
    row = ["  %start = mul i64 %u, %step", "  %beside = add i64 1, 0", "  %beside.v = add i64 1, 0"]
    far = "%rowbytes"
    if loop.rank:
        lines += [*apart(loop), f"  store i64 %rowbytes, ptr %apart{out.word}, align 8"]
        row = ["  %start = add i64 0, 0"]
        seek(row, loop, "%u")
        last, far = loop.rank - 1, f"%step{out.word}.{loop.rank - 1}"
        row += [f"  %beside = sub i64 %size{last}, %at{last}", f"  %at.v = urem i64 %v, %size{last}",
                f"  %beside.v = sub i64 %size{last}, %at.v"]
    rows = "\n".join(row)
    return bands(loop, math) + _SLOT + _place(loop) + "\n".join(lines) + f"""
  %beyond = add i64 %delay2, 1
  %ahead = mul i64 %beyond, {far}
  %some = icmp ult i64 %begin, %end
  br i1 %some, label %unit, label %exit
unit:
  %j = phi i64 [ %begin, %entry ], [ %j.next, %next ]
{_BOUNDS}  %any = icmp ult i64 %b, %e
  br i1 %any, label %row, label %next
row:
  %u = phi i64 [ %b, %unit ], [ %u.next, %row ]
  %v = sub i64 %u, %delay
{rows}
  %left = sub i64 %inner, %start
  %len = call i64 @llvm.umin.i64(i64 %left, i64 %step)
  %i = sub i64 %u, %b
  %t = sub i64 %e, %u
  %slot = call i64 @slot(i64 %i, i64 %t, i64 %delay, i64 %ring)
  %run = call i64 @run(i64 %i, i64 %t, i64 %delay, i64 %ring)
  %near = call i64 @llvm.umin.i64(i64 %run, i64 %beside)
  %few.here = call i64 @llvm.umin.i64(i64 %near, i64 %group)
  %room.at = mul i64 %slot, %rowbytes
  %room = getelementptr i8, ptr %mem, i64 %room.at
  %skip = mul i64 %start, -{size}
  %moved = getelementptr i8, ptr %room, i64 %skip
  store ptr %moved, ptr %op{out.word}, align 8
{_MEANWHILE}  %far = select i1 %stores, i64 {far}, i64 %rowbytes
  call void @band(ptr %ops, ptr %steps, ptr %apart, i64 %start, i64 %len, i64 %many,
    ptr %from, ptr %to, i64 %step, i64 %far, i64 %lag, i64 %ahead)
  %u.next = add i64 %u, %many
  %more = icmp ult i64 %u.next, %e
  br i1 %more, label %row, label %next
next:
  %again = icmp ult i64 %j.next, %end
  br i1 %again, label %unit, label %exit
exit:
  ret void
}}
{_finish(loop)}"""


def _sizes(loop: Loop) -> list[str]:
    """Return lines that load what a band needs to know; %inner and %step are there."""
    lines: list[str] = []
    word(lines, "height", "%geo", ROWS)
    word(lines, "bands", "%block", UNITS)
    word(lines, "lag", "%geo", LAG)
    word(lines, "delay", "%geo", DEPTH)
    word(lines, "scratch", "%block", 6, "ptr")
    return [
        *lines, "  %delay2 = shl i64 %delay, 1",
        f"  %rowbytes = mul i64 %step, {loop.operands[-1].dtype.itemsize}",
        f"  %fitting = udiv i64 {GROUP_BYTES}, %rowbytes",
        f"  %few = call i64 @llvm.umin.i64(i64 %fitting, i64 {GROUP})",
        "  %group = call i64 @llvm.umax.i64(i64 %few, i64 1)", "  %ring = add i64 %delay, %group",
        "  %slots = add i64 %delay2, %ring", "  %share = mul i64 %slots, %rowbytes",
    ]


def _place(loop: Loop) -> str:
    """Return @home, the address of row `u` of the result, and @place, which stores it from its slot."""
    out = loop.operands[-1]
    size = out.dtype.itemsize
    lines = [f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}"]
    word(lines, "base", "%block", HEADER + out.word, "ptr")
    if loop.rank:
        arrays = [o for o in loop.operands if o.letter != "v"]
        at = loop.outer_at + loop.rank * len(arrays)
        rest, total = "%u", "0"
        for d in range(loop.rank - 1, -1, -1):
            word(lines, f"size{d}", "%geo", loop.outer_at + d)
            word(lines, f"by{d}", "%geo", at + d)
            if d:
                lines += [f"  %at{d} = urem i64 {rest}, %size{d}", f"  %rest{d} = udiv i64 {rest}, %size{d}"]
            index = f"%at{d}" if d else rest
            lines += [f"  %far{d} = mul i64 {index}, %by{d}", f"  %sum{d} = add i64 {total}, %far{d}"]
            rest, total = f"%rest{d}", f"%sum{d}"
    else:
        word(lines, "step", "%geo", STEP)
        lines += ["  %start = mul i64 %u, %step", f"  %sum0 = mul i64 %start, {size}"]
    text = "\n".join(lines)
    start = "add i64 0, 0" if loop.rank else "mul i64 %u, %step"
    return f"""define internal ptr @home(ptr %block, i64 %u) {COLD}{{
entry:
{text}
  %to = getelementptr i8, ptr %base, i64 %sum0
  ret ptr %to
}}
define internal void @place(ptr %block, i64 %u, ptr %mem, i64 %slot, i64 %inner, i64 %step) {COLD}{{
entry:
  %start = {start}
  %left = sub i64 %inner, %start
  %len = call i64 @llvm.umin.i64(i64 %left, i64 %step)
  %bytes = mul i64 %len, {size}
  %rowbytes = mul i64 %step, {size}
  %room.at = mul i64 %slot, %rowbytes
  %room = getelementptr i8, ptr %mem, i64 %room.at
  %to = call ptr @home(ptr %block, i64 %u)
  call void @copy(ptr %to, ptr %room, i64 %bytes)
  ret void
}}
"""


def _finish(loop: Loop) -> str:
    """Return @fin, which stores the first and the last rows of every band."""
    lines = [f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}"]
    word(lines, "inner", "%geo", INNER)
    word(lines, "step", "%geo", STEP)
    lines += _sizes(loop)
    text = "\n".join(lines)
    return f"""define void @fin(ptr %block) {COLD}{{
entry:
{text}
  br label %unit
unit:
  %j = phi i64 [ 0, %entry ], [ %j.next, %next ]
{_BOUNDS}  %rows = sub i64 %e, %b
  br label %slots.begin
slots.begin:
  %s = phi i64 [ 0, %unit ], [ %s.next, %stored ]
  %going = icmp ult i64 %s, %delay2
  br i1 %going, label %look, label %next
look:
  %first = icmp ult i64 %s, %delay
  %t = sub i64 %delay2, %s
  %last.i = sub i64 %rows, %t
  %i = select i1 %first, i64 %s, i64 %last.i
  %least = select i1 %first, i64 0, i64 %delay
  %long = icmp slt i64 %i, %rows
  %apart = icmp sge i64 %i, %least
  %holds = and i1 %long, %apart
  br i1 %holds, label %store, label %stored
store:
  %u = add i64 %b, %i
  call void @place(ptr %block, i64 %u, ptr %mem, i64 %s, i64 %inner, i64 %step)
  br label %stored
stored:
  %s.next = add i64 %s, 1
  br label %slots.begin
next:
  %again = icmp ult i64 %j.next, %bands
  br i1 %again, label %unit, label %done
done:
  ret void
}}
"""
