"""Vector code of exponentials, logarithms, hyperbolic functions and powers."""

from __future__ import annotations

import math

from jitla.codegen.native.symbols import loop_call_text
from jitla.codegen.vecmath.builder import DOUBLE, CodeBuilder, SSAValue
from jitla.codegen.vecmath.coefficients import TABLES

__all__ = [
    "above_one", "arccosh", "arcsinh", "arctanh", "cosh", "edges", "exp", "exp2", "exp2_parts",
    "exp_parts", "expm1", "halves_of_power", "log", "log10", "log10_near", "log1p", "log2", "log2_near",
    "log_near", "log_pair", "log_parts", "one_plus", "power", "power_body", "power_of_two", "reduce",
    "scale", "sinh", "split", "tanh",
]


# Beyond these the result is inf or 0 anyway, and the exponent still fits the scaling.
EXP_RANGE = {64: (-746.0, 710.0), 32: (-105.0, 89.0)}
EXP2_RANGE = {64: (-1076.0, 1025.0), 32: (-151.0, 129.0)}
EXPM1_RANGE = {64: (-38.0, 710.0), 32: (-18.0, 89.0)}
TANH_LIMIT = {64: 20.0, 32: 10.0}


def clamp(code: CodeBuilder, x: SSAValue, low: float, high: float) -> SSAValue:
    """x within the bounds; NaN stays NaN."""
    x = code.select(x > high, high, x)
    return code.select(x < low, low, x)


