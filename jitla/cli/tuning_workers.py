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
from jitla.tuner.kernel_search import Trial
from jitla.tuner.search import Settings
from jitla.tuner.stopwatch import Stopwatch
from jitla.tuner.throttle import steady
from jitla.tuner.transport import (
    Job,
    receive,
    receive_job,
    send,
)

__all__ = ["Bench", "measure", "tune"]

# Of tuning in the background: schedules, seconds, and times that limits are longer.
TRIALS, SECONDS, PATIENCE = 32, 1800.0, 200.0
CLOSE = {4: 1e-4, 2: 1e-2}  # by bytes of a number: how far sums that went another way may be from each other
LEFT = 5  # seconds after the last limit in which this process ends itself, if nobody else has done so


class Bench:
    """A kernel that is run untuned, and with knobs as asked for."""

    def __init__(self, job: Job) -> None:
        self.choice = job.parcel.choice(ENGINE.compiler(current()))
        operands = job.memory.operands()
        self.given, self.results = operands[:-job.outputs], operands[-job.outputs:]
        self.exact = current().numerics != "relaxed"
        untuned = self.runner(UNTUNED)
        untuned()
        self.expected = [r.tobytes() if self.exact else r.copy() for r in self.results]
        with steady():
            self.watch = Stopwatch(untuned)

    def runner(self, values: Values) -> Callable[[], int]:
        """Return what runs it with knobs chosen like this."""
        block, launch = self.choice.make(values)
        return partial(launch, block, *self.given, *self.results)

    def answers(self, values: Values, rounds: int) -> Iterator[tuple[Any, ...]]:
        """Yield that it was made, that it ran, and what it took; or why not."""
        try:
            run = self.runner(values)
        except (BackendError, ScheduleError) as error:
            yield "refused", str(error)
            return
        yield ("made",)
        for result in self.results:
            result.view(np.uint8).fill(255) if result.flags.c_contiguous else result.fill(0)
        run()
        if not all(map(self._same, self.results, self.expected)):
            yield "differs", "results are others"
            return
        yield ("ran",)
        with steady():
            timing = self.watch.time(run, rounds)
        yield "took", *timing

    def _same(self, made: np.ndarray, expected: Any) -> bool:
        """Tell whether results are the untuned ones: to the bit, or nearly, where sums may go another way."""
        if self.exact:
            return bool(made.tobytes() == expected)
        if made.dtype.kind not in "fc":
            return bool((made == expected).all())
        close = CLOSE.get(made.real.dtype.itemsize, 1e-9)
        return bool(np.allclose(made, expected, rtol=close, atol=close * _size(expected), equal_nan=True))


def _size(x: np.ndarray) -> float:
    """Return the largest of the numbers that are finite."""
    known = np.abs(x[np.isfinite(x)])
    return float(known.max()) if known.size else 0.0


def measure() -> None:
    """Compile and time the schedules that standard input names, until it ends."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for whoever asks
    job = receive_job(source)
    configure(**job.options)
    bench = Bench(job)
    send(sink, pickle.dumps(("ready", bench.watch.once, bench.watch.repeats)))
    while True:
        try:
            values, rounds, limit = pickle.loads(receive(source))
        except EOFError:
            return
        _end_after(limit + LEFT)
        for answer in bench.answers(values, rounds):
            send(sink, pickle.dumps(answer))
        _end_after(0)


def _end_after(seconds: float) -> None:
    """End this process after so many seconds, even if whoever watches over it is no more; 0: do not."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def tune() -> None:
    """Tune the kernel on standard input in a share of the time; write what was found to standard output."""
    source, sink, parent = sys.stdin.buffer, os.fdopen(os.dup(1), "wb"), os.getppid()
    os.dup2(2, 1)  # what others print is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = receive_job(source)
    config = configure(**{**job.options, "progress": False})
    choice = job.parcel.choice(ENGINE.compiler(config))
    space = choice.space() if config.numerics == "relaxed" else choice.space().exact()
    records = ENGINE.records(config, new=True)

    def look() -> None:
        if os.getppid() != parent:  # the program has ended
            sys.exit()

    with Trial(choice.key, space, job, ENGINE.host(), SECONDS, PATIENCE, look, SHARE) as trial:
        trial.run(Settings(trials=TRIALS), records)
    found = records.last(*choice.key, ENGINE.host())
    send(sink, found.line().encode() if found is not None else b"")
