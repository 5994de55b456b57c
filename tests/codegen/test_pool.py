"""The thread pool and `launch`: chunks, concurrent and forked launches, operands, scratch memory, the GIL."""

import ctypes
import multiprocessing
import os
import platform
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from jitla import runtime
from jitla.codegen.kernel_abi import RELEASE_GIL, hints
from jitla.runtime.process import _PROCESS
from tests.runtime.kernels import addresses, launch, template

# The pool: every chunk runs once; forks, floating-point state, shutdown.

ROOT = Path(__file__).parents[2]
PARALLEL = sys.platform == "linux"
x86 = pytest.mark.skipif(not PARALLEL or platform.machine() != "x86_64",
                         reason="the float state is handed on for x86-64 only")
linux = pytest.mark.skipif(not PARALLEL, reason="the pool is serial here")


@pytest.fixture
def _two_threads():
    runtime.set_threads(2)
    yield
    _PROCESS.reserved = 0
    runtime.set_threads(None)


def run_slow(units: int, turns: int, grain: int = 1) -> int:
    out = np.zeros(1, np.int64)
    launch(template("slow", units, grain, "as"), out, np.int64(turns))
    return int(out[0])


def native_threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_unit_runs_once(threads: int) -> None:
    runtime.set_threads(threads)
    for units in (2, 3, 17, 1000):
        for _ in range(50):
            assert run_slow(units, 5) == units


@pytest.mark.usefixtures("_two_threads")
def test_many_small_launches() -> None:
    before = runtime.statistics()["shared"]
    for _ in range(5000):
        assert run_slow(3, 1) == 3
    if PARALLEL:
        assert runtime.statistics()["shared"] - before == 5000


@pytest.mark.usefixtures("_two_threads")
@linux
@pytest.mark.parametrize(("usual", "reserved", "own"), [
    (2, 7, 0), (7, 7, 3), (7, 7, 1), (2, 7, 5), (2, 2, 7), (7, 7, 0),
])
def test_no_more_threads_take_part_than_the_block_or_the_process_says(usual, reserved, own) -> None:
    runtime.set_threads(usual)
    runtime.reserve_threads(reserved)
    assert runtime.threads() == usual
    most = own or usual
    block = template("crowd", 40, 1, "as", flags=hints(1e6, True, own))
    crowds = []
    for _ in range(8):
        out = np.zeros(2, np.int64)
        launch(block, out, np.int64(100_000))
        assert out[0] == 0
        crowds.append(out[1])
    assert max(crowds) <= most and (most == 1 or max(crowds) > 1)


@pytest.mark.timing
@pytest.mark.usefixtures("_two_threads")
def test_launches_after_the_workers_fell_asleep() -> None:
    for _ in range(30):
        time.sleep(0.002)
        assert run_slow(4, 2000) == 4


@pytest.mark.usefixtures("_two_threads")
def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x, got = np.random.default_rng(1).random(10_000), []
    for threads in (1, 2, 5):
        runtime.set_threads(threads)
        out = np.empty(10_000)
        launch(template("axpi", 10_000, 13, "asa"), x, 3.0, out)
        got.append(out.tobytes())
    assert len(set(got)) == 1


@pytest.mark.threads
@pytest.mark.usefixtures("_two_threads")
def test_concurrent_launches() -> None:
    bad: list[int] = []

    def work(k: int) -> None:
        x, out = np.full(500, float(k)), np.empty(500)
        for _ in range(1500):
            launch(template("axpi", 500, 11, "asa"), x, 2.0, out)
            if not (out == 2.0 * k + np.arange(500)).all():
                bad.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not bad and not any(worker.is_alive() for worker in workers)


@pytest.mark.timing
@pytest.mark.usefixtures("_two_threads")
@linux
def test_threads_come_when_needed_and_leave() -> None:
    runtime.set_threads(1)
    time.sleep(0.05)
    base = native_threads()
    runtime.set_threads(5)
    assert native_threads() == base
    run_slow(2, 1)
    assert native_threads() == base + 4
    assert runtime.statistics()["ready"] == 5
    runtime.set_threads(2)
    wait_for(lambda: native_threads() == base + 1)
    runtime.set_threads(4)
    run_slow(2, 1)
    wait_for(lambda: native_threads() == base + 3)


