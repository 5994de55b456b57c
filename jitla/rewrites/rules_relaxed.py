"""Rewrites that are equal over the reals and no more: what `numerics="relaxed"` adds.

Canonical direction: fewer operators, products for quotients, scalars with scalars, one exponential for two.

Each says what may differ. None divides by what was not a divisor before, or drops the domain of a function:
x / x is not 1, exp(log(x)) not x.
"""

from __future__ import annotations

import numpy as np

from jitla.hops import Hop, const, const_value, make
from jitla.rewrites.conditions import (
    column_of,
    constant_like,
    never_negative,
    silent_x,
    x_is_float,
    x_is_float_of_its_shape,
)
from jitla.rewrites.rule import (
    AnyConst,
    App,
    AttrVar,
    Bound,
    Num,
    Rule,
    RuleSet,
    Var,
    once,
    ops,
)

X, Y, Z, A, B, M = map(Var, ("X", "Y", "Z", "A", "B", "M"))
K = AnyConst("K")
AXIS, KEEPDIMS = AttrVar("axis"), AttrVar("keepdims")


def _relaxed(name: str, left: App, right: App | Var | None = None, **more: object) -> Rule:
    return Rule(name, left, right, exactness="relaxed", **more)  # type: ignore[arg-type]


# --------------------------------------------------------------------------- elements


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


def zeros_like_root(root: Hop, b: Bound) -> Hop:
    """Build a zero in the shape of the result."""
    return constant_like(root, 0)


def scalars_meet(root: Hop, b: Bound) -> bool:
    """X is an array of floats, Y and Z are single numbers."""
    return x_is_float(root, b) and b["X"].meta.ndim > 0 == b["Y"].meta.ndim == b["Z"].meta.ndim


def small_divisors(root: Hop, b: Bound) -> bool:
    """The operands are floats, and X has the shape of the result, so that no product is larger."""
    return x_is_float_of_its_shape(root, b)


def mask_of_choice(root: Hop, b: Bound) -> bool:
    """M is bool; X holds floats and has the shape of the result."""
    return b["M"].meta.dtype.kind == "b" and x_is_float_of_its_shape(root, b)


def chosen_or_zero(root: Hop, b: Bound) -> Hop:
    """Build X where M holds, else zero."""
    return make("where", (b["M"], b["X"], const(0, root.meta.dtype)), root.line)


def half_of_log(root: Hop, b: Bound) -> Hop:
    """Build half of the logarithm of X."""
    return make("multiply", (make("log", (b["X"],), root.line), const(0.5, root.meta.dtype)), root.line)


def positive_floats(root: Hop, b: Bound) -> bool:
    """X holds floats without a sign."""
    return x_is_float(root, b) and never_negative(b["X"])


def complex_parts(root: Hop, b: Bound) -> bool:
    """X holds complex numbers."""
    return bool(b["X"].meta.dtype.kind == "c")


def squared_parts(root: Hop, b: Bound) -> Hop:
    """Build the sum of the squares of both parts."""
    parts = (make("square", (make(part, (b["X"],), root.line),), root.line) for part in ("real", "imag"))
    return make("add", parts, root.line)


