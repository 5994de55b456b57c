"""The cache of machine code, plans and loops on disk, and the format of its files.

A plan follows from what was asked for, the options, and what plans: the same files of the same version. It
lies beside machine code, in a file of its own with the same checks, and within the same limit.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from jitla.config import __version__
from jitla.events import Event

__all__ = [
    "Disk", "LARGEST", "MAGIC", "Planned", "Unsafe", "Usage", "file_name", "is_own", "opened", "pack",
    "parse", "planner",
]


MAGIC = b"jitla\x00\x01\n"  # the last number but one is the form's: another one, another number
LARGEST = 16 << 20  # bytes of an entry that is written or read
_HEAD = struct.Struct("<8s32sIQ")  # magic, checksum of all that follows it, length of the words, of the code
_SUM = len(MAGIC) + hashlib.sha256().digest_size


def file_name(key: str, maker: str) -> str:
    """Return where the code of `key` made by `maker` is: a shard and a name, of hexadecimal digits only."""
    digest = hashlib.sha256(f"{maker}\0{key}".encode()).hexdigest()
    return f"{digest[0]}/{digest[1:]}"


def pack(key: str, maker: str, code: bytes) -> bytes:
    """Return the bytes of an entry."""
    words = f"{key}\n{maker}".encode()
    rest = struct.pack("<IQ", len(words), len(code)) + words + code
    return MAGIC + hashlib.sha256(rest).digest() + rest


def parse(entry: bytes, key: str, maker: str) -> bytes | None:
    """Return the code in `entry`; None if it is not whole, or not that of `key` made by `maker`."""
    if len(entry) < _HEAD.size:
        return None
    magic, checksum, length, size = _HEAD.unpack_from(entry)
    if magic != MAGIC or _HEAD.size + length + size != len(entry):
        return None
    if hashlib.sha256(memoryview(entry)[_SUM:]).digest() != checksum:
        return None
    start = _HEAD.size + length
    return entry[start:] if entry[_HEAD.size:start] == f"{key}\n{maker}".encode() else None


FOLDER = "objects"  # in the cache directory; what is beside it is not code
SHARDS = "0123456789abcdef"
STEPS = 16  # a shard is looked through when this part of its share has been written
FRESH = 600.0  # seconds: code that was used since need not be marked as used again
ORPHANED = 3600.0  # seconds after which nobody goes on writing a file
SLOW = 0.05  # seconds that reading or writing one file may take
PATIENCE, REST = 3, 600.0  # failures in a row, and the seconds that the disk is then left alone
_TEMPORARY = ".new"
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# A pipe of that name must not be waited for.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_NUMBERS = itertools.count()
V = TypeVar("V")


class Usage(NamedTuple):
    """What a directory holds."""

    files: int
    nbytes: int


class Unsafe(Exception):
    """Others could have written what is in the directory; the text says how."""


class Disk:
    """Code below `directory`, about `limit` bytes of it (0: any number): what was used last stays.

    `refuse` is told once why a directory is not used; `observe` what happened.
    """

    def __init__(
        self, directory: str, limit: int = 0, *, refuse: Callable[[str], None] | None = None,
        observe: Callable[[Event], None] | None = None,
    ) -> None:
        self.directory = os.path.join(directory, FOLDER)
        self.limit = limit
        self._share = limit // len(SHARDS)
        self._refuse = refuse
        self._observe = observe
        self._refused = not hasattr(os, "geteuid") or os.open not in os.supports_dir_fd
        self._failures = {"read": 0, "written": 0}
        self._rests_until = 0.0
        # Processes that write little look through a shard now and then, too: they start anywhere.
        self._written = os.getpid() * 40_503 % max(self._share // STEPS, 1)

    # ---------------------------------------------------------------------- code

    def get(self, key: str, maker: str) -> bytes | None:
        """Return the code of `key` made by `maker`, if it is kept and to be trusted."""
        name = file_name(key, maker)

        def read(root: int) -> bytes | None:
            entry = self._read(root, name)
            code = None if entry is None else parse(entry, key, maker)
            if code is None and entry is not None:
                _remove(root, name)
                self._tell("broken", name)
            return code

        return self._try("read", read)

    def put(self, key: str, maker: str, code: bytes) -> None:
        """Keep the code of `key` made by `maker`."""
        entry, name = pack(key, maker, code), file_name(key, maker)

        def write(root: int) -> None:
            self._write(root, name, entry)
            self._make_room(root, name[0], len(entry))

        if len(entry) <= LARGEST:
            self._try("written", write, make=True)

    def _read(self, root: int, name: str) -> bytes | None:
        """Return what is in the file `name`, None without one; nothing if it is not to be trusted."""
        try:
            handle = os.open(name, _READ, dir_fd=root)
        except FileNotFoundError:
            return None
        except OSError as wrong:
            if wrong.errno not in (errno.ELOOP, errno.ENXIO, errno.EACCES):
                raise
            return b""  # a link, a socket, or a file that was closed to everybody
        with os.fdopen(handle, "rb", buffering=0) as file:
            found = os.fstat(handle)
            if not _trusted(found, stat.S_ISREG) or not 0 < found.st_size <= LARGEST:
                return b""
            if abs(time.time() - found.st_mtime) > FRESH:
                with suppress(OSError):  # a disk that can only be read
                    os.utime(handle)
            return file.read(LARGEST)

    def _write(self, root: int, name: str, entry: bytes) -> None:
        """Write the file `name` under another name first; whatever happens, nothing else is left behind."""
        shard = name[0]
        with suppress(FileExistsError):
            os.mkdir(shard, 0o700, dir_fd=root)
        new = f"{shard}/{_TEMPORARY}-{os.getpid()}-{next(_NUMBERS)}"
        handle = os.open(new, _WRITE, 0o600, dir_fd=root)
        try:
            with os.fdopen(handle, "wb", buffering=0) as file:
                rest = memoryview(entry)
                while rest:
                    rest = rest[file.write(rest) or 0:]
            os.rename(new, name, src_dir_fd=root, dst_dir_fd=root)
        except BaseException:  # an interrupt, too
            with suppress(OSError):
                os.unlink(new, dir_fd=root)
            raise

    # ---------------------------------------------------------------------- the directory

    def _try(self, what: str, act: Callable[[int], V], make: bool = False) -> V | None:
        """Return what `act` makes of the open directory, None without one; after some failures it rests."""
        start = time.monotonic()
        if self._refused or self._failures[what] >= PATIENCE and start < self._rests_until:
            return None
        try:
            root = self._open(make)
            if root is None:
                return None
            try:
                found = act(root)
            finally:
                os.close(root)
        except (OSError, ValueError) as wrong:  # names that cannot be, too
            self._tell("failed", f"not {what}: {getattr(wrong, 'strerror', None) or wrong}")
            self._fail(what)
            return None
        if time.monotonic() - start > SLOW:
            self._fail(what)
        else:
            self._failures[what] = 0
        return found

    def _open(self, make: bool = False) -> int | None:
        """Return a handle of the directory, None if it is not there or not to be trusted."""
        try:
            if make:
                _make(self.directory)
            return _checked(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            if make:
                raise
            return None
        except Unsafe as reason:
            self._refused = True
            self._tell("refused", str(reason))
            if self._refuse is not None:
                self._refuse(str(reason))
            return None

    def _fail(self, what: str) -> None:
        self._failures[what] += 1
        self._rests_until = time.monotonic() + REST

    def _tell(self, kind: str, subject: str) -> None:
        if self._observe is not None:
            self._observe(Event(f"disk.{kind}", subject))

    # ---------------------------------------------------------------------- how much is kept

    def _make_room(self, root: int, shard: str, written: int) -> None:
        """Now and then look through one shard, and remove what was used longest ago."""
        if not self.limit:
            return
        self._written += written
        if self._written >= self._share // STEPS:
            self._written = 0
            self._trim(root, shard)

    def _trim(self, root: int, shard: str) -> None:
        now, kept = time.time(), []
        for name, found in _files(root, shard):
            if name.startswith(_TEMPORARY):
                if abs(now - found.st_mtime) > ORPHANED:
                    _remove(root, f"{shard}/{name}")
            else:
                kept.append((found.st_mtime, found.st_size, name))
        total = sum(size for _, size, _ in kept)
        kept.sort()
        for _, size, name in kept:
            if total <= self._share:
                break
            _remove(root, f"{shard}/{name}")
            total -= size

    def usage(self) -> Usage:
        """Count what is kept; raise `OSError` or `Unsafe` where that is not to be used."""
        return self._each(lambda root, name: None)

    def clear(self) -> Usage:
        """Remove all that is kept; return what that was."""
        return self._each(_remove)

    def _each(self, act: Callable[[int, str], None]) -> Usage:
        """Act on every file; return what there was."""
        sizes = []
        if os.path.lexists(self.directory):
            root = _checked(self.directory)
            try:
                for shard in SHARDS:
                    for name, found in _files(root, shard):
                        act(root, f"{shard}/{name}")
                        sizes.append(found.st_size)
            finally:
                os.close(root)
        return Usage(len(sizes), sum(sizes))


def _make(directory: str) -> None:
    """Make `directory` and what is missing above it, for the user alone."""
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    if parent != directory:
        _make(parent)
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)


def _checked(directory: str) -> int:
    """Return a handle of `directory`; raise `Unsafe` if others could have put files there.

    What holds is asked of the handle: it stays the same directory whatever its name comes to mean. Who
    could write in a directory above could put another one here, but none that is ours.
    """
    handle = os.open(directory, _DIRECTORY)
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or os.geteuid() != os.getuid():
            raise Unsafe(f"{directory} belongs to another user")
        if not _trusted(found, stat.S_ISDIR):
            raise Unsafe(f"{directory} can be written by others (mode {stat.S_IMODE(found.st_mode):o})")
    except BaseException:
        os.close(handle)
        raise
    return handle


def opened(directory: str, make: bool = False) -> int:
    """Return a handle of a directory that only the user can write in, made if asked for; else `Unsafe`."""
    if make:
        _make(directory)
    return _checked(directory)


def is_own(found: os.stat_result) -> bool:
    """Tell whether a file is one of the user's own, in which nobody else can have written."""
    return _trusted(found, stat.S_ISREG)


