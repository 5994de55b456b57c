"""Vector code of trigonometric functions and their inverses."""

from __future__ import annotations

import math
from functools import cache, partial
from itertools import count

from jitla.codegen.vecmath.builder import DOUBLE, CodeBuilder, SSAValue
from jitla.codegen.vecmath.coefficients import TABLES, TWO_OVER_PI_WORDS
from jitla.codegen.vecmath.exp_log import power_of_two, split

__all__ = ["arccos", "arcsin", "arctan", "cbrt", "cos", "definitions", "sin", "tan"]


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
