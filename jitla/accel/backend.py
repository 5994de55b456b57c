"""The device as a backend: which layers it takes, and the space of their schedules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import lru_cache
from math import ceil, log2, prod
from typing import Any

import numpy as np

from jitla.accel.isa import AluOp
from jitla.accel.layer import Layer, Step
from jitla.accel.layers_from_hops import (
    INTRINSICS,
    Ready,
    Refused,
    Unit,
    operator_of,
    placed,
    ready,
    units,
)
from jitla.accel.lowering import Job, Stage, assemble, best_tiling
from jitla.accel.matching import Access, Axis, Intrinsic, Loops, Place
from jitla.accel.program import disassemble
from jitla.accel.spec import Memory, Spec
from jitla.accel.tiling import APART, Sizes, Tiling, estimate, fits, held, roofs, sizes, smallest
from jitla.accel.timing_sim import measure
from jitla.accel.trace_view import line_of_time
from jitla.classes import cached_property, dataclass
from jitla.concurrency import relock
from jitla.errors import DeviceError, InternalError
from jitla.fusion import Knob, Layout, Space, Value, Values, all_layouts
from jitla.hops import Hop, Meta, evaluate, leaf, substitute

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


Array = np.ndarray[Any, Any]
KEPT = 32  # programs of a part: for other numbers in their steps
#: What starting a transfer or a program takes, in seconds [assumed: one call of a driver].
LATENCY = 10e-6
SHOWN = 40  # lines of a stream at its beginning and end
TYPICAL_SHIFT = 8  # of a program whose numbers are not known yet


@dataclass(frozen=True, eq=False)
class Device:
    """One machine with the intrinsics it is used by."""

    spec: Spec
    intrinsics: tuple[Intrinsic, ...] = INTRINSICS
    threads: int = 2
    tiles: Callable[[Device, Layer], Tiling | None] = lambda device, layer: None  # that were tuned
    layers: dict[Layer, None] = field(default_factory=dict)  # that were run, without numbers

    @property
    def name(self) -> str:
        """Name of the machine."""
        return self.spec.name

    def units(self, roots: Sequence[Hop]) -> list[Unit]:
        """Return what it can do of a DAG."""
        return [u for u in units(roots, self.spec, self.intrinsics) if self._tiled(u)]

    def _tiled(self, unit: Unit) -> bool:
        try:
            best_tiling(self.spec, typical(unit), self.threads)
        except DeviceError:
            return False
        return True

    def seconds(self, unit: Unit) -> float:
        """Return the simulated time of a unit at the stated clock, without transfers."""
        return self.job([Stage("out", typical(unit), "images")]).seconds + LATENCY

    def job(self, stages: Sequence[Stage]) -> Job:
        """Return the program of stages, each tiled as was tuned, else as is fastest for it alone."""
        return assemble(self.spec, stages, [
            self.tiles(self, s.layer.without_numbers) or best_tiling(self.spec, s.layer, self.threads)
            for s in stages])

    def moving(self, nbytes: int) -> float:
        """Return the seconds in which so many bytes come to the device or leave it."""
        board = self.spec.board
        return LATENCY + nbytes / (board.bus_bits / 8 * board.clock_mhz * 1e6)

    def follows(self, first: Unit, second: Unit) -> bool:
        """Tell whether `second` can read the results of `first` where these lie."""
        return _joins(first, second)

    def rows(self, group: Sequence[Unit], inputs: Sequence[Hop]) -> tuple[bool, ...] | None:
        """Tell of which inputs of a group the rows are those of its result; None if rows meet."""
        return _rows(group, inputs)

    def part(self, group: Sequence[Unit]) -> Part:
        """Return what runs units, each of which but the last is read by later ones only."""
        return Part(self, tuple(group))


def typical(unit: Unit) -> Layer:
    """Return the layer of a unit with numbers that stand for those of its runs."""
    steps: list[Step] = []
    for at, touch in enumerate(unit.touches):
        op = operator_of(touch)
        if touch.access is not None:
            filters = {*unit.fit.dimensions[0], *unit.fit.dimensions[4]}
            form = "channel" if touch.access.axes() <= filters else "full"
            steps.append(Step(op, operand=f"operand{at}", form=form))  # type: ignore[arg-type]
        else:
            steps.append(Step(op, TYPICAL_SHIFT if op is AluOp.SHR else 1))
    return replace(unit.fit.layer, steps=(*unit.fit.layer.steps, *steps),
                   stored=1 if unit.out.meta.dtype.kind == "f" else unit.stored)


# ---------------------------------------------------------------------- layers that follow each other


def _joins(first: Unit, second: Unit) -> bool:
    source = second.fit.sources["images"]
    if first.stored != 1 and first.out.meta.dtype.kind != "f" or len(source.parts) != 1:
        return False
    hop, start = source.parts[0]
    if hop is not first.out or any(start) or first.fit.layer.groups != 1 or second.fit.layer.groups != 1:
        return False
    steps = _steps_of(hop.meta.shape)
    theirs = [_flat(d, steps) for d in source.dimensions]
    axes = first.fit.dimensions

    def step(axis: Axis) -> int:
        return sum(dict(p.by).get(axis, 0) * s for p, s in zip(first.at, steps, strict=True))

    ours = [[(a.extent, step(a)) for a in d] for d in axes]
    if _run([*theirs[1], *theirs[2], *theirs[3]]) != _run([*ours[1], *ours[2], *ours[3]]):
        return False
    return _run(theirs[4]) == _run(ours[4])


def _steps_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1:]) for i in range(len(shape)))


def _flat(loops: Loops, steps: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(n, sum(a * b for a, b in zip(by, steps, strict=True))) for n, by in loops]


def _run(loops: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return loops over memory with those made one that run on into each other."""
    made: list[tuple[int, int]] = []
    for extent, step in loops:
        if extent == 1:
            continue
        if made and made[-1][1] == extent * step:
            made[-1] = made[-1][0] * extent, step
        else:
            made.append((extent, step))
    return made


