"""The skeleton of kernels without aggregates.

Knows: units, vectors and tails, stores past the cache. Must not know: what is computed.
Receives a `Loop`; returns IR text of functions.
"""

from __future__ import annotations

from jitla.codegen.bands import apart, bands
from jitla.codegen.crosswise import across, chosen, is_crosswise
from jitla.codegen.delayed import delayed_kernel
from jitla.codegen.layout import COLD, PLAIN, Loop
from jitla.codegen.scalar import MathCall
from jitla.codegen.sizes import is_tiled
from jitla.codegen.span import padded_tail, span
from jitla.codegen.staged import staged_kernel
from jitla.codegen.streamed import stream_line
from jitla.codegen.strips import long_span
from jitla.codegen.tiles import tiled_kernel
from jitla.codegen.units import NEXT, block_of_unit, calls, entry


def cell_kernel(loop: Loop, math: MathCall) -> str:
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


def _streamed(loop: Loop, lines: list[str]) -> str:
    """Return the function of a kernel whose units all lie one behind the other, past the cache."""
    block_of_unit(lines, loop)
    lines.append("  call void @line(ptr %ops, ptr %steps, i64 %from, i64 %len)")
    end = NEXT + "  call void @llvm.x86.sse.sfence()\n"
    return "\n".join(lines) + f"\n{end}  ret void\n}}\n"


def _banded(loop: Loop, math: MathCall) -> str:
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


def _crossed(loop: Loop, math: MathCall) -> str:
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


def _evenly(loop: Loop) -> list[str]:
    """Return lines that find out how many rows lie evenly apart from this unit on: %many."""
    last = loop.rank - 1
    return [
        f"  %beside = sub i64 %size{last}, %at{last}", "  %ahead = sub i64 %end, %u",
        "  %near = call i64 @llvm.umin.i64(i64 %beside, i64 %ahead)", "  %entire = icmp eq i64 %blocks, 1",
        "  %many = select i1 %entire, i64 %near, i64 1",
    ]


def streams(loop: Loop) -> bool:
    """Tell whether outputs are stored past the cache."""
    fit = all(o.letter == "c" for o in loop.operands if o.role == "out")
    return fit and loop.schedule.nontemporal and loop.target.triple.startswith("x86_64")
