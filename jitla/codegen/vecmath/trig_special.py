"""Vector code of trigonometric, error and logistic functions, cbrt, hypot and logaddexp."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from itertools import count

from jitla.codegen.vecmath.builder import DOUBLE, CodeBuilder, SSAValue
from jitla.codegen.vecmath.coefficients import TABLES, TWO_OVER_PI_WORDS
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
    split,
)

__all__ = [
    "arccos", "arcsin", "arctan", "arctan2", "cbrt", "cos", "definitions", "erf", "erfc", "expit",
    "hypot", "log_expit", "logaddexp", "logaddexp2", "logit", "ndtr", "sin", "sum_in_two", "tan",
    "xlog1py", "xlogy",
]


# --------------------------------------------------------------------------- trigonometric functions


def half_angle(code: CodeBuilder, x: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
    """|x|, whether it is below 1/2, y and the tail with asin(y) = y + tail.

    y is |x| below 1/2, else sqrt((1 - |x|)/2).
    """
    size = code.abs(x)
    inner = size < 0.5
    half = 0.5 - 0.5 * size
    z = code.select(inner, size * size, half)
    y = code.select(inner, size, code.sqrt(half))
    return size, inner, y, y * z * code.poly(z, TABLES[code.form.bits]["ASIN"])


def arcsin(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """y + tail, or pi/2 - 2*(y + tail)."""
    _, inner, y, tail = half_angle(code, x)
    high, low = (0.5 * part for part in TABLES[code.form.bits]["PI"])
    twice = -2.0 * y
    total = high + twice
    outer = total + (((high - total) + twice) + (low - 2.0 * tail))
    return code.with_sign(code.select(inner, y + tail, outer), code.sign_of(x))


def arccos(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """pi/2 - asin(x), 2*asin(y), or pi - 2*asin(y)."""
    _, inner, y, tail = half_angle(code, x)
    high, low = (0.5 * part for part in TABLES[code.form.bits]["PI"])
    sign = code.sign_of(x)
    negative = x < 0.0
    # Start from pi/2, 0 or pi and add y with the right sign and factor.
    start = code.select(inner, high, code.select(negative, 2.0 * high, 0.0))
    rest = code.select(inner, low, code.select(negative, 2.0 * low, 0.0))
    flip = code.select(inner, -1.0, code.value(2.0, "f")).bits() ^ sign
    factor = flip.real()
    step = factor * y
    total = start + step
    return total + (((start - total) + step) + (rest + factor * tail))


def arctan(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """base + atan(t): t is x, (x - 1)/(x + 1) or -1/x; one division serves all."""
    table = TABLES[code.form.bits]
    size = code.abs(x)
    inner, outer = size < 0.6, size > 1.8
    top = code.select(inner, size, code.select(outer, -1.0, size - 1.0))
    bottom = code.select(inner, 1.0, code.select(outer, size, size + 1.0))
    t = top / bottom
    z = t * t
    tail = t * z * code.poly(z, table["ATAN"])
    high, low = (0.25 * part for part in table["PI"])
    base = code.select(inner, 0.0, code.select(outer, 2.0 * high, code.value(high, "f")))
    rest = code.select(inner, 0.0, code.select(outer, 2.0 * low, code.value(low, "f")))
    total = base + t
    result = total + (((base - total) + t) + (tail + rest))
    return code.with_sign(result, code.sign_of(x))


def cbrt(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """A short guess t, the residual m - t**3 exactly from halves, one step of Halley's rule."""
    form, table = code.form, TABLES[code.form.bits]
    size = code.abs(x)
    k, m = split(code, size)
    shifted = k * code.nearest(1.0 / 3.0) + form.magic
    rest = k - 3.0 * (shifted - form.magic)
    root = table["CBRT2"][0]
    below, above = rest < 0.0, rest > 0.0
    guess = code.poly(m, table["CBRT"]) * code.select(
        below, code.nearest(1.0 / root), code.select(above, root, code.value(1.0, "f"))
    )
    m = m * code.select(below, 0.5, code.select(above, 2.0, code.value(1.0, "f")))
    t = code.upper_half(guess)
    square = t * t
    upper = code.upper_half(square)
    residual = (m - upper * t) - (square - upper) * t
    y = t + (t * residual) / ((square + square) * t + m)
    y = y * power_of_two(code, shifted.bits())
    y = code.select(size.equals(0.0), size, code.select(size < math.inf, y, size))
    return code.with_sign(y, code.sign_of(x))


NEAR = 2.0**20


