"""Choice of schedules by pins of the user and stored tuning records, and the store of these records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from jitla.errors import ConfigError, ScheduleError
from jitla.fusion import Values
from jitla.recompile import LOOPS, TILE, UNTUNED, KernelKey, Launchable, TunableKernel
from jitla.runtime.disk_cache import (
    UnsafeDirectory,
    is_private_file,
    open_private_directory,
)
from jitla.tuner.records import Records

__all__ = ["ScheduleChooser", "checked_pins", "load_records", "parse_pins", "pins_to_text"]

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
