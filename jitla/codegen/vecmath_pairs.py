"""Functions of two arguments: arctan2, hypot, logaddexp, logaddexp2.

Knows: how they follow from the functions of one argument. Must not know: kernels.
Each function receives a ``Code`` and two arguments and returns the result's value.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from jitla.codegen.vecmath_code import DOUBLE, Code, Value
from jitla.codegen.vecmath_exp import exp2_parts, exp_parts, halves_of_power
from jitla.codegen.vecmath_log import log_parts
from jitla.codegen.vecmath_tables import TABLES

__all__ = ["arctan2", "hypot", "logaddexp", "logaddexp2", "sum_in_two"]


def eighth_turn(code: Code) -> tuple[float, float]:
    """pi/4 in two numbers; the first times 3 is exact."""
    high, low = (0.25 * part for part in TABLES[code.form.bits]["PI"])
    step = 2.0 ** (2 - code.form.mantissa)
    short = math.floor(high / step) * step
    return short, code.nearest((high - short) + low)


def arctan2(code: Code, y: Value, x: Value) -> Value:
    """q*pi/4 + atan(t): t is y/x, (y - x)/(y + x) or -x/y, of magnitudes; all turned left of 0."""
    left, turned = code.negative(x.bits()), code.sign_of(x)
    a, b = code.abs(x), code.abs(y)
    # Sums of huge magnitudes overflow; what a quarter takes from tiny ones does not count beside them.
    most = 2.0 ** (code.form.bias - 1)
    factor = code.select((a > most) | (b > most), 0.25, code.value(1.0, "f"))
    a, b = a * factor, b * factor
    same = a.equals(b)  # two zeros and two infinities, too
    inner = (b < code.nearest(0.6) * a) | b.equals(0.0)
    outer = b > code.nearest(1.8) * a
    top = code.select(inner, b, code.select(outer, -a, b - a))
    bottom = code.select(inner, a, code.select(outer, b, b + a))
    t = code.select(same, 0.0, top) / code.select(same, 1.0, bottom)
    t = (t.bits() ^ turned).real()
    z = t * t
    tail = t * z * code.poly(z, TABLES[code.form.bits]["ATAN"])
    q = code.select(inner, 0.0, code.select(outer, 2.0, code.value(1.0, "f")))
    q = code.select(left, 4.0 - q, q)
    high, low = eighth_turn(code)
    base = q * high
    total = base + t
    result = total + (((base - total) + t) + (tail + q * low))
    return code.with_sign(result, code.sign_of(y))


def sum_in_two(a: Value, b: Value) -> tuple[Value, Value]:
    """The rounded sum and what rounding lost, whichever is larger."""
    total = a + b
    added = total - a
    return total, (a - (total - added)) + (b - added)


def hypot(code: Code, x: Value, y: Value) -> Value:
    """sqrt(x**2 + y**2): float32 in float64, float64 scaled where a square leaves the range."""
    if code.form is not DOUBLE:
        wide = code.sibling(DOUBLE)
        p, q = wide.convert(x), wide.convert(y)
        result = code.convert(wide.sqrt(p * p + q * q))
        return code.select(code.abs(x).equals(math.inf) | code.abs(y).equals(math.inf), math.inf, result)
    a, b = code.abs(x), code.abs(y)
    infinite = a.equals(math.inf) | b.equals(math.inf)
    first = a > b
    large, small = code.select(first, a, b), code.select(first, b, a)
    high, low = large > 2.0**500, large < 2.0**-400
    one = code.value(1.0, "f")
    factor = code.select(high, 2.0**-600, code.select(low, 2.0**600, one))
    back = code.select(high, 2.0**600, code.select(low, 2.0**-600, one))
    large, small = large * factor, small * factor
    # The larger square in two exact parts and a rest, so that little more than the root rounds.
    upper = code.upper_half(large)
    square = upper * upper
    rest = (large - upper) * (large + upper) + small * small
    total = square + rest
    return code.select(infinite, math.inf, code.sqrt(total) * back)


# Beyond these differences both e**-d and 2**-d are 0.
VANISHING = {64: 1080.0, 32: 152.0}
Parts = Callable[[Code, Value], tuple[Value, Value, Value]]


def larger_plus(
    code: Code, x: Value, y: Value, power: Parts, factor: tuple[float, float] | None
) -> Value:
    """The larger m of both, plus log(1 + base**-d) for their difference d, times the factor.

    The logarithm stays in two parts: m may nearly cancel it.
    """
    same, first = x.equals(y), x > y  # two infinities of one sign, too
    m, other = code.select(first, x, y), code.select(first, y, x)
    d = code.select(same, 0.0, m) - code.select(same, 0.0, other)
    gone = d > VANISHING[code.form.bits]  # tiny numbers on the way to 0 are slow
    n, total, rest = power(code, code.select(gone, 0.0, -d))
    power_of_d = total + rest
    half, half_too = halves_of_power(code, n)
    e = code.select(gone, 0.0, power_of_d * half * half_too)
    low = ((total - power_of_d) + rest) * half * half_too
    whole = 1.0 + e
    log, tail = log_parts(code, whole, (e - (whole - 1.0)) + low, e, low)
    if factor is not None:
        upper = code.upper_half(log)
        tail = ((log - upper) + tail) * factor[0] + (log + tail) * factor[1]
        log = upper * factor[0]
    result, lost = sum_in_two(m, log)
    result = code.select(code.abs(m) < math.inf, result + (lost + tail), m + d)
    # Of NaN NumPy's loops say that it is invalid; so does inf - inf.
    unknown = code.select(code.compare("uno", x, y), math.inf, code.value(0.0, "f"))
    return result - (unknown - unknown)


def logaddexp(code: Code, x: Value, y: Value) -> Value:
    """log(e**x + e**y)."""
    return larger_plus(code, x, y, exp_parts, None)


def logaddexp2(code: Code, x: Value, y: Value) -> Value:
    """log2(2**x + 2**y)."""
    high, low = TABLES[code.form.bits]["LOG2E_HALVES"]
    return larger_plus(code, x, y, exp2_parts, (high, low))
