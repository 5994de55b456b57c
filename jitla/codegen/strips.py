"""Long bodies in strips: a block of elements is run through several times, by a part of the body each.

Knows: how long functions are, what parts hand on in memory that stays in the cache. Must not know: units,
how rows are walked. Receives a `Loop`; returns IR text of a function like @span, with the same bits.
"""

from __future__ import annotations

from dataclasses import replace

from jitla.codegen.layout import Loop, Operand
from jitla.codegen.scalar import MathCall
from jitla.codegen.span import SPAN, span, spans
from jitla.codegen.vecmath import CALLING, family, length, supports
from jitla.codegen.vector import memory_type
from jitla.fusion import Kernel
from jitla.hops import Hop, Kind

INSTRUCTIONS = 155  # of functions in a strip: a processor looks so far ahead that turns of it overlap
WAITING = 2  # times as much count those that may have to call another
BYTES = 16_384  # of what strips hand on
LONGEST = 512  # elements that are run through at once


def parts(loop: Loop) -> list[tuple[Hop, ...]]:
    """Return the strips of the body, in order; one, if it is not to be cut."""
    body = loop.kernel.body
    if not loop.calls or any(h.op.kind in (Kind.TAKE, Kind.AGG) for h in body):
        return [body]
    place = _placed(body)
    found = [tuple(h for h in body if place[h] == k) for k in range(max(place.values()) + 1)]
    return [strip for strip in found if strip]


def _placed(body: tuple[Hop, ...]) -> dict[Hop, int]:
    """Return the strip of every cell: functions fill them in order, cells go along with what they read."""
    place: dict[Hop, int] = {}
    last, filled = 0, 0
    seen: set[tuple[str, Hop]] = set()
    for hop in body:
        place[hop] = max((place[i] for i in hop.inputs if i in place), default=-1)
        if not hop.op.transcendental:
            continue
        key = (family(hop.op.name), hop.inputs[0])
        many = 0 if key in seen else _instructions(hop)
        if filled and filled + many > INSTRUCTIONS:
            last, filled, seen = last + 1, 0, set()
        filled += many
        seen.add(key)
        place[hop] = last
    for hop in reversed(body):
        if place[hop] < 0:  # of operands only: where it is read first
            readers = [place[h] for h in body if hop in h.inputs]
            place[hop] = min(readers, default=last)
    return place


def _instructions(hop: Hop) -> int:
    """Return how long the function of `hop` is; what has no code of its own here is called."""
    name, dtype = hop.op.name, hop.meta.dtype
    if not supports(name, dtype, defines=True):
        return INSTRUCTIONS
    return length(name, dtype) * (WAITING if name in CALLING else 1)


def long_span(
    loop: Loop, name: str, math: MathCall, how: str, nontemporal: bool = False,
) -> str:
    """Return @`name`, which runs the body on whole vectors; a long one strip by strip.

    Results are stored by the last strip: where they overwrite operands, nobody reads these any more.
    """
    strips = parts(loop)
    if len(strips) < 2:
        return span(loop, name, loop.lanes, math, nontemporal, how) if nontemporal else spans(loop, math, how)
    held = _handed(loop, strips)
    outs = [o for o in loop.operands if o.role == "out"]
    between = [Operand(len(loop.operands) + k, hop, "c", "out") for k, hop in enumerate(held)]
    text, calls = "", ""
    for k, strip in enumerate(strips):
        final = k == len(strips) - 1
        read = {i for h in strip for i in h.inputs} | ({o.hop for o in outs} if final else set())
        ops = [o for o in loop.operands if o.role == "in" and o.hop in read]
        ops += [replace(o, role="in") for o in between if o.hop in read and o.hop not in strip]
        ops += outs if final else [o for o in between if o.hop in strip]
        kernel = Kernel("Cell", loop.kernel.shape, loop.kernel.inputs, strip, tuple(o.hop for o in ops))
        part = replace(loop, kernel=kernel, operands=tuple(ops), calls=False)
        text += span(part, f"{name}.{k}", loop.lanes, math, nontemporal and final, "noinline ")
        calls += f"  call void @{name}.{k}(ptr %ops.2, ptr %steps.2, i64 %at, i64 %n, ptr null)\n"
    return text + _driver(loop, name, between, calls, how)


def _handed(loop: Loop, strips: list[tuple[Hop, ...]]) -> list[Hop]:
    """Return the cells that a later strip reads, or stores as results."""
    results = {o.hop for o in loop.operands if o.role == "out"}
    held: list[Hop] = []
    for k, strip in enumerate(strips[:-1]):
        later = {i for s in strips[k + 1:] for h in s for i in h.inputs} | results
        held += [h for h in strip if h in later]
    return held


def _driver(loop: Loop, name: str, between: list[Operand], calls: str, how: str) -> str:
    """Return the function that calls the strips, block by block, with memory for what they hand on."""
    n, many = len(loop.operands), len(loop.operands) + len(between)
    size = sum(o.dtype.itemsize for o in between)
    turns = max(min(BYTES // max(size, 1), LONGEST) // loop.lanes, 1)
    lines = [f"  %{table}.2 = alloca [{many} x i64], align 16" for table in ("ops", "steps")]
    for table in ("ops", "steps"):
        for k in range(n):
            lines += [
                f"  %{table}{k} = getelementptr i64, ptr %{table}, i64 {k}",
                f"  %{table}{k}.v = load i64, ptr %{table}{k}, align 8",
                f"  %{table}{k}.to = getelementptr i64, ptr %{table}.2, i64 {k}",
                f"  store i64 %{table}{k}.v, ptr %{table}{k}.to, align 8",
            ]
    moved = []
    for op in between:
        kind = memory_type(op.dtype)
        lines += [f"  %room{op.word} = alloca [{turns * loop.lanes} x {kind}], align 64",
                  f"  %room{op.word}.to = getelementptr i64, ptr %ops.2, i64 {op.word}"]
        moved += [f"  %back{op.word} = getelementptr {kind}, ptr %room{op.word}, i64 %before",
                  f"  store ptr %back{op.word}, ptr %room{op.word}.to, align 8"]
    return "\n".join([
        f"define internal void @{name}({SPAN}) {how}{{", "entry:", *lines, "  br label %block", "block:",
        "  %b = phi i64 [ 0, %entry ], [ %b.next, %block ]", "  %left = sub i64 %count, %b",
        f"  %n = call i64 @llvm.umin.i64(i64 %left, i64 {turns})", f"  %done = mul i64 %b, {loop.lanes}",
        "  %at = add i64 %start, %done", "  %before = sub i64 0, %at", *moved, calls.rstrip("\n"),
        f"  %b.next = add i64 %b, {turns}", "  %more = icmp ult i64 %b.next, %count",
        "  br i1 %more, label %block, label %ready", "ready:", "  ret void", "}", "",
    ])