@pytest.mark.usefixtures("_two_threads")
def test_changing_the_number_of_threads_all_the_time() -> None:
    for i in range(300):
        runtime.set_threads(1 + i % 5)
        assert run_slow(7, 3) == 7


def wait_for(condition) -> None:
    end = time.monotonic() + 5
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


@pytest.mark.timing
@pytest.mark.usefixtures("_two_threads")
@linux
@pytest.mark.parametrize(("error", "raised"), [
    (RuntimeError, False), (MemoryError, False), (KeyboardInterrupt, True),
])
def test_errors_while_threads_start(error, raised, monkeypatch) -> None:
    def fail(*_):
        raise error

    runtime.set_threads(1)
    time.sleep(0.05)
    runtime.set_threads(4)
    monkeypatch.setattr("jitla.runtime.process._spawn", fail)
    if raised:
        with pytest.raises(error):
            run_slow(9, 1)
    else:
        assert run_slow(9, 1) == 9
        assert runtime.threads() == 1
    monkeypatch.undo()
    runtime.set_threads(1)
    time.sleep(0.05)
    base = native_threads()
    runtime.set_threads(3)
    assert run_slow(9, 1) == 9
    wait_for(lambda: native_threads() == base + 2)


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("n", [0, -1])
def test_a_wrong_number_of_threads_is_refused(n: int) -> None:
    with pytest.raises(ValueError):
        runtime.set_threads(n)


@pytest.mark.timing
@pytest.mark.usefixtures("_two_threads")
@linux
def test_idle_workers_use_no_processor() -> None:
    run_slow(4, 1000)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


@pytest.mark.usefixtures("_two_threads")
@x86
def test_workers_round_as_the_caller() -> None:
    libm, out = ctypes.CDLL("libm.so.6"), np.zeros(2000)
    block = template("divide", 2000, 10, "as")
    libm.fesetround(0x800)  # upward
    try:
        for _ in range(100):
            launch(block, out, 3.0)
    finally:
        libm.fesetround(0)
    assert set(out) == {np.nextafter(1 / 3, 1.0)}
    launch(block, out, 3.0)
    assert set(out) == {1 / 3}


@pytest.mark.usefixtures("_two_threads")
@x86
def test_flags_of_all_threads_are_reported_and_the_callers_own_stay() -> None:
    libm = ctypes.CDLL("libm.so.6")
    out = np.zeros(2000)
    libm.feclearexcept(0x3D)
    libm.feraiseexcept(0x10)  # underflow, which nobody reports
    for _ in range(100):
        assert launch(template("divide", 2000, 10, "as"), out, 0.0) == 4
        assert launch(template("divide", 2000, 10, "as"), out, 2.0) == 0
    own = libm.fetestexcept(0x3D)
    libm.feclearexcept(0x3D)
    assert own & 0x1D == 0x10
    assert launch(template("divide", 2000, 10, "as"), out, 0.0) == 4
    assert np.isinf(out).all()


@pytest.mark.usefixtures("_two_threads")
@linux
def test_workers_take_no_signals() -> None:
    run_slow(4, 10)
    blocked = []
    for task in os.listdir("/proc/self/task"):
        status = Path(f"/proc/self/task/{task}/status").read_text()
        mask = int(next(x for x in status.splitlines() if x.startswith("SigBlk")).split()[1], 16)
        blocked.append(mask >> 14 & 1)  # SIGTERM
    assert sum(blocked) >= runtime.threads() - 1


def in_child(pipe) -> None:
    pipe.send((run_slow(100, 100), runtime.statistics()["ready"]))
    pipe.close()


