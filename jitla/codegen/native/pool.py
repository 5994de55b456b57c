"""The native thread pool as LLVM text: worker loop, work sharing, waiting; threads start elsewhere."""

from __future__ import annotations

import platform
import sys
from string import Template

from jitla.codegen.ir_elementwise import float_ir

__all__ = [
    "AFFINITY", "MAX_WORKERS", "PARALLEL", "PAUSE", "SETTINGS", "WAKE_US", "WORKER", "os_ir", "pool_ir",
]


#: Linux system call numbers of (futex, gettid) by machine.
_CALLS = {"x86_64": (202, 186), "aarch64": (98, 178)}

_MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())

#: Whether this platform has the primitives; elsewhere every job runs on its caller.
PARALLEL = sys.platform == "linux" and _MACHINE in _CALLS and sys.maxsize > 2**32

# intrinsics, not inline assembly: that would need the target's assembly parser
_PAUSES = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()\n"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)\n"),
}

#: Instruction for one turn of a spin loop.
PAUSE = _PAUSES.get(_MACHINE, ("", ""))[0]

_LINUX = """
define internal void @os.wait(ptr %word, i32 %seen) nounwind {
  %f = load ptr, ptr $syscall
  call i64 (i64, ...) %f(i64 FUTEX, ptr %word, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  ret void
}
define internal void @os.wake(ptr %word, i32 %count) nounwind {
  %f = load ptr, ptr $syscall
  call i64 (i64, ...) %f(i64 FUTEX, ptr %word, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}
define internal i64 @os.clock() nounwind {
  %t = alloca [2 x i64], align 8
  %f = load ptr, ptr $clock_gettime
  call i32 %f(i32 1, ptr %t)
  %s = load i64, ptr %t
  %pn = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %pn
  %ns = mul i64 %s, 1000000000
  %r = add i64 %ns, %n
  ret i64 %r
}
define internal i32 @os.self() nounwind {
  %f = load ptr, ptr $syscall
  %r = call i64 (i64, ...) %f(i64 GETTID)
  %t = trunc i64 %r to i32
  ret i32 %t
}
define internal i32 @os.cpu() nounwind {
  %f = load ptr, ptr $sched_getcpu
  %missing = icmp eq ptr %f, null
  br i1 %missing, label %no, label %ask
ask:
  %r = call i32 %f()
  ret i32 %r
no:
  ret i32 -1
}
define internal void @os.pin(i32 %tid, ptr %mask) nounwind {
  %f = load ptr, ptr $sched_setaffinity
  call i32 %f(i32 %tid, i64 128, ptr %mask)
  ret void
}
define internal i1 @os.allowed(ptr %mask) nounwind {
  %f = load ptr, ptr $sched_getaffinity
  %r = call i32 %f(i32 0, i64 128, ptr %mask)
  %known = icmp eq i32 %r, 0
  ret i1 %known
}
"""

_NOWHERE = """
define internal void @os.wait(ptr %word, i32 %seen) nounwind { ret void }
define internal void @os.wake(ptr %word, i32 %count) nounwind { ret void }
define internal i64 @os.clock() nounwind { ret i64 0 }
define internal i32 @os.self() nounwind { ret i32 0 }
define internal i32 @os.cpu() nounwind { ret i32 -1 }
define internal void @os.pin(i32 %tid, ptr %mask) nounwind { ret void }
define internal i1 @os.allowed(ptr %mask) nounwind { ret i1 0 }
"""

def os_ir() -> str:
    """IR of the `os.` and `float.` functions of this platform."""
    futex, gettid = _CALLS.get(_MACHINE, (0, 0))
    linux = _LINUX.replace("FUTEX", str(futex)).replace("GETTID", str(gettid))
    return _PAUSES.get(_MACHINE, ("", ""))[1] + (linux if PARALLEL else _NOWHERE) + float_ir(_MACHINE)


