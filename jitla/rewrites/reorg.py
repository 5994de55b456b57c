"""Rewrites of reorganisations, aggregates and products that hold whatever the sizes are.

Knows: the canonical direction: reorganisations go away, aggregates move towards the leaves,
products get smaller. Must not know: element-wise rules. Returns `STRUCTURE`.
"""

from __future__ import annotations

from jitla.hops import Hop, make
from jitla.rewrites.conditions import order_free, owns
from jitla.rewrites.pattern import App, AttrVar, Bound, Num, Var, once, ops
from jitla.rewrites.rule import Rule, RuleSet

X, A, B = Var("X"), Var("A"), Var("B")
AXIS, KEEPDIMS, AXES, INNER, SHAPE = map(AttrVar, ("axis", "keepdims", "axes", "inner", "shape"))
SWAP = (1, 0)

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
    Rule("broadcast-of-broadcast", ops.broadcast_to(ops.broadcast_to(X), shape=SHAPE),
         ops.broadcast_to(X, shape=SHAPE), doc="repeated once is enough"),
])

# --------------------------------------------------------------------------- aggregates

_ORDER_FREE = ("min", "max", "any", "all")
_AGGREGATES = ("sum", "prod", *_ORDER_FREE)


def _moved_axes(b: Bound) -> tuple[int, ...]:
    """The axes of X that the aggregate joins."""
    return tuple(sorted(b["axes"][i] for i in b["axis"]))


def axes_follow(root: Hop, b: Bound) -> bool:
    """The axes that remain have the same order in X."""
    rest = [a for i, a in enumerate(b["axes"]) if i not in b["axis"]]
    kept = b["axes"] == tuple(range(len(b["axes"]))) if b["keepdims"] else rest == sorted(rest)
    return kept or b["keepdims"] and not rest


def same_order(root: Hop, b: Bound) -> bool:
    """As `axes_follow`, and NumPy walks both operands alike: fresh memory, or any order will do.

    It does not where X has zero strides, as a broadcast argument may.
    """
    free = root.op.name in _ORDER_FREE or order_free(root.meta.dtype)
    return axes_follow(root, b) and (free or owns(b["X"]))


def joined_before(root: Hop, b: Bound) -> Hop:
    """Build the aggregate of X over the axes as they are in X."""
    return make(root.op.name, (b["X"],), root.line, axis=_moved_axes(b), keepdims=b["keepdims"])


def _all_axes(inner: tuple[int, ...], outer: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Axes of the operand that two aggregates join, the inner one without keepdims."""
    left = [i for i in range(ndim) if i not in inner]
    return tuple(sorted((*inner, *(left[i] for i in outer))))


def any_order(root: Hop, b: Bound) -> bool:
    """The order in which elements are joined does not show."""
    return root.op.name in _ORDER_FREE or order_free(root.meta.dtype)


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


# --------------------------------------------------------------------------- products


def scalar_factor(root: Hop, b: Bound) -> bool:
    """A is one number, X many."""
    return bool(b["A"].meta.ndim == 0 < b["X"].meta.ndim)


def both_vectors_or_matrices(root: Hop, b: Bound) -> bool:
    """A and B have one or two dimensions."""
    return all(b[v].meta.ndim in (1, 2) for v in "AB")


def true_matrices(root: Hop, b: Bound) -> bool:
    """A and B have two dimensions, their product several rows and columns, and sums have room."""
    a, c = b["A"].meta, b["B"].meta
    several = a.ndim == c.ndim == 2 and a.shape[0] > 1 and c.shape[1] > 1
    return bool(several and a.dtype.itemsize >= 4)


def sums_multiplied(root: Hop, b: Bound) -> Hop:
    """Build (column sums of A) @ (row sums of B), as far as the axes summed over ask for them."""
    left, right = b["A"], b["B"]
    if 0 in b["axis"]:
        left = make("sum", (left,), root.line, axis=(0,), keepdims=False)
    if 1 in b["axis"]:
        right = make("sum", (right,), root.line, axis=(1,), keepdims=False)
    return make("matmul", (left, right), root.line)


def rank_one(root: Hop, b: Bound) -> bool:
    """A is a column and B a row: every element of the product is one product."""
    a, c = b["A"].meta, b["B"].meta
    return bool(a.ndim == c.ndim == 2 and a.shape[1] == 1)


def long_enough_float(root: Hop, b: Bound) -> bool:
    """A is a float matrix of at least 32 bits, whose sums have room."""
    a = b["A"].meta
    return bool(a.ndim == 2 and a.dtype.kind == "f" and a.dtype.itemsize >= 4)


def to_vector(root: Hop, b: Bound) -> bool:
    """As `long_enough_float`, and the ones are a vector."""
    return long_enough_float(root, b) and root.meta.ndim == 1


MATRICES = RuleSet([
    Rule("product-with-ones", ops.matmul(A, ops.full(Num(1))),
         ops.sum(A, axis=(1,), keepdims=False), when=to_vector, exactness="rounding",
         doc="the sums of the rows, which fuse; BLAS sums in another order"),
    Rule("ones-with-product", ops.matmul(ops.full(Num(1)), A),
         ops.sum(A, axis=(0,), keepdims=False), when=to_vector, exactness="rounding",
         doc="the sums of the columns, which fuse; BLAS sums in another order"),
    Rule("dot-as-matmul", ops.dot(A, B), ops.matmul(A, B), when=both_vectors_or_matrices,
         exactness="rounding", doc="one form for both; NumPy may call another BLAS routine"),
    Rule("outer-as-multiply", ops.matmul(A, B), ops.multiply(A, B), when=rank_one,
         exactness="rounding",
         doc="a product without a sum fuses with its users; BLAS makes -0.0 into 0.0"),
    Rule("sum-of-product", ops.sum(once(ops.matmul(A, B)), axis=AXIS, keepdims=False),
         build=sums_multiplied, when=true_matrices, exactness="rounding",
         doc="sums of the factors instead of a matrix product; where a factor holds inf or NaN the "
             "result is one of inf, -inf, NaN, and sums may overflow where single products do not"),
    Rule("t-of-product-of-ts",
         ops.transpose(once(ops.matmul(ops.transpose(A, axes=SWAP), ops.transpose(B, axes=SWAP))),
                       axes=SWAP),
         ops.matmul(B, A), exactness="rounding",
         doc="three transposes less; BLAS takes another path"),
    Rule("sum-of-scaled", ops.sum(once(ops.multiply(X, A)), axis=AXIS, keepdims=KEEPDIMS),
         ops.multiply(ops.sum(X, axis=AXIS, keepdims=KEEPDIMS), A), when=scalar_factor,
         exactness="relaxed",
         doc="one product instead of many; roundings differ, overflow may"),
])

STRUCTURE = MOVES + AGGREGATES + MATRICES
