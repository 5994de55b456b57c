"""The hyperbolic functions and their inverses: sinh, cosh, arcsinh, arccosh, arctanh.

Knows: how they follow from the exponential's reduction and the logarithm's kernel.
Must not know: kernels. Each function receives a ``Code`` and an argument; returns a value.
"""

from __future__ import annotations

import math

from .vecmath_code import Code, Value
from .vecmath_exp import power_of_two, reduce
from .vecmath_log import log1p_pair
from .vecmath_tables import TABLES

__all__ = ["arccosh", "arcsinh", "arctanh", "cosh", "sinh"]

# Just above the overflow: the exponent of the half-size power is still in range.
LIMIT = {64: 710.5, 32: 89.5}


def halves(code: Code, size: Value) -> tuple[Value, Value, Value, Value, Value]:
    """A quarter of 2**n - 2**-n and of 2**n + 2**-n, then r and the tails of cosh and sinh."""
    form, table = code.form, TABLES[code.form.bits]
    limit = LIMIT[form.bits]
    n, r, low = reduce(code, code.select(size > limit, limit, size))
    # Where 2**-n no longer counts it stops shrinking, so that it remains normal.
    most = form.magic + form.mantissa + 8
    capped = code.select(n.real() < most, n.real(), most).bits()
    up, down = power_of_two(code, n - 2), power_of_two(code, -2 - capped)
    z = r * r
    even = z * code.poly(z, table["COSH"])
    odd = r * z * code.poly(z, table["SINH"])
    return up - down, up + down, r, even, odd if low is None else odd + low


def sinh(code: Code, x: Value) -> Value:
    """Hyperbolic sine: p*cosh(r) + q*sinh(r), p = (2**n - 2**-n)/2, q = (2**n + 2**-n)/2."""
    size = code.abs(x)
    p, q, r, even, odd = halves(code, size)
    result = combined(p, q, r, p * even + q * odd)
    small = code.select(size < math.ldexp(1.0, -code.form.mantissa // 2 - 2), size, result)
    return code.with_sign(small, code.sign_of(x))


def cosh(code: Code, x: Value) -> Value:
    """Hyperbolic cosine: q*cosh(r) + p*sinh(r)."""
    p, q, r, even, odd = halves(code, code.abs(x))
    return combined(q, p, r, q * even + p * odd)


def combined(whole: Value, factor: Value, r: Value, tail: Value) -> Value:
    """2 * (whole + factor*r + tail), the first sum in two parts."""
    part = factor * r
    total = whole + part
    return 2.0 * (total + (((whole - total) + part) + tail))


def arcsinh(code: Code, x: Value) -> Value:
    """log(1 + x + x**2/(1 + sqrt(1 + x**2))); log(2x) where the square could overflow."""
    size = code.abs(x)
    huge = size > 2.0 ** (code.form.mantissa + 8)
    a = code.select(huge, 1.0, size)
    square = a * a
    more = square / (1.0 + code.sqrt(1.0 + square))
    total = a + more
    low = (a - total) + more
    result = log1p_pair(code, code.select(huge, size, total), low, huge)
    return code.with_sign(code.select(size < math.inf, result, size), code.sign_of(x))


def arccosh(code: Code, x: Value) -> Value:
    """log(1 + t + sqrt(2t + t**2)) with t = x - 1; log(2x) where the square could overflow."""
    huge = x > 2.0 ** (code.form.mantissa + 8)
    t = code.select(huge, 1.0, x - 1.0)
    root = code.sqrt(t + t + t * t)
    total = root + t
    low = (root - total) + t
    result = log1p_pair(code, code.select(huge, x, total), low, huge)
    result = code.select(x >= 1.0, result, math.nan)
    return code.select(x < math.inf, result, x)


def arctanh(code: Code, x: Value) -> Value:
    """k*ln2/2 + atanh(s), where (1 + x)/(1 - x) = 2**k * (1 + s)/(1 - s)."""
    form, table = code.form, TABLES[code.form.bits]
    size = code.abs(x)
    # log2 of the quotient from the difference of the bit patterns, biased to a small s.
    base = 2.0**form.mantissa
    above, below = 1.0 + size, 1.0 - size
    quotient = above.bits() - below.bits() + ((1 << form.mantissa) // 4)
    whole = (quotient >> form.mantissa) & (2 * form.bias + 1)
    k = (whole | form.pattern(base)).real() - base
    near = k.equals(0.0)
    power = power_of_two(code, whole)
    scaled = power * size
    s = ((scaled - (power - 1.0)) + size) / (power * below + above)
    s = code.select(near, size, s)
    z = s * s
    high, low = table["LN2_EXPONENT"]
    start = k * (0.5 * high)
    total = start + s
    tail = s * z * code.poly(z, table["ATANH"]) + k * (0.5 * low)
    result = total + (((start - total) + s) + tail)
    edge = code.select(size.equals(1.0), math.inf, code.value(math.nan, "f"))
    return code.with_sign(code.select(size < 1.0, result, edge), code.sign_of(x))
