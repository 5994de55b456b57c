"""What was planned and compiled for the blocks of one function: when, why, how long it took.

Knows: which block was met at a place before. Must not know: plans, who compiles.
Receives blocks that have no exact plan, and what was made for them; returns records.
"""

from __future__ import annotations

from collections import deque
from time import time
from typing import Any, NamedTuple

from jitla.making import Made
from jitla.tracing.guards import NEW, Guard, Met, failed, met
from jitla.tracing.tape import SCALAR, Block

KEPT = 512  # records
MOST_PLACES = 1024


class Recompilation(NamedTuple):
    """One time that a block had no plan as it was: why, what was done, and what that took.

    `tier` is "now" (the call waited), "behind" (NumPy ran meanwhile) or "none" (NumPy ran, nothing was
    made). `plans` were made, `compiled` kernels of `nbytes` together, `reused` kernels were there.
    """

    at: float
    line: tuple[str, int] | None
    operations: int
    guard: Guard
    tier: str
    plans: int
    compiled: int
    reused: int
    nbytes: int
    seconds: float


class Journal:
    """The records of one function, the last `KEPT`, and all of them as counts."""

    def __init__(self) -> None:
        self.records: deque[Recompilation] = deque(maxlen=KEPT)
        self.misses = self.planned = self.compiled = self.reused = 0
        self.seconds = 0.0
        self._met: dict[Any, Met] = {}

    def why(self, path: Any, block: Block, fate: tuple[Any, ...], key: tuple, epoch: int) -> Guard:
        """Return why the plans of `block`'s place do not hold, and remember the block."""
        now = met(block, fate, key, epoch)
        tape = (path, tuple(entry[0] for entry in block.entries))
        before = self._met.get(tape) or self._met.get(path)
        if len(self._met) >= MOST_PLACES:
            self._met.clear()
        self._met[tape] = self._met[path] = now
        return NEW if before is None else failed(before, now)

    def add(self, guard: Guard, tier: str, made: Made, line: Any, operations: int) -> Recompilation:
        """Note what was made because `guard` failed."""
        if made.why is not None and guard is not NEW:
            name, expected, seen = made.why
            guard = Guard(name, "", expected, seen)
        record = Recompilation(
            time(), line, operations, guard, tier, made.plans, made.compiled, made.reused, made.nbytes,
            made.seconds)
        self.records.append(record)
        self.misses += 1
        self.planned += made.plans
        self.compiled += made.compiled
        self.reused += made.reused
        self.seconds += made.seconds
        return record

    def clear(self) -> None:
        """Forget everything."""
        self.__init__()


def ending(block: Block, roots: tuple[int, ...]) -> tuple[tuple[str, int] | None, int]:
    """Return the user's line of the last root, and how many operations there are."""
    lines = [block.lines[i] for i in roots if i in block.lines]
    return lines[-1] if lines else None, sum(e[0] > SCALAR for e in block.entries)
