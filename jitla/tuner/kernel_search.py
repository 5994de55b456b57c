"""The search for a schedule of one kernel; candidates are run in a measurement process."""

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
from jitla.recompile import KernelKey
from jitla.tuner.measurement import (
    ROUNDS,
    MeasurementProcess,
    MeasurementSettings,
    MeasurementUnavailable,
    Timing,
)
from jitla.tuner.model import history_for, structural_features
from jitla.tuner.records import Record, Records
from jitla.tuner.search import (
    Settings,
    TuningResult,
    search,
)
from jitla.tuner.transport import Job

__all__ = ["KernelSearch", "TunedKernel", "measuring_options"]

# Finalists that are timed again after the search, and their rounds; rounds of the confirming measurement of
# the best, which is independent of the choice.
FINALISTS, FINALIST_ROUNDS, CONFIRM_ROUNDS = 4, 16, 60


class TunedKernel(NamedTuple):
    """The result of tuning one kernel: the best schedule, its time and the untuned one, and the trials.

    `why` counts failed schedules: "refused" by the compiler, "differs" from the untuned results, "late" or
    "crashed" for those that ended the measurement process. `note` is the reason if nothing better was found.
    """

    key: KernelKey
    chosen: Values
    seconds: float
    untuned: float
    trials: int
    points: int
    refused: int
    note: str = ""
    why: Mapping[str, int] = MappingProxyType({})


def measuring_options(config: Config) -> dict[str, Any]:
    """Return the options of a measurement process: those of this one without tuning, logs and checks."""
    values = {f.name: getattr(config, f.name) for f in fields(config) if not f.metadata["internal"]}
    return {**values, "tune_after_ms": 0, "schedules": "",
            "log": "", "verify": False, "accelerator": "", "compile": "sync"}


class KernelSearch:
    """The search for a schedule of one kernel: each is timed in another process against the untuned one."""

    def __init__(self, key: KernelKey, space: Space, job: Job, host: str, seconds: float,
                 patience: float = 1.0,
                 check: Callable[[], None] = lambda: None, share: float = 1.0,
                 measurement: MeasurementSettings = MeasurementSettings()) -> None:
        self.key, self.space, self.host, self.check = key, space, host, check
        self.end = perf_counter() + seconds
        self.process = MeasurementProcess(job, patience, share, measurement)
        self.untuned = 0.0
        self.failures: Counter[str] = Counter()  # outcomes of schedules without a time
        self.interrupted = False
        self.stop_reason = ""

    def __enter__(self) -> KernelSearch:
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.close()

    def run(self, settings: Settings, records: Records) -> TunedKernel:
        """Search, confirm the best schedule and record the measurements."""
        similar = records.near(self.key.kernel, self.key.shape, self.host)
        warm = [p for r in similar if (p := self.space.nearest(r.config)) is not None]
        history = history_for(records, self.host, self.space)
        result = search(self.space, self.measure, settings, history=history, warm=warm,
                        observe=self.show_progress, may_continue=self.may_continue)
        self.interrupted = result.interrupted
        return self.finish(result, records)

    def may_continue(self) -> bool:
        """Return whether there is time left and a process that runs schedules."""
        return perf_counter() < self.end and not self.stop_reason

    def measure(self, point: Point) -> float | None:
        """Return the seconds of a point; None if its results differ or it fails."""
        try:
            self.untuned = self.untuned or self.process.untuned()
        except MeasurementUnavailable as error:
            self.stop_reason = str(error)
            return None
        if point == self.space.default:
            return self.untuned
        timing = self._timing(point, ROUNDS)
        return timing.ratio * self.untuned if timing is not None else None

    def _timing(self, point: Point, rounds: int) -> Timing | None:
        """Return the timing of a point against the untuned schedule; None if it fails."""
        try:
            timing = self.process.time(self.space.values(point), rounds)
        except MeasurementUnavailable as error:
            self.stop_reason = str(error)
            return None
        self.check()
        if isinstance(timing, Timing):
            return timing
        self.failures[timing] += 1
        return None

    def show_progress(self, result: TuningResult) -> None:
        """Show the progress of the search on standard error."""
        if current().progress and sys.stderr is not None and result.best is not None:
            best = result.best[1] / self.untuned
            sys.stderr.write(f"\rjitla: tuning {self.key.kernel[:10]}: {len(result.points)} of "
                             f"{len(self.space.points)} schedules, best {best:.2f} of untuned ")

    def finish(self, result: TuningResult, records: Records) -> TunedKernel:
        """Confirm the best schedule, record all measurements and return the result."""
        if current().progress and sys.stderr is not None and result.points:
            sys.stderr.write("\n")
        make = partial(Record, self.key.kernel, self.key.shape, self.host)
        features = structural_features(self.space, result.points)
        records.add([make(self.space.values(p), c, self.untuned, facts=f)
                     for p, c, f in zip(result.points, result.costs, features, strict=True) if c is not None])
        size, refused = len(self.space.points), sum(self.failures.values())
        record, note = self._confirm(make, result) if self.untuned else (None, self.stop_reason)
        if record is None:
            return TunedKernel(self.key, {}, self.untuned, self.untuned, len(result.points), size, refused,
                               note, self.failures)
        records.add([record])
        chosen, seconds = (record.config, record.seconds) if record.is_usable else ({}, record.reference)
        return TunedKernel(self.key, chosen, seconds, record.reference, len(result.points), size, refused,
                           note, self.failures)

    def _confirm(self, make: Callable[..., Record], result: TuningResult) -> tuple[Record | None, str]:
        """Return the record of a confirming measurement of the best schedule, and a note if it is not usable.

        The minimum of many noisy timings is biased, so a few finalists are timed again first.
        """
        measured = sorted((c, p) for c, p in zip(result.costs, result.points, strict=True) if c is not None)
        finalists = [(t.ratio, p) for c, p in measured[:FINALISTS]
                     if c < self.untuned and p != self.space.default
                     and (t := self._timing(p, FINALIST_ROUNDS)) is not None]
        if not finalists:
            default_values = self.space.values(self.space.default)
            return make(default_values, self.untuned, self.untuned, 0.0, True), self.stop_reason
        point = min(finalists)[1]
        timing = self._timing(point, CONFIRM_ROUNDS)
        if timing is None:
            return None, self.stop_reason or "the best schedule failed when it was run again"
        record = make(self.space.values(point), *timing, True)
        return record, self.stop_reason if record.is_usable else "no better than noise"
