"""The exponential family: exp, exp2, expm1, tanh.

Knows: reduction by ln 2, one polynomial, scaling by powers of two. Must not know: kernels.
Each function receives a ``Code`` and an argument and returns the result's value.
"""

from __future__ import annotations

import math

from jitla.codegen.vecmath_code import Code, Value
from jitla.codegen.vecmath_tables import TABLES

__all__ = [
    "exp", "exp2", "exp2_parts", "exp_parts", "expm1", "halves_of_power", "one_plus", "power_of_two",
    "reduce", "scale", "tanh",
]

# Beyond these the result is inf or 0 anyway, and the exponent still fits the scaling.
EXP_RANGE = {64: (-746.0, 710.0), 32: (-105.0, 89.0)}
EXP2_RANGE = {64: (-1076.0, 1025.0), 32: (-151.0, 129.0)}
EXPM1_RANGE = {64: (-38.0, 710.0), 32: (-18.0, 89.0)}
TANH_LIMIT = {64: 20.0, 32: 10.0}


def clamp(code: Code, x: Value, low: float, high: float) -> Value:
    """x within the bounds; NaN stays NaN."""
    x = code.select(x > high, high, x)
    return code.select(x < low, low, x)


def reduce_in_two(code: Code, x: Value) -> tuple[Value, Value, Value]:
    """x = n*ln2 + top - bottom: the integer n in the low bits of the first value, top (exact), bottom."""
    table = TABLES[code.form.bits]
    high, rest = table["LN2_EXPONENT"]
    shifted = x * table["LOG2E"][0] + code.form.magic
    n = shifted - code.form.magic
    return shifted.bits(), x - n * high, n * rest


def reduce(code: Code, x: Value) -> tuple[Value, Value, Value | None]:
    """x = n*ln2 + r + low: the integer n in the low bits of the first value, r, low.

    float32 may be off by 2.5 units and does without ``low``.
    """
    n, top, bottom = reduce_in_two(code, x)
    r = top - bottom
    return n, r, (top - r) - bottom if code.form.bits == 64 else None


def exp_tail(code: Code, r: Value, low: Value | None) -> Value:
    """What e**(r + low) has beyond 1 + r."""
    tail = (r * r) * code.poly(r, TABLES[code.form.bits]["EXP"])
    return tail if low is None else low + tail


def one_plus(r: Value, tail: Value) -> tuple[Value, Value]:
    """1 + r + tail as a rounded number and what is missing."""
    total = 1.0 + r
    return total, ((1.0 - total) + r) + tail


def power_of_two(code: Code, n: Value) -> Value:
    """2**n for an exponent within the normal range."""
    return ((n + code.form.bias) << code.form.mantissa).real()


def halves_of_power(code: Code, n: Value) -> tuple[Value, Value]:
    """Two powers of two whose product is 2**n, which need not be a normal number."""
    form = code.form
    doubled = n + 2 * form.bias
    half = doubled >> 1
    return (half << form.mantissa).real(), ((doubled - half) << form.mantissa).real()


def scale(code: Code, y: Value, n: Value) -> Value:
    """y * 2**n in two exact steps, so that only a subnormal result rounds."""
    first, second = halves_of_power(code, n)
    return y * first * second


def exp_parts(code: Code, x: Value) -> tuple[Value, Value, Value]:
    """n, y and what y lacks, with e**x = 2**n * (y + the rest)."""
    n, r, low = reduce(code, clamp(code, x, *EXP_RANGE[code.form.bits]))
    return n, *one_plus(r, exp_tail(code, r, low))


def exp(code: Code, x: Value) -> Value:
    """e**x. The small parts meet first, what 1 + top loses among them; none of that waits for the rest."""
    n, top, bottom = reduce_in_two(code, clamp(code, x, *EXP_RANGE[code.form.bits]))
    r = top - bottom
    tail = (r * r) * code.paired(r, TABLES[code.form.bits]["EXP"])
    if code.form.bits == 32:
        return scale(code, 1.0 + (r + tail), n)
    total = 1.0 + top
    return scale(code, total + (((1.0 - total) + top) + (tail - bottom)), n)


def exp2_parts(code: Code, x: Value, more: Value | None = None) -> tuple[Value, Value, Value]:
    """n, y and what y lacks, with 2**(x + more) = 2**n * (y + the rest); ``more`` is small.

    r*ln2 is formed exactly from halves.
    """
    table = TABLES[code.form.bits]
    x = clamp(code, x, *EXP2_RANGE[code.form.bits])
    shifted = x + code.form.magic
    r = x - (shifted - code.form.magic)
    upper = code.upper_half(r)
    high, remainder = table["LN2_HALVES"]
    lower = r - upper
    if more is not None:
        lower, r = lower + more, r + more
    low = lower * high + r * remainder
    tail = low + (r * r) * code.poly(r, table["EXP2"])
    return shifted.bits(), *one_plus(upper * high, tail)


def exp2(code: Code, x: Value) -> Value:
    """2**x."""
    n, total, rest = exp2_parts(code, x)
    return scale(code, total + rest, n)


def expm1(code: Code, x: Value) -> Value:
    """e**x - 1 = 2**n * (1 + r + tail) - 1, at half size so that 2**n does not overflow."""
    low_end, high_end = EXPM1_RANGE[code.form.bits]
    n, r, low = reduce(code, clamp(code, x, low_end, high_end))
    tail = exp_tail(code, r, low)
    half = power_of_two(code, n - 1)
    whole, part = half - 0.5, half * r
    total = whole + part
    result = 2.0 * (total + (((whole - total) + part) + half * tail))
    # Below this e**x - 1 rounds to x; keeps -0.0 and subnormals, which the halving would lose.
    small = math.ldexp(1.0, -code.form.mantissa - 2)
    return code.select(code.abs(x) < small, x, result)


def tanh(code: Code, x: Value) -> Value:
    """x + x**3*P/Q below 5/8, else (U - h*V)/(U + h*V), h = 2**-n and U/V = e**2r; one division serves both.

    U and V are Q + r*N and Q - r*N, where tanh(r) = r*N/Q. The second form is 1 - 2h plus a quotient, so
    that where tanh is flat no neighbour falls below its predecessor; r is from -0.26 to 0.09 for that, too.
    """
    form, table = code.form, TABLES[code.form.bits]
    size, limit = code.abs(x), TANH_LIMIT[code.form.bits]
    a = code.select(size > limit, limit, size)
    inner = a < 0.625
    nearest = (a * (2.0 * table["LOG2E"][0]) + 0.25) + form.magic
    shifted = code.select(inner, form.magic, nearest)
    high, rest = table["LN2_EXPONENT"]
    n = shifted - form.magic
    r = (a - n * (0.5 * high)) - n * (0.5 * rest)
    h = ((code.value(form.bias, "i") - shifted.bits()) << form.mantissa).real()
    z = r * r
    bottom = code.poly(z, table["TANH_Q"])
    odd = r * z * code.poly(z, table["TANH_P"])
    top = r * bottom + odd
    upper, lower = bottom + top, h * (bottom - top)
    outer = (h + h) * ((top + top) + lower)
    quotient = code.select(inner, odd + odd, outer) / (upper + lower)
    base = code.select(inner, r, 1.0 - (h + h))
    return code.with_sign(base + quotient, code.sign_of(x))
