"""Addresses of routines that loop programs call: inner loops of ufuncs, `dot` functions, the C library.

Machine code names a routine by an external symbol, whose address is looked up when an object is loaded, as it
is another one in each process. Loops and `dot` functions are pairs of words, the code and what it is given.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from jitla.codegen.native.symbols import UfuncHead
from jitla.errors import BackendError
from jitla.loopir import find_ufunc

__all__ = ["c_symbol", "dot_symbol", "find_loop", "loop_symbol", "routine_symbols_in"]

_SYMBOL = re.compile(rb"jitla\.(loop|dot|c|sort|argsort)\.([^\x00]+)\x00")
#: Of `PyArray_ArrFuncs`: casts to 21 types, getitem, setitem, copyswapn, copyswap, compare, argmax, dotfunc,
#: scanfunc, fromstr, nonzero, fill, fillwithscalar, three functions that sort, and three that sort indices.
_DOTFUNC_WORD, _SORT_WORD, _ARGSORT_WORD = 27, 33, 36
_SORTS = {"quicksort": 0, "stable": 2}
_GET_ARR_FUNCS = 365  # of NumPy's table of C functions, since 2.0

Pair = ctypes.Array[ctypes.c_void_p]


def loop_symbol(routine: str) -> str:
    """Return the symbol of an inner loop, such as ``"exp.d->d"``."""
    return f"jitla.loop.{routine}"


def dot_symbol(dtype: np.dtype) -> str:
    """Return the symbol of the `dot` function of `dtype`."""
    return f"jitla.dot.{dtype.char}"


def sort_symbol(dtype: np.dtype, kind: str, indices: bool) -> str:
    """Return the symbol of the function that sorts elements of `dtype`, or indices by them."""
    return f"jitla.{'argsort' if indices else 'sort'}.{dtype.char}.{kind}"


def c_symbol(function: str) -> str:
    """Return the symbol of a function of the C library."""
    return f"jitla.c.{function}"


def routine_symbols_in(objects: Sequence[bytes]) -> dict[str, int]:
    """Return the addresses of all routines that machine code refers to, by symbol."""
    addresses = {}
    for data in objects:
        for kind, name in _SYMBOL.findall(data) if b"jitla." in data else ():
            symbol = f"jitla.{kind.decode()}.{name.decode()}"
            if kind == b"c":
                addresses[symbol] = _c_function(name.decode())
            else:
                find = _loop if kind == b"loop" else _dot if kind == b"dot" else _sort if kind == b"sort" \
                    else _argsort
                pair = find(name.decode())
                addresses[symbol] = ctypes.addressof(pair)
    return addresses


# --------------------------------------------------------------------------- inner loops of ufuncs


@cache
def _find_loop(name: str, dtypes: tuple[np.dtype, ...]) -> str | None:
    ufunc = find_ufunc(name)
    for types in () if ufunc is None else ufunc.types:
        if tuple(map(np.dtype, types.replace("->", ""))) == dtypes:
            return types
    return None


def find_loop(name: str, dtypes: Sequence[np.dtype]) -> str | None:
    """Return the types of the loop of the ufunc `name` for exactly these operands and results, or None."""
    return _find_loop(name, tuple(dtypes))


@cache
def _loop(routine: str) -> Pair:
    """Return an inner loop's address and its data."""
    name, types = routine.rsplit(".", 1)
    ufunc = find_ufunc(name)
    if ufunc is None or types not in ufunc.types or sys.implementation.name != "cpython":
        raise BackendError(f"no inner loop {routine}")
    number = ufunc.types.index(types)
    head = UfuncHead.from_address(id(ufunc))
    counts = (head.nin, head.nout, head.nargs, head.ntypes)
    if counts != (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes) or head.name != ufunc.__name__.encode():
        raise BackendError("NumPy's ufuncs are not laid out as expected")
    expected = [np.dtype(char).num for char in types.replace("->", "")]
    listed = [ord(head.types[number * ufunc.nargs + k]) for k in range(ufunc.nargs)]
    code = head.functions[number]
    if listed != expected or not code:
        raise BackendError(f"no inner loop {routine}")
    return (ctypes.c_void_p * 2)(code, head.data[number] if head.data else None)


# --------------------------------------------------------------------------- dot functions


@cache
def _dot(char: str) -> Pair:
    """Return the `dot` function of a dtype, tested against ``@``."""
    code = _array_function(np.dtype(char), _DOTFUNC_WORD)
    _test_dot(code, np.dtype(char))
    return (ctypes.c_void_p * 2)(code, None)


