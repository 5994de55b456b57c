"""Locks and background threads across forks and at the end of the process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import pytest

from jitla import concurrency as locks
from jitla.concurrency import (
    SHORT_SWITCH_SECONDS,
    acquire_before_fork,
    fork_safe_lock,
    is_orphaned_by_fork,
    short_switch_interval,
)

# Locks after forks: open in the child, whoever had them; libraries are waited for.


def child_says(act: Callable[[], bool]) -> bool:
    """Return what `act` returns in a fork; False if it does not end."""
    child = os.fork()
    if child == 0:
        threading.Timer(10.0, os._exit, (2,)).start()
        os._exit(0 if act() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def taken(lock: object, seconds: float = 60.0) -> threading.Event:
    """Let another thread take `lock` until the event that is returned is set."""
    held, go = threading.Event(), threading.Event()

    def take() -> None:
        with lock:  # type: ignore[attr-defined]
            held.set()
            go.wait(seconds)

    threading.Thread(target=take, daemon=True).start()
    assert held.wait(10.0)
    return go


@pytest.mark.process
@pytest.mark.threads
def test_a_lock_of_another_thread_is_open_in_the_child() -> None:
    lock = fork_safe_lock()
    go = taken(lock)
    assert child_says(lambda: bool(lock.acquire(timeout=5.0)))
    assert not lock.acquire(timeout=0.01)  # here the thread is still there
    go.set()


@pytest.mark.process
def test_a_lock_of_the_thread_that_forks_stays_its_own() -> None:
    lock = fork_safe_lock()
    with lock, lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if lock._is_owned() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.process
@pytest.mark.threads
def test_a_library_is_waited_for() -> None:
    lock = fork_safe_lock()
    acquire_before_fork(lock)
    taken(lock, seconds=0.2)
    assert child_says(lambda: not is_orphaned_by_fork(lock) and bool(lock.acquire(timeout=5.0)))
    assert lock.acquire(timeout=5.0) and not is_orphaned_by_fork(lock)
    lock.release()
    locks._FORK_HANDLER._held.remove(lock)


@pytest.mark.process
@pytest.mark.threads
def test_a_library_that_is_not_left_is_lost_in_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "FORK_WAIT_SECONDS", 0.05)
    lock = fork_safe_lock()
    acquire_before_fork(lock)
    go = taken(lock)
    assert child_says(lambda: is_orphaned_by_fork(lock) and bool(lock.acquire(timeout=5.0)))
    assert not is_orphaned_by_fork(lock)
    go.set()
    locks._FORK_HANDLER._held.remove(lock)


# The switch interval while background threads work


def test_turns_are_short_meanwhile_and_as_the_program_wants_them_after() -> None:
    before = sys.getswitchinterval()
    try:
        for own, inside in (5e-3, SHORT_SWITCH_SECONDS), (4.9e-3,
            SHORT_SWITCH_SECONDS), (SHORT_SWITCH_SECONDS / 5, SHORT_SWITCH_SECONDS / 5):
            sys.setswitchinterval(own)
            chosen = sys.getswitchinterval()
            with short_switch_interval():
                assert sys.getswitchinterval() == pytest.approx(inside, abs=1.1e-6)
            assert sys.getswitchinterval() == chosen
        sys.setswitchinterval(5e-3)
        first, second = short_switch_interval(), short_switch_interval()  # of two threads
        first.__enter__(), second.__enter__()
        first.__exit__(None, None, None)
        assert sys.getswitchinterval() == pytest.approx(SHORT_SWITCH_SECONDS, abs=1.1e-6)
        second.__exit__(None, None, None)
        assert sys.getswitchinterval() == pytest.approx(5e-3)
        with short_switch_interval():
            sys.setswitchinterval(1e-3)  # by the program
        assert sys.getswitchinterval() == pytest.approx(1e-3)
    finally:
        sys.setswitchinterval(before)
