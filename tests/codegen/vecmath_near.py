"""Compiles the short code of vector functions, and functions that choose between it and the long one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from itertools import count

import llvmlite.binding as llvm
import numpy as np

from jitla.codegen.vecmath.library import (
    emit_math,
    near_math,
    some_far,
)
from tests.codegen.vecmath_loop import machine, serial

Link = Callable[..., int]


def linked(text: str, pointers: int) -> Link:
    """@k of a module: takes pointers, returns a byte."""
    module = llvm.parse_assembly(text)
    module.verify()
    image = machine("host").emit_object(module)
    jit = llvm.create_lljit_compiler()
    builder = llvm.JITLibraryBuilder().add_object_img(image).export_symbol("k")
    library = builder.link(jit, f"near{next(serial)}")
    raw = ctypes.CFUNCTYPE(ctypes.c_uint8, *[ctypes.c_void_p] * pointers)(library["k"])
    raw.library = jit, library  # type: ignore[attr-defined]
    return raw


def vector(dtype: np.dtype, width: int) -> str:
    scalar = "double" if dtype.itemsize == 8 else "float"
    return scalar if width == 1 else f"<{width} x {scalar}>"


@cache
def chosen_by(name: str, dtype: np.dtype, width: int) -> Callable[[np.ndarray], bool]:
    """Whether the short code refuses a vector."""
    numbers = count()

    def fresh(hint: str) -> str:
        return f"%{hint}{next(numbers)}"

    lines, _, far = near_math(name, dtype, width, "%x", fresh)
    test, some = some_far([far, far], width, fresh)
    body = "\n".join(f"  {line}" for line in (*lines, *test))
    load = f"load {vector(dtype, width)}, ptr %p, align {dtype.itemsize}"
    raw = linked(
        f"define i8 @k(ptr %p) {{\n  %x = {load}\n{body}\n"
        f"  %r = zext i1 {some} to i8\n  ret i8 %r\n}}\n", 1)
    return lambda x: bool(raw(x.ctypes.data))


@cache
def called(name: str, dtype: np.dtype, width: int) -> Callable[[np.ndarray], np.ndarray]:
    """The function that chooses, on one vector."""
    symbol, text = emit_math(name, dtype, width, False)
    t, align = vector(dtype, width), dtype.itemsize
    raw = linked(f"""{text}
define i8 @k(ptr %in, ptr %out) {{
  %x = load {t}, ptr %in, align {align}
  %y = call {t} @{symbol}({t} %x)
  store {t} %y, ptr %out, align {align}
  ret i8 0
}}
""", 2)

    def call(x: np.ndarray) -> np.ndarray:
        out = np.empty_like(x)
        raw(x.ctypes.data, out.ctypes.data)
        return out

    return call
