"""NumPy's memory handler as IR.

Knows: the C allocator, NumPy's handler record. Must not know: kernels, plans.
Receives sizes from NumPy; returns 64-byte aligned blocks and takes them back.

A block starts with padding and a header of one line: capacity, the address `malloc` gave, and a
link. Large blocks that are freed wait in a list, oldest first, for the next request of about
their size: the pages are then mapped already, which is worth more than the kernel's own work.
"""

from __future__ import annotations

from string import Template

from jitla.codegen.memory_list import LIST

__all__ = ["COUNTERS", "LARGE", "memory_ir"]

#: Smallest block, in bytes, that is allocated by the handler and kept for reuse.
LARGE = 65536

#: Words of `@jitla_memory`, in order: bytes the list may hold, bytes it holds, bytes in use, blocks
#: reused, blocks freshly made, blocks in the list.
COUNTERS = ("limit", "held", "in_use", "reused", "fresh", "entries")

_STATE = """
@mem.lock = internal global [32 x i32] zeroinitializer, align 128
@mem.list = internal global [64 x ptr] zeroinitializer, align 64
@mem.colour = internal global i64 0, align 8
@jitla_memory = global [8 x i64] zeroinitializer, align 64
@jitla_capsule = global ptr null, align 8
@jitla_capsule_name = constant [12 x i8] c"mem_handler\\00"
@jitla_handler = global { [127 x i8], i8, ptr, ptr, ptr, ptr, ptr } {
  [127 x i8] c"jitla$zeros", i8 1, ptr null, ptr @jitla_malloc, ptr @jitla_calloc,
  ptr @jitla_realloc, ptr @jitla_free }, align 8
"""

_FRESH = """
; A block from the C library; from 4 MB on, in huge pages. Large blocks start on a page: an output
; that starts a little after an input, seen modulo the page, makes processors take the loads of one
; for dependent on the stores to the other (a quarter slower, measured). Huge blocks start on
; different pages of a huge page, so that their streams do not meet in one cache set.
define internal ptr @mem.fresh(i64 %n, i1 %zero) nounwind {
entry:
  %large = icmp uge i64 %n, $large
  %step = select i1 %large, i64 4095, i64 63
  %n1 = add i64 %n, %step
  %inverse = xor i64 %step, -1
  %cap = and i64 %n1, %inverse
  %huge = icmp uge i64 %n, 4194304
  %page = select i1 %large, i64 4160, i64 128
  %pad = select i1 %huge, i64 2166784, i64 %page
  %total = add i64 %cap, %pad
  %absurd = icmp ugt i64 %n, 4611686018427387904
  br i1 %absurd, label %none, label %ask
ask:
  br i1 %zero, label %cleared, label %plain
cleared:
  %fc = load ptr, ptr $calloc
  %rc = call ptr %fc(i64 %total, i64 1)
  br label %got
plain:
  %fm = load ptr, ptr $malloc
  %rm = call ptr %fm(i64 %total)
  br label %got
got:
  %raw = phi ptr [ %rc, %cleared ], [ %rm, %plain ]
  %failed = icmp eq ptr %raw, null
  br i1 %failed, label %none, label %place
place:
  %address = ptrtoint ptr %raw to i64
  br i1 %huge, label %wide, label %narrow
wide:
  %w1 = add i64 %address, 2097151
  %w2 = and i64 %w1, -2097152
  %base = inttoptr i64 %w2 to ptr
  %c0 = atomicrmw add ptr @mem.colour, i64 1 monotonic, align 8
  %c1 = and i64 %c0, 15
  %c2 = mul i64 %c1, 4096
  %c3 = add i64 %c2, 4096
  %w3 = add i64 %w2, %c3
  %length = add i64 %cap, %c3
  call void @mem.advise(ptr %base, i64 %length)
  br label %head
narrow:
  %a1 = add i64 %address, 64
  %a2 = add i64 %a1, %step
  %a3 = and i64 %a2, %inverse
  br label %head
head:
  %at = phi i64 [ %w3, %wide ], [ %a3, %narrow ]
  %block = inttoptr i64 %at to ptr
  %pcap = getelementptr i8, ptr %block, i64 -64
  store i64 %cap, ptr %pcap
  %praw = getelementptr i8, ptr %block, i64 -56
  store ptr %raw, ptr %praw
  call void @mem.count(i64 4, i64 1)
  ret ptr %block
none:
  ret ptr null
}
define internal void @mem.advise(ptr %base, i64 %length) nounwind {
  %f = load ptr, ptr $madvise
  %missing = icmp eq ptr %f, null
  br i1 %missing, label %out, label %call
call:
  %r = call i32 %f(ptr %base, i64 %length, i32 14)
  br label %out
out:
  ret void
}
"""

