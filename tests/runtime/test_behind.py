"""Work behind the program: order, shares of time, forks, the end."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from jitla import concurrency as rests
from jitla.concurrency import LOCAL
from jitla.runtime import background as behind_file
from jitla.runtime.background import (
    AT_ONCE,
    OWED,
    Behind,
)


class Clock:
    """A clock of the test's, and the time that jobs have taken."""

    def __init__(self) -> None:
        self.now = self.spent = 0.0


def test_jobs_are_done_in_turn_and_the_thread_ends() -> None:
    behind, done = Behind(), []
    for k in range(20):
        behind.ask(lambda k=k: done.append(k))
    assert behind.wait(10.0) and done == list(range(20)) and not behind.busy
    behind.ask(lambda: done.append(threading.current_thread().name))
    assert behind.wait(10.0) and done[-1] == "jitla compiles"


def test_jobs_that_took_much_are_waited_for() -> None:
    clock, done = Clock(), []
    behind = Behind(lambda: clock.now, lambda: clock.spent, share=0.1)

    def job() -> None:
        clock.spent += 1.0
        done.append(clock.now)

    behind.ask(job)
    behind.wait(10.0)
    assert behind._credit == pytest.approx(-OWED)  # not 1 second
    clock.now = 5.0 * OWED
    assert not behind._jobs and behind._may_begin()  # none is there
    behind._jobs.append((job, False, 1.0))
    assert not behind._may_begin()
    clock.now = 20.0
    assert behind._may_begin() and behind._credit == AT_ONCE  # not more than that
    behind._credit = -1.0
    behind._jobs[0] = job, True, 1.0
    assert behind._may_begin()  # this one is urgent


def test_jobs_work_in_the_share_of_the_time_that_is_asked_for() -> None:
    behind, seen = Behind(), []
    for share in (0.25, 1.0):
        behind.ask(lambda: seen.append(
            (LOCAL.share, sys.getswitchinterval() < 1e-3, bool(rests._WAITING))), share=share)
    assert behind.wait(10.0) and [found[:2] for found in seen] == [(0.25, True), (1.0, True)]
    assert seen[-1][2] and not rests._WAITING  # while somebody waits nobody rests


def test_the_end_drops_what_is_waiting() -> None:
    behind, begun, go = Behind(), threading.Event(), threading.Event()
    done: list[int] = []

    def first() -> None:
        begun.set()
        go.wait(10.0)
        done.append(1)

    behind.ask(first)
    behind.ask(lambda: done.append(2))
    begun.wait(10.0)
    threading.Timer(0.05, go.set).start()
    behind.end()
    behind.ask(lambda: done.append(3))
    assert done == [1] and not behind.busy


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_goes_on_with_its_own_thread() -> None:
    behind, begun = Behind(), threading.Event()
    behind.ask(begun.set)
    begun.wait(10.0)
    child = os.fork()
    if not child:
        done: list[int] = []
        behind.ask(lambda: done.append(1))
        os._exit(0 if behind.wait(10.0) and done == [1] else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_does_not_wait_for_ever_for_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind_file, "LAST", 0.05)
    behind, begun, go = Behind(), threading.Event(), threading.Event()

    def endless() -> None:
        begun.set()
        go.wait(20.0)

    behind.ask(endless)
    begun.wait(10.0)
    child = os.fork()
    if not child:
        done: list[int] = []
        behind.ask(lambda: done.append(1))
        os._exit(0 if behind.wait(10.0) and done == [1] and not go.is_set() else 1)
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    assert behind.wait(10.0)
    behind.ask(go.clear)
    assert behind.wait(10.0) and not go.is_set()


@pytest.mark.skipif(sys.platform != "linux", reason="priorities belong to processes elsewhere")
def test_the_thread_has_the_priority_of_the_program() -> None:
    behind, found = Behind(), []
    behind.ask(lambda: found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
    assert behind.wait(10.0) and found == [os.getpriority(os.PRIO_PROCESS, threading.get_native_id())]
