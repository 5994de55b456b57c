"""Lowering of a layer to a stream of instructions, with transfers and slots in the scratchpads."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.functional_sim import run
from jitla.accel.isa import Alu, AluOp, Gemm, Load, Store, to_immediate
from jitla.accel.layer import Layer, Step, Window
from jitla.accel.program import Kernels, Layout, Program, Region, Stream
from jitla.accel.spec import Memory, Spec
from jitla.accel.tiling import Loop, Sizes, Tiling, even, fold, held, sizes, tilings
from jitla.accel.timing_sim import Timing, measure
from jitla.classes import cached_property, dataclass
from jitla.errors import DeviceError

PITCH = 1 << 16  # upper bound on the distance between rows in DRAM, in elements
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


@dataclass(slots=True)
class Slots:
    """Equal parts of a memory, and what lies in each; the one used longest ago makes room."""

    memory: Memory
    size: int
    held: dict[int, Hashable]

    def find(self, key: Hashable) -> tuple[int, bool]:
        """Return the part for `key`, and whether it has to be filled."""
        for slot, other in self.held.items():
            if other == key:
                self.held[slot] = self.held.pop(slot)
                return slot, False
        slot = next(iter(self.held))
        del self.held[slot]
        self.held[slot] = key
        return slot, True


Parts = tuple[Hashable, ...]  # of the accumulators of a thread
AHEAD = 2  # pieces per thread that are on the chip, of those there is room for
PARTS = 4  # in which the results of the last tile are stored
LEAST = 48  # accumulators that are worth a part of their own


def lower(stream: Stream, layer: Layer, tiling: Tiling, regions: Mapping[str, Region]) -> None:
    """Append the statements of `layer`; `regions` are "images", "weights", "out" and its operands."""
    stream.fence()
    _Lowering(stream, layer, tiling, regions).run()


class _Lowering:
    """One layer on its way into a stream."""

    def __init__(self, stream: Stream, layer: Layer, tiling: Tiling, regions: Mapping[str, Region]) -> None:
        self.stream, self.layer, self.tiling, self.regions = stream, layer, tiling, regions
        self.spec = stream.spec
        self.sizes: Sizes = sizes(layer, self.spec)
        self.share = self.spec.element(Memory.ACC).depth // tiling.threads
        self.slots = {m: self._parted(m, size) for m, size in zip(
            (Memory.INP, Memory.WGT), held(tiling, layer), strict=True)}
        self.vectors: dict[tuple[int, int], Hashable] = {}
        self.pooled = layer.mode != "product"

    def _parted(self, memory: Memory, size: int) -> Slots:
        """Return a memory in equal parts: one per thread, and if these take turns more to load ahead."""
        depth, threads = self.spec.element(memory).depth, self.tiling.threads
        count = max(threads, min(depth // size, AHEAD * threads)) if threads > 1 else 1
        return Slots(memory, depth // count, dict.fromkeys(range(count)))

    def run(self) -> None:
        """Make all tiles, as many at a time as there are threads."""
        tiles = list(self._tiles())
        for at in range(0, len(tiles), self.tiling.threads):
            now, last = tiles[at:at + self.tiling.threads], at + 2 * self.tiling.threads > len(tiles)
            turns = [self._tile(t, thread, last) for thread, t in enumerate(now)]
            while turns:
                turns = [turn for turn in turns if next(turn, None) is not None]

    def _tiles(self) -> Iterator[Tile]:
        layer, tiling = self.layer, self.tiling
        places = list(product(even(layer.images, tiling.images), even(layer.rows.outputs, tiling.rows),
                              even(layer.columns.outputs, tiling.columns)))
        filters = even(self.sizes.filters, tiling.filters)
        for group in range(layer.groups):
            if tiling.stay == "weights":
                yield from (Tile(group, *p, f) for f in filters for p in places)
            else:
                yield from (Tile(group, *p, f) for p in places for f in filters)

    # ------------------------------------------------------------------ one tile

    def _tile(self, tile: Tile, thread: int, last: bool) -> Iterator[bool]:
        """Append the statements of a tile; yields where another thread may go on.

        Of the last ones results are stored part by part, so that little is left to do at the end.
        """
        places = tuple(("acc", thread, part) for part in range(PARTS))
        base = thread * self.share
        count = tile.places * length(tile.filters)
        if self.layer.mode in ("max", "min"):
            yield from self._pool(tile, base, count, places)
        else:
            self._reset(base, count, places)
            for piece in self._pieces(tile):
                self._products(tile, piece, base, places)
                yield True
        if not last:
            yield from self._end(tile, tile.filters, thread, places)
            return
        most = max(-(-length(tile.filters) // PARTS), -(-LEAST // tile.places))
        for place, (first, behind) in zip(places, even(length(tile.filters), most), strict=False):
            part = tile.filters[0] + first, tile.filters[0] + behind
            yield from self._end(tile, part, thread, (place,))

    def _end(self, tile: Tile, filters: Span, thread: int, places: Parts) -> Iterator[bool]:
        """Append the steps on accumulators of some filters of a tile, and their stores."""
        base = thread * self.share + (filters[0] - tile.filters[0]) * tile.places
        part = tile._replace(filters=filters)
        count = tile.places * length(filters)
        self._steps(tile, part, base, thread, places)
        for plane in range(self.layer.stored):
            if plane:
                self._number(AluOp.SHR, 8, base, count, places)
            self._store(part, plane, base, places)
            yield True

    def _pieces(self, tile: Tile) -> list[Span]:
        """Return which blocks of channels are loaded together."""
        return [tile.filters] if self.pooled else even(self.sizes.channels, self.tiling.channels)

    def _reset(self, base: int, count: int, places: Parts) -> None:
        folded = fold((Loop(count, 1),))
        self.stream.run(folded.at(base), Gemm(reset=True, **folded.factors()), (), places)

    def _pool(self, tile: Tile, base: int, count: int, places: Parts) -> Iterator[bool]:
        """The first tap, then the larger or smaller of what there is and what each other tap brings."""
        op = AluOp.MAX if self.layer.mode == "max" else AluOp.MIN
        for tap in product(range(self.layer.rows.taps), range(self.layer.columns.taps)):
            target = base + (count if any(tap) else 0)
            self._reset(target, count, places)
            self._products(tile, tile.filters, target, places, tap)
            if any(tap):
                self._join(op, base, target, count, places)
            yield True

    def _products(self, tile: Tile, piece: Span, base: int, places: Parts,
                  tap: tuple[int, int] | None = None) -> None:
        """Add to the accumulators what a piece of the channels comes to; at one `tap`, or all."""
        rows, columns = self.layer.rows, self.layer.columns
        weights, weights_at = self._weights(tile, piece)  # first: they wait for no layer before
        pixels, pixels_at = self._pixels(tile, piece)
        (n, y, x), channels = tile.shape, length(piece)
        high, wide = rows.span(y), columns.span(x)
        image = high * wide
        taps = rows.taps * columns.taps
        deep = 0 if self.pooled else channels * taps
        each = Loop(length(tile.filters), n * y * x, n * image if self.pooled else 0, deep)
        across = (each, Loop(n, y * x, image), Loop(y, x, rows.stride * wide), Loop(x, 1, columns.stride))
        step = 0 if self.pooled else 1
        along = (
            Loop(1 if self.pooled else channels, 0, n * image, taps),
            Loop(rows.taps if tap is None else 1, 0, rows.dilation * wide, step * columns.taps),
            Loop(columns.taps if tap is None else 1, 0, columns.dilation, step))
        if tap is not None:
            pixels_at += tap[0] * rows.dilation * wide + tap[1] * columns.dilation
        folded = fold(across, along)
        self.stream.run(folded.at(base, pixels_at, weights_at),
                        Gemm(**folded.factors(), **folded.weights()), (pixels, weights, *places), places)

    # ------------------------------------------------------------------ transfers

    def _pixels(self, tile: Tile, piece: Span) -> tuple[Hashable, int]:
        """Have the pixels a tile reads in INP; return the part of it and where they begin."""
        region = self.regions["images"]
        slots = self.slots[Memory.INP]
        slot, fresh = slots.find((tile.group, tile.images, tile.rows, tile.columns, piece))
        place = ("inp", slot)
        if fresh:
            after = self._stored_before(tile, piece, region)
            whole = (("dram", region.name),) if after is None else ()
            for load in pixel_loads(self.spec, self.layer, tile, piece, region, slot * slots.size):
                self.stream.put(load, whole, (place,), after or ())
        return place, slot * slots.size

    def _stored_before(self, tile: Tile, piece: Span, region: Region) -> tuple[int, ...] | None:
        """Return the last store of what a tile reads of the results of another layer; None if unknown."""
        (n, y, x), layer = region.shape[-4:-1], self.layer
        if region.name not in self.stream.stored or layer.groups > 1 or \
                (n, y, x) != (layer.images, layer.rows.size, layer.columns.size):
            return None
        read = tile.images, seen(layer.rows, tile.rows)[0], seen(layer.columns, tile.columns)[0], piece
        found = [number for other, number in self.stream.stored[region.name]
                 if all(a[0] < b[1] and b[0] < a[1] for a, b in zip(other, read, strict=True))]
        return (max(found),) if found else ()

    def _weights(self, tile: Tile, piece: Span) -> tuple[Hashable, int]:
        """Have weights in WGT, of a pooling the matrix that changes nothing."""
        region = self.regions["weights"]
        slots = self.slots[Memory.WGT]
        key: Hashable = "one" if self.pooled else (tile.group, tile.filters, piece)
        slot, fresh = slots.find(key)
        place, at = ("wgt", slot), slot * slots.size
        if fresh:
            for load in weight_loads(self.spec, self.layer, tile, piece, region, at):
                self.stream.put(load, (("dram", region.name),), (place,))
        return place, at

    def _store(self, tile: Tile, plane: int, base: int, places: Parts) -> None:
        region = self.regions["out"]
        made = self.stream.stored.setdefault(region.name, [])
        for store in stores(self.spec, self.layer, tile, plane, region, base):
            number = self.stream.put(store, places, (("dram", region.name),))
            made.append((tile[1:], number))

    # ------------------------------------------------------------------ steps on accumulators

    def _steps(self, tile: Tile, part: Tile, base: int, thread: int, places: Parts) -> None:
        """Do the steps of the layer on some filters of a tile, whose accumulators begin at `base`."""
        count = part.places * length(part.filters)
        spare = base + tile.places * length(tile.filters)  # as many, that are free
        vector = 0
        for step in self.layer.steps:
            if step.form == "number" and step.op is AluOp.MUL and self.spec.dialect == "strict":
                self._times(int(step.number), base, spare, count, places)
            elif step.form == "number":
                self._number(step.op, step.number, base, count, places)
            elif step.form == "full":
                self._full(part, step, base, spare, places)
            else:
                self._channel(tile, part, step, vector, base, thread, places)
                vector += 1

    def _number(self, op: AluOp, number: float, base: int, count: int, places: Parts) -> None:
        folded = fold((Loop(count, 1, 1),))
        field = to_immediate(self.spec, number)
        assert field is not None, "numbers that are no immediates come in arrays"
        self.stream.run(folded.at(base, base), Alu(op=op, use_imm=True, imm=field, **folded.factors()),
                        places, places)

    def _join(self, op: AluOp, base: int, other: int, count: int, places: Parts) -> None:
        """Do `op` with every accumulator and the one as far behind `other`."""
        folded = fold((Loop(count, 1, 1),))
        self.stream.run(folded.at(base, other), Alu(op=op, **folded.factors()), places, places)

    def _times(self, number: int, base: int, kept: int, count: int, places: Parts) -> None:
        """Multiply by shifts and additions, which wrap as products do; digits from the first one on."""
        digits = bin(number & 0xFFFFFFFF)[2:]
        if digits == "0":
            self._reset(base, count, places)
            self._number(AluOp.ADD, 0, base, count, places)  # who stores wants more than a reset
            return
        if "1" in digits[1:]:
            self._reset(kept, count, places)
            self._join(AluOp.ADD, kept, base, count, places)
        for part in digits[1:].replace("1", "1 ").split():
            for shift in _shifts(len(part)):
                self._number(AluOp.SHR, -shift, base, count, places)
            if part.endswith("1"):
                self._join(AluOp.ADD, base, kept, count, places)

    def _full(self, tile: Tile, step: Step, base: int, spare: int, places: Parts) -> None:
        """Do a step with a number per output."""
        region = self.regions[step.operand]
        for load in operand_loads(self.spec, self.layer, tile, region, spare):
            self.stream.put(load, (("dram", region.name),), places)
        self._join(step.op, base, spare, tile.places * length(tile.filters), places)

    def _channel(self, tile: Tile, part: Tile, step: Step, vector: int, base: int, thread: int,
                 places: Parts) -> None:
        """Do a step with a number per filter, the same at all places."""
        at = thread * self.share + self.share - (vector + 1) * self.tiling.filters
        key = (step.operand, tile.group, tile.filters)
        place = ("acc", "vector", thread, vector)
        region = self.regions[step.operand]
        if self.vectors.get((thread, vector)) != key:
            self.vectors[thread, vector] = key
            origin = element(self.spec, region, Memory.ACC)
            origin += tile.group * self.sizes.filters + tile.filters[0]
            count = length(tile.filters)
            self.stream.put(Load(memory=Memory.ACC, sram_base=at, dram_base=origin, x_size=count,
                                 x_stride=count), (("dram", region.name),), (place,))
        folded = fold((Loop(length(part.filters), tile.places, 1), Loop(tile.places, 1, 0)))
        self.stream.run(folded.at(base, at + part.filters[0] - tile.filters[0]),
                        Alu(op=step.op, **folded.factors()), (*places, place), places)


def _shifts(places: int) -> list[int]:
    """Cut a shift into ones that every implementation does."""
    return [15] * (places // 15) + [places % 15] * (places % 15 > 0)


Array = NDArray[Any]
TRIED = 12  # tilings that are measured
LARGE = 10_000_000  # multiplications of a layer for which that is worth it


class Stage(NamedTuple):
    """A layer whose images are an input called so, or the results of an earlier stage, by its name."""

    name: str
    layer: Layer
    images: str


@dataclass(frozen=True, eq=False)
class Job:
    """A program for the device with what it takes to run it on arrays.

    Inputs are named as their stages say; weights are "NAME.weights", operands "NAME.OPERAND".
    """

    spec: Spec
    stages: tuple[Stage, ...]
    tilings: tuple[Tiling, ...]
    program: Program
    kernels: Kernels

    @cached_property
    def timing(self) -> Timing:
        """Simulated cycles."""
        return measure(self.program)

    @property
    def serial_cycles(self) -> int:
        """Simulated cycles if instructions ran one at a time."""
        return measure(self.program, serial=True).cycles

    @property
    def seconds(self) -> float:
        """Simulated time at the stated clock, without transfers."""
        return self.timing.cycles / (self.spec.board.clock_mhz * 1e6)

    @property
    def macs(self) -> int:
        """Multiplications that the layers ask for."""
        return sum(stage.layer.macs for stage in self.stages)

    def moved(self) -> int:
        """Bytes that go between the memory of the host and that of the device."""
        return sum(r.nbytes for r in self.program.regions if r.role in ("input", "output"))

    def packed(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return arrays as they lie in DRAM."""
        found = {}
        for stage in self.stages:
            for name, pack in _packers(self.spec, stage).items():
                if name in arrays:
                    found[name] = pack(arrays[name])
            if stage.layer.mode != "product":
                found[f"{stage.name}.weights"] = np.eye(self.spec.block)[None]
        return found

    def run(self, arrays: Mapping[str, Array]) -> Array:
        """Return the results of the last stage: ``[group, image, row, column, filter]``."""
        image = self.program.image(self.packed(arrays))
        stage = self.stages[-1]
        return unpacked(self.spec, stage.layer, self.program.view(run(self.program, image).image, stage.name))


