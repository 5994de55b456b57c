"""Rewrite rules of aggregates: sums, means and extremes, with and without sizes."""

from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np

from jitla.hops import Hop, Kind, apply, const, make
from jitla.rewrites.conditions import (
    any_order,
    constant_like,
    least_count,
    never_negative,
    order_free,
    same_shape,
    silent,
    widens,
    x_is_bool,
    x_is_float,
)
from jitla.rewrites.rule import App, AttrVar, Bound, Rest, Rule, RuleSet, Var, once, ops

X = Var("X")
MORE = Rest("more")
AXIS, KEEPDIMS, JOINED = map(AttrVar, ("axis", "keepdims", "joined"))
_AGGREGATES = ("sum", "prod", "min", "max", "any", "all")


def _agg(name: str, *args: App | Var, **attrs: object) -> App:
    built: App = getattr(ops, name)(*args, **attrs)
    return built


# --------------------------------------------------------------------------- extremes of what keeps the order


def roots_of_positive(root: Hop, b: Bound) -> bool:
    """X has no sign, and square roots are taken of it."""
    return x_is_float(root, b) and never_negative(b["X"])


def order_kept(root: Hop, b: Bound) -> bool:
    """The cast loses nothing, so that no two numbers change places or become one."""
    return widens(b["X"].meta.dtype, root.inputs[0].meta.dtype)


def all_elements(root: Hop, b: Bound) -> bool:
    """All elements are joined, in an order that does not show; X is an array."""
    return any_order(root, b) and total_of_array(root, b)


def total_of_array(root: Hop, b: Bound) -> bool:
    """All elements of an array are joined."""
    return len(b["axis"]) == root.inputs[0].meta.ndim and b["X"].meta.ndim > 0


def total_of_x(root: Hop, b: Bound) -> Hop:
    """Build the aggregate over all axes of X."""
    return make(root.op.name, (b["X"],), root.line, axis=tuple(range(b["X"].meta.ndim)), keepdims=False)


def whole_search(root: Hop, b: Bound) -> bool:
    """X is an array, whose elements are numbered in the order of rows in every shape."""
    return bool(b["X"].meta.ndim > 0)


def flat_search(root: Hop, b: Bound) -> Hop:
    """Build the index in the flattened X."""
    return make(root.op.name, (b["X"],), root.line, axis=None, keepdims=False)


def cast_after(root: Hop, b: Bound) -> Hop:
    """Build the extreme of X, cast."""
    found = make(root.op.name, (b["X"],), root.line, axis=b["axis"], keepdims=b["keepdims"])
    return make("cast", (found,), root.line, dtype=root.meta.dtype)


_OTHER = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin"}
_OVER = {"axis": AXIS, "keepdims": KEEPDIMS}
ORDERINGS = RuleSet([
    *(Rule(f"{name}-of-neg", _agg(name, once(ops.negative(X)), **_OVER), ops.negative(_agg(_OTHER[name], X,
           **_OVER)),
           when=x_is_float, doc="one change of sign for many; the least integer has no negative")
      for name in ("min", "max")),
    *(Rule(f"{name}-of-not", _agg(name, once(ops.logical_not(X)), **_OVER),
           ops.logical_not(_agg(_OTHER[name], X, **_OVER)), when=x_is_bool, doc="one change for many")
      for name in ("any", "all")),
    *(Rule(f"{name}-of-sqrt", _agg(name, once(ops.sqrt(X)), **_OVER), ops.sqrt(_agg(name, X, **_OVER)),
           when=roots_of_positive, doc="one square root for many; it keeps order, and nothing is negative")
      for name in ("min", "max")),
    *(Rule(f"{name}-of-exp", _agg(name, once(ops.exp(X)), **_OVER), ops.exp(_agg(name, X, **_OVER)),
           when=x_is_float,
           exactness="rounding", doc="one exponential for many, to the same bound; it keeps order")
      for name in ("min", "max")),
    *(Rule(f"{name}-of-cast", _agg(name, once(ops.cast(X)), **_OVER), build=cast_after, when=order_kept,
           doc="one cast for many")
      for name in ("min", "max")),
    *(Rule(f"{name}-of-neg", _agg(name, ops.negative(X), **_OVER), _agg(_OTHER[name], X, **_OVER),
           when=x_is_float,
           doc="the other extreme is at that place, the first NaN, too")
      for name in ("argmin", "argmax")),
    *(Rule(f"{name}-of-cast", _agg(name, ops.cast(X), **_OVER), _agg(name, X, **_OVER), when=order_kept,
           doc="a cast that loses nothing keeps the order")
      for name in ("argmin", "argmax")),
    *(Rule(f"{name}-of-reshape", _agg(name, ops.reshape(X), axis=None, keepdims=False), build=flat_search,
           when=whole_search, doc="elements are numbered alike in every shape")
      for name in ("argmin", "argmax")),
    *(Rule(f"{name}-of-reshape", _agg(name, ops.reshape(X), axis=AXIS, keepdims=False), build=total_of_x,
           when=all_elements, doc="all elements are joined, whatever their shape")
      for name in _AGGREGATES),
    Rule("total-of-reshape", ops.sum(ops.reshape(X), axis=AXIS, keepdims=False), build=total_of_x,
         when=total_of_array, exactness="rounding",
         doc="the same for floats; where NumPy would have made a copy the order differs"),
])

