"""The skeleton of kernels with aggregates over everything.

Knows: NumPy's order of summation, partial results and how they meet. Must not know: ops of cells.
Receives a `Loop`; returns IR text of functions whose results do not depend on the threads.
"""

from __future__ import annotations

from jitla.codegen.abreast import abreast, ways
from jitla.codegen.gather import RUN, flattened, frame, gather
from jitla.codegen.layout import COLD, DEPTH, HEADER, INNER, PLAIN, Loop, word
from jitla.codegen.monoids import identity
from jitla.codegen.partial import finish, folded, limits, merged, multiple, paired, slots
from jitla.codegen.scalar import LlvmBuilder, MathCall
from jitla.codegen.span import Writer, early, elements, span

AHEAD = 1024  # bytes, of a lone stream in short loops; measured to slow down several streams
FAR = 1536  # bytes, if the loop looks for extremes as well and reads less at a time


def prefetched(loop: Loop) -> dict[int, int]:
    """Return for which operand memory is asked for early, and how many bytes."""
    if loop.schedule.ahead:
        return early(loop)
    streams = [o for o in loop.operands if o.role == "in" and o.letter in "csf"]
    lone = paired(loop) and len(streams) == 1 and streams[0].letter in "cf"
    extremes = any(o.hop.op.name in ("min", "max") for o in loop.aggregates)
    return {streams[0].word: FAR if extremes else AHEAD} if lone else {}


def _leaf(loop: Loop, math: MathCall, ahead: dict[int, int]) -> str:
    """Return @leaf: the aggregates of `n` elements from `start`, one vector accumulator each."""
    lanes, aggs = loop.lanes, loop.aggregates
    w = Writer(loop, lanes, math)
    lines = w.lines
    lines += [
        "entry:", f"  %thin = icmp ult i64 %n, {lanes}",
        "  br i1 %thin, label %few, label %many", "few:",
    ]
    b = LlvmBuilder(lines, 1, prefix="o")
    for slot, op in zip(slots(lines, "r", "%res", len(aggs), loop.slot), aggs, strict=True):
        b.store(b.const(identity(op.hop.op.name, op.dtype), op.dtype), slot)
    lines += ["  br label %ran", "many:", f"  %count = lshr i64 %n, {lanes.bit_length() - 1}"]
    w.begin()
    starts = [w.b.const(identity(op.hop.op.name, op.dtype), op.dtype) for op in aggs]
    ends = elements(w, "many", starts, ahead)
    for k, slot in enumerate(slots(lines, "g", "%res", len(aggs), loop.slot)):
        one = LlvmBuilder(lines, 1, prefix=f"w{k}.")
        one.store(folded(w.b, aggs[k], ends[k]), slot)
    body = "\n".join(lines)
    how = PLAIN if loop.calls else ""
    return f"""define internal void @leaf({RUN}) {how}{{
{body}
  br label %ran
ran:
  %rest = and i64 %n, {lanes - 1}
  %odd = icmp ne i64 %rest, 0
  br i1 %odd, label %tail, label %ready
tail:
  %whole = sub i64 %n, %rest
  %behind = add i64 %start, %whole
  call void @tail(ptr %ops, ptr %steps, i64 %behind, i64 %rest, ptr %res)
  br label %ready
ready:
  ret void
}}
"""


def tree(loop: Loop, leaf: str, many: int = 1) -> str:
    """Return @tree: like `leaf`, for any `n`; in NumPy's order, where the order matters.

    So `many` leaves are left to @abreast, if it takes them.
    """
    n = len(loop.aggregates)
    limit, unit = limits(loop)
    merge = "\n".join(merged(loop, "%res", "%res", "%right", "m"))
    several = f"""  %few = icmp ule i64 %n, {limit * many}
  br i1 %few, label %side, label %halves
side:
  %done = call i1 @abreast(ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res)
  br i1 %done, label %ready, label %halves
ready:
  ret void
"""
    return f"""define internal void @tree({RUN}) {PLAIN}{{
entry:
  %right = alloca [{n * loop.slot} x i8], align 16
  %small = icmp ule i64 %n, {limit}
  br i1 %small, label %one, label %two
one:
  call void @{leaf}(ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res)
  ret void
two:
{several if many > 1 else "  br label %halves"}
halves:
  %half = lshr i64 %n, 1
  %first = and i64 %half, -{unit}
  %behind = add i64 %start, %first
  %second = sub i64 %n, %first
  call void @tree(ptr %ops, ptr %steps, i64 %start, i64 %first, ptr %res)
  call void @tree(ptr %ops, ptr %steps, i64 %behind, i64 %second, ptr %right)
{merge}
  ret void
}}
"""


