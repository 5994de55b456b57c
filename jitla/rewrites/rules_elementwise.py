"""Rewrite rules of element-wise operators."""

from __future__ import annotations

from jitla.hops import Hop, const_value, may_hold_signalling_nan, possible_flags
from jitla.rewrites.rule import (
    AnyConst,
    App,
    AttrVar,
    Bindings,
    Num,
    Rule,
    RuleSet,
    Var,
    base_is_array,
    base_is_float_array,
    build_true,
    build_zeros,
    cannot_be_nan,
    is_droppable,
    is_lossless_cast,
    is_non_negative,
    is_power_of_two,
    multiply_by_reciprocal,
    ops,
    same_dtype,
    same_dtype_and_shape,
    same_float_dtype_and_shape,
    single_use,
    x_has_no_signalling_nan,
    x_has_result_shape,
    x_is_bool,
    x_is_complex,
    x_is_droppable,
    x_is_droppable_int,
    x_is_float,
    x_is_float_in_result_shape,
    x_is_int,
    x_is_int_or_bool,
    x_is_int_or_float,
    x_is_integral,
    x_is_non_negative,
    x_is_real,
    x_is_real_in_result_shape,
    x_is_signed,
    y_is_droppable,
)

X, Y, Z = Var("X"), Var("Y"), Var("Z")
K = AnyConst("K")

# --------------------------------------------------------------------------- identities and signs

SIGN_RULES = RuleSet([
    Rule("neg-of-neg", ops.negative(ops.negative(X)), X, doc="two negations cancel"),
    Rule("abs-of-abs", ops.absolute(ops.absolute(X)), ops.absolute(X), doc="idempotent"),
    Rule("abs-of-neg", ops.absolute(ops.negative(X)), ops.absolute(X), when=x_is_signed,
         doc="the sign is dropped anyway; the least integer is its own negative; unsigned numbers wrap"),
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
    Rule("mul-by-one", ops.multiply(X, Num(1)), X, when=x_has_no_signalling_nan,
         doc="exact for every value; the dtype is the result's already"),
    Rule("div-by-one", ops.divide(X, Num(1)), X, when=x_has_no_signalling_nan, doc="exact for every value"),
    Rule("sub-zero", ops.subtract(X, Num(0)), X, when=x_has_no_signalling_nan,
         doc="also -0.0 - 0.0 is -0.0; x - -0.0 is not covered"),
    Rule("add-zero", ops.add(X, Num(-0.0)), X, when=x_has_no_signalling_nan,
         doc="-0.0 (or an integer 0) is neutral; 0.0 is not, it turns -0.0 into 0.0"),
    Rule("mul-by-minus-one", ops.multiply(X, Num(-1)), ops.negative(X), when=x_has_no_signalling_nan,
         doc="a negation instead of a product"),
    Rule("neg-of-difference", ops.negative(ops.subtract(X, Y)), ops.subtract(Y, X), when=x_is_int,
         doc="integers have one zero; for equal floats -(x - y) is -0.0"),
    Rule("product-with-neg", ops.multiply(single_use(ops.negative(X)), Y), ops.negative(ops.multiply(X, Y)),
         when=x_is_real_in_result_shape, doc="the sign moves outwards, where sums and products absorb it"),
    Rule("quotient-of-neg", ops.divide(single_use(ops.negative(X)), Y), ops.negative(ops.divide(X, Y)),
         when=x_is_float_in_result_shape, doc="the sign moves outwards"),
    Rule("quotient-by-neg", ops.divide(Y, single_use(ops.negative(X))), ops.negative(ops.divide(Y, X)),
         when=x_is_float_in_result_shape, doc="the sign moves outwards"),
    Rule("quotient-of-negs", ops.divide(ops.negative(X), ops.negative(Y)), ops.divide(X, Y),
         when=x_is_float, doc="signs cancel"),
    Rule("product-of-abs", ops.multiply(single_use(ops.absolute(X)), single_use(ops.absolute(Y))),
         ops.absolute(ops.multiply(X, Y)), when=same_float_dtype_and_shape,
         doc="one absolute value instead of two; integers may wrap"),
    Rule("quotient-of-abs", ops.divide(single_use(ops.absolute(X)), single_use(ops.absolute(Y))),
         ops.absolute(ops.divide(X, Y)), when=same_float_dtype_and_shape,
         doc="one absolute value instead of two"),
    Rule("abs-of-positive", ops.absolute(X), X, when=x_is_non_negative,
         doc="squares, absolute values, exponentials, unsigned numbers, their sums and products have "
             "no sign"),
    Rule("fabs-as-abs", ops.fabs(X), ops.absolute(X), doc="a canonical form for both"),
    Rule("sign-of-sign", ops.sign(ops.sign(X)), ops.sign(X), when=x_is_real, doc="idempotent"),
    Rule("copysign-of-neg", ops.copysign(ops.negative(X), Y), ops.copysign(X, Y), doc="the sign is replaced"),
    Rule("copysign-of-abs", ops.copysign(ops.absolute(X), Y), ops.copysign(X, Y), when=x_is_float,
         doc="the sign is replaced"),
    *(Rule(f"{name}-of-{sign}", getattr(ops, name)(getattr(ops, op)(X)), getattr(ops, name)(X),
           when=x_is_float, exactness="rounding",
           doc="an even function; the bits are the same if NumPy's implementation is symmetric")
      for name in ("cos", "cosh") for sign, op in (("neg", "negative"), ("abs", "absolute"))),
    Rule("double-as-sum", ops.multiply(X, Num(2)), ops.add(X, X),
         doc="same bits, no constant; an overflow warning names add instead"),
])


