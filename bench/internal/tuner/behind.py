"""How far tuning behind a program disturbs it: ``python -m bench.internal.tuner.behind DIRECTORY``."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import quantiles
from time import perf_counter, sleep

import numpy as np

import jitla
from bench.internal.tuner.functions import FUNCTIONS

NAME, AFTER = "softmax", 200  # milliseconds after which it is tuned
WAIT = 20.0  # seconds for the other process to begin
DRAWN = 2000  # samples of pairs, of which the interval is made


def below(parent: int) -> list[int]:
    """Return the processes that one has begun, and that these have."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(place.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(place.parent.name))
        except (OSError, ValueError):  # it has ended
            continue
    return found + [p for child in found for p in below(child)]


def tell(number: signal.Signals, processes: Sequence[int]) -> None:
    """Send a signal to processes, as far as they still are."""
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue


def worked(processes: Sequence[int]) -> float:
    """Return the seconds of a processor that processes have taken."""
    ticks = 0
    for process in processes:
        try:
            said = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(said[11]) + int(said[12])
        except OSError:  # it has ended
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def each(run: Callable[[], object], seconds: float) -> float:
    """Return the seconds of one run, of as many as go into a window."""
    start, runs = perf_counter(), 0
    while (now := perf_counter()) < start + seconds:
        run()
        runs += 1
    return (now - start) / runs


def main() -> None:
    """Let a kernel become hot, then compare windows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory")
    parser.add_argument("--threads", type=int, default=1, help="of the program")
    parser.add_argument("--window", type=float, default=1.0, help="seconds")
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--processes", type=int, default=1, help="2: pairs begin when schedules are timed")
    parser.add_argument("--after", type=float, default=0.0, help="seconds to wait for these at most")
    given = parser.parse_args()
    jitla.configure(cache_dir=given.directory, progress=False, tune_after_ms=AFTER, num_threads=given.threads)
    function, args, _ = FUNCTIONS[NAME]
    fast = jitla.jit(function, compile="sync")
    end = perf_counter() + WAIT
    while not below(os.getpid()) and perf_counter() < end:
        each(lambda: fast(*args), 0.2)
    end = perf_counter() + given.after
    while len(below(os.getpid())) < given.processes and perf_counter() < end:  # loading is over
        sleep(0.2)
    each(lambda: fast(*args), 0.1)
    begun, before = below(os.getpid()), worked(below(os.getpid()))
    taken = []
    for _ in range(given.pairs):
        alone, beside = 0.0, 0.0
        processes = below(os.getpid())
        for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGCONT, signal.SIGSTOP):  # drift cancels
            tell(number, processes)
            one = each(lambda: fast(*args), given.window / 2)
            alone, beside = (alone + one, beside) if number is signal.SIGSTOP else (alone, beside + one)
        taken.append((beside, alone))
    spent = worked(below(os.getpid())) - before
    tell(signal.SIGCONT, below(os.getpid()))
    low, middle, high = quantiles([beside / alone for beside, alone in taken], n=4)
    rng = np.random.default_rng(1)
    sums = np.array(taken)[rng.integers(len(taken), size=(DRAWN, len(taken)))].sum(1)
    least, most = np.quantile(sums[:, 0] / sums[:, 1], (0.025, 0.975))
    whole = np.array(taken).sum(0)
    records = Path(given.directory, "tuned", "records.jsonl")
    lines = len(records.read_text().splitlines()) if records.exists() else 0
    print(f"{given.threads} threads, {given.pairs} pairs: {whole[0] / whole[1]:.3f} of the time alone "
          f"(95 %: {least:.3f}-{most:.3f}), pairs {middle:.3f} ({low:.3f}-{high:.3f}); "
          f"{len(begun)} processes at first, {len(below(os.getpid()))} at last, which took "
          f"{spent:.2f} s of a processor, {lines} records")


if __name__ == "__main__":
    main()
