"""Rewrites of element-wise code and casts that hold whatever the sizes are.

Knows: the canonical direction: fewer operators, then fewer kinds (less for greater, logical for
bitwise on bools), then cheaper ones. Must not know: shapes. Returns `CELLS`.
"""

from __future__ import annotations

import numpy as np

from jitla.hops import Hop, const, const_value, make
from jitla.rewrites.conditions import (
    array_base,
    float_array_base,
    no_nans,
    power_of_two,
    silent,
    widens,
    x_is_bool,
    x_is_int,
    x_is_real,
    x_is_signed,
    x_is_whole,
)
from jitla.rewrites.pattern import AnyConst, App, AttrVar, Bound, Num, Var, once, ops
from jitla.rewrites.rule import Rule, RuleSet

X, Y, Z, C = Var("X"), Var("Y"), Var("Z"), Var("C")
K = AnyConst("K")
DTYPE = AttrVar("dtype")

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
    Rule("mul-by-one", ops.multiply(X, Num(1)), X,
         doc="exact for every value; the dtype is the result's already"),
    Rule("div-by-one", ops.divide(X, Num(1)), X, doc="exact for every value"),
    Rule("sub-zero", ops.subtract(X, Num(0)), X,
         doc="also -0.0 - 0.0 is -0.0; x - -0.0 is not covered"),
    Rule("add-zero", ops.add(X, Num(-0.0)), X,
         doc="-0.0 (or an integer 0) is neutral; 0.0 is not, it turns -0.0 into 0.0"),
    Rule("mul-by-minus-one", ops.multiply(X, Num(-1)), ops.negative(X),
         doc="a change of sign, no product"),
    Rule("double-as-sum", ops.multiply(X, Num(2)), ops.add(X, X),
         doc="same bits, no constant; an overflow warning then names add"),
])


def power_of_two_divisor(root: Hop, b: Bound) -> bool:
    """K and 1/K are normal powers of two, so that both forms round the same real number."""
    value = const_value(b["K"])
    return value.dtype.char in "efd" and power_of_two(value)


def finite_reciprocal(root: Hop, b: Bound) -> bool:
    """1/K is a normal number."""
    value = const_value(b["K"])
    if value.dtype.char not in "efd":
        return False
    info = np.finfo(value.dtype)
    return bool(info.smallest_normal <= abs(float(value)) <= 1 / float(info.smallest_normal))


def by_reciprocal(root: Hop, b: Bound) -> Hop:
    """Build X * (1/K)."""
    value = const_value(b["K"])
    one = value.dtype.type(1)
    return make("multiply", (b["X"], const(one / value, value.dtype)), root.line)


def silent_x(root: Hop, b: Bound) -> bool:
    """Dropping X drops no warning."""
    return silent(b["X"])


def zeros_like_root(root: Hop, b: Bound) -> Hop:
    """Build a zero in the shape of the result."""
    zero = const(0, root.meta.dtype)
    if not root.meta.shape:
        return zero
    return make("broadcast_to", (zero,), root.line, shape=root.meta.shape)


PRODUCTS = RuleSet([
    Rule("div-by-power-of-two", ops.divide(X, K), build=by_reciprocal, when=power_of_two_divisor,
         doc="a product is several times faster than a quotient; both round the same real number"),
    Rule("div-by-constant", ops.divide(X, K), build=by_reciprocal, when=finite_reciprocal,
         exactness="relaxed",
         doc="a product is several times faster than a quotient; up to 1 ULP off"),
    Rule("mul-by-zero", ops.multiply(X, Num(0)), build=zeros_like_root, when=silent_x,
         exactness="relaxed",
         doc="zero, though NaN and inf would give NaN and negative numbers -0.0"),
    Rule("sub-self", ops.subtract(X, X), build=zeros_like_root, when=silent_x, exactness="relaxed",
         doc="zero, though NaN and inf would give NaN"),
    Rule("factor-out", ops.add(once(ops.multiply(X, Y)), once(ops.multiply(X, Z))),
         ops.multiply(X, ops.add(Y, Z)), exactness="relaxed",
         doc="one product less; overflow and rounding differ"),
    Rule("power-two", ops.power(X, Num(2)), ops.square(X), when=array_base,
         doc="as NumPy's own loop"),
    Rule("power-half", ops.power(X, Num(0.5)), ops.sqrt(X), when=float_array_base,
         doc="as NumPy's own loop, also at -inf and -0.0"),
    Rule("power-one", ops.power(X, Num(1)), X, when=array_base, doc="as NumPy's own loop"),
    Rule("power-minus-one", ops.power(X, Num(-1)), ops.reciprocal(X), when=float_array_base,
         doc="as NumPy's own loop"),
    Rule("power-three", ops.power(X, Num(3)), ops.multiply(ops.square(X), X), when=float_array_base,
         exactness="rounding",
         doc="two products; up to 2 ULP, as powers are; what NumPy's power is exact for is exact"),
    Rule("power-four", ops.power(X, Num(4)), ops.square(ops.square(X)), when=float_array_base,
         exactness="rounding", doc="two squares; up to sqrt(2) + 1/2 ULP, and what is exact stays so"),
])

