"""The compile queue: order of jobs, shares of time, forks, the end of the process."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from jitla.concurrency import is_background_thread
from jitla.tiering.policy import (
    COMPILE_FIXED_SECONDS,
    COMPILE_SHARE,
    MAX_WAITING_SECONDS,
    URGENT_PRIORITY,
)
from jitla.tiering.queue import CompileQueue


class Clock:
    """A clock of the test's, and the time that jobs have taken."""

    def __init__(self) -> None:
        self.now = self.spent = 0.0


def test_jobs_are_done_in_turn_and_the_thread_ends() -> None:
    queue, done = CompileQueue(), []
    for k in range(20):
        queue.submit(lambda k=k: done.append(k))
    assert queue.wait(10.0) and done == list(range(20)) and not queue.busy
    queue.submit(lambda: done.append(threading.current_thread().name))
    assert queue.wait(10.0) and done[-1] == "jitla compiles"


def test_jobs_are_done_by_priority() -> None:
    queue, done, begun, go = CompileQueue(), [], threading.Event(), threading.Event()
    queue.submit(lambda: begun.set() or go.wait(10.0))  # type: ignore[func-returns-value]
    begun.wait(10.0)
    for priority in (1.0, 30.0, 20.0, 30.0, 0.0):
        queue.submit(lambda p=priority, k=len(queue._jobs): done.append((p, k)), priority)
    go.set()
    assert queue.wait(10.0) and done == [(30.0, 1), (30.0, 3), (20.0, 2), (1.0, 0), (0.0, 4)]


def test_a_job_that_has_waited_too_long_is_next() -> None:
    clock = Clock()
    queue = CompileQueue(lambda: clock.now, lambda: clock.spent)
    queue._jobs = [(len, 5.0, 0.0), (len, 1.0, 1.0), (len, 90.0, 1.0)]
    clock.now = 0.5 * MAX_WAITING_SECONDS
    assert queue._first() == 2
    clock.now = 1.5 * MAX_WAITING_SECONDS
    assert queue._first() == 0


def test_jobs_are_held_to_their_share_unless_they_are_urgent_or_waited_for() -> None:
    clock, done = Clock(), []
    queue = CompileQueue(lambda: clock.now, lambda: clock.spent)

    def job() -> None:
        clock.spent += 10 * COMPILE_FIXED_SECONDS
        done.append(clock.now)

    queue.submit(job, 1.0)
    assert queue.wait(10.0) and queue._credit == -COMPILE_FIXED_SECONDS  # not 9 times as much
    queue.submit(job, 1.0)
    assert queue.wait(10.0) and len(done) == 2  # the test waits
    queue.submit(job, 1.0)
    urgent = threading.Event()
    queue.submit(urgent.set, URGENT_PRIORITY)
    assert urgent.wait(10.0) and len(done) == 2
    clock.now += 2.1 * COMPILE_FIXED_SECONDS / COMPILE_SHARE
    while queue.busy:
        queue.ensure_thread()
    assert len(done) == 3


def test_the_queue_measures_how_crowded_the_machine_is() -> None:
    clock = Clock()
    queue = CompileQueue(lambda: clock.now, lambda: clock.spent)

    def job() -> None:
        clock.spent, clock.now = clock.spent + 0.1, clock.now + 0.4

    assert queue.crowding == 1.0
    for _ in range(30):
        queue.submit(job)
        queue.wait(10.0)
    assert queue.crowding == pytest.approx(4.0, rel=0.01)


def test_jobs_run_in_a_background_thread_with_a_short_switch_interval() -> None:
    queue, seen = CompileQueue(), []
    queue.submit(lambda: seen.append((is_background_thread(), sys.getswitchinterval() < 1e-3)))
    assert queue.wait(10.0) and seen == [(True, True)] and not is_background_thread()


@pytest.mark.threads
def test_the_end_drops_what_is_waiting() -> None:
    queue, begun, go = CompileQueue(), threading.Event(), threading.Event()
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
    queue, begun = CompileQueue(), threading.Event()
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
    queue, begun, go = CompileQueue(shutdown_seconds=0.05), threading.Event(), threading.Event()

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
    queue, found = CompileQueue(), []
    queue.submit(lambda: found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
    assert queue.wait(10.0) and found == [os.getpriority(os.PRIO_PROCESS, threading.get_native_id())]
