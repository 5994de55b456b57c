"""Choice of schedules: the spaces of kernels, and what the tuner may ask for."""

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
    Stage,
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
Made = tuple[bytes, Launch]  # an argument block, and what runs it
UNTUNED: Values = MappingProxyType({})
# Chosen instead of other knobs: lines of primitives by which the kernel is run as a nest, or sizes of tiles,
# whether these are walked along rows or down columns, and where what stages pass on is computed.
LOOPS, TILE, ORDER, PLACE = "loops", "tile", "order", "place"
ORDERS, PLACES = ("rows", "columns"), ("block", "inline", "root")


class Key(NamedTuple):
    """A kernel as other processes know it, too, and the sizes it is bound to."""

    kernel: str
    shape: tuple[int, ...]


class Choice(NamedTuple):
    """A bound kernel for whoever chooses: `make` makes its argument block, and what runs it, of choices.

    The last `outputs` operands are results. `make` raises `ScheduleError` if its loops cannot be as chosen.
    `parcel` is what another process makes the same choice of.
    """

    key: Key
    shapes: Mapping[Shape, Shape]
    outputs: int
    space: Callable[[], Space]
    make: Callable[[Values], Made]
    parcel: Callable[[], Any]


class Chosen(NamedTuple):
    """What was chosen for a kernel, who chose that or why it was not possible, and the sizes it is for."""

    values: Values
    said: str
    shapes: Mapping[Shape, Shape]


class Tuning(Protocol):
    """What chooses knobs: what it has `chosen`, and what it has `said` to that."""

    chosen: Mapping[Key, Values]
    said: Mapping[Key, str]

    def block(self, choice: Choice) -> Made:
        """Return what `choice.make` makes of what is chosen."""
        ...


def key_of(
    kernel: Kernel | RowKernel | WindowKernel, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout],
) -> Key:
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
    return Key(sha256(repr(words).encode()).hexdigest()[:24], tuple(sizes))


def _view(view: Hop, number: Mapping[Hop, int]) -> tuple[Any, ...]:
    """Return what is read as a view of which value: a slice between two stages, a matrix turned."""
    return view.op.name, tuple(number.get(i, -1) for i in view.inputs), _attrs(view)


def _attrs(hop: Hop) -> tuple[tuple[str, str], ...]:
    """Return what says how `hop` is done, for any sizes."""
    return tuple((k, str(v)) for k, v in hop.attrs if k not in ("shape", "slot"))


def is_nest(values: Values) -> bool:
    """Tell whether a kernel is run as a nest of loops, if it is chosen like this."""
    return bool(values.get(LOOPS) or values.get(TILE)) or values.get(ORDER, ORDERS[0]) != ORDERS[0] or \
        values.get(PLACE, PLACES[0]) != PLACES[0]


def as_chosen(values: Values, schedule: Schedule) -> Schedule:
    """Return how a loop over elements is run if its vectors and fetches are as chosen."""
    return replace(schedule, unroll=int(values.get("unroll", schedule.unroll)),
                   part=2 if values.get("vector") == "half" else 1, ahead=int(values.get("ahead", 0)))


def short_rows(kernel: Kernel, form: Form, geometry: Geometry) -> bool:
    """Say whether a kernel walks over rows of so few elements that several should share a vector."""
    return 1 < geometry.dims[-1] <= crosswise_limit(kernel, form)


