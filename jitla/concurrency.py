"""Locks that survive forks, and the switch interval while background threads work."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

__all__ = [
    "acquire_before_fork", "background_work", "fork_safe_lock", "is_background_thread",
    "is_orphaned_by_fork", "short_switch_interval",
]


FORK_WAIT_SECONDS = 5.0  # for locks of libraries


class _ForkHandler:
    """Acquires, releases and reinitialises the locks of this process around forks."""

    def __init__(self) -> None:
        self._made: WeakSet[Any] = WeakSet()
        self._held: list[Any] = []
        self._acquired: list[Any] = []
        self.lost: list[Any] = []
        if hasattr(os, "register_at_fork"):
            # The first hook registered runs last before a fork: other hooks may need our locks until then.
            os.register_at_fork(
                before=self._before, after_in_parent=self._after, after_in_child=self._in_child)

    def new_lock(self) -> Any:
        """Return a new lock, which is reinitialised in forked processes."""
        lock = threading.RLock()
        self._made.add(lock)
        return lock

    def hold(self, lock: Any) -> None:
        """Acquire `lock` before every fork."""
        if lock not in self._held:
            self._held.append(lock)

    def _before(self) -> None:
        self._acquired = [lock for lock in self._held if lock.acquire(timeout=FORK_WAIT_SECONDS)]

    def _after(self) -> None:
        for lock in self._acquired:
            lock.release()

    def _in_child(self) -> None:
        self.lost += [lock for lock in self._held if lock not in self._acquired]
        self._after()
        for lock in (*self._made, *self.lost):
            if not lock._is_owned():  # not by the forking thread, inside a `with`
                lock._at_fork_reinit()


_FORK_HANDLER = _ForkHandler()


def fork_safe_lock() -> Any:
    """Return a new reentrant lock that is free in a forked process."""
    return _FORK_HANDLER.new_lock()


def acquire_before_fork(lock: Any) -> None:
    """Make forks wait until `lock` is free, for `FORK_WAIT_SECONDS` at most; then it is lost in the child."""
    _FORK_HANDLER.hold(lock)


def is_orphaned_by_fork(lock: Any) -> bool:
    """Return whether another thread held `lock` at the fork of this process: the guarded data is unusable."""
    return lock in _FORK_HANDLER.lost


#: The interpreter's switch interval while background threads work: imports read files, and wait for the lock
#: so long after each read.
SHORT_SWITCH_SECONDS = 5e-5
#: Half a microsecond: the interpreter truncates the interval to whole microseconds.
SWITCH_ROUNDING_SECONDS = 5e-7


class _ThreadRole(threading.local):
    """Whether this thread does background work."""

    is_background: bool = False


_ROLE = _ThreadRole()


def is_background_thread() -> bool:
    """Return whether this thread does background work, which no call waits for."""
    return _ROLE.is_background


@contextmanager
def background_work() -> Iterator[None]:
    """Mark this thread as one that does background work inside the ``with`` block."""
    outer, _ROLE.is_background = _ROLE.is_background, True
    try:
        with short_switch_interval():
            yield
    finally:
        _ROLE.is_background = outer


class _SwitchInterval:
    """The interpreter's switch interval, shortened while background threads work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = self._ours = 0.0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def shorten(self) -> None:
        """Shorten the interval to `SHORT_SWITCH_SECONDS`; calls nest with those of `restore`."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = self._ours = sys.getswitchinterval()
                if self._before > SHORT_SWITCH_SECONDS:
                    sys.setswitchinterval(SHORT_SWITCH_SECONDS)
                    self._ours = sys.getswitchinterval()

    def restore(self) -> None:
        """Restore the interval after the last user, unless the program has set another one."""
        with self._lock:
            if not self._users:  # this process was forked inside of the block
                return
            self._users -= 1
            if not self._users and self._ours != self._before and sys.getswitchinterval() == self._ours:
                sys.setswitchinterval(self._before + SWITCH_ROUNDING_SECONDS)

    def _in_child(self) -> None:
        """Drop the users of the parent process: their threads do not exist here."""
        self._lock = threading.Lock()
        if self._users:
            self._users = 1
            self.restore()


_SWITCH_INTERVAL = _SwitchInterval()


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Shorten the interpreter's switch interval inside the ``with`` block, unless it is short already.

    Blocks of several threads may overlap: the last one to end restores the interval.
    """
    _SWITCH_INTERVAL.shorten()
    try:
        yield
    finally:
        _SWITCH_INTERVAL.restore()
