"""The workers of the thread pool, as IR: their life, and where they run.

Knows: atomics, affinity masks. Must not know: Python objects, what a kernel computes.
Receives nothing; returns IR that works on the pool's state.
"""

from __future__ import annotations

__all__ = ["AFFINITY", "WORKER"]

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
