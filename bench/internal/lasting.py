"""What lasts: memory over many shapes, and what was compiled, in processes that come later.

Shapes: a function is called on a hundred thousand different shapes, in an order in which small and large
ones are mixed; the memory of the process is read on the way, and how much of it is arrays that were freed,
which are kept for reuse. Later: processes that begin with what an earlier one left on disk, and the workers
of joblib, if that is installed: their first calls beside those of the first process, and beside calls when
all is there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import jitla
from bench.algorithms import DENSE, l2svm, logistic
from jitla.runtime import statistics

Array = np.ndarray
ROOT = Path(__file__).parents[2]
ROWS = 20_000
ALLOWED = 0.12  # seconds that the first call of a later process may take more than calls when all is there
TALL = 397  # different numbers of rows
CALLS = 15  # of which the median is taken as what calls take when all is there
LATER = 3  # processes, of which the median is taken


def both(x: Array, y: Array) -> tuple[Any, Array]:
    z = x * 2.0 + y
    return np.exp(-z * z).sum(), z.sum(axis=0) / x.shape[0]


def resident() -> float:
    """Return the megabytes of memory that this process has now."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def shapes(count: int) -> list[dict[str, float]]:
    """Call a function on so many different shapes."""
    run = jitla.jit(both, compile="sync")
    rng = np.random.default_rng(0)
    base = rng.random((TALL + 2, count // TALL + 3))
    columns = 2 + rng.permutation(count // TALL + 1)  # later shapes are no larger than earlier ones
    report = []
    print(f"{'shapes':>10}{'MB':>9}{'held MB':>9}{'seconds':>10}")
    begun = time.perf_counter()
    for k in range(count):
        x = base[:2 + k % TALL, :columns[k // TALL]]
        found = run(x, x)
        if (k + 1) % max(count // 10, 1) == 0:
            assert np.allclose(found[1], both(x, x)[1])
            report.append({"shapes": k + 1, "mb": resident(), "held_mb": statistics()["held"] / 2**20,
                           "seconds": time.perf_counter() - begun})
            told = "".join(f"{report[-1][name]:9.1f}" for name in ("mb", "held_mb", "seconds"))
            print(f"{k + 1:10,}{told}", flush=True)
    return report


def cases() -> dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]]:
    """Return the demo's algorithms and those of the page of algorithms, and what makes their arguments."""
    def svm_data() -> tuple[Any, ...]:
        rng = np.random.default_rng(5)
        X = rng.normal(size=(ROWS, 40))
        return X, np.where(X[:, 0] + 0.5 * rng.normal(size=ROWS) > 0, 1.0, -1.0)

    found: dict[str, Any] = {"L2SVM": (l2svm, svm_data), "logistic": (logistic, svm_data)}
    for script in DENSE:
        found[script.name] = script.plain, lambda s=script: s.make(ROWS, np.float64, np.random.default_rng(7))
    return found


def _called(function: Callable[..., Any], arguments: tuple[Any, ...], calls: int) -> list[float]:
    """Return the seconds of calls, one after the other."""
    taken = []
    for _ in range(calls):
        begun = time.perf_counter()
        function(*arguments)
        taken.append(time.perf_counter() - begun)
    return taken


def timed(name: str, compile: str, calls: int) -> dict[str, Any]:
    """Time calls of one case in this process: plain, the first, all."""
    function, make = cases()[name]
    arguments = make()
    plain = _called(function, arguments, 3)
    taken = _called(jitla.jit(function, compile=compile), arguments, calls)
    return {"plain": min(plain), "first": taken[0], "late": float(np.median(taken[-CALLS:]))}


def later(compile: str, only: str) -> list[dict[str, Any]]:
    """Time first calls in processes, the later of which find machine code on disk."""
    report = []
    print(f"{compile + ', ms':30}{'NumPy':>9}{'first':>9}{'later':>9}{'steady':>9}{'more':>9}")
    for name in (n for n in cases() if only in n):
        with tempfile.TemporaryDirectory() as directory:
            def run(calls: int, how: str = compile, name: str = name, directory: str = directory) -> Any:
                done = subprocess.run(
                    [sys.executable, "-m", "bench.internal.lasting", "--timed", name, how, str(calls)],
                    cwd=ROOT, env=os.environ | {"JITLA_CACHE_DIR": directory},
                    capture_output=True, text=True, check=True)
                return json.loads(done.stdout.splitlines()[-1])

            first = run(1)
            steady = run(2 * CALLS, "sync")
            seconds = sorted(run(1)["first"] for _ in range(LATER))[LATER // 2]
        row = {"name": name, "plain_s": first["plain"], "first_s": first["first"], "later_s": seconds,
               "steady_s": min(steady["late"], first["plain"]),
               "more_s": seconds - min(steady["late"], first["plain"])}
        report.append(row)
        mark = "  over" if row["more_s"] > ALLOWED else ""
        print(f"{name:30}" + "".join(f"{1e3 * row[k]:9.1f}" for k in (
            "plain_s", "first_s", "later_s", "steady_s", "more_s")) + mark, flush=True)
    return report


def _in_worker(name: str, compile: str) -> tuple[int, dict[str, Any], dict[str, int]]:
    """Time calls in a worker of joblib; say what was planned and compiled."""
    function, make = cases()[name]
    arguments = make()
    fast = jitla.jit(function, compile=compile)
    taken = _called(fast, arguments, CALLS)
    made = jitla.recompilations(fast)
    counts = {"plans": sum(r.plans for r in made), "compiled": sum(r.compiled for r in made),
              "found": sum(r.reused for r in made)}
    return os.getpid(), {"first": taken[0], "late": float(np.median(taken))}, counts


def tasks(joblib: Any, name: str, compile: str) -> list[Any]:
    """Time calls in two workers."""
    asked = joblib.delayed(_in_worker)
    found: list[Any] = joblib.Parallel(n_jobs=2)(asked(name, compile) for _ in range(2))
    return found


def workers(compile: str, name: str = "L2SVM") -> list[dict[str, Any]]:
    """Time calls in two workers of joblib, which find what this process compiled."""
    if find_spec("joblib") is None:
        print("joblib is not installed")
        return []
    joblib, report = import_module("joblib"), []
    with tempfile.TemporaryDirectory() as directory, jitla.options(cache_dir=directory):
        _in_worker(name, "sync")
        before = os.environ.get("JITLA_CACHE_DIR")
        os.environ["JITLA_CACHE_DIR"] = directory
        try:
            for turn in range(2):
                for pid, took, counts in tasks(joblib, name, compile):
                    report.append({"turn": turn, "worker": pid, **took, **counts})
                    print(f"{name} in worker {pid}: first {1e3 * took['first']:.1f} ms, late "
                          f"{1e3 * took['late']:.1f} ms, {counts}", flush=True)
        finally:
            if before is None:
                del os.environ["JITLA_CACHE_DIR"]
            else:
                os.environ["JITLA_CACHE_DIR"] = before
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="shapes,later,workers")
    parser.add_argument("--shapes", type=int, default=100_000)
    parser.add_argument("--compile", default="auto")
    parser.add_argument("--only", default="", help="what names of algorithms contain")
    parser.add_argument("--timed", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.timed:
        name, compile, calls = given.timed
        print(json.dumps(timed(name, compile, int(calls))))
        return
    parts: dict[str, Callable[[], Any]] = {
        "shapes": lambda: shapes(given.shapes), "later": lambda: later(given.compile, given.only),
        "workers": lambda: workers(given.compile)}
    report = {part: parts[part]() for part in given.parts.split(",")}
    print(json.dumps({"bench": "lasting", **report}))


if __name__ == "__main__":
    main()
