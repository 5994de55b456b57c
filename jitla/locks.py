"""Locks that no fork leaves closed for ever.

Knows: which thread goes on after a fork, and that the others, with the locks they held, do not.
Must not know: what is locked. Receives nothing; returns locks.

What these locks guard is made anew by whoever finds it unfinished, so they may simply be open in the child. A
library that is not ours, and whose memory may be half written, is waited for instead: see `hold`.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet

__all__ = ["hold", "lost", "relock"]

PATIENCE = 5.0  # seconds that a fork waits for a library


class _Forks:
    """The locks of this process."""

    def __init__(self) -> None:
        self._made: WeakSet[Any] = WeakSet()
        self._held: list[Any] = []
        self._taken: list[Any] = []
        self.lost: list[Any] = []
        if hasattr(os, "register_at_fork"):
            # Who registers first is called last before a fork: whatever others wait for goes on till then.
            os.register_at_fork(
                before=self._before, after_in_parent=self._after, after_in_child=self._in_child)

    def made(self) -> Any:
        """Return a new lock."""
        lock = threading.RLock()
        self._made.add(lock)
        return lock

    def hold(self, lock: Any) -> None:
        """Let forks wait until nobody has `lock`."""
        if lock not in self._held:
            self._held.append(lock)

    def _before(self) -> None:
        self._taken = [lock for lock in self._held if lock.acquire(timeout=PATIENCE)]

    def _after(self) -> None:
        for lock in self._taken:
            lock.release()

    def _in_child(self) -> None:
        self.lost += [lock for lock in self._held if lock not in self._taken]
        self._after()
        for lock in (*self._made, *self.lost):
            if not lock._is_owned():  # by the thread that has forked, inside a `with`
                lock._at_fork_reinit()


_FORKS = _Forks()


def relock() -> Any:
    """Return a new lock that a thread may take several times, and that is open in a forked process."""
    return _FORKS.made()


def hold(lock: Any) -> None:
    """Let forks wait until nobody has `lock`, for some seconds; after these it is `lost` in the child."""
    _FORKS.hold(lock)


def lost(lock: Any) -> bool:
    """Return whether another thread had `lock` when this process was forked: what it guards is unusable."""
    return lock in _FORKS.lost
