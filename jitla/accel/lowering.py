"""Lowering of layers to instruction streams: transfers, scratchpad slots, matrix products and epilogues."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.functional_sim import run
from jitla.accel.isa import Alu, AluOp, Gemm, Load, Store, to_immediate
from jitla.accel.layer import (
    BlockCounts,
    EpilogueOp,
    Layer,
    SlidingWindow,
    StridedLoop,
    Tiling,
    block_counts,
    even_parts,
    fold_loops,
    piece_elements,
    tilings,
)
from jitla.accel.program import AccelProgram, DramAllocator, DramRegion, Stream, UopStatistics
from jitla.accel.spec import AccelSpec, Memory
from jitla.accel.timing_sim import ProgramTiming, measure
from jitla.classes import cached_property, dataclass
from jitla.errors import DeviceError

MAX_PITCH = 1 << 16  # upper bound on the distance between rows in DRAM, in elements
Span = tuple[int, int]


class OutputTile(NamedTuple):
    """A tile of outputs: half-open spans, `filters` in blocks."""

    group: int
    images: Span
    rows: Span
    columns: Span
    filters: Span

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of images, rows and columns."""
        return length(self.images), length(self.rows), length(self.columns)

    @property
    def outputs(self) -> int:
        """The number of outputs per filter."""
        n, y, x = self.shape
        return n * y * x


def pixel_loads(
    spec: AccelSpec, layer: Layer, tile: OutputTile, piece: Span, region: DramRegion, sram: int,
) -> Iterator[Load]:
    """Yield the loads of the pixels of a tile, for a span of channel blocks, to `sram`."""
    channels = block_counts(layer, spec).channels
    y, top, bottom = input_span(layer.rows, tile.rows)
    x, left, right = input_span(layer.columns, tile.columns)
    image = layer.rows.size * layer.columns.size
    plane = layer.images * image
    n = length(tile.images)
    origin = region_start(spec, region, Memory.INP) + (tile.group * channels + piece[0]) * plane + \
        tile.images[0] * image + y[0] * layer.columns.size + x[0]
    has_whole_rows = not (top or bottom or left or right) and length(x) == layer.columns.size
    contiguous = 0  # contiguous pixels of a channel; 0: not contiguous
    if has_whole_rows and (n == 1 or length(y) == layer.rows.size):
        contiguous = n * length(y) * length(x)
    elif n == 1 and length(y) == 1 and not (top or bottom or left or right):
        contiguous = length(x)
    if contiguous and (plane < MAX_PITCH or length(piece) == 1):
        yield Load(memory=Memory.INP, sram_base=sram, dram_base=origin, y_size=length(piece),
                   x_size=contiguous,
                   x_stride=plane if plane < MAX_PITCH else contiguous)
        return
    size = layer.rows.span(length(tile.rows)) * layer.columns.span(length(tile.columns))
    for c, i in product(range(length(piece)), range(1 if contiguous else n)):
        address = sram + (c * n + i) * size
        if contiguous:
            yield Load(memory=Memory.INP, sram_base=address, dram_base=origin + c * plane, x_size=contiguous,
                       x_stride=contiguous)
        else:
            yield Load(memory=Memory.INP, sram_base=address, dram_base=origin + c * plane + i * image,
                       y_size=length(y), x_size=length(x), x_stride=layer.columns.size, y_pad_0=top,
                       y_pad_1=bottom, x_pad_0=left, x_pad_1=right)


