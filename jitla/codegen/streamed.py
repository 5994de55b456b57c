"""A stretch of cells whose results are stored past the cache, in whole lines.

Knows: @span and @stream, which store as usual and past the cache. Must not know: what is computed, units.
Receives a `Loop`; returns the text of a function.
"""

from __future__ import annotations

from jitla.codegen.layout import COLD, Loop, word
from jitla.codegen.units import calls

LINE = 64  # bytes that memory takes at once


def stream_line(loop: Loop) -> str:
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


def _alignment(loop: Loop, lines: list[str]) -> tuple[str, str, int]:
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
