"""What tracing does for every array and operation, as IR: native methods of the session.

Knows: CPython's lists, tuples and slots; the order of the fields that say where everything is.
Must not know: tracing, which fills the fields. Receives sessions, proxies and entries; returns proxies.

Each method does exactly what the Python method of its name does, which it calls where anything is
unusual: a tape that is no plain list, a proxy that is not in memory, an array that is not known.
"""

from __future__ import annotations

from string import Template

from jitla.codegen.host import HEADER

__all__ = ["FIELDS", "METHODS", "tape_ir"]

#: The methods, and the Python method that `arguments` calls for arrays it does not know.
METHODS = ("arguments", "enter", "put", "repeats")
_PYTHON = (*METHODS, "argument")
_OBJECTS = ("array", "scalar", "layouts", "minus")
_NUMBERS = ("entry", "crowd", "held")
#: Slots of proxies, then of sessions.
_SLOTS = ("_s", "_n", "_m", "_v", "_l", "ops", "nodes", "leaves", "entered", "hole", "foreigners",
          "crowd")

#: What the table says, in the order of its entries: Python's methods (`py_`), the types of proxies and
#: other objects, numbers, and where the slots are (`at_`).
FIELDS = (*(f"py_{name}" for name in _PYTHON), *_OBJECTS, *_NUMBERS, *(f"at_{name}" for name in _SLOTS))

