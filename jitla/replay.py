"""What a process is given to read, handed to two programs one after the other.

Knows: file descriptors, threads. Must not know: what the programs are.
Receives nothing but the process's standard input; gives each program all of it, as far as each reads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from threading import Condition, Thread

__all__ = ["Replay"]

CHUNK = 1 << 16


class Replay:
    """Standard input that is read more than once: files are wound back, of pipes what was read is kept.

    Nothing is read before a program was handed what came before it. A terminal is left as it is.
    """

    def __init__(self) -> None:
        try:
            kind = os.fstat(0).st_mode
        except OSError:  # there is none
            kind = 0
        self._begin = os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(kind) else None
        self._piped = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        self._changed = Condition()
        self._source = -1
        self._kept = -1
        if self._piped:
            with TemporaryFile() as file:
                self._kept = os.dup(file.fileno())
        self._size = self._wanted = 0
        self._ended = False

    @contextmanager
    def once(self) -> Iterator[None]:
        """Let what reads descriptor 0 inside of the ``with`` block find all of the input there."""
        if self._begin is not None:
            os.lseek(0, self._begin, os.SEEK_SET)
        if not self._piped:
            yield
            return
        if self._source < 0:
            self._source = os.dup(0)
            Thread(target=self._take, daemon=True).start()
        before = os.dup(0)
        reading, writing = os.pipe()
        os.dup2(reading, 0)
        os.close(reading)
        Thread(target=self._feed, args=(writing,), daemon=True).start()
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)

    def _take(self) -> None:
        """Keep what comes, as far as some program has been handed all that came before."""
        while True:
            with self._changed:
                while self._wanted < self._size:
                    self._changed.wait()
            found = os.read(self._source, CHUNK)
            with self._changed:
                os.pwrite(self._kept, found, self._size)
                self._size += len(found)
                self._ended = not found
                self._changed.notify_all()
            if not found:
                return

    def _feed(self, writing: int) -> None:
        """Hand a program what was kept, then what comes, until there is no more or it has ended."""
        at = 0
        try:
            while True:
                with self._changed:
                    self._wanted = max(self._wanted, at)
                    self._changed.notify_all()
                    while at == self._size and not self._ended:
                        self._changed.wait()
                    if at == self._size:
                        return
                found = os.pread(self._kept, CHUNK, at)
                while found:
                    done = os.write(writing, found)
                    found, at = found[done:], at + done
        except BrokenPipeError:  # it has ended, or closed its input
            return
        finally:
            os.close(writing)
