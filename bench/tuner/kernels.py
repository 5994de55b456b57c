"""Tables of kernels of the processor: what every schedule takes, beside the untuned one in turn.

Knows: a few functions, how their kernels are run in another process. Must not know: how spaces are searched.
Receives names; writes tables, which hold the space as well: another machine would have another one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from time import monotonic
from typing import Any

import jitla
from bench.tuner.functions import FUNCTIONS, RNG
from bench.tuner.tables import KERNELS, Table
from jitla.fusion import Knob, Point, Space, Values
from jitla.gate import GATE
from jitla.guarding import Guard
from jitla.tuner import Timing
from jitla.tuning import Session

MOST = 640  # points of a table
ROUNDS, AGAIN, BEST = 6, 20, 24  # turns for every point; then again, of the best
EACH, NEAR = 32, 5  # points after which the untuned one is timed as they are; neighbours in time


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
        order = [space.points[k] for k in RNG.permutation(len(space.points))]
        for at in range(0, len(order), EACH):  # the untuned one beside itself now and then: noise
            order.insert(at, space.default)
        runs: list[tuple[Point, Timing | None]] = []
        for point in order:
            timing = guard.time(space.values(point), ROUNDS)
            runs.append((point, timing if isinstance(timing, Timing) else None))
            if monotonic() > end:
                return None
        costs, noise = smoothed(runs, space.default)
        sure = {space.default: guard.time(space.values(space.default), AGAIN)}
        while True:  # until the best are those that were measured again
            best = sorted((p for p in costs if costs[p] > 0), key=costs.__getitem__)[:BEST]
            if all(p in sure for p in best):
                break
            for point in set(best) - set(sure):
                sure[point] = guard.time(space.values(point), AGAIN)
                costs[point] = sure[point].ratio if isinstance(sure[point], Timing) else -1.0
    finally:
        guard.close()
    return {**written(space, costs, untuned), "noise": round(noise, 4)}


def largest(name: str) -> tuple[Guard, Space]:
    """Return the kernel of a function that takes longest, ready to be timed, and its space."""
    function, args, numerics = FUNCTIONS[name]
    session = Session()
    with jitla.options(numerics=numerics):
        GATE.renew(session)
        try:
            for _ in range(2):
                jitla.jit(function, compile="sync")(*args)
        finally:
            GATE.renew()
        task = max(session.tasks.values(), key=lambda t: t.seconds)
        return Guard(task.job(jitla.config.current())), task.choice.space()


def smoothed(runs: list[tuple[Point, Timing | None]], default: Point) -> tuple[dict[Point, float], float]:
    """Return what points take, beside what the untuned one took around that time; and how far that is unsure.

    Costs are 1 for the untuned one, -1 for what could not be run.
    """
    beside = [t.reference for _, t in runs if t is not None]
    at = -1
    costs: dict[Point, float] = {}
    usual: list[float] = []
    for point, timing in runs:
        if timing is None:
            costs[point] = -1.0
            continue
        at += 1
        cost = timing.seconds / median(beside[max(at - NEAR, 0):at + NEAR + 1])
        if point == default:
            usual.append(cost)
        costs[point] = cost
    costs[default] = median(usual)
    low, _, high = quantiles(usual, n=4)
    return costs, high - low


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
