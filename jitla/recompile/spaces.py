"""The spaces of schedules that kernels have: blocks, units, tiles, placements, how loops are written.

Knows: bytes of blocks, what NumPy's order of sums leaves open. Must not know: bindings, machine code.
Receives facts about a kernel that is bound; returns its space, with an estimate and traits of its points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, log2
from types import MappingProxyType
from typing import NamedTuple

from jitla.fusion import Knob, Space, Value, Values
from jitla.hops import Hop, Kind, Shape, flops
from jitla.recompile.choices import ORDER, ORDERS, PLACE, PLACES, TILE, is_nest

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
