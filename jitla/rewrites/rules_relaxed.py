"""Relaxed-only rewrite rules of element-wise operators and reductions; those of products: `rules_matmul`.

They reduce the number of operators, prefer products to quotients and combine scalars. The `doc` of each rule
states what may differ. None introduces a new divisor or widens the domain of a function: x / x does not
become 1, nor exp(log(x)) x.
"""

from __future__ import annotations

import numpy as np

from jitla.hops import Hop, const, const_value, make
from jitla.rewrites.rule import (
    AnyConst,
    App,
    AttrVar,
    Bindings,
    Num,
    Rule,
    RuleSet,
    Var,
    as_column,
    build_zeros,
    multiply_by_reciprocal,
    ops,
    single_use,
    x_is_complex,
    x_is_droppable,
    x_is_float,
    x_is_float_in_result_shape,
    x_is_non_negative_float,
)

X, Y, Z, A, B, M = map(Var, ("X", "Y", "Z", "A", "B", "M"))
K = AnyConst("K")
AXIS, KEEPDIMS = AttrVar("axis"), AttrVar("keepdims")


def _relaxed(name: str, left: App, right: App | Var | None = None, **more: object) -> Rule:
    """Return a rule of exactness "relaxed"."""
    return Rule(name, left, right, exactness="relaxed", **more)  # type: ignore[arg-type]


# --------------------------------------------------------------------------- elements


def reciprocal_is_normal(root: Hop, b: Bindings) -> bool:
    """1/K is a normal number."""
    value = const_value(b["K"])
    if value.dtype.char not in "efd":
        return False
    info = np.finfo(value.dtype)
    return bool(info.smallest_normal <= abs(float(value)) <= 1 / float(info.smallest_normal))


def x_is_array_and_y_z_are_scalars(root: Hop, b: Bindings) -> bool:
    """X is an array of floats, Y and Z are scalars."""
    return x_is_float(root, b) and b["X"].meta.ndim > 0 == b["Y"].meta.ndim == b["Z"].meta.ndim


def products_are_no_larger(root: Hop, b: Bindings) -> bool:
    """The operands are floats, and X has the shape of the result, so that no intermediate is larger."""
    return x_is_float_in_result_shape(root, b)


def is_mask_of_floats(root: Hop, b: Bindings) -> bool:
    """M is boolean; X holds floats and has the shape of the result."""
    return b["M"].meta.dtype.kind == "b" and x_is_float_in_result_shape(root, b)


def choose_or_zero(root: Hop, b: Bindings) -> Hop:
    """Build X where M is true, else zero."""
    return make("where", (b["M"], b["X"], const(0, root.meta.dtype)), root.line)


def halve_log(root: Hop, b: Bindings) -> Hop:
    """Build half of the logarithm of X."""
    return make("multiply", (make("log", (b["X"],), root.line), const(0.5, root.meta.dtype)), root.line)


def sum_squared_parts(root: Hop, b: Bindings) -> Hop:
    """Build the sum of the squares of the real and the imaginary part."""
    parts = (make("square", (make(part, (b["X"],), root.line),), root.line) for part in ("real", "imag"))
    return make("add", parts, root.line)


