"""One measurement of the demo in a process of its own, so that its peak memory is its own."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import IO, Any, BinaryIO

import numpy as np

import jitla
from jitla.cli.demo_algorithms import (
    Array,
    Fit,
    hinge_search,
    l2svm,
    logistic,
    logistic_search,
)

Search = Callable[[Array, Array, Array, float, float], tuple[float, int]]
Fitter = Callable[[Array, Array], Fit]
ALGORITHMS: dict[str, tuple[Fitter, Search]] = {
    "l2svm": (l2svm, hinge_search),
    "logistic": (logistic, logistic_search),
}
FIT_PAIRS = 3
MOST_CALLS = 100  # until programs are there
SEARCH_PAIRS = 30


def main(algorithm: str, mode: str) -> int:
    """Measure `algorithm` as `mode`, "numpy" or "jitla", on the data that comes in."""
    X, y = receive(sys.stdin.buffer)
    fit, search = ALGORITHMS[algorithm]
    if mode == "numpy":
        report = measure_fit(fit, X, y)
        report["intermediates"] = count_intermediates(search, X, y)
    else:
        fast = jitla.jit(fit)
        report = measure_fit(fast, X, y)
        settle(fast, X, y)
        report |= compare_fits(fit, fast, X, y)
        report |= measure_search(search, X, y, np.array(report["w"]))
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


def send(stream: IO[bytes], X: Array, y: Array) -> None:
    """Write what `receive` reads."""
    stream.write(json.dumps(X.shape).encode() + b"\n")
    for array in (X, y):
        stream.write(array.data.cast("B"))


def receive(stream: BinaryIO) -> tuple[Array, Array]:
    """Read matrix and label into fresh arrays, without a second copy."""
    rows, columns = json.loads(stream.readline())
    X, y = np.empty((rows, columns)), np.empty(rows)
    for array in (X, y):
        view = array.data.cast("B")
        done = 0
        while done < view.nbytes:
            count = stream.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise EOFError("the data ended early")
            done += count
    return X, y


def measure_fit(fit: Fitter, X: Array, y: Array) -> dict[str, Any]:
    """The first call: its result, its seconds, its memory."""
    before = resident_bytes()
    seconds, result = timed(fit, X, y)
    return {
        "w": result.w.tolist(),
        "objective": result.objective,
        "outer": result.outer,
        "inner": result.inner,
        "accuracy": float(((X @ result.w > 0) == (y > 0)).mean()),
        "first": seconds,
        "peak": peak_bytes(),
        "working": peak_bytes() - before,
    }


def settle(fast: Any, X: Array, y: Array) -> None:
    """Call until the programs that are compiled behind the calls are there."""
    for _ in range(MOST_CALLS):
        if not fast.stats().waiting:
            break
        fast(X, y)


def compare_fits(fit: Fitter, fast: Fitter, X: Array, y: Array) -> dict[str, Any]:
    """The whole fit, plain and decorated in turn: seconds and ratio."""
    pairs = [(timed(fit, X, y)[0], timed(fast, X, y)[0]) for _ in range(FIT_PAIRS)]
    return {
        "fit_numpy": median(plain for plain, _ in pairs),
        "fit_jitla": median(jitted for _, jitted in pairs),
        "fit_ratio": median(jitted / plain for plain, jitted in pairs),
    }


def measure_search(search: Search, X: Array, y: Array, w: Array) -> dict[str, Any]:
    """The inner loop alone, plain and decorated in turn: seconds per evaluation, plan."""
    fast: Any = jitla.jit(search, compile="sync")
    arguments = (np.zeros_like(y), X @ w, y, 0.0, float((w * w).sum()))
    evaluations = fast(*arguments)[1]
    pairs = [(timed(search, *arguments)[0], timed(fast, *arguments)[0])
             for _ in range(SEARCH_PAIRS)]
    stats = fast.stats()
    return {
        "inner_numpy": median(plain for plain, _ in pairs) / evaluations,
        "inner_jitla": median(jitted for _, jitted in pairs) / evaluations,
        "inner_ratio": median(jitted / plain for plain, jitted in pairs),
        "intermediates": stats.materialised / (evaluations * (SEARCH_PAIRS + 1)),
        "stats": str(stats),
        "explain": str(jitla.explain(fast)),
    }


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Seconds of one call, and what it returned."""
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


class Counting(np.ndarray[Any, Any]):
    """An array that counts the arrays NumPy's operators allocate."""

    made = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [i.view(np.ndarray) if isinstance(i, Counting) else i for i in inputs]
        result = getattr(ufunc, method)(*plain, **options)
        if not isinstance(result, np.ndarray):
            return result
        Counting.made += 1
        return result.view(Counting)


def count_intermediates(search: Search, X: Array, y: Array) -> float:
    """Arrays that NumPy allocates per evaluation of the inner loop."""
    vectors = [v[:1000].view(Counting) for v in (np.zeros_like(y), X @ np.ones(X.shape[1]), y)]
    Counting.made = 0
    evaluations = search(vectors[0], vectors[1], vectors[2], 0.0, 1.0)[1]
    return Counting.made / evaluations


def peak_bytes() -> int:
    """Largest resident size so far.

    Linux tells it of this program alone; `ru_maxrss` would include the parent that forked it.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident_bytes() -> int:
    """Resident size now; the peak where the system does not say."""
    return _status("VmRSS") or peak_bytes()


def _status(field: str) -> int:
    path = Path("/proc/self/status")
    if not path.exists():
        return 0
    for line in path.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0