WORKER = """
; Life of worker %arg: work, spin, sleep, until fewer threads are wanted.
define ptr @jitla_worker(ptr %arg) nounwind {
entry:
  %index = ptrtoint ptr %arg to i64
  %live = getelementptr i32, ptr @pool.live, i64 %index
  %slot = getelementptr i32, ptr @pool.tids, i64 %index
  %tid = call i32 @os.self()
  store atomic i32 %tid, ptr %slot seq_cst, align 4
  store atomic i32 -1, ptr @pool.cpu seq_cst, align 4
  br label %loop
loop:
  %seen = load atomic i32, ptr @pool.seq seq_cst, align 4
  %threads = load atomic i64, ptr @jitla_pool seq_cst, align 8
  %index1 = add i64 %index, 1
  %wanted = icmp slt i64 %index1, %threads
  br i1 %wanted, label %work, label %leave
work:
  call i32 @pool.work(i1 true)
  %now = call i32 @pool.watch(ptr @pool.seq, i32 %seen)
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %loop, label %sleep
sleep:
  %s0 = atomicrmw add ptr @pool.sleepers, i32 1 seq_cst, align 4
  call void @os.wait(ptr @pool.seq, i32 %seen)
  %s1 = atomicrmw sub ptr @pool.sleepers, i32 1 seq_cst, align 4
  br label %loop
leave:
  store atomic i32 0, ptr %slot seq_cst, align 4
  store atomic i32 0, ptr %live seq_cst, align 4
  %again = load atomic i64, ptr @jitla_pool seq_cst, align 8
  %back = icmp slt i64 %index1, %again
  br i1 %back, label %retake, label %gone
retake:
  %free = call i32 @jitla_claim(i64 %index)
  %mine = icmp ne i32 %free, 0
  br i1 %mine, label %entry2, label %gone
entry2:
  store atomic i32 %tid, ptr %slot seq_cst, align 4
  br label %loop
gone:
  ret ptr null
}
; 1 if place %index had no worker and is now the caller's to fill.
define i32 @jitla_claim(i64 %index) nounwind {
  %live = getelementptr i32, ptr @pool.live, i64 %index
  %swap = cmpxchg ptr %live, i32 0, i32 1 seq_cst seq_cst, align 4
  %won = extractvalue { i32, i1 } %swap, 1
  %r = zext i1 %won to i32
  ret i32 %r
}
define void @jitla_release(i64 %index) nounwind {
  %live = getelementptr i32, ptr @pool.live, i64 %index
  store atomic i32 0, ptr %live seq_cst, align 4
  ret void
}
; Make every worker look at the number of threads again.
define void @jitla_rouse() nounwind {
  %s = atomicrmw add ptr @pool.seq, i32 1 seq_cst, align 4
  call void @os.wake(ptr @pool.seq, i32 2147483647)
  ret void
}
; In a forked child: no worker came along, and whoever held the pool is gone.
define void @jitla_forked() nounwind {
entry:
  store i64 0, ptr @pool.word
  store i32 0, ptr @pool.done
  store i32 0, ptr @pool.lock
  store i32 0, ptr @pool.sleepers
  store i32 0, ptr @pool.waiting
  store i32 -1, ptr @pool.cpu
  store i64 1, ptr getelementptr (i64, ptr @jitla_pool, i64 1)
  store i64 0, ptr getelementptr (i64, ptr @jitla_pool, i64 2)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %live = getelementptr i32, ptr @pool.live, i64 %i
  store i32 0, ptr %live
  %tid = getelementptr i32, ptr @pool.tids, i64 %i
  store i32 0, ptr %tid
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 256
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""

AFFINITY = """
; Find out which processors the launcher may use, if another thread launches or it was long ago.
define internal void @pool.follow() nounwind {
entry:
  %mask = alloca [16 x i64], align 64
  %at = ptrtoint ptr %mask to i64
  %stack = lshr i64 %at, 20
  %before = load i64, ptr @pool.stack
  %other = icmp ne i64 %stack, %before
  %ended = load i64, ptr @pool.ended
  %looked = load i64, ptr @pool.looked
  %gap = sub i64 %ended, %looked
  %old = icmp ugt i64 %gap, $often
  %look = or i1 %other, %old
  br i1 %look, label %ask, label %out
ask:
  store i64 %stack, ptr @pool.stack
  store i64 %ended, ptr @pool.looked
  %known = call i1 @os.allowed(ptr %mask)
  br i1 %known, label %word, label %out
word:
  %w = phi i64 [ 0, %ask ], [ %w1, %word ]
  %count = phi i64 [ 0, %ask ], [ %count1, %word ]
  %new = phi i64 [ 0, %ask ], [ %new1, %word ]
  %from = getelementptr i64, ptr %mask, i64 %w
  %bits = load i64, ptr %from
  %to = getelementptr i64, ptr @pool.allowed, i64 %w
  %was = load i64, ptr %to
  store i64 %bits, ptr %to
  %changed = xor i64 %bits, %was
  %new1 = or i64 %new, %changed
  %few = call i64 @llvm.ctpop.i64(i64 %bits)
  %count1 = add i64 %count, %few
  %w1 = add i64 %w, 1
  %more = icmp slt i64 %w1, 16
  br i1 %more, label %word, label %counted
counted:
  store i64 %count1, ptr getelementptr (i64, ptr @jitla_pool, i64 7)
  %same = icmp eq i64 %new1, 0
  br i1 %same, label %out, label %move
move:
  store atomic i32 -1, ptr @pool.cpu seq_cst, align 4
  br label %out
out:
  ret void
}
declare i64 @llvm.ctpop.i64(i64)
; Keep the workers off the launcher's processor: the kernel wakes a sleeper on the waker's own
; processor and does not move it for milliseconds.
define internal void @pool.settle() nounwind {
entry:
  %mask = alloca [16 x i64], align 64
  %cpu = call i32 @os.cpu()
  %last = load atomic i32, ptr @pool.cpu monotonic, align 4
  %same = icmp eq i32 %cpu, %last
  %off = icmp ugt i32 %cpu, 1023
  %skip = or i1 %same, %off
  br i1 %skip, label %out, label %worth
worth:
  ; many workers that are awake are spread already; moving them costs a call each
  %threads = load i64, ptr @jitla_pool
  %few = icmp slt i64 %threads, 9
  %sleepers = load atomic i32, ptr @pool.sleepers monotonic, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  %go = or i1 %few, %asleep
  br i1 %go, label %copy, label %out
copy:
  store atomic i32 %cpu, ptr @pool.cpu monotonic, align 4
  br label %word
word:
  %w = phi i64 [ 0, %copy ], [ %w1, %word ]
  %any = phi i64 [ 0, %copy ], [ %any1, %word ]
  %from = getelementptr i64, ptr @pool.allowed, i64 %w
  %bits = load i64, ptr %from
  %wide = zext i32 %cpu to i64
  %home = lshr i64 %wide, 6
  %here = icmp eq i64 %home, %w
  %low = and i64 %wide, 63
  %bit = shl i64 1, %low
  %clear = select i1 %here, i64 %bit, i64 0
  %keep = xor i64 %clear, -1
  %kept = and i64 %bits, %keep
  %to = getelementptr i64, ptr %mask, i64 %w
  store i64 %kept, ptr %to
  %any1 = or i64 %any, %kept
  %w1 = add i64 %w, 1
  %more = icmp slt i64 %w1, 16
  br i1 %more, label %word, label %chosen
chosen:
  %nowhere = icmp eq i64 %any1, 0
  %use = select i1 %nowhere, ptr @pool.allowed, ptr %mask
  br label %worker
worker:
  %i = phi i64 [ 0, %chosen ], [ %i1, %next ]
  %slot = getelementptr i32, ptr @pool.tids, i64 %i
  %tid = load atomic i32, ptr %slot acquire, align 4
  %there = icmp ne i32 %tid, 0
  br i1 %there, label %pin, label %next
pin:
  call void @os.pin(i32 %tid, ptr %use)
  br label %next
next:
  %i1 = add i64 %i, 1
  %rest = icmp slt i64 %i1, %threads
  br i1 %rest, label %worker, label %out
out:
  ret void
}
"""


#: Workers a process can have.
MAX_WORKERS = 255

#: Jobs estimated to take fewer microseconds do not wake workers, where nothing was measured. A block says
#: its estimate in bits 33 to 53 of word 7; 0 = unknown, which wakes. Bits 54 and up say how many threads
#: may take part, 0 = as many as `usual` says.
WAKE_US = 100

#: After so long it is asked again which processors the launcher may use.
LOOK_NS = 10_000_000

#: Words of `@jitla_pool`, in order. `ready` = threads that exist (the launcher is one of them),
#: `shared` = jobs that more than one thread could take part in, `usual` = threads that take part in
#: a job that does not say how many, `wake` = microseconds that are worth waking workers for, `room` =
#: processors that whoever launched last may use, 0 before the first shared job; `firm` = `usual` was asked
#: for, and holds whatever the processors; `looped` = threads of what others have compiled, 0 = `usual`.
SETTINGS = ("threads", "ready", "starting", "spin", "shared", "usual", "wake", "room", "firm", "looped")

_STATE = """
; word, seq, ... stand on lines of their own: they are written by different threads
@pool.word = internal global [16 x i64] zeroinitializer, align 128
@pool.seq = internal global [32 x i32] zeroinitializer, align 128
@pool.done = internal global [32 x i32] zeroinitializer, align 128
@pool.lock = internal global [32 x i32] zeroinitializer, align 128
@pool.sleepers = internal global [32 x i32] zeroinitializer, align 128
@pool.waiting = internal global [32 x i32] zeroinitializer, align 128
@pool.members = internal global [16 x i64] zeroinitializer, align 128
@pool.block = internal global [16 x ptr] zeroinitializer, align 128
@pool.control = internal global i32 0, align 4   ; the launcher's floating-point control bits
@pool.flags = internal global i32 0, align 4     ; floating-point flags raised by workers
@pool.cpu = internal global i32 -1, align 4      ; where the workers are kept away from
@pool.ended = internal global i64 0, align 8     ; when the last shared job ended
@pool.jobs = internal global i64 0, align 8
@pool.live = internal global [256 x i32] zeroinitializer, align 64
@pool.tids = internal global [256 x i32] zeroinitializer, align 64
@pool.allowed = internal global [16 x i64] zeroinitializer, align 64  ; processors the launcher may use
@pool.looked = internal global i64 0, align 8    ; when that was asked
@pool.stack = internal global i64 -1, align 8    ; by whom: about where the stack of its thread is
@pool.limit = internal global i32 0, align 4     ; threads that may take part in the job
@jitla_pool = global [10 x i64]
  [i64 1, i64 1, i64 0, i64 1000, i64 0, i64 1, i64 $wake, i64 0, i64 0, i64 0], align 64
