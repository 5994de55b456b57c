"""How long something takes, beside a reference that is run in turn with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

ROUNDS = 8
SPAN = 0.002  # seconds that one measurement lasts
SLOWER = 4.0  # times the reference, from which on a few runs are enough to tell
WAITS = 0.02  # seconds for which a processor may be taken away: so long it is not the schedule that is slow
UNKNOWN = 1.0  # noise of a single turn, which has no halves: nothing is better by more than that


class Timing(NamedTuple):
    """Seconds of one run, of the reference in turn with it, and by which share halves of that differ."""

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
        """Time `run`: what takes many times as long as the reference is run a few times only."""
        run()
        end, first, runs = self.clock() + WAITS, self._one(run, 1), 1
        while first > SLOWER * self.once:
            if runs > 1 and self.clock() > end:
                return Timing(first, self.once, 0.0)
            first, runs = min(first, self._one(run, 1)), runs + 1
        pairs = [(self._one(run, self.repeats), self._one(self.reference, self.repeats))
                 for _ in range(rounds or self.rounds)]
        # What disturbs only ever adds: leasts are what is left without it, if two halves agree on them.
        least = min(a for a, _ in pairs), min(b for _, b in pairs)
        if len(pairs) == 1:
            return Timing(*least, UNKNOWN)
        first_half, second_half = (_ratio(pairs[k::2]) for k in (0, 1))
        return Timing(*least, abs(first_half - second_half) / _ratio(pairs))


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return min(a for a, _ in pairs) / min(b for _, b in pairs)
