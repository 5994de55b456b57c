"""Layers, the operations of device kernels, and their tilings.

A layer is a convolution-like product or a pooling, with an epilogue. A tiling cuts it into parts that fit the
memories; its cycles are estimated, and its loop nests folded into instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import permutations, product, zip_longest
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.isa import AluOp, Uop
from jitla.accel.spec import AccelSpec, Memory
from jitla.classes import dataclass
from jitla.errors import DeviceError

# --------------------------------------------------------------------------- layers


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
                     operands: Mapping[str, Array] | None = None) -> Array:
    """Return the result of `layer` by NumPy, before truncation to the stored bytes."""
    pads = [(0, 0), (0, 0), *((w.before, w.after) for w in (layer.rows, layer.columns)), (0, 0)]
    padded = np.pad(images, pads).astype(np.int32)
    result: Array | None = None
    for i in range(layer.rows.taps):
        for j in range(layer.columns.taps):
            part = padded[:, :, _tap_slice(layer.rows, i), _tap_slice(layer.columns, j)]
            if weights is not None:
                part = np.matmul(part, weights[:, None, None, i, j].astype(np.int32))
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


# --------------------------------------------------------------------------- tilings


MIN_ACCUMULATOR_DISTANCE = 3  # steps between two writes of one accumulator: the pipeline's latency
MAX_UOPS = 512  # of one instruction, so that several sets fit into their memory


class StridedLoop(NamedTuple):
    """A loop: its trip count, and the strides of destination, source and weight."""

    extent: int
    dst: int
    src: int = 0
    wgt: int = 0


ONCE = StridedLoop(1, 0)


class FoldedLoops(NamedTuple):
    """A loop nest as an instruction: its two hardware loops and the offsets of its micro-ops."""

    outer: StridedLoop
    inner: StridedLoop
    uops: tuple[Uop, ...]

    def factors(self) -> dict[str, Any]:
        """Return the instruction fields of the loops."""
        return {
            "iter_out": self.outer.extent, "iter_in": self.inner.extent,
            "dst_factor_out": self.outer.dst, "dst_factor_in": self.inner.dst,
            "src_factor_out": self.outer.src, "src_factor_in": self.inner.src,
        }

    def weights(self) -> dict[str, Any]:
        """Return the instruction fields of the weight strides."""
        return {"wgt_factor_out": self.outer.wgt, "wgt_factor_in": self.inner.wgt}

    def at(self, dst: int, src: int = 0, wgt: int = 0) -> list[Uop]:
        """Return the micro-ops for these base addresses."""
        return [Uop(dst + u.dst, src + u.src, wgt + u.wgt) for u in self.uops]


def merge_loops(loops: Iterable[StridedLoop]) -> list[StridedLoop]:
    """Merge adjacent loops that are contiguous in all operands; drop those of one iteration."""
    merged: list[StridedLoop] = []
    for loop in loops:
        if loop.extent == 1:
            continue
        outer = merged[-1] if merged else None
        if outer is not None and outer[1:] == tuple(loop.extent * s for s in loop[1:]):
            merged[-1] = StridedLoop(outer.extent * loop.extent, *loop[1:])
        else:
            merged.append(loop)
    return merged


@lru_cache(maxsize=1024)
def fold_loops(across: tuple[StridedLoop, ...], along: tuple[StridedLoop, ...] = ()) -> FoldedLoops:
    """Choose the two hardware loops of a loop nest that need the fewest micro-ops; unroll the others.

    Loops `across` write different accumulators, loops `along` accumulate into the same ones.
    """
    loops = [*merge_loops(along), *merge_loops(across)]
    best: tuple[int, StridedLoop, StridedLoop, tuple[StridedLoop, ...]] | None = None
    for outer, inner in permutations([*loops, ONCE, ONCE], 2):
        unrolled = [x for x in loops if x is not outer and x is not inner]
        order = (outer, inner, *unrolled)
        count = prod(x.extent for x in unrolled)
        if accumulator_distance(order) >= MIN_ACCUMULATOR_DISTANCE and (best is None or count < best[0]):
            best = count, outer, inner, tuple(unrolled)
    if best is None or best[0] > MAX_UOPS:
        raise DeviceError(f"loops {loops} do not fit into an instruction: an accumulator is written again "
                          "too soon, or there are too many micro-ops")
    return FoldedLoops(best[1], best[2], tuple(_uops_of(best[3])))


def accumulator_distance(order: Sequence[StridedLoop]) -> int:
    """Return the minimum distance, in steps, of two writes of one accumulator."""
    inside = 1
    for loop in reversed(order):
        if loop.dst == 0 and loop.extent > 1:
            return inside
        inside *= loop.extent
    return max(inside, MIN_ACCUMULATOR_DISTANCE)


def _uops_of(loops: Sequence[StridedLoop]) -> Iterable[Uop]:
    for indices in product(*(range(x.extent) for x in loops)):
        yield Uop(*(sum(i * x[k] for i, x in zip(indices, loops, strict=True)) for k in (1, 2, 3)))


BURST_CYCLES = 18  # latency of the first beat of a transfer
INSTRUCTION_CYCLES = 8  # overhead of an instruction


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Block counts of a layer: channels and filters, and what the epilogue needs beside accumulators."""

    channels: int
    filters: int
    copies: int  # accumulators per output
    vectors: int  # per-filter operand arrays


