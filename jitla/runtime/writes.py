"""Which memory was written since it was looked at: the system notes that page by page.

The system lets the first write into a page through and remembers it, whoever writes: NumPy, other libraries,
system calls. It does not see devices that write by themselves; where any of this process' memory is pinned
for such, nothing is watched. The bytes before the first whole page and after the last are compared.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import struct
from contextlib import suppress
from ctypes import string_at
from mmap import PAGESIZE
from weakref import WeakValueDictionary

import numpy as np

from jitla.concurrency import relock

__all__ = ["Watched", "watched"]

_CALLS = {"x86_64": 323, "aarch64": 282}  # the number of userfaultfd
_USER_MODE, _API, _PROTECT = 1, 0xAA, 2
_WRITE_PROTECTED_UNSEEN = 1 << 15 | 1 << 13  # without asking anybody; pages that nobody touched, too
_ASYNC_ONLY, _WRITTEN = 2, 2


def _both_ways(kind: int, number: int, size: int, read_only: bool = False) -> int:
    return (2 if read_only else 3) << 30 | size << 16 | kind << 8 | number


_BEGIN, _REGISTER, _SET = (_both_ways(_API, n, size) for n, size in ((0x3F, 24), (0, 32), (6, 24)))
_UNREGISTER, _SCAN = _both_ways(_API, 1, 16, True), _both_ways(ord("f"), 16, 96)


class _System:
    """The two files by which the system is asked, of one process; none where it cannot be."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.faults = self.pages = -1
        self.found = np.zeros(3, np.uint64)  # where pages written are told
        number = _CALLS.get(platform.machine())
        if platform.system() != "Linux" or number is None:
            return
        faults = ctypes.CDLL(None).syscall(number, os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE)
        if faults < 0:
            return
        try:
            fcntl.ioctl(faults, _BEGIN, bytearray(struct.pack("3Q", _API, _WRITE_PROTECTED_UNSEEN, 0)))
            self.pages = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            self.faults = faults
        except OSError:  # an older system, or one that forbids it: nothing is watched
            os.close(faults)

    def close(self) -> None:
        """Let go of the files, which are about another process."""
        for file in (self.faults, self.pages):
            if file >= 0:
                os.close(file)

    def written(self, start: int, end: int) -> bool:
        """Say whether a page between was written since it was protected."""
        asked = struct.pack("12Q", 96, _ASYNC_ONLY, start, end, 0, self.found.ctypes.data, 1, 1, 0, _WRITTEN,
                            0, _WRITTEN)
        return bool(fcntl.ioctl(self.pages, _SCAN, bytearray(asked)))


_system: _System | None = None
_lock = relock()


def _here() -> _System:
    """Return what asks the system for this process; a child begins anew."""
    global _system
    if _system is None or _system.process != os.getpid():
        if _system is not None:
            _system.close()
        _system = _System()
    return _system


class _Range:
    """Whole pages in a row: `epoch` counts how often they were found written."""

    __slots__ = ("start", "end", "epoch", "system", "__weakref__")

    def __init__(self, system: _System, start: int, end: int) -> None:
        self.system, self.start, self.end, self.epoch = system, start, end, 0
        fcntl.ioctl(system.faults, _REGISTER, bytearray(struct.pack("4Q", start, end - start, _PROTECT, 0)))
        self.protect()

    def protect(self) -> None:
        """From now on the first write into each page is noted."""
        asked = struct.pack("3Q", self.start, self.end - self.start, 1)
        fcntl.ioctl(self.system.faults, _SET, bytearray(asked))

    def now(self) -> int:
        """Return the epoch, after a look. What is read after this is of this epoch until it is another."""
        with _lock:
            if self.system is not _here():
                self.epoch += 1  # a child's pages are not watched
            elif self.system.written(self.start, self.end):
                self.epoch += 1
                self.protect()
            return self.epoch

    def __del__(self) -> None:
        if self.system.process == os.getpid():
            with suppress(OSError):  # the memory is no longer there
                fcntl.ioctl(self.system.faults, _UNREGISTER,
                            bytearray(struct.pack("2Q", self.start, self.end - self.start)))


_ranges: WeakValueDictionary[int, _Range] = WeakValueDictionary()


class Watched:
    """Arrays in one run each, as they were when this was made."""

    __slots__ = ("_edges", "_epochs")

    def __init__(self, arrays: tuple[np.ndarray, ...], ranges: list[_Range]) -> None:
        self._epochs = [(each, each.now()) for each in ranges]
        edges = [edge for each in arrays for edge in _outside(each)]
        self._edges = [(*edge, string_at(*edge)) for edge in edges]  # references would keep the arrays

    def is_same(self) -> bool:
        """Say that nobody has written into them; they must not have been freed."""
        return all(each.now() == epoch for each, epoch in self._epochs) and \
            all(string_at(at, size) == before for at, size, before in self._edges)


def watched(arrays: tuple[np.ndarray, ...]) -> Watched | None:
    """Watch arrays that lie in one run of memory of NumPy's; None where the system does not help."""
    with _lock:
        system = _here()
        if system.faults < 0 or _is_pinned():
            return None
        try:
            ranges = [_range(system, start, end) for start, end in map(_inside, arrays) if start < end]
        except OSError:  # memory of another kind, or watched by others
            return None
        return None if None in ranges else Watched(arrays, [each for each in ranges if each is not None])


def _range(system: _System, start: int, end: int) -> _Range | None:
    """Return the pages between, which several may watch; None if others that are watched lie across."""
    known = list(_ranges.values())
    for each in known:
        if each.system is system and each.start < end and start < each.end:
            return each if (each.start, each.end) == (start, end) else None
    made = _ranges[start] = _Range(system, start, end)
    return made


def _inside(array: np.ndarray) -> tuple[int, int]:
    """Return where the whole pages of an array begin and end."""
    at = array.ctypes.data
    return -(-at // PAGESIZE) * PAGESIZE, (at + array.nbytes) // PAGESIZE * PAGESIZE


def _outside(array: np.ndarray) -> list[tuple[int, int]]:
    """Return where the bytes of an array are that are in no whole page of its own, and how many."""
    at, (start, end) = array.ctypes.data, _inside(array)
    last = at + array.nbytes
    return [(at, last - at)] if start >= end else [(at, start - at), (end, last - end)]


def _is_pinned() -> bool:
    """Say whether memory of this process is lent to devices."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as lines:
        return any(line.startswith("VmPin:") and int(line.split()[1]) for line in lines)
