"""Events: a bounded memory, counts, times, and the log."""

from __future__ import annotations

import logging
import threading

import pytest

from jitla.events import (
    Event,
    Recorder,
    log,
)


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
