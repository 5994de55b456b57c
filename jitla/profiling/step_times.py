"""Which way generators and coroutines of a decorated function go: traced or plain, by the seconds of a step.

The first ones run plain and are timed. Once they have taken long enough one is traced, which meets its
blocks; when these have programs, some more are traced and timed. The way whose steps take fewer seconds is
kept for a number of generators that grows, then the other one is timed again. A traced generator whose
steps take far longer than plain ones goes on without tracing. Generators that are traced are not converted
back, so long ones are traced only after many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import inf
from time import perf_counter
from typing import Any

from jitla.introspection.frames import hide_module

__all__ = ["StepTimes"]

#: Seconds of plain steps before anything is traced, and generators that have run plain by then.
SPENT_SECONDS, PLAIN_COUNT = 0.1, 3
#: Plain generators for each second that one of them takes before one is traced: what a trial may lose.
PLAIN_PER_SECOND = 20.0
#: Traced generators that are timed for a decision, and generators until the next one.
TRIALS, REST, MAX_REST = 3, 32, 1 << 16
#: Bound on the time of a traced generator: a factor of the time of as many plain steps, plus seconds.
MAX_SLOWDOWN, MAX_EXTRA_SECONDS = 1.1, 0.03
#: Fraction of a plain step's time that tracing must save to be kept.
MIN_SAVING = 0.02


class StepTimes:
    """The seconds of steps of generators that are given about as many elements."""

    def __init__(self) -> None:
        self.count = 0  # generators of the plain function that were timed
        self.spent = 0.0  # seconds of their steps
        self.longest = 0.0  # seconds of one of them
        self.plain = self.traced = inf  # least mean seconds of a step
        self.trials = 0  # of traced generators since the last decision
        self.rest = 0  # generators until the next decision
        self.is_traced = False  # by the last decision
        self._decisions = 0
        self._met = False  # whether the blocks of a traced generator have been seen

    def is_next_traced(self, waits: Callable[[], bool]) -> bool:
        """Say whether the next generator is traced; `waits` says whether blocks wait for their programs."""
        if self.rest > 0:
            self.rest -= 1
            return self.is_traced
        if self.count < max(PLAIN_COUNT, PLAIN_PER_SECOND * self.longest) or self.spent < SPENT_SECONDS:
            return False
        return not self._met or not waits()

    def is_timed(self) -> bool:
        """Say whether the generator that has just been begun is one of those that decisions are made by."""
        return self.rest <= 0

    def allowed(self, steps: int) -> float:
        """Return the most seconds that this number of traced steps may take."""
        return MAX_SLOWDOWN * steps * self.plain + MAX_EXTRA_SECONDS if self.plain < inf else inf

    def run_plain(self, steps: Any, close: Callable[[Any], None]) -> Generator[Any, Any, Any]:
        """Run a generator of the plain function and time its steps; `close` ends it before its last one."""
        count, spent = 0, 0.0
        sent: Any = None
        step: Callable[..., Any] = steps.send
        try:
            while True:
                count += 1
                start = perf_counter()
                try:
                    value = step(sent)
                except StopIteration as stop:
                    return stop.value
                finally:
                    spent += perf_counter() - start
                    sent = None
                try:
                    sent, step = (yield value), steps.send
                except GeneratorExit:
                    close(steps)
                    raise
                except BaseException as thrown:
                    sent, step = thrown, steps.throw
        finally:
            self.count += 1
            self.spent += spent
            self.longest = max(self.longest, spent)
            if count:
                self.plain = min(self.plain, spent / count)

    def note_traced(self, steps: int, seconds: float) -> None:
        """Note what the steps of a traced generator took, and decide once there are enough."""
        if not self._met:  # its blocks had no programs yet
            self._met = True
            return
        self.traced = min(self.traced, seconds / max(steps, 1))
        self.trials += 1
        if self.trials >= TRIALS:
            self._decide()

    def note_dear(self) -> None:
        """Note that a traced generator took far longer than plain ones, its programs being there or not."""
        self._met = True
        self._decide()

    def _decide(self) -> None:
        self.is_traced = self.traced < (1.0 - MIN_SAVING) * self.plain
        self.rest = min(REST << self._decisions, MAX_REST)
        self._decisions += 1
        self.trials = self.count = 0
        self.spent = self.longest = 0.0
        self.plain = self.traced = inf


hide_module(__name__)
