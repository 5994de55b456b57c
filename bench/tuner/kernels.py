"""Tables of kernels of the processor: what every schedule takes, beside the untuned one in turn.

Knows: a few functions, how their kernels are run in another process. Must not know: how spaces are searched.
Receives names; writes tables, which hold the space as well: another machine would have another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

import jitla
from bench.tuner.tables import KERNELS, Table
from jitla.fusion import Knob, Point, Space
from jitla.gate import GATE
from jitla.guarding import Guard
from jitla.tuner import Timing
from jitla.tuning import Session

MOST = 640  # points of a table
ROUNDS, AGAIN, BEST = 5, 20, 20  # turns for every point; then again, of the best
RNG = np.random.default_rng(1)


def hypot(x, y):
    return np.sqrt(x * x + y * y)


def gelu(x):
    return 0.5 * x * (1.0 + np.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


def turned(x, y):
    return x + 2.0 * y.T


def blur(a):
    rows = (a[:, :-2] + a[:, 1:-1] + a[:, 2:]) * np.float32(1 / 3)
    return (rows[:-2] + rows[1:-1] + rows[2:]) * np.float32(1 / 3)


def laps(a):
    b = a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4 * a[1:-1, 1:-1]
    return b[:-2, 1:-1] + b[2:, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] - 4 * b[1:-1, 1:-1]


def corners(a):
    x, y = a[1:-1, 2:] - a[1:-1, :-2], a[2:, 1:-1] - a[:-2, 1:-1]

    def around(v):
        rows = v[:-2] + v[1:-1] + v[2:]
        return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]

    xx, xy, yy = around(x * x), around(x * y), around(y * y)
    return xx * yy - xy * xy - np.float32(0.04) * (xx + yy) * (xx + yy)


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def normed(x, g):
    m = x.mean(axis=1, keepdims=True)
    d = x - m
    return d / np.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-5) * g


def weights(x, w, y):
    return x.T @ (1.0 / (1.0 + np.exp(-(x @ w))) - y)


def dot(x, y):
    return (x * y).sum()


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "hypot": (hypot, tuple(RNG.random((2, 600, 500))), "numpy"),
    "gelu": (gelu, (RNG.random((400, 500), np.float32),), "numpy"),
    "turned": (turned, (RNG.random((600, 700)), RNG.random((700, 600))), "numpy"),
    "blur": (blur, (RNG.random((700, 900), np.float32),), "numpy"),
    "laps": (laps, (RNG.random((600, 700)),), "numpy"),
    "corners": (corners, (RNG.random((500, 800), np.float32),), "numpy"),
    "softmax": (softmax, (RNG.random((4000, 60)),), "numpy"),
    "normed": (normed, (RNG.random((3000, 100), np.float32), np.ones(100, np.float32)), "numpy"),
    "weights": (weights, (RNG.random((20_000, 20)), np.ones(20), np.ones(20_000)), "relaxed"),
    "dot": (dot, tuple(RNG.random((2, 400_000))), "relaxed"),
}


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
    function, args, numerics = FUNCTIONS[name]
    session, end = Session(), monotonic() + seconds
    with jitla.options(numerics=numerics):
        GATE.renew(session)
        try:
            jitla.jit(function, compile="sync")(*args)
        finally:
            GATE.renew()
        task = max(session.tasks.values(), key=lambda t: t.seconds)
        guard = Guard(task.job(jitla.config.current()))
    space = coarse(task.choice.space())
    try:
        untuned, costs = guard.untuned(), {}

        def cost(point: Point, rounds: int) -> float:
            timing = guard.time(space.values(point), rounds)
            return timing.ratio if isinstance(timing, Timing) else -1.0

        for k in RNG.permutation(len(space.points)):
            costs[space.points[k]] = cost(space.points[k], ROUNDS)
            if monotonic() > end:
                return None
        for point in sorted((p for p in costs if costs[p] > 0), key=costs.__getitem__)[:BEST]:
            costs[point] = cost(point, AGAIN)
        costs[space.default] = cost(space.default, AGAIN)
    finally:
        guard.close()
    return written(space, costs, untuned)


def written(space: Space, costs: dict[Point, float], untuned: float) -> dict[str, Any]:
    """Return a table as a file holds it."""
    every = list(costs)
    guess = [0.0 if space.estimate is None else space.estimate(space.values(p)) for p in every]
    return {
        "knobs": [[k.name, list(k.choices), k.exact] for k in space.knobs], "default": list(space.default),
        "untuned": untuned, "points": [list(p) for p in every], "costs": [round(costs[p], 4) for p in every],
        "estimates": [float(f"{g:.5g}") for g in guess],
        "traits": [[round(t, 2) for t in space.traits(space.values(p))] for p in every]}


def fill(name: str, seconds: float, place: Path = KERNELS) -> str:
    """Measure a kernel and write its table; return what is to be said of that."""
    found = measured(name, seconds)
    if found is None:
        return f"{name}: not in {seconds:.0f} s"
    place.mkdir(exist_ok=True)
    (place / f"{name}.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    table = Table.of(name, found)
    return f"{name}: {len(table.costs)} points, untuned {found['untuned'] * 1e6:.0f} us, " \
        f"{table.usual / table.best:.3f} times the best"
