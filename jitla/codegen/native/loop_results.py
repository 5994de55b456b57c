"""Text of the native entry of loop programs: copies of arrays for roll-back, and objects made of results."""

from __future__ import annotations

__all__ = ["MAKE_RESULTS", "ROLL_BACK", "SAVE_ARRAYS"]

SAVE_ARRAYS = """
; Copy the elements along the axes to a buffer; returns the end of what is used of it.
define internal ptr @entry.elements(ptr %data, ptr %dims, ptr %strides, i64 %nd, i64 %size,
                                    ptr %buffer) nounwind {
entry:
  %i = alloca i64
  %at = alloca ptr
  %to = alloca ptr
  %leaf = icmp eq i64 %nd, 0
  br i1 %leaf, label %element, label %axis
element:
  call void @llvm.memcpy.p0.p0.i64(ptr %buffer, ptr %data, i64 %size, i1 false)
  %end = getelementptr i8, ptr %buffer, i64 %size
  ret ptr %end
axis:
  %n = load i64, ptr %dims
  %step = load i64, ptr %strides
  %dims1 = getelementptr i64, ptr %dims, i64 1
  %strides1 = getelementptr i64, ptr %strides, i64 1
  %nd1 = sub i64 %nd, 1
  store i64 0, ptr %i
  store ptr %data, ptr %at
  store ptr %buffer, ptr %to
  br label %head
head:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %n
  br i1 %more, label %one, label %done
one:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  %here = load ptr, ptr %at
  %b = load ptr, ptr %to
  %b1 = call ptr @entry.elements(ptr %here, ptr %dims1, ptr %strides1, i64 %nd1, i64 %size, ptr %b)
  store ptr %b1, ptr %to
  %there = getelementptr i8, ptr %here, i64 %step
  store ptr %there, ptr %at
  br label %head
done:
  %last = load ptr, ptr %to
  ret ptr %last
}
; Copy the arrays that the program may change to a buffer.
define internal void @entry.copy(ptr %t, ptr %frame, ptr %buffer) nounwind {
entry:
  %i = alloca i64
  %to = alloca ptr
  store i64 0, ptr %i
  store ptr %buffer, ptr %to
  %count = word %t, $H_WRITTEN_COUNT
  %offset = word %t, $H_WRITTEN
  br label %head
head:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %done
one:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  %at = add i64 %offset, %k
  %number = word %t, %at
  %scaled = shl i64 %number, 3
  %place = add i64 %scaled, 24
  %record = getelementptr i64, ptr %frame, i64 %place
  %o = load ptr, ptr %record
  %nbytes = word %record, 3
  %flags = field i32 %o, $flags_at
  %orders = and i32 %flags, 3
  %whole = icmp ne i32 %orders, 0
  %data = field ptr %o, $header
  %b = load ptr, ptr %to
  %b1 = getelementptr i8, ptr %b, i64 %nbytes
  store ptr %b1, ptr %to
  br i1 %whole, label %block, label %strided
block:
  call void @llvm.memcpy.p0.p0.i64(ptr %b, ptr %data, i64 %nbytes, i1 false)
  br label %head
strided:
  %size = word %record, 4
  %nd32 = field i32 %o, $nd_at
  %nd = zext i32 %nd32 to i64
  %dims = field ptr %o, $dims_at
  %strides = field ptr %o, $strides_at
  %end = call ptr @entry.elements(ptr %data, ptr %dims, ptr %strides, i64 %nd, i64 %size, ptr %b)
  br label %head
done:
  ret void
}
; The bytes of the arrays that the program may change.
define internal i64 @entry.written(ptr %t, ptr %frame) nounwind {
entry:
  %i = alloca i64
  %sum = alloca i64
  store i64 0, ptr %i
  store i64 0, ptr %sum
  %count = word %t, $H_WRITTEN_COUNT
  %offset = word %t, $H_WRITTEN
  br label %head
head:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %done
one:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  %at = add i64 %offset, %k
  %number = word %t, %at
  %scaled = shl i64 %number, 3
  %place = add i64 %scaled, 24
  %record = getelementptr i64, ptr %frame, i64 %place
  %nbytes = word %record, 3
  %sum0 = load i64, ptr %sum
  %sum1 = add i64 %sum0, %nbytes
  store i64 %sum1, ptr %sum
  br label %head
done:
  %all = load i64, ptr %sum
  ret i64 %all
}
"""

