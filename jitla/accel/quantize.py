"""Quantisation: rewrites products of floats to products of bytes, by observed ranges of values.

A value is `scale` times an integer from -127 to 127. Sums of products are 32-bit integers; biases and limits
before the next product are applied to them, rounded to integers, and requantisation to bytes is a
multiplication and a shift: ``(sums * m + half) >> n``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import ceil, frexp, log2
from typing import Any

import numpy as np

from jitla.accel.matching import is_addition
from jitla.classes import dataclass
from jitla.hops import Hop, Kind, Meta, const, evaluate, leaf, make, topo, uses

MAX_BYTE = 127  # bytes are symmetric, without -128
MULTIPLIER_BITS = 8  # of the multiplier that requantises sums to bytes
SUM_BITS = 30  # of a sum times its multiplier
INT = np.dtype(np.int32)
_MOVEMENTS = frozenset({"reshape", "ravel", "transpose", "expand_dims", "squeeze", "getitem", "max", "pad",
                        "broadcast_to"})
_PRODUCTS = frozenset({"matmul", "dot"})


@dataclass(slots=True)
class ValueRanges:
    """Observed maximum magnitudes by product: of whole left operands, and of weights by column."""

    whole: dict[int, float] = field(default_factory=dict)
    columns: dict[int, np.ndarray] = field(default_factory=dict)


def product_groups(roots: Sequence[Hop]) -> list[list[Hop]]:
    """Return the products of floats, grouped by the sum that they are addends of."""
    order = topo(roots)
    grouped: set[Hop] = set()
    groups: list[list[Hop]] = []
    for hop in reversed(order):
        if hop in grouped or hop.meta.dtype.kind != "f":
            continue
        terms = _terms(hop)
        if all(map(_is_product, terms)):
            grouped.update(terms)
            groups.append(terms)
            grouped.update(_sums(hop))
    return groups[::-1]


def _is_product(hop: Hop) -> bool:
    return hop.op.name in _PRODUCTS and hop.inputs[1].meta.ndim == 2 and hop.inputs[0].meta.ndim >= 2


def _terms(hop: Hop) -> list[Hop]:
    if is_addition(hop, hop.meta.shape) and hop.meta.shape and all(i.meta.shape for i in hop.inputs):
        return [t for i in hop.inputs for t in _terms(i)]
    return [hop]


def _sums(hop: Hop) -> list[Hop]:
    if is_addition(hop, hop.meta.shape) and hop.meta.shape:
        return [hop, *(s for i in hop.inputs for s in _sums(i))]
    return []


def fold_scales(roots: Sequence[Hop]) -> tuple[Hop, ...]:
    """Fold per-column factors and offsets of products, as of normalisations, into their weights."""
    readers = uses(roots)
    results: dict[Hop, Hop] = {}
    for hop in topo(roots):
        result = hop
        if hop.inputs:
            inputs = [results[i] for i in hop.inputs]
            result = make(hop.op.name, inputs, hop.line, **dict(hop.attrs))
            operand_orders = ((0, 1), (1, 0)) if hop.op.name == "multiply" else ((0, 1),)
            is_binary = len(inputs) == 2 and hop.meta.dtype.kind == "f"
            for x, factor in operand_orders if is_binary else ():
                if len(set(readers[hop.inputs[x]])) == 1 and is_per_column(inputs[factor], inputs[x]):
                    result = _fold_into_weights(hop.op.name, inputs[x], inputs[factor]) or result
        results[hop] = result
    return tuple(results[r] for r in roots)


def is_per_column(other: Hop, hop: Hop) -> bool:
    """Return whether `other` is a scalar, or has an element per column of `hop`."""
    return other.meta.shape in ((), hop.meta.shape[-1:]) and hop.meta.ndim > 1


def _fold_into_weights(name: str, hop: Hop, other: Hop) -> Hop | None:
    """Return a per-column operation on sums of products, folded into weights; None if it does not apply."""
    if name == "subtract" and _is_linear(hop):
        return make("add", (hop, make("negative", (other,))))
    return _scaled(name, hop, other) if name in ("multiply", "divide") and _is_linear(hop) else None


def _is_linear(hop: Hop) -> bool:
    if hop.op.name == "add":
        own, other = hop.inputs
        return _is_linear(own) and (_is_linear(other) or is_per_column(other, own)) or \
            is_per_column(own, other) and _is_linear(other)
    return _is_product(hop)


def _scaled(name: str, hop: Hop, other: Hop) -> Hop:
    """Multiply or divide sums of products by column, in their weights."""
    if hop.op.name == "add":
        return make("add", [_scaled(name, i, other) for i in hop.inputs], hop.line)
    if _is_product(hop):
        return make(hop.op.name, (hop.inputs[0], make(name, (hop.inputs[1], other))), hop.line)
    return make(name, (hop, other), hop.line)


def observe(roots: Sequence[Hop], leaves: Sequence[Any], ranges: ValueRanges) -> list[Any]:
    """Evaluate `roots` and record the ranges of the operands of products in `ranges`."""
    roots = fold_scales(roots)
    groups = product_groups(roots)
    operands = [i for g in groups for p in g for i in p.inputs]
    values = evaluate((*roots, *operands), leaves)
    operand_values = iter(values[len(roots):])
    for number, group in enumerate(groups):
        for _ in group:
            pixels, weights = next(operand_values), next(operand_values)
            magnitude = float(np.abs(pixels).max(initial=0))
            ranges.whole[number] = max(ranges.whole.get(number, 0.0), magnitude)
            column = np.abs(weights).max(axis=0, initial=0)
            ranges.columns[number] = np.maximum(ranges.columns.get(number, 0.0), column)
    return values[:len(roots)]


@dataclass(frozen=True, slots=True)
class Scale:
    """A quantisation scale: one number or one per column; `hop` is the scale as an operand."""

    value: Any
    hop: Hop


class QuantisedDag:
    """A quantised DAG: its new roots, and in `extras` the arrays of new leaves from slot `first` on."""

    def __init__(self, roots: Sequence[Hop], ranges: ValueRanges, per_channel: bool, first: int) -> None:
        self.ranges, self.per_channel, self.first = ranges, per_channel, first
        roots = fold_scales(roots)
        self.extras: list[np.ndarray] = []
        self.scales: list[tuple[float, Any]] = []
        self._groups: dict[Hop, tuple[int, list[Hop]]] = {}
        groups = product_groups(roots)
        group_results = {tuple(g): h for h in topo(roots) for g in groups if _terms(h) == g}
        for number, group in enumerate(groups):
            if ranges.whole.get(number):
                self._groups[group_results[tuple(group)]] = number, group
        self._sums: dict[Hop, tuple[Hop, Scale, float] | None] = {}
        self._floats: dict[Hop, Hop] = {}
        for hop in topo(roots):
            self._float(hop)
        self.roots = tuple(self._floats[r] for r in roots)

    # ------------------------------------------------------------------ operands

    def _array(self, values: Any, dtype: Any) -> Hop:
        """Return an operand: a constant, or a new leaf with an element per column."""
        values = np.asarray(values, dtype)
        if values.ndim == 0:
            return const(values[()], dtype)
        self.extras.append(values)
        return leaf(self.first + len(self.extras) - 1, Meta(values.shape, values.dtype))

    def _bytes(self, hop: Hop, inverse: Hop) -> Hop:
        """Quantise floats to bytes: multiply by the inverse scale, round, clip."""
        low, high = (const(v, hop.meta.dtype) for v in (-MAX_BYTE, MAX_BYTE))
        steps = make("rint", (make("multiply", (hop, inverse)),))
        return make("cast", (make("clip", (steps, low, high)),), dtype=np.int8)

    # ------------------------------------------------------------------ sums of products

    def _sum(self, hop: Hop) -> tuple[Hop, Scale, float] | None:
        """Return a value as integer sums with scale and magnitude bound; None if it has no such form."""
        if hop not in self._sums:
            self._sums[hop] = self._build_sum(hop)
        return self._sums[hop]

    def _build_sum(self, hop: Hop) -> tuple[Hop, Scale, float] | None:
        if hop in self._groups:
            return self._product(*self._groups[hop])
        if hop.op.name in ("add", "maximum", "minimum") and len(hop.inputs) == 2:
            for operand, other in (hop.inputs, hop.inputs[::-1]):
                sums = self._sum(operand) if operand.meta.shape == hop.meta.shape else None
                if sums is not None and is_per_column(other, operand) and self._sum(other) is None:
                    return self._step(hop.op.name, *sums, other)
        if hop.op.name == "clip":
            sums = self._sum(hop.inputs[0])
            if sums is not None and all(i.meta.shape == () for i in hop.inputs[1:]):
                low = self._step("maximum", *sums, hop.inputs[1])
                return self._step("minimum", *low, hop.inputs[2])
        return None

    def _product(self, number: int, group: list[Hop]) -> tuple[Hop, Scale, float]:
        dtype = group[0].meta.dtype
        pixel = self.ranges.whole[number] / MAX_BYTE
        columns = np.maximum(self.ranges.columns[number], np.finfo(dtype).tiny) / MAX_BYTE
        weight = columns if self.per_channel else columns.max()
        inverse = self._array(1.0 / weight, dtype)
        self.scales.append((pixel, weight))
        total: Hop | None = None
        inner = 0
        for product in group:
            x = make("cast", (self._pixels(product.inputs[0], pixel),), dtype=INT)
            w = make("cast", (self._bytes(self._float(product.inputs[1]), inverse),), dtype=INT)
            product_sum = make(product.op.name, (x, w), product.line)
            total = product_sum if total is None else make("add", (total, product_sum), product.line)
            inner += product.inputs[1].meta.shape[0]
        assert total is not None, "groups have products"
        scale = pixel * weight
        return total, Scale(scale, self._array(scale, dtype)), float(MAX_BYTE * MAX_BYTE * inner)

    def _step(self, name: str, sums: Hop, scale: Scale, bound: float, other: Hop) -> tuple[Hop, Scale, float]:
        """Apply an operation to integer sums; the other operand is rounded to their scale."""
        steps = make("rint", (make("divide", (self._float(other), scale.hop)),))
        rounded = make("cast", (steps,), dtype=INT)
        result = make(name, (sums, rounded))
        return result, scale, bound * 2 if name == "add" else bound

    def _pixels(self, hop: Hop, scale: float) -> Hop:
        """Return a value as bytes of a scale: requantised from integer sums, or quantised from floats.

        Operators that only move or select elements are applied to bytes.
        """
        if hop.op.name in _MOVEMENTS and hop.inputs[0].meta.dtype == hop.meta.dtype:
            inner = self._pixels(hop.inputs[0], scale)
            return make(hop.op.name, (inner, *hop.inputs[1:]), hop.line, **dict(hop.attrs))
        sums_of = self._sum(hop)
        if sums_of is None:
            return self._bytes(self._float(hop), self._array(1.0 / scale, hop.meta.dtype))
        sums, sum_scale, bound = sums_of
        return self._requantised(sums, np.asarray(sum_scale.value) / scale, bound)

    def _requantised(self, sums: Hop, ratio: np.ndarray, bound: float) -> Hop:
        """Return ``sums * ratio`` as bytes by an integer multiplier and shifts, without overflow."""
        bits = ceil(log2(max(bound, 2.0)))
        pre_shift = max(bits + MULTIPLIER_BITS - SUM_BITS, 0)
        exponent = frexp(float(ratio.max()))[1]  # all ratios are below two to its power
        post_shift = MULTIPLIER_BITS - exponent - pre_shift
        factor = np.rint(ratio * 2.0 ** (pre_shift + post_shift)).astype(INT)
        if pre_shift:
            sums = make("right_shift", (sums, const(pre_shift, INT)))
        result = make("multiply", (sums, self._array(factor, INT)))
        if post_shift > 0:
            half = const(1 << post_shift - 1, INT)
            result = make("right_shift", (make("add", (result, half)), const(post_shift, INT)))
        result = make("clip", (result, const(-MAX_BYTE, INT), const(MAX_BYTE, INT)))
        return make("cast", (result,), dtype=np.int8)

    # ------------------------------------------------------------------ floats

    def _float(self, hop: Hop) -> Hop:
        """Return a value as floats, dequantised from integer sums if it has them."""
        result = self._floats.get(hop)
        if result is None:
            result = self._floats[hop] = self._build_float(hop)
        return result

    def _build_float(self, hop: Hop) -> Hop:
        if hop.op.kind is Kind.LEAF:
            return hop
        sums = self._sum(hop) if hop.meta.dtype.kind == "f" else None
        if sums is None:
            return make(hop.op.name, [self._float(i) for i in hop.inputs], hop.line, **dict(hop.attrs))
        integers, scale, _ = sums
        return make("multiply", (make("cast", (integers,), dtype=hop.meta.dtype), scale.hop), hop.line)