def divisor_is_power_of_two(root: Hop, b: Bindings) -> bool:
    """K and 1/K are normal powers of two, so that both forms round the same real number."""
    value = const_value(b["K"])
    return value.dtype.char in "efd" and is_power_of_two(value)


PRODUCT_RULES = RuleSet([
    Rule("div-by-power-of-two", ops.divide(X, K), build=multiply_by_reciprocal, when=divisor_is_power_of_two,
         doc="a product is several times faster than a quotient; both round the same real number"),
    Rule("product-with-itself", ops.multiply(X, X), ops.square(X), when=x_is_int_or_float,
         doc="a canonical form that reads one operand; for bools and complex numbers the two differ"),
    Rule("power-two", ops.power(X, Num(2)), ops.square(X), when=base_is_array,
         doc="as NumPy's own loop"),
    Rule("power-half", ops.power(X, Num(0.5)), ops.sqrt(X), when=base_is_float_array,
         doc="as NumPy's own loop, also at -inf and -0.0"),
    Rule("power-one", ops.power(X, Num(1)), X, when=base_is_array, doc="as NumPy's own loop"),
    Rule("power-minus-one", ops.power(X, Num(-1)), ops.reciprocal(X), when=base_is_float_array,
         doc="as NumPy's own loop"),
    Rule("power-three", ops.power(X, Num(3)), ops.multiply(ops.square(X), X), when=base_is_float_array,
         exactness="relaxed",
         doc="two products; up to 2 ULP; exact where NumPy's power is exact"),
    Rule("power-four", ops.power(X, Num(4)), ops.square(ops.square(X)), when=base_is_float_array,
         exactness="relaxed",
         doc="two squares; up to sqrt(2) + 1/2 ULP, and exact where NumPy's power is exact"),
])

# --------------------------------------------------------------------------- rounding, extremes

_SAME_EXTREME_DOC = "the extreme of x and x is x, NaN included"


def x_is_signed_int_or_float(root: Hop, b: Bindings) -> bool:
    """X holds signed integers or floats."""
    return bool(b["X"].meta.dtype.kind in "if")


def x_and_y_are_non_negative(root: Hop, b: Bindings) -> bool:
    """The sign bits of X and Y are clear, and X has the shape of the result."""
    return x_has_result_shape(root, b) and is_non_negative(b["X"]) and is_non_negative(b["Y"])


