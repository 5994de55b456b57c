"""Rows AE and V9: the environment of the process, options, pickled functions."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

import jitla

# What surrounds the process: its variables, its options, the rounding and flushing of its processor.

ROOT = Path(__file__).parents[2]
# Both sides run in the child, so that both see its environment; it prints what they differ in.
CHILD = """
import ctypes, os, sys
sys.path.insert(0, ROOT)
import numpy as np
import jitla

def body(x, y):
    '''A docstring.'''
    z = x * 0.1 + y / 3.0 - 1e-310
    assert z.shape == x.shape
    w = np.where(z > 0, z, x * 1e-300 * 1e-10)
    w[1:] += x[:-1]
    return z, w, (w * w).sum(), np.exp(-np.abs(z)) * 0 + z, np.sqrt(np.abs(z)), x.sum(axis=0)

def fenv(change):
    libm = ctypes.CDLL("libm.so.6")
    state = (ctypes.c_uint * 8)()
    libm.fegetenv(state)
    state[7] = change(state[7])
    libm.fesetenv(state)

FIRST
jitla.configure(num_threads=THREADS)
jitted = jitla.jit(body)
for size in (3, 1000, 90_001):
    for call in range(3):
        jitted(np.arange(float(size)), np.ones(size))
def compare(what=""):
    rng = np.random.default_rng(1)
    for shape in (3,), (1000,), (90_001,), (40, 30):
        x, y = rng.normal(size=shape), rng.normal(size=shape)
        x.ravel()[::7] *= 1e-308
        for call in range(3):
            for a, b in zip(body(x, y), jitted(x, y)):
                if np.asarray(a).tobytes() != np.asarray(b).tobytes():
                    print("differs", what, shape, call, np.abs(np.asarray(a) - np.asarray(b)).max())

BEFORE
compare()
stats = jitted.stats()
if COMPILED and (not stats["kernels"] or stats["failures"]):
    print("not compiled:", stats)
AFTER
print("done")
"""


def run(
    before: str = "", after: str = "", first: str = "", options: tuple[str, ...] = (), threads: int = 2,
    compiled: bool = True, **variables: str,
) -> None:
    """Run the comparison in a process of its own; fail with what it says."""
    source = CHILD.replace("FIRST", first).replace("BEFORE", before).replace("AFTER", after)
    source = source.replace("THREADS", str(threads)).replace("COMPILED", str(compiled))
    source = source.replace("ROOT", repr(str(ROOT)))
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"child-{os.getpid()}.py"
    path.write_text(source, encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, *options, str(path)], capture_output=True, text=True, timeout=120, cwd=ROOT,
            env={**os.environ, **variables},
        )
    finally:
        path.unlink()
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stdout + done.stderr


@pytest.mark.process
@pytest.mark.parametrize("variables", [
    {"PYTHONHASHSEED": "0", "LC_ALL": "de_DE.UTF-8", "PYTHONMALLOC": "debug", "TZ": "Asia/Tokyo"},
    {"PYTHONHASHSEED": "4242", "LC_ALL": "C", "MALLOC_PERTURB_": "165", "HOME": "/nonexistent",
     "PYTHONDONTWRITEBYTECODE": "1"},
    {"OMP_NUM_THREADS": "1"}, {"OPENBLAS_NUM_THREADS": "1"}, {"NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3"},
], ids=" ".join)
def test_ae1_variables(variables: dict[str, str]) -> None:
    run(**variables)


@pytest.mark.process
@pytest.mark.parametrize("options", ["-O -Xdev", "-OO -Ximporttime -I -bb", "-Werror"])
def test_ae1_options_of_the_interpreter(options: str) -> None:
    run(options=tuple(options.split()), compiled=options != "-Werror")  # where warnings raise, NumPy runs


# Rounding upward, downward, to zero; results that are denormal, and operands, taken for zero.
@pytest.mark.process
@pytest.mark.parametrize("threads", [1, 2])
def test_ae1_rounding_and_flushing_of_the_caller(threads: int) -> None:
    run("""
for extra in (0x4000, 0x2000, 0x6000, 0x8000, 0x0040, 0x8040):
    fenv(lambda bits: bits | extra)
    compare(hex(extra))
    fenv(lambda bits: bits & ~extra)
""", threads=threads)


@pytest.mark.process
def test_ae1_the_state_of_the_processor_stays() -> None:
    run("seen = []; fenv(lambda bits: seen.append(bits) or bits)",
        "fenv(lambda bits: seen.append(bits) or bits); assert len({bits & 0xFFC0 for bits in seen}) == 1")


@pytest.mark.process
def test_ae1_limits_of_threads_and_memory() -> None:
    run(first="import resource; resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))")
    run(first="os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})")
    run("os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})")


@pytest.mark.process
def test_ad7_nothing_is_written_to_disk() -> None:
    """What is compiled in one process is never read by another one."""
    run(first="""
