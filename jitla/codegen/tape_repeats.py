"""Whether a tape is as it was, as IR: a native method of the session.

Knows: CPython's tuples and reference counts. Must not know: what entries mean.
Receives the entries and references of a block met before; returns whether the tape is like that.
"""

from __future__ import annotations

__all__ = ["REPEATS"]

REPEATS = """
; Whether two objects are surely equal. Entries are tuples of small numbers.
define internal i1 @tape.equal(ptr %a, ptr %b) {
entry:
  %identical = icmp eq ptr %a, %b
  br i1 %identical, label %yes, label %differ
differ:
  %pta = getelementptr i8, ptr %a, i64 $type_at
  %ta = load ptr, ptr %pta
  %ptb = getelementptr i8, ptr %b, i64 $type_at
  %tb = load ptr, ptr %ptb
  %kin = icmp eq ptr %ta, %tb
  br i1 %kin, label %which, label %no
which:
  %type = load ptr, ptr $tuple_type
  %tuples = icmp eq ptr %ta, %type
  br i1 %tuples, label %measure, label %compare
measure:
  %length = load ptr, ptr $PyTuple_Size
  %item = load ptr, ptr $PyTuple_GetItem
  %na = call i64 %length(ptr %a)
  %nb = call i64 %length(ptr %b)
  %long = icmp eq i64 %na, %nb
  br i1 %long, label %each, label %no
each:
  %i = phi i64 [ 0, %measure ], [ %i1, %next ]
  %more = icmp slt i64 %i, %na
  br i1 %more, label %pair, label %yes
pair:
  %x = call ptr %item(ptr %a, i64 %i)
  %y = call ptr %item(ptr %b, i64 %i)
  %same = icmp eq ptr %x, %y
  br i1 %same, label %next, label %ask
ask:
  %inner = call i1 @tape.equal(ptr %x, ptr %y)
  br i1 %inner, label %next, label %no
next:
  %i1 = add i64 %i, 1
  br label %each
compare:
  %rich = load ptr, ptr $PyObject_RichCompareBool
  %r = call i32 %rich(ptr %a, ptr %b, i32 2)
  %raised = icmp slt i32 %r, 0
  br i1 %raised, label %clear, label %answer
answer:
  %one = icmp eq i32 %r, 1
  ret i1 %one
clear:
  %forgive = load ptr, ptr $PyErr_Clear
  call void %forgive()
  ret i1 0
yes:
  ret i1 1
no:
  ret i1 0
}

; repeats(entries, references): whether the tape, and what refers to its values, are surely like that
define ptr @jitla_repeats(ptr %self, ptr %args, i64 %nargs) {
entry:
  %two = icmp eq i64 %nargs, 2
  br i1 %two, label %typed, label %python
typed:
  %kops = load ptr, ptr %args
  %prefs = getelementptr ptr, ptr %args, i64 1
  %krefs = load ptr, ptr %prefs
  %t0 = call i1 @tape.is(ptr %kops, ptr $tuple_type)
  %t1 = call i1 @tape.is(ptr %krefs, ptr $tuple_type)
  %ops = list %self, at_ops
  %nodes = list %self, at_nodes
  %v0 = and i1 %t0, %t1
  %v1 = and i1 %v0, %ops.plain
  %usual = and i1 %v1, %nodes.plain
  br i1 %usual, label %parts, label %python
parts:
  %item = load ptr, ptr $PyTuple_GetItem
  %length = load ptr, ptr $PyTuple_Size
  %member = load ptr, ptr $PyList_GetItem
  %size = load ptr, ptr $PyList_Size
  %number = load ptr, ptr $PyLong_AsSsize_t
  %n = call i64 %size(ptr %ops)
  %n1 = call i64 %size(ptr %nodes)
  %n2 = call i64 %length(ptr %kops)
  %n3 = call i64 %length(ptr %krefs)
  %e1 = icmp eq i64 %n, %n1
  %e2 = icmp eq i64 %n, %n2
  %e3 = icmp eq i64 %n, %n3
  %e12 = and i1 %e1, %e2
  %long = and i1 %e12, %e3
  %held = load i64, ptr $held
  br i1 %long, label %each, label %no
each:
  %i = phi i64 [ 0, %parts ], [ %i1, %next ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %refs, label %yes
refs:
  %node = call ptr %member(ptr %nodes, i64 %i)
  %raw = load i32, ptr %node
  %wide = zext i32 %raw to i64
  %now = add i64 %wide, %held
  %kref = call ptr %item(ptr %krefs, i64 %i)
  %before = call i64 %number(ptr %kref)
  %alike = icmp eq i64 %now, %before
  br i1 %alike, label %entries, label %no
entries:
  %x = call ptr %member(ptr %ops, i64 %i)
  %y = call ptr %item(ptr %kops, i64 %i)
  %same = call i1 @tape.equal(ptr %x, ptr %y)
  br i1 %same, label %next, label %no
next:
  %i1 = add i64 %i, 1
  br label %each
yes:
  %true = load ptr, ptr $true
  %t = call ptr @known.given(ptr %true)
  ret ptr %t
no:
  %false = load ptr, ptr $false
  %f = call ptr @known.given(ptr %false)
  ret ptr %f
python:
  %p = call ptr @tape.python(ptr $py_repeats, ptr %self, ptr %args, i64 %nargs)
  ret ptr %p
}
"""
