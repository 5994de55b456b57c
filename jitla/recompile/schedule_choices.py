"""What may be tuned about a kernel (knobs, costs, features), and the interfaces of tuner and compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from math import ceil, log2
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from jitla.fusion import (
    Blocking,
    BlockStage,
    Combine,
    Executable,
    Form,
    Geometry,
    Kernel,
    Knob,
    Layout,
    Pairs,
    RowKernel,
    Schedule,
    Space,
    SparseProduct,
    Tile,
    Value,
    Values,
    WindowKernel,
    contiguous,
    crosswise_limit,
)
from jitla.hops import Hop, Kind, Shape, flops

if TYPE_CHECKING:
    from jitla.loopir import Nest


Launch = Callable[..., int]
Launchable = tuple[bytes, Launch]  # an argument block and its launcher
UNTUNED: Values = MappingProxyType({})
# Knobs that run the kernel as a loop nest: its primitives; or sizes of tiles, the order of the tiles, and the
# place where intermediates are computed.
LOOPS, TILE, ORDER, PLACE = "loops", "tile", "order", "place"
ORDERS, PLACES = ("rows", "columns"), ("block", "inline", "root")


class KernelKey(NamedTuple):
    """The identity of a kernel in all processes, and the sizes it is bound to."""

    kernel: str
    shape: tuple[int, ...]


class TunableKernel(NamedTuple):
    """A bound kernel for the tuner: `make` returns its argument block and launcher for chosen knobs.

    The last `outputs` operands are results. `make` raises `ScheduleError` if its loops cannot be scheduled
    like that. `portable` returns what another process makes the same kernel of.
    """

    key: KernelKey
    shapes: Mapping[Shape, Shape]
    outputs: int
    space: Callable[[], Space]
    make: Callable[[Values], Launchable]
    portable: Callable[[], Any]


class ChosenSchedule(NamedTuple):
    """Chosen knobs of a kernel, a note on their origin or why they are impossible, and its sizes."""

    values: Values
    note: str
    shapes: Mapping[Shape, Shape]


class ScheduleTuner(Protocol):
    """Chooses knobs: those `chosen` by kernel, with `notes` on each."""

    @property
    def chosen(self) -> Mapping[KernelKey, Values]:
        """The knobs chosen so far."""
        ...

    @property
    def notes(self) -> Mapping[KernelKey, str]:
        """Why, by kernel."""
        ...

    def block(self, choice: TunableKernel) -> Launchable:
        """Return what `choice.make` returns for the chosen knobs."""
        ...


def key_of(
    kernel: Kernel | RowKernel | WindowKernel, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout],
) -> KernelKey:
    """Return the key of a bound kernel."""
    number: dict[Hop, int] = {}
    words: list[Any] = [kernel.template, type(kernel).__name__]
    sizes: list[int] = []
    for hop in kernel.inputs:
        number[hop] = len(number)
        shape = places[hop].shape if hop in places else ()
        plain = hop not in places or places[hop] == contiguous(shape, hop.meta.dtype.itemsize)
        bits = hop.attr("bits") if hop.op.name == "const" else len(hop.meta.shape)
        words.append((bits, hop.meta.dtype.str, plain))
        sizes += shape
    for hop in kernel.body:
        number[hop] = len(number)
        words.append((hop.op.name, hop.meta.dtype.str, _attrs(hop) if hop.op.kind is not Kind.LEAF else (),
                      tuple(number[i] if i in number else _view(i, number) for i in hop.inputs)))
    words.append(tuple(number[h] for h in kernel.outputs))
    if not isinstance(kernel, Kernel):
        words.append(tuple(tuple(number[h] for h in s.outputs) for s in kernel.stages))
    sizes += shapes[kernel.shape]
    return KernelKey(sha256(repr(words).encode()).hexdigest()[:24], tuple(sizes))


def _view(view: Hop, number: Mapping[Hop, int]) -> tuple[Any, ...]:
    """Return what identifies a view between two stages: its operator, its input and its attributes."""
    return view.op.name, tuple(number.get(i, -1) for i in view.inputs), _attrs(view)


def _attrs(hop: Hop) -> tuple[tuple[str, str], ...]:
    """Return the attributes of `hop` that do not depend on sizes."""
    return tuple((k, str(v)) for k, v in hop.attrs if k not in ("shape", "slot"))


def is_nest(values: Values) -> bool:
    """Return whether these knobs run a kernel as a loop nest."""
    return bool(values.get(LOOPS) or values.get(TILE)) or values.get(ORDER, ORDERS[0]) != ORDERS[0] or \
        values.get(PLACE, PLACES[0]) != PLACES[0]


def apply_knobs(values: Values, schedule: Schedule) -> Schedule:
    """Return a schedule of an elementwise loop with the chosen vectors and prefetches."""
    return replace(schedule, unroll=int(values.get("unroll", schedule.unroll)),
                   part=2 if values.get("vector") == "half" else 1, ahead=int(values.get("ahead", 0)))


def has_short_rows(kernel: Kernel, form: Form, geometry: Geometry) -> bool:
    """Return whether rows are so short that several should share a vector."""
    return 1 < geometry.dims[-1] <= crosswise_limit(kernel, form)


HEIGHT_STEP = 8  # rows
BLOCK_HEIGHTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
UNIT_COUNTS = tuple(2 ** k for k in range(11))
MAX_BLOCK_BYTES = 8 << 20  # of the private blocks of one thread
TILE_HEIGHTS, TILE_WIDTHS = (8, 16, 32, 64), (256, 512, 1024)
STORES = ("near", "around")
UNROLL = (1, 2, 4, 8)
SUMS = (1, 2, 4)  # partial sums, as a multiple of NumPy's
VECTORS = ("whole", "half")
PREFETCH_BYTES = (0, 256, 1024, 4096)  # prefetch distances of a loop; stages on blocks of rows have fewer
STAGE_KNOBS = {"unroll": (1, 2, 4), "vector": VECTORS, "ahead": (0, 1024)}
CACHE_LEVELS = ((1 << 20, 1.0), (4 << 20, 1.2))  # bytes of a block, and the relative cost of a byte
MEMORY_BYTE_COST = 1.5
VECTOR_BYTES = 32
NEST_DEFAULTS: dict[str, Value] = {TILE: "", ORDER: ORDERS[0], PLACE: PLACES[0]}
MOVED_ROW_COST = 0.25  # relative cost of a row moved to the next block
STAGE_COST_BYTES, UNIT_COST_BYTES = 2000.0, 4000.0  # overheads
NO_TILES: dict[str, tuple[int, float]] = {"": (1, 1.0)}


def work_of(body: Iterable[Hop]) -> float:
    """Return the operations per byte computed."""
    computed = [h for h in body if h.op.kind is not Kind.LEAF]
    return sum(map(flops, computed)) / max(sum(h.meta.nbytes for h in computed), 1)


class RowPass(NamedTuple):
    """A pass over rows: their number, bytes of a row in all values, stages, threads, operations per
    byte, the `least` rows of a block.

    `tiles` it may be cut into, each with its rows and the share of a row it takes; `places` where
    intermediates may be computed. Some stages are `cells`, elementwise loops, others `sums` of a row; such a
    loop has `length` iterations, of elements of `size` bytes. Stages of windows work `ahead` rows: units
    begin with these, and they are moved from block to block.
    """

    rows: int
    row_bytes: int
    stages: int
    cores: int
    work: float
    least: int = 1
    tiles: Mapping[str, tuple[int, float]] = MappingProxyType(NO_TILES)
    places: tuple[str, ...] = PLACES[:1]
    cells: bool = False
    length: int = 1
    size: int = 8
    sums: int = 0
    ahead: int = 0


def row_space(row_pass: RowPass, height: int, units: int, exact: bool, shared: bool) -> Space:
    """Return the space of a pass over rows: heights of blocks and numbers of units.

    It is `exact` if no sum depends on these; if it is not `shared` out in units, each block is one.
    """
    max_height = min(row_pass.rows, max(MAX_BLOCK_BYTES // max(row_pass.row_bytes, 1), height))
    heights = {h for n in BLOCK_HEIGHTS if row_pass.least <= (h := n * HEIGHT_STEP) <= max_height} | {height}
    blocks = ceil(row_pass.rows / min(heights))
    counts = {n for n in UNIT_COUNTS if n <= blocks} | {units}
    knobs = [Knob("height", tuple(sorted(heights)), exact)]
    if shared:
        knobs.append(Knob("units", tuple(sorted(counts)), exact))
    default: dict[str, Value] = {"height": height, "units": units, **NEST_DEFAULTS}
    if len(row_pass.tiles) > 1:
        knobs += [Knob(TILE, tuple(row_pass.tiles)), Knob(ORDER, ORDERS)]
    if len(row_pass.places) > 1:
        knobs.append(Knob(PLACE, row_pass.places))

    def legal(values: Values) -> bool:
        if is_nest(values):
            return _is_plain_nest(values, default)
        return int(values.get("units", 1)) <= ceil(row_pass.rows / int(values["height"]))

    if row_pass.cells:
        knobs += [Knob(name, choices) for name, choices in STAGE_KNOBS.items()]
        default |= {name: choices[0] for name, choices in STAGE_KNOBS.items()}
    return Space(tuple(knobs), tuple(k.choices.index(default[k.name]) for k in knobs), legal,
                 lambda v: _estimate(row_pass, v), lambda v: _features(row_pass, default, v))


def _is_plain_nest(values: Values, default: Values) -> bool:
    """Return whether the knobs make a nest, with all knobs it ignores at their defaults."""
    if values.get(ORDER, ORDERS[0]) != ORDERS[0] and not values[TILE]:
        return False
    return all(v == default[k] for k, v in values.items() if k not in NEST_DEFAULTS)


def tiles_of(shape: Shape) -> dict[str, tuple[int, float]]:
    """Return the tiles of results of a shape, along the first two axes; the first entry is no tile."""
    tiles = {"": (1, 1.0)}
    if len(shape) < 2:
        return tiles
    widths = TILE_WIDTHS if len(shape) == 2 else TILE_HEIGHTS
    for height in TILE_HEIGHTS:
        for width in widths:
            if height <= shape[0] and 2 * width <= shape[1]:
                text = "x".join(map(str, (height, width, *shape[2:])))
                tiles[text] = height, width / shape[1]
    return tiles


def _block_counts(row_pass: RowPass, values: Values) -> tuple[int, int, int, float]:
    """Return bytes of a block, blocks, units, and the load imbalance of the busiest thread."""
    if tile := str(values.get(TILE, "")):
        height, row_share = row_pass.tiles[tile]
        units = ceil(row_pass.rows / height)
        blocks = units * ceil(1.0 / row_share)
        share = ceil(units / row_pass.cores) / units * min(row_pass.cores, units)
        block = int(height * row_pass.row_bytes * row_share)
        return block, blocks, units, max(share, 1.0) * row_pass.cores / min(row_pass.cores, units)
    height = int(values["height"])
    blocks = ceil(row_pass.rows / height)
    per_unit = ceil(blocks / int(values.get("units", blocks)))
    units = ceil(blocks / per_unit)
    share = ceil(units / row_pass.cores) * per_unit / blocks * min(row_pass.cores, units)
    imbalance = max(share, 1.0) * row_pass.cores / min(row_pass.cores, units)
    return height * row_pass.row_bytes, blocks, units, imbalance


def _estimate(row_pass: RowPass, values: Values) -> float:
    block, blocks, units, waste = _block_counts(row_pass, values)
    price = next((p for limit, p in CACHE_LEVELS if block <= limit), MEMORY_BYTE_COST)
    rows = row_pass.rows + row_pass.ahead * (units + MOVED_ROW_COST * blocks)
    overhead = blocks * row_pass.stages * STAGE_COST_BYTES + units * UNIT_COST_BYTES
    return waste * (rows * row_pass.row_bytes * price + overhead)


def _features(row_pass: RowPass, default: Values, values: Values) -> tuple[float, ...]:
    block, blocks, units, waste = _block_counts(row_pass, values)
    height = int(row_pass.tiles[str(values[TILE])][0]) if values.get(TILE) else int(values["height"])
    total = row_pass.rows * row_pass.row_bytes
    numbers = (total, row_pass.work, row_pass.row_bytes, row_pass.stages, block, blocks, units, waste, height,
               height / int(default["height"]), units / int(default["units"]), total / units,
               row_pass.length, row_pass.size, *_vector_iterations(row_pass, values),
               1.0 + row_pass.ahead / height,
               1.0 + row_pass.ahead * units / row_pass.rows)
    return (*map(_log, numbers), row_pass.sums / row_pass.stages, *_loop_features(values, row_pass.tiles))


def _vector_iterations(row_pass: RowPass, values: Values) -> tuple[float, float]:
    """Return the vector iterations over a row, and the factor of rounding them up."""
    width = VECTOR_BYTES // row_pass.size * int(values.get("unroll", 1))
    width = max(width // (2 if values.get("vector") == "half" else 1), 1)
    iterations = row_pass.length / width
    return iterations, ceil(iterations) / iterations


def _log(number: float) -> float:
    return log2(max(number, 2.0 ** -10))


def _loop_features(values: Values, tiles: Mapping[str, tuple[int, float]]) -> tuple[float, ...]:
    """Return the features of the code of elementwise loops."""
    tile = tiles.get(str(values.get(TILE, "")), (1, 1.0)) if values.get(TILE) else (0, 0.0)
    flags = (values.get("vector") == "half", values.get("stores") == "around", values.get("threads") == 1,
            is_nest(values), values.get(ORDER) == ORDERS[1], *(values.get(PLACE) == p for p in PLACES[1:]))
    return (log2(int(values.get("unroll", 1))), log2(int(values.get("ahead", 0)) + 1),
            log2(int(values.get("sums", 1))), log2(tile[0] + 1), float(tile[1]), *map(float, flags))


class CellPass(NamedTuple):
    """An elementwise loop, or an aggregate of all elements: applicable knobs, bytes moved, operations
    per byte.

    Stores may bypass the caches (`may_stream`), and do so by default if `streams`. `sums` is whether partial
    sums of floats depend on their number; None: there are none. Arrays are split up in `tiles`.
    """

    may_stream: bool
    streams: bool
    unrolls: bool
    sums: bool | None
    cores: int
    moved: int
    work: float
    tiles: Mapping[str, tuple[int, float]] = MappingProxyType(NO_TILES)
    size: int = 8


def cell_space(cells: CellPass) -> Space:
    """Return the space of an elementwise loop."""
    knobs: list[Knob] = []
    default: list[int] = []
    candidates: tuple[tuple[str, tuple[Value, ...], bool, int], ...] = (
        ("stores", STORES, cells.may_stream, int(cells.streams)),
        ("unroll", UNROLL, cells.unrolls, 0),
        ("vector", VECTORS, cells.unrolls, 0),
        ("sums", SUMS, cells.sums is not None, 0),
        ("ahead", PREFETCH_BYTES, cells.unrolls or cells.sums is not None, 0),
        ("threads", (0, 1), cells.cores > 1, 0),
        (TILE, tuple(cells.tiles), len(cells.tiles) > 1, 0),
        (ORDER, ORDERS, len(cells.tiles) > 1, 0))
    for name, choices, applies, default_index in candidates:
        if applies:
            knobs.append(Knob(name, choices, exact=name != "sums" or not cells.sums))
            default.append(default_index)
    default_values = {k.name: k.choices[i] for k, i in zip(knobs, default, strict=True)}

    def legal(values: Values) -> bool:
        return not is_nest(values) or _is_plain_nest(values, default_values)

    return Space(tuple(knobs), tuple(default), legal, None, lambda v: _cell_features(cells, v))


def _cell_features(cells: CellPass, values: Values) -> tuple[float, ...]:
    """Return the features of a pass over rows for a loop without blocks, as one stage."""
    single_threaded = values.get("threads") == 1
    threads = 1 if single_threaded else cells.cores
    numbers = (cells.moved, cells.work, 1, 1, cells.moved / threads, threads, threads,
               cells.cores / threads, 1, 1, 1, cells.moved / threads, cells.moved, cells.size, 1, 1, 1, 1)
    return (*map(_log, numbers), 0.0, *_loop_features(values, cells.tiles))


class ExecutableNest(Protocol):
    """An executable loop nest."""

    @property
    def text(self) -> str:
        """The LLVM IR it was compiled from."""
        ...

    def into(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Run it on its inputs and outputs, by name; return the floating-point flags it raised."""
        ...


