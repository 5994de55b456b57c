"""Kernels run one after the other on a block of rows that stays in the cache, as IR and as words.

Knows: argument blocks of kernels, where the rows of an operand lie. Must not know: what kernels compute.
Receives the argument blocks of stages; returns one argument block whose entry runs them all.

A unit is a fixed number of blocks of rows, so that what is added up over rows does not depend on the
threads: every unit has partial results of its own, and @fin combines them in order. The code is the
same for all; only the words differ.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from jitla.codegen.layout import HEADER
from jitla.errors import BackendError
from jitla.fusion import FRESH, OPERAND, PARTIAL, Combine, Cut, Stage

__all__ = ["pack_rows", "rows_text"]

MAX_WORDS = 1024  # of a stage's block, which is copied to the stack
# Words behind the operands and their kinds.
BLOCKS, PER_UNIT, SLOTS, ROOM_BYTES, PART_BYTES, BUSY_AT, STAGES, STAGES_AT, COMBINES, COMBINES_AT, \
    SPARE_AT, OWN = range(12)


def pack_rows(
    entry: int, finish: int, kinds: Sequence[int], stages: Sequence[Stage],
    combines: Sequence[Combine], cut: Cut, grain: int, flags: int,
) -> bytes:
    """Return the argument block, everything filled in but the operands; `kinds` as in every block."""
    n = len(kinds)
    base = HEADER + 2 * n
    busy_at = base + OWN
    stages_at = busy_at + cut.slots
    combines_at = stages_at + sum(4 + 4 * len(s.places) for s in stages)
    blobs_at = combines_at + 3 * len(combines)
    table: list[int] = []
    blobs = b""
    for stage in stages:
        at = []
        for blob in (stage.whole, stage.last):
            at.append(blobs_at + len(blobs) // 8)
            blobs += _checked(blob)
        table += [*at, len(stage.places), int(stage.later), *(w for p in stage.places for w in p)]
    for combine in combines:
        table += [blobs_at + len(blobs) // 8, combine.operand, combine.offset]
        blobs += _checked(combine.block)
    own = [cut.blocks, cut.per_unit, cut.slots, cut.room, cut.part, busy_at, len(stages), stages_at,
           len(combines), combines_at, cut.spare]
    own += [0] * (OWN - len(own))
    scratch = (cut.units - 1) * cut.part + cut.slots * cut.room
    words = [*([0] * n), *kinds, *own, *([0] * cut.slots), *table]
    size = HEADER + len(words) + len(blobs) // 8
    head = [entry, size, cut.units, grain, finish if combines else 0, scratch, 0, n | flags]
    return struct.pack(f"<{HEADER + len(words)}q", *head, *words) + blobs


def _checked(blob: bytes) -> bytes:
    if len(blob) > 8 * MAX_WORDS:
        raise BackendError(f"a stage of rows has a block of {len(blob)} bytes")
    return blob


def rows_text(triple: str) -> str:
    """Return the module of the entry @k and of @fin, the same for all kernels over rows."""
    loads = "".join(
        f"  %{name}.p = getelementptr i64, ptr %own, i64 {at}\n"
        f"  %{name} = load i64, ptr %{name}.p, align 8\n"
        for name, at in (
            ("blocks", BLOCKS), ("per", PER_UNIT), ("slots", SLOTS), ("room.bytes", ROOM_BYTES),
            ("part", PART_BYTES), ("busy.at", BUSY_AT), ("stages", STAGES), ("stages.at", STAGES_AT),
            ("combines", COMBINES), ("combines.at", COMBINES_AT), ("spare", SPARE_AT)))
    return f'target triple = "{triple}"\n' + _OWN + _CLAIM + _STAGE + \
        _ENTRY.replace("@LOADS@", loads) + _FINISH.replace("@LOADS@", loads)


_OWN = f"""
define internal ptr @own(ptr %block) nounwind alwaysinline {{
  %n.at = getelementptr i64, ptr %block, i64 7
  %n.word = load i64, ptr %n.at, align 8
  %n = and i64 %n.word, 4294967295
  %two = shl i64 %n, 1
  %at = add i64 %two, {HEADER}
  %own = getelementptr i64, ptr %block, i64 %at
  ret ptr %own
}}
"""

# A slot of memory that no other thread uses; if there are more threads than slots, some wait.
_CLAIM = """
define internal i64 @claim(ptr %busy, i64 %slots) nounwind {
entry:
  br label %look
look:
  %s = phi i64 [ 0, %entry ], [ %next, %taken ]
  %at = getelementptr i64, ptr %busy, i64 %s
  %swap = cmpxchg ptr %at, i64 0, i64 1 acquire monotonic, align 8
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %found, label %taken
taken:
  %up = add i64 %s, 1
  %over = icmp uge i64 %up, %slots
  %next = select i1 %over, i64 0, i64 %up
  br label %look
found:
  ret i64 %s
}
"""

_STAGE = f"""
; Copy the block of a stage, fill in its operands with %filled words, run it.
define internal void @run(ptr %from, ptr %filled, i64 %count, i64 %spare) nounwind {{
entry:
  %copy = alloca [{MAX_WORDS} x i64], align 64
  %size.at = getelementptr i64, ptr %from, i64 1
  %size = load i64, ptr %size.at, align 8
  %bytes = shl i64 %size, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 64 %copy, ptr align 8 %from, i64 %bytes, i1 false)
  %to = getelementptr i64, ptr %copy, i64 {HEADER}
  %fill = shl i64 %count, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %to, ptr align 8 %filled, i64 %fill, i1 false)
  %scratch = getelementptr i64, ptr %copy, i64 6
  store i64 %spare, ptr %scratch, align 8
  %entry.at = load ptr, ptr %copy, align 8
  %units.at = getelementptr i64, ptr %copy, i64 2
  %units = load i64, ptr %units.at, align 8
  call void %entry.at(ptr %copy, i64 0, i64 %units)
  %fin.at = getelementptr i64, ptr %copy, i64 4
  %fin = load ptr, ptr %fin.at, align 8
  %ends = icmp ne ptr %fin, null
  br i1 %ends, label %finish, label %done