# --------------------------------------------------------------------------- joined blocks, nothing to join

_COMBINED = {"sum": "add", "min": "minimum", "max": "maximum", "any": "logical_or", "all": "logical_and"}


def along_the_joint(root: Hop, b: Bound) -> bool:
    """The aggregate joins the axis along which blocks of at least one element were joined."""
    blocks = (b["X"], *b["more"])
    return b["joined"] in b["axis"] and 1 < len(blocks) <= _MOST_BLOCKS and all(x.meta.size for x in blocks)


def free_along_the_joint(root: Hop, b: Bound) -> bool:
    """The aggregate joins the axis along which blocks were joined, in an order that does not show.

    Sums of integers that are single are left alone: adding two, NumPy's operators warn.
    """
    silent = root.op.name != "sum" or root.meta.ndim > 0
    return along_the_joint(root, b) and any_order(root, b) and silent


def floats_along_the_joint(root: Hop, b: Bound) -> bool:
    """The aggregate joins the axis along which blocks of floats were joined."""
    return along_the_joint(root, b) and x_is_float(root, b)


def combined(root: Hop, b: Bound) -> Hop:
    """Build the aggregates of the blocks, and combine them."""
    parts = [make(root.op.name, (x,), root.line, axis=b["axis"], keepdims=b["keepdims"])
             for x in (b["X"], *b["more"])]
    return reduce(lambda p, q: make(_COMBINED[root.op.name], (p, q), root.line), parts)


def few_apart(root: Hop, b: Bound) -> bool:
    """A few floats that do not lie one after the other are joined for each of many results."""
    axis, shape = b["axis"], b["X"].meta.shape
    apart = axis != tuple(range(len(axis))) and len(shape) - 1 not in axis and shape[-1] > 1
    few = 1 < prod(shape[i] for i in axis) <= _MOST_BLOCKS
    return apart and few and root.meta.size >= _MANY_RESULTS and x_is_float(root, b)


def from_slices(root: Hop, b: Bound) -> Hop:
    """Build the extremes of slices, one for each place along the axes, in NumPy's order."""
    shape, axis = b["X"].meta.shape, b["axis"]
    parts = []
    for places in product(*(range(shape[i]) for i in axis)):
        index: list[tuple[object, ...]] = [("s", None, None, None)] * len(shape)
        for i, place in zip(axis, places, strict=True):
            index[i] = ("s", place, place + 1, None) if b["keepdims"] else ("i", place)
        parts.append(make("getitem", (b["X"],), root.line, index=tuple(index)))
    return reduce(lambda p, q: make(_COMBINED[root.op.name], (p, q), root.line), parts)


def nothing_to_join(root: Hop, b: Bound) -> bool:
    """There are no elements along the axes."""
    return any(b["X"].meta.shape[i] == 0 for i in b["axis"])


def neutral(root: Hop, b: Bound) -> Hop:
    """Build what NumPy begins with."""
    return constant_like(root, 0 if root.op.name == "sum" else 1)


_MOST_BLOCKS = 8
_MANY_RESULTS = 1 << 10  # for fewer, NumPy's loops are as good
BLOCKS = RuleSet([
    *(Rule(f"{name}-of-joined", _agg(name, once(ops.concatenate(X, MORE, axis=JOINED)), **_OVER),
           build=combined,
           when=free_along_the_joint, doc="block by block, nothing is joined in memory")
      for name in _COMBINED),
    Rule("total-of-joined", ops.sum(once(ops.concatenate(X, MORE, axis=JOINED)), **_OVER), build=combined,
         when=floats_along_the_joint, exactness="rounding",
         doc="block by block, nothing is joined in memory; sums are added up in another order"),
    *(Rule(f"{name}-of-few", _agg(name, X, **_OVER), build=from_slices, when=few_apart,
           doc="NumPy visits a few elements at a time; slices are joined in a loop over all results")
      for name in ("min", "max")),
    *(Rule(f"{name}-over-nothing", _agg(name, X, **_OVER), build=neutral, when=nothing_to_join,
           doc="no element, the neutral one") for name in ("sum", "prod")),
])

