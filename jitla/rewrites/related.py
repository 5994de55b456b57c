"""Rewrites of comparisons of related values, tests of floats, choices, casts and complex parts.

Canonical direction: fewer operators; chosen first, then computed; casts outwards,
or gone. Must not know: kernels.
Returns `RELATED`.
"""

from __future__ import annotations

from jitla.hops import Hop, may_raise, may_signal
from jitla.rewrites.conditions import (
    alike,
    always,
    never,
    never_negative,
    silent,
    widens,
    x_is_float,
    x_is_int,
    x_is_number,
    x_is_real,
)
from jitla.rewrites.pattern import AttrVar, Bound, Var, once, ops
from jitla.rewrites.rule import Rule, RuleSet

X, Y, Z, C = Var("X"), Var("Y"), Var("Z"), Var("C")
DTYPE = AttrVar("dtype")

# --------------------------------------------------------------------------- comparisons of related values


def widened_alike(root: Hop, b: Bound) -> bool:
    """X and Y have one dtype, all its values survive the cast, and none of theirs is a signalling NaN."""
    old = b["X"].meta.dtype
    silent_casts = not may_signal(b["X"]) and not may_signal(b["Y"])
    return silent_casts and bool(old == b["Y"].meta.dtype) and widens(old, root.inputs[0].meta.dtype)


def from_float(root: Hop, b: Bound) -> bool:
    """X holds floats, all of them survive the cast, and none is a signalling NaN."""
    silent_cast = x_is_float(root, b) and not may_signal(b["X"])
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
    return same and not may_raise(root.inputs[1])


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
    if (new == old or new.kind == "b") and may_signal(b["X"]):
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
