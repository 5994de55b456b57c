"""Locks that survive forks, and background threads that yield the interpreter to the program."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep, thread_time
from typing import Any
from weakref import WeakSet

__all__ = [
    "LOCAL", "hold", "hurry", "lost", "lull", "pausing", "relock", "rest", "resting", "resume",
    "short_turns",
]


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


#: Seconds of work after which a thread rests, and those that it rests at most.
SLICE, LONGEST = 3e-4, 0.05
#: Seconds after which a thread that wants Python asks another to give way, while there is work behind it.
TURN = 5e-4
#: The interpreter keeps whole microseconds, and leaves out what is beyond.
ROUNDING = 5e-7
_OWN = f"{__name__.partition('.')[0]}."
# Who waits for what is done behind the program: then nobody rests.
_WAITING: list[None] = []


class _Local(threading.local):
    """The part of the time in which this thread works, and how much it had worked after the last rest."""

    share: float = 1.0
    since: float = 0.0


LOCAL: Any = _Local()


def rest() -> None:
    """Let other threads go on, if this one has worked for a while and need not hurry."""
    share = LOCAL.share
    if share < 1.0:
        worked = thread_time() - LOCAL.since
        if worked > SLICE:
            if not _WAITING:
                sleep(min(worked * (1.0 / share - 1.0), LONGEST))
            resume()


def lull(seconds: float) -> None:
    """Let the program go on for a while before anything is done at all, unless somebody waits."""
    end = monotonic() + seconds
    while not _WAITING and (left := end - monotonic()) > 0.0:
        sleep(min(left, LONGEST))
    resume()


def resume() -> None:
    """Take what was done so far for no work: Python was free meanwhile."""
    if LOCAL.share < 1.0:
        LOCAL.since = thread_time()


@contextmanager
def resting(share: float) -> Iterator[None]:
    """Let this thread work in `share` of the time while the ``with`` block runs."""
    outer, LOCAL.share = LOCAL.share, share
    resume()
    try:
        yield
    finally:
        LOCAL.share = outer


@contextmanager
def hurry() -> Iterator[None]:
    """Let nobody rest while the ``with`` block waits for what others do."""
    _WAITING.append(None)
    try:
        yield
    finally:
        _WAITING.pop()


class _Pauses:
    """Stands before what finds modules, and finds none: who loads ours behind the program rests between them.

    Modules of others are loaded without rests: their users would have to wait, and nobody here would know.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        """Rest, if the module is ours."""
        if name.startswith(_OWN):
            rest()


def pausing() -> None:
    """Let whoever loads modules of ours rest between them, where `resting` says so."""
    if _Pauses not in sys.meta_path:
        sys.meta_path.insert(0, _Pauses)


class _SwitchInterval:
    """The interpreter's switch interval while threads work behind the program, and what it was before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = self._ours = 0.0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def shorten(self) -> None:
        """Let threads give way after `TURN` at most, until as many have called `restore`."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = self._ours = sys.getswitchinterval()
                if self._before > TURN:
                    sys.setswitchinterval(TURN)
                    self._ours = sys.getswitchinterval()

    def restore(self) -> None:
        """Set what was set before, if nobody needs short turns any more and the program has set nothing."""
        with self._lock:
            if not self._users:  # this process was forked inside of the block
                return
            self._users -= 1
            if not self._users and self._ours != self._before and sys.getswitchinterval() == self._ours:
                sys.setswitchinterval(self._before + ROUNDING)

    def _in_child(self) -> None:
        """Forget the threads that a forked process does not have."""
        self._lock = threading.Lock()
        if self._users:
            self._users = 1
            self.restore()


_SWITCH_INTERVAL = _SwitchInterval()


@contextmanager
def short_turns() -> Iterator[None]:
    """Let threads give way to others sooner while the ``with`` block runs, unless they are told to anyhow.

    Blocks of several threads may overlap: the last one to end restores what was before the first.
    """
    _SWITCH_INTERVAL.shorten()
    try:
        yield
    finally:
        _SWITCH_INTERVAL.restore()
