"""The skeleton of cells that read an operand across its rows: tiles, in the order of its cache lines.

Knows: several rows of the walk read the same lines of such an operand. Must not know: what is computed.
Receives a `Loop`; returns IR text of functions.

A unit is a tile, as wide and as high as the geometry says. It is cut into smaller ones, as high as a
line is long: what they have touched is used up then, however far the lines lie apart.
"""

from __future__ import annotations

from jitla.codegen.bands import BAND, apart, bands
from jitla.codegen.layout import BATCH, COLD, ROWS, Loop, Operand, seek, word
from jitla.codegen.scalar import MathCall
from jitla.fusion import Geometry

__all__ = ["is_tiled", "tile_sizes", "tiled_kernel"]

LINE = 64  # bytes
WIDE, HIGH = 64, 128  # columns and rows of a tile: so many pages are in use, and so much of each


def is_tiled(loop: Loop) -> bool:
    """Tell whether cells may read an operand across its rows."""
    crossed = any(o.role == "in" and o.letter == "s" for o in loop.operands)
    return loop.form.mode == "cell" and loop.rank > 0 and crossed and not loop.polynomials \
        and not loop.schedule.delayed


def tile_sizes(loop: Loop, geometry: Geometry) -> tuple[int, int, int]:
    """Return columns and rows of a tile, and columns of the smaller ones.

    If no operand's neighbours lie in different rows of the walk, tiles are rows.
    """
    strides = iter(geometry.strides)
    walked = [(o, next(strides)) for o in loop.operands if o.letter != "v"]
    turned = any(o.role == "in" and 0 < abs(s[-2]) < abs(s[-1]) for o, s in walked)
    columns = max(geometry.dims[-1], 1)
    if not turned:
        return columns, 1, columns
    narrow = max(loop.lanes, *(LINE // o.dtype.itemsize for o in _outs(loop)))
    return min(max(WIDE, narrow), columns), HIGH, narrow


def _outs(loop: Loop) -> list[Operand]:
    return [o for o in loop.operands if o.role == "out"]


def _lines_long(loop: Loop) -> int:
    """Return how many elements of an operand that is read across share a line."""
    return LINE // min(o.dtype.itemsize for o in loop.operands if o.role == "in" and o.letter == "s")


def tiled_kernel(loop: Loop, math: MathCall, lines: list[str], past: bool) -> str:
    """Return the functions of a kernel whose entry begins with `lines`; `past`: it may store past the cache."""
    n, last = len(loop.operands), loop.rank - 1
    lines[2:2] = [f"  %{name} = alloca [{n} x i64], align 16" for name in ("apart", "own")]
    word(lines, "narrow", "%geo", BATCH)
    word(lines, "high", "%geo", ROWS)
    lines += [
        *apart(loop), f"  %up = add i64 %size{last}, %high", "  %upper = sub i64 %up, 1",
        "  %strips = udiv i64 %upper, %high",
        "  %some = icmp ult i64 %begin, %end", "  br i1 %some, label %unit, label %exit", "unit:",
        "  %u = phi i64 [ %begin, %entry ], [ %u.next, %unit ]",
        "  %strip = udiv i64 %u, %blocks", "  %cut = urem i64 %u, %blocks",
        "  %far = udiv i64 %strip, %strips", "  %near = urem i64 %strip, %strips",
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
    if past:
        lines.append("  call void @llvm.x86.sse.sfence()")
    end = "\n  ret void\n}\n"
    return bands(loop, math, past) + _tile(loop, past) + "\n".join(lines) + end


def _tile(loop: Loop, past: bool) -> str:
    """@tile: bands as high as a line is long and `narrow` columns wide, the last one of a row wider."""
    lines = _aligned(loop) if past else []
    for op in loop.operands:
        word(lines, f"op{op.word}", "%ops", op.word)
        word(lines, f"by{op.word}", "%apart", op.word)
    moves: list[str] = []
    for op in loop.operands:
        k = op.word
        moves += [
            f"  %d{k} = mul i64 %r, %by{k}", f"  %m{k} = add i64 %op{k}, %d{k}",
            f"  %own{k} = getelementptr i64, ptr %own, i64 {k}", f"  store i64 %m{k}, ptr %own{k}, align 8",
        ]
    begin, move = "\n".join(lines), "\n".join(moves)
    args = "ptr %own, ptr %steps, ptr %apart, i64 %at, i64 %width, i64 %height"
    run = f"  call void @band({args})\n  br label %ran\n"
    if past:
        run = (f"  br i1 %agree, label %around, label %through\naround:\n  call void @past({args})\n"
               f"  br label %ran\nthrough:\n{run}")
    return f"""define internal void @tile({BAND}, ptr %own, i64 %narrow) {COLD}{{
entry:
{begin}
  %wider = shl i64 %narrow, 1
  br label %strip
strip:
  %r = phi i64 [ 0, %entry ], [ %r.next, %strip.end ]
{move}
  %rows = sub i64 %count, %r
  %height = call i64 @llvm.umin.i64(i64 %rows, i64 {_lines_long(loop)})
  br label %column
column:
  %c = phi i64 [ 0, %strip ], [ %c.next, %ran ]
  %at = add i64 %start, %c
  %rest = sub i64 %len, %c
  %ends = icmp ult i64 %rest, %wider
  %width = select i1 %ends, i64 %rest, i64 %narrow
{run}ran:
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


def _aligned(loop: Loop) -> list[str]:
    """Return lines that tell whether all that a tile stores are whole vectors that lie as such."""
    lines = [f"  %odd.len = and i64 %len, {loop.lanes - 1}", f"  %odd.narrow = and i64 %narrow, {loop.lanes - 1}",
             "  %odd = or i64 %odd.len, %odd.narrow"]
    total = "%odd"
    for op in _outs(loop):
        k, size = op.word, op.dtype.itemsize
        word(lines, f"o{k}", "%ops", k)
        word(lines, f"ob{k}", "%apart", k)
        lines += [
            f"  %of{k} = mul i64 %start, {size}", f"  %oa{k} = add i64 %o{k}, %of{k}",
            f"  %ox{k} = or i64 %oa{k}, %ob{k}", f"  %om{k} = and i64 %ox{k}, {loop.lanes * size - 1}",
            f"  %odd{k} = or i64 {total}, %om{k}",
        ]
        total = f"%odd{k}"
    return [*lines, f"  %agree = icmp eq i64 {total}, 0"]
