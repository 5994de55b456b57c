"""Tables of kernels of the processor: what every schedule takes, beside the untuned one in turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from statistics import median, quantiles
from time import monotonic
from typing import Any

import jitla
from bench.internal.tuner.functions import FUNCTIONS, RNG
from bench.internal.tuner.tables import KERNELS, Table
from jitla.dispatch.tuning import TuningSession
from jitla.engine import ENGINE
from jitla.fusion import Knob, Point, Space, Values
from jitla.tuner.measurement import MeasurementProcess, Timing

MOST = 640  # points of a table
ROUNDS = 2  # turns of a point with the untuned one, each time
PASSES, AGAIN, BEST = 3, 11, 24  # times that every point is measured; then again, the best
EACH = 32  # points after which the untuned one is timed as they are


def coarse(space: Space, most: int = MOST) -> Space:
    """Return a space of fewer points: every second choice is left out of the knob that has most of them."""
    while len(space.points) > most:
        at = max(range(len(space.knobs)), key=lambda k: len(space.knobs[k].choices))
        knob, usual = space.knobs[at], space.knobs[at].choices[space.default[at]]
        kept = tuple(c for i, c in enumerate(knob.choices) if i % 2 == space.default[at] % 2)
        knobs = (*space.knobs[:at], Knob(knob.name, kept, knob.exact), *space.knobs[at + 1:])
        default = (*space.default[:at], kept.index(usual), *space.default[at + 1:])
        space = replace(space, knobs=knobs, default=default, _legal={})
    return space


def measured(name: str, seconds: float) -> dict[str, Any] | None:
    """Measure all points of the largest kernel of a function; None if time was too short."""
    guard, every = largest(name)
    space, end = coarse(every), monotonic() + seconds
    try:
        untuned = guard.untuned()
        runs = Runs(guard, space, end)
        runs.measure(space.points, PASSES)
        if runs.left(space.points, 1):
            return None
        runs.settle()
    finally:
        guard.close()
    low, _, high = quantiles(runs.found[space.default], n=4)
    return {**written(space, runs.costs(), untuned), "noise": round(high - low, 4)}


class Runs:
    """What points took, in several passes over them, beside the untuned one in turn.

    A machine that is slower for a while makes some points seem better than others: passes are apart in time,
    each in another order, and medians of them count.
    """

    def __init__(self, guard: MeasurementProcess, space: Space, end: float) -> None:
        self.guard, self.space, self.end = guard, space, end
        self.found: dict[Point, list[float]] = {p: [] for p in space.points}
        self.refused: set[Point] = set()

    def measure(self, points: Sequence[Point], times: int) -> None:
        """Measure points until each was measured so many times, or time is up."""
        while (left := self.left(points, times)) and monotonic() < self.end:
            every = [*left, *[self.space.default] * ceil(len(left) / EACH)]
            for at in RNG.permutation(len(every)):
                timing = self.guard.time(self.space.values(every[at]), ROUNDS)
                if isinstance(timing, Timing):
                    self.found[every[at]].append(timing.ratio)
                else:
                    self.refused.add(every[at])

    def settle(self) -> None:
        """Measure the best again, until the best are those that were, or time is up."""
        best: list[Point] = []
        while set(self.best()) != set(best):
            new, best = set(self.best()) - set(best), self.best()
            self.measure(sorted(new), PASSES + AGAIN)

    def left(self, points: Sequence[Point], times: int) -> list[Point]:
        """Return those that were not measured so many times yet."""
        return [p for p in points if p not in self.refused and len(self.found[p]) < times]

    def costs(self) -> dict[Point, float]:
        """Return what points take, 1 for the untuned one, -1 for what could not be run.

        Of those measured again only that counts: it did not choose them.
        """
        return {p: -1.0 if p in self.refused else median(c[PASSES:] or c) for p, c in self.found.items()}

    def best(self) -> list[Point]:
        """Return the points that take least."""
        costs = self.costs()
        return sorted((p for p in costs if costs[p] > 0), key=costs.__getitem__)[:BEST]


def largest(name: str) -> tuple[MeasurementProcess, Space]:
    """Return the kernel of a function that takes longest, ready to be timed, and its space."""
    function, args, numerics = FUNCTIONS[name]
    session = TuningSession()
    with jitla.options(numerics=numerics):
        ENGINE.use_tuning_session(session)
        try:
            for _ in range(2):
                jitla.jit(function, compile="sync")(*args)
        finally:
            ENGINE.use_tuning_session()
        task = max(session.tasks.values(), key=lambda t: t.seconds)
        return MeasurementProcess(task.job(jitla.config.current())), task.choice.space()


def described(name: str) -> dict[str, Any]:
    """Return the table of a kernel with estimates and traits as they are now, and what was measured then."""
    found = json.loads((KERNELS / f"{name}.json").read_text())
    guard, space = largest(name)
    guard.close()
    table = Table.of(name, found)
    points = [table.space.values(p) for p in table.costs]
    return {**found, **facts(space, points)}


def facts(space: Space, points: Sequence[Values]) -> dict[str, Any]:
    """Return what models are told of points."""
    guess = [0.0 if space.estimate is None else space.estimate(v) for v in points]
    return {"estimates": [float(f"{g:.5g}") for g in guess],
            "traits": [[round(t, 2) for t in space.traits(v)] for v in points]}


def written(space: Space, costs: dict[Point, float], untuned: float) -> dict[str, Any]:
    """Return a table as a file holds it."""
    every = list(costs)
    return {
        "knobs": [[k.name, list(k.choices), k.exact] for k in space.knobs], "default": list(space.default),
        "untuned": untuned, "points": [list(p) for p in every], "costs": [round(costs[p], 4) for p in every],
        **facts(space, [space.values(p) for p in every])}


def again(name: str, seconds: float, place: Path = KERNELS) -> str:
    """Measure the best of a table again; return what is to be said of that."""
    found = json.loads((place / f"{name}.json").read_text())
    table = Table.of(name, found)
    guard, _ = largest(name)
    runs = Runs(guard, table.space, monotonic() + seconds)
    runs.found = {p: [c] * PASSES for p, c in table.costs.items() if c < float("inf")}
    try:
        runs.settle()
    finally:
        guard.close()
    made = {**table.costs, **runs.costs()}
    found["costs"] = [round(made[tuple(p)], 4) if made[tuple(p)] < float("inf") else -1.0
                      for p in found["points"]]
    left = len(runs.left(runs.best(), PASSES + AGAIN))
    (place / f"{name}.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    least = min(c for c in runs.costs().values() if c > 0)
    return f"{name}: the best take {least:.3f} of the untuned; {left} are left"


def fill(name: str, seconds: float, place: Path = KERNELS) -> str:
    """Measure a kernel and write its table; return what is to be said of that."""
    found = measured(name, seconds)
    if found is None:
        return f"{name}: not in {seconds:.0f} s"
    place.mkdir(exist_ok=True)
    (place / f"{name}.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    table = Table.of(name, found)
    return f"{name}: {len(table.costs)} points, untuned {found['untuned'] * 1e6:.0f} us, " \
        f"{table.usual / table.best:.3f} times the best, noise {found['noise']:.1%}"
