"""Large kernels against NumPy: what decoration gains where memory or arithmetic is the limit.

Knows: the public interface, and the limits that `bench.machine` measures. Must not know: how kernels
are made. Receives the number of elements and of pairs; prints a table, then the same as JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import jitla
from bench.machine import measure, prepare
from bench.measure import Comparison, compare

Array = np.ndarray


def product_sum(x: Array, y: Array, z: Array) -> float:
    return (x * y * z).sum()


def fresh(a: Array, b: Array, c: Array, d: Array, e: Array) -> Array:
    return a * b + c * d - e


def reused(out: Array, a: Array, b: Array, c: Array, d: Array, e: Array) -> None:
    out[:] = a * b + c * d - e


def gaussian(x: Array, y: Array) -> Array:
    return np.exp(-0.5 * (x - y) * (x - y)) * 0.3989422804014327


def log_ratio(x: Array, y: Array) -> Array:
    return np.log(x * x + 1.0) - np.log(y * y + 1.0)


def squash(x: Array, y: Array) -> Array:
    return 0.5 * np.tanh(0.5 * (x + y)) + 0.5


@dataclass(frozen=True)
class Case:
    """A function, how many arrays it takes, how many vectors it must move, threads (0: all).

    `limit` is what of the machine bounds it: "read", "copy", or nothing where arithmetic does.
    """

    name: str
    function: Callable[..., object]
    arrays: int
    vectors: int
    threads: int
    limit: str = ""


CASES = (
    Case("(x*y*z).sum()", product_sum, 3, 3, 0, "read"),
    Case("(x*y*z).sum(), one thread", product_sum, 3, 3, 1, "read"),
    Case("a*b+c*d-e, fresh output", fresh, 5, 6, 0, "copy"),
    Case("a*b+c*d-e, fresh output, one thread", fresh, 5, 6, 1, "copy"),
    Case("out[:] = a*b+c*d-e", reused, 6, 6, 0, "copy"),
    Case("out[:] = a*b+c*d-e, one thread", reused, 6, 6, 1, "copy"),
    Case("exp chain, one thread", gaussian, 2, 3, 1),
    Case("log chain, one thread", log_ratio, 2, 3, 1),
    Case("tanh chain, one thread", squash, 2, 3, 1),
)


def limits() -> dict[tuple[str, bool], float]:
    """Best GB/s of reading and of copying, with one thread and with all, by (kind, one)."""
    rows = measure(prepare())
    return {
        (kind, key == "one"): max(row[key] for name, row in rows.items() if name.startswith(kind))
        for kind in ("read", "copy") for key in ("one", "all")
    }


def run(case: Case, arrays: list[Array], pairs: int) -> Comparison:
    """Plain against decorated, warm."""
    fast = jitla.jit(case.function)
    chosen = arrays[-case.arrays:]
    with jitla.options(threads=case.threads):
        fast(*chosen)
        return compare(lambda: case.function(*chosen), lambda: fast(*chosen), pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=20_000_000)
    parser.add_argument("--pairs", type=int, default=30)
    options = parser.parse_args()
    bound = limits()
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=options.size) for _ in range(6)]
    print(f"{options.size:,} float64, {options.pairs} interleaved pairs, median [95 % interval]")
    print(f"{'':38}{'NumPy ms':>12}{'jitla ms':>12}{'jitla GB/s':>12}{'of limit':>10}   ratio")
    report = {}
    for case in CASES:
        found = run(case, arrays, options.pairs)
        rate = case.vectors * options.size * 8 / found.second.value / 1e9
        share = f"{rate / bound[case.limit, case.threads == 1]:.0%}" if case.limit else ""
        print(f"{case.name:38}{found.first.value * 1e3:12.1f}{found.second.value * 1e3:12.1f}"
              f"{rate:12.1f}{share:>10}   {found.ratio.show()}", flush=True)
        report[case.name] = {
            "numpy_s": found.first.value, "jitla_s": found.second.value, "gb_per_s": rate,
            "of_limit": share, "ratio": [found.ratio.value, found.ratio.low, found.ratio.high],
        }
    print(json.dumps({"bench": "kernels", "size": options.size, "cases": report}))


if __name__ == "__main__":
    main()
