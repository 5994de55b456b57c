"""The power of two floats: 2**(y*log2(x)), the logarithm in two parts; by whole numbers NumPy's own loop.

Knows: C's special values of pow. Must not know: kernels.
Receives a ``Code``, base and exponent; returns the result's value, or the text of a function.

Programs compare powers by small whole numbers, and subtract neighbours: these have NumPy's bits, which only
its own loop has on every processor.
"""

from __future__ import annotations

import math

from jitla.codegen.ufunc_loops import call_text
from jitla.codegen.vecmath_code import DOUBLE, Code, Value
from jitla.codegen.vecmath_exp import clamp, exp2_parts, power_of_two, scale
from jitla.codegen.vecmath_log import split
from jitla.codegen.vecmath_tables import TABLES

__all__ = ["power", "power_body"]


def parity(code: Code, y: Value) -> tuple[Value, Value]:
    """Masks of the exponents that are odd integers, and of those that are no integers."""
    even = 2.0 ** (code.form.mantissa + 1)  # adding it rounds to an even integer
    size = code.abs(y)
    size = code.select(size < even, size, even)
    off = code.abs(size - ((size + even) - even))
    return off.equals(1.0), code.compare("one", off, 0.0) & code.compare("one", off, 1.0)


def power_body(code: Code, name: str) -> list[str]:
    """Return the lines of a function that computes x**y of the vectors %x and %y, as the ufunc `name` does.

    Elements with whole exponents are NumPy's, whatever is beside them.
    """
    x, y = Value(code, "%x", "f"), Value(code, "%y", "f")
    vector, lanes = code.type("f"), code.width
    room, lines = call_text(name, code.form.bits, lanes, vector)
    whole = whole_lanes(code, y)
    some, every = whole.name, whole.name
    if lanes > 1:
        word = code.push(f"bitcast {code.type('m')} {whole.name} to i{lanes}", "m").name
        some = code.push(f"icmp ne i{lanes} {word}, 0", "m").name
        every = code.push(f"icmp eq i{lanes} {word}, -1", "m").name
    first, code.lines = code.lines, []
    mine = power(code, x, y)
    mixed = code.select(whole, Value(code, "%numpy.of", "f"), mine)
    return [
        *room, *first, f"br i1 {some}, label %numpy, label %own",
        "numpy:", *lines, f"br i1 {every}, label %ready, label %own", "ready:", f"ret {vector} %loop.of",
        "own:", f"%numpy.of = phi {vector} [ %loop.of, %numpy ], [ %x, %entry ]", *code.lines,
        f"ret {vector} {mixed.name}",
    ]


def whole_lanes(code: Code, y: Value) -> Value:
    """Mask of the exponents that are whole numbers."""
    even = 2.0**code.form.mantissa  # adding it rounds to a whole number
    size = code.abs(y)
    size = code.select(size < even, size, even)
    return ((size + even) - even).equals(size) & code.compare("ord", y, y)


def power(code: Code, x: Value, y: Value) -> Value:
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


def of_singles(code: Code, a: Value, y: Value, pole: Value) -> Value:
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


def of_doubles(code: Code, a: Value, y: Value, pole: Value) -> Value:
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


def log2_parts(code: Code, a: Value, pole: Value) -> tuple[Value, Value]:
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
