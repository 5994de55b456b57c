"""Cell kernels for operands of different memory orders: tiles, bands, crosswise reads."""

from __future__ import annotations

from collections.abc import Sequence

from jitla.codegen.ir import Value, memory_type, named
from jitla.codegen.ir_elementwise import MathCall
from jitla.codegen.kernel_abi import (
    BATCH,
    COLD,
    LINE,
    ROWS,
    KernelLoop,
    Operand,
    line_of,
    seek,
    word,
)
from jitla.codegen.kernels.body import BodyWriter, chosen, gapped, identity, prefetch_bytes
from jitla.codegen.kernels.reduce_all import combined, initial
from jitla.fusion import crosswise_limit
from jitla.hops import Hop, Kind

__all__ = ["tiled_kernel"]


BAND = "ptr %ops, ptr %steps, ptr %apart, i64 %start, i64 %len, i64 %count"
#: What else @band is handed if beside its own rows it copies others, of results: where the first lies and
#: goes, its elements, how far apart they go, how many elements behind its own it is, and how many bytes
#: from there the memory lies that is needed next.
BESIDE = ", ptr %from, ptr %to, i64 %long, i64 %far, i64 %lag, i64 %ahead"
# The C library's memcpy moves rows of this length in microcode, at half the speed on some processors. The
# last vector ends where the row does: what lies in two is stored twice.
COPY = """define internal void @copy(ptr %to, ptr %from, i64 %bytes) {
entry:
  %long = icmp uge i64 %bytes, 32
  br i1 %long, label %loop, label %short
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %near = getelementptr i8, ptr %from, i64 %i
  %far = getelementptr i8, ptr %to, i64 %i
  %some = load <32 x i8>, ptr %near, align 1
  store <32 x i8> %some, ptr %far, align 1
  %i.next = add i64 %i, 32
  %behind = add i64 %i, 64
  %more = icmp ule i64 %behind, %bytes
  br i1 %more, label %loop, label %rest
rest:
  %last = sub i64 %bytes, 32
  %near.last = getelementptr i8, ptr %from, i64 %last
  %far.last = getelementptr i8, ptr %to, i64 %last
  %end = load <32 x i8>, ptr %near.last, align 1
  store <32 x i8> %end, ptr %far.last, align 1
  ret void
short:
  %any = icmp ne i64 %bytes, 0
  br i1 %any, label %single, label %done
single:
  %k = phi i64 [ 0, %short ], [ %k.next, %single ]
  %near.k = getelementptr i8, ptr %from, i64 %k
  %far.k = getelementptr i8, ptr %to, i64 %k
  %byte = load i8, ptr %near.k, align 1
  store i8 %byte, ptr %far.k, align 1
  %k.next = add i64 %k, 1
  %again = icmp ult i64 %k.next, %bytes
  br i1 %again, label %single, label %done
done:
  ret void
}
"""


def bands(loop: KernelLoop, math: MathCall) -> str:
    """Return @band, which runs `len` elements from `start` of `count` rows, `apart` bytes each.

    If results are stored late, it also stores as many rows that were computed before, if they may be
    overwritten up to `lag` elements, a whole number of vectors, before the one that is computed.
    """
    args = BAND + (BESIDE if loop.schedule.delayed else "")
    text = f"""define internal void @band({args}) {COLD}{{
entry:
  %wide = icmp uge i64 %len, {loop.lanes}
  br i1 %wide, label %vectors, label %elements
vectors:
  call void @{"vectors" if gapped(loop) else "wide"}({args})
  ret void
elements:
  call void @narrow({args})
  ret void
}}
"""
    both = _rows(loop, "wide", loop.lanes, math) + _rows(loop, "narrow", 1, math)
    if gapped(loop):
        text += chosen(loop, "vectors", args, "wide")
        both += _rows(loop, "halves", loop.lanes, math, halves=True)
    return (COPY if loop.schedule.delayed else "") + both + text


def apart(loop: KernelLoop) -> list[str]:
    """Return lines that write %apart: how many bytes the rows of every operand lie apart."""
    lines: list[str] = []
    for op in loop.operands:
        step = "0" if op.letter == "v" else f"%step{op.word}.{loop.rank - 1}"
        lines += [
            f"  %apart{op.word} = getelementptr i64, ptr %apart, i64 {op.word}",
            f"  store i64 {step}, ptr %apart{op.word}, align 8",
        ]
    return lines


