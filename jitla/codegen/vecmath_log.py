"""The logarithms: log, log2, log10, log1p.

Knows: splitting off the exponent, log((1+s)/(1-s)), sums in two parts. Must not know: kernels.
Each function receives a ``Code`` and an argument and returns the result's value.
"""

from __future__ import annotations

import math

from jitla.codegen.vecmath_code import Code, Value
from jitla.codegen.vecmath_tables import TABLES

__all__ = [
    "above_one", "edges", "log", "log1p", "log2", "log2_near", "log10", "log10_near", "log_near", "log_pair",
    "log_parts", "split",
]


def split(code: Code, x: Value) -> tuple[Value, Value]:
    """x = 2**k * m with sqrt(1/2) <= m < sqrt(2), for positive finite x."""
    form = code.form
    root = form.pattern(math.sqrt(0.5))
    lift = form.mantissa + 2
    subnormal = x < form.tiny
    scaled = x * code.select(subnormal, 2.0**lift, code.value(1.0, "f"))  # never overflows
    moved = scaled.bits() + (form.pattern(1.0) - root)
    m = ((moved & ((1 << form.mantissa) - 1)) + root).real()
    base = 2.0**form.mantissa
    offset = code.select(subnormal, base + form.bias + lift, base + form.bias)
    k = ((moved >> form.mantissa) | form.pattern(base)).real() - offset
    return k, m


def kernel(code: Code, f: Value) -> tuple[Value, Value]:
    """log(1 + f) = f - (first - second); both small."""
    half_square = 0.5 * f * f
    s = f / (2.0 + f)
    z = s * s
    rest = z * code.paired(z, TABLES[code.form.bits]["LOG"])
    return half_square, s * (half_square + rest)


def above_one(code: Code, x: Value, m: Value) -> Value:
    """m - 1, and -2 where x is 0: the kernel then divides by zero and ends at -inf."""
    return code.select(x.equals(0.0), -2.0, m - 1.0)


def edges(code: Code, x: Value, result: Value) -> Value:
    """The result with NaN below 0, inf and NaN passed through.

    NaN is made as inf - inf: the processor's flags tell of a domain error, as NumPy's do.
    """
    outside = code.select(x < 0.0, math.inf, code.value(0.0, "f"))
    return code.select(x < math.inf, result - (outside - outside), x)


def log(code: Code, x: Value) -> Value:
    """Natural logarithm."""
    k, m = split(code, x)
    return edges(code, x, whole_log(code, k, above_one(code, x, m)))


def whole_log(code: Code, k: Value, f: Value) -> Value:
    """k*ln2 + log(1 + f)."""
    high, low = TABLES[code.form.bits]["LN2_EXPONENT"]
    first, second = kernel(code, f)
    whole = k * high
    total = whole + f
    lost = (whole - total) + f
    return total + (lost - (first - (second + k * low)))


def split_near(code: Code, x: Value) -> tuple[Value, Value, Value]:
    """k and m - 1 as of `split`, and what is negative unless x is positive, normal and not huge."""
    form = code.form
    root, unit = form.pattern(math.sqrt(0.5)), 1 << form.mantissa
    # One more in the exponent: what is infinite becomes negative.
    moved = x.bits() + (form.pattern(1.0) - root + unit)
    far = moved | (x.bits() - unit)
    m = ((moved & (unit - 1)) + root).real()
    base = 2.0**form.mantissa
    k = ((moved >> form.mantissa) | form.pattern(base)).real() - (base + form.bias + 1)
    return k, m - 1.0, far


def log_near(code: Code, x: Value) -> tuple[Value, Value]:
    """Natural logarithm, and what is negative where `log` has to be asked."""
    k, f, far = split_near(code, x)
    return whole_log(code, k, f), far


def other_base(
    code: Code, x: Value, factor: str, exponent: tuple[float, float]
) -> Value:
    """Logarithm to another base."""
    k, m = split(code, x)
    result = other_log(code, k, above_one(code, x, m), factor, exponent)
    # The two parts have infinities of both signs at 0.
    return edges(code, x, code.select(x.equals(0.0), -math.inf, result))


