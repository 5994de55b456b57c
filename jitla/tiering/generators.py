"""The choice between traced and plain generators and coroutines, by the mean seconds of a step.

The first generators of a function run plain and are timed. After enough time one is traced, which records
its blocks; once these have programs, some more are traced and timed. The faster mode is used for a growing
number of generators, then the other one is timed again. A traced generator that is far slower than plain ones
continues without tracing. Running generators cannot switch to tracing, so long ones are traced only after
many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import inf
from time import perf_counter
from typing import Any

from jitla.introspection import hide_module

__all__ = ["StepTimes"]

#: Minimum of plain steps and of plain generators before one is traced.
SPENT_SECONDS, PLAIN_COUNT = 0.1, 3
#: Plain generators before a traced one, per second that one takes: bounds the relative cost of a trial.
PLAIN_PER_SECOND = 20.0
#: Traced generators timed for a decision, and generators until the next decision.
TRIAL_COUNT, DECISION_INTERVAL, MAX_DECISION_INTERVAL = 3, 32, 1 << 16
#: Bound on the time of a traced generator: a factor of the time of as many plain steps, plus seconds.
MAX_SLOWDOWN, MAX_EXTRA_SECONDS = 1.1, 0.03
#: Fraction of a plain step's time that tracing must save to be kept.
MIN_SAVING = 0.02


class StepTimes:
    """Step times of the generators of one call class, and the mode of the next ones."""

    def __init__(self) -> None:
        self.count = 0  # generators of the plain function that were timed
        self.spent = 0.0  # seconds of their steps
        self.longest = 0.0  # seconds of one of them
        self.plain = self.traced = inf  # least mean seconds of a step
        self.trials = 0  # of traced generators since the last decision
        self.decision_left = 0  # generators until the next decision
        self.is_traced = False  # by the last decision
        self._decisions = 0
        self._has_met_blocks = False  # whether the blocks of a traced generator have been seen

    def is_next_traced(self, waits: Callable[[], bool]) -> bool:
        """Return whether to trace the next generator; `waits` returns whether blocks lack their programs."""
        if self.decision_left > 0:
            self.decision_left -= 1
            return self.is_traced
        if self.count < max(PLAIN_COUNT, PLAIN_PER_SECOND * self.longest) or self.spent < SPENT_SECONDS:
            return False
        return not self._has_met_blocks or not waits()

    def is_timed(self) -> bool:
        """Return whether the generator just started counts for the next decision."""
        return self.decision_left <= 0

    def max_traced_seconds(self, steps: int) -> float:
        """Return the most seconds that `steps` traced steps may take."""
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
        """Record the time of a traced generator, and decide once there are enough."""
        if not self._has_met_blocks:  # its blocks had no programs yet
            self._has_met_blocks = True
            return
        self.traced = min(self.traced, seconds / max(steps, 1))
        self.trials += 1
        if self.trials >= TRIAL_COUNT:
            self._decide()

    def note_slow(self) -> None:
        """Record that a traced generator was far slower than plain ones, and decide."""
        self._has_met_blocks = True
        self._decide()

    def _decide(self) -> None:
        self.is_traced = self.traced < (1.0 - MIN_SAVING) * self.plain
        self.decision_left = min(DECISION_INTERVAL << self._decisions, MAX_DECISION_INTERVAL)
        self._decisions += 1
        self.trials = self.count = 0
        self.spent = self.longest = 0.0
        self.plain = self.traced = inf


hide_module(__name__)
