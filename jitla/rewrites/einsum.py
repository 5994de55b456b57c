"""Expansion of `einsum` and norms into products and sums, and the contraction order of `einsum`.

The contraction order of several operands is found by dynamic programming over their subsets, minimising
floating-point operations and memory accesses; see Smith and Gray, "opt_einsum", Journal of Open Source
Software 3(26), 2018.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from math import prod
from typing import NamedTuple

from jitla.hops import Hop, make, parse_subscripts
from jitla.rewrites.matmul_chains import MULTIPLICATIONS_PER_ACCESS
from jitla.rewrites.rule import App, AttrVar, Bindings, Rule, RuleSet, Var, ops

X, Y, Z = Var("X"), Var("Y"), Var("Z")
AXIS, KEEPDIMS, ORDER = AttrVar("axis"), AttrVar("keepdims"), AttrVar("order")


def _is_float(hop: Hop) -> bool:
    return hop.meta.dtype.kind == "f" and hop.meta.dtype.itemsize >= 4


# --------------------------------------------------------------------------- norms


def is_axis_norm(root: Hop, b: Bindings) -> bool:
    """X holds floats, and the norm is a 1-, 2- or maximum norm along given axes, or of a vector."""
    vector = b["axis"] is None and b["X"].meta.ndim == 1 and b["order"] in (1, math.inf)
    return _is_float(b["X"]) and (vector or b["axis"] is not None) and b["order"] in (None, 1, 2, math.inf)


def is_full_norm(root: Hop, b: Bindings) -> bool:
    """X holds floats, and the norm is the 2-norm of all elements."""
    return _is_float(b["X"]) and b["axis"] is None and b["order"] in (None, 2)


def expand_norm(root: Hop, b: Bindings) -> Hop:
    """Build the sum of absolute values, their maximum, or the root of the sum of squares."""
    x, line = b["X"], root.line
    axis = tuple(range(x.meta.ndim)) if b["axis"] is None else b["axis"]
    options = {"axis": axis, "keepdims": b["keepdims"]}
    if b["order"] in (1, math.inf):
        return make("sum" if b["order"] == 1 else "max", (make("absolute", (x,), line),), line, **options)
    return make("sqrt", (make("sum", (make("square", (x,), line),), line, **options),), line)


_NORM_PATTERN: App = ops.norm(X, order=ORDER, axis=AXIS, keepdims=KEEPDIMS)
NORM_RULES = RuleSet([
    Rule("norm-over-axes", _NORM_PATTERN, build=expand_norm, when=is_axis_norm,
         doc="NumPy's algorithm, bit for bit, in operators that fuse"),
    Rule("norm-of-all", _NORM_PATTERN, build=expand_norm, when=is_full_norm, exactness="rounding",
         doc="pairwise sum of squares, which fuses; NumPy calls a BLAS product"),
])

# --------------------------------------------------------------------------- einsum


def can_expand(root: Hop, b: Bindings) -> bool:
    """The operands are floats without repeated labels or broadcasting; the contraction has an expansion."""
    terms, result = parse_subscripts(root.attr("subscripts"))
    distinct = all(len(set(labels)) == len(labels) for labels in (*terms, result))
    lengths = {pair for labels, x in zip(terms, root.inputs, strict=True)
               for pair in zip(labels, x.meta.shape, strict=True)}
    consistent = len(lengths) == len(set("".join(terms)))
    plain = distinct and consistent and all(map(_is_float, root.inputs))
    return plain and _contraction_kind(terms, result) is not None


def _contraction_kind(terms: tuple[str, ...], result: str) -> str | None:
    """Return the expansion of a contraction; None if there is none.

    "product": a matrix product; "stacks": a batched matrix product; "matrices": a matrix product of folded
    operands; "cells": an element-wise product over the labels of one operand, then a sum.
    """
    labels_used = set("".join(terms))
    summed = labels_used - set(result)
    if len(terms) == 2 and len(summed) == 1:
        (label,) = summed
        left, right = terms
        no_other_common = label in left and label in right and not (set(left) & set(right)) - summed
        if no_other_common and max(len(left), len(right)) == 2:
            return "product"
        if label in left and label in right and _batch_labels(left, right, result) is not None:
            return "stacks"
    if len(terms) == 2 and _result_operands(terms, result) is not None:
        return "matrices"
    if not summed and len(terms) == 1:
        return None
    covered = any(set(labels) == labels_used for labels in terms)
    return "cells" if covered or not summed and len(terms) == 2 else None


def _result_operands(terms: tuple[str, ...], result: str) -> tuple[int, int] | None:
    """Return which operand has the leading labels of the result and which the trailing ones; None if mixed.

    All other labels must be common and summed. The result then is a matrix product of the operands, each
    reshaped to a matrix.
    """
    for first, second in ((0, 1), (1, 0)):
        rows, columns = ([c for c in labels if c in result] for labels in (terms[first], terms[second]))
        common = set(terms[first]) & set(terms[second])
        if rows and columns and common and set(terms[0]) | set(terms[1]) == common | set(result) \
                and common.isdisjoint(result) and set(result[:len(rows)]) == set(rows) \
                and set(result[len(rows):]) == set(columns):
            return first, second
    return None


def _batch_labels(left: str, right: str, result: str) -> tuple[str, bool] | None:
    """Return the batch labels of a batched matrix product, and whether the operands are swapped.

    All batch labels belong to both operands, or all to one of them. The last two labels of the result are
    the rows of one operand's matrices and the columns of the other's.
    """
    stack, (row, column) = result[:-2], tuple(result[-2:]) if len(result) > 2 else ("", "")
    swapped = row in right and row not in left
    first, second = (right, left) if swapped else (left, right)
    if not stack or row not in first or row in second or column not in second or column in first:
        return None
    ranks = {len(labels) - 2 for labels in (first, second)}
    return (stack, swapped) if ranks <= {0, len(stack)} else None


def expand_einsum(root: Hop, b: Bindings) -> Hop:
    """Build matrix products, or element-wise products and their sum, with the axes of the result."""
    terms, result = parse_subscripts(root.attr("subscripts"))
    if _contraction_kind(terms, result) == "product":
        return _build_product(root, terms, result)
    if _contraction_kind(terms, result) == "stacks":
        return _build_batched_product(root, terms, result)
    if _contraction_kind(terms, result) == "matrices":
        return _build_folded_product(root, terms, result)
    space = max(terms, key=len)
    if set(space) != set("".join(terms)):
        space = result
    cells = [_align_axes(x, labels, space) for x, labels in zip(root.inputs, terms, strict=True)]
    result_hop = reduce(lambda x, y: make("multiply", (x, y), root.line), cells)
    axis = tuple(i for i, label in enumerate(space) if label not in result)
    if axis:
        result_hop = make("sum", (result_hop,), root.line, axis=axis, keepdims=False)
    return _permute(result_hop, "".join(label for label in space if label in result), result)


def _build_product(root: Hop, terms: tuple[str, ...], result: str) -> Hop:
    """Build a matrix or vector product."""
    left, right = terms
    x, y = root.inputs
    (label,) = set(left) - set(result)
    if right.replace(label, "") + left.replace(label, "") == result and len(result) == 2:
        left, right, x, y = right, left, y, x
    x = _permute(x, left, left.replace(label, "") + label)
    y = _permute(y, right, label + right.replace(label, ""))
    return make("matmul", (x, y), root.line)


def _build_batched_product(root: Hop, terms: tuple[str, ...], result: str) -> Hop:
    """Build a batched matrix product."""
    left, right = terms
    x, y = root.inputs
    (label,) = set(left) & set(right) - set(result)
    batch = _batch_labels(left, right, result)
    assert batch is not None
    stack, swapped = batch
    if swapped:
        left, right, x, y = right, left, y, x
    x = _permute(x, left, (stack if len(left) > 2 else "") + result[-2] + label)
    y = _permute(y, right, (stack if len(right) > 2 else "") + label + result[-1])
    return make("matmul", (x, y), root.line)


def _build_folded_product(root: Hop, terms: tuple[str, ...], result: str) -> Hop:
    """Build a product of operands reshaped to matrices, and unfold the result."""
    sides = _result_operands(terms, result)
    assert sides is not None
    (left, x), (right, y) = ((terms[n], root.inputs[n]) for n in sides)
    larger = left if x.meta.size >= y.meta.size else right  # keeps its axis order, to avoid a copy
    summed = "".join(c for c in larger if c not in result)
    rows, columns = result[:len(left) - len(summed)], result[len(left) - len(summed):]
    x = _fold_to_matrix(_permute(x, left, rows + summed), len(rows))
    y = _fold_to_matrix(_permute(y, right, summed + columns), len(summed))
    product = make("matmul", (x, y), root.line)
    return product if root.meta.ndim == 2 else make("reshape", (product,), root.line, shape=root.meta.shape)


def _fold_to_matrix(x: Hop, first: int) -> Hop:
    """Return `x` reshaped to a matrix: its `first` leading axes, and the others."""
    if x.meta.ndim == 2:
        return x
    shape = x.meta.shape
    return make("reshape", (x,), x.line, shape=(math.prod(shape[:first]), math.prod(shape[first:])))


def _align_axes(x: Hop, labels: str, space: str) -> Hop:
    """Return `x` with its axes in the order of `space`, ready to broadcast along the missing ones."""
    ordered = "".join(label for label in space if label in labels)
    x = _permute(x, labels, ordered)
    leading = space.index(ordered[0]) if ordered else len(space)  # broadcasting inserts leading axes
    new = tuple(i - leading for i in range(leading, len(space)) if space[i] not in labels)
    return make("expand_dims", (x,), x.line, axis=new) if new and ordered else x


def _permute(x: Hop, labels: str, wanted: str) -> Hop:
    """Return `x`, whose axes have `labels`, with its axes in the order `wanted`."""
    axes = tuple(labels.index(label) for label in wanted)
    return x if labels == wanted else make("transpose", (x,), x.line, axes=axes)


EINSUM_RULES = RuleSet([
    Rule(f"einsum-of-{name}", ops.einsum(*operands), build=expand_einsum, when=can_expand,
         exactness="rounding",
         doc="BLAS products or a fused loop; NumPy adds sequentially, starting from a zero that turns -0.0 "
             "into 0.0")
    for name, operands in (("one", (X,)), ("two", (X, Y)), ("three", (X, Y, Z)))
])

NORM_AND_EINSUM_RULES = NORM_RULES + EINSUM_RULES


MAX_OPERANDS = 6
#: A contraction path is used if it costs less than this fraction of NumPy's single loop nest.
MAX_COST_RATIO = 0.5


class _Contraction(NamedTuple):
    """An einsum: the labels of its operands and of its result, and the length of each label."""

    terms: tuple[str, ...]
    result: str
    lengths: dict[str, int]

    def remaining_labels(self, members: int) -> str:
        """Return the labels of the product of a set of operands, in the order of first occurrence."""
        inside = [labels for n, labels in enumerate(self.terms) if members >> n & 1]
        outside = [labels for n, labels in enumerate(self.terms) if not members >> n & 1]
        needed = set(self.result).union(*outside)
        return "".join(dict.fromkeys(c for labels in inside for c in labels if c in needed))

    def iteration_count(self, labels: str) -> int:
        """Return the trip count of a loop nest over the labels."""
        return prod(self.lengths[c] for c in set(labels))


class _Path(NamedTuple):
    """The cost of a contraction path for a set of operands, and the two subsets that are contracted last."""

    cost: float
    parts: tuple[int, int] | None = None


def _parse_contraction(root: Hop) -> _Contraction | None:
    """Return the contraction; None if lengths are 0 or inconsistent, or an operand has a label twice."""
    terms, result = parse_subscripts(root.attr("subscripts"))
    lengths: dict[str, int] = {}
    for labels, operand in zip(terms, root.inputs, strict=True):
        for label, n in zip(labels, operand.meta.shape, strict=True):
            if lengths.setdefault(label, n) != n or n == 0:
                return None
    return _Contraction(terms, result, lengths) if all(len(set(t)) == len(t) for t in terms) else None


def _cheapest_paths(contraction: _Contraction) -> dict[int, _Path]:
    """Return the cheapest path for every non-empty set of operands, a bit set."""
    count = len(contraction.terms)
    best = {1 << n: _Path(0.0) for n in range(count)}
    for members in sorted(range(1, 1 << count), key=int.bit_count):
        if members not in best:
            best[members] = min(_Path(
                best[part].cost + best[members ^ part].cost + _pair_cost(contraction, part, members ^ part),
                (part, members ^ part)) for part in _bipartitions(members))
    return best


def _bipartitions(members: int) -> Iterator[int]:
    """Yield, for every split of a set in two, the part with the first member."""
    first = members & -members
    part = members
    while part := (part - 1) & members:
        if part & first:
            yield part


def _pair_cost(contraction: _Contraction, one: int, other: int) -> float:
    """Return the cost of contracting two sets of operands, in multiplications."""
    loops = contraction.remaining_labels(one) + contraction.remaining_labels(other)
    result = contraction.remaining_labels(one | other)
    written = contraction.iteration_count(result)
    return contraction.iteration_count(loops) + MULTIPLICATIONS_PER_ACCESS * written


def has_cheaper_path(root: Hop, b: Bindings) -> bool:
    """The operands are floats, and pairwise contraction costs far less than a single loop nest."""
    if root.meta.dtype.kind != "f" or root.meta.dtype.itemsize < 4:
        return False
    contraction = _parse_contraction(root)
    if contraction is None:
        return False
    every = (1 << len(contraction.terms)) - 1
    naive = float(len(contraction.terms) * contraction.iteration_count("".join(contraction.terms)))
    return _cheapest_paths(contraction)[every].cost < MAX_COST_RATIO * naive


def contract_pairwise(root: Hop, b: Bindings) -> Hop:
    """Build einsums of two operands along the cheapest contraction path."""
    contraction = _parse_contraction(root)
    assert contraction is not None
    paths = _cheapest_paths(contraction)

    def build_product_of(members: int, labels: str) -> Hop:
        parts = paths[members].parts
        if parts is None:
            return root.inputs[members.bit_length() - 1]
        part_labels = [contraction.remaining_labels(part) if paths[part].parts
                       else contraction.terms[part.bit_length() - 1] for part in parts]
        pair = [build_product_of(*each) for each in zip(parts, part_labels, strict=True)]
        return make("einsum", pair, root.line, subscripts=f"{','.join(part_labels)}->{labels}")

    return build_product_of((1 << len(contraction.terms)) - 1, contraction.result)


CONTRACTION_PATH_RULES = RuleSet([
    Rule(f"einsum-path-of-{count}", ops.einsum(*[Var(f"X{n}") for n in range(count)]),
         build=contract_pairwise, when=has_cheaper_path, exactness="rounding",
         doc="two operands at a time in the cheapest order, instead of one loop nest over all labels; "
             "roundings differ, overflow of partial sums may")
    for count in range(3, MAX_OPERANDS + 1)
])
