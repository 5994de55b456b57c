"""LLVM text of the verbs of `ScalarBuilder`, division of integers, and exact floating-point flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from string import Template
from typing import Any

import numpy as np

from jitla.codegen.ir import (
    BOOL,
    Value,
    VectorText,
    element_type,
    literal,
    part_of,
    refuse,
    whole,
    whole_number,
)
from jitla.errors import BackendError

__all__ = ["float_ir", "quiet"]


_X86 = """
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)
define internal i32 @float.get() nounwind {
  %p = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %p)
  %v = load i32, ptr %p
  ret i32 %v
}
define internal void @float.set(i32 %v) nounwind {
  %p = alloca i32, align 4
  store i32 %v, ptr %p
  call void @llvm.x86.sse.ldmxcsr(ptr %p)
  ret void
}
"""

# What the C library calls (invalid, divide by zero, overflow) on each machine.
_FENV = {"x86_64": (1, 4, 8), "aarch64": (1, 2, 4), "riscv64": (16, 8, 4)}

_LIBM = """
define internal i32 @float.get() nounwind {
  %f = load ptr, ptr $$fetestexcept
  %v = call i32 %f(i32 $all)
  %invalid = and i32 %v, $invalid
  %is.invalid = icmp ne i32 %invalid, 0
  %a = select i1 %is.invalid, i32 1, i32 0
  %divide = and i32 %v, $divide
  %is.divide = icmp ne i32 %divide, 0
  %b = select i1 %is.divide, i32 4, i32 0
  %over = and i32 %v, $overflow
  %is.over = icmp ne i32 %over, 0
  %c = select i1 %is.over, i32 8, i32 0
  %ab = or i32 %a, %b
  %r = or i32 %ab, %c
  ret i32 %r
}
define internal void @float.set(i32 %v) nounwind {
  %fc = load ptr, ptr $$feclearexcept
  call i32 %fc(i32 $all)
  %invalid = and i32 %v, 1
  %a = mul i32 %invalid, $invalid
  %divide = lshr i32 %v, 2
  %divide1 = and i32 %divide, 1
  %b = mul i32 %divide1, $divide
  %over = lshr i32 %v, 3
  %over1 = and i32 %over, 1
  %c = mul i32 %over1, $overflow
  %ab = or i32 %a, %b
  %raised = or i32 %ab, %c
  %some = icmp ne i32 %raised, 0
  br i1 %some, label %raise, label %out
raise:
  %fr = load ptr, ptr $$feraiseexcept
  call i32 %fr(i32 %raised)
  br label %out
out:
  ret void
}
"""

_NOWHERE = """
define internal i32 @float.get() nounwind { ret i32 0 }
define internal void @float.set(i32 %v) nounwind { ret void }
"""


_SIGNALLING = re.compile(
    r"= fcmp (o(?:lt|le|gt|ge)) (<(\d+) x (double|float)>|double|float) (.+), (.+)$", re.MULTILINE)


_CHOICE = re.compile(r"= select <1 x i1>")
# One element at a time LLVM makes branches of choices, and moves what is not chosen behind them: it
# would never be computed, and raise nothing.
_SINKING = re.compile(
    r"= (f(?:add|sub|mul|div)) <1 x (double|float)> (.+), (.+)$|"
    r"= call <1 x (double|float)> @llvm\.sqrt\.v1f\d+\(<1 x \w+> (.+)\)$", re.MULTILINE)
_CONVERTING = re.compile(
    r"= (fptosi|fptrunc) <(1) x (double|float)> (.+) to <1 x (i32|i64|float)>$", re.MULTILINE)
# What was widened before LLVM does not make narrow again, but takes as it was.
_NARROWING = re.compile(r"= (fptrunc) <(\d+) x (double)> (.+) to <\d+ x (float)>$", re.MULTILINE)
_BITS = {"double": "f64", "float": "f32"}


# Where processors have masks LLVM makes one instruction of an operation and a choice of its result, which
# then is not computed, and raises nothing, where it is not chosen. Of an operation on a choice that leaves
# some elements as they are it makes a choice between results: one more may be computed, and raise.
_CHOSEN = re.compile(
    r"^ *(%\S+) = select (<(\d+) x i1> .+), (<\d+ x (double|float)>) (.+), <\d+ x \w+> (.+)$", re.MULTILINE)


def _fenced(found: re.Match[str]) -> str:
    name, choice, lanes, vec, element, *arms = found.groups()
    fence = f"@llvm.arithmetic.fence.v{lanes}{_BITS[element]}"
    computed = [k for k, arm in enumerate(arms) if arm.startswith("%")]
    lines = [f"  {name}.of{k} = call {vec} {fence}({vec} {arms[k]})" for k in computed]
    of = ", ".join(f"{vec} {f'{name}.of{k}' if k in computed else arm}" for k, arm in enumerate(arms))
    chosen = [f"  {name}.as = select {choice}, {of}", f"  {name} = call {vec} {fence}({vec} {name}.as)"]
    return "\n".join([*lines, *chosen])


def _bound(found: re.Match[str]) -> str:
    how, kind, x, y, rooted, root = found.groups()
    kind = kind or rooted
    vec = f"<1 x {kind}>"
    args = f"{vec} {x}, {vec} {y}" if how else f"{vec} {root}"
    name = f"{how or 'sqrt'}.v1{_BITS[kind]}"
    return (f"= call {vec} @llvm.experimental.constrained.{name}({args}, "
            'metadata !"round.tonearest", metadata !"fpexcept.strict")')


def _converted(found: re.Match[str]) -> str:
    how, lanes, kind, x, wanted = found.groups()
    name = f"{how}.v{lanes}{_BITS.get(wanted, wanted)}.v{lanes}{_BITS[kind]}"
    rounding = 'metadata !"round.tonearest", ' if how == "fptrunc" else ""
    return (f"= call <{lanes} x {wanted}> @llvm.experimental.constrained.{name}(<{lanes} x {kind}> {x}, "
            f'{rounding}metadata !"fpexcept.strict")')


def _quietly(found: re.Match[str]) -> str:
    how, kind, lanes, element, x, y = found.groups()
    suffix = _BITS[element or kind]
    name = f"v{lanes}{suffix}" if lanes else suffix
    return (f"= call {f'<{lanes} x i1>' if lanes else 'i1'} @llvm.experimental.constrained.fcmp.{name}("
            f'{kind} {x}, {kind} {y}, metadata !"{how}", metadata !"fpexcept.ignore")')


# LLVM takes the other operand, or its opposite, for the result of these, which a signalling NaN is not.
_NEUTRAL = re.compile(
    r"= f(add|sub|mul|div) <(\d+) x (double|float)> (.+), splat \((?:double|float) (0x[0-9A-F]{16})\)$|"
    r"= f(add|sub|mul) <(\d+) x (double|float)> splat \((?:double|float) (0x[0-9A-F]{16})\), (.+)$",
    re.MULTILINE)
_ZERO, _MINUS_ZERO = "0x0000000000000000", "0x8000000000000000"
_ONES = frozenset({"0x3FF0000000000000", "0xBFF0000000000000"})
_NEUTRALS = {"add": {_MINUS_ZERO}, "sub": {_ZERO}, "opposite": {_MINUS_ZERO}, "mul": _ONES, "div": _ONES}


def _computed(found: re.Match[str]) -> str:
    how, lanes, kind, x, number = found.groups()[:5] if found[1] else [found[k] for k in (6, 7, 8, 10, 9)]
    vec, name = f"<{lanes} x {kind}>", f"f{how}.v{lanes}{_BITS[kind]}"
    operands = [f"{vec} {x}", f"{vec} splat ({kind} {number})"]
    if how == "sub" and not found[1]:
        how = "opposite"
        operands.reverse()
    if number not in _NEUTRALS[how]:
        return found[0]
    return (f"= call {vec} @llvm.experimental.constrained.{name}({', '.join(operands)}, "
            'metadata !"round.tonearest", metadata !"fpexcept.strict")')


def quiet(text: str, features: frozenset[str]) -> str:
    """Return IR that raises flags for what the user computes, all of it, and for nothing else.

    Comparisons with NaN raise none, as NumPy's do not.

    Processors without such an instruction keep the others: NumPy then looks what the flag was about.
    """
    if _CHOICE.search(text):
        text = _CONVERTING.sub(_converted, _SINKING.sub(_bound, text))
    text = _NARROWING.sub(_converted, text) if "= fpext" in text else text
    text = _NEUTRAL.sub(_computed, text)
    text = _CHOSEN.sub(_fenced, text) if "avx512f" in features else text
    return _SIGNALLING.sub(_quietly, text) if "avx" in features else text


def float_ir(machine: str, library: bool = False) -> str:
    """IR that reads and sets the flags; from the C library's functions if told so, or on rare machines.

    It refers to those as `$name`.
    """
    if machine == "x86_64" and not library:
        return _X86
    if machine not in _FENV:
        return _NOWHERE
    invalid, divide, overflow = _FENV[machine]
    return Template(_LIBM).substitute(
        all=invalid | divide | overflow, invalid=invalid, divide=divide, overflow=overflow)


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


class LlvmBuilder(VectorText):
    """`ScalarBuilder` over IR text; `math_call(builder, name, xs)` writes what is no verb."""

    def __init__(
        self, lines: list[str], width: int, math_call: MathCall | None = None, prefix: str = "t"
    ) -> None:
        super().__init__(lines, width, prefix)
        self._math_call = math_call
        #: Where to note which lanes are not for the short code of functions; None: that is not asked for.
        self.far: list[tuple[np.dtype, str]] | None = None
        self.calls = False  # whether functions are called, even if others are written in place

    @property
    def _has_functions(self) -> bool:
        return self.width > 1 and self._math_call is not None

    def _op(self, text: str, dtype: np.dtype, *xs: Value) -> Value:
        args = ", ".join(x.text for x in xs)
        return Value(dtype, self.line(f"{text} {self.type(xs[0].dtype)} {args}"))

    def _intrinsic(self, name: str, *xs: Value) -> Value:
        d = xs[0].dtype
        suffix = f"v{self.width}{'f' if d.kind == 'f' else 'i'}{8 * d.itemsize}"
        args = ", ".join(f"{self.type(x.dtype)} {x.text}" for x in xs)
        return Value(d, self.line(f"call {self.type(d)} @llvm.{name}.{suffix}({args})"))

    def _conv(self, text: str, x: Value, dtype: np.dtype) -> Value:
        source, target = self.type(x.dtype), self.type(dtype)
        return Value(dtype, self.line(f"{text} {source} {x.text} to {target}"))

    # -- constants and casts ------------------------------------------------------------------

    def const(self, value: Any, dtype: Any) -> Value:
        """Return `value` in every lane."""
        dtype = np.dtype(dtype)
        self._known(dtype)
        if dtype.kind == "c":
            number = dtype.type(value)
            return whole(dtype, [self.const(p, part_of(dtype)) for p in (number.real, number.imag)])
        return Value(dtype, f"splat ({element_type(dtype)} {literal(value, dtype)})", True)

    def cast(self, x: Value, dtype: Any) -> Value:
        """Convert as ``astype(casting="unsafe")`` does."""
        src, dtype = x.dtype, np.dtype(dtype)
        self._known(dtype)
        if src == dtype:
            return x
        if element_type(src) == element_type(dtype):
            return Value(dtype, x.text)
        if dtype == BOOL:
            return self.ne(x, self.const(0, src))
        if src.kind == "f":
            if dtype.kind != "f":
                return self._float_to_int(x, dtype)
            return self._conv("fpext" if dtype.itemsize > src.itemsize else "fptrunc", x, dtype)
        if dtype.kind == "f":
            if src == BOOL and self.width == 1:
                return self._one_or_zero(x, dtype)
            return self._conv("sitofp" if src.kind == "i" else "uitofp", x, dtype)
        if dtype.itemsize < src.itemsize:
            return self._conv("trunc", x, dtype)
        return self._conv("sext" if src.kind == "i" else "zext", x, dtype)

    def _one_or_zero(self, x: Value, dtype: np.dtype) -> Value:
        """Return a bool as a float, by its bits: LLVM makes `1.0 / float(x)` a choice that sets no flag."""
        word = np.dtype(f"i{dtype.itemsize}")
        one = self.const(dtype.type(1).view(word), word)
        bits = self._op("and", word, self._conv("sext", x, word), one)
        return self._conv("bitcast", bits, dtype)

    def _known(self, dtype: np.dtype) -> None:
        reason = refuse(dtype)
        if reason:
            raise BackendError(reason)

    def _float_to_int(self, x: Value, dtype: np.dtype) -> Value:
        # NumPy's casts are the processor's: x86 converts to i32 or i64 and gives the smallest integer
        # for what does not fit; narrower results are cut from i32. NumPy's float -> u4 depends on
        # the position in the array.
        if dtype == np.uint32:
            raise BackendError("NumPy's cast of a float to uint32 is not reproducible")
        if dtype == np.uint64:
            top = self.const(2.0**63, x.dtype)
            big = self.ge(x, top)
            low = self._to_signed(self.select(big, self.sub(x, top), x), np.dtype(np.int64))
            zero = self.const(0, np.dtype(np.int64))
            flip = self.select(big, self.const(-(2**63), np.dtype(np.int64)), zero)
            return Value(dtype, self.xor(low, flip).text)
        wide = np.dtype(np.int64 if dtype.itemsize == 8 else np.int32)
        return self.cast(self._to_signed(x, wide), dtype)

    def _to_signed(self, x: Value, dtype: np.dtype) -> Value:
        if dtype.itemsize == 8 and self._has_functions:
            return self.math("whole", self.cast(x, np.float64))
        if not x.fixed:
            return Value(dtype, self._frozen(self._conv("fptosi", x, dtype)))
        # What LLVM knows it folds, and has no smallest integer for what does not fit.
        limit = 2 ** (8 * dtype.itemsize - 1)
        above = self.ge(x, self.const(-limit, x.dtype))
        fits = self.and_(above, self.lt(x, self.const(limit, x.dtype)))
        safe = self.select(fits, x, self.const(0, x.dtype))
        return self.select(fits, self._conv("fptosi", safe, dtype), self.const(-limit, dtype))

    def _frozen(self, x: Value) -> str:
        return self.line(f"freeze {self.type(x.dtype)} {x.text}")

    # -- arithmetic ---------------------------------------------------------------------------

    def _arith(self, name: str, x: Value, y: Value) -> Value:
        return self._op(("f" if x.dtype.kind == "f" else "") + name, x.dtype, x, y)

    def add(self, x: Value, y: Value) -> Value:
        """Return x + y; bools: or; complex numbers by part, for sums of them."""
        if x.dtype.kind == "c":
            return whole(x.dtype, [self.add(p, q) for p, q in zip(x.parts, y.parts, strict=True)])
        return self.or_(x, y) if x.dtype == BOOL else self._arith("add", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        """Return x - y."""
        return self._arith("sub", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        """Return x * y; bools: and."""
        return self.and_(x, y) if x.dtype == BOOL else self._arith("mul", x, y)

    def div(self, x: Value, y: Value) -> Value:
        """Return x / y of floats."""
        if x.dtype.kind != "f":
            raise BackendError("true division of integers")
        return self._op("fdiv", x.dtype, x, y)

    def floordiv(self, x: Value, y: Value) -> Value:
        """Return NumPy's floor_divide."""
        if x.dtype.kind == "i":
            least = self.eq(x, self.const(np.iinfo(x.dtype).min, x.dtype))
            self.flag("overflow", self.and_(least, self.eq(y, self.const(-1, x.dtype))))
        return self._divmod(x, y)[0]

    def rem(self, x: Value, y: Value) -> Value:
        """Return NumPy's remainder, which has the divisor's sign."""
        return self._divmod(x, y)[1]

    def fmod(self, x: Value, y: Value) -> Value:
        """Return the remainder with the dividend's sign; 0 for integers over 0."""
        if x.dtype.kind == "f":
            return self._float_rest(x, y)
        return self._int_divide(x, y)[1]

    def _divmod(self, x: Value, y: Value) -> tuple[Value, Value]:
        if x.dtype.kind == "f":
            return self._float_divmod(x, y)
        known = whole_number(y)
        if known is not None and known > 0 and x.dtype.itemsize <= 4:
            return self._divmod_by_number(x, y)
        if y.fixed and x.dtype.kind in "iu" and (x.dtype.itemsize < 8 or self._has_functions):
            return self._divmod_by_fixed(x, y)
        q, r = self._int_divide(x, y)
        if x.dtype.kind != "i":
            return q, r
        zero = self.const(0, x.dtype)
        off = self.and_(self.ne(r, zero), self.lt(self.xor(r, y), zero))
        q_floor = self.select(off, self.sub(q, self.const(1, x.dtype)), q)
        return q_floor, self.select(off, self.add(r, y), r)

    def _int_divide(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Quotient towards zero and remainder; 0, 0 for a zero divisor; never traps."""
        d = x.dtype
        if d == BOOL:
            raise BackendError("division of bools")
        zero, one = self.const(0, d), self.const(1, d)
        void = self.eq(y, zero)
        safe = self.select(void, one, y)
        if d.kind == "i":
            # The least integer over -1 traps: over -1 the quotient is a negation.
            minus = self.eq(y, self.const(-1, d))
            safe = self.select(minus, one, safe)
        self.flag("divide", void)
        q = self._quotient(x, safe)
        if d.kind == "i":
            q = self.select(minus, self.neg(x), q)
        r = self.sub(x, self.mul(q, y))
        return self.select(void, zero, q), self.select(void, zero, r)

    def flag(self, kind: str, c: Value) -> None:
        """Raise the flag `kind` if `c` holds in any lane, by a division that is exact otherwise."""
        f = np.dtype(np.float32)
        bits = self.line(f"bitcast {self.type(BOOL)} {c.text} to i{self.width}")
        some = self.line(f"icmp ne i{self.width} {bits}, 0")
        dividend, divisor = (
            self.line(f"select i1 {some}, float {literal(n, f)}, float {literal(1, f)}")
            for n in _RAISING[kind])
        self.line(
            f"call float @llvm.experimental.constrained.fdiv.f32(float {dividend}, float {divisor}, "
            "metadata !\"round.dynamic\", metadata !\"fpexcept.strict\")")

    def _quotient(self, x: Value, y: Value) -> Value:
        d = x.dtype
        signed = d.kind == "i"
        if d.itemsize == 8:
            if self._has_functions:
                return self.math("quotient", x, y)
            return self._op("sdiv" if signed else "udiv", d, x, y)
        # Vectors have no integer division. The nearest float of a quotient of n-bit integers
        # truncates to the right integer as soon as it has 2n/2 + 1 bits: 24 for 16, 53 for 32.
        wide = np.dtype(np.int32 if d.itemsize < 4 else d)
        f = np.dtype(np.float32 if d.itemsize < 4 else np.float64)
        xf, yf = self.cast(self.cast(x, wide), f), self.cast(self.cast(y, wide), f)
        how = "fptosi" if wide.kind == "i" else "fptoui"
        return self.cast(self._conv(how, self.div(xf, yf), wide), d)

    def _divmod_by_number(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Floor quotient and remainder by a positive number that LLVM knows, and multiplies for.

        Lanes stay as narrow as they are. Of a negative x the complement is divided: it is no less than 0.
        """
        d = x.dtype
        if d.kind == "i":
            sign = self._op("ashr", d, x, self.const(8 * d.itemsize - 1, d))
            q = self.xor(self._op("udiv", d, self.xor(x, sign), y), sign)
        else:
            q = self._op("udiv", d, x, y)
        return q, self.sub(x, self.mul(q, y))

    def _divmod_by_fixed(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Floor quotient and remainder of integers by a divisor that does not vary.

        The reciprocal is then computed once. (x + 1/2) / y, for a positive y, is 1 / 2y away from
        the integers around it, and the float product only x / y / 2**22 from it (2**51 for doubles).
        """
        d = x.dtype
        zero, one = self.const(0, d), self.const(1, d)
        void = self.eq(y, zero)
        safe, minus = self.select(void, one, y), None
        if d == np.uint16 and self.width > 1:
            return self._divmod_in_words(x, y, void, safe)
        if d.kind == "i" and d.itemsize >= 4:
            # The least integer over -1 is out of range.
            minus = self.eq(y, self.const(-1, d))
            safe = self.select(minus, one, safe)
        wide = np.dtype(np.int32 if d.itemsize < 4 else d)
        f = np.dtype(np.float32 if d.itemsize < 4 else np.float64)
        yf = self.cast(self.cast(y, wide), f)  # not `safe`: 1 / 0 raises the flag NumPy tells of
        half = self.copysign(self.const(0.5, f), yf)
        over = self.select(void, self.const(0, f), self.div(self.const(1, f), yf))
        if minus is not None:
            over = self.select(minus, self.const(0, f), over)
        if d.itemsize == 8:
            q = self.math("floored", x, safe, half, over)
        else:
            ratio = self.mul(self.add(self.cast(self.cast(x, wide), f), half), over)
            how = "fptosi" if wide.kind == "i" else "fptoui"
            q = self.cast(self._conv(how, self.floor(ratio), wide), d)
        if minus is not None:
            q = self.select(minus, self.neg(x), q)
        return q, self.select(void, zero, self.sub(x, self.mul(q, y)))

    def _divmod_in_words(self, x: Value, y: Value, void: Value, safe: Value) -> tuple[Value, Value]:
        """Quotient and remainder, in lanes of 16 bits: the upper half of a product is at most one short."""
        d, f, wide = x.dtype, np.dtype(np.float32), np.dtype(np.uint32)
        given = self.cast(y, f)  # not `safe`: 1 / 0 raises the flag NumPy tells of
        over = self.div(self.const(65535, f), given)
        most = self.cast(self._conv("fptoui", self.select(void, self.const(0, f), over), wide), d)
        product = self.mul(self.cast(x, wide), self.cast(most, wide))
        q = self.cast(self._op("lshr", wide, product, self.const(16, wide)), d)
        r = self.sub(x, self.mul(q, safe))
        short = self.and_(self.ge(r, safe), self.ne(y, self.const(0, d)))
        q = self.select(short, self.add(q, self.const(1, d)), q)
        r = self.select(short, self.sub(r, safe), r)
        return q, self.select(void, self.const(0, d), r)

    def _float_rest(self, x: Value, y: Value) -> Value:
        if self._has_functions:
            return self.math("fmod", x, y)
        return self._op("frem", x.dtype, x, y)

    def _float_divmod(self, x: Value, y: Value) -> tuple[Value, Value]:
        d = x.dtype
        zero, one, half = self.const(0, d), self.const(1, d), self.const(0.5, d)
        ratio = self.div(x, y)
        mod = self._float_rest(x, y)
        div = self.div(self.sub(x, mod), y)
        uneven = self.ne(mod, zero)
        wrong = self.and_(uneven, self.xor(self.lt(y, zero), self.lt(mod, zero)))
        mod_up = self.select(wrong, self.add(mod, y), mod)
        div = self.select(wrong, self.sub(div, one), div)
        mod_fixed = self.select(uneven, mod_up, self.copysign(zero, y))
        low = self.floor(div)
        near = self.select(self.gt(self.sub(div, low), half), self.add(low, one), low)
        quotient = self.select(self.ne(div, zero), near, self.copysign(zero, ratio))
        void = self.eq(y, zero)
        return self.select(void, ratio, quotient), self.select(void, mod, mod_fixed)

    def neg(self, x: Value) -> Value:
        """Return -x."""
        if x.dtype.kind == "f":
            return self._op("fneg", x.dtype, x)
        return self.sub(self.const(0, x.dtype), x)

    def abs(self, x: Value) -> Value:
        """Return the magnitude; the smallest integer stays."""
        if x.dtype.kind == "f":
            return self._intrinsic("fabs", x)
        if x.dtype.kind != "i":
            return x
        return self.select(self.lt(x, self.const(0, x.dtype)), self.neg(x), x)

    def sqrt(self, x: Value) -> Value:
        """Return the correctly rounded root."""
        return self._intrinsic("sqrt", x)

    def _round(self, name: str, x: Value) -> Value:
        return self._intrinsic(name, x) if x.dtype.kind == "f" else x

    def floor(self, x: Value) -> Value:
        """Round down."""
        return self._round("floor", x)

    def ceil(self, x: Value) -> Value:
        """Round up."""
        return self._round("ceil", x)

    def trunc(self, x: Value) -> Value:
        """Round towards zero."""
        return self._round("trunc", x)

    def rint(self, x: Value) -> Value:
        """Round to nearest, ties to even."""
        return self._round("rint", x)

    def copysign(self, x: Value, y: Value) -> Value:
        """Return the magnitude of x with the sign of y."""
        return self._intrinsic("copysign", x, y)

    # -- order --------------------------------------------------------------------------------

    def _extreme(self, ordered: str, x: Value, y: Value, nan_from: Value | None) -> Value:
        if x.dtype == BOOL:
            return self.and_(x, y) if ordered == "lt" else self.or_(x, y)
        best = self.select(self._compare(ordered, x, y), x, y)
        if x.dtype.kind != "f" or nan_from is None:
            return best
        return self.select(self._op("fcmp uno", BOOL, nan_from, nan_from), x, best)

    def minimum(self, x: Value, y: Value) -> Value:
        """Return the smaller, NaN if either is."""
        return self._extreme("lt", x, y, x)

    def maximum(self, x: Value, y: Value) -> Value:
        """Return the larger, NaN if either is."""
        return self._extreme("gt", x, y, x)

    def fmin(self, x: Value, y: Value) -> Value:
        """Return the smaller, ignoring a NaN."""
        return self._extreme("lt", x, y, y)

    def fmax(self, x: Value, y: Value) -> Value:
        """Return the larger, ignoring a NaN."""
        return self._extreme("gt", x, y, y)

    def _compare(self, name: str, x: Value, y: Value) -> Value:
        if x.dtype.kind == "f":
            return self._op(f"fcmp {'une' if name == 'ne' else 'o' + name}", BOOL, x, y)
        sign = "" if name in ("eq", "ne") else "s" if x.dtype.kind == "i" else "u"
        return self._op(f"icmp {sign}{name}", BOOL, x, y)

    def eq(self, x: Value, y: Value) -> Value:
        """Return x == y."""
        return self._compare("eq", x, y)

    def ne(self, x: Value, y: Value) -> Value:
        """Return x != y."""
        return self._compare("ne", x, y)

    def lt(self, x: Value, y: Value) -> Value:
        """Return x < y."""
        return self._compare("lt", x, y)

    def le(self, x: Value, y: Value) -> Value:
        """Return x <= y."""
        return self._compare("le", x, y)

    def gt(self, x: Value, y: Value) -> Value:
        """Return x > y."""
        return self._compare("gt", x, y)

    def ge(self, x: Value, y: Value) -> Value:
        """Return x >= y."""
        return self._compare("ge", x, y)

    # -- bits and choice ----------------------------------------------------------------------

    def and_(self, x: Value, y: Value) -> Value:
        """Return the bitwise and."""
        return self._op("and", x.dtype, x, y)

    def or_(self, x: Value, y: Value) -> Value:
        """Return the bitwise or."""
        return self._op("or", x.dtype, x, y)

    def xor(self, x: Value, y: Value) -> Value:
        """Return the bitwise exclusive or."""
        return self._op("xor", x.dtype, x, y)

    def not_(self, x: Value) -> Value:
        """Return the complement; bools: logical not."""
        return self.xor(x, self.const(True if x.dtype == BOOL else -1, x.dtype))

    def _shift(self, name: str, x: Value, y: Value, beyond: Value) -> Value:
        width = self.const(8 * x.dtype.itemsize, x.dtype)
        fits = self._op("icmp ult", BOOL, y, width)
        safe = self.select(fits, y, self.const(0, x.dtype))
        return self.select(fits, self._op(name, x.dtype, x, safe), beyond)

    def shl(self, x: Value, y: Value) -> Value:
        """Shift left; 0 from the width on."""
        return self._shift("shl", x, y, self.const(0, x.dtype))

    def shr(self, x: Value, y: Value) -> Value:
        """Shift right; the sign from the width on."""
        if x.dtype.kind != "i":
            return self._shift("lshr", x, y, self.const(0, x.dtype))
        top = self.const(8 * x.dtype.itemsize - 1, x.dtype)
        return self._shift("ashr", x, y, self._op("ashr", x.dtype, x, top))

    def select(self, c: Value, x: Value, y: Value) -> Value:
        """Return x where c, else y; also of complex numbers."""
        if x.dtype.kind == "c":
            pairs = zip(x.parts, y.parts, strict=True)
            return whole(x.dtype, [self.select(c, p, q) for p, q in pairs])
        kind = self.type(x.dtype)
        cond = f"{self.type(BOOL)} {c.text}"
        return Value(x.dtype, self.line(f"select {cond}, {kind} {x.text}, {kind} {y.text}"))

    def real(self, x: Value) -> Value:
        """Return the real parts."""
        return x.parts[0]

    def imag(self, x: Value) -> Value:
        """Return the imaginary parts."""
        return x.parts[1]

    def pair(self, re: Value, im: Value) -> Value:
        """Return complex numbers."""
        return whole(np.dtype(f"c{2 * re.dtype.itemsize}"), (re, im))

    def muladd(self, x: Value, y: Value, z: Value) -> Value:
        """Return x * y + z, rounded once where the processor can."""
        return self.math("muladd", x, y, z)

    def math(self, name: str, *xs: Value) -> Value:
        """Return the transcendental called `name` in NumPy."""
        if self._math_call is None:
            raise BackendError(f"no vector code for {name} of {xs[0].dtype}")
        return self._math_call(self, name, xs)


# Two numbers whose quotient raises the flag.
_RAISING = {"invalid": (0.0, 0.0), "divide": (1.0, 0.0), "overflow": (1e30, 1e-30)}

MathCall = Callable[[LlvmBuilder, str, Sequence[Value]], Value]
