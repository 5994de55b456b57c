"""Native methods of a session's tape and of its boundary, as LLVM text."""

from __future__ import annotations

import re
from itertools import count
from string import Template

from jitla.codegen.native.symbols import HEADER, text_ir

__all__ = [
    "DETACHING", "FIELDS", "METHODS", "REPEATS", "SLOTS", "TAKING", "array_map_ir", "spelt_out", "tape_ir",
]


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


def array_map_ir(names: dict[str, str]) -> str:
    """IR of `find`, `remember` and `forget`."""
    return text_ir("known", "find(array), remember(array, object), forget()") + Template(_KNOWN).substitute(
        names, type_at=HEADER - 8, nd_at=HEADER + 8, dims_at=HEADER + 16, strides_at=HEADER + 24,
        base_at=HEADER + 32, descr_at=HEADER + 40, flags_at=HEADER + 48)


#: The methods, and the Python method that `arguments` calls for arrays it does not know.
METHODS = ("arguments", "detach", "enter", "leave", "put", "repeats")
_PYTHON = (*METHODS, "argument")
_OBJECTS = ("array", "scalar", "layouts", "minus")
_NUMBERS = ("entry", "min_release_count", "list_references")
#: Slots of proxies, tapes, and boundaries.
_PLACES = ("_s", "_n", "_m", "_v", "_l", "_r", "owner", "ops", "nodes", "leaves", "scalars", "entered",
           "hole", "lines", "immediate", "views", "past", "positions", "tables", "extremes", "running",
           "session", "foreigners", "release_count")

#: What the table says, in the order of its entries: Python's methods (`py_`), the types of proxies and
#: other objects, numbers, and where the slots are (`at_`).
FIELDS = (*(f"py_{name}" for name in _PYTHON), *_OBJECTS, *_NUMBERS, *(f"at_{name}" for name in _PLACES))

SLOTS = """
define internal i1 @tape.is(ptr %object, ptr %known) nounwind {
  %ptype = getelementptr i8, ptr %object, i64 $type_at
  %type = load ptr, ptr %ptype
  %want = load ptr, ptr %known
  %same = icmp eq ptr %type, %want
  ret i1 %same
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

"""

_SHORT = {
    # What a slot holds, a borrowed reference, or null.
    "slot": """  %p.{n} = load i64, ptr ${2}
  %q.{n} = getelementptr i8, ptr {1}, i64 %p.{n}
  {0} = load ptr, ptr %q.{n}""",
    # The list in a slot; `.plain` says whether it is one, and no more than that.
    "list": """  %p.{n} = load i64, ptr ${2}
  %q.{n} = getelementptr i8, ptr {1}, i64 %p.{n}
  {0} = load ptr, ptr %q.{n}
  %z.{n} = icmp eq ptr {0}, null
  %s.{n} = select i1 %z.{n}, ptr {1}, ptr {0}
  %a.{n} = getelementptr i8, ptr %s.{n}, i64 $type_at
  %t.{n} = load ptr, ptr %a.{n}
  %w.{n} = load ptr, ptr $list_type
  {0}.plain = icmp eq ptr %t.{n}, %w.{n}""",
    # Give an empty slot a value of which there are other references.
    "give": """  %u.{n} = load ptr, ptr $Py_IncRef
  call void %u.{n}(ptr {3})
  %p.{n} = load i64, ptr ${2}
  %q.{n} = getelementptr i8, ptr {1}, i64 %p.{n}
  store ptr {3}, ptr %q.{n}""",
}
_LINE = re.compile(r"^  (?:(%[\w.]+) = )?(slot|list|give) (%[\w.]+), (\w+)(?:, (%[\w.]+))?$", re.MULTILINE)


def spelt_out(text: str) -> str:
    """Return IR with the short forms in it written out: a call each would cost as much as the work."""
    number = count()

    def full(line: re.Match[str]) -> str:
        result, name, *rest = line.groups()
        return _SHORT[name].format(result, *rest, n=next(number))

    return _LINE.sub(full, text)


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
  %session = slot %self, at_session
  give %made, at__s, %session
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
  %usual = load i64, ptr $min_release_count
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
  call void @tape.set(ptr %self, ptr $at_release_count, ptr %crowd)
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
  %session = slot %self, at_session
  %begun = icmp ne ptr %foreigners, null
  %owned = icmp ne ptr %session, null
  %complete = and i1 %begun, %owned
  %usual = and i1 %plain, %complete
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
  %held = load i64, ptr $list_references
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
  %attentive = slot %self, at_immediate
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
  %triple = icmp eq i64 %nargs, 3
  %four = icmp eq i64 %nargs, 4
  %known = or i1 %triple, %four
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
  %owner = slot %self, at_owner
  %owned = icmp ne ptr %owner, null
  %two = and i1 %ops0.plain, %nodes0.plain
  %three = and i1 %two, %scalars0.plain
  %both = and i1 %three, %owned
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
  give %made, at__s, %owner
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
    """IR of the methods, and of their empty table `jitla_tape`; `array_map_ir` is needed beside it."""
    fields = {name: f"getelementptr (i64, ptr @jitla_tape, i64 {i})" for i, name in enumerate(FIELDS)}
    table = f"@jitla_tape = global [{len(FIELDS)} x i64] zeroinitializer, align 64\n"
    text = Template(SLOTS + spelt_out(TAKING + _TAPE + DETACHING + REPEATS))
    return table + text.substitute(names | fields, type_at=HEADER - 8)
