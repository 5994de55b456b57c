"""Rewrites of reorganisations, and of aggregates of what was moved or joined before.

Canonical direction: reorganisations go away,
two aggregates are one. Must not know: products. Returns `STRUCTURE`.
"""

from __future__ import annotations

from itertools import zip_longest

from jitla.hops import WHOLE, Hop, make, taken_by
from jitla.rewrites.conditions import any_order, owns
from jitla.rewrites.pattern import App, AttrVar, Bound, Var, once, ops
from jitla.rewrites.rule import Rule, RuleSet

X = Var("X")
AXIS, KEEPDIMS, AXES, INNER, SHAPE, INDEX = map(
    AttrVar, ("axis", "keepdims", "axes", "inner", "shape", "index"))

# --------------------------------------------------------------------------- reorganisations


def one_permutation(root: Hop, b: Bound) -> Hop:
    """Build the transpose that does what the two do one after the other."""
    axes = tuple(b["inner"][i] for i in b["axes"])
    return make("transpose", (b["X"],), root.line, axes=axes)


def in_order(root: Hop, b: Bound) -> bool:
    """The axes stay where they are."""
    return bool(b["axes"] == tuple(range(len(b["axes"]))))


def in_root_shape(root: Hop, b: Bound) -> Hop:
    """Build X in the shape of the result."""
    return make("reshape", (b["X"],), root.line, shape=root.meta.shape)


def plain_slices(root: Hop, b: Bound) -> bool:
    """Both leave out elements at the ends, or between, as many whatever the sizes are."""
    return taken_by(b["inner"]) is not None and taken_by(b["index"]) is not None


def one_slice(root: Hop, b: Bound) -> Hop:
    """Build the slice that does what the two do one after the other."""
    both = [taken_by(b[name]) or [] for name in ("inner", "index")]
    index = tuple(inner.then(outer).item for inner, outer in zip_longest(*both, fillvalue=WHOLE))
    return make("getitem", (b["X"],), root.line, index=index)


MOVES = RuleSet([
    Rule("t-of-t", ops.transpose(ops.transpose(X, axes=INNER), axes=AXES), build=one_permutation,
         doc="two permutations are one"),
    Rule("t-in-order", ops.transpose(X, axes=AXES), X, when=in_order, doc="nothing moves"),
    Rule("reshape-of-reshape",
         ops.reshape(ops.reshape(X), shape=SHAPE), ops.reshape(X, shape=SHAPE),
         doc="the row-major order is the same in every shape"),
    Rule("ravel-as-reshape", ops.ravel(X), build=in_root_shape, doc="one form for both"),
    Rule("flip-of-flip", ops.flip(ops.flip(X, axis=AXIS), axis=AXIS), X, doc="reversed twice"),
    Rule("squeeze-of-expand", ops.squeeze(ops.expand_dims(X, axis=AXIS), axis=AXIS), X,
         doc="the axes inserted are the ones dropped"),
    Rule("slice-of-slice", ops.getitem(ops.getitem(X, index=INNER), index=INDEX), build=one_slice,
         when=plain_slices,
         doc="what is left out at both ends adds up, steps multiply"),
    Rule("broadcast-of-broadcast", ops.broadcast_to(ops.broadcast_to(X), shape=SHAPE),
         ops.broadcast_to(X, shape=SHAPE), doc="repeated once is enough"),
])

# --------------------------------------------------------------------------- aggregates

_AGGREGATES = ("sum", "prod", "min", "max", "any", "all")


def _moved_axes(b: Bound) -> tuple[int, ...]:
    """The axes of X that the aggregate joins."""
    return tuple(sorted(b["axes"][i] for i in b["axis"]))


def axes_follow(root: Hop, b: Bound) -> bool:
    """The axes that remain have the same order in X."""
    rest = [a for i, a in enumerate(b["axes"]) if i not in b["axis"]]
    kept = b["axes"] == tuple(range(len(b["axes"]))) if b["keepdims"] else rest == sorted(rest)
    return kept or b["keepdims"] and not rest


def same_order(root: Hop, b: Bound) -> bool:
    """The axes that remain have the same order in X, which is fresh memory, unless any order will do.

    It does not where X has zero strides, as a broadcast argument may.
    """
    return axes_follow(root, b) and (any_order(root, b) or owns(b["X"]))


def joined_before(root: Hop, b: Bound) -> Hop:
    """Build the aggregate of X over the axes as they are in X."""
    return make(root.op.name, (b["X"],), root.line, axis=_moved_axes(b), keepdims=b["keepdims"])


def _all_axes(inner: tuple[int, ...], outer: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Axes of the operand that two aggregates join, the inner one without keepdims."""
    left = [i for i in range(ndim) if i not in inner]
    return tuple(sorted((*inner, *(left[i] for i in outer))))


def total_of_fresh(root: Hop, b: Bound) -> bool:
    """All is joined and X contiguous: NumPy sums pairwise then, which is at least as exact."""
    return root.meta.shape == () and owns(b["X"])


def joined_once(root: Hop, b: Bound) -> Hop:
    """Build one aggregate over both sets of axes."""
    axis = _all_axes(b["inner"], b["axis"], b["X"].meta.ndim)
    return make(root.op.name, (b["X"],), root.line, axis=axis, keepdims=False)


def _agg(name: str, *args: App | Var, **attrs: object) -> App:
    built: App = getattr(ops, name)(*args, **attrs)
    return built


AGGREGATES = RuleSet([
    *(Rule(f"{name}-of-t", _agg(name, ops.transpose(X, axes=AXES), axis=AXIS, keepdims=KEEPDIMS),
           build=joined_before, when=same_order,
           doc="the aggregate names its axes, no need to move them")
      for name in _AGGREGATES),
    Rule("sum-of-t-view", ops.sum(ops.transpose(X, axes=AXES), axis=AXIS, keepdims=KEEPDIMS),
         build=joined_before, when=axes_follow, exactness="rounding",
         doc="the same for arguments and views, whose strides may be zero: then the order differs"),
    *(Rule(f"{name}-of-{name}",
           _agg(name, _agg(name, X, axis=INNER, keepdims=False), axis=AXIS, keepdims=False),
           build=joined_once, when=any_order, doc="one aggregate over both sets of axes")
      for name in _AGGREGATES),
    Rule("total-of-sum",
         ops.sum(once(ops.sum(X, axis=INNER, keepdims=False)), axis=AXIS, keepdims=False),
         build=joined_once, when=total_of_fresh, exactness="rounding",
         doc="one pairwise sum over everything; roundings differ, overflow of partial sums may"),
])

STRUCTURE = MOVES + AGGREGATES
