"""Locks and background threads across forks and at the end of the process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np
import pytest

import jitla
from jitla import concurrency as locks
from jitla import concurrency as rests
from jitla.concurrency import (
    MAX_SLEEP_SECONDS,
    SHORT_SWITCH_SECONDS,
    WORK_SLICE_SECONDS,
    acquire_before_fork,
    fork_safe_lock,
    is_orphaned_by_fork,
    restart_work_clock,
    short_switch_interval,
    throttle,
    throttled,
    unthrottled,
)
from jitla.config import current
from jitla.engine import ENGINE

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


# Pauses of background threads: their share of the processor time


class Clock:
    """What a thread has worked, and the seconds it was to sleep."""

    def __init__(self) -> None:
        self.worked = 0.0
        self.slept: list[float] = []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(rests, "thread_time", lambda: made.worked)
    monkeypatch.setattr(rests, "sleep", made.slept.append)
    yield made


def test_only_threads_behind_the_program_rest(clock: Clock) -> None:
    clock.worked = 1.0
    throttle()
    assert clock.slept == []


def test_the_longer_the_work_the_longer_the_rest(clock: Clock) -> None:
    with throttled(0.25):
        clock.worked += WORK_SLICE_SECONDS / 2
        throttle()
        assert clock.slept == []  # not yet
        clock.worked += 2 * WORK_SLICE_SECONDS
        throttle()
        assert clock.slept == [pytest.approx(3 * 2.5 * WORK_SLICE_SECONDS)]
        throttle()
        clock.worked += 1.0
        throttle()
        assert clock.slept[1:] == [MAX_SLEEP_SECONDS]
        clock.worked += 1.0
        restart_work_clock()  # the compiler was at work, in which Python is free
        throttle()
    clock.worked += 1.0
    throttle()
    assert len(clock.slept) == 2


def test_nobody_rests_while_somebody_waits(clock: Clock) -> None:
    with throttled(0.1):
        with unthrottled():
            clock.worked += 1.0
            throttle()
        throttle()
        assert clock.slept == []
        clock.worked += 1.0
        throttle()
    assert len(clock.slept) == 1


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


def test_planning_rests_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(rests, "WORK_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(rests, "sleep", slept.append)
    with throttled(0.5):
        f = jitla.jit(lambda x, y: (np.exp(x - y) * x + y / 7.25).sum() + abs(x).max(), compile="sync")
        f(np.ones(9000), np.ones(9000))
    assert len(slept) > 20


@pytest.mark.threads
def test_who_waits_for_a_compiler_lets_it_hurry() -> None:
    compiler = ENGINE.compiler(current())
    held, waited, done = threading.Event(), threading.Event(), threading.Event()

    def second() -> None:
        held.wait(60.0)
        with compiler._exclusive():
            done.set()

    thread = threading.Thread(target=second)
    with compiler._exclusive(), compiler._exclusive():
        thread.start()
        assert not rests._WAITERS
        held.set()
        for _ in range(6000):
            if rests._WAITERS or waited.wait(0.01):
                break
        assert rests._WAITERS and not done.is_set()
    thread.join(60.0)
    assert done.is_set() and not rests._WAITERS


def test_who_loads_modules_of_ours_behind_the_program_rests_between_them(monkeypatch):
    rested = []
    monkeypatch.setattr(rests, "throttle", lambda: rested.append(None))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    rests.throttle_imports()
    rests.throttle_imports()
    assert sum(finder is rests._ThrottlingFinder for finder in sys.meta_path) == 1
    assert find_spec("jitla.nothing_that_is_there") is None and len(rested) == 1
    assert find_spec("nothing_that_is_there") is None and len(rested) == 1
