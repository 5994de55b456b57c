"""One measurement of the demo, in a separate process so that its peak memory can be measured."""

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
MAX_SETTLE_CALLS = 100
SEARCH_PAIRS = 30


def main(algorithm: str, mode: str) -> int:
    """Measure `algorithm` in `mode` "numpy" or "jitla" on the data from standard input."""
    X, y = receive(sys.stdin.buffer)
    fit, search = ALGORITHMS[algorithm]
    if mode == "numpy":
        report = measure_fit(fit, X, y)
        report["intermediates"] = count_intermediates(search, X, y)
    else:
        fast = jitla.jit(fit)
        report = measure_fit(fast, X, y)
        wait_for_compilation(fast, X, y)
        report |= compare_fits(fit, fast, X, y)
        report |= measure_search(search, X, y, np.array(report["w"]))
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


def send(stream: IO[bytes], X: Array, y: Array) -> None:
    """Write matrix and labels in the format of `receive`."""
    stream.write(json.dumps(X.shape).encode() + b"\n")
    for array in (X, y):
        stream.write(array.data.cast("B"))


def receive(stream: BinaryIO) -> tuple[Array, Array]:
    """Read matrix and labels into new arrays, without another copy."""
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
    """Return the result, the seconds and the memory of the first call."""
    before = resident_bytes()
    seconds, result = time_call(fit, X, y)
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


def wait_for_compilation(fast: Any, X: Array, y: Array) -> None:
    """Call the function until background compilation has finished."""
    for _ in range(MAX_SETTLE_CALLS):
        if not fast.stats().waiting:
            break
        fast(X, y)


def compare_fits(fit: Fitter, fast: Fitter, X: Array, y: Array) -> dict[str, Any]:
    """Return seconds and ratio of the whole fit, plain and decorated alternately."""
    pairs = [(time_call(fit, X, y)[0], time_call(fast, X, y)[0]) for _ in range(FIT_PAIRS)]
    return {
        "fit_numpy": median(plain for plain, _ in pairs),
        "fit_jitla": median(jitted for _, jitted in pairs),
        "fit_ratio": median(jitted / plain for plain, jitted in pairs),
    }


def measure_search(search: Search, X: Array, y: Array, w: Array) -> dict[str, Any]:
    """Return seconds per evaluation of the inner loop, plain and decorated alternately, and its plan."""
    fast: Any = jitla.jit(search, compile="sync")
    arguments = (np.zeros_like(y), X @ w, y, 0.0, float((w * w).sum()))
    evaluations = fast(*arguments)[1]
    pairs = [(time_call(search, *arguments)[0], time_call(fast, *arguments)[0])
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


def time_call(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return the seconds and the result of one call."""
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


class CountingArray(np.ndarray[Any, Any]):
    """An array that counts the arrays NumPy's operators allocate."""

    allocations = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [i.view(np.ndarray) if isinstance(i, CountingArray) else i for i in inputs]
        result = getattr(ufunc, method)(*plain, **options)
        if not isinstance(result, np.ndarray):
            return result
        CountingArray.allocations += 1
        return result.view(CountingArray)


def count_intermediates(search: Search, X: Array, y: Array) -> float:
    """Return the number of arrays that NumPy allocates per evaluation of the inner loop."""
    vectors = [v[:1000].view(CountingArray) for v in (np.zeros_like(y), X @ np.ones(X.shape[1]), y)]
    CountingArray.allocations = 0
    evaluations = search(vectors[0], vectors[1], vectors[2], 0.0, 1.0)[1]
    return CountingArray.allocations / evaluations


def peak_bytes() -> int:
    """Return the peak resident set size.

    Linux reports it in /proc for this program alone; `ru_maxrss` would include the parent that forked it.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    return _status_bytes("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident_bytes() -> int:
    """Return the current resident set size; the peak where the system does not report it."""
    return _status_bytes("VmRSS") or peak_bytes()


def _status_bytes(field: str) -> int:
    """Return a field of /proc/self/status in bytes; 0 if there is none."""
    path = Path("/proc/self/status")
    if not path.exists():
        return 0
    for line in path.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0
