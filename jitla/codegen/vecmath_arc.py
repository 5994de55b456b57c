"""The inverse trigonometric functions and the cube root: arcsin, arccos, arctan, cbrt.

Knows: reduction to a short interval, polynomials in x**2. Must not know: kernels.
Each function receives a ``Code`` and an argument and returns the result's value.
"""

from __future__ import annotations

import math

from jitla.codegen.vecmath_code import Code, Value
from jitla.codegen.vecmath_exp import power_of_two
from jitla.codegen.vecmath_log import split
from jitla.codegen.vecmath_tables import TABLES

__all__ = ["arccos", "arcsin", "arctan", "cbrt"]


def half_angle(code: Code, x: Value) -> tuple[Value, Value, Value, Value]:
    """|x|, whether it is below 1/2, y and the tail with asin(y) = y + tail.

    y is |x| below 1/2, else sqrt((1 - |x|)/2).
    """
    size = code.abs(x)
    inner = size < 0.5
    half = 0.5 - 0.5 * size
    z = code.select(inner, size * size, half)
    y = code.select(inner, size, code.sqrt(half))
    return size, inner, y, y * z * code.poly(z, TABLES[code.form.bits]["ASIN"])


def arcsin(code: Code, x: Value) -> Value:
    """y + tail, or pi/2 - 2*(y + tail)."""
    _, inner, y, tail = half_angle(code, x)
    high, low = (0.5 * part for part in TABLES[code.form.bits]["PI"])
    twice = -2.0 * y
    total = high + twice
    outer = total + (((high - total) + twice) + (low - 2.0 * tail))
    return code.with_sign(code.select(inner, y + tail, outer), code.sign_of(x))


def arccos(code: Code, x: Value) -> Value:
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


def arctan(code: Code, x: Value) -> Value:
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


def cbrt(code: Code, x: Value) -> Value:
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
