"""Layers as one program: where everything lies in DRAM, which tilings, and how arrays get there and back.

Knows: layouts in DRAM, simulated cycles. Must not know: NumPy programs, tiles' insides.
Receives a machine and layers that read each other's results; returns a `Job`, which runs on arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jitla.accel.cycles import measure
from jitla.accel.functional import run
from jitla.accel.layer import Layer
from jitla.accel.lower import lower
from jitla.accel.program import Layout, Program, Region
from jitla.accel.spec import Memory, Spec
from jitla.accel.stream import Kernels, Stream
from jitla.accel.tiling import Tiling, sizes, tilings
from jitla.accel.timing import Timing
from jitla.classes import cached_property, dataclass
from jitla.errors import DeviceError

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