class KernelBuilder(Protocol):
    """Compiles kernels for bindings; `cores` are the threads that share one, `tuning` chooses knobs.

    `threads` are those of elementwise loops, 0: the default.
    """

    threads: int
    cores: int
    tuning: ScheduleTuner | None

    def executable(
        self, kernel: Kernel, key: Any, form: Form, schedule: Schedule
    ) -> tuple[Executable, Launch]:
        """Return the machine code of one variant of a kernel, and its launcher."""
        ...

    def nest(self, nest: Nest, steps: Mapping[str, tuple[int, ...]]) -> ExecutableNest:
        """Return the machine code of a loop nest whose inputs and outputs have the strides `steps`."""
        ...

    def assembly(self, text: str) -> str:
        """Return the assembly of the LLVM IR `text` of an executable."""
        ...

    def product(
        self, form: str, dtype: np.dtype, columns: int
    ) -> Callable[[int, int, int, int], bytes]:
        """Return the factory of argument blocks: of rows, their length, strides of rows and vectors."""
        ...

    def wide(self, dtype: np.dtype, fetches: bool) -> Callable[[Tile], bytes]:
        """Return the factory of argument blocks of products with wide matrices; it `fetches` rows."""
        ...

    def pairs(self, dtype: np.dtype, pairs: Pairs) -> Callable[[Pairs], bytes]:
        """Return the factory of argument blocks of products of small matrices with strides `pairs`."""
        ...

    def compressed(
        self, form: str, dtype: np.dtype, index: np.dtype, columns: int
    ) -> Callable[[SparseProduct], bytes]:
        """Return the factory of argument blocks of products over compressed rows."""
        ...

    def rows_block(
        self, scalars: tuple[np.dtype | None, ...], stages: list[BlockStage], combines: list[Combine],
        row_pass: Blocking, nanoseconds: float,
    ) -> Launchable:
        """Return the argument block of a row kernel, and its launcher."""
        ...
