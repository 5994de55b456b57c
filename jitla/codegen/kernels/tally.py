"""Tally kernels: sums by label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitla.codegen.indexing.gather import to_word
from jitla.codegen.ir import element_type, memory_type
from jitla.codegen.ir_elementwise import MathCall
from jitla.codegen.kernel_abi import (
    BLOCKS,
    COLD,
    GEOMETRY,
    HEADER,
    INNER,
    NEXT,
    PLAIN,
    STEP,
    KernelLoop,
    Operand,
    block_of_unit,
    calls,
    word,
)
from jitla.codegen.kernels.body import padded_tail, span
from jitla.codegen.native.pool import PAUSE
from jitla.codegen.native.symbols import usleep
from jitla.fusion import Form, Geometry, Kernel
from jitla.hops import Hop

__all__ = ["RING_WORDS", "SLOTS", "ring_text"]


SLOTS = 64  # of the ring, and for what is computed: a bit of a word each
# Words of the ring, all 0 at first: some keep it apart from what is only read; which unit is next, whether
# one adds, which slots are taken; then for every unit in the ring which slot it is in, from 1 on.
_TURN, _LOCK, _TAKEN, _READY = 8, 9, 10, 11
RING_WORDS = _READY + SLOTS
_SPINS = 1 << 9  # turns before a thread sleeps
_SLEEP = 50  # microseconds


def ring_text() -> str:
    """@room(ring, unit, usleep): a slot for a unit; @ready(block, ring, unit, slot): it is computed."""
    return _room() + _ready()


def _room() -> str:
    return f"""declare i64 @llvm.cttz.i64(i64, i1)
define internal i64 @room(ptr %ring, i64 %unit, ptr %usleep) nounwind noinline {{
entry:
  %turn.at = getelementptr i64, ptr %ring, i64 {_TURN}
  %taken.at = getelementptr i64, ptr %ring, i64 {_TAKEN}
  br label %look
look:
  %spins = phi i64 [ 0, %entry ], [ %spins.next, %spin ], [ 0, %sleep ]
  %turn = load atomic i64, ptr %turn.at acquire, align 8
  %far = add i64 %turn, {SLOTS}
  %open = icmp ult i64 %unit, %far
  br i1 %open, label %open.now, label %full
full:
  %spins.next = add i64 %spins, 1
  %long = icmp ugt i64 %spins.next, {_SPINS}
  %able = icmp ne ptr %usleep, null
  %tired = and i1 %long, %able
  br i1 %tired, label %sleep, label %spin
spin:
  {PAUSE}
  br label %look
sleep:
  call i32 %usleep(i32 {_SLEEP})
  br label %look
open.now:
  %first = load atomic i64, ptr %taken.at monotonic, align 8
  br label %claim
claim:
  %taken = phi i64 [ %first, %open.now ], [ %other, %claim ]
  %free = xor i64 %taken, -1
  %slot = call i64 @llvm.cttz.i64(i64 %free, i1 false)
  %bit = shl i64 1, %slot
  %more = or i64 %taken, %bit
  %swap = cmpxchg ptr %taken.at, i64 %taken, i64 %more acq_rel acquire, align 8
  %other = extractvalue {{ i64, i1 }} %swap, 0
  %mine = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %mine, label %done, label %claim
done:
  ret i64 %slot
}}
"""


def _ready() -> str:
    """Whoever gives the lock back looks again: a unit that came meanwhile has found it taken."""
    return f"""\
