"""The process that measures, with schedules that hang, crash and compute something else."""

from __future__ import annotations

import os
import signal

from jitla.cli import tuning_workers

usual = tuning_workers.ScheduleBench.bind_schedule


def runner(bench, values):
    """Return what runs a schedule, or does not."""
    run = usual(bench, values)
    match values.get("unroll", 1):
        case 2:
            return lambda: [run(), bench.results[0].fill(7)]
        case 4:
            return lambda: os.kill(os.getpid(), signal.SIGSEGV)
        case 8:
            return hang
    return run


def hang():
    """Do nothing for ever."""
    while True:
        pass


def main():
    """Answer as the usual process does."""
    tuning_workers.ScheduleBench.bind_schedule = runner
    tuning_workers.measure()
