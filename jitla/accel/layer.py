"""Layers: the operations of device kernels, a convolution-like product or a pooling with an epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jitla.accel.isa import AluOp
from jitla.classes import dataclass

Array = NDArray[Any]
Mode = Literal["product", "sum", "max", "min"]
Form = Literal["number", "channel", "full"]


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """A sliding window along one axis of `size` pixels: every output reads `taps`, `dilation` apart.

    The axis is padded by `before` and `after` zeros.
    """

    size: int
    taps: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    @property
    def reach(self) -> int:
        """The extent of a window: pixels from the first tap to the last."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def outputs(self) -> int:
        """The number of outputs."""
        return (self.before + self.size + self.after - self.reach) // self.stride + 1

    def span(self, outputs: int) -> int:
        """Return the number of pixels, padding included, that adjacent outputs read."""
        return (outputs - 1) * self.stride + self.reach


@dataclass(frozen=True, slots=True)
class EpilogueOp:
    """An epilogue step: `op` of every accumulator with a `number`, or with an array called `operand`.

    The array has an element per output channel ("channel") or per output ("full").
    """

    op: AluOp
    number: float = 0
    operand: str = ""
    form: Form = "number"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer from ``[group, image, row, column, channel]`` to ``[group, image, row, column, filter]``.

    "product" is a convolution with weights ``[group, row tap, column tap, channel, filter]``; "sum", "max"
    and "min" are poolings of each channel over the window. The epilogue `steps` follow in order; the lowest
    `stored` bytes of the results are kept.
    """

    images: int
    channels: int
    filters: int
    rows: SlidingWindow = SlidingWindow(1)
    columns: SlidingWindow = SlidingWindow(1)
    groups: int = 1
    mode: Mode = "product"
    steps: tuple[EpilogueOp, ...] = ()
    stored: int = 1

    @property
    def without_numbers(self) -> Layer:
        """The layer without the immediates of its steps, on which tilings do not depend."""
        return replace(self, steps=tuple(replace(s, number=0) for s in self.steps))

    @property
    def output_shape(self) -> tuple[int, int, int, int, int]:
        """The shape of the result."""
        return self.groups, self.images, self.rows.outputs, self.columns.outputs, self.filters

    @property
    def input_shape(self) -> tuple[int, int, int, int, int]:
        """The shape of the images."""
        return self.groups, self.images, self.rows.size, self.columns.size, self.channels

    @property
    def weight_shape(self) -> tuple[int, int, int, int, int]:
        """The shape of the weights."""
        return self.groups, self.rows.taps, self.columns.taps, self.channels, self.filters

    @property
    def macs(self) -> int:
        """The number of multiply-accumulates, without padding of blocks."""
        taps = self.rows.taps * self.columns.taps
        inner = self.channels if self.mode == "product" else 1
        return int(np.prod(self.output_shape)) * taps * inner


_REDUCTIONS = {"product": np.add, "sum": np.add, "max": np.maximum, "min": np.minimum}
_ALU_UFUNCS = {AluOp.ADD: np.add, AluOp.MAX: np.maximum, AluOp.MIN: np.minimum, AluOp.MUL: np.multiply}


def reference_result(layer: Layer, images: Array, weights: Array | None = None,
            operands: Mapping[str, Array] | None = None, wide: Any = np.int32) -> Array:
    """Return the result of `layer` by NumPy, before truncation to the stored bytes."""
    pads = [(0, 0), (0, 0), *((w.before, w.after) for w in (layer.rows, layer.columns)), (0, 0)]
    padded = np.pad(images, pads).astype(wide)
    result: Array | None = None
    for i in range(layer.rows.taps):
        for j in range(layer.columns.taps):
            part = padded[:, :, _tap_slice(layer.rows, i), _tap_slice(layer.columns, j)]
            if weights is not None:
                part = np.matmul(part, weights[:, None, None, i, j].astype(wide))
            result = part if result is None else _REDUCTIONS[layer.mode](result, part)
    assert result is not None, "windows have taps"
    return apply_steps(layer.steps, result, operands or {})


def apply_steps(steps: Sequence[EpilogueOp], values: Array, operands: Mapping[str, Array]) -> Array:
    """Apply the epilogue `steps` to `values`."""
    with np.errstate(over="ignore"):
        for step in steps:
            other = operands[step.operand] if step.operand else values.dtype.type(step.number)
            if step.op is AluOp.SHR:
                amount = int(step.number)
                values = values >> amount if amount >= 0 else values << -amount
            else:
                values = _ALU_UFUNCS[step.op](values, other)
    return values


def _tap_slice(window: SlidingWindow, tap: int) -> slice:
    start = tap * window.dilation
    return slice(start, start + (window.outputs - 1) * window.stride + 1, window.stride)