def _rows(loop: KernelLoop, name: str, width: int, math: MathCall, halves: bool = False) -> str:
    """Return a function that takes rows of at least `width` elements in vectors of `width` elements.

    The last vector of a row ends where the row does. What it begins with is computed twice, by it and
    by the vector before: it is read before anything is stored, so that rows may be overwritten.
    """
    w = BodyWriter(loop, width, math, halves=halves)
    w.lines.append("entry:")
    w.begin(varying="b")
    arrays, late = [o for o in loop.operands if o.letter not in "vt"], loop.schedule.delayed
    for op in arrays:
        word(w.lines, f"by{op.word}", "%apart", op.word)
    w.lines += [
        f"  %last = sub i64 %len, {width}", "  %before = icmp ne i64 %last, 0", "  br label %row", "row:",
        "  %r = phi i64 [ 0, %entry ], [ %r.next, %stored ]",
    ]
    for op in arrays:
        k, first = op.word, f"%p{op.word}.0" if op.letter == "b" else f"%p{op.word}"
        w.lines.append(f"  %at{k} = phi ptr [ {first}, %entry ], [ %at{k}.next, %stored ]")
    if late:
        w.lines += [f"  %{k} = phi ptr [ %{v}, %entry ], [ %{k}.next, %stored ]"
                    for k, v in (("ready", "from"), ("home", "to"))]
    fixed = dict(w.fixed)
    for op in arrays:
        if op.letter == "b":
            fixed[op.hop] = w.b.splat(f"%at{op.word}", op.dtype)
    ends = _vector(w, fixed, "last", "%last")
    w.lines += [
        "  br i1 %before, label %loop, label %stored", "loop:",
        "  %i = phi i64 [ 0, %row ], [ %i.next, %loop ]",
    ]
    _store(w, _vector(w, fixed, "some", "%i"), "some", "%i")
    if late:
        w.lines += _beside(arrays[-1], width)
    w.lines += [
        f"  %i.next = add i64 %i, {width}", "  %more = icmp ult i64 %i.next, %last",
        "  br i1 %more, label %loop, label %stored", "stored:",
    ]
    if late:
        w.lines.append("  %run = phi i64 [ 0, %row ], [ %i.next, %loop ]")
    _store(w, ends, "last", "%last")
    if late:
        w.lines += _rest(arrays[-1])
    for op in arrays:
        w.lines.append(f"  %at{op.word}.next = getelementptr i8, ptr %at{op.word}, i64 %by{op.word}")
    body = "\n".join(w.lines)
    return f"""define internal void @{name}({BAND}{BESIDE if late else ""}) {{
{body}
  %r.next = add i64 %r, 1
  %again = icmp ult i64 %r.next, %count
  br i1 %again, label %row, label %done
done:
  ret void
}}
"""


def _beside(out: Operand, width: int) -> list[str]:
    """Return the copy of the vector that now may be overwritten; none yet: of one onto itself."""
    kind, size = memory_type(out.dtype), out.dtype.itemsize
    vec = f"<{width * size} x i8>"
    return [
        "  %free = icmp uge i64 %i, %lag", "  %i.before = sub i64 %i, %lag",
        "  %c = select i1 %free, i64 %i.before, i64 %i", "  %there = select i1 %free, ptr %home, ptr %ready",
        f"  %c.from = getelementptr {kind}, ptr %ready, i64 %c",
        f"  %c.to = getelementptr {kind}, ptr %there, i64 %c",
        f"  %c.some = load {vec}, ptr %c.from, align 1", f"  store {vec} %c.some, ptr %c.to, align 1",
        f"  %c.next = getelementptr {kind}, ptr %home, i64 %i",
        "  %c.ahead = getelementptr i8, ptr %c.next, i64 %ahead",
        "  call void @llvm.prefetch.p0(ptr %c.ahead, i32 0, i32 3, i32 1)",
    ]


def _rest(out: Operand) -> list[str]:
    """Return the copy of what is left of a row, and the move to the next one."""
    kind, size = memory_type(out.dtype), out.dtype.itemsize
    return [
        "  %begun = call i64 @llvm.umax.i64(i64 %run, i64 %lag)", "  %copied = sub i64 %begun, %lag",
        f"  %d.from = getelementptr {kind}, ptr %ready, i64 %copied",
        f"  %d.to = getelementptr {kind}, ptr %home, i64 %copied", "  %left = sub i64 %long, %copied",
        f"  %left.bytes = mul i64 %left, {size}",
        "  call void @copy(ptr %d.to, ptr %d.from, i64 %left.bytes)",
        f"  %ready.next = getelementptr i8, ptr %ready, i64 %by{out.word}",
        "  %home.next = getelementptr i8, ptr %home, i64 %far",
    ]


