"""The native run time loaded for tests, and small kernels in IR with their launch blocks."""

from __future__ import annotations

import struct

from jitla.codegen import Jit, load_native

KERNELS = """
; out[i] = a[i] * s + i
define void @axpi(ptr %block, i64 %begin, i64 %end) nounwind {
entry:
  %v = getelementptr i64, ptr %block, i64 8
  %a = load ptr, ptr %v
  %ps = getelementptr i64, ptr %block, i64 9
  %s = load double, ptr %ps
  %po = getelementptr i64, ptr %block, i64 10
  %o = load ptr, ptr %po
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %pa = getelementptr double, ptr %a, i64 %i
  %x = load double, ptr %pa, align 8
  %y = fmul double %x, %s
  %f = sitofp i64 %i to double
  %z = fadd double %y, %f
  %pz = getelementptr double, ptr %o, i64 %i
  store double %z, ptr %pz, align 8
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret void
}
; scratch[i] += 1 for each unit, after the last step out[i] = scratch[i]
define void @mark(ptr %block, i64 %begin, i64 %end) nounwind {
entry:
  %ps = getelementptr i64, ptr %block, i64 6
  %s = load ptr, ptr %ps
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %p = getelementptr i64, ptr %s, i64 %i
  %length = sub i64 %end, %begin
  store i64 %length, ptr %p
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret void
}
define void @mark_last(ptr %block) nounwind {
entry:
  %ps = getelementptr i64, ptr %block, i64 6
  %s = load ptr, ptr %ps
  %pn = getelementptr i64, ptr %block, i64 2
  %n = load i64, ptr %pn
  %po = getelementptr i64, ptr %block, i64 8
  %o = load ptr, ptr %po
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %p = getelementptr i64, ptr %s, i64 %i
  %x = load i64, ptr %p
  %q = getelementptr i64, ptr %o, i64 %i
  store i64 %x, ptr %q, align 8
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %out
out:
  ret void
}
; out[i] = count of units run, by an atomic add each; dawdles operand 1 turns per unit
define void @slow(ptr %block, i64 %begin, i64 %end) nounwind {
entry:
  %v = getelementptr i64, ptr %block, i64 8
  %o = load ptr, ptr %v
  %pt = getelementptr i64, ptr %block, i64 9
  %turns = load i64, ptr %pt
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %spun ]
  br label %spin
spin:
  %t = phi i64 [ 0, %loop ], [ %t1, %spin ]
  call void @llvm.donothing()
  %ph = getelementptr i64, ptr %block, i64 7
  %h = load volatile i64, ptr %ph
  %t1 = add i64 %t, 1
  %again = icmp slt i64 %t1, %turns
  br i1 %again, label %spin, label %spun
spun:
  %was = atomicrmw add ptr %o, i64 1 monotonic, align 8
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret void
}
declare void @llvm.donothing()
; out[0] = units being run now, out[1] = most units that ever were; dawdles operand 1 turns per unit
define void @crowd(ptr %block, i64 %begin, i64 %end) nounwind {
entry:
  %v = getelementptr i64, ptr %block, i64 8
  %o = load ptr, ptr %v
  %most = getelementptr i64, ptr %o, i64 1
  %pt = getelementptr i64, ptr %block, i64 9
  %turns = load i64, ptr %pt
  %was = atomicrmw add ptr %o, i64 1 seq_cst, align 8
  %now = add i64 %was, 1
  %before = atomicrmw max ptr %most, i64 %now seq_cst, align 8
  br label %spin
spin:
  %t = phi i64 [ 0, %entry ], [ %t1, %spin ]
  %h = load volatile i64, ptr %o
  %t1 = add i64 %t, 1
  %again = icmp slt i64 %t1, %turns
  br i1 %again, label %spin, label %spun
spun:
  %left = atomicrmw sub ptr %o, i64 1 seq_cst, align 8
  ret void
}
; out[i] = 1 / operand 1, in the floating-point state of the thread that runs it
define void @divide(ptr %block, i64 %begin, i64 %end) nounwind {
entry:
  %v = getelementptr i64, ptr %block, i64 8
  %o = load ptr, ptr %v
  %pd = getelementptr i64, ptr %block, i64 9
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %d = load volatile double, ptr %pd
  %z = fdiv double 1.0, %d
  %pz = getelementptr double, ptr %o, i64 %i
  store volatile double %z, ptr %pz, align 8
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret void
}
define void @nothing(ptr %block, i64 %begin, i64 %end) nounwind {
  ret void
}
"""
SYMBOLS = ("axpi", "mark", "mark_last", "slow", "crowd", "divide", "nothing")

jit = Jit()
prefix = f'target triple = "{jit.target.triple}"\n'
launch = load_native(Jit(level=0).load, prefix)
library = jit.load(prefix + KERNELS, SYMBOLS)
addresses = library.addresses


def template(
    kernel: str, units: int, grain: int, kinds: str, *, last: str = "", scratch: int = 0,
    flags: int = 0, geometry: tuple[int, ...] = (),
) -> bytes:
    """A launch block; `kinds` has "a" for an array operand, "s" for a scalar."""
    n = len(kinds)
    words = 8 + 2 * n + len(geometry)
    fin = addresses[last] if last else 0
    head = (addresses[kernel], words, units, grain, fin, scratch, 0, n | flags)
    body = (0,) * n + tuple(int(kind == "s") for kind in kinds) + geometry
    return struct.pack(f"{words}Q", *head, *body)
