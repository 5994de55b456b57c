"""Rewrite rules of element-wise operators."""

from __future__ import annotations

from jitla.hops import Hop, const, const_value, make, may_hold_signalling_nan, possible_flags
from jitla.rewrites.conditions import (
    alike,
    always,
    array_base,
    float_array_base,
    floats_alike,
    never,
    never_negative,
    no_nans,
    one_dtype,
    power_of_two,
    same_shape,
    silent,
    silent_int,
    silent_x,
    silent_y,
    widens,
    x_is_bool,
    x_is_float,
    x_is_float_of_its_shape,
    x_is_int,
    x_is_number,
    x_is_quiet,
    x_is_real,
    x_is_real_of_its_shape,
    x_is_signed,
    x_is_whole,
    x_is_wide_int,
    x_not_negative,
)
from jitla.rewrites.rule import AnyConst, App, AttrVar, Bound, Num, Rule, RuleSet, Var, once, ops

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


C = Var("C")
DTYPE = AttrVar("dtype")

# --------------------------------------------------------------------------- comparisons and logic


def _logical(name: str, bitwise: App, logical: App) -> Rule:
    return Rule(name, bitwise, logical, when=x_is_bool,
                doc="on bools the two are one operator; one form is kept")


def absorbed(root: Hop, b: Bound) -> bool:
    """X is bool; dropping Y drops no warning, and leaves the shape as it is."""
    return x_is_bool(root, b) and silent_y(root, b)


def undone(root: Hop, b: Bound) -> bool:
    """X holds integers; dropping Y drops no warning, and leaves the shape as it is."""
    return x_is_wide_int(root, b) and silent_y(root, b)


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
    *(Rule(f"{name}-of-nots", getattr(ops, f"logical_{name}")(once(ops.logical_not(X)),
           once(ops.logical_not(Y))),
           ops.logical_not(getattr(ops, f"logical_{other}")(X, Y)), when=alike,
           doc="De Morgan: one operator less")
      for name, other in (("and", "or"), ("or", "and"))),
    Rule("xor-of-nots", ops.logical_xor(ops.logical_not(X), ops.logical_not(Y)), ops.logical_xor(X, Y),
         when=one_dtype, doc="both sides flipped"),
    *(Rule(f"{name}-again", getattr(ops, f"logical_{name}")(getattr(ops, f"logical_{name}")(X, Y), Y),
           getattr(ops, f"logical_{name}")(X, Y), doc="said once")
      for name in ("and", "or")),
    *(Rule(f"bit-{name}-again", getattr(ops, f"bitwise_{name}")(getattr(ops, f"bitwise_{name}")(X, Y), Y),
           getattr(ops, f"bitwise_{name}")(X, Y), doc="every bit said once")
      for name in ("and", "or")),
    *(Rule(f"{name}-absorbs-{other}",
           getattr(ops, f"logical_{name}")(X, getattr(ops, f"logical_{other}")(X, Y)), X, when=absorbed,
           doc="x decides alone; y must not be able to warn")
      for name, other in (("and", "or"), ("or", "and"))),
    Rule("and-with-not", ops.logical_and(X, ops.logical_not(X)), build=never, when=silent_x,
         doc="a contradiction"),
    Rule("or-with-not", ops.logical_or(X, ops.logical_not(X)), build=always, when=silent_x,
         doc="a tautology, for NaN, too"),
    Rule("xor-with-itself", ops.logical_xor(X, X), build=never, when=silent_x, doc="no difference"),
    Rule("bit-xor-with-itself", ops.bitwise_xor(X, X), build=never, when=silent_x, doc="no bit differs"),
    Rule("bit-xor-undone", ops.bitwise_xor(ops.bitwise_xor(X, Y), Y), X, when=silent_y,
         doc="every bit is flipped twice"),
])


# --------------------------------------------------------------------------- integers and bools


def bools(root: Hop, b: Bound) -> bool:
    """The operands are bools."""
    return bool(root.inputs[0].meta.dtype.kind == "b")


def ints_not_all_single(root: Hop, b: Bound) -> bool:
    """X holds integers, and Y or Z is an array: of single integers NumPy's operators warn."""
    return x_is_wide_int(root, b) and max(b["Y"].meta.ndim, b["Z"].meta.ndim) > 0