def _vector(w: BodyWriter, fixed: dict[Hop, Value], name: str, index: str) -> dict[Hop, Value]:
    """Write loads and cells of the elements from `index` on; return every value."""
    values, ahead = dict(fixed), prefetch_bytes(w.loop)
    for op in w.loop.operands:
        if op.role == "in" and op.walks:
            at = w.pointer(op, f"%at{op.word}", name, index)
            values[op.hop] = w.read(op, at)
            if index == "%i" and op.word in ahead:
                w.prefetch(op, at, ahead[op.word])
    w.body(values)
    return values


def _store(w: BodyWriter, values: dict[Hop, Value], name: str, index: str) -> None:
    """Write the stores of the elements from `index` on."""
    for op in w.loop.operands:
        if op.role == "out":
            w.write(op, values[op.hop], w.pointer(op, f"%at{op.word}", f"{name}.to", index))


SOON = 4  # small tiles ahead of which memory is asked for


def _crossed(loop: KernelLoop) -> Operand:
    """Return an operand that is read across its rows, one with the smallest elements."""
    found = [o for o in loop.operands if o.role == "in" and o.letter == "s"]
    return min(found, key=lambda o: o.dtype.itemsize)


def tiled_kernel(loop: KernelLoop, math: MathCall, lines: list[str]) -> str:
    """Return the functions of a kernel whose entry begins with `lines`.

    Stores past the cache, of short runs in many pages, take several times as long as others.
    """
    n, last = len(loop.operands), loop.rank - 1
    lines[2:2] = [f"  %{name} = alloca [{n} x i64], align 16" for name in ("apart", "own")]
    word(lines, "narrow", "%geo", BATCH)
    word(lines, "high", "%geo", ROWS)
    lines += [
        *apart(loop), f"  %up = add i64 %size{last}, %high", "  %upper = sub i64 %up, 1",
        "  %strips = udiv i64 %upper, %high",
        "  %some = icmp ult i64 %begin, %end", "  br i1 %some, label %unit, label %exit", "unit:",
        "  %u = phi i64 [ %begin, %entry ], [ %u.next, %unit ]",
        "  %panel = udiv i64 %u, %strips", "  %near = urem i64 %u, %strips",
        "  %far = udiv i64 %panel, %blocks", "  %cut = urem i64 %panel, %blocks",
        f"  %before = mul i64 %far, %size{last}", "  %down = mul i64 %near, %high",
        "  %row = add i64 %before, %down",
    ]
    seek(lines, loop, "%row")
    lines += [
        f"  %below = sub i64 %size{last}, %down",
        "  %rows = call i64 @llvm.umin.i64(i64 %below, i64 %high)",
        "  %from = mul i64 %cut, %step", "  %left = sub i64 %inner, %from",
        "  %len = call i64 @llvm.umin.i64(i64 %left, i64 %step)",
        "  call void @tile(ptr %ops, ptr %steps, ptr %apart, i64 %from, i64 %len, i64 %rows, ptr %own,"
        " i64 %narrow)",
        "  %u.next = add i64 %u, 1", "  %again = icmp ult i64 %u.next, %end",
        "  br i1 %again, label %unit, label %exit", "exit:",
    ]
    end = "\n  ret void\n}\n"
    return bands(loop, math) + _ask(loop) + _tile(loop) + "\n".join(lines) + end


