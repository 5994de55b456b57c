"""Schedules that users have pinned, and those that were tuned, from process to process: choosing by them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from jitla.errors import ConfigError, ScheduleError
from jitla.fusion import Values
from jitla.recompile import LOOPS, TILE, UNTUNED, Choice, Key, Made
from jitla.runtime.disk_cache import (
    UnsafeDirectory,
    is_private_file,
    open_private_directory,
)
from jitla.tuner.records import Records

__all__ = ["Tuned", "legal", "load", "read", "written"]

MOST = 4096  # bound kernels of which is remembered what was chosen

FOLDER, NAME = "tuned", "records.jsonl"  # in the cache directory
LARGEST = 64 << 20  # bytes of records that are read
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_ADD = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class Tuned:
    """Chooses for every kernel what its user has pinned, else what was found best, else what runs untuned."""

    def __init__(self, records: Records | None, target: str, relaxed: bool = False,
                 pins: Mapping[str, Values] = MappingProxyType({}),
                 watch: Callable[[Choice, Made], Made] | None = None) -> None:
        self.records, self.target, self.relaxed, self.pins = records, target, relaxed, pins
        self.watch = watch  # makes of what runs a kernel untuned what also sees how long that takes
        self.chosen: dict[Key, Values] = {}
        self.said: dict[Key, str] = {}

    def block(self, choice: Choice) -> Made:
        """Return the argument block of a kernel and what runs it."""
        pinned = self.pins.get(choice.key.kernel)
        if pinned is not None:
            try:
                made = choice.make(legal(pinned, choice, self.relaxed))
            except ScheduleError as error:  # it was made for other sizes
                self._note(choice.key, UNTUNED, f"what is pinned is not possible here: {error}")
                return choice.make(UNTUNED)
            self._note(choice.key, pinned, "pinned")
            return made
        values = self.values(choice)
        if values:
            self._note(choice.key, values, "tuned")
        made = choice.make(values)
        return made if values or self.watch is None else self.watch(choice, made)

    def _note(self, key: Key, values: Values, said: str) -> None:
        if len(self.said) >= MOST:
            self.said.clear()
            self.chosen.clear()
        self.chosen[key], self.said[key] = values, said

    def values(self, choice: Choice) -> Values:
        """Return what was found best; nothing if there is none, or it is not legal here."""
        key = choice.key
        record = self.records.best(key.kernel, key.shape, self.target) if self.records is not None else None
        if record is None:
            return UNTUNED
        made = choice.space() if self.relaxed else choice.space().exact()
        point = made.point(record.config)
        return UNTUNED if point is None else made.values(point)


def legal(pinned: Values, choice: Choice, relaxed: bool) -> Values:
    """Return what is pinned, as far as it is not as usual; raise `ScheduleError` if that is not possible.

    Loops and tiles that are pinned are judged when they are made.
    """
    if LOOPS in pinned or TILE in pinned:
        return pinned
    space = choice.space()
    usual = space.values(space.default)
    found = {name: value for name, value in pinned.items() if usual.get(name) != value}
    inexact = [k.name for k in space.knobs if k.name in found and not k.exact]
    if inexact and not relaxed:
        raise ScheduleError("order-matters", f"in which order values are added up depends on {inexact[0]}; "
                            'only numerics="relaxed" allows that')
    try:
        space.pinned(pinned)
    except ConfigError as error:
        raise ScheduleError("knob", error.args[0]) from None
    return found


def written(pins: Mapping[str, Values]) -> str:
    """Return pins as text, the same for the same pins."""
    return json.dumps({name: dict(values) for name, values in pins.items()}, sort_keys=True) if pins else ""


def read(text: str) -> dict[str, Values]:
    """Return the pins that a text says; raise `ConfigError` if it says none."""
    try:
        found = json.loads(text or "{}")
        if all(isinstance(v, (int, str)) for values in found.values() for v in values.values()):
            return dict(found)
    except (ValueError, AttributeError):
        pass
    raise ConfigError(f"schedules={text!r} is not possible; jitla.schedule writes what is")


def load(directory: str) -> Records:
    """Return the records in a directory, none where there are none to trust; new ones are added there.

    Without a directory they are kept in memory.
    """
    return Records(_text(directory), lambda text: _add(directory, text))


def _text(directory: str) -> str:
    if not directory:
        return ""
    try:
        root = open_private_directory(os.path.join(directory, FOLDER))
        try:
            handle = os.open(NAME, _READ, dir_fd=root)
        finally:
            os.close(root)
    except (OSError, UnsafeDirectory):
        return ""  # nothing was kept, or others could have written it: as before anything was tuned
    with os.fdopen(handle, "rb") as file:
        if not is_private_file(os.fstat(handle)):
            return ""
        return file.read(LARGEST).decode(errors="replace")


def _add(directory: str, text: str) -> None:
    """Append lines; where the directory is not to be used, records hold for this process only."""
    if not directory:
        return
    try:
        root = open_private_directory(os.path.join(directory, FOLDER), make=True)
        try:
            handle = os.open(NAME, _ADD, 0o600, dir_fd=root)
        finally:
            os.close(root)
        with os.fdopen(handle, "ab", buffering=0) as file:
            if is_private_file(os.fstat(handle)):
                file.write(text.encode())
    except (OSError, UnsafeDirectory):
        return
