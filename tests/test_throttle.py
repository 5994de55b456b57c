"""A process that gives way: what was worked is slept for, but not while something is timed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jitla.tuner import throttle

WORKS = """
import os
from time import process_time
from jitla.tuner import throttle
slept = []
vars(os).pop("SCHED_IDLE", None)  # processors are short where tests run
os.nice = lambda by: None
throttle.sleep = slept.append
throttle.limit_share(0.25)
with throttle.unthrottled():
    before = len(slept)
    while process_time() < throttle._Throttle.worked_at_sleep + 0.05:
        pass
    assert len(slept) == before
end = process_time() + 0.1
while process_time() < end:
    pass
print(sum(slept) > 3 * 0.1, slept[before] > 3 * 0.04)
"""


@pytest.fixture
def clock(monkeypatch):
    slept, now = [], [0.0]
    monkeypatch.setattr(throttle, "sleep", slept.append)
    monkeypatch.setattr(throttle, "process_time", lambda: now[0])
    monkeypatch.setattr(throttle._Throttle, "worked_at_sleep", 0.0)
    return slept, now


def test_who_works_without_a_share_never_sleeps(clock):
    slept, now = clock
    now[0] = 1.0
    with throttle.unthrottled():
        now[0] = 2.0
    assert not slept


def test_work_is_slept_for_before_and_after_what_is_steady(clock, monkeypatch):
    slept, now = clock
    monkeypatch.setattr(throttle._Throttle, "share", 0.25)
    now[0] = 1.0
    with throttle.unthrottled():
        now[0] = 3.0
        throttle.pause()
        assert slept == [3.0]
    assert slept == [3.0, 6.0]


@pytest.mark.skipif(sys.platform == "win32", reason="no timer interrupts a process there")
def test_a_process_is_interrupted_wherever_it_works():
    said = subprocess.run([sys.executable, "-c", WORKS], capture_output=True, text=True)
    assert said.stdout == "True True\n", said.stderr
