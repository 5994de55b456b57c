"""Op table: element-wise operators, SciPy's special functions, and ufuncs of users.

Recipes for complex operands follow NumPy's loops operation by operation.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from jitla.concurrency import fork_safe_lock
from jitla.errors import InternalError
from jitla.hops.node import (
    Attrs,
    Kind,
    Meta,
    OpSpec,
    ScalarBuilder,
    Zeros,
    ZeroSafety,
    broadcast,
    by_numpy,
    register,
)
from jitla.hops.sparsity import cell_bound, with_nnz_bound

Recipe = Callable[..., Any]
Split = tuple[Any, Any]
Dtypes = tuple[Any, ...]

BOOL = np.dtype(np.bool_)
ANY, ALL, NONE = Zeros.ANY, Zeros.ALL, Zeros.NONE
ALWAYS, NONZERO, NEVER = ZeroSafety.ALWAYS, ZeroSafety.NONZERO, ZeroSafety.NEVER

# --------------------------------------------------------------------------- recipes of complex operands


def split_parts(b: ScalarBuilder, x: Any) -> Split:
    """Return the real and the imaginary part of `x`."""
    return b.real(x), b.imag(x)


def complex_per_part_recipe(verb: str) -> Recipe:
    """Return the recipe that applies `verb` to the real and to the imaginary parts."""

    def emit(b: ScalarBuilder, *xs: Any) -> Any:
        apply = getattr(b, verb)
        return b.pair(apply(*(b.real(x) for x in xs)), apply(*(b.imag(x) for x in xs)))

    return emit


def complex_select(b: ScalarBuilder, c: Any, x: Any, y: Any) -> Any:
    """Return x where c holds, else y."""
    return b.pair(b.select(c, b.real(x), b.real(y)), b.select(c, b.imag(x), b.imag(y)))


def complex_real(b: ScalarBuilder, x: Any) -> Any:
    """Return the real part."""
    return b.real(x)


def complex_imag(b: ScalarBuilder, x: Any) -> Any:
    """Return the imaginary part."""
    return b.imag(x)


def complex_conjugate(b: ScalarBuilder, x: Any) -> Any:
    """Return the complex conjugate."""
    return b.pair(b.real(x), b.neg(b.imag(x)))


def complex_convert(b: ScalarBuilder, x: Any, dtype: np.dtype) -> Any:
    """Return `x`, of any dtype, as complex `dtype`."""
    part_dtype = dtype.type(0).real.dtype
    if x.dtype.kind == "c":
        return b.pair(*(b.cast(p, part_dtype) for p in split_parts(b, x)))
    return b.pair(b.cast(x, part_dtype), b.const(0, part_dtype))


# --------------------------------------------------------------------------- arithmetic


def complex_multiply(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Return the product; one of the two terms of a part is not rounded where NumPy uses FMA."""
    (a, c), (d, e) = split_parts(b, x), split_parts(b, y)
    return b.pair(b.muladd(a, d, b.neg(b.mul(c, e))), b.muladd(a, e, b.mul(c, d)))


def complex_square(b: ScalarBuilder, x: Any) -> Any:
    """Return x * x."""
    return complex_multiply(b, x, x)


