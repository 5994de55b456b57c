"""The disk cache of machine code, plans and compiled loops, its file format, and the file of the machine.

Entries are content-addressed files in 16 shards, with a checksum, evicted by time of last use. A plan depends
on the request, the options and the planner's source files (`planner_fingerprint`); it is a file beside the
machine code, with the same checks and within the same limit. The measured constants of the machine are one
small JSON file in the same directory (`load_machine`, `save_machine`).
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from jitla.config import __version__
from jitla.events import Event
from jitla.process.loading import lazy_functions

if TYPE_CHECKING:
    from jitla.hops import Machine, machine_from_record
else:  # for calibrations only
    [machine_from_record] = lazy_functions("jitla.hops", "machine_from_record")

__all__ = [
    "DiskCache", "DiskPlanStore", "MAGIC", "MAX_ENTRY_BYTES", "UnsafeDirectory", "Usage", "file_name",
    "is_private_file", "load_machine", "open_private_directory", "pack", "parse", "planner_fingerprint",
    "save_machine",
]


MAGIC = b"jitla\x00\x01\n"  # the byte before the newline is the format version
MAX_ENTRY_BYTES = 16 << 20  # of an entry that is written or read
_HEAD = struct.Struct("<8s32sIQ")  # magic, checksum of the rest, length of the words and of the code
_CHECKED_FROM = len(MAGIC) + hashlib.sha256().digest_size


def file_name(key: str, maker: str) -> str:
    """Return the path of the entry of `key` made by `maker`: a shard and a name, in hexadecimal digits."""
    digest = hashlib.sha256(f"{maker}\0{key}".encode()).hexdigest()
    return f"{digest[0]}/{digest[1:]}"


def pack(key: str, maker: str, code: bytes) -> bytes:
    """Return the bytes of an entry."""
    words = f"{key}\n{maker}".encode()
    checked = struct.pack("<IQ", len(words), len(code)) + words + code
    return MAGIC + hashlib.sha256(checked).digest() + checked


def parse(entry: bytes, key: str, maker: str) -> bytes | None:
    """Return the code in `entry`; None if it is damaged, or not that of `key` made by `maker`."""
    if len(entry) < _HEAD.size:
        return None
    magic, checksum, length, size = _HEAD.unpack_from(entry)
    if magic != MAGIC or _HEAD.size + length + size != len(entry):
        return None
    if hashlib.sha256(memoryview(entry)[_CHECKED_FROM:]).digest() != checksum:
        return None
    start = _HEAD.size + length
    return entry[start:] if entry[_HEAD.size:start] == f"{key}\n{maker}".encode() else None


FOLDER = "objects"  # in the cache directory
SHARDS = "0123456789abcdef"
TRIMS_PER_SHARE = 16  # a shard is trimmed after writing this fraction of its limit
RECENT_USE_SECONDS = 600.0  # after this, a use updates the time of last use
ORPHAN_SECONDS = 3600.0  # a temporary file this old is abandoned
SLOW_SECONDS = 0.05  # an access that takes longer counts as a failure
MAX_FAILURES, PAUSE_SECONDS = 3, 600.0  # failures in a row before a pause, and its length
_TEMPORARY = ".new"
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# Non-blocking: the name may be that of a pipe.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_FILE_NUMBERS = itertools.count()
V = TypeVar("V")


class Usage(NamedTuple):
    """Number and total size of the files in a directory."""

    files: int
    nbytes: int


class UnsafeDirectory(Exception):
    """Other users could have written into the directory; the text says how."""


class DiskCache:
    """An LRU cache of code below `directory` of about `limit` bytes (0: no limit).

    `refuse` is called once with the reason if the directory is not used; `observe` with events. No method
    fails but `usage` and `clear`: after `MAX_FAILURES` errors or slow accesses in a row the disk is not used
    for `PAUSE_SECONDS`.
    """

    def __init__(
        self, directory: str, limit: int = 0, *, refuse: Callable[[str], None] | None = None,
        observe: Callable[[Event], None] | None = None,
    ) -> None:
        self.directory = os.path.join(directory, FOLDER)
        self.limit = limit
        self._shard_limit = limit // len(SHARDS)
        self._refuse = refuse
        self._observe = observe
        self._refused = not hasattr(os, "geteuid") or os.open not in os.supports_dir_fd
        self._failures = {"read": 0, "written": 0}
        self._paused_until = 0.0
        # A pseudo-random start, so that short processes trim sometimes, too.
        self._written = os.getpid() * 40_503 % max(self._shard_limit // TRIMS_PER_SHARE, 1)

    # ---------------------------------------------------------------------- code

    def get(self, key: str, maker: str) -> bytes | None:
        """Return the code of `key` made by `maker`; None if it is missing or damaged."""
        name = file_name(key, maker)

        def read(root: int) -> bytes | None:
            entry = self._read(root, name)
            code = None if entry is None else parse(entry, key, maker)
            if code is None and entry is not None:
                _remove(root, name)
                self._report("broken", name)
            return code

        return self._try("read", read)

    def put(self, key: str, maker: str, code: bytes) -> None:
        """Store the code of `key` made by `maker`."""
        entry, name = pack(key, maker, code), file_name(key, maker)

        def write(root: int) -> None:
            self._write(root, name, entry)
            self._trim_sometimes(root, name[0], len(entry))

        if len(entry) <= MAX_ENTRY_BYTES:
            self._try("written", write, make=True)

    def _read(self, root: int, name: str) -> bytes | None:
        """Return the content of the file `name`; None if it is missing, empty if it is not to be trusted."""
        try:
            handle = os.open(name, _READ, dir_fd=root)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EACCES):
                raise
            return b""  # a link, a socket, or an unreadable file
        with os.fdopen(handle, "rb", buffering=0) as file:
            status = os.fstat(handle)
            if not _is_private(status, stat.S_ISREG) or not 0 < status.st_size <= MAX_ENTRY_BYTES:
                return b""
            if abs(time.time() - status.st_mtime) > RECENT_USE_SECONDS:
                with suppress(OSError):  # a read-only disk
                    os.utime(handle)
            return file.read(MAX_ENTRY_BYTES)

    def _write(self, root: int, name: str, entry: bytes) -> None:
        """Write the file `name` under a temporary name and rename it; an error leaves no file behind."""
        shard = name[0]
        with suppress(FileExistsError):
            os.mkdir(shard, 0o700, dir_fd=root)
        new = f"{shard}/{_TEMPORARY}-{os.getpid()}-{next(_FILE_NUMBERS)}"
        handle = os.open(new, _WRITE, 0o600, dir_fd=root)
        try:
            with os.fdopen(handle, "wb", buffering=0) as file:
                remaining = memoryview(entry)
                while remaining:
                    remaining = remaining[file.write(remaining) or 0:]
            os.rename(new, name, src_dir_fd=root, dst_dir_fd=root)
        except BaseException:  # an interrupt, too
            with suppress(OSError):
                os.unlink(new, dir_fd=root)
            raise

    # ---------------------------------------------------------------------- the directory

    def _try(self, access: str, act: Callable[[int], V], make: bool = False) -> V | None:
        """Return `act(handle of the directory)`; None without a directory, on errors, and during a pause."""
        start = time.monotonic()
        if self._refused or self._failures[access] >= MAX_FAILURES and start < self._paused_until:
            return None
        try:
            root = self._open(make)
            if root is None:
                return None
            try:
                result = act(root)
            finally:
                os.close(root)
        except (OSError, ValueError) as error:  # ValueError: invalid names
            self._report("failed", f"not {access}: {getattr(error, 'strerror', None) or error}")
            self._count_failure(access)
            return None
        if time.monotonic() - start > SLOW_SECONDS:
            self._count_failure(access)
        else:
            self._failures[access] = 0
        return result

    def _open(self, make: bool = False) -> int | None:
        """Return a handle of the directory; None if it is missing or not to be trusted."""
        try:
            if make:
                _make(self.directory)
            return _open_checked(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            if make:
                raise
            return None
        except UnsafeDirectory as reason:
            self._refused = True
            self._report("refused", str(reason))
            if self._refuse is not None:
                self._refuse(str(reason))
            return None

    def _count_failure(self, access: str) -> None:
        self._failures[access] += 1
        self._paused_until = time.monotonic() + PAUSE_SECONDS

    def _report(self, kind: str, subject: str) -> None:
        if self._observe is not None:
            self._observe(Event(f"disk.{kind}", subject))

    # ---------------------------------------------------------------------- eviction

    def _trim_sometimes(self, root: int, shard: str, written: int) -> None:
        """Trim one shard whenever enough has been written."""
        if not self.limit:
            return
        self._written += written
        if self._written >= self._shard_limit // TRIMS_PER_SHARE:
            self._written = 0
            self._trim(root, shard)

    def _trim(self, root: int, shard: str) -> None:
        """Remove abandoned temporary files of a shard, and least recently used entries above the limit."""
        now, entries = time.time(), []
        for name, status in _files(root, shard):
            if name.startswith(_TEMPORARY):
                if abs(now - status.st_mtime) > ORPHAN_SECONDS:
                    _remove(root, f"{shard}/{name}")
            else:
                entries.append((status.st_mtime, status.st_size, name))
        total = sum(size for _, size, _ in entries)
        entries.sort()
        for _, size, name in entries:
            if total <= self._shard_limit:
                break
            _remove(root, f"{shard}/{name}")
            total -= size

    def usage(self) -> Usage:
        """Return the number and size of the entries; raise `OSError` or `UnsafeDirectory`."""
        return self._for_each_file(lambda root, name: None)

    def clear(self) -> Usage:
        """Remove all entries; return their number and size."""
        return self._for_each_file(_remove)

    def _for_each_file(self, act: Callable[[int, str], None]) -> Usage:
        """Call `act` on every file; return their number and size."""
        sizes = []
        if os.path.lexists(self.directory):
            root = _open_checked(self.directory)
            try:
                for shard in SHARDS:
                    for name, status in _files(root, shard):
                        act(root, f"{shard}/{name}")
                        sizes.append(status.st_size)
            finally:
                os.close(root)
        return Usage(len(sizes), sum(sizes))


def _make(directory: str) -> None:
    """Create `directory` and its missing parents, for the user alone."""
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    if parent != directory:
        _make(parent)
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)


def _open_checked(directory: str) -> int:
    """Return a handle of `directory`; raise `UnsafeDirectory` if other users could have put files there.

    The checks use the handle, which stays the same directory if the path is changed meanwhile. A user who can
    write into a parent directory could put another directory in its place, but not one that is owned by this
    user.
    """
    handle = os.open(directory, _DIRECTORY)
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid() or os.geteuid() != os.getuid():
            raise UnsafeDirectory(f"{directory} belongs to another user")
        if not _is_private(status, stat.S_ISDIR):
            mode = stat.S_IMODE(status.st_mode)
            raise UnsafeDirectory(f"{directory} can be written by others (mode {mode:o})")
    except BaseException:
        os.close(handle)
        raise
    return handle


def open_private_directory(directory: str, make: bool = False) -> int:
    """Return a handle of a directory only the user can write to; else raise `UnsafeDirectory`."""
    if make:
        _make(directory)
    return _open_checked(directory)


def is_private_file(status: os.stat_result) -> bool:
    """Return whether a regular file is owned by the user and not writable by others."""
    return _is_private(status, stat.S_ISREG)


def _is_private(status: os.stat_result, kind: Callable[[int], bool]) -> bool:
    return kind(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _files(root: int, shard: str) -> list[tuple[str, os.stat_result]]:
    """Return names and status of the files of a shard, without those removed by others meanwhile."""
    try:
        handle = os.open(shard, _DIRECTORY, dir_fd=root)
    except FileNotFoundError:
        return []
    files = []
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    files.append((entry.name, entry.stat(follow_symlinks=False)))
    finally:
        os.close(handle)
    return files


def _remove(root: int, name: str) -> None:
    with suppress(OSError):  # removed by another process, or a directory
        os.unlink(name, dir_fd=root)


PLANNING_PACKAGES = ("hops", "rewrites", "fusion", "recompile", "loopir", "loopjit", "codegen")
MAX_PREFETCHED = 64  # texts in memory that `has` found and `get` has not taken yet


class DiskPlanStore:
    """A store of plan texts for one set of options, in the disk cache that `disk()` returns, if any."""

    on = True  # False in tests, which change the planner

    def __init__(self, disk: Callable[[], Any], options: tuple[Any, ...]) -> None:
        self._disk = disk
        self._options = f"{options!r}\0"
        self._prefetched: dict[str, bytes] = {}

    def has(self, words: str) -> bool:
        """Return whether there is a text for `words`, which is prefetched into memory."""
        text = self._prefetched.get(words) or self.get(words)
        if text is not None:
            self._prefetched[words] = text
            while len(self._prefetched) > MAX_PREFETCHED:
                self._prefetched.pop(next(iter(self._prefetched)), None)
        return text is not None

    def get(self, words: str) -> bytes | None:
        """Return the text of `words`."""
        text = self._prefetched.pop(words, None)
        disk = self._disk() if text is None and self.on else None
        if disk is not None:
            text = disk.get(self._options + words, planner_fingerprint())
        return text

    def put(self, words: str, text: bytes) -> None:
        """Store the text of `words`."""
        disk = self._disk() if self.on else None
        if disk is not None:
            disk.put(self._options + words, planner_fingerprint(), text)


@cache
def planner_fingerprint() -> str:
    """Return the versions of jitla, NumPy and Python, and the planner's file sizes and dates, as text."""
    machine = os.uname().machine if hasattr(os, "uname") else ""
    fingerprint = (f"plans of jitla {__version__} numpy {np.__version__} python {sys.hexversion:x} "
                   f"{sys.platform} {machine}")
    package = os.path.dirname(os.path.dirname(__file__))
    for name in PLANNING_PACKAGES:
        try:
            files = list(_source_files(os.path.join(package, name)))
        except OSError:  # an archive: the version has to do
            continue
        newest = max((s.st_mtime_ns for s in files), default=0)
        fingerprint += f" {name} {len(files)} {sum(s.st_size for s in files)} {newest}"
    return fingerprint


