"""Compiles and loads the native run time, once a process: launcher, thread pool, allocator, tape methods.

The text of the launcher, which runs kernels, is here; the other parts have a file each, for their size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from string import Template
from typing import Any, Protocol

from jitla.codegen.native.memory import COUNTERS, LARGE, empty_ir, memory_ir
from jitla.codegen.native.pool import MAX_WORKERS, PARALLEL, SETTINGS, pool_ir
from jitla.codegen.native.symbols import HEADER, fill_table, references, table_ir, text_ir
from jitla.codegen.native.tape import FIELDS, METHODS, array_map_ir, tape_ir
from jitla.hops import ALL_FLAGS
from jitla.runtime import install_native, native_launch

__all__ = ["SYMBOLS", "launch_ir", "load_native", "native_ir"]


# --------------------------------------------------------------------------- launch entry


_MESSAGES = {
    "template": "launch: the template is not a bytes object that describes a block",
    "operands": "launch: the number of operands is not the template's",
    "operand": "launch: an operand is not the base-class ndarray or scalar of the template",
}

_LAUNCH = """
@jitla_starter = global ptr null, align 8
; launch(template, *operands)
define ptr @jitla_launch(ptr %self, ptr %args, i64 %nargs) {
entry:
  %frame = alloca [512 x i64], align 64
  %room = alloca [4096 x i8], align 64
  %some = icmp sgt i64 %nargs, 0
  br i1 %some, label %typed, label %template
typed:
  %t = load ptr, ptr %args
  %type = call ptr @object.type(ptr %t)
  %bytes = load ptr, ptr $bytes_type
  %isbytes = icmp eq ptr %type, %bytes
  br i1 %isbytes, label %sized, label %template
sized:
  %psize = getelementptr i8, ptr %t, i64 $header
  %size = load i64, ptr %psize
  %data = getelementptr i8, ptr %t, i64 $bytes_at
  %long = icmp sge i64 %size, 64
  br i1 %long, label %counted, label %template
counted:
  %pwords = getelementptr i64, ptr %data, i64 1
  %words = load i64, ptr %pwords
  %length = shl i64 %words, 3
  %whole = icmp eq i64 %length, %size
  %pn = getelementptr i64, ptr %data, i64 7
  %n0 = load i64, ptr %pn
  %n = and i64 %n0, 4294967295
  %n2 = shl i64 %n, 1
  %need = add i64 %n2, 8
  %fits = icmp sle i64 %need, %words
  %fine = and i1 %whole, %fits
  br i1 %fine, label %agree, label %template
agree:
  %given = sub i64 %nargs, 1
  %right = icmp eq i64 %given, %n
  br i1 %right, label %where, label %operands
where:
  %inside = icmp sle i64 %words, 512
  br i1 %inside, label %stack, label %heap
stack:
  br label %copy
heap:
  %fm = load ptr, ptr $malloc
  %far = call ptr %fm(i64 %size)
  %full = icmp eq ptr %far, null
  br i1 %full, label %memory, label %copy
copy:
  %block = phi ptr [ %frame, %stack ], [ %far, %heap ]
  %fc = load ptr, ptr $memcpy
  call ptr %fc(ptr %block, ptr %data, i64 %size)
  %values = getelementptr i64, ptr %block, i64 8
  %kinds = getelementptr i64, ptr %values, i64 %n
  %ndarray = load ptr, ptr $ndarray
  br label %fill
fill:
  %i = phi i64 [ 0, %copy ], [ %i1, %put ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %scratch
one:
  %i1 = add i64 %i, 1
  %parg = getelementptr ptr, ptr %args, i64 %i1
  %o = load ptr, ptr %parg
  %otype = call ptr @object.type(ptr %o)
  %isarray = icmp eq ptr %otype, %ndarray
  %pkind = getelementptr i64, ptr %kinds, i64 %i
  %kind = load i64, ptr %pkind
  %wantsarray = icmp eq i64 %kind, 0
  %suits = icmp eq i1 %isarray, %wantsarray
  br i1 %suits, label %deep, label %operand
deep:
  ; a scalar's value follows its header: refuse objects that end there. Of kind 2 the kernel wants
  ; the address, as of values larger than a word.
  %pbasic = getelementptr i8, ptr %otype, i64 $basicsize_at
  %basic = load i64, ptr %pbasic
  %holds = icmp sgt i64 %basic, $header
  br i1 %holds, label %put, label %operand
put:
  %pvalue = getelementptr i8, ptr %o, i64 $header
  %value = load i64, ptr %pvalue
  %aside = icmp eq i64 %kind, 2
  %address = ptrtoint ptr %pvalue to i64
  %word = select i1 %aside, i64 %address, i64 %value
  %pto = getelementptr i64, ptr %values, i64 %i
  store i64 %word, ptr %pto
  br label %fill
scratch:
  %pbytes = getelementptr i64, ptr %block, i64 5
  %nbytes = load i64, ptr %pbytes
  %big = icmp sgt i64 %nbytes, 4096
  br i1 %big, label %borrow, label %ready
borrow:
  %fb = load ptr, ptr $malloc
  %with = add i64 %nbytes, 64
  %raw = call ptr %fb(i64 %with)
  %broke = icmp eq ptr %raw, null
  br i1 %broke, label %nomemory, label %ready
ready:
  %owned = phi ptr [ null, %scratch ], [ %raw, %borrow ]
  %near = phi ptr [ %room, %scratch ], [ %raw, %borrow ]
  %a0 = ptrtoint ptr %near to i64
  %a1 = add i64 %a0, 63
  %a2 = and i64 %a1, -64
  %pscratch = getelementptr i64, ptr %block, i64 6
  store i64 %a2, ptr %pscratch
  %able = call i1 @launch.start(ptr %block)
  br i1 %able, label %go, label %finish
go:
  %flags = call i32 @launch.go(ptr %block)
  br label %finish
finish:
  %raised = phi i32 [ 0, %ready ], [ %flags, %go ]
  %lent = icmp ne ptr %owned, null
  br i1 %lent, label %return, label %swept
return:
  %ff = load ptr, ptr $free
  call void %ff(ptr %owned)
  br label %swept
swept:
  call void @launch.drop(ptr %block, ptr %frame)
  br i1 %able, label %succeed, label %interrupted
interrupted:
  ret ptr null
succeed:
  %fl = load ptr, ptr $PyLong_FromLong
  %wide = sext i32 %raised to i64
  %answer = call ptr %fl(i64 %wide)
  ret ptr %answer
template:
  call void @launch.error(ptr @text.template)
  ret ptr null
operands:
  call void @launch.error(ptr @text.operands)
  ret ptr null
operand:
  call void @launch.drop(ptr %block, ptr %frame)
  call void @launch.error(ptr @text.operand)
  ret ptr null
nomemory:
  call void @launch.drop(ptr %block, ptr %frame)
  br label %memory
memory:
  %fno = load ptr, ptr $PyErr_NoMemory
  call ptr %fno()
  ret ptr null
}
"""

_STEPS = """
define internal ptr @object.type(ptr %o) nounwind alwaysinline {
  %p = getelementptr i8, ptr %o, i64 $type_at
  %t = load ptr, ptr %p
  ret ptr %t
}
define internal void @launch.error(ptr %text) {
  %f = load ptr, ptr $PyErr_SetString
  %type = load ptr, ptr $TypeError
  call void %f(ptr %type, ptr %text)
  ret void
}
define internal void @launch.drop(ptr %block, ptr %frame) {
  %own = icmp ne ptr %block, %frame
  br i1 %own, label %free, label %out
free:
  %f = load ptr, ptr $free
  call void %f(ptr %block)
  br label %out
out:
  ret void
}
; Run the block, without the GIL if that is worth giving it up; the flags raised on all threads. The
; caller's own flags are put back: C code may look at them.
define internal i32 @launch.go(ptr %block) {
  %before = call i32 @float.get()
  %clean = and i32 %before, -64
  call void @float.set(i32 %clean)
  %worth = call i1 @launch.worth(ptr %block)
  br i1 %worth, label %free, label %held
held:
  call void @pool.run(ptr %block)
  br label %read
free:
  %fs = load ptr, ptr $PyEval_SaveThread
  %state = call ptr %fs()
  call void @pool.run(ptr %block)
  %freed = call i32 @float.get()
  %fr = load ptr, ptr $PyEval_RestoreThread
  call void %fr(ptr %state)
  br label %read
read:
  %early = phi i32 [ 0, %held ], [ %freed, %free ]
  %after = call i32 @float.get()
  call void @float.set(i32 %before)
  %all = or i32 %early, %after
  %raised = and i32 %all, $seen
  ret i32 %raised
}
define internal i1 @launch.worth(ptr %block) nounwind {
  %several = call i1 @launch.several(ptr %block)
  %pflags = getelementptr i64, ptr %block, i64 7
  %flags = load i64, ptr %pflags
  %bit = and i64 %flags, 4294967296
  %asked = icmp ne i64 %bit, 0
  %r = or i1 %several, %asked
  ret i1 %r
}
define internal i1 @launch.several(ptr %block) nounwind {
  %punits = getelementptr i64, ptr %block, i64 2
  %units = load i64, ptr %punits
  %pgrain = getelementptr i64, ptr %block, i64 3
  %grain = load i64, ptr %pgrain
  %r = icmp sgt i64 %units, %grain
  ret i1 %r
}
; Before the first shared job, and after the number of threads changed: call the starter. 0 if it
; was interrupted.
define internal i1 @launch.start(ptr %block) {
entry:
  %several = call i1 @launch.several(ptr %block)
  br i1 %several, label %compare, label %out
compare:
  %threads = load atomic i64, ptr @jitla_pool acquire, align 8
  %pready = getelementptr i64, ptr @jitla_pool, i64 1
  %ready = load atomic i64, ptr %pready acquire, align 8
  %set = icmp eq i64 %threads, %ready
  br i1 %set, label %out, label %first
first:
  %starter = load ptr, ptr @jitla_starter
  %without = icmp eq ptr %starter, null
  br i1 %without, label %out, label %race
race:
  %pstarting = getelementptr i64, ptr @jitla_pool, i64 2
  %swap = cmpxchg ptr %pstarting, i64 0, i64 1 seq_cst seq_cst, align 8
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %call, label %out
call:
  %f = load ptr, ptr $PyObject_CallNoArgs
  %r = call ptr %f(ptr %starter)
  store atomic i64 0, ptr %pstarting release, align 8
  %failed = icmp eq ptr %r, null
  br i1 %failed, label %interrupted, label %started
started:
  %fd = load ptr, ptr $Py_DecRef
  call void %fd(ptr %r)
  br label %out
out:
  ret i1 1
interrupted:
  ; an exit or a keyboard interrupt goes on; any other error means to run with the threads there are
  %fm = load ptr, ptr $PyErr_ExceptionMatches
  %base = load ptr, ptr $Exception
  %plain = call i32 %fm(ptr %base)
  %error = icmp ne i32 %plain, 0
  br i1 %error, label %alone, label %leave
alone:
  %fc = load ptr, ptr $PyErr_Clear
  call void %fc()
  store atomic i64 %ready, ptr @jitla_pool release, align 8
  ret i1 1
leave:
  ret i1 0
}
"""


def launch_ir(names: dict[str, str]) -> str:
    """IR of `jitla_launch`; `names` are references to host functions."""
    texts = "".join(text_ir(name, text) for name, text in _MESSAGES.items())
    return texts + Template(_LAUNCH + _STEPS).substitute(
        names, header=HEADER, seen=ALL_FLAGS, type_at=HEADER - 8, basicsize_at=HEADER + 16,
        bytes_at=bytes.__basicsize__ - 1)


# --------------------------------------------------------------------------- loader


#: What the loaded code defines.
SYMBOLS = (
    "jitla_host", "jitla_launch", "jitla_starter", "jitla_pool", "jitla_worker",
    "jitla_claim", "jitla_release", "jitla_rouse", "jitla_forked", "jitla_spin", "jitla_memory",
    "jitla_handler", "jitla_capsule", "jitla_capsule_name", "jitla_empty", "jitla_hold",
    "jitla_find", "jitla_remember", "jitla_forget", "jitla_drop", "jitla_trim", "jitla_malloc",
    "jitla_calloc", "jitla_realloc", "jitla_free", "jitla_tape", "jitla_share",
    *(f"jitla_{name}" for name in METHODS),
)


class _Loaded(Protocol):
    @property
    def addresses(self) -> Mapping[str, int]: ...


def native_ir() -> str:
    """IR of pool, memory handler, `empty` and launch entry; no address of this process is in it."""
    names = references()
    return (table_ir() + pool_ir(names) + memory_ir(names) + empty_ir(names, LARGE)
            + array_map_ir(names) + tape_ir(names) + launch_ir(names))


def load_native(
    load: Callable[[Callable[[], str], tuple[str, ...], tuple[Any, ...]], _Loaded], prefix: str = ""
) -> Callable[..., int]:
    """Load the run time with `load(text, symbols, words)`, connect it to this process; `launch`.

    `prefix` is put before the text (the module's target). Later calls give the same `launch`.
    """
    launch = native_launch()
    if launch is None:
        loaded = load(lambda: prefix + native_ir(), SYMBOLS, ("native", prefix))
        # arrays made by the handler call it until the very end of the process: the code, and the
        # loader that owns it, must never go
        for owner in (load, loaded):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
        fill_table(loaded.addresses["jitla_host"])
        launch = install_native(loaded.addresses, _layout())
    return launch


def _layout() -> dict[str, Any]:
    return {"settings": SETTINGS, "workers": MAX_WORKERS, "parallel": PARALLEL,
            "counters": COUNTERS, "methods": (METHODS, FIELDS)}