RELAXED_CELL_RULES = RuleSet([
    _relaxed("div-by-constant", ops.divide(X, K), build=multiply_by_reciprocal, when=reciprocal_is_normal,
             doc="a product is several times faster than a quotient; up to 1 ULP off"),
    _relaxed("mul-by-zero", ops.multiply(X, Num(0)), build=build_zeros, when=x_is_droppable,
             doc="zero, although NaN and inf would give NaN, and negative numbers -0.0"),
    _relaxed("sub-self", ops.subtract(X, X), build=build_zeros, when=x_is_droppable,
             doc="zero, although NaN and inf would give NaN"),
    _relaxed("factor-out", ops.add(single_use(ops.multiply(X, Y)), single_use(ops.multiply(X, Z))),
             ops.multiply(X, ops.add(Y, Z)), doc="one product fewer; overflow and rounding differ"),
    _relaxed("factor-out-difference",
             ops.subtract(single_use(ops.multiply(X, Y)), single_use(ops.multiply(X, Z))),
             ops.multiply(X, ops.subtract(Y, Z)), doc="one product fewer; overflow and rounding differ"),
    _relaxed("sum-over-divisor", ops.add(single_use(ops.divide(X, Z)), single_use(ops.divide(Y, Z))),
             ops.divide(ops.add(X, Y), Z), doc="one quotient instead of two; overflow and rounding differ"),
    _relaxed("difference-over-divisor",
             ops.subtract(single_use(ops.divide(X, Z)), single_use(ops.divide(Y, Z))),
             ops.divide(ops.subtract(X, Y), Z),
             doc="one quotient instead of two; overflow and rounding differ"),
    _relaxed("quotient-of-quotient", ops.divide(single_use(ops.divide(X, Y)), Z),
             ops.divide(X, ops.multiply(Y, Z)), when=products_are_no_larger,
             doc="one quotient instead of two; the product of the divisors may overflow"),
    _relaxed("quotient-by-quotient", ops.divide(X, single_use(ops.divide(Y, Z))),
             ops.divide(ops.multiply(X, Z), Y), when=products_are_no_larger,
             doc="one quotient instead of two; if z is zero, the result is zero instead of infinity"),
    _relaxed("product-of-quotients", ops.multiply(single_use(ops.divide(X, Y)), single_use(ops.divide(Z, A))),
             ops.divide(ops.multiply(X, Z), ops.multiply(Y, A)), when=products_are_no_larger,
             doc="one quotient instead of two; products may overflow"),
    _relaxed("product-of-squares", ops.multiply(single_use(ops.square(X)), single_use(ops.square(Y))),
             ops.square(ops.multiply(X, Y)), when=products_are_no_larger,
             doc="one square fewer; rounding differs"),
    _relaxed("product-of-exps", ops.multiply(single_use(ops.exp(X)), single_use(ops.exp(Y))),
             ops.exp(ops.add(X, Y)), when=products_are_no_larger,
             doc="one exponential instead of two; single ones may overflow or underflow"),
    _relaxed("quotient-of-exps", ops.divide(single_use(ops.exp(X)), single_use(ops.exp(Y))),
             ops.exp(ops.subtract(X, Y)), when=products_are_no_larger,
             doc="one exponential instead of two; single ones may overflow or underflow"),
    _relaxed("log-of-exp", ops.log(ops.exp(X)), X, when=x_is_float,
             doc="x itself, also if its exponential overflows"),
    _relaxed("log-of-root", ops.log(single_use(ops.sqrt(X))), build=halve_log, when=x_is_float,
             doc="a product instead of a root; rounding differs"),
    _relaxed("log-of-exps", ops.log(single_use(ops.add(single_use(ops.exp(X)), single_use(ops.exp(Y))))),
             ops.logaddexp(X, Y), when=products_are_no_larger,
             doc="one function instead of four; no intermediate overflow, rounding differs"),
    _relaxed("root-of-square", ops.sqrt(ops.square(X)), ops.absolute(X), when=x_is_float,
             doc="the absolute value, also if the square overflows or underflows"),
    _relaxed("square-of-root", ops.square(ops.sqrt(X)), X, when=x_is_non_negative_float,
             doc="the two are inverse; one rounding fewer"),
    _relaxed("square-of-complex-abs", ops.square(single_use(ops.absolute(X))), build=sum_squared_parts,
             when=x_is_complex,
             doc="no square root; rounding differs, tiny parts may underflow"),
    _relaxed("scale-twice", ops.multiply(single_use(ops.multiply(X, Y)), Z),
             ops.multiply(X, ops.multiply(Y, Z)), when=x_is_array_and_y_z_are_scalars,
             doc="one product per element instead of two operations; overflow and rounding differ"),
    _relaxed("shift-twice", ops.add(single_use(ops.add(X, Y)), Z), ops.add(X, ops.add(Y, Z)),
             when=x_is_array_and_y_z_are_scalars,
             doc="one sum per element instead of two; overflow and rounding differ"),
    _relaxed("scale-and-divide", ops.divide(single_use(ops.multiply(X, Y)), Z),
             ops.multiply(X, ops.divide(Y, Z)), when=x_is_array_and_y_z_are_scalars,
             doc="one product per element instead of two operations; overflow and rounding differ"),
    _relaxed("mask-as-choice", ops.multiply(X, ops.cast(M)), build=choose_or_zero, when=is_mask_of_floats,
             doc="a selection; infinity and NaN under the mask become zero, and zeros have no sign"),
    _relaxed("sum-of-choices",
             ops.add(single_use(ops.where(M, X, Num(0))), single_use(ops.where(M, Num(0), Y))),
             ops.where(M, X, Y), when=x_is_float, doc="one selection instead of two; -0.0 is preserved"),
])


# --------------------------------------------------------------------------- aggregates


def scales_array_by_scalar(root: Hop, b: Bindings) -> bool:
    """A is a scalar, X an array."""
    return bool(b["A"].meta.ndim == 0 < b["X"].meta.ndim)


def shift_is_constant_along_axis(root: Hop, b: Bindings) -> bool:
    """X holds floats and has the shape of the operand, and Y is constant along the searched axis.

    For integers the shift may wrap around.
    """
    if not x_is_float(root, b):
        return False
    x, y, axis = b["X"].meta, b["Y"].meta, b["axis"]
    whole = root.inputs[0].meta.shape
    if x.shape != whole or axis is None:
        return bool(x.shape == whole and y.size == 1)
    y_axis = axis - (len(whole) - y.ndim)
    return bool(y_axis < 0 or y.shape[y_axis] == 1)


