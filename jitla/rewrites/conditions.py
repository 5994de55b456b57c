"""The named conditions that rules ask for, each a question about hops."""

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
from jitla.rewrites.rule import Bound

# Results of these are views of their operand where NumPy can make them so.
VIEWS = frozenset(
    "transpose reshape ravel broadcast_to expand_dims squeeze flip getitem diagonal part".split())
# Their result's bits depend on the memory order of the operand.
ORDERED = frozenset("sum prod mean var std cumsum cumprod matmul dot trace".split())
ROUNDINGS = frozenset("floor ceil trunc rint".split())
# Aggregates that have the same bits in any order.
ORDER_FREE = frozenset({"min", "max", "any", "all"})
_LARGEST_QUIET_DAG = 200
SWAP = (1, 0)  # axes of a matrix that is transposed


def owns(hop: Hop) -> bool:
    """Say whether the value of `hop` is memory of its own, in the order NumPy allocates it."""
    return hop.attr("form") == "scalar" if hop.op.name == "leaf" else hop.op.name not in VIEWS


def borrows(hop: Hop) -> bool:
    """Say whether the value of `hop` may be a view of an argument."""
    while hop.op.name in VIEWS:
        hop = hop.inputs[0]
    return not owns(hop)


def shared_nodes(roots: tuple[Hop, ...]) -> set[Hop]:
    """Return the nodes with more than one user; being asked for as root is a use."""
    once: set[Hop] = set()
    shared: set[Hop] = set()
    for used in (roots, *[hop.inputs for hop in topo(roots)]):
        for hop in used:
            (shared if hop in once else once).add(hop)
    return shared


def order_free(dtype: np.dtype) -> bool:
    """Say whether sums of `dtype` have the same bits in any order."""
    return dtype.kind in "biu"


def silent(hop: Hop) -> bool:
    """Say whether dropping `hop` can drop no warning and no exception."""
    below = topo((hop,))
    return len(below) <= _LARGEST_QUIET_DAG and not any(map(possible_flags, below))


# Of floats: never a set sign bit, NaN aside; the second group keeps what its operands promise.
_NOT_NEGATIVE = frozenset({"square", "absolute", "exp", "exp2", "norm", "count", "var", "std", "cosh"})
_KEEPS_SIGNS = VIEWS | frozenset((
    "add multiply divide sqrt maximum minimum fmax fmin where sum prod min max mean floor ceil trunc rint "
    "positive matmul dot hypot expm1 log1p cumsum concatenate stack reciprocal cbrt").split())
_DEEPEST_SIGN = 8


def never_negative(hop: Hop, depth: int = _DEEPEST_SIGN) -> bool:
    """Say whether no element of `hop`, of floats or a cast to them, can have its sign set, NaN aside."""
    name, dtype = hop.op.name, hop.meta.dtype
    if dtype.kind in "bu":
        return True
    if dtype.kind != "f" or not depth:
        return False
    if name == "cast":
        given = hop.inputs[0].meta.dtype.kind
        return given in "bu" or given == "f" and never_negative(hop.inputs[0], depth - 1)
    if name == "const":
        return not np.signbit(const_value(hop))
    operands = hop.inputs[1:] if name == "where" else hop.inputs
    kept = name in _KEEPS_SIGNS and all(never_negative(i, depth - 1) for i in operands)
    return kept or name in _NOT_NEGATIVE


def constant_like(hop: Hop, value: Any) -> Hop:
    """Return `value` in the dtype and shape of `hop`."""
    single = const(value, hop.meta.dtype)
    if not hop.meta.shape:
        return single
    return make("broadcast_to", (single,), hop.line, shape=hop.meta.shape)


def column_of(x: Hop) -> Hop:
    """Return the vector `x` as a column."""
    return make("reshape", (x,), x.line, shape=(*x.meta.shape, 1))


def wide_float(*hops: Hop) -> bool:
    """Say whether all are floats of at least 32 bits, whose sums have room."""
    return all(h.meta.dtype.kind == "f" and h.meta.dtype.itemsize >= 4 for h in hops)


def is_column(x: Hop, length: int) -> bool:
    """Say whether `x` is a column of several elements."""
    return x.meta.shape == (length, 1) and length > 1


def is_row(x: Hop, length: int) -> bool:
    """Say whether `x` is a vector, or a row, of several elements."""
    return x.meta.shape in ((length,), (1, length)) and length > 1


def flat(x: Hop) -> Hop:
    """Return `x`, of one column or one row, as a vector."""
    return x if x.meta.ndim == 1 else make("reshape", (x,), x.line, shape=(x.meta.size,))


def widens(old: np.dtype, new: np.dtype) -> bool:
    """Say whether every value of `old` survives the cast to `new`; int64 does not to float64."""
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


def power_of_two(value: np.floating) -> bool:
    """Say whether `value` and its reciprocal are normal powers of two."""
    info = np.finfo(value.dtype)
    size = abs(float(value))
    least = float(info.smallest_normal)
    return least <= size <= 1 / least and math.frexp(size)[0] == 0.5


def least_count(hop: Hop, axis: tuple[int, ...]) -> int:
    """Return a lower bound of the elements that reducing `axis` joins, for all sizes of the class.

    Plans serve all sizes; only lengths 0 and 1 are what they seem, any other is at least 2.
    """
    return math.prod(min(hop.meta.shape[i], 2) for i in axis)


# --------------------------------------------------------------------------- products of matrices


