"""Rewrite rules of aggregates: sums, means, extremes and counts, some of them dependent on sizes."""

from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np

from jitla.hops import Hop, Kind, apply, const, make
from jitla.rewrites.rule import (
    AttrVar,
    Bindings,
    Rule,
    RuleSet,
    Var,
    VarArgs,
    aggregate,
    constant_like,
    has_associative_sum,
    is_droppable,
    is_lossless_cast,
    is_order_insensitive,
    min_reduced_elements,
    ops,
    reshape_x,
    single_use,
    x_has_result_shape,
    x_is_bool,
    x_is_float,
    x_is_non_negative_float,
)

X = Var("X")
MORE = VarArgs("more")
AXIS, KEEPDIMS, CONCAT_AXIS = map(AttrVar, ("axis", "keepdims", "joined"))
_AGGREGATES = ("sum", "prod", "min", "max", "any", "all")


# --------------------------------------------------------------------------- extremes of monotonic functions


def cast_preserves_order(root: Hop, b: Bindings) -> bool:
    """The cast preserves every value, hence the order of the elements."""
    return is_lossless_cast(b["X"].meta.dtype, root.inputs[0].meta.dtype)


def reduces_all_in_any_order(root: Hop, b: Bindings) -> bool:
    """All elements of an array X are reduced, and the result does not depend on their order."""
    return is_order_insensitive(root, b) and reduces_whole_array(root, b)


def reduces_whole_array(root: Hop, b: Bindings) -> bool:
    """All elements of an array are reduced."""
    return len(b["axis"]) == root.inputs[0].meta.ndim and b["X"].meta.ndim > 0


def reduce_all_axes(root: Hop, b: Bindings) -> Hop:
    """Build the aggregate over all axes of X."""
    return make(root.op.name, (b["X"],), root.line, axis=tuple(range(b["X"].meta.ndim)), keepdims=False)


def x_is_array(root: Hop, b: Bindings) -> bool:
    """X is an array: the row-major index of an element does not depend on the shape."""
    return bool(b["X"].meta.ndim > 0)


def search_flattened(root: Hop, b: Bindings) -> Hop:
    """Build the search over the flattened X."""
    return make(root.op.name, (b["X"],), root.line, axis=None, keepdims=False)


def cast_extreme(root: Hop, b: Bindings) -> Hop:
    """Build the cast of the extreme of X."""
    extreme = make(root.op.name, (b["X"],), root.line, axis=b["axis"], keepdims=b["keepdims"])
    return make("cast", (extreme,), root.line, dtype=root.meta.dtype)


