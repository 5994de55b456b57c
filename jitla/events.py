"""The event log, and timers of program runs."""

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
from jitla.concurrency import fork_safe_lock

__all__ = [
    "Clock", "Event", "Lap", "Recorder", "CallWatch", "compile_log", "log", "record_moment",
    "record_sparse_matrix", "median_seconds",
    "watch_calls",
]


TIMED_RUNS = 5  # of each binding; only the first is affected by cold caches
MAX_LAPS = 256  # of a program


MAX_MOMENTS = 10_000  # of a watch
_WATCHES: list[CallWatch] = []  # active watches: if there are any, every run of every program is timed


@dataclass
class CallWatch:
    """Measurements of one watched call: start, seconds, and moments (name, start, seconds, thread).

    `stored` are the sparse matrices made: class and shape, elements, bound on entries, actual entries.
    """

    begun: float = field(default_factory=perf_counter)
    seconds: float = 0.0
    moments: list[tuple[str, float, float, int]] = field(default_factory=list)
    stored: list[tuple[str, int, int, int]] = field(default_factory=list)
    max_moments: int = MAX_MOMENTS  # of each list


def record_moment(name: str, begun: float, seconds: float) -> None:
    """Record time that a call spent outside of programs, for every active watch."""
    for watch in _WATCHES:
        if len(watch.moments) < watch.max_moments:
            watch.moments.append((name, begun, seconds, threading.get_ident()))


def record_sparse_matrix(matrix: Any, max_entries: int) -> None:
    """Record a sparse matrix with at most `max_entries` entries, for every active watch."""
    for watch in _WATCHES:
        if len(watch.stored) < watch.max_moments:
            rows, columns = matrix.shape
            title = f"{type(matrix).__name__} {rows}x{columns} {matrix.dtype}"
            watch.stored.append((title, rows * columns, max_entries, matrix.nnz))


class Clock:
    """The laps of one program; `on`: whether its next run is timed.

    The first runs of each binding (program bound to sizes and layouts) are timed.
    """

    __slots__ = ("laps", "on", "steps", "timed")

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.on = True
        self.timed: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # timed runs of each binding
        self.laps: deque[Lap] = deque(maxlen=MAX_LAPS)

    def start(self, binding: Any = None) -> Lap:
        """Start the lap of a run of `binding`."""
        return Lap(self, binding)


def median_seconds(laps: Sequence[Lap]) -> tuple[float, ...]:
    """Return the median seconds of each step, the whole run last, without the first lap."""
    columns = zip(*[(*lap.seconds, lap.whole) for lap in laps[1:] or laps], strict=True)
    return tuple(_median(column) for column in columns)


def _median(values: tuple[float, ...]) -> float:
    """Return the median; importing `statistics` takes milliseconds."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


class Lap:
    """The timing of one run of a `binding`: start, seconds of its steps, seconds in all (`whole`), thread.

    `counts` are nonzeros of the results of steps, by step, if the call is watched.
    """

    __slots__ = ("begun", "binding", "counts", "seconds", "watched", "whole", "thread", "_excluded", "_clock",
                 "_last")

    def __init__(self, clock: Clock, binding: Any = None) -> None:
        self.binding = binding and ref(binding)  # weak: laps do not keep bindings alive
        self.counts: dict[int, int] = {}
        self.watched = bool(_WATCHES)
        self._excluded = 0.0
        self._clock = clock
        self.seconds = [0.0] * clock.steps
        self.whole = 0.0
        self.thread = threading.get_ident()
        self.begun = self._last = perf_counter()

    def step(self, at: int) -> None:
        """Record the end of step number `at`."""
        now = perf_counter()
        self.seconds[at] = now - self._last
        self._last = perf_counter()

    def count(self, at: int, nonzeros: int) -> None:
        """Record the nonzeros of the result of step number `at`; the time of counting is excluded."""
        self.counts[at] = nonzeros
        now = perf_counter()
        self._excluded += now - self._last
        self._last = now

    def end(self) -> None:
        """Record the end of the run."""
        self.whole = perf_counter() - self.begun - self._excluded
        clock = self._clock
        clock.laps.append(self)
        binding = self.binding and self.binding()
        runs = len(clock.laps)
        if binding is not None:
            runs = clock.timed[binding] = clock.timed.get(binding, 0) + 1
        clock.on = runs < TIMED_RUNS or bool(_WATCHES)


@contextmanager
def watch_calls(clocks: Collection[Clock] = (), max_moments: int = MAX_MOMENTS) -> Iterator[CallWatch]:
    """Time every run inside the ``with`` block, of programs with `clocks` and of new ones."""
    watch = CallWatch(max_moments=max_moments)
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
compile_log = logging.getLogger("jitla.compile")  # one record per compilation


@dataclass(frozen=True, slots=True)
class Event:
    """An event: `kind` ("rewrites.static"), `subject`, `seconds`, `data`."""

    kind: str
    subject: str = ""
    seconds: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = [self.subject, *(f"{k}={self.data[k]}" for k in sorted(self.data))]
        return f"{self.kind}: " + " ".join(f for f in facts if f)


class Recorder:
    """A bounded, thread-safe event log: the last `limit` events in full, all of them as counts."""

    def __init__(self, limit: int = 1000) -> None:
        self._events: deque[Event] = deque(maxlen=limit)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = fork_safe_lock()

    def record(self, event: Event) -> None:
        """Append `event`; it is also logged, at level DEBUG."""
        with self._lock:
            self._events.append(event)
            if (event.kind, event.subject) in self._counts or len(self._counts) < _MAX_SUBJECTS:
                self._counts[event.kind, event.subject] += 1
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", event)

    def record_once(self, event: Event) -> bool:
        """Append `event`, and log a warning if its kind and subject are new; return whether they are."""
        is_new = self.count(event.kind, event.subject) == 0
        self.record(event)
        if is_new:
            log.warning("%s", event)
        return is_new

    @contextmanager
    def timed(self, kind: str, subject: str = "", **data: Any) -> Iterator[dict[str, Any]]:
        """Record an event for the ``with`` block with its time; data may be added to the yielded dict."""
        start = perf_counter()
        try:
            yield data
        finally:
            self.record(Event(kind, subject, perf_counter() - start, data))

    def recent(self, kind: str = "") -> tuple[Event, ...]:
        """Return the logged events of `kind`; "rewrites" includes "rewrites.static"."""
        with self._lock:
            events = tuple(self._events)
        return tuple(e for e in events if not kind or e.kind == kind or e.kind.startswith(kind + "."))

    def count(self, kind: str, subject: str | None = None) -> int:
        """Return the number of events of `kind` since the last `clear`, of `subject` if given."""
        with self._lock:
            if subject is not None:
                return self._counts[kind, subject] if (kind, subject) in self._counts else 0
            return sum(n for (k, _), n in self._counts.items() if k == kind)

    def clear(self) -> None:
        """Remove all events and counts."""
        with self._lock:
            self._events.clear()
            self._counts.clear()


# Subjects come from user code (file:line) and are unbounded; beyond this number, new ones are not counted.
_MAX_SUBJECTS = 10_000