ROLL_BACK = """
; Have Python undo a run; whether it has done so, else there is an error.
define internal i1 @entry.rollback(ptr %t, ptr %buffer, i64 %nbytes, i64 %limit, ptr %args, i64 %nargs) {
entry:
  %i = alloca i64
  %count = add i64 %nargs, 2
  %argv = alloca ptr, i64 %count
  %bytes = host ptr PyBytes_FromStringAndSize(ptr %buffer, i64 %nbytes)
  %end = host ptr PyLong_FromSsize_t(i64 %limit)
  put ptr %bytes, %argv, 0
  put ptr %end, %argv, 1
  %a = icmp ne ptr %bytes, null
  %b = icmp ne ptr %end, null
  %both = and i1 %a, %b
  store i64 0, ptr %i
  br i1 %both, label %head, label %drop
head:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %nargs
  br i1 %more, label %one, label %call
one:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  %o = word %args, %k
  %k2 = add i64 %k, 2
  put i64 %o, %argv, %k2
  br label %head
call:
  %function = word %t, $H_ROLL_BACK
  %pf = inttoptr i64 %function to ptr
  %r = host ptr PyObject_Vectorcall(ptr %pf, ptr %argv, i64 %count, ptr null)
  br label %drop
drop:
  %answer = phi ptr [ null, %entry ], [ %r, %call ]
  call void @entry.drop(ptr %bytes)
  call void @entry.drop(ptr %end)
  call void @entry.drop(ptr %answer)
  %done = icmp ne ptr %answer, null
  ret i1 %done
}
"""