_DUAL_OPS = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin"}
_AXIS_ATTRS = {"axis": AXIS, "keepdims": KEEPDIMS}
ORDERING_RULES = RuleSet([
    *(Rule(f"{name}-of-neg", aggregate(name, single_use(ops.negative(X)), **_AXIS_ATTRS),
           ops.negative(aggregate(_DUAL_OPS[name], X, **_AXIS_ATTRS)), when=x_is_float,
           doc="one negation instead of many; the least integer has no negative")
      for name in ("min", "max")),
    *(Rule(f"{name}-of-not", aggregate(name, single_use(ops.logical_not(X)), **_AXIS_ATTRS),
           ops.logical_not(aggregate(_DUAL_OPS[name], X, **_AXIS_ATTRS)), when=x_is_bool,
           doc="one negation instead of many")
      for name in ("any", "all")),
    *(Rule(f"{name}-of-sqrt", aggregate(name, single_use(ops.sqrt(X)), **_AXIS_ATTRS),
           ops.sqrt(aggregate(name, X, **_AXIS_ATTRS)), when=x_is_non_negative_float,
           doc="one square root instead of many; it is monotonic, and nothing is negative")
      for name in ("min", "max")),
    *(Rule(f"{name}-of-exp", aggregate(name, single_use(ops.exp(X)), **_AXIS_ATTRS),
           ops.exp(aggregate(name, X, **_AXIS_ATTRS)), when=x_is_float, exactness="rounding",
           doc="one exponential instead of many, with the same error bound; it is monotonic")
      for name in ("min", "max")),
    *(Rule(f"{name}-of-cast", aggregate(name, single_use(ops.cast(X)), **_AXIS_ATTRS), build=cast_extreme,
           when=cast_preserves_order, doc="one cast instead of many")
      for name in ("min", "max")),
    *(Rule(f"{name}-of-neg", aggregate(name, ops.negative(X), **_AXIS_ATTRS),
           aggregate(_DUAL_OPS[name], X, **_AXIS_ATTRS), when=x_is_float,
           doc="the opposite extreme has the same index, and so has the first NaN")
      for name in ("argmin", "argmax")),
    *(Rule(f"{name}-of-cast", aggregate(name, ops.cast(X), **_AXIS_ATTRS),
           aggregate(name, X, **_AXIS_ATTRS), when=cast_preserves_order,
           doc="a lossless cast preserves the order")
      for name in ("argmin", "argmax")),
    *(Rule(f"{name}-of-reshape", aggregate(name, ops.reshape(X), axis=None, keepdims=False),
           build=search_flattened, when=x_is_array, doc="row-major indices are the same in every shape")
      for name in ("argmin", "argmax")),
    *(Rule(f"{name}-of-reshape", aggregate(name, ops.reshape(X), axis=AXIS, keepdims=False),
           build=reduce_all_axes, when=reduces_all_in_any_order,
           doc="all elements are reduced, independent of their shape")
      for name in _AGGREGATES),
    Rule("total-of-reshape", ops.sum(ops.reshape(X), axis=AXIS, keepdims=False), build=reduce_all_axes,
         when=reduces_whole_array, exactness="rounding",
         doc="the same for floats; if the reshape would copy, the order of addition differs"),
])

# --------------------------------------------------------------------------- concatenated blocks, empty axes

_COMBINING_OPS = {"sum": "add", "min": "minimum", "max": "maximum", "any": "logical_or", "all": "logical_and"}


def reduces_concat_axis(root: Hop, b: Bindings) -> bool:
    """The reduction includes the axis along which non-empty blocks were concatenated."""
    blocks = (b["X"], *b["more"])
    return b["joined"] in b["axis"] and 1 < len(blocks) <= _MAX_BLOCKS and all(x.meta.size for x in blocks)


def reduces_concat_axis_in_any_order(root: Hop, b: Bindings) -> bool:
    """The reduction includes the concatenated axis, and its order does not affect the result.

    Integer sums that are scalars are excluded: NumPy's scalar addition warns of overflow.
    """
    warns_equally = root.op.name != "sum" or root.meta.ndim > 0
    return reduces_concat_axis(root, b) and is_order_insensitive(root, b) and warns_equally


def reduces_concat_axis_of_floats(root: Hop, b: Bindings) -> bool:
    """The reduction includes the axis along which blocks of floats were concatenated."""
    return reduces_concat_axis(root, b) and x_is_float(root, b)


def combine_block_aggregates(root: Hop, b: Bindings) -> Hop:
    """Build the combination of the aggregates of the blocks."""
    parts = [make(root.op.name, (x,), root.line, axis=b["axis"], keepdims=b["keepdims"])
             for x in (b["X"], *b["more"])]
    return reduce(lambda p, q: make(_COMBINING_OPS[root.op.name], (p, q), root.line), parts)


def reduces_few_strided_floats(root: Hop, b: Bindings) -> bool:
    """A few floats that are not contiguous are reduced for each of many results."""
    axis, shape = b["axis"], b["X"].meta.shape
    strided = axis != tuple(range(len(axis))) and len(shape) - 1 not in axis and shape[-1] > 1
    few = 1 < prod(shape[i] for i in axis) <= _MAX_BLOCKS
    return strided and few and root.meta.size >= _MIN_RESULTS and x_is_float(root, b)