def weight_loads(
    spec: AccelSpec, layer: Layer, tile: OutputTile, piece: Span, region: DramRegion, sram: int,
) -> Iterator[Load]:
    """Yield the loads of the weights of a tile for a span of channel blocks; of a pooling, the identity."""
    origin = region_start(spec, region, Memory.WGT)
    if layer.mode != "product":
        yield Load(memory=Memory.WGT, sram_base=sram, dram_base=origin, x_size=1, x_stride=1)
        return
    counts = block_counts(layer, spec)
    taps = layer.rows.taps * layer.columns.taps
    pitch = counts.channels * taps
    origin += (tile.group * counts.filters + tile.filters[0]) * pitch + piece[0] * taps
    rows, width = length(tile.filters), length(piece) * taps
    step = rows if pitch < MAX_PITCH else 1
    for row in range(0, rows, step):
        yield Load(memory=Memory.WGT, sram_base=sram + row * width, dram_base=origin + row * pitch,
                   y_size=step, x_size=width, x_stride=pitch if step > 1 else width)


def stores(spec: AccelSpec, layer: Layer, tile: OutputTile, plane: int, region: DramRegion,
           sram: int) -> Iterator[Store]:
    """Yield the stores of a tile's results from `sram` to the plane of one byte."""
    (n, y, x), filters = tile.shape, length(tile.filters)
    width = layer.columns.outputs
    image = layer.rows.outputs * width
    pitch = layer.images * image
    block = (plane * layer.groups + tile.group) * block_counts(layer, spec).filters + tile.filters[0]
    origin = region_start(spec, region, Memory.OUT) + block * pitch + first_output(layer, tile)
    contiguous = is_contiguous(layer, tile)
    if contiguous and (pitch < MAX_PITCH or filters == 1):
        yield Store(sram_base=sram, dram_base=origin, y_size=filters, x_size=n * y * x,
                    x_stride=pitch if pitch < MAX_PITCH else n * y * x)
        return
    for f in range(filters):
        yield Store(sram_base=sram + f * n * y * x, dram_base=origin + f * pitch,
                    **transfer_fields(layer, tile))


def operand_loads(spec: AccelSpec, layer: Layer, tile: OutputTile, region: DramRegion,
                  sram: int) -> Iterator[Load]:
    """Yield the loads of a per-output operand of a tile."""
    image = layer.rows.outputs * layer.columns.outputs
    for f in range(length(tile.filters)):
        block = tile.group * block_counts(layer, spec).filters + tile.filters[0] + f
        origin = region_start(spec, region, Memory.ACC) + block * layer.images * image
        origin += first_output(layer, tile)
        yield Load(memory=Memory.ACC, sram_base=sram + f * tile.outputs, dram_base=origin,
                   **transfer_fields(layer, tile))


def first_output(layer: Layer, tile: OutputTile) -> int:
    """Return the position of a tile's first output among those of a filter."""
    width = layer.columns.outputs
    return (tile.images[0] * layer.rows.outputs + tile.rows[0]) * width + tile.columns[0]


def is_contiguous(layer: Layer, tile: OutputTile) -> bool:
    """Return whether the outputs of a tile are contiguous per filter."""
    n, y, x = tile.shape
    return x == layer.columns.outputs and (n == 1 or y == layer.rows.outputs) or y == n == 1


def transfer_fields(layer: Layer, tile: OutputTile) -> dict[str, Any]:
    """Return the transfer fields of a tile's outputs of one filter."""
    n, y, x = tile.shape
    if is_contiguous(layer, tile):
        return {"x_size": n * y * x, "x_stride": n * y * x}
    return {"y_size": y, "x_size": x, "x_stride": layer.columns.outputs}


def region_start(spec: AccelSpec, region: DramRegion, memory: Memory) -> int:
    """Return the start of a region in elements of `memory`."""
    return region.address // spec.element(memory).nbytes


def length(span: Span) -> int:
    """Return the length of a span."""
    return span[1] - span[0]


def input_span(window: SlidingWindow, outputs: Span) -> tuple[Span, int, int]:
    """Return the span of pixels that outputs read, and the padding before and after it."""
    start = outputs[0] * window.stride - window.before
    stop = start + window.span(length(outputs))
    inside = max(start, 0), min(stop, window.size)
    return inside, max(-start, 0), max(stop - window.size, 0)