def other_log(
    code: Code, k: Value, f: Value, factor: str, exponent: tuple[float, float]
) -> Value:
    """k*log(2) + log(1 + f) to another base: the latter in two parts times the factor in two parts."""
    first, second = kernel(code, f)
    upper = code.upper_half(f - first)
    lower = ((f - upper) - first) + second
    high, low = TABLES[code.form.bits][factor]
    whole, main = k * exponent[0], upper * high
    rest = (lower + upper) * low + lower * high
    if exponent[1]:
        rest = k * exponent[1] + rest
    total = whole + main
    return total + (((whole - total) + main) + rest)


def log2(code: Code, x: Value) -> Value:
    """Logarithm to base 2."""
    return other_base(code, x, "LOG2E_HALVES", (1.0, 0.0))


def log2_near(code: Code, x: Value) -> tuple[Value, Value]:
    """Logarithm to base 2, and what is negative where `log2` has to be asked."""
    k, f, far = split_near(code, x)
    return other_log(code, k, f, "LOG2E_HALVES", (1.0, 0.0)), far


def log10(code: Code, x: Value) -> Value:
    """Logarithm to base 10."""
    high, low = TABLES[code.form.bits]["LOG10_2_EXPONENT"]
    return other_base(code, x, "LOG10E_HALVES", (high, low))


def log10_near(code: Code, x: Value) -> tuple[Value, Value]:
    """Logarithm to base 10, and what is negative where `log10` has to be asked."""
    k, f, far = split_near(code, x)
    exponent = TABLES[code.form.bits]["LOG10_2_EXPONENT"]
    return other_log(code, k, f, "LOG10E_HALVES", (exponent[0], exponent[1])), far


def log1p(code: Code, x: Value) -> Value:
    """log(1 + x)."""
    u = 1.0 + x
    result = log_pair(code, u, x - (u - 1.0), x)
    # The sign of zero is lost where 1 is added; beyond -1 the answer is NaN anyway.
    signed = (result.bits() | code.sign_of(x)).real()
    return edges(code, u, code.select(x < 0.5, signed, result))


def log_pair(
    code: Code,
    u: Value,
    lost: Value,
    near: Value,
    near_low: Value | float = 0.0,
    doubled: Value | None = None,
) -> Value:
    """log(u + lost), as `log_parts` makes it, in one number."""
    total, rest = log_parts(code, u, lost, near, near_low, doubled)
    return total + rest


def log_parts(
    code: Code,
    u: Value,
    lost: Value,
    near: Value,
    near_low: Value | float = 0.0,
    doubled: Value | None = None,
) -> tuple[Value, Value]:
    """log(u + lost), plus ln 2 where ``doubled``; ``lost`` is at most a rounding error of u.

    Where u is in [sqrt(1/2), sqrt(2)), u + lost is given more exactly as 1 + near + near_low.
    The second of the two parts is what the first lacks.
    """
    form = code.form
    k, m = split(code, u)
    flat = k.equals(0.0)
    # Far out a lost 1 no longer counts, and 2**-k would leave the normal range.
    far = u > 2.0 ** (form.mantissa + 1)
    exponent = (k + form.magic).bits()
    inverse = ((form.bias - exponent) << form.mantissa).real()
    lost = code.select(far, 0.0, lost * inverse)
    f = code.select(flat, near, above_one(code, u, m))
    lost = code.select(flat, near_low, lost) * (1.0 - f * (1.0 - f))
    if doubled is not None:
        k = code.select(doubled, k + 1.0, k)
    high, rest = TABLES[form.bits]["LN2_EXPONENT"]
    first, second = kernel(code, f)
    whole = k * high
    total = whole + f
    remainder = ((whole - total) + f) + lost
    return total, remainder - (first - (second + k * rest))
