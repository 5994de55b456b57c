"""Background compilation: order of jobs, shares of time, forks, the end of the process."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from jitla import concurrency as rests
from jitla.concurrency import THREAD_SHARE
from jitla.runtime.background import (
    MAX_BURST_SECONDS,
    MAX_DEBT_SECONDS,
    BackgroundQueue,
)


class Clock:
    """A clock of the test's, and the time that jobs have taken."""

    def __init__(self) -> None:
        self.now = self.spent = 0.0


def test_jobs_are_done_in_turn_and_the_thread_ends() -> None:
    queue, done = BackgroundQueue(), []
    for k in range(20):
        queue.submit(lambda k=k: done.append(k))
    assert queue.wait(10.0) and done == list(range(20)) and not queue.busy
    queue.submit(lambda: done.append(threading.current_thread().name))
    assert queue.wait(10.0) and done[-1] == "jitla compiles"


def test_jobs_that_took_much_are_waited_for() -> None:
    clock, done = Clock(), []
    queue = BackgroundQueue(lambda: clock.now, lambda: clock.spent, share=0.1)

    def job() -> None:
        clock.spent += 1.0
        done.append(clock.now)

    queue.submit(job)
    queue.wait(10.0)
    assert queue._credit == pytest.approx(-MAX_DEBT_SECONDS)  # not 1 second
    clock.now = 5.0 * MAX_DEBT_SECONDS
    assert not queue._jobs and queue._may_begin()  # none is there
    queue._jobs.append((job, False, 1.0))
    assert not queue._may_begin()
    clock.now = 20.0
    assert queue._may_begin() and queue._credit == MAX_BURST_SECONDS  # not more than that
    queue._credit = -1.0
    queue._jobs[0] = job, True, 1.0
    assert queue._may_begin()  # this one is urgent


def test_jobs_work_in_the_share_of_the_time_that_is_asked_for() -> None:
    queue, seen = BackgroundQueue(), []
    for share in (0.25, 1.0):
        queue.submit(lambda: seen.append(
            (THREAD_SHARE.share, sys.getswitchinterval() < 1e-3, bool(rests._WAITERS))), share=share)
    assert queue.wait(10.0) and [found[:2] for found in seen] == [(0.25, True), (1.0, True)]
    assert seen[-1][2] and not rests._WAITERS  # while somebody waits nobody rests


@pytest.mark.threads
def test_the_end_drops_what_is_waiting() -> None:
    queue, begun, go = BackgroundQueue(), threading.Event(), threading.Event()
    done: list[int] = []

    def first() -> None:
        begun.set()
        go.wait(10.0)
        done.append(1)

    queue.submit(first)
    queue.submit(lambda: done.append(2))
    begun.wait(10.0)
    threading.Timer(0.05, go.set).start()
    queue.end()
    queue.submit(lambda: done.append(3))
    assert done == [1] and not queue.busy


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_goes_on_with_its_own_thread() -> None:
    queue, begun = BackgroundQueue(), threading.Event()
    queue.submit(begun.set)
    begun.wait(10.0)
    child = os.fork()
    if not child:
        done: list[int] = []
        queue.submit(lambda: done.append(1))
        os._exit(0 if queue.wait(10.0) and done == [1] else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_does_not_wait_for_ever_for_a_job() -> None:
    queue, begun, go = BackgroundQueue(shutdown_seconds=0.05), threading.Event(), threading.Event()

    def endless() -> None:
        begun.set()
        go.wait(20.0)

    queue.submit(endless)
    begun.wait(10.0)
    child = os.fork()
    if not child:
        done: list[int] = []
        queue.submit(lambda: done.append(1))
        os._exit(0 if queue.wait(10.0) and done == [1] and not go.is_set() else 1)
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    assert queue.wait(10.0)
    queue.submit(go.clear)
    assert queue.wait(10.0) and not go.is_set()


@pytest.mark.skipif(sys.platform != "linux", reason="priorities belong to processes elsewhere")
def test_the_thread_has_the_priority_of_the_program() -> None:
    queue, found = BackgroundQueue(), []
    queue.submit(lambda: found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
    assert queue.wait(10.0) and found == [os.getpriority(os.PRIO_PROCESS, threading.get_native_id())]
