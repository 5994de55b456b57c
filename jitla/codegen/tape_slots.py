"""Slots of Python objects, calls of Python methods, and the table that tells where things are, as IR.

Knows: CPython's slots and lists; the order of the table. Must not know: what is done with them.
Receives nothing; returns IR text with `$name` references to the process and to the table's fields.
"""

from __future__ import annotations

import re
from itertools import count

__all__ = ["FIELDS", "METHODS", "SLOTS", "spelt_out"]

#: The methods, and the Python method that `arguments` calls for arrays it does not know.
METHODS = ("arguments", "detach", "enter", "leave", "put", "repeats")
_PYTHON = (*METHODS, "argument")
_OBJECTS = ("array", "scalar", "layouts", "minus")
_NUMBERS = ("entry", "crowd", "held")
#: Slots of proxies, then of sessions.
_PLACES = ("_s", "_n", "_m", "_v", "_l", "_r", "ops", "nodes", "leaves", "scalars", "entered", "hole",
           "foreigners", "crowd", "lines", "attentive", "views", "past", "positions", "tables", "extremes",
           "running")

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