CELLS_OF_REALS = RuleSet([
    _relaxed("div-by-constant", ops.divide(X, K), build=by_reciprocal, when=finite_reciprocal,
             doc="a product is several times faster than a quotient; up to 1 ULP off"),
    _relaxed("mul-by-zero", ops.multiply(X, Num(0)), build=zeros_like_root, when=silent_x,
             doc="zero, though NaN and inf would give NaN and negative numbers -0.0"),
    _relaxed("sub-self", ops.subtract(X, X), build=zeros_like_root, when=silent_x,
             doc="zero, though NaN and inf would give NaN"),
    _relaxed("factor-out", ops.add(once(ops.multiply(X, Y)), once(ops.multiply(X, Z))),
             ops.multiply(X, ops.add(Y, Z)), doc="one product less; overflow and rounding differ"),
    _relaxed("factor-out-difference", ops.subtract(once(ops.multiply(X, Y)), once(ops.multiply(X, Z))),
             ops.multiply(X, ops.subtract(Y, Z)), doc="one product less; overflow and rounding differ"),
    _relaxed("sum-over-divisor", ops.add(once(ops.divide(X, Z)), once(ops.divide(Y, Z))),
             ops.divide(ops.add(X, Y), Z), doc="one quotient for two; overflow and rounding differ"),
    _relaxed("difference-over-divisor", ops.subtract(once(ops.divide(X, Z)), once(ops.divide(Y, Z))),
             ops.divide(ops.subtract(X, Y), Z), doc="one quotient for two; overflow and rounding differ"),
    _relaxed("quotient-of-quotient", ops.divide(once(ops.divide(X, Y)), Z), ops.divide(X, ops.multiply(Y, Z)),
             when=small_divisors, doc="one quotient for two; the product of the divisors may overflow"),
    _relaxed("quotient-by-quotient", ops.divide(X, once(ops.divide(Y, Z))), ops.divide(ops.multiply(X, Z), Y),
             when=small_divisors, doc="one quotient for two; where z is zero the result is, and no infinity"),
    _relaxed("product-of-quotients", ops.multiply(once(ops.divide(X, Y)), once(ops.divide(Z, A))),
             ops.divide(ops.multiply(X, Z), ops.multiply(Y, A)), when=small_divisors,
             doc="one quotient for two; products may overflow"),
    _relaxed("product-of-squares", ops.multiply(once(ops.square(X)), once(ops.square(Y))),
             ops.square(ops.multiply(X, Y)), when=small_divisors, doc="a product less; rounding differs"),
    _relaxed("product-of-exps", ops.multiply(once(ops.exp(X)), once(ops.exp(Y))), ops.exp(ops.add(X, Y)),
             when=small_divisors, doc="one exponential for two; single ones may overflow, or vanish"),
    _relaxed("quotient-of-exps", ops.divide(once(ops.exp(X)), once(ops.exp(Y))), ops.exp(ops.subtract(X, Y)),
             when=small_divisors, doc="one exponential for two; single ones may overflow, or vanish"),
    _relaxed("log-of-exp", ops.log(ops.exp(X)), X, when=x_is_float,
             doc="x itself, also where its exponential overflows"),
    _relaxed("log-of-root", ops.log(once(ops.sqrt(X))), build=half_of_log, when=x_is_float,
             doc="a product for a root; rounding differs"),
    _relaxed("log-of-exps", ops.log(once(ops.add(once(ops.exp(X)), once(ops.exp(Y))))), ops.logaddexp(X, Y),
             when=small_divisors, doc="one function for three; no overflow between, rounding differs"),
    _relaxed("root-of-square", ops.sqrt(ops.square(X)), ops.absolute(X), when=x_is_float,
             doc="the magnitude, also where the square overflows or vanishes"),
    _relaxed("square-of-root", ops.square(ops.sqrt(X)), X, when=positive_floats,
             doc="the squares are there; one rounding less"),
    _relaxed("square-of-complex-abs", ops.square(once(ops.absolute(X))), build=squared_parts,
             when=complex_parts,
             doc="no root is taken; rounding differs, tiny parts may vanish"),
    _relaxed("scale-twice", ops.multiply(once(ops.multiply(X, Y)), Z), ops.multiply(X, ops.multiply(Y, Z)),
             when=scalars_meet, doc="one product for every element; overflow and rounding differ"),
    _relaxed("shift-twice", ops.add(once(ops.add(X, Y)), Z), ops.add(X, ops.add(Y, Z)),
             when=scalars_meet, doc="one sum for every element; overflow and rounding differ"),
    _relaxed("scale-and-divide", ops.divide(once(ops.multiply(X, Y)), Z), ops.multiply(X, ops.divide(Y, Z)),
             when=scalars_meet, doc="one product for every element; overflow and rounding differ"),
    _relaxed("mask-as-choice", ops.multiply(X, ops.cast(M)), build=chosen_or_zero, when=mask_of_choice,
             doc="a choice; infinity and NaN under the mask are gone, and zeros have no sign"),
    _relaxed("sum-of-choices", ops.add(once(ops.where(M, X, Num(0))), once(ops.where(M, Num(0), Y))),
             ops.where(M, X, Y), when=x_is_float, doc="one choice for two; -0.0 stays so"),
])


# --------------------------------------------------------------------------- aggregates


def scalar_factor(root: Hop, b: Bound) -> bool:
    """A is one number, X many."""
    return bool(b["A"].meta.ndim == 0 < b["X"].meta.ndim)


def along_rows(root: Hop, b: Bound) -> bool:
    """X, of floats, has the shape of the operand, and Y one element where X has a row to be searched.

    What is added to integers may make them wrap around.
    """
    if not x_is_float(root, b):
        return False
    x, y, axis = b["X"].meta, b["Y"].meta, b["axis"]
    whole = root.inputs[0].meta.shape
    if x.shape != whole or axis is None:
        return bool(x.shape == whole and y.size == 1)
    place = axis - (len(whole) - y.ndim)
    return bool(place < 0 or y.shape[place] == 1)


