"""Tilings of layers, and the order in which tiles are visited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import permutations, product, zip_longest
from math import prod
from typing import Any, NamedTuple

from jitla.accel.isa import Uop
from jitla.accel.layer import Layer
from jitla.accel.spec import Memory, Spec
from jitla.classes import dataclass
from jitla.errors import DeviceError

APART = 3  # steps between two that meet in one accumulator: its last value has to be there
MOST = 512  # micro-ops of one instruction, so that several such sets stay in their memory


class Loop(NamedTuple):
    """So many turns; by how much each of destination, source and weight advances in one."""

    extent: int
    dst: int
    src: int = 0
    wgt: int = 0


ONCE = Loop(1, 0)


class Folded(NamedTuple):
    """The instruction's loops, and offsets of its micro-ops."""

    outer: Loop
    inner: Loop
    uops: tuple[Uop, ...]

    def factors(self) -> dict[str, Any]:
        """Return the fields that the loops stand for."""
        return {
            "iter_out": self.outer.extent, "iter_in": self.inner.extent,
            "dst_factor_out": self.outer.dst, "dst_factor_in": self.inner.dst,
            "src_factor_out": self.outer.src, "src_factor_in": self.inner.src,
        }

    def weights(self) -> dict[str, Any]:
        """Return the fields for weights."""
        return {"wgt_factor_out": self.outer.wgt, "wgt_factor_in": self.inner.wgt}

    def at(self, dst: int, src: int = 0, wgt: int = 0) -> list[Uop]:
        """Return the micro-ops for operands that begin there."""
        return [Uop(dst + u.dst, src + u.src, wgt + u.wgt) for u in self.uops]


def merged(loops: Iterable[Loop]) -> list[Loop]:
    """Return the same walk with neighbours made one where the inner runs on into the outer."""
    made: list[Loop] = []
    for loop in loops:
        if loop.extent == 1:
            continue
        outer = made[-1] if made else None
        if outer is not None and outer[1:] == tuple(loop.extent * s for s in loop[1:]):
            made[-1] = Loop(outer.extent * loop.extent, *loop[1:])
        else:
            made.append(loop)
    return made


@lru_cache(maxsize=1024)
def fold(across: tuple[Loop, ...], along: tuple[Loop, ...] = ()) -> Folded:
    """Return the walk over all loops that takes fewest micro-ops.

    Steps of loops `across` are in different accumulators, those `along` add up in the same ones.
    """
    loops = [*merged(along), *merged(across)]
    best: tuple[int, Loop, Loop, tuple[Loop, ...]] | None = None
    for outer, inner in permutations([*loops, ONCE, ONCE], 2):
        rest = [x for x in loops if x is not outer and x is not inner]
        order = (outer, inner, *rest)
        count = prod(x.extent for x in rest)
        if apart(order) >= APART and (best is None or count < best[0]):
            best = count, outer, inner, tuple(rest)
    if best is None or best[0] > MOST:
        raise DeviceError(f"loops {loops} make no instruction: steps meet too soon, or too many micro-ops")
    return Folded(best[1], best[2], tuple(_spelled(best[3])))


def apart(order: Sequence[Loop]) -> int:
    """Return after how many steps one at the soonest meets the accumulator of an earlier one."""
    inside = 1
    for loop in reversed(order):
        if loop.dst == 0 and loop.extent > 1:
            return inside
        inside *= loop.extent
    return max(inside, APART)


def _spelled(loops: Sequence[Loop]) -> Iterable[Uop]:
    for at in product(*(range(x.extent) for x in loops)):
        yield Uop(*(sum(i * x[k] for i, x in zip(at, loops, strict=True)) for k in (1, 2, 3)))


BURST = 18  # cycles before the first beat of a transfer arrives
BEGIN = 8  # cycles that an instruction takes beside its steps


@dataclass(frozen=True, slots=True)
class Sizes:
    """A layer in blocks: of channels and filters, and what an epilogue keeps beside the accumulators."""

    channels: int
    filters: int
    copies: int  # accumulators per output
    vectors: int  # arrays with a number per filter


@dataclass(frozen=True, slots=True)
class Tiling:
    """Most of each that a tile has: `images`, `rows`, `columns`, blocks of `filters`; of `channels` a piece.

    `threads` tiles are made by turns, each in its own part of the memories. With `stay` "weights" tiles that
    share weights follow each other, else those that share pixels.
    """

    images: int
    rows: int
    columns: int
    filters: int
    channels: int
    threads: int
    stay: str = "weights"


