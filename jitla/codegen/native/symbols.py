"""What the native run time calls in the process it lives in: the C library, Python, NumPy."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

import numpy as np

from jitla.errors import BackendError

__all__ = ["HEADER", "fill_table", "fuses", "itemsize_offset", "references", "table_ir", "text_ir", "usleep"]

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
    found |= _numpy_functions()
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


def _numpy_functions() -> dict[str, int | None]:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    module = sys.modules["numpy._core._multiarray_umath"]
    base = get(module._ARRAY_API, None)
    table = (ctypes.c_void_p * (max(_NUMPY.values()) + 1)).from_address(base)
    return {name: table[i] for name, i in _NUMPY.items()}
