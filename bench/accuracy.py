"""Largest error of each function with vector code, in units of the last place, beside NumPy's.

Knows: the public interface; wider arithmetic as reference. Must not know: how functions are made.
Receives function names, how many points, and whether every float32 is to be tried; prints a table,
then the same as JSON; fails if a promised limit is passed.

The reference for float32 is NumPy's float64, for float64 the C library's long double, whose own
error is below 0.002 units of a float64 on x86-64. What has no such reference is not measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator

import numpy as np

import jitla

Array = np.ndarray
CHUNK = 1 << 20
EVERY = 1 << 32
# Float64 limits of docs/differences.md; all others may be off by 2.
ONE_UNIT = ("exp", "exp2", "log", "log2", "log10")
EXHAUSTIVE = ("exp", "log", "sin", "cos", "tanh", "sqrt")
# Where the function is defined, and beyond which points of magnitude its value is not interesting.
DOMAIN = {
    "exp": (-750, 710), "exp2": (-1080, 1024), "expm1": (-750, 710), "log": (0, np.inf),
    "log2": (0, np.inf), "log10": (0, np.inf), "log1p": (-1, np.inf), "sin": (-np.inf, np.inf),
    "cos": (-np.inf, np.inf), "tan": (-np.inf, np.inf), "sinh": (-711, 711), "cosh": (-711, 711),
    "tanh": (-np.inf, np.inf), "arcsin": (-1, 1), "arccos": (-1, 1), "arctan": (-np.inf, np.inf),
    "arcsinh": (-np.inf, np.inf), "arccosh": (1, np.inf), "arctanh": (-1, 1),
    "cbrt": (-np.inf, np.inf), "sqrt": (0, np.inf),
}  # fmt: skip


def limit(name: str, dtype: np.dtype) -> float:
    """The promised error, in units of the last place."""
    if name == "sqrt":
        return 0.5
    return 2.5 if dtype == np.float32 else 1.0 if name in ONE_UNIT else 2.0


def patterns(count: int) -> Iterator[Array]:
    """Yield `count` float32 values, evenly spread over all 2**32 bit patterns."""
    step = EVERY // count
    for begin in range(0, EVERY, CHUNK * step):
        whole = np.arange(begin, min(begin + CHUNK * step, EVERY), step, dtype=np.uint64)
        yield whole.astype(np.uint32).view(np.float32)


def drawn(name: str, dtype: np.dtype, count: int) -> Iterator[Array]:
    """Yield `count` points: uniform where the function bends, log-uniform, and any bit pattern."""
    rng = np.random.default_rng(count)
    low, high = DOMAIN[name]
    for _ in range(-(-count // CHUNK)):
        part = CHUNK // 4
        narrow, wide = max(low, -10.0), min(high, 10.0)
        sign = rng.choice([-1.0, 1.0], part)
        bits = rng.integers(0, 1 << 63, part, dtype=np.uint64) << np.uint64(1)
        yield np.concatenate([
            rng.uniform(narrow, wide, part),
            rng.uniform(max(low, -800.0), min(high, 800.0), part),
            sign * 10.0 ** rng.uniform(-18, 18, part),
            bits.view(np.float64),
        ]).astype(dtype)


def errors(made: Array, wanted: Array) -> Array:
    """Units of the last place between results and a wider reference; inf where they disagree."""
    dtype = made.dtype
    rounded = wanted.astype(dtype)
    unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1)).astype(dtype))
    off = np.abs(made.astype(wanted.dtype) - wanted) / unit
    same = (made == rounded) | (np.isnan(made) & np.isnan(rounded))
    # Both overflow to the same infinity, or neither is a number.
    return np.where(same & ~np.isfinite(rounded), 0.0, np.where(np.isnan(off), np.inf, off))


def worst(functions: list[Callable[[Array], Array]], name: str, chunks: Iterator[Array],
          wider: np.dtype) -> tuple[list[tuple[float, float]], int]:
    """Return (error, point) of each of `functions`, and how many points were tried."""
    found = [(0.0, 0.0)] * len(functions)
    tried = 0
    low, high = DOMAIN[name]
    for chunk in chunks:
        x = chunk[np.isfinite(chunk) & (chunk >= low) & (chunk <= high)]
        tried += x.size
        if not x.size:
            continue
        wanted = getattr(np, name)(x.astype(wider))
        for i, function in enumerate(functions):
            off = errors(function(x), wanted)
            at = int(off.argmax())
            found[i] = max(found[i], (float(off[at]), float(x[at])))
    return found, tried


def row(name: str, dtype: np.dtype, count: int, exhaustive: bool) -> dict[str, object]:
    """Measure one function and print its row."""
    plain = getattr(np, name)
    fast = jitla.jit(lambda x: plain(x))
    single = dtype == np.float32
    chunks = patterns(EVERY if exhaustive else count) if single else drawn(name, dtype, count)
    wider = np.dtype(np.float64 if single else np.longdouble)
    (mine, theirs), tried = worst([fast, plain], name, chunks, wider)
    bound = limit(name, dtype)
    mark = "" if mine[0] <= bound else "   PASSED ITS LIMIT"
    print(f"{name:9}{dtype!s:9}{tried:14,}{mine[0]:9.3f}{theirs[0]:9.3f}{bound:8.1f}"
          f"   {mine[1]!r}{mark}", flush=True)
    return {"points": tried, "jitla": mine[0], "numpy": theirs[0], "at": mine[1], "limit": bound}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", nargs="*", default=list(DOMAIN))
    parser.add_argument("--points", type=int, default=4 * CHUNK, help="per function and dtype")
    parser.add_argument("--exhaustive", action="store_true",
                        help=f"every float32 of {', '.join(EXHAUSTIVE)}")
    options = parser.parse_args()
    print(f"{'':18}{'points':>14}{'jitla':>9}{'NumPy':>9}{'limit':>8}   worst point")
    report: dict[str, dict[str, object]] = {}
    with np.errstate(all="ignore"):
        for dtype in (np.dtype(np.float64), np.dtype(np.float32)):
            for name in options.functions:
                every = options.exhaustive and name in EXHAUSTIVE and dtype == np.float32
                report[f"{name} {dtype}"] = row(name, dtype, options.points, every)
    print(json.dumps({"bench": "accuracy", "functions": report}))
    sys.exit(any(r["jitla"] > r["limit"] for r in report.values()))  # type: ignore[operator]


if __name__ == "__main__":
    main()