_AS_LOGIC = (
    ("multiply", "and"), ("add", "or"), ("maximum", "or"), ("minimum", "and"), ("fmax", "or"), ("fmin",
    "and"),
    ("not_equal", "xor"),
)
WHOLE = RuleSet([
    *(Rule(f"{name.replace('_', '-')}-of-bools", getattr(ops, name)(X, Y), getattr(ops,
           f"logical_{logic}")(X, Y),
           when=bools, doc="on bools NumPy computes that; one form is kept")
      for name, logic in _AS_LOGIC),
    Rule("factor-out-whole", ops.add(once(ops.multiply(X, Y)), once(ops.multiply(X, Z))),
         ops.multiply(X, ops.add(Y, Z)), when=ints_not_all_single,
         doc="one product less; integers that wrap around are a ring"),
    Rule("factor-out-whole-difference", ops.subtract(once(ops.multiply(X, Y)), once(ops.multiply(X, Z))),
         ops.multiply(X, ops.subtract(Y, Z)), when=ints_not_all_single,
         doc="one product less; integers that wrap around are a ring"),
    Rule("difference-of-sum", ops.subtract(ops.add(X, Y), Y), X, when=undone,
         doc="what wraps around one way wraps back; floats are rounded on the way"),
    Rule("sum-of-difference", ops.add(ops.subtract(X, Y), Y), X, when=undone,
         doc="what wraps around one way wraps back; floats are rounded on the way"),
    Rule("difference-of-same", ops.subtract(X, X), build=never, when=silent_int,
         doc="zero; floats may be NaN or infinite"),
])

LOGICAL = LOGIC + WHOLE


# --------------------------------------------------------------------------- comparisons of related values


def widened_alike(root: Hop, b: Bound) -> bool:
    """X and Y have one dtype, all its values survive the cast, and none of theirs is a signalling NaN."""
    old = b["X"].meta.dtype
    silent_casts = not may_hold_signalling_nan(b["X"]) and not may_hold_signalling_nan(b["Y"])
    return silent_casts and bool(old == b["Y"].meta.dtype) and widens(old, root.inputs[0].meta.dtype)


def from_float(root: Hop, b: Bound) -> bool:
    """X holds floats, all of them survive the cast, and none is a signalling NaN."""
    silent_cast = x_is_float(root, b) and not may_hold_signalling_nan(b["X"])
    return silent_cast and widens(b["X"].meta.dtype, root.inputs[0].meta.dtype)


def silent_whole(root: Hop, b: Bound) -> bool:
    """X holds integers or bools and can be dropped unseen."""
    return x_is_int(root, b) and silent(b["X"])


def x_may_be_nan(root: Hop, b: Bound) -> bool:
    """X holds floats or complex numbers."""
    return bool(b["X"].meta.dtype.kind in "fc")


_TESTS = ("isnan", "isinf", "isfinite")
COMPARISONS = RuleSet([
    Rule("less-or-equal", ops.logical_or(once(ops.less(X, Y)), once(ops.equal(X, Y))), ops.less_equal(X, Y),
         when=x_is_real, doc="one comparison for two, also with NaN"),
    Rule("less-equal-not-equal", ops.logical_and(once(ops.less_equal(X, Y)), once(ops.not_equal(X, Y))),
         ops.less(X, Y), when=x_is_real, doc="one comparison for two, also with NaN"),
    Rule("both-orders", ops.logical_and(once(ops.less_equal(X, Y)), once(ops.less_equal(Y, X))), ops.equal(X,
         Y),
         when=x_is_real, doc="one comparison for two, also with NaN"),
    *(Rule(f"{name.replace('_', '-')}-of-casts", getattr(ops, name)(ops.cast(X), ops.cast(Y)), getattr(ops,
           name)(X, Y),
           when=widened_alike, doc="a cast that loses nothing keeps the order")
      for name in ("equal", "not_equal", "less", "less_equal")),
    *(Rule(f"{name.replace('_', '-')}-of-negs", getattr(ops, name)(ops.negative(X), ops.negative(Y)),
           getattr(ops, name)(Y, X), when=x_is_float,
           doc="the order is turned round; the least integer is its own negative")
      for name in ("less", "less_equal")),
    *(Rule(f"{name.replace('_', '-')}-of-negs", getattr(ops, name)(ops.negative(X), ops.negative(Y)),
           getattr(ops, name)(X, Y), when=x_is_number, doc="no two numbers have one negative")
      for name in ("equal", "not_equal")),
    Rule("unequal-to-itself", ops.not_equal(X, X), ops.isnan(X), when=x_may_be_nan, doc="only NaN is"),
    Rule("nan-or-inf", ops.logical_or(once(ops.isnan(X)), once(ops.isinf(X))),
         ops.logical_not(ops.isfinite(X)),
         doc="one test for two"),
    *(Rule(f"{test}-of-neg", getattr(ops, test)(ops.negative(X)), getattr(ops, test)(X),
           doc="whatever the sign")
      for test in _TESTS),
    *(Rule(f"{test}-of-abs", getattr(ops, test)(ops.absolute(X)), getattr(ops, test)(X), when=x_is_real,
           doc="whatever the sign; the magnitude of infinity and NaN is infinite")
      for test in _TESTS),
    *(Rule(f"{test}-of-cast", getattr(ops, test)(ops.cast(X)), getattr(ops, test)(X), when=from_float,
           doc="a cast that loses nothing changes no class")
      for test in _TESTS),
    *(Rule(f"{test}-of-whole", getattr(ops, test)(X), build=always if test == "isfinite" else never,
           when=silent_whole, doc="integers are finite")
      for test in _TESTS),
])