def shape_of_product(left: Hop, right: Hop) -> Shape | None:
    """Return the shape of the product of floats, matrices or vectors; None where there is none."""
    a, b = left.meta, right.meta
    if a.dtype != b.dtype or a.dtype.kind != "f" or a.dtype.itemsize < 4:
        return None
    if a.ndim not in (1, 2) or b.ndim not in (1, 2) or not a.shape[-1] == b.shape[0] > 0:
        return None
    return a.shape[:-1] + b.shape[1:]


def is_plain_product(hop: Hop) -> bool:
    """Say whether `hop` is a product of floats, matrices or vectors, that sums at least one element."""
    return hop.op.name == "matmul" and shape_of_product(*hop.inputs) == hop.meta.shape


def turned(hop: Hop) -> Hop:
    """Return the transpose of a matrix; what was a transpose is what it was of."""
    if hop.op.name == "transpose" and hop.attr("axes") == SWAP:
        return hop.inputs[0]
    return make("transpose", (hop,), hop.line, axes=SWAP)


# --------------------------------------------------------------------------- conditions of rules


def x_is_bool(root: Hop, b: Bound) -> bool:
    """X is boolean."""
    return bool(b["X"].meta.dtype.kind == "b")


def x_is_real(root: Hop, b: Bound) -> bool:
    """X is not complex."""
    return bool(b["X"].meta.dtype.kind in "biuf")


def x_is_signed(root: Hop, b: Bound) -> bool:
    """X is a number that can be negative."""
    return bool(b["X"].meta.dtype.kind in "ifc")


def x_is_float(root: Hop, b: Bound) -> bool:
    """X holds floats."""
    return bool(b["X"].meta.dtype.kind == "f")


def x_is_number(root: Hop, b: Bound) -> bool:
    """X holds integers or floats."""
    return bool(b["X"].meta.dtype.kind in "iuf")


def x_is_quiet(root: Hop, b: Bound) -> bool:
    """X has no signalling NaN: it is computed, or holds integers."""
    return not may_hold_signalling_nan(b["X"])


def x_is_wide_int(root: Hop, b: Bound) -> bool:
    """X holds integers, not bools."""
    return bool(b["X"].meta.dtype.kind in "iu")


def x_is_real_of_its_shape(root: Hop, b: Bound) -> bool:
    """X is not complex and has the shape of the result."""
    return x_is_real(root, b) and same_shape(root, b)


def x_is_float_of_its_shape(root: Hop, b: Bound) -> bool:
    """X holds floats and has the shape of the result."""
    return x_is_float(root, b) and same_shape(root, b)


def floats_alike(root: Hop, b: Bound) -> bool:
    """X and Y hold floats of one dtype, and X has the shape of the result."""
    return x_is_float_of_its_shape(root, b) and one_dtype(root, b)


def one_dtype(root: Hop, b: Bound) -> bool:
    """X and Y have one dtype."""
    return bool(b["X"].meta.dtype == b["Y"].meta.dtype)


def alike(root: Hop, b: Bound) -> bool:
    """X and Y have one dtype, and X the shape of the result."""
    return one_dtype(root, b) and same_shape(root, b)


def x_not_negative(root: Hop, b: Bound) -> bool:
    """No sign is set in X."""
    return never_negative(b["X"])


def silent_x(root: Hop, b: Bound) -> bool:
    """Dropping X drops no warning."""
    return silent(b["X"])


def silent_y(root: Hop, b: Bound) -> bool:
    """Dropping Y drops no warning, and leaves the shape as it is."""
    return silent(b["Y"]) and same_shape(root, b)


def x_is_whole(root: Hop, b: Bound) -> bool:
    """X holds integers already, or floats that have been rounded to integers."""
    return x_is_int(root, b) or b["X"].op.name in ROUNDINGS


def x_is_int(root: Hop, b: Bound) -> bool:
    """X is of an integer or boolean dtype."""
    return bool(b["X"].meta.dtype.kind in "biu")


def no_nans(root: Hop, b: Bound) -> bool:
    """Neither X nor Y can hold a NaN."""
    return all(b[v].meta.dtype.kind in "biu" for v in "XY")


def array_base(root: Hop, b: Bound) -> bool:
    """X is an array of float32, float64 or integers: there NumPy's loops special-case the exponent.

    On scalars the ``**`` operator calls the C library instead.
    """
    return bool(b["X"].meta.ndim > 0 and b["X"].meta.dtype.char in "fdbBhHiIlLqQ")


def float_array_base(root: Hop, b: Bound) -> bool:
    """X is an array of float32 or float64: there NumPy's loops special-case the exponent."""
    return array_base(root, b) and b["X"].meta.dtype.kind == "f"


def same_shape(root: Hop, b: Bound) -> bool:
    """The result has the shape of X."""
    return bool(root.meta.shape == b["X"].meta.shape)


def never(root: Hop, b: Bound) -> Hop:
    """Build zero, or false, for every element."""
    return constant_like(root, 0)


def always(root: Hop, b: Bound) -> Hop:
    """Build true for every element."""
    return constant_like(root, True)


def silent_int(root: Hop, b: Bound) -> bool:
    """X holds integers and can be dropped unseen."""
    return x_is_wide_int(root, b) and silent(b["X"])


def any_order(root: Hop, b: Bound) -> bool:
    """The order in which elements are joined does not show."""
    dtype = root.meta.dtype  # of complex numbers, NaN in one part leaves open which NaN an extreme is
    return root.op.name in ORDER_FREE and dtype.kind != "c" or order_free(dtype)