def _packers(spec: Spec, stage: Stage) -> dict[str, Any]:
    layer = stage.layer
    channels, filters, _, _ = sizes_of(layer, spec)
    made: dict[str, Any] = {stage.images: lambda x: pack_images(x, channels, spec.block)}
    made[f"{stage.name}.weights"] = lambda w: pack_weights(w, channels, filters, spec.block)
    for step in layer.steps:
        if step.form == "channel":
            made[f"{stage.name}.{step.operand}"] = lambda v: pack_vector(v, layer.groups, filters, spec.block)
        elif step.form == "full":
            made[f"{stage.name}.{step.operand}"] = lambda x: pack_images(x, filters, spec.block)
    return made


def sizes_of(layer: Layer, spec: Spec) -> tuple[int, int, int, int]:
    """Return blocks of channels and filters, and what tiles keep."""
    made = sizes(layer, spec)
    return made.channels, made.filters, made.copies, made.vectors


def pack_images(images: Array, channels: int, block: int) -> Array:
    """Return ``[group, image, row, column, channel]`` in blocks of channels, these outermost in a group."""
    g, n, h, w, c = images.shape
    made = np.zeros((g, channels, n, h, w, block), images.dtype)
    whole = c // block
    if whole:
        blocks = images[..., :whole * block].reshape(g, n, h, w, whole, block)
        made[:, :whole] = blocks.transpose(0, 4, 1, 2, 3, 5)
    if c % block:
        made[:, whole, ..., :c % block] = images[..., whole * block:]
    return made