STEP = 8  # rows by which heights differ at least
HEIGHTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
UNITS = tuple(2 ** k for k in range(11))
MOST = 8 << 20  # bytes of a block, which every thread has of its own
TILE_HEIGHTS, TILE_WIDTHS = (8, 16, 32, 64), (256, 512, 1024)
STORES = ("near", "around")
UNROLL = (1, 2, 4, 8)
SUMS = (1, 2, 4)  # times as many partial sums as NumPy has
VECTORS = ("whole", "half")
AHEAD = (0, 256, 1024, 4096)  # bytes, of a loop; of stages on blocks of rows fewer choices
STAGES = {"unroll": (1, 2, 4), "vector": VECTORS, "ahead": (0, 1024)}
LEVELS = ((1 << 20, 1.0), (4 << 20, 1.2))  # bytes of a block, and what a byte costs
FAR = 1.5
BYTES = 32  # of a vector
NESTED: dict[str, Value] = {TILE: "", ORDER: ORDERS[0], PLACE: PLACES[0]}
MOVED = 0.25  # of what a row costs, for one that moves to the next block
STAGE, UNIT = 2000.0, 4000.0  # bytes that could be moved while a stage is begun, and a unit is handed out
NO_TILES: dict[str, tuple[int, float]] = {"": (1, 1.0)}


def work_of(body: Iterable[Hop]) -> float:
    """Return how many operations are done for every byte that is computed."""
    every = [h for h in body if h.op.kind is not Kind.LEAF]
    return sum(map(flops, every)) / max(sum(h.meta.nbytes for h in every), 1)


class Rows(NamedTuple):
    """A pass over rows: how many, bytes of one in all values, stages, threads, operations for a
    byte, the `least` rows of a block.

    `tiles` that it may be cut into, each with its rows and the part of a row that it takes; `places` where
    what stages pass on may be computed. Some stages are `cells`, loops over elements, others `sums` of a row;
    such a loop has `length` turns, of elements of so many bytes (`size`). Stages of windows work so many rows
    `ahead`: units begin with these, and they move from block to block.
    """

    rows: int
    each: int
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


