"""Ledgers: the seconds that calls have taken, and those that trials have lost."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from jitla.tiering.policy import (
    PROCESS_REGRET_SECONDS,
    PROCESS_REGRET_SHARE,
    REGRET_SECONDS,
    REGRET_SHARE,
)


class ProcessLedger:
    """The seconds lost in this process, of its wall time since the first call."""

    __slots__ = ("lost", "_clock", "_start")

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self.lost = 0.0
        self._clock = clock
        self._start = clock()

    def allowance(self) -> float:
        """Return the seconds that trials may lose now."""
        return PROCESS_REGRET_SHARE * (self._clock() - self._start) + PROCESS_REGRET_SECONDS - self.lost


PROCESS_LEDGER = ProcessLedger()


class Ledger:
    """The seconds that calls of one class have `spent`, and those that they have `lost` to trials."""

    __slots__ = ("spent", "lost", "_process")

    def __init__(self, process: ProcessLedger = PROCESS_LEDGER) -> None:
        self.spent = self.lost = 0.0
        self._process = process

    def allowance(self) -> float:
        """Return the seconds that a trial may lose now."""
        return min(REGRET_SHARE * self.spent + REGRET_SECONDS - self.lost, self._process.allowance())

    def lose(self, seconds: float) -> None:
        """Charge the seconds that a call took more than a plain one; a negative number changes nothing."""
        if seconds > 0.0:
            self.lost += seconds
            self._process.lost += seconds

    def forgive(self, seconds: float) -> None:
        """Take back a charge: plain calls turned out to take as long."""
        seconds = min(seconds, self.lost)
        self.lost -= seconds
        self._process.lost -= seconds
