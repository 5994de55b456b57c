"""Detection of writes into arrays, page by page, by the write protection of Linux (userfaultfd).

The kernel lets the first write into a page through and records it, whether NumPy, another library or a system
call writes. It does not see writes of devices (DMA); if any memory of this process is pinned for them,
nothing is watched. The bytes outside whole pages, at both ends of an array, are compared with a copy.
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

from jitla.concurrency import fork_safe_lock

__all__ = ["WatchedArrays", "watch_arrays"]

_USERFAULTFD = {"x86_64": 323, "aarch64": 282}  # system call number by machine
_USER_MODE, _API, _PROTECT = 1, 0xAA, 2
_WRITE_PROTECTED_UNSEEN = 1 << 15 | 1 << 13  # asynchronous; includes untouched pages
_ASYNC_ONLY, _WRITTEN = 2, 2


def _ioctl_number(kind: int, number: int, size: int, read_only: bool = False) -> int:
    """Return the number of an ioctl that reads, or reads and writes, its argument."""
    return (2 if read_only else 3) << 30 | size << 16 | kind << 8 | number


_BEGIN, _REGISTER, _SET = (_ioctl_number(_API, n, size) for n, size in ((0x3F, 24), (0, 32), (6, 24)))
_UNREGISTER, _SCAN = _ioctl_number(_API, 1, 16, True), _ioctl_number(ord("f"), 16, 96)


class _System:
    """The two file handles of the kernel interface, for one process; -1 if it is not supported."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.faults = self.pages = -1
        self.written_ranges = np.zeros(3, np.uint64)  # receives the ranges of written pages
        number = _USERFAULTFD.get(platform.machine())
        if platform.system() != "Linux" or number is None:
            return
        faults = ctypes.CDLL(None).syscall(number, os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE)
        if faults < 0:
            return
        try:
            fcntl.ioctl(faults, _BEGIN, bytearray(struct.pack("3Q", _API, _WRITE_PROTECTED_UNSEEN, 0)))
            self.pages = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            self.faults = faults
        except OSError:  # an older kernel, or not permitted: nothing is watched
            os.close(faults)

    def close(self) -> None:
        """Close the handles, which belong to another process."""
        for file in (self.faults, self.pages):
            if file >= 0:
                os.close(file)

    def written(self, start: int, end: int) -> bool:
        """Return whether a page in the range was written since it was protected."""
        request = struct.pack("12Q", 96, _ASYNC_ONLY, start, end, 0, self.written_ranges.ctypes.data, 1, 1, 0,
                              _WRITTEN, 0, _WRITTEN)
        return bool(fcntl.ioctl(self.pages, _SCAN, bytearray(request)))


_system: _System | None = None
_lock = fork_safe_lock()


def _current_system() -> _System:
    """Return the interface of this process; a forked child opens its own."""
    global _system
    if _system is None or _system.process != os.getpid():
        if _system is not None:
            _system.close()
        _system = _System()
    return _system


class _Range:
    """A range of whole pages; `epoch` counts the checks that found it written."""

    __slots__ = ("start", "end", "epoch", "system", "__weakref__")

    def __init__(self, system: _System, start: int, end: int) -> None:
        self.system, self.start, self.end, self.epoch = system, start, end, 0
        fcntl.ioctl(system.faults, _REGISTER, bytearray(struct.pack("4Q", start, end - start, _PROTECT, 0)))
        self.protect()

    def protect(self) -> None:
        """Write-protect the pages, so that the next write into each is recorded."""
        request = struct.pack("3Q", self.start, self.end - self.start, 1)
        fcntl.ioctl(self.system.faults, _SET, bytearray(request))

    def current_epoch(self) -> int:
        """Check for writes and return the epoch.

        Data read after this call belongs to this epoch as long as later calls return the same one.
        """
        with _lock:
            if self.system is not _current_system():
                self.epoch += 1  # pages of a forked child are not watched
            elif self.system.written(self.start, self.end):
                self.epoch += 1
                self.protect()
            return self.epoch

    def __del__(self) -> None:
        if self.system.process == os.getpid():
            with suppress(OSError):  # the memory is unmapped
                fcntl.ioctl(self.system.faults, _UNREGISTER,
                            bytearray(struct.pack("2Q", self.start, self.end - self.start)))


_ranges: WeakValueDictionary[int, _Range] = WeakValueDictionary()


class WatchedArrays:
    """Contiguous arrays, and the state of their memory when this was created."""

    __slots__ = ("_edges", "_epochs")

    def __init__(self, arrays: tuple[np.ndarray, ...], ranges: list[_Range]) -> None:
        self._epochs = [(item, item.current_epoch()) for item in ranges]
        edges = [edge for item in arrays for edge in _partial_pages(item)]
        self._edges = [(*edge, string_at(*edge)) for edge in edges]  # not the arrays themselves

    def is_same(self) -> bool:
        """Return whether nothing was written into them; they must not have been freed."""
        return all(range_.current_epoch() == epoch for range_, epoch in self._epochs) and \
            all(string_at(address, size) == before for address, size, before in self._edges)


def watch_arrays(arrays: tuple[np.ndarray, ...]) -> WatchedArrays | None:
    """Watch contiguous arrays in memory of NumPy's; None if the system does not support it."""
    with _lock:
        system = _current_system()
        if system.faults < 0 or _is_pinned():
            return None
        try:
            ranges = [_range_of(system, *pages) for pages in map(_whole_pages, arrays) if pages[0] < pages[1]]
        except OSError:  # unsupported kind of memory, or watched by another library
            return None
        return None if None in ranges else WatchedArrays(arrays, [r for r in ranges if r is not None])


def _range_of(system: _System, start: int, end: int) -> _Range | None:
    """Return the range of these pages, shared by all watchers; None if another range overlaps it partly."""
    ranges = list(_ranges.values())
    for other in ranges:
        if other.system is system and other.start < end and start < other.end:
            return other if (other.start, other.end) == (start, end) else None
    created = _ranges[start] = _Range(system, start, end)
    return created


def _whole_pages(array: np.ndarray) -> tuple[int, int]:
    """Return the addresses where the whole pages of an array begin and end."""
    address = array.ctypes.data
    return -(-address // PAGESIZE) * PAGESIZE, (address + array.nbytes) // PAGESIZE * PAGESIZE


def _partial_pages(array: np.ndarray) -> list[tuple[int, int]]:
    """Return address and size of the parts of an array outside its whole pages."""
    address, (start, end) = array.ctypes.data, _whole_pages(array)
    stop = address + array.nbytes
    return [(address, stop - address)] if start >= end else [(address, start - address), (end, stop - end)]


def _is_pinned() -> bool:
    """Return whether memory of this process is pinned for devices."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as lines:
        return any(line.startswith("VmPin:") and int(line.split()[1]) for line in lines)
