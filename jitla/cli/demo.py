"""The demo: two classifiers on real flight data, with and without jitla, compared.

Each measurement runs in a separate process, so that its peak memory can be measured.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import IO, Any, BinaryIO

import numpy as np

import jitla
from jitla.cli.demo_algorithms import Array, Fit, hinge_search, l2svm, logistic, logistic_search
from jitla.cli.demo_data import Flights, MissingData, load

# --------------------------------------------------------------------------- measurement in the child


Search = Callable[[Array, Array, Array, float, float], tuple[float, int]]
Fitter = Callable[[Array, Array], Fit]
ALGORITHMS: dict[str, tuple[Fitter, Search]] = {
    "l2svm": (l2svm, hinge_search),
    "logistic": (logistic, logistic_search),
}
FIT_PAIRS = 3
MAX_SETTLE_CALLS = 100
SEARCH_PAIRS = 30


def measure_in_worker(algorithm: str, mode: str) -> int:
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


# --------------------------------------------------------------------------- the demo


TITLES = {"l2svm": "L2SVM", "logistic": "logistic regression"}
MAX_DIFFERENCE = 1e-9
Report = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Run the demo, or one of its measurements in a child process."""
    match arguments:
        case ["--worker", algorithm, mode]:
            return measure_in_worker(algorithm, mode)
        case []:
            return _run(None)
        case ["--rows", rows] if rows.isdigit():
            return _run(int(rows))
        case _:
            print("usage: python -m jitla demo [--rows N]", file=sys.stderr)
            return 2


def _run(rows: int | None) -> int:
    try:
        flights = _load(rows)
    except MissingData as missing:
        print(missing, file=sys.stderr)
        return 1
    late = float((flights.y > 0).mean())
    print(f"{flights.y.size:,} flights, {flights.X.shape[1]} features "
          f"({flights.X.nbytes / 1e6:.0f} MB), {late:.1%} late by more than 15 minutes\n")
    plain = {name: _measure(name, "numpy", flights) for name in TITLES}
    fast = {name: _measure(name, "jitla", flights) for name in TITLES}
    print(comparison_table(plain, fast, max(late, 1 - late)))
    print(inner_loop_text(fast["l2svm"]))
    worst = max(largest_difference(plain[name], fast[name]) for name in TITLES)
    if worst > MAX_DIFFERENCE:
        print(f"the results differ by {worst:.1e}, more than {MAX_DIFFERENCE:.0e}", file=sys.stderr)
        return 1
    return 0


def _load(rows: int | None) -> Flights:
    progress = Progress("reading the flights")
    flights = load(rows)
    progress.done()
    return flights


def _measure(algorithm: str, mode: str, flights: Flights) -> Report:
    """Run one measurement in a child process, which receives the data through a pipe."""
    progress = Progress(f"{TITLES[algorithm]}, {mode}")
    command = [sys.executable, "-m", "jitla", "demo", "--worker", algorithm, mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        output = _send_and_wait(process, flights, progress)
    progress.done()
    if process.returncode:
        raise SystemExit(f"the measurement {' '.join(command[3:])} failed")
    report: Report = json.loads(output)
    return report


def _send_and_wait(process: subprocess.Popen[bytes], flights: Flights, progress: Progress) -> bytes:
    """Send the data to the child process, wait, and return its output."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        send(process.stdin, flights.X, flights.y)
        process.stdin.close()
    process.stdin = None
    while True:
        try:
            return process.communicate(timeout=0.5)[0]
        except subprocess.TimeoutExpired:
            progress.tick()


class Progress:
    """One line on standard error: rewritten in place on a terminal, printed once elsewhere."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = time.perf_counter()
        self.live = sys.stderr.isatty()
        self.tick()

    def tick(self) -> None:
        """Show the elapsed seconds."""
        if self.live:
            seconds = time.perf_counter() - self.start
            print(f"\r{self.text} … {seconds:.0f} s", end="", file=sys.stderr, flush=True)

    def done(self) -> None:
        """Finish the line."""
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        else:
            seconds = time.perf_counter() - self.start
            print(f"{self.text}: {seconds:.0f} s", file=sys.stderr, flush=True)


def largest_difference(plain: Report, fast: Report) -> float:
    """Return the larger of the relative differences of the weights and of the objective."""
    w, v = np.array(plain["w"]), np.array(fast["w"])
    weights = float(np.abs(w - v).max() / np.abs(w).max())
    return max(weights, abs(1.0 - float(fast["objective"]) / float(plain["objective"])))


Row = tuple[str, Callable[[Report, Report], str]]
ROWS: tuple[Row, ...] = (
    ("accuracy, NumPy / jitla", lambda p, j: f"{p['accuracy']:.4f} / {j['accuracy']:.4f}"),
    ("objective", lambda p, j: f"{j['objective']:.6f}"),
    ("iterations, outer / inner", lambda p, j: f"{j['outer']} / {j['inner']}"),
    ("largest relative difference", lambda p, j: f"{largest_difference(p, j):.1e}"),
    ("whole fit: NumPy", lambda p, j: f"{j['fit_numpy']:.2f} s"),
    ("whole fit: jitla, first call", lambda p, j: f"{j['first']:.2f} s"),
    ("whole fit: jitla, steady", lambda p, j: f"{j['fit_jitla']:.2f} s"),
    ("  steady / NumPy", lambda p, j: f"{j['fit_ratio']:.2f}"),
    ("inner loop, one evaluation: NumPy", lambda p, j: f"{j['inner_numpy'] * 1e3:.2f} ms"),
    ("inner loop, one evaluation: jitla", lambda p, j: f"{j['inner_jitla'] * 1e3:.2f} ms"),
    ("  jitla / NumPy", lambda p, j: f"{j['inner_ratio']:.2f}"),
    ("vectors written per evaluation: NumPy", lambda p, j: f"{p['intermediates']:.0f}"),
    ("vectors written per evaluation: jitla", lambda p, j: f"{j['intermediates']:.0f}"),
    ("peak memory: NumPy", lambda p, j: f"{p['peak'] / 1e6:.0f} MB"),
    ("peak memory: jitla", lambda p, j: f"{j['peak'] / 1e6:.0f} MB"),
    ("  above the loaded data: NumPy", lambda p, j: f"{p['working'] / 1e6:.0f} MB"),
    ("  above the loaded data: jitla", lambda p, j: f"{j['working'] / 1e6:.0f} MB"),
)


def comparison_table(plain: dict[str, Report], fast: dict[str, Report], base: float) -> str:
    """Return the comparison as text, one column per algorithm."""
    lines = [f"{'':40}" + "".join(f"{TITLES[name]:>22}" for name in TITLES)]
    lines += [
        f"{label:40}" + "".join(f"{cell(plain[name], fast[name]):>22}" for name in TITLES)
        for label, cell in ROWS
    ]
    return "\n".join([*lines, f"(accuracy of always predicting the more frequent class: {base:.4f})\n"])


def inner_loop_text(report: Report) -> str:
    """Return the counters and the explanation of L2SVM's inner loop."""
    return f"L2SVM's inner loop\n{report['stats']}\n\n{report['explain']}"
