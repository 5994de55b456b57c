"""Products of floats as products of bytes: what was seen of values, and the DAG with integers in it.

A value is `scale` times an integer from -127 to 127. Sums of products are integers of 32 bits; what is done
to them before the next product (biases, limits) stays there, and the way back to bytes is a multiplication
and a shift: ``(sums * m + half) >> n``. Limits are rounded to integers, so are biases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import ceil, frexp, log2
from typing import Any

import numpy as np

from jitla.accel.matching import is_sum
from jitla.classes import dataclass
from jitla.hops import Hop, Kind, Meta, const, evaluate, leaf, make, topo, uses

MOST = 127  # bytes go from its negative to it
FACTOR_BITS = 8  # of the multiplier that leads from sums back to bytes
SUM_BITS = 30  # that a sum times its multiplier may have
INT = np.dtype(np.int32)
_SAME = frozenset({"reshape", "ravel", "transpose", "expand_dims", "squeeze", "getitem", "max", "pad",
                   "broadcast_to"})
_PRODUCTS = frozenset({"matmul", "dot"})


@dataclass(slots=True)
class Seen:
    """The largest magnitudes met: of whole values by number, of weights also by column."""

    whole: dict[int, float] = field(default_factory=dict)
    columns: dict[int, np.ndarray] = field(default_factory=dict)


def products(roots: Sequence[Hop]) -> list[list[Hop]]:
    """Return the products of floats, those that are added up together."""
    order = topo(roots)
    inside: set[Hop] = set()
    found: list[list[Hop]] = []
    for hop in reversed(order):
        if hop in inside or hop.meta.dtype.kind != "f":
            continue
        terms = _terms(hop)
        if all(map(_is_product, terms)):
            inside.update(terms)
            found.append(terms)
            inside.update(_sums(hop))
    return found[::-1]


def _is_product(hop: Hop) -> bool:
    return hop.op.name in _PRODUCTS and hop.inputs[1].meta.ndim == 2 and hop.inputs[0].meta.ndim >= 2


def _terms(hop: Hop) -> list[Hop]:
    if is_sum(hop, hop.meta.shape) and hop.meta.shape and all(i.meta.shape for i in hop.inputs):
        return [t for i in hop.inputs for t in _terms(i)]
    return [hop]


def _sums(hop: Hop) -> list[Hop]:
    if is_sum(hop, hop.meta.shape) and hop.meta.shape:
        return [hop, *(s for i in hop.inputs for s in _sums(i))]
    return []


def folded(roots: Sequence[Hop]) -> tuple[Hop, ...]:
    """Return the same values with factors and shifts by column, as of normalisations, in weights."""
    readers = uses(roots)
    new: dict[Hop, Hop] = {}
    for hop in topo(roots):
        made = hop
        if hop.inputs:
            inputs = [new[i] for i in hop.inputs]
            made = make(hop.op.name, inputs, hop.line, **dict(hop.attrs))
            turns = ((0, 1), (1, 0)) if hop.op.name == "multiply" else ((0, 1),)
            for own, other in turns if len(inputs) == 2 and hop.meta.dtype.kind == "f" else ():
                if len(set(readers[hop.inputs[own]])) == 1 and is_column(inputs[other], inputs[own]):
                    made = _with_column(hop.op.name, inputs[own], inputs[other]) or made
        new[hop] = made
    return tuple(new[r] for r in roots)


def is_column(other: Hop, hop: Hop) -> bool:
    """Tell whether `other` is a number, or one for every column of `hop`."""
    return other.meta.shape in ((), hop.meta.shape[-1:]) and hop.meta.ndim > 1


def _with_column(name: str, hop: Hop, other: Hop) -> Hop | None:
    """Return sums of products after an operation by column, in their weights; None if it is no such thing."""
    if name == "subtract" and _is_linear(hop):
        return make("add", (hop, make("negative", (other,))))
    return _scaled(name, hop, other) if name in ("multiply", "divide") and _is_linear(hop) else None


def _is_linear(hop: Hop) -> bool:
    if hop.op.name == "add":
        own, other = hop.inputs
        return _is_linear(own) and (_is_linear(other) or is_column(other, own)) or \
            is_column(own, other) and _is_linear(other)
    return _is_product(hop)


def _scaled(name: str, hop: Hop, other: Hop) -> Hop:
    """Multiply or divide sums of products, by column."""
    if hop.op.name == "add":
        return make("add", [_scaled(name, i, other) for i in hop.inputs], hop.line)
    if _is_product(hop):
        return make(hop.op.name, (hop.inputs[0], make(name, (hop.inputs[1], other))), hop.line)
    return make(name, (hop, other), hop.line)


def observe(roots: Sequence[Hop], leaves: Sequence[Any], seen: Seen) -> list[Any]:
    """Return the values of `roots`, and note how large operands of products are."""
    roots = folded(roots)
    groups = products(roots)
    wanted = [i for g in groups for p in g for i in p.inputs]
    values = evaluate((*roots, *wanted), leaves)
    known = iter(values[len(roots):])
    for number, group in enumerate(groups):
        for _ in group:
            pixels, weights = next(known), next(known)
            most = float(np.abs(pixels).max(initial=0))
            seen.whole[number] = max(seen.whole.get(number, 0.0), most)
            column = np.abs(weights).max(axis=0, initial=0)
            seen.columns[number] = np.maximum(seen.columns.get(number, 0.0), column)
    return values[:len(roots)]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much one step of integers is: the same everywhere, or by column; `hop` is that as an operand."""

    value: Any
    hop: Hop


