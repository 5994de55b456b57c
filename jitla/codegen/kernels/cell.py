"""Cell kernels: element-wise loops, with stores that bypass the cache."""

from __future__ import annotations

from math import prod

from jitla.codegen import kernel_abi as layout
from jitla.codegen.ir_elementwise import MathCall
from jitla.codegen.kernel_abi import (
    COLD,
    DEPTH,
    HEADER,
    INNER,
    NEXT,
    PLAIN,
    ROWS,
    STEP,
    KernelLoop,
    Operand,
    block_of_unit,
    calls,
    entry,
    is_tiled,
    seek,
    word,
)
from jitla.codegen.kernels.body import long_span, padded_tail, span
from jitla.codegen.kernels.cell_layouts import (
    BAND,
    across,
    apart,
    bands,
    is_crosswise,
    tiled_kernel,
)
from jitla.codegen.kernels.cell_layouts import chosen_crosswise as chosen
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


def band_units(loop: KernelLoop, geometry: Geometry, most: int) -> tuple[int, tuple[int, ...], int]:
    """Return the number of bands, `most` of them, the first geometry words and the bytes of all slots.

    In one dimension rows are runs of elements. When an element is computed, those that lie more than
    `geometry.alias_distance` before it may be overwritten.
    """
    inner, out, size = geometry.dims[-1], geometry.strides[-1], loop.operands[-1].dtype.itemsize
    step = inner if loop.rank else min(layout.BLOCK, inner)
    rows = prod(geometry.dims[:-1]) if loop.rank else -(-inner // step)
    far = out[-2] if loop.rank else step * size
    delay = min(-(-(geometry.alias_distance + step * size) // far) - 1, rows)
    lag = -(-max(geometry.alias_distance - delay * far, 0) // (size * loop.lanes)) * loop.lanes
    waiting = slots(delay, step * size) * step * size
    bands = max(1, min(most, rows // (DELAYS * (delay + 1)), LATE_BYTES // waiting))
    return bands, (inner, step, lag, delay, rows), bands * waiting


def slots(delay: int, row_bytes: int) -> int:
    """Return how many rows a band needs memory for."""
    return 3 * delay + max(1, min(GROUP, GROUP_BYTES // row_bytes))


def delayed_kernel(loop: KernelLoop, math: MathCall, entry: list[str]) -> str:
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


def _sizes(loop: KernelLoop) -> list[str]:
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


def _place(loop: KernelLoop) -> str:
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


def _finish(loop: KernelLoop) -> str:
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


LINE = 64  # bytes that memory takes at once


def stream_line(loop: KernelLoop) -> str:
    """Return @line: whole lines of all results past the cache, what is before and behind as usual.

    A line that is stored both ways costs many times what another does: what is in the cache has to leave
    it. Elements that are whole vectors of all results go past the cache as they are: the next ones fill
    up the line.
    """
    lines: list[str] = []
    any_torn, any_shifted, least = _alignment(loop, lines)
    part = max(LINE // least, loop.lanes)  # elements that are whole lines and whole vectors
    checks = "\n".join(lines)
    return f"""define internal void @ends(ptr %ops, ptr %steps, i64 %from, i64 %len) {COLD}{{
entry:
{calls(loop.lanes, "%len", "%from")}  ret void
}}
define internal void @line(ptr %ops, ptr %steps, i64 %from, i64 %len) {COLD}{{
entry:
  %rest = and i64 %len, {loop.lanes - 1}
{checks}
  %agree = icmp eq i64 {any_torn}, 0
  br i1 %agree, label %straight, label %look
straight:
  %all = lshr i64 %len, {loop.lanes.bit_length() - 1}
  call void @stream(ptr %ops, ptr %steps, i64 %from, i64 %all, ptr null)
  ret void
look:
  %whole.lines = icmp eq i64 {any_shifted}, 0
  %least = add i64 %head, {part}
  %roomy = icmp uge i64 %len, %least
  %past = and i1 %whole.lines, %roomy
  br i1 %past, label %parts, label %plain
parts:
  call void @ends(ptr %ops, ptr %steps, i64 %from, i64 %head)
  %main = add i64 %from, %head
  %long = sub i64 %len, %head
  %body = and i64 %long, {-part}
  %v = lshr i64 %body, {loop.lanes.bit_length() - 1}
  call void @stream(ptr %ops, ptr %steps, i64 %main, i64 %v, ptr null)
  %behind = add i64 %main, %body
  %left = sub i64 %long, %body
  call void @ends(ptr %ops, ptr %steps, i64 %behind, i64 %left)
  ret void
plain:
  call void @ends(ptr %ops, ptr %steps, i64 %from, i64 %len)
  ret void
}}
"""


def _alignment(loop: KernelLoop, lines: list[str]) -> tuple[str, str, int]:
    """Write %head, what is in front of the first whole line; return words that are not 0, and a size.

    One is not 0 if vectors do not end where results do, one if whole lines of results do not begin at
    the same element; the size is that of the smallest element.
    """
    outs = sorted((o for o in loop.operands if o.role == "out"), key=lambda o: o.dtype.itemsize)
    first, least = outs[0].word, outs[0].dtype.itemsize
    torn, shifted = ["%rest"], []
    for op in outs:
        size, k = op.dtype.itemsize, op.word
        word(lines, f"o{k}", "%ops", k)
        lines += [
            f"  %d{k} = mul i64 %from, {size}", f"  %a{k} = add i64 %o{k}, %d{k}",
            f"  %t{k} = and i64 %a{k}, {min(loop.lanes * size, LINE) - 1}",
        ]
        torn.append(f"%t{k}")
    lines += [
        f"  %n = sub i64 0, %a{first}", f"  %gap = and i64 %n, {LINE - 1}",
        f"  %head = udiv i64 %gap, {least}",
    ]
    for op in outs:
        size, k = op.dtype.itemsize, op.word
        lines += [
            f"  %b{k} = mul i64 %head, {size}", f"  %c{k} = add i64 %a{k}, %b{k}",
            f"  %e{k} = and i64 %c{k}, {LINE - 1}",
        ]
        shifted.append(f"%e{k}")
    return _any(lines, "torn", torn), _any(lines, "shifted", shifted), least


def _any(lines: list[str], name: str, words: list[str]) -> str:
    """Write what is not 0 if one of `words` is not, and return it."""
    for i, each in enumerate(words):
        lines.append(f"  %{name}{i} = or i64 {f'%{name}{i - 1}' if i else 0}, {each}")
    return f"%{name}{len(words) - 1}"


PIECE_BYTES, PIECE = 16_384, 1024  # results that are kept, of all operands; elements of each
  # bytes
LEAST = 64  # elements of a piece
FEW = 1024  # bytes of a row: of more, the two ends cost less than keeping all
GOAL, SPOT, FIRST, STATE = range(4)  # words: where the first line goes, bytes kept, where they begin


def staged_kernel(loop: KernelLoop, math: MathCall, lines: list[str]) -> str:
    """Return the functions of a kernel over rows; `lines` are its first ones, and there is a @line.

    Long rows, and rows that are whole vectors, go straight to memory. Short rows that do not lie one
    behind the other are stored as usual.
    """
    outs = [o for o in loop.operands if o.role == "out"]
    piece = _piece(outs)
    room = [f"  %apart = alloca [{len(loop.operands)} x i64], align 16"]
    for op in outs:
        k = op.word
        room += [
            f"  %kept{k} = alloca [{piece * op.dtype.itemsize + 2 * LINE} x i8], align {LINE}",
            f"  %state{k} = alloca [{STATE} x i64], align 16",
            f"  call void @llvm.memset.p0.i64(ptr %state{k}, i8 0, i64 {8 * STATE}, i1 false)",
        ]
    lines[2:2] = room
    lines += apart(loop)
    block_of_unit(lines, loop)
    flat, torn = _shape(loop, outs, lines)
    last = loop.rank - 1
    given = "".join(f", ptr %kept{o.word}, ptr %state{o.word}" for o in outs)
    lines += [
        "  %entire = icmp eq i64 %blocks, 1", f"  %uneven = icmp ne i64 {torn}, 0",
        f"  %few = icmp ult i64 %row.bytes{outs[0].word}, {FEW}", "  %unruly = and i1 %entire, %uneven",
        "  %breaks = and i1 %unruly, %few", f"  %beside = sub i64 %size{last}, %at{last}",
        "  %ahead = sub i64 %end, %u", "  %near = call i64 @llvm.umin.i64(i64 %beside, i64 %ahead)",
        "  %many = select i1 %breaks, i64 %near, i64 1",
        "  br i1 %breaks, label %short, label %straight", "straight:",
        "  call void @line(ptr %ops, ptr %steps, i64 %from, i64 %len)", "  br label %next", "short:",
        f"  br i1 {flat}, label %keep, label %put", "keep:",
        f"  call void @stage(ptr %ops, ptr %steps, ptr %apart, i64 %from, i64 %len, i64 %many{given})",
        "  br label %next", "put:",
        "  call void @band(ptr %ops, ptr %steps, ptr %apart, i64 %from, i64 %len, i64 %many)",
    ]
    end = NEXT.replace("%u.next = add i64 %u, 1", "%u.next = add i64 %u, %many")
    drains = "".join(f"  call void @drain(ptr %kept{o.word}, ptr %state{o.word})\n" for o in outs)
    rows = _rows(loop) if loop.polynomials else bands(loop, math)
    return (rows + _stage(loop, outs, piece) + _LINES + "\n".join(lines)
            + f"\n{end}{drains}  call void @llvm.x86.sse.sfence()\n  ret void\n}}\n")


def _shape(loop: KernelLoop, outs: list[Operand], lines: list[str]) -> tuple[str, str]:
    """Write whether rows of all results lie one behind the other, and where they tear vectors: 0, nowhere."""
    flat, torn, last = "true", "0", loop.rank - 1
    for op in outs:
        k, size = op.word, op.dtype.itemsize
        lines += [
            f"  %row.bytes{k} = mul i64 %inner, {size}",
            f"  %behind{k} = icmp eq i64 %row.bytes{k}, %step{k}.{last}",
            f"  %flat{k} = and i1 {flat}, %behind{k}", f"  %row.at{k} = load i64, ptr %op{k}, align 8",
            f"  %ends{k} = or i64 %row.at{k}, %row.bytes{k}",
            f"  %over{k} = and i64 %ends{k}, {loop.lanes * size - 1}",
            f"  %torn{k} = or i64 {torn}, %over{k}",
        ]
        flat, torn = f"%flat{k}", f"%torn{k}"
    return flat, torn


def _piece(outs: list[Operand]) -> int:
    """Return how many elements are kept of every result."""
    return max(LEAST, min(PIECE, PIECE_BYTES // sum(o.dtype.itemsize for o in outs)) & -LEAST)


def _rows(loop: KernelLoop) -> str:
    """Return @band for long bodies: of these there is one copy, which takes single rows."""
    n = len(loop.operands)
    moves = "".join(
        f"  %to{k} = getelementptr i64, ptr %here, i64 {k}\n"
        f"  %from{k} = getelementptr i64, ptr %ops, i64 {k}\n"
        f"  %by{k}.at = getelementptr i64, ptr %apart, i64 {k}\n"
        f"  %by{k} = load i64, ptr %by{k}.at, align 8\n"
        f"  %word{k} = load i64, ptr %from{k}, align 8\n"
        f"  %move{k} = mul i64 %r, %by{k}\n"
        f"  %moved{k} = add i64 %word{k}, %move{k}\n"
        f"  store i64 %moved{k}, ptr %to{k}, align 8\n" for k in range(n))
    return f"""define internal void @row(ptr %ops, ptr %steps, i64 %from, i64 %len) {COLD}{{
entry:
{calls(loop.lanes, "%len", "%from")}  ret void
}}
define internal void @band({BAND}) {COLD}{{
entry:
  %here = alloca [{n} x i64], align 16
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r.next, %row ]
{moves}  call void @row(ptr %here, ptr %steps, i64 %start, i64 %len)
  %r.next = add i64 %r, 1
  %again = icmp ult i64 %r.next, %count
  br i1 %again, label %row, label %done
done:
  ret void
}}
"""


def _stage(loop: KernelLoop, outs: list[Operand], piece: int) -> str:
    """Return @stage, which runs `len` elements from `start` of `count` rows that lie one behind the other."""
    given = "".join(f", ptr %kept{o.word}, ptr %state{o.word}" for o in outs)
    begin = [f"  %op{k} = getelementptr i64, ptr %ops, i64 {k}" for k in range(len(loop.operands))]
    keep: list[str] = []
    flush: list[str] = []
    for op in outs:
        _keep(op, begin, keep, flush)
    return f"""define internal void @stage({BAND}{given}) {COLD}{{
entry:
{chr(10).join(begin)}
  %empty = icmp eq i64 %len, 0
  br i1 %empty, label %done, label %some
some:
  %fit = udiv i64 {piece}, %len
  %most = call i64 @llvm.umax.i64(i64 %fit, i64 1)
  br label %rows
rows:
  %r = phi i64 [ 0, %some ], [ %r.next, %moved ]
  %left = sub i64 %count, %r
  %c = call i64 @llvm.umin.i64(i64 %left, i64 %most)
  br label %part
part:
  %s = phi i64 [ 0, %rows ], [ %s.next, %part ]
  %rest = sub i64 %len, %s
  %n = call i64 @llvm.umin.i64(i64 %rest, i64 {piece})
  %at = add i64 %start, %s
{chr(10).join(keep)}
  call void @band(ptr %ops, ptr %steps, ptr %apart, i64 %at, i64 %n, i64 %c)
  %elements = mul i64 %n, %c
{chr(10).join(flush)}
  %s.next = add i64 %s, {piece}
  %on = icmp ult i64 %s.next, %len
  br i1 %on, label %part, label %moved
moved:
{chr(10).join(_moves(loop))}
  %r.next = add i64 %r, %c
  %more = icmp ult i64 %r.next, %count
  br i1 %more, label %rows, label %done
done:
  ret void
}}
"""


def _keep(op: Operand, begin: list[str], keep: list[str], flush: list[str]) -> None:
    """Write how the result `op` is kept: what comes before all pieces, before a piece, and behind it."""
    k, size = op.word, op.dtype.itemsize
    begin += [
        f"  %out{k} = load i64, ptr %op{k}, align 8", f"  %skip{k} = mul i64 %start, {size}",
        f"  %to{k} = add i64 %out{k}, %skip{k}",
        f"  call void @aim(ptr %kept{k}, ptr %state{k}, i64 %to{k})",
        f"  %spot{k}.at = getelementptr i64, ptr %state{k}, i64 {SPOT}",
        f"  %room{k} = ptrtoint ptr %kept{k} to i64",
    ]
    keep += [
        f"  %spot{k} = load i64, ptr %spot{k}.at, align 8", f"  %back{k} = mul i64 %at, {size}",
        f"  %near{k} = add i64 %room{k}, %spot{k}", f"  %base{k} = sub i64 %near{k}, %back{k}",
        f"  store i64 %base{k}, ptr %op{k}, align 8",
    ]
    flush += [
        f"  %made{k} = mul i64 %elements, {size}",
        f"  call void @flush(ptr %kept{k}, ptr %state{k}, i64 %made{k})",
    ]


def _moves(loop: KernelLoop) -> list[str]:
    """Return lines that move what is read on by %c rows."""
    lines = []
    for op in loop.operands:
        if op.role == "out" or op.letter == "v":
            continue
        k = op.word
        lines += [
            f"  %by{k}.at = getelementptr i64, ptr %apart, i64 {k}",
            f"  %by{k} = load i64, ptr %by{k}.at, align 8", f"  %now{k} = load i64, ptr %op{k}, align 8",
            f"  %rows{k} = mul i64 %by{k}, %c", f"  %then{k} = add i64 %now{k}, %rows{k}",
            f"  store i64 %then{k}, ptr %op{k}, align 8",
        ]
    return lines


_WORDS = "".join(
    f"  %{name}.at = getelementptr i64, ptr %state, i64 {at}\n"
    f"  %{name} = load i64, ptr %{name}.at, align 8\n"
    for name, at in (("goal", GOAL), ("spot", SPOT), ("first", FIRST)))

_LINES = f"""
; Store what is kept of the last line as usual: it is no whole one.
define internal void @drain(ptr %kept, ptr %state) nounwind {{
entry:
{_WORDS}  %to = add i64 %goal, %first
  %to.p = inttoptr i64 %to to ptr
  %from = getelementptr i8, ptr %kept, i64 %first
  %n = sub i64 %spot, %first
  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %to.p, ptr align 1 %from, i64 %n, i1 false)
  store i64 0, ptr %spot.at, align 8
  store i64 0, ptr %first.at, align 8
  ret void
}}

; See that what is kept next goes to %to.
define internal void @aim(ptr %kept, ptr %state, i64 %to) nounwind {{
entry:
{_WORDS}  %so.far = add i64 %goal, %spot
  %goes.on = icmp eq i64 %so.far, %to
  br i1 %goes.on, label %done, label %begin
begin:
  call void @drain(ptr %kept, ptr %state)
  %line = and i64 %to, -{LINE}
  %in = and i64 %to, {LINE - 1}
  store i64 %line, ptr %goal.at, align 8
  store i64 %in, ptr %spot.at, align 8
  store i64 %in, ptr %first.at, align 8
  br label %done
done:
  ret void
}}

; Send the whole lines of what is kept, now %made bytes more, on their way.
define internal void @flush(ptr %kept, ptr %state, i64 %made) nounwind {{
entry:
{_WORDS}  %spot.new = add i64 %spot, %made
  %whole = and i64 %spot.new, -{LINE}
  %rest = and i64 %spot.new, {LINE - 1}
  store i64 %rest, ptr %spot.at, align 8
  %some = icmp ne i64 %whole, 0
  br i1 %some, label %lines, label %short
short:
  ret void
lines:
  %goal.new = add i64 %goal, %whole
  store i64 %goal.new, ptr %goal.at, align 8
  %goal.p = inttoptr i64 %goal to ptr
  %torn = icmp ne i64 %first, 0
  br i1 %torn, label %edge, label %begin
edge:
  %edge.to = getelementptr i8, ptr %goal.p, i64 %first
  %edge.from = getelementptr i8, ptr %kept, i64 %first
  %edge.n = sub i64 {LINE}, %first
  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %edge.to, ptr align 1 %edge.from, i64 %edge.n, i1 false)
  store i64 0, ptr %first.at, align 8
  br label %begin
begin:
  %i.0 = phi i64 [ 0, %lines ], [ {LINE}, %edge ]
  br label %test
test:
  %i = phi i64 [ %i.0, %begin ], [ %i.next, %line ]
  %more = icmp ult i64 %i, %whole
  br i1 %more, label %line, label %over
line:
  %from = getelementptr i8, ptr %kept, i64 %i
  %to = getelementptr i8, ptr %goal.p, i64 %i
  %from.2 = getelementptr i8, ptr %from, i64 {LINE // 2}
  %to.2 = getelementptr i8, ptr %to, i64 {LINE // 2}
  %x = load <4 x i64>, ptr %from, align 32
  %y = load <4 x i64>, ptr %from.2, align 32
  store <4 x i64> %x, ptr %to, align 32, !nontemporal !0
  store <4 x i64> %y, ptr %to.2, align 32, !nontemporal !0
  %i.next = add i64 %i, {LINE}
  br label %test
over:
  %behind = getelementptr i8, ptr %kept, i64 %whole
  call void @llvm.memcpy.p0.p0.i64(ptr align {LINE} %kept, ptr align {LINE} %behind, i64 {LINE}, i1 false)
  ret void
}}
"""


def cell_kernel(loop: KernelLoop, math: MathCall) -> str:
    """Return the functions of a kernel without aggregates."""
    if loop.schedule.delayed:
        return delayed_kernel(loop, math, entry(loop, COLD))
    past = streams(loop)
    if is_tiled(loop):
        return tiled_kernel(loop, math, entry(loop))
    if is_crosswise(loop) and not past:
        return _crossed(loop, math)
    if loop.rank and not loop.polynomials and not past:
        return _banded(loop, math)
    lines = entry(loop)
    tail = padded_tail(loop) if loop.polynomials else span(loop, "tail", 1, math, how=PLAIN)
    how = PLAIN if loop.calls else ""
    parts = long_span(loop, "span", math, how) + tail
    if past:
        parts += long_span(loop, "stream", math, how, True) + stream_line(loop)
        return parts + (staged_kernel(loop, math, lines) if loop.rank else _streamed(loop, lines))
    block_of_unit(lines, loop)
    text = "\n".join(lines) + "\n" + calls(loop.lanes, "%len", "%from")
    return parts + text + NEXT + "  ret void\n}\n"


def _streamed(loop: KernelLoop, lines: list[str]) -> str:
    """Return the function of a kernel whose units all lie one behind the other, past the cache."""
    block_of_unit(lines, loop)
    lines.append("  call void @line(ptr %ops, ptr %steps, i64 %from, i64 %len)")
    end = NEXT + "  call void @llvm.x86.sse.sfence()\n"
    return "\n".join(lines) + f"\n{end}  ret void\n}}\n"


def _banded(loop: KernelLoop, math: MathCall) -> str:
    """Return the functions of a kernel over rows: whole ones are taken as many as lie evenly apart."""
    lines = entry(loop)
    lines[2:2] = [f"  %apart = alloca [{len(loop.operands)} x i64], align 16"]
    lines += apart(loop)
    block_of_unit(lines, loop)
    lines += [
        *_evenly(loop),
        "  call void @band(ptr %ops, ptr %steps, ptr %apart, i64 %from, i64 %len, i64 %many)",
    ]
    end = NEXT.replace("%u.next = add i64 %u, 1", "%u.next = add i64 %u, %many")
    return bands(loop, math) + "\n".join(lines) + f"\n{end}  ret void\n}}\n"


def _crossed(loop: KernelLoop, math: MathCall) -> str:
    """Return the functions of a kernel over rows that may be short: several of them fill a vector."""
    lines = entry(loop)
    lines[2:2] = [f"  %apart = alloca [{len(loop.operands)} x i64], align 16"]
    lines += apart(loop)
    block_of_unit(lines, loop)
    how = PLAIN if loop.calls else ""
    lines += [*_evenly(loop), *chosen(loop, "%len", "%many")]
    if loop.polynomials:
        parts = long_span(loop, "span", math, how) + padded_tail(loop)
        usual, done = calls(loop.lanes, "%len", "%from"), "[ 1, %ready ]"
    else:
        parts, done = bands(loop, math), "[ %many, %along ]"
        usual = "  call void @band(ptr %ops, ptr %steps, ptr %apart, i64 %from, i64 %len, i64 %many)\n"
    end = NEXT.replace("next:\n", f"next:\n  %rows = phi i64 {done}, [ %grouped, %across ]\n").replace(
        "%u.next = add i64 %u, 1", "%u.next = add i64 %u, %rows")
    text = "\n".join(lines) + f"\n{usual}{end}  ret void\n}}\n"
    return parts + across(loop, math, how) + text


def _evenly(loop: KernelLoop) -> list[str]:
    """Return lines that find out how many rows lie evenly apart from this unit on: %many."""
    last = loop.rank - 1
    return [
        f"  %beside = sub i64 %size{last}, %at{last}", "  %ahead = sub i64 %end, %u",
        "  %near = call i64 @llvm.umin.i64(i64 %beside, i64 %ahead)", "  %entire = icmp eq i64 %blocks, 1",
        "  %many = select i1 %entire, i64 %near, i64 1",
    ]


def streams(loop: KernelLoop) -> bool:
    """Tell whether outputs are stored past the cache."""
    fit = all(o.letter == "c" for o in loop.operands if o.role == "out")
    return fit and loop.schedule.nontemporal and loop.target.triple.startswith("x86_64")
