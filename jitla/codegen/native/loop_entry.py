"""Native entry of loop programs, as LLVM text: operands from Python's objects, results as objects.

`jitla_loop_enter` is the function of builtins whose object is a tuple; the first item of that is an array,
the table (`jitla.runtime.entry_table`) of one program. It compares the arguments with the table, writes them
to a state on the stack, runs the program and returns its results. If anything is not as the table expects,
or iterations had to be undone, it calls the fallback of the table with the same arguments.

The text has short forms: ``word P, K`` is the K-th word at P, ``field T P, K`` the T at K bytes from P,
``put T V, P, K`` stores to the K-th word, ``host T F(...)`` calls a function of Python or the C library, and
``object X`` is an object of the process.
"""

from __future__ import annotations

import ctypes
import re
import sys
import sysconfig
from itertools import count
from string import Template
from typing import Any

import numpy as np

from jitla.codegen.jit import Jit
from jitla.codegen.native.loop_operands import READ_OPERANDS, TEST_GUARDS
from jitla.codegen.native.loop_results import MAKE_RESULTS, ROLL_BACK, SAVE_ARRAYS
from jitla.codegen.native.symbols import HEADER, numpy_function
from jitla.codegen.passes import PIPELINE
from jitla.codegen.target import PART
from jitla.errors import BackendError
from jitla.runtime.entry_table import ENTRY_TABLE_NAMES, MAX_ENTRY_ARRAYS, OBJECT_TAG

__all__ = ["loop_entry_ir", "load_loop_entry"]

SYMBOL, HOST = "jitla_loop_enter", "jitla_loop_host"
MAX_FAILURES = 16  # runs undone, from which a program that fails often is not entered any more

_PYTHON = (
    "PyObject_Vectorcall", "PyDict_GetItemWithError", "PyErr_Clear", "PyFunction_GetCode",
    "PyFunction_GetDefaults", "PyFunction_GetKwDefaults", "PyCell_Get", "PyContextVar_Get",
    "PyCapsule_GetPointer", "PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromSsize_t",
    "PyFloat_FromDouble", "PyComplex_FromDoubles", "PyTuple_New", "PyTuple_SetItem",
    "PyBytes_FromStringAndSize", "Py_IncRef", "Py_DecRef", "PyList_Size", "PyList_GetItem")
_LIBC = ("malloc", "free", "clock_gettime")
_OBJECTS: dict[str, Any] = {
    "none": None, "true": True, "false": False, "ndarray": np.ndarray, "int": int, "int64": np.int64,
    "bool": bool, "gettrace": sys.gettrace}
_NAMES = (*_PYTHON, *_LIBC, *_OBJECTS, "PyArray_Scalar", "error_modes", "capsule_name")
_PY_ARRAY_SCALAR = 60  # of NumPy's table of C functions

