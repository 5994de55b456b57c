"""The event log, and timers of steps."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary, ref

from jitla.classes import dataclass
from jitla.concurrency import relock

__all__ = [
    "Clock", "Event", "Lap", "Recorder", "Watch", "compile_log", "log", "moment", "stored", "usual",
    "watching",
]


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


log = logging.getLogger("jitla")
log.addHandler(logging.NullHandler())
compile_log = logging.getLogger("jitla.compile")  # what was compiled, for whom, how long that took


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: `kind` ("rewrites.static"), `subject`, `seconds`, `data`."""

    kind: str
    subject: str = ""
    seconds: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = [self.subject, *(f"{k}={self.data[k]}" for k in sorted(self.data))]
        return f"{self.kind}: " + " ".join(f for f in facts if f)


class Recorder:
    """A bounded, thread-safe memory of events: the last `limit` in full, all of them as counts."""

    def __init__(self, limit: int = 1000) -> None:
        self._kept: deque[Event] = deque(maxlen=limit)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = relock()

    def record(self, event: Event) -> None:
        """Remember `event`; it is also logged, at level DEBUG."""
        with self._lock:
            self._kept.append(event)
            if (event.kind, event.subject) in self._counts or len(self._counts) < _SUBJECTS:
                self._counts[event.kind, event.subject] += 1
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", event)

    def once(self, event: Event, level: int = logging.WARNING) -> bool:
        """Remember `event`; log it at `level` if its kind and subject are new. True if so."""
        fresh = self.count(event.kind, event.subject) == 0
        self.record(event)
        if fresh:
            log.log(level, "%s", event)
        return fresh

    @contextmanager
    def timed(self, kind: str, subject: str = "", **data: Any) -> Iterator[dict[str, Any]]:
        """Record what the ``with`` block does, with its time; facts may be added to the dict."""
        start = perf_counter()
        try:
            yield data
        finally:
            self.record(Event(kind, subject, perf_counter() - start, data))

    def recent(self, kind: str = "") -> tuple[Event, ...]:
        """Return the remembered events of `kind`; "rewrites" includes "rewrites.static"."""
        with self._lock:
            kept = tuple(self._kept)
        return tuple(e for e in kept if not kind or e.kind == kind or e.kind.startswith(kind + "."))

    def count(self, kind: str, subject: str | None = None) -> int:
        """Return how often `kind` happened since the last `clear`, to `subject` if given."""
        with self._lock:
            if subject is not None:
                return self._counts[kind, subject] if (kind, subject) in self._counts else 0
            return sum(n for (k, _), n in self._counts.items() if k == kind)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self._counts.clear()


# Subjects come from user code (file:line) without end; beyond this many, new ones are not counted.
_SUBJECTS = 10_000