def sizes(layer: Layer, spec: Spec) -> Sizes:
    """Return a layer in blocks."""
    block = spec.block
    filters = -(-layer.filters // block)
    channels = filters if layer.mode != "product" else -(-layer.channels // block)
    places = layer.images * layer.rows.outputs * layer.columns.outputs
    if places * filters < APART:  # more filters, whose results nobody asks for
        filters = -(-APART // places)
        channels = channels if layer.mode == "product" else filters
    # a pooling needs what a tap brings, a product by shifts the factor
    extra = layer.mode in ("max", "min") or any(s.form == "full" for s in layer.steps) or \
        any(s.op.name == "MUL" and s.form == "number" for s in layer.steps)
    vectors = sum(s.form == "channel" for s in layer.steps)
    return Sizes(channels, filters, 1 + extra, vectors)


def even(total: int, most: int) -> list[tuple[int, int]]:
    """Cut `total` into as few parts as have at most `most`, all about as long: where each begins and ends."""
    parts = -(-total // most)
    bounds = [total * i // parts for i in range(parts + 1)]
    return list(zip(bounds, bounds[1:], strict=False))


def held(tiling: Tiling, layer: Layer) -> tuple[int, int]:
    """Return how many elements of pixels and of weights a piece has at most."""
    pixels = tiling.images * layer.rows.span(tiling.rows) * layer.columns.span(tiling.columns)
    taps = layer.rows.taps * layer.columns.taps
    if layer.mode != "product":
        return pixels * tiling.filters, 1
    return pixels * tiling.channels, tiling.filters * tiling.channels * taps


def fits(tiling: Tiling, layer: Layer, made: Sizes, spec: Spec) -> bool:
    """Tell whether a tile has room in all memories."""
    depth = {m: spec.element(m).depth // tiling.threads for m in (Memory.INP, Memory.WGT, Memory.ACC)}
    places = tiling.images * tiling.rows * tiling.columns
    pixels, weights = held(tiling, layer)
    accumulators = tiling.filters * (places * made.copies + made.vectors)
    return pixels <= depth[Memory.INP] and weights <= depth[Memory.WGT] and \
        accumulators <= depth[Memory.ACC]


def smallest(tiling: Tiling, layer: Layer, made: Sizes) -> int:
    """Return how many accumulators the smallest tile has."""
    axes = ((layer.images, tiling.images), (layer.rows.outputs, tiling.rows),
            (layer.columns.outputs, tiling.columns), (made.filters, tiling.filters))
    return prod(min(b - a for a, b in even(total, most)) for total, most in axes)


def tilings(layer: Layer, spec: Spec, threads: int = 2) -> list[Tiling]:
    """Return possible tilings by estimated cycles: by turns those with long pieces, and with short ones."""
    made = sizes(layer, spec)
    found = sorted((estimate(t, layer, made, spec), i, t, deepest)
                   for i, (t, deepest) in enumerate(_all(layer, made, spec, threads)))
    both = [[t for _, _, t, long in found if long is wanted] for wanted in (True, False)]
    if found and not found[0][3]:
        both.reverse()
    return [t for pair in zip_longest(*both) for t in pair if t is not None]


def _all(layer: Layer, made: Sizes, spec: Spec, threads: int) -> Iterator[tuple[Tiling, bool]]:
    """Yield tilings, and whether as many channels as there is room for are loaded together."""
    rows, columns = layer.rows.outputs, layer.columns.outputs
    for filters in _steps(made.filters):
        for images, height, width in _shapes(layer.images, rows, columns):
            for stay in ("weights", "pixels"):
                one = Tiling(images, height, width, filters, 1, threads, stay)
                if fits(one, layer, made, spec) and smallest(one, layer, made) >= APART:
                    deepest = _deepest(one, layer, made, spec)
                    yield deepest, True
                    # short pieces are there soon, so that the first products wait for less
                    for channels in (1, 2, 4):
                        if channels < deepest.channels:
                            yield replace(one, channels=channels), False


def _deepest(one: Tiling, layer: Layer, made: Sizes, spec: Spec) -> Tiling:
    """Return the tiling with as many channels at a time as there is room for."""
    if layer.mode != "product":
        return one
    parts = 1
    while True:
        channels = -(-made.channels // parts)
        deeper = Tiling(one.images, one.rows, one.columns, one.filters, channels, one.threads, one.stay)
        if channels == 1 or fits(deeper, layer, made, spec):
            return deeper
        parts += 1


def _shapes(images: int, rows: int, columns: int) -> Iterator[tuple[int, int, int]]:
    """Yield tiles of places: some rows, or some columns of one row, or whole images."""
    for n in _steps(images):
        yield n, rows, columns
    for height, width in product(_steps(rows), _steps(columns)):
        if height < rows or width < columns:
            yield 1, height, width


def _steps(total: int) -> list[int]:
    """Return the sizes of even parts, of one part, two, three, and so on, then halves."""
    parts = [1, 2, 3, 4, 5, 6, 7, 8]
    while parts[-1] < total:
        parts.append(parts[-1] * 5 // 4 + 1)
    return list(dict.fromkeys(-(-total // p) for p in parts))


def roofs(layer: Layer, spec: Spec) -> tuple[float, float]:
    """Return the largest shares of cycles in which the array multiplies: by its unit, and by the bus.

    The unit also sets every accumulator to zero, and does all steps on it; the bus brings every byte once.
    """
    made = sizes(layer, spec)
    products = layer.rows.taps * layer.columns.taps * made.channels
    beside = 1 + sum(1 if s.form == "number" else 2 for s in layer.steps) + layer.stored - 1
    cycles = prod(layer.output_shape[:4]) * made.filters * products
    beats = (prod(layer.input_shape) + prod(layer.weight_shape)) / (spec.board.bus_bits // 8)
    return products / (products + beside), min(1.0, cycles / beats)


def estimate(tiling: Tiling, layer: Layer, made: Sizes, spec: Spec) -> float:
    """Return roughly the cycles of a layer."""
    beat = spec.board.bus_bits // 8
    images, rows, columns = (-(-a // b) for a, b in (
        (layer.images, tiling.images), (layer.rows.outputs, tiling.rows),
        (layer.columns.outputs, tiling.columns)))
    places, blocks = images * rows * columns, -(-made.filters // tiling.filters)
    pieces = -(-made.channels // tiling.channels) if layer.mode == "product" else 1
    tiles = places * blocks
    bursts, pixels = _transfer(tiling, layer)
    pixels_cycles = bursts * BURST + pixels * spec.element(Memory.INP).nbytes / beat
    taps = layer.rows.taps * layer.columns.taps
    weights = tiling.filters * tiling.channels * taps if layer.mode == "product" else 0
    weights_cycles = (BURST + weights * spec.element(Memory.WGT).nbytes / beat) * (weights > 0)
    pixel_loads, weight_loads = _loads(tiling, places, blocks, pieces)
    load = pixel_loads * pixels_cycles + weight_loads * weights_cycles
    outputs = layer.images * layer.rows.outputs * layer.columns.outputs * made.filters
    depth = made.channels if layer.mode == "product" else 1
    epilogue = 1 + sum(1 if s.form == "number" else 2 for s in layer.steps) + layer.stored - 1
    steps = outputs * (depth * taps * (4 if layer.mode in ("max", "min") else 1) + epilogue)
    compute = steps + tiles * BEGIN * (pieces + epilogue + 1)
    store = outputs * 3 * layer.stored + tiles * tiling.filters * BEGIN
    if tiling.threads == 1:
        return load + compute + store
    first = pixels_cycles + weights_cycles
    return first + max(load, compute, store) + 0.05 * min(load, compute)


def _loads(tiling: Tiling, places: int, blocks: int, pieces: int) -> tuple[float, float]:
    """Return how many times pieces of pixels and of weights are loaded."""
    tiles = places * blocks
    weights = tiling.stay == "weights"
    if pieces == 1:
        return (tiles, blocks) if weights else (places, tiles)
    shared = min(tiling.threads, places if weights else blocks)
    return (tiles * pieces / (1 if weights else shared), tiles * pieces / (shared if weights else 1))


def _transfer(tiling: Tiling, layer: Layer) -> tuple[int, int]:
    """Return runs of pixels in DRAM, and pixels, of a piece."""
    height, width = layer.rows.span(tiling.rows), layer.columns.span(tiling.columns)
    pieces = tiling.channels if layer.mode == "product" else tiling.filters
    pixels = pieces * tiling.images * height * width
    whole = width >= layer.columns.size and not (layer.columns.before or layer.columns.after)
    runs = pieces * (1 if whole else tiling.images * height)
    return runs, pixels