finish:
  call void %fin(ptr %copy)
  br label %done
done:
  ret void
}}

; The word a stage finds for one of its operands.
define internal i64 @place(ptr %block, ptr %p, i64 %u, i64 %b, i1 %first, i64 %room, i64 %parts,
                           i64 %part) nounwind {{
entry:
  %value.at = getelementptr i64, ptr %p, i64 1
  %step.at = getelementptr i64, ptr %p, i64 2
  %other.at = getelementptr i64, ptr %p, i64 3
  %kind = load i64, ptr %p, align 8
  %value = load i64, ptr %value.at, align 8
  %step = load i64, ptr %step.at, align 8
  %other = load i64, ptr %other.at, align 8
  %word = add i64 %value, {HEADER}
  switch i64 %kind, label %own [ i64 {OPERAND}, label %operand
                                 i64 {PARTIAL}, label %partial
                                 i64 {FRESH}, label %fresh ]
own:
  %near = add i64 %room, %value
  ret i64 %near
operand:
  %given.at = getelementptr i64, ptr %block, i64 %word
  %given = load i64, ptr %given.at, align 8
  %move = mul i64 %b, %step
  %moved = add i64 %given, %move
  ret i64 %moved
fresh:
  br i1 %first, label %partial, label %later
later:
  %there = add i64 %room, %step
  ret i64 %there
partial:
  %zero = icmp eq i64 %u, 0
  br i1 %zero, label %result, label %mine
result:
  %r.at = getelementptr i64, ptr %block, i64 %word
  %r = load i64, ptr %r.at, align 8
  ret i64 %r
mine:
  %before = sub i64 %u, 1
  %skip = mul i64 %before, %part
  %own.parts = add i64 %parts, %skip
  %place = add i64 %own.parts, %other
  ret i64 %place
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_ENTRY = f"""
define void @k(ptr %block, i64 %begin, i64 %end) nounwind {{
entry:
  %filled = alloca [{MAX_WORDS} x i64], align 64
  %own = call ptr @own(ptr %block)
@LOADS@  %scratch.at = getelementptr i64, ptr %block, i64 6
  %parts = load i64, ptr %scratch.at, align 8
  %units.at = getelementptr i64, ptr %block, i64 2
  %units = load i64, ptr %units.at, align 8
  %partial.units = sub i64 %units, 1
  %partial.bytes = mul i64 %partial.units, %part
  %rooms = add i64 %parts, %partial.bytes
  %busy = getelementptr i64, ptr %block, i64 %busy.at
  %slot = call i64 @claim(ptr %busy, i64 %slots)
  %skip = mul i64 %slot, %room.bytes
  %room = add i64 %rooms, %skip
  %spare.here = add i64 %room, %spare
  %table = getelementptr i64, ptr %block, i64 %stages.at
  %some = icmp ult i64 %begin, %end
  br i1 %some, label %unit, label %leave
unit:
  %u = phi i64 [ %begin, %entry ], [ %u.next, %unit.end ]
  %b0 = mul i64 %u, %per
  %b1.full = add i64 %b0, %per
  %b1 = call i64 @llvm.umin.i64(i64 %b1.full, i64 %blocks)
  br label %rows
rows:
  %b = phi i64 [ %b0, %unit ], [ %b.next, %rows.end ]
  %first = icmp eq i64 %b, %b0
  %b.next = add i64 %b, 1
  %final = icmp eq i64 %b.next, %blocks
  br label %stage
stage:
  %s = phi i64 [ 0, %rows ], [ %s.next, %stage.end ]
  %at = phi ptr [ %table, %rows ], [ %at.next, %stage.end ]
  %last.at = getelementptr i64, ptr %at, i64 1
  %count.at = getelementptr i64, ptr %at, i64 2
  %later.at = getelementptr i64, ptr %at, i64 3
  %places = getelementptr i64, ptr %at, i64 4
  %whole = load i64, ptr %at, align 8
  %last = load i64, ptr %last.at, align 8
  %count = load i64, ptr %count.at, align 8
  %later = load i64, ptr %later.at, align 8
  %is.later = icmp ne i64 %later, 0
  %omit = and i1 %is.later, %first
  br i1 %omit, label %stage.end, label %fill
fill:
  %i = phi i64 [ 0, %stage ], [ %i.next, %put ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %put, label %go
put:
  %four = shl i64 %i, 2
  %p = getelementptr i64, ptr %places, i64 %four
  %w = call i64 @place(ptr %block, ptr %p, i64 %u, i64 %b, i1 %first, i64 %room, i64 %parts, i64 %part)
  %to = getelementptr i64, ptr %filled, i64 %i
  store i64 %w, ptr %to, align 8
  %i.next = add i64 %i, 1
  br label %fill
go:
  %which = select i1 %final, i64 %last, i64 %whole
  %from = getelementptr i64, ptr %block, i64 %which
  call void @run(ptr %from, ptr %filled, i64 %count, i64 %spare.here)
  br label %stage.end
stage.end:
  %s.next = add i64 %s, 1
  %skip.words = shl i64 %count, 2
  %at.next = getelementptr i64, ptr %places, i64 %skip.words
  %stages.left = icmp ult i64 %s.next, %stages
  br i1 %stages.left, label %stage, label %rows.end
rows.end:
  %rows.left = icmp ult i64 %b.next, %b1
  br i1 %rows.left, label %rows, label %unit.end
unit.end:
  %u.next = add i64 %u, 1
  %again = icmp ult i64 %u.next, %end
  br i1 %again, label %unit, label %leave
leave:
  %mine = getelementptr i64, ptr %busy, i64 %slot
  store atomic i64 0, ptr %mine release, align 8
  ret void
}}
declare i64 @llvm.umin.i64(i64, i64)
"""

_FINISH = f"""
; Combine the partial results of all units, one unit after the other.
define void @fin(ptr %block) nounwind {{
entry:
  %filled = alloca [3 x i64], align 16
  %own = call ptr @own(ptr %block)
@LOADS@  %scratch.at = getelementptr i64, ptr %block, i64 6
  %parts = load i64, ptr %scratch.at, align 8
  %units.at = getelementptr i64, ptr %block, i64 2
  %units = load i64, ptr %units.at, align 8
  %table = getelementptr i64, ptr %block, i64 %combines.at
  br label %unit
unit:
  %u = phi i64 [ 1, %entry ], [ %u.next, %unit.end ]
  %more = icmp ult i64 %u, %units
  br i1 %more, label %results, label %done
results:
  %before = sub i64 %u, 1
  %skip = mul i64 %before, %part
  %theirs = add i64 %parts, %skip
  br label %result
result:
  %c = phi i64 [ 0, %results ], [ %c.next, %combine ]
  %left = icmp ult i64 %c, %combines
  br i1 %left, label %combine, label %unit.end
combine:
  %three = mul i64 %c, 3
  %at = getelementptr i64, ptr %table, i64 %three
  %operand.at = getelementptr i64, ptr %at, i64 1
  %offset.at = getelementptr i64, ptr %at, i64 2
  %blob = load i64, ptr %at, align 8
  %operand = load i64, ptr %operand.at, align 8
  %offset = load i64, ptr %offset.at, align 8
  %word = add i64 %operand, {HEADER}
  %out.at = getelementptr i64, ptr %block, i64 %word
  %out = load i64, ptr %out.at, align 8
  %add = add i64 %theirs, %offset
  %f1 = getelementptr i64, ptr %filled, i64 1
  %f2 = getelementptr i64, ptr %filled, i64 2
  store i64 %out, ptr %filled, align 8
  store i64 %add, ptr %f1, align 8
  store i64 %out, ptr %f2, align 8
  %from = getelementptr i64, ptr %block, i64 %blob
  call void @run(ptr %from, ptr %filled, i64 3, i64 0)
  %c.next = add i64 %c, 1
  br label %result
unit.end:
  %u.next = add i64 %u, 1
  br label %unit
done:
  ret void
}}
"""