def _array_function(dtype: np.dtype, number: int) -> int:
    """Return the address of a function of a dtype, by its number in NumPy's table."""
    if sys.implementation.name != "cpython" or int(np.__version__.split(".")[0]) < 2:
        raise BackendError("no tables of the functions of dtypes in this NumPy")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = get(sys.modules["numpy._core._multiarray_umath"]._ARRAY_API, None)
    word = ctypes.sizeof(ctypes.c_void_p)
    address = ctypes.c_void_p.from_address(table + word * _GET_ARR_FUNCS).value or 0
    get_functions = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(address)
    functions = get_functions(dtype)
    code = ctypes.c_void_p.from_address(functions + word * number).value if functions else None
    if not code:
        raise BackendError(f"no function {number} of {dtype}")
    return code


def call_dot(code: int, a: Any, b: Any, out: Any) -> None:
    """Call a `dot` function on two vectors and an array for the result."""
    call = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_void_p,
        ctypes.c_ssize_t, ctypes.c_void_p)(code)
    call(a.ctypes.data, a.strides[0], b.ctypes.data, b.strides[0], out.ctypes.data, len(a), None)


def _test_dot(code: int, dtype: np.dtype) -> None:
    """Raise if the function has not the bits of ``a @ b``."""
    rng = np.random.default_rng(8)
    values = rng.integers(-50, 50, (2, 700)) if dtype.kind in "biu" else rng.normal(size=(2, 700))
    memory = values.astype(dtype)
    if dtype.kind == "c":
        memory += (1j * rng.normal(size=(2, 700))).astype(dtype)
    for length, step, other in ((0, 1, 1), (1, 1, 1), (2, 1, 3), (7, -1, 1), (33, 2, 1), (100, 5, 7),
                                (233, -3, -2), (700, 1, 1)):
        a, b = memory[0][::step][:length], memory[1][::other][:length]
        out = np.empty((), dtype)
        with np.errstate(all="ignore"):
            call_dot(code, a, b, out)
            if out.tobytes() != np.asarray(a @ b, dtype).tobytes():
                raise BackendError(f"the `dot` function of {dtype} is not that of NumPy's products")


# --------------------------------------------------------------------------- functions that sort


@cache
def _sort(name: str) -> Pair:
    """Return the function that sorts elements, by dtype and kind, tested against ``np.sort``."""
    dtype, kind, code = _sorting(name, _SORT_WORD)
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_void_p)(code)
    for values in _unsorted(dtype):
        made = values.copy()
        if call(made.ctypes.data, len(made), None) or made.tobytes() != np.sort(values, kind=kind).tobytes():
            raise BackendError(f"the function that sorts {dtype} is not that of `np.sort`")
    return (ctypes.c_void_p * 2)(code, None)


@cache
def _argsort(name: str) -> Pair:
    """Return the function that sorts indices, by dtype and kind, tested against ``np.argsort``."""
    dtype, kind, code = _sorting(name, _ARGSORT_WORD)
    call = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_void_p)(code)
    for values in _unsorted(dtype):
        made = np.arange(len(values))
        if call(values.ctypes.data, made.ctypes.data, len(made), None) \
                or (made != np.argsort(values, kind=kind)).any():
            raise BackendError(f"the function that sorts indices of {dtype} is not that of `np.argsort`")
    return (ctypes.c_void_p * 2)(code, None)


def _sorting(name: str, word: int) -> tuple[np.dtype, Any, int]:
    """Return the dtype, the kind and the address of a function that sorts."""
    char, kind = name.split(".")
    dtype = np.dtype(char)
    return dtype, kind, _array_function(dtype, word + _SORTS[kind])


def _unsorted(dtype: np.dtype) -> list[np.ndarray]:
    """Return vectors with elements that repeat, zeros of both signs and NaN among them."""
    rng = np.random.default_rng(5)
    vectors = [rng.integers(0, 2 + 7 * size, size).astype(dtype) for size in (1, 3, 20, 300)]
    if dtype.kind == "f":
        for vector in vectors[1:]:
            vector[::3] *= -0.0
            vector[1] = np.nan
    return vectors


# --------------------------------------------------------------------------- the C library


@cache
def _c_function(name: str) -> int:
    """Return the address of a function of the C library, as the process has it."""
    for library in ([None, "libm.so.6"] if sys.platform == "linux" else [None]):
        try:
            function = getattr(ctypes.CDLL(library), name)
        except (AttributeError, OSError):
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    raise BackendError(f"the C library has no {name}")