EXTREMES_AND_BLOCKS = ORDERINGS + BLOCKS


C = Var("C")

INTP = np.dtype(np.intp)
HALF, SINGLE, DOUBLE = map(np.dtype, (np.float16, np.float32, np.float64))

# --------------------------------------------------------------------------- mean, var, std
# Spelled out exactly as numpy/_core/_methods.py computes them; so they fuse with what makes
# their operand. The quotient by an integer count is float64 also for smaller floats.


def as_dtype(hop: Hop, dtype: np.dtype, line: Any) -> Hop:
    """Return `hop` in `dtype`."""
    return hop if hop.meta.dtype == dtype else make("cast", (hop,), line, dtype=dtype)


def over_count(total: Hop, count: Hop, dtype: np.dtype, line: Any) -> Hop:
    """Return total / count, rounded to `dtype`."""
    return as_dtype(apply("divide", total, count, line=line), dtype, line)


def _sum(x: Hop, root: Hop, keepdims: bool) -> Hop:
    return make("sum", (x,), root.line, axis=root.attr("axis"), keepdims=keepdims)


def spelled_mean(root: Hop, b: Bound) -> Hop:
    """Build the sum divided by the count; float16 is summed in float32."""
    x, line = b["X"], root.line
    given = x.meta.dtype
    working = SINGLE if given == HALF else given if given.kind in "fc" else DOUBLE
    total = _sum(as_dtype(x, working, line), root, b["keepdims"])
    count = make("count", (x,), line, axis=b["axis"])
    if given == HALF and root.meta.shape:
        return as_dtype(over_count(total, count, SINGLE, line), HALF, line)
    return over_count(total, count, root.meta.dtype, line)


def spelled_var(root: Hop, b: Bound) -> Hop:
    """Build the two-pass variance: the mean first, then the mean of the squared deviations."""
    x, line = b["X"], root.line
    working = x.meta.dtype if x.meta.dtype.kind == "f" else DOUBLE
    count = make("count", (x,), line, axis=b["axis"])
    wide = as_dtype(x, working, line)
    mean = over_count(_sum(wide, root, True), count, working, line)
    square = make("square", (make("subtract", (wide, mean), line),), line)
    total = _sum(square, root, b["keepdims"])
    return over_count(total, _less_ddof(count, root), root.meta.dtype, line)


def spelled_std(root: Hop, b: Bound) -> Hop:
    """Build the square root of the variance."""
    return make("sqrt", (spelled_var(root, b),), root.line)


def _ddof(root: Hop) -> Any:
    return dict(root.attrs).get("ddof", 0)


def _less_ddof(count: Hop, root: Hop) -> Hop:
    """Return count - ddof; NumPy's lower limit of 0 is not reached."""
    ddof = _ddof(root)
    if ddof == 0:
        return count
    lost = const(ddof, DOUBLE if isinstance(ddof, float) else INTP)
    return apply("subtract", count, lost, line=root.line)


def enough(root: Hop, b: Bound) -> bool:
    """More elements than degrees of freedom lost, for all sizes; NumPy warns if there are not."""
    ddof = _ddof(root)
    known = isinstance(ddof, (int, float, np.integer))
    return known and bool(least_count(b["X"], b["axis"]) > max(ddof, 0))


def sums_alike(root: Hop, b: Bound) -> bool:
    """`enough`, and NumPy's own cast while it sums does not show.

    It casts and sums in pieces of 8192, which for float16 and for integers of 32 bits and more
    is another order of roundings than casting all and summing pairwise.
    """
    known = "?bBhHfdFD" if root.op.name == "mean" else "?bBhHfde"
    return enough(root, b) and b["X"].meta.dtype.char in known


def sums_nearly_alike(root: Hop, b: Bound) -> bool:
    """`enough`, for the dtypes that `sums_alike` leaves out."""
    return enough(root, b) and b["X"].meta.dtype.char in "iIlLqQe"


_BUILDERS = {"mean": spelled_mean, "var": spelled_var, "std": spelled_std}


def _statistic(name: str) -> App:
    built: App = getattr(ops, name)(X, axis=AXIS, keepdims=KEEPDIMS)
    return built


STATISTICS = RuleSet([
    *(Rule(f"{name}-spelled-out", _statistic(name), build=build, when=sums_alike,
           doc="bit for bit what NumPy does, in operators that fuse")
      for name, build in _BUILDERS.items()),
    *(Rule(f"{name}-spelled-out-wide", _statistic(name), build=build, when=sums_nearly_alike,
           exactness="rounding",
           doc="the same where NumPy sums in pieces of 8192; pairwise is at least as exact")
      for name, build in _BUILDERS.items()),
])

