"""Layers on a simulated accelerator: their tiles are tuned on simulated cycles, records choose them later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from time import perf_counter

from jitla import accel
from jitla.accel import Device, Layer, Spec, Tiling, to_tiling
from jitla.fusion import Point, Space
from jitla.recompile import Key
from jitla.tuner.kernel_search import Tuned
from jitla.tuner.records import Record, Records
from jitla.tuner.search import (
    Found,
    Settings,
    search,
)

__all__ = ["chooser", "tuned_layers"]


def key_of(layer: Layer) -> Key:
    """Return the key of a layer, whose steps have no numbers."""
    return Key("layer " + sha256(repr(layer).encode()).hexdigest()[:18], ())


def target_of(spec: Spec) -> str:
    """Return the name of a machine, and of all its sizes."""
    return f"{spec.name} {sha256(repr(spec).encode()).hexdigest()[:12]}"


def _space(layer: Layer, device: Device, relaxed: bool) -> Space:
    """Return the space of a layer; floats are added up in the order that tiles of channels have."""
    space = accel.knobs(layer, device.spec, device.threads)
    if relaxed or not device.spec.is_float:
        return space
    return space.pinned(space.values(space.default))


def chooser(records: Records, relaxed: bool) -> Callable[[Device, Layer], Tiling | None]:
    """Return what chooses the tiles of a layer that records know; None for others."""
    def choose(device: Device, layer: Layer) -> Tiling | None:
        record = records.best(*key_of(layer), target_of(device.spec))
        if record is None:
            return None
        space = _space(layer, device, relaxed)
        point = space.point(record.config)
        return None if point is None else to_tiling(space.values(point))
    return choose


def tuned_layers(device: Device, records: Records, settings: Settings, end: float, relaxed: bool
                 ) -> Iterator[Tuned]:
    """Search tiles for the layers that a device has run; cycles are exact, so the best of them is."""
    hertz = device.spec.board.clock_mhz * 1e6
    for layer in list(device.layers):
        space, key = _space(layer, device, relaxed), key_of(layer)

        def measure(point: Point, layer: Layer = layer, space: Space = space) -> float | None:
            taken = accel.cycles(layer, device.spec, to_tiling(space.values(point)))
            return None if taken is None else taken / hertz

        usual = measure(space.default)
        if usual is None or len(space.points) < 2 or perf_counter() > end:
            why = "stopped" if perf_counter() > end else "nothing to choose"
            yield Tuned(key, {}, usual or 0.0, usual or 0.0, 0, len(space.points), 0, why)
            continue
        found = search(space, measure, settings, going=lambda: perf_counter() < end)
        yield _kept(key, space, found, usual, records, target_of(device.spec))


def _kept(key: Key, space: Space, found: Found, usual: float, records: Records, target: str) -> Tuned:
    point, seconds = found.best or (space.default, usual)
    last = Record(*key, target, space.values(point), seconds, usual, 0.0, True)
    records.add([last])
    refused = sum(c is None for c in found.costs)
    return Tuned(key, last.config if last.counts else {}, seconds if last.counts else usual, usual,
                 len(found.points), len(space.points), refused)