MAKE_RESULTS = """
; A new reference.
define internal ptr @entry.new(ptr %o) {
  host void Py_IncRef(ptr %o)
  ret ptr %o
}
; Make an object of the words at %p; null is an error.
define internal ptr @entry.make(i64 %maker, ptr %object, ptr %p) {
entry:
  %single = alloca float
  switch i64 %maker, label %no [
    i64 $M_SAME, label %same
    i64 $M_INT, label %int
    i64 $M_FLOAT, label %float
    i64 $M_BOOL, label %bool
    i64 $M_COMPLEX, label %complex
    i64 $M_SCALAR, label %scalar
    i64 $M_INT_OF_FLOAT, label %whole
    i64 $M_BOOL_OF_FLOAT, label %truth
    i64 $M_SINGLE_OF_FLOAT, label %narrow ]
same:
  %s = call ptr @entry.new(ptr %object)
  ret ptr %s
int:
  %i = load i64, ptr %p
  br label %integer
whole:
  %f = load double, ptr %p
  %fi = fptosi double %f to i64
  br label %integer
integer:
  %v = phi i64 [ %i, %int ], [ %fi, %whole ]
  %r1 = host ptr PyLong_FromSsize_t(i64 %v)
  ret ptr %r1
float:
  %d = load double, ptr %p
  %r2 = host ptr PyFloat_FromDouble(double %d)
  ret ptr %r2
bool:
  %b = load i8, ptr %p
  %isbyte = icmp ne i8 %b, 0
  br label %boolean
truth:
  %bf = load double, ptr %p
  %isfloat = fcmp une double %bf, 0.0
  br label %boolean
boolean:
  %is = phi i1 [ %isbyte, %bool ], [ %isfloat, %truth ]
  %true = object true
  %false = object false
  %chosen = select i1 %is, ptr %true, ptr %false
  %r3 = call ptr @entry.new(ptr %chosen)
  ret ptr %r3
complex:
  %re = load double, ptr %p
  %pi = getelementptr double, ptr %p, i64 1
  %im = load double, ptr %pi
  %r4 = host ptr PyComplex_FromDoubles(double %re, double %im)
  ret ptr %r4
narrow:
  %wide = load double, ptr %p
  %less = fptrunc double %wide to float
  store float %less, ptr %single
  br label %scalar
scalar:
  %from = phi ptr [ %p, %entry ], [ %single, %narrow ]
  %r5 = host ptr PyArray_Scalar(ptr %from, ptr %object, ptr null)
  ret ptr %r5
no:
  ret ptr null
}
; The operand that is the array at a place of the state; null if there is none. A borrowed reference.
define internal ptr @entry.operand(ptr %r, ptr %state, ptr %frame) nounwind {
entry:
  %i = alloca i64
  %j = alloca i64
  store i64 0, ptr %i
  %word = word %r, 1
  %descr = word %r, 3
  %nd = word %r, 4
  %writeable = word %r, 5
  %view = getelementptr i64, ptr %state, i64 %word
  %data = load i64, ptr %view
  %n = word %frame, 2
  br label %head
head:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %n
  br i1 %more, label %one, label %none
one:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  %scaled = shl i64 %k, 3
  %place = add i64 %scaled, 24
  %record = getelementptr i64, ptr %frame, i64 %place
  %o = load ptr, ptr %record
  %data.o = field i64 %o, $header
  %descr.o = field i64 %o, $descr_at
  %nd.o = field i32 %o, $nd_at
  %nd.w = zext i32 %nd.o to i64
  %flags = field i32 %o, $flags_at
  %bit = lshr i32 %flags, 10
  %w32 = and i32 %bit, 1
  %w = zext i32 %w32 to i64
  %e1 = icmp eq i64 %data, %data.o
  %e2 = icmp eq i64 %descr, %descr.o
  %e3 = icmp eq i64 %nd, %nd.w
  %e4 = icmp eq i64 %writeable, %w
  %e12 = and i1 %e1, %e2
  %e34 = and i1 %e3, %e4
  %e = and i1 %e12, %e34
  store i64 0, ptr %j
  br i1 %e, label %axes, label %head
axes:
  %a = load i64, ptr %j
  %left = icmp slt i64 %a, %nd
  br i1 %left, label %axis, label %same
axis:
  %a1 = add i64 %a, 1
  store i64 %a1, ptr %j
  %dims = field ptr %o, $dims_at
  %strides = field ptr %o, $strides_at
  %d = word %dims, %a
  %s = word %strides, %a
  %ds = word %view, %a1
  %sa = add i64 %a1, %nd
  %ss = word %view, %sa
  %ed = icmp eq i64 %d, %ds
  %es = icmp eq i64 %s, %ss
  %both = and i1 %ed, %es
  br i1 %both, label %axes, label %head
same:
  ret ptr %o
none:
  ret ptr null
}
; Make a result; null without an error means that Python has to read the results.
define internal ptr @entry.result(ptr %t, ptr %r, ptr %state, ptr %frame, ptr %error) {
entry:
  %i = alloca i64
  store i1 false, ptr %error
  %kind = load i64, ptr %r
  %word = word %r, 1
  %tagword = word %r, 2
  %w3 = word %r, 3
  %w4 = word %r, 4
  %p = getelementptr i64, ptr %state, i64 %word
  switch i64 %kind, label %none [
    i64 $R_SAME, label %object
    i64 $R_NUMBER, label %number
    i64 $R_TAGGED, label %tagged
    i64 $R_ARRAY, label %array ]
object:
  %p3 = inttoptr i64 %w3 to ptr
  %s = call ptr @entry.new(ptr %p3)
  ret ptr %s
number:
  %p4 = inttoptr i64 %w4 to ptr
  %made = call ptr @entry.make(i64 %w3, ptr %p4, ptr %p)
  br label %checked
tagged:
  %pt = getelementptr i64, ptr %state, i64 %tagword
  %tag8 = load i8, ptr %pt
  %tag = zext i8 %tag8 to i64
  store i64 0, ptr %i
  br label %head
head:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %w4
  br i1 %more, label %one, label %none
one:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  %three = mul i64 %k, 3
  %at = add i64 %three, %w3
  %triple = getelementptr i64, ptr %t, i64 %at
  %code = load i64, ptr %triple
  %fits = icmp eq i64 %code, %tag
  br i1 %fits, label %use, label %head
use:
  %maker = word %triple, 1
  %with = word %triple, 2
  %pw = inttoptr i64 %with to ptr
  %made2 = call ptr @entry.make(i64 %maker, ptr %pw, ptr %p)
  br label %checked
checked:
  %m = phi ptr [ %made, %number ], [ %made2, %use ]
  %failed = icmp eq ptr %m, null
  store i1 %failed, ptr %error
  ret ptr %m
array:
  %istagged = icmp sge i64 %tagword, 0
  br i1 %istagged, label %array.tag, label %search
array.tag:
  %pa = getelementptr i64, ptr %state, i64 %tagword
  %atag = load i8, ptr %pa
  %isobject = icmp eq i8 %atag, $object_tag
  br i1 %isobject, label %search, label %none
search:
  %o = call ptr @entry.operand(ptr %r, ptr %state, ptr %frame)
  %missing = icmp eq ptr %o, null
  br i1 %missing, label %none, label %owned
owned:
  %n = call ptr @entry.new(ptr %o)
  ret ptr %n
none:
  ret ptr null
}
; Have Python read the results.
define internal ptr @entry.reader(ptr %t, i64 %code, ptr %state, ptr %frame) {
entry:
  %i = alloca i64
  %argv = alloca [3 x ptr]
  %words = word %t, $H_STATE_WORDS
  %size = shl i64 %words, 3
  %number = host ptr PyLong_FromSsize_t(i64 %code)
  %bytes = host ptr PyBytes_FromStringAndSize(ptr %state, i64 %size)
  %n = word %frame, 2
  %arrays = host ptr PyTuple_New(i64 %n)
  put ptr %number, %argv, 0
  put ptr %bytes, %argv, 1
  put ptr %arrays, %argv, 2
  %a = icmp ne ptr %number, null
  %b = icmp ne ptr %bytes, null
  %c = icmp ne ptr %arrays, null
  %ab = and i1 %a, %b
  %abc = and i1 %ab, %c
  store i64 0, ptr %i
  br i1 %abc, label %head, label %drop
head:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %n
  br i1 %more, label %one, label %call
one:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  %scaled = shl i64 %k, 3
  %place = add i64 %scaled, 24
  %o = word %frame, %place
  %po = inttoptr i64 %o to ptr
  %new = call ptr @entry.new(ptr %po)
  %ignored = host i32 PyTuple_SetItem(ptr %arrays, i64 %k, ptr %new)
  br label %head
call:
  %read = word %t, $H_READ
  %pread = inttoptr i64 %read to ptr
  %r = host ptr PyObject_Vectorcall(ptr %pread, ptr %argv, i64 3, ptr null)
  br label %drop
drop:
  %result = phi ptr [ null, %entry ], [ %r, %call ]
  call void @entry.drop(ptr %number)
  call void @entry.drop(ptr %bytes)
  call void @entry.drop(ptr %arrays)
  ret ptr %result
}
define internal void @entry.drop(ptr %o) {
  %some = icmp ne ptr %o, null
  br i1 %some, label %drop, label %out
drop:
  host void Py_DecRef(ptr %o)
  br label %out
out:
  ret void
}
; The tuple of the exit's code and the results; null is an error.
define internal ptr @entry.results(ptr %t, i64 %code, ptr %state, ptr %frame) {
entry:
  %i = alloca i64
  %error = alloca i1
  %count = word %t, $H_RESULT_COUNT
  %offset = word %t, $H_RESULTS
  %first = getelementptr i64, ptr %t, i64 %offset
  %size = add i64 %count, 1
  %tuple = host ptr PyTuple_New(i64 %size)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %lost, label %begin
begin:
  %number = host ptr PyLong_FromSsize_t(i64 %code)
  %unmade = icmp eq ptr %number, null
  br i1 %unmade, label %destroy, label %set
set:
  %ignored = host i32 PyTuple_SetItem(ptr %tuple, i64 0, ptr %number)
  store i64 0, ptr %i
  br label %head
head:
  %k = load i64, ptr %i
  %more = icmp slt i64 %k, %count
  br i1 %more, label %one, label %done
one:
  %k1 = add i64 %k, 1
  store i64 %k1, ptr %i
  %eight = shl i64 %k, 3
  %r = getelementptr i64, ptr %first, i64 %eight
  %o = call ptr @entry.result(ptr %t, ptr %r, ptr %state, ptr %frame, ptr %error)
  %missing = icmp eq ptr %o, null
  br i1 %missing, label %without, label %put.it
put.it:
  %ignored2 = host i32 PyTuple_SetItem(ptr %tuple, i64 %k1, ptr %o)
  br label %head
without:
  %raised = load i1, ptr %error
  br i1 %raised, label %destroy, label %python
python:
  host void Py_DecRef(ptr %tuple)
  %read = call ptr @entry.reader(ptr %t, i64 %code, ptr %state, ptr %frame)
  ret ptr %read
destroy:
  host void Py_DecRef(ptr %tuple)
  br label %lost
lost:
  ret ptr null
done:
  ret ptr %tuple
}
; The pair of results and the run of what is left of the loop; takes over the reference to the results.
define internal ptr @entry.pair(ptr %results, ptr %run) {
  %pair = host ptr PyTuple_New(i64 2)
  %failed = icmp eq ptr %pair, null
  br i1 %failed, label %lost, label %fill
fill:
  %a = host i32 PyTuple_SetItem(ptr %pair, i64 0, ptr %results)
  %b = host i32 PyTuple_SetItem(ptr %pair, i64 1, ptr %run)
  ret ptr %pair
lost:
  host void Py_DecRef(ptr %results)
  host void Py_DecRef(ptr %run)
  ret ptr null
}
"""