def reduce_in_two(code: CodeBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    """x = n*ln2 + top - bottom: the integer n in the low bits of the first value, top (exact), bottom."""
    table = TABLES[code.form.bits]
    high, rest = table["LN2_EXPONENT"]
    shifted = x * table["LOG2E"][0] + code.form.magic
    n = shifted - code.form.magic
    return shifted.bits(), x - n * high, n * rest


def reduce(code: CodeBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue | None]:
    """x = n*ln2 + r + low: the integer n in the low bits of the first value, r, low.

    float32 may be off by 2.5 units and does without ``low``.
    """
    n, top, bottom = reduce_in_two(code, x)
    r = top - bottom
    return n, r, (top - r) - bottom if code.form.bits == 64 else None


def exp_tail(code: CodeBuilder, r: SSAValue, low: SSAValue | None) -> SSAValue:
    """What e**(r + low) has beyond 1 + r."""
    tail = (r * r) * code.poly(r, TABLES[code.form.bits]["EXP"])
    return tail if low is None else low + tail


def one_plus(r: SSAValue, tail: SSAValue) -> tuple[SSAValue, SSAValue]:
    """1 + r + tail as a rounded number and what is missing."""
    total = 1.0 + r
    return total, ((1.0 - total) + r) + tail


def power_of_two(code: CodeBuilder, n: SSAValue) -> SSAValue:
    """2**n for an exponent within the normal range."""
    return ((n + code.form.bias) << code.form.mantissa).real()


def halves_of_power(code: CodeBuilder, n: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Two powers of two whose product is 2**n, which need not be a normal number."""
    form = code.form
    doubled = n + 2 * form.bias
    half = doubled >> 1
    return (half << form.mantissa).real(), ((doubled - half) << form.mantissa).real()


def scale(code: CodeBuilder, y: SSAValue, n: SSAValue) -> SSAValue:
    """y * 2**n in two exact steps, so that only a subnormal result rounds."""
    first, second = halves_of_power(code, n)
    return y * first * second


def exp_parts(code: CodeBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    """n, y and what y lacks, with e**x = 2**n * (y + the rest)."""
    n, r, low = reduce(code, clamp(code, x, *EXP_RANGE[code.form.bits]))
    return n, *one_plus(r, exp_tail(code, r, low))


def exp(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """e**x. The small parts meet first, what 1 + top loses among them; none of that waits for the rest."""
    n, top, bottom = reduce_in_two(code, clamp(code, x, *EXP_RANGE[code.form.bits]))
    r = top - bottom
    tail = (r * r) * code.paired(r, TABLES[code.form.bits]["EXP"])
    if code.form.bits == 32:
        return scale(code, 1.0 + (r + tail), n)
    total = 1.0 + top
    return scale(code, total + (((1.0 - total) + top) + (tail - bottom)), n)


def exp2_parts(
    code: CodeBuilder, x: SSAValue, more: SSAValue | None = None
) -> tuple[SSAValue, SSAValue, SSAValue]:
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


def exp2(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """2**x."""
    n, total, rest = exp2_parts(code, x)
    return scale(code, total + rest, n)


def expm1(code: CodeBuilder, x: SSAValue) -> SSAValue:
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


def tanh(code: CodeBuilder, x: SSAValue) -> SSAValue:
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


def split(code: CodeBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
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


def kernel(code: CodeBuilder, f: SSAValue) -> tuple[SSAValue, SSAValue]:
    """log(1 + f) = f - (first - second); both small."""
    half_square = 0.5 * f * f
    s = f / (2.0 + f)
    z = s * s
    rest = z * code.paired(z, TABLES[code.form.bits]["LOG"])
    return half_square, s * (half_square + rest)


def above_one(code: CodeBuilder, x: SSAValue, m: SSAValue) -> SSAValue:
    """m - 1, and -2 where x is 0: the kernel then divides by zero and ends at -inf."""
    return code.select(x.equals(0.0), -2.0, m - 1.0)


def edges(code: CodeBuilder, x: SSAValue, result: SSAValue) -> SSAValue:
    """The result with NaN below 0, inf and NaN passed through.

    NaN is made as inf - inf: the processor's flags tell of a domain error, as NumPy's do.
    """
    outside = code.select(x < 0.0, math.inf, code.value(0.0, "f"))
    return code.select(x < math.inf, result - (outside - outside), x)


def log(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """Natural logarithm."""
    k, m = split(code, x)
    return edges(code, x, whole_log(code, k, above_one(code, x, m)))


def whole_log(code: CodeBuilder, k: SSAValue, f: SSAValue) -> SSAValue:
    """k*ln2 + log(1 + f)."""
    high, low = TABLES[code.form.bits]["LN2_EXPONENT"]
    first, second = kernel(code, f)
    whole = k * high
    total = whole + f
    lost = (whole - total) + f
    return total + (lost - (first - (second + k * low)))


def split_near(code: CodeBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
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


def log_near(code: CodeBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Natural logarithm, and what is negative where `log` has to be asked."""
    k, f, far = split_near(code, x)
    return whole_log(code, k, f), far


def other_base(
    code: CodeBuilder, x: SSAValue, factor: str, exponent: tuple[float, float]
) -> SSAValue:
    """Logarithm to another base."""
    k, m = split(code, x)
    result = other_log(code, k, above_one(code, x, m), factor, exponent)
    # The two parts have infinities of both signs at 0.
    return edges(code, x, code.select(x.equals(0.0), -math.inf, result))


def other_log(
    code: CodeBuilder, k: SSAValue, f: SSAValue, factor: str, exponent: tuple[float, float]
) -> SSAValue:
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


def log2(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """Logarithm to base 2."""
    return other_base(code, x, "LOG2E_HALVES", (1.0, 0.0))


def log2_near(code: CodeBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Logarithm to base 2, and what is negative where `log2` has to be asked."""
    k, f, far = split_near(code, x)
    return other_log(code, k, f, "LOG2E_HALVES", (1.0, 0.0)), far


def log10(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """Logarithm to base 10."""
    high, low = TABLES[code.form.bits]["LOG10_2_EXPONENT"]
    return other_base(code, x, "LOG10E_HALVES", (high, low))


def log10_near(code: CodeBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Logarithm to base 10, and what is negative where `log10` has to be asked."""
    k, f, far = split_near(code, x)
    exponent = TABLES[code.form.bits]["LOG10_2_EXPONENT"]
    return other_log(code, k, f, "LOG10E_HALVES", (exponent[0], exponent[1])), far


def log1p(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """log(1 + x)."""
    u = 1.0 + x
    result = log_pair(code, u, x - (u - 1.0), x)
    # The sign of zero is lost where 1 is added; beyond -1 the answer is NaN anyway.
    signed = (result.bits() | code.sign_of(x)).real()
    return edges(code, u, code.select(x < 0.5, signed, result))


def log_pair(
    code: CodeBuilder,
    u: SSAValue,
    lost: SSAValue,
    near: SSAValue,
    near_low: SSAValue | float = 0.0,
    doubled: SSAValue | None = None,
) -> SSAValue:
    """log(u + lost), as `log_parts` makes it, in one number."""
    total, rest = log_parts(code, u, lost, near, near_low, doubled)
    return total + rest


def log_parts(
    code: CodeBuilder,
    u: SSAValue,
    lost: SSAValue,
    near: SSAValue,
    near_low: SSAValue | float = 0.0,
    doubled: SSAValue | None = None,
) -> tuple[SSAValue, SSAValue]:
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


# Just above the overflow: the exponent of the half-size power is still in range.
LIMIT = {64: 710.5, 32: 89.5}


def halves(code: CodeBuilder, size: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue, SSAValue]:
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


def sinh(code: CodeBuilder, x: SSAValue) -> SSAValue:
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


def cosh(code: CodeBuilder, x: SSAValue) -> SSAValue:
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


def two_sum(large: SSAValue, small: SSAValue) -> tuple[SSAValue, SSAValue]:
    """The rounded sum and what rounding lost; the first operand is the larger, or zero."""
    total = large + small
    return total, (large - total) + small


def arcsinh(code: CodeBuilder, x: SSAValue) -> SSAValue:
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


def arccosh(code: CodeBuilder, x: SSAValue) -> SSAValue:
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


def arctanh(code: CodeBuilder, x: SSAValue) -> SSAValue:
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


def parity(code: CodeBuilder, y: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Masks of the exponents that are odd integers, and of those that are no integers."""
    even = 2.0 ** (code.form.mantissa + 1)  # adding it rounds to an even integer
    size = code.abs(y)
    size = code.select(size < even, size, even)
    off = code.abs(size - ((size + even) - even))
    return off.equals(1.0), code.compare("one", off, 0.0) & code.compare("one", off, 1.0)


def power_body(code: CodeBuilder, name: str) -> list[str]:
    """Return the lines of a function that computes x**y of the vectors %x and %y, as the ufunc `name` does.

    Elements with whole exponents are NumPy's, whatever is beside them.
    """
    x, y = SSAValue(code, "%x", "f"), SSAValue(code, "%y", "f")
    vector, lanes = code.type("f"), code.width
    room, lines = loop_call_text(name, code.form.bits, lanes, vector)
    whole = whole_lanes(code, y)
    some, every = whole.name, whole.name
    if lanes > 1:
        word = code.push(f"bitcast {code.type('m')} {whole.name} to i{lanes}", "m").name
        some = code.push(f"icmp ne i{lanes} {word}, 0", "m").name
        every = code.push(f"icmp eq i{lanes} {word}, -1", "m").name
    first, code.lines = code.lines, []
    mine = power(code, x, y)
    mixed = code.select(whole, SSAValue(code, "%numpy.of", "f"), mine)
    return [
        *room, *first, f"br i1 {some}, label %numpy, label %own",
        "numpy:", *lines, f"br i1 {every}, label %ready, label %own", "ready:", f"ret {vector} %loop.of",
        "own:", f"%numpy.of = phi {vector} [ %loop.of, %numpy ], [ %x, %entry ]", *code.lines,
        f"ret {vector} {mixed.name}",
    ]


def whole_lanes(code: CodeBuilder, y: SSAValue) -> SSAValue:
    """Mask of the exponents that are whole numbers."""
    even = 2.0**code.form.mantissa  # adding it rounds to a whole number
    size = code.abs(y)
    size = code.select(size < even, size, even)
    return ((size + even) - even).equals(size) & code.compare("ord", y, y)


def power(code: CodeBuilder, x: SSAValue, y: SSAValue) -> SSAValue:
    """x**y."""
    a = code.abs(x)
    odd, broken = parity(code, y)
    zero, down = a.equals(0.0), y < 0.0
    unknown = code.compare("uno", x, y)
    ending = zero | a.equals(math.inf)
    # What is computed in vain raises no flags, and has no tiny results, which processors make slowly.
    known = code.select(unknown | ending, 0.0, y)
    way = of_doubles if code.form is DOUBLE else of_singles
    magnitude = way(code, a, known, zero & down)
    # A negative base to no integer is inf - inf: the processor's flags tell of it.
    outside = code.select((x < 0.0) & broken, math.inf, code.value(0.0, "f"))
    magnitude = magnitude - (outside - outside)
    edge = code.select(zero, code.select(down, math.inf, code.value(0.0, "f")),
                       code.select(down, 0.0, code.value(math.inf, "f")))
    magnitude = code.select(ending, edge, magnitude)
    result = (magnitude.bits() | (code.select(odd, code.sign_of(x), code.value(0, "i")))).real()
    result = code.select(unknown, x + y, result)
    return code.select(x.equals(1.0) | y.equals(0.0), 1.0, result)


def of_singles(code: CodeBuilder, a: SSAValue, y: SSAValue, pole: SSAValue) -> SSAValue:
    """a**y of positive float32, in float64: both roundings are too small to be seen."""
    wide = code.sibling(DOUBLE)
    table = TABLES[64]
    y = clamp(code, y, -(2.0**100), 2.0**100)  # an infinite one times the logarithm of 1 is no number
    base = DOUBLE.pattern(math.sqrt(0.5))
    one = DOUBLE.pattern(1.0)
    moved = wide.convert(a).bits() + (one - base)
    m = ((moved & ((1 << 52) - 1)) + base).real()
    k = ((moved >> 52) | DOUBLE.pattern(2.0**52)).real() - (2.0**52 + 1023)
    f = m - 1.0
    s = f / wide.select(pole, 0.0, m + 1.0)
    z = s * s
    log = k + s * wide.poly(z, table["POW_LOG2_SHORT"])
    power = clamp(wide, log * wide.convert(y), -200.0, 200.0)
    shifted = power + DOUBLE.magic
    r = power - (shifted - DOUBLE.magic)
    return code.convert(wide.poly(r, table["POW_EXP2_SHORT"]) * power_of_two(wide, shifted.bits()))


def of_doubles(code: CodeBuilder, a: SSAValue, y: SSAValue, pole: SSAValue) -> SSAValue:
    """a**y of positive float64, from a logarithm right to 2**-66 of it."""
    high, low = log2_parts(code, a, pole)
    # Beyond this every power but that of 1 is 0 or inf, and no product leaves the range.
    limit = 2.0**65
    size = code.abs(y)
    y = (code.select(size < limit, size, limit).bits() | code.sign_of(y)).real()
    upper = code.upper_half(y)
    main = upper * high
    rest = (y - upper) * high + y * low
    total = main + rest
    far = code.abs(total) > 2000.0
    n, whole, part = exp2_parts(
        code, total, code.select(far, 0.0, (main - total) + rest))
    return scale(code, whole + part, n)


def log2_parts(code: CodeBuilder, a: SSAValue, pole: SSAValue) -> tuple[SSAValue, SSAValue]:
    """log2(a) as half a mantissa and what it lacks: k + log2(e)*2/3 * s*(3 + z + ...), z = s*s.

    s = (m - 1)/(m + 1) is wanted to twice the precision; its upper half has an exact square.
    """
    table = TABLES[64]
    k, m = split(code, a)
    f, d = m - 1.0, m + 1.0
    d_lost = f - (d - 2.0)
    inverse = 1.0 / code.select(pole, 0.0, d)
    s = f * inverse
    s_high = code.upper_half(s)
    d_high = code.upper_half(d)
    s_low = ((f - s_high * d_high) - s_high * ((d - d_high) + d_lost)) * inverse
    z_high = s_high * s_high
    z_low = s_low * (s_high + s_high + s_low)
    z = z_high + z_low
    r = z * z * code.poly(z, table["POW_LOG"]) + z_low
    t_high = code.upper_half((3.0 + z_high) + r)
    t_low = r - ((t_high - 3.0) - z_high)
    u, v = s_high * t_high, s_low * t_high + t_low * (s_high + s_low)
    p_high = code.upper_half(u + v)
    p_low = v - (p_high - u)
    c_high, c_low = table["POW_LOG2E"]
    main, rest = p_high * c_high, p_high * c_low + p_low * (c_high + c_low)
    high = code.upper_half(k + (main + rest))
    return high, ((k - high) + main) + rest