def sin(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """Sine."""
    return circular(code, x, "sin")


def cos(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """Cosine."""
    return circular(code, x, "cos")


def tan(code: CodeBuilder, x: SSAValue) -> SSAValue:
    """Tangent."""
    return circular(code, x, "tan")


def circular(code: CodeBuilder, x: SSAValue, name: str) -> SSAValue:
    """The near value, corrected by a call where a lane is far; float32 is done in float64."""
    if code.form is DOUBLE:
        size = code.abs(x)
        near = finish(code, name, *reduce(code, size), code.sign_of(x))
    else:
        wide = code.sibling(DOUBLE)
        y = wide.convert(x)
        near = code.convert(finish_short(wide, name, *reduce_short(wide, wide.abs(y)), y))
    t = code.type("f")
    return code.push(f"call {t} @{far_symbol(code, name)}({t} {x.name}, {t} {near.name})", "f")


def far_symbol(code: CodeBuilder, name: str) -> str:
    """Name of the function that corrects far lanes."""
    return f"far_{name}_f{code.form.bits}x{code.width}"


def reduce(code: CodeBuilder, size: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    """|x| = q*pi/2 + r + low: q in the low bits, r and low."""
    table = TABLES[64]
    shifted = size * table["TWO_OVER_PI"][0] + code.form.magic
    q = shifted - code.form.magic
    first, second, third, fourth = table["HALF_PI"]
    a = size - q * first
    b = q * second
    rough = a - b
    c = q * third
    r = rough - c
    low = ((a - rough) - b) + (((rough - r) - c) - q * fourth)
    return shifted.bits(), r, low


def reduce_short(code: CodeBuilder, size: SSAValue) -> tuple[SSAValue, SSAValue]:
    """|x| = q*pi/2 + r for an argument that came from float32."""
    table = TABLES[64]
    shifted = size * table["TWO_OVER_PI"][0] + code.form.magic
    q = shifted - code.form.magic
    first, second = table["HALF_PI_SHORT"]
    return shifted.bits(), (size - q * first) - q * second


def parts(code: CodeBuilder, r: SSAValue, low: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
    """sin(r + low) and cos(r + low), each as a large part and a small one."""
    z = r * r
    half = 0.5 * z
    w = 1.0 - half
    sine = r * z * code.paired(z, TABLES[64]["SIN"]) + low * w
    cosine = ((1.0 - w) - half) + (z * z * code.paired(z, TABLES[64]["COS"]) - r * low)
    return r, sine, w, cosine


def odd_quadrant(code: CodeBuilder, q: SSAValue) -> SSAValue:
    """Mask of the lanes whose quadrant is odd."""
    return code.negative(q << 63)


def sine_sign(q: SSAValue, sign: SSAValue) -> SSAValue:
    """The sign of a sine in quadrant q, combined with another sign."""
    return ((q & 2) << 62) ^ sign


def finish(code: CodeBuilder, name: str, q: SSAValue, r: SSAValue, low: SSAValue, sign: SSAValue) -> SSAValue:
    """The function of q*pi/2 + r + low, with the argument's sign."""
    r, sine, w, cosine = parts(code, r, low)
    if name == "tan":
        return finish_tan(code, odd_quadrant(code, q), (r, sine), (w, cosine), sign)
    if name == "cos":
        q, sign = q + 1, code.value(0, "i")
    odd = odd_quadrant(code, q)
    result = code.select(odd, w, r) + code.select(odd, cosine, sine)
    return (result.bits() ^ sine_sign(q, sign)).real()


def finish_tan(
    code: CodeBuilder, odd: SSAValue, sine: tuple[SSAValue, SSAValue], cosine: tuple[SSAValue, SSAValue],
    sign: SSAValue
) -> SSAValue:
    """sin/cos or -cos/sin, numerator and denominator in two parts."""
    s, c = sine[0] + sine[1], cosine[0] + cosine[1]
    s_low, c_low = (sine[0] - s) + sine[1], (cosine[0] - c) + cosine[1]
    top, bottom = code.select(odd, c, s), code.select(odd, s, c)
    top_low, bottom_low = code.select(odd, c_low, s_low), code.select(odd, s_low, c_low)
    quotient = top / bottom
    # The division's own remainder, exactly from halves: without it tan is not monotone.
    upper, wide = code.upper_half(quotient), code.upper_half(bottom)
    lower, narrow = quotient - upper, bottom - wide
    remainder = ((top - upper * wide) - upper * narrow) - lower * wide - lower * narrow
    result = quotient + (remainder + (top_low - quotient * bottom_low)) / bottom
    flip = code.select(odd, code.value(-DOUBLE.sign, "i"), code.value(0, "i"))
    return (result.bits() ^ (flip ^ sign)).real()


def finish_short(code: CodeBuilder, name: str, q: SSAValue, r: SSAValue, y: SSAValue) -> SSAValue:
    """The function of q*pi/2 + r to float32's accuracy."""
    z = r * r
    table = TABLES[64]
    sine = r + r * z * code.paired(z, table["SIN_SHORT"])
    cosine = (1.0 - 0.5 * z) + z * z * code.paired(z, table["COS_SHORT"])
    sign = code.sign_of(y)
    if name == "cos":
        q, sign = q + 1, code.value(0, "i")
    odd = odd_quadrant(code, q)
    if name == "tan":
        result = code.select(odd, cosine, sine) / code.select(odd, sine, cosine)
        flip = code.select(odd, code.value(-DOUBLE.sign, "i"), code.value(0, "i"))
        return (result.bits() ^ (flip ^ sign)).real()
    return (code.select(odd, cosine, sine).bits() ^ sine_sign(q, sign)).real()


def definitions(code: CodeBuilder, name: str) -> dict[str, str]:
    """What the module has to define, by symbol: the digits, one far lane, far vectors."""
    words = ", ".join(f"i64 {w - (w >> 63 << 64)}" for w in TWO_OVER_PI_WORDS)
    digits = f"@jitla_digits = internal constant [20 x i64] [{words}]\n"
    return {
        "jitla_digits": digits,
        "jitla_turns": far_reduction(),
        f"jitla_{name}_far": far_lane(name),
        slow_symbol(code, name): slow_vector(code, name),
        far_symbol(code, name): far_vector(code, name),
    }


def slow_symbol(code: CodeBuilder, name: str) -> str:
    """Name of the function that far lanes are left to."""
    return f"jitla_{name}_slow_f{code.form.bits}x{code.width}"


def far_vector(code: CodeBuilder, name: str) -> str:
    """Corrects the lanes beyond the near range, if there are any."""
    w, t = code.width, code.type("f")
    numbers = count()
    test = CodeBuilder(code.form, w, lambda hint: f"%t{next(numbers)}")
    far = test.abs(SSAValue(test, "%x", "f")) > NEAR
    lines = [*test.lines]
    some = far.name
    if w > 1:
        some = "%any"
        lines += [f"%mask = bitcast <{w} x i1> {far.name} to i{w}", f"%any = icmp ne i{w} %mask, 0"]
    lines += [
        f"br i1 {some}, label %slow, label %done", "done:", f"ret {t} %near", "slow:",
        f"%right = tail call {t} @{slow_symbol(code, name)}({t} %x, {t} %near)", f"ret {t} %right",
    ]
    body = "\n".join(f"  {line}" for line in lines)
    symbol = far_symbol(code, name)
    return (
        f"define internal {t} @{symbol}({t} %x, {t} %near) noinline nounwind {{\n{body}\n}}\n"
    )


def slow_vector(code: CodeBuilder, name: str) -> str:
    """Corrects a vector one lane after the other."""
    w, t, real = code.width, code.type("f"), code.form.real
    far = f"@jitla_{name}_far"
    fixed = [f"%r = call double {far}(double %x1, double %near1)"]
    if real != "double":
        fixed = [
            "%x2 = fpext float %x1 to double", "%near2 = fpext float %near1 to double",
            f"%r2 = call double {far}(double %x2, double %near2)",
            "%r = fptrunc double %r2 to float",
        ]
    body = "\n".join(f"  {line}" for line in fixed)
    return f"""define internal {t} @{slow_symbol(code, name)}({t} %x, {t} %near) noinline cold {{
entry:
  %xs = alloca {t}, align 64
  %nears = alloca {t}, align 64
  store {t} %x, ptr %xs, align 64
  store {t} %near, ptr %nears, align 64
  br label %lane
lane:
  %i = phi i64 [ 0, %entry ], [ %next, %lane ]
  %from = getelementptr {real}, ptr %xs, i64 %i
  %to = getelementptr {real}, ptr %nears, i64 %i
  %x1 = load {real}, ptr %from
  %near1 = load {real}, ptr %to
{body}
  store {real} %r, ptr %to
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, {w}
  br i1 %more, label %lane, label %done
done:
  %all = load {t}, ptr %nears, align 64
  ret {t} %all
}}
"""


PARTS = "{ i64, double, double }"  # a number as quadrants and the rest in two parts


def far_lane(name: str) -> str:
    """One number of any size; near and non-finite ones keep their value."""
    numbers = count()
    code = CodeBuilder(DOUBLE, 1, lambda hint: f"%v{next(numbers)}")
    x = SSAValue(code, "%x", "f")
    size = code.abs(x)
    code.lines += [
        f"%beyond = fcmp ogt double {size.name}, 0x{DOUBLE.pattern(NEAR):016X}",
        f"%finite = fcmp olt double {size.name}, 0x7FF0000000000000",
        "%far = and i1 %beyond, %finite",
        "br i1 %far, label %slow, label %done",
        "done:",
        "ret double %near",
        "slow:",
        f"%turns = call {PARTS} @jitla_turns(double {size.name})",
    ]
    q, r, rest = (code.push(f"extractvalue {PARTS} %turns, {k}", kind)
                  for k, kind in enumerate("iff"))
    result = finish(code, name, q, r, rest, code.sign_of(x))
    body = "\n".join(f"  {line}" for line in (*code.lines, f"ret double {result.name}"))
    return (
        f"define internal double @jitla_{name}_far(double %x, double %near) noinline cold"
        f" {{\n{body}\n}}\n"
    )


@cache
def far_reduction() -> str:
    """A finite number beyond the near range in quadrants."""
    numbers = count()
    code = CodeBuilder(DOUBLE, 1, lambda hint: f"%v{next(numbers)}")
    whole = SSAValue(code, "%x", "f").bits()
    mantissa = (whole & (2**52 - 1)) | 2**52
    # The first digit that counts: those before it contribute multiples of four.
    start = (whole >> 52) - (1075 - 62)
    q, sign, high, low = fraction(code, mantissa, start)
    r, rest = times_half_pi(code, high, low)
    result = "poison"
    for k, v in enumerate((q, (r.bits() ^ sign).real(), (rest.bits() ^ sign).real())):
        kind = "i64" if v.kind == "i" else "double"
        result = code.push(f"insertvalue {PARTS} {result}, {kind} {v.name}, {k}", "i").name
    body = "\n".join(f"  {line}" for line in (*code.lines, f"ret {PARTS} {result}"))
    return f"define internal {PARTS} @jitla_turns(double %x) noinline cold {{\n{body}\n}}\n"


def fraction(
    code: CodeBuilder, mantissa: SSAValue, start: SSAValue
) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
    """mantissa times 192 digits from ``start``, modulo 4: the nearest integer, the sign of
    the rest, and its size as two numbers."""
    word, shift = start >> 6, start & 63
    words = []
    for i in range(4):
        at = word + i
        place = code.fresh("p")
        code.lines.append(f"{place} = getelementptr i64, ptr @jitla_digits, i64 {at.name}")
        words.append(code.push(f"load i64, ptr {place}", "i"))
    window = [
        code.push(
            f"call i64 @llvm.fshl.i64(i64 {a.name}, i64 {b.name}, i64 {shift.name})", "i"
        )
        for a, b in zip(words, words[1:], strict=False)
    ]
    long = partial(code.push, kind="i")
    m, *w = (long(f"zext i64 {v.name} to i128").name for v in (mantissa, *window))
    low, middle, high = (long(f"mul i128 {m}, {v}").name for v in reversed(w))
    carried = long(f"lshr i128 {low}, 64").name
    summed = long(f"add i128 {middle}, {carried}").name
    lifted = long(f"shl i128 {high}, 64").name
    total = long(f"add i128 {lifted}, {summed}").name
    rounded = long(f"add i128 {total}, {1 << 125}").name
    quadrant = long(f"lshr i128 {rounded}, 126").name
    q = long(f"trunc i128 {quadrant} to i64")
    whole = long(f"shl i128 {quadrant}, 126").name
    rest = long(f"sub i128 {total}, {whole}").name
    top = long(f"lshr i128 {rest}, 64").name
    sign = long(f"trunc i128 {top} to i64") & -DOUBLE.sign
    size = long(f"call i128 @llvm.abs.i128(i128 {rest}, i1 false)").name
    zeros = long(f"call i128 @llvm.ctlz.i128(i128 {size}, i1 false)").name
    moved = long(f"shl i128 {size}, {zeros}").name
    pieces = []
    for distance in (75, 22):
        cut = long(f"lshr i128 {moved}, {distance}").name
        piece = long(f"trunc i128 {cut} to i64") & (2**53 - 1)
        pieces.append(code.push(f"sitofp i64 {piece.name} to double", "f"))
    count_ = long(f"trunc i128 {zeros} to i64")
    unit = ((1023 - 51 - count_) << 52).real()
    return q, sign, pieces[0] * unit, pieces[1] * (unit * 2.0**-53)


def times_half_pi(code: CodeBuilder, high: SSAValue, low: SSAValue) -> tuple[SSAValue, SSAValue]:
    """(high + low) * pi/2 as two numbers; the main product is exact from halves."""
    pi, pi_low = (0.5 * part for part in TABLES[64]["PI"])
    upper = code.upper_half(high)
    lower = high - upper
    constant = code.upper_half(code.value(pi, "f"))
    remainder = pi - constant
    product = high * pi
    error = ((upper * constant - product) + upper * remainder) + lower * constant
    error = error + lower * remainder
    return product, error + (high * pi_low + low * pi)


# --------------------------------------------------------- functions of two arguments, and special functions


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
