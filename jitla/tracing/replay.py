"""Blocks run op by op, without a program.

Knows: hops, NumPy. Must not know: sites, proxies, why no program was made. Receives what a compiler
would be asked for; returns the values of its roots.
"""

from __future__ import annotations

from math import inf
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from jitla.hops import Evaluation, Flagged, Hop, heard, hush, listen
from jitla.tracing.script import script

# Part of its time that a block's program is thought to save at least: what is foreseen is rough.
LITTLE = 0.05
# Seconds from which on it is looked how many processors a run keeps busy: looking takes microseconds.
LONG = 1e-4


class Request(NamedTuple):
    """What a compiler is asked to make: hops of the values to compute and how they meet memory."""

    roots: tuple[Hop, ...]
    layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    outs: tuple[int | None, ...]
    aliases: frozenset[tuple[int, int, int]]
    # The user's (file, line) of each root, as far as known: hops may be shared with other functions.
    lines: tuple[tuple[str, int] | None, ...] = ()
    # The same as entries of the tape, and which of them are the roots, if there are such.
    tape: tuple[tuple[Any, ...], tuple[int, ...]] | None = None


class Replay:
    """A block run op by op with NumPy: what is left when no program can be made or one fails."""

    kernels = calls = written = 0
    effects: Any = None
    # Whether there would be a program if one might be made.
    frozen = False

    def __init__(self, request: Request) -> None:
        self.request = request
        self.count = 0
        self._compute = Evaluation(request.roots) if request.tape is None else script(*request.tape)

    @property
    def program(self) -> Any:
        """What counts as the program of this block."""
        return self

    def run(self, leaves: list[Any]) -> tuple[Any, ...]:
        """Return the values of the roots; they are memory of their own, or the leaf stored into."""
        self.count += 1
        request = self.request
        results: list[Any] = []
        before = listen()
        try:
            values = self._compute(leaves)
        finally:
            hush(before)
            flags = heard()
        for value in values:
            if isinstance(value, np.ndarray) and is_shared(value, (*results, *leaves)):
                value = value.copy("K")
            results.append(value)
        stored = {slot for slot in request.outs if slot is not None}
        stored |= {b for x, y, _ in request.aliases for a, b in ((x, y), (y, x)) if a in stored}
        saved = {slot: leaves[slot].copy("K") for slot in stored} if flags else {}
        for i, slot in enumerate(request.outs):
            if slot is not None:
                leaves[slot][...] = results[i]
                results[i] = leaves[slot]
        if flags:
            raise Flagged(tuple(results), flags, saved)
        return tuple(results)

    def text(self) -> str:
        """Say what this is."""
        return "== replay\nrun op by op with NumPy"


def is_shared(value: np.ndarray, others: tuple[Any, ...]) -> bool:
    """Say whether an array is one of `others`, or shares memory with one of them.

    What NumPy has just made and is no view does not.
    """
    if value.base is None:
        return any([value is a for a in others])
    return any(np.may_share_memory(value, a) for a in others if isinstance(a, np.ndarray))


class Stopped:
    """What ran before programs were there, or was run by those forgotten, as a program that is counted."""

    kernels = calls = written = 0


MEANWHILE, FORGOTTEN = Stopped(), Stopped()


class Patience:
    """Seconds that calls have taken in this process while programs were missing.

    `making` counts those in which calls waited for programs of blocks that NumPy had run before.
    """

    seconds = making = 0.0


class Alike:
    """Blocks that one program serves, whatever their sizes: seconds that NumPy took for them so far.

    Whether an earlier process has `kept` it (None: not looked yet), whether it was asked for, is there, or
    will never be.
    """

    __slots__ = ("kept", "spent", "asked", "there", "given_up")

    def __init__(self, spent: float = 0.0) -> None:
        self.kept: bool | None = None
        self.spent = spent
        self.asked = self.there = self.given_up = False


class Standby(Replay):
    """A block that NumPy runs until its program is there: `made`, which is asked for when that pays.

    ``job.ask(standby, again)`` asks for it, once it would have saved `cost` seconds if a run took `least`
    of them, ``job.before(standby)`` before the next run. ``job.saw(seconds, worked)`` is told what a run
    took, and all processors for it, unless it is short. What others `alike` took counts.
    """

    def __init__(
        self, request: Request, cost: float, least: float, job: Any, alike: Alike | None = None,
    ) -> None:
        super().__init__(request)
        self._cost, self.least = cost, least
        self.quickest = inf  # seconds of a run
        self.made: Any = None
        self.alike = alike or Alike()
        self._job = job
        self.spent = 0.0  # seconds, until the program was there

    @property
    def asked(self) -> bool:
        """Whether somebody makes the program, or is about to."""
        return self.alike.asked

    @property
    def program(self) -> Any:
        """The program, once it is there."""
        return self if self.made is None else self.made.program

    @property
    def due(self) -> float:
        """Seconds after which the program is asked for."""
        return self._cost / max(1.0 - self.least / self.quickest, LITTLE)

    @property
    def pace(self) -> float:
        """Seconds that an operation takes; without end if none was done yet."""
        return self.quickest / max(len(self.request.tape[0] if self.request.tape else self.request.roots), 1)

    def run(self, leaves: list[Any]) -> tuple[Any, ...]:
        """Return the values of the roots."""
        if self.made is None and self._is_due():
            self._job.before(self)
        if self.made is not None:
            values: tuple[Any, ...] = self.made.run(leaves)
            return values
        long = self.quickest > LONG
        worked = process_time() if long else 0.0
        start = perf_counter()
        try:
            return super().run(leaves)
        finally:
            taken = perf_counter() - start
            if long:
                self._job.saw(taken, process_time() - worked)
            self.quickest = min(self.quickest, taken)
            self.spent += taken
            self.alike.spent += taken
            Patience.seconds += taken
            if self._is_due():
                self.ask(True)

    def _is_due(self) -> bool:
        return self.alike.spent >= self.due and not self.alike.given_up

    def postpone(self) -> None:
        """Let the program be asked for again when NumPy has taken as long once more as it has by now."""
        self._cost = max(self._cost, 2.0 * self.alike.spent)
        self.alike.asked = False

    def ask(self, again: bool) -> None:
        """Ask for the program; `again`: the block is thought to run once more before it is there."""
        self._job.ask(self, again)
