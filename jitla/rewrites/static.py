"""Rewrites of signs, products, powers and extremes that hold for every element.

Canonical direction: fewer operators, then fewer kinds, then cheaper ones; signs move outwards.
Must not know: kernels. Returns `CELLS`.
"""

from __future__ import annotations

from jitla.hops import Hop, const, const_value, make
from jitla.rewrites.conditions import (
    array_base,
    float_array_base,
    floats_alike,
    never_negative,
    power_of_two,
    same_shape,
    x_is_float,
    x_is_float_of_its_shape,
    x_is_number,
    x_is_quiet,
    x_is_real,
    x_is_real_of_its_shape,
    x_is_signed,
    x_is_whole,
    x_is_wide_int,
    x_not_negative,
)
from jitla.rewrites.pattern import AnyConst, Bound, Num, Var, once, ops
from jitla.rewrites.rule import Rule, RuleSet

X, Y, Z = Var("X"), Var("Y"), Var("Z")
K = AnyConst("K")

# --------------------------------------------------------------------------- identities and signs

SIGNS = RuleSet([
    Rule("neg-of-neg", ops.negative(ops.negative(X)), X, doc="two changes of sign undo each other"),
    Rule("abs-of-abs", ops.absolute(ops.absolute(X)), ops.absolute(X), doc="nothing left to do"),
    Rule("abs-of-neg", ops.absolute(ops.negative(X)), ops.absolute(X), when=x_is_signed,
         doc="the sign is dropped anyway; the least integer stays itself; unsigned numbers wrap"),
    Rule("square-of-neg", ops.square(ops.negative(X)), ops.square(X), doc="signs cancel"),
    Rule("square-of-abs", ops.square(ops.absolute(X)), ops.square(X), when=x_is_real,
         doc="signs cancel"),
    Rule("mul-of-negs", ops.multiply(ops.negative(X), ops.negative(Y)), ops.multiply(X, Y),
         doc="signs cancel"),
    Rule("sub-of-neg", ops.subtract(X, ops.negative(Y)), ops.add(X, Y),
         doc="IEEE defines x - y as x + (-y)"),
    Rule("add-of-neg", ops.add(X, ops.negative(Y)), ops.subtract(X, Y),
         doc="IEEE defines x - y as x + (-y)"),
    Rule("positive", ops.positive(X), X, doc="+x is a copy of x"),
    Rule("conjugate-of-real", ops.conjugate(X), X, when=x_is_real,
         doc="real values are their conjugates"),
    Rule("mul-by-one", ops.multiply(X, Num(1)), X, when=x_is_quiet,
         doc="exact for every value; the dtype is the result's already"),
    Rule("div-by-one", ops.divide(X, Num(1)), X, when=x_is_quiet, doc="exact for every value"),
    Rule("sub-zero", ops.subtract(X, Num(0)), X, when=x_is_quiet,
         doc="also -0.0 - 0.0 is -0.0; x - -0.0 is not covered"),
    Rule("add-zero", ops.add(X, Num(-0.0)), X, when=x_is_quiet,
         doc="-0.0 (or an integer 0) is neutral; 0.0 is not, it turns -0.0 into 0.0"),
    Rule("mul-by-minus-one", ops.multiply(X, Num(-1)), ops.negative(X), when=x_is_quiet,
         doc="a change of sign, no product"),
    Rule("neg-of-difference", ops.negative(ops.subtract(X, Y)), ops.subtract(Y, X), when=x_is_wide_int,
         doc="integers have one zero; of floats that are equal -(x - y) is -0.0"),
    Rule("product-with-neg", ops.multiply(once(ops.negative(X)), Y), ops.negative(ops.multiply(X, Y)),
         when=x_is_real_of_its_shape, doc="the sign moves outwards, where sums and products take it in"),
    Rule("quotient-of-neg", ops.divide(once(ops.negative(X)), Y), ops.negative(ops.divide(X, Y)),
         when=x_is_float_of_its_shape, doc="the sign moves outwards"),
    Rule("quotient-by-neg", ops.divide(Y, once(ops.negative(X))), ops.negative(ops.divide(Y, X)),
         when=x_is_float_of_its_shape, doc="the sign moves outwards"),
    Rule("quotient-of-negs", ops.divide(ops.negative(X), ops.negative(Y)), ops.divide(X, Y),
         when=x_is_float, doc="signs cancel"),
    Rule("product-of-abs", ops.multiply(once(ops.absolute(X)), once(ops.absolute(Y))),
         ops.absolute(ops.multiply(X, Y)), when=floats_alike,
         doc="one magnitude for two; integers may wrap between"),
    Rule("quotient-of-abs", ops.divide(once(ops.absolute(X)), once(ops.absolute(Y))),
         ops.absolute(ops.divide(X, Y)), when=floats_alike, doc="one magnitude for two"),
    Rule("abs-of-positive", ops.absolute(X), X, when=x_not_negative,
         doc="what has no sign: squares, magnitudes, exponentials, unsigned numbers, their sums and "
             "products"),
    Rule("fabs-as-abs", ops.fabs(X), ops.absolute(X), doc="one form for both"),
    Rule("sign-of-sign", ops.sign(ops.sign(X)), ops.sign(X), when=x_is_real, doc="nothing left to do"),
    Rule("copysign-of-neg", ops.copysign(ops.negative(X), Y), ops.copysign(X, Y), doc="the sign is replaced"),
    Rule("copysign-of-abs", ops.copysign(ops.absolute(X), Y), ops.copysign(X, Y), when=x_is_float,
         doc="the sign is replaced"),
    *(Rule(f"{name}-of-{sign}", getattr(ops, name)(getattr(ops, op)(X)), getattr(ops, name)(X),
           when=x_is_float, exactness="rounding",
           doc="an even function; the bits are the same if NumPy's are of both signs")
      for name in ("cos", "cosh") for sign, op in (("neg", "negative"), ("abs", "absolute"))),
    Rule("double-as-sum", ops.multiply(X, Num(2)), ops.add(X, X),
         doc="same bits, no constant; an overflow warning then names add"),
])


