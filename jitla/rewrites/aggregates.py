"""Rewrites of aggregates of what keeps the order, of other shapes, of joined blocks, and of nothing.

Canonical direction: aggregates move towards the leaves; what keeps the order is done to the extreme alone.
Must not know: products. Returns `EXTREMES_AND_BLOCKS`.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from math import prod

from jitla.hops import Hop, make
from jitla.rewrites.conditions import (
    any_order,
    constant_like,
    never_negative,
    widens,
    x_is_bool,
    x_is_float,
)
from jitla.rewrites.pattern import App, AttrVar, Bound, Rest, Var, once, ops
from jitla.rewrites.rule import Rule, RuleSet

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