_TAPE = """
define internal i1 @tape.is(ptr %object, ptr %known) nounwind {
  %ptype = getelementptr i8, ptr %object, i64 $type_at
  %type = load ptr, ptr %ptype
  %want = load ptr, ptr %known
  %same = icmp eq ptr %type, %want
  ret i1 %same
}

; What the slot at the offset in `at` holds, a borrowed reference, or null.
define internal ptr @tape.get(ptr %object, ptr %at) nounwind {
  %offset = load i64, ptr %at
  %p = getelementptr i8, ptr %object, i64 %offset
  %held = load ptr, ptr %p
  ret ptr %held
}

; Give the slot another value, whose reference it takes over.
define internal void @tape.set(ptr %object, ptr %at, ptr %value) {
  %offset = load i64, ptr %at
  %p = getelementptr i8, ptr %object, i64 %offset
  %old = load ptr, ptr %p
  store ptr %value, ptr %p
  %down = load ptr, ptr $Py_DecRef
  call void %down(ptr %old)
  ret void
}

; Give the empty slot of a new object a value of which there are other references.
define internal void @tape.init(ptr %object, ptr %at, ptr %value) {
  %up = load ptr, ptr $Py_IncRef
  call void %up(ptr %value)
  %offset = load i64, ptr %at
  %p = getelementptr i8, ptr %object, i64 %offset
  store ptr %value, ptr %p
  ret void
}

; The plain list in a slot, null if it is none.
define internal ptr @tape.list(ptr %object, ptr %at) nounwind {
entry:
  %held = call ptr @tape.get(ptr %object, ptr %at)
  %some = icmp ne ptr %held, null
  br i1 %some, label %typed, label %none
typed:
  %plain = call i1 @tape.is(ptr %held, ptr $list_type)
  %r = select i1 %plain, ptr %held, ptr null
  ret ptr %r
none:
  ret ptr null
}

; Call a Python method.
define internal ptr @tape.python(ptr %method, ptr %self, ptr %args, i64 %nargs) {
entry:
  %count = add i64 %nargs, 1
  %all = alloca ptr, i64 %count
  store ptr %self, ptr %all
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i1, %one ]
  %more = icmp slt i64 %i, %nargs
  br i1 %more, label %one, label %go
one:
  %p = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %p
  %i1 = add i64 %i, 1
  %q = getelementptr ptr, ptr %all, i64 %i1
  store ptr %a, ptr %q
  br label %each
go:
  %function = load ptr, ptr %method
  %vector = load ptr, ptr $PyObject_Vectorcall
  %r = call ptr %vector(ptr %function, ptr %all, i64 %count, ptr null)
  ret ptr %r
}

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
  call void @tape.init(ptr %made, ptr $at__s, ptr %self)
  call void @tape.init(ptr %made, ptr $at__n, ptr %minus)
  call void @tape.init(ptr %made, ptr $at__m, ptr %meta)
  call void @tape.init(ptr %made, ptr $at__v, ptr %array)
  call void @tape.init(ptr %made, ptr $at__l, ptr %layout)
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
  %foreigners = call ptr @tape.get(ptr %self, ptr $at_foreigners)
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

; The tape's entry of an array proxy that is in memory, a borrowed reference, or null.
define internal ptr @tape.entry(ptr %proxy) {
entry:
  %value = call ptr @tape.get(ptr %proxy, ptr $at__v)
  %l = call ptr @tape.get(ptr %proxy, ptr $at__l)
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
  %ops = call ptr @tape.list(ptr %self, ptr $at_ops)
  %nodes = call ptr @tape.list(ptr %self, ptr $at_nodes)
  %leaves = call ptr @tape.list(ptr %self, ptr $at_leaves)
  %entered = call ptr @tape.list(ptr %self, ptr $at_entered)
  %hole = call ptr @tape.get(ptr %self, ptr $at_hole)
  %u0 = icmp ne ptr %ops, null
  %u1 = icmp ne ptr %nodes, null
  %u2 = icmp ne ptr %leaves, null
  %u3 = icmp ne ptr %entered, null
  %u4 = icmp ne ptr %hole, null
  %v0 = and i1 %u0, %array
  %v1 = and i1 %v0, %u1
  %v2 = and i1 %v1, %u2
  %v3 = and i1 %v2, %u3
  %usual = and i1 %v3, %u4
  br i1 %usual, label %look, label %python
look:
  %mark = call ptr @tape.entry(ptr %proxy)
  %known = icmp ne ptr %mark, null
  br i1 %known, label %go, label %python
go:
  %value = call ptr @tape.get(ptr %proxy, ptr $at__v)
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

; put(kind, entry, meta): append an operation; the proxy of its value
define ptr @jitla_put(ptr %self, ptr %args, i64 %nargs) {
entry:
  %three = icmp eq i64 %nargs, 3
  br i1 %three, label %typed, label %python
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
  %ops = call ptr @tape.list(ptr %self, ptr $at_ops)
  %nodes = call ptr @tape.list(ptr %self, ptr $at_nodes)
  %u0 = icmp ne ptr %ops, null
  %u1 = icmp ne ptr %nodes, null
  %both = and i1 %u0, %u1
  %usual = and i1 %both, %proxy
  br i1 %usual, label %go, label %python
go:
  %alloc = load ptr, ptr $PyType_GenericAlloc
  %made = call ptr %alloc(ptr %kind, i64 0)
  %able = icmp ne ptr %made, null
  br i1 %able, label %count, label %failed
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
  call void @tape.init(ptr %made, ptr $at__s, ptr %self)
  call void @tape.init(ptr %made, ptr $at__m, ptr %meta)
  call void @tape.init(ptr %made, ptr $at__v, ptr %none)
  %more = load ptr, ptr $PyList_Append
  %r0 = call i32 %more(ptr %ops, ptr %mark)
  %r1 = call i32 %more(ptr %nodes, ptr %made)
  %s = or i32 %r0, %r1
  %well = icmp eq i32 %s, 0
  br i1 %well, label %return, label %drop
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

; Whether two objects are equal: 1, 0, or -1 if Python raised. Entries are tuples of small numbers.
define internal i32 @tape.equal(ptr %a, ptr %b) {
entry:
  %identical = icmp eq ptr %a, %b
  br i1 %identical, label %yes, label %differ
differ:
  %ta = call i1 @tape.is(ptr %a, ptr $tuple_type)
  %tb = call i1 @tape.is(ptr %b, ptr $tuple_type)
  %tuples = and i1 %ta, %tb
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
  %rich = load ptr, ptr $PyObject_RichCompareBool
  %r = call i32 %rich(ptr %x, ptr %y, i32 2)
  %one = icmp eq i32 %r, 1
  br i1 %one, label %next, label %answer
next:
  %i1 = add i64 %i, 1
  br label %each
answer:
  ret i32 %r
compare:
  %whole = load ptr, ptr $PyObject_RichCompareBool
  %w = call i32 %whole(ptr %a, ptr %b, i32 2)
  ret i32 %w
yes:
  ret i32 1
no:
  ret i32 0
}

; repeats(entries, references): whether the tape, and what refers to its values, are like that
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
  %ops = call ptr @tape.list(ptr %self, ptr $at_ops)
  %nodes = call ptr @tape.list(ptr %self, ptr $at_nodes)
  %u0 = icmp ne ptr %ops, null
  %u1 = icmp ne ptr %nodes, null
  %v0 = and i1 %t0, %t1
  %v1 = and i1 %v0, %u0
  %usual = and i1 %v1, %u1
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
  %r = call i32 @tape.equal(ptr %x, ptr %y)
  %same = icmp eq i32 %r, 1
  br i1 %same, label %next, label %differ
next:
  %i1 = add i64 %i, 1
  br label %each
differ:
  %raised = icmp slt i32 %r, 0
  br i1 %raised, label %failed, label %no
yes:
  %true = load ptr, ptr $true
  %t = call ptr @known.given(ptr %true)
  ret ptr %t
no:
  %false = load ptr, ptr $false
  %f = call ptr @known.given(ptr %false)
  ret ptr %f
failed:
  ret ptr null
python:
  %p = call ptr @tape.python(ptr $py_repeats, ptr %self, ptr %args, i64 %nargs)
  ret ptr %p
}
"""


def tape_ir(names: dict[str, str]) -> str:
    """IR of the methods, and of their empty table `jitla_tape`; `known_ir` is needed beside it."""
    fields = {name: f"getelementptr (i64, ptr @jitla_tape, i64 {i})" for i, name in enumerate(FIELDS)}
    table = f"@jitla_tape = global [{len(FIELDS)} x i64] zeroinitializer, align 64\n"
    return table + Template(_TAPE).substitute(names | fields, type_at=HEADER - 8)
