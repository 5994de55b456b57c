"""Events, their log and counts; timed runs."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import numpy as np
import pytest

import jitla
from jitla import events as clocks
from jitla.events import (
    TIMED_RUNS,
    CallWatch,
    Clock,
    Event,
    Recorder,
    log,
    median_seconds,
    record_moment,
    watch_calls,
)

# Events: a bounded memory, counts, times, and the log.


def test_the_last_events_are_kept_and_all_are_counted():
    recorder = Recorder(limit=3)
    for i in range(10):
        recorder.record(Event("kernel", "add", data={"n": i}))
    assert [e.data["n"] for e in recorder.recent()] == [7, 8, 9]
    assert recorder.count("kernel") == recorder.count("kernel", "add") == 10
    assert recorder.count("kernel", "sub") == recorder.count("plan") == 0
    recorder.clear()
    assert recorder.recent() == () and recorder.count("kernel") == 0


def test_kinds_form_a_tree():
    recorder = Recorder()
    for kind in ("rewrites", "rewrites.static", "rewritesmith", "plan"):
        recorder.record(Event(kind))
    assert [e.kind for e in recorder.recent("rewrites")] == ["rewrites", "rewrites.static"]


def test_time_is_taken_also_of_what_fails():
    recorder = Recorder()
    with pytest.raises(KeyError), recorder.timed("plan", "f", tries=1) as facts:
        facts["found"] = 2
        raise KeyError
    (event,) = recorder.recent("plan")
    assert event.seconds > 0 and event.data == {"tries": 1, "found": 2}
    assert str(event) == "plan: f found=2 tries=1"


def test_once_logs_once(caplog):
    recorder = Recorder()
    with caplog.at_level(logging.INFO, "jitla"):
        event = Event("fallback", "f.py:3", data={"why": "x"})
        assert [recorder.record_once(event) for _ in range(3)] == [True, False, False]
    assert caplog.messages == ["fallback: f.py:3 why=x"]
    assert recorder.count("fallback") == 3


def test_everything_is_logged_for_debugging(caplog):
    with caplog.at_level(logging.DEBUG, "jitla"):
        Recorder().record(Event("kernel", "add"))
    assert caplog.messages == ["kernel: add"]


def test_the_library_is_quiet_by_itself():
    assert any(isinstance(h, logging.NullHandler) for h in log.handlers) and log.level == logging.NOTSET


def test_subjects_without_end_take_no_memory_without_end():
    recorder = Recorder(limit=1)
    for i in range(10_050):
        recorder.record(Event("fallback", str(i)))
    assert len(recorder._counts) == 10_000
    assert recorder.count("fallback", "9999") == 1


@pytest.mark.threads
def test_recording_is_thread_safe():
    recorder = Recorder(limit=10)
    def work() -> None:
        for _ in range(500):
            recorder.record(Event("k"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert recorder.count("k") == 2000 and len(recorder.recent()) == 10


# What is timed: the first runs of a program, and every run while somebody watches.


class Ticking:
    """A clock that goes on by a second each time it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def ticking(monkeypatch):
    monkeypatch.setattr(clocks, "perf_counter", Ticking())


def run(clock: Clock, binding: Any = None) -> None:
    lap = clock.start(binding)
    for at in range(clock.steps):
        lap.step(at)
    lap.end()


def test_steps_and_the_whole_are_timed(ticking):
    clock = Clock(2)
    run(clock)
    assert clock.laps[0].seconds == [1.0, 1.0] and clock.laps[0].whole == 5.0
    assert median_seconds([*clock.laps]) == (1.0, 1.0, 5.0)


def test_the_first_lap_is_left_out_of_the_median(ticking):
    clock = Clock(1)
    for whole in (90.0, 2.0, 4.0, 3.0):
        run(clock)
        clock.laps[-1].whole = whole
    assert median_seconds([*clock.laps])[-1] == 3.0


def test_only_the_first_runs_are_timed_but_for_those_that_are_watched():
    clock = Clock(1)
    for _ in range(TIMED_RUNS):
        assert clock.on
        run(clock)
    assert not clock.on
    with watch_calls([clock]) as watch:
        run(clock)
        run(clock)
        assert clock.on
        record_moment("median", 1.0, 2.0)
    record_moment("median", 3.0, 4.0)
    run(clock)
    assert not clock.on and len(clock.laps) == TIMED_RUNS + 3
    assert [found[:3] for found in watch.moments] == [("median", 1.0, 2.0)] and watch.seconds > 0.0


def test_every_binding_has_first_runs_of_its_own():
    clock, one, two = Clock(1), np.float64, np.float32
    for binding in (one,) * TIMED_RUNS + (two,):
        run(clock, binding)
    assert clock.on and [lap.binding() is one for lap in clock.laps] == [True] * TIMED_RUNS + [False]
    run(clock, one)
    assert not clock.on  # it has been timed as often as it is


def test_a_watch_remembers_so_many_moments_only():
    with watch_calls(max_moments=3) as watch:
        for _ in range(5):
            record_moment("f", 0.0, 1.0)
    assert isinstance(watch, CallWatch) and len(watch.moments) == 3


def test_programs_of_a_function_have_laps_and_a_timeline():
    @jitla.jit
    def f(x):
        y = np.exp(x) + 1.0
        return np.median(y) + y.sum()

    x = np.linspace(0.0, 1.0, 3000)
    for _ in range(TIMED_RUNS + 4):
        f(x)
    e = jitla.explain(f)
    assert [len(p.laps) for p in e.record.programs] == [TIMED_RUNS] * len(e.record.programs)
    e = jitla.explain(f, x)
    assert all(len(p.laps) == TIMED_RUNS + 1 for p in e.record.programs) and e.record.call is not None
    assert [m.name for m in e.record.call.moments] == ["median"]
    events = json.loads(e.to_trace())["traceEvents"]
    assert {event["cat"] for event in events if event["ph"] == "X"} >= {
        "call", "program", "kernel", "numpy", "compile"}
    assert all(event["ts"] >= 0.0 and event["dur"] >= 0.0 for event in events if event["ph"] == "X")


def test_a_run_that_fails_is_not_timed():
    @jitla.jit
    def f(x):
        return 1.0 / x

    with np.errstate(divide="ignore"):
        f(np.zeros(3000))
    assert all(lap.whole > 0.0 for p in jitla.explain(f).record.programs for lap in p.laps)


def test_values_between_steps_have_a_reason():
    @jitla.jit
    def f(x, A):
        p = np.exp(x)
        return A @ (p / p.sum())

    (program,) = jitla.explain(f, np.linspace(0.0, 1.0, 300), np.ones((300, 300))).record.programs
    assert program.apart and all(apart.reason and apart.readers for apart in program.apart)


def test_what_numpy_ran_so_far_is_compiled_before_it_is_timed():
    @jitla.jit(compile="auto")
    def f(x):
        return np.median(np.exp(x) * 3.5 + x)

    x = np.linspace(0.0, 1.0, 300_000)
    f(x)
    programs = jitla.explain(f, x).record.programs
    assert programs and all(p.runs >= 1 and p.laps for p in programs)