# --------------------------------------------------------------------------- counts
# A count needs lengths only. Asked of the value itself it would keep that from being fused away.

Sources = list[tuple[Hop, tuple[int, ...]]]


def counted_below(root: Hop, b: Bound) -> bool:
    """The lengths are those of operands of X, or there is nothing to count."""
    x, axis = b["X"], b["axis"]
    return not axis or any(x.meta.shape[i] == 1 for i in axis) or _sources(x, axis) is not None


def count_of_operands(root: Hop, b: Bound) -> Hop:
    """Build the product of counts asked of the operands of X."""
    x = b["X"]
    axis = tuple(i for i in b["axis"] if x.meta.shape[i] != 1)
    sources = _sources(x, axis) if axis else []
    if sources is None:
        return make("count", (x,), root.line, axis=axis)
    counts = [make("count", (hop,), root.line, axis=axes) for hop, axes in sources]
    result = counts.pop(0) if counts else const(1, INTP)
    for count in counts:
        result = make("multiply", (result, count), root.line)
    return result


def _sources(x: Hop, axis: tuple[int, ...]) -> Sources | None:
    """Operands of `x` and their axes whose lengths multiply to those of `axis`, None if unknown."""
    if x.op.name == "transpose":
        return [(x.inputs[0], tuple(sorted(x.attr("axes")[i] for i in axis)))]
    if x.op.kind is Kind.CELL:
        return _cell_sources(x, axis)
    if x.op.name == "matmul" and x.inputs[0].meta.ndim == x.inputs[1].meta.ndim == 2:
        return [(x.inputs[i], (i,)) for i in axis]
    if x.op.kind is Kind.AGG and not x.attr("keepdims"):
        kept = [i for i in range(x.inputs[0].meta.ndim) if i not in x.attr("axis")]
        return [(x.inputs[0], tuple(kept[i] for i in axis))]
    return None


def _cell_sources(x: Hop, axis: tuple[int, ...]) -> Sources | None:
    """One operand of the full shape, leaves first, or for each axis one that has its length."""
    same = [i for i in x.inputs if i.meta.shape == x.meta.shape]
    if same:
        return [(min(same, key=_is_no_leaf), axis)]
    found: Sources = []
    for i in axis:
        for operand in x.inputs:
            j = i - (x.meta.ndim - operand.meta.ndim)
            if j >= 0 and operand.meta.shape[j] == x.meta.shape[i]:
                found.append((operand, (j,)))
                break
    return found if len(found) == len(axis) else None


def _is_no_leaf(hop: Hop) -> bool:
    return hop.op.kind is not Kind.LEAF


COUNTS = RuleSet([
    Rule("count-below", ops.count(X, axis=AXIS), build=count_of_operands, when=counted_below,
         doc="lengths come from the operands, so that the value itself need not be kept"),
])

# --------------------------------------------------------------------------- moves that do nothing


def dead_choice(root: Hop, b: Bound) -> bool:
    """X has the result's shape, and the condition can be dropped unseen.

    A condition of two dimensions has a say in the memory order of the result.
    """
    condition: Hop = b["C"]
    return same_shape(root, b) and condition.meta.ndim < 2 and silent(condition)


def over_one(root: Hop, b: Bound) -> bool:
    """Every axis joined has length 1, and one element is its own aggregate.

    The float sum is not: it starts from 0.0, which turns -0.0 into 0.0; nor is the complex product,
    which starts from 1 + 0j: infinity times that 0 is NaN.
    """
    alone = all(b["X"].meta.shape[i] == 1 for i in b["axis"]) and b["axis"] != ()
    if root.op.name == "prod" and root.meta.dtype.kind == "c":
        return False
    return alone and (root.op.name != "sum" or order_free(root.meta.dtype))


def reshaped(root: Hop, b: Bound) -> Hop:
    """Build X in the shape of the result."""
    return make("reshape", (b["X"],), root.line, shape=root.meta.shape)


def _agg_dynamic(name: str) -> App:
    built: App = getattr(ops, name)(X, axis=AXIS, keepdims=KEEPDIMS)
    return built


NOTHING = RuleSet([
    Rule("reshape-to-same", ops.reshape(X), X, when=same_shape, doc="it has that shape"),
    Rule("broadcast-to-same", ops.broadcast_to(X), X, when=same_shape, doc="it has that shape"),
    Rule("where-of-same", ops.where(C, X, X), X, when=dead_choice,
         doc="both branches are one value; the condition must not be able to warn"),
    *(Rule(f"{name}-over-one", _agg_dynamic(name), build=reshaped, when=over_one, doc="nothing to join")
      for name in ("sum", "prod", "min", "max", "any", "all")),
])

SIZED = STATISTICS + COUNTS + NOTHING
