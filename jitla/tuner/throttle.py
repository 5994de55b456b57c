"""A process that works for a small part of the time only, whatever it does: loading, compiling, running."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time, sleep

__all__ = ["slowly", "steady"]

SLICE = 0.004  # seconds of work after which it sleeps


class _Pace:
    """The share of one processor that this process takes, and how much it had worked when it last slept."""

    share = 1.0
    since = 0.0
    steady = 0  # parts that go on now and must not be interrupted


def slowly(share: float) -> None:
    """Work for a part of the time from now on, where no other program is wanted to wait at all."""
    _Pace.share, _Pace.since = share, process_time()
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    elif hasattr(os, "nice"):
        os.nice(19)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, lambda number, frame: pause())
        signal.setitimer(signal.ITIMER_PROF, SLICE, SLICE)


def pause() -> None:
    """Sleep for what was worked since the last time."""
    if _Pace.share < 1.0 and not _Pace.steady:
        _Pace.steady += 1  # a signal that comes now finds nothing to do
        worked = process_time() - _Pace.since
        sleep(worked * (1.0 / _Pace.share - 1.0))
        _Pace.since = process_time()
        _Pace.steady -= 1


@contextmanager
def steady() -> Iterator[None]:
    """Sleep before and after what is to be timed, and not within."""
    pause()
    _Pace.steady += 1
    try:
        yield
    finally:
        _Pace.steady -= 1
        pause()