def _order_preserving(name: str, of: str) -> Rule:
    arg, op = getattr(ops, name), getattr(ops, of)
    return _relaxed(f"{name}-of-{of}", arg(op(X), axis=AXIS, keepdims=KEEPDIMS),
                    arg(X, axis=AXIS, keepdims=KEEPDIMS),
                    when=x_is_float if of == "exp" else x_is_non_negative_float,
                    doc="the function is monotonic; close numbers may have equal values")


def _shift_invariant(name: str, op: str) -> Rule:
    arg = getattr(ops, name)
    return _relaxed(f"{name}-of-shifted-{'sum' if op == 'add' else 'difference'}",
                    arg(single_use(getattr(ops, op)(X, Y)), axis=AXIS, keepdims=KEEPDIMS),
                    arg(X, axis=AXIS, keepdims=KEEPDIMS), when=shift_is_constant_along_axis,
                    doc="a common shift does not move the extreme; rounding differs, and NaN in the shift "
                        "counts")


def exp_of_sum(root: Hop, b: Bindings) -> Hop:
    """Build the exponential of the sum."""
    total = make("sum", (b["X"],), root.line, axis=b["axis"], keepdims=b["keepdims"])
    return make("exp", (total,), root.line)


_MIN_COORDINATES = 8  # with fewer, differences are faster than memory traffic of a matrix product


def _point_sets(b: Bindings) -> tuple[Hop, Hop] | None:
    """Return the point set along the rows and the one along the columns; None if there are no two sets."""
    for x, y in ((b["X"], b["Y"]), (b["Y"], b["X"])):
        rows, columns = x.meta.shape, y.meta.shape
        stacked = len(rows) == 3 and rows[1] == 1 < rows[0]
        if stacked and len(columns) in (2, 3) and columns[-2] > 1 and columns[:-2] in ((), (1,)):
            return (x, y) if rows[2] == columns[-1] >= _MIN_COORDINATES else None
    return None


def sums_squares_over_point_pairs(root: Hop, b: Bindings) -> bool:
    """X and Y are two sets of points, and squared differences are summed for every pair."""
    return x_is_float(root, b) and b["axis"] == (2,) and _point_sets(b) is not None


def expand_distances(root: Hop, b: Bindings) -> Hop:
    """Build |x|² + |y|² - 2 x·y, clamped at zero."""
    line, dtype, sides = root.line, root.meta.dtype, _point_sets(b)
    assert sides is not None
    x, y = (make("reshape", (p,), line, shape=(n, p.meta.shape[-1]))
            for p, n in zip(sides, root.meta.shape, strict=True))
    xx, yy = (make("sum", (make("square", (p,), line),), line, axis=(1,), keepdims=False) for p in (x, y))
    product = make("matmul", (x, make("transpose", (y,), line, axes=(1, 0))), line)
    distances = make("subtract", (make("add", (as_column(xx), yy), line),
                              make("multiply", (product, const(2, dtype)), line)), line)
    return make("maximum", (distances, const(0, dtype)), line)


RELAXED_AGGREGATE_RULES = RuleSet([
    _relaxed("sum-of-scaled", ops.sum(single_use(ops.multiply(X, A)), axis=AXIS, keepdims=KEEPDIMS),
             ops.multiply(ops.sum(X, axis=AXIS, keepdims=KEEPDIMS), A), when=scales_array_by_scalar,
             doc="one product instead of many; roundings differ, overflow may"),
    _relaxed("sum-of-quotients", ops.sum(single_use(ops.divide(X, A)), axis=AXIS, keepdims=KEEPDIMS),
             ops.divide(ops.sum(X, axis=AXIS, keepdims=KEEPDIMS), A), when=scales_array_by_scalar,
             doc="one quotient instead of many; roundings differ, overflow may"),
    _relaxed("prod-of-exps", ops.prod(single_use(ops.exp(X)), axis=AXIS, keepdims=KEEPDIMS), build=exp_of_sum,
             when=x_is_float, doc="one exponential instead of many; single ones may overflow or underflow"),
    *(_order_preserving(name, of) for name in ("argmin", "argmax") for of in ("exp", "sqrt")),
    *(_shift_invariant(name, op) for name in ("argmin", "argmax") for op in ("add", "subtract")),
    _relaxed("squared-distances", ops.sum(single_use(ops.square(single_use(ops.subtract(X, Y)))), axis=AXIS,
             keepdims=False),
             build=expand_distances, when=sums_squares_over_point_pairs,
             doc="a matrix product instead of n m d differences; cancellation loses digits of small "
                 "distances between points far from the origin"),
])

RELAXED_RULES = RELAXED_CELL_RULES + RELAXED_AGGREGATE_RULES
