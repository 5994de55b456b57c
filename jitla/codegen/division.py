"""Divisions and casts of vectors that have no instruction, as IR functions with a short way.

Knows: when a floating-point quotient decides an exact result. Must not know: kernels, operators.
Receives a name, dtype and width; returns the function's name and text.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.vector import element_type, literal

MAGIC = 0x4338000000000000  # bits of 1.5 * 2**52: adding integers below 2**51 to it is exact


def division(name: str, dtype: np.dtype, width: int) -> tuple[str, str]:
    """Return symbol and text of a function.

    "fmod" of floats; "quotient" of 64-bit integers; "floored", their floor quotient by a divisor
    whose reciprocal is given, too; "whole", the cast of doubles to 64-bit integers.
    """
    if name == "fmod":
        return _fmod(dtype, width)
    if name == "whole":
        return _whole(width)
    return _quotient(dtype, width) if name == "quotient" else _floored(dtype, width)


def result_dtype(name: str, dtype: np.dtype) -> np.dtype:
    """Return what the function `name` of `dtype` returns."""
    return np.dtype(np.int64) if name == "whole" else dtype


def _fmod(dtype: np.dtype, width: int) -> tuple[str, str]:
    """C's fmod. With q = |x| / |y| below 2**(p - 1) its integer part is right or one too large.

    The remainder for it is then a multiple of both last places and below 2**p of them: one FMA
    gives it exactly, and adding |y| to a negative one too.
    """
    kind, digits = element_type(dtype), 23 if dtype.itemsize == 4 else 52
    vec, suffix = f"<{width} x {kind}>", f"v{width}f{8 * dtype.itemsize}"
    limit, top = literal(2.0**digits, dtype), literal(np.finfo(dtype).max, dtype)
    symbol = f"jitla_fmod_{suffix}"
    return symbol, f"""define internal {vec} @{symbol}({vec} %x, {vec} %y) {{
entry:
  %ax = call {vec} @llvm.fabs.{suffix}({vec} %x)
  %ay = call {vec} @llvm.fabs.{suffix}({vec} %y)
  %q = fdiv {vec} %ax, %ay
  %near = fcmp olt {vec} %q, splat ({kind} {limit})
  %finite = fcmp ole {vec} %ay, splat ({kind} {top})
  %fine = and <{width} x i1> %near, %finite
  %bits = bitcast <{width} x i1> %fine to i{width}
  %short = icmp eq i{width} %bits, -1
  br i1 %short, label %fast, label %slow
fast:
  %t = call {vec} @llvm.trunc.{suffix}({vec} %q)
  %m = fneg {vec} %t
  %r = call {vec} @llvm.fma.{suffix}({vec} %m, {vec} %ay, {vec} %ax)
  %below = fcmp olt {vec} %r, zeroinitializer
  %up = fadd {vec} %r, %ay
  %rest = select <{width} x i1> %below, {vec} %up, {vec} %r
  %signed = call {vec} @llvm.copysign.{suffix}({vec} %rest, {vec} %x)
  ret {vec} %signed
slow:
  %c = frem {vec} %x, %y
  ret {vec} %c
}}
"""


def _quotient(dtype: np.dtype, width: int) -> tuple[str, str]:
    """Truncated quotient, divisor not 0. Below 2**51 the nearest float truncates to it:

    a quotient that is no integer is 1 / |y| away from one, its rounding error is a quarter of that.
    """
    signed = dtype.kind == "i"
    whole, real = f"<{width} x i64>", f"<{width} x double>"
    symbol, op = f"jitla_quotient_{dtype.kind}64x{width}", "sdiv" if signed else "udiv"
    shift, bits = (2**51, 52) if signed else (0, 51)
    magic, number = f"splat (i64 {MAGIC})", f"splat (double 0x{MAGIC:016X})"
    lines = [f"define internal {whole} @{symbol}({whole} %x, {whole} %y) {{", "entry:"]
    for v in "xy":
        lines.append(f"  %{v}s = add {whole} %{v}, splat (i64 {shift})")
    lines += [
        f"  %both = or {whole} %xs, %ys", f"  %high = lshr {whole} %both, splat (i64 {bits})",
        f"  %any = call i64 @llvm.vector.reduce.or.v{width}i64({whole} %high)",
        "  %short = icmp eq i64 %any, 0", "  br i1 %short, label %fast, label %slow", "fast:",
    ]
    for v in "xy":
        lines += [
            f"  %{v}m = add {whole} %{v}, {magic}", f"  %{v}b = bitcast {whole} %{v}m to {real}",
            f"  %{v}f = fsub {real} %{v}b, {number}",
        ]
    lines += [
        f"  %q = fdiv {real} %xf, %yf", f"  %t = call {real} @llvm.trunc.v{width}f64({real} %q)",
        f"  %tm = fadd {real} %t, {number}", f"  %tb = bitcast {real} %tm to {whole}",
        f"  %result = sub {whole} %tb, {magic}", f"  ret {whole} %result", "slow:",
        f"  %exact = {op} {whole} %x, %y", f"  ret {whole} %exact", "}", "",
    ]
    return symbol, "\n".join(lines)


def _floored(dtype: np.dtype, width: int) -> tuple[str, str]:
    """Floor of x / y, y not 0 or -1; `over` is 1 / y, `half` 1/2 with its sign; 0 for `over` 0.

    For x below 2**49 the product (x + half) * over is nearer to its exact value than that to an
    integer. A y beyond gives a magnitude below 1.
    """
    signed = dtype.kind == "i"
    whole, real, mask = f"<{width} x i64>", f"<{width} x double>", f"<{width} x i1>"
    symbol = f"jitla_floored_{dtype.kind}64x{width}"
    shift, bits = (2**49, 50) if signed else (0, 49)
    magic, number = f"splat (i64 {MAGIC})", f"splat (double 0x{MAGIC:016X})"
    slow = f"""  %d = sdiv {whole} %x, %y
  %p = mul {whole} %d, %y
  %r = sub {whole} %x, %p
  %sides = xor {whole} %r, %y
  %apart = icmp slt {whole} %sides, zeroinitializer
  %uneven = icmp ne {whole} %r, zeroinitializer
  %off = and {mask} %apart, %uneven
  %one = sext {mask} %off to {whole}
  %low = add {whole} %d, %one