def complex_divide(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Return the quotient by Smith's method: both parts are scaled by the divisor's larger part."""
    (re, im), (d, e) = split_parts(b, x), split_parts(b, y)
    b.flag("invalid", complex_isnan(b, y))  # as the comparison of the parts does
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


def complex_reciprocal(b: ScalarBuilder, x: Any) -> Any:
    """Return 1 / x by Smith's method."""
    re, im = split_parts(b, x)
    b.flag("invalid", complex_isnan(b, x))  # as the comparison of the parts does
    one = b.const(1, re.dtype)
    flat = b.le(b.abs(im), b.abs(re))
    big, small = b.select(flat, re, im), b.select(flat, im, re)
    ratio = b.div(small, big)
    size = b.add(big, b.mul(small, ratio))
    return b.pair(b.div(b.select(flat, one, ratio), size),
                  b.div(b.neg(b.select(flat, ratio, one)), size))


def complex_absolute(b: ScalarBuilder, x: Any) -> Any:
    """Return the magnitude as NumPy's vector loop computes it, without intermediate overflow."""
    re, im = (b.abs(p) for p in split_parts(b, x))
    zero, one, inf = (b.const(n, re.dtype) for n in (0, 1, np.inf))
    flat = b.gt(re, im)
    big, small = b.select(flat, re, im), b.select(flat, im, re)
    ratio = b.div(small, b.select(b.eq(big, zero), one, big))
    length = b.mul(b.sqrt(b.muladd(ratio, ratio, one)), big)
    return b.select(b.or_(b.eq(re, inf), b.eq(im, inf)), inf, length)


# --------------------------------------------------------------------------- order and truth


def complex_truth(b: ScalarBuilder, x: Any) -> Any:
    """Return whether `x` is nonzero; NaN is."""
    zero = b.const(0, b.real(x).dtype)
    return b.or_(b.ne(b.real(x), zero), b.ne(b.imag(x), zero))


def complex_equal(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Return whether both parts are equal."""
    return b.and_(b.eq(b.real(x), b.real(y)), b.eq(b.imag(x), b.imag(y)))


def complex_not_equal(b: ScalarBuilder, x: Any, y: Any) -> Any:
    """Return whether a part differs."""
    return b.or_(b.ne(b.real(x), b.real(y)), b.ne(b.imag(x), b.imag(y)))


def complex_comparison_recipe(verb: str) -> Recipe:
    """Return the recipe of a comparison, which raises `invalid` for a NaN that decides, unlike for reals."""
    order = complex_order_recipe(verb)

    def emit(b: ScalarBuilder, x: Any, y: Any) -> Any:
        (a, c), (d, e) = split_parts(b, x), split_parts(b, y)
        first, second = (b.or_(b.ne(p, p), b.ne(q, q)) for p, q in ((a, d), (c, e)))
        b.flag("invalid", b.or_(first, b.and_(b.eq(a, d), second)))
        return order(b, x, y)

    return emit


def complex_order_recipe(verb: str) -> Recipe:
    """Return the recipe of the lexicographic order: by real parts, then by imaginary parts."""
    strict = {"lt": "lt", "le": "lt", "gt": "gt", "ge": "gt"}[verb]

    def emit(b: ScalarBuilder, x: Any, y: Any) -> Any:
        (a, c), (d, e) = split_parts(b, x), split_parts(b, y)
        comparable = b.and_(b.eq(c, c), b.eq(e, e))
        first = b.and_(getattr(b, strict)(a, d), comparable)
        return b.or_(first, b.and_(b.eq(a, d), getattr(b, verb)(c, e)))

    return emit


def complex_extremum_recipe(verb: str, nan_of: int) -> Recipe:
    """Return the recipe of an extremum: the first operand if `verb` holds or operand `nan_of` is NaN."""
    compare = complex_order_recipe(verb)

    def emit(b: ScalarBuilder, x: Any, y: Any) -> Any:
        is_nan = complex_isnan(b, (x, y)[nan_of])
        return complex_select(b, b.or_(is_nan, compare(b, x, y)), x, y)

    return emit


def any_part(recipe: Recipe) -> Recipe:
    """Return the recipe: does the predicate `recipe` hold for one of the parts?"""
    return lambda b, x: b.or_(recipe(b, b.real(x)), recipe(b, b.imag(x)))


def both_parts(recipe: Recipe) -> Recipe:
    """Return the recipe: does the predicate `recipe` hold for both parts?"""
    return lambda b, x: b.and_(recipe(b, b.real(x)), recipe(b, b.imag(x)))


def complex_isnan(b: ScalarBuilder, x: Any) -> Any:
    """Return whether a part is NaN."""
    re, im = split_parts(b, x)
    return b.or_(b.ne(re, re), b.ne(im, im))


# --------------------------------------------------------------------------- dtypes and metas


def promotion_dtype(dtype: Any) -> Any:
    """Return `dtype` as NumPy's promotion treats it: a Python bool is not a weak scalar."""
    return BOOL if dtype is bool else dtype


@lru_cache(maxsize=4096)
def ufunc_loop_dtypes(ufunc: np.ufunc, dtypes: Dtypes) -> tuple[tuple[np.dtype, ...], np.dtype]:
    """Return the input dtypes and the output dtype of the loop that NumPy selects for `dtypes`."""
    *ins, out = ufunc.resolve_dtypes((*map(promotion_dtype, dtypes), None))
    return tuple(ins), out


_EXAMPLE = {bool: True, int: 0, float: 0.0, complex: 0j}


@lru_cache(maxsize=4096)
def common_dtype(dtypes: Dtypes) -> np.dtype:
    """Return ``np.result_type`` of dtypes and weak Python scalar types."""
    return np.result_type(*(_EXAMPLE[d] if isinstance(d, type) else d for d in dtypes))


def cell_meta(metas: tuple[Meta, ...], dtype: np.dtype, zeros: Zeros) -> Meta:
    """Return the metadata of an element-wise result: broadcast shape, nonzeros by `zeros`."""
    shape = broadcast(tuple([m.shape for m in metas]))
    max_nonzeros = cell_bound(zeros)(metas, shape, {}) if any(m.nnz is not None for m in metas) else None
    return with_nnz_bound(Meta(shape, dtype), max_nonzeros)


# --------------------------------------------------------------------------- constructors


def _restricted_recipe(recipe: Recipe | None, on_complex: Recipe | None) -> Recipe | None:
    """Restrict `recipe` to bool, integer and real operands, and `on_complex` to complex64 and complex128.

    For other operands it returns None (not expressible): no recipe casts to parts of long doubles.
    """
    if recipe is None:
        return None

    def emit(builder: ScalarBuilder, *operands: Any) -> Any:
        *values, attrs = operands
        if all(v.dtype.kind in "biuf" for v in values):
            return recipe(builder, *values)
        if on_complex is None or any(v.dtype.char not in "?FD" for v in values):
            return None
        return on_complex(builder, *values)

    return emit


def declare_cell(
    ufunc: np.ufunc, emit: Recipe | None, doc: str, zeros: Zeros = NONE, *, commutes: bool = False,
    transcendental: bool = False, flops: float = 1.0, also: tuple[Any, ...] = (), name: str = "",
    on_complex: Recipe | None = None, safe: tuple[ZeroSafety, ...] = (),
) -> OpSpec:
    """Register the operator of NumPy's `ufunc`; `also` are other callables with the same meaning.

    `emit` is the recipe for reals, `on_complex` the one for complex operands. `safe` is given if it differs
    from the default for `zeros`.
    """

    def meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
        dtypes = tuple([m.dtype for m in metas])
        ins, out = ufunc_loop_dtypes(ufunc, dtypes)
        if ins != dtypes:
            raise InternalError(f"{ufunc.__name__}: operands {dtypes} are not cast to {ins}")
        return cell_meta(metas, out, zeros)

    return register(OpSpec(
        name=name or ufunc.__name__, kind=Kind.CELL, arity=ufunc.nin, ref=ufunc, meta=meta,
        resolve=lambda dtypes, attrs: ufunc_loop_dtypes(ufunc, dtypes)[0], doc=doc, numpy=(ufunc, *also),
        emit=_restricted_recipe(emit, on_complex), zeros=zeros, commutes=commutes,
        transcendental=transcendental,
        flops=flops, safe=safe,
    ))


# Zero safety: a zero dividend; a zero in the first operand, or in any, whatever the others are.
_DIVIDEND_SAFE, _FIRST_SAFE, _BOTH_SAFE = (NONZERO, NEVER), (ALWAYS, NEVER), (ALWAYS, ALWAYS)


def _math_recipe(name: str) -> Recipe:
    return lambda b, *xs: b.math(name, *xs)


def _verb_recipe(name: str) -> Recipe:
    return lambda b, *xs: getattr(b, name)(*xs)


def _recipe_by_kind(**recipes: Recipe) -> Recipe:
    """Return a recipe that dispatches on the first operand: `b` bool, `i` integers, `f` float.

    Operands of other kinds have no recipe.
    """

    def emit(b: ScalarBuilder, x: Any, *others: Any) -> Any:
        recipe = recipes.get("i" if x.dtype.kind == "u" else x.dtype.kind)
        return None if recipe is None else recipe(b, x, *others)

    return emit


def _with_bool_recipe(verb: str, on_bool: Recipe) -> Recipe:
    """Return the recipe that is `verb` for numbers and `on_bool` for bools."""
    return _recipe_by_kind(b=on_bool, i=_verb_recipe(verb), f=_verb_recipe(verb))


def _identity(b: ScalarBuilder, x: Any) -> Any:
    return x


_AND, _OR, _XOR, _NOT = _verb_recipe("and_"), _verb_recipe("or_"), _verb_recipe("xor"), _verb_recipe("not_")

# --------------------------------------------------------------------------- arithmetic


def _sign(b: ScalarBuilder, x: Any) -> Any:
    """NaN stays NaN, -0.0 gives 0.0."""
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    positive = b.gt(x, zero)
    if x.dtype.kind == "u":
        return b.select(positive, one, zero)
    below = b.select(b.lt(x, zero), b.const(-1, x.dtype), zero)
    if x.dtype.kind == "f":
        below = b.select(b.ne(x, x), x, below)
    return b.select(positive, one, below)


def _square(b: ScalarBuilder, x: Any) -> Any:
    return b.mul(x, x)


def _scaling_recipe(factor: Callable[[Any], Any]) -> Recipe:
    """Multiply by a constant that NumPy computes in the operand's precision (not for float16)."""

    def emit(b: ScalarBuilder, x: Any) -> Any:
        if x.dtype.itemsize < 4:
            return None
        return b.mul(x, b.const(factor(x.dtype.type), x.dtype))

    return emit


def _heaviside(b: ScalarBuilder, x: Any, at_zero: Any) -> Any:
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    sign_step = b.select(b.gt(x, zero), one, b.select(b.lt(x, zero), zero, x))
    return b.select(b.eq(x, zero), at_zero, sign_step)


declare_cell(np.add, _with_bool_recipe("add", _OR), "sum; `or` of bools", ALL, commutes=True,
     on_complex=complex_per_part_recipe("add"))
declare_cell(np.subtract, _verb_recipe("sub"), "difference", ALL, on_complex=complex_per_part_recipe("sub"))
declare_cell(np.multiply, _with_bool_recipe("mul", _AND), "product; `and` of bools", ANY, commutes=True,
     on_complex=complex_multiply)
declare_cell(np.divide, _verb_recipe("div"), "true quotient", on_complex=complex_divide, safe=_DIVIDEND_SAFE)
declare_cell(np.floor_divide, _verb_recipe("floordiv"), "quotient rounded down", safe=_DIVIDEND_SAFE)
declare_cell(np.remainder, _verb_recipe("rem"), "remainder with the divisor's sign", safe=_DIVIDEND_SAFE)
declare_cell(np.fmod, _verb_recipe("fmod"), "remainder with the dividend's sign", safe=_DIVIDEND_SAFE)
declare_cell(np.power, _recipe_by_kind(f=_math_recipe("power")),
             "x to the power y; integers are left to NumPy",
     transcendental=True, flops=145)
declare_cell(np.float_power, _math_recipe("float_power"), "power in at least float64",
     transcendental=True, flops=145)
declare_cell(np.negative, _verb_recipe("neg"), "-x", ANY, on_complex=complex_per_part_recipe("neg"))
declare_cell(np.positive, _identity, "+x", ANY, on_complex=_identity)
declare_cell(np.absolute, _with_bool_recipe("abs", _identity), "magnitude; of the least integer: itself", ANY,
     on_complex=complex_absolute)
declare_cell(np.fabs, _verb_recipe("abs"), "magnitude, in floating point", ANY)
declare_cell(np.sqrt, _verb_recipe("sqrt"), "square root", ANY)
declare_cell(np.square, _square, "x * x", ANY, on_complex=complex_square)
declare_cell(np.reciprocal, _recipe_by_kind(f=lambda b, x: b.div(b.const(1, x.dtype), x)),
     "1 / x in the dtype of x; integers are left to NumPy", on_complex=complex_reciprocal)
declare_cell(np.sign, _sign, "-1, 0 or 1", ANY)
declare_cell(np.copysign, _verb_recipe("copysign"), "magnitude of x, sign of y", ALL, safe=_FIRST_SAFE)
# Two names each, because NumPy's warnings name the ufunc.
declare_cell(np.deg2rad, _scaling_recipe(lambda t: t(np.pi) / t(180)), "degrees to radians", ANY)
declare_cell(np.radians, _scaling_recipe(lambda t: t(np.pi) / t(180)), "degrees to radians", ANY)
declare_cell(np.rad2deg, _scaling_recipe(lambda t: t(180) / t(np.pi)), "radians to degrees", ANY)
declare_cell(np.degrees, _scaling_recipe(lambda t: t(180) / t(np.pi)), "radians to degrees", ANY)
declare_cell(np.heaviside, _heaviside, "0, y or 1 for negative, zero or positive x", ALL)
declare_cell(np.gcd, None, "greatest common divisor", ALL, commutes=True, flops=150)
declare_cell(np.lcm, None, "least common multiple", ANY, commutes=True, flops=200, safe=_BOTH_SAFE)
declare_cell(np.conjugate, _identity, "complex conjugate", ANY, on_complex=complex_conjugate)
declare_cell(np.nextafter, None, "next float from x towards y", ALL, flops=130)
declare_cell(np.spacing, None, "distance to the next float", flops=100)
declare_cell(np.ldexp, None, "x * 2**n", ALL, flops=60, safe=_FIRST_SAFE)

# --------------------------------------------------------------------------- rounding


def _declare_rounding(ufunc: np.ufunc, doc: str) -> OpSpec:
    """Register a rounding function: one verb on floats, the identity on integers."""
    return declare_cell(ufunc, _recipe_by_kind(b=_identity, i=_identity, f=_verb_recipe(ufunc.__name__)), doc,
                        ANY)


_declare_rounding(np.floor, "round down")
_declare_rounding(np.ceil, "round up")
_declare_rounding(np.trunc, "round towards zero")
_declare_rounding(np.rint, "round half to even")

# --------------------------------------------------------------------------- transcendental


def declare_transcendental(ufunc: np.ufunc, flops: float, doc: str, zeros: Zeros = NONE) -> OpSpec:
    """Register a function that is one `math` verb and costs `flops` additions."""
    return declare_cell(ufunc, _math_recipe(ufunc.__name__), doc, zeros, transcendental=True, flops=flops)


declare_transcendental(np.exp, 38, "e**x")
declare_transcendental(np.exp2, 38, "2**x")
declare_transcendental(np.expm1, 44, "e**x - 1", ANY)
declare_transcendental(np.log, 47, "natural logarithm")
declare_transcendental(np.log2, 53, "logarithm to base 2")
declare_transcendental(np.log10, 60, "logarithm to base 10")
declare_transcendental(np.log1p, 57, "log(1 + x)", ANY)
declare_transcendental(np.cbrt, 48, "cube root", ANY)
declare_transcendental(np.sin, 46, "sine", ANY)
declare_transcendental(np.cos, 46, "cosine")
declare_transcendental(np.tan, 84, "tangent", ANY)
declare_transcendental(np.arcsin, 40, "inverse sine", ANY)
declare_transcendental(np.arccos, 40, "inverse cosine")
declare_transcendental(np.arctan, 46, "inverse tangent", ANY)
declare_transcendental(np.sinh, 52, "hyperbolic sine", ANY)
declare_transcendental(np.cosh, 50, "hyperbolic cosine")
declare_transcendental(np.tanh, 48, "hyperbolic tangent", ANY)
declare_transcendental(np.arcsinh, 97, "inverse hyperbolic sine", ANY)
declare_transcendental(np.arccosh, 110, "inverse hyperbolic cosine")
declare_transcendental(np.arctanh, 57, "inverse hyperbolic tangent", ANY)
declare_transcendental(np.arctan2, 54, "angle of the point (y, x)")
declare_transcendental(np.hypot, 40, "length of the vector (x, y)", ALL)
declare_transcendental(np.logaddexp, 84, "log(e**x + e**y)")
declare_transcendental(np.logaddexp2, 90, "log2(2**x + 2**y)")

# --------------------------------------------------------------------------- comparisons


def _compare_signed_unsigned(b: ScalarBuilder, verb: str, signed: Any, unsigned: Any) -> Any:
    """Compare a signed with an unsigned operand exactly: a negative number is below every unsigned one."""
    negative = b.lt(signed, b.const(0, signed.dtype))
    plain = getattr(b, verb)(b.cast(signed, unsigned.dtype), unsigned)
    if verb in ("lt", "le", "ne"):
        return b.or_(negative, plain)
    return b.and_(b.not_(negative), plain)


_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def _comparison_recipe(verb: str, on_bool: Recipe) -> Recipe:
    """Compare operands of one dtype, or int64 with uint64, for which NumPy has loops."""

    def emit(b: ScalarBuilder, x: Any, y: Any) -> Any:
        if x.dtype.kind == "b":
            return on_bool(b, x, y)
        if x.dtype == y.dtype:
            return getattr(b, verb)(x, y)
        return _compare_signed_unsigned(b, verb, x, y) if x.dtype.kind == "i" else _compare_signed_unsigned(b,
            _SWAPPED[verb], y, x)

    return emit


def _declare_comparison(
    ufunc: np.ufunc, verb: str, on_bool: Recipe, doc: str, zeros: Zeros = NONE, *,
    commutes: bool = False, safe: tuple[ZeroSafety, ...] = (),
) -> OpSpec:
    """Register a comparison: `verb` on numbers, logic on bools."""
    on_complex = {"eq": complex_equal, "ne": complex_not_equal}.get(verb) or complex_comparison_recipe(verb)
    return declare_cell(ufunc, _comparison_recipe(verb, on_bool), doc, zeros, commutes=commutes,
                on_complex=on_complex, safe=safe)


_declare_comparison(np.equal, "eq", lambda b, x, y: b.not_(b.xor(x, y)), "x == y", commutes=True,
            safe=(NONZERO, NONZERO))
_declare_comparison(np.not_equal, "ne", _XOR, "x != y", ALL, commutes=True)
_declare_comparison(np.less, "lt", lambda b, x, y: b.and_(b.not_(x), y), "x < y", ALL)
_declare_comparison(np.less_equal, "le", lambda b, x, y: b.or_(b.not_(x), y), "x <= y")
_declare_comparison(np.greater, "gt", lambda b, x, y: b.and_(x, b.not_(y)), "x > y", ALL)
_declare_comparison(np.greater_equal, "ge", lambda b, x, y: b.or_(x, b.not_(y)), "x >= y")

# --------------------------------------------------------------------------- selection
# Not declared commutative: the order decides between two zeros or two NaNs.

declare_cell(np.maximum, _with_bool_recipe("maximum", _OR), "larger of two; NaN wins", ALL,
     on_complex=complex_extremum_recipe("ge", nan_of=0))
declare_cell(np.minimum, _with_bool_recipe("minimum", _AND), "smaller of two; NaN wins", ALL,
     on_complex=complex_extremum_recipe("le", nan_of=0))
declare_cell(np.fmax, _with_bool_recipe("fmax", _OR), "larger of two; NaN loses", ALL,
     on_complex=complex_extremum_recipe("ge", nan_of=1))
declare_cell(np.fmin, _with_bool_recipe("fmin", _AND), "smaller of two; NaN loses", ALL,
     on_complex=complex_extremum_recipe("le", nan_of=1))

_CLIP: np.ufunc = np._core.umath.clip  # type: ignore[attr-defined]


def _clip_recipe(b: ScalarBuilder, x: Any, low: Any, high: Any) -> Any:
    """Apply the lower bound, then the upper one, which wins if the bounds cross; a NaN anywhere gives NaN.

    A zero equal to a bound keeps its sign, as with scalar bounds in NumPy.
    """
    if x.dtype.kind == "b":
        return b.and_(b.or_(x, low), high)
    raised = b.select(b.lt(x, low), low, x)
    inside = b.select(b.gt(raised, high), high, raised)
    if x.dtype.kind != "f":
        return inside
    inside = b.select(b.ne(low, low), low, inside)
    return b.select(b.ne(high, high), high, inside)


declare_cell(_CLIP, _clip_recipe, "x limited to [low, high]", ALL, also=(np.clip,), name="clip")


def as_scalar(x: Any) -> Any:
    """Return a 0-d array as a NumPy scalar, anything else unchanged."""
    return x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x


def _where_resolve(dtypes: Dtypes, attrs: Attrs) -> tuple[np.dtype, ...]:
    dtype = common_dtype(dtypes[1:])
    return BOOL, dtype, dtype


def _where_meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    condition, x, y = metas
    if condition.dtype != BOOL or x.dtype != y.dtype:
        raise InternalError(f"where: operands {[m.dtype for m in metas]} are not cast")
    shape = broadcast((condition.shape, x.shape, y.shape))
    return with_nnz_bound(Meta(shape, x.dtype), cell_bound(ALL)((x, y), shape, attrs))


register(OpSpec(
    name="where", kind=Kind.CELL, arity=3, ref=lambda c, x, y: as_scalar(np.where(c, x, y)),
    meta=_where_meta, resolve=_where_resolve, doc="x where the condition holds, else y",
    numpy=(np.where,), emit=_restricted_recipe(_verb_recipe("select"), complex_select), zeros=ALL,
    safe=(NEVER, NONZERO, NEVER),
))


def _cast_recipe(b: ScalarBuilder, x: Any, attrs: Attrs) -> Any:
    dtype = np.dtype(attrs["dtype"])
    if x.dtype.char in "FD" and dtype == BOOL:
        return complex_truth(b, x)
    if dtype.char in "FD" and (x.dtype.kind in "biuf" or x.dtype.char in "FD"):
        return complex_convert(b, x, dtype)
    if x.dtype.kind not in "biuf" or dtype.kind not in "biuf":
        return None  # NumPy warns where the imaginary part is lost
    if dtype == BOOL and x.dtype != BOOL:
        return b.ne(x, b.const(0, x.dtype))
    return b.cast(x, dtype)


register(OpSpec(
    name="cast", kind=Kind.CELL, arity=1, ref=lambda x, dtype: as_scalar(np.asarray(x).astype(dtype)),
    meta=lambda metas, attrs: cell_meta(metas, np.dtype(attrs["dtype"]), ANY),
    resolve=lambda dtypes, attrs: tuple(map(np.dtype, dtypes)),
    doc="x in another dtype, as `astype` converts", emit=_cast_recipe, zeros=ANY,
))

# --------------------------------------------------------------------------- logic and bits


def _truth(b: ScalarBuilder, x: Any) -> Any:
    """Return whether `x` is nonzero; NaN is true."""
    if x.dtype.kind == "c":
        return complex_truth(b, x)
    return x if x.dtype.kind == "b" else b.ne(x, b.const(0, x.dtype))


def _logical_recipe(recipe: Recipe) -> Recipe:
    return lambda b, *xs: recipe(b, *(_truth(b, x) for x in xs))


for _name, _recipe, _text, _zeros, _safe in (
    ("and", _AND, "both are true", ANY, _BOTH_SAFE), ("or", _OR, "one is true", ALL, ()),
    ("xor", _XOR, "exactly one is true", ALL, ()),
):
    declare_cell(getattr(np, f"logical_{_name}"), _logical_recipe(_recipe), _text, _zeros, commutes=True,
         on_complex=_logical_recipe(_recipe), safe=_safe)
declare_cell(np.logical_not, _recipe_by_kind(b=_NOT, i=lambda b, x: b.eq(x, b.const(0, x.dtype)),
                              f=lambda b, x: b.eq(x, b.const(0, x.dtype))), "is false",
     on_complex=_logical_recipe(_NOT))
declare_cell(np.bitwise_and, _AND, "bits set in both", ANY, commutes=True, safe=_BOTH_SAFE)
declare_cell(np.bitwise_or, _OR, "bits set in one", ALL, commutes=True)
declare_cell(np.bitwise_xor, _XOR, "bits set in exactly one", ALL, commutes=True)
declare_cell(np.bitwise_count, None, "number of set bits of the magnitude", ANY, flops=5)
declare_cell(np.invert, _NOT, "all bits flipped")
declare_cell(np.left_shift, _verb_recipe("shl"), "bits moved up; past the width all are lost", ALL,
             safe=_FIRST_SAFE)
declare_cell(np.right_shift, _verb_recipe("shr"), "bits moved down; past the width the sign remains", ALL,
     safe=_FIRST_SAFE)

# --------------------------------------------------------------------------- float classes


def _constant_false(b: ScalarBuilder, x: Any) -> Any:
    return b.xor(x, x) if x.dtype.kind == "b" else b.ne(x, x)


def _constant_true(b: ScalarBuilder, x: Any) -> Any:
    return b.not_(b.xor(x, x)) if x.dtype.kind == "b" else b.eq(x, x)


def _infinity_comparison(verb: str) -> Recipe:
    return lambda b, x: getattr(b, verb)(b.abs(x), b.const(np.inf, x.dtype))


def _signbit(b: ScalarBuilder, x: Any) -> Any:
    return b.lt(b.copysign(b.const(1, x.dtype), x), b.const(0, x.dtype))


declare_cell(np.isnan, _recipe_by_kind(b=_constant_false, i=_constant_false, f=lambda b, x: b.ne(x, x)),
             "is NaN", ANY,
     on_complex=complex_isnan)
declare_cell(np.isinf, _recipe_by_kind(b=_constant_false, i=_constant_false, f=_infinity_comparison("eq")),
             "is infinite", ANY,
     on_complex=any_part(_infinity_comparison("eq")))
declare_cell(np.isfinite, _recipe_by_kind(b=_constant_true, i=_constant_true, f=_infinity_comparison("lt")),
     "is neither NaN nor infinite", on_complex=both_parts(_infinity_comparison("lt")))
declare_cell(np.signbit, _signbit, "has the sign bit set")

# --------------------------------------------------------------------------- complex parts


def _copy_as_ufunc(x: Any) -> Any:
    """Copy `x` into the memory order that a ufunc allocates its result in."""
    return np.logical_or(x, x) if x.dtype == BOOL else np.positive(x)


def _declare_complex_part(name: str, on_real: Recipe, on_complex: Recipe, doc: str) -> OpSpec:
    """Register a part of complex numbers, as a copy and not as a view."""

    def ref(x: Any) -> Any:
        return _copy_as_ufunc(getattr(x, name))

    def meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
        source = metas[0].dtype
        return cell_meta(metas, source.type(0).real.dtype, ANY)

    return register(OpSpec(
        name=name, kind=Kind.CELL, arity=1, ref=ref, meta=meta, doc=doc, zeros=ANY,
        resolve=lambda dtypes, attrs: tuple(map(np.dtype, dtypes)),
        emit=_restricted_recipe(on_real, on_complex),
    ))


_declare_complex_part("real", _identity, complex_real, "the real part, copied")
_declare_complex_part("imag", lambda b,
                      x: _constant_false(b, x) if x.dtype.kind == "b" else b.const(0, x.dtype), complex_imag,
      "the imaginary part, copied; 0 of reals")


_ANY, _NONE = Zeros.ANY, Zeros.NONE
# name -> (operations per element, meaning, when it is zero)
_SCIPY_UFUNCS: dict[str, tuple[float, str, Zeros]] = {
    "erf": (88, "error function", _ANY),
    "erfc": (96, "1 - erf(x)", _NONE),
    "ndtr": (104, "cumulative distribution of the standard normal", _NONE),
    "expit": (44, "1 / (1 + e**-x)", _NONE),
    "log_expit": (79, "log(expit(x))", _NONE),
    "logit": (50, "log(x / (1 - x))", _NONE),
    "xlogy": (50, "x * log(y), 0 where x is 0", _NONE),
    "xlog1py": (60, "x * log(1 + y), 0 where x is 0", _NONE),
}
_lock = fork_safe_lock()


def register_scipy_ufunc(fn: np.ufunc) -> OpSpec | None:
    """Return the entry of SciPy's ufunc `fn`, registered on first use; None if there is none."""
    entry = _SCIPY_UFUNCS.get(fn.__name__)
    if entry is None:
        return None
    if getattr(sys.modules.get("scipy.special"), fn.__name__, None) is not fn:
        return None
    flops, doc, zeros = entry
    with _lock:
        registered = by_numpy(fn)
        return declare_transcendental(fn, flops, doc, zeros) if registered is None else registered


_user_functions: dict[str, OpSpec] = {}


class Step(NamedTuple):
    """One step of a function body: a verb of `ScalarBuilder` or ``arg``.

    `operands` are numbers of earlier steps; `dtype` is the result's; `value` is a constant or a name.
    """

    verb: str
    operands: tuple[int, ...]
    dtype: np.dtype
    value: Any = None


class Body(NamedTuple):
    """A scalar function as straight-line code: `result` is the number of the returned step.

    `invalid_step` is the number of the step that raises the flag `invalid` if true, or -1.
    """

    steps: tuple[Step, ...]
    result: int
    invalid_step: int = -1

    @property
    def approximate(self) -> bool:
        """Whether kernels may round differently than the user's compiler: they use other `math` functions."""
        return any(step.verb == "math" for step in self.steps)

    def emit(self, b: ScalarBuilder, *args: Any) -> Any:
        """Emit the steps as a recipe."""
        values: list[Any] = []
        for verb, operands, dtype, value in self.steps:
            inputs = [values[k] for k in operands]
            match verb:
                case "arg":
                    values.append(args[value])
                case "const":
                    values.append(b.const(value, dtype))
                case "cast":
                    values.append(b.cast(inputs[0], dtype))
                case "math":
                    values.append(b.math(value, *inputs))
                case _:
                    values.append(getattr(b, verb)(*inputs))
        if self.invalid_step >= 0:
            b.flag("invalid", values[self.invalid_step])
        return values[self.result]


class UserFunction:
    """A user's compiled function, called like a ufunc; `flagged_kernels` counts kernels that raised flags."""

    def __init__(self, function: Callable[..., Any], name: str, approximate: bool) -> None:
        self.function = function
        self.__name__ = name
        self.approximate = approximate
        self.flagged_kernels = 0

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def is_approximate(op: OpSpec) -> bool:
    """Return whether a kernel of `op` may differ from its reference in the last bits."""
    return op.transcendental or isinstance(op.ref, UserFunction) and op.ref.approximate


def register_user_function(
    function: Callable[..., Any], name: str, ins: tuple[np.dtype, ...], out: np.dtype, body: Body,
) -> OpSpec:
    """Return the entry of a user's function that computes `body`; equal name, dtypes and body share one."""
    digest = sha256(repr((ins, out, body)).encode()).hexdigest()[:12]
    op_name = f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}_{digest}"

    def meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
        return cell_meta(metas, out, Zeros.NONE)

    with _lock:
        if op_name not in _user_functions:
            callable_ = UserFunction(function, name, body.approximate)
            _user_functions[op_name] = register(OpSpec(
                name=op_name, kind=Kind.CELL, arity=len(ins), ref=callable_, meta=meta,
                resolve=lambda dtypes, attrs: ins, doc=f"{name}, which the user has compiled",
                numpy=(callable_,), emit=body.emit))
        return _user_functions[op_name]