def _parts(loop: Loop, math: MathCall) -> tuple[str, str]:
    """Return the functions below a kernel and the name of the one that reduces a run."""
    flat = flattened(loop) if loop.gathers else loop
    text = span(flat, "tail", 1, math, how=COLD) + _leaf(flat, math, prefetched(loop))
    if loop.gathers:
        return text + gather(loop) + tree(loop, "gathered"), "tree"
    if not paired(loop) or loop.schedule.unroll > 1:  # what has more partial sums has them throughout
        return text, "leaf"
    if ways(loop) > 1:
        text += abreast(loop, math, prefetched(loop))
    return text + tree(loop, "leaf", ways(loop)), "tree"


def _operands(loop: Loop) -> list[str]:
    """Return lines that write %ops, %geo and %steps of a kernel over everything."""
    if loop.gathers:
        return frame(loop, limits(loop)[0])
    return [
        "  %ops = getelementptr i64, ptr %block, i64 8",
        f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}",
        "  %steps = getelementptr i64, ptr %geo, i64 5",
    ]


def full_kernel(loop: Loop, math: MathCall) -> str:
    """Return the functions of a kernel with aggregates over everything.

    A unit is one subtree DEPTH splits below the root; its results go to the scratch memory, and
    @fin combines neighbours upwards.
    """
    parts, reducer = _parts(loop, math)
    n = len(loop.aggregates)
    head = _operands(loop)
    word(head, "inner", "%geo", INNER)
    word(head, "depth", "%geo", DEPTH)
    word(head, "scratch", "%block", 6, "ptr")
    return f"""{parts}define void @k(ptr %block, i64 %begin, i64 %end) {COLD}{{
entry:
{chr(10).join(head)}
  %some = icmp ult i64 %begin, %end
  br i1 %some, label %unit, label %exit
unit:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %found ]
  br label %descend
descend:
  %level = phi i64 [ %depth, %unit ], [ %below, %deeper ]
  %start = phi i64 [ 0, %unit ], [ %start.next, %deeper ]
  %n = phi i64 [ %inner, %unit ], [ %n.next, %deeper ]
  %there = icmp eq i64 %level, 0
  br i1 %there, label %found, label %deeper
deeper:
  %below = sub i64 %level, 1
  %half = lshr i64 %n, 1
  %first = and i64 %half, -{multiple(loop)}
  %behind = add i64 %start, %first
  %second = sub i64 %n, %first
  %bits = lshr i64 %u, %below
  %right = trunc i64 %bits to i1
  %start.next = select i1 %right, i64 %behind, i64 %start
  %n.next = select i1 %right, i64 %second, i64 %first
  br label %descend
found:
  %offset = mul i64 %u, {loop.slot * n}
  %res = getelementptr i8, ptr %scratch, i64 %offset
  call void @{reducer}(ptr %ops, ptr %steps, i64 %start, i64 %n, ptr %res)
  %u.next = add i64 %u, 1
  %again = icmp ult i64 %u.next, %end
  br i1 %again, label %unit, label %exit
exit:
  ret void
}}
{_finish_kernel(loop)}"""


def _finish_kernel(loop: Loop) -> str:
    """Return @fin: combine the units' results two by two, then store them."""
    n = len(loop.aggregates)
    lines: list[str] = []
    word(lines, "units", "%block", 2)
    word(lines, "scratch", "%block", 6, "ptr")
    outs = [
        word(lines, f"out{k}", "%block", HEADER + o.word, "ptr")
        for k, o in enumerate(loop.aggregates)
    ]
    merge = "\n".join(merged(loop, "%into", "%left", "%right", "m"))
    ready = "\n".join(finish(loop, "%scratch", outs))
    return f"""define void @fin(ptr %block) {COLD}{{
entry:
{chr(10).join(lines)}
  br label %level
level:
  %count = phi i64 [ %units, %entry ], [ %pairs, %level.end ]
  %several = icmp ugt i64 %count, 1
  br i1 %several, label %pair.begin, label %done
pair.begin:
  %pairs = lshr i64 %count, 1
  br label %pair
pair:
  %i = phi i64 [ 0, %pair.begin ], [ %i.next, %pair ]
  %to = mul i64 %i, {loop.slot * n}
  %from = mul i64 %i, {2 * loop.slot * n}
  %into = getelementptr i8, ptr %scratch, i64 %to
  %left = getelementptr i8, ptr %scratch, i64 %from
  %right = getelementptr i8, ptr %left, i64 {loop.slot * n}
{merge}
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %pairs
  br i1 %more, label %pair, label %level.end
level.end:
  br label %level
done:
{ready}
  ret void
}}
"""