def combine_slices(root: Hop, b: Bindings) -> Hop:
    """Build the extremes of slices, one for each position along the reduced axes, in NumPy's order."""
    shape, axis = b["X"].meta.shape, b["axis"]
    parts = []
    for offsets in product(*(range(shape[i]) for i in axis)):
        index: list[tuple[object, ...]] = [("s", None, None, None)] * len(shape)
        for i, offset in zip(axis, offsets, strict=True):
            index[i] = ("s", offset, offset + 1, None) if b["keepdims"] else ("i", offset)
        parts.append(make("getitem", (b["X"],), root.line, index=tuple(index)))
    return reduce(lambda p, q: make(_COMBINING_OPS[root.op.name], (p, q), root.line), parts)


def reduces_empty_axis(root: Hop, b: Bindings) -> bool:
    """The reduced axes have no elements."""
    return any(b["X"].meta.shape[i] == 0 for i in b["axis"])


def neutral_element(root: Hop, b: Bindings) -> Hop:
    """Build the neutral element of the aggregate."""
    return constant_like(root, 0 if root.op.name == "sum" else 1)


_MAX_BLOCKS = 8
_MIN_RESULTS = 1 << 10  # for fewer, NumPy's loops are as fast
BLOCK_RULES = RuleSet([
    *(Rule(f"{name}-of-joined",
           aggregate(name, single_use(ops.concatenate(X, MORE, axis=CONCAT_AXIS)), **_AXIS_ATTRS),
           build=combine_block_aggregates, when=reduces_concat_axis_in_any_order,
           doc="block by block, without concatenation in memory")
      for name in _COMBINING_OPS),
    Rule("total-of-joined", ops.sum(single_use(ops.concatenate(X, MORE, axis=CONCAT_AXIS)), **_AXIS_ATTRS),
         build=combine_block_aggregates, when=reduces_concat_axis_of_floats, exactness="rounding",
         doc="block by block, without concatenation in memory; the order of addition differs"),
    *(Rule(f"{name}-of-few", aggregate(name, X, **_AXIS_ATTRS), build=combine_slices,
           when=reduces_few_strided_floats,
           doc="NumPy's inner loops have few iterations; slices are combined in one loop over all results")
      for name in ("min", "max")),
    *(Rule(f"{name}-over-nothing", aggregate(name, X, **_AXIS_ATTRS), build=neutral_element,
           when=reduces_empty_axis, doc="the reduction of no elements is the neutral one")
      for name in ("sum", "prod")),
])

ORDERING_AND_BLOCK_RULES = ORDERING_RULES + BLOCK_RULES


C = Var("C")

INTP = np.dtype(np.intp)
HALF, SINGLE, DOUBLE = map(np.dtype, (np.float16, np.float32, np.float64))

# --------------------------------------------------------------------------- mean, var, std
# Expanded exactly as in numpy/_core/_methods.py, so that they fuse with their operand. The quotient by an
# integer count is float64 also for smaller floats.


def cast_to(hop: Hop, dtype: np.dtype, line: Any) -> Hop:
    """Return `hop` cast to `dtype`, or `hop` itself if it has that dtype."""
    return hop if hop.meta.dtype == dtype else make("cast", (hop,), line, dtype=dtype)


def divide_by_count(total: Hop, count: Hop, dtype: np.dtype, line: Any) -> Hop:
    """Return total / count, rounded to `dtype`."""
    return cast_to(apply("divide", total, count, line=line), dtype, line)


def _sum_over_axis(x: Hop, root: Hop, keepdims: bool) -> Hop:
    return make("sum", (x,), root.line, axis=root.attr("axis"), keepdims=keepdims)


def expand_mean(root: Hop, b: Bindings) -> Hop:
    """Build the sum divided by the count; float16 is summed in float32."""
    x, line = b["X"], root.line
    source = x.meta.dtype
    working = SINGLE if source == HALF else source if source.kind in "fc" else DOUBLE
    total = _sum_over_axis(cast_to(x, working, line), root, b["keepdims"])
    count = make("count", (x,), line, axis=b["axis"])
    if source == HALF and root.meta.shape:
        return cast_to(divide_by_count(total, count, SINGLE, line), HALF, line)
    return divide_by_count(total, count, root.meta.dtype, line)


