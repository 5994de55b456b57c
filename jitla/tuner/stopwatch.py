"""Timing of a function against a reference that is run alternately with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

ROUNDS = 8
SPAN_SECONDS = 0.002  # of one measurement
MAX_RATIO = 4.0  # to the reference; slower functions are timed by a few runs only
PREEMPTION_SECONDS = 0.02  # preemption may last so long; slow runs within it are repeated
SINGLE_ROUND_NOISE = 1.0  # noise of a single round: no gain exceeds it


class Timing(NamedTuple):
    """Minimum seconds of a run and of the reference; the relative difference of two halves of the rounds."""

    seconds: float
    reference: float
    noise: float

    @property
    def ratio(self) -> float:
        """The time relative to the reference."""
        return self.seconds / self.reference


class Stopwatch:
    """Times candidates against one reference."""

    def __init__(self, reference: Callable[[], object], clock: Callable[[], float] = perf_counter,
                 rounds: int = ROUNDS) -> None:
        self.reference, self.clock, self.rounds = reference, clock, rounds
        reference()
        self.reference_seconds = min(self._seconds_per_run(reference, 1) for _ in range(3))
        self.repeats = max(1, min(1000, round(SPAN_SECONDS / max(self.reference_seconds, 1e-7))))

    def _seconds_per_run(self, run: Callable[[], object], repeats: int) -> float:
        start = self.clock()
        for _ in range(repeats):
            run()
        return (self.clock() - start) / repeats

    def time(self, run: Callable[[], object], rounds: int = 0) -> Timing:
        """Time `run` against the reference; a much slower one is run a few times only."""
        run()
        end, first, runs = self.clock() + PREEMPTION_SECONDS, self._seconds_per_run(run, 1), 1
        while first > MAX_RATIO * self.reference_seconds:
            if runs > 1 and self.clock() > end:
                return Timing(first, self.reference_seconds, 0.0)
            first, runs = min(first, self._seconds_per_run(run, 1)), runs + 1
        pairs = [(self._seconds_per_run(run, self.repeats),
                  self._seconds_per_run(self.reference, self.repeats))
                 for _ in range(rounds or self.rounds)]
        # Disturbances only add time: the minimum is the undisturbed time if both halves of the rounds agree.
        minimum = min(a for a, _ in pairs), min(b for _, b in pairs)
        if len(pairs) == 1:
            return Timing(*minimum, SINGLE_ROUND_NOISE)
        first_half, second_half = (_ratio(pairs[k::2]) for k in (0, 1))
        return Timing(*minimum, abs(first_half - second_half) / _ratio(pairs))


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return min(a for a, _ in pairs) / min(b for _, b in pairs)
