"""Compiles a loop around one inlined vector function, to call it on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from itertools import count

import llvmlite.binding as llvm
import numpy as np

from jitla.codegen.vecmath.library import (
    arguments,
    definitions,
    inline_math,
)

serial = count()


@cache
def machine(features: str) -> llvm.TargetMachine:
    """The host, or a plain processor with the given features."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    cpu = llvm.get_host_cpu_name()
    if features == "host":
        return target.create_target_machine(
            cpu=cpu, features=llvm.get_host_cpu_features().flatten(), opt=2, reloc="pic"
        )
    return target.create_target_machine(cpu=features, features="", opt=2, reloc="pic")


def text(name: str, dtype: np.dtype, width: int) -> str:
    """Module with ``void k(in, ..., out, n)``; n is a multiple of the width."""
    args = arguments(name)
    numbers = count()
    scalar = "double" if dtype.itemsize == 8 else "float"
    t = scalar if width == 1 else f"<{width} x {scalar}>"
    lines, result = inline_math(
        name, dtype, width, False, args, lambda hint: f"%{hint}{next(numbers)}"
    )
    given = ", ".join(f"ptr noalias %in{arg[1:]}" for arg in args)
    loads = "\n".join(
        f"  %p{arg[1:]} = getelementptr {scalar}, ptr %in{arg[1:]}, i64 %i\n"
        f"  {arg} = load {t}, ptr %p{arg[1:]}, align {dtype.itemsize}" for arg in args
    )
    body = "\n".join("  " + line for line in lines)
    calls = "".join(definitions(name, dtype, width).values())
    return f"""
{calls}
define void @k({given}, ptr noalias %out, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %q = getelementptr {scalar}, ptr %out, i64 %i
{loads}
{body}
  store {t} {result}, ptr %q, align {dtype.itemsize}
  %next = add i64 %i, {width}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


@cache
def compiled(
    name: str, dtype: np.dtype, width: int, features: str = "host"
) -> Callable[..., np.ndarray]:
    """The function as a callable on one-dimensional arrays of any length."""
    module = llvm.parse_assembly(text(name, dtype, width))
    module.verify()
    image = machine(features).emit_object(module)
    jit = llvm.create_lljit_compiler()
    library = (
        llvm.JITLibraryBuilder()
        .add_object_img(image)
        .export_symbol("k")
        .link(jit, f"vecmath{next(serial)}")
    )
    pointers = [ctypes.c_void_p] * (len(arguments(name)) + 1)
    raw = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(library["k"])

    def call(*xs: np.ndarray) -> np.ndarray:
        size = xs[0].size
        padded = [np.resize(x.astype(dtype), -(-size // width) * width) for x in xs]
        out = np.empty_like(padded[0])
        raw(*(x.ctypes.data for x in padded), out.ctypes.data, out.size)
        return out[:size]

    call.raw, call.library = raw, (jit, library)  # type: ignore[attr-defined]
    return call