def expand_var(root: Hop, b: Bindings) -> Hop:
    """Build the two-pass variance: the mean first, then the mean of the squared deviations."""
    x, line = b["X"], root.line
    working = x.meta.dtype if x.meta.dtype.kind == "f" else DOUBLE
    count = make("count", (x,), line, axis=b["axis"])
    wide = cast_to(x, working, line)
    mean = divide_by_count(_sum_over_axis(wide, root, True), count, working, line)
    square = make("square", (make("subtract", (wide, mean), line),), line)
    total = _sum_over_axis(square, root, b["keepdims"])
    return divide_by_count(total, _subtract_ddof(count, root), root.meta.dtype, line)


def expand_std(root: Hop, b: Bindings) -> Hop:
    """Build the square root of the variance."""
    return make("sqrt", (expand_var(root, b),), root.line)


def _ddof(root: Hop) -> Any:
    return dict(root.attrs).get("ddof", 0)


def _subtract_ddof(count: Hop, root: Hop) -> Hop:
    """Return count - ddof; the condition of the rule guarantees that it is positive."""
    ddof = _ddof(root)
    if ddof == 0:
        return count
    lost_degrees = const(ddof, DOUBLE if isinstance(ddof, float) else INTP)
    return apply("subtract", count, lost_degrees, line=root.line)


def has_enough_elements(root: Hop, b: Bindings) -> bool:
    """There are more elements than `ddof`, for all sizes; otherwise NumPy warns."""
    ddof = _ddof(root)
    is_number = isinstance(ddof, (int, float, np.integer))
    return is_number and bool(min_reduced_elements(b["X"], b["axis"]) > max(ddof, 0))


def sums_bit_identically(root: Hop, b: Bindings) -> bool:
    """There are more elements than `ddof`, and NumPy's buffered cast does not affect the sum.

    NumPy casts and sums in buffers of 8192 elements, which for float16 and for integers of 32 bits and more
    rounds in another order than casting everything and summing pairwise.
    """
    chars = "?bBhHfdFD" if root.op.name == "mean" else "?bBhHfde"
    return has_enough_elements(root, b) and b["X"].meta.dtype.char in chars


def sums_in_other_order(root: Hop, b: Bindings) -> bool:
    """There are more elements than `ddof`, and NumPy's buffered cast affects the rounding of the sum."""
    return has_enough_elements(root, b) and b["X"].meta.dtype.char in "iIlLqQe"


_BUILDERS = {"mean": expand_mean, "var": expand_var, "std": expand_std}


STATISTICS_RULES = RuleSet([
    *(Rule(f"{name}-spelled-out", aggregate(name, X, **_AXIS_ATTRS), build=build, when=sums_bit_identically,
           doc="NumPy's algorithm, bit for bit, in operators that fuse")
      for name, build in _BUILDERS.items()),
    *(Rule(f"{name}-spelled-out-wide", aggregate(name, X, **_AXIS_ATTRS), build=build,
           when=sums_in_other_order, exactness="rounding",
           doc="the same for dtypes that NumPy sums in buffers of 8192; pairwise is at least as accurate")
      for name, build in _BUILDERS.items()),
])

# --------------------------------------------------------------------------- counts
# A count needs axis lengths only. Taken from the value itself, it would force the value to be materialised.

Sources = list[tuple[Hop, tuple[int, ...]]]


def can_count_operands(root: Hop, b: Bindings) -> bool:
    """The axis lengths are those of operands of X, or all counted axes have length 1."""
    x, axis = b["X"], b["axis"]
    return not axis or any(x.meta.shape[i] == 1 for i in axis) or _length_sources(x, axis) is not None


