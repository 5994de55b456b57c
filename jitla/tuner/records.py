"""Tuning records: measured schedules, their file, and the choice of schedules by pins and records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from math import inf, isfinite, log2
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from jitla.classes import dataclass
from jitla.errors import ConfigError, ScheduleError
from jitla.fusion import Value, Values
from jitla.recompile import LOOPS, TILE, UNTUNED, KernelKey, Launchable, TunableKernel
from jitla.runtime.disk_cache import UnsafeDirectory, is_private_file, open_private_directory

Matrix = NDArray[np.float64]

VERSION = 2
MIN_GAIN = 0.02  # minimum relative gain over the untuned schedule
MAX_SAMPLES = 64  # per key, and keys, that the model learns from


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


def _size_distance(a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> float:
    """Return the distance of two shapes: the sum of absolute log2 ratios; infinite for other ranks."""
    if len(a_shape) != len(b_shape):
        return inf
    return sum(abs(log2(max(a, 1)) - log2(max(b, 1))) for a, b in zip(a_shape, b_shape, strict=True))


# --------------------------------------------------------------------------- choice, and the file of records


MAX_REPORTED_CHOICES = 4096  # bound kernels whose choice is reported

FOLDER, NAME = "tuned", "records.jsonl"  # in the cache directory
MAX_RECORD_BYTES = 64 << 20  # of the record file that are read
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class ScheduleChooser:
    """Chooses the schedule of a kernel: the user's pin, else the best recorded one, else the untuned one."""

    def __init__(self, records: Records | None, target: str, relaxed: bool = False,
                 pins: Mapping[str, Values] = MappingProxyType({}),
                 watch: Callable[[TunableKernel, Launchable], Launchable] | None = None) -> None:
        self.records, self.target, self.relaxed, self.pins = records, target, relaxed, pins
        self.watch = watch  # wraps an untuned kernel in a profiling launcher
        self.chosen: dict[KernelKey, Values] = {}
        self.notes: dict[KernelKey, str] = {}

    def block(self, choice: TunableKernel) -> Launchable:
        """Return the argument block of a kernel and its launcher, with the chosen schedule."""
        pinned = self.pins.get(choice.key.kernel)
        if pinned is not None:
            try:
                executable = choice.make(checked_pins(pinned, choice, self.relaxed))
            except ScheduleError as error:  # a pin of other sizes
                self._note(choice.key, UNTUNED, f"the pinned schedule is not possible here: {error}")
                return choice.make(UNTUNED)
            self._note(choice.key, pinned, "pinned")
            return executable
        values = self.values(choice)
        if values:
            self._note(choice.key, values, "tuned")
        executable = choice.make(values)
        return executable if values or self.watch is None else self.watch(choice, executable)

    def _note(self, key: KernelKey, values: Values, said: str) -> None:
        if len(self.notes) >= MAX_REPORTED_CHOICES:
            self.notes.clear()
            self.chosen.clear()
        self.chosen[key], self.notes[key] = values, said

    def values(self, choice: TunableKernel) -> Values:
        """Return the best recorded values; `UNTUNED` if there are none, or they are not legal here."""
        key = choice.key
        record = self.records.best(key.kernel, key.shape, self.target) if self.records is not None else None
        if record is None:
            return UNTUNED
        space = choice.space() if self.relaxed else choice.space().exact()
        point = space.point(record.config)
        return UNTUNED if point is None else space.values(point)


def checked_pins(pinned: Values, choice: TunableKernel, relaxed: bool) -> Values:
    """Return the pinned values that differ from the default; raise `ScheduleError` if they are not legal.

    Pinned loops and tiles are checked when the kernel is compiled.
    """
    if LOOPS in pinned or TILE in pinned:
        return pinned
    space = choice.space()
    defaults = space.values(space.default)
    values = {name: value for name, value in pinned.items() if defaults.get(name) != value}
    inexact = [k.name for k in space.knobs if k.name in values and not k.exact]
    if inexact and not relaxed:
        raise ScheduleError("order-matters", f"knob {inexact[0]} changes the order of additions, "
                            'which only numerics="relaxed" allows')
    try:
        space.pinned(pinned)
    except ConfigError as error:
        raise ScheduleError("knob", error.args[0]) from None
    return values


def pins_to_text(pins: Mapping[str, Values]) -> str:
    """Return pins as canonical text."""
    return json.dumps({name: dict(values) for name, values in pins.items()}, sort_keys=True) if pins else ""


def parse_pins(text: str) -> dict[str, Values]:
    """Return the pins of a text; raise `ConfigError` if it is malformed."""
    try:
        pins = json.loads(text or "{}")
        if all(isinstance(v, (int, str)) for values in pins.values() for v in values.values()):
            return dict(pins)
    except (ValueError, AttributeError):
        pass
    raise ConfigError(f"schedules={text!r} is malformed; jitla.schedule writes this option")


def load_records(directory: str) -> Records:
    """Return the records of a directory, empty if it is missing or unsafe; new ones are appended there.

    Without a directory records stay in memory.
    """
    return Records(_read_records(directory), lambda text: _append_records(directory, text))


def _read_records(directory: str) -> str:
    if not directory:
        return ""
    try:
        root = open_private_directory(os.path.join(directory, FOLDER))
        try:
            handle = os.open(NAME, _READ, dir_fd=root)
        finally:
            os.close(root)
    except (OSError, UnsafeDirectory):
        return ""  # missing, or writable by others
    with os.fdopen(handle, "rb") as file:
        if not is_private_file(os.fstat(handle)):
            return ""
        return file.read(MAX_RECORD_BYTES).decode(errors="replace")


def _append_records(directory: str, text: str) -> None:
    """Append lines to the record file; if the directory is unusable, records stay in this process."""
    if not directory:
        return
    try:
        root = open_private_directory(os.path.join(directory, FOLDER), make=True)
        try:
            handle = os.open(NAME, _APPEND, 0o600, dir_fd=root)
        finally:
            os.close(root)
        with os.fdopen(handle, "ab", buffering=0) as file:
            if is_private_file(os.fstat(handle)):
                file.write(text.encode())
    except (OSError, UnsafeDirectory):
        return
