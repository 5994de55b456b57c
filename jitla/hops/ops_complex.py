"""Recipes for complex operands, which follow NumPy's loops operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitla.hops.opspec import ScalarBuilder

Recipe = Callable[..., Any]
Split = tuple[Any, Any]


def split_parts(b: ScalarBuilder, x: Any) -> Split:
    """Return the real and the imaginary part of `x`."""
    return b.real(x), b.imag(x)


def per_part_recipe(verb: str) -> Recipe:
    """Return the recipe that applies `verb` to the real and to the imaginary parts."""

    def emit(b: ScalarBuilder, *xs: Any) -> Any:
        apply = getattr(b, verb)
        return b.pair(apply(*(b.real(x) for x in xs)), apply(*(b.imag(x) for x in xs)))

    return emit


def select(b: ScalarBuilder, c: Any, x: Any, y: Any) -> Any:
    """Return x where c holds, else y."""
    return b.pair(b.select(c, b.real(x), b.real(y)), b.select(c, b.imag(x), b.imag(y)))


def real(b: ScalarBuilder, x: Any) -> Any:
    """Return the real part."""
    return b.real(x)


def imag(b: ScalarBuilder, x: Any) -> Any:
    """Return the imaginary part."""
    return b.imag(x)


def conjugate(b: ScalarBuilder, x: Any) -> Any:
    """Return the complex conjugate."""
    return b.pair(b.real(x), b.neg(b.imag(x)))


def convert(b: ScalarBuilder, x: Any, dtype: np.dtype) -> Any:
    """Return `x`, of any dtype, as complex `dtype`."""
    part_dtype = dtype.type(0).real.dtype
    if x.dtype.kind == "c":
        return b.pair(*(b.cast(p, part_dtype) for p in split_parts(b, x)))
    return b.pair(b.cast(x, part_dtype), b.const(0, part_dtype))


# --------------------------------------------------------------------------- arithmetic


def multiply(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Return the product; one of the two terms of a part is not rounded where NumPy uses FMA."""
    (a, c), (d, e) = split_parts(b, x), split_parts(b, y)
    return b.pair(b.muladd(a, d, b.neg(b.mul(c, e))), b.muladd(a, e, b.mul(c, d)))


def square(b: ScalarBuilder, x: Any) -> Any:
    """Return x * x."""
    return multiply(b, x, x)