# --------------------------------------------------------------------------- choices


def y_can_go(root: Hop, b: Bound) -> bool:
    """Dropping Y drops no warning; X and Z have the shape of the result."""
    shape = root.meta.shape
    return silent(b["Y"]) and b["X"].meta.shape == shape == b["Z"].meta.shape and b["C"].meta.shape == shape


def both_of_its_shape(root: Hop, b: Bound) -> bool:
    """X and Y have one dtype and the shape of the result; choosing first changes no warning."""
    same = alike(root, b) and bool(b["Y"].meta.shape == root.meta.shape)
    return same and not possible_flags(root.inputs[1])


def roots_to_choose(root: Hop, b: Bound) -> bool:
    """X and Y have the shape of the result and square roots that nobody warns of."""
    same = bool(b["X"].meta.shape == b["Y"].meta.shape == root.meta.shape)
    return same and never_negative(b["X"]) and never_negative(b["Y"])


CHOICES = RuleSet([
    Rule("choice-in-first-branch", ops.where(C, ops.where(C, X, Y), Z), ops.where(C, X, Z), when=y_can_go,
         doc="asked once; the branch that is never taken must not be able to warn"),
    Rule("choice-in-second-branch", ops.where(C, X, ops.where(C, Y, Z)), ops.where(C, X, Z), when=y_can_go,
         doc="asked once; the branch that is never taken must not be able to warn"),
    *(Rule(f"choice-of-{name}s", ops.where(C, once(getattr(ops, op)(X)), once(getattr(ops, op)(Y))),
           getattr(ops, op)(ops.where(C, X, Y)), when=both_of_its_shape, doc="chosen first, computed once")
      for name, op in (("neg", "negative"), ("abs", "absolute"), ("not", "logical_not"))),
    Rule("choice-of-casts", ops.where(C, once(ops.cast(X, dtype=DTYPE)), once(ops.cast(Y, dtype=DTYPE))),
         ops.cast(ops.where(C, X, Y), dtype=DTYPE), when=both_of_its_shape, doc="chosen first, cast once"),
    Rule("choice-of-roots", ops.where(C, once(ops.sqrt(X)), once(ops.sqrt(Y))), ops.sqrt(ops.where(C, X, Y)),
         when=roots_to_choose, doc="chosen first, computed once; nothing is negative, nothing warns"),
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
    if (new == old or new.kind == "b") and may_hold_signalling_nan(b["X"]):
        return False  # what the detour says of signalling NaNs, the straight way does not
    if widens(old, new) or new.kind == "b":
        return True
    if middle.kind == "f":
        return new.kind == "f" and (old.kind == "f" or new.itemsize > 2)
    return new.kind in "iu" or new.itemsize > 2


def keeps_truth(root: Hop, b: Bound) -> bool:
    """All values survive the cast of X."""
    return widens(b["X"].meta.dtype, root.inputs[0].meta.dtype)


def x_is_complex(root: Hop, b: Bound) -> bool:
    """X holds complex numbers."""
    return bool(b["X"].meta.dtype.kind == "c")


def x_is_that_part(root: Hop, b: Bound) -> bool:
    """X holds real numbers of the dtype of the parts."""
    return bool(b["X"].meta.dtype == root.meta.dtype)


CASTS = RuleSet([
    Rule("cast-to-same", ops.cast(X, dtype=DTYPE), X, when=already_so, doc="a copy"),
    Rule("cast-of-cast", ops.cast(ops.cast(X), dtype=DTYPE), ops.cast(X, dtype=DTYPE), when=detour,
         doc="a cast that loses nothing is no stop on the way; NumPy goes from integers to float16 "
             "by float32, and floats that no integer of the dtype holds become what the CPU likes"),
    Rule("not-of-cast", ops.logical_not(ops.cast(X)), ops.logical_not(X), when=keeps_truth,
         doc="what is zero stays so, what is not does, too"),
    Rule("conjugate-of-conjugate", ops.conjugate(ops.conjugate(X)), X,
         doc="two changes of sign undo each other"),
    Rule("real-of-conjugate", ops.real(ops.conjugate(X)), ops.real(X), doc="that part stays"),
    Rule("imag-of-conjugate", ops.imag(ops.conjugate(X)), ops.negative(ops.imag(X)), when=x_is_complex,
         doc="one part is turned round instead of two being copied"),
    Rule("abs-of-conjugate", ops.absolute(ops.conjugate(X)), ops.absolute(X),
         doc="whatever the sign of a part"),
    Rule("real-of-cast", ops.real(ops.cast(X)), X, when=x_is_that_part, doc="a real number is its real part"),
    Rule("real-of-real", ops.real(X), X, when=x_is_real, doc="a real number is its real part"),
])

RELATED = COMPARISONS + CHOICES + CASTS
