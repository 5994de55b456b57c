"""Tables of spaces: what every point takes, measured once, so that searches can be compared offline."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any

from bench.internal.accelerator import LAYERS, layer
from jitla.accel import cycles, knobs, preset, to_tiling
from jitla.fusion import Knob, Point, Space, Values

PLACE = Path(__file__).parent / "tables"
KERNELS = PLACE / "kernels"
MACHINE = "vta-pynq"
SAVED = 50  # points after which what is there so far is written down


@dataclass(frozen=True, eq=False)
class Table:
    """A space and what each of its points takes; infinite where nothing could be run.

    `noise` is how far times of one schedule differ from each other: the middle half of them; None: not known.
    """

    name: str
    space: Space
    costs: dict[Point, float]
    noise: float | None = 0.0

    @classmethod
    def of(cls, name: str, found: Mapping[str, Any]) -> Table:
        """Return a table whose file holds the space as well."""
        points = [tuple(p) for p in found["points"]]
        knobs = tuple(Knob(n, tuple(choices), exact) for n, choices, exact in found["knobs"])
        names = [k.name for k in knobs]
        at = {tuple(k.choices[i] for k, i in zip(knobs, p, strict=True)): n for n, p in enumerate(points)}

        def number(values: Values) -> int:
            return at[tuple(values[n] for n in names)]

        space = Space(knobs, tuple(found["default"]), lambda v: tuple(v[n] for n in names) in at,
                      (lambda v: found["estimates"][number(v)]) if any(found["estimates"]) else None,
                      lambda v: tuple(found["traits"][number(v)]))
        costs = (float("inf") if c <= 0 else c for c in found["costs"])
        return cls(name, space, dict(zip(points, costs, strict=True)), found.get("noise"))

    @property
    def kind(self) -> int:
        """A number that spaces share whose traits mean the same."""
        return len(self.space.traits(self.space.values(self.space.default)))

    @property
    def best(self) -> float:
        """What the best point takes."""
        return min(self.costs.values())

    @property
    def usual(self) -> float:
        """What runs untuned."""
        return self.costs[self.space.default]

    @property
    def guess(self) -> Point:
        """The point that the analytic model takes for the best."""
        estimate = self.space.estimate
        if estimate is None:
            return self.space.default
        return min(self.costs, key=lambda p: estimate(self.space.values(p)))

    def good(self, share: float = 0.95) -> int:
        """Return how many points reach `share` of the speed of the best."""
        return sum(c <= self.best / share for c in self.costs.values())

    def random_trials(self, share: float = 0.95) -> float:
        """Return how many points drawn at random, none twice, it takes to reach that: the expectation."""
        return (len(self.costs) + 1) / (self.good(share) + 1)


def accelerator(name: str, machine: str = MACHINE) -> tuple[Space, Callable[[Point], float | None]]:
    """Return the space of a layer, and simulated cycles of its points."""
    spec, made = preset(machine), layer(name)
    space = knobs(made, spec)
    return space, lambda p: cycles(made, spec, to_tiling(space.values(p)))


def fill(name: str, machine: str, seconds: float) -> tuple[int, int]:
    """Measure points of a layer for so many seconds; return how many are there now, and of how many."""
    space, measure = accelerator(name, machine)
    place = PLACE / f"{machine}-{name}.json"
    found = json.loads(place.read_text()) if place.exists() else []
    end = monotonic() + seconds
    while len(found) < len(space.points) and monotonic() < end:
        for point in space.points[len(found):len(found) + SAVED]:
            cost = measure(point)
            found.append(-1 if cost is None else ceil(cost))
        place.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    return len(found), len(space.points)


def tables(machine: str = MACHINE) -> list[Table]:
    """Return the tables that are complete."""
    made = []
    for name in LAYERS:
        place = PLACE / f"{machine}-{name}.json"
        if not place.exists():
            continue
        space, _ = accelerator(name, machine)
        found = json.loads(place.read_text())
        if len(found) == len(space.points):
            costs = {p: float("inf") if c < 0 else float(c) for p, c in zip(space.points, found, strict=True)}
            made.append(Table(name, space, costs))
    return made


def kernel_tables() -> list[Table]:
    """Return the tables of kernels of the processor."""
    return [Table.of(place.stem, json.loads(place.read_text())) for place in sorted(KERNELS.glob("*.json"))]