EXTREME_RULES = RuleSet([
    *(Rule(f"{name}-of-whole", getattr(ops, name)(X), X, when=x_is_integral,
           doc="integers, and floats that were rounded before, are integral already")
      for name in ("floor", "ceil", "trunc", "rint")),
    *(Rule(f"{name}-of-same", getattr(ops, name)(X, X), X, doc=_SAME_EXTREME_DOC)
      for name in ("maximum", "minimum", "fmax", "fmin")),
    *(Rule(f"{name}-again", getattr(ops, name)(getattr(ops, name)(X, Y), Y), getattr(ops, name)(X, Y),
           doc="idempotent, NaN included")
      for name in ("maximum", "minimum", "fmax", "fmin")),
    Rule("clip-again", ops.clip(ops.clip(X, Y, Z), Y, Z), ops.clip(X, Y, Z), when=x_is_real,
         doc="idempotent"),
    *(Rule(f"{name}-of-negs", getattr(ops, name)(single_use(ops.negative(X)), single_use(ops.negative(Y))),
           ops.negative(getattr(ops, other)(X, Y)), when=x_is_float_in_result_shape,
           doc="the opposite extreme, and one negation instead of two; the least integer has no negative")
      for name, other in (("maximum", "minimum"), ("minimum", "maximum"), ("fmax", "fmin"), ("fmin",
      "fmax"))),
    *(Rule(f"{name}-of-neg-and-self", getattr(ops, name)(ops.negative(X), X), ops.absolute(X),
           when=x_is_signed_int_or_float, doc="the absolute value; the sign of a zero result is unspecified")
      for name in ("maximum", "fmax")),
    *(Rule(f"{name}-of-self-and-neg", getattr(ops, name)(X, ops.negative(X)), ops.absolute(X),
           when=x_is_signed_int_or_float, doc="the absolute value; the sign of a zero result is unspecified")
      for name in ("maximum", "fmax")),
    *(Rule(f"{name}-of-roots", getattr(ops, name)(single_use(ops.sqrt(X)), single_use(ops.sqrt(Y))),
           ops.sqrt(getattr(ops, name)(X, Y)), when=x_and_y_are_non_negative,
           doc="one square root instead of two; it is monotonic and nothing is negative")
      for name in ("maximum", "minimum")),
])

CELL_RULES = SIGN_RULES + PRODUCT_RULES + EXTREME_RULES


C = Var("C")
DTYPE = AttrVar("dtype")

# --------------------------------------------------------------------------- comparisons and logic


def _logical(name: str, bitwise: App, logical: App) -> Rule:
    return Rule(name, bitwise, logical, when=x_is_bool,
                doc="equal on bools; a canonical form for both")


def x_is_bool_and_y_is_droppable(root: Hop, b: Bindings) -> bool:
    """X is boolean, has the shape of the result, and computing Y raises no warning."""
    return x_is_bool(root, b) and y_is_droppable(root, b)


def x_is_int_and_y_is_droppable(root: Hop, b: Bindings) -> bool:
    """X holds integers, has the shape of the result, and computing Y raises no warning."""
    return x_is_int(root, b) and y_is_droppable(root, b)


