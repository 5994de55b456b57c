"""Persistent records of measurements: append-only lines of JSON."""

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
MIN_GAIN = 0.02  # minimum relative gain over the untuned schedule
MAX_SAMPLES = 64  # per key, and keys, that the model learns from
COMPACTED_LINES = 32  # best lines per key that compaction keeps, and as many others


@dataclass(frozen=True, slots=True)
class Record:
    """A measurement of one schedule of one kernel: `seconds`, and `reference` of the untuned one beside it.

    `kernel` is the hash of the computation, `shape` its sizes, `target` the machine. `noise` is the relative
    difference of timings of the same schedule. A `verified` one gave the results of the untuned one in a
    confirming measurement. `facts` are structural features, comparable between kernels.
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
        """The relative gain over the untuned schedule."""
        return 1.0 - self.seconds / self.reference

    @property
    def is_usable(self) -> bool:
        """Whether the schedule may be used: it is verified and faster by more than the noise."""
        return self.verified and self.gain > max(MIN_GAIN, 2.0 * self.noise)

    def line(self) -> str:
        """Return the record as a line of JSON."""
        return json.dumps({"v": VERSION, **asdict(self)}, separators=(",", ":")) + "\n"


def parse(line: str) -> Record | None:
    """Return the record of a line; None if it is malformed or of another version."""
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict) or fields.pop("v", None) != VERSION:
            return None
        fields |= {"shape": tuple(map(int, fields["shape"])), "facts": tuple(fields["facts"])}
        record = Record(**fields)
        texts = record.kernel, record.target, *record.config
        choices = all(type(c) in (int, str) for c in record.config.values())
        is_valid = all(isinstance(t, str) for t in texts) and choices and isinstance(record.verified, bool)
        times = record.seconds, record.reference, record.noise
        is_valid = is_valid and all(map(isfinite, record.facts)) and \
            all(isfinite(t) and t >= 0 for t in times)
        return record if is_valid and record.reference else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


class Records:
    """Records by kernel and target; new ones are passed to `append` as text."""

    def __init__(self, text: str = "", append: Callable[[str], None] | None = None) -> None:
        self._append = append
        self._by_kernel: dict[tuple[str, str], list[Record]] = {}
        self.skipped = 0
        for line in filter(str.strip, text.splitlines()):
            record = parse(line)
            self.skipped += record is None
            if record is not None:
                self._insert(record)

    def __len__(self) -> int:
        return sum(map(len, self._by_kernel.values()))

    def learn(self, record: Record) -> None:
        """Insert a record that is stored already."""
        self._insert(record)

    def add(self, records: Iterable[Record]) -> None:
        """Insert records and append them to the store."""
        new = list(records)
        for record in new:
            self._insert(record)
        if self._append is not None and new:
            self._append("".join(r.line() for r in new))

    def _insert(self, record: Record) -> None:
        self._by_kernel.setdefault((record.kernel, record.target), []).append(record)

    def of_kernel(self, kernel: str, target: str) -> list[Record]:
        """Return the records of a kernel for all shapes."""
        return list(self._by_kernel.get((kernel, target), ()))

    def best(self, kernel: str, shape: tuple[int, ...], target: str) -> Record | None:
        """Return the record of the last tuning of a shape if it is usable."""
        record = self.last(kernel, shape, target)
        return record if record is not None and record.is_usable else None

    def last(self, kernel: str, shape: tuple[int, ...], target: str) -> Record | None:
        """Return the final record of the last tuning of a shape, usable or not."""
        latest_first = reversed(self._by_kernel.get((kernel, target), ()))
        return next((r for r in latest_first if r.shape == shape and r.verified), None)

    def near(self, kernel: str, shape: tuple[int, ...], target: str, most: int = 4) -> list[Record]:
        """Return the best records of the most similar shapes, nearest first."""
        best_by_shape: dict[tuple[int, ...], Record] = {}
        for record in self.of_kernel(kernel, target):
            best = best_by_shape.get(record.shape)
            if record.verified and (best is None or record.gain > best.gain):
                best_by_shape[record.shape] = record
        return sorted(best_by_shape.values(), key=lambda r: _size_distance(r.shape, shape))[:most]

    def samples(self, width: int, target: str, most: int = MAX_SAMPLES) -> list[tuple[Matrix, list[float]]]:
        """Return features, `width` of them, and relative costs of recent measurements by kernel and shape."""
        by_key: dict[tuple[str, tuple[int, ...]], list[Record]] = {}
        for (kernel, record_target), records in self._by_kernel.items():
            for r in records:
                if record_target == target and len(r.facts) == width:
                    by_key.setdefault((kernel, r.shape), []).append(r)
        return [(np.array([r.facts for r in rs[-most:]]), [r.seconds / r.reference for r in rs[-most:]])
                for rs in list(by_key.values())[-most:]]

    def compact(self) -> str:
        """Return the lines of the best records of each key and a sample of the others."""
        lines = []
        for records in self._by_kernel.values():
            by_shape: dict[tuple[int, ...], list[Record]] = {}
            for record in records:
                by_shape.setdefault(record.shape, []).append(record)
            for of_shape in by_shape.values():
                of_shape.sort(key=lambda r: r.seconds / r.reference)
                step = max((len(of_shape) - COMPACTED_LINES) // COMPACTED_LINES, 1)
                others = of_shape[COMPACTED_LINES::step][:COMPACTED_LINES]
                lines += [r.line() for r in (*of_shape[:COMPACTED_LINES], *others)]
        return "".join(lines)


def _size_distance(a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> float:
    """Return the distance of two shapes: the sum of absolute log2 ratios; infinite for other ranks."""
    if len(a_shape) != len(b_shape):
        return inf
    return sum(abs(log2(max(a, 1)) - log2(max(b, 1))) for a, b in zip(a_shape, b_shape, strict=True))
