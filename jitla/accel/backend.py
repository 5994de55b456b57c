"""The device backend: the layers that it accepts, their tiling spaces, and running them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import lru_cache
from math import ceil, log2, prod
from typing import Any

import numpy as np

from jitla.accel.isa import AluOp
from jitla.accel.layer import (
    MIN_ACCUMULATOR_DISTANCE,
    BlockCounts,
    EpilogueOp,
    Layer,
    Tiling,
    block_counts,
    estimated_cycles,
    fits,
    piece_elements,
    smallest_tile,
    utilisation_bounds,
)
from jitla.accel.layers_from_hops import (
    INTRINSICS,
    MatchedLayer,
    PreparedLayer,
    UnsupportedValues,
    alu_op_of,
    match_layers,
    prepare,
    write_results,
)
from jitla.accel.lowering import LayerProgram, LayerStage, assemble, best_tiling
from jitla.accel.matching import AffineAccess, AffineIndex, Axis, Loops, TensorIntrinsic
from jitla.accel.program import disassemble
from jitla.accel.spec import AccelSpec, Memory
from jitla.accel.timing_sim import measure, text_timeline
from jitla.classes import cached_property, dataclass
from jitla.concurrency import fork_safe_lock
from jitla.errors import DeviceError, InternalError
from jitla.fusion import Knob, Layout, Space, Value, Values, all_layouts
from jitla.hops import Hop, Meta, evaluate, leaf, substitute

STAY_CHOICES = ("weights", "pixels")
MAX_TILES = 256  # more would be so small that instruction overhead dominates


def knobs(layer: Layer, spec: AccelSpec, threads: int = 2) -> Space:
    """Return the tiling space of a layer; its default is the untuned tiling."""
    counts = block_counts(layer, spec)
    default = best_tiling(spec, layer, threads)
    depth = counts.channels if layer.mode == "product" else 1
    all_knobs = (
        Knob("images", _part_sizes(layer.images, default.images)),
        Knob("rows", _part_sizes(layer.rows.outputs, default.rows)),
        Knob("columns", _part_sizes(layer.columns.outputs, default.columns)),
        Knob("filters", _part_sizes(counts.filters, default.filters)),
        Knob("channels", _part_sizes(depth, default.channels)),
        Knob("threads", tuple(sorted({1, 2, threads}))),
        Knob("stay", STAY_CHOICES),
    )
    values = tiling_values(default)
    return Space(
        all_knobs, tuple(k.choices.index(values[k.name]) for k in all_knobs),
        legal=lambda v: _is_legal(to_tiling(v), layer, counts, spec),
        estimate=lambda v: estimated_cycles(to_tiling(v), layer, counts, spec),
        traits=lambda v: _traits(to_tiling(v), layer, counts, spec))


def tiling_values(tiling: Tiling) -> dict[str, Value]:
    """Return a tiling as knob values."""
    return {"images": tiling.images, "rows": tiling.rows, "columns": tiling.columns,
            "filters": tiling.filters, "channels": tiling.channels, "threads": tiling.threads,
            "stay": tiling.stay}


def to_tiling(values: Values) -> Tiling:
    """Return the tiling of knob values."""
    images, rows, columns, filters, channels, threads = (int(values[k]) for k in (
        "images", "rows", "columns", "filters", "channels", "threads"))
    return Tiling(images, rows, columns, filters, channels, threads, str(values["stay"]))


@lru_cache(maxsize=8192)
def cycles(layer: Layer, spec: AccelSpec, tiling: Tiling) -> int | None:
    """Return the simulated cycles of a tiled layer; None if it cannot be lowered."""
    try:
        return measure(assemble(spec, [LayerStage("out", layer, "images")], [tiling]).program).cycles
    except DeviceError:
        return None


def _part_sizes(total: int, default: int) -> tuple[int, ...]:
    """Return the part sizes of 1, 2, 4, ... parts, and the default one."""
    sizes = {default, 1}
    parts = 1
    while parts < total:
        sizes.add(-(-total // parts))
        parts *= 2
    return tuple(sorted(sizes))


def _is_legal(tiling: Tiling, layer: Layer, counts: BlockCounts, spec: AccelSpec) -> bool:
    """Return whether a tiling fits into the memories, has contiguous tiles, and is not too fine."""
    rows, columns = layer.rows.outputs, layer.columns.outputs
    if tiling.images > 1 and (tiling.rows < rows or tiling.columns < columns):
        return False
    if layer.mode != "product" and tiling.channels != 1:
        return False
    return fits(tiling, layer, counts, spec) and \
        smallest_tile(tiling, layer, counts) >= MIN_ACCUMULATOR_DISTANCE and \
        _tile_count(tiling, layer, counts) <= MAX_TILES


def _tile_count(tiling: Tiling, layer: Layer, counts: BlockCounts) -> int:
    pieces = ceil(counts.channels / tiling.channels) if layer.mode == "product" else 1
    return pieces * prod(ceil(total / limit) for total, limit in (
        (layer.images, tiling.images), (layer.rows.outputs, tiling.rows),
        (layer.columns.outputs, tiling.columns), (counts.filters, tiling.filters)))


def _traits(tiling: Tiling, layer: Layer, counts: BlockCounts, spec: AccelSpec) -> tuple[float, ...]:
    """Return structural features, comparable between layers: use of memories, cuts, reloads, run lengths."""
    depth = {m: spec.element(m).depth // tiling.threads for m in (Memory.INP, Memory.WGT, Memory.ACC)}
    pixels, weights = piece_elements(tiling, layer)
    positions = tiling.images * tiling.rows * tiling.columns
    occupancy = (pixels / depth[Memory.INP], weights / depth[Memory.WGT],
            tiling.filters * positions * counts.copies / depth[Memory.ACC])
    cuts = [ceil(a / b) for a, b in ((layer.rows.outputs, tiling.rows),
                                     (layer.columns.outputs, tiling.columns),
                                     (counts.filters, tiling.filters), (counts.channels, tiling.channels))]
    read = layer.rows.span(tiling.rows) * layer.columns.span(tiling.columns)
    overlap = read / max(tiling.rows * layer.rows.stride * tiling.columns * layer.columns.stride, 1)
    tiles = _tile_count(tiling, layer, counts)
    waste = ceil(tiles / tiling.threads) * tiling.threads / tiles
    row_length = layer.columns.span(tiling.columns)
    numbers = (*occupancy, *cuts, overlap, tiles, waste, row_length, positions, tiling.channels,
               tiling.filters)
    return (*(log2(max(n, 1e-6)) for n in numbers), float(tiling.threads), float(tiling.stay == "weights"))


Array = np.ndarray[Any, Any]
MAX_PROGRAMS = 32  # per part: programs differ in the immediates of their steps
#: Overhead of starting a transfer or a program [assumed: one driver call].
LATENCY_SECONDS = 10e-6
SHOWN_LINES = 40  # lines of a stream shown at its beginning and end
TYPICAL_SHIFT = 8  # for programs whose immediates are not known yet


@dataclass(frozen=True, eq=False)
class Device:
    """An accelerator with its intrinsics and tuned tilings, as a target for offloading."""

    spec: AccelSpec
    intrinsics: tuple[TensorIntrinsic, ...] = INTRINSICS
    threads: int = 2
    tiles: Callable[[Device, Layer], Tiling | None] = lambda device, layer: None  # tuned tilings
    layers: dict[Layer, None] = field(default_factory=dict)  # layers that ran, without immediates

    @property
    def name(self) -> str:
        """Name of the machine."""
        return self.spec.name

    def units(self, roots: Sequence[Hop]) -> list[MatchedLayer]:
        """Return the parts of a DAG that it can compute, as layers."""
        return [u for u in match_layers(roots, self.spec, self.intrinsics) if self._tiled(u)]

    def _tiled(self, unit: MatchedLayer) -> bool:
        try:
            best_tiling(self.spec, typical_layer(unit), self.threads)
        except DeviceError:
            return False
        return True

    def seconds(self, unit: MatchedLayer) -> float:
        """Return the simulated seconds of a layer, without transfers."""
        return self.program_of([LayerStage("out", typical_layer(unit), "images")]).seconds + LATENCY_SECONDS

    def program_of(self, stages: Sequence[LayerStage]) -> LayerProgram:
        """Return the program of stages, each with its tuned tiling, or the fastest for it alone."""
        return assemble(self.spec, stages, [
            self.tiles(self, s.layer.without_numbers) or best_tiling(self.spec, s.layer, self.threads)
            for s in stages])

    def moving(self, nbytes: int) -> float:
        """Return the seconds to transfer `nbytes` to or from the device."""
        board = self.spec.board
        return LATENCY_SECONDS + nbytes / (board.bus_bits / 8 * board.clock_mhz * 1e6)

    def follows(self, first: MatchedLayer, second: MatchedLayer) -> bool:
        """Return whether `second` can read the results of `first` in device memory without a new layout."""
        return _reads_in_place(first, second)

    def rows(self, group: Sequence[MatchedLayer], inputs: Sequence[Hop]) -> tuple[bool, ...] | None:
        """Return which inputs of a group are split by rows with its result; None if rows interact."""
        return _row_parallel_inputs(group, inputs)

    def part(self, group: Sequence[MatchedLayer]) -> OffloadedPart:
        """Return the offloaded part of layers; results of all but the last are only read within the group."""
        return OffloadedPart(self, tuple(group))


def typical_layer(unit: MatchedLayer) -> Layer:
    """Return the layer with placeholder immediates, to estimate programs before values are known."""
    steps: list[EpilogueOp] = []
    for number, step in enumerate(unit.epilogue):
        op = alu_op_of(step)
        if step.access is not None:
            filters = {*unit.fit.dimensions[0], *unit.fit.dimensions[4]}
            form = "channel" if step.access.axes() <= filters else "full"
            steps.append(EpilogueOp(op, operand=f"operand{number}", form=form))  # type: ignore[arg-type]
        else:
            steps.append(EpilogueOp(op, TYPICAL_SHIFT if op is AluOp.SHR else 1))
    return replace(unit.fit.layer, steps=(*unit.fit.layer.steps, *steps),
                   stored=1 if unit.out.meta.dtype.kind == "f" else unit.stored)


# ---------------------------------------------------------------------- layers that follow each other


def _reads_in_place(first: MatchedLayer, second: MatchedLayer) -> bool:
    source = second.fit.sources["images"]
    if first.stored != 1 and first.out.meta.dtype.kind != "f" or len(source.parts) != 1:
        return False
    hop, start = source.parts[0]
    if hop is not first.out or any(start) or first.fit.layer.groups != 1 or second.fit.layer.groups != 1:
        return False
    steps = _element_strides(hop.meta.shape)
    input_loops = [_flat_loops(d, steps) for d in source.dimensions]
    axes = first.fit.dimensions

    def step(axis: Axis) -> int:
        return sum(dict(p.by).get(axis, 0) * s for p, s in zip(first.at, steps, strict=True))

    output_loops = [[(a.extent, step(a)) for a in d] for d in axes]
    inputs, outputs = ([*x[1], *x[2], *x[3]] for x in (input_loops, output_loops))
    if _merge_loops(inputs) != _merge_loops(outputs):
        return False
    return _merge_loops(input_loops[4]) == _merge_loops(output_loops[4])


def _element_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1:]) for i in range(len(shape)))


def _flat_loops(loops: Loops, steps: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(n, sum(a * b for a, b in zip(by, steps, strict=True))) for n, by in loops]


def _merge_loops(loops: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge nested loops over memory that are contiguous."""
    merged: list[tuple[int, int]] = []
    for extent, step in loops:
        if extent == 1:
            continue
        if merged and merged[-1][1] == extent * step:
            merged[-1] = merged[-1][0] * extent, step
        else:
            merged.append((extent, step))
    return merged