@pytest.mark.process
@pytest.mark.usefixtures("_two_threads")
@linux
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_children_get_workers_of_their_own() -> None:
    assert run_slow(10, 100) == 10
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        mine, theirs = context.Pipe()
        child = context.Process(target=in_child, args=(theirs,))
        child.start()
        assert mine.poll(20) and mine.recv() == (100, 2)
        child.join(20)
        assert child.exitcode == 0
        assert run_slow(10, 100) == 10


@pytest.mark.process
@pytest.mark.threads
@pytest.mark.usefixtures("_two_threads")
@linux
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forks_while_another_thread_launches() -> None:
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            run_slow(20, 500)
            runtime.empty((20_000,), np.dtype("f8"))

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(25):
            pid = os.fork()
            if pid == 0:
                ok = run_slow(50, 50) == 50 and runtime.empty((20_000,), np.dtype("f8")).size
                os._exit(0 if ok else 1)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


LIMITED = """
import resource
run(1)
runtime.set_threads(200)
pages = int(open('/proc/self/statm').read().split()[0])
limit = pages * resource.getpagesize() + (400 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
run(4)
assert 1 <= runtime.threads() < 200
limit += 400 << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
kept = [runtime.empty((1 << 22,), np.dtype('f8')) for _ in range(4)]
del kept
assert runtime.statistics()['held'] > 100 << 20
try:
    runtime.empty((1 << 40,), np.dtype('f8'))
except MemoryError:
    assert runtime.statistics()['held'] == 0
run(4)
"""

ENDINGS = {
    "no memory for more threads": LIMITED,
    "plain": "run(4)",
    "exception": "run(4); raise SystemExit(0)",
    "daemon launching": """
import threading, time
def forever():
    while True: run(4)
for _ in range(3): threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
""",
    "atexit": "import atexit; atexit.register(run, 4)",
    "array in a builtin module": """
import builtins
run(4); builtins.kept = runtime.empty((100_000,), np.dtype('f8')); builtins.block = block
""",
    "jitla gone": """
kept = runtime.empty((100_000,), np.dtype('f8')); run(4)
import gc
for name in [n for n in sys.modules if n.startswith(('jitla', 'tests'))]:
    sys.modules[name].__dict__.clear(); del sys.modules[name]
del launch, template, runtime, block, run
gc.collect(); del kept; gc.collect()
""",
}