def _tile(loop: KernelLoop) -> str:
    """@tile: bands as high as a line is long and `narrow` columns wide, the last one of a row wider."""
    high = line_of(_crossed(loop))
    lines, moves = _begins(loop)
    begin, move = "\n".join(lines), "\n".join(moves)
    args = "ptr %own, ptr %steps, ptr %apart, i64 %at, i64 %width, i64 %height"
    return f"""define internal void @tile({BAND}, ptr %own, i64 %narrow) {COLD}{{
entry:
{begin}
  %wider = shl i64 %narrow, 1
  %some.ahead = mul i64 %narrow, {SOON}
  %ahead = call i64 @llvm.umin.i64(i64 %some.ahead, i64 %len)
  %asks = icmp ult i64 %narrow, %len
  br label %strip
strip:
  %r = phi i64 [ 0, %entry ], [ %r.next, %strip.end ]
{move}
  %rows = sub i64 %count, %r
  %begins = icmp eq i64 %r, 0
  %line = select i1 %begins, i64 %peel, i64 {high}
  %high = select i1 %asks, i64 %line, i64 %count
  %height = call i64 @llvm.umin.i64(i64 %rows, i64 %high)
  br label %column
column:
  %c = phi i64 [ 0, %strip ], [ %c.next, %run ]
  %at = add i64 %start, %c
  %rest = sub i64 %len, %c
  %ends = icmp ult i64 %rest, %wider
  %width = select i1 %ends, i64 %rest, i64 %narrow
  %soon = add i64 %c, %ahead
  %inside = icmp ult i64 %soon, %len
  %over = sub i64 %soon, %len
  %asked = select i1 %inside, i64 %soon, i64 %over
  %further = select i1 %inside, i64 0, i64 %height
  %asked.at = add i64 %start, %asked
  br i1 %asks, label %ask, label %run
ask:
  call void @ask(ptr %own, ptr %steps, ptr %apart, i64 %asked.at, i64 %further, i64 %narrow)
  br label %run
run:
  call void @band({args})
  %c.next = add i64 %c, %width
  %more = icmp ult i64 %c.next, %len
  br i1 %more, label %column, label %strip.end
strip.end:
  %r.next = add i64 %r, %height
  %again = icmp ult i64 %r.next, %count
  br i1 %again, label %strip, label %done
done:
  ret void
}}
"""


def _begins(loop: KernelLoop) -> tuple[list[str], list[str]]:
    """Return lines in front of a tile, with rows up to the end of a line, and those that move to row %r."""
    lines: list[str] = []
    for op in loop.operands:
        word(lines, f"op{op.word}", "%ops", op.word)
        word(lines, f"by{op.word}", "%apart", op.word)
    word(lines, "cross", "%steps", _crossed(loop).word)
    moves: list[str] = []
    for op in loop.operands:
        k = op.word
        moves += [
            f"  %d{k} = mul i64 %r, %by{k}", f"  %m{k} = add i64 %op{k}, %d{k}",
            f"  %own{k} = getelementptr i64, ptr %own, i64 {k}", f"  store i64 %m{k}, ptr %own{k}, align 8",
        ]
    crossed = _crossed(loop)
    lines += [
        "  %first = mul i64 %start, %cross", f"  %lies = add i64 %op{crossed.word}, %first",
        "  %to.line = sub i64 0, %lies", f"  %short = and i64 %to.line, {LINE - 1}",
        f"  %fewer = udiv i64 %short, {crossed.dtype.itemsize}", "  %fits = icmp eq i64 %fewer, 0",
        f"  %peel = select i1 %fits, i64 {line_of(crossed)}, i64 %fewer",
    ]
    return lines, moves


ASK = "ptr %ops, ptr %steps, ptr %apart, i64 %start, i64 %down, i64 %columns"


def _ask(loop: KernelLoop) -> str:
    """@ask: fetch the lines of a small tile, `down` rows below, of all that is read across rows or along."""
    lines: list[str] = []
    begun = "entry"
    for op in loop.operands:
        if op.role != "in" or op.letter not in "cs":
            continue
        k = op.word
        word(lines, f"x{k}", "%ops", k, "ptr")
        word(lines, f"by{k}", "%apart", k)
        word(lines, f"s{k}", "%steps", k)
        rows = f"%by{k}", str(line_of(_crossed(loop)))
        step, count = (f"%s{k}", "%columns") if op.letter == "s" else rows
        lines += [
            f"  %below{k} = mul i64 %by{k}, %down", f"  %right{k} = mul i64 %start, %s{k}",
            f"  %there{k} = add i64 %below{k}, %right{k}",
            f"  %y{k} = getelementptr i8, ptr %x{k}, i64 %there{k}", f"  br label %ask{k}", f"ask{k}:",
            f"  %i{k} = phi i64 [ 0, %{begun} ], [ %i{k}.next, %ask{k} ]",
            f"  %p{k} = phi ptr [ %y{k}, %{begun} ], [ %p{k}.next, %ask{k} ]",
            f"  call void @llvm.prefetch.p0(ptr %p{k}, i32 0, i32 3, i32 1)",
            f"  %p{k}.next = getelementptr i8, ptr %p{k}, i64 {step}", f"  %i{k}.next = add i64 %i{k}, 1",
            f"  %more{k} = icmp ult i64 %i{k}.next, {count}",
            f"  br i1 %more{k}, label %ask{k}, label %asked{k}", f"asked{k}:",
        ]
        begun = f"asked{k}"
    body = "\n".join(lines)
    return f"define internal void @ask({ASK}) {{\nentry:\n{body}\n  ret void\n}}\n"


ACROSS = "ptr %ops, ptr %steps, ptr %apart, i64 %n, i64 %count"