LOGIC_RULES = RuleSet([
    Rule("greater-as-less", ops.greater(X, Y), ops.less(Y, X),
         doc="a canonical direction, so that equal comparisons are one node"),
    Rule("greater-equal-as-less-equal", ops.greater_equal(X, Y), ops.less_equal(Y, X),
         doc="a canonical direction, so that equal comparisons are one node"),
    Rule("not-of-equal", ops.logical_not(ops.equal(X, Y)), ops.not_equal(X, Y),
         doc="holds for NaN, too"),
    Rule("not-of-unequal", ops.logical_not(ops.not_equal(X, Y)), ops.equal(X, Y),
         doc="holds for NaN, too"),
    Rule("not-of-less", ops.logical_not(ops.less(X, Y)), ops.less_equal(Y, X), when=cannot_be_nan,
         doc="negation of an order; with NaN both x < y and y <= x are false"),
    Rule("not-of-less-equal", ops.logical_not(ops.less_equal(X, Y)), ops.less(Y, X), when=cannot_be_nan,
         doc="negation of an order; with NaN both x <= y and y < x are false"),
    Rule("not-of-not", ops.logical_not(ops.logical_not(X)), X, when=x_is_bool,
         doc="for bools; for numbers it means x != 0"),
    Rule("invert-of-invert", ops.invert(ops.invert(X)), X, doc="every bit is flipped twice"),
    _logical("invert-as-not", ops.invert(X), ops.logical_not(X)),
    _logical("bitand-as-and", ops.bitwise_and(X, Y), ops.logical_and(X, Y)),
    _logical("bitor-as-or", ops.bitwise_or(X, Y), ops.logical_or(X, Y)),
    _logical("bitxor-as-xor", ops.bitwise_xor(X, Y), ops.logical_xor(X, Y)),
    Rule("and-of-same", ops.logical_and(X, X), X, when=x_is_bool, doc="x and x"),
    Rule("or-of-same", ops.logical_or(X, X), X, when=x_is_bool, doc="x or x"),
    Rule("and-true", ops.logical_and(X, Num(True)), X, when=x_is_bool, doc="true is neutral"),
    Rule("or-false", ops.logical_or(X, Num(False)), X, when=x_is_bool, doc="false is neutral"),
    Rule("bit-and-same", ops.bitwise_and(X, X), X, when=x_is_int_or_bool, doc="every bit with itself"),
    Rule("bit-or-same", ops.bitwise_or(X, X), X, when=x_is_int_or_bool, doc="every bit with itself"),
    Rule("where-of-not", ops.where(ops.logical_not(X), Y, Z), ops.where(X, Z, Y), when=x_is_bool,
         doc="swaps the branches"),
    *(Rule(f"{name}-of-nots", getattr(ops, f"logical_{name}")(single_use(ops.logical_not(X)),
           single_use(ops.logical_not(Y))),
           ops.logical_not(getattr(ops, f"logical_{other}")(X, Y)), when=same_dtype_and_shape,
           doc="De Morgan: one operator fewer")
      for name, other in (("and", "or"), ("or", "and"))),
    Rule("xor-of-nots", ops.logical_xor(ops.logical_not(X), ops.logical_not(Y)), ops.logical_xor(X, Y),
         when=same_dtype, doc="the two negations cancel"),
    *(Rule(f"{name}-again", getattr(ops, f"logical_{name}")(getattr(ops, f"logical_{name}")(X, Y), Y),
           getattr(ops, f"logical_{name}")(X, Y), doc="idempotent")
      for name in ("and", "or")),
    *(Rule(f"bit-{name}-again", getattr(ops, f"bitwise_{name}")(getattr(ops, f"bitwise_{name}")(X, Y), Y),
           getattr(ops, f"bitwise_{name}")(X, Y), doc="idempotent")
      for name in ("and", "or")),
    *(Rule(f"{name}-absorbs-{other}",
           getattr(ops, f"logical_{name}")(X, getattr(ops, f"logical_{other}")(X, Y)), X,
           when=x_is_bool_and_y_is_droppable, doc="absorption: x alone decides; y must not be able to warn")
      for name, other in (("and", "or"), ("or", "and"))),
    Rule("and-with-not", ops.logical_and(X, ops.logical_not(X)), build=build_zeros, when=x_is_droppable,
         doc="a contradiction"),
    Rule("or-with-not", ops.logical_or(X, ops.logical_not(X)), build=build_true, when=x_is_droppable,
         doc="a tautology, for NaN, too"),
    Rule("xor-with-itself", ops.logical_xor(X, X), build=build_zeros, when=x_is_droppable,
         doc="no difference"),
    Rule("bit-xor-with-itself", ops.bitwise_xor(X, X), build=build_zeros, when=x_is_droppable,
         doc="no bit differs"),
    Rule("bit-xor-undone", ops.bitwise_xor(ops.bitwise_xor(X, Y), Y), X, when=y_is_droppable,
         doc="every bit is flipped twice"),
])


# --------------------------------------------------------------------------- integers and bools


def operands_are_bools(root: Hop, b: Bindings) -> bool:
    """The operands are boolean."""
    return bool(root.inputs[0].meta.dtype.kind == "b")


