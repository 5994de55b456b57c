"""The search for schedules of one kernel, which another process runs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any, NamedTuple

from jitla.config import Config, current
from jitla.fusion import Point, Space, Values
from jitla.recompile import Key
from jitla.tuner.measurement import (
    Guard,
    Lost,
)
from jitla.tuner.model import facts, remembered
from jitla.tuner.records import Record, Records
from jitla.tuner.search import (
    Found,
    Settings,
    search,
)
from jitla.tuner.stopwatch import (
    ROUNDS,
    Timing,
)
from jitla.tuner.transport import Job

__all__ = ["Trial", "Tuned", "alone"]

# Schedules that are timed once more after the search, in how many turns with the untuned one; and turns of
# the best of them, at last: what chose it does not count.
FINALISTS, AGAIN, CONFIRM = 4, 16, 60


class Tuned(NamedTuple):
    """One kernel: what runs it best, seconds of that and untuned, what was tried, and why nothing was.

    `why` counts what was refused: "refused" by the compiler, "differs" from the untuned results, "late" or
    "crashed", for which another process was ended.
    """

    key: Key
    chosen: Values
    seconds: float
    untuned: float
    trials: int
    points: int
    refused: int
    note: str = ""
    why: Mapping[str, int] = MappingProxyType({})


def alone(config: Config) -> dict[str, Any]:
    """Return the options by which another process runs a kernel as this one does, and does nothing else."""
    return {**{f.name: getattr(config, f.name) for f in fields(config)}, "tune_after_ms": 0, "schedules": "",
            "log": "", "verify": False, "accelerator": "", "compile": "sync"}


class Trial:
    """The search for one kernel: schedules are run in another process, beside the untuned one."""

    def __init__(self, key: Key, space: Space, job: Job, host: str, seconds: float, patience: float = 1.0,
                 look: Callable[[], None] = lambda: None, share: float = 1.0) -> None:
        self.key, self.space, self.host, self.look = key, space, host, look
        self.end = perf_counter() + seconds
        self.guard = Guard(job, patience, share)
        self.untuned = 0.0
        self.said: Counter[str] = Counter()  # what became of schedules that have no time
        self.interrupted = False
        self.gone = ""

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *raised: object) -> None:
        self.guard.close()

    def run(self, settings: Settings, records: Records) -> Tuned:
        """Search, confirm what is best, and write down what was measured."""
        near = records.near(self.key.kernel, self.key.shape, self.host)
        warm = [p for r in near if (p := self.space.nearest(r.config)) is not None]
        past = remembered(records, self.host, self.space)
        found = search(self.space, self.measure, settings, history=past, warm=warm, observe=self.tell,
                       going=self.going)
        self.interrupted = found.interrupted
        return self.finish(found, records)

    def going(self) -> bool:
        """Tell whether there is time left, and a process that runs schedules."""
        return perf_counter() < self.end and not self.gone

    def measure(self, point: Point) -> float | None:
        """Return the seconds of a point; None if it does not compute the same, or does not end."""
        try:
            self.untuned = self.untuned or self.guard.untuned()
        except Lost as lost:
            self.gone = str(lost)
            return None
        if point == self.space.default:
            return self.untuned
        timing = self._timing(point, ROUNDS)
        return timing.ratio * self.untuned if timing is not None else None

    def _timing(self, point: Point, rounds: int) -> Timing | None:
        """Return what a point takes beside the untuned one; None if that cannot be told."""
        try:
            timing = self.guard.time(self.space.values(point), rounds)
        except Lost as lost:
            self.gone = str(lost)
            return None
        self.look()
        if isinstance(timing, Timing):
            return timing
        self.said[timing] += 1
        return None

    def tell(self, found: Found) -> None:
        """Show how far the search is."""
        if current().progress and sys.stderr is not None and found.best is not None:
            best = found.best[1] / self.untuned
            sys.stderr.write(f"\rjitla: tuning {self.key.kernel[:10]}: {len(found.points)} of "
                             f"{len(self.space.points)} schedules, best {best:.2f} of untuned ")

    def finish(self, found: Found, records: Records) -> Tuned:
        """Time the best and the untuned one once more, and write down what was measured."""
        if current().progress and sys.stderr is not None and found.points:
            sys.stderr.write("\n")
        make = partial(Record, self.key.kernel, self.key.shape, self.host)
        known = facts(self.space, found.points)
        records.add([make(self.space.values(p), c, self.untuned, facts=f)
                     for p, c, f in zip(found.points, found.costs, known, strict=True) if c is not None])
        size, refused = len(self.space.points), sum(self.said.values())
        last, note = self._confirmed(make, found) if self.untuned else (None, self.gone)
        if last is None:
            return Tuned(self.key, {}, self.untuned, self.untuned, len(found.points), size, refused, note,
                         self.said)
        records.add([last])
        chosen, seconds = (last.config, last.seconds) if last.counts else ({}, last.reference)
        return Tuned(self.key, chosen, seconds, last.reference, len(found.points), size, refused,
                     note, self.said)

    def _confirmed(self, make: Callable[..., Record], found: Found) -> tuple[Record | None, str]:
        """Return what the best schedule takes in a measurement of its own, and why it does not count.

        Of many that were timed once the best seems better than it is: a few of the best are timed again.
        """
        ran = sorted((c, p) for c, p in zip(found.costs, found.points, strict=True) if c is not None)
        again = [(t.ratio, p) for c, p in ran[:FINALISTS] if c < self.untuned and p != self.space.default
                 and (t := self._timing(p, AGAIN)) is not None]
        if not again:
            usual = self.space.values(self.space.default)
            return make(usual, self.untuned, self.untuned, 0.0, True), self.gone
        point = min(again)[1]
        timing = self._timing(point, CONFIRM)
        if timing is None:
            return None, self.gone or "it did not run again"
        made = make(self.space.values(point), *timing, True)
        return made, self.gone if made.counts else "no better than noise"
