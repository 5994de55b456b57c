"""A layer as statements of a stream: transfers, products, steps on accumulators, tile by tile.

Knows: what lies in which part of the memories on the chip. Must not know: NumPy programs, tokens.
Receives a layer, a tiling and regions; appends to a stream.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import product

from jitla.accel.alu import to_immediate
from jitla.accel.isa import Alu, AluOp, Gemm, Load
from jitla.accel.layer import Layer, Step
from jitla.accel.program import Region
from jitla.accel.slots import Slots
from jitla.accel.spec import Memory
from jitla.accel.stream import Stream
from jitla.accel.tiling import Sizes, Tiling, even, held, sizes
from jitla.accel.transfers import (
    Span,
    Tile,
    element,
    length,
    operand_loads,
    pixel_loads,
    seen,
    stores,
    weight_loads,
)
from jitla.accel.walk import Loop, fold

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
