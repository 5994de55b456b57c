"""Loops with values that stay the same: with these kept from turn to turn, without, and NumPy, side by side.

Each loop has fifty turns. What is timed are calls after the first, which compile nothing; the first is
timed once, by the processor's clock, in a process of its own that has compiled something else: whatever one
way has compiled, the other would find.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import jitla
from bench.measure import Estimate, estimate, seconds

Array = np.ndarray
TURNS = 50
WAYS = ("kept", "not kept", "numpy")
OPTIONS = {"kept": {"invariants": "cost"}, "not kept": {"invariants": "none"}, "numpy": {}}


def pagerank(G: Array, p: Array, e: Array, u: Array) -> Array:
    alpha = 0.85
    for _ in range(TURNS):
        p = alpha * (G @ p) + (1 - alpha) * (e @ u @ p)
    return p


def pagerank_normalised(G: Array, p: Array, e: Array, u: Array) -> Array:
    alpha = 0.85
    for _ in range(TURNS):
        p = alpha * ((G / G.sum(0)) @ p) + (1 - alpha) * (e @ u @ p)
    return p


def descent(X: Array, y: Array, w: Array) -> Array:
    for _ in range(TURNS):
        w = w - 1e-6 * (X.T @ X @ w - X.T @ y)
    return w


def ridge(X: Array, y: Array, w: Array) -> Array:
    for _ in range(TURNS):
        h = X.T @ X + 0.1 * np.eye(X.shape[1])
        w = w - 1e-6 * (h @ w - X.T @ y)
    return w


def right_side(X: Array, y: Array, w: Array) -> Array:
    for _ in range(TURNS):
        w = w - 1e-6 * (X.T @ (X @ w) - X.T @ y)
    return w


def kmeans_distances(X: Array, C: Array) -> Array:
    for _ in range(TURNS):
        d = (X ** 2).sum(1)[:, None] - 2.0 * (X @ C.T) + (C ** 2).sum(1)
        C = C * (1.0 + 1e-9 * d.min(1).sum())
    return C


def cosine(X: Array, C: Array) -> Array:
    for _ in range(TURNS):
        s = (X @ C.T) / np.sqrt((X ** 2).sum(1))[:, None]
        C = C + 1e-6 * (s.T @ X)
    return C


def standardised(X: Array, y: Array, w: Array) -> Array:
    for _ in range(TURNS):
        Z = (X - X.mean(0)) / X.std(0)
        w = w - 1e-6 * (Z.T @ (Z @ w - y))
    return w


def kernel(X: Array, a: Array) -> Array:
    for _ in range(TURNS):
        n = (X ** 2).sum(1)
        K = np.exp(-(n[:, None] - 2.0 * (X @ X.T) + n) / 50.0)
        a = a * 0.9 + (K @ a) * 1e-4
    return a


def squares(X: Array, w: Array) -> Array:
    for _ in range(TURNS):
        w = w * 0.5 + ((X ** 2) * w).sum(0) * 1e-9
    return w


def changing(G: Array, p: Array) -> Array:
    for _ in range(TURNS):
        p = (G / G.sum(0)) @ p
        G[0, 0] += 1.0
    return p


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Array, ...]]]:
    """Return functions and arguments by name."""
    rng = np.random.default_rng(3)
    G, p = rng.random((1000, 1000)), np.full(1000, 1 / 1000)
    e, u = np.ones((1000, 1)), np.full((1, 1000), 1 / 1000)
    X, y, w = rng.random((10000, 50)), rng.random(10000), np.zeros(50)
    few, C = rng.random((20000, 20)), rng.random((10, 20))
    large = rng.random((200_000, 50))
    return {
        "pagerank": (pagerank, (G / 500, p, e, u)),
        "pagerank, G / G.sum(0)": (pagerank_normalised, (G, p, e, u)),
        "descent, X.T @ X @ w - X.T @ y": (descent, (X, y, w)),
        "ridge": (ridge, (X, y, w)),
        "descent, X.T @ y only": (right_side, (X, y, w)),
        "distances of k-means": (kmeans_distances, (few, C)),
        "cosines": (cosine, (few, C)),
        "standardised columns": (standardised, (X, y, w)),
        "kernel matrix": (kernel, (rng.random((500, 20)), rng.random(500))),
        "X ** 2 in a loop": (squares, (X, rng.random(50))),
        "X ** 2 beyond the caches": (squares, (large, rng.random(50))),
        "G changes in every turn": (changing, (G[:500, :500].copy(), p[:500])),
    }


@dataclass
class Measured:
    """One case: seconds of a call, how much faster, what was kept, and the first call's processor time."""

    name: str
    least: dict[str, float]
    faster: Estimate
    first: dict[str, float]
    kept: int
    kept_bytes: int
    error: float


