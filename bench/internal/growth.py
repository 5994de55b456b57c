"""Is the time per element the same from 1e5 to 1e8 elements, and what is added to calls on ten of them?

Steps where arrays leave a cache are the machine's: from one size to the next the time per element may grow
by what the cost model predicts for it, and by `SLACK`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import jitla
from bench.internal.prediction import Case
from bench.measure import seconds

Array = np.ndarray
SLACK = 1.15
ALLOWED_US = 5.0
WIDTH = 100  # columns of matrices
SPAN = 0.02  # seconds at least that a size is measured in a round
BATCH = 200  # calls on ten elements in a row


class Curve(NamedTuple):
    """A function, and what makes its arguments for a number of elements."""

    name: str
    function: Callable[..., object]
    make: Callable[[int], list[Any]]


def vectors(count: int) -> Callable[[int], list[Array]]:
    """Make `count` vectors."""
    return lambda n: [np.random.default_rng(k).random(n) for k in range(count)]


def matrix(n: int) -> list[Array]:
    """Make a matrix of `WIDTH` columns."""
    return [np.random.default_rng(0).random((n // WIDTH, WIDTH))]


def weighted(n: int) -> list[Array]:
    """Make a matrix, a weight for every row and a vector."""
    return [*matrix(n), np.ones(n // WIDTH), np.ones(WIDTH)]


def grid(n: int) -> list[Array]:
    """Make a square."""
    side = int(n ** 0.5)
    return [np.random.default_rng(0).random((side, side))]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def jacobi(a: Array) -> Array:
    return 0.25 * (a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])


def heat(a: Array) -> None:
    a[1:-1, 1:-1] += 0.1 * (a[:-2, 1:-1] + a[2:, 1:-1] - 2.0 * a[1:-1, 1:-1])


CURVES = (
    Curve("x*y+x", lambda x, y: x * y + x, vectors(2)),
    Curve("sum(x*y)", lambda x, y: (x * y).sum(), vectors(2)),
    Curve("exp(-x*x)", lambda x: np.exp(-x * x), vectors(1)),
    Curve("sum(where(x>y,x,0))", lambda x, y: np.where(x > y, x, 0.0).sum(), vectors(2)),
    Curve("x+=0.5*y", lambda x, y: np.add(x, 0.5 * y, out=x), vectors(2)),
    Curve("softmax rows", softmax, matrix),
    Curve("row sums", lambda x: (x * x).sum(1), matrix),
    Curve("column sums", lambda x: (x * x).sum(0), matrix),
    Curve("standardise", lambda x: (x - x.mean(0)) / x.std(0), matrix),
    Curve("X.T@(w*(X@v))", lambda x, w, v: x.T @ (w * (x @ v)), weighted),
    Curve("argmin of rows", lambda x: x.argmin(1), matrix),
    Curve("cumsum of rows", lambda x: np.cumsum(x, axis=1), matrix),
    Curve("Jacobi step", jacobi, grid),
    Curve("heat in place", heat, grid),
)

SMALL: tuple[tuple[str, Callable[..., object], int], ...] = (
    ("x+y", lambda x, y: x + y, 2), ("x*y+x", lambda x, y: x * y + x, 2),
    ("exp(-x*x)", lambda x: np.exp(-x * x), 1), ("x.sum()", lambda x: x.sum(), 1),
    ("(x*y).sum()", lambda x, y: (x * y).sum(), 2), ("x@y", lambda x, y: x @ y, 2),
    ("x-x.mean()", lambda x: x - x.mean(), 1), ("x.std()", lambda x: x.std(), 1),
    ("where(x>y,x,y)", lambda x, y: np.where(x > y, x, y), 2), ("x[x>0.5]", lambda x: x[x > 0.5], 1),
    ("softmax", lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum(), 1),
    ("norm", lambda x: np.sqrt((x * x).sum()), 1), ("x[1:]-x[:-1]", lambda x: x[1:] - x[:-1], 1),
    ("argmin", lambda x, y: np.abs(x - y).argmin(), 2), ("cumsum", lambda x: np.cumsum(x) * 2.0, 1),
    ("x+=y", lambda x, y: np.add(x, y, out=x), 2), ("clip", lambda x: np.clip(x, 0.2, 0.8) * 2.0, 1),
    ("sort", lambda x: np.sort(x)[::-1] + 1.0, 1),
    ("concatenate", lambda x, y: np.concatenate([x, y * 2]), 2),
    ("outer", lambda x, y: (x[:, None] * y).sum(1), 2), ("float(x[0])", lambda x: float(x[0]) + 1.0, 1),
    ("any", lambda x: (x > 2.0).any(), 1), ("unchanged", lambda x: x, 1),
    ("polynomial", lambda x: ((x * 3.0 + 2.0) * x + 1.0) * x, 1),
)


def sizes(least: float, most: float) -> list[int]:
    """Sizes from `least` to `most`, half an order of magnitude apart."""
    count = int(round(2 * (np.log10(most) - np.log10(least)))) + 1
    return [int(round(n, -3)) for n in np.logspace(np.log10(least), np.log10(most), count)]


def once(case: Case) -> float:
    """Seconds of all blocks of `case`."""
    start = time.perf_counter()
    for run in case.runs:
        run()
    return time.perf_counter() - start


def growth(curve: Curve, given: argparse.Namespace, machine: Any) -> Iterator[dict[str, Any]]:
    """Times of `curve` at all sizes; `excess` is growth per element that nothing predicts.

    Sizes are measured in turn: the machine's slow phases last longer than a round.
    """
    counts = sizes(given.least, given.most)
    cases = [Case("growth", curve.name, curve.function, curve.make(n)) for n in counts]
    repeats = []
    for case in cases:
        case.prepare(machine)
        repeats.append(max(1, int(SPAN / max(once(case), 1e-9))))
    taken: list[list[float]] = [[] for _ in cases]
    for _ in range(given.rounds):
        for case, times, seconds_each in zip(cases, repeats, taken, strict=True):
            once(case)  # what another size has left in the caches is not this one's
            seconds_each += [once(case) for _ in range(times)]
    before: dict[str, Any] | None = None
    for n, case, seconds_each in zip(counts, cases, taken, strict=True):
        least, median, predicted = (
            t / n * 1e9 for t in (min(seconds_each), float(np.median(seconds_each)), case.predicted))
        found = {"curve": curve.name, "elements": n, "ns": least, "median_ns": median,
                 "predicted_ns": predicted, "excess": 1.0}
        if before is not None:
            step = max(predicted / before["predicted_ns"], 1.0)
            found["excess"] = least / before["ns"] / step
        before = found
        yield found


def small(rounds: int) -> Iterator[dict[str, Any]]:
    """Microseconds of calls on ten elements, decorated or not, in turn."""
    for name, function, count in SMALL:
        arguments = [np.random.default_rng(k).random(10) for k in range(count)]
        fast = jitla.jit(function)
        calls = [partial(f, *arguments) for f in (function, fast)]
        for call in calls * 20:
            call()
        # the processor's time: calls on ten elements do not share, and other programs only add to it
        taken = [[seconds(call, BATCH, time.thread_time) for call in calls] for _ in range(rounds)]
        plain, ours = (1e6 * min(t[k] for t in taken) for k in range(2))
        yield {"call": name, "numpy_us": plain, "jitla_us": ours, "added_us": ours - plain}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--least", type=float, default=1e5)
    parser.add_argument("--most", type=float, default=1e8, help="elements; three such arrays are alive")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="part of a curve's name")
    given = parser.parse_args()
    print(f"{'calls on ten elements':24} {'NumPy':>9} {'jitla':>9} {'added':>9}  microseconds")
    calls = []
    for call in small(5 * given.rounds):
        calls.append(call)
        mark = "  over" if call["added_us"] > ALLOWED_US else ""
        print(f"{call['call']:24} {call['numpy_us']:9.2f} {call['jitla_us']:9.2f} "
              f"{call['added_us']:9.2f}{mark}", flush=True)
    curves: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory, jitla.options(cache_dir=directory):
        machine = jitla.calibrate()
        heads = (f"{head:>9}" for head in ("ns each", "median", "predicted", "excess"))
        print(f"\n{'curve':24} {'elements':>11}", *heads)
        for curve in CURVES:
            for found in growth(curve, given, machine) if given.only in curve.name else ():
                curves.append(found)
                mark = "  over" if found["excess"] > SLACK else ""
                print(f"{curve.name:24} {found['elements']:11,} {found['ns']:9.3f} {found['median_ns']:9.3f} "
                      f"{found['predicted_ns']:9.3f} {found['excess']:9.2f}{mark}", flush=True)
    over = [c for c in curves if c["excess"] > SLACK], [c for c in calls if c["added_us"] > ALLOWED_US]
    print(f"\nout of bounds: {len(over[0])} of {len(curves)} sizes, {len(over[1])} of {len(calls)} calls")
    print(json.dumps({"bench": "growth", "curves": curves, "calls": calls}))


if __name__ == "__main__":
    main()
