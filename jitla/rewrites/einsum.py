"""Expansion of `einsum` and norms into products and sums, and the order of contractions.

The order is the one with the fewest floating-point operations among those tried; see Smith and Gray,
"opt_einsum", Journal of Open Source Software 3(26), 2018.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from math import prod
from typing import NamedTuple

from jitla.hops import Hop, make, parse_subscripts
from jitla.rewrites.matmul_chains import TOUCH
from jitla.rewrites.rule import App, AttrVar, Bound, Rule, RuleSet, Var, ops

X, Y, Z = Var("X"), Var("Y"), Var("Z")
AXIS, KEEPDIMS, ORDER = AttrVar("axis"), AttrVar("keepdims"), AttrVar("order")


def _is_float(hop: Hop) -> bool:
    return hop.meta.dtype.kind == "f" and hop.meta.dtype.itemsize >= 4


# --------------------------------------------------------------------------- norms


def over_axes(root: Hop, b: Bound) -> bool:
    """X is of floats, and its norm is asked for over some of its axes, or along its only one."""
    alone = b["axis"] is None and b["X"].meta.ndim == 1 and b["order"] in (1, math.inf)
    return _is_float(b["X"]) and (alone or b["axis"] is not None) and b["order"] in (None, 1, 2, math.inf)


def over_everything(root: Hop, b: Bound) -> bool:
    """X is of floats, and the root of all squares is asked for."""
    return _is_float(b["X"]) and b["axis"] is None and b["order"] in (None, 2)


def spelled_norm(root: Hop, b: Bound) -> Hop:
    """Build the sum of magnitudes, the largest of them, or the root of the sum of squares."""
    x, line = b["X"], root.line
    axis = tuple(range(x.meta.ndim)) if b["axis"] is None else b["axis"]
    how = {"axis": axis, "keepdims": b["keepdims"]}
    if b["order"] in (1, math.inf):
        return make("sum" if b["order"] == 1 else "max", (make("absolute", (x,), line),), line, **how)
    return make("sqrt", (make("sum", (make("square", (x,), line),), line, **how),), line)


_NORM: App = ops.norm(X, order=ORDER, axis=AXIS, keepdims=KEEPDIMS)
NORMS = RuleSet([
    Rule("norm-over-axes", _NORM, build=spelled_norm, when=over_axes,
         doc="bit for bit what NumPy does, in operators that fuse"),
    Rule("norm-of-all", _NORM, build=spelled_norm, when=over_everything, exactness="rounding",
         doc="squares added pairwise, which fuses; NumPy takes a product of BLAS"),
])

# --------------------------------------------------------------------------- einsum


def one_length_each(root: Hop, b: Bound) -> bool:
    """Operands are floats with no label twice or repeated, and the sum is one this file has a form for."""
    given, result = parse_subscripts(root.attr("subscripts"))
    distinct = all(len(set(labels)) == len(labels) for labels in (*given, result))
    lengths = {pair for labels, x in zip(given, root.inputs, strict=True)
               for pair in zip(labels, x.meta.shape, strict=True)}
    same = len(lengths) == len(set("".join(given)))
    return distinct and same and all(map(_is_float, root.inputs)) and _form(given, result) is not None


def _form(given: tuple[str, ...], result: str) -> str | None:
    """Return what the sum is: a product of matrices, or one element-wise over a space that an operand has."""
    every = set("".join(given))
    summed = every - set(result)
    if len(given) == 2 and len(summed) == 1:
        (label,) = summed
        left, right = given
        alone = label in left and label in right and not (set(left) & set(right)) - summed
        if alone and max(len(left), len(right)) == 2:
            return "product"
        if label in left and label in right and _stack(left, right, result) is not None:
            return "stacks"
    if len(given) == 2 and _sides(given, result) is not None:
        return "matrices"
    if not summed and len(given) == 1:
        return None
    covered = any(set(labels) == every for labels in given)
    return "cells" if covered or not summed and len(given) == 2 else None


def _sides(given: tuple[str, ...], result: str) -> tuple[int, int] | None:
    """Say which operand has the first labels of the result and which the last, all others being summed.

    The result then is a product of two matrices, whose axes are several of the operands' each.
    """
    for first, second in ((0, 1), (1, 0)):
        rows, columns = ([c for c in labels if c in result] for labels in (given[first], given[second]))
        both = set(given[first]) & set(given[second])
        if rows and columns and both and set(given[0]) | set(given[1]) == both | set(result) \
                and both.isdisjoint(result) and set(result[:len(rows)]) == set(rows) \
                and set(result[len(rows):]) == set(columns):
            return first, second
    return None


def _stack(left: str, right: str, result: str) -> tuple[str, bool] | None:
    """Return the labels of the stack if the sum is one of products of matrices; if operands change places.

    Every label of the stack is one of both operands, or all are one operand's. The last two labels of the
    result are the rows of one operand's matrices, and the columns of the other's.
    """
    stack, (row, column) = result[:-2], tuple(result[-2:]) if len(result) > 2 else ("", "")
    turned = row in right and row not in left
    first, second = (right, left) if turned else (left, right)
    if not stack or row not in first or row in second or column not in second or column in first:
        return None
    ranks = {len(labels) - 2 for labels in (first, second)}
    return (stack, turned) if ranks <= {0, len(stack)} else None


def spelled_einsum(root: Hop, b: Bound) -> Hop:
    """Build the product, or the products of elements and their sum; axes in the order of the result."""
    given, result = parse_subscripts(root.attr("subscripts"))
    if _form(given, result) == "product":
        return _product(root, given, result)
    if _form(given, result) == "stacks":
        return _stacks(root, given, result)
    if _form(given, result) == "matrices":
        return _matrices(root, given, result)
    space = max(given, key=len)
    if set(space) != set("".join(given)):
        space = result
    cells = [_aligned(x, labels, space) for x, labels in zip(root.inputs, given, strict=True)]
    found = reduce(lambda x, y: make("multiply", (x, y), root.line), cells)
    axis = tuple(i for i, label in enumerate(space) if label not in result)
    if axis:
        found = make("sum", (found,), root.line, axis=axis, keepdims=False)
    return _permuted(found, "".join(label for label in space if label in result), result)


def _product(root: Hop, given: tuple[str, ...], result: str) -> Hop:
    left, right = given
    x, y = root.inputs
    (label,) = set(left) - set(result)
    if right.replace(label, "") + left.replace(label, "") == result and len(result) == 2:
        left, right, x, y = right, left, y, x
    x = _permuted(x, left, left.replace(label, "") + label)
    y = _permuted(y, right, label + right.replace(label, ""))
    return make("matmul", (x, y), root.line)


def _stacks(root: Hop, given: tuple[str, ...], result: str) -> Hop:
    left, right = given
    x, y = root.inputs
    (label,) = set(left) & set(right) - set(result)
    found = _stack(left, right, result)
    assert found is not None
    stack, turned = found
    if turned:
        left, right, x, y = right, left, y, x
    x = _permuted(x, left, (stack if len(left) > 2 else "") + result[-2] + label)
    y = _permuted(y, right, (stack if len(right) > 2 else "") + label + result[-1])
    return make("matmul", (x, y), root.line)


def _matrices(root: Hop, given: tuple[str, ...], result: str) -> Hop:
    sides = _sides(given, result)
    assert sides is not None
    (left, x), (right, y) = ((given[n], root.inputs[n]) for n in sides)
    larger = left if x.meta.size >= y.meta.size else right  # not to be copied where that can be helped
    summed = "".join(c for c in larger if c not in result)
    rows, columns = result[:len(left) - len(summed)], result[len(left) - len(summed):]
    x = _folded(_permuted(x, left, rows + summed), len(rows))
    y = _folded(_permuted(y, right, summed + columns), len(summed))
    found = make("matmul", (x, y), root.line)
    return found if root.meta.ndim == 2 else make("reshape", (found,), root.line, shape=root.meta.shape)


def _folded(x: Hop, first: int) -> Hop:
    """Return `x` as a matrix: its `first` axes are one, and the others."""
    if x.meta.ndim == 2:
        return x
    shape = x.meta.shape
    return make("reshape", (x,), x.line, shape=(math.prod(shape[:first]), math.prod(shape[first:])))


def _aligned(x: Hop, labels: str, space: str) -> Hop:
    """Return `x` with its axes as they are in `space`, broadcast along those it has not."""
    wanted = "".join(label for label in space if label in labels)
    x = _permuted(x, labels, wanted)
    behind = space.index(wanted[0]) if wanted else len(space)  # axes in front are put in by broadcasting
    new = tuple(i - behind for i in range(behind, len(space)) if space[i] not in labels)
    return make("expand_dims", (x,), x.line, axis=new) if new and wanted else x


def _permuted(x: Hop, labels: str, wanted: str) -> Hop:
    axes = tuple(labels.index(label) for label in wanted)
    return x if labels == wanted else make("transpose", (x,), x.line, axes=axes)


EINSUM = RuleSet([
    Rule(f"einsum-of-{name}", ops.einsum(*operands), build=spelled_einsum, when=one_length_each,
         exactness="rounding",
         doc="products that BLAS or a fused loop does; NumPy adds up one after the other, "
             "beginning with a zero that turns -0.0 into 0.0")
    for name, operands in (("one", (X,)), ("two", (X, Y)), ("three", (X, Y, Z)))
])

SUMS = NORMS + EINSUM


MOST = 6  # operands
WORTH = 0.5  # part of what NumPy does that a path may do at most


class _Sum(NamedTuple):
    """An einsum: labels of its operands and result, lengths of the labels."""

    given: tuple[str, ...]
    result: str
    length: dict[str, int]

    def kept(self, members: int) -> str:
        """Return the labels of what comes of a set of operands, in the order they first stand in."""
        inside = [labels for n, labels in enumerate(self.given) if members >> n & 1]
        outside = [labels for n, labels in enumerate(self.given) if not members >> n & 1]
        needed = set(self.result).union(*outside)
        return "".join(dict.fromkeys(c for labels in inside for c in labels if c in needed))

    def volume(self, labels: str) -> int:
        """Return how many combinations of values the labels have."""
        return prod(self.length[c] for c in set(labels))


class _Way(NamedTuple):
    """What it takes to get from a set of operands to their product, and the two parts made before."""

    cost: float
    parts: tuple[int, int] | None = None


def _of(root: Hop) -> _Sum | None:
    """Return the sum if all lengths are as labelled, none is 0, and no operand has a label twice."""
    given, result = parse_subscripts(root.attr("subscripts"))
    length: dict[str, int] = {}
    for labels, operand in zip(given, root.inputs, strict=True):
        for label, n in zip(labels, operand.meta.shape, strict=True):
            if length.setdefault(label, n) != n or n == 0:
                return None
    return _Sum(given, result, length) if all(len(set(g)) == len(g) for g in given) else None


def _ways(sum_: _Sum) -> dict[int, _Way]:
    """Return the cheapest way for every set of operands."""
    count = len(sum_.given)
    best = {1 << n: _Way(0.0) for n in range(count)}
    for members in sorted(range(1, 1 << count), key=int.bit_count):
        if members not in best:
            best[members] = min(_Way(
                best[part].cost + best[members ^ part].cost + _pair(sum_, part, members ^ part),
                (part, members ^ part)) for part in _halves(members))
    return best


def _halves(members: int) -> Iterator[int]:
    """Yield one half of every way to split a set in two: that with the first member."""
    first = members & -members
    part = members
    while part := (part - 1) & members:
        if part & first:
            yield part


def _pair(sum_: _Sum, one: int, other: int) -> float:
    both = sum_.kept(one) + sum_.kept(other)
    return sum_.volume(both) + TOUCH * sum_.volume(sum_.kept(one | other))


def several_floats(root: Hop, b: Bound) -> bool:
    """Operands are floats, and to multiply two at a time takes far less than all at once."""
    if root.meta.dtype.kind != "f" or root.meta.dtype.itemsize < 4:
        return False
    sum_ = _of(root)
    if sum_ is None:
        return False
    every = (1 << len(sum_.given)) - 1
    naive = float(len(sum_.given) * sum_.volume("".join(sum_.given)))
    return _ways(sum_)[every].cost < WORTH * naive


def along_path(root: Hop, b: Bound) -> Hop:
    """Build einsums of two operands, the last of which has the labels of the result."""
    sum_ = _of(root)
    assert sum_ is not None
    ways = _ways(sum_)

    def made(members: int, labels: str) -> Hop:
        parts = ways[members].parts
        if parts is None:
            return root.inputs[members.bit_length() - 1]
        own = [sum_.kept(part) if ways[part].parts else sum_.given[part.bit_length() - 1] for part in parts]
        pair = [made(part, kept) for part, kept in zip(parts, own, strict=True)]
        return make("einsum", pair, root.line, subscripts=f"{','.join(own)}->{labels}")

    return made((1 << len(sum_.given)) - 1, sum_.result)


PATHS = RuleSet([
    Rule(f"einsum-path-of-{count}", ops.einsum(*[Var(f"X{n}") for n in range(count)]), build=along_path,
         when=several_floats, exactness="rounding",
         doc="two operands at a time, in the order that takes least, where NumPy visits every combination "
             "of labels; roundings differ, overflow of partial sums may")
    for count in range(3, MOST + 1)
])