@dataclass(frozen=True, slots=True)
class Tiling:
    """A tiling: maximum sizes of tiles, with `filters` in blocks, and of pieces of `channels` in blocks.

    `threads` tiles are interleaved, each in its own part of the memories. With `stay` "weights" tiles that
    share weights are consecutive, else those that share pixels.
    """

    images: int
    rows: int
    columns: int
    filters: int
    channels: int
    threads: int
    stay: str = "weights"


def block_counts(layer: Layer, spec: AccelSpec) -> BlockCounts:
    """Return the block counts of a layer."""
    block = spec.block
    filters = -(-layer.filters // block)
    channels = filters if layer.mode != "product" else -(-layer.channels // block)
    positions = layer.images * layer.rows.outputs * layer.columns.outputs
    if positions * filters < MIN_ACCUMULATOR_DISTANCE:  # pad with filters whose results are unused
        filters = -(-MIN_ACCUMULATOR_DISTANCE // positions)
        channels = channels if layer.mode == "product" else filters
    # a pooling needs a copy for the next tap, a multiplication by shifts one for the factor
    needs_copy = layer.mode in ("max", "min") or any(s.form == "full" for s in layer.steps) or \
        any(s.op.name == "MUL" and s.form == "number" for s in layer.steps)
    vectors = sum(s.form == "channel" for s in layer.steps)
    return BlockCounts(channels, filters, 1 + needs_copy, vectors)


def even_parts(total: int, limit: int) -> list[tuple[int, int]]:
    """Split `total` into the fewest balanced parts of at most `limit`; return their begins and ends."""
    parts = -(-total // limit)
    bounds = [total * i // parts for i in range(parts + 1)]
    return list(zip(bounds, bounds[1:], strict=False))


def piece_elements(tiling: Tiling, layer: Layer) -> tuple[int, int]:
    """Return the maximum numbers of pixel and weight elements of a piece."""
    pixels = tiling.images * layer.rows.span(tiling.rows) * layer.columns.span(tiling.columns)
    taps = layer.rows.taps * layer.columns.taps
    if layer.mode != "product":
        return pixels * tiling.filters, 1
    return pixels * tiling.channels, tiling.filters * tiling.channels * taps


def fits(tiling: Tiling, layer: Layer, counts: BlockCounts, spec: AccelSpec) -> bool:
    """Return whether a tile fits into all memories."""
    depth = {m: spec.element(m).depth // tiling.threads for m in (Memory.INP, Memory.WGT, Memory.ACC)}
    positions = tiling.images * tiling.rows * tiling.columns
    pixels, weights = piece_elements(tiling, layer)
    accumulators = tiling.filters * (positions * counts.copies + counts.vectors)
    return pixels <= depth[Memory.INP] and weights <= depth[Memory.WGT] and \
        accumulators <= depth[Memory.ACC]


def smallest_tile(tiling: Tiling, layer: Layer, counts: BlockCounts) -> int:
    """Return the number of accumulators of the smallest tile."""
    axes = ((layer.images, tiling.images), (layer.rows.outputs, tiling.rows),
            (layer.columns.outputs, tiling.columns), (counts.filters, tiling.filters))
    return prod(min(b - a for a, b in even_parts(total, limit)) for total, limit in axes)


def tilings(layer: Layer, spec: AccelSpec, threads: int = 2) -> list[Tiling]:
    """Return legal tilings by estimated cycles, alternating between long and short pieces."""
    counts = block_counts(layer, spec)
    ranked = sorted((estimated_cycles(t, layer, counts, spec), i, t, deepest)
                    for i, (t, deepest) in enumerate(_legal_tilings(layer, counts, spec, threads)))
    by_depth = [[t for _, _, t, is_deepest in ranked if is_deepest is wanted] for wanted in (True, False)]
    if ranked and not ranked[0][3]:
        by_depth.reverse()
    return [t for pair in zip_longest(*by_depth) for t in pair if t is not None]


def _legal_tilings(
    layer: Layer, counts: BlockCounts, spec: AccelSpec, threads: int
) -> Iterator[tuple[Tiling, bool]]:
    """Yield legal tilings, and whether their pieces have the maximum number of channels."""
    rows, columns = layer.rows.outputs, layer.columns.outputs
    for filters in _part_sizes(counts.filters):
        for images, height, width in _place_shapes(layer.images, rows, columns):
            for stay in ("weights", "pixels"):
                tiling = Tiling(images, height, width, filters, 1, threads, stay)
                if fits(tiling, layer, counts, spec) and \
                        smallest_tile(tiling, layer, counts) >= MIN_ACCUMULATOR_DISTANCE:
                    deepest = _deepest(tiling, layer, counts, spec)
                    yield deepest, True
                    # short pieces arrive sooner: the first products wait less
                    for channels in (1, 2, 4):
                        if channels < deepest.channels:
                            yield replace(tiling, channels=channels), False


def _deepest(tiling: Tiling, layer: Layer, counts: BlockCounts, spec: AccelSpec) -> Tiling:
    """Return the tiling with the maximum number of channels per piece."""
    if layer.mode != "product":
        return tiling
    parts = 1
    while True:
        channels = -(-counts.channels // parts)
        deeper = replace(tiling, channels=channels)
        if channels == 1 or fits(deeper, layer, counts, spec):
            return deeper
        parts += 1


def _place_shapes(images: int, rows: int, columns: int) -> Iterator[tuple[int, int, int]]:
    """Yield tile shapes: whole images, or parts of rows and columns of one image."""
    for n in _part_sizes(images):
        yield n, rows, columns
    for height, width in product(_part_sizes(rows), _part_sizes(columns)):
        if height < rows or width < columns:
            yield 1, height, width


def _part_sizes(total: int) -> list[int]:
    """Return the sizes of balanced parts for 1 to 8 parts, then in steps of a quarter."""
    parts = [1, 2, 3, 4, 5, 6, 7, 8]
    while parts[-1] < total:
        parts.append(parts[-1] * 5 // 4 + 1)
    return list(dict.fromkeys(-(-total // p) for p in parts))


def utilisation_bounds(layer: Layer, spec: AccelSpec) -> tuple[float, float]:
    """Return upper bounds of the array's utilisation: by the compute unit, and by the bus.

    The unit also resets accumulators and runs the epilogue; the bus transfers every byte once.
    """
    counts = block_counts(layer, spec)
    products = layer.rows.taps * layer.columns.taps * counts.channels
    epilogue_steps = 1 + sum(1 if s.form == "number" else 2 for s in layer.steps) + layer.stored - 1
    cycles = prod(layer.output_shape[:4]) * counts.filters * products
    beats = (prod(layer.input_shape) + prod(layer.weight_shape)) / (spec.board.bus_bits // 8)
    return products / (products + epilogue_steps), min(1.0, cycles / beats)


def estimated_cycles(tiling: Tiling, layer: Layer, counts: BlockCounts, spec: AccelSpec) -> float:
    """Return the estimated cycles of a tiled layer."""
    beat = spec.board.bus_bits // 8
    images, rows, columns = (-(-a // b) for a, b in (
        (layer.images, tiling.images), (layer.rows.outputs, tiling.rows),
        (layer.columns.outputs, tiling.columns)))
    positions, blocks = images * rows * columns, -(-counts.filters // tiling.filters)
    pieces = -(-counts.channels // tiling.channels) if layer.mode == "product" else 1
    tiles = positions * blocks
    bursts, pixels = _transfer(tiling, layer)
    pixels_cycles = bursts * BURST_CYCLES + pixels * spec.element(Memory.INP).nbytes / beat
    taps = layer.rows.taps * layer.columns.taps
    weights = tiling.filters * tiling.channels * taps if layer.mode == "product" else 0
    weights_cycles = (BURST_CYCLES + weights * spec.element(Memory.WGT).nbytes / beat) * (weights > 0)
    pixel_loads, weight_loads = _loads(tiling, positions, blocks, pieces)
    load = pixel_loads * pixels_cycles + weight_loads * weights_cycles
    outputs = layer.images * layer.rows.outputs * layer.columns.outputs * counts.filters
    depth = counts.channels if layer.mode == "product" else 1
    epilogue = 1 + sum(1 if s.form == "number" else 2 for s in layer.steps) + layer.stored - 1
    steps = outputs * (depth * taps * (4 if layer.mode in ("max", "min") else 1) + epilogue)
    compute = steps + tiles * INSTRUCTION_CYCLES * (pieces + epilogue + 1)
    store = outputs * 3 * layer.stored + tiles * tiling.filters * INSTRUCTION_CYCLES
    if tiling.threads == 1:
        return load + compute + store
    first = pixels_cycles + weights_cycles
    return first + max(load, compute, store) + 0.05 * min(load, compute)


def _loads(tiling: Tiling, positions: int, blocks: int, pieces: int) -> tuple[float, float]:
    """Return the numbers of loads of pixel and weight pieces."""
    tiles = positions * blocks
    stays_weights = tiling.stay == "weights"
    if pieces == 1:
        return (tiles, blocks) if stays_weights else (positions, tiles)
    shared = min(tiling.threads, positions if stays_weights else blocks)
    loads = tiles * pieces
    return (loads, loads / shared) if stays_weights else (loads / shared, loads)


def _transfer(tiling: Tiling, layer: Layer) -> tuple[int, int]:
    """Return the number of contiguous DRAM runs, and of pixels, of a piece."""
    height, width = layer.rows.span(tiling.rows), layer.columns.span(tiling.columns)
    pieces = tiling.channels if layer.mode == "product" else tiling.filters
    pixels = pieces * tiling.images * height * width
    has_whole_rows = width >= layer.columns.size and not (layer.columns.before or layer.columns.after)
    runs = pieces * (1 if has_whole_rows else tiling.images * height)
    return runs, pixels
