"""Schedules that were tuned, from process to process: where records are kept, and choosing by them.

Knows: the file of records, which of them may be used. Must not know: how schedules are found.
Receives a directory and a machine; returns what chooses the knobs of kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from jitla.disk import Unsafe, is_own, opened
from jitla.fusion import Space, Values
from jitla.recompile import UNTUNED, Key, Made
from jitla.tuner import Records

__all__ = ["Tuned", "load"]

FOLDER, NAME = "tuned", "records.jsonl"  # in the cache directory
LARGEST = 64 << 20  # bytes of records that are read
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_ADD = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class Tuned:
    """Chooses for every kernel what was found best for it, else what runs untuned."""

    def __init__(self, records: Records, target: str, relaxed: bool = False) -> None:
        self.records, self.target, self.relaxed = records, target, relaxed
        self.chosen: dict[Key, Values] = {}

    def block(self, key: Key, outputs: int, space: Callable[[], Space],
              make: Callable[[Values], Made]) -> Made:
        """Return the argument block of a kernel and what runs it."""
        values = self.values(key, space)
        if values:
            self.chosen[key] = values
        return make(values)

    def values(self, key: Key, space: Callable[[], Space]) -> Values:
        """Return what was found best; nothing if there is none, or it is not legal here."""
        record = self.records.best(key.kernel, key.shape, self.target)
        if record is None:
            return UNTUNED
        made = space() if self.relaxed else space().exact()
        point = made.point(record.config)
        return UNTUNED if point is None else made.values(point)


def load(directory: str) -> Records:
    """Return the records in a directory, none where there are none to trust; new ones are added there.

    Without a directory they are kept in memory.
    """
    return Records(_text(directory), lambda text: _add(directory, text))


def _text(directory: str) -> str:
    if not directory:
        return ""
    try:
        root = opened(os.path.join(directory, FOLDER))
        try:
            handle = os.open(NAME, _READ, dir_fd=root)
        finally:
            os.close(root)
    except (OSError, Unsafe):
        return ""  # nothing was kept, or others could have written it: as before anything was tuned
    with os.fdopen(handle, "rb") as file:
        if not is_own(os.fstat(handle)):
            return ""
        return file.read(LARGEST).decode(errors="replace")


def _add(directory: str, text: str) -> None:
    """Append lines; where the directory is not to be used, records hold for this process only."""
    if not directory:
        return
    try:
        root = opened(os.path.join(directory, FOLDER), make=True)
        try:
            handle = os.open(NAME, _ADD, 0o600, dir_fd=root)
        finally:
            os.close(root)
        with os.fdopen(handle, "ab", buffering=0) as file:
            if is_own(os.fstat(handle)):
                file.write(text.encode())
    except (OSError, Unsafe):
        return
