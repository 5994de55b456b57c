"""Taking the tape off its session, as IR: a native method of the session.

Knows: CPython's lists and tuples. Must not know: what entries mean.
Receives how many entries there are, and which of them somebody may hold proxies of; returns the tape.
"""

from __future__ import annotations

__all__ = ["DETACHING"]

DETACHING = """
; Whether a slot holds an empty dictionary.
define internal i1 @tape.empty(ptr %dict) {
entry:
  %set = icmp ne ptr %dict, null
  br i1 %set, label %ask, label %no
ask:
  %size = load ptr, ptr $PyDict_Size
  %n = call i64 %size(ptr %dict)
  %none = icmp eq i64 %n, 0
  ret i1 %none
no:
  ret i1 false
}

; Give a proxy the number of those that are on no tape; whether it is a proxy.
define internal i1 @tape.off(ptr %p) {
entry:
  %there = icmp ne ptr %p, null
  br i1 %there, label %typed, label %no
typed:
  %ptype = getelementptr i8, ptr %p, i64 $type_at
  %type = load ptr, ptr %ptype
  %array = load ptr, ptr $array
  %scalar = load ptr, ptr $scalar
  %a = icmp eq ptr %type, %array
  %b = icmp eq ptr %type, %scalar
  %proxy = or i1 %a, %b
  br i1 %proxy, label %yes, label %no
yes:
  %minus = load ptr, ptr $minus
  %up = load ptr, ptr $Py_IncRef
  call void %up(ptr %minus)
  call void @tape.set(ptr %p, ptr $at__n, ptr %minus)
  ret i1 true
no:
  ret i1 false
}

; Put what the slot holds into the tuple, and `value` into the slot; references go along.
define internal void @tape.move(ptr %self, ptr %at, ptr %tuple, i64 %i, ptr %value) {
  %offset = load i64, ptr %at
  %p = getelementptr i8, ptr %self, i64 %offset
  %old = load ptr, ptr %p
  store ptr %value, ptr %p
  %put = load ptr, ptr $PyTuple_SetItem
  %r = call i32 %put(ptr %tuple, i64 %i, ptr %old)
  ret void
}

; detach(count, alive): take the tape off the session, which begins an empty one
define ptr @jitla_detach(ptr %self, ptr %args, i64 %nargs) {
entry:
  %two = icmp eq i64 %nargs, 2
  br i1 %two, label %typed, label %python
typed:
  %pcount = load ptr, ptr %args
  %palive = getelementptr ptr, ptr %args, i64 1
  %alive = load ptr, ptr %palive
  %patype = getelementptr i8, ptr %alive, i64 $type_at
  %atype = load ptr, ptr %patype
  %tuple_type = load ptr, ptr $tuple_type
  %listed = icmp eq ptr %atype, %tuple_type
  br i1 %listed, label %allocate, label %python
allocate:
  ; finalizers may run here, so everything else comes behind
  %new = load ptr, ptr $PyList_New
  %tupled = load ptr, ptr $PyTuple_New
  %ops1 = call ptr %new(i64 0)
  %nodes1 = call ptr %new(i64 0)
  %leaves1 = call ptr %new(i64 0)
  %scalars1 = call ptr %new(i64 0)
  %entered1 = call ptr %new(i64 0)
  %parts = call ptr %tupled(i64 7)
  %m0 = icmp ne ptr %ops1, null
  %m1 = icmp ne ptr %nodes1, null
  %m2 = icmp ne ptr %leaves1, null
  %m3 = icmp ne ptr %scalars1, null
  %m4 = icmp ne ptr %entered1, null
  %m5 = icmp ne ptr %parts, null
  %n0 = and i1 %m0, %m1
  %n1 = and i1 %n0, %m2
  %n2 = and i1 %n1, %m3
  %n3 = and i1 %n2, %m4
  %able = and i1 %n3, %m5
  br i1 %able, label %look, label %short
short:
  %clear = load ptr, ptr $PyErr_Clear
  call void %clear()
  br label %drop
look:
  %ops = list %self, at_ops
  %nodes = list %self, at_nodes
  %leaves = list %self, at_leaves
  %scalars = list %self, at_scalars
  %entered = list %self, at_entered
  %lines = slot %self, at_lines
  %attentive = slot %self, at_attentive
  %views = slot %self, at_views
  %past = slot %self, at_past
  %positions = slot %self, at_positions
  %tables = slot %self, at_tables
  %extremes = slot %self, at_extremes
  %none = load ptr, ptr $none
  %false = load ptr, ptr $false
  %e0 = icmp eq ptr %lines, %none
  %e1 = icmp eq ptr %attentive, %false
  %e2 = call i1 @tape.empty(ptr %views)
  %e3 = call i1 @tape.empty(ptr %past)
  %e4 = call i1 @tape.empty(ptr %positions)
  %e5 = call i1 @tape.empty(ptr %tables)
  %e6 = call i1 @tape.empty(ptr %extremes)
  %f0 = and i1 %e0, %e1
  %f1 = and i1 %f0, %e2
  %f2 = and i1 %f1, %e3
  %f3 = and i1 %f2, %e4
  %f4 = and i1 %f3, %e5
  %f5 = and i1 %f4, %e6
  %g0 = and i1 %f5, %ops.plain
  %g1 = and i1 %g0, %nodes.plain
  %g2 = and i1 %g1, %leaves.plain
  %g3 = and i1 %g2, %scalars.plain
  %usual = and i1 %g3, %entered.plain
  br i1 %usual, label %count, label %drop
count:
  %length = load ptr, ptr $PyList_Size
  %number = load ptr, ptr $PyLong_AsSsize_t
  %item = load ptr, ptr $PyList_GetItem
  %member = load ptr, ptr $PyTuple_GetItem
  %measure = load ptr, ptr $PyTuple_Size
  %given = call i64 %number(ptr %pcount)
  %long = call i64 %length(ptr %nodes)
  %same = icmp eq i64 %given, %long
  br i1 %same, label %begin, label %drop
begin:
  %many = call i64 %length(ptr %entered)
  %held = call i64 %measure(ptr %alive)
  br label %each
each:
  %i = phi i64 [ 0, %begin ], [ %i1, %taken ]
  %more = icmp slt i64 %i, %many
  br i1 %more, label %leave, label %living
leave:
  %p = call ptr %item(ptr %entered, i64 %i)
  %left = call i1 @tape.off(ptr %p)
  br i1 %left, label %taken, label %drop
taken:
  %i1 = add i64 %i, 1
  br label %each
living:
  %j = phi i64 [ 0, %each ], [ %j1, %lost ]
  %rest = icmp slt i64 %j, %held
  br i1 %rest, label %lose, label %swap
lose:
  %which = call ptr %member(ptr %alive, i64 %j)
  %k = call i64 %number(ptr %which)
  %inside = icmp ult i64 %k, %long
  br i1 %inside, label %node, label %drop
node:
  %q = call ptr %item(ptr %nodes, i64 %k)
  %gone = call i1 @tape.off(ptr %q)
  br i1 %gone, label %lost, label %drop
lost:
  %j1 = add i64 %j, 1
  br label %living
swap:
  %up = load ptr, ptr $Py_IncRef
  %put = load ptr, ptr $PyTuple_SetItem
  call void @tape.move(ptr %self, ptr $at_ops, ptr %parts, i64 0, ptr %ops1)
  call void @tape.move(ptr %self, ptr $at_nodes, ptr %parts, i64 1, ptr %nodes1)
  call void @tape.move(ptr %self, ptr $at_leaves, ptr %parts, i64 2, ptr %leaves1)
  call void @tape.move(ptr %self, ptr $at_scalars, ptr %parts, i64 3, ptr %scalars1)
  call void %up(ptr %none)
  %r4 = call i32 %put(ptr %parts, i64 4, ptr %none)
  call void %up(ptr %views)
  %r5 = call i32 %put(ptr %parts, i64 5, ptr %views)
  call void %up(ptr %past)
  %r6 = call i32 %put(ptr %parts, i64 6, ptr %past)
  call void %up(ptr %parts)
  call void @tape.set(ptr %self, ptr $at_running, ptr %parts)
  call void @tape.set(ptr %self, ptr $at_entered, ptr %entered1)
  ret ptr %parts
drop:
  %down = load ptr, ptr $Py_DecRef
  call void %down(ptr %ops1)
  call void %down(ptr %nodes1)
  call void %down(ptr %leaves1)
  call void %down(ptr %scalars1)
  call void %down(ptr %entered1)
  call void %down(ptr %parts)
  br label %python
python:
  %r = call ptr @tape.python(ptr $py_detach, ptr %self, ptr %args, i64 %nargs)
  ret ptr %r
}
"""
