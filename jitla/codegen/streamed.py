"""A stretch of cells whose results are stored past the cache, in aligned vectors.

Knows: @span and @stream, which store as usual and past the cache. Must not know: what is computed, units.
Receives a `Loop`; returns the text of a function.
"""

from __future__ import annotations

from jitla.codegen.layout import COLD, Loop, word
from jitla.codegen.units import calls


def stream_line(loop: Loop) -> str:
    """Return @line: aligned vectors if all outputs agree, between two that begin and end with the line.

    Elements that lie in two of them are computed twice: nothing of what is read may be overwritten.
    """
    outs = [o for o in loop.operands if o.role == "out"]
    lines: list[str] = []
    apart = []
    for op in outs:
        size, k = op.dtype.itemsize, op.word
        word(lines, f"o{k}", "%ops", k)
        lines += [
            f"  %d{k} = mul i64 %from, {size}", f"  %a{k} = add i64 %o{k}, %d{k}",
            f"  %n{k} = sub i64 0, %a{k}", f"  %m{k} = and i64 %n{k}, {loop.lanes * size - 1}",
            f"  %e{k} = udiv i64 %m{k}, {size}", f"  %b{k} = mul i64 %e{k}, {size}",
            f"  %x{k} = xor i64 %b{k}, %m{k}", f"  %y{k} = xor i64 %e{k}, %e{outs[0].word}",
        ]
        apart += [f"%x{k}", f"%y{k}"]
    total = "0"
    for i, name in enumerate(apart):
        lines.append(f"  %apart{i} = or i64 {total}, {name}")
        total = f"%apart{i}"
    first, shift = outs[0].word, loop.lanes.bit_length() - 1
    checks = "\n".join(lines)
    return f"""define internal void @line(ptr %ops, ptr %steps, i64 %from, i64 %len) {COLD}{{
entry:
{checks}
  %equal = icmp eq i64 {total}, 0
  %roomy = icmp uge i64 %len, {2 * loop.lanes}
  %agree = and i1 %equal, %roomy
  br i1 %agree, label %past, label %plain
past:
  %peels = icmp ne i64 %e{first}, 0
  br i1 %peels, label %first, label %second
first:
  call void @span(ptr %ops, ptr %steps, i64 %from, i64 1, ptr null)
  br label %second
second:
  %main = add i64 %from, %e{first}
  %long = sub i64 %len, %e{first}
  %v = lshr i64 %long, {shift}
  call void @stream(ptr %ops, ptr %steps, i64 %main, i64 %v, ptr null)
  %left = and i64 %long, {loop.lanes - 1}
  %leaves = icmp ne i64 %left, 0
  br i1 %leaves, label %last, label %over
last:
  %end = add i64 %from, %len
  %back = sub i64 %end, {loop.lanes}
  call void @span(ptr %ops, ptr %steps, i64 %back, i64 1, ptr null)
  br label %over
over:
  ret void
plain:
{calls(loop.lanes, "%len", "%from")}  ret void
}}
"""
