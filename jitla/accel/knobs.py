"""What may be chosen about a layer: the knobs of its tiling, and simulated cycles of each choice.

Knows: tilings, what they are estimated to take, the simulator. Must not know: how choices are searched.
Receives a layer and a machine; returns a space, and cycles of its points.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log2, prod

from jitla.accel.assemble import Stage, assemble, best_tiling
from jitla.accel.cycles import measure
from jitla.accel.layer import Layer
from jitla.accel.spec import Memory, Spec
from jitla.accel.tiling import Sizes, Tiling, estimate, fits, held, sizes, smallest
from jitla.accel.walk import APART
from jitla.errors import DeviceError
from jitla.fusion import Knob, Space, Value, Values

STAY = ("weights", "pixels")
MOST_TILES = 256  # of more, each is so small that instructions take longer than what they do


def knobs(layer: Layer, spec: Spec, threads: int = 2) -> Space:
    """Return the space of tilings of a layer; its default is what is chosen untuned."""
    made = sizes(layer, spec)
    usual = best_tiling(spec, layer, threads)
    depth = made.channels if layer.mode == "product" else 1
    every = (
        Knob("images", _parts(layer.images, usual.images)),
        Knob("rows", _parts(layer.rows.outputs, usual.rows)),
        Knob("columns", _parts(layer.columns.outputs, usual.columns)),
        Knob("filters", _parts(made.filters, usual.filters)),
        Knob("channels", _parts(depth, usual.channels)),
        Knob("threads", tuple(sorted({1, 2, threads}))),
        Knob("stay", STAY),
    )
    values = of_tiling(usual)
    return Space(
        every, tuple(k.choices.index(values[k.name]) for k in every),
        legal=lambda v: _is_legal(to_tiling(v), layer, made, spec),
        estimate=lambda v: estimate(to_tiling(v), layer, made, spec),
        traits=lambda v: _traits(to_tiling(v), layer, made, spec))


def of_tiling(tiling: Tiling) -> dict[str, Value]:
    """Return the choices that make a tiling."""
    return {"images": tiling.images, "rows": tiling.rows, "columns": tiling.columns,
            "filters": tiling.filters, "channels": tiling.channels, "threads": tiling.threads,
            "stay": tiling.stay}


def to_tiling(values: Values) -> Tiling:
    """Return the tiling of choices."""
    images, rows, columns, filters, channels, threads = (int(values[k]) for k in (
        "images", "rows", "columns", "filters", "channels", "threads"))
    return Tiling(images, rows, columns, filters, channels, threads, str(values["stay"]))


@lru_cache(maxsize=8192)
def cycles(layer: Layer, spec: Spec, tiling: Tiling) -> int | None:
    """Return the simulated cycles of a layer cut like this; None if the machine has no program for it."""
    try:
        return measure(assemble(spec, [Stage("out", layer, "images")], [tiling]).program).cycles
    except DeviceError:
        return None


def _parts(total: int, usual: int) -> tuple[int, ...]:
    """Return the sizes of one part, two, four, and so on, and the one that is usual."""
    found = {usual, 1}
    parts = 1
    while parts < total:
        found.add(-(-total // parts))
        parts *= 2
    return tuple(sorted(found))


def _is_legal(tiling: Tiling, layer: Layer, made: Sizes, spec: Spec) -> bool:
    """Tell whether a tiling has room, is one run of places, and is not cut far too small."""
    rows, columns = layer.rows.outputs, layer.columns.outputs
    if tiling.images > 1 and (tiling.rows < rows or tiling.columns < columns):
        return False
    if layer.mode != "product" and tiling.channels != 1:
        return False
    return fits(tiling, layer, made, spec) and smallest(tiling, layer, made) >= APART and \
        _tiles(tiling, layer, made) <= MOST_TILES


def _tiles(tiling: Tiling, layer: Layer, made: Sizes) -> int:
    pieces = ceil(made.channels / tiling.channels) if layer.mode == "product" else 1
    return pieces * prod(ceil(total / most) for total, most in (
        (layer.images, tiling.images), (layer.rows.outputs, tiling.rows),
        (layer.columns.outputs, tiling.columns), (made.filters, tiling.filters)))


def _traits(tiling: Tiling, layer: Layer, made: Sizes, spec: Spec) -> tuple[float, ...]:
    """Return numbers that mean the same for every layer: how full memories are, how often things move."""
    depth = {m: spec.element(m).depth // tiling.threads for m in (Memory.INP, Memory.WGT, Memory.ACC)}
    pixels, weights = held(tiling, layer)
    places = tiling.images * tiling.rows * tiling.columns
    full = (pixels / depth[Memory.INP], weights / depth[Memory.WGT],
            tiling.filters * places * made.copies / depth[Memory.ACC])
    cuts = [ceil(a / b) for a, b in ((layer.rows.outputs, tiling.rows),
                                     (layer.columns.outputs, tiling.columns),
                                     (made.filters, tiling.filters), (made.channels, tiling.channels))]
    seen = layer.rows.span(tiling.rows) * layer.columns.span(tiling.columns)
    again = seen / max(tiling.rows * layer.rows.stride * tiling.columns * layer.columns.stride, 1)
    tiles = _tiles(tiling, layer, made)
    waste = ceil(tiles / tiling.threads) * tiling.threads / tiles
    run = layer.columns.span(tiling.columns)
    numbers = (*full, *cuts, again, tiles, waste, run, places, tiling.channels, tiling.filters)
    return (*(log2(max(n, 1e-6)) for n in numbers), float(tiling.threads), float(tiling.stay == "weights"))