@pytest.mark.process
@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("name", ENDINGS)
def test_the_interpreter_ends(name: str) -> None:
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
import numpy as np
from tests.runtime.kernels import launch, template
from jitla import runtime
runtime.set_threads(3)
block = template("slow", 40, 1, "as")
def run(n):
    for _ in range(n): launch(block, np.zeros(1, np.int64), np.int64(1000))
{ENDINGS[name]}
"""
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], timeout=60,
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# `launch`: operands, scratch, big blocks, refusals, the GIL.


def axpi(n: int, grain: int) -> bytes:
    return template("axpi", n, grain, "asa")


@pytest.mark.parametrize("scalar", [2.5, np.float64(2.5)])
@pytest.mark.parametrize("grain", [1, 7, 999, 1000, 5000])
def test_operands_reach_the_kernel(grain: int, scalar: float) -> None:
    x, out = np.linspace(-1, 1, 1000), np.zeros(1000)
    assert launch(axpi(1000, grain), x, scalar, out) == 0
    assert (out == x * 2.5 + np.arange(1000)).all()


def test_no_units_runs_only_the_last_step() -> None:
    out = np.full(3, 7.0)
    launch(axpi(0, 1), out, 1.0, out)
    assert (out == 7.0).all()


@pytest.mark.parametrize("units", [1, 300, 512, 513, 100_000])
def test_chunks_are_the_same_whoever_runs_them_and_scratch_holds_them(units: int) -> None:
    out = np.zeros(units, np.int64)
    launch(template("mark", units, 7, "a", last="mark_last", scratch=8 * units), out)
    want = np.full(units, 7)
    want[units // 7 * 7:] = units % 7
    assert (out == want).all()


def test_more_chunks_than_the_word_can_count_widen_the_grain() -> None:
    units = (1 << 20) + 5
    out = np.zeros(units, np.int64)
    launch(template("mark", units, 1, "a", last="mark_last", scratch=8 * units), out)
    assert set(np.unique(out[:-1])) == {2}


@pytest.mark.parametrize("words", [0, 100, 486, 487, 5000])
def test_blocks_of_any_size(words: int) -> None:
    out = np.zeros(10)
    launch(template("axpi", 10, 3, "asa", geometry=(5,) * words), np.ones(10), 1.0, out)
    assert (out == 1.0 + np.arange(10)).all()


def test_none_is_not_leaked_or_lost() -> None:
    out, block = np.zeros(4), template("nothing", 4, 4, "a")
    before = sys.getrefcount(None), sys.getrefcount(out), sys.getrefcount(block)
    for _ in range(10_000):
        launch(block, out)
    assert abs(sys.getrefcount(None) - before[0]) < 1000
    assert (sys.getrefcount(out), sys.getrefcount(block)) == before[1:]


class Sub(np.ndarray):
    """A subclass, whose memory may mean something else."""


@pytest.mark.parametrize("operands", [
    (), (np.ones(3),), (np.ones(3), 1.0), (np.ones(3), 1.0, np.ones(3), np.ones(3)),
    (1.0, 1.0, np.ones(3)), ([1.0], 1.0, np.ones(3)), (None, 1.0, np.ones(3)),
    (np.ones(3), np.ones(3), np.ones(3)), (np.ones(3), object(), np.ones(3)),
    (np.ones(3), None, np.ones(3)), (np.ones(3).view(Sub), 1.0, np.ones(3)),
    (b"x" * 100, 1.0, np.ones(3)),
])
def test_wrong_operands_are_refused(operands: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        launch(axpi(3, 3), *operands)


@pytest.mark.parametrize("block", [
    None, 5, "text", bytearray(200), b"", b"short", bytes(63), bytes(64), bytes(200),
    axpi(3, 3)[:-8], axpi(3, 3) + bytes(8), memoryview(axpi(3, 3)),
    struct.pack("8Q", addresses["nothing"], 8, 1, 1, 0, 0, 0, 5),
    struct.pack("8Q", addresses["nothing"], 8, 1, 1, 0, 0, 0, 2**32 - 1),
    struct.pack("8Q", addresses["nothing"], 2**61 + 8, 1, 1, 0, 0, 0, 0),
], ids=lambda block: type(block).__name__)
def test_wrong_templates_are_refused(block: object) -> None:
    with pytest.raises(TypeError):
        launch(block, np.ones(3), 1.0, np.ones(3))
    with pytest.raises(TypeError):
        launch()


def test_impossible_scratch_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        launch(template("nothing", 1, 1, "a", scratch=1 << 60), np.ones(3))


@pytest.mark.timing
@pytest.mark.parametrize("microseconds", [0, 1, 99, 100, 5000])
def test_an_estimate_in_the_block_changes_nothing_but_who_works(microseconds: int) -> None:
    block = template("slow", 50, 1, "as", flags=microseconds << 33)
    for pause in (0, 0, 0.001, 0.001, 0):
        time.sleep(pause)
        out = np.zeros(1, np.int64)
        launch(block, out, np.int64(10))
        assert out[0] == 50


def test_no_keywords() -> None:
    with pytest.raises(TypeError):
        launch(template=axpi(3, 3))  # type: ignore[call-arg]


@pytest.mark.threads
@pytest.mark.timing
@pytest.mark.parametrize("flags", [0, RELEASE_GIL])
def test_python_runs_meanwhile_only_if_the_gil_is_released(flags: int) -> None:
    out, turns = np.zeros(1, np.int64), np.int64(20_000_000)
    steps, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            steps[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        while not steps[0]:
            time.sleep(0.001)
        ran = False
        for _ in range(10):
            block, before = template("slow", 1, 1, "as", flags=flags), steps[0]
            launch(block, out, turns)
            many = steps[0] - before > 20
            if ran := many is (flags != 0):
                break
    finally:
        stop.set()
        thread.join()
    assert ran
