"""Vector code of special functions, in double-double arithmetic where needed."""

from __future__ import annotations

import math
from collections.abc import Callable

from jitla.codegen.vecmath.builder import DOUBLE, CodeBuilder, SSAValue
from jitla.codegen.vecmath.coefficients import TABLES
from jitla.codegen.vecmath.exp_log import (
    exp2_parts,
    exp_parts,
    exp_tail,
    halves_of_power,
    log,
    log1p,
    log_parts,
    one_plus,
    power_of_two,
    scale,
)

__all__ = [
    "arctan2", "erf", "erfc", "expit", "hypot", "log_expit", "logaddexp", "logaddexp2", "logit", "ndtr",
    "sum_in_two", "xlog1py", "xlogy",
]


def quarter_pi(code: CodeBuilder) -> tuple[float, float]:
    """pi/4 in two numbers; the first times 3 is exact."""
    high, low = (0.25 * part for part in TABLES[code.form.bits]["PI"])
    step = 2.0 ** (2 - code.form.mantissa)
    short = math.floor(high / step) * step
    return short, code.nearest((high - short) + low)


def arctan2(code: CodeBuilder, y: SSAValue, x: SSAValue) -> SSAValue:
    """q*pi/4 + atan(t): t is y/x, (y - x)/(y + x) or -x/y, of magnitudes; all turned left of 0."""
    left, sine_sign = code.negative(x.bits()), code.sign_of(x)
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
    t = (t.bits() ^ sine_sign).real()
    z = t * t
    tail = t * z * code.poly(z, TABLES[code.form.bits]["ATAN"])
    q = code.select(inner, 0.0, code.select(outer, 2.0, code.value(1.0, "f")))
    q = code.select(left, 4.0 - q, q)
    high, low = quarter_pi(code)
    base = q * high
    total = base + t
    result = total + (((base - total) + t) + (tail + q * low))
    return code.with_sign(result, code.sign_of(y))


def sum_in_two(a: SSAValue, b: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The rounded sum and what rounding lost, whichever is larger."""
    total = a + b
    added = total - a
    return total, (a - (total - added)) + (b - added)


def hypot(code: CodeBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
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
Parts = Callable[[CodeBuilder, SSAValue], tuple[SSAValue, SSAValue, SSAValue]]


def larger_plus(
    code: CodeBuilder, x: SSAValue, y: SSAValue, power: Parts, factor: tuple[float, float] | None
) -> SSAValue:
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


def logaddexp(code: CodeBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    """log(e**x + e**y)."""
    return larger_plus(code, x, y, exp_parts, None)


def logaddexp2(code: CodeBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    """log2(2**x + 2**y)."""
    high, low = TABLES[code.form.bits]["LOG2E_HALVES"]
    return larger_plus(code, x, y, exp2_parts, (high, low))


# Beyond these erf is 1, and erfc 0.
ERF_LIMIT = {64: 6.5, 32: 4.5}
ERFC_LIMIT = {64: 27.5, 32: 10.5}
NDTR_LIMIT = {64: 38.875, 32: 14.75}


def below(code: CodeBuilder, size: SSAValue, limit: float) -> SSAValue:
    """The size, or the limit; NaN stays NaN."""
    return code.select(size > limit, limit, size)


def erf_tail(code: CodeBuilder, a: SSAValue) -> SSAValue:
    """erf(a) - a, for |a| below 1/2."""
    z = a * a
    return a * code.poly(z, TABLES[code.form.bits]["ERF"])


def erfc_parts(
    code: CodeBuilder, square: SSAValue, more: SSAValue, a: SSAValue, low: SSAValue | float = 0.0
) -> tuple[SSAValue, SSAValue]:
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
    code: CodeBuilder, top: SSAValue, bottom: SSAValue, low: SSAValue, top_low: SSAValue | None = None
) -> SSAValue:
    """(top + top_low)/(bottom + low), little more than rounded once."""
    inverse = 1.0 / bottom
    y = top * inverse
    upper, under = code.upper_half(y), code.upper_half(bottom)
    rest = ((top - upper * under) - (y - upper) * under) - y * ((bottom - under) + low)
    rest = rest if top_low is None else rest + top_low
    return y + rest * inverse


def parted_square(code: CodeBuilder, a: SSAValue) -> tuple[SSAValue, SSAValue]:
    """a*a as an exact square and what it lacks."""
    upper = code.upper_half(a)
    return upper * upper, (a - upper) * (a + upper)


def erf(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """The error function: x + x*P(x*x) below 1/2, else 1 - erfc."""
    size = code.abs(x)
    a = below(code, size, ERF_LIMIT[code.form.bits])
    n, y = erfc_parts(code, *parted_square(code, a), a)
    outer = 1.0 - y * power_of_two(code, n)
    result = code.select(size < 0.5, size + erf_tail(code, a), outer)
    return code.with_sign(result, code.sign_of(x))


def erfc(code: CodeBuilder, x: SSAValue) -> SSAValue:
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


def ndtr(code: CodeBuilder, x: SSAValue) -> SSAValue:
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


def expit(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """1/(1 + e**-x); below 0 e**x/(1 + e**x), so that small results keep their digits."""
    e, low = small_power(code, x)
    left = x < 0.0
    whole = 1.0 + e
    lost = (e - (whole - 1.0)) + low
    return quotient(code, code.select(left, e, 1.0), whole, lost, code.select(left, low, 0.0))


def small_power(code: CodeBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """e**-|x| and what it lacks."""
    n, total, rest = exp_parts(code, -code.abs(x))
    y = total + rest
    half, half_too = halves_of_power(code, n)
    return y * half * half_too, ((total - y) + rest) * half * half_too


def log_expit(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """log(expit(x)): -log(1 + e**-x), below 0 x - log(1 + e**x)."""
    e, low = small_power(code, x)
    whole = 1.0 + e
    log_of_whole, rest = log_parts(code, whole, (e - (whole - 1.0)) + low, e, low)
    total, lost = sum_in_two(log_of_whole, code.select(x < 0.0, -x, 0.0))
    result = -(total + (lost + rest))
    return code.select(x > -math.inf, result, x)


def logit(code: CodeBuilder, x: SSAValue) -> SSAValue:
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


def xlogy(code: CodeBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    """x*log(y), 0 where x is 0 and y is a number."""
    none = x.equals(0.0) & code.compare("ord", y, y)
    return code.select(none, 0.0, x * log(code, code.select(none, 1.0, y)))


def xlog1py(code: CodeBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    """x*log(1 + y), 0 where x is 0 and y is a number."""
    none = x.equals(0.0) & code.compare("ord", y, y)
    return code.select(none, 0.0, x * log1p(code, code.select(none, 0.0, y)))
