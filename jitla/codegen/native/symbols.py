"""What native code calls in its process: the C library, Python, NumPy, and NumPy's own inner loops.

Kernels call NumPy's inner loops for what has to have NumPy's bits. `np.ufunc` objects hold the addresses of
their loops, in the part of their memory that NumPy's C interface makes public. Which loop that is was chosen
by NumPy for this processor, so nothing else has its bits everywhere. Machine code refers to a loop by the
name of a pair of words, the loop's address and its data argument; the address of the pair is supplied when
code is loaded, as it differs between processes.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

import numpy as np

from jitla.errors import BackendError

__all__ = [
    "HEADER", "LOOP_SYMBOLS", "fill_table", "fuses", "has_loop", "itemsize_offset", "loop_call_text",
    "loop_declaration", "loop_symbol", "loop_symbols_in",
    "numpy_function", "references", "table_ir", "text_ir", "usleep",
]


# --------------------------------------------------------------------------- table of symbols


#: Bytes of an object's header: reference count and type.
HEADER = object.__basicsize__

_LIBC = ("malloc", "calloc", "free", "memcpy", "memset", "madvise", "syscall", "sched_getcpu",
         "sched_getaffinity", "sched_setaffinity", "clock_gettime", "fetestexcept", "feclearexcept",
         "feraiseexcept")
_PYTHON = (
    "PyErr_SetString", "PyErr_Clear", "PyErr_ExceptionMatches", "PyErr_Occurred", "PyErr_NoMemory",
    "PyErr_Fetch", "PyErr_Restore", "PyEval_SaveThread", "PyEval_RestoreThread",
    "PyLong_FromLong", "PyObject_CallNoArgs", "PyNumber_AsSsize_t", "Py_IncRef", "Py_DecRef",
    "PyDict_SetDefault", "PyDict_Size", "PyList_Append", "PyList_GetItem", "PyList_New",
    "PyList_Size",
    "PyLong_AsSsize_t", "PyLong_FromSsize_t", "PyLong_FromVoidPtr", "PyObject_RichCompareBool",
    "PyObject_Vectorcall", "PyTuple_GetItem", "PyTuple_New", "PyTuple_SetItem", "PyTuple_Size",
    "PyType_GenericAlloc",
)
_OBJECTS = {
    "bytes_type": bytes, "tuple_type": tuple, "list_type": list, "none": None,
    "true": True, "false": False, "Exception": Exception, "TypeError": TypeError,
    "ValueError": ValueError, "OverflowError": OverflowError,
    "ndarray": np.ndarray, "dtype_meta": type(type(np.dtype("f8"))),
}
_NUMPY = {"PyArray_NewFromDescr": 94, "PyDataMem_SetHandler": 304}

#: Names in the order of the table's entries.
TABLE = (*_LIBC, *_PYTHON, *_OBJECTS, *_NUMPY)


def references() -> dict[str, str]:
    """IR constant expression of each table entry, by name.

    Addresses are read from a table, not linked by symbol: symbol names are global to the process
    (other users of llvmlite define `PyExc_*` differently), and the object stays cacheable.
    """
    return {name: f"getelementptr (ptr, ptr @jitla_host, i64 {i})" for i, name in enumerate(TABLE)}


def table_ir() -> str:
    """IR of the empty table."""
    return f"@jitla_host = global [{len(TABLE)} x ptr] zeroinitializer, align 64\n"


def text_ir(name: str, text: str) -> str:
    """IR of the constant C string `@text.<name>`."""
    return f'@text.{name} = internal constant [{len(text) + 1} x i8] c"{text}\\00"\n'


def fill_table(address: int) -> None:
    """Write the addresses of this process into the loaded code's table."""
    libc = ctypes.CDLL(None) if sys.platform != "win32" else ctypes.cdll.msvcrt
    found = {name: _function(libc, name) for name in _LIBC}
    if sys.platform != "linux":
        found["madvise"] = None  # its advice has other numbers there
    found |= {name: _function(ctypes.pythonapi, name) for name in _PYTHON}
    found |= {name: id(thing) for name, thing in _OBJECTS.items()}
    found |= {name: numpy_function(number) for name, number in _NUMPY.items()}
    (ctypes.c_void_p * len(TABLE)).from_address(address)[:] = [found[name] for name in TABLE]


@cache
def fuses() -> bool:
    """Tell whether NumPy's loops round products of complex numbers once, not twice, on this processor."""
    x = np.full(16, complex(1.0 + 2.0**-30, 1.0))
    y = np.full(16, complex(1.0 - 2.0**-30, 1.0))  # 1 - 2**-60 - 1: the small term is lost, or kept
    return bool(((x * y).real != 0.0).all())


@cache
def usleep() -> int:
    """Return the address of the C library's function that sleeps for microseconds; 0 if it has none."""
    return _function(ctypes.CDLL(None), "usleep") or 0 if sys.platform != "win32" else 0


