"""How many threads there are, and which of them take part in a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import jitla
from jitla import runtime
from jitla.codegen.kernel_abi import hints
from jitla.config import openmp_threads
from jitla.runtime.process import memory, processors
from tests.runtime.kernels import launch, template

# How many threads there are: affinity, quotas of control groups, what OpenMP is told, what jitla is told.

ROOT = Path(__file__).parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="one thread elsewhere")


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def system(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """Files of a system whose process is in the groups `cgroup`."""
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("cgroup", "files", "wanted"), [
    ("", {}, 8),
    ("0::/\n", {"sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
    ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
    ("0::/\n", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),  # a part of one counts
    ("0::/\n", {"sys/fs/cgroup/cpu.max": "1000 100000\n"}, 1),
    ("0::/\n", {"sys/fs/cgroup/cpu.max": "9900000 100000\n"}, 8),
    ("0::/\n", {"sys/fs/cgroup/cpu.max": ""}, 8),
    ("0::/\n", {"sys/fs/cgroup/cpu.max": "300000\n"}, 8),
    ("0::/\n", {"sys/fs/cgroup/cpu.max": "300000 0\n"}, 8),
    # the tightest of the group and those it is in
    ("0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max": "max 100000", "sys/fs/cgroup/a/cpu.max": "200000 100000"}, 2),
    ("0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max": "200000 100000", "sys/fs/cgroup/a/cpu.max": "3 1"}, 2),
    # a container whose group is named from outside
    ("0::/outer/pod\n", {"sys/fs/cgroup/cpu.max": "500000 100000"}, 5),
    # version 1; both at once
    ("3:cpuset:/x\n2:cpu,cpuacct:/x\n", {
        "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "400000\n",
        "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n"}, 4),
    ("1:cpu:/\n0::/\n", {
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/unified/cpu.max": "600000 100000\n"}, 6),
    ("1:cpu:/\n", {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000\n"}, 8),
    ("1:cpuset:/\n", {
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ("rubbish\n::\n", {"sys/fs/cgroup/cpu.max": "300000 100000"}, 3),
])
def test_quotas(tmp_path: Path, cgroup: str, files: dict[str, str], wanted: int) -> None:
    assert processors(system(tmp_path, cgroup, files)) == wanted


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("cgroup", "files", "wanted"), [
    ("0::/a\n", {"sys/fs/cgroup/a/memory.max": "1000000\n", "sys/fs/cgroup/memory.max": "max\n"}, 1_000_000),
    ("4:memory:/a\n0::/\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000\n"}, 2_000_000),
    ("4:memory:/\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ("0::/\n", {"sys/fs/cgroup/memory.max": ""}, None),
    ("", {}, None),
])
def test_limits_of_memory(tmp_path: Path, cgroup: str, files: dict[str, str], wanted: int | None) -> None:
    found = memory(system(tmp_path, cgroup, files))
    assert found == wanted if wanted else found > 1 << 28


@pytest.mark.usefixtures("eight")
def test_affinity_and_quota_both_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = system(tmp_path, "0::/\n", {"sys/fs/cgroup/cpu.max": "500000 100000"})
    assert processors(root) == 5
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert processors(root) == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors(root) == 1


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("value", "wanted"), [
    (None, 0), ("", 0), ("3", 3), (" 3 ", 3), ("4,2", 4), ("many", 0), ("-1", 0), ("0", 0),
])
def test_what_openmp_is_told(monkeypatch: pytest.MonkeyPatch, value: str | None, wanted: int) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if value is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert openmp_threads() == wanted


CHILD = """
import os, sys
sys.path.insert(0, sys.argv[1])
first = os.sched_getaffinity(0)
exec(sys.argv[2])
import numpy as np
import jitla
from jitla import runtime
f = jitla.jit(lambda a, b: np.exp(a * b) - a)
a, b = np.random.default_rng(0).random((2, 300_000))
def shared():
    before = runtime.statistics()["shared"]
    f(a, b)
    return runtime.statistics()["shared"] - before
