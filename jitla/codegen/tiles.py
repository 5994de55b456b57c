"""The skeleton of cells that read an operand across its rows: tiles, in the order of its cache lines.

Knows: several rows of the walk read the same lines of such an operand. Must not know: what is computed.
Receives a `Loop`; returns IR text of functions.

A unit is a tile, as wide and as high as the geometry says. It is cut into smaller ones, as high as a
line is long: what they have touched is used up then, however far the lines lie apart. What some of the
next need is asked for meanwhile, as processors do not foresee so many runs at once.
"""

from __future__ import annotations

from jitla.codegen.bands import BAND, apart, bands
from jitla.codegen.layout import BATCH, COLD, ROWS, Loop, Operand, seek, word
from jitla.codegen.scalar import MathCall
from jitla.codegen.sizes import LINE, line_of

__all__ = ["tiled_kernel"]

SOON = 4  # small tiles ahead of which memory is asked for


def _crossed(loop: Loop) -> Operand:
    """Return an operand that is read across its rows, one with the smallest elements."""
    found = [o for o in loop.operands if o.role == "in" and o.letter == "s"]
    return min(found, key=lambda o: o.dtype.itemsize)


def tiled_kernel(loop: Loop, math: MathCall, lines: list[str]) -> str:
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


def _tile(loop: Loop) -> str:
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


def _begins(loop: Loop) -> tuple[list[str], list[str]]:
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


def _ask(loop: Loop) -> str:
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
