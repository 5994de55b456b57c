"""NumPy's own inner loops, which kernels call for what has to have NumPy's bits.

`np.ufunc` objects hold the addresses of their loops, in the part of their memory that NumPy's C interface
makes public. Which loop that is was chosen by NumPy for this processor, so nothing else has its bits
everywhere. Machine code refers to a loop by the name of a pair of words, the loop's address and what it is to
be given; where the pair lies is told when code is loaded, as it is another in every process.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

import numpy as np

__all__ = ["SYMBOLS", "call_text", "declaration", "has_loop", "symbol", "symbols_in"]

#: The loops that kernels may call, by the name of a pair of words: ufunc and types.
SYMBOLS = {
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


def symbol(name: str, bits: int) -> str:
    """Return the symbol of the loop pointer and its data for the ufunc `name` on floats of `bits` bits."""
    return f"jitla.numpy.{name}.f{bits}"


@cache
def _pair(name: str) -> ctypes.Array[ctypes.c_void_p] | None:
    """Return a loop's address and what it is to be given; None if the ufunc is not made as expected."""
    ufunc, types = SYMBOLS[name]
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
    return _pair(symbol(name, 8 * dtype.itemsize)) is not None


def symbols_in(objects: list[bytes]) -> dict[str, int]:
    """Return where the pairs of words lie that machine code refers to, by name."""
    found = {}
    for name in SYMBOLS:
        if any(name.encode() in data for data in objects):
            pair = _pair(name)
            if pair is not None:
                found[name] = ctypes.addressof(pair)
    return found


def declaration(name: str, bits: int) -> str:
    """Return the text that a module needs beside `call_text`."""
    return f"@{symbol(name, bits)} = external constant [2 x ptr]\n"


def call_text(name: str, bits: int, width: int, vector: str) -> tuple[list[str], list[str]]:
    """Return lines that call a loop of two operands, %x and %y, for a vector of `width` lanes.

    Its result is %loop.of. Those of the first list, which are for memory, belong into a function's first
    block.
    """
    size, pair = bits // 8, symbol(name, bits)
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