def measure(
    name: str, function: Callable[..., Any], args: tuple[Array, ...], rounds: int, clock: Callable[[], float],
) -> Measured:
    """Time a case in all ways, in turns."""
    ways = {way: function if way == "numpy" else jitla.jit(function, compile="sync") for way in WAYS}
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    results = {}
    for turn in range(-2, rounds):
        for way in WAYS:
            if way == "numpy" and turn > 1:
                continue
            given = tuple(a.copy() for a in args)
            with jitla.config.options(**OPTIONS[way]):
                spent = seconds(
                    lambda way=way, given=given: results.update({way: ways[way](*given)}), 1, clock)
            if turn >= 0:
                taken[way].append(spent)
    counted = ways["kept"].stats()
    error = float(np.max(np.abs(results["kept"] / results["numpy"] - 1)))
    return Measured(
        name, {way: min(t) for way, t in taken.items()},
        estimate([b / a for a, b in zip(taken["kept"], taken["not kept"], strict=True)]),
        {way: first_call(name, way) for way in WAYS[:2]}, int(counted.kept / counted.calls + 0.5),
        int(counted.kept_bytes), error)


def first_call(name: str, way: str) -> float:
    """Return the processor time of the first call in a process of its own."""
    command = [sys.executable, "-m", "bench.invariants", "--first", way, name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def alone(name: str, way: str) -> float:
    """Return the processor time of a first call, the compiler being loaded and warm."""
    function, args = cases()[name]
    with jitla.config.options(**OPTIONS[way]):
        other = jitla.jit(squares, compile="sync")
        other(np.ones((300, 30)), np.ones(30))
        fast = jitla.jit(function, compile="sync")
        start = time.process_time()
        fast(*args)
        return time.process_time() - start


def main() -> None:
    """Measure the cases asked for."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("names", nargs="*")
    given.add_argument("--rounds", type=int, default=9)
    given.add_argument("--processor", action="store_true",
                       help="time by the processor's clock, on one thread: where others use the machine, too")
    given.add_argument("--first", default="", choices=("", *WAYS), help=argparse.SUPPRESS)
    options = given.parse_args()
    made = []
    if options.first:
        print(alone(options.names[0], options.first))
        return
    if options.processor:
        jitla.configure(num_threads=1)
    clock = time.process_time if options.processor else time.perf_counter
    print(f"{'loop':<32} {'numpy':>9} {'not kept':>9} {'kept':>9}   {'faster (median)':<18} "
          f"{'held':>10}   first call: kept / not")
    for name, (function, args) in cases().items():
        if options.names and not any(asked in name for asked in options.names):
            continue
        found = measure(name, function, args, options.rounds, clock)
        made.append(found)
        times = " ".join(f"{found.least[way] * 1e3:7.2f}ms" for way in ("numpy", "not kept", "kept"))
        print(f"{name:<32} {times}   {found.faster.show():<18} {found.kept} x {found.kept_bytes / 1e6:6.2f}MB"
              f"   {found.first['kept'] * 1e3:5.0f} / {found.first['not kept'] * 1e3:.0f}ms", flush=True)
    print(json.dumps([asdict(m) for m in made]))


if __name__ == "__main__":
    main()
