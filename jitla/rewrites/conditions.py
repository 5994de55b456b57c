"""The named conditions that rules ask for, each a question about hops.

Knows: dtypes, shapes, which ops own their result, which can raise floating-point flags.
Must not know: any particular rule. Receives hops; returns truth values.
"""

from __future__ import annotations

import math

import numpy as np

from jitla.hops import Hop, Shape, make, topo, uses
from jitla.rewrites.pattern import Bound

# Results of these are views of their operand where NumPy can make them so.
VIEWS = frozenset(
    "transpose reshape ravel broadcast_to expand_dims squeeze flip getitem".split())
# Their result's bits depend on the memory order of the operand.
ORDERED = frozenset("sum prod mean var std cumsum matmul dot".split())
ROUNDINGS = frozenset("floor ceil trunc rint".split())
# None of these can raise a floating-point flag, whatever their operands are.
_QUIET = VIEWS | ROUNDINGS | frozenset(
    "leaf const equal not_equal less less_equal greater greater_equal logical_and logical_or "
    "logical_xor logical_not bitwise_and bitwise_or bitwise_xor invert isnan isinf isfinite "
    "signbit negative positive absolute copysign maximum minimum fmax fmin where min max any all "
    "argmin argmax count concatenate stack".split())
_LARGEST_QUIET_DAG = 200
SWAP = (1, 0)  # axes of a matrix that is transposed


def owns(hop: Hop) -> bool:
    """Say whether the value of `hop` is memory of its own, in the order NumPy allocates it."""
    if hop.op.name == "leaf":
        return bool(hop.attr("form") == "scalar")
    return hop.op.name not in VIEWS


def borrows(hop: Hop) -> bool:
    """Say whether the value of `hop` may be a view of an argument."""
    while hop.op.name in VIEWS:
        hop = hop.inputs[0]
    return not owns(hop)


def shared_nodes(roots: tuple[Hop, ...]) -> set[Hop]:
    """Return the nodes with more than one user; being asked for as root is a use."""
    count = {hop: len(users) for hop, users in uses(roots).items()}
    for root in roots:
        count[root] += 1
    return {hop for hop, n in count.items() if n > 1}


def order_free(dtype: np.dtype) -> bool:
    """Say whether sums of `dtype` have the same bits in any order."""
    return dtype.kind in "biu"


def silent(hop: Hop) -> bool:
    """Say whether dropping `hop` can drop no warning and no exception."""
    below = topo((hop,))
    return len(below) <= _LARGEST_QUIET_DAG and all(h.op.name in _QUIET for h in below)


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
    """As `array_base`, for float32 and float64 only."""
    return array_base(root, b) and b["X"].meta.dtype.kind == "f"


def same_shape(root: Hop, b: Bound) -> bool:
    """The result has the shape of X."""
    return bool(root.meta.shape == b["X"].meta.shape)
