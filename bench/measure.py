"""Timing in interleaved pairs and what may be said of the ratio."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

RESAMPLES = 2000
SHORT = 5e-3  # seconds: what takes less is called once more before, and several times in a row
SLOW, TRIES = 3.0, 3  # how many times slower than the fastest is run only in so many rounds
IDLE = 0.05  # seconds until threads of BLAS that nobody asks for anything have gone to sleep


@dataclass(frozen=True)
class Estimate:
    """A median and the 95 % interval of it that the bootstrap gives."""

    value: float
    low: float
    high: float

    def show(self, scale: float = 1.0, digits: int = 2) -> str:
        """Value and interval, multiplied by `scale`."""
        value, low, high = (f"{v * scale:.{digits}f}" for v in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"


def estimate(samples: Sequence[float]) -> Estimate:
    """Median of `samples` with its bootstrap interval; the resampling is the same every time."""
    values = np.asarray(samples, dtype=np.float64)
    rng = np.random.default_rng(len(values))
    picks = rng.integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.percentile(np.median(values[picks], axis=1), [2.5, 97.5])
    return Estimate(float(np.median(values)), float(low), float(high))


def seconds(
    call: Callable[[], object], times: int = 1, clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds per call over `times` calls in a row."""
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


def settle() -> None:
    """Wait until threads of BLAS sleep: before, they spin, and what is timed has to share their cores."""
    time.sleep(IDLE)


def repeats(call: Callable[[], object], least: float) -> int:
    """How many calls in a row last at least `least` seconds."""
    times = 1
    while (spent := seconds(call, times) * times) < least:
        times = max(times * 2, int(times * least / max(spent, 1e-9) * 1.2))
    return times


@dataclass(frozen=True)
class Comparison:
    """Two callables timed in turn: seconds of each and their ratio, second over first."""

    first: Estimate
    second: Estimate
    ratio: Estimate


def compare(first: Callable[[], object], second: Callable[[], object], pairs: int,
            least: float = 0.0) -> Comparison:
    """Time `first` and `second` in turn `pairs` times, each in batches of at least `least` s."""
    times = [repeats(call, least) for call in (first, second)]
    taken = []
    for i in range(pairs):
        # who goes first alternates, so that neither always finds the other's caches
        a, b = (first, second) if i % 2 == 0 else (second, first)
        na, nb = times if i % 2 == 0 else times[::-1]
        t = seconds(a, na), seconds(b, nb)
        taken.append(t if i % 2 == 0 else t[::-1])
    return Comparison(
        estimate([x for x, _ in taken]),
        estimate([y for _, y in taken]),
        estimate([y / x for x, y in taken]),
    )


def contest(
    calls: dict[str, Callable[[], object]], rounds: int, rng: np.random.Generator,
    behind: Mapping[str, Callable[[], object]] = MappingProxyType({}),
) -> dict[str, list[float]]:
    """Time `calls`, which are warm, `rounds` times in random order: seconds by name, nan where not run.

    What is `behind` one of them is called, untimed, whenever that one was timed.
    """
    least = {name: seconds(call) for name, call in calls.items()}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds):
        for name in rng.permutation(list(calls)):
            if i >= TRIES and least[name] > SLOW * min(least.values()):
                taken[name].append(float("nan"))
                continue
            settle()
            times = math.ceil(SHORT / least[name])
            if times > 1:
                calls[name]()  # wakes its threads
            taken[name].append(seconds(calls[name], times))
            least[name] = min(least[name], taken[name][-1])
            if name in behind:
                behind[name]()
    return taken
