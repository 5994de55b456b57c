"""SciPy's functions: erf, erfc, ndtr, expit, log_expit, logit, xlogy, xlog1py.

Knows: how they follow from the exponential and the logarithm. Must not know: kernels, SciPy.
Each function receives a ``Code`` and its arguments and returns the result's value.
"""

from __future__ import annotations

import math

from jitla.codegen.vecmath_code import Code, Value
from jitla.codegen.vecmath_exp import (
    exp_parts,
    exp_tail,
    halves_of_power,
    one_plus,
    power_of_two,
    scale,
)
from jitla.codegen.vecmath_log import log, log1p, log_parts
from jitla.codegen.vecmath_pairs import sum_in_two
from jitla.codegen.vecmath_tables import TABLES

__all__ = ["erf", "erfc", "expit", "log_expit", "logit", "ndtr", "xlog1py", "xlogy"]

# Beyond these erf is 1, and erfc 0.
ERF_LIMIT = {64: 6.5, 32: 4.5}
ERFC_LIMIT = {64: 27.5, 32: 10.5}
NDTR_LIMIT = {64: 38.875, 32: 14.75}


def below(code: Code, size: Value, limit: float) -> Value:
    """The size, or the limit; NaN stays NaN."""
    return code.select(size > limit, limit, size)


def erf_tail(code: Code, a: Value) -> Value:
    """erf(a) - a, for |a| below 1/2."""
    z = a * a
    return a * code.poly(z, TABLES[code.form.bits]["ERF"])


def erfc_parts(
    code: Code, square: Value, more: Value, a: Value, low: Value | float = 0.0
) -> tuple[Value, Value]:
    """n and y with erfc(a + low) = 2**n * y, for a from 1/2 on; its square is given in two parts.

    It is e**(-a*a - 1/2) * (1 + W) / (a + 1/2), W below 0.08 a polynomial in (a - 3)/(a + 3).
    """
    table = TABLES[code.form.bits]
    high, remainder = table["LN2_EXPONENT"]
    shifted = code.form.magic - (square + 0.5) * table["LOG2E"][0]
    n = shifted - code.form.magic
    start, rest = (-square - n * high) - 0.5, n * remainder + more
    r = start - rest
    total, lost = one_plus(r, exp_tail(code, r, (start - r) - rest))
    w = code.poly((a - 3.0) / (a + 3.0), table["ERFCX"])
    under = a + 0.5
    more = lost + (total + lost) * w
    top = total + more
    return shifted.bits(), quotient(
        code, top, under, (0.5 - (under - a)) + low, (total - top) + more)


def quotient(
    code: Code, top: Value, bottom: Value, low: Value, top_low: Value | None = None
) -> Value:
    """(top + top_low)/(bottom + low), little more than rounded once."""
    inverse = 1.0 / bottom
    y = top * inverse
    upper, under = code.upper_half(y), code.upper_half(bottom)
    rest = ((top - upper * under) - (y - upper) * under) - y * ((bottom - under) + low)
    rest = rest if top_low is None else rest + top_low
    return y + rest * inverse


def parted_square(code: Code, a: Value) -> tuple[Value, Value]:
    """a*a as an exact square and what it lacks."""
    upper = code.upper_half(a)
    return upper * upper, (a - upper) * (a + upper)


def erf(code: Code, x: Value) -> Value:
    """The error function: x + x*P(x*x) below 1/2, else 1 - erfc."""
    size = code.abs(x)
    a = below(code, size, ERF_LIMIT[code.form.bits])
    n, y = erfc_parts(code, *parted_square(code, a), a)
    outer = 1.0 - y * power_of_two(code, n)
    result = code.select(size < 0.5, size + erf_tail(code, a), outer)
    return code.with_sign(result, code.sign_of(x))


def erfc(code: Code, x: Value) -> Value:
    """1 - erf, with all digits in the tail."""
    size = code.abs(x)
    a = below(code, size, ERFC_LIMIT[code.form.bits])
    n, y = erfc_parts(code, *parted_square(code, a), a)
    tail = scale(code, y, n)
    central = size < 0.5
    outer = code.select(x < 0.0, 2.0 - tail, tail)
    near = code.select(central, x, 0.0)
    total = 1.0 - near
    return code.select(
        central, total + (((1.0 - total) - near) - erf_tail(code, near)), outer)