def pack_weights(weights: Array, channels: int, filters: int, block: int) -> Array:
    """Return ``[group, row, column, channel, filter]`` in square blocks, filters outermost."""
    g, p, q, c, f = weights.shape
    made = np.zeros((g, p, q, channels * block, filters * block), weights.dtype)
    made[:, :, :, :c, :f] = weights
    parts = made.reshape(g, p, q, channels, block, filters, block)
    return np.ascontiguousarray(parts.transpose(0, 5, 3, 1, 2, 6, 4))


def pack_vector(vector: Array, groups: int, filters: int, block: int) -> Array:
    """Return numbers per filter, ``[group, filter]`` or the same for all groups, in blocks."""
    made = np.zeros((groups, filters * block), vector.dtype)
    made[:, :vector.shape[-1]] = vector
    return made.reshape(groups, filters, 1, block)


def unpacked(spec: Spec, layer: Layer, planes: Array) -> Array:
    """Return what was stored as ``[group, image, row, column, filter]``; bytes put together again."""
    order = planes.transpose(1, 3, 4, 5, 2, 6, 0)  # group, image, row, column, block, lane, byte
    g, n, h, w, blocks, lanes, stored = order.shape
    made = np.ascontiguousarray(order).reshape(g, n, h, w, blocks * lanes, stored)[..., :layer.filters, :]
    if spec.is_float:
        return made[..., 0]
    return np.ascontiguousarray(made).view(f"<i{stored}")[..., 0]


