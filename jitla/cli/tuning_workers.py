"""Processes that the tuner starts: one times the schedules of a kernel, one tunes a kernel in the background.

A schedule that hangs or crashes ends such a process and not the program.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from jitla.config import configure, current
from jitla.engine import ENGINE
from jitla.errors import BackendError, ScheduleError
from jitla.fusion import Values
from jitla.recompile import UNTUNED
from jitla.tuner.background import SHARE
from jitla.tuner.kernel_search import KernelSearch
from jitla.tuner.measurement import Stopwatch
from jitla.tuner.search import Settings
from jitla.tuner.throttle import unthrottled
from jitla.tuner.transport import (
    Job,
    receive,
    receive_job,
    send,
)

__all__ = ["ScheduleBench", "measure", "tune"]

# Of background tuning: schedules, seconds, and the factor of time limits.
TRIALS, SECONDS, PATIENCE = 32, 1800.0, 200.0
TOLERANCES = {4: 1e-4, 2: 1e-2}  # by item size: relative error of reordered sums
GRACE_SECONDS = 5  # after the last limit, in which the process ends itself if its parent is gone


class ScheduleBench:
    """A kernel on its operands, run untuned and with other schedules."""

    def __init__(self, job: Job) -> None:
        self.choice = job.parcel.choice(ENGINE.compiler(current()))
        operands = job.memory.operands()
        self.inputs, self.results = operands[:-job.outputs], operands[-job.outputs:]
        self.exact = current().numerics != "relaxed"
        untuned = self.bind_schedule(UNTUNED)
        untuned()
        self.expected = [r.tobytes() if self.exact else r.copy() for r in self.results]
        with unthrottled():
            self.watch = Stopwatch(untuned)

    def bind_schedule(self, values: Values) -> Callable[[], int]:
        """Return a function that runs the kernel with these knobs."""
        block, launch = self.choice.make(values)
        return partial(launch, block, *self.inputs, *self.results)

    def measure_schedule(self, values: Values, rounds: int) -> Iterator[tuple[Any, ...]]:
        """Yield the messages of a measurement: made, ran, took with the timing; or the failure."""
        try:
            run = self.bind_schedule(values)
        except (BackendError, ScheduleError) as error:
            yield "refused", str(error)
            return
        yield ("made",)
        for result in self.results:
            result.view(np.uint8).fill(255) if result.flags.c_contiguous else result.fill(0)
        run()
        if not all(map(self._is_correct, self.results, self.expected)):
            yield "differs", "results differ"
            return
        yield ("ran",)
        with unthrottled():
            timing = self.watch.time(run, rounds)
        yield "took", *timing

    def _is_correct(self, result: np.ndarray, expected: Any) -> bool:
        """Return whether results equal the untuned ones: bitwise, or nearly if sums may be reordered."""
        if self.exact:
            return bool(result.tobytes() == expected)
        if result.dtype.kind not in "fc":
            return bool((result == expected).all())
        tolerance = TOLERANCES.get(result.real.dtype.itemsize, 1e-9)
        atol = tolerance * _largest_finite(expected)
        return bool(np.allclose(result, expected, rtol=tolerance, atol=atol, equal_nan=True))


def _largest_finite(x: np.ndarray) -> float:
    """Return the maximum magnitude of finite elements."""
    finite = np.abs(x[np.isfinite(x)])
    return float(finite.max()) if finite.size else 0.0


def measure() -> None:
    """Compile and time the schedules that standard input requests, until its end."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output is no message
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    job = receive_job(source)
    configure(**job.options)
    bench = ScheduleBench(job)
    send(sink, pickle.dumps(("ready", bench.watch.reference_seconds, bench.watch.repeats)))
    while True:
        try:
            values, rounds, limit = pickle.loads(receive(source))
        except EOFError:
            return
        _set_exit_timer(limit + GRACE_SECONDS)
        for message in bench.measure_schedule(values, rounds):
            send(sink, pickle.dumps(message))
        _set_exit_timer(0)


def _set_exit_timer(seconds: float) -> None:
    """End this process after `seconds` even if its parent is gone; 0 cancels."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def tune() -> None:
    """Tune the kernel of standard input in a share of the time and write its record to standard output."""
    source, sink, parent = sys.stdin.buffer, os.fdopen(os.dup(1), "wb"), os.getppid()
    os.dup2(2, 1)  # other output is no message
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = receive_job(source)
    config = configure(**{**job.options, "progress": False})
    choice = job.parcel.choice(ENGINE.compiler(config))
    space = choice.space() if config.numerics == "relaxed" else choice.space().exact()
    records = ENGINE.schedule_records_to_extend(config)

    def exit_if_orphaned() -> None:
        if os.getppid() != parent:  # the program has ended
            sys.exit()

    with KernelSearch(
            choice.key, space, job, ENGINE.host(), SECONDS, PATIENCE, exit_if_orphaned, SHARE) as search:
        search.run(Settings(trials=TRIALS), records)
    record = records.last(choice.key.kernel, choice.key.shape, ENGINE.host())
    send(sink, record.line().encode() if record is not None else b"")
