"""The hyperbolic functions and their inverses: sinh, cosh, arcsinh, arccosh, arctanh.

Knows: how they follow from the exponential's reduction and the logarithm's kernel.
Must not know: kernels. Each function receives a ``Code`` and an argument; returns a value.
"""

from __future__ import annotations

import math

from jitla.codegen.vecmath_code import Code, Value
from jitla.codegen.vecmath_exp import power_of_two, reduce
from jitla.codegen.vecmath_log import log_pair
from jitla.codegen.vecmath_tables import TABLES

__all__ = ["arccosh", "arcsinh", "arctanh", "cosh", "sinh"]

# Just above the overflow: the exponent of the half-size power is still in range.
LIMIT = {64: 710.5, 32: 89.5}


def halves(code: Code, size: Value) -> tuple[Value, Value, Value, Value, Value]:
    """2**n/4, 2**-n/4, r, r**2, sinh(r) - r with |x| = n*ln2 + r."""
    form = code.form
    limit = LIMIT[form.bits]
    n, r, low = reduce(code, code.select(size > limit, limit, size))
    # Where 2**-n no longer counts it stops shrinking, so that it remains normal.
    most = form.magic + form.mantissa + 8
    capped = code.select(n.real() < most, n.real(), most).bits()
    up, down = power_of_two(code, n - 2), power_of_two(code, -2 - capped)
    z = r * r
    odd = r * z * code.poly(z, TABLES[form.bits]["SINH"])
    return up, down, r, z, odd if low is None else odd + low


def sinh(code: Code, x: Value) -> Value:
    """Hyperbolic sine: p*cosh(r) + q*sinh(r), p = (2**n - 2**-n)/2, q = (2**n + 2**-n)/2."""
    size = code.abs(x)
    up, down, r, z, odd = halves(code, size)
    p, q, left, right = up - down, up + down, up * r, down * r
    part = left + right
    even = z * code.poly(z, TABLES[code.form.bits]["COSH"])
    rest = (left - part) + right + (p * even + q * odd)
    total, lost = two_sum(p, part)
    result = 2.0 * (total + (lost + rest))
    small = size < math.ldexp(1.0, -code.form.mantissa // 2 - 2)
    return code.with_sign(code.select(small, size, result), code.sign_of(x))


def cosh(code: Code, x: Value) -> Value:
    """Hyperbolic cosine: q*cosh(r) + p*sinh(r).

    It is so flat near 0 that r**2 is taken in two parts, lest a neighbour fall below another.
    """
    up, down, r, z, odd = halves(code, code.abs(x))
    p, q, left, right = up - down, up + down, up * r, down * r
    part = left - right
    upper = code.upper_half(r)
    curve = 0.5 * q * (upper * upper)
    even = 0.5 * (r - upper) * (r + upper) + z * z * code.poly(
        z, TABLES[code.form.bits]["COSH"][1:]
    )
    rest = (left - part) - right + (q * even + p * odd)
    total, lost = two_sum(q, part)
    result, lost_too = two_sum(total, curve)
    return 2.0 * (result + (lost_too + (lost + rest)))


def two_sum(large: Value, small: Value) -> tuple[Value, Value]:
    """The rounded sum and what rounding lost; the first operand is the larger, or zero."""
    total = large + small
    return total, (large - total) + small


def arcsinh(code: Code, x: Value) -> Value:
    """log(x + root), root = sqrt(1 + x**2), as a large known part plus a quotient.

    Up to 1 that is 1 + x + x**2/(1 + root), beyond it 2x + 1/(x + root): the quotient's own
    rounding then counts little. log(2x) where the square could overflow.
    """
    size = code.abs(x)
    huge = size > 2.0 ** (code.form.mantissa + 8)
    a = code.select(huge, 1.0, size)
    large = size > 1.0
    square = a * a
    root = code.sqrt(1.0 + square)
    quotient = code.select(large, 1.0, square) / (code.select(large, a, 1.0) + root)
    near = a + quotient
    near_low = (a - near) + quotient
    whole = 1.0 + near
    twice = a + a
    total = twice + quotient
    u = code.select(huge, size, code.select(large, total, whole))
    lost = code.select(
        large, (twice - total) + quotient, (near - (whole - 1.0)) + near_low
    )
    result = log_pair(code, u, lost, near, near_low, huge)
    return code.with_sign(code.select(size < math.inf, result, size), code.sign_of(x))


def arccosh(code: Code, x: Value) -> Value:
    """log(1 + t + sqrt(2t + t**2)) with t = x - 1; log(2x) where the square could overflow."""
    huge = x > 2.0 ** (code.form.mantissa + 8)
    t = code.select(huge, 1.0, x - 1.0)
    twice, square = t + t, t * t
    total = twice + square
    root = code.sqrt(code.select(x < 1.0, -1.0, total))
    # What the sum and the root lost: near 1 the result is hardly more than the root.
    upper = code.upper_half(root)
    lower = root - upper
    residual = ((total - upper * upper) - (upper + upper) * lower) - lower * lower
    fix = (residual + ((twice - total) + square)) / (root + root + code.form.tiny)
    near = root + t
    near_low = ((root - near) + t) + fix
    whole = 1.0 + near
    lost = (near - (whole - 1.0)) + near_low
    result = log_pair(code, code.select(huge, x, whole), lost, near, near_low, huge)
    return code.select(x < math.inf, result, x)


def arctanh(code: Code, x: Value) -> Value:
    """k*ln2/2 + atanh(s), where (1 + x)/(1 - x) = 2**k * (1 + s)/(1 - s)."""
    form, table = code.form, TABLES[code.form.bits]
    whole_size = code.abs(x)
    size = code.select(whole_size < 1.0, whole_size, 0.5)
    pole = whole_size.equals(1.0)
    # log2 of the quotient from the difference of the bit patterns, biased to a small s.
    base = 2.0**form.mantissa
    above, below = 1.0 + size, 1.0 - size
    quotient = above.bits() - below.bits() + ((1 << form.mantissa) // 4)
    exponent = (quotient >> form.mantissa) & (2 * form.bias + 1)
    k = (exponent | form.pattern(base)).real() - base
    near = k.equals(0.0)
    power = power_of_two(code, exponent)
    scaled = power * size
    # 2**k*x - (2**k - 1), in the order that is exact.
    whole = code.select(size < 0.5, scaled - (power - 1.0), (scaled - power) + 1.0)
    s = (whole + size) / code.select(pole, 0.0, power * below + above)
    s = code.select(near, size, s)
    z = s * s
    high, low = table["LN2_EXPONENT"]
    start = k * (0.5 * high)
    total = start + s
    tail = s * z * code.poly(z, table["ATANH"]) + k * (0.5 * low)
    result = total + (((start - total) + s) + tail)
    # Beyond 1 NaN is made as inf - inf, so that the processor's flags tell of it.
    beyond = code.select(whole_size > 1.0, math.inf, whole_size)
    edge = code.select(pole, math.inf, beyond - beyond)
    return code.with_sign(code.select(whole_size < 1.0, result, edge), code.sign_of(x))