def _source_files(folder: str) -> Iterator[os.stat_result]:
    """Yield the status of each source file below `folder`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.stat()
            elif entry.is_dir() and not entry.name.startswith("_"):
                yield from _source_files(entry.path)


MACHINE_FORMAT_VERSION = 2  # also changes when the unit of the cost weights does
MACHINE_FILE_NAME = "machine.json"


def load_machine(directory: str | Path, host: str) -> Machine | None:
    """Return the constants stored in `directory` if they were measured on `host`."""
    try:
        record = json.loads(Path(directory, MACHINE_FILE_NAME).read_text(encoding="utf-8"))
        if record["version"] != MACHINE_FORMAT_VERSION or record["host"] != host:
            return None
        return machine_from_record(record["machine"])
    except (OSError, ValueError, TypeError, KeyError):
        return None  # missing or unreadable: the machine counts as not measured


def save_machine(directory: str | Path, host: str, machine: Machine) -> Path | None:
    """Write the constants of `host`; return the path, or None if the directory is not writable."""
    record = {"version": MACHINE_FORMAT_VERSION, "host": host, "machine": machine.record()}
    path = Path(directory, MACHINE_FILE_NAME)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # written to a temporary file first: concurrent readers see the old file or the new one
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=MACHINE_FILE_NAME)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
        os.replace(name, path)
    except OSError:
        return None
    return path