def divide(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Return the quotient by Smith's method: both parts are scaled by the divisor's larger part."""
    (re, im), (d, e) = split_parts(b, x), split_parts(b, y)
    b.flag("invalid", isnan(b, y))  # as the comparison of the parts does
    dtype = d.dtype
    zero, one = b.const(0, dtype), b.const(1, dtype)
    wide, high = b.abs(d), b.abs(e)
    real_larger = b.ge(wide, high)
    big, small = b.select(real_larger, d, e), b.select(real_larger, e, d)
    is_zero = b.and_(b.eq(wide, zero), b.eq(high, zero))
    ratio = b.div(small, b.select(is_zero, one, big))
    scale = b.div(one, b.select(is_zero, wide, b.add(big, b.mul(small, ratio))))
    near, far = b.select(real_larger, re, im), b.select(real_larger, im, re)
    near_scaled = b.mul(near, ratio)
    above = b.add(near, b.mul(far, ratio))
    beside = b.select(real_larger, b.sub(far, near_scaled), b.sub(near_scaled, far))
    return b.pair(b.mul(b.select(is_zero, re, above), scale), b.mul(b.select(is_zero, im, beside), scale))


def reciprocal(b: ScalarBuilder, x: Any) -> Any:
    """Return 1 / x by Smith's method."""
    re, im = split_parts(b, x)
    b.flag("invalid", isnan(b, x))  # as the comparison of the parts does
    one = b.const(1, re.dtype)
    flat = b.le(b.abs(im), b.abs(re))
    big, small = b.select(flat, re, im), b.select(flat, im, re)
    ratio = b.div(small, big)
    size = b.add(big, b.mul(small, ratio))
    return b.pair(b.div(b.select(flat, one, ratio), size),
                  b.div(b.neg(b.select(flat, ratio, one)), size))


def absolute(b: ScalarBuilder, x: Any) -> Any:
    """Return the magnitude as NumPy's vector loop computes it, without intermediate overflow."""
    re, im = (b.abs(p) for p in split_parts(b, x))
    zero, one, inf = (b.const(n, re.dtype) for n in (0, 1, np.inf))
    flat = b.gt(re, im)
    big, small = b.select(flat, re, im), b.select(flat, im, re)
    ratio = b.div(small, b.select(b.eq(big, zero), one, big))
    length = b.mul(b.sqrt(b.muladd(ratio, ratio, one)), big)
    return b.select(b.or_(b.eq(re, inf), b.eq(im, inf)), inf, length)


# --------------------------------------------------------------------------- order and truth


def truth(b: ScalarBuilder, x: Any) -> Any:
    """Return whether `x` is nonzero; NaN is."""
    zero = b.const(0, b.real(x).dtype)
    return b.or_(b.ne(b.real(x), zero), b.ne(b.imag(x), zero))


def equal(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Return whether both parts are equal."""
    return b.and_(b.eq(b.real(x), b.real(y)), b.eq(b.imag(x), b.imag(y)))


def not_equal(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Return whether a part differs."""
    return b.or_(b.ne(b.real(x), b.real(y)), b.ne(b.imag(x), b.imag(y)))


def comparison_recipe(verb: str) -> Recipe:
    """Return the recipe of a comparison, which raises `invalid` for a NaN that decides, unlike for reals."""
    order = order_recipe(verb)

    def emit(b: ScalarBuilder, x: Any, y: Any) -> Any:
        (a, c), (d, e) = split_parts(b, x), split_parts(b, y)
        first, second = (b.or_(b.ne(p, p), b.ne(q, q)) for p, q in ((a, d), (c, e)))
        b.flag("invalid", b.or_(first, b.and_(b.eq(a, d), second)))
        return order(b, x, y)

    return emit


def order_recipe(verb: str) -> Recipe:
    """Return the recipe of the lexicographic order: by real parts, then by imaginary parts."""
    strict = {"lt": "lt", "le": "lt", "gt": "gt", "ge": "gt"}[verb]

    def emit(b: ScalarBuilder, x: Any, y: Any) -> Any:
        (a, c), (d, e) = split_parts(b, x), split_parts(b, y)
        comparable = b.and_(b.eq(c, c), b.eq(e, e))
        first = b.and_(getattr(b, strict)(a, d), comparable)
        return b.or_(first, b.and_(b.eq(a, d), getattr(b, verb)(c, e)))

    return emit


def extremum_recipe(verb: str, nan_of: int) -> Recipe:
    """Return the recipe of an extremum: the first operand if `verb` holds or operand `nan_of` is NaN."""
    compare = order_recipe(verb)

    def emit(b: ScalarBuilder, x: Any, y: Any) -> Any:
        is_nan = isnan(b, (x, y)[nan_of])
        return select(b, b.or_(is_nan, compare(b, x, y)), x, y)

    return emit


def any_part(recipe: Recipe) -> Recipe:
    """Return the recipe: does the predicate `recipe` hold for one of the parts?"""
    return lambda b, x: b.or_(recipe(b, b.real(x)), recipe(b, b.imag(x)))


def both_parts(recipe: Recipe) -> Recipe:
    """Return the recipe: does the predicate `recipe` hold for both parts?"""
    return lambda b, x: b.and_(recipe(b, b.real(x)), recipe(b, b.imag(x)))


def isnan(b: ScalarBuilder, x: Any) -> Any:
    """Return whether a part is NaN."""
    re, im = split_parts(b, x)
    return b.or_(b.ne(re, re), b.ne(im, im))
