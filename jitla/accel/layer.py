"""What one kernel of the device computes: a product over windows, or a pooling, and what follows it."""

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
class Window:
    """One axis of an image: `size` pixels, of which every output reads `taps`, `dilation` apart.

    Zeros lie `before` and `after` the pixels.
    """

    size: int
    taps: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    @property
    def reach(self) -> int:
        """Pixels from the first tap to the last."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def outputs(self) -> int:
        """How many outputs there are."""
        return (self.before + self.size + self.after - self.reach) // self.stride + 1

    def span(self, outputs: int) -> int:
        """Return how many pixels so many neighbouring outputs read, zeros included."""
        return (outputs - 1) * self.stride + self.reach


@dataclass(frozen=True, slots=True)
class Step:
    """What is done to every accumulator: `op` with a `number`, or with an array called `operand`.

    The array has a number per output channel ("channel") or per output ("full").
    """

    op: AluOp
    number: float = 0
    operand: str = ""
    form: Form = "number"


@dataclass(frozen=True, slots=True)
class Layer:
    """Outputs ``[group, image, row, column, filter]`` of images ``[group, image, row, column, channel]``.

    "product": weights ``[group, row tap, column tap, channel, filter]`` times all that a window holds, added
    up. "sum", "max", "min": of every channel by itself over the window. Then `steps`, in order; the lowest
    `stored` bytes of the results are kept.
    """

    images: int
    channels: int
    filters: int
    rows: Window = Window(1)
    columns: Window = Window(1)
    groups: int = 1
    mode: Mode = "product"
    steps: tuple[Step, ...] = ()
    stored: int = 1

    @property
    def without_numbers(self) -> Layer:
        """The layer whose steps have no numbers: its tiles are the same."""
        return replace(self, steps=tuple(replace(s, number=0) for s in self.steps))

    @property
    def output_shape(self) -> tuple[int, int, int, int, int]:
        """Sizes of the result."""
        return self.groups, self.images, self.rows.outputs, self.columns.outputs, self.filters

    @property
    def input_shape(self) -> tuple[int, int, int, int, int]:
        """Sizes of the images."""
        return self.groups, self.images, self.rows.size, self.columns.size, self.channels

    @property
    def weight_shape(self) -> tuple[int, int, int, int, int]:
        """Sizes of the weights."""
        return self.groups, self.rows.taps, self.columns.taps, self.channels, self.filters

    @property
    def macs(self) -> int:
        """Multiplications that are asked for."""
        taps = self.rows.taps * self.columns.taps
        inner = self.channels if self.mode == "product" else 1
        return int(np.prod(self.output_shape)) * taps * inner


_JOIN = {"product": np.add, "sum": np.add, "max": np.maximum, "min": np.minimum}
_STEP = {AluOp.ADD: np.add, AluOp.MAX: np.maximum, AluOp.MIN: np.minimum, AluOp.MUL: np.multiply}


def meaning(layer: Layer, images: Array, weights: Array | None = None,
            operands: Mapping[str, Array] | None = None, wide: Any = np.int32) -> Array:
    """Return what `layer` computes, by NumPy, before it is cut to the bytes that are stored."""
    pads = [(0, 0), (0, 0), *((w.before, w.after) for w in (layer.rows, layer.columns)), (0, 0)]
    padded = np.pad(images, pads).astype(wide)
    made: Array | None = None
    for i in range(layer.rows.taps):
        for j in range(layer.columns.taps):
            part = padded[:, :, _taken(layer.rows, i), _taken(layer.columns, j)]
            if weights is not None:
                part = np.matmul(part, weights[:, None, None, i, j].astype(wide))
            made = part if made is None else _JOIN[layer.mode](made, part)
    assert made is not None, "windows have taps"
    return after(layer.steps, made, operands or {})


def after(steps: Sequence[Step], values: Array, operands: Mapping[str, Array]) -> Array:
    """Return `values` after `steps`."""
    with np.errstate(over="ignore"):
        for step in steps:
            other = operands[step.operand] if step.operand else values.dtype.type(step.number)
            if step.op is AluOp.SHR:
                amount = int(step.number)
                values = values >> amount if amount >= 0 else values << -amount
            else:
                values = _STEP[step.op](values, other)
    return values


def _taken(window: Window, tap: int) -> slice:
    start = tap * window.dilation
    return slice(start, start + (window.outputs - 1) * window.stride + 1, window.stride)
