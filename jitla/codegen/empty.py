"""A native `empty`, as IR: new ndarrays that own their data, large ones from our memory handler.

Knows: CPython's and NumPy's object layout, NumPy's array constructor. Must not know: kernels.
Receives a shape, a dtype and an order of axes; returns an uninitialised ndarray.
"""

from __future__ import annotations

from string import Template

from jitla.codegen.host import HEADER, itemsize_offset, text_ir

__all__ = ["empty_ir"]

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
