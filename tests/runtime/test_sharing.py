"""Who takes part in a job as the process goes on: affinity that changes, interrupts, jobs within jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import jitla
from jitla import runtime
from jitla.codegen.kernel_abi import hints
from tests.runtime.kernels import launch, template

ROOT = Path(__file__).parents[2]
LONG = 3_000_000  # turns in which threads on one processor take turns
several = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="there is one processor only")


@pytest.fixture
def processors() -> Iterator[set[int]]:
    """The processors of this thread, which has them again afterwards."""
    runtime.set_threads(None)
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)
    runtime.set_threads(None)


def crowd(own: int = 0, turns: int = 1_000_000) -> int:
    """Most threads that were in one of some long jobs at a time, not counting the first jobs."""
    block, most = template("crowd", 40, 1, "as", flags=hints(1e6, True, own)), 0
    for k in range(10):
        out = np.zeros(2, np.int64)
        time.sleep(0.012)
        launch(block, out, np.int64(turns))
        most = max(most, int(out[1])) if k > 1 else most
    return most


@several
def test_affinity_that_shrinks_and_grows(processors: set[int]) -> None:
    assert crowd() > 1
    os.sched_setaffinity(0, {min(processors)})
    assert crowd() == 1
    assert crowd(own=2, turns=LONG) == 2  # a wish is a wish
    os.sched_setaffinity(0, {max(processors)})
    assert crowd() == 1
    os.sched_setaffinity(0, processors)
    assert crowd() > 1


@several
def test_a_number_that_was_asked_for_holds(processors: set[int]) -> None:
    runtime.set_threads(2)
    os.sched_setaffinity(0, {min(processors)})
    assert crowd(turns=LONG) == 2


@several
def test_affinity_of_every_thread_that_launches(processors: set[int]) -> None:
    found = []

    def pinned() -> None:
        os.sched_setaffinity(0, {max(processors)})
        out = np.zeros(2, np.int64)
        launch(template("crowd", 40, 1, "as", flags=hints(1e6, True)), out, np.int64(100_000))
        found.append(int(out[1]))

    assert crowd() > 1
    for _ in range(3):
        thread = threading.Thread(target=pinned)
        thread.start()
        thread.join()
    assert found == [1, 1, 1]
    assert crowd() > 1


@several
def test_workers_stay_where_the_launcher_may_run(processors: set[int]) -> None:
    one = max(processors)
    runtime.set_threads(4)
    os.sched_setaffinity(0, {one})
    block = template("slow", 40, 1, "as", flags=hints(1e6, True, 4))
    for _ in range(3):
        time.sleep(0.012)
        launch(block, np.zeros(1, np.int64), np.int64(1000))
    # workers there are: those of other tests' pools, and BLAS's, were started without signals or by NumPy
    masks = [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]
    assert masks.count({one}) >= 4


INTERRUPT = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import jitla
from jitla import runtime
def step(x):
    for _ in range(6):
        x = np.sqrt(x * x + 1.0)
    return x
def many(x):
    for _ in range(100_000):
        x = np.minimum(np.sin(x) * 1.5, 0.5)
        if x[0] > 2.0:
            break
    return x
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs behind it is started without
fast, long = jitla.jit(step), jitla.jit(many)
x = np.random.default_rng(0).random(2_000_000)
want = fast(x)
assert fast.stats()["kernels"] and (want == step(x)).all()
for k in range(5):
    threading.Timer(0.05 + 0.013 * k, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        long(x)
    except KeyboardInterrupt:
        print("interrupted")
    assert (fast(x) == want).all()
    assert runtime.statistics()["in_use"] >= 0
assert not long.stats()["failures"] and not fast.stats()["failures"]
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_an_interrupt_ends_the_program_and_the_next_call_works(tmp_path: Path, threads: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(INTERRUPT)
    done = subprocess.run(
        [sys.executable, str(script), str(ROOT)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "JITLA_NUM_THREADS": threads})
    assert (done.returncode, done.stdout) == (0, "interrupted\n" * 5), done.stderr


def test_a_signal_handler_that_runs_a_program() -> None:
    """Python's handlers run between kernels, in the midst of what is traced: they are no part of it."""
    inner = jitla.jit(lambda x: np.exp(-x) * x)
    outer = jitla.jit(_outer)
    x = np.random.default_rng(0).random(400_000)
    want, seen = (_outer(x), np.exp(-x) * x), []
    inner(x)

    def handler(*_) -> None:
        seen.append(inner(x))
        signal.setitimer(signal.ITIMER_REAL, 0.007)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.007)
    try:
        results = [outer(x) for _ in range(40)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all(type(r) is np.ndarray and (r == want[0]).all() for r in results)
    assert seen and all(type(s) is np.ndarray and np.allclose(s, want[1], rtol=1e-13) for s in seen)
    assert not outer.stats()["failures"] + inner.stats()["failures"]


def _outer(x):
    for _ in range(20):
        x = np.sqrt(x * x + 1.0) - 0.5
    return x


@several
def test_programs_in_many_threads_share_one_pool() -> None:
    runtime.set_threads(None)
    f = jitla.jit(_outer)
    arrays = [np.random.default_rng(k).random(200_000) for k in range(6)]
    wanted, bad = [_outer(x) for x in arrays], []
    f(arrays[0])
    native = len(os.listdir("/proc/self/task"))

    def work(k: int) -> None:
        for _ in range(10):
            if f(arrays[k]).tobytes() != wanted[k].tobytes():
                bad.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    most = len(os.listdir("/proc/self/task"))
    for thread in threads:
        thread.join(60)
    assert not bad and most <= native + 6
    assert not f.stats()["failures"]