"""

_WAITING = """
define void @jitla_spin(i64 %count) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  $pause
  %i1 = add i64 %i, 1
  %again = icmp slt i64 %i1, %count
  br i1 %again, label %loop, label %out
out:
  ret void
}
; Spin until the word differs from %seen; the last value read.
define internal i32 @pool.watch(ptr %word, i32 %seen) nounwind {
entry:
  %count = load i64, ptr getelementptr (i64, ptr @jitla_pool, i64 3)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %same ]
  %now = load atomic i32, ptr %word acquire, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %out, label %same
same:
  $pause
  %i1 = add i64 %i, 1
  %again = icmp slt i64 %i1, %count
  br i1 %again, label %loop, label %out
out:
  ret i32 %now
}
; Wait until workers have finished %rest chunks.
define internal void @pool.join(i32 %rest) nounwind {
entry:
  br label %spin
spin:
  %d0 = load atomic i32, ptr @pool.done acquire, align 4
  %ready = icmp eq i32 %d0, %rest
  br i1 %ready, label %out, label %watch
watch:
  %d1 = call i32 @pool.watch(ptr @pool.done, i32 %d0)
  %moved = icmp ne i32 %d1, %d0
  br i1 %moved, label %spin, label %sleep
sleep:
  store atomic i32 1, ptr @pool.waiting seq_cst, align 4
  br label %check
check:
  %d2 = load atomic i32, ptr @pool.done seq_cst, align 4
  %now = icmp eq i32 %d2, %rest
  br i1 %now, label %awake, label %wait
wait:
  call void @os.wait(ptr @pool.done, i32 %d2)
  br label %check
awake:
  store atomic i32 0, ptr @pool.waiting seq_cst, align 4
  br label %out
out:
  ret void
}
"""

_WORK = """
; Whether this worker may take part in %job. The word `job << 32 | threads in it` belongs to one job
; only: a worker that comes late never counts in the next one.
define internal i1 @pool.enter(i64 %job) nounwind {
entry:
  %first = load atomic i64, ptr @pool.members acquire, align 8
  br label %try
try:
  %word = phi i64 [ %first, %entry ], [ %other, %claim ]
  %whose = lshr i64 %word, 32
  %same = icmp eq i64 %whose, %job
  %count = trunc i64 %word to i32
  %limit = load atomic i32, ptr @pool.limit monotonic, align 4
  %room = icmp ult i32 %count, %limit
  %fits = and i1 %same, %room
  br i1 %fits, label %claim, label %no
claim:
  %word1 = add i64 %word, 1
  %swap = cmpxchg ptr @pool.members, i64 %word, i64 %word1 acq_rel acquire, align 8
  %other = extractvalue { i64, i1 } %swap, 0
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %yes, label %try
yes:
  ret i1 1
no:
  ret i1 0
}
; Claim and run chunks until none is left; how many this thread ran.
define internal i32 @pool.work(i1 %worker) nounwind {
entry:
  br label %next
next:
  %ran = phi i32 [ 0, %entry ], [ %ran1, %counted ]
  %in = phi i64 [ -1, %entry ], [ %job, %counted ]
  %first = load atomic i64, ptr @pool.word acquire, align 8
  br label %try
try:
  %word = phi i64 [ %first, %next ], [ %other, %claim ]
  %job = lshr i64 %word, 40
  %chunk = and i64 %word, 1048575
  %shifted = lshr i64 %word, 20
  %chunks = and i64 %shifted, 1048575
  %left = icmp ult i64 %chunk, %chunks
  br i1 %left, label %known, label %out
known:
  %member = icmp eq i64 %in, %job
  %launcher = xor i1 %worker, 1
  %inside = or i1 %member, %launcher
  br i1 %inside, label %claim, label %enter
enter:
  %let = call i1 @pool.enter(i64 %job)
  br i1 %let, label %claim, label %out
claim:
  %word1 = add i64 %word, 1
  %swap = cmpxchg ptr @pool.word, i64 %word, i64 %word1 acq_rel acquire, align 8
  %other = extractvalue { i64, i1 } %swap, 0
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %run, label %try
run:
  %block = load ptr, ptr @pool.block
  br i1 %worker, label %far, label %near
near:
  call void @pool.chunk(ptr %block, i64 %chunk)
  br label %counted
far:
  %control = load i32, ptr @pool.control
  call void @float.set(i32 %control)
  call void @pool.chunk(ptr %block, i64 %chunk)
  %after = call i32 @float.get()
  %raised = and i32 %after, 63
  %quiet = icmp eq i32 %raised, 0
  br i1 %quiet, label %count, label %report
report:
  %was = atomicrmw or ptr @pool.flags, i32 %raised monotonic, align 4
  br label %count
count:
  %before = atomicrmw add ptr @pool.done, i32 1 seq_cst, align 4
  %waiting = load atomic i32, ptr @pool.waiting seq_cst, align 4
  %sleeps = icmp ne i32 %waiting, 0
  br i1 %sleeps, label %wake, label %counted
wake:
  call void @os.wake(ptr @pool.done, i32 1)
  br label %counted
counted:
  %ran1 = add i32 %ran, 1
  br label %next
out:
  ret i32 %ran
}
define internal void @pool.chunk(ptr %block, i64 %chunk) nounwind {
  %k = load ptr, ptr %block
  %punits = getelementptr i64, ptr %block, i64 2
  %units = load i64, ptr %punits
  %pgrain = getelementptr i64, ptr %block, i64 3
  %grain = load i64, ptr %pgrain
  %begin = mul i64 %chunk, %grain
  %rest = sub i64 %units, %begin
  %last = icmp slt i64 %rest, %grain
  %n = select i1 %last, i64 %rest, i64 %grain
  %end = add i64 %begin, %n
  call void %k(ptr %block, i64 %begin, i64 %end)
  ret void
}
"""

_RUN = """
; Run every chunk of the block, then its last step. Chunks are [i*grain, (i+1)*grain) whoever runs
; them, so nothing a kernel computes can depend on the number of threads.
define internal void @pool.run(ptr %block) nounwind {
entry:
  %punits = getelementptr i64, ptr %block, i64 2
  %units = load i64, ptr %punits
  %pgrain = getelementptr i64, ptr %block, i64 3
  %grain = load i64, ptr %pgrain
  %none = icmp slt i64 %units, 1
  br i1 %none, label %finish, label %some
some:
  %one = icmp sle i64 %units, %grain
  br i1 %one, label %whole, label %several
whole:
  %k = load ptr, ptr %block
  call void %k(ptr %block, i64 0, i64 %units)
  br label %finish
several:
  ; the word has room for 2^20 - 1 chunks: widen the grain where there would be more
  %g0 = call i64 @llvm.smax.i64(i64 %grain, i64 1)
  %up = add i64 %units, 1048573
  %least = udiv i64 %up, 1048574
  %g1 = call i64 @llvm.smax.i64(i64 %g0, i64 %least)
  store i64 %g1, ptr %pgrain
  %up1 = add i64 %units, %g1
  %up2 = sub i64 %up1, 1
  %chunks = udiv i64 %up2, %g1
  %ready = load atomic i64, ptr getelementptr (i64, ptr @jitla_pool, i64 1) acquire, align 8
  %helped = icmp sgt i64 %ready, 1
  br i1 %helped, label %lock, label %serial
lock:
  %swap = cmpxchg ptr @pool.lock, i32 0, i32 1 acquire monotonic, align 4
  %mine = extractvalue { i32, i1 } %swap, 1
  br i1 %mine, label %shared, label %serial
shared:
  call void @pool.shared(ptr %block, i64 %chunks)
  br label %finish
serial:
  %i = phi i64 [ 0, %several ], [ 0, %lock ], [ %i1, %serial ]
  call void @pool.chunk(ptr %block, i64 %i)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %chunks
  br i1 %more, label %serial, label %finish
finish:
  %pfin = getelementptr i64, ptr %block, i64 4
  %fin = load ptr, ptr %pfin
  %last = icmp ne ptr %fin, null
  br i1 %last, label %call, label %out
call:
  call void %fin(ptr %block)
  br label %out
out:
  ret void
}
declare i64 @llvm.smax.i64(i64, i64)
; The same for code that others have compiled.
define void @jitla_share(ptr %block) nounwind {
  %pflags = getelementptr i64, ptr %block, i64 7
  %flags = load i64, ptr %pflags
  %threads = load i64, ptr getelementptr (i64, ptr @jitla_pool, i64 9)
  %upper = shl i64 %threads, 54
  %both = or i64 %flags, %upper
  store i64 %both, ptr %pflags
  call void @pool.run(ptr %block)
  ret void
}
; The caller owns the pool: publish the job, take part, wait, give the pool back.
define internal void @pool.shared(ptr %block, i64 %chunks) nounwind {
entry:
  store ptr %block, ptr @pool.block
  store i32 0, ptr @pool.done
  %control = call i32 @float.get()
  %masks = and i32 %control, -64
  store i32 %masks, ptr @pool.control
  store i32 0, ptr @pool.flags
  call void @pool.follow()
  call void @pool.settle()
  %job0 = load i64, ptr @pool.jobs
  %job = add i64 %job0, 1
  store i64 %job, ptr @pool.jobs
  %counter = load i64, ptr getelementptr (i64, ptr @jitla_pool, i64 4)
  %counter1 = add i64 %counter, 1
  store i64 %counter1, ptr getelementptr (i64, ptr @jitla_pool, i64 4)
  %high = shl i64 %job, 40
  %middle = shl i64 %chunks, 20
  %word = or i64 %high, %middle
  %limit = call i32 @pool.parts(ptr %block, i64 %chunks)
  store atomic i32 %limit, ptr @pool.limit monotonic, align 4
  %number = lshr i64 %word, 40
  %number32 = shl i64 %number, 32
  %alone = or i64 %number32, 1
  store atomic i64 %alone, ptr @pool.members release, align 8
  store atomic i64 %word, ptr @pool.word release, align 8
  %bump = atomicrmw add ptr @pool.seq, i32 1 seq_cst, align 4
  %sleepers = load atomic i32, ptr @pool.sleepers seq_cst, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  %crowd = icmp sgt i32 %limit, 1
  %useful = and i1 %asleep, %crowd
  br i1 %useful, label %ask, label %work
ask:
  %worth = call i1 @pool.worth(ptr %block)
  br i1 %worth, label %wake, label %work
wake:
  %others = sub i32 %limit, 1
  call void @os.wake(ptr @pool.seq, i32 %others)
  br label %work
work:
  %ran = call i32 @pool.work(i1 false)
  %all = trunc i64 %chunks to i32
  %rest = sub i32 %all, %ran
  call void @pool.join(i32 %rest)
  %flags = load atomic i32, ptr @pool.flags monotonic, align 4
  %quiet = icmp eq i32 %flags, 0
  br i1 %quiet, label %give, label %raise
raise:
  %mine = call i32 @float.get()
  %both = or i32 %mine, %flags
  call void @float.set(i32 %both)
  br label %give
give:
  %now = call i64 @os.clock()
  store i64 %now, ptr @pool.ended
  store atomic i32 0, ptr @pool.lock release, align 4
  ret void
}
; How many threads may take part in the job: if it does not say so itself, no more than there are
; processors for them now.
define internal i32 @pool.parts(ptr %block, i64 %chunks) nounwind {
  %pflags = getelementptr i64, ptr %block, i64 7
  %flags = load i64, ptr %pflags
  %own = lshr i64 %flags, 54
  %usual = load i64, ptr getelementptr (i64, ptr @jitla_pool, i64 5)
  %room = load i64, ptr getelementptr (i64, ptr @jitla_pool, i64 7)
  %firm = load i64, ptr getelementptr (i64, ptr @jitla_pool, i64 8)
  %asked = icmp ne i64 %room, 0
  %loose = icmp eq i64 %firm, 0
  %known = and i1 %asked, %loose
  %place = select i1 %known, i64 %room, i64 %usual
  %fitting = call i64 @llvm.smin.i64(i64 %usual, i64 %place)
  %free = icmp eq i64 %own, 0
  %most = select i1 %free, i64 %fitting, i64 %own
  %least = call i64 @llvm.smin.i64(i64 %most, i64 %chunks)
  %r = trunc i64 %least to i32
  ret i32 %r
}
declare i64 @llvm.smin.i64(i64, i64)
; Whether to wake sleepers. That takes the launcher about 15 us, and they come 40 us later: not for
; a short job, unless it follows the last one so closely that they will stay awake for the next.
define internal i1 @pool.worth(ptr %block) nounwind {
entry:
  %phint = getelementptr i64, ptr %block, i64 7
  %high = load i64, ptr %phint
  %upper = lshr i64 %high, 33
  %hint = and i64 %upper, 2097151
  %less = sub i64 %hint, 1
  %wake = load i64, ptr getelementptr (i64, ptr @jitla_pool, i64 6)
  %long = icmp uge i64 %less, %wake
  br i1 %long, label %yes, label %near
near:
  %now = call i64 @os.clock()
  %last = load i64, ptr @pool.ended
  %gap = sub i64 %now, %last
  %close = icmp ult i64 %gap, 70000
  ret i1 %close
yes:
  ret i1 1
}
"""


def pool_ir(names: dict[str, str]) -> str:
    """IR of the pool for this platform; `names` are references to host functions."""
    parts = (os_ir(), _STATE, _WAITING, _WORK, WORKER, AFFINITY, _RUN)
    return Template("".join(parts)).substitute(names, pause=PAUSE, wake=WAKE_US - 1, often=LOOK_NS)
