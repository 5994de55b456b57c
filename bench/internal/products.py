"""Products with wide matrices, and what is done with their rows: against NumPy, and against BLAS calls.

"apart": the same plan, but products are calls of BLAS and what follows is kernels of their own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import numpy as np

import jitla
from bench.measure import settle
from jitla.engine import ENGINE
from jitla.fusion import templates as rows

Array = np.ndarray


def relu(A: Array, W: Array, S: Array, b: Array) -> Array:
    return np.maximum(A @ W + b, 0.0)


def logistic(A: Array, W: Array, S: Array, b: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-(A @ W + b)))


def gate(A: Array, W: Array, S: Array, b: Array) -> Array:
    return np.tanh(A @ W + b) * S


def largest(A: Array, W: Array, S: Array, b: Array) -> Array:
    return (A @ W).max(axis=1)


def squared_loss(A: Array, W: Array, S: Array, b: Array) -> float:
    return ((S - A @ W) ** 2).sum()


def weighted(A: Array, W: Array, S: Array, b: Array) -> float:
    return (S * (A @ W)).sum()


def gradients(A: Array, W: Array, S: Array, b: Array) -> tuple[Array, Array, float]:
    R = S - A @ W
    return R @ W.T, A.T @ R, (R * R).sum()


def standardised(A: Array, W: Array, S: Array, b: Array) -> tuple[Array, Array]:
    X = (S - b) / (b * b + 1.0)
    return X.T @ X, X.T @ A[:, 0]


def two_layers(A: Array, W: Array, S: Array, b: Array) -> tuple[Array, Array]:
    return np.maximum(A @ W, 0.0), np.tanh(A @ (W * 0.5))


@dataclass(frozen=True)
class Case:
    """A function, rows, length of the sums, columns."""

    function: Callable[..., object]
    size: tuple[int, int, int]

    @property
    def name(self) -> str:
        """Name and sizes."""
        return f"{self.function.__name__} {'x'.join(map(str, self.size))}"


CASES = (
    *(Case(f, s) for f in (relu, logistic, gate) for s in (
        (20_000, 27, 64), (20_000, 64, 256), (20_000, 256, 256), (4000, 512, 512))),
    *(Case(f, s) for f in (largest, squared_loss, weighted) for s in ((20_000, 20, 256), (4000, 20, 4000))),
    Case(gradients, (20_000, 20, 256)),
    Case(standardised, (100_000, 1, 50)), Case(standardised, (50_000, 1, 100)),
    Case(two_layers, (20_000, 64, 256)),
)


@contextmanager
def apart() -> Iterator[None]:
    """Plan as if there were no fused products with wide matrices."""
    taken = rows.is_wide_profitable
    rows.is_wide_profitable = lambda product: False
    ENGINE._compilers.clear()
    try:
        yield
    finally:
        rows.is_wide_profitable = taken
        ENGINE._compilers.clear()


def run(case: Case, dtype: str, threads: int, pairs: int, clock: Callable[[], float]) -> list[float]:
    """Median seconds of NumPy, of products apart, and fused, in random order."""
    rng = np.random.default_rng(1)
    m, k, n = case.size
    given = [rng.normal(size=s).astype(dtype) for s in ((m, k), (k, n), (m, n), (n,))]
    given[1] *= k ** -0.5  # so that nothing overflows
    with jitla.options(num_threads=threads):
        with apart():
            calls = jitla.jit(case.function, compile="sync")
            calls(*given)
        fused = jitla.jit(case.function, compile="sync")
        fused(*given)
        times: list[list[float]] = [[], [], []]
        contestants = (case.function, calls, fused)
        for at in range(pairs):
            for who in np.random.default_rng(at).permutation(len(contestants)):  # none always follows another
                function = contestants[who]
                if clock is not time.thread_time:
                    settle()
                    function(*given)  # its own threads may spin
                start = clock()
                function(*given)
                times[who].append(clock() - start)
    return [median(t) for t in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--dtype", default="f8")
    parser.add_argument("--cpu", action="store_true", help="time of the calling thread (with one thread)")
    options = parser.parse_args()
    clock = time.thread_time if options.cpu else time.perf_counter
    print(f"{options.dtype}, median of {options.pairs}; ratios over the fused plan")
    print(f"{'':34}{'NumPy ms':>10}{'apart ms':>10}{'fused ms':>10}{'NumPy':>8}{'apart':>8}")
    report = {}
    for case in CASES:
        plain, calls, fused = run(case, options.dtype, options.threads, options.pairs, clock)
        print(f"{case.name:34}{plain * 1e3:10.2f}{calls * 1e3:10.2f}{fused * 1e3:10.2f}"
              f"{plain / fused:8.2f}{calls / fused:8.2f}", flush=True)
        report[case.name] = {"numpy_s": plain, "apart_s": calls, "fused_s": fused}
    print(json.dumps({"bench": "products", "dtype": options.dtype, "cases": report}))


if __name__ == "__main__":
    main()
