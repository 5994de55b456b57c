"""What happened inside jitla: records, a bounded memory of them, and the loggers.

Knows: the form of a record. Must not know: what any kind of event means.
Receives events from every room; returns them to explain, coverage and tests.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from time import perf_counter
from typing import Any

from jitla.classes import dataclass
from jitla.locks import relock

__all__ = ["Event", "Recorder", "compile_log", "log"]

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