def row_space(cut: Rows, height: int, units: int, exact: bool, shared: bool) -> Space:
    """Return the space of a pass over rows: how high blocks are, how many units are shared out.

    It is `exact` if no sum depends on that; if it is not `shared` out in units, each block is one.
    """
    most = min(cut.rows, max(MOST // max(cut.each, 1), height))
    heights = {h for n in HEIGHTS if cut.least <= (h := n * STEP) <= most} | {height}
    blocks = ceil(cut.rows / min(heights))
    counts = {n for n in UNITS if n <= blocks} | {units}
    knobs = [Knob("height", tuple(sorted(heights)), exact)]
    if shared:
        knobs.append(Knob("units", tuple(sorted(counts)), exact))
    default: dict[str, Value] = {"height": height, "units": units, **NESTED}
    if len(cut.tiles) > 1:
        knobs += [Knob(TILE, tuple(cut.tiles)), Knob(ORDER, ORDERS)]
    if len(cut.places) > 1:
        knobs.append(Knob(PLACE, cut.places))

    def legal(values: Values) -> bool:
        if is_nest(values):
            return _alone(values, default)
        return int(values.get("units", 1)) <= ceil(cut.rows / int(values["height"]))

    if cut.cells:
        knobs += [Knob(name, choices) for name, choices in STAGES.items()]
        default |= {name: choices[0] for name, choices in STAGES.items()}
    return Space(tuple(knobs), tuple(k.choices.index(default[k.name]) for k in knobs), legal,
                 lambda v: _estimate(cut, v), lambda v: _traits(cut, default, v))


def _alone(values: Values, default: Values) -> bool:
    """Tell whether what is chosen makes a nest, of which other knobs, left as they are, say nothing."""
    if values.get(ORDER, ORDERS[0]) != ORDERS[0] and not values[TILE]:
        return False
    return all(v == default[k] for k, v in values.items() if k not in NESTED)


def tiles_of(shape: Shape) -> dict[str, tuple[int, float]]:
    """Return tiles that results of a shape may be cut into, along the first two axes; the first is none."""
    found = {"": (1, 1.0)}
    if len(shape) < 2:
        return found
    widths = TILE_WIDTHS if len(shape) == 2 else TILE_HEIGHTS
    for height in TILE_HEIGHTS:
        for width in widths:
            if height <= shape[0] and 2 * width <= shape[1]:
                text = "x".join(map(str, (height, width, *shape[2:])))
                found[text] = height, width / shape[1]
    return found


def _facts(cut: Rows, values: Values) -> tuple[int, int, int, float]:
    """Return bytes of a block, blocks, units, and how much longer the busiest thread works."""
    if tile := str(values.get(TILE, "")):
        height, part = cut.tiles[tile]
        units = ceil(cut.rows / height)
        blocks = units * ceil(1.0 / part)
        share = ceil(units / cut.cores) / units * min(cut.cores, units)
        block = int(height * cut.each * part)
        return block, blocks, units, max(share, 1.0) * cut.cores / min(cut.cores, units)
    height = int(values["height"])
    blocks = ceil(cut.rows / height)
    per_unit = ceil(blocks / int(values.get("units", blocks)))
    units = ceil(blocks / per_unit)
    share = ceil(units / cut.cores) * per_unit / blocks * min(cut.cores, units)
    return height * cut.each, blocks, units, max(share, 1.0) * cut.cores / min(cut.cores, units)


def _estimate(cut: Rows, values: Values) -> float:
    block, blocks, units, waste = _facts(cut, values)
    price = next((p for most, p in LEVELS if block <= most), FAR)
    rows = cut.rows + cut.ahead * (units + MOVED * blocks)
    return waste * (rows * cut.each * price + blocks * cut.stages * STAGE + units * UNIT)


def _traits(cut: Rows, usual: Values, values: Values) -> tuple[float, ...]:
    block, blocks, units, waste = _facts(cut, values)
    height = int(cut.tiles[str(values[TILE])][0]) if values.get(TILE) else int(values["height"])
    numbers = (cut.rows * cut.each, cut.work, cut.each, cut.stages, block, blocks, units, waste, height,
               height / int(usual["height"]), units / int(usual["units"]), cut.rows * cut.each / units,
               cut.length, cut.size, *_turns(cut, values), 1.0 + cut.ahead / height,
               1.0 + cut.ahead * units / cut.rows)
    return (*map(_log, numbers), cut.sums / cut.stages, *_loop_traits(values, cut.tiles))


def _turns(cut: Rows, values: Values) -> tuple[float, float]:
    """Return how many turns a loop over a row has, and how much longer it is for the last, partly used."""
    width = BYTES // cut.size * int(values.get("unroll", 1))
    width = max(width // (2 if values.get("vector") == "half" else 1), 1)
    turns = cut.length / width
    return turns, ceil(turns) / turns


def _log(number: float) -> float:
    return log2(max(number, 2.0 ** -10))


def _loop_traits(values: Values, tiles: Mapping[str, tuple[int, float]]) -> tuple[float, ...]:
    """Return numbers that say how loops over elements are written."""
    tile = tiles.get(str(values.get(TILE, "")), (1, 1.0)) if values.get(TILE) else (0, 0.0)
    said = (values.get("vector") == "half", values.get("stores") == "around", values.get("threads") == 1,
            is_nest(values), values.get(ORDER) == ORDERS[1], *(values.get(PLACE) == p for p in PLACES[1:]))
    return (log2(int(values.get("unroll", 1))), log2(int(values.get("ahead", 0)) + 1),
            log2(int(values.get("sums", 1))), log2(tile[0] + 1), float(tile[1]), *map(float, said))


class Cells(NamedTuple):
    """A loop over elements, or an aggregate of all: what may be chosen of it, the bytes it
    moves, and operations for a byte.

    Results may go around the caches (`streams`), and do so untuned if `around`. `sums` is whether partial
    sums of floats depend on how many there are; None: there are none. Vectors are split up in `tiles`.
    """

    streams: bool
    around: bool
    unrolls: bool
    sums: bool | None
    cores: int
    moved: int
    work: float
    tiles: Mapping[str, tuple[int, float]] = MappingProxyType(NO_TILES)
    size: int = 8


def cell_space(cells: Cells) -> Space:
    """Return the space of a loop over elements."""
    knobs: list[Knob] = []
    default: list[int] = []
    every: tuple[tuple[str, tuple[Value, ...], bool, int], ...] = (
        ("stores", STORES, cells.streams, int(cells.around)),
        ("unroll", UNROLL, cells.unrolls, 0),
        ("vector", VECTORS, cells.unrolls, 0),
        ("sums", SUMS, cells.sums is not None, 0),
        ("ahead", AHEAD, cells.unrolls or cells.sums is not None, 0),
        ("threads", (0, 1), cells.cores > 1, 0),
        (TILE, tuple(cells.tiles), len(cells.tiles) > 1, 0),
        (ORDER, ORDERS, len(cells.tiles) > 1, 0))
    for name, choices, there, usual in every:
        if there:
            knobs.append(Knob(name, choices, exact=name != "sums" or not cells.sums))
            default.append(usual)
    usual_values = {k.name: k.choices[i] for k, i in zip(knobs, default, strict=True)}

    def legal(values: Values) -> bool:
        return not is_nest(values) or _alone(values, usual_values)

    return Space(tuple(knobs), tuple(default), legal, None, lambda v: _cell_traits(cells, v))


def _cell_traits(cells: Cells, values: Values) -> tuple[float, ...]:
    """Return the numbers of a pass over rows for a loop that has no blocks, all of it in one stage."""
    alone = values.get("threads") == 1
    threads = 1 if alone else cells.cores
    numbers = (cells.moved, cells.work, 1, 1, cells.moved / threads, threads, threads,
               cells.cores / threads, 1, 1, 1, cells.moved / threads, cells.moved, cells.size, 1, 1, 1, 1)
    return (*map(_log, numbers), 0.0, *_loop_traits(values, cells.tiles))


class Nested(Protocol):
    """A loop nest that runs."""

    @property
    def text(self) -> str:
        """What it was made of."""
        ...

    def into(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Run it on its inputs and outputs, by name; return the floating-point flags it raised."""
        ...


class RowTools(Protocol):
    """What binding a kernel asks for; `cores` are the threads that share it, `tuning` chooses knobs.

    `threads` are those of loops over elements, 0: as many as is usual.
    """

    threads: int
    cores: int
    tuning: Tuning | None

    def executable(
        self, kernel: Kernel, key: Any, form: Form, schedule: Schedule
    ) -> tuple[Executable, Launch]:
        """Machine code for one variant of a kernel, and what runs it."""
        ...

    def nest(self, nest: Nest, steps: Mapping[str, tuple[int, ...]]) -> Nested:
        """Machine code for a loop nest, whose inputs and outputs have `steps` as strides."""
        ...

    def assembly(self, text: str) -> str:
        """Return the assembly language that the text of an executable is compiled to."""
        ...

    def product(
        self, form: str, dtype: np.dtype, columns: int
    ) -> Callable[[int, int, int, int], bytes]:
        """Return what makes the argument block for rows, of a length, bytes apart, and of vectors."""
        ...

    def wide(self, dtype: np.dtype, fetches: bool) -> Callable[[Tile], bytes]:
        """Return what makes the argument block of a product with a wide matrix; it `fetches` rows."""
        ...

    def pairs(self, dtype: np.dtype, pairs: Pairs) -> Callable[[Pairs], bytes]:
        """Return what makes the argument block of products of small matrices that lie like `pairs`."""
        ...

    def compressed(
        self, form: str, dtype: np.dtype, index: np.dtype, columns: int
    ) -> Callable[[SparseProduct], bytes]:
        """Return what makes the argument block of a product over compressed rows."""
        ...

    def rows_block(
        self, scalars: tuple[np.dtype | None, ...], stages: list[Stage], combines: list[Combine],
        cut: Blocking, nanoseconds: float,
    ) -> Made:
        """Return the argument block of the whole, and what runs it."""
        ...