f(a, b)
shared()
print(runtime.threads(), runtime.statistics()["threads"], shared())
"""


Numbers = Callable[..., list[int]]


@pytest.fixture
def child(tmp_path: Path) -> Numbers:
    """Threads that are usual and that there are, and how many jobs a call shares, of a fresh process."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    return lambda first="", **variables: run(script, first, variables)


def run(script: Path, first: str, variables: dict[str, str]) -> list[int]:
    kept = {k: v for k, v in os.environ.items() if not k.endswith("NUM_THREADS")}
    done = subprocess.run([sys.executable, str(script), str(ROOT), first], capture_output=True, text=True,
                          timeout=120, env={**kept, **variables})
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.mark.process
@pytest.mark.usefixtures("eight")
@linux
def test_affinity_of_the_process(child: Numbers) -> None:
    assert child("os.sched_setaffinity(0, {min(first)})") == [1, 1, 0]


@pytest.mark.process
@pytest.mark.usefixtures("eight")
@linux
@pytest.mark.parametrize(("variables", "wanted"), [
    ({"OMP_NUM_THREADS": "1"}, [1, 1, 0]),  # as joblib's workers are told
    ({"JITLA_NUM_THREADS": "1"}, [-1, -1, 0]),
    ({"JITLA_NUM_THREADS": "3", "OMP_NUM_THREADS": "1"}, [1, 3, 1]),  # jitla's own counts
    ({"JITLA_NUM_THREADS": "0", "OMP_NUM_THREADS": "1"}, [1, 1, 0]),
    ({"OMP_NUM_THREADS": "1000"}, [-1, -1, -1]),  # no more than there are processors
])
def test_environment_variables_limit_threads(
    child: Numbers, variables: dict[str, str], wanted: list[int],
) -> None:
    usual = child()
    assert child(**variables) == [u if w < 0 else w for w, u in zip(wanted, usual, strict=True)]


# Who takes part in a job as the process goes on: affinity that changes, interrupts, jobs within jobs.

LONG = 3_000_000  # turns in which threads on one processor take turns
several = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="there is one processor only")


@pytest.fixture
def allowed_processors() -> Iterator[set[int]]:
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


@pytest.mark.timing
@several
def test_affinity_that_shrinks_and_grows(allowed_processors: set[int]) -> None:
    assert crowd() > 1
    os.sched_setaffinity(0, {min(allowed_processors)})
    assert crowd() == 1
    assert crowd(own=2, turns=LONG) == 2  # a wish is a wish
    os.sched_setaffinity(0, {max(allowed_processors)})
    assert crowd() == 1
    os.sched_setaffinity(0, allowed_processors)
    assert crowd() > 1


@pytest.mark.timing
@several
def test_a_number_that_was_asked_for_holds(allowed_processors: set[int]) -> None:
    runtime.set_threads(2)
    os.sched_setaffinity(0, {min(allowed_processors)})
    assert crowd(turns=LONG) == 2


@pytest.mark.threads
@pytest.mark.timing
@several
def test_affinity_of_every_thread_that_launches(allowed_processors: set[int]) -> None:
    found = []

    def pinned() -> None:
        os.sched_setaffinity(0, {max(allowed_processors)})
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


@pytest.mark.timing
@several
def test_workers_stay_where_the_launcher_may_run(allowed_processors: set[int]) -> None:
    one = max(allowed_processors)
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


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_an_interrupt_ends_the_program_and_the_next_call_works(tmp_path: Path, threads: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(INTERRUPT)
    done = subprocess.run(
        [sys.executable, str(script), str(ROOT)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "JITLA_NUM_THREADS": threads})
    assert (done.returncode, done.stdout) == (0, "interrupted\n" * 5), done.stderr


@pytest.mark.timing
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


@pytest.mark.threads
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
