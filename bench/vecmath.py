"""Nanoseconds per element of the vector functions, against NumPy's and SciPy's, on one thread."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import numpy as np
from scipy import special

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
    "arccosh": (1, 9), "arctanh": (-0.99, 0.99), "cbrt": (-9, 9), "erf": (-3, 3), "erfc": (-3, 6),
    "ndtr": (-6, 3), "expit": (-9, 9), "log_expit": (-9, 9), "logit": (0.01, 0.99),
}
# Of two arguments.
PAIRED: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "power": ((0.01, 9), (-5, 5)), "arctan2": ((-5, 5), (-5, 5)), "hypot": ((-5, 5), (-5, 5)),
    "logaddexp": ((-9, 9), (-9, 9)), "logaddexp2": ((-9, 9), (-9, 9)), "xlogy": ((-5, 5), (0.01, 100)),
    "xlog1py": ((-5, 5), (0.01, 100)),
}  # fmt: skip


def into(function: Callable[..., Array]) -> Callable[..., None]:
    """Return what writes ``function(*xs)`` into an array that is there already."""
    def call(out: Array, *xs: Array) -> None:
        out[:] = function(*xs)

    return call


def run(name: str, *xs: Array) -> Comparison:
    """Plain against decorated, warm."""
    out = np.empty_like(xs[0])
    plain = into(getattr(np, name, None) or getattr(special, name))
    fast = jitla.jit(plain, compile="sync")
    with jitla.options(num_threads=1):
        fast(out, *xs)
        return compare(lambda: plain(out, *xs), lambda: fast(out, *xs), PAIRS)


def main(names: list[str]) -> None:
    """Measure the named functions, or all."""
    rng = np.random.default_rng(0)
    report = {}
    print(f"{ELEMENTS:,} elements, one thread, ns per element")
    print(f"{'':20}{'plain':>9}{'jitla':>9}   ratio")
    for dtype in (np.dtype(np.float64), np.dtype(np.float32)):
        for name in names or (*RANGES, *PAIRED):
            ends = PAIRED[name] if name in PAIRED else (RANGES[name],)
            found = run(name, *(rng.uniform(*pair, ELEMENTS).astype(dtype) for pair in ends))
            each = [part.value / ELEMENTS for part in (found.first, found.second)]
            print(f"{name:11}{dtype!s:9}{each[0] * 1e9:9.2f}{each[1] * 1e9:9.2f}"
                  f"   {found.ratio.show()}", flush=True)
            report[f"{name} {dtype}"] = {"plain_s": each[0], "jitla_s": each[1]}
    print(json.dumps({"bench": "vecmath", "elements": ELEMENTS, "functions": report}))


if __name__ == "__main__":
    main(sys.argv[1:])