def is_crosswise(loop: KernelLoop) -> bool:
    """Tell whether there is to be code for rows that are short."""
    fits = loop.schedule.crosswise and loop.rank > 0 and loop.lanes > 1 and not loop.schedule.delayed
    return fits and all(o.letter in "vcbs" for o in loop.operands) \
        and all(h.op.kind is not Kind.TAKE for h in loop.kernel.body)


def chosen_crosswise(loop: KernelLoop, length: str, rows: str) -> list[str]:
    """Return lines that go to %across for %grouped of `rows` rows if they are short, else to %along.

    Elements that fill vectors are added up by lanes: rows that have such are not short.
    """
    most = crosswise_limit(loop.kernel, loop.form)
    most = min(most, loop.lanes - 1) if loop.aggregates else most
    return [
        f"  %grouped = and i64 {rows}, -{loop.lanes}", "  %any = icmp ne i64 %grouped, 0",
        f"  %few = icmp ule i64 {length}, {most}", "  %crossed = and i1 %few, %any",
        "  br i1 %crossed, label %across, label %along", "across:",
        f"  call void @across(ptr %ops, ptr %steps, ptr %apart, i64 {length}, i64 %grouped)",
        "  br label %next", "along:",
    ]


def across(loop: KernelLoop, math: MathCall, how: str) -> str:
    """Return @across: all of `count` rows of `n` elements, as many of them at once as a vector has lanes."""
    w = BodyWriter(loop, loop.lanes, math)
    lines, arrays = w.lines, [o for o in loop.operands if o.letter != "v"]
    lines += ["entry:", "  %start = add i64 0, 0"]
    w.begin(varying="b")
    for op in arrays:
        word(lines, f"by{op.word}", "%apart", op.word)
    starts = [w.b.const(identity(o.hop.op.name, o.dtype), o.dtype) for o in loop.aggregates]
    lines += ["  br label %row", "row:", "  %r = phi i64 [ 0, %entry ], [ %r.next, %stored ]"]
    lines += [f"  %at{o.word} = phi ptr [ %p{o.word}.0, %entry ], [ %at{o.word}.next, %stored ]"
              for o in arrays]
    for op in arrays:
        if op.role == "in" and op.letter == "b":
            w.fixed[op.hop] = w.b.gather(f"%at{op.word}", f"%by{op.word}", op.dtype)
    lines += ["  br label %loop", "loop:"]
    for op, found in zip(loop.aggregates, _elements(w, arrays, starts), strict=True):
        ready = combined(w.b, op, w.b.const(initial(op), op.dtype), found)
        w.b.scatter(ready, f"%at{op.word}", f"%by{op.word}")
    lines += ["  br label %stored", "stored:"]
    for op in arrays:
        lines += [f"  %jump{op.word} = mul i64 %by{op.word}, {loop.lanes}",
                  f"  %at{op.word}.next = getelementptr i8, ptr %at{op.word}, i64 %jump{op.word}"]
    body = "\n".join(lines)
    return f"""define internal void @across({ACROSS}) {how}{{
{body}
  %r.next = add i64 %r, {loop.lanes}
  %again = icmp ult i64 %r.next, %count
  br i1 %again, label %row, label %done
done:
  ret void
}}
"""


def _elements(w: BodyWriter, arrays: Sequence[Operand], starts: Sequence[Value]) -> list[Value]:
    """Write the loop over the elements of rows side by side; return the aggregates, in %summed."""
    head, values = len(w.lines), dict(w.fixed)
    for op in arrays:
        if op.role == "in" and op.walks:
            at = w.pointer(op, f"%at{op.word}")
            values[op.hop] = w.b.gather(at, f"%by{op.word}", op.dtype)
    last = w.body_of_near(values)
    phis, ends = [f"  %i = phi i64 [ 0, %row ], [ %i.next, %{last} ]"], []
    for k, op in enumerate(w.loop.aggregates):
        ends.append(w.combine(op, named(op.dtype, f"%sofar{k}"), values))
        phis += w.b.phi(f"%sofar{k}", (starts[k], "row"), (ends[k], last))
    for op in arrays:
        if op.role == "out":
            w.b.scatter(values[op.hop], w.pointer(op, f"%at{op.word}"), f"%by{op.word}")
    w.lines[head:head] = phis
    w.lines += [
        "  %i.next = add i64 %i, 1", "  %more = icmp ult i64 %i.next, %n",
        "  br i1 %more, label %loop, label %summed", "summed:",
    ]
    return ends
