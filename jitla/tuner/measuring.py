"""How long something takes, beside a reference that is run in turn with it.

Knows: the clock, that machines are busy now and then. Must not know: what is run.
Receives callables; returns seconds, those of the reference at the same time, and how far times differ.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import NamedTuple

ROUNDS = 7
SPAN = 0.004  # seconds that one measurement lasts
SLOWER = 4.0  # times the reference, from which on one run is enough to tell


class Timing(NamedTuple):
    """Seconds of one run, those of the reference measured in turn with it, and the noise of these."""

    seconds: float
    reference: float
    noise: float

    @property
    def ratio(self) -> float:
        """What it takes if the reference takes 1."""
        return self.seconds / self.reference


class Stopwatch:
    """Times candidates against one reference."""

    def __init__(self, reference: Callable[[], object], clock: Callable[[], float] = perf_counter,
                 rounds: int = ROUNDS) -> None:
        self.reference, self.clock, self.rounds = reference, clock, rounds
        reference()
        self.once = min(self._one(reference, 1) for _ in range(3))
        self.repeats = max(1, min(1000, round(SPAN / max(self.once, 1e-7))))

    def _one(self, run: Callable[[], object], repeats: int) -> float:
        start = self.clock()
        for _ in range(repeats):
            run()
        return (self.clock() - start) / repeats

    def time(self, run: Callable[[], object], rounds: int = 0) -> Timing:
        """Time `run`: what takes many times as long as the reference is run once or twice."""
        run()
        first = self._one(run, 1)
        if first > SLOWER * self.once:
            first = min(first, self._one(run, 1))
            if first > SLOWER * self.once:
                return Timing(first, self.once, 0.0)
        pairs = [(self._one(run, self.repeats), self._one(self.reference, self.repeats))
                 for _ in range(rounds or self.rounds)]
        ratio = median(a / b for a, b in pairs)
        reference = median(b for _, b in pairs)
        spread = sorted(a / b for a, b in pairs)
        noise = (spread[3 * len(spread) // 4] - spread[len(spread) // 4]) / ratio / 2
        return Timing(ratio * reference, reference, noise)
