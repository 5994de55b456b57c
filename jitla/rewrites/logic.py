"""Rewrites of comparisons and logic, of integers and of arithmetic on bools.

Canonical direction: fewer operators, then fewer kinds (less for greater,
logical for bitwise and for arithmetic
on bools). Must not know: kernels. Returns `LOGICAL`.
"""

from __future__ import annotations

from jitla.hops import Hop
from jitla.rewrites.conditions import (
    alike,
    always,
    never,
    no_nans,
    one_dtype,
    silent_int,
    silent_x,
    silent_y,
    x_is_bool,
    x_is_int,
    x_is_wide_int,
)
from jitla.rewrites.pattern import App, AttrVar, Bound, Num, Var, once, ops
from jitla.rewrites.rule import Rule, RuleSet

X, Y, Z, C = Var("X"), Var("Y"), Var("Z"), Var("C")
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