def power_of_two_divisor(root: Hop, b: Bound) -> bool:
    """K and 1/K are normal powers of two, so that both forms round the same real number."""
    value = const_value(b["K"])
    return value.dtype.char in "efd" and power_of_two(value)


def by_reciprocal(root: Hop, b: Bound) -> Hop:
    """Build X * (1/K)."""
    value = const_value(b["K"])
    one = value.dtype.type(1)
    return make("multiply", (b["X"], const(one / value, value.dtype)), root.line)


PRODUCTS = RuleSet([
    Rule("div-by-power-of-two", ops.divide(X, K), build=by_reciprocal, when=power_of_two_divisor,
         doc="a product is several times faster than a quotient; both round the same real number"),
    Rule("product-with-itself", ops.multiply(X, X), ops.square(X), when=x_is_number,
         doc="one form for both, which reads one operand; of bools and complex numbers they differ"),
    Rule("power-two", ops.power(X, Num(2)), ops.square(X), when=array_base,
         doc="as NumPy's own loop"),
    Rule("power-half", ops.power(X, Num(0.5)), ops.sqrt(X), when=float_array_base,
         doc="as NumPy's own loop, also at -inf and -0.0"),
    Rule("power-one", ops.power(X, Num(1)), X, when=array_base, doc="as NumPy's own loop"),
    Rule("power-minus-one", ops.power(X, Num(-1)), ops.reciprocal(X), when=float_array_base,
         doc="as NumPy's own loop"),
    Rule("power-three", ops.power(X, Num(3)), ops.multiply(ops.square(X), X), when=float_array_base,
         exactness="relaxed",
         doc="two products; up to 2 ULP; what NumPy's power is exact for is exact"),
    Rule("power-four", ops.power(X, Num(4)), ops.square(ops.square(X)), when=float_array_base,
         exactness="relaxed", doc="two squares; up to sqrt(2) + 1/2 ULP, and what is exact stays so"),
])

# --------------------------------------------------------------------------- rounding, extremes

_SAME_EXTREME = "the extreme of x and x is x, NaN included"


def x_is_ordered(root: Hop, b: Bound) -> bool:
    """X holds signed integers or floats."""
    return bool(b["X"].meta.dtype.kind in "if")


def roots_of_positives(root: Hop, b: Bound) -> bool:
    """Neither X nor Y is negative, and X has the shape of the result."""
    return same_shape(root, b) and never_negative(b["X"]) and never_negative(b["Y"])


EXTREMES = RuleSet([
    *(Rule(f"{name}-of-whole", getattr(ops, name)(X), X, when=x_is_whole,
           doc="integers, and floats that were rounded before, are whole already")
      for name in ("floor", "ceil", "trunc", "rint")),
    *(Rule(f"{name}-of-same", getattr(ops, name)(X, X), X, doc=_SAME_EXTREME)
      for name in ("maximum", "minimum", "fmax", "fmin")),
    *(Rule(f"{name}-again", getattr(ops, name)(getattr(ops, name)(X, Y), Y), getattr(ops, name)(X, Y),
           doc="nothing left to do, NaN included")
      for name in ("maximum", "minimum", "fmax", "fmin")),
    Rule("clip-again", ops.clip(ops.clip(X, Y, Z), Y, Z), ops.clip(X, Y, Z), when=x_is_real,
         doc="nothing left to do"),
    *(Rule(f"{name}-of-negs", getattr(ops, name)(once(ops.negative(X)), once(ops.negative(Y))),
           ops.negative(getattr(ops, other)(X, Y)), when=x_is_float_of_its_shape,
           doc="the other extreme, and one change of sign for two; the least integer has no negative")
      for name, other in (("maximum", "minimum"), ("minimum", "maximum"), ("fmax", "fmin"), ("fmin",
      "fmax"))),
    *(Rule(f"{name}-of-neg-and-self", getattr(ops, name)(ops.negative(X), X), ops.absolute(X),
           when=x_is_ordered, doc="the magnitude, which of two zeros is left open")
      for name in ("maximum", "fmax")),
    *(Rule(f"{name}-of-self-and-neg", getattr(ops, name)(X, ops.negative(X)), ops.absolute(X),
           when=x_is_ordered, doc="the magnitude, which of two zeros is left open")
      for name in ("maximum", "fmax")),
    *(Rule(f"{name}-of-roots", getattr(ops, name)(once(ops.sqrt(X)), once(ops.sqrt(Y))),
           ops.sqrt(getattr(ops, name)(X, Y)), when=roots_of_positives,
           doc="one square root for two; they keep order and nothing is negative")
      for name in ("maximum", "minimum")),
])

CELLS = SIGNS + PRODUCTS + EXTREMES
