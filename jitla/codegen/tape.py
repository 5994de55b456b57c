"""What tracing does for every array and operation, as IR: native methods of the session.

Knows: CPython's lists, tuples and slots; the order of the fields that say where everything is.
Must not know: tracing, which fills the fields. Receives sessions, proxies and entries; returns proxies.

Each method does exactly what the Python method of its name does, which it calls where anything is
unusual: a tape that is no plain list, a proxy that is not in memory, an array that is not known.
"""

from __future__ import annotations

from string import Template

from jitla.codegen.host import HEADER
from jitla.codegen.tape_detaching import DETACHING
from jitla.codegen.tape_repeats import REPEATS
from jitla.codegen.tape_slots import FIELDS, METHODS, SLOTS, spelt_out
from jitla.codegen.tape_taking import TAKING

__all__ = ["FIELDS", "METHODS", "tape_ir"]

_TAPE = """
; The tape's entry of an array proxy that is in memory, a borrowed reference, or null.
define internal ptr @tape.entry(ptr %proxy) {
entry:
  %value = slot %proxy, at__v
  %l = slot %proxy, at__l
  %none = load ptr, ptr $none
  %set = icmp ne ptr %value, null
  %some = icmp ne ptr %value, %none
  %placed = icmp ne ptr %l, null
  %in = and i1 %set, %some
  %fine = and i1 %in, %placed
  br i1 %fine, label %look, label %no
look:
  %number = load ptr, ptr $PyLong_AsSsize_t
  %i = call i64 %number(ptr %l)
  %layouts = load ptr, ptr $layouts
  %member = load ptr, ptr $PyList_GetItem
  %layout = call ptr %member(ptr %layouts, i64 %i)
  %known = icmp ne ptr %layout, null
  br i1 %known, label %read, label %bad
read:
  %which = load i64, ptr $entry
  %item = load ptr, ptr $PyTuple_GetItem
  %entry.object = call ptr %item(ptr %layout, i64 %which)
  %good = icmp ne ptr %entry.object, null
  br i1 %good, label %return, label %bad
return:
  ret ptr %entry.object
bad:
  %clear = load ptr, ptr $PyErr_Clear
  call void %clear()
  ret ptr null
no:
  ret ptr null
}

; enter(proxy): put a value that is in memory on the tape; its entry's number
define ptr @jitla_enter(ptr %self, ptr %args, i64 %nargs) {
entry:
  %one = icmp eq i64 %nargs, 1
  br i1 %one, label %typed, label %python
typed:
  %proxy = load ptr, ptr %args
  %array = call i1 @tape.is(ptr %proxy, ptr $array)
  %ops = list %self, at_ops
  %nodes = list %self, at_nodes
  %leaves = list %self, at_leaves
  %entered = list %self, at_entered
  %hole = slot %self, at_hole
  %u4 = icmp ne ptr %hole, null
  %v0 = and i1 %ops.plain, %array
  %v1 = and i1 %v0, %nodes.plain
  %v2 = and i1 %v1, %leaves.plain
  %v3 = and i1 %v2, %entered.plain
  %usual = and i1 %v3, %u4
  br i1 %usual, label %look, label %python
look:
  %mark = call ptr @tape.entry(ptr %proxy)
  %known = icmp ne ptr %mark, null
  br i1 %known, label %go, label %python
go:
  %value = slot %proxy, at__v
  %length = load ptr, ptr $PyList_Size
  %place = call i64 %length(ptr %ops)
  %number = load ptr, ptr $PyLong_FromSsize_t
  %n = call ptr %number(i64 %place)
  %able = icmp ne ptr %n, null
  br i1 %able, label %append, label %failed
append:
  %up = load ptr, ptr $Py_IncRef
  call void %up(ptr %n)
  call void @tape.set(ptr %proxy, ptr $at__n, ptr %n)
  %more = load ptr, ptr $PyList_Append
  %r0 = call i32 %more(ptr %ops, ptr %mark)
  %r1 = call i32 %more(ptr %nodes, ptr %hole)
  %r2 = call i32 %more(ptr %leaves, ptr %value)
  %r3 = call i32 %more(ptr %entered, ptr %proxy)
  %s1 = or i32 %r0, %r1
  %s2 = or i32 %s1, %r2
  %s3 = or i32 %s2, %r3
  %well = icmp eq i32 %s3, 0
  br i1 %well, label %return, label %drop
return:
  ret ptr %n
drop:
  %down = load ptr, ptr $Py_DecRef
  call void %down(ptr %n)
  ret ptr null
failed:
  ret ptr null
python:
  %r = call ptr @tape.python(ptr $py_enter, ptr %self, ptr %args, i64 %nargs)
  ret ptr %r
}

; leave(): let the values that were entered be off the tape
define ptr @jitla_leave(ptr %self, ptr %args, i64 %nargs) {
entry:
  %zero = icmp eq i64 %nargs, 0
  %entered = list %self, at_entered
  %usual = and i1 %zero, %entered.plain
  br i1 %usual, label %begin, label %python
begin:
  %length = load ptr, ptr $PyList_Size
  %item = load ptr, ptr $PyList_GetItem
  %up = load ptr, ptr $Py_IncRef
  %minus = load ptr, ptr $minus
  %array = load ptr, ptr $array
  %scalar = load ptr, ptr $scalar
  %n = call i64 %length(ptr %entered)
  br label %each
each:
  %i = phi i64 [ 0, %begin ], [ %i1, %off ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %next, label %done
next:
  %p = call ptr %item(ptr %entered, i64 %i)
  %ptype = getelementptr i8, ptr %p, i64 $type_at
  %type = load ptr, ptr %ptype
  %a = icmp eq ptr %type, %array
  %b = icmp eq ptr %type, %scalar
  %proxy = or i1 %a, %b
  br i1 %proxy, label %off, label %python
off:
  call void %up(ptr %minus)
  call void @tape.set(ptr %p, ptr $at__n, ptr %minus)
  %i1 = add i64 %i, 1
  br label %each
done:
  %none = load ptr, ptr $none
  %r = call ptr @known.given(ptr %none)
  ret ptr %r
python:
  %q = call ptr @tape.python(ptr $py_leave, ptr %self, ptr %args, i64 %nargs)
  ret ptr %q
}

; put(kind, entry, meta): append an operation; the proxy of its value
define ptr @jitla_put(ptr %self, ptr %args, i64 %nargs) {
entry:
  %three = icmp eq i64 %nargs, 3
  %four = icmp eq i64 %nargs, 4
  %known = or i1 %three, %four
  br i1 %known, label %typed, label %python
typed:
  %kind = load ptr, ptr %args
  %pmark = getelementptr ptr, ptr %args, i64 1
  %mark = load ptr, ptr %pmark
  %pmeta = getelementptr ptr, ptr %args, i64 2
  %meta = load ptr, ptr %pmeta
  %array = load ptr, ptr $array
  %scalar = load ptr, ptr $scalar
  %a = icmp eq ptr %kind, %array
  %b = icmp eq ptr %kind, %scalar
  %proxy = or i1 %a, %b
  %ops0 = list %self, at_ops
  %nodes0 = list %self, at_nodes
  %scalars0 = list %self, at_scalars
  %two = and i1 %ops0.plain, %nodes0.plain
  %both = and i1 %two, %scalars0.plain
  %usual = and i1 %both, %proxy
  br i1 %usual, label %go, label %python
go:
  %alloc = load ptr, ptr $PyType_GenericAlloc
  %made = call ptr %alloc(ptr %kind, i64 0)
  %able = icmp ne ptr %made, null
  br i1 %able, label %again, label %failed
again:
  ; a finalizer may have run and ended the block: only what is read from here on is sure
  %ops = list %self, at_ops
  %nodes = list %self, at_nodes
  %scalars = list %self, at_scalars
  %pair = and i1 %ops.plain, %nodes.plain
  %still = and i1 %pair, %scalars.plain
  br i1 %still, label %count, label %other
other:
  %away = load ptr, ptr $Py_DecRef
  call void %away(ptr %made)
  br label %python
count:
  %length = load ptr, ptr $PyList_Size
  %place = call i64 %length(ptr %ops)
  %number = load ptr, ptr $PyLong_FromSsize_t
  %n = call ptr %number(i64 %place)
  %counted = icmp ne ptr %n, null
  br i1 %counted, label %fill, label %drop
fill:
  %none = load ptr, ptr $none
  call void @tape.set(ptr %made, ptr $at__n, ptr %n)
  give %made, at__s, %self
  give %made, at__m, %meta
  give %made, at__v, %none
  give %made, at__r, %none
  %more = load ptr, ptr $PyList_Append
  %r0 = call i32 %more(ptr %ops, ptr %mark)
  %r1 = call i32 %more(ptr %nodes, ptr %made)
  %s = or i32 %r0, %r1
  %well = icmp eq i32 %s, 0
  br i1 %well, label %scalar.too, label %drop
scalar.too:
  br i1 %four, label %keep, label %return
keep:
  %pgiven = getelementptr ptr, ptr %args, i64 3
  %given = load ptr, ptr %pgiven
  %r2 = call i32 %more(ptr %scalars, ptr %given)
  %kept = icmp eq i32 %r2, 0
  br i1 %kept, label %return, label %drop
return:
  ret ptr %made
drop:
  %down = load ptr, ptr $Py_DecRef
  call void %down(ptr %made)
  ret ptr null
failed:
  ret ptr null
python:
  %r = call ptr @tape.python(ptr $py_put, ptr %self, ptr %args, i64 %nargs)
  ret ptr %r
}
"""


def tape_ir(names: dict[str, str]) -> str:
    """IR of the methods, and of their empty table `jitla_tape`; `known_ir` is needed beside it."""
    fields = {name: f"getelementptr (i64, ptr @jitla_tape, i64 {i})" for i, name in enumerate(FIELDS)}
    table = f"@jitla_tape = global [{len(FIELDS)} x i64] zeroinitializer, align 64\n"
    text = Template(SLOTS + spelt_out(TAKING + _TAPE + DETACHING + REPEATS))
    return table + text.substitute(names | fields, type_at=HEADER - 8)