def _kept_order(name: str, of: str) -> Rule:
    arg, op = getattr(ops, name), getattr(ops, of)
    return _relaxed(f"{name}-of-{of}", arg(op(X), axis=AXIS, keepdims=KEEPDIMS),
                    arg(X, axis=AXIS, keepdims=KEEPDIMS), when=x_is_float if of == "exp" else positive_floats,
                    doc="the function keeps the order; numbers that are close may have one value")


def _shifted(name: str, op: str) -> Rule:
    arg = getattr(ops, name)
    return _relaxed(f"{name}-of-shifted-{'sum' if op == 'add' else 'difference'}",
                    arg(once(getattr(ops, op)(X, Y)), axis=AXIS, keepdims=KEEPDIMS),
                    arg(X, axis=AXIS, keepdims=KEEPDIMS), when=along_rows,
                    doc="what all elements have in common decides nothing; rounding differs, and NaN in it "
                        "counts")


def total_of_logs(root: Hop, b: Bound) -> Hop:
    """Build the exponential of the sum."""
    total = make("sum", (b["X"],), root.line, axis=b["axis"], keepdims=b["keepdims"])
    return make("exp", (total,), root.line)


_WORTH_A_PRODUCT = 8  # coordinates: of fewer, differences take less than memory for products


def _points(b: Bound) -> tuple[Hop, Hop] | None:
    """Return the points that stand in rows and those that stand in columns; None if there are no two sets."""
    for x, y in ((b["X"], b["Y"]), (b["Y"], b["X"])):
        rows, columns = x.meta.shape, y.meta.shape
        stacked = len(rows) == 3 and rows[1] == 1 < rows[0]
        if stacked and len(columns) in (2, 3) and columns[-2] > 1 and columns[:-2] in ((), (1,)):
            return (x, y) if rows[2] == columns[-1] >= _WORTH_A_PRODUCT else None
    return None


def pairs_of_points(root: Hop, b: Bound) -> bool:
    """X and Y are two sets of points, and squares are summed for every pair of them."""
    return x_is_float(root, b) and b["axis"] == (2,) and _points(b) is not None


def expanded_distances(root: Hop, b: Bound) -> Hop:
    """Build |x|² + |y|² - 2 x·y, which is not below zero."""
    line, dtype, sides = root.line, root.meta.dtype, _points(b)
    assert sides is not None
    x, y = (make("reshape", (p,), line, shape=(n, p.meta.shape[-1]))
            for p, n in zip(sides, root.meta.shape, strict=True))
    xx, yy = (make("sum", (make("square", (p,), line),), line, axis=(1,), keepdims=False) for p in (x, y))
    product = make("matmul", (x, make("transpose", (y,), line, axes=(1, 0))), line)
    whole = make("subtract", (make("add", (column_of(xx), yy), line),
                              make("multiply", (product, const(2, dtype)), line)), line)
    return make("maximum", (whole, const(0, dtype)), line)


AGGREGATES_OF_REALS = RuleSet([
    _relaxed("sum-of-scaled", ops.sum(once(ops.multiply(X, A)), axis=AXIS, keepdims=KEEPDIMS),
             ops.multiply(ops.sum(X, axis=AXIS, keepdims=KEEPDIMS), A), when=scalar_factor,
             doc="one product instead of many; roundings differ, overflow may"),
    _relaxed("sum-of-quotients", ops.sum(once(ops.divide(X, A)), axis=AXIS, keepdims=KEEPDIMS),
             ops.divide(ops.sum(X, axis=AXIS, keepdims=KEEPDIMS), A), when=scalar_factor,
             doc="one quotient instead of many; roundings differ, overflow may"),
    _relaxed("prod-of-exps", ops.prod(once(ops.exp(X)), axis=AXIS, keepdims=KEEPDIMS), build=total_of_logs,
             when=x_is_float, doc="one exponential instead of many; single ones may overflow, or vanish"),
    *(_kept_order(name, of) for name in ("argmin", "argmax") for of in ("exp", "sqrt")),
    *(_shifted(name, op) for name in ("argmin", "argmax") for op in ("add", "subtract")),
    _relaxed("squared-distances", ops.sum(once(ops.square(once(ops.subtract(X, Y)))), axis=AXIS,
             keepdims=False),
             build=expanded_distances, when=pairs_of_points,
             doc="a matrix product for n m d differences; digits of small distances between large points "
                 "are lost"),
])

REALS = CELLS_OF_REALS + AGGREGATES_OF_REALS