def itemsize_offset() -> int:
    """Where a `PyArray_Descr` keeps its item size, found by looking (NumPy 1 and 2 differ)."""
    dtypes = [np.dtype(name) for name in ("f8", "S77", "i2", "V1234")]
    for offset in range(HEADER + 8, 96, 8):
        if all(ctypes.c_int64.from_address(id(d) + offset).value == d.itemsize for d in dtypes):
            return offset
    raise BackendError("this NumPy keeps a dtype's item size at an unknown place")


def _function(library: ctypes.CDLL, name: str) -> int | None:
    found = getattr(library, name, None)
    return None if found is None else ctypes.cast(found, ctypes.c_void_p).value


def numpy_function(number: int) -> int | None:
    """Return the address of a function of NumPy's C interface, by its place in the table of these."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    base = get(sys.modules["numpy._core._multiarray_umath"]._ARRAY_API, None)
    return ctypes.c_void_p.from_address(base + number * ctypes.sizeof(ctypes.c_void_p)).value


# --------------------------------------------------------------------------- inner loops of ufuncs


#: The loops that kernels may call, by the name of a pair of words: ufunc and types.
LOOP_SYMBOLS = {
    f"jitla.numpy.{ufunc.__name__}.{'f32' if char == 'f' else 'f64'}": (ufunc, f"{char}{char}->{char}")
    for ufunc, chars in ((np.power, "fd"), (np.float_power, "d")) for char in chars
}


class UfuncHead(ctypes.Structure):
    """The public members of `PyUFuncObject` up to its types."""

    _fields_ = (
        ("head", ctypes.c_char * object.__basicsize__),
        ("nin", ctypes.c_int), ("nout", ctypes.c_int), ("nargs", ctypes.c_int), ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)), ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int), ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p), ("types", ctypes.POINTER(ctypes.c_char)),
    )


def loop_symbol(name: str, bits: int) -> str:
    """Return the symbol of the loop pointer and its data for ufunc `name` on floats of `bits` bits."""
    return f"jitla.numpy.{name}.f{bits}"


@cache
def _loop_pair(name: str) -> ctypes.Array[ctypes.c_void_p] | None:
    """Return a loop's address and what it is to be given; None if the ufunc is not made as expected."""
    ufunc, types = LOOP_SYMBOLS[name]
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    if types not in ufunc.types:
        return None
    seen = UfuncHead.from_address(id(ufunc))
    if (seen.nin, seen.nout, seen.nargs, seen.ntypes) != (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes):
        return None
    at = ufunc.types.index(types)
    numbers = [np.dtype(char).num for char in types.replace("->", "")]
    told = [ord(seen.types[at * ufunc.nargs + k]) for k in range(ufunc.nargs)]
    if seen.name != ufunc.__name__.encode() or told != numbers or not seen.functions[at]:
        return None
    return (ctypes.c_void_p * 2)(seen.functions[at], seen.data[at] if seen.data else None)


def has_loop(name: str, dtype: np.dtype) -> bool:
    """Say whether kernels can call the loop of the ufunc `name` for `dtype`."""
    return _loop_pair(loop_symbol(name, 8 * dtype.itemsize)) is not None


def loop_symbols_in(objects: list[bytes]) -> dict[str, int]:
    """Return where the pairs of words lie that machine code refers to, by name."""
    found = {}
    for name in LOOP_SYMBOLS:
        if any(name.encode() in data for data in objects):
            pair = _loop_pair(name)
            if pair is not None:
                found[name] = ctypes.addressof(pair)
    return found


def loop_declaration(name: str, bits: int) -> str:
    """Return the text that a module needs beside `loop_call_text`."""
    return f"@{loop_symbol(name, bits)} = external constant [2 x ptr]\n"


def loop_call_text(name: str, bits: int, width: int, vector: str) -> tuple[list[str], list[str]]:
    """Return lines that call a loop of two operands, %x and %y, for a vector of `width` lanes.

    Its result is %loop.of. Those of the first list, which are for memory, belong into a function's first
    block.
    """
    size, pair = bits // 8, loop_symbol(name, bits)
    places = ("x", "y", "to")
    room = [f"%loop.{place} = alloca {vector}, align 64" for place in places]
    room += ["%loop.args = alloca [3 x ptr], align 16", "%loop.steps = alloca [3 x i64], align 16",
             "%loop.count = alloca i64, align 8"]
    lines = [f"store {vector} %{place}, ptr %loop.{place}, align 64" for place in places[:2]]
    for k, place in enumerate(places):
        lines += [f"%loop.arg{k} = getelementptr ptr, ptr %loop.args, i64 {k}",
                  f"store ptr %loop.{place}, ptr %loop.arg{k}, align 8",
                  f"%loop.step{k} = getelementptr i64, ptr %loop.steps, i64 {k}",
                  f"store i64 {size}, ptr %loop.step{k}, align 8"]
    lines += [f"store i64 {width}, ptr %loop.count, align 8", f"%loop.code = load ptr, ptr @{pair}, align 8",
              f"%loop.second = getelementptr ptr, ptr @{pair}, i64 1",
              "%loop.data = load ptr, ptr %loop.second, align 8",
              "call void %loop.code(ptr %loop.args, ptr %loop.count, ptr %loop.steps, ptr %loop.data)",
              f"%loop.of = load {vector}, ptr %loop.to, align 64"]
    return room, lines