# --------------------------------------------------------------------------- rounding, extremes

_SAME_EXTREME = "the extreme of x and x is x, NaN included"

EXTREMES = RuleSet([
    *(Rule(f"{name}-of-whole", getattr(ops, name)(X), X, when=x_is_whole,
           doc="integers, and floats that were rounded before, are whole already")
      for name in ("floor", "ceil", "trunc", "rint")),
    *(Rule(f"{name}-of-same", getattr(ops, name)(X, X), X, doc=_SAME_EXTREME)
      for name in ("maximum", "minimum", "fmax", "fmin")),
])

# --------------------------------------------------------------------------- comparisons and logic


def _logical(name: str, bitwise: App, logical: App) -> Rule:
    return Rule(name, bitwise, logical, when=x_is_bool,
                doc="on bools the two are one operator; one form is kept")


LOGIC = RuleSet([
    Rule("greater-as-less", ops.greater(X, Y), ops.less(Y, X),
         doc="one direction, so that equal tests are one node"),
    Rule("greater-equal-as-less-equal", ops.greater_equal(X, Y), ops.less_equal(Y, X),
         doc="one direction, so that equal tests are one node"),
    Rule("not-of-equal", ops.logical_not(ops.equal(X, Y)), ops.not_equal(X, Y),
         doc="also true for NaN"),
    Rule("not-of-unequal", ops.logical_not(ops.not_equal(X, Y)), ops.equal(X, Y),
         doc="also true for NaN"),
    Rule("not-of-less", ops.logical_not(ops.less(X, Y)), ops.less_equal(Y, X), when=no_nans,
         doc="the opposite of an order; with NaN both x < y and y <= x are false"),
    Rule("not-of-less-equal", ops.logical_not(ops.less_equal(X, Y)), ops.less(Y, X), when=no_nans,
         doc="the opposite of an order; with NaN both x <= y and y < x are false"),
    Rule("not-of-not", ops.logical_not(ops.logical_not(X)), X, when=x_is_bool,
         doc="for bools; for numbers it asks for x != 0"),
    Rule("invert-of-invert", ops.invert(ops.invert(X)), X, doc="every bit is flipped twice"),
    _logical("invert-as-not", ops.invert(X), ops.logical_not(X)),
    _logical("bitand-as-and", ops.bitwise_and(X, Y), ops.logical_and(X, Y)),
    _logical("bitor-as-or", ops.bitwise_or(X, Y), ops.logical_or(X, Y)),
    _logical("bitxor-as-xor", ops.bitwise_xor(X, Y), ops.logical_xor(X, Y)),
    Rule("and-of-same", ops.logical_and(X, X), X, when=x_is_bool, doc="x and x"),
    Rule("or-of-same", ops.logical_or(X, X), X, when=x_is_bool, doc="x or x"),
    Rule("and-true", ops.logical_and(X, Num(True)), X, when=x_is_bool, doc="true is neutral"),
    Rule("or-false", ops.logical_or(X, Num(False)), X, when=x_is_bool, doc="false is neutral"),
    Rule("bit-and-same", ops.bitwise_and(X, X), X, when=x_is_int, doc="every bit with itself"),
    Rule("bit-or-same", ops.bitwise_or(X, X), X, when=x_is_int, doc="every bit with itself"),
    Rule("where-of-not", ops.where(ops.logical_not(X), Y, Z), ops.where(X, Z, Y), when=x_is_bool,
         doc="the branches change places"),
])

# --------------------------------------------------------------------------- casts


def already_so(root: Hop, b: Bound) -> bool:
    """X has the dtype it is cast to."""
    return bool(b["X"].meta.dtype == root.meta.dtype)


def detour(root: Hop, b: Bound) -> bool:
    """The inner cast keeps every value, and the outer one does the same wherever it starts."""
    old, middle, new = b["X"].meta.dtype, root.inputs[0].meta.dtype, root.meta.dtype
    if not widens(old, middle) or new.kind not in "biuf":
        return False
    if widens(old, new) or new.kind == "b":
        return True
    if middle.kind == "f":
        return new.kind == "f" and (old.kind == "f" or new.itemsize > 2)
    return new.kind in "iu" or new.itemsize > 2


CASTS = RuleSet([
    Rule("cast-to-same", ops.cast(X, dtype=DTYPE), X, when=already_so, doc="a copy"),
    Rule("cast-of-cast", ops.cast(ops.cast(X), dtype=DTYPE), ops.cast(X, dtype=DTYPE), when=detour,
         doc="a cast that loses nothing is no stop on the way; NumPy goes from integers to float16 "
             "by float32, and floats that no integer of the dtype holds become what the CPU likes"),
])

CELLS = SIGNS + PRODUCTS + EXTREMES + LOGIC + CASTS