written = []
def hook(event, given):
    if event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        written.append(given[0])
    elif event in ("os.mkdir", "os.rename", "tempfile.mkstemp", "shutil.copyfile"):
        written.append(given)
sys.addaudithook(hook)
""", after="""
bytecode = "__pycache__", str(sys.pycache_prefix)
assert not [w for w in written if not any(b in str(w) for b in (*bytecode, "/dev/null"))], written
""")


def test_ab2_more_cells_than_32_bits_count() -> None:
    ones = np.broadcast_to(np.int8(1), (2**31 + 5,))

    def counted(x):
        return x.sum(), (x[2**31:] * 3).sum(), x[-1] + x[2**31]

    fast = jitla.jit(counted)
    assert fast(ones) == counted(ones) == (2**31 + 5, 15, 2)
    assert not fast.stats()["failures"]


@pytest.mark.process
def test_ab9_compilations_leave_nothing_behind() -> None:
    """Descriptors, mappings and threads do not grow with the number of compiled programs."""
    run(after="""
def held():
    import threading
    return (len(os.listdir("/proc/self/fd")), threading.active_count(),
            len(os.listdir("/proc/self/task")), sum(1 for _ in open("/proc/self/maps")))
import gc, linecache
def compile_one(k):
    source = f"def f(x):\\n    return (x * {k}.5 + {k}) ** 2 - x // {k + 1}\\n"
    names = {"np": np}
    linecache.cache[f"<{k}>"] = len(source), None, source.splitlines(True), f"<{k}>"
    exec(compile(source, f"<{k}>", "exec"), names)
    made = jitla.jit(names["f"])
    made(np.ones(2000 + k)), made(np.ones(2000 + k))
    assert made.stats()["kernels"]
    made.cache_clear()
    del linecache.cache[f"<{k}>"]
for k in range(30):
    compile_one(k)
gc.collect()
first = held()
for k in range(30, 130):
    compile_one(k)
gc.collect()
last = held()
assert last[:3] <= first[:3] and last[3] <= first[3] + 60, (first, last)
""")


# Row V9 of the semantics sheet: decorated functions that travel by pickle and cloudpickle.


@jitla.jit
def doubled(x):
    return x * 2 + 1


class Model:
    def __init__(self, w):
        self.w = w

    @jitla.jit
    def run(self, x):
        return x * self.w


def test_v9_by_reference() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert pickle.loads(pickle.dumps(Model(3.0).run))(np.ones(2)).tolist() == [3.0, 3.0]


@pytest.mark.process
def test_v9_by_value_into_another_process() -> None:
    k = 5.0

    @jitla.jit
    def scaled(x):
        return x * k + x.sum()

    scaled(np.ones(3))  # what it has learnt stays here
    text = cloudpickle.dumps((scaled, Model))
    code = (
        "import sys, pickle, numpy as np\n"
        "f, Model = pickle.loads(sys.stdin.buffer.read())\n"
        "print(f(np.ones(3)).tolist(), Model(2.0).run(np.ones(2)).tolist(), f.stats()['calls'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, cwd=ROOT, check=False, timeout=120)
    assert done.stdout.decode().strip() == "[8.0, 8.0, 8.0] [2.0, 2.0] 1", done.stderr.decode()[-500:]


def _child(connection, x) -> None:
    connection.send((doubled(x), Model(2.0).run(x)))
    connection.close()


@pytest.mark.process
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_v9_children_of_every_kind(method: str) -> None:
    doubled(np.ones(100_000))  # kernels and threads are there when the child begins
    context = multiprocessing.get_context(method)
    mine, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs, np.arange(100_000.0)))
    child.start()
    assert mine.poll(60)
    first, second = mine.recv()
    child.join(30)
    assert child.exitcode == 0
    assert (first == np.arange(100_000) * 2 + 1).all() and (second == np.arange(100_000) * 2).all()


@jitla.jit
def forks(x, read, write):
    y = x * 2 + 1
    child = os.fork()
    if not child:
        x += 5  # the child's own
        os.write(write, np.array([(y + x).sum()]).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    return (y + x).sum(), np.frombuffer(os.read(read, 8))[0]


@pytest.mark.process
def test_a_fork_between_operations() -> None:
    x = np.arange(50_000.0)
    found = forks(x, *os.pipe()), forks(x, *os.pipe())
    assert found[0] == found[1] == forks.__wrapped__(x, *os.pipe())
