"""What may be chosen about a bound kernel, and the name under which choices are remembered.

Knows: blocks of rows, stores, how kernels are named whatever process they are in. Must not know: who
chooses, machine code. Receives kernels bound to sizes; returns spaces and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from math import ceil, log2
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from jitla.fusion import (
    Form,
    Geometry,
    Kernel,
    Knob,
    Layout,
    RowKernel,
    Schedule,
    Space,
    Value,
    Values,
    WindowKernel,
    contiguous,
    crosswise,
)
from jitla.hops import Hop, Kind, Shape

Launch = Callable[..., int]
Made = tuple[bytes, Launch]  # an argument block, and what runs it
UNTUNED: Values = MappingProxyType({})
# Chosen instead of other knobs: lines of primitives by which the kernel is run as a nest, and sizes of tiles.
LOOPS, TILE = "loops", "tile"
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
STAGE, UNIT = 2000.0, 4000.0  # bytes that could be moved while a stage is begun, and a unit is handed out


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


NO_TILES: dict[str, tuple[int, float]] = {"": (1, 1.0)}


class Rows(NamedTuple):
    """A pass over rows: how many, bytes of one in all values, stages, threads, the `least` of a block.

    `tiles` that it may be cut into, each with its rows and the part of a row that it takes. Some stages are
    `cells`, loops over elements.
    """

    rows: int
    each: int
    stages: int
    cores: int
    least: int = 1
    tiles: Mapping[str, tuple[int, float]] = MappingProxyType(NO_TILES)
    cells: bool = False


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
    default: dict[str, Value] = {"height": height, "units": units, TILE: ""}
    if len(cut.tiles) > 1:
        knobs.append(Knob(TILE, tuple(cut.tiles)))

    def legal(values: Values) -> bool:
        if values.get(TILE):
            return all(values[k.name] == default[k.name] for k in knobs if k.name != TILE)
        return int(values.get("units", 1)) <= ceil(cut.rows / int(values["height"]))

    if cut.cells:
        knobs += [Knob(name, choices) for name, choices in STAGES.items()]
        default |= {name: choices[0] for name, choices in STAGES.items()}
    return Space(tuple(knobs), tuple(k.choices.index(default[k.name]) for k in knobs), legal,
                 lambda v: _estimate(cut, v), lambda v: _traits(cut, v))


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
    return waste * (cut.rows * cut.each * price + blocks * cut.stages * STAGE + units * UNIT)


def _traits(cut: Rows, values: Values) -> tuple[float, ...]:
    block, blocks, units, waste = _facts(cut, values)
    numbers = (block, blocks, units, waste, cut.each, int(values["height"]), cut.rows * cut.each)
    return (*(log2(max(n, 1e-6)) for n in numbers), float(cut.stages), *_loop_traits(values))


def _loop_traits(values: Values) -> tuple[float, ...]:
    """Return numbers that say how a loop over elements is written."""
    return (log2(int(values.get("unroll", 1))), float(values.get("vector") == "half"),
            log2(int(values.get("ahead", 0)) + 1))


def as_chosen(values: Values, schedule: Schedule) -> Schedule:
    """Return how a loop over elements is run if its vectors and fetches are as chosen."""
    return replace(schedule, unroll=int(values.get("unroll", schedule.unroll)),
                   part=2 if values.get("vector") == "half" else 1, ahead=int(values.get("ahead", 0)))


def short_rows(kernel: Kernel, form: Form, geometry: Geometry) -> bool:
    """Say whether a kernel walks over rows of so few elements that several should share a vector."""
    return 1 < geometry.dims[-1] <= crosswise(kernel, form)


class Cells(NamedTuple):
    """A loop over elements, or an aggregate of all: what may be chosen of it, and the bytes it moves.

    Results may go around the caches (`streams`), and do so untuned if `around`. `sums` is whether partial
    sums of floats depend on how many there are; None: there are none. Vectors are split up in `tiles`.
    """

    streams: bool
    around: bool
    unrolls: bool
    sums: bool | None
    cores: int
    moved: int
    tiles: Mapping[str, tuple[int, float]] = MappingProxyType(NO_TILES)


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
        (TILE, tuple(cells.tiles), len(cells.tiles) > 1, 0))
    for name, choices, there, usual in every:
        if there:
            knobs.append(Knob(name, choices, exact=name != "sums" or not cells.sums))
            default.append(usual)
    usual_values = {k.name: k.choices[i] for k, i in zip(knobs, default, strict=True)}

    def legal(values: Values) -> bool:
        """Tell whether a tile is chosen alone, as others then mean nothing."""
        return not values.get(TILE) or all(v == usual_values[k] for k, v in values.items() if k != TILE)

    return Space(tuple(knobs), tuple(default), legal, None, lambda v: _cell_traits(cells, v))


def _cell_traits(cells: Cells, values: Values) -> tuple[float, ...]:
    tile = cells.tiles.get(str(values.get(TILE, "")), (0, 0.0))
    return (log2(max(cells.moved, 1)), float(values.get("stores") == "around"), *_loop_traits(values),
            log2(int(values.get("sums", 1))), float(values.get("threads") == 1), log2(tile[0] + 1), tile[1])