_ENTER = """
define internal i64 @entry.now() {
entry:
  %time = alloca [2 x i64]
  %status = host i32 clock_gettime(i32 1, ptr %time)
  %s = load i64, ptr %time
  %ns = word %time, 1
  %scaled = mul i64 %s, 1000000000
  %all = add i64 %scaled, %ns
  ret i64 %all
}
; Return the predicted nanoseconds of %iterations, from the mean of earlier runs.
define internal double @entry.predicted(ptr %t, i64 %iterations) nounwind {
  %done = word %t, $H_PACE_ITERATIONS
  %ns = word %t, $H_PACE_NANOSECONDS
  %df = sitofp i64 %done to double
  %nf = sitofp i64 %ns to double
  %i = sitofp i64 %iterations to double
  %product = fmul double %i, %nf
  %r = fdiv double %product, %df
  ret double %r
}
define internal void @entry.add(ptr %t, i64 %k, i64 %more) nounwind {
  %before = word %t, %k
  %after = add i64 %before, %more
  put i64 %after, %t, %k
  ret void
}
; Give memory for temporary arrays back.
define internal void @entry.release(ptr %t, i64 %arena) nounwind {
  %some = icmp ne i64 %arena, 0
  br i1 %some, label %give, label %out
give:
  %p = getelementptr i64, ptr %t, i64 $H_ARENA
  store atomic i64 %arena, ptr %p release, align 8
  br label %out
out:
  ret void
}
define ptr @$symbol(ptr %self, ptr %args, i64 %nargs) {
entry:
  %frame = alloca [$frame_words x i64], align 16
  %argument = alloca ptr
  %table.object = field ptr %self, $tuple_items_at
  %t = field ptr %table.object, $header
  %n = word %t, $H_ARGUMENTS
  %complete = icmp eq i64 %n, %nargs
  %disabled = word %t, $H_DISABLED
  %enabled = icmp eq i64 %disabled, 0
  %runs = word %t, $H_RUNS
  %judge = word %t, $H_JUDGE_AT
  %unjudged = icmp ne i64 %runs, %judge
  %fine0 = and i1 %complete, %enabled
  %fine = and i1 %fine0, %unjudged
  br i1 %fine, label %read, label %decline
read:
  %words = word %t, $H_STATE_WORDS
  %state = alloca i64, i64 %words, align 16
  %bytes = shl i64 %words, 3
  call void @llvm.memset.p0.i64(ptr align 16 %state, i8 0, i64 %bytes, i1 false)
  put i64 4611686018427387904, %frame, 0
  put i64 0, %frame, 1
  put i64 0, %frame, 2
  put ptr %args, %frame, 8
  %suits = call i1 @entry.read(ptr %t, ptr %args, ptr %state, ptr %frame)
  br i1 %suits, label %layout, label %decline
layout:
  %apart = call i1 @entry.overlaps(ptr %t, ptr %frame)
  br i1 %apart, label %trace, label %decline
trace:
  %traced = call i1 @entry.traced()
  br i1 %traced, label %decline, label %guard
guard:
  %current = call i1 @entry.guards(ptr %t)
  br i1 %current, label %flags, label %decline
flags:
  %raises = word %t, $H_RAISES
  %checked = icmp ne i64 %raises, 0
  br i1 %checked, label %modes, label %size
modes:
  %read.modes = call i32 @entry.modes()
  %under = and i32 %read.modes, 448
  %ignored = icmp eq i32 %under, 0
  br i1 %ignored, label %size, label %decline
size:
  %mode = phi i32 [ 0, %flags ], [ %read.modes, %modes ]
  %length = word %frame, 0
  %empty = icmp eq i64 %length, 0
  br i1 %empty, label %nothing, label %pace
nothing:
  %no = word %t, $H_NOTHING
  %pno = inttoptr i64 %no to ptr
  %nor = call ptr @entry.new(ptr %pno)
  ret ptr %nor
pace:
  %endless = word %t, $H_ENDLESS
  %while = icmp ne i64 %endless, 0
  %limit = select i1 %while, i64 %endless, i64 %length
  %known = word %t, $H_PACE_ITERATIONS
  %runs1 = add i64 %runs, 1
  %average = udiv i64 %known, %runs1
  %likely = select i1 %while, i64 %average, i64 %length
  %predicted = call double @entry.predicted(ptr %t, i64 %likely)
  %most = word %t, $H_MAX_NANOSECONDS
  %mostf = sitofp i64 %most to double
  %long = fcmp ogt double %predicted, %mostf
  %for = xor i1 %while, true
  %parts = and i1 %long, %for
  br i1 %parts, label %decline, label %save
save:
  %written = call i64 @entry.written(ptr %t, ptr %frame)
  %maxsaved = word %t, $H_MAX_SAVED_BYTES
  %large = icmp ugt i64 %written, %maxsaved
  br i1 %large, label %decline, label %save.some
save.some:
  %any = icmp ne i64 %written, 0
  br i1 %any, label %save.buffer, label %arena
save.buffer:
  %allocated = host ptr malloc(i64 %written)
  %unallocated = icmp eq ptr %allocated, null
  br i1 %unallocated, label %decline, label %save.copy
save.copy:
  call void @entry.copy(ptr %t, ptr %frame, ptr %allocated)
  br label %arena
arena:
  %buffer = phi ptr [ null, %save.some ], [ %allocated, %save.copy ]
  %arenabytes = word %t, $H_ARENA_BYTES
  %allocates = icmp ne i64 %arenabytes, 0
  br i1 %allocates, label %take, label %run
take:
  %parena = getelementptr i64, ptr %t, i64 $H_ARENA
  %free = atomicrmw xchg ptr %parena, i64 0 seq_cst, align 8
  %busy = icmp eq i64 %free, 0
  br i1 %busy, label %discard, label %place
place:
  %arenaword = word %t, $H_ARENA_WORD
  put i64 %free, %state, %arenaword
  %arenaend = add i64 %free, %arenabytes
  %arenaword1 = add i64 %arenaword, 1
  put i64 %arenaend, %state, %arenaword1
  br label %run
run:
  %memory = phi i64 [ 0, %arena ], [ %free, %place ]
  %beginword = word %t, $H_BEGIN_WORD
  %limitword = word %t, $H_LIMIT_WORD
  put i64 0, %state, %beginword
  put i64 %limit, %state, %limitword
  %address = word %t, $H_PROGRAM
  %program = inttoptr i64 %address to ptr
  %hold = word %t, $H_HOLD_NANOSECONDS
  %holdf = sitofp i64 %hold to double
  %short = fcmp olt double %predicted, %holdf
  %total = word %frame, 1
  %holdbytes = word %t, $H_HOLD_BYTES
  %light = icmp sle i64 %total, %holdbytes
  %keep = and i1 %short, %light
  %start = call i64 @entry.now()
  br i1 %keep, label %held, label %unlocked
held:
  %w1 = call i64 %program(ptr %state)
  %end1 = call i64 @entry.now()
  br label %ran
unlocked:
  %thread = host ptr PyEval_SaveThread()
  %w2 = call i64 %program(ptr %state)
  %end2 = call i64 @entry.now()
  host void PyEval_RestoreThread(ptr %thread)
  br label %ran
ran:
  %w = phi i64 [ %w1, %held ], [ %w2, %unlocked ]
  %end = phi i64 [ %end1, %held ], [ %end2, %unlocked ]
  %exit = and i64 %w, 4294967295
  %flag = lshr i64 %w, 32
  %exits = word %t, $H_EXIT_COUNT
  %valid = icmp ult i64 %exit, %exits
  br i1 %valid, label %exit.code, label %undo
exit.code:
  %exitoffset = word %t, $H_EXITS
  %exitat = add i64 %exitoffset, %exit
  %code = word %t, %exitat
  %undone = icmp eq i64 %code, $UNDO
  %reported = call i1 @entry.reported(i64 %flag, i32 %mode)
  %bad = or i1 %undone, %reported
  br i1 %bad, label %undo, label %count
count:
  %positionword = word %t, $H_POSITION_WORD
  %full = icmp eq i64 %exit, 0
  %left = word %state, %positionword
  %position = select i1 %full, i64 %limit, i64 %left
  %ns = sub i64 %end, %start
  call void @entry.add(ptr %t, i64 $H_RUNS, i64 1)
  call void @entry.add(ptr %t, i64 $H_ITERATIONS, i64 %position)
  call void @entry.add(ptr %t, i64 $H_NANOSECONDS, i64 %ns)
  call void @entry.add(ptr %t, i64 $H_PACE_ITERATIONS, i64 %position)
  call void @entry.add(ptr %t, i64 $H_PACE_NANOSECONDS, i64 %ns)
  %results = call ptr @entry.results(ptr %t, i64 %code, ptr %state, ptr %frame)
  call void @entry.release(ptr %t, i64 %memory)
  host void free(ptr %buffer)
  %none = icmp eq ptr %results, null
  br i1 %none, label %error, label %finish
finish:
  %rest = and i1 %full, %while
  br i1 %rest, label %resume, label %finished
resume:
  %number = host ptr PyLong_FromSsize_t(i64 %position)
  store ptr %number, ptr %argument
  %nonumber = icmp eq ptr %number, null
  br i1 %nonumber, label %drop, label %resume.call
resume.call:
  %presume = word %t, $H_RESUME
  %resume.function = inttoptr i64 %presume to ptr
  %resumed = host ptr PyObject_Vectorcall(ptr %resume.function, ptr %argument, i64 1, ptr null)
  host void Py_DecRef(ptr %number)
  %notresumed = icmp eq ptr %resumed, null
  br i1 %notresumed, label %drop, label %both
finished:
  %pfinished = word %t, $H_FINISHED
  %finished.run = inttoptr i64 %pfinished to ptr
  %new.run = call ptr @entry.new(ptr %finished.run)
  br label %both
both:
  %next = phi ptr [ %resumed, %resume.call ], [ %new.run, %finished ]
  %pair = call ptr @entry.pair(ptr %results, ptr %next)
  ret ptr %pair
drop:
  host void Py_DecRef(ptr %results)
  ret ptr null
error:
  ret ptr null
undo:
  call void @entry.release(ptr %t, i64 %memory)
  br i1 %any, label %undo.arrays, label %undone.all
undo.arrays:
  %restored = call i1 @entry.rollback(ptr %t, ptr %buffer, i64 %written, i64 %limit, ptr %args, i64 %nargs)
  br i1 %restored, label %undone.all, label %undo.error
undo.error:
  host void free(ptr %buffer)
  ret ptr null
undone.all:
  call void @entry.add(ptr %t, i64 $H_FAILURES, i64 1)
  %failures = word %t, $H_FAILURES
  %often = icmp ugt i64 %failures, $max_failures
  %four = shl i64 %failures, 2
  %mostly = icmp ugt i64 %four, %runs
  %useless = and i1 %often, %mostly
  br i1 %useless, label %disable, label %discard
disable:
  put i64 1, %t, $H_DISABLED
  br label %discard
discard:
  host void free(ptr %buffer)
  br label %decline
decline:
  %pfallback = word %t, $H_FALLBACK
  %fallback = inttoptr i64 %pfallback to ptr
  %answer = host ptr PyObject_Vectorcall(ptr %fallback, ptr %args, i64 %nargs, ptr null)
  ret ptr %answer
}
declare i64 @llvm.abs.i64(i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

_INT_SIZE = {
    # The number of digits has the sign of the number.
    False: """%size = field i64 %o, $header
  %negative = icmp slt i64 %size, 0
  %digits = call i64 @llvm.abs.i64(i64 %size, i1 false)""",
    # From Python 3.12 on: the number of digits above three bits, of which two are 2 for negative numbers.
    True: """%tag = field i64 %o, $header
  %digits = lshr i64 %tag, 3
  %bits = and i64 %tag, 3
  %negative = icmp eq i64 %bits, 2""",
}
_HAS_INT_TAG = sys.version_info >= (3, 12)
_LEVEL = 0  # of LLVM's code generation: a third of the time of 1, and code as fast
_FRAME_WORDS = 24 + 8 * MAX_ENTRY_ARRAYS

_SHORT = re.compile(
    r"^  (?:(?P<result>%[\w.]+) = )?(?P<form>word|field|put|host|object) (?P<rest>.*)$", re.MULTILINE)


def _spelt_out(text: str) -> str:
    """Return IR with the short forms in it written out."""
    numbers = count()

    def slot(name: str, result: str) -> str:
        offset = 8 * _NAMES.index(name)
        return f"  {result} = load ptr, ptr getelementptr (i8, ptr @{HOST}, i64 {offset})"

    def full(line: re.Match[str]) -> str:
        result, rest, n = line["result"], line["rest"], next(numbers)
        match line["form"]:
            case "word":
                pointer, number = rest.split(", ")
                return (f"  %w.{n} = getelementptr i64, ptr {pointer}, i64 {number}\n"
                        f"  {result} = load i64, ptr %w.{n}")
            case "field":
                kind, pointer, offset = rest.replace(",", "").split()
                return (f"  %f.{n} = getelementptr i8, ptr {pointer}, i64 {offset}\n"
                        f"  {result} = load {kind}, ptr %f.{n}")
            case "put":
                value, pointer, number = rest.split(", ")
                return (f"  %p.{n} = getelementptr i64, ptr {pointer}, i64 {number}\n"
                        f"  store {value}, ptr %p.{n}")
            case "object":
                return slot(rest, result)
        kind, name, args = rest.removesuffix(")").replace("(", " ", 1).split(" ", 2)
        assigned = f"{result} = " if result else ""
        return f"{slot(name, f'%h.{n}')}\n  {assigned}call {kind} %h.{n}({args})"

    return _SHORT.sub(full, text)


def loop_entry_ir(prefix: str = "") -> str:
    """Return the module; `prefix` is put before its functions (the target)."""
    values: dict[str, object] = {
        **ENTRY_TABLE_NAMES, "header": HEADER, "type_at": HEADER - 8, "digits_at": HEADER + 8,
        "digit1_at": HEADER + 12, "digit2_at": HEADER + 16, "nd_at": HEADER + 8,
        "dims_at": HEADER + 16,
        "strides_at": HEADER + 24, "descr_at": HEADER + 40, "flags_at": HEADER + 48,
        "tuple_items_at": _tuple_items_offset(), "list_items_at": HEADER + 8, "object_tag": OBJECT_TAG,
        "frame_words": _FRAME_WORDS, "symbol": SYMBOL, "max_failures": MAX_FAILURES}
    text = (READ_OPERANDS + TEST_GUARDS + SAVE_ARRAYS + ROLL_BACK + MAKE_RESULTS + _ENTER).replace(
        "$int_size", _INT_SIZE[_HAS_INT_TAG])
    head = f"@{HOST} = global [{len(_NAMES)} x ptr] zeroinitializer, align 64\n"
    return PART.format(_LEVEL) + PIPELINE + prefix + head + _spelt_out(Template(text).substitute(values))


# --------------------------------------------------------------------------- loading


_loaded: list[int] = []  # the address in this process


def load_loop_entry(jit: Jit) -> int:
    """Return the address of the native entry, which is loaded once a process."""
    if not _loaded:
        _require_layouts()
        prefix = f'target triple = "{jit.target.triple}"\n'
        library = jit.load(lambda: loop_entry_ir(prefix), (SYMBOL, HOST), ("loop entry", prefix))
        for owner in (jit, library):  # the code stays for the rest of the process
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
        words = (ctypes.c_uint64 * len(_NAMES)).from_address(library.addresses[HOST])
        words[:] = [address or 0 for address in _host_addresses()]
        _loaded.append(library.addresses[SYMBOL])
    return _loaded[0]


def _host_addresses() -> list[int | None]:
    """Return what the code calls and compares with, in the order of `_NAMES`."""
    libc = ctypes.CDLL(None)
    found: dict[str, int | None] = {
        name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in _PYTHON}
    found |= {name: ctypes.cast(getattr(libc, name), ctypes.c_void_p).value for name in _LIBC}
    found |= {name: id(thing) for name, thing in _OBJECTS.items()}
    found["PyArray_Scalar"] = numpy_function(_PY_ARRAY_SCALAR)
    found["error_modes"] = id(_error_modes_variable())
    found["capsule_name"] = ctypes.cast(_CAPSULE_NAME, ctypes.c_void_p).value
    return [found[name] for name in _NAMES]


_CAPSULE_NAME = ctypes.c_char_p(b"numpy.ufunc.extobj")


def _error_modes_variable() -> Any:
    """Return the context variable that holds how NumPy treats floating-point errors."""
    return sys.modules["numpy._core.umath"]._extobj_contextvar


def _word(thing: Any, offset: int, kind: Any = ctypes.c_int64) -> int:
    """Return a number in the memory of an object."""
    return int(kind.from_address(id(thing) + offset).value or 0)


def _tuple_items_offset() -> int:
    """Return where a tuple has its items: Python 3.14 has a hash before them."""
    first, second = object(), object()
    pair = first, second
    for offset in range(HEADER, HEADER + 32, 8):
        if (_word(pair, offset), _word(pair, offset + 8)) == (id(first), id(second)):
            return offset
    raise BackendError("the items of a tuple are at an unknown place")


def _require_layouts() -> None:
    """Raise `BackendError` unless objects of Python and NumPy are laid out as the text expects."""
    if sys.implementation.name != "cpython" or sys.platform != "linux" or sys.byteorder != "little" \
            or ctypes.sizeof(ctypes.c_void_p) != 8 or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BackendError("native entry of loops is for CPython with an interpreter lock, of 64 bits")
    numbers = [0, 1, -1, 2**30 - 1, -2**30, 2**31, 2**60 + 3, -2**62 + 1, 2**62, 2**90]
    array = np.zeros((3, 4), np.int16)[1:, ::2]
    items = [None, True]
    views = (_word(array, HEADER), _word(array, HEADER + 8, ctypes.c_int32), _word(array, HEADER + 40),
             _word(array, HEADER + 48, ctypes.c_int32) & 0x503)
    shape = (ctypes.c_int64 * 2).from_address(_word(array, HEADER + 16))
    strides = (ctypes.c_int64 * 2).from_address(_word(array, HEADER + 24))
    scalars = np.float64(1.5), 1.5, 1.5 + 2j, np.complex128(1.5 + 2j), np.float32(1.5), np.uint8(7)
    firsts = [bytes((ctypes.c_char * np.asarray(x).itemsize).from_address(id(x) + HEADER)) for x in scalars]
    kept = _word(items, HEADER), (ctypes.c_int64 * 2).from_address(_word(items, HEADER + 8))[:]
    holds = (
        [_int_of_memory(x) for x in numbers] == [x if abs(x) < 2**62 else None for x in numbers]
        and sys.int_info.bits_per_digit == 30
        and views == (array.ctypes.data, 2, id(array.dtype), 0x500)
        and (*shape, *strides) == (*array.shape, *array.strides)
        and firsts == [np.asarray(x).tobytes() for x in scalars]
        and kept == (2, [id(None), id(True)]) and _error_modes() == (0, 2, 1, 3))
    if not holds:
        raise BackendError("objects of this Python or NumPy are not laid out as expected")


def _int_of_memory(value: int) -> int | None:
    """Return an int as the native code reads it; None if that refuses it."""
    size = _word(value, HEADER)
    count, negative = (size >> 3, size & 3 == 2) if _HAS_INT_TAG else (abs(size), size < 0)
    if count > 3:
        return None
    digits = [_word(value, HEADER + 8 + 4 * k, ctypes.c_uint32) for k in range(count)]
    found = sum(digit << 30 * k for k, digit in enumerate(digits))
    return None if found >> 62 else -found if negative else found


def _error_modes() -> tuple[int, ...]:
    """Return the modes that the native code reads for divide, over, under, invalid: a test of its words."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    with np.errstate(divide="ignore", over="raise", under="warn", invalid="call"):
        record = get(_error_modes_variable().get(), _CAPSULE_NAME.value)
        modes = ctypes.c_int32.from_address(record).value
    return tuple(modes >> shift & 7 for shift in (0, 3, 6, 9))
