"""The native allocator of output memory, as LLVM text."""

from __future__ import annotations

from string import Template

from jitla.codegen.native.symbols import HEADER, itemsize_offset, text_ir

__all__ = ["COUNTERS", "LARGE", "LIST", "empty_ir", "memory_ir"]


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


_TEXTS = text_ir("empty", "empty(shape: tuple, dtype: np.dtype[, axes: tuple])") + text_ir(
    "axes", "axes is not a permutation of the array's axes")

_EMPTY = """
; empty(shape, dtype[, axes]): a new array that owns its data; `axes` from slowest to fastest.
define ptr @jitla_empty(ptr %self, ptr %args, i64 %nargs) {
entry:
  %dims = alloca [64 x i64], align 16
  %steps = alloca [64 x i64], align 16
  %few = icmp ult i64 %nargs, 2
  %many = icmp ugt i64 %nargs, 3
  %wrong = or i1 %few, %many
  br i1 %wrong, label %usage, label %types
types:
  %shape = load ptr, ptr %args
  %pdtype = getelementptr ptr, ptr %args, i64 1
  %dtype = load ptr, ptr %pdtype
  %nd = call i64 @tuple.size(ptr %shape)
  %ptype = getelementptr i8, ptr %dtype, i64 $type_at
  %type = load ptr, ptr %ptype
  %pmeta = getelementptr i8, ptr %type, i64 $type_at
  %meta = load ptr, ptr %pmeta
  %want = load ptr, ptr $dtype_meta
  %isdtype = icmp eq ptr %meta, %want
  %isshape = icmp ult i64 %nd, 65
  %ok = and i1 %isdtype, %isshape
  br i1 %ok, label %measure, label %usage
measure:
  %pitem = getelementptr i8, ptr %dtype, i64 $itemsize_at
  %item = load i64, ptr %pitem
  br label %dim
dim:
  %i = phi i64 [ 0, %measure ], [ %i1, %next ]
  %bytes = phi i64 [ %item, %measure ], [ %bytes1, %next ]
  %more = icmp slt i64 %i, %nd
  br i1 %more, label %read, label %order
read:
  %obj = call ptr @tuple.at(ptr %shape, i64 %i)
  %fsize = load ptr, ptr $PyNumber_AsSsize_t
  %overflow = load ptr, ptr $OverflowError
  %n = call i64 %fsize(ptr %obj, ptr %overflow)
  %suspect = icmp eq i64 %n, -1
  br i1 %suspect, label %occurred, label %next
occurred:
  %focc = load ptr, ptr $PyErr_Occurred
  %err = call ptr %focc()
  %bad = icmp ne ptr %err, null
  br i1 %bad, label %fail, label %next
next:
  %pdim = getelementptr i64, ptr %dims, i64 %i
  store i64 %n, ptr %pdim
  ; a product that overflows or is negative is NumPy's to refuse: it only has to stay large
  %negative = icmp slt i64 %n, 0
  %n0 = select i1 %negative, i64 0, i64 %n
  %pair = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %bytes, i64 %n0)
  %product = extractvalue { i64, i1 } %pair, 0
  %over = extractvalue { i64, i1 } %pair, 1
  %bytes1 = select i1 %over, i64 0, i64 %product
  %i1 = add i64 %i, 1
  br label %dim
order:
  %ordered = icmp eq i64 %nargs, 3
  br i1 %ordered, label %axes, label %make
axes:
  %paxes = getelementptr ptr, ptr %args, i64 2
  %order_of = load ptr, ptr %paxes
  %na = call i64 @tuple.size(ptr %order_of)
  %match = icmp eq i64 %na, %nd
  br i1 %match, label %axis, label %mismatch
axis:
  %j = phi i64 [ %nd, %axes ], [ %j1, %place ]
  %seen = phi i64 [ 0, %axes ], [ %seen1, %place ]
  %stride = phi i64 [ %item, %axes ], [ %stride1, %place ]
  %left = icmp sgt i64 %j, 0
  br i1 %left, label %which, label %make
which:
  %j1 = sub i64 %j, 1
  %aobj = call ptr @tuple.at(ptr %order_of, i64 %j1)
  %fa = load ptr, ptr $PyNumber_AsSsize_t
  %a = call i64 %fa(ptr %aobj, ptr null)
  %inside = icmp ult i64 %a, %nd
  %within = select i1 %inside, i64 %a, i64 0
  %bit = shl i64 1, %within
  %twice = and i64 %seen, %bit
  %once = icmp eq i64 %twice, 0
  %valid = and i1 %inside, %once
  br i1 %valid, label %place, label %mismatch
place:
  %seen1 = or i64 %seen, %bit
  %pstep = getelementptr i64, ptr %steps, i64 %a
  store i64 %stride, ptr %pstep
  %plen = getelementptr i64, ptr %dims, i64 %a
  %len = load i64, ptr %plen
  ; as NumPy fills strides, an empty dimension counts as one
  %void = icmp slt i64 %len, 1
  %len1 = select i1 %void, i64 1, i64 %len
  %stride1 = mul i64 %stride, %len1
  br label %axis
make:
  %strides = phi ptr [ null, %order ], [ %steps, %axis ]
  %capsule = load ptr, ptr @jitla_capsule
  %without = icmp eq ptr %capsule, null
  %small = icmp ult i64 %bytes, $large
  %direct = or i1 %without, %small
  br i1 %direct, label %plain, label %handled
plain:
  %a0 = call ptr @empty.make(ptr %dtype, i64 %nd, ptr %dims, ptr %strides)
  ret ptr %a0
handled:
  %fset = load ptr, ptr $PyDataMem_SetHandler
  %old = call ptr %fset(ptr %capsule)
  %refused = icmp eq ptr %old, null
  br i1 %refused, label %fail, label %build
build:
  %a1 = call ptr @empty.make(ptr %dtype, i64 %nd, ptr %dims, ptr %strides)
  call void @empty.restore(ptr %old, ptr %a1)
  ret ptr %a1
mismatch:
  %fm = load ptr, ptr $PyErr_SetString
  %value = load ptr, ptr $ValueError
  call void %fm(ptr %value, ptr @text.axes)
  ret ptr null
usage:
  %fs = load ptr, ptr $PyErr_SetString
  %typeerror = load ptr, ptr $TypeError
  call void %fs(ptr %typeerror, ptr @text.empty)
  ret ptr null
fail:
  ret ptr null
}
; Length of an exact tuple, -1 for anything else.
define internal i64 @tuple.size(ptr %o) nounwind {
  %ptype = getelementptr i8, ptr %o, i64 $type_at
  %type = load ptr, ptr %ptype
  %want = load ptr, ptr $tuple_type
  %is = icmp eq ptr %type, %want
  br i1 %is, label %yes, label %no
yes:
  %psize = getelementptr i8, ptr %o, i64 $header
  %n = load i64, ptr %psize
  ret i64 %n
no:
  ret i64 -1
}
define internal ptr @tuple.at(ptr %t, i64 %i) nounwind {
  %items = getelementptr i8, ptr %t, i64 $tuple_at
  %p = getelementptr ptr, ptr %items, i64 %i
  %o = load ptr, ptr %p
  ret ptr %o
}
define internal ptr @empty.make(ptr %dtype, i64 %nd, ptr %dims, ptr %strides) {
  %fi = load ptr, ptr $Py_IncRef
  call void %fi(ptr %dtype)
  %fn = load ptr, ptr $PyArray_NewFromDescr
  %type = load ptr, ptr $ndarray
  %n = trunc i64 %nd to i32
  %a = call ptr %fn(ptr %type, ptr %dtype, i32 %n, ptr %dims, ptr %strides,
                   ptr null, i32 0, ptr null)
  ret ptr %a
}
; Set the handler back, keeping the error that may be set when %array is null.
define internal void @empty.restore(ptr %old, ptr %array) {
entry:
  %kind = alloca ptr
  %value = alloca ptr
  %trace = alloca ptr
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %stash, label %swap
stash:
  %ff = load ptr, ptr $PyErr_Fetch
  call void %ff(ptr %kind, ptr %value, ptr %trace)
  br label %swap
swap:
  %fset = load ptr, ptr $PyDataMem_SetHandler
  %ours = call ptr %fset(ptr %old)
  %fd = load ptr, ptr $Py_DecRef
  call void %fd(ptr %ours)
  call void %fd(ptr %old)
  br i1 %failed, label %unstash, label %out
unstash:
  %k = load ptr, ptr %kind
  %v = load ptr, ptr %value
  %t = load ptr, ptr %trace
  %fr = load ptr, ptr $PyErr_Restore
  call void %fr(ptr %k, ptr %v, ptr %t)
  br label %out
out:
  ret void
}
"""


def empty_ir(names: dict[str, str], large: int) -> str:
    """IR of `jitla_empty`; arrays of at least `large` bytes come from the handler."""
    return Template(_TEXTS + _EMPTY).substitute(
        names, header=HEADER, type_at=HEADER - 8, tuple_at=tuple.__basicsize__,
        itemsize_at=itemsize_offset(), large=large)