def x_is_int_and_y_or_z_is_array(root: Hop, b: Bindings) -> bool:
    """X holds integers, and Y or Z is an array: NumPy's operators on integer scalars warn of overflow."""
    return x_is_int(root, b) and max(b["Y"].meta.ndim, b["Z"].meta.ndim) > 0


_LOGICAL_EQUIVALENTS = (
    ("multiply", "and"), ("add", "or"), ("maximum", "or"), ("minimum", "and"), ("fmax", "or"), ("fmin",
    "and"),
    ("not_equal", "xor"),
)
INTEGER_RULES = RuleSet([
    *(Rule(f"{name.replace('_', '-')}-of-bools", getattr(ops, name)(X, Y), getattr(ops,
           f"logical_{logic}")(X, Y),
           when=operands_are_bools, doc="NumPy's definition on bools; a canonical form for both")
      for name, logic in _LOGICAL_EQUIVALENTS),
    Rule("factor-out-whole", ops.add(single_use(ops.multiply(X, Y)), single_use(ops.multiply(X, Z))),
         ops.multiply(X, ops.add(Y, Z)), when=x_is_int_and_y_or_z_is_array,
         doc="one product fewer; integers modulo 2**n are a ring"),
    Rule("factor-out-whole-difference",
         ops.subtract(single_use(ops.multiply(X, Y)), single_use(ops.multiply(X, Z))),
         ops.multiply(X, ops.subtract(Y, Z)), when=x_is_int_and_y_or_z_is_array,
         doc="one product fewer; integers modulo 2**n are a ring"),
    Rule("difference-of-sum", ops.subtract(ops.add(X, Y), Y), X, when=x_is_int_and_y_is_droppable,
         doc="the two cancel modulo 2**n; floats are rounded in between"),
    Rule("sum-of-difference", ops.add(ops.subtract(X, Y), Y), X, when=x_is_int_and_y_is_droppable,
         doc="the two cancel modulo 2**n; floats are rounded in between"),
    Rule("difference-of-same", ops.subtract(X, X), build=build_zeros, when=x_is_droppable_int,
         doc="zero; floats may be NaN or infinite"),
])

LOGIC_AND_INTEGER_RULES = LOGIC_RULES + INTEGER_RULES


# --------------------------------------------------------------------------- comparisons of related values


def both_casts_are_lossless(root: Hop, b: Bindings) -> bool:
    """X and Y have the same dtype, the casts preserve every value, and there are no signalling NaNs."""
    old = b["X"].meta.dtype
    silent_casts = not may_hold_signalling_nan(b["X"]) and not may_hold_signalling_nan(b["Y"])
    same_type = bool(old == b["Y"].meta.dtype)
    return silent_casts and same_type and is_lossless_cast(old, root.inputs[0].meta.dtype)


def float_cast_is_lossless(root: Hop, b: Bindings) -> bool:
    """X holds floats, none of them a signalling NaN, and the cast preserves every value."""
    silent_cast = x_is_float(root, b) and not may_hold_signalling_nan(b["X"])
    return silent_cast and is_lossless_cast(b["X"].meta.dtype, root.inputs[0].meta.dtype)


def x_is_droppable_int_or_bool(root: Hop, b: Bindings) -> bool:
    """X holds integers or bools, and computing it raises no warning."""
    return x_is_int_or_bool(root, b) and is_droppable(b["X"])


def x_may_be_nan(root: Hop, b: Bindings) -> bool:
    """X holds floats or complex numbers."""
    return bool(b["X"].meta.dtype.kind in "fc")


