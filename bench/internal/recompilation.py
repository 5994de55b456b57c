"""What changing data costs: matrices that grow, ragged batches, sparsity that drifts, first calls.

Growing: linear regression that takes in one feature after the other. Batches: gradient descent whose last
batch is ragged. Drift: a matrix whose nonzeros become more from phase to phase, beside the best of two fixed
ways. First: the first call of functions, in a process that has run jitla, and until when they are as fast
as later.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import scipy.sparse as sp

import jitla
from bench.algorithms import l2svm, logistic
from bench.algorithms.sparse import logistic_regression, nmf, pagerank, svm
from bench.measure import settle
from jitla.tracing import skipping_pays

Array = np.ndarray
WARM = 2  # sizes that count as warm-up


def step(X: Array, y: Array, ridge: float) -> float:
    """Least squares on the features so far; Akaike's criterion."""
    n, k = X.shape
    A = X.T @ X + ridge * np.eye(k)
    w = np.linalg.solve(A, X.T @ y)
    rest = y - X @ w
    scaled = (X - X.mean(0)) * w
    return float(n * np.log((rest * rest).sum() / n) + 2.0 * k + 1e-12 * (scaled * scaled).sum())


def descend(X: Array, y: Array, w: Array, rate: float) -> Array:
    """One step of gradient descent on a batch."""
    p = 1.0 / (1.0 + np.exp(-(X @ w)))
    return w - rate * (X.T @ (p - y) / X.shape[0] + 1e-4 * w)


