"""The thread pool as IR: workers that claim chunks of one job with a compare-and-swap.

Knows: atomics, futex, processor affinity. Must not know: Python objects, what a kernel computes.
Receives a block with the job; returns when every chunk of it has run.

One word `job << 40 | chunks << 20 | next` holds everything a claim depends on. A worker that
succeeds in raising `next` owns that chunk of the current job, and the job's block cannot change
before the worker has counted the chunk as done: no worker ever looks at a finished job.
"""

from __future__ import annotations

from string import Template

from jitla.codegen.pool_os import PAUSE, os_ir
from jitla.codegen.pool_worker import AFFINITY, WORKER

__all__ = ["MAX_WORKERS", "SETTINGS", "WAKE_US", "pool_ir"]

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