def ndtr(code: Code, x: Value) -> Value:
    """The normal distribution: erfc(-x/sqrt(2))/2, from the square of x itself."""
    high, low = TABLES[code.form.bits]["ROOT_HALF"]
    whole = below(code, code.abs(x), NDTR_LIMIT[code.form.bits])
    upper = code.upper_half(whole)
    a = whole * code.nearest(high + low)
    rest = ((upper * high - a) + (whole - upper) * high) + whole * low
    square, more = parted_square(code, whole)
    n, y = erfc_parts(code, 0.5 * square, 0.5 * more, a, rest)
    tail = scale(code, y, n - 1)
    left = x < 0.0
    step, more = 0.5 * a, 0.5 * (erf_tail(code, a) + rest)
    step, more = code.select(left, -step, step), code.select(left, -more, more)
    total = 0.5 + step
    near = total + (((0.5 - total) + step) + more)
    return code.select(a < 0.5, near, code.select(left, tail, 1.0 - tail))


def expit(code: Code, x: Value) -> Value:
    """1/(1 + e**-x); below 0 e**x/(1 + e**x), so that small results keep their digits."""
    e, low = small_power(code, x)
    left = x < 0.0
    whole = 1.0 + e
    lost = (e - (whole - 1.0)) + low
    return quotient(code, code.select(left, e, 1.0), whole, lost, code.select(left, low, 0.0))


def small_power(code: Code, x: Value) -> tuple[Value, Value]:
    """e**-|x| and what it lacks."""
    n, total, rest = exp_parts(code, -code.abs(x))
    y = total + rest
    half, half_too = halves_of_power(code, n)
    return y * half * half_too, ((total - y) + rest) * half * half_too


def log_expit(code: Code, x: Value) -> Value:
    """log(expit(x)): -log(1 + e**-x), below 0 x - log(1 + e**x)."""
    e, low = small_power(code, x)
    whole = 1.0 + e
    log_of_whole, rest = log_parts(code, whole, (e - (whole - 1.0)) + low, e, low)
    total, lost = sum_in_two(log_of_whole, code.select(x < 0.0, -x, 0.0))
    result = -(total + (lost + rest))
    return code.select(x > -math.inf, result, x)


def logit(code: Code, x: Value) -> Value:
    """log(x/(1 - x)): with p the smaller of both k*ln2 + 2*atanh(s), 1 - p = 2**k*p * (1 + s)/(1 - s)."""
    form, table = code.form, TABLES[code.form.bits]
    left = x < 0.5
    p = code.select(left, x, 1.0 - x)  # exact
    known = code.select(p > 0.0, p, 0.5)
    lift = form.mantissa + 2
    subnormal = known < form.tiny
    known = known * code.select(subnormal, 2.0**lift, code.value(1.0, "f"))
    most = 1.0 - p
    # log2 of the quotient from the difference of the bit patterns, biased to a small s.
    base = 2.0**form.mantissa
    exponent = most.bits() - known.bits() + ((1 << form.mantissa) // 4)
    exponent = (exponent >> form.mantissa) & (2 * form.bias + 1)
    k = (exponent | form.pattern(base)).real() - base
    scaled = known * power_of_two(code, exponent)
    near = k.equals(0.0)
    # Near 1/2 the difference is exact, and the sum 1.
    s = (code.select(near, 1.0 - (p + p), most - scaled)) / code.select(near, 1.0, most + scaled)
    z = s * s
    high, low = table["LN2_EXPONENT"]
    k = k + code.select(subnormal, float(lift), 0.0)
    start = k * (0.5 * high)
    total = start + s
    tail = s * z * code.poly(z, table["ATANH"]) + k * (0.5 * low)
    result = 2.0 * (total + (((start - total) + s) + tail))
    edge = code.select(p.equals(0.0), math.inf, code.value(math.nan, "f"))
    result = code.select(p > 0.0, result, edge)
    return code.select(left, -result, result)


def xlogy(code: Code, x: Value, y: Value) -> Value:
    """x*log(y), 0 where x is 0 and y is a number."""
    none = x.equals(0.0) & code.compare("ord", y, y)
    return code.select(none, 0.0, x * log(code, code.select(none, 1.0, y)))


def xlog1py(code: Code, x: Value, y: Value) -> Value:
    """x*log(1 + y), 0 where x is 0 and y is a number."""
    none = x.equals(0.0) & code.compare("ord", y, y)
    return code.select(none, 0.0, x * log1p(code, code.select(none, 0.0, y)))
