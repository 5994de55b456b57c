"""The skeleton of kernels that add up by label what they compute.

Knows: units, buffers, the order in which units take turns. Must not know: what is computed.
Receives a `Loop`; returns IR text of functions.

A unit computes labels and weights into buffers that stay in the cache, and then adds them to the results,
when all units in front of it have: every sum is in the order of the array, whichever thread has a unit.
Units are handed out one by one, so the one that is waited for has been begun.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitla.codegen.indexing_code import to_word
from jitla.codegen.layout import BLOCKS, COLD, HEADER, INNER, PLAIN, STEP, Loop, Operand, word
from jitla.codegen.pool_os import PAUSE
from jitla.codegen.scalar import MathCall
from jitla.codegen.span import padded_tail, span
from jitla.codegen.units import NEXT, block_of_unit, calls
from jitla.codegen.vector import element_type, memory_type
from jitla.fusion import Form, Kernel
from jitla.hops import Hop

TALLIED = 2048  # elements of a unit
BINS, TURN = 3, 4  # words of the geometry: how many labels there are, which unit may add
_ELEMENTS = 4  # of one turn of the loop that adds


def tally_kernel(loop: Loop, math: MathCall) -> str:
    """Return the functions of a kernel whose results are sums by label."""
    given = [o for o in loop.operands if o.role == "in"]
    sums = [o for o in loop.operands if o.role == "tally"]
    read = dict.fromkeys(i for o in sums for i in o.hop.inputs)
    known = {o.hop: o for o in given}
    made = [Operand(len(given) + k, h, "c", "out") for k, h in enumerate(h for h in read if h not in known)]
    inner = _inner(loop, given, made)
    parts = [_add(sums, list(read))]
    lines = _entry(loop, [*given, *made], made)
    block_of_unit(lines, loop)
    lines.append("  %before = sub i64 0, %from")
    for op in made:
        kind = memory_type(op.dtype)
        lines += [f"  %back{op.word} = getelementptr {kind}, ptr %room{op.word}, i64 %before",
                  f"  store ptr %back{op.word}, ptr %op{op.word}, align 8"]
    text = "\n".join(lines) + "\n"
    if made:
        how = PLAIN if loop.calls else ""
        tail = padded_tail(inner) if inner.polynomials else span(inner, "tail", 1, math, how=PLAIN)
        parts += [span(inner, "span", inner.lanes, math, how=how), tail]
        text += calls(inner.lanes, "%len", "%from")
    else:
        text += "  br label %ready\nready:\n"
    return "".join(parts) + text + _turn(sums, read, known, made) + NEXT + "  ret void\n}\n"


def _inner(loop: Loop, given: list[Operand], made: list[Operand]) -> Loop:
    """Return the loop that computes what is added up."""
    sums = set(loop.kernel.outputs)
    body = tuple(h for h in loop.kernel.body if h not in sums)
    kernel = Kernel("Cell", loop.kernel.shape, loop.kernel.inputs, body, tuple(o.hop for o in made))
    letters = "".join(o.letter for o in (*given, *made) if o.letter != "v")
    return replace(loop, kernel=kernel, form=Form("cell", 1, letters), operands=(*given, *made))


def _entry(loop: Loop, operands: list[Operand], made: list[Operand]) -> list[str]:
    """Return the first lines: %ops and %steps of what is computed, buffers, the geometry."""
    lines = [
        f"define void @k(ptr %block, i64 %begin, i64 %end) {COLD}{{", "entry:",
        f"  %ops = alloca [{len(operands)} x i64], align 16",
        f"  %steps = alloca [{len(operands)} x i64], align 16",
        *(f"  %room{o.word} = alloca [{TALLIED} x {memory_type(o.dtype)}], align 64" for o in made),
        f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}",
    ]
    for op in operands:
        k, size = op.word, op.dtype.itemsize if op.walks else 0
        lines += [f"  %op{k} = getelementptr i64, ptr %ops, i64 {k}",
                  f"  %own{k} = getelementptr i64, ptr %steps, i64 {k}",
                  f"  store i64 {size}, ptr %own{k}, align 8"]
        if op.role == "in":
            value = word(lines, f"given{k}", "%block", HEADER + k)
            lines.append(f"  store i64 {value}, ptr %op{k}, align 8")
    for name, at in (("inner", INNER), ("step", STEP), ("blocks", BLOCKS), ("bins", BINS)):
        word(lines, name, "%geo", at)
    for op in loop.operands:
        if op.role == "tally":
            word(lines, f"table{op.word}", "%block", HEADER + op.word, "ptr")
    return [*lines, f"  %turn = getelementptr i64, ptr %geo, i64 {TURN}", "  %bytes = shl i64 %bins, 3"]


def _turn(
    sums: list[Operand], read: dict[Hop, None], known: dict[Hop, Operand], made: list[Operand]
) -> str:
    """Lines that wait for the unit's turn, add, and hand the turn on; the first unit clears the results."""
    rooms = {o.hop: f"%room{o.word}" for o in made}
    lines: list[str] = []
    sources: list[str] = []
    for hop in read:
        if hop in known:
            k, kind = known[hop].word, memory_type(hop.meta.dtype)
            word(lines, f"lies{k}", "%ops", k, "ptr")
            lines.append(f"  %there{k} = getelementptr {kind}, ptr %lies{k}, i64 %from")
        sources.append(rooms[hop] if hop in rooms else f"%there{known[hop].word}")
    given = ", ".join(f"ptr {x}" for x in (*sources, *(f"%table{o.word}" for o in sums)))
    clears = "".join(
        f"  call void @llvm.memset.p0.i64(ptr align 8 %table{o.word}, i8 0, i64 %bytes, i1 false)\n"
        for o in sums)
    return f"""  br label %wait
wait:
  %whose = load atomic i64, ptr %turn acquire, align 8
  %mine = icmp eq i64 %whose, %u
  br i1 %mine, label %go, label %rest.now
rest.now:
  {PAUSE}
  br label %wait
go:
  %opens = icmp eq i64 %u, 0
  br i1 %opens, label %clear, label %add
clear:
{clears}  br label %add
add:
{chr(10).join(lines)}
  call void @add({given}, i64 %len, i64 %bins)
  %after = add i64 %u, 1
  store atomic i64 %after, ptr %turn release, align 8
"""


