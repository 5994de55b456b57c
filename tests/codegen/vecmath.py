"""Vector math functions compiled for NumPy arrays, with points, references and limits of their errors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from itertools import count

import llvmlite.binding as llvm
import numpy as np

from jitla.codegen.vecmath.library import (
    FUNCTIONS,
    OF_TWO,
    arguments,
    definitions,
    emit_math,
    inline_math,
    near_math,
    some_far,
)

# Loops around one inlined vector function, called on NumPy arrays

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
        name, dtype, width, args, lambda hint: f"%{hint}{next(numbers)}"
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


# Compiles the short code of vector functions, and functions that choose between it and the long one.

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
    symbol, text = emit_math(name, dtype, width)
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


# Points, references and limits

F64, F32 = np.dtype(np.float64), np.dtype(np.float32)
WIDTH = {F64: 4, F32: 8}
OF_ONE = [name for name in FUNCTIONS if name not in OF_TWO and hasattr(np, name)]
ODD = ("tanh", "sinh", "arcsinh", "arctanh", "arcsin", "arctan", "sin", "tan", "cbrt")
EVEN = ("cosh", "cos")
ONE_UNIT = ("exp", "exp2", "log", "log2", "log10")
DOMAIN = {"log": (0.0, np.inf), "log2": (0.0, np.inf), "log10": (0.0, np.inf),
          "log1p": (-1.0, np.inf), "arccosh": (1.0, np.inf), "arcsin": (-1.0, 1.0),
          "arccos": (-1.0, 1.0), "arctanh": (-1.0, 1.0)}  # fmt: skip
FALLING = ("arccos",)
PERIODIC = ("sin", "cos", "tan")


def limit(name: str, dtype: np.dtype) -> float:
    """The promised error in units of the last place."""
    if dtype == F32:
        return 2.5
    return 1.0 if name in ONE_UNIT else 2.0


def within(name: str, x: np.ndarray) -> np.ndarray:
    """The finite points inside the function's domain."""
    low, high = DOMAIN.get(name, (-np.inf, np.inf))
    return x[np.isfinite(x) & (x >= low) & (x <= high)]


def points(name: str, dtype: np.dtype, count: int = 20000) -> np.ndarray:
    """Wide, near 0, log-uniform, near 1, all bit patterns, and the seams of reductions."""
    rng = np.random.default_rng(len(name))
    sign = rng.choice([-1.0, 1.0], count)
    whole = np.int64 if dtype == F64 else np.int32
    patterns = rng.integers(0, np.iinfo(whole).max, count, dtype=whole).view(dtype)
    wide = 760.0 if dtype == F64 else 110.0
    seams = np.concatenate(
        [
            (np.arange(-40, 40) + 0.5) * np.log(2),
            (np.arange(-40, 40) + 0.5) * np.log(2) / 2,
            np.sqrt(0.5) * 2.0 ** np.arange(-20, 20),
            np.sqrt(0.5) * 2.0 ** np.arange(-20, 20) - 1,
            [0.25, 0.5, 0.6, 0.625, 1.0, 1.8, 2.0],
        ]
    )
    near = seams[:, None] * (1 + np.arange(-8, 9) * np.finfo(dtype).eps)
    x = np.concatenate(
        [
            rng.uniform(-1, 1, count),
            rng.uniform(-10, 10, count),
            rng.uniform(-wide, wide, count),
            sign * 10 ** rng.uniform(-20, 3, count),
            sign * 10 ** rng.uniform(-1.3, 0.7, count),
            1 + sign * 2.0 ** rng.uniform(-52, 0, count),
            near.ravel(),
            -near.ravel(),
        ]
    )
    return within(name, np.concatenate([x.astype(dtype), patterns, -patterns]))


def run(name: str, *xs: np.ndarray) -> np.ndarray:
    """The compiled function."""
    return compiled(name, xs[0].dtype, WIDTH[xs[0].dtype])(*xs)


def reference(name: str, *xs: np.ndarray) -> np.ndarray:
    """NumPy in extended precision."""
    with np.errstate(all="ignore"):
        return getattr(np, name)(*(x.astype(np.longdouble) for x in xs))


def units(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Error in units of the last place of the exact value (0 where both overflow)."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        size = np.minimum(np.abs(want), np.nextafter(info.max, 0)).astype(got.dtype)
        size = np.where(size > np.abs(want), np.nextafter(size, got.dtype.type(0)), size)
        error = np.abs(got.astype(np.longdouble) - want) / np.spacing(size)
        over = np.isinf(got) & (np.abs(want) >= overflow(got.dtype))
        return np.where(over, 0.0, error)


def overflow(dtype: np.dtype) -> np.longdouble:
    """The smallest number that rounds to infinity."""
    info = np.finfo(dtype)
    one = np.longdouble(1)
    return np.ldexp(one, info.maxexp) - np.ldexp(one, info.maxexp - info.nmant - 2)


def bits(x: np.ndarray) -> np.ndarray:
    """Bit patterns, all NaNs made equal."""
    return np.where(np.isnan(x), np.nan, x).astype(x.dtype).view(f"i{x.itemsize}")