@dataclass(slots=True)
class SlotCache:
    """A scratchpad divided into equal slots with LRU replacement; `contents` has their keys."""

    memory: Memory
    size: int
    contents: dict[int, Hashable]

    def find(self, key: Hashable) -> tuple[int, bool]:
        """Return the slot of `key`, and whether it has to be filled."""
        for slot, content in self.contents.items():
            if content == key:
                self.contents[slot] = self.contents.pop(slot)
                return slot, False
        slot = next(iter(self.contents))
        del self.contents[slot]
        self.contents[slot] = key
        return slot, True


MemoryParts = tuple[Hashable, ...]  # of a thread's accumulators
PREFETCH_PIECES = 2  # maximum pieces per thread in a scratchpad
STORE_PARTS = 4  # parts in which the results of the last tiles are stored
MIN_PART_ACCUMULATORS = 48  # of such a part


def lower(stream: Stream, layer: Layer, tiling: Tiling, regions: Mapping[str, DramRegion]) -> None:
    """Append the instructions of `layer`; `regions` are "images", "weights", "out" and its operands."""
    stream.fence()
    _Lowering(stream, layer, tiling, regions).run()


class _Lowering:
    """The lowering of one layer into a stream."""

    def __init__(self, stream: Stream, layer: Layer, tiling: Tiling,
                 regions: Mapping[str, DramRegion]) -> None:
        self.stream, self.layer, self.tiling, self.regions = stream, layer, tiling, regions
        self.spec = stream.spec
        self.block_counts: BlockCounts = block_counts(layer, self.spec)
        self.share = self.spec.element(Memory.ACC).depth // tiling.threads
        self.slots = {m: self._make_slots(m, size) for m, size in zip(
            (Memory.INP, Memory.WGT), piece_elements(tiling, layer), strict=True)}
        self.vectors: dict[tuple[int, int], Hashable] = {}
        self.pooled = layer.mode != "product"

    def _make_slots(self, memory: Memory, size: int) -> SlotCache:
        """Return the slots of a memory: one per thread, and more to prefetch if there are several threads."""
        depth, threads = self.spec.element(memory).depth, self.tiling.threads
        count = max(threads, min(depth // size, PREFETCH_PIECES * threads)) if threads > 1 else 1
        return SlotCache(memory, depth // count, dict.fromkeys(range(count)))

    def run(self) -> None:
        """Lower all tiles, interleaving those of the threads."""
        tiles = list(self._tiles())
        for first in range(0, len(tiles), self.tiling.threads):
            batch = tiles[first:first + self.tiling.threads]
            is_last_round = first + 2 * self.tiling.threads > len(tiles)
            threads = [self._tile(t, thread, is_last_round) for thread, t in enumerate(batch)]
            while threads:
                threads = [thread for thread in threads if next(thread, None) is not None]

    def _tiles(self) -> Iterator[OutputTile]:
        layer, tiling = self.layer, self.tiling
        spans = list(product(even_parts(layer.images, tiling.images),
                             even_parts(layer.rows.outputs, tiling.rows),
                             even_parts(layer.columns.outputs, tiling.columns)))
        filters = even_parts(self.block_counts.filters, tiling.filters)
        for group in range(layer.groups):
            if tiling.stay == "weights":
                yield from (OutputTile(group, *p, f) for f in filters for p in spans)
            else:
                yield from (OutputTile(group, *p, f) for p in spans for f in filters)

    # ------------------------------------------------------------------ one tile

    def _tile(self, tile: OutputTile, thread: int, last: bool) -> Iterator[bool]:
        """Append the instructions of a tile; yields where another thread may continue.

        The last tiles are stored in parts, so that stores overlap with the epilogue.
        """
        parts = tuple(("acc", thread, part) for part in range(STORE_PARTS))
        base = thread * self.share
        count = tile.outputs * length(tile.filters)
        if self.layer.mode in ("max", "min"):
            yield from self._pool(tile, base, count, parts)
        else:
            self._reset(base, count, parts)
            for piece in self._pieces(tile):
                self._products(tile, piece, base, parts)
                yield True
        if not last:
            yield from self._finish_tile(tile, tile.filters, thread, parts)
            return
        most = max(-(-length(tile.filters) // STORE_PARTS), -(-MIN_PART_ACCUMULATORS // tile.outputs))
        for memory_part, (first, end) in zip(parts, even_parts(length(tile.filters), most), strict=False):
            part = tile.filters[0] + first, tile.filters[0] + end
            yield from self._finish_tile(tile, part, thread, (memory_part,))

    def _finish_tile(self, tile: OutputTile, filters: Span, thread: int,
                     parts: MemoryParts) -> Iterator[bool]:
        """Append the epilogue and the stores of a span of filters of a tile."""
        base = thread * self.share + (filters[0] - tile.filters[0]) * tile.outputs
        part_tile = tile._replace(filters=filters)
        count = tile.outputs * length(filters)
        self._steps(tile, part_tile, base, thread, parts)
        for plane in range(self.layer.stored):
            if plane:
                self._immediate_step(AluOp.SHR, 8, base, count, parts)
            self._store(part_tile, plane, base, parts)
            yield True

    def _pieces(self, tile: OutputTile) -> list[Span]:
        """Return the spans of channel blocks that are loaded together."""
        return [tile.filters] if self.pooled else even_parts(self.block_counts.channels, self.tiling.channels)

    def _reset(self, base: int, count: int, parts: MemoryParts) -> None:
        folded = fold_loops((StridedLoop(count, 1),))
        self.stream.run(folded.at(base), Gemm(reset=True, **folded.factors()), (), parts)

    def _pool(self, tile: OutputTile, base: int, count: int, parts: MemoryParts) -> Iterator[bool]:
        """Append a max or min pooling: copy the first tap, then combine with each other tap."""
        op = AluOp.MAX if self.layer.mode == "max" else AluOp.MIN
        for tap in product(range(self.layer.rows.taps), range(self.layer.columns.taps)):
            target = base + (count if any(tap) else 0)
            self._reset(target, count, parts)
            self._products(tile, tile.filters, target, parts, tap)
            if any(tap):
                self._elementwise_step(op, base, target, count, parts)
            yield True

    def _products(self, tile: OutputTile, piece: Span, base: int, parts: MemoryParts,
                  tap: tuple[int, int] | None = None) -> None:
        """Append the products of a piece of channels, for one `tap` or all."""
        rows, columns = self.layer.rows, self.layer.columns
        weights, weights_at = self._weights(tile, piece)  # first: they do not depend on earlier layers
        pixels, pixels_at = self._pixels(tile, piece)
        (n, y, x), channels = tile.shape, length(piece)
        high, wide = rows.span(y), columns.span(x)
        image = high * wide
        taps = rows.taps * columns.taps
        deep = 0 if self.pooled else channels * taps
        each = StridedLoop(length(tile.filters), n * y * x, n * image if self.pooled else 0, deep)
        across = (each, StridedLoop(n, y * x, image), StridedLoop(y, x, rows.stride * wide),
                  StridedLoop(x, 1, columns.stride))
        step = 0 if self.pooled else 1
        along = (
            StridedLoop(1 if self.pooled else channels, 0, n * image, taps),
            StridedLoop(rows.taps if tap is None else 1, 0, rows.dilation * wide, step * columns.taps),
            StridedLoop(columns.taps if tap is None else 1, 0, columns.dilation, step))
        if tap is not None:
            pixels_at += tap[0] * rows.dilation * wide + tap[1] * columns.dilation
        folded = fold_loops(across, along)
        self.stream.run(folded.at(base, pixels_at, weights_at),
                        Gemm(**folded.factors(), **folded.weights()), (pixels, weights, *parts), parts)

    # ------------------------------------------------------------------ transfers

    def _pixels(self, tile: OutputTile, piece: Span) -> tuple[Hashable, int]:
        """Load the pixels of a tile unless resident; return their memory part and offset."""
        region = self.regions["images"]
        slots = self.slots[Memory.INP]
        slot, is_miss = slots.find((tile.group, tile.images, tile.rows, tile.columns, piece))
        memory_part = ("inp", slot)
        if is_miss:
            producers = self._producing_stores(tile, piece, region)
            dependences = (("dram", region.name),) if producers is None else ()
            for load in pixel_loads(self.spec, self.layer, tile, piece, region, slot * slots.size):
                self.stream.put(load, dependences, (memory_part,), producers or ())
        return memory_part, slot * slots.size

    def _producing_stores(self, tile: OutputTile, piece: Span, region: DramRegion) -> tuple[int, ...] | None:
        """Return the last store of another layer's results that a tile reads; None if unknown."""
        (n, y, x), layer = region.shape[-4:-1], self.layer
        if region.name not in self.stream.stored or layer.groups > 1 or \
                (n, y, x) != (layer.images, layer.rows.size, layer.columns.size):
            return None
        read = (tile.images, input_span(layer.rows, tile.rows)[0],
                input_span(layer.columns, tile.columns)[0], piece)
        numbers = [number for other, number in self.stream.stored[region.name]
                   if all(a[0] < b[1] and b[0] < a[1] for a, b in zip(other, read, strict=True))]
        return (max(numbers),) if numbers else ()

    def _weights(self, tile: OutputTile, piece: Span) -> tuple[Hashable, int]:
        """Load weights unless resident; of a pooling, the identity. Return their memory part and offset."""
        region = self.regions["weights"]
        slots = self.slots[Memory.WGT]
        key: Hashable = "one" if self.pooled else (tile.group, tile.filters, piece)
        slot, is_miss = slots.find(key)
        memory_part, address = ("wgt", slot), slot * slots.size
        if is_miss:
            for load in weight_loads(self.spec, self.layer, tile, piece, region, address):
                self.stream.put(load, (("dram", region.name),), (memory_part,))
        return memory_part, address

    def _store(self, tile: OutputTile, plane: int, base: int, parts: MemoryParts) -> None:
        region = self.regions["out"]
        stored_parts = self.stream.stored.setdefault(region.name, [])
        for store in stores(self.spec, self.layer, tile, plane, region, base):
            number = self.stream.put(store, parts, (("dram", region.name),))
            stored_parts.append((tile[1:], number))

    # ------------------------------------------------------------------ steps on accumulators

    def _steps(self, tile: OutputTile, part: OutputTile, base: int, thread: int, parts: MemoryParts) -> None:
        """Append the epilogue steps of a span of filters of a tile; accumulators start at `base`."""
        count = part.outputs * length(part.filters)
        spare = base + tile.outputs * length(tile.filters)  # the free copy of the accumulators
        vector = 0
        for step in self.layer.steps:
            if step.form == "number" and step.op is AluOp.MUL and self.spec.dialect == "strict":
                self._multiply_by_shifts(int(step.number), base, spare, count, parts)
            elif step.form == "number":
                self._immediate_step(step.op, step.number, base, count, parts)
            elif step.form == "full":
                self._full_operand_step(part, step, base, spare, parts)
            else:
                self._channel_operand_step(tile, part, step, vector, base, thread, parts)
                vector += 1

    def _immediate_step(self, op: AluOp, number: float, base: int, count: int, parts: MemoryParts) -> None:
        folded = fold_loops((StridedLoop(count, 1, 1),))
        field = to_immediate(self.spec, number)
        assert field is not None, "numbers that are no immediates come in arrays"
        self.stream.run(folded.at(base, base), Alu(op=op, use_imm=True, imm=field, **folded.factors()),
                        parts, parts)

    def _elementwise_step(self, op: AluOp, base: int, other: int, count: int, parts: MemoryParts) -> None:
        """Append an elementwise `op` of the accumulators at `base` with those at `other`."""
        folded = fold_loops((StridedLoop(count, 1, 1),))
        self.stream.run(folded.at(base, other), Alu(op=op, **folded.factors()), parts, parts)

    def _multiply_by_shifts(self, number: int, base: int, copy: int, count: int, parts: MemoryParts) -> None:
        """Append a multiplication by shifts and wrapping additions, most significant digit first."""
        digits = bin(number & 0xFFFFFFFF)[2:]
        if digits == "0":
            self._reset(base, count, parts)
            self._immediate_step(AluOp.ADD, 0, base, count, parts)  # a store must not follow a reset directly
            return
        if "1" in digits[1:]:
            self._reset(copy, count, parts)
            self._elementwise_step(AluOp.ADD, copy, base, count, parts)
        for part in digits[1:].replace("1", "1 ").split():
            for shift in _split_shift(len(part)):
                self._immediate_step(AluOp.SHR, -shift, base, count, parts)
            if part.endswith("1"):
                self._elementwise_step(AluOp.ADD, base, copy, count, parts)

    def _full_operand_step(self, tile: OutputTile, step: EpilogueOp, base: int, spare: int,
                           parts: MemoryParts) -> None:
        """Append a step with a per-output operand."""
        region = self.regions[step.operand]
        for load in operand_loads(self.spec, self.layer, tile, region, spare):
            self.stream.put(load, (("dram", region.name),), parts)
        self._elementwise_step(step.op, base, spare, tile.outputs * length(tile.filters), parts)

    def _channel_operand_step(self, tile: OutputTile, part: OutputTile, step: EpilogueOp, vector: int,
                              base: int, thread: int,
                              parts: MemoryParts) -> None:
        """Append a step with a per-filter operand."""
        address = thread * self.share + self.share - (vector + 1) * self.tiling.filters
        key = (step.operand, tile.group, tile.filters)
        memory_part = ("acc", "vector", thread, vector)
        region = self.regions[step.operand]
        if self.vectors.get((thread, vector)) != key:
            self.vectors[thread, vector] = key
            origin = region_start(self.spec, region, Memory.ACC)
            origin += tile.group * self.block_counts.filters + tile.filters[0]
            count = length(tile.filters)
            self.stream.put(Load(memory=Memory.ACC, sram_base=address, dram_base=origin, x_size=count,
                                 x_stride=count), (("dram", region.name),), (memory_part,))
        folded = fold_loops((StridedLoop(length(part.filters), tile.outputs, 1),
                             StridedLoop(tile.outputs, 1, 0)))
        self.stream.run(folded.at(base, address + part.filters[0] - tile.filters[0]),
                        Alu(op=step.op, **folded.factors()), (*parts, memory_part), parts)


def _split_shift(amount: int) -> list[int]:
    """Split a shift into amounts that all implementations support."""
    return [15] * (amount // 15) + [amount % 15] * (amount % 15 > 0)


Array = NDArray[Any]
SIMULATED_TILINGS = 12  # tilings that are simulated to choose one
MIN_SIMULATED_MACS = 10_000_000  # multiply-accumulates of a layer that is worth simulating


class LayerStage(NamedTuple):
    """A named layer of a program; `images` names an input or an earlier stage."""

    name: str
    layer: Layer
    images: str


@dataclass(frozen=True, eq=False)
class LayerProgram:
    """A compiled program of layers, which packs and unpacks arrays.

    Inputs have the names in `Stage.images`; weights are "NAME.weights", operands "NAME.OPERAND".
    """

    spec: AccelSpec
    stages: tuple[LayerStage, ...]
    tilings: tuple[Tiling, ...]
    program: AccelProgram
    uop_statistics: UopStatistics

    @cached_property
    def timing(self) -> ProgramTiming:
        """The simulated timing."""
        return measure(self.program)

    @property
    def serial_cycles(self) -> int:
        """Simulated cycles without overlap of instructions."""
        return measure(self.program, serial=True).cycles

    @property
    def seconds(self) -> float:
        """Simulated seconds at the board's clock, without transfers."""
        return self.timing.cycles / (self.spec.board.clock_mhz * 1e6)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the layers."""
        return sum(stage.layer.macs for stage in self.stages)

    def host_bytes(self) -> int:
        """Return the bytes transferred between host and device."""
        return sum(r.nbytes for r in self.program.regions if r.role in ("input", "output"))

    def pack_inputs(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return arrays in their DRAM layout."""
        packed = {}
        for stage in self.stages:
            for name, pack in _packers(self.spec, stage).items():
                if name in arrays:
                    packed[name] = pack(arrays[name])
            if stage.layer.mode != "product":
                packed[f"{stage.name}.weights"] = np.eye(self.spec.block)[None]
        return packed

    def run(self, arrays: Mapping[str, Array]) -> Array:
        """Run the program; return the results of the last stage: ``[group, image, row, column, filter]``."""
        image = self.program.image(self.pack_inputs(arrays))
        stage = self.stages[-1]
        planes = self.program.view(run(self.program, image).image, stage.name)
        return unpack_results(self.spec, stage.layer, planes)


def _packers(spec: AccelSpec, stage: LayerStage) -> dict[str, Any]:
    layer = stage.layer
    channels, filters, _, _ = block_sizes(layer, spec)
    packers: dict[str, Any] = {stage.images: lambda x: pack_images(x, channels, spec.block)}
    packers[f"{stage.name}.weights"] = lambda w: pack_weights(w, channels, filters, spec.block)
    for step in layer.steps:
        if step.form == "channel":
            packers[f"{stage.name}.{step.operand}"] = \
                lambda v: pack_vector(v, layer.groups, filters, spec.block)
        elif step.form == "full":
            packers[f"{stage.name}.{step.operand}"] = lambda x: pack_images(x, filters, spec.block)
    return packers


def block_sizes(layer: Layer, spec: AccelSpec) -> tuple[int, int, int, int]:
    """Return the block counts of a layer as a tuple."""
    counts = block_counts(layer, spec)
    return counts.channels, counts.filters, counts.copies, counts.vectors


def pack_images(images: Array, channels: int, block: int) -> Array:
    """Pack ``[group, image, row, column, channel]`` into channel blocks, outermost within a group."""
    g, n, h, w, c = images.shape
    packed = np.zeros((g, channels, n, h, w, block), images.dtype)
    whole_blocks = c // block
    if whole_blocks:
        blocks = images[..., :whole_blocks * block].reshape(g, n, h, w, whole_blocks, block)
        packed[:, :whole_blocks] = blocks.transpose(0, 4, 1, 2, 3, 5)
    if c % block:
        packed[:, whole_blocks, ..., :c % block] = images[..., whole_blocks * block:]
    return packed


def pack_weights(weights: Array, channels: int, filters: int, block: int) -> Array:
    """Pack ``[group, row, column, channel, filter]`` into square blocks, filters outermost."""
    g, p, q, c, f = weights.shape
    padded = np.zeros((g, p, q, channels * block, filters * block), weights.dtype)
    padded[:, :, :, :c, :f] = weights
    parts = padded.reshape(g, p, q, channels, block, filters, block)
    return np.ascontiguousarray(parts.transpose(0, 5, 3, 1, 2, 6, 4))


def pack_vector(vector: Array, groups: int, filters: int, block: int) -> Array:
    """Pack per-filter numbers, ``[group, filter]`` or shared by all groups, into blocks."""
    padded = np.zeros((groups, filters * block), vector.dtype)
    padded[:, :vector.shape[-1]] = vector
    return padded.reshape(groups, filters, 1, block)


def unpack_results(spec: AccelSpec, layer: Layer, planes: Array) -> Array:
    """Unpack stored results to ``[group, image, row, column, filter]``, joining byte planes."""
    order = planes.transpose(1, 3, 4, 5, 2, 6, 0)  # group, image, row, column, block, lane, byte
    g, n, h, w, blocks, lanes, stored = order.shape
    unpacked = np.ascontiguousarray(order).reshape(g, n, h, w, blocks * lanes, stored)[..., :layer.filters, :]
    if spec.is_float:
        return unpacked[..., 0]
    return np.ascontiguousarray(unpacked).view(f"<i{stored}")[..., 0]


def assemble(
    spec: AccelSpec, stages: Sequence[LayerStage], chosen_tilings: Sequence[Tiling]
) -> LayerProgram:
    """Compile `stages` to a program with the given tilings."""
    layout = DramAllocator()
    names: dict[str, DramRegion] = {}
    accumulator = spec.element(Memory.ACC).dtype
    plans = []
    for number, stage in enumerate(stages):
        layer = stage.layer
        channels, filters, _, _ = block_sizes(layer, spec)
        regions = {}
        if stage.images not in names:
            g, n, h, w, _ = layer.input_shape
            names[stage.images] = layout.add(
                stage.images, (g, channels, n, h, w, spec.block), spec.element(Memory.INP).dtype, "input")
        regions["images"] = names[stage.images]
        g, p, q, _, _ = layer.weight_shape
        square = (spec.block, spec.block)
        shape: tuple[int, ...] = (1, *square)
        if layer.mode == "product":
            shape = (g, filters, channels, p, q, *square)
        regions["weights"] = layout.add(
            f"{stage.name}.weights", shape, spec.element(Memory.WGT).dtype,
            "input" if layer.mode == "product" else "constant")
        g, n, h, w, _ = layer.output_shape
        for step in layer.steps:
            if step.operand and step.operand not in regions:
                trailing = (1,) if step.form == "channel" else (n, h, w)
                regions[step.operand] = layout.add(
                    f"{stage.name}.{step.operand}", (g, filters, *trailing, spec.block), accumulator, "input")
        role = "output" if number == len(stages) - 1 else "scratch"
        names[stage.name] = regions["out"] = layout.add(
            stage.name, (layer.stored, g, filters, n, h, w, spec.block), spec.element(Memory.OUT).dtype, role)
        plans.append(regions)
    stream = Stream(spec, layout)
    for stage, tiling, regions in zip(stages, chosen_tilings, plans, strict=True):
        lower(stream, stage.layer, tiling, regions)
    return LayerProgram(spec, tuple(stages), tuple(chosen_tilings), stream.finish(), stream.uop_statistics)


def compile_stages(spec: AccelSpec, stages: Sequence[LayerStage], threads: int = 2) -> LayerProgram:
    """Compile `stages` to a program; every layer has the tiling that is fastest for it alone."""
    return assemble(spec, stages, [best_tiling(spec, stage.layer, threads) for stage in stages])


@lru_cache(maxsize=512)
def best_tiling(spec: AccelSpec, layer: Layer, threads: int = 2) -> Tiling:
    """Return the tiling with the fewest cycles: estimated; for large layers the first few are simulated."""
    last_error: DeviceError | None = None
    candidates: list[tuple[int, int, Tiling]] = []
    limit = SIMULATED_TILINGS if layer.macs >= MIN_SIMULATED_MACS else 1
    for tiling in tilings(layer, spec, threads):
        try:
            program = assemble(spec, [LayerStage("out", layer, "images")], [tiling]).program
        except DeviceError as error:
            last_error = error
            continue
        cycles = measure(program).cycles if limit > 1 else 0
        candidates.append((cycles, len(candidates), tiling))
        if len(candidates) == limit:
            break
    if not candidates:
        raise last_error or DeviceError(f"no tile of {layer} fits into the memories of {spec.name}")
    return min(candidates)[2]


def compile_layer(spec: AccelSpec, layer: Layer, threads: int = 2) -> LayerProgram:
    """Compile a single layer: its images are "images", its results "out"."""
    return compile_stages(spec, [LayerStage("out", layer, "images")], threads)
