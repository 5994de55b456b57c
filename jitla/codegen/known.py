"""A native table of known array layouts, as IR: what is remembered of arrays with these fields.

Knows: NumPy's array object. Must not know: what is remembered, tracing.
Receives arrays; returns the object remembered for their dtype, shape and strides, or None.
"""

from __future__ import annotations

from string import Template

from jitla.codegen.host import HEADER, text_ir

__all__ = ["known_ir"]

_KNOWN = """
; A slot: object, descr, ndim, 4 dimensions, 4 strides, unused. References are held by the caller of
; `remember`. An empty slot has no descr.
@jitla_known = internal global [4096 x [12 x i64]] zeroinitializer, align 64

; The slot of an array's layout: its own, or the empty one where it belongs; null if there is none.
define internal ptr @known.slot(ptr %a) nounwind {
entry:
  %pnd = getelementptr i8, ptr %a, i64 $nd_at
  %nd32 = load i32, ptr %pnd
  %nd = zext i32 %nd32 to i64
  %pdims = getelementptr i8, ptr %a, i64 $dims_at
  %dims = load ptr, ptr %pdims
  %psteps = getelementptr i8, ptr %a, i64 $strides_at
  %steps = load ptr, ptr %psteps
  %pdescr = getelementptr i8, ptr %a, i64 $descr_at
  %descr = load i64, ptr %pdescr
  %few = icmp ult i64 %nd, 5
  br i1 %few, label %mix, label %none
mix:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %h = phi i64 [ %descr, %entry ], [ %h4, %next ]
  %more = icmp ult i64 %i, %nd
  br i1 %more, label %next, label %place
next:
  %pd = getelementptr i64, ptr %dims, i64 %i
  %d = load i64, ptr %pd
  %ps = getelementptr i64, ptr %steps, i64 %i
  %s = load i64, ptr %ps
  %h1 = xor i64 %h, %d
  %h2 = mul i64 %h1, -7046029254386353131
  %h3 = xor i64 %h2, %s
  %h4 = mul i64 %h3, -4417276706812531889
  %i1 = add i64 %i, 1
  br label %mix
place:
  %high = lshr i64 %h, 32
  %mixed = xor i64 %h, %high
  %spread = mul i64 %mixed, -7046029254386353131
  %first = lshr i64 %spread, 52
  br label %look
look:
  %k = phi i64 [ 0, %place ], [ %k1, %other ]
  %again = icmp ult i64 %k, 8
  br i1 %again, label %at, label %none
at:
  %where = add i64 %first, %k
  %inside = and i64 %where, 4095
  %slot = getelementptr [12 x i64], ptr @jitla_known, i64 %inside
  %pseen = getelementptr i64, ptr %slot, i64 1
  %seen = load i64, ptr %pseen
  %free = icmp eq i64 %seen, 0
  br i1 %free, label %found, label %kind
kind:
  %same = icmp eq i64 %seen, %descr
  %pn = getelementptr i64, ptr %slot, i64 2
  %n = load i64, ptr %pn
  %rank = icmp eq i64 %n, %nd
  %alike = and i1 %same, %rank
  br i1 %alike, label %compare, label %other
compare:
  %j = phi i64 [ 0, %kind ], [ %j1, %equal ]
  %left = icmp ult i64 %j, %nd
  br i1 %left, label %pair, label %found
pair:
  %qd = getelementptr i64, ptr %dims, i64 %j
  %dj = load i64, ptr %qd
  %qs = getelementptr i64, ptr %steps, i64 %j
  %sj = load i64, ptr %qs
  %od = add i64 %j, 3
  %rd = getelementptr i64, ptr %slot, i64 %od
  %kd = load i64, ptr %rd
  %os = add i64 %j, 7
  %rs = getelementptr i64, ptr %slot, i64 %os
  %ks = load i64, ptr %rs
  %ed = icmp eq i64 %dj, %kd
  %es = icmp eq i64 %sj, %ks
  %e = and i1 %ed, %es
  br i1 %e, label %equal, label %other
equal:
  %j1 = add i64 %j, 1
  br label %compare
other:
  %k1 = add i64 %k, 1
  br label %look
found:
  ret ptr %slot
none:
  ret ptr null
}

define internal ptr @known.given(ptr %object) {
  %up = load ptr, ptr $Py_IncRef
  call void %up(ptr %object)
  ret ptr %object
}

define internal ptr @known.misuse() {
  %set = load ptr, ptr $PyErr_SetString
  %ptype = load ptr, ptr $TypeError
  call void %set(ptr %ptype, ptr @text.known)
  ret ptr null
}

; What is remembered of an ndarray, if it owns its memory, else null; a borrowed reference.
define internal ptr @known.of(ptr %a) nounwind {
entry:
  %pbase = getelementptr i8, ptr %a, i64 $base_at
  %base = load ptr, ptr %pbase
  %alone = icmp eq ptr %base, null
  %pflags = getelementptr i8, ptr %a, i64 $flags_at
  %flags = load i32, ptr %pflags
  %own = and i32 %flags, 4
  %owns = icmp ne i32 %own, 0
  %fine = and i1 %alone, %owns
  br i1 %fine, label %search, label %unknown
search:
  %slot = call ptr @known.slot(ptr %a)
  %some = icmp ne ptr %slot, null
  br i1 %some, label %read, label %unknown
read:
  %object = load ptr, ptr %slot
  ret ptr %object
unknown:
  ret ptr null
}

; find(array): what is remembered, if the array is an ndarray that owns its memory, else None
define ptr @jitla_find(ptr %self, ptr %args, i64 %nargs) {
entry:
  %one = icmp eq i64 %nargs, 1
  br i1 %one, label %typed, label %misuse
typed:
  %a = load ptr, ptr %args
  %ptype = getelementptr i8, ptr %a, i64 $type_at
  %type = load ptr, ptr %ptype
  %ndarray = load ptr, ptr $ndarray
  %array = icmp eq ptr %type, %ndarray
  br i1 %array, label %search, label %unknown
search:
  %object = call ptr @known.of(ptr %a)
  %filled = icmp ne ptr %object, null
  br i1 %filled, label %known, label %unknown
known:
  %r = call ptr @known.given(ptr %object)
  ret ptr %r
unknown:
  %none = load ptr, ptr $none
  %n = call ptr @known.given(ptr %none)
  ret ptr %n
misuse:
  %m = call ptr @known.misuse()
  ret ptr %m
}

; remember(array, object): what `find` gives for arrays of this layout from now on
define ptr @jitla_remember(ptr %self, ptr %args, i64 %nargs) {
entry:
  %two = icmp eq i64 %nargs, 2
  br i1 %two, label %typed, label %misuse
typed:
  %a = load ptr, ptr %args
  %ptype = getelementptr i8, ptr %a, i64 $type_at
  %type = load ptr, ptr %ptype
  %ndarray = load ptr, ptr $ndarray
  %array = icmp eq ptr %type, %ndarray
  br i1 %array, label %search, label %misuse
search:
  %pobject = getelementptr ptr, ptr %args, i64 1
  %object = load ptr, ptr %pobject
  %slot = call ptr @known.slot(ptr %a)
  %some = icmp ne ptr %slot, null
  br i1 %some, label %write, label %done
write:
  %pdescr = getelementptr i8, ptr %a, i64 $descr_at
  %descr = load i64, ptr %pdescr
  %pnd = getelementptr i8, ptr %a, i64 $nd_at
  %nd32 = load i32, ptr %pnd
  %nd = zext i32 %nd32 to i64
  %pdims = getelementptr i8, ptr %a, i64 $dims_at
  %dims = load ptr, ptr %pdims
  %psteps = getelementptr i8, ptr %a, i64 $strides_at
  %steps = load ptr, ptr %psteps
  %qn = getelementptr i64, ptr %slot, i64 2
  store i64 %nd, ptr %qn
  %qd = getelementptr i64, ptr %slot, i64 3
  %qs = getelementptr i64, ptr %slot, i64 7
  %bytes = shl i64 %nd, 3
  %copy = load ptr, ptr $memcpy
  call ptr %copy(ptr %qd, ptr %dims, i64 %bytes)
  call ptr %copy(ptr %qs, ptr %steps, i64 %bytes)
  store ptr %object, ptr %slot
  %q1 = getelementptr i64, ptr %slot, i64 1
  store i64 %descr, ptr %q1
  br label %done
done:
  %none = load ptr, ptr $none
  %n = call ptr @known.given(ptr %none)
  ret ptr %n
misuse:
  %m = call ptr @known.misuse()
  ret ptr %m
}

; forget(): nothing is remembered any more
define ptr @jitla_forget(ptr %self, ptr %args, i64 %nargs) {
  %set = load ptr, ptr $memset
  call ptr %set(ptr @jitla_known, i32 0, i64 393216)
  %none = load ptr, ptr $none
  %n = call ptr @known.given(ptr %none)
  ret ptr %n
}
"""


def known_ir(names: dict[str, str]) -> str:
    """IR of `find`, `remember` and `forget`."""
    return text_ir("known", "find(array), remember(array, object), forget()") + Template(_KNOWN).substitute(
        names, type_at=HEADER - 8, nd_at=HEADER + 8, dims_at=HEADER + 16, strides_at=HEADER + 24,
        base_at=HEADER + 32, descr_at=HEADER + 40, flags_at=HEADER + 48)
