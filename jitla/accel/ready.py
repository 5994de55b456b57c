"""A unit for given values: its layer with all steps, the arrays, and results where a program wants them.

Knows: which numbers steps can have, what fits into accumulators. Must not know: how units are found.
Receives units with values of their inputs; returns layers and arrays, or refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jitla.accel.alu import SHIFT, to_immediate
from jitla.accel.isa import AluOp
from jitla.accel.layer import Layer, Step
from jitla.accel.spec import Memory, Spec
from jitla.accel.unit import Touch, Unit, operator_of
from jitla.hops import Hop, const_value

Array = np.ndarray[Any, Any]


class Refused(Exception):
    """The device cannot do it for these values."""


class Ready(NamedTuple):
    """A layer with its steps, and its arrays."""

    layer: Layer
    arrays: dict[str, Array]


def ready(unit: Unit, values: Mapping[Hop, Any], spec: Spec, given: bool = False) -> Ready:
    """Return the layer for these values; raises `Refused`. With `given`, images come from another layer."""
    inp, wgt, acc = (spec.element(m).dtype for m in (Memory.INP, Memory.WGT, Memory.ACC))
    arrays = {name: source.of(values, inp if name == "images" else wgt)
              for name, source in unit.fit.sources.items() if not (given and name == "images")}
    steps: list[Step] = []
    for touch in unit.touches:
        steps += _steps(unit, touch, values, spec, arrays, acc)
    if unit.longer:
        _check(unit, steps, arrays)
    layer = replace(unit.fit.layer, steps=(*unit.fit.layer.steps, *steps),
                    stored=1 if spec.is_float else unit.stored)
    return Ready(layer, arrays)


def _check(unit: Unit, steps: Sequence[Step], arrays: Mapping[str, Array]) -> None:
    """Raise `Refused` unless no accumulator can leave its range."""
    layer = unit.fit.layer
    most = layer.rows.taps * layer.columns.taps * 128
    most *= 128 * layer.channels if layer.mode == "product" else 1
    for step in (Step(AluOp.ADD), *steps):
        other = abs(int(step.number))
        if step.operand:
            other = int(np.abs(arrays[step.operand].astype(np.int64)).max(initial=0))
        if step.op is AluOp.SHR:
            amount = int(step.number)
            most = most + (1 << amount) - 1 >> amount if amount >= 0 else most << -amount
        else:
            most = {AluOp.ADD: most + other, AluOp.MUL: most * other}.get(step.op, max(most, other))
        if most >= 1 << 31:
            raise Refused("sums may have more than 32 bits")


def _steps(unit: Unit, touch: Touch, values: Mapping[Hop, Any], spec: Spec, arrays: dict[str, Array],
           acc: np.dtype) -> Iterator[Step]:
    op = operator_of(touch)
    if touch.access is not None:
        yield _tensor(unit, touch, values, arrays, acc)
        return
    assert touch.scalar is not None
    number = const_value(touch.scalar) if touch.scalar.op.name == "const" else values[touch.scalar]
    number = float(number) if spec.is_float else int(number)
    if op is AluOp.SHR:
        if not 0 <= number <= 31:  # not what a shift in the other direction would give
            raise Refused(f"a shift by {number}")
        yield from _shift(int(number) if touch.name == "right_shift" else -int(number))
        return
    if touch.name == "subtract":
        number = -number
    if unit.longer and abs(number) >= 1 << 31:
        raise Refused("a number has more than 32 bits")
    if not spec.is_float:
        number = (int(number) + (1 << 31)) % (1 << 32) - (1 << 31)
    if op is AluOp.ADD and not number and not spec.is_float:
        return  # what sums begin with
    if op is AluOp.MUL and spec.dialect == "strict" or to_immediate(spec, number) is not None:
        yield Step(op, number)
        return
    name = f"number{len(arrays)}"
    arrays[name] = np.full((unit.fit.layer.groups, unit.fit.layer.filters), number, acc)
    yield Step(op, operand=name, form="channel")


def _shift(amount: int) -> Iterator[Step]:
    """Cut a shift into ones that every implementation does."""
    sign = 1 if amount > 0 else -1
    while amount:
        part = sign * min(abs(amount), SHIFT)
        yield Step(AluOp.SHR, part)
        amount -= part


def _tensor(unit: Unit, touch: Touch, values: Mapping[Hop, Any], arrays: dict[str, Array],
            acc: np.dtype) -> Step:
    access = touch.access
    assert access is not None
    value = values[access.hop]
    group, _, _, _, filters = unit.fit.dimensions
    layer = unit.fit.layer
    per_filter = access.axes() <= {*group, *filters}
    axes = (*group, *filters) if per_filter else unit.fit.axes
    shape = (layer.groups, layer.filters) if per_filter else layer.output_shape
    array = access.view(value, axes).reshape(shape)
    if unit.longer and (array.astype(acc) != array).any():
        raise Refused("numbers have more than 32 bits")
    array = array.astype(acc)
    if touch.name == "subtract":
        with np.errstate(over="ignore"):
            array = -array
    name = f"operand{len(arrays)}"
    arrays[name] = array
    return Step(operator_of(touch), operand=name, form="channel" if per_filter else "full")


def placed(unit: Unit, results: Array, out: Array) -> None:
    """Write the results of a layer where the program wants them."""
    axes = unit.fit.axes
    begin = out[tuple([slice(p.start, p.start + 1) for p in unit.at])]
    steps = [sum(dict(p.by).get(a, 0) * s for p, s in zip(unit.at, out.strides, strict=True)) for a in axes]
    target = as_strided(begin, [a.extent for a in axes], steps)
    target[...] = results.reshape(target.shape)
