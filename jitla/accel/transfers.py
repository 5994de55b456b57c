"""Transfers of one tile: which rows of DRAM, and where they go.

Knows: how layers lie in DRAM and on the chip. Must not know: which parts of memories are free, tokens.
Receives a layer, a tile of it and regions; returns loads and stores.

DRAM, outermost first: pixels ``[group, channels, image, row, column]``, weights ``[group, filters, channels,
row tap, column tap]``, results as pixels with filters for channels; an entry is an element, a block of lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from jitla.accel.isa import Load, Store
from jitla.accel.layer import Layer, Window
from jitla.accel.program import Region
from jitla.accel.spec import Memory, Spec
from jitla.accel.tiling import sizes

PITCH = 1 << 16  # rows in DRAM are less than so many elements apart
Span = tuple[int, int]


class Tile(NamedTuple):
    """Outputs from, to; `filters` in blocks."""

    group: int
    images: Span
    rows: Span
    columns: Span
    filters: Span

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many images, rows, columns."""
        return length(self.images), length(self.rows), length(self.columns)

    @property
    def places(self) -> int:
        """Outputs of a filter."""
        n, y, x = self.shape
        return n * y * x


def pixel_loads(
    spec: Spec, layer: Layer, tile: Tile, piece: Span, region: Region, sram: int,
) -> Iterator[Load]:
    """Yield what brings the pixels of a tile, of some blocks of channels, to `sram` on."""
    channels = sizes(layer, spec).channels
    y, top, bottom = seen(layer.rows, tile.rows)
    x, left, right = seen(layer.columns, tile.columns)
    image = layer.rows.size * layer.columns.size
    plane = layer.images * image
    n = length(tile.images)
    origin = element(spec, region, Memory.INP) + (tile.group * channels + piece[0]) * plane + \
        tile.images[0] * image + y[0] * layer.columns.size + x[0]
    whole_rows = not (top or bottom or left or right) and length(x) == layer.columns.size
    run = 0  # pixels of a channel that lie in one run
    if whole_rows and (n == 1 or length(y) == layer.rows.size):
        run = n * length(y) * length(x)
    elif n == 1 and length(y) == 1 and not (top or bottom or left or right):
        run = length(x)
    if run and (plane < PITCH or length(piece) == 1):
        yield Load(memory=Memory.INP, sram_base=sram, dram_base=origin, y_size=length(piece), x_size=run,
                   x_stride=plane if plane < PITCH else run)
        return
    size = layer.rows.span(length(tile.rows)) * layer.columns.span(length(tile.columns))
    for c, i in product(range(length(piece)), range(1 if run else n)):
        at = sram + (c * n + i) * size
        if run:
            yield Load(memory=Memory.INP, sram_base=at, dram_base=origin + c * plane, x_size=run,
                       x_stride=run)
        else:
            yield Load(memory=Memory.INP, sram_base=at, dram_base=origin + c * plane + i * image,
                       y_size=length(y), x_size=length(x), x_stride=layer.columns.size, y_pad_0=top,
                       y_pad_1=bottom, x_pad_0=left, x_pad_1=right)


def weight_loads(
    spec: Spec, layer: Layer, tile: Tile, piece: Span, region: Region, sram: int,
) -> Iterator[Load]:
    """Yield what brings the weights of a tile, of some blocks of channels; of a pooling, the one matrix."""
    origin = element(spec, region, Memory.WGT)
    if layer.mode != "product":
        yield Load(memory=Memory.WGT, sram_base=sram, dram_base=origin, x_size=1, x_stride=1)
        return
    made = sizes(layer, spec)
    taps = layer.rows.taps * layer.columns.taps
    pitch = made.channels * taps
    origin += (tile.group * made.filters + tile.filters[0]) * pitch + piece[0] * taps
    rows, width = length(tile.filters), length(piece) * taps
    step = rows if pitch < PITCH else 1
    for row in range(0, rows, step):
        yield Load(memory=Memory.WGT, sram_base=sram + row * width, dram_base=origin + row * pitch,
                   y_size=step, x_size=width, x_stride=pitch if step > 1 else width)


def stores(spec: Spec, layer: Layer, tile: Tile, plane: int, region: Region, sram: int) -> Iterator[Store]:
    """Yield what takes a tile's results from `sram` on to the plane of one of their bytes."""
    (n, y, x), filters = tile.shape, length(tile.filters)
    width = layer.columns.outputs
    image = layer.rows.outputs * width
    pitch = layer.images * image
    block = (plane * layer.groups + tile.group) * sizes(layer, spec).filters + tile.filters[0]
    origin = element(spec, region, Memory.OUT) + block * pitch + first_place(layer, tile)
    run = runs(layer, tile)
    if run and (pitch < PITCH or filters == 1):
        yield Store(sram_base=sram, dram_base=origin, y_size=filters, x_size=n * y * x,
                    x_stride=pitch if pitch < PITCH else n * y * x)
        return
    for f in range(filters):
        yield Store(sram_base=sram + f * n * y * x, dram_base=origin + f * pitch, **lines(layer, tile))


def operand_loads(spec: Spec, layer: Layer, tile: Tile, region: Region, sram: int) -> Iterator[Load]:
    """Yield what brings a number per result of a tile."""
    image = layer.rows.outputs * layer.columns.outputs
    for f in range(length(tile.filters)):
        block = tile.group * sizes(layer, spec).filters + tile.filters[0] + f
        origin = element(spec, region, Memory.ACC) + block * layer.images * image + first_place(layer, tile)
        yield Load(memory=Memory.ACC, sram_base=sram + f * tile.places, dram_base=origin,
                   **lines(layer, tile))


def first_place(layer: Layer, tile: Tile) -> int:
    """Return where among the results of a filter a tile begins."""
    width = layer.columns.outputs
    return (tile.images[0] * layer.rows.outputs + tile.rows[0]) * width + tile.columns[0]


def runs(layer: Layer, tile: Tile) -> bool:
    """Tell whether the results of a filter lie in one run."""
    n, y, x = tile.shape
    return x == layer.columns.outputs and (n == 1 or y == layer.rows.outputs) or y == n == 1


def lines(layer: Layer, tile: Tile) -> dict[str, Any]:
    """Return the fields of a transfer of the results of one filter."""
    n, y, x = tile.shape
    if runs(layer, tile):
        return {"x_size": n * y * x, "x_stride": n * y * x}
    return {"y_size": y, "x_size": x, "x_stride": layer.columns.outputs}


def element(spec: Spec, region: Region, memory: Memory) -> int:
    """Return where a region begins, in elements of `memory`."""
    return region.address // spec.element(memory).nbytes


def length(span: Span) -> int:
    """Return how many there are from one to the other."""
    return span[1] - span[0]


def seen(window: Window, outputs: Span) -> tuple[Span, int, int]:
    """Return which pixels of an axis some outputs read, and how many zeros before and after them."""
    start = outputs[0] * window.stride - window.before
    stop = start + window.span(length(outputs))
    inside = max(start, 0), min(stop, window.size)
    return inside, max(-start, 0), max(stop - window.size, 0)
