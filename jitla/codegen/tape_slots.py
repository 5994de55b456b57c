"""Slots of Python objects, calls of Python methods, and the table that tells where things are, as IR.

Knows: CPython's slots and lists; the order of the table. Must not know: what is done with them.
Receives nothing; returns IR text with `$name` references to the process and to the table's fields.
"""

from __future__ import annotations

__all__ = ["FIELDS", "METHODS", "SLOTS"]

#: The methods, and the Python method that `arguments` calls for arrays it does not know.
METHODS = ("arguments", "enter", "put", "repeats")
_PYTHON = (*METHODS, "argument")
_OBJECTS = ("array", "scalar", "layouts", "minus")
_NUMBERS = ("entry", "crowd", "held")
#: Slots of proxies, then of sessions.
_PLACES = ("_s", "_n", "_m", "_v", "_l", "ops", "nodes", "leaves", "entered", "hole", "foreigners",
           "crowd")

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

"""
