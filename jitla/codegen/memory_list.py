"""The list of freed blocks that wait for reuse, as IR.

Knows: a block's header, one spin lock. Must not know: NumPy, where blocks come from.
Receives blocks; returns those that fit a request.
"""

from __future__ import annotations

__all__ = ["LIST"]

LIST = """
; Take the list's lock, 0 if it stays taken (by a thread that lost its processor, or that a fork
; left behind): the list is then passed by.
define i32 @jitla_hold() nounwind {
entry:
  br label %try
try:
  %i = phi i64 [ 0, %entry ], [ %i1, %spin ]
  %swap = cmpxchg ptr @mem.lock, i32 0, i32 1 acquire monotonic, align 4
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %yes, label %spin
spin:
  call void @jitla_spin(i64 10)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 200
  br i1 %more, label %try, label %no
yes:
  ret i32 1
no:
  ret i32 0
}
define void @jitla_drop() nounwind {
  store atomic i32 0, ptr @mem.lock release, align 4
  ret void
}
define internal void @mem.count(i64 %which, i64 %change) nounwind {
  %p = getelementptr i64, ptr @jitla_memory, i64 %which
  %was = atomicrmw add ptr %p, i64 %change monotonic, align 8
  ret void
}
define internal i64 @mem.capacity(ptr %block) nounwind {
  %p = getelementptr i8, ptr %block, i64 -64
  %n = load i64, ptr %p
  ret i64 %n
}

; Take entry %at out of the list (lock held).
define internal ptr @mem.remove(i64 %at) nounwind {
entry:
  %p = getelementptr ptr, ptr @mem.list, i64 %at
  %block = load ptr, ptr %p
  %pentries = getelementptr i64, ptr @jitla_memory, i64 5
  %entries = load i64, ptr %pentries
  %last = sub i64 %entries, 1
  store i64 %last, ptr %pentries
  %n = call i64 @mem.capacity(ptr %block)
  %minus = sub i64 0, %n
  call void @mem.count(i64 1, i64 %minus)
  br label %loop
loop:
  %i = phi i64 [ %at, %entry ], [ %i1, %shift ]
  %more = icmp slt i64 %i, %last
  br i1 %more, label %shift, label %out
shift:
  %i1 = add i64 %i, 1
  %from = getelementptr ptr, ptr @mem.list, i64 %i1
  %to = getelementptr ptr, ptr @mem.list, i64 %i
  %next = load ptr, ptr %from
  store ptr %next, ptr %to
  br label %loop
out:
  ret ptr %block
}
; A kept block that fits %n with at most a quarter to spare, the youngest of the best.
define internal ptr @mem.take(i64 %n) nounwind {
entry:
  %held = load i64, ptr getelementptr (i64, ptr @jitla_memory, i64 5)
  %empty = icmp eq i64 %held, 0
  br i1 %empty, label %none, label %lock
lock:
  %won = call i32 @jitla_hold()
  %mine = icmp ne i32 %won, 0
  br i1 %mine, label %search, label %none
search:
  %entries = load i64, ptr getelementptr (i64, ptr @jitla_memory, i64 5)
  %quarter = lshr i64 %n, 2
  %most = add i64 %n, %quarter
  %limit = add i64 %most, 1
  br label %loop
loop:
  %i = phi i64 [ %entries, %search ], [ %i1, %look ]
  %best = phi i64 [ -1, %search ], [ %best1, %look ]
  %size = phi i64 [ %limit, %search ], [ %size1, %look ]
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %look, label %done
look:
  %i1 = sub i64 %i, 1
  %p = getelementptr ptr, ptr @mem.list, i64 %i1
  %block = load ptr, ptr %p
  %c = call i64 @mem.capacity(ptr %block)
  %holds = icmp uge i64 %c, %n
  %better = icmp ult i64 %c, %size
  %good = and i1 %holds, %better
  %best1 = select i1 %good, i64 %i1, i64 %best
  %size1 = select i1 %good, i64 %c, i64 %size
  br label %loop
done:
  %found = icmp sge i64 %best, 0
  br i1 %found, label %get, label %leave
get:
  %got = call ptr @mem.remove(i64 %best)
  call void @jitla_drop()
  ret ptr %got
leave:
  call void @jitla_drop()
  ret ptr null
none:
  ret ptr null
}
; Keep a block; what must go to make room is given back. 0 if the block cannot be kept.
define internal i32 @mem.keep(ptr %block, i64 %n) nounwind {
entry:
  %limit = load i64, ptr @jitla_memory
  %big = icmp ugt i64 %n, %limit
  br i1 %big, label %no, label %lock
lock:
  %won = call i32 @jitla_hold()
  %mine = icmp ne i32 %won, 0
  br i1 %mine, label %room, label %no
room:
  %gone = phi ptr [ null, %lock ], [ %victim, %evict ]
  %entries = load i64, ptr getelementptr (i64, ptr @jitla_memory, i64 5)
  %held = load i64, ptr getelementptr (i64, ptr @jitla_memory, i64 1)
  %with = add i64 %held, %n
  %over = icmp ugt i64 %with, %limit
  %full = icmp sge i64 %entries, 64
  %tight = or i1 %over, %full
  %any = icmp sgt i64 %entries, 0
  %make = and i1 %tight, %any
  br i1 %make, label %evict, label %add
evict:
  %victim = call ptr @mem.remove(i64 0)
  %link = getelementptr i8, ptr %victim, i64 -48
  store ptr %gone, ptr %link
  br label %room
add:
  %p = getelementptr ptr, ptr @mem.list, i64 %entries
  store ptr %block, ptr %p
  %entries1 = add i64 %entries, 1
  store i64 %entries1, ptr getelementptr (i64, ptr @jitla_memory, i64 5)
  call void @mem.count(i64 1, i64 %n)
  call void @jitla_drop()
  br label %give
give:
  %v = phi ptr [ %gone, %add ], [ %next, %free ]
  %rest = icmp ne ptr %v, null
  br i1 %rest, label %free, label %yes
free:
  %plink = getelementptr i8, ptr %v, i64 -48
  %next = load ptr, ptr %plink
  call void @mem.release(ptr %v)
  br label %give
yes:
  ret i32 1
no:
  ret i32 0
}
; Give all kept blocks back.
define void @jitla_trim() nounwind {
entry:
  br label %loop
loop:
  %won = call i32 @jitla_hold()
  %mine = icmp ne i32 %won, 0
  br i1 %mine, label %look, label %out
look:
  %entries = load i64, ptr getelementptr (i64, ptr @jitla_memory, i64 5)
  %any = icmp sgt i64 %entries, 0
  br i1 %any, label %one, label %end
one:
  %block = call ptr @mem.remove(i64 0)
  call void @jitla_drop()
  call void @mem.release(ptr %block)
  br label %loop
end:
  call void @jitla_drop()
  br label %out
out:
  ret void
}
define internal void @mem.release(ptr %block) nounwind {
  %praw = getelementptr i8, ptr %block, i64 -56
  %raw = load ptr, ptr %praw
  %f = load ptr, ptr $free
  call void %f(ptr %raw)
  ret void
}
"""