_HANDLER = """
define internal ptr @mem.get(i64 %n, i1 %zero) nounwind {
entry:
  %small = icmp ult i64 %n, $large
  br i1 %small, label %fresh, label %kept
kept:
  %old = call ptr @mem.take(i64 %n)
  %none = icmp eq ptr %old, null
  br i1 %none, label %fresh, label %reuse
reuse:
  call void @mem.count(i64 3, i64 1)
  br i1 %zero, label %clear, label %out
clear:
  %f = load ptr, ptr $memset
  %r = call ptr %f(ptr %old, i32 0, i64 %n)
  br label %out
fresh:
  %new = call ptr @mem.fresh(i64 %n, i1 %zero)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %squeeze, label %out
squeeze:
  ; what waits for reuse may be what is missing
  call void @jitla_trim()
  %second = call ptr @mem.fresh(i64 %n, i1 %zero)
  %empty = icmp eq ptr %second, null
  br i1 %empty, label %fail, label %out
out:
  %block = phi ptr [ %old, %reuse ], [ %old, %clear ], [ %new, %fresh ], [ %second, %squeeze ]
  %cap = call i64 @mem.capacity(ptr %block)
  call void @mem.count(i64 2, i64 %cap)
  ret ptr %block
fail:
  ret ptr null
}
define ptr @jitla_malloc(ptr %context, i64 %n) nounwind {
  %p = call ptr @mem.get(i64 %n, i1 false)
  ret ptr %p
}
define ptr @jitla_calloc(ptr %context, i64 %count, i64 %each) nounwind {
  %pair = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %n = extractvalue { i64, i1 } %pair, 0
  %over = extractvalue { i64, i1 } %pair, 1
  br i1 %over, label %none, label %get
get:
  %p = call ptr @mem.get(i64 %n, i1 true)
  ret ptr %p
none:
  ret ptr null
}
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
define ptr @jitla_realloc(ptr %context, ptr %block, i64 %n) nounwind {
entry:
  %none = icmp eq ptr %block, null
  br i1 %none, label %new, label %old
new:
  %p = call ptr @mem.get(i64 %n, i1 false)
  ret ptr %p
old:
  %cap = call i64 @mem.capacity(ptr %block)
  %fits = icmp uge i64 %cap, %n
  %half = lshr i64 %cap, 1
  %full = icmp uge i64 %n, %half
  %stay = and i1 %fits, %full
  br i1 %stay, label %same, label %move
same:
  ret ptr %block
move:
  %to = call ptr @mem.get(i64 %n, i1 false)
  %failed = icmp eq ptr %to, null
  br i1 %failed, label %fail, label %copy
copy:
  %bytes = call i64 @llvm.umin.i64(i64 %cap, i64 %n)
  %f = load ptr, ptr $memcpy
  %r = call ptr %f(ptr %to, ptr %block, i64 %bytes)
  call void @jitla_free(ptr %context, ptr %block, i64 0)
  ret ptr %to
fail:
  ret ptr null
}
define void @jitla_free(ptr %context, ptr %block, i64 %n) nounwind {
entry:
  %none = icmp eq ptr %block, null
  br i1 %none, label %out, label %some
some:
  %cap = call i64 @mem.capacity(ptr %block)
  %minus = sub i64 0, %cap
  call void @mem.count(i64 2, i64 %minus)
  %small = icmp ult i64 %cap, $large
  br i1 %small, label %back, label %try
try:
  %kept = call i32 @mem.keep(ptr %block, i64 %cap)
  %done = icmp ne i32 %kept, 0
  br i1 %done, label %out, label %back
back:
  call void @mem.release(ptr %block)
  br label %out
out:
  ret void
}
"""


def memory_ir(names: dict[str, str]) -> str:
    """IR of the handler; `names` are references to host functions."""
    zeros = "\\00" * (127 - len("jitla"))
    return Template(_STATE + LIST + _FRESH + _HANDLER).substitute(names, large=LARGE, zeros=zeros)
