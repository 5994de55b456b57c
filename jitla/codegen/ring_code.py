"""Units that any thread computes and that are added up in their order, as IR: nobody waits for a turn.

Knows: atomics, slots, the order of units. Must not know: what a unit computes, how it is added.
Receives nothing; returns functions that call ``@unit(block, unit, slot)`` for one unit after the other.

A unit is computed into a free slot, and put into a ring. Whoever then gets the lock adds all units that
are next; the others compute the next ones meanwhile. Only where the ring is full, because the thread that
computes the next unit to be added does not run, others wait: they sleep, so that it finds a processor.
Units are handed out one by one in their order, so the one that is next has been begun.
"""

from __future__ import annotations

from jitla.codegen.pool_os import PAUSE

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