"""
    if not signed:
        slow = f"  %low = udiv {whole} %x, %y\n"
    given = f"{whole} %x, {whole} %y, {real} %half, {real} %over"
    return symbol, f"""define internal {whole} @{symbol}({given}) {{
entry:
  %xs = add {whole} %x, splat (i64 {shift})
  %high = lshr {whole} %xs, splat (i64 {bits})
  %any = call i64 @llvm.vector.reduce.or.v{width}i64({whole} %high)
  %short = icmp eq i64 %any, 0
  br i1 %short, label %fast, label %slow
fast:
  %xm = add {whole} %x, {magic}
  %xb = bitcast {whole} %xm to {real}
  %xf = fsub {real} %xb, {number}
  %xh = fadd {real} %xf, %half
  %q = fmul {real} %xh, %over
  %f = call {real} @llvm.floor.v{width}f64({real} %q)
  %fm = fadd {real} %f, {number}
  %fb = bitcast {real} %fm to {whole}
  %result = sub {whole} %fb, {magic}
  ret {whole} %result
slow:
{slow}  %none = fcmp oeq {real} %over, zeroinitializer
  %exact = select {mask} %none, {whole} zeroinitializer, {whole} %low
  ret {whole} %exact
}}
"""


def _whole(width: int) -> tuple[str, str]:
    """Cast doubles to int64. Below 2**51 the bits of a sum with 1.5 * 2**52 hold the integer."""
    whole, real, suffix = f"<{width} x i64>", f"<{width} x double>", f"v{width}f64"
    magic, number = f"splat (i64 {MAGIC})", f"splat (double 0x{MAGIC:016X})"
    symbol = f"jitla_whole_x{width}"
    return symbol, f"""define internal {whole} @{symbol}({real} %x) {{
entry:
  %size = call {real} @llvm.fabs.{suffix}({real} %x)
  %near = fcmp olt {real} %size, splat (double {literal(2.0**51, np.dtype(np.float64))})
  %bits = bitcast <{width} x i1> %near to i{width}
  %short = icmp eq i{width} %bits, -1
  br i1 %short, label %fast, label %slow
fast:
  %t = call {real} @llvm.trunc.{suffix}({real} %x)
  %tm = fadd {real} %t, {number}
  %tb = bitcast {real} %tm to {whole}
  %result = sub {whole} %tb, {magic}
  ret {whole} %result
slow:
  %far = fptosi {real} %x to {whole}
  %exact = freeze {whole} %far
  ret {whole} %exact
}}
"""