def count_operands(root: Hop, b: Bindings) -> Hop:
    """Build the product of counts of the operands of X."""
    x = b["X"]
    axis = tuple(i for i in b["axis"] if x.meta.shape[i] != 1)
    sources = _length_sources(x, axis) if axis else []
    if sources is None:
        return make("count", (x,), root.line, axis=axis)
    counts = [make("count", (hop,), root.line, axis=axes) for hop, axes in sources]
    result = counts.pop(0) if counts else const(1, INTP)
    for count in counts:
        result = make("multiply", (result, count), root.line)
    return result


def _length_sources(x: Hop, axis: tuple[int, ...]) -> Sources | None:
    """Return operands of `x` with axes whose lengths multiply to that of `axis`; None if there are none."""
    if x.op.name == "transpose":
        return [(x.inputs[0], tuple(sorted(x.attr("axes")[i] for i in axis)))]
    if x.op.kind is Kind.CELL:
        return _cell_length_sources(x, axis)
    if x.op.name == "matmul" and x.inputs[0].meta.ndim == x.inputs[1].meta.ndim == 2:
        return [(x.inputs[i], (i,)) for i in axis]
    if x.op.kind is Kind.AGG and not x.attr("keepdims"):
        remaining = [i for i in range(x.inputs[0].meta.ndim) if i not in x.attr("axis")]
        return [(x.inputs[0], tuple(remaining[i] for i in axis))]
    return None


def _cell_length_sources(x: Hop, axis: tuple[int, ...]) -> Sources | None:
    """Return one operand of the full shape, preferably a leaf, or for each axis an operand of its length."""
    same = [i for i in x.inputs if i.meta.shape == x.meta.shape]
    if same:
        return [(min(same, key=_is_computed), axis)]
    sources: Sources = []
    for i in axis:
        for operand in x.inputs:
            j = i - (x.meta.ndim - operand.meta.ndim)
            if j >= 0 and operand.meta.shape[j] == x.meta.shape[i]:
                sources.append((operand, (j,)))
                break
    return sources if len(sources) == len(axis) else None


def _is_computed(hop: Hop) -> bool:
    return hop.op.kind is not Kind.LEAF


COUNT_RULES = RuleSet([
    Rule("count-below", ops.count(X, axis=AXIS), build=count_operands, when=can_count_operands,
         doc="lengths come from the operands, so that the value itself need not be materialised"),
])

# --------------------------------------------------------------------------- identities


def condition_is_droppable(root: Hop, b: Bindings) -> bool:
    """X has the shape of the result, and computing the condition raises no warning.

    A condition of two dimensions can affect the memory order of the result.
    """
    condition: Hop = b["C"]
    return x_has_result_shape(root, b) and condition.meta.ndim < 2 and is_droppable(condition)


def reduces_single_elements(root: Hop, b: Bindings) -> bool:
    """Every reduced axis has length 1, and the aggregate of one element is that element.

    That excludes the float sum, which starts from 0.0 and turns -0.0 into 0.0, and the complex product,
    which starts from 1 + 0j: infinity times 0 is NaN.
    """
    all_single = all(b["X"].meta.shape[i] == 1 for i in b["axis"]) and b["axis"] != ()
    if root.op.name == "prod" and root.meta.dtype.kind == "c":
        return False
    return all_single and (root.op.name != "sum" or has_associative_sum(root.meta.dtype))


IDENTITY_RULES = RuleSet([
    Rule("reshape-to-same", ops.reshape(X), X, when=x_has_result_shape, doc="it has that shape already"),
    Rule("broadcast-to-same", ops.broadcast_to(X), X, when=x_has_result_shape,
         doc="it has that shape already"),
    Rule("where-of-same", ops.where(C, X, X), X, when=condition_is_droppable,
         doc="both branches are the same value; the condition must not be able to warn"),
    *(Rule(f"{name}-over-one", aggregate(name, X, **_AXIS_ATTRS), build=reshape_x,
           when=reduces_single_elements, doc="a single element is its own aggregate")
      for name in ("sum", "prod", "min", "max", "any", "all")),
])

SIZE_DEPENDENT_RULES = STATISTICS_RULES + COUNT_RULES + IDENTITY_RULES