def _rows(group: Sequence[Unit], inputs: Sequence[Hop]) -> tuple[bool, ...] | None:
    cut: set[Hop] = set()
    whole: set[Hop] = set()
    for unit in group:
        if not unit.at or len(unit.at[0].by) != 1 or unit.at[0] != Place(0, ((unit.at[0].by[0][0], 1),)):
            return None
        axis = unit.at[0].by[0][0]
        reads = [Access(h, at) for h, at in unit.reads()]
        for access in (Access(unit.out, unit.at), *reads):
            if axis not in access.axes():
                whole.add(access.hop)
            elif access.at[0] == unit.at[0] and all(axis not in dict(p.by) for p in access.at[1:]):
                cut.add(access.hop)
            else:
                return None
    if cut & whole or any(h.meta.shape[0] != group[-1].out.meta.shape[0] for h in cut):
        return None
    return tuple(h in cut for h in inputs)


# ---------------------------------------------------------------------- running


class Part:
    """Units of one program that the device runs without going back to the host in between."""

    def __init__(self, device: Device, group: tuple[Unit, ...]) -> None:
        self.device = device
        self.group = group
        self.out = group[-1].out
        made = {u.out for u in group}
        self.inputs = tuple(dict.fromkeys(i for u in group for i in u.inputs if i not in made))
        self.runs = self.refused = 0
        self.last: Job | None = None
        self._jobs: OrderedDict[tuple[Layer, ...], Job] = OrderedDict()
        self._lock = relock()
        own = {h: leaf(i, h.meta, "array" if h.meta.shape else "scalar") for i, h in enumerate(self.inputs)}
        (self._meaning,) = substitute((self.out,), own)

    @property
    def meta(self) -> Meta:
        """What the result is."""
        return self.out.meta

    @property
    def seconds(self) -> float:
        """Predicted time, transfers too: simulated cycles at the stated clock."""
        return self.cycles / (self.device.spec.board.clock_mhz * 1e6) + self.transfer

    @property
    def cycles(self) -> int:
        """Simulated cycles for typical numbers."""
        return self.example.timing.cycles

    @cached_property
    def transfer(self) -> float:
        """Predicted seconds for bringing operands and fetching the result."""
        return sum(self.device.moving(r.nbytes) for r in self.example.program.regions
                   if r.role in ("input", "output"))

    @cached_property
    def example(self) -> Job:
        """The program for typical numbers."""
        return self.device.job(self._stages([typical(u) for u in self.group]))

    def _stages(self, layers: Sequence[Layer]) -> list[Stage]:
        names = {u.out: f"u{i}" for i, u in enumerate(self.group)}
        return [Stage(f"u{i}", layer, names.get(unit.fit.pixels.hop, f"u{i}.images"))
                for i, (unit, layer) in enumerate(zip(self.group, layers, strict=True))]

    def __call__(self, *given: Any) -> Array:
        """Return the result for values of the inputs; NumPy's where the device has no such numbers."""
        values = dict(zip(self.inputs, given, strict=True))
        if any(np.shape(v) != h.meta.shape for h, v in values.items()):
            raise InternalError(f"{self!r} is made for other sizes")
        made = {u.out for u in self.group}
        try:
            found = [ready(u, values, self.device.spec, u.fit.pixels.hop in made) for u in self.group]
            done = self._run(found)
        except (Refused, DeviceError):
            self.refused += 1
            return self.by_numpy(*given)
        self.runs += 1
        out = self._empty(given)
        placed(self.group[-1], done, out)
        return out

    def _run(self, found: Sequence[Ready]) -> Array:
        layers = tuple(r.layer for r in found)
        with self._lock:
            made = self._jobs.get(layers)
            if made is None:
                made = self.device.job(self._stages(layers))
                self.device.layers.update((layer.without_numbers, None) for layer in layers)
                self._jobs[layers] = made
                while len(self._jobs) > KEPT:
                    self._jobs.popitem(last=False)
        self.last = made
        arrays = {f"u{i}.{name}": array for i, r in enumerate(found) for name, array in r.arrays.items()}
        return made.run(arrays)

    def by_numpy(self, *given: Any) -> Array:
        """Return the result as NumPy computes it."""
        result: Array = evaluate((self._meaning,), given)[0]
        return result

    def _empty(self, given: Sequence[Any]) -> Array:
        """Return an array for the result that lies as NumPy's would."""
        places = {i: Layout(x.shape, x.strides) for i, x in enumerate(given) if isinstance(x, np.ndarray)}
        strides = all_layouts((self._meaning,), places)[self._meaning].strides
        return np.ndarray(self.meta.shape, self.meta.dtype, strides=strides)

    def text(self) -> str:
        """Say what the device does: transfers, cycles, tiles, time line, stream."""
        made = self.last or self.example
        micro = made.kernels
        lines = [repr(self), f"transfers {made.moved()} bytes, {self.transfer * 1e6:.4g} us",
                 str(made.timing)]
        for stage, tiling in zip(made.stages, made.tilings, strict=True):
            lines.append(f"{stage.name}: tiles of {tiling.images} x {tiling.rows} x {tiling.columns} places, "
                         f"{tiling.filters} blocks of filters, {tiling.channels} of channels, "
                         f"{tiling.threads} threads")
            if stage.layer.mode == "product":
                unit, bus = roofs(stage.layer, self.device.spec)
                bound = "the bus" if bus < unit else "its unit"
                lines.append(f"{stage.name}: the array could be used {unit:.1%} for what is done beside "
                             f"products, {bus:.1%} for the bytes; bound by {bound}")
        lines.append(f"micro-ops {micro.uops}; sets of them asked for {micro.asked} times, "
                     f"{micro.found} there already")
        stream = disassemble(made.program).splitlines()
        first = next(i for i, line in enumerate(stream) if line.startswith(" "))
        lines += [*line_of_time(made.timing), *_ends(stream[:first], SHOWN // 4)]
        lines += _ends(stream[first:], SHOWN)
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"{self.device.name}: " + "; ".join(u.name for u in self.group)


def _ends(lines: list[str], shown: int) -> list[str]:
    """Return lines without the middle of a long text."""
    if len(lines) <= 2 * shown:
        return lines
    return [*lines[:shown], f"... {len(lines) - 2 * shown} lines ...", *lines[-shown:]]
