"""Schedules that hang, crash or compute something else harm nobody, and are not chosen."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.dispatch import tuning
from jitla.dispatch.tuning import TuningSession
from jitla.engine import ENGINE
from jitla.tuner import measurement as guarding
from jitla.tuner.records import VERSION


def distance(x, y):
    return np.sqrt(x * x + y * y)


X = np.random.default_rng(1).random((300, 400))


@pytest.fixture
def kept(tmp_path):
    with jitla.options(cache_dir=str(tmp_path), disk_cache=True, progress=False):
        yield tmp_path
        ENGINE.use_tuning_session()


def job_of(f, *args):
    """Return the one kernel of a call as other processes run it."""
    session = TuningSession()
    ENGINE.use_tuning_session(session)
    f(*args)
    ENGINE.use_tuning_session()
    (task,) = session.tasks.values()
    return task.choice.space(), task.job(jitla.config.current())


def tuned(f, trials, settings):
    """Tune the kernel of a function with other settings of measurement processes."""
    return tuning.tune(f.__jitla_state__, f, (X, X), {}, trials, 30.0, measurement=settings)


def faulty(most):
    """Run schedules by a program of which some end it, at most so many times."""
    return guarding.MeasurementSettings("from tests.faulty import main; main()", most)


def test_faults_end_their_process_only(kept):
    space, job = job_of(jitla.jit(distance, compile="sync"), X, X)
    usual, guard = space.values(space.default), guarding.MeasurementProcess(job, settings=faulty(2))
    said = [guard.time({**usual, "unroll": n}, 2) for n in (2, 4, 1, 8)]
    assert [said[0], said[1], said[3]] == ["differs", "crashed", "late"]
    assert said[2].seconds > 0
    with pytest.raises(guarding.MeasurementUnavailable, match="2 schedules crashed or blocked"):
        guard.time(usual, 2)


def test_a_search_ends_where_too_many_processes_were_lost(kept):
    f = jitla.jit(distance, compile="sync")
    wanted = f(X, X)
    (found,) = tuned(f, 100, faulty(1))
    assert found.trials < 100 and found.note == "1 schedules crashed or blocked the process that ran them"
    lines = (kept / "tuned" / "records.jsonl").read_text()
    assert not any(f'"unroll":{n}' in lines for n in (2, 4, 8))
    assert f(X, X).tobytes() == wanted.tobytes()


def test_a_kernel_that_runs_in_no_other_process_stays_untuned(kept):
    f = jitla.jit(distance, compile="sync")
    (found,) = tuned(f, 9, guarding.MeasurementSettings("raise SystemExit"))
    assert found.note == "the untuned kernel does not run in another process" and not found.chosen


def test_lines_that_are_broken_are_skipped(kept):
    f = jitla.jit(distance, compile="sync")
    wanted = f(X, X)
    (kept / "tuned").mkdir(mode=0o700)
    broken = f'{{"v":{VERSION}}}\nno\n{{"v":99,"kernel":"x"}}\n\x00\xff[]\n' + "9" * 5000 + "\n"
    (kept / "tuned" / "records.jsonl").write_text(broken)
    (kept / "tuned" / "records.jsonl").chmod(0o600)
    ENGINE._records.clear()
    ENGINE.use_tuning_session()
    f.cache_clear()
    assert f(X, X).tobytes() == wanted.tobytes()
    assert ENGINE.schedule_records(jitla.config.current()).skipped == 5
