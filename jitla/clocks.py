"""How long the steps of programs take: measured in their first runs, and whenever somebody watches.

Knows: the clock. Must not know: programs, what a step is.
Receives the ends of steps by number; returns the laps of a program.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary, ref

from jitla.classes import dataclass

__all__ = ["Clock", "Lap", "Watch", "moment", "stored", "usual", "watching"]

FIRST = 5  # runs of a program that are timed; what a cold cache does shows in the first alone
KEPT = 256  # laps of a program that are remembered


MOST = 10_000  # moments that a watch remembers
_WATCHES: list[Watch] = []  # while anybody watches, every run of every program is timed


@dataclass
class Watch:
    """A call that is watched: when it began, its seconds, its moments: name, begin, seconds, thread.

    `stored` are the sparse matrices it made: class and sizes, elements, entries at most, entries there.
    """

    begun: float = field(default_factory=perf_counter)
    seconds: float = 0.0
    moments: list[tuple[str, float, float, int]] = field(default_factory=list)
    stored: list[tuple[str, int, int, int]] = field(default_factory=list)


def moment(name: str, begun: float, seconds: float) -> None:
    """Take note of what a call spent time for outside of programs, if anybody watches."""
    for watch in _WATCHES:
        if len(watch.moments) < MOST:
            watch.moments.append((name, begun, seconds, threading.get_ident()))


def stored(matrix: Any, most: int) -> None:
    """Take note of a sparse matrix that was made, of at most so many entries, if anybody watches."""
    for watch in _WATCHES:
        if len(watch.stored) < MOST:
            rows, columns = matrix.shape
            title = f"{type(matrix).__name__} {rows}x{columns} {matrix.dtype}"
            watch.stored.append((title, rows * columns, most, matrix.nnz))


class Clock:
    """The laps of one program; `on`: whether its next run is timed.

    A program is run by bindings of it, the first runs of each of which are timed: its sizes, its function.
    """

    __slots__ = ("laps", "on", "steps", "timed")

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.on = True
        self.timed: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # runs of each binding that were
        self.laps: deque[Lap] = deque(maxlen=KEPT)

    def start(self, binding: Any = None) -> Lap:
        """Begin a run of a binding."""
        return Lap(self, binding)


def usual(laps: Sequence[Lap]) -> tuple[float, ...]:
    """Return what each step takes, the whole run last: the median of `laps`, the first left out."""
    columns = zip(*[(*lap.seconds, lap.whole) for lap in laps[1:] or laps], strict=True)
    return tuple(_median(column) for column in columns)


def _median(values: tuple[float, ...]) -> float:
    """Return the middle value; the module that has such things takes milliseconds to import."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


class Lap:
    """One run of a `binding`: when it `begun`, the seconds of its steps and of all of it, in which thread.

    `counts` are elements other than 0 of what steps made, by number, if somebody watched.
    """

    __slots__ = ("begun", "binding", "counts", "seconds", "watched", "whole", "thread", "_aside", "_clock",
                 "_last")

    def __init__(self, clock: Clock, binding: Any = None) -> None:
        self.binding = binding and ref(binding)  # it goes when its function needs it no more
        self.counts: dict[int, int] = {}
        self.watched = bool(_WATCHES)
        self._aside = 0.0
        self._clock = clock
        self.seconds = [0.0] * clock.steps
        self.whole = 0.0
        self.thread = threading.get_ident()
        self.begun = self._last = perf_counter()

    def step(self, at: int) -> None:
        """Take note that step number `at` is done."""
        now = perf_counter()
        self.seconds[at] = now - self._last
        self._last = perf_counter()

    def count(self, at: int, found: int) -> None:
        """Take note of how many elements other than 0 step number `at` made; counting is nobody's time."""
        self.counts[at] = found
        now = perf_counter()
        self._aside += now - self._last
        self._last = now

    def end(self) -> None:
        """Take note that the run is done."""
        self.whole = perf_counter() - self.begun - self._aside
        clock = self._clock
        clock.laps.append(self)
        binding = self.binding and self.binding()
        runs = len(clock.laps)
        if binding is not None:
            runs = clock.timed[binding] = clock.timed.get(binding, 0) + 1
        clock.on = runs < FIRST or bool(_WATCHES)


@contextmanager
def watching(clocks: Collection[Clock] = ()) -> Iterator[Watch]:
    """Time every run in the ``with`` block, those of programs with `clocks` among them."""
    watch = Watch()
    _WATCHES.append(watch)
    for clock in clocks:
        clock.on = True
    try:
        yield watch
    finally:
        watch.seconds = perf_counter() - watch.begun
        _WATCHES[:] = [other for other in _WATCHES if other is not watch]