_FLOAT_TESTS = ("isnan", "isinf", "isfinite")
COMPARISON_RULES = RuleSet([
    Rule("less-or-equal", ops.logical_or(single_use(ops.less(X, Y)), single_use(ops.equal(X, Y))),
         ops.less_equal(X, Y), when=x_is_real, doc="one comparison instead of two, also for NaN"),
    Rule("less-equal-not-equal",
         ops.logical_and(single_use(ops.less_equal(X, Y)), single_use(ops.not_equal(X, Y))), ops.less(X, Y),
         when=x_is_real, doc="one comparison instead of two, also for NaN"),
    Rule("both-orders", ops.logical_and(single_use(ops.less_equal(X, Y)), single_use(ops.less_equal(Y, X))),
         ops.equal(X, Y), when=x_is_real, doc="one comparison instead of two, also for NaN"),
    *(Rule(f"{name.replace('_', '-')}-of-casts", getattr(ops, name)(ops.cast(X), ops.cast(Y)), getattr(ops,
           name)(X, Y),
           when=both_casts_are_lossless, doc="a lossless cast preserves the order")
      for name in ("equal", "not_equal", "less", "less_equal")),
    *(Rule(f"{name.replace('_', '-')}-of-negs", getattr(ops, name)(ops.negative(X), ops.negative(Y)),
           getattr(ops, name)(Y, X), when=x_is_float,
           doc="negation reverses the order; the least integer is its own negative")
      for name in ("less", "less_equal")),
    *(Rule(f"{name.replace('_', '-')}-of-negs", getattr(ops, name)(ops.negative(X), ops.negative(Y)),
           getattr(ops, name)(X, Y), when=x_is_int_or_float, doc="negation is injective")
      for name in ("equal", "not_equal")),
    Rule("unequal-to-itself", ops.not_equal(X, X), ops.isnan(X), when=x_may_be_nan,
         doc="only NaN differs from itself"),
    Rule("nan-or-inf", ops.logical_or(single_use(ops.isnan(X)), single_use(ops.isinf(X))),
         ops.logical_not(ops.isfinite(X)),
         doc="one test instead of two"),
    *(Rule(f"{test}-of-neg", getattr(ops, test)(ops.negative(X)), getattr(ops, test)(X),
           doc="independent of the sign")
      for test in _FLOAT_TESTS),
    *(Rule(f"{test}-of-abs", getattr(ops, test)(ops.absolute(X)), getattr(ops, test)(X), when=x_is_real,
           doc="independent of the sign; for complex numbers with infinity and NaN the absolute value is "
               "infinite")
      for test in _FLOAT_TESTS),
    *(Rule(f"{test}-of-cast", getattr(ops, test)(ops.cast(X)), getattr(ops, test)(X),
           when=float_cast_is_lossless, doc="a lossless cast preserves finite, infinite and NaN")
      for test in _FLOAT_TESTS),
    *(Rule(f"{test}-of-whole", getattr(ops, test)(X), build=build_true if test == "isfinite" else build_zeros,
           when=x_is_droppable_int_or_bool, doc="integers are finite")
      for test in _FLOAT_TESTS),
])


# --------------------------------------------------------------------------- where


def branch_y_is_droppable(root: Hop, b: Bindings) -> bool:
    """Computing Y raises no warning; C, X and Z have the shape of the result."""
    shape = root.meta.shape
    return is_droppable(b["Y"]) and all(b[v].meta.shape == shape for v in "XZC")


def branches_have_result_shape(root: Hop, b: Bindings) -> bool:
    """X and Y have the same dtype and the shape of the result, and the operator raises no warning."""
    same = same_dtype_and_shape(root, b) and bool(b["Y"].meta.shape == root.meta.shape)
    return same and not possible_flags(root.inputs[1])


def branches_are_non_negative(root: Hop, b: Bindings) -> bool:
    """X and Y have the shape of the result and clear sign bits, so that square roots raise no warning."""
    same = bool(b["X"].meta.shape == b["Y"].meta.shape == root.meta.shape)
    return same and is_non_negative(b["X"]) and is_non_negative(b["Y"])


