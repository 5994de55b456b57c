"""Conditions of rewrite rules: named predicates on the root and the bindings of a match.

The first sentence of a condition completes "the rule applies if" in docs/rules.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitla.hops import (
    Hop,
    Shape,
    const,
    const_value,
    make,
    may_hold_signalling_nan,
    possible_flags,
    topo,
)
from jitla.rewrites.rule import Bindings

#: Operators whose result is a view of the operand if NumPy can make it one.
VIEW_OPS = frozenset(
    "transpose reshape ravel broadcast_to expand_dims squeeze flip getitem diagonal part".split())
#: Operators whose result bits depend on the memory order of the operand.
ORDER_SENSITIVE = frozenset("sum prod mean var std cumsum cumprod matmul dot trace".split())
ROUNDING_OPS = frozenset("floor ceil trunc rint".split())
#: Aggregates whose result bits do not depend on the order of the elements.
ORDER_INSENSITIVE = frozenset({"min", "max", "any", "all"})
_MAX_DROPPABLE_NODES = 200
SWAP = (1, 0)  # axes of a matrix that is transposed


def owns_memory(hop: Hop) -> bool:
    """Return whether the value of `hop` owns its memory, in the order that NumPy allocates."""
    return hop.attr("form") == "scalar" if hop.op.name == "leaf" else hop.op.name not in VIEW_OPS


def may_alias_argument(hop: Hop) -> bool:
    """Return whether the value of `hop` may be a view of an argument."""
    while hop.op.name in VIEW_OPS:
        hop = hop.inputs[0]
    return not owns_memory(hop)


def shared_nodes(roots: tuple[Hop, ...]) -> set[Hop]:
    """Return the nodes with more than one use; being a root is a use."""
    seen_once: set[Hop] = set()
    shared: set[Hop] = set()
    for used in (roots, *[hop.inputs for hop in topo(roots)]):
        for hop in used:
            (shared if hop in seen_once else seen_once).add(hop)
    return shared


def has_associative_sum(dtype: np.dtype) -> bool:
    """Return whether sums of `dtype` have the same bits in any order."""
    return dtype.kind in "biu"


def is_droppable(hop: Hop) -> bool:
    """Return whether `hop` can be eliminated: computing it raises no warning and no exception."""
    below = topo((hop,))
    return len(below) <= _MAX_DROPPABLE_NODES and not any(map(possible_flags, below))


# Float results of the first group never have the sign bit set, NaN aside; those of the second group do not
# if no operand has.
_NON_NEGATIVE_OPS = frozenset({"square", "absolute", "exp", "exp2", "norm", "count", "var", "std", "cosh"})
_SIGN_PRESERVING_OPS = VIEW_OPS | frozenset((
    "add multiply divide sqrt maximum minimum fmax fmin where sum prod min max mean floor ceil trunc rint "
    "positive matmul dot hypot expm1 log1p cumsum concatenate stack reciprocal cbrt").split())
_MAX_SIGN_DEPTH = 8


def is_non_negative(hop: Hop, depth: int = _MAX_SIGN_DEPTH) -> bool:
    """Return whether the sign bit is clear in all elements of `hop`, floats or cast to floats, NaN aside."""
    name, dtype = hop.op.name, hop.meta.dtype
    if dtype.kind in "bu":
        return True
    if dtype.kind != "f" or not depth:
        return False
    if name == "cast":
        source = hop.inputs[0].meta.dtype.kind
        return source in "bu" or source == "f" and is_non_negative(hop.inputs[0], depth - 1)
    if name == "const":
        return not np.signbit(const_value(hop))
    operands = hop.inputs[1:] if name == "where" else hop.inputs
    preserved = name in _SIGN_PRESERVING_OPS and all(is_non_negative(i, depth - 1) for i in operands)
    return preserved or name in _NON_NEGATIVE_OPS


def constant_like(hop: Hop, value: Any) -> Hop:
    """Return the constant `value` in the dtype and shape of `hop`."""
    single = const(value, hop.meta.dtype)
    if not hop.meta.shape:
        return single
    return make("broadcast_to", (single,), hop.line, shape=hop.meta.shape)


def as_column(x: Hop) -> Hop:
    """Return the vector `x` as a column."""
    return make("reshape", (x,), x.line, shape=(*x.meta.shape, 1))


def are_wide_floats(*hops: Hop) -> bool:
    """Return whether all are floats of at least 32 bits: sums of smaller ones overflow easily."""
    return all(h.meta.dtype.kind == "f" and h.meta.dtype.itemsize >= 4 for h in hops)


def is_column(x: Hop, length: int) -> bool:
    """Return whether `x` is a column of several elements."""
    return x.meta.shape == (length, 1) and length > 1


def is_row(x: Hop, length: int) -> bool:
    """Return whether `x` is a vector, or a row, of several elements."""
    return x.meta.shape in ((length,), (1, length)) and length > 1


def as_vector(x: Hop) -> Hop:
    """Return `x`, a column or a row, as a vector."""
    return x if x.meta.ndim == 1 else make("reshape", (x,), x.line, shape=(x.meta.size,))


def is_lossless_cast(old: np.dtype, new: np.dtype) -> bool:
    """Return whether the cast from `old` to `new` preserves every value; int64 to float64 does not."""
    if old == new or old.kind == "b":
        return new.kind in "biuf"
    if old.kind not in "iuf" or new.kind not in "iuf":
        return False
    if old.kind == "f" or new.kind == old.kind:
        return new.kind == old.kind and new.itemsize >= old.itemsize
    bits = 8 * old.itemsize - (old.kind == "i")
    if new.kind == "f":
        return bool(bits <= np.finfo(new).nmant + 1)
    return old.kind == "u" and new.kind == "i" and new.itemsize > old.itemsize


def is_power_of_two(value: np.floating) -> bool:
    """Return whether `value` and its reciprocal are normal powers of two."""
    info = np.finfo(value.dtype)
    size = abs(float(value))
    least = float(info.smallest_normal)
    return least <= size <= 1 / least and math.frexp(size)[0] == 0.5


def min_reduced_elements(hop: Hop, axis: tuple[int, ...]) -> int:
    """Return a lower bound on the number of elements reduced along `axis`, for all sizes of the call class.

    A plan is shared by all sizes; only lengths 0 and 1 are fixed, any other stands for 2 or more.
    """
    return math.prod(min(hop.meta.shape[i], 2) for i in axis)


# --------------------------------------------------------------------------- products of matrices


def product_shape(left: Hop, right: Hop) -> Shape | None:
    """Return the shape of the matrix product of two float matrices or vectors; None if it is not defined."""
    a, b = left.meta, right.meta
    if a.dtype != b.dtype or a.dtype.kind != "f" or a.dtype.itemsize < 4:
        return None
    if a.ndim not in (1, 2) or b.ndim not in (1, 2) or not a.shape[-1] == b.shape[0] > 0:
        return None
    return a.shape[:-1] + b.shape[1:]


def is_float_product(hop: Hop) -> bool:
    """Return whether `hop` is a matrix product of float matrices or vectors with a non-empty sum."""
    return hop.op.name == "matmul" and product_shape(*hop.inputs) == hop.meta.shape


def transposed(hop: Hop) -> Hop:
    """Return the transpose of a matrix; two transposes cancel."""
    if hop.op.name == "transpose" and hop.attr("axes") == SWAP:
        return hop.inputs[0]
    return make("transpose", (hop,), hop.line, axes=SWAP)


# --------------------------------------------------------------------------- conditions of rules


def x_is_bool(root: Hop, b: Bindings) -> bool:
    """X is boolean."""
    return bool(b["X"].meta.dtype.kind == "b")


def x_is_real(root: Hop, b: Bindings) -> bool:
    """X is not complex."""
    return bool(b["X"].meta.dtype.kind in "biuf")


def x_is_signed(root: Hop, b: Bindings) -> bool:
    """X has a dtype with negative numbers."""
    return bool(b["X"].meta.dtype.kind in "ifc")


def x_is_float(root: Hop, b: Bindings) -> bool:
    """X holds floats."""
    return bool(b["X"].meta.dtype.kind == "f")


def x_is_int_or_float(root: Hop, b: Bindings) -> bool:
    """X holds integers or floats."""
    return bool(b["X"].meta.dtype.kind in "iuf")


def x_has_no_signalling_nan(root: Hop, b: Bindings) -> bool:
    """X has no signalling NaN: it is computed, or holds integers."""
    return not may_hold_signalling_nan(b["X"])


def x_is_int(root: Hop, b: Bindings) -> bool:
    """X holds integers, not bools."""
    return bool(b["X"].meta.dtype.kind in "iu")


def x_is_real_in_result_shape(root: Hop, b: Bindings) -> bool:
    """X is not complex and has the shape of the result."""
    return x_is_real(root, b) and x_has_result_shape(root, b)


def x_is_float_in_result_shape(root: Hop, b: Bindings) -> bool:
    """X holds floats and has the shape of the result."""
    return x_is_float(root, b) and x_has_result_shape(root, b)


def same_float_dtype_and_shape(root: Hop, b: Bindings) -> bool:
    """X and Y hold floats of the same dtype, and X has the shape of the result."""
    return x_is_float_in_result_shape(root, b) and same_dtype(root, b)


def same_dtype(root: Hop, b: Bindings) -> bool:
    """X and Y have the same dtype."""
    return bool(b["X"].meta.dtype == b["Y"].meta.dtype)


def same_dtype_and_shape(root: Hop, b: Bindings) -> bool:
    """X and Y have the same dtype, and X has the shape of the result."""
    return same_dtype(root, b) and x_has_result_shape(root, b)


def x_is_non_negative(root: Hop, b: Bindings) -> bool:
    """The sign bit is clear in all elements of X."""
    return is_non_negative(b["X"])


def x_is_droppable(root: Hop, b: Bindings) -> bool:
    """Computing X raises no warning."""
    return is_droppable(b["X"])


def y_is_droppable(root: Hop, b: Bindings) -> bool:
    """Computing Y raises no warning, and X has the shape of the result."""
    return is_droppable(b["Y"]) and x_has_result_shape(root, b)


def x_is_integral(root: Hop, b: Bindings) -> bool:
    """X holds integers, or floats that were rounded to integers."""
    return x_is_int_or_bool(root, b) or b["X"].op.name in ROUNDING_OPS


def x_is_int_or_bool(root: Hop, b: Bindings) -> bool:
    """X has an integer or boolean dtype."""
    return bool(b["X"].meta.dtype.kind in "biu")


def cannot_be_nan(root: Hop, b: Bindings) -> bool:
    """Neither X nor Y can hold a NaN."""
    return all(b[v].meta.dtype.kind in "biu" for v in "XY")


def base_is_array(root: Hop, b: Bindings) -> bool:
    """X is an array of float32, float64 or integers: NumPy's array loops special-case the exponent.

    On scalars the ``**`` operator calls the C library instead.
    """
    return bool(b["X"].meta.ndim > 0 and b["X"].meta.dtype.char in "fdbBhHiIlLqQ")


def base_is_float_array(root: Hop, b: Bindings) -> bool:
    """X is an array of float32 or float64: NumPy's array loops special-case the exponent."""
    return base_is_array(root, b) and b["X"].meta.dtype.kind == "f"


def x_has_result_shape(root: Hop, b: Bindings) -> bool:
    """The result has the shape of X."""
    return bool(root.meta.shape == b["X"].meta.shape)


def build_zeros(root: Hop, b: Bindings) -> Hop:
    """Build zero, or false, for every element."""
    return constant_like(root, 0)


def build_true(root: Hop, b: Bindings) -> Hop:
    """Build true for every element."""
    return constant_like(root, True)


def x_is_droppable_int(root: Hop, b: Bindings) -> bool:
    """X holds integers, and computing it raises no warning."""
    return x_is_int(root, b) and is_droppable(b["X"])


def is_order_insensitive(root: Hop, b: Bindings) -> bool:
    """The result does not depend on the order of the reduction."""
    dtype = root.meta.dtype  # complex extremes: with several partial NaNs, the order selects one
    return root.op.name in ORDER_INSENSITIVE and dtype.kind != "c" or has_associative_sum(dtype)