def stepwise(run: Callable[..., Any], rows: int, columns: int) -> list[float]:
    """Take in one feature after the other."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(rows, columns)), rng.normal(size=rows)
    return [run(np.ascontiguousarray(X[:, :k]), y, 1e-3) for k in range(3, columns)]


def batches(run: Callable[..., Any], rows: int, columns: int) -> Array:
    """Go through the data in batches, the last of which is ragged, differently in every epoch."""
    rng = np.random.default_rng(4)
    w = np.zeros(columns)
    for epoch in range(12):
        n = rows - 37 * epoch
        X, y = rng.normal(size=(n, columns)), (rng.random(n) < 0.5) * 1.0
        for at in range(0, n, 512):
            w = run(X[at:at + 512], y[at:at + 512], w, 0.1)
    return w


CHANGING: tuple[tuple[str, Callable[..., Any], Callable[..., Any]], ...] = (
    ("stepwise regression", step, stepwise), ("ragged batches", descend, batches))


def changing(rows: int, columns: int) -> list[dict[str, Any]]:
    """Count what is planned and compiled after warm-up, and time it; then without recompilation."""
    report = []
    print(f"{'':22}{'misses':>8}{'plans':>7}{'compiled':>10}{'median ms':>11}{'most ms':>9}"
          f"{'total s':>9}{'frozen s':>10}{'NumPy s':>9}")
    for name, function, drive in CHANGING:
        fast = jitla.jit(function, compile="sync")
        drive(fast, rows, columns)
        records = jitla.recompilations(fast)
        guards = [r for r in records if r.guard.name != "new"]
        late = guards[WARM:]
        taken = [r.seconds * 1e3 for r in late]
        times = []
        frozen = jitla.jit(function, compile="sync")
        with jitla.recompilation(False):
            for run in (fast, frozen, function):
                start = time.perf_counter()
                drive(run, rows, columns)
                times.append(time.perf_counter() - start)
        found = {
            "name": name, "misses": len(late), "plans": sum(r.plans for r in late),
            "compiled": sum(r.compiled for r in late), "median_ms": float(np.median(taken)),
            "most_ms": max(taken), "seconds": times[0], "frozen_s": times[1], "numpy_s": times[2],
            "guards": sorted({r.guard.name for r in late})}
        report.append(found)
        print(f"{name:22}{found['misses']:8}{found['plans']:7}{found['compiled']:10}"
              f"{found['median_ms']:11.3f}{found['most_ms']:9.2f}{times[0]:9.3f}{times[1]:10.3f}{times[2]:9.3f}"
              f"  {', '.join(found['guards'])}", flush=True)
        assert sum(r.compiled for r in jitla.recompilations(frozen)) == 0
    return report


def first(rows: int, columns: int) -> list[dict[str, Any]]:
    """Time the first calls of functions, and how long it takes until calls are as fast as they get."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(rows, columns))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=rows) > 0, 1.0, -1.0)
    S = sp.random(rows, 10 * columns, density=0.02, format="csr", random_state=np.random.default_rng(6))
    G = sp.random(rows, rows, density=5.0 / rows, format="csr", random_state=np.random.default_rng(7))
    factors = rng.random((S.shape[0], 10)), rng.random((10, S.shape[1]))
    cases: tuple[tuple[str, Callable[..., Any], tuple[Any, ...]], ...] = (
        ("L2SVM", l2svm, (X, y)), ("logistic", logistic, (X, y)),
        ("sparse logistic", logistic_regression, (S, (y + 1) / 2, 20)), ("sparse SVM", svm, (S, y, 10)),
        ("PageRank", pagerank, (G, 30)), ("NMF", nmf, (S, *factors, 5)))
    report = []
    print(f"{'first calls':18}{'NumPy ms':>10}{'first ms':>10}{'allowed':>9}{'steady ms':>11}"
          f"{'full speed s':>14}")
    for number, (name, function, arguments) in enumerate(cases):
        settle()
        plain = min(_timed(function, arguments) for _ in range(3))
        fast = jitla.jit(function)
        begun = time.perf_counter()
        taken = [_timed(fast, arguments)]
        ends = [time.perf_counter() - begun]
        while ends[-1] < max(3.0, 20 * plain) or fast.stats().waiting and ends[-1] < 20.0:
            taken.append(_timed(fast, arguments))
            ends.append(time.perf_counter() - begun)
        steady = float(np.median(taken[-max(3, len(taken) // 5):]))
        full = next(e for t, e in zip(taken, ends, strict=True) if t <= 1.25 * steady)
        allowed = 1.1 * plain + 0.03 + (0.1 if number == 0 else 0.0) if plain < 1.0 else plain
        report.append({"name": name, "numpy_s": plain, "first_s": taken[0], "allowed_s": allowed,
                       "steady_s": steady, "full_speed_s": full})
        mark = "  over" if taken[0] > allowed else ""
        print(f"{name:18}{plain * 1e3:10.1f}{taken[0] * 1e3:10.1f}{allowed * 1e3:9.1f}{steady * 1e3:11.1f}"
              f"{full:14.2f}{mark}", flush=True)
    return report


DENSITIES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7)
ROUNDS = 4  # in each order


def powers(X: Any, v: Array) -> Array:
    """Some steps of the power method."""
    for _ in range(8):
        w = X @ v
        v = w / np.sqrt((w * w).sum())
    return v


def drift(rows: int, columns: int) -> dict[str, Any]:
    """Let zeros become fewer from phase to phase; time products that look for them, and both fixed ways."""
    n = rows // 10
    rng = np.random.default_rng(8)
    v, whole = rng.normal(size=n), rng.normal(size=(n, n))
    run = jitla.jit(powers, compile="sync")
    phases = []
    print(f"{'nonzeros':>10}{'dense ms':>11}{'stored ms':>11}{'drifting ms':>13}{'of best':>9}  left out")
    for density in DENSITIES:
        X = np.where(rng.random((n, n)) < density, whole, 0.0)
        stored, drifting = sp.csr_array(X), jitla.sparsify(X)
        ways: tuple[Any, ...] = (X, stored, drifting)
        for way in ways:
            run(way, v)
        settle()
        taken: tuple[list[float], ...] = ([], [], [])
        for order in permutations(range(len(ways))):  # what ran before leaves the caches to the next
            for _ in range(ROUNDS):
                for way in order:
                    taken[way].append(_timed(run, (ways[way], v)))
        dense_s, stored_s, drifting_s = np.median(taken, axis=1).tolist()
        out = drifting is not X and skipping_pays(X.size, stored.nnz, 1, True)
        phases.append({"density": density, "dense_s": dense_s, "stored_s": stored_s, "drifting_s": drifting_s,
                       "left_out": out})
        print(f"{density:10.3f}{dense_s * 1e3:11.3f}{stored_s * 1e3:11.3f}{drifting_s * 1e3:13.3f}"
              f"{drifting_s / min(dense_s, stored_s):9.2f}  {'yes' if out else 'no'}", flush=True)
    best = sum(min(p["dense_s"], p["stored_s"]) for p in phases)
    total = sum(p["drifting_s"] for p in phases)
    crossing = _crossing([p["density"] for p in phases], [p["stored_s"] / p["dense_s"] for p in phases])
    switch = next((p["density"] for p in phases if not p["left_out"]), 1.0)
    print(f"all phases {total / best:.3f} of the best fixed way of each; both ways take the same time at "
          f"{crossing:.2f}, switched up to {switch:.2f}")
    return {"phases": phases, "of_best": total / best, "crossing": crossing, "switch": switch}


def _crossing(densities: list[float], ratios: list[float]) -> float:
    """Return where a ratio comes to 1, between two densities by a line; 1.0: nowhere."""
    for (a, p), (b, q) in pairwise(zip(densities, ratios, strict=True)):
        if p < 1.0 <= q:
            return a + (1.0 - p) / (q - p) * (b - a)
    return 1.0


def _timed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=40)
    parser.add_argument("--parts", default="changing,drift,first")
    given = parser.parse_args()
    parts: dict[str, Callable[[int, int], Any]] = {"changing": changing, "drift": drift, "first": first}
    report = {name: parts[name](given.rows, given.columns) for name in given.parts.split(",")}
    print(json.dumps({"bench": "recompilation", **report}))


if __name__ == "__main__":
    main()
