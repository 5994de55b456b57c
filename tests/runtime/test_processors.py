"""How many threads there are: affinity, quotas of control groups, what OpenMP is told, what jitla is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jitla.config import openmp_threads
from jitla.runtime.thread_pool import (
    memory,
    processors,
)

ROOT = Path(__file__).parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="one thread elsewhere")


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def system(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """Files of a system whose process is in the groups `cgroup`."""
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


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


def test_affinity_and_quota_both_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = system(tmp_path, "0::/\n", {"sys/fs/cgroup/cpu.max": "500000 100000"})
    assert processors(root) == 5
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert processors(root) == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors(root) == 1


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


@linux
def test_affinity_of_the_process(child: Numbers) -> None:
    assert child("os.sched_setaffinity(0, {min(first)})") == [1, 1, 0]


@linux
@pytest.mark.parametrize(("variables", "wanted"), [
    ({"OMP_NUM_THREADS": "1"}, [1, 1, 0]),  # as joblib's workers are told
    ({"JITLA_NUM_THREADS": "1"}, [-1, -1, 0]),
    ({"JITLA_NUM_THREADS": "3", "OMP_NUM_THREADS": "1"}, [1, 3, 1]),  # jitla's own counts
    ({"JITLA_NUM_THREADS": "0", "OMP_NUM_THREADS": "1"}, [1, 1, 0]),
    ({"OMP_NUM_THREADS": "1000"}, [-1, -1, -1]),  # no more than there are processors
])
def test_variables(child: Numbers, variables: dict[str, str], wanted: list[int]) -> None:
    usual = child()
    assert child(**variables) == [u if w < 0 else w for w, u in zip(wanted, usual, strict=True)]