def _add(sums: list[Operand], read: list[Hop]) -> str:
    """@add(sources..., tables..., n, bins): add elements one after the other, each to all tables."""
    labels = read[0].meta.dtype
    pointers = (*(f"%x{k}" for k in range(len(read))), *(f"%t{k}" for k in range(len(sums))))
    arguments = ", ".join(f"ptr {p}" for p in pointers)
    turn = "".join(_element(f"{k}", f"%i{k}", sums, read, labels) for k in range(_ELEMENTS))
    ahead = "".join(f"  %i{k} = add i64 %i, {k}\n" for k in range(_ELEMENTS))
    return f"""declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define internal void @add({arguments}, i64 %n, i64 %bins) nounwind {{
entry:
  %last = sub i64 %bins, 1
  br label %turns
turns:
  %i = phi i64 [ 0, %entry ], [ %i.next, %turn ]
  %i.next = add i64 %i, {_ELEMENTS}
  %more = icmp ule i64 %i.next, %n
  br i1 %more, label %turn, label %rest
turn:
{ahead}{turn}  br label %turns
rest:
  %j = phi i64 [ %i, %turns ], [ %j.next, %one ]
  %left = icmp ult i64 %j, %n
  br i1 %left, label %one, label %done
one:
{_element("s", "%j", sums, read, labels)}  %j.next = add i64 %j, 1
  br label %rest
done:
  ret void
}}
"""


def _element(tag: str, at: str, sums: list[Operand], read: list[Hop], labels: np.dtype) -> str:
    """Lines that add element `at`; a label that has no place after all is taken for the last one."""
    kind = element_type(labels)
    lines = (f"  %n{tag} = getelementptr {kind}, ptr %x0, i64 {at}\n"
             f"  %k{tag} = load {kind}, ptr %n{tag}, align 1\n{to_word(f'%w{tag}', f'%k{tag}', labels)}"
             f"  %z{tag} = call i64 @llvm.umin.i64(i64 %w{tag}, i64 %last)\n")
    for t, op in enumerate(sums):
        weighted = len(op.hop.inputs) > 1
        total, add, what = ("double", "fadd", f"%g{tag}.{t}") if weighted else ("i64", "add", "1")
        if weighted:
            source = read.index(op.hop.inputs[1])
            lines += (f"  %h{tag}.{t} = getelementptr double, ptr %x{source}, i64 {at}\n"
                      f"  %g{tag}.{t} = load double, ptr %h{tag}.{t}, align 8\n")
        lines += (f"  %p{tag}.{t} = getelementptr {total}, ptr %t{t}, i64 %z{tag}\n"
                  f"  %c{tag}.{t} = load {total}, ptr %p{tag}.{t}, align 8\n"
                  f"  %d{tag}.{t} = {add} {total} %c{tag}.{t}, {what}\n"
                  f"  store {total} %d{tag}.{t}, ptr %p{tag}.{t}, align 8\n")
    return lines