def assemble(spec: Spec, stages: Sequence[Stage], chosen: Sequence[Tiling], threads: int = 2) -> Job:
    """Return the program of `stages` with the tilings given."""
    layout = Layout()
    names: dict[str, Region] = {}
    wide = spec.element(Memory.ACC).dtype
    plans = []
    for at, stage in enumerate(stages):
        layer = stage.layer
        channels, filters, _, _ = sizes_of(layer, spec)
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
                sizes_now = (1,) if step.form == "channel" else (n, h, w)
                regions[step.operand] = layout.add(
                    f"{stage.name}.{step.operand}", (g, filters, *sizes_now, spec.block), wide, "input")
        role = "output" if at == len(stages) - 1 else "scratch"
        names[stage.name] = regions["out"] = layout.add(
            stage.name, (layer.stored, g, filters, n, h, w, spec.block), spec.element(Memory.OUT).dtype, role)
        plans.append(regions)
    stream = Stream(spec, layout)
    for stage, tiling, regions in zip(stages, chosen, plans, strict=True):
        lower(stream, stage.layer, tiling, regions)
    return Job(spec, tuple(stages), tuple(chosen), stream.finish(), stream.kernels)


def job(spec: Spec, stages: Sequence[Stage], threads: int = 2) -> Job:
    """Return the program of `stages`; every layer is tiled as is fastest for it alone."""
    return assemble(spec, stages, [best_tiling(spec, stage.layer, threads) for stage in stages])


@lru_cache(maxsize=512)
def best_tiling(spec: Spec, layer: Layer, threads: int = 2) -> Tiling:
    """Return the tiling with fewest cycles: estimated, of large layers simulated for the first few."""
    refused: DeviceError | None = None
    found: list[tuple[int, int, Tiling]] = []
    tried = TRIED if layer.macs >= LARGE else 1
    for tiling in tilings(layer, spec, threads):
        try:
            program = assemble(spec, [Stage("out", layer, "images")], [tiling]).program
        except DeviceError as error:
            refused = error
            continue
        cycles = measure(program).cycles if tried > 1 else 0
        found.append((cycles, len(found), tiling))
        if len(found) == tried:
            break
    if not found:
        raise refused or DeviceError(f"no tile of {layer} fits into the memories of {spec.name}")
    return min(found)[2]


def one_layer(spec: Spec, layer: Layer, threads: int = 2) -> Job:
    """Return the program of a single layer: its images are "images", its results "out"."""
    return job(spec, [Stage("out", layer, "images")], threads)