class Quantised:
    """One DAG on its way; arrays that are new operands are in `extras`, from slot `first` on."""

    def __init__(self, roots: Sequence[Hop], seen: Seen, per_channel: bool, first: int) -> None:
        self.seen, self.per_channel, self.first = seen, per_channel, first
        roots = folded(roots)
        self.extras: list[np.ndarray] = []
        self.scales: list[tuple[float, Any]] = []
        self._groups: dict[Hop, tuple[int, list[Hop]]] = {}
        groups = products(roots)
        tops = {tuple(g): h for h in topo(roots) for g in groups if _terms(h) == g}
        for number, group in enumerate(groups):
            if seen.whole.get(number):
                self._groups[tops[tuple(group)]] = number, group
        self._sums: dict[Hop, tuple[Hop, Scale, float] | None] = {}
        self._floats: dict[Hop, Hop] = {}
        for hop in topo(roots):
            self._float(hop)
        self.roots = tuple(self._floats[r] for r in roots)

    # ------------------------------------------------------------------ operands

    def _array(self, values: Any, dtype: Any) -> Hop:
        """Return an operand for numbers: a constant, or an array by column."""
        values = np.asarray(values, dtype)
        if values.ndim == 0:
            return const(values[()], dtype)
        self.extras.append(values)
        return leaf(self.first + len(self.extras) - 1, Meta(values.shape, values.dtype))

    def _bytes(self, hop: Hop, inverse: Hop) -> Hop:
        """Return floats as bytes: times the inverse of their scale, rounded, cut."""
        low, high = (const(v, hop.meta.dtype) for v in (-MOST, MOST))
        steps = make("rint", (make("multiply", (hop, inverse)),))
        return make("cast", (make("clip", (steps, low, high)),), dtype=np.int8)

    # ------------------------------------------------------------------ sums of products

    def _sum(self, hop: Hop) -> tuple[Hop, Scale, float] | None:
        """Return a value as sums of integers, their scale, and how large they may be; None if it is none."""
        if hop not in self._sums:
            self._sums[hop] = self._made_sum(hop)
        return self._sums[hop]

    def _made_sum(self, hop: Hop) -> tuple[Hop, Scale, float] | None:
        if hop in self._groups:
            return self._product(*self._groups[hop])
        if hop.op.name in ("add", "maximum", "minimum") and len(hop.inputs) == 2:
            for own, other in (hop.inputs, hop.inputs[::-1]):
                found = self._sum(own) if own.meta.shape == hop.meta.shape else None
                if found is not None and is_column(other, own) and self._sum(other) is None:
                    return self._step(hop.op.name, *found, other)
        if hop.op.name == "clip":
            found = self._sum(hop.inputs[0])
            if found is not None and all(i.meta.shape == () for i in hop.inputs[1:]):
                low = self._step("maximum", *found, hop.inputs[1])
                return self._step("minimum", *low, hop.inputs[2])
        return None

    def _product(self, number: int, group: list[Hop]) -> tuple[Hop, Scale, float]:
        dtype = group[0].meta.dtype
        pixel = self.seen.whole[number] / MOST
        columns = np.maximum(self.seen.columns[number], np.finfo(dtype).tiny) / MOST
        weight = columns if self.per_channel else columns.max()
        inverse = self._array(1.0 / weight, dtype)
        self.scales.append((pixel, weight))
        total: Hop | None = None
        inner = 0
        for product in group:
            x = make("cast", (self._pixels(product.inputs[0], pixel),), dtype=INT)
            w = make("cast", (self._bytes(self._float(product.inputs[1]), inverse),), dtype=INT)
            made = make(product.op.name, (x, w), product.line)
            total = made if total is None else make("add", (total, made), product.line)
            inner += product.inputs[1].meta.shape[0]
        assert total is not None, "groups have products"
        scale = pixel * weight
        return total, Scale(scale, self._array(scale, dtype)), float(MOST * MOST * inner)

    def _step(self, name: str, sums: Hop, scale: Scale, most: float, other: Hop) -> tuple[Hop, Scale, float]:
        """Do what is done to floats to their sums: the other operand in their steps, rounded."""
        steps = make("rint", (make("divide", (self._float(other), scale.hop)),))
        whole = make("cast", (steps,), dtype=INT)
        made = make(name, (sums, whole))
        return made, scale, most * 2 if name == "add" else most

    def _pixels(self, hop: Hop, scale: float) -> Hop:
        """Return a value as bytes of this scale: from sums of integers where it comes from these.

        What only moves or selects elements does so with bytes.
        """
        if hop.op.name in _SAME and hop.inputs[0].meta.dtype == hop.meta.dtype:
            inner = self._pixels(hop.inputs[0], scale)
            return make(hop.op.name, (inner, *hop.inputs[1:]), hop.line, **dict(hop.attrs))
        found = self._sum(hop)
        if found is None:
            return self._bytes(self._float(hop), self._array(1.0 / scale, hop.meta.dtype))
        sums, own, most = found
        return self._requantised(sums, np.asarray(own.value) / scale, most)

    def _requantised(self, sums: Hop, ratio: np.ndarray, most: float) -> Hop:
        """Return ``sums * ratio`` as bytes: cut so that products fit, times a multiplier, shifted."""
        bits = ceil(log2(max(most, 2.0)))
        before = max(bits + FACTOR_BITS - SUM_BITS, 0)
        exponent = frexp(float(ratio.max()))[1]  # the largest is below two to its power
        after = FACTOR_BITS - exponent - before
        factor = np.rint(ratio * 2.0 ** (before + after)).astype(INT)
        if before:
            sums = make("right_shift", (sums, const(before, INT)))
        made = make("multiply", (sums, self._array(factor, INT)))
        if after > 0:
            half = const(1 << after - 1, INT)
            made = make("right_shift", (make("add", (made, half)), const(after, INT)))
        made = make("clip", (made, const(-MOST, INT), const(MOST, INT)))
        return make("cast", (made,), dtype=np.int8)

    # ------------------------------------------------------------------ floats

    def _float(self, hop: Hop) -> Hop:
        """Return a value as floats."""
        found = self._floats.get(hop)
        if found is None:
            found = self._floats[hop] = self._made_float(hop)
        return found

    def _made_float(self, hop: Hop) -> Hop:
        if hop.op.kind is Kind.LEAF:
            return hop
        sums = self._sum(hop) if hop.meta.dtype.kind == "f" else None
        if sums is None:
            return make(hop.op.name, [self._float(i) for i in hop.inputs], hop.line, **dict(hop.attrs))
        made, scale, _ = sums
        return make("multiply", (make("cast", (made,), dtype=hop.meta.dtype), scale.hop), hop.line)

