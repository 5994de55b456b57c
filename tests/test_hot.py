"""Kernels that ran for long are tuned behind the program: it goes on, and runs what was found."""

from __future__ import annotations

from threading import Event, enumerate

import numpy as np
import pytest

import jitla
from jitla.engine import ENGINE
from jitla.tuner import background as hot
from jitla.tuner.records import Record

X = np.random.default_rng(1).random((20_000, 16))


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def add(x):
    return x + 1.0


@pytest.fixture
def kept(tmp_path):
    with jitla.options(cache_dir=str(tmp_path), disk_cache=True, progress=False, tune_after_ms=1):
        yield tmp_path
        ENGINE.use_tuning_session()


def until_tuned():
    for thread in enumerate():
        if thread.name == "jitla tunes":
            thread.join(60)
    ENGINE.background.wait(60)


def line(job, config):
    choice = job.parcel.choice(ENGINE.compiler(jitla.config.current()))
    every = {**choice.space().values(choice.space().default), **config}
    return Record(*choice.key, ENGINE.host(), every, 0.5, 1.0, 0.0, True).line()


def test_a_hot_kernel_is_swapped_while_it_runs(kept, monkeypatch):
    jobs, told = [], Event()

    def asked(job):
        jobs.append(job)
        told.wait(60)
        return line(job, {"height": 24, "units": 2})

    monkeypatch.setattr(hot, "_tune_in_process", asked)
    f = jitla.jit(softmax, compile="sync")
    wanted = f(X)
    for _ in range(200):
        assert f(X).tobytes() == wanted.tobytes()
    assert "tuned: " not in str(jitla.explain(f))
    told.set()
    until_tuned()
    assert f(X).tobytes() == wanted.tobytes()
    assert len(jobs) == 1 and "tuned: height=24, units=2" in str(jitla.explain(f))


def test_what_is_short_or_cold_is_left_alone(kept, monkeypatch):
    monkeypatch.setattr(hot, "_tune_in_process", lambda job: pytest.fail("nothing was to be tuned"))
    profiles = []  # of this test: compilers of others may be there
    make = hot.KernelProfile
    monkeypatch.setattr(hot, "KernelProfile", lambda: profiles.append(make()) or profiles[-1])
    f, g = jitla.jit(add, compile="sync"), jitla.jit(softmax, compile="sync")
    small = np.ones(100)
    with jitla.options(tune_after_ms=100_000):
        for _ in range(3000):  # whatever one run has to wait for a processor
            f(small)
        for _ in range(100):
            g(X)
    until_tuned()
    assert sorted(h.is_candidate for h in profiles if h.timed) == [False, True]


def test_a_process_that_fails_changes_nothing(kept, monkeypatch):
    monkeypatch.setattr(hot, "PROGRAM", "raise SystemExit")
    f = jitla.jit(softmax, compile="sync")
    wanted = f(X)
    for _ in range(100):
        f(X)
    until_tuned()
    assert f(X).tobytes() == wanted.tobytes() and not (kept / "tuned").exists()


def test_another_process_tunes_and_keeps_records(kept, monkeypatch):
    monkeypatch.setattr(
        hot, "PROGRAM", "from jitla.cli import tuning_workers as w; w.TRIALS, w.SHARE = 2, 1.0; w.tune()")
    f = jitla.jit(softmax, compile="sync")
    wanted = f(X)
    for _ in range(100):
        f(X)
    until_tuned()
    assert f(X).tobytes() == wanted.tobytes()
    lines = (kept / "tuned" / "records.jsonl").read_text().splitlines()
    assert len(lines) == 3 and '"verified":true' in lines[-1]
    records = ENGINE.schedule_records(jitla.config.current())
    assert len(records) == 1  # the last one, as it was told
