"""The skeleton of kernels without aggregates.

Knows: units, vectors and tails, stores past the cache. Must not know: what is computed.
Receives a `Loop`; returns IR text of functions.
"""

from __future__ import annotations

from jitla.codegen.bands import apart, bands
from jitla.codegen.delayed import delayed_kernel
from jitla.codegen.layout import BLOCKS, COLD, INNER, PLAIN, STEP, Loop, copy_operands, seek, word
from jitla.codegen.scalar import MathCall
from jitla.codegen.span import padded_tail, span, spans
from jitla.codegen.tiles import is_tiled, tiled_kernel


def calls(width: int, length: str, start: str) -> str:
    """Return lines that run `length` elements from `start`: vectors, then one by one.

    The code goes on in block %ready.
    """
    return f"""  %vectors = lshr i64 {length}, {width.bit_length() - 1}
  %rest = and i64 {length}, {width - 1}
  %whole = sub i64 {length}, %rest
  %behind = add i64 {start}, %whole
  %wide = icmp ne i64 %vectors, 0
  br i1 %wide, label %run, label %ran
run:
  call void @span(ptr %ops, ptr %steps, i64 {start}, i64 %vectors, ptr null)
  br label %ran
ran:
  %odd = icmp ne i64 %rest, 0
  br i1 %odd, label %tail, label %ready
tail:
  call void @tail(ptr %ops, ptr %steps, i64 %behind, i64 %rest, ptr null)
  br label %ready
ready:
"""


def entry(loop: Loop, how: str = "") -> list[str]:
    """Return the first lines of a kernel: %words, %geo, %steps, %ops with the operands."""
    n = len(loop.operands)
    how = how or (PLAIN if loop.rank else COLD)
    lines = [
        f"define void @k(ptr %block, i64 %begin, i64 %end) {how}{{", "entry:",
        f"  %ops = alloca [{n} x i64], align 16",
        "  %words = getelementptr i64, ptr %block, i64 8",
        f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}",
        "  %steps = getelementptr i64, ptr %geo, i64 5",
    ]
    word(lines, "inner", "%geo", INNER)
    word(lines, "step", "%geo", STEP)
    word(lines, "blocks", "%geo", BLOCKS)
    copy_operands(lines, loop)
    return lines


def block_of_unit(lines: list[str], loop: Loop) -> None:
    """Write the loop head over units: moves %ops, sets %from and %len in the last dimension."""
    lines += [
        "  %some = icmp ult i64 %begin, %end", "  br i1 %some, label %unit, label %exit", "unit:",
        "  %u = phi i64 [ %begin, %entry ], [ %u.next, %next ]",
    ]
    cut = "%u"
    if loop.rank:
        lines += ["  %row = udiv i64 %u, %blocks", "  %cut = urem i64 %u, %blocks"]
        seek(lines, loop, "%row")
        cut = "%cut"
    lines += [
        f"  %from = mul i64 {cut}, %step", "  %left = sub i64 %inner, %from",
        "  %len = call i64 @llvm.umin.i64(i64 %left, i64 %step)",
    ]


NEXT = """  br label %next
next:
  %u.next = add i64 %u, 1
  %again = icmp ult i64 %u.next, %end
  br i1 %again, label %unit, label %exit
exit:
"""


def cell_kernel(loop: Loop, math: MathCall) -> str:
    """Return the functions of a kernel without aggregates."""
    if loop.schedule.delayed:
        return delayed_kernel(loop, math, entry(loop, COLD))
    past = streams(loop)
    if is_tiled(loop):
        return tiled_kernel(loop, math, entry(loop))
    if loop.rank and not loop.polynomials and not past:
        return _banded(loop, math)
    lines = entry(loop)
    block_of_unit(lines, loop)
    tail = padded_tail(loop) if loop.polynomials else span(loop, "tail", 1, math, how=PLAIN)
    how = PLAIN if loop.calls else ""
    parts = [spans(loop, math, how), tail]
    if past:
        parts += [span(loop, "stream", loop.lanes, math, nontemporal=True, how=how), _stream_line(loop)]
        lines.append("  call void @line(ptr %ops, ptr %steps, i64 %from, i64 %len)")
        end = NEXT + "  call void @llvm.x86.sse.sfence()\n"
        return "".join(parts) + "\n".join(lines) + f"\n{end}  ret void\n}}\n"
    text = "\n".join(lines) + "\n" + calls(loop.lanes, "%len", "%from")
    return "".join(parts) + text + NEXT + "  ret void\n}\n"


def _banded(loop: Loop, math: MathCall) -> str:
    """Return the functions of a kernel over rows: whole ones are taken as many as lie evenly apart."""
    lines = entry(loop)
    lines[2:2] = [f"  %apart = alloca [{len(loop.operands)} x i64], align 16"]
    lines += apart(loop)
    block_of_unit(lines, loop)
    last = loop.rank - 1
    lines += [
        f"  %beside = sub i64 %size{last}, %at{last}", "  %ahead = sub i64 %end, %u",
        "  %near = call i64 @llvm.umin.i64(i64 %beside, i64 %ahead)", "  %entire = icmp eq i64 %blocks, 1",
        "  %many = select i1 %entire, i64 %near, i64 1",
        "  call void @band(ptr %ops, ptr %steps, ptr %apart, i64 %from, i64 %len, i64 %many)",
    ]
    end = NEXT.replace("%u.next = add i64 %u, 1", "%u.next = add i64 %u, %many")
    return bands(loop, math) + "\n".join(lines) + f"\n{end}  ret void\n}}\n"


def streams(loop: Loop) -> bool:
    """Tell whether outputs are stored past the cache."""
    fit = all(o.letter == "c" for o in loop.operands if o.role == "out")
    return fit and loop.schedule.nontemporal and loop.target.triple.startswith("x86_64")


def _stream_line(loop: Loop) -> str:
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
