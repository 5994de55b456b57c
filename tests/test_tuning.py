"""Tuning a function: results stay the same to the bit, and records choose in this process and the next."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import jitla
from jitla.__main__ import main
from jitla.engine import ENGINE
from jitla.tuner.measurement import MeasurementProcess
from jitla.tuner.records import Record


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def total(x, w):
    return x.T @ (x @ w)


@pytest.fixture
def kept(tmp_path):
    with jitla.options(cache_dir=str(tmp_path), disk_cache=True, progress=False):
        yield tmp_path
        ENGINE.use_tuning_session()


def made(found, changes, f):
    (usual,) = jitla.schedule(f)
    config = {**usual.usual, **changes} if changes else {}
    return Record(found.key.kernel, found.key.shape, ENGINE.host(), config, 0.5, 1.0, 0.0, True)


X = np.random.default_rng(1).random((4000, 16))


def test_tune_says_what_it_tried_and_keeps_it(kept):
    f = jitla.jit(softmax, compile="sync")
    before = f(X)
    found = jitla.tune(f, X, trials=5)
    (one,) = [t for t in found if t.trials]
    assert 1 < one.trials <= 5 < one.points and one.refused == 0
    assert one.key.kernel[:10] in str(found)
    lines = (kept / "tuned" / "records.jsonl").read_text().splitlines()
    assert len(lines) == one.trials + 1
    assert (kept / "tuned").stat().st_mode & 0o77 == 0
    assert f(X).tobytes() == before.tobytes()


def test_records_choose_and_results_are_the_same(kept):
    f = jitla.jit(softmax, compile="sync")
    before = f(X)
    found = jitla.tune(f, X, trials=1)[0]
    config = jitla.config.current()
    records = ENGINE.schedule_records(config)
    f(X)
    records.add([made(found, {"height": 24, "units": 2}, f)])
    ENGINE.use_tuning_session()
    f.cache_clear()
    assert f(X).tobytes() == before.tobytes()
    (chosen,) = ENGINE.compiler(config).tuning.chosen.values()
    assert chosen["height"] == 24 and chosen["units"] == 2
    assert "tuned: height=24, units=2" in str(jitla.explain(f))


def test_another_process_runs_what_was_tuned_here(kept):
    f = jitla.jit(softmax, compile="sync")
    found = jitla.tune(f, X, trials=1)[0]
    before = f(X)
    ENGINE.schedule_records(jitla.config.current()).add([made(found, {"height": 24, "units": 2}, f)])
    program = ("import jitla; from tests.test_tuning import X, softmax; "
               "f = jitla.jit(softmax, compile='sync'); "
               "print(f(X).tobytes().hex() == open('wanted').read(), jitla.explain(f))")
    (kept / "wanted").write_text(before.tobytes().hex())
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "JITLA_CACHE_DIR": str(kept)}
    said = subprocess.run([sys.executable, "-c", program], cwd=kept, env=here, text=True, check=True,
                          capture_output=True).stdout
    assert said.startswith("True") and "tuned: height=24, units=2" in said


def test_the_command_shows_progress_and_what_was_found(kept, capsys, monkeypatch):
    np.savez(kept / "data.npz", X)
    with jitla.options(progress=True):
        assert main(["tune", f"{__name__}:softmax", "--data", str(kept / "data.npz"), "--trials", "3"]) == 0
    out, progress = capsys.readouterr()
    assert out.startswith("kernel") and " 3/" in out
    assert "3 of " in progress and "best" in progress and progress.endswith("\n")


def test_an_interrupt_keeps_what_was_found_and_leaves_other_kernels(kept, monkeypatch):
    def two(x, y):
        return np.sqrt(x * x + 1.0), np.exp(y - y.max(axis=1, keepdims=True))

    timed, asked = MeasurementProcess.time, []

    def time(guard, values, rounds):
        asked.append(values)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return timed(guard, values, rounds)

    monkeypatch.setattr(MeasurementProcess, "time", time)
    found = jitla.tune(jitla.jit(two), np.ones((700, 500)), X, trials=9)
    first, other = found
    assert first.trials == 3 and other.note == "stopped" and not other.trials
    lines = (kept / "tuned" / "records.jsonl").read_text().splitlines()
    assert len(lines) == 4 and '"verified":true' in lines[-1], "the untuned one, two others, and what is best"


def test_stencils_are_tried_in_tiles(kept):
    def thrice(x):
        y = np.sqrt(x[:, 1:] * x[:, :-1])
        return y[2:] + y[1:-1] - y[:-2]

    x = np.random.default_rng(2).random((200, 1200))
    f = jitla.jit(thrice, compile="sync")
    before = f(x)
    (found,) = jitla.tune(f, x, trials=3)
    config = jitla.config.current()
    f(x)
    (usual,) = jitla.schedule(f)
    tiles = next(k.choices for k in usual.knobs if k.name == "tile")
    assert "16x256" in tiles and found.points > len(tiles) and not found.refused
    ENGINE.schedule_records(config).add([made(found, {"tile": "16x256"}, f)])
    ENGINE.use_tuning_session()
    f.cache_clear()
    assert f(x).tobytes() == before.tobytes()
    assert "tile=16x256" in str(jitla.explain(f)) and "for j_o in range(5)" in str(f.explain().at("loops"))


def test_records_that_are_not_legal_are_not_used(kept):
    f = jitla.jit(softmax, compile="sync")
    found = jitla.tune(f, X, trials=1)[0]
    config = jitla.config.current()
    f(X)
    usual = made(found, {"height": 23}, f).config
    for wrong in (usual, {"height": 8}, {**usual, "height": "8"}, {}):
        ENGINE.schedule_records(config).add([replace(made(found, {}, f), config=wrong)])
        ENGINE.use_tuning_session()
        f.cache_clear()
        f(X)
        assert not ENGINE.compiler(config).tuning.chosen


def test_sums_over_rows_are_only_tuned_if_relaxed(kept):
    w = np.ones(16)
    strict = jitla.tune(jitla.jit(total), X, w, trials=2)
    assert all(t.points == 1 and not t.trials for t in strict)
    loose = jitla.tune(jitla.jit(total, numerics="relaxed"), X, w, trials=2)
    assert any(t.points > 1 for t in loose)


def test_a_directory_that_others_can_write_is_not_used(kept):
    (kept / "tuned").mkdir()
    (kept / "tuned").chmod(0o777)
    f = jitla.jit(softmax)
    jitla.tune(f, X, trials=2)
    assert not list((kept / "tuned").iterdir())


def test_nothing_chooses_where_nothing_was_tuned(kept):
    jitla.jit(softmax, compile="sync")(X)
    assert ENGINE.compiler(jitla.config.current().with_changes({"compile": "sync"})).tuning is None


def test_arguments_are_not_written_to(kept):
    def f(x):
        x *= 2.0
        return x + 1.0

    x = np.ones(200_000)
    jitla.tune(jitla.jit(f), x, trials=3)
    assert (x == 1.0).all()
