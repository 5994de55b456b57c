"""The skeleton of rows of cells whose results are stored past the cache.

Knows: rows end anywhere in a cache line; memory wants whole lines. Must not know: what is computed.
Receives a `Loop` and the first lines of its kernel; returns IR text of functions.

A line that is stored in two parts costs many times what a whole one does: memory first has to read it.
So results go to memory that stays in the cache, and from there on in whole lines, whatever row they are
of. Where results do not go on where the last ones ended, the line is left, and another one begun.
"""

from __future__ import annotations

from jitla.codegen.bands import BAND, apart, bands
from jitla.codegen.layout import COLD, Loop, Operand
from jitla.codegen.scalar import MathCall
from jitla.codegen.units import NEXT, block_of_unit, calls

PIECE_BYTES, PIECE = 16_384, 1024  # results that are kept, of all operands; elements of each
LINE = 64  # bytes
LEAST = 64  # elements of a piece
FEW = 1024  # bytes of a row: of more, the two ends cost less than keeping all
GOAL, SPOT, FIRST, STATE = range(4)  # words: where the first line goes, bytes kept, where they begin


def staged_kernel(loop: Loop, math: MathCall, lines: list[str]) -> str:
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


def _shape(loop: Loop, outs: list[Operand], lines: list[str]) -> tuple[str, str]:
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


def _rows(loop: Loop) -> str:
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


def _stage(loop: Loop, outs: list[Operand], piece: int) -> str:
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


def _moves(loop: Loop) -> list[str]:
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
