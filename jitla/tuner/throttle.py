"""Throttling of the current process to a share of one processor, whatever it does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time, sleep

__all__ = ["limit_share", "unthrottled"]

SLICE_SECONDS = 0.004  # of processor time between two sleeps


class _Throttle:
    """The state of the throttle: the share of one processor, and the processor time at the last sleep."""

    share = 1.0
    worked_at_sleep = 0.0
    unthrottled = 0  # nesting depth of sections without sleeps


def limit_share(share: float) -> None:
    """Limit this process to a share of one processor from now on, at idle priority."""
    _Throttle.share, _Throttle.worked_at_sleep = share, process_time()
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    elif hasattr(os, "nice"):
        os.nice(19)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, lambda number, frame: pause())
        signal.setitimer(signal.ITIMER_PROF, SLICE_SECONDS, SLICE_SECONDS)


def pause() -> None:
    """Sleep in proportion to the processor time since the last sleep."""
    if _Throttle.share < 1.0 and not _Throttle.unthrottled:
        _Throttle.unthrottled += 1  # a nested signal does nothing
        worked = process_time() - _Throttle.worked_at_sleep
        sleep(worked * (1.0 / _Throttle.share - 1.0))
        _Throttle.worked_at_sleep = process_time()
        _Throttle.unthrottled -= 1


@contextmanager
def unthrottled() -> Iterator[None]:
    """Sleep before and after the ``with`` block, but not within it, for undisturbed timings."""
    pause()
    _Throttle.unthrottled += 1
    try:
        yield
    finally:
        _Throttle.unthrottled -= 1
        pause()
