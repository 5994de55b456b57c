"""The demo: two classifiers on real flight data, with and without jitla, compared."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from jitla.cli import demo_worker
from jitla.cli.demo_data import (
    Flights,
    MissingData,
    load,
)

TITLES = {"l2svm": "L2SVM", "logistic": "logistic regression"}
MAX_DIFFERENCE = 1e-9
Report = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Run the demo, or one of its measurements in a child process."""
    match arguments:
        case ["--worker", algorithm, mode]:
            return demo_worker.main(algorithm, mode)
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
        demo_worker.send(process.stdin, flights.X, flights.y)
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
