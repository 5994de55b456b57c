"""Row kernels: stages over blocks of rows."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from jitla.codegen.kernel_abi import HEADER
from jitla.codegen.native.pool import PAUSE
from jitla.errors import BackendError
from jitla.fusion import BEFORE_BLOCKS, OPERAND, PARTIAL, SHARED, Blocking, BlockStage, Combine

__all__ = [
    "BOUND", "COMBINE", "OWN", "PLACE", "PLACES", "halved", "pack_rows", "rows_text", "unit_begins",
]


PER_ROW = 4  # entries that take as long as a row without any


def unit_begins(places: str, label: str, there: str) -> str:
    """Lines, from block `label` on, that return the first of `places` before which unit %u's share is done.

    %from and %to are what is done before the first place and behind the last; the lines `there` find %there,
    what is done before place %middle.
    """
    return f"""\
  %all = sub i64 %to, %from
  %each = udiv i64 %all, %units
  %left = urem i64 %all, %units
  %many = mul i64 %each, %u
  %few = mul i64 %left, %u
  %more = udiv i64 %few, %units
  %before = add i64 %many, %more
  %wanted = add i64 %from, %before
{halved(label, "0", places, "%wanted", there)}"""


def halved(label: str, low: str, high: str, wanted: str, there: str) -> str:
    """Lines, from block `label` on, that return the first place from `low` to `high` not below `wanted`.

    The lines `there` find %there, what place %middle has; no place has less than those before it.
    """
    return f"""\
  br label %half
half:
  %low = phi i64 [ {low}, %{label} ], [ %low.next, %nearer ]
  %high = phi i64 [ {high}, %{label} ], [ %high.next, %nearer ]
  %apart = icmp ult i64 %low, %high
  br i1 %apart, label %nearer, label %found
nearer:
  %sum = add i64 %low, %high
  %middle = lshr i64 %sum, 1
  %after = add i64 %middle, 1
{there}\
  %short = icmp slt i64 %there, {wanted}
  %low.next = select i1 %short, i64 %after, i64 %low
  %high.next = select i1 %short, i64 %high, i64 %middle
  br label %half
found:
  ret i64 %low
"""


_BEFORE_BLOCK = """\
  %row.far = mul i64 %middle, %height
  %row = call i64 @llvm.umin.i64(i64 %row.far, i64 %rows)
  %there = call i64 @weight(ptr %starts, i64 %itemsize, i64 %row)
"""
BOUND = f"""
; What is to do before a row: an entry each, and something for every row.
define internal i64 @weight(ptr %starts, i64 %itemsize, i64 %row) nounwind {{
entry:
  %long = icmp eq i64 %itemsize, 8
  br i1 %long, label %eight, label %four
eight:
  %p8 = getelementptr i64, ptr %starts, i64 %row
  %w8 = load i64, ptr %p8, align 8
  br label %known
four:
  %p4 = getelementptr i32, ptr %starts, i64 %row
  %i4 = load i32, ptr %p4, align 4
  %w4 = sext i32 %i4 to i64
  br label %known
known:
  %entries = phi i64 [ %w8, %eight ], [ %w4, %four ]
  %rows = mul i64 %row, {PER_ROW}
  %all = add i64 %entries, %rows
  ret i64 %all
}}

