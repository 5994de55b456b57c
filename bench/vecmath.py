"""Nanoseconds per element of the vector math functions, against NumPy's ufuncs.

Knows: the loop that the tests use. Must not know: how the functions are made.
Receives function names as arguments; writes one line per function and dtype. Run it from the
repository's root as ``python -m bench.vecmath``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from jitla.codegen.vecmath import FUNCTIONS
from tests.codegen.vecmath_loop import compiled

RANGES = {
    "exp": (-10, 10), "exp2": (-10, 10), "expm1": (-5, 5), "tanh": (-3, 3), "sinh": (-5, 5),
    "cosh": (-5, 5), "log": (0.01, 100), "log2": (0.01, 100), "log10": (0.01, 100),
    "log1p": (0.01, 100), "sin": (-10, 10), "cos": (-10, 10), "tan": (-10, 10),
    "arcsin": (-1, 1), "arccos": (-1, 1), "arctan": (-5, 5), "arcsinh": (-5, 5),
    "arccosh": (1, 9), "arctanh": (-0.99, 0.99), "cbrt": (-9, 9),
}  # fmt: skip


def best(call: Callable[[], object], elements: int) -> float:
    """Nanoseconds per element, the best of many runs."""
    low = float("inf")
    for _ in range(60):
        start = time.perf_counter_ns()
        for _ in range(10):
            call()
        low = min(low, (time.perf_counter_ns() - start) / 10 / elements)
    return low


def main(names: list[str]) -> None:
    """Measure the named functions, or all."""
    rng = np.random.default_rng(0)
    for dtype, width in ((np.dtype(np.float64), 4), (np.dtype(np.float32), 8)):
        for name in names or FUNCTIONS:
            x = rng.uniform(*RANGES[name], 512 * width).astype(dtype)
            out = np.empty_like(x)
            raw = compiled(name, dtype, width).raw
            ours = best(partial(raw, x.ctypes.data, out.ctypes.data, x.size), x.size)
            theirs = best(partial(getattr(np, name), x, out), x.size)
            line = f"{dtype} {name:8} {ours:6.2f} {theirs:6.2f} {ours / theirs:5.2f}\n"
            sys.stdout.write(line)


if __name__ == "__main__":
    main(sys.argv[1:])
