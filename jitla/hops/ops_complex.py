"""Recipes for complex operands: what NumPy's loops do with real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.hops.opspec import ScalarBuilder

Recipe = Callable[..., Any]
Split = tuple[Any, Any]


def split(b: ScalarBuilder, x: Any) -> Split:
    """Return both parts of `x`."""
    return b.real(x), b.imag(x)


def by_part(verb: str) -> Recipe:
    """Return the recipe that does `verb` to the real parts and to the imaginary ones."""

    def emit(b: ScalarBuilder, *xs: Any) -> Any:
        do = getattr(b, verb)
        return b.pair(do(*(b.real(x) for x in xs)), do(*(b.imag(x) for x in xs)))

    return emit


def choose(b: ScalarBuilder, c: Any, x: Any, y: Any) -> Any:
    """Return x where c holds, else y."""
    return b.pair(b.select(c, b.real(x), b.real(y)), b.select(c, b.imag(x), b.imag(y)))


def real(b: ScalarBuilder, x: Any) -> Any:
    """Return the real part."""
    return b.real(x)


def imag(b: ScalarBuilder, x: Any) -> Any:
    """Return the imaginary part."""
    return b.imag(x)


def conjugate(b: ScalarBuilder, x: Any) -> Any:
    """Return the mirror image."""
    return b.pair(b.real(x), b.neg(b.imag(x)))


def convert(b: ScalarBuilder, x: Any, dtype: np.dtype) -> Any:
    """Return `x`, of any dtype, as complex `dtype`; None if there is no recipe."""
    part = dtype.type(0).real.dtype
    if x.dtype.kind == "c":
        return b.pair(*(b.cast(p, part) for p in split(b, x)))
    return b.pair(b.cast(x, part), b.const(0, part))


# --------------------------------------------------------------------------- arithmetic


def multiply(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Return the product; one of the two terms of a part is not rounded where NumPy fuses it."""
    (a, c), (d, e) = split(b, x), split(b, y)
    return b.pair(b.muladd(a, d, b.neg(b.mul(c, e))), b.muladd(a, e, b.mul(c, d)))


def square(b: ScalarBuilder, x: Any) -> Any:
    """Return x * x."""
    return multiply(b, x, x)


def divide(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Return the quotient by Smith's method: the divisor's larger part is divided out first."""
    (re, im), (d, e) = split(b, x), split(b, y)
    b.flag("invalid", isnan(b, y))  # as the comparison of the parts does
    dtype = d.dtype
    zero, one = b.const(0, dtype), b.const(1, dtype)
    wide, high = b.abs(d), b.abs(e)
    flat = b.ge(wide, high)
    big, small = b.select(flat, d, e), b.select(flat, e, d)
    void = b.and_(b.eq(wide, zero), b.eq(high, zero))
    ratio = b.div(small, b.select(void, one, big))
    scale = b.div(one, b.select(void, wide, b.add(big, b.mul(small, ratio))))
    near, far = b.select(flat, re, im), b.select(flat, im, re)
    twist = b.mul(near, ratio)
    above = b.add(near, b.mul(far, ratio))
    beside = b.select(flat, b.sub(far, twist), b.sub(twist, far))
    return b.pair(b.mul(b.select(void, re, above), scale), b.mul(b.select(void, im, beside), scale))


def reciprocal(b: ScalarBuilder, x: Any) -> Any:
    """Return 1 / x, the larger part divided out first."""
    re, im = split(b, x)
    b.flag("invalid", isnan(b, x))  # as the comparison of the parts does
    one = b.const(1, re.dtype)
    flat = b.le(b.abs(im), b.abs(re))
    big, small = b.select(flat, re, im), b.select(flat, im, re)
    ratio = b.div(small, big)
    size = b.add(big, b.mul(small, ratio))
    return b.pair(b.div(b.select(flat, one, ratio), size),
                  b.div(b.neg(b.select(flat, ratio, one)), size))


def absolute(b: ScalarBuilder, x: Any) -> Any:
    """Return the distance from 0, as NumPy's vector loop does: without overflow on the way."""
    re, im = (b.abs(p) for p in split(b, x))
    zero, one, inf = (b.const(n, re.dtype) for n in (0, 1, np.inf))
    flat = b.gt(re, im)
    big, small = b.select(flat, re, im), b.select(flat, im, re)
    ratio = b.div(small, b.select(b.eq(big, zero), one, big))
    length = b.mul(b.sqrt(b.muladd(ratio, ratio, one)), big)
    return b.select(b.or_(b.eq(re, inf), b.eq(im, inf)), inf, length)


# --------------------------------------------------------------------------- order and truth


def truth(b: ScalarBuilder, x: Any) -> Any:
    """Say whether `x` is not 0; NaN is not."""
    zero = b.const(0, b.real(x).dtype)
    return b.or_(b.ne(b.real(x), zero), b.ne(b.imag(x), zero))


def equal(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Say whether both parts are equal."""
    return b.and_(b.eq(b.real(x), b.real(y)), b.eq(b.imag(x), b.imag(y)))


def not_equal(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Say whether a part differs."""
    return b.or_(b.ne(b.real(x), b.real(y)), b.ne(b.imag(x), b.imag(y)))


def comparison(verb: str) -> Recipe:
    """Return the recipe of a comparison; a NaN in what decides raises a flag, which reals' does not."""
    order = ordered(verb)

    def emit(b: ScalarBuilder, x: Any, y: Any) -> Any:
        (a, c), (d, e) = split(b, x), split(b, y)
        first, second = (b.or_(b.ne(p, p), b.ne(q, q)) for p, q in ((a, d), (c, e)))
        b.flag("invalid", b.or_(first, b.and_(b.eq(a, d), second)))
        return order(b, x, y)

    return emit


def ordered(verb: str) -> Recipe:
    """Return what tells the order: by real parts, where those are equal by imaginary ones."""
    strict = {"lt": "lt", "le": "lt", "gt": "gt", "ge": "gt"}[verb]

    def emit(b: ScalarBuilder, x: Any, y: Any) -> Any:
        (a, c), (d, e) = split(b, x), split(b, y)
        known = b.and_(b.eq(c, c), b.eq(e, e))
        first = b.and_(getattr(b, strict)(a, d), known)
        return b.or_(first, b.and_(b.eq(a, d), getattr(b, verb)(c, e)))

    return emit


def extreme(verb: str, nan_of: int) -> Recipe:
    """Return the recipe of an extreme: the first operand where `verb` or a NaN says so."""
    compare = ordered(verb)

    def emit(b: ScalarBuilder, x: Any, y: Any) -> Any:
        void = isnan(b, (x, y)[nan_of])
        return choose(b, b.or_(void, compare(b, x, y)), x, y)

    return emit


def either(recipe: Recipe) -> Recipe:
    """Return the recipe that asks `recipe` of both parts: is it so of one?"""
    return lambda b, x: b.or_(recipe(b, b.real(x)), recipe(b, b.imag(x)))


def both(recipe: Recipe) -> Recipe:
    """Return the recipe that asks `recipe` of both parts: is it so of both?"""
    return lambda b, x: b.and_(recipe(b, b.real(x)), recipe(b, b.imag(x)))


def isnan(b: ScalarBuilder, x: Any) -> Any:
    """Say whether a part is NaN."""
    re, im = split(b, x)
    return b.or_(b.ne(re, re), b.ne(im, im))
