"""Nanoseconds per element of the functions that have vector code, against NumPy's, on one thread.

Knows: the public interface. Must not know: how the functions are made.
Receives function names, or nothing for all; prints a table, then the same as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import numpy as np

import jitla
from bench.measure import Comparison, compare

Array = np.ndarray
ELEMENTS = 200_000  # all operands stay in the second-level cache, and calls cost little beside it
PAIRS = 15

RANGES = {
    "exp": (-10, 10), "exp2": (-10, 10), "expm1": (-5, 5), "tanh": (-3, 3), "sinh": (-5, 5),
    "cosh": (-5, 5), "log": (0.01, 100), "log2": (0.01, 100), "log10": (0.01, 100),
    "log1p": (0.01, 100), "sin": (-10, 10), "cos": (-10, 10), "tan": (-10, 10),
    "arcsin": (-1, 1), "arccos": (-1, 1), "arctan": (-5, 5), "arcsinh": (-5, 5),
    "arccosh": (1, 9), "arctanh": (-0.99, 0.99), "cbrt": (-9, 9),
}  # fmt: skip


def into(function: Callable[..., Array]) -> Callable[[Array, Array], None]:
    """Return what writes ``function(x)`` into an array that is there already."""
    def call(x: Array, out: Array) -> None:
        out[:] = function(x)

    return call


def run(name: str, x: Array) -> Comparison:
    """Plain against decorated, warm."""
    out = np.empty_like(x)
    plain = into(getattr(np, name))
    fast = jitla.jit(plain)
    with jitla.options(threads=1):
        fast(x, out)
        return compare(lambda: plain(x, out), lambda: fast(x, out), PAIRS)


def main(names: list[str]) -> None:
    """Measure the named functions, or all."""
    rng = np.random.default_rng(0)
    report = {}
    print(f"{ELEMENTS:,} elements, one thread, ns per element")
    print(f"{'':20}{'NumPy':>9}{'jitla':>9}   ratio")
    for dtype in (np.dtype(np.float64), np.dtype(np.float32)):
        for name in names or RANGES:
            found = run(name, rng.uniform(*RANGES[name], ELEMENTS).astype(dtype))
            each = [part.value / ELEMENTS for part in (found.first, found.second)]
            print(f"{name:11}{dtype!s:9}{each[0] * 1e9:9.2f}{each[1] * 1e9:9.2f}"
                  f"   {found.ratio.show()}", flush=True)
            report[f"{name} {dtype}"] = {"numpy_s": each[0], "jitla_s": each[1]}
    print(json.dumps({"bench": "vecmath", "elements": ELEMENTS, "functions": report}))


if __name__ == "__main__":
    main(sys.argv[1:])
