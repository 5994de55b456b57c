"""Rests of threads that work behind the program."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest

import jitla
from jitla import concurrency as rests
from jitla.concurrency import (
    MAX_SLEEP_SECONDS,
    SHORT_SWITCH_SECONDS,
    WORK_SLICE_SECONDS,
    restart_work_clock,
    short_switch_interval,
    throttle,
    throttled,
    unthrottled,
)
from jitla.config import current
from jitla.engine import ENGINE


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
