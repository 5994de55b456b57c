"""Leaves of a pairwise sum side by side: each has its own accumulators, so that none waits for another.

Knows: how NumPy halves a run, how many registers there are. Must not know: units, ops of cells.
Receives a `Loop`; returns IR text of a function whose results are those of the leaves one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jitla.codegen.gather import RUN
from jitla.codegen.layout import Loop
from jitla.codegen.monoids import identity
from jitla.codegen.partial import folded, limits, merged, slots
from jitla.codegen.scalar import LlvmBuilder, MathCall
from jitla.codegen.span import Writer
from jitla.codegen.vector import Value, named

REGISTERS = 8  # that accumulators may take
BYTES = 8  # of an element of all operands: where more is read, memory is what leaves wait for
LONG = {2: 16, 4: 6}  # hops of the longest body that is written so often, and again for what is left over


def ways(loop: Loop) -> int:
    """Return how many leaves are taken at once; one, if cells are stored: their order may matter."""
    read = sum(op.dtype.itemsize for op in loop.operands if op.role == "in" and op.walks)
    # where elements of a table lie, the processor guesses only if they are read one after the other
    read += BYTES if any(op.letter == "t" for op in loop.operands) else 0
    if loop.calls or read > BYTES or any(op.role == "out" for op in loop.operands):
        return 1
    each = sum(-(-loop.lanes * op.dtype.itemsize // loop.target.vector_bytes) for op in loop.aggregates)
    fit = [n for n, most in LONG.items() if n * each <= REGISTERS and len(loop.kernel.body) <= most]
    return max(fit, default=1)


def abreast(loop: Loop, math: MathCall, ahead: Mapping[int, int]) -> str:
    """Return @abreast, which does the work of @tree where that has `ways` leaves, or returns 0.

    The first leaf is the shortest: the others take what they have more of behind the common loop.
    """
    many, aggs = ways(loop), loop.aggregates
    far = {word: many * distance for word, distance in ahead.items()}
    w = Writer(loop, loop.lanes, math)
    lines = w.lines
    lines.append("entry:")
    lines += [f"  %res{k} = alloca [{len(aggs) * loop.slot} x i8], align 16" for k in range(1, many)]
    froms, sizes = _halved(lines, loop, many)
    w.begin()
    starts = [w.b.const(identity(op.hop.op.name, op.dtype), op.dtype) for op in aggs]
    lines += ["  br label %loop", "loop:"]
    head, ends = len(lines), []
    phis = ["  %i = phi i64 [ 0, %begin ], [ %i.next, %loop ]"]
    for k in range(many):
        sofar = [named(op.dtype, f"%sofar{k}.{n}") for n, op in enumerate(aggs)]
        lines.append(f"  %at{k} = add i64 %i, {froms[k]}")
        ends.append(_step(w, f"a{k}.", f"%at{k}", sofar, far))
        for start, name, end in zip(starts, sofar, ends[k], strict=True):
            phis += w.b.phi(name.text, (start, "begin"), (end, "loop"))
    lines[head:head] = phis
    lines += [
        f"  %i.next = add i64 %i, {w.width}", f"  %more = icmp ult i64 %i.next, {sizes[0]}",
        "  br i1 %more, label %loop, label %over0", "over0:",
    ]
    _fold(w, 0, ends[0], "%res")
    for k in range(1, many):
        _fold(w, k, _rest(w, k, froms[k], sizes[k], ends[k]), f"%res{k}")
    return _text(loop, many, lines, froms[-1], sizes[-1])


def _halved(lines: list[str], loop: Loop, many: int) -> tuple[list[str], list[str]]:
    """Write where the leaves begin and how long they are; go on in %begin if there are `many`."""
    limit, unit = limits(loop)
    froms, sizes, shortest = ["0"], ["%n"], "%n"
    while len(sizes) < many:
        shortest, pairs = sizes[0], list(zip(froms, sizes, strict=True))
        froms, sizes = [], []
        for start, size in pairs:
            name = f"{len(pairs)}.{len(sizes)}"
            lines += [
                f"  %half{name} = lshr i64 {size}, 1", f"  %left{name} = and i64 %half{name}, -{unit}",
                f"  %right{name} = sub i64 {size}, %left{name}",
                f"  %behind{name} = add i64 {start}, %left{name}",
            ]
            froms += [start, f"%behind{name}"]
            sizes += [f"%left{name}", f"%right{name}"]
    lines += [
        f"  %parted = icmp ugt i64 {shortest}, {limit}", f"  %short = icmp ule i64 {sizes[-1]}, {limit}",
        "  %fits = and i1 %parted, %short", "  br i1 %fits, label %begin, label %not", "not:", "  ret i1 0",
        "begin:",
    ]
    return froms, sizes


def _step(w: Writer, name: str, index: str, sofar: Sequence[Value], ahead: Mapping[int, int]) -> list[Value]:
    """Write loads and cells of one vector from element `index` on; return the aggregates with it."""
    values = dict(w.fixed)
    for op in w.loop.operands:
        if op.role == "in" and op.walks:
            at = w.pointer(op, f"%p{op.word}", name, index)
            values[op.hop] = w.read(op, at)
            if op.word in ahead:
                w.prefetch(op, at, ahead[op.word], name)
    w.body(values)
    return [w.combine(op, x, values) for op, x in zip(w.loop.aggregates, sofar, strict=True)]


def _rest(w: Writer, k: int, start: str, size: str, sofar: Sequence[Value]) -> list[Value]:
    """Write the vectors of leaf `k` behind the common loop; return its aggregates, in %over`k`."""
    before = f"over{k - 1}"
    w.lines += [f"  br label %test{k}", f"test{k}:"]
    head = len(w.lines)
    found = [named(op.dtype, f"%rest{k}.{n}") for n, op in enumerate(w.loop.aggregates)]
    w.lines += [
        f"  %room{k} = sub i64 {size}, %i{k}", f"  %whole{k} = icmp uge i64 %room{k}, {w.width}",
        f"  br i1 %whole{k}, label %one{k}, label %over{k}", f"one{k}:",
        f"  %from{k} = add i64 %i{k}, {start}",
    ]
    ends = _step(w, f"b{k}.", f"%from{k}", found, {})
    w.lines += [f"  %i{k}.next = add i64 %i{k}, {w.width}", f"  br label %test{k}", f"over{k}:"]
    phis = [f"  %i{k} = phi i64 [ %i.next, %{before} ], [ %i{k}.next, %one{k} ]"]
    for x, name, end in zip(sofar, found, ends, strict=True):
        phis += w.b.phi(name.text, (x, before), (end, f"one{k}"))
    w.lines[head:head] = phis
    return found


def _fold(w: Writer, k: int, found: Sequence[Value], into: str) -> None:
    """Write the aggregates of leaf `k` to their slots."""
    aggs = w.loop.aggregates
    places = slots(w.lines, f"slot{k}.", into, len(aggs), w.loop.slot)
    for n, (op, x, place) in enumerate(zip(aggs, found, places, strict=True)):
        one = LlvmBuilder(w.lines, 1, prefix=f"w{k}.{n}.")
        one.store(folded(w.b, op, x, f"h{k}."), place)


def _text(loop: Loop, many: int, lines: list[str], start: str, size: str) -> str:
    """Return the function: `lines`, the elements behind the vectors of the last leaf, the halves' sums."""
    step, results = 1, ["%res", *(f"%res{k}" for k in range(1, many))]
    merges: list[str] = []
    while step < many:
        for k in range(0, many, 2 * step):
            merges += merged(loop, results[k], results[k], results[k + step], f"m{step}.{k}.")
        step *= 2
    return f"""define internal i1 @abreast({RUN}) {{
{chr(10).join(lines)}
  %odd = and i64 {size}, {loop.lanes - 1}
  %some = icmp ne i64 %odd, 0
  br i1 %some, label %tail, label %ready
tail:
  %end = add i64 {start}, {size}
  %back = sub i64 %end, %odd
  %there = add i64 %start, %back
  call void @tail(ptr %ops, ptr %steps, i64 %there, i64 %odd, ptr {results[-1]})
  br label %ready
ready:
{chr(10).join(merges)}
  ret i1 1
}}
"""
