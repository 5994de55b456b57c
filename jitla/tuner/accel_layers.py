"""Accelerator layers: tilings are searched by simulated cycles, recorded, and looked up on compiling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from time import perf_counter

from jitla import accel
from jitla.accel import AccelSpec, Device, Layer, Tiling, to_tiling
from jitla.fusion import Point, Space
from jitla.recompile import KernelKey
from jitla.tuner.kernel_search import TunedKernel
from jitla.tuner.records import Record, Records
from jitla.tuner.search import (
    Settings,
    TuningResult,
    search,
)

__all__ = ["tiling_chooser", "tune_layers"]


def key_of(layer: Layer) -> KernelKey:
    """Return the record key of a layer."""
    return KernelKey("layer " + sha256(repr(layer).encode()).hexdigest()[:18], ())


def target_of(spec: AccelSpec) -> str:
    """Return the record target of an accelerator: its name and a hash of its specification."""
    return f"{spec.name} {sha256(repr(spec).encode()).hexdigest()[:12]}"


def _space(layer: Layer, device: Device, relaxed: bool) -> Space:
    """Return the tiling space of a layer, or only the default if sums of floats must keep their order."""
    space = accel.knobs(layer, device.spec, device.threads)
    if relaxed or not device.spec.is_float:
        return space
    return space.pinned(space.values(space.default))


def tiling_chooser(records: Records, relaxed: bool) -> Callable[[Device, Layer], Tiling | None]:
    """Return a function that returns the recorded tiling of a layer, or None."""
    def choose(device: Device, layer: Layer) -> Tiling | None:
        record = records.best(*key_of(layer), target_of(device.spec))
        if record is None:
            return None
        space = _space(layer, device, relaxed)
        point = space.point(record.config)
        return None if point is None else to_tiling(space.values(point))
    return choose


def tune_layers(device: Device, records: Records, settings: Settings, end: float, relaxed: bool
                 ) -> Iterator[TunedKernel]:
    """Search tilings for the layers that a device has run; simulated cycles need no confirmation."""
    hertz = device.spec.board.clock_mhz * 1e6
    for layer in list(device.layers):
        space, key = _space(layer, device, relaxed), key_of(layer)

        def measure(point: Point, layer: Layer = layer, space: Space = space) -> float | None:
            cycles = accel.cycles(layer, device.spec, to_tiling(space.values(point)))
            return None if cycles is None else cycles / hertz

        default_seconds = measure(space.default)
        if default_seconds is None or len(space.points) < 2 or perf_counter() > end:
            note = "stopped" if perf_counter() > end else "nothing to choose"
            untuned = default_seconds or 0.0
            yield TunedKernel(key, {}, untuned, untuned, 0, len(space.points), 0, note)
            continue
        result = search(space, measure, settings, may_continue=lambda: perf_counter() < end)
        yield _store_result(key, space, result, default_seconds, records, target_of(device.spec))


def _store_result(
    key: KernelKey, space: Space, result: TuningResult, default_seconds: float, records: Records, target: str
) -> TunedKernel:
    point, seconds = result.best or (space.default, default_seconds)
    record = Record(*key, target, space.values(point), seconds, default_seconds, 0.0, True)
    records.add([record])
    refused = sum(c is None for c in result.costs)
    config, best = (record.config, seconds) if record.is_usable else ({}, default_seconds)
    return TunedKernel(key, config, best, default_seconds,
                       len(result.points), len(space.points), refused)