def _trusted(found: os.stat_result, kind: Callable[[int], bool]) -> bool:
    return kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _files(root: int, shard: str) -> list[tuple[str, os.stat_result]]:
    """Return the files of a shard; what another process removes meanwhile is left out."""
    try:
        handle = os.open(shard, _DIRECTORY, dir_fd=root)
    except FileNotFoundError:
        return []
    found = []
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
    finally:
        os.close(handle)
    return found


def _remove(root: int, name: str) -> None:
    with suppress(OSError):  # another process was faster, or it is a directory
        os.unlink(name, dir_fd=root)


PLANNERS = ("hops", "rewrites", "fusion", "recompile", "loopir", "codegen")  # whose files decide on plans
MOST = 64  # texts that were asked after and are not used yet


class Planned:
    """Texts by words, on the disk that `disk` returns if there is one now, for one set of options."""

    on = True  # tests, which change what plans are made by, have it otherwise

    def __init__(self, disk: Callable[[], Any], options: tuple[Any, ...]) -> None:
        self._disk = disk
        self._options = f"{options!r}\0"
        self._near: dict[str, bytes] = {}

    def has(self, words: str) -> bool:
        """Tell whether there is a text, which is at hand from now on."""
        found = self._near.get(words) or self.get(words)
        if found is not None:
            self._near[words] = found
            while len(self._near) > MOST:
                self._near.pop(next(iter(self._near)), None)
        return found is not None

    def get(self, words: str) -> bytes | None:
        """Return the text of `words`."""
        near = self._near.pop(words, None)
        disk = self._disk() if near is None and self.on else None
        found: bytes | None = near if disk is None else disk.get(self._options + words, planner())
        return found

    def put(self, words: str, text: bytes) -> None:
        """Keep the text of `words`."""
        disk = self._disk() if self.on else None
        if disk is not None:
            disk.put(self._options + words, planner(), text)


@cache
def planner() -> str:
    """Return what makes plans here: versions, and which files, by their sizes and dates."""
    machine = os.uname().machine if hasattr(os, "uname") else ""
    found = (f"plans of jitla {__version__} numpy {np.__version__} python {sys.hexversion:x} "
             f"{sys.platform} {machine}")
    package = os.path.dirname(os.path.dirname(__file__))
    for room in PLANNERS:
        try:
            files = list(_source_files(os.path.join(package, room)))
        except OSError:  # an archive: the version has to tell
            continue
        newest = max((s.st_mtime_ns for s in files), default=0)
        found += f" {room} {len(files)} {sum(s.st_size for s in files)} {newest}"
    return found


def _source_files(folder: str) -> Iterator[os.stat_result]:
    """Yield the status of each source file below `folder`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.stat()
            elif entry.is_dir() and not entry.name.startswith("_"):
                yield from _source_files(entry.path)
