"""The arguments of a traced call as proxies, as IR: a native method of the session.

Knows: the table of known layouts. Must not know: tapes.
Receives arguments; returns them with a proxy for each array, made here if its layout is known.
"""

from __future__ import annotations

__all__ = ["TAKING"]

TAKING = """
; The proxy of an array; a new reference, null if Python raised.
define internal ptr @tape.taken(ptr %self, ptr %foreigners, ptr %array) {
entry:
  %args = alloca ptr
  store ptr %array, ptr %args
  %found = call ptr @known.of(ptr %array)
  %known = icmp ne ptr %found, null
  br i1 %known, label %make, label %python
make:
  %up = load ptr, ptr $Py_IncRef
  %down = load ptr, ptr $Py_DecRef
  call void %up(ptr %found)
  %alloc = load ptr, ptr $PyType_GenericAlloc
  %type = load ptr, ptr $array
  %made = call ptr %alloc(ptr %type, i64 0)
  %able = icmp ne ptr %made, null
  br i1 %able, label %fill, label %failed
fill:
  %item = load ptr, ptr $PyTuple_GetItem
  %layout = call ptr %item(ptr %found, i64 0)
  %meta = call ptr %item(ptr %found, i64 1)
  %minus = load ptr, ptr $minus
  give %made, at__s, %self
  give %made, at__n, %minus
  give %made, at__m, %meta
  give %made, at__v, %array
  give %made, at__l, %layout
  %number = load ptr, ptr $PyLong_FromVoidPtr
  %key = call ptr %number(ptr %array)
  %keyed = icmp ne ptr %key, null
  br i1 %keyed, label %insert, label %drop
insert:
  %default = load ptr, ptr $PyDict_SetDefault
  %there = call ptr %default(ptr %foreigners, ptr %key, ptr %made)
  call void %down(ptr %key)
  %bad = icmp eq ptr %there, null
  br i1 %bad, label %drop, label %inserted
inserted:
  call void %down(ptr %found)
  %mine = icmp eq ptr %there, %made
  br i1 %mine, label %good, label %twice
good:
  ret ptr %made
twice:
  call void %down(ptr %made)
  br label %python
drop:
  call void %down(ptr %made)
  br label %failed
failed:
  call void %down(ptr %found)
  ret ptr null
python:
  %r = call ptr @tape.python(ptr $py_argument, ptr %self, ptr %args, i64 1)
  ret ptr %r
}

; Keep the number of arrays from outside in mind if it is large; false if Python raised.
define internal i1 @tape.crowded(ptr %self, ptr %foreigners) {
entry:
  %count = load ptr, ptr $PyDict_Size
  %size = call i64 %count(ptr %foreigners)
  %usual = load i64, ptr $crowd
  %many = icmp sgt i64 %size, %usual
  br i1 %many, label %raise, label %fine
raise:
  %twice = shl i64 %size, 1
  %sum = add i64 %twice, %usual
  %number = load ptr, ptr $PyLong_FromSsize_t
  %crowd = call ptr %number(i64 %sum)
  %able = icmp ne ptr %crowd, null
  br i1 %able, label %set, label %failed
set:
  call void @tape.set(ptr %self, ptr $at_crowd, ptr %crowd)
  br label %fine
fine:
  ret i1 1
failed:
  ret i1 0
}

; arguments(values): what `argument` makes of each value
define ptr @jitla_arguments(ptr %self, ptr %args, i64 %nargs) {
entry:
  %one = icmp eq i64 %nargs, 1
  br i1 %one, label %typed, label %python
typed:
  %values = load ptr, ptr %args
  %plain = call i1 @tape.is(ptr %values, ptr $tuple_type)
  %foreigners = slot %self, at_foreigners
  %begun = icmp ne ptr %foreigners, null
  %usual = and i1 %plain, %begun
  br i1 %usual, label %begin, label %python
begin:
  %up = load ptr, ptr $Py_IncRef
  %down = load ptr, ptr $Py_DecRef
  %item = load ptr, ptr $PyTuple_GetItem
  %put = load ptr, ptr $PyTuple_SetItem
  %length = load ptr, ptr $PyTuple_Size
  %n = call i64 %length(ptr %values)
  %new = load ptr, ptr $PyTuple_New
  %made = call ptr %new(i64 %n)
  %able = icmp ne ptr %made, null
  br i1 %able, label %each, label %failed
each:
  %i = phi i64 [ 0, %begin ], [ %i1, %place ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %next, label %done
next:
  %v = call ptr %item(ptr %values, i64 %i)
  %array = call i1 @tape.is(ptr %v, ptr $ndarray)
  br i1 %array, label %take, label %keep
keep:
  call void %up(ptr %v)
  br label %place
take:
  %proxy = call ptr @tape.taken(ptr %self, ptr %foreigners, ptr %v)
  %taken = icmp ne ptr %proxy, null
  br i1 %taken, label %place, label %drop
place:
  %given = phi ptr [ %v, %keep ], [ %proxy, %take ]
  call i32 %put(ptr %made, i64 %i, ptr %given)
  %i1 = add i64 %i, 1
  br label %each
done:
  %counted = call i1 @tape.crowded(ptr %self, ptr %foreigners)
  br i1 %counted, label %return, label %drop
return:
  ret ptr %made
drop:
  call void %down(ptr %made)
  ret ptr null
failed:
  ret ptr null
python:
  %r = call ptr @tape.python(ptr $py_arguments, ptr %self, ptr %args, i64 %nargs)
  ret ptr %r
}

"""