; The block of rows with which unit %u begins: the same however threads share units. Whatever lies in the
; operand, the first unit begins with the first block, and the last one ends with the last, so that every
; block is some unit's.
define internal i64 @bound(ptr %block, i64 %units, i64 %blocks, i64 %per, i64 %operand, i64 %itemsize,
                           i64 %height, i64 %rows, i64 %u) nounwind {{
entry:
  %even = icmp eq i64 %operand, 0
  %some = icmp ne i64 %u, 0
  %inner = icmp ult i64 %u, %units
  %within = and i1 %some, %inner
  %flat = mul i64 %u, %per
  %flat.end = call i64 @llvm.umin.i64(i64 %flat, i64 %blocks)
  %edge = select i1 %some, i64 %blocks, i64 0
  %known = select i1 %even, i64 %flat.end, i64 %edge
  %uneven = xor i1 %even, true
  %look = and i1 %within, %uneven
  br i1 %look, label %weigh, label %at
at:
  ret i64 %known
weigh:
  %word = add i64 %operand, {HEADER - 1}
  %starts.at = getelementptr i64, ptr %block, i64 %word
  %starts = load ptr, ptr %starts.at, align 8
  %from = call i64 @weight(ptr %starts, i64 %itemsize, i64 0)
  %to = call i64 @weight(ptr %starts, i64 %itemsize, i64 %rows)
{unit_begins("%blocks", "weigh", _BEFORE_BLOCK)}}}
"""


# Words behind the operands and their kinds.
BLOCKS, PER_UNIT, SLOTS, ROOM_BYTES, PART_BYTES, BUSY_AT, STAGES, STAGES_AT, COMBINES, COMBINES_AT, \
    SPARE_AT, COPIED, FREE, EARLY, TURN, STATE, STARTS, ITEMSIZE, HEIGHT, ROWS, OWN = range(21)
# Words of a stage in front of its operands' places, and of a place.
WHOLE, LAST, FIRST, COUNT, ONCE, WORDS, PLACES = range(7)
PLACE = 4
COMBINE = 6  # words of a result that is added up



def rows_text(triple: str) -> str:
    """Return the module of the entry @k and of @fin, the same for all kernels over rows."""
    own = _loads("own", (
        ("blocks", BLOCKS), ("per", PER_UNIT), ("slots", SLOTS), ("room.bytes", ROOM_BYTES),
        ("part", PART_BYTES), ("busy.at", BUSY_AT), ("stages", STAGES), ("stages.at", STAGES_AT),
        ("combines", COMBINES), ("combines.at", COMBINES_AT), ("spare", SPARE_AT), ("copied", COPIED),
        ("free", FREE), ("early", EARLY), ("starts.operand", STARTS), ("index.size", ITEMSIZE),
        ("block.rows", HEIGHT), ("all.rows", ROWS)))
    stage = _loads("at", (
        ("whole", WHOLE), ("last", LAST), ("begin", FIRST), ("count", COUNT),
        ("once", ONCE), ("words", WORDS)))
    combine = _loads("at", (("blob", 0), ("operand", 1), ("offset", 2), ("size", 3),
                            ("mirrored", 4), ("itemsize", 5)))
    text = _OWN + BOUND + _CLAIM + _STAGES + _EARLY + _RESULTS + _ENTRY + _FINISH
    for name, lines in (("OWN", own), ("STAGE", stage), ("COMBINE", combine), ("NEXT", _NEXT),
                        ("TURN", str(TURN)), ("STATE", str(STATE))):
        text = text.replace(f"@{name}@", lines)
    return f'target triple = "{triple}"\n' + text


def _loads(base: str, words: Sequence[tuple[str, int]]) -> str:
    return "".join(
        f"  %{name}.p = getelementptr i64, ptr %{base}, i64 {at}\n"
        f"  %{name} = load i64, ptr %{name}.p, align 8\n" for name, at in words)


_OWN = f"""
define internal ptr @own(ptr %block) nounwind {{
  %n.at = getelementptr i64, ptr %block, i64 7
  %n.word = load i64, ptr %n.at, align 8
  %n = and i64 %n.word, 4294967295
  %two = shl i64 %n, 1
  %at = add i64 %two, {HEADER}
  %own = getelementptr i64, ptr %block, i64 %at
  ret ptr %own
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
"""

# The end of a loop over the stages' blocks.
_NEXT = f"""stage.end:
  %all = mul i64 %count, {PLACE}
  %at.next = getelementptr i64, ptr %places, i64 %all
  %copy.next = getelementptr i64, ptr %copy, i64 %words
  %s.next = add i64 %s, 1
  %left = icmp ult i64 %s.next, %stages
  br i1 %left, label %stage, label %done
done:
  ret void
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

_STAGES = f"""
; Copy the blocks of all stages, those for the last block of rows, the first one, or the others.
define internal void @fetch(ptr %block, ptr %table, i64 %stages, ptr %copies, i64 %b, i1 %final,
                            i64 %spare) nounwind {{
entry:
  br label %stage
stage:
  %s = phi i64 [ 0, %entry ], [ %s.next, %stage ]
  %at = phi ptr [ %table, %entry ], [ %at.next, %stage ]
  %copy = phi ptr [ %copies, %entry ], [ %copy.next, %stage ]
@STAGE@  %begins = icmp eq i64 %b, 0
  %early = select i1 %begins, i64 %begin, i64 %whole
  %which = select i1 %final, i64 %last, i64 %early
  %from = getelementptr i64, ptr %block, i64 %which
  %size.at = getelementptr i64, ptr %from, i64 1
  %size = load i64, ptr %size.at, align 8
  %bytes = shl i64 %size, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 64 %copy, ptr align 8 %from, i64 %bytes, i1 false)
  %scratch = getelementptr i64, ptr %copy, i64 6
  store i64 %spare, ptr %scratch, align 8
  %skip = mul i64 %count, {PLACE}
  %skipped = add i64 %skip, {PLACES}
  %at.next = getelementptr i64, ptr %at, i64 %skipped
  %copy.next = getelementptr i64, ptr %copy, i64 %words
  %s.next = add i64 %s, 1
  %more = icmp ult i64 %s.next, %stages
  br i1 %more, label %stage, label %done
done:
  ret void
}}

; Put the operands of all stages where block number %b of rows has them.
define internal void @place(ptr %block, ptr %table, i64 %stages, ptr %copies, ptr %partial, i64 %room,
                            i64 %shared, i64 %b, i1 %given) nounwind {{
entry:
  br label %stage
stage:
  %s = phi i64 [ 0, %entry ], [ %s.next, %stage.end ]
  %at = phi ptr [ %table, %entry ], [ %at.next, %stage.end ]
  %copy = phi ptr [ %copies, %entry ], [ %copy.next, %stage.end ]
@STAGE@  %places = getelementptr i64, ptr %at, i64 {PLACES}
  %to = getelementptr i64, ptr %copy, i64 {HEADER}
  br label %one
one:
  %i = phi i64 [ 0, %stage ], [ %i.next, %put ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %which, label %stage.end
which:
  %skip = mul i64 %i, {PLACE}
  %p = getelementptr i64, ptr %places, i64 %skip
  %value.at = getelementptr i64, ptr %p, i64 1
  %step.at = getelementptr i64, ptr %p, i64 2
  %other.at = getelementptr i64, ptr %p, i64 3
  %kind = load i64, ptr %p, align 8
  %value = load i64, ptr %value.at, align 8
  %step = load i64, ptr %step.at, align 8
  %other = load i64, ptr %other.at, align 8
  %word = add i64 %value, {HEADER}
  switch i64 %kind, label %inner [ i64 {OPERAND}, label %operand
                                   i64 {PARTIAL}, label %part
                                   i64 {SHARED}, label %shares ]
inner:
  %near = add i64 %room, %value
  br label %put
shares:
  %everyones = add i64 %shared, %value
  br label %put
operand:
  %given.at = getelementptr i64, ptr %block, i64 %word
  %given.word = load i64, ptr %given.at, align 8
  %move = mul i64 %b, %step
  %begins = add i64 %given.word, %other
  %moved = add i64 %begins, %move
  br label %put
part:
  %first = ptrtoint ptr %partial to i64
  %mine = add i64 %first, %other
  %result.at = getelementptr i64, ptr %block, i64 %word
  %result = load i64, ptr %result.at, align 8
  %its = select i1 %given, i64 %result, i64 %mine
  br label %put
put:
  %w = phi i64 [ %near, %inner ], [ %everyones, %shares ], [ %moved, %operand ], [ %its, %part ]
  %here = getelementptr i64, ptr %to, i64 %i
  store i64 %w, ptr %here, align 8
  %i.next = add i64 %i, 1
  br label %one
@NEXT@
; Run a stage whose block is filled in.
define internal void @run(ptr %copy) nounwind {{
entry:
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

; Run all stages on one block of rows, and move their operands on to the next. Those behind the `free`
; ones go on from where the block before this one ends, whoever has it: it is claimed, so it comes.
define internal void @rows(ptr %table, i64 %stages, ptr %copies, i64 %when, i64 %free, ptr %turn,
                           i64 %b) nounwind {{
entry:
  br label %stage
stage:
  %s = phi i64 [ 0, %entry ], [ %s.next, %stage.end ]
  %at = phi ptr [ %table, %entry ], [ %at.next, %stage.end ]
  %copy = phi ptr [ %copies, %entry ], [ %copy.next, %stage.end ]
@STAGE@  %places = getelementptr i64, ptr %at, i64 {PLACES}
  %to = getelementptr i64, ptr %copy, i64 {HEADER}
  %now = icmp ule i64 %once, %when
  br i1 %now, label %may, label %moving
may:
  %waits = icmp eq i64 %s, %free
  br i1 %waits, label %wait, label %go
wait:
  %whose = load atomic i64, ptr %turn acquire, align 8
  %mine = icmp eq i64 %whose, %b
  br i1 %mine, label %go, label %rest
rest:
  {PAUSE}
  br label %wait
go:
  call void @run(ptr %copy)
  br label %moving
moving:
  br label %one
one:
  %i = phi i64 [ 0, %moving ], [ %i.next, %move ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %move, label %stage.end
move:
  %skip = mul i64 %i, {PLACE}
  %p = getelementptr i64, ptr %places, i64 %skip
  %step.at = getelementptr i64, ptr %p, i64 2
  %step = load i64, ptr %step.at, align 8
  %here = getelementptr i64, ptr %to, i64 %i
  %before = load i64, ptr %here, align 8
  %after = add i64 %before, %step
  store i64 %after, ptr %here, align 8
  %i.next = add i64 %i, 1
  br label %one
@NEXT@"""

_EARLY = f"""
; Have one thread run the stages that come before all others; the others wait until it has.
define internal void @early(ptr %table, i64 %early, ptr %copies, ptr %state) nounwind {{
entry:
  %swap = cmpxchg ptr %state, i64 0, i64 1 acquire acquire, align 8
  %mine = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %mine, label %run, label %look
run:
  call void @rows(ptr %table, i64 %early, ptr %copies, i64 {BEFORE_BLOCKS}, i64 %early, ptr %state, i64 0)
  store atomic i64 2, ptr %state release, align 8
  br label %done
look:
  %now = load atomic i64, ptr %state acquire, align 8
  %ready = icmp eq i64 %now, 2
  br i1 %ready, label %done, label %rest
rest:
  {PAUSE}
  br label %look
done:
  ret void
}}
"""

_RESULTS = f"""
; Fill a unit's partial results with zeros; the first unit's are the results themselves.
define internal void @begin(ptr %block, ptr %table, i64 %combines, ptr %partial, i1 %given) nounwind {{
entry:
  br label %result
result:
  %c = phi i64 [ 0, %entry ], [ %c.next, %zero ]
  %more = icmp ult i64 %c, %combines
  br i1 %more, label %zero, label %done
zero:
  %skip = mul i64 %c, {COMBINE}
  %at = getelementptr i64, ptr %table, i64 %skip
@COMBINE@  %word = add i64 %operand, {HEADER}
  %out.at = getelementptr i64, ptr %block, i64 %word
  %out = load ptr, ptr %out.at, align 8
  %mine = getelementptr i8, ptr %partial, i64 %offset
  %to = select i1 %given, ptr %out, ptr %mine
  call void @llvm.memset.p0.i64(ptr align 1 %to, i8 0, i64 %size, i1 false)
  %c.next = add i64 %c, 1
  br label %result
done:
  ret void
}}
"""

_ENTRY = """
define void @k(ptr %block, i64 %begin, i64 %end) nounwind {
entry:
  %own = call ptr @own(ptr %block)
@OWN@  %copies = alloca i64, i64 %copied, align 64
  %scratch.at = getelementptr i64, ptr %block, i64 6
  %parts = load ptr, ptr %scratch.at, align 8
  %units.at = getelementptr i64, ptr %block, i64 2
  %units = load i64, ptr %units.at, align 8
  %partial.units = sub i64 %units, 1
  %partial.bytes = mul i64 %partial.units, %part
  %rooms = getelementptr i8, ptr %parts, i64 %partial.bytes
  %busy = getelementptr i64, ptr %block, i64 %busy.at
  %slot = call i64 @claim(ptr %busy, i64 %slots)
  %skip = mul i64 %slot, %room.bytes
  %room.p = getelementptr i8, ptr %rooms, i64 %skip
  %room = ptrtoint ptr %room.p to i64
  %spare.here = add i64 %room, %spare
  %rooms.bytes = mul i64 %slots, %room.bytes
  %behind = getelementptr i8, ptr %rooms, i64 %rooms.bytes
  %shared = ptrtoint ptr %behind to i64
  %state = getelementptr i64, ptr %own, i64 @STATE@
  %calm = icmp eq i64 %early, 0
  %table = getelementptr i64, ptr %block, i64 %stages.at
  %results = getelementptr i64, ptr %block, i64 %combines.at
  %final.block = sub i64 %blocks, 1
  %some = icmp ult i64 %begin, %end
  %turn = getelementptr i64, ptr %own, i64 @TURN@
  %turns = icmp ult i64 %free, %stages
  br i1 %some, label %begins, label %leave
begins:
  br label %unit
unit:
  %u = phi i64 [ %begin, %begins ], [ %u.next, %unit.end ]
  %u.next = add i64 %u, 1
  %b0 = call i64 @bound(ptr %block, i64 %units, i64 %blocks, i64 %per, i64 %starts.operand, i64 %index.size,
                        i64 %block.rows, i64 %all.rows, i64 %u)
  %b1 = call i64 @bound(ptr %block, i64 %units, i64 %blocks, i64 %per, i64 %starts.operand, i64 %index.size,
                        i64 %block.rows, i64 %all.rows, i64 %u.next)
  %given = icmp eq i64 %u, 0
  %before = sub i64 %u, 1
  %far = mul i64 %before, %part
  %partial = getelementptr i8, ptr %parts, i64 %far
  call void @begin(ptr %block, ptr %results, i64 %combines, ptr %partial, i1 %given)
  %has.rows = icmp ult i64 %b0, %b1
  br i1 %has.rows, label %rows, label %unit.end
rows:
  %b = phi i64 [ %b0, %unit ], [ %b.next, %after ]
  %final = icmp eq i64 %b, %final.block
  %opening = icmp eq i64 %b, %b0
  %second = icmp eq i64 %b, 1
  %special = or i1 %final, %second
  %other = or i1 %special, %opening
  br i1 %other, label %fetch, label %go
fetch:
  call void @fetch(ptr %block, ptr %table, i64 %stages, ptr %copies, i64 %b, i1 %final,
                   i64 %spare.here)
  call void @place(ptr %block, ptr %table, i64 %stages, ptr %copies, ptr %partial,
                   i64 %room, i64 %shared, i64 %b, i1 %given)
  br i1 %calm, label %go, label %early.run
early.run:
  call void @early(ptr %table, i64 %early, ptr %copies, ptr %state)
  br label %go
go:
  %when = zext i1 %opening to i64
  call void @rows(ptr %table, i64 %stages, ptr %copies, i64 %when, i64 %free, ptr %turn, i64 %b)
  %b.next = add i64 %b, 1
  br i1 %turns, label %over, label %after
over:
  store atomic i64 %b.next, ptr %turn release, align 8
  br label %after
after:
  %rows.left = icmp ult i64 %b.next, %b1
  br i1 %rows.left, label %rows, label %unit.end
unit.end:
  %again = icmp ult i64 %u.next, %end
  br i1 %again, label %unit, label %leave
leave:
  %mine = getelementptr i64, ptr %busy, i64 %slot
  store atomic i64 0, ptr %mine release, align 8
  ret void
}
"""

_FINISH = f"""
; Fill what is below the diagonal of a square with what is above it.
define internal void @mirror(i64 %out, i64 %n, i64 %size) nounwind {{
entry:
  %far = mul i64 %n, %size
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row.end ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %column, label %done
column:
  %j = phi i64 [ 0, %row ], [ %j.next, %copy ]
  %left = icmp ult i64 %j, %i
  br i1 %left, label %copy, label %row.end
copy:
  %below.row = mul i64 %i, %far
  %below.column = mul i64 %j, %size
  %below.at = add i64 %below.row, %below.column
  %below.word = add i64 %out, %below.at
  %below = inttoptr i64 %below.word to ptr
  %above.row = mul i64 %j, %far
  %above.column = mul i64 %i, %size
  %above.at = add i64 %above.row, %above.column
  %above.word = add i64 %out, %above.at
  %above = inttoptr i64 %above.word to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %below, ptr align 4 %above, i64 %size, i1 false)
  %j.next = add i64 %j, 1
  br label %column
row.end:
  %i.next = add i64 %i, 1
  br label %row
done:
  ret void
}}

; Combine the partial results of all units, one unit after the other.
define void @fin(ptr %block) nounwind {{
entry:
  %own = call ptr @own(ptr %block)
@OWN@  %copy = alloca i64, i64 %copied, align 64
  %scratch.at = getelementptr i64, ptr %block, i64 6
  %parts = load ptr, ptr %scratch.at, align 8
  %units.at = getelementptr i64, ptr %block, i64 2
  %units = load i64, ptr %units.at, align 8
  %table = getelementptr i64, ptr %block, i64 %combines.at
  br label %result
result:
  %c = phi i64 [ 0, %entry ], [ %c.next, %result.end ]
  %left = icmp ult i64 %c, %combines
  br i1 %left, label %fill, label %done
fill:
  %skip = mul i64 %c, {COMBINE}
  %at = getelementptr i64, ptr %table, i64 %skip
@COMBINE@  %word = add i64 %operand, {HEADER}
  %out.at = getelementptr i64, ptr %block, i64 %word
  %out = load i64, ptr %out.at, align 8
  %from = getelementptr i64, ptr %block, i64 %blob
  %words.at = getelementptr i64, ptr %from, i64 1
  %words = load i64, ptr %words.at, align 8
  %bytes = shl i64 %words, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %copy, ptr align 8 %from, i64 %bytes, i1 false)
  %f0 = getelementptr i64, ptr %copy, i64 {HEADER}
  %f1 = getelementptr i64, ptr %f0, i64 1
  %f2 = getelementptr i64, ptr %f0, i64 2
  store i64 %out, ptr %f0, align 8
  store i64 %out, ptr %f2, align 8
  %first = getelementptr i8, ptr %parts, i64 %offset
  br label %unit
unit:
  %u = phi i64 [ 1, %fill ], [ %u.next, %add ]
  %theirs = phi ptr [ %first, %fill ], [ %theirs.next, %add ]
  %more = icmp ult i64 %u, %units
  br i1 %more, label %add, label %result.end
add:
  store ptr %theirs, ptr %f1, align 8
  call void @run(ptr %copy)
  %theirs.next = getelementptr i8, ptr %theirs, i64 %part
  %u.next = add i64 %u, 1
  br label %unit
result.end:
  %c.next = add i64 %c, 1
  call void @mirror(i64 %out, i64 %mirrored, i64 %itemsize)
  br label %result
done:
  ret void
}}
"""


MAX_WORDS = 8192  # of all stages' blocks, which are copied to the stack

def pack_rows(
    entry: int, finish: int, kinds: Sequence[int], stages: Sequence[BlockStage],
    combines: Sequence[Combine], cut: Blocking, grain: int, flags: int,
) -> bytes:
    """Return the argument block, everything filled in but the operands; `kinds` are the operands'."""
    n = len(kinds)
    base = HEADER + 2 * n
    busy_at = base + OWN
    stages_at = busy_at + cut.slots
    combines_at = stages_at + sum(PLACES + PLACE * len(s.places) for s in stages)
    blobs_at = combines_at + COMBINE * len(combines)
    table: list[int] = []
    blobs = b""
    for stage in stages:
        if not stage.whole:  # of a kernel that failed and that NumPy runs
            raise BackendError("a stage of rows has no machine code")
        at: list[int] = []
        for blob in (stage.whole, stage.last, stage.first):
            at.append(blobs_at + len(blobs) // 8 if blob else at[0])
            blobs += blob
        table += [*at, len(stage.places), stage.when, _words(stage)]
        table += [w for p in stage.places for w in p]
    for combine in combines:
        table += [blobs_at + len(blobs) // 8, combine.operand, combine.offset, combine.size,
                  combine.mirrored, combine.itemsize]
        blobs += combine.block
    copied = max(sum(map(_words, stages)), *(len(c.block) // 8 for c in combines), 0)
    if copied > MAX_WORDS:
        raise BackendError(f"the stages of rows have blocks of {8 * copied} bytes")
    free = next((i for i, s in enumerate(stages) if s.first), len(stages))
    before = sum(s.when == BEFORE_BLOCKS for s in stages)
    own = [cut.blocks, cut.per_unit, cut.slots, cut.slot_bytes, cut.partial_bytes, busy_at,
           len(stages), stages_at, len(combines), combines_at, cut.scratch_offset, copied, free, before,
           0, 0, *cut.shares]
    scratch = (cut.units - 1) * cut.partial_bytes + cut.slots * cut.slot_bytes + cut.shared_bytes
    words = [*([0] * n), *kinds, *own, *([0] * cut.slots), *table]
    size = HEADER + len(words) + len(blobs) // 8
    head = [entry, size, cut.units, grain, finish if combines else 0, scratch, 0, n | flags]
    return struct.pack(f"<{HEADER + len(words)}q", *head, *words) + blobs


def _words(stage: BlockStage) -> int:
    """Words that hold either of a stage's blocks, in whole cache lines."""
    words = max(map(len, (stage.whole, stage.last, stage.first))) // 8
    return words + -words % 8