define internal void @ready(ptr %block, ptr %ring, i64 %unit, i64 %slot) nounwind noinline {{
entry:
  %turn.at = getelementptr i64, ptr %ring, i64 {_TURN}
  %lock.at = getelementptr i64, ptr %ring, i64 {_LOCK}
  %taken.at = getelementptr i64, ptr %ring, i64 {_TAKEN}
  %slots.at = getelementptr i64, ptr %ring, i64 {_READY}
  %own = and i64 %unit, {SLOTS - 1}
  %own.at = getelementptr i64, ptr %slots.at, i64 %own
  %named = add i64 %slot, 1
  store atomic i64 %named, ptr %own.at seq_cst, align 8
  br label %try
try:
  %swap = cmpxchg ptr %lock.at, i64 0, i64 1 seq_cst seq_cst, align 8
  %won = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %won, label %next, label %done
next:
  %turn = load atomic i64, ptr %turn.at monotonic, align 8
  %place = and i64 %turn, {SLOTS - 1}
  %at = getelementptr i64, ptr %slots.at, i64 %place
  %found = load atomic i64, ptr %at acquire, align 8
  %some = icmp ne i64 %found, 0
  br i1 %some, label %add, label %leave
add:
  %which = sub i64 %found, 1
  call void @unit(ptr %block, i64 %turn, i64 %which)
  store atomic i64 0, ptr %at monotonic, align 8
  %bit = shl i64 1, %which
  %others = xor i64 %bit, -1
  %before = atomicrmw and ptr %taken.at, i64 %others acq_rel, align 8
  %after = add i64 %turn, 1
  store atomic i64 %after, ptr %turn.at release, align 8
  br label %next
leave:
  store atomic i64 0, ptr %lock.at seq_cst, align 8
  %again = load atomic i64, ptr %at seq_cst, align 8
  %came = icmp ne i64 %again, 0
  br i1 %came, label %try, label %done
done:
  ret void
}}
"""


TALLIED = 2048  # elements of a unit
_SCRATCH = 6  # word of the block
_BINS, _USLEEP = 3, 4  # words of the geometry: how many labels there are, the function to sleep with
_ELEMENTS = 4  # of one turn of the loop that adds


def tally_kernel(loop: KernelLoop, math: MathCall) -> str:
    """Return the functions of a kernel whose results are sums by label."""
    given, made = _read(loop)
    sums = [o for o in loop.operands if o.role == "tally"]
    read = list(dict.fromkeys(i for o in sums for i in o.hop.inputs))
    inner = _inner(loop, given, made)
    parts = [_add(sums, read), _unit(loop, sums, read), ring_text()]
    lines = _entry(loop, [*given, *made])
    block_of_unit(lines, loop)
    lines += [
        "  %slot = call i64 @room(ptr %ring, i64 %u, ptr %usleep)",
        f"  %slot.at = mul i64 %slot, {_slot_bytes(loop)}",
        "  %slot.p = getelementptr i8, ptr %slots, i64 %slot.at", "  %before = sub i64 0, %from"]
    for op, at in zip(made, _places(made), strict=True):
        kind = memory_type(op.dtype)
        lines += [f"  %room{op.word} = getelementptr i8, ptr %slot.p, i64 {at}",
                  f"  %back{op.word} = getelementptr {kind}, ptr %room{op.word}, i64 %before",
                  f"  store ptr %back{op.word}, ptr %op{op.word}, align 8"]
    text = "\n".join(lines) + "\n"
    if made:
        how = PLAIN if loop.calls else ""
        tail = padded_tail(inner) if inner.polynomials else span(inner, "tail", 1, math, how=PLAIN)
        parts += [span(inner, "span", inner.lanes, math, how=how), tail]
        text += calls(inner.lanes, "%len", "%from")
    text += "  call void @ready(ptr %block, ptr %ring, i64 %u, i64 %slot)\n"
    return "".join(parts) + text + NEXT + "  ret void\n}\n"


def tally_units(loop: KernelLoop, geometry: Geometry, workers: int) -> tuple[int, tuple[int, ...], int]:
    """Return the number of units, the first geometry words and the bytes of scratch."""
    blocks = -(-geometry.dims[-1] // TALLIED)
    slots = min(SLOTS, blocks) if workers > 1 else 1
    head = (geometry.dims[-1], TALLIED, blocks, geometry.strides[-1][0], usleep())
    return blocks, head, slots * _slot_bytes(loop)


def _read(loop: KernelLoop) -> tuple[list[Operand], list[Operand]]:
    """Return what the kernel reads, and what it computes to be added up."""
    given = [o for o in loop.operands if o.role == "in"]
    known = {o.hop for o in given}
    read = dict.fromkeys(i for o in loop.operands if o.role == "tally" for i in o.hop.inputs)
    rest = [h for h in read if h not in known]
    return given, [Operand(len(given) + k, h, "c", "out") for k, h in enumerate(rest)]


def _places(made: list[Operand]) -> list[int]:
    """Return where the buffers of a slot begin."""
    return [TALLIED * sum(o.dtype.itemsize for o in made[:k]) for k in range(len(made))]


def _slot_bytes(loop: KernelLoop) -> int:
    return TALLIED * sum(o.dtype.itemsize for o in _read(loop)[1])


def _inner(loop: KernelLoop, given: list[Operand], made: list[Operand]) -> KernelLoop:
    """Return the loop that computes what is added up."""
    sums = set(loop.kernel.outputs)
    body = tuple(h for h in loop.kernel.body if h not in sums)
    kernel = Kernel("Cell", loop.kernel.shape, loop.kernel.inputs, body, tuple(o.hop for o in made))
    letters = "".join(o.letter for o in (*given, *made) if o.letter != "v")
    return replace(loop, kernel=kernel, form=Form("cell", 1, letters), operands=(*given, *made))


def _entry(loop: KernelLoop, operands: list[Operand]) -> list[str]:
    """Return the first lines: %ops and %steps of what is computed, slots and ring, the geometry."""
    lines = [
        f"define void @k(ptr %block, i64 %begin, i64 %end) {COLD}{{", "entry:",
        f"  %ops = alloca [{len(operands)} x i64], align 16",
        f"  %steps = alloca [{len(operands)} x i64], align 16",
        f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}",
        f"  %ring = getelementptr i64, ptr %geo, i64 {GEOMETRY + len(loop.operands)}",
    ]
    word(lines, "slots", "%block", _SCRATCH, "ptr")
    for op in operands:
        k, size = op.word, op.dtype.itemsize if op.walks else 0
        lines += [f"  %op{k} = getelementptr i64, ptr %ops, i64 {k}",
                  f"  %own{k} = getelementptr i64, ptr %steps, i64 {k}",
                  f"  store i64 {size}, ptr %own{k}, align 8"]
        if op.role == "in":
            value = word(lines, f"given{k}", "%block", HEADER + k)
            lines.append(f"  store i64 {value}, ptr %op{k}, align 8")
    for name, at in (("inner", INNER), ("step", STEP), ("blocks", BLOCKS)):
        word(lines, name, "%geo", at)
    word(lines, "usleep", "%geo", _USLEEP, "ptr")
    return lines


def _unit(loop: KernelLoop, sums: list[Operand], read: list[Hop]) -> str:
    """@unit(block, unit, slot): add a unit that has been computed; the first one clears the results."""
    given, made = _read(loop)
    rooms, known = dict(zip((o.hop for o in made), _places(made), strict=True)), {o.hop: o for o in given}
    lines = [f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}"]
    word(lines, "slots", "%block", _SCRATCH, "ptr")
    word(lines, "inner", "%geo", INNER)
    word(lines, "bins", "%geo", _BINS)
    for op in sums:
        word(lines, f"table{op.word}", "%block", HEADER + op.word, "ptr")
    lines += [f"  %from = mul i64 %unit, {TALLIED}", "  %left = sub i64 %inner, %from",
              f"  %len = call i64 @llvm.umin.i64(i64 %left, i64 {TALLIED})",
              f"  %slot.at = mul i64 %slot, {_slot_bytes(loop)}",
              "  %slot.p = getelementptr i8, ptr %slots, i64 %slot.at"]
    for k, hop in enumerate(read):
        if hop in rooms:
            lines.append(f"  %there{k} = getelementptr i8, ptr %slot.p, i64 {rooms[hop]}")
        else:
            word(lines, f"lies{k}", "%block", HEADER + known[hop].word, "ptr")
            kind = memory_type(hop.meta.dtype)
            lines.append(f"  %there{k} = getelementptr {kind}, ptr %lies{k}, i64 %from")
    pointers = (*(f"%there{k}" for k in range(len(read))), *(f"%table{o.word}" for o in sums))
    clears = "".join(
        f"  call void @llvm.memset.p0.i64(ptr align 8 %table{o.word}, i8 0, i64 %bytes, i1 false)\n"
        for o in sums)
    return f"""define internal void @unit(ptr %block, i64 %unit, i64 %slot) nounwind {{
entry:
{chr(10).join(lines)}
  %opens = icmp eq i64 %unit, 0
  br i1 %opens, label %clear, label %add
clear:
  %bytes = shl i64 %bins, 3
{clears}  br label %add
add:
  call void @add({", ".join(f"ptr {p}" for p in pointers)}, i64 %len, i64 %bins)
  ret void
}}
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