def _row_parallel_inputs(group: Sequence[MatchedLayer], inputs: Sequence[Hop]) -> tuple[bool, ...] | None:
    split: set[Hop] = set()
    shared: set[Hop] = set()
    for unit in group:
        if not unit.at or len(unit.at[0].by) != 1 or \
                unit.at[0] != AffineIndex(0, ((unit.at[0].by[0][0], 1),)):
            return None
        axis = unit.at[0].by[0][0]
        reads = [AffineAccess(h, at) for h, at in unit.reads()]
        for access in (AffineAccess(unit.out, unit.at), *reads):
            if axis not in access.axes():
                shared.add(access.hop)
            elif access.at[0] == unit.at[0] and all(axis not in dict(p.by) for p in access.at[1:]):
                split.add(access.hop)
            else:
                return None
    if split & shared or any(h.meta.shape[0] != group[-1].out.meta.shape[0] for h in split):
        return None
    return tuple(h in split for h in inputs)


# ---------------------------------------------------------------------- running


class OffloadedPart:
    """Layers that the device runs as one program, without returning to the host in between."""

    def __init__(self, device: Device, group: tuple[MatchedLayer, ...]) -> None:
        self.device = device
        self.group = group
        self.out = group[-1].out
        results = {u.out for u in group}
        self.inputs = tuple(dict.fromkeys(i for u in group for i in u.inputs if i not in results))
        self.runs = self.refused = 0
        self.last: LayerProgram | None = None
        self._jobs: OrderedDict[tuple[Layer, ...], LayerProgram] = OrderedDict()
        self._lock = fork_safe_lock()
        leaves = {h: leaf(i, h.meta, "array" if h.meta.shape else "scalar")
                  for i, h in enumerate(self.inputs)}
        (self._expression,) = substitute((self.out,), leaves)

    @property
    def meta(self) -> Meta:
        """The shape and dtype of the result."""
        return self.out.meta

    @property
    def seconds(self) -> float:
        """Predicted seconds: simulated cycles at the board's clock, and transfers."""
        return self.cycles / (self.device.spec.board.clock_mhz * 1e6) + self.transfer

    @property
    def cycles(self) -> int:
        """Simulated cycles with placeholder immediates."""
        return self.typical_program.timing.cycles

    @cached_property
    def transfer(self) -> float:
        """Predicted seconds of transfers of operands and the result."""
        return sum(self.device.moving(r.nbytes) for r in self.typical_program.program.regions
                   if r.role in ("input", "output"))

    @cached_property
    def typical_program(self) -> LayerProgram:
        """The program with placeholder immediates."""
        return self.device.program_of(self._stages([typical_layer(u) for u in self.group]))

    def _stages(self, layers: Sequence[Layer]) -> list[LayerStage]:
        names = {u.out: f"u{i}" for i, u in enumerate(self.group)}
        return [LayerStage(f"u{i}", layer, names.get(unit.fit.pixels.hop, f"u{i}.images"))
                for i, (unit, layer) in enumerate(zip(self.group, layers, strict=True))]

    def __call__(self, *arguments: Any) -> Array:
        """Return the result for input values; falls back to NumPy if the device cannot represent them."""
        values = dict(zip(self.inputs, arguments, strict=True))
        if any(np.shape(v) != h.meta.shape for h, v in values.items()):
            raise InternalError(f"{self!r} is compiled for other sizes")
        results = {u.out for u in self.group}
        try:
            prepared = [prepare(u, values, self.device.spec, u.fit.pixels.hop in results) for u in self.group]
            result = self._run(prepared)
        except (UnsupportedValues, DeviceError):
            self.refused += 1
            return self.by_numpy(*arguments)
        self.runs += 1
        out = self._empty_result(arguments)
        write_results(self.group[-1], result, out)
        return out

    def _run(self, prepared: Sequence[PreparedLayer]) -> Array:
        layers = tuple(r.layer for r in prepared)
        with self._lock:
            program = self._jobs.get(layers)
            if program is None:
                program = self.device.program_of(self._stages(layers))
                self.device.layers.update((layer.without_numbers, None) for layer in layers)
                self._jobs[layers] = program
                while len(self._jobs) > MAX_PROGRAMS:
                    self._jobs.popitem(last=False)
        self.last = program
        arrays = {f"u{i}.{name}": array for i, r in enumerate(prepared) for name, array in r.arrays.items()}
        return program.run(arrays)

    def by_numpy(self, *arguments: Any) -> Array:
        """Compute the result by NumPy."""
        result: Array = evaluate((self._expression,), arguments)[0]
        return result

    def _empty_result(self, arguments: Sequence[Any]) -> Array:
        """Return an uninitialised result array with NumPy's memory layout."""
        layouts = {i: Layout(x.shape, x.strides) for i, x in enumerate(arguments)
                   if isinstance(x, np.ndarray)}
        strides = all_layouts((self._expression,), layouts)[self._expression].strides
        return np.ndarray(self.meta.shape, self.meta.dtype, strides=strides)

    def text(self) -> str:
        """Describe the program: transfers, cycles, tilings, timeline and instruction stream."""
        program = self.last or self.typical_program
        uops = program.uop_statistics
        lines = [repr(self), f"transfers {program.host_bytes()} bytes, {self.transfer * 1e6:.4g} us",
                 str(program.timing)]
        for stage, tiling in zip(program.stages, program.tilings, strict=True):
            lines.append(f"{stage.name}: tiles of {tiling.images} x {tiling.rows} x {tiling.columns} places, "
                         f"{tiling.filters} blocks of filters, {tiling.channels} of channels, "
                         f"{tiling.threads} threads")
            if stage.layer.mode == "product":
                unit, bus = utilisation_bounds(stage.layer, self.device.spec)
                bound = "the bus" if bus < unit else "its unit"
                lines.append(f"{stage.name}: the array could be used {unit:.1%} for what is done beside "
                             f"products, {bus:.1%} for the bytes; bound by {bound}")
        lines.append(f"micro-ops {uops.uops}; sets of them: {uops.requests} requests, "
                     f"{uops.hits} hits")
        stream = disassemble(program.program).splitlines()
        first = next(i for i, line in enumerate(stream) if line.startswith(" "))
        lines += [*text_timeline(program.timing), *_without_middle(stream[:first], SHOWN_LINES // 4)]
        lines += _without_middle(stream[first:], SHOWN_LINES)
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"{self.device.name}: " + "; ".join(u.name for u in self.group)


def _without_middle(lines: list[str], shown: int) -> list[str]:
    """Return the first and last lines of a long text."""
    if len(lines) <= 2 * shown:
        return lines
    return [*lines[:shown], f"... {len(lines) - 2 * shown} lines ...", *lines[-shown:]]
