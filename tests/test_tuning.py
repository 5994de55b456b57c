"""Tuning of functions and kernels: in this process, in the background, in other processes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event, enumerate

import numpy as np
import pytest

import jitla
from jitla.__main__ import main
from jitla.dispatch import tuning
from jitla.dispatch.tuning import TuningSession
from jitla.engine import ENGINE
from jitla.recompile import UNTUNED
from jitla.tuner import background as hot
from jitla.tuner import measurement as guarding
from jitla.tuner import throttle
from jitla.tuner.measurement import MeasurementProcess
from jitla.tuner.records import VERSION, Record
from jitla.tuner.transport import (
    Job,
    OperandMemory,
    Unsendable,
    pack,
    packed_header,
    receive_job,
    send_job,
    unpack,
)

# Tuning a function: results stay the same to the bit, and records choose in this process and the next.


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


@pytest.mark.process
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


# Background tuning of kernels with long run times

BACKGROUND_X = np.random.default_rng(1).random((20_000, 16))


def add(x):
    return x + 1.0


@pytest.fixture
def background_kept(tmp_path):
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


def test_a_hot_kernel_is_swapped_while_it_runs(background_kept, monkeypatch):
    jobs, told = [], Event()

    def asked(job):
        jobs.append(job)
        told.wait(60)
        return line(job, {"height": 24, "units": 2})

    monkeypatch.setattr(hot, "_tune_in_process", asked)
    f = jitla.jit(softmax, compile="sync")
    wanted = f(BACKGROUND_X)
    for _ in range(200):
        assert f(BACKGROUND_X).tobytes() == wanted.tobytes()
    assert "tuned: " not in str(jitla.explain(f))
    told.set()
    until_tuned()
    assert f(BACKGROUND_X).tobytes() == wanted.tobytes()
    assert len(jobs) == 1 and "tuned: height=24, units=2" in str(jitla.explain(f))


def test_what_is_short_or_cold_is_left_alone(background_kept, monkeypatch):
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
            g(BACKGROUND_X)
    until_tuned()
    assert sorted(h.is_candidate for h in profiles if h.timed) == [False, True]


def test_a_process_that_fails_changes_nothing(background_kept, monkeypatch):
    monkeypatch.setattr(hot, "PROGRAM", "raise SystemExit")
    f = jitla.jit(softmax, compile="sync")
    wanted = f(BACKGROUND_X)
    for _ in range(100):
        f(BACKGROUND_X)
    until_tuned()
    assert f(BACKGROUND_X).tobytes() == wanted.tobytes() and not (background_kept / "tuned").exists()


def test_another_process_tunes_and_keeps_records(background_kept, monkeypatch):
    monkeypatch.setattr(
        hot, "PROGRAM", "from jitla.cli import tuning_workers as w; w.TRIALS, w.SHARE = 2, 1.0; w.tune()")
    f = jitla.jit(softmax, compile="sync")
    wanted = f(BACKGROUND_X)
    for _ in range(100):
        f(BACKGROUND_X)
    until_tuned()
    assert f(BACKGROUND_X).tobytes() == wanted.tobytes()
    lines = (background_kept / "tuned" / "records.jsonl").read_text().splitlines()
    assert len(lines) == 3 and '"verified":true' in lines[-1]
    records = ENGINE.schedule_records(jitla.config.current())
    assert len(records) == 1  # the last one, as it was told


# Schedules that hang, crash or compute something else harm nobody, and are not chosen.


def distance(x, y):
    return np.sqrt(x * x + y * y)


FAULTS_X = np.random.default_rng(1).random((300, 400))


@pytest.fixture
def faults_kept(tmp_path):
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
    return tuning.tune(f.__jitla_state__, f, (FAULTS_X, FAULTS_X), {}, trials, 30.0, measurement=settings)


def faulty(most):
    """Run schedules by a program of which some end it, at most so many times."""
    return guarding.MeasurementSettings("from tests.faulty import main; main()", most)


def test_faults_end_their_process_only(faults_kept):
    space, job = job_of(jitla.jit(distance, compile="sync"), FAULTS_X, FAULTS_X)
    usual, guard = space.values(space.default), guarding.MeasurementProcess(job, settings=faulty(2))
    said = [guard.time({**usual, "unroll": n}, 2) for n in (2, 4, 1, 8)]
    assert [said[0], said[1], said[3]] == ["differs", "crashed", "late"]
    assert said[2].seconds > 0
    with pytest.raises(guarding.MeasurementUnavailable, match="2 schedules crashed or blocked"):
        guard.time(usual, 2)


def test_a_search_ends_where_too_many_processes_were_lost(faults_kept):
    f = jitla.jit(distance, compile="sync")
    wanted = f(FAULTS_X, FAULTS_X)
    (found,) = tuned(f, 100, faulty(1))
    assert found.trials < 100 and found.note == "1 schedules crashed or blocked the process that ran them"
    lines = (faults_kept / "tuned" / "records.jsonl").read_text()
    assert not any(f'"unroll":{n}' in lines for n in (2, 4, 8))
    assert f(FAULTS_X, FAULTS_X).tobytes() == wanted.tobytes()


def test_a_kernel_that_runs_in_no_other_process_stays_untuned(faults_kept):
    f = jitla.jit(distance, compile="sync")
    (found,) = tuned(f, 9, guarding.MeasurementSettings("raise SystemExit"))
    assert found.note == "the untuned kernel does not run in another process" and not found.chosen


def test_lines_that_are_broken_are_skipped(faults_kept):
    f = jitla.jit(distance, compile="sync")
    wanted = f(FAULTS_X, FAULTS_X)
    (faults_kept / "tuned").mkdir(mode=0o700)
    broken = f'{{"v":{VERSION}}}\nno\n{{"v":99,"kernel":"x"}}\n\x00\xff[]\n' + "9" * 5000 + "\n"
    (faults_kept / "tuned" / "records.jsonl").write_text(broken)
    (faults_kept / "tuned" / "records.jsonl").chmod(0o600)
    ENGINE._records.clear()
    ENGINE.use_tuning_session()
    f.cache_clear()
    assert f(FAULTS_X, FAULTS_X).tobytes() == wanted.tobytes()
    assert ENGINE.schedule_records(jitla.config.current()).skipped == 5


# Kernels and their memory in another process: the same hops, the same places, the same bits.

TRANSPORT_X = np.random.default_rng(1).random((60, 40))


def cells(x, y):
    return np.sqrt(x * x + y) * 3.0


def laps(a):
    b = a[:-2, 1:-1] + a[2:, 1:-1] - 4 * a[1:-1, 1:-1]
    return b[:-2] * b[2:]


class Listening:
    """Chooses nothing, and remembers of every kernel what may be chosen, and what it was run on."""

    def __init__(self):
        self.chosen, self.notes, self.seen = {}, {}, []

    def block(self, choice):
        block, launch = choice.make(UNTUNED)

        def run(block, *operands):
            flags = launch(block, *operands)
            self.seen.append((choice, operands))
            return flags
        return block, run


@pytest.fixture
def heard():
    listening = Listening()
    ENGINE.use_tuning_session(listening)
    yield listening.seen
    ENGINE.use_tuning_session()


@pytest.mark.parametrize("function, args", [
    (cells, (TRANSPORT_X.T, TRANSPORT_X[0, :1])), (softmax, (TRANSPORT_X,)),
    (laps, (np.random.default_rng(2).random((500, 600)),))],
    ids=["cells", "softmax", "laps"])
def test_what_was_sent_computes_the_same(heard, function, args):
    wanted = jitla.jit(function, compile="sync")(*args)
    assert heard
    choice, operands = heard[-1]
    memory = OperandMemory.copy_of(operands, choice.outputs)
    wire = io.BytesIO()
    send_job(wire, packed_header(Job(choice.portable(), memory, choice.outputs, {})), memory)
    wire.seek(0)
    job = receive_job(wire)
    there = job.parcel.choice(ENGINE.compiler(jitla.config.current()))
    assert there.key == choice.key and there.space().knobs == choice.space().knobs
    mine = job.memory.operands()
    block, launch = there.make(UNTUNED)
    launch(block, *mine)
    assert mine[-1].tobytes() == wanted.tobytes()
    assert not any(np.may_share_memory(a, b) for a in mine for b in operands
                   if isinstance(a, np.ndarray) and isinstance(b, np.ndarray))


def test_memory_that_arrays_share_is_copied_once_and_lies_as_it_did():
    out = np.ones((59, 40))
    memory = OperandMemory.copy_of((TRANSPORT_X[1:], TRANSPORT_X[:-1], TRANSPORT_X[::-1, ::2].T, 2.5, out), 1)
    a, b, c, number, result = memory.operands()
    assert len(memory.parts) == 2 and number == 2.5 and not result.any()
    assert a.ctypes.data - b.ctypes.data == TRANSPORT_X.strides[0]
    assert c.strides == TRANSPORT_X[::-1, ::2].T.strides
    assert (a == TRANSPORT_X[1:]).all() and (b == TRANSPORT_X[:-1]).all()
    assert (c == TRANSPORT_X[::-1, ::2].T).all()
    assert a.ctypes.data % 4096 == TRANSPORT_X[1:].ctypes.data % 4096


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(Unsendable, match="a result overlaps an operand"):
        OperandMemory.copy_of((TRANSPORT_X[1:], TRANSPORT_X[:-1]), 1)
    with pytest.raises(Unsendable, match="object of type Listening"):
        OperandMemory.copy_of((Listening(), TRANSPORT_X), 1)
    with pytest.raises(Unsendable, match="cannot be pickled"):
        pack(lambda: 1)


def test_long_chains_of_hops_are_sent():
    from jitla.hops import Meta, leaf, make, topo
    x = leaf(0, Meta((4,), np.dtype(float)))
    for _ in range(3000):
        x = make("sqrt", (x,))
    assert unpack(pack({"x": x, "n": 1}))["x"] is x and len(topo((x,))) == 3001


# Throttle: sleep in proportion to the work, except while something is timed.

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


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="no timer interrupts a process there")
def test_a_process_is_interrupted_wherever_it_works():
    said = subprocess.run([sys.executable, "-c", WORKS], capture_output=True, text=True)
    assert said.stdout == "True True\n", said.stderr