CHOICE_RULES = RuleSet([
    Rule("choice-in-first-branch", ops.where(C, ops.where(C, X, Y), Z), ops.where(C, X, Z),
         when=branch_y_is_droppable,
         doc="the inner selection is redundant; the branch that is never selected must not be able to warn"),
    Rule("choice-in-second-branch", ops.where(C, X, ops.where(C, Y, Z)), ops.where(C, X, Z),
         when=branch_y_is_droppable,
         doc="the inner selection is redundant; the branch that is never selected must not be able to warn"),
    *(Rule(f"choice-of-{name}s",
           ops.where(C, single_use(getattr(ops, op)(X)), single_use(getattr(ops, op)(Y))),
           getattr(ops, op)(ops.where(C, X, Y)), when=branches_have_result_shape,
           doc="selected first, computed once")
      for name, op in (("neg", "negative"), ("abs", "absolute"), ("not", "logical_not"))),
    Rule("choice-of-casts",
         ops.where(C, single_use(ops.cast(X, dtype=DTYPE)), single_use(ops.cast(Y, dtype=DTYPE))),
         ops.cast(ops.where(C, X, Y), dtype=DTYPE), when=branches_have_result_shape,
         doc="selected first, cast once"),
    Rule("choice-of-roots", ops.where(C, single_use(ops.sqrt(X)), single_use(ops.sqrt(Y))),
         ops.sqrt(ops.where(C, X, Y)), when=branches_are_non_negative,
         doc="selected first, computed once; nothing is negative, nothing warns"),
])


# --------------------------------------------------------------------------- casts


def x_has_result_dtype(root: Hop, b: Bindings) -> bool:
    """X has the dtype that it is cast to."""
    return bool(b["X"].meta.dtype == root.meta.dtype)


def inner_cast_is_redundant(root: Hop, b: Bindings) -> bool:
    """The inner cast preserves every value, and the outer one has the same result from either dtype."""
    old, middle, new = b["X"].meta.dtype, root.inputs[0].meta.dtype, root.meta.dtype
    if not is_lossless_cast(old, middle) or new.kind not in "biuf":
        return False
    if (new == old or new.kind == "b") and may_hold_signalling_nan(b["X"]):
        return False  # the inner cast warns of signalling NaNs, a direct cast would not
    if is_lossless_cast(old, new) or new.kind == "b":
        return True
    if middle.kind == "f":
        return new.kind == "f" and (old.kind == "f" or new.itemsize > 2)
    return new.kind in "iu" or new.itemsize > 2


def cast_is_lossless(root: Hop, b: Bindings) -> bool:
    """The cast of X preserves every value."""
    return is_lossless_cast(b["X"].meta.dtype, root.inputs[0].meta.dtype)


def x_has_part_dtype(root: Hop, b: Bindings) -> bool:
    """X is real and has the dtype of the result."""
    return bool(b["X"].meta.dtype == root.meta.dtype)


CAST_RULES = RuleSet([
    Rule("cast-to-same", ops.cast(X, dtype=DTYPE), X, when=x_has_result_dtype, doc="a copy"),
    Rule("cast-of-cast", ops.cast(ops.cast(X), dtype=DTYPE), ops.cast(X, dtype=DTYPE),
         when=inner_cast_is_redundant,
         doc="a lossless cast in between is redundant; excluded: NumPy casts integers to float16 through "
             "float32, and floats out of range of an integer dtype depend on the CPU"),
    Rule("not-of-cast", ops.logical_not(ops.cast(X)), ops.logical_not(X), when=cast_is_lossless,
         doc="zero stays zero, and nonzero stays nonzero"),
    Rule("conjugate-of-conjugate", ops.conjugate(ops.conjugate(X)), X,
         doc="two negations cancel"),
    Rule("real-of-conjugate", ops.real(ops.conjugate(X)), ops.real(X),
         doc="conjugation preserves the real part"),
    Rule("imag-of-conjugate", ops.imag(ops.conjugate(X)), ops.negative(ops.imag(X)), when=x_is_complex,
         doc="one part is negated instead of two being copied"),
    Rule("abs-of-conjugate", ops.absolute(ops.conjugate(X)), ops.absolute(X),
         doc="independent of the sign of a part"),
    Rule("real-of-cast", ops.real(ops.cast(X)), X, when=x_has_part_dtype,
         doc="a real number is its real part"),
    Rule("real-of-real", ops.real(X), X, when=x_is_real, doc="a real number is its real part"),
])

COMPARISON_CHOICE_AND_CAST_RULES = COMPARISON_RULES + CHOICE_RULES + CAST_RULES
