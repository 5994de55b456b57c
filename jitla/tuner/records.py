"""What was measured, from process to process: lines of JSON, only ever added to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from math import inf, isfinite, log2

import numpy as np
from numpy.typing import NDArray

from jitla.classes import dataclass
from jitla.fusion import Value

Matrix = NDArray[np.float64]

VERSION = 2
GAIN = 0.02  # by which a schedule has to be faster than the untuned one, if noise is less
MOST_SAMPLES = 64  # lines of a key, and keys, that others learn from
KEPT = 32  # lines for a key that compaction keeps


@dataclass(frozen=True, slots=True)
class Record:
    """One schedule of one kernel: `seconds` beside `reference`, those of the untuned one measured in turn.

    `kernel` names what is computed, `shape` its sizes, `target` the machine. `noise` is the share by which
    times of the same schedule differed. Only what was `verified` gave the results of the untuned one.
    `facts` are structural features, which mean the same for other kernels.
    """

    kernel: str
    shape: tuple[int, ...]
    target: str
    config: Mapping[str, Value]
    seconds: float
    reference: float
    noise: float = 0.0
    verified: bool = False
    facts: tuple[float, ...] = ()

    @property
    def gain(self) -> float:
        """By which share it is faster than the untuned one."""
        return 1.0 - self.seconds / self.reference

    @property
    def counts(self) -> bool:
        """Whether it may run: it was verified, and is better by more than noise."""
        return self.verified and self.gain > max(GAIN, 2.0 * self.noise)

    def line(self) -> str:
        """Return it as a line."""
        return json.dumps({"v": VERSION, **asdict(self)}, separators=(",", ":")) + "\n"


def parse(line: str) -> Record | None:
    """Return the record of a line; None if it is broken, or of another version."""
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or found.pop("v", None) != VERSION:
            return None
        made = Record(**{**found, "shape": tuple(map(int, found["shape"])), "facts": tuple(found["facts"])})
        texts = made.kernel, made.target, *made.config
        choices = all(type(c) in (int, str) for c in made.config.values())
        fine = all(isinstance(t, str) for t in texts) and choices and isinstance(made.verified, bool)
        times = made.seconds, made.reference, made.noise
        fine = fine and all(map(isfinite, made.facts)) and all(isfinite(t) and t >= 0 for t in times)
        return made if fine and made.reference else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


class Records:
    """Records by kernel and target; new ones are appended to where they came from."""

    def __init__(self, text: str = "", append: Callable[[str], None] | None = None) -> None:
        self._append = append
        self._kept: dict[tuple[str, str], list[Record]] = {}
        self.skipped = 0
        for line in filter(str.strip, text.splitlines()):
            record = parse(line)
            self.skipped += record is None
            if record is not None:
                self._keep(record)

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def learn(self, record: Record) -> None:
        """Keep a record that is written down already."""
        self._keep(record)

    def add(self, records: Iterable[Record]) -> None:
        """Keep records, here and where they came from."""
        made = list(records)
        for record in made:
            self._keep(record)
        if self._append is not None and made:
            self._append("".join(r.line() for r in made))

    def _keep(self, record: Record) -> None:
        self._kept.setdefault((record.kernel, record.target), []).append(record)

    def of(self, kernel: str, target: str) -> list[Record]:
        """Return the records of a kernel, of all sizes."""
        return list(self._kept.get((kernel, target), ()))

    def best(self, kernel: str, shape: tuple[int, ...], target: str) -> Record | None:
        """Return what the last tuning of these sizes has found, if it may run."""
        found = self.last(kernel, shape, target)
        return found if found is not None and found.counts else None

    def last(self, kernel: str, shape: tuple[int, ...], target: str) -> Record | None:
        """Return how the last tuning of these sizes has ended, whether or not it found anything."""
        every = reversed(self._kept.get((kernel, target), ()))
        return next((r for r in every if r.shape == shape and r.verified), None)

    def near(self, kernel: str, shape: tuple[int, ...], target: str, most: int = 4) -> list[Record]:
        """Return schedules that were best for the most similar sizes, the nearest first."""
        found: dict[tuple[int, ...], Record] = {}
        for record in self.of(kernel, target):
            kept = found.get(record.shape)
            if record.verified and (kept is None or record.gain > kept.gain):
                found[record.shape] = record
        return sorted(found.values(), key=lambda r: _apart(r.shape, shape))[:most]

    def samples(self, width: int, target: str, most: int = MOST_SAMPLES) -> list[tuple[Matrix, list[float]]]:
        """Return facts, `width` of them, and costs of what was measured last, for every kernel and size."""
        found: dict[tuple[str, tuple[int, ...]], list[Record]] = {}
        for (kernel, where), records in self._kept.items():
            for r in records:
                if where == target and len(r.facts) == width:
                    found.setdefault((kernel, r.shape), []).append(r)
        return [(np.array([r.facts for r in rs[-most:]]), [r.seconds / r.reference for r in rs[-most:]])
                for rs in list(found.values())[-most:]]

    def compacted(self) -> str:
        """Return all lines but those of schedules that were far from the best of their key."""
        lines = []
        for records in self._kept.values():
            by_shape: dict[tuple[int, ...], list[Record]] = {}
            for record in records:
                by_shape.setdefault(record.shape, []).append(record)
            for same in by_shape.values():
                same.sort(key=lambda r: r.seconds / r.reference)
                step = max((len(same) - KEPT) // KEPT, 1)
                lines += [r.line() for r in (*same[:KEPT], *same[KEPT::step][:KEPT])]
        return "".join(lines)


def _apart(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """Return how far sizes are from each other: how often they double."""
    if len(one) != len(other):
        return inf
    return sum(abs(log2(max(a, 1)) - log2(max(b, 1))) for a, b in zip(one, other, strict=True))
