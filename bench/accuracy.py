"""Largest error of each function with vector code, in units of the last place, beside NumPy's or SciPy's.

The reference for float32 is the function of float64, for float64 the C library's long double, whose
own error is below 0.002 units of a float64 on x86-64, and mpmath, on fewer points, for SciPy's functions.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator

import mpmath
import numpy as np
from scipy import special

import jitla

Array = np.ndarray
Points = tuple[Array, ...]
CHUNK = 1 << 20
EVERY = 1 << 32
# Float64 limits of docs/dev/semantics.md; all others may be off by 2.
ONE_UNIT = ("exp", "exp2", "log", "log2", "log10", "power", "float_power")
EXHAUSTIVE = ("exp", "log", "sin", "cos", "tanh", "sqrt")
# Where the function is defined, and beyond which points of magnitude its value is not interesting.
DOMAIN = {
    "exp": (-750, 710), "exp2": (-1080, 1024), "expm1": (-750, 710), "log": (0, np.inf),
    "log2": (0, np.inf), "log10": (0, np.inf), "log1p": (-1, np.inf), "sin": (-np.inf, np.inf),
    "cos": (-np.inf, np.inf), "tan": (-np.inf, np.inf), "sinh": (-711, 711), "cosh": (-711, 711),
    "tanh": (-np.inf, np.inf), "arcsin": (-1, 1), "arccos": (-1, 1), "arctan": (-np.inf, np.inf),
    "arcsinh": (-np.inf, np.inf), "arccosh": (1, np.inf), "arctanh": (-1, 1),
    "cbrt": (-np.inf, np.inf), "sqrt": (0, np.inf), "erf": (-np.inf, np.inf), "erfc": (-6, 27.2),
    "ndtr": (-38.4, 9), "expit": (-745, 40), "log_expit": (-np.inf, 745), "logit": (0, 1),
}  # fmt: skip
# Of two arguments: where both are drawn.
PAIRED = {
    "power": ((0.0, 20.0), (-50.0, 50.0)), "float_power": ((0.0, 20.0), (-50.0, 50.0)),
    "arctan2": ((-9.0, 9.0), (-9.0, 9.0)),
    "hypot": ((-9.0, 9.0), (-9.0, 9.0)), "logaddexp": ((-9.0, 9.0), (-9.0, 9.0)),
    "logaddexp2": ((-9.0, 9.0), (-9.0, 9.0)), "xlogy": ((-9.0, 9.0), (0.0, 99.0)),
    "xlog1py": ((-9.0, 9.0), (-1.0, 99.0)),
}  # fmt: skip
# Sums of powers may cancel in the logarithm: their errors are those of results of this size.
LEAST = {"logaddexp": 0.25, "logaddexp2": 0.25}
EXACT: dict[str, Callable[..., mpmath.mpf]] = {
    "erf": mpmath.erf, "erfc": mpmath.erfc, "ndtr": lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "expit": lambda x: 1 / (1 + mpmath.exp(-x)), "log_expit": lambda x: -mpmath.log1p(mpmath.exp(-x)),
    "logit": lambda x: mpmath.log(x / (1 - x)), "xlogy": lambda x, y: x * mpmath.log(y),
    "xlog1py": lambda x, y: x * mpmath.log1p(y),
}  # fmt: skip
FEW = 20_000  # points of what mpmath computes


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


def pairs(name: str, dtype: np.dtype, count: int) -> Iterator[Points]:
    """Yield `count` pairs: uniform in their ranges, beside 1, log-uniform."""
    rng = np.random.default_rng(count)
    for _ in range(-(-count // CHUNK)):
        part = min(CHUNK, count) // 4
        xs = []
        for low, high in PAIRED[name]:
            sign = rng.choice([-1.0, 1.0], part)
            x = np.concatenate([
                rng.uniform(low, high, 2 * part), 1 + sign * 10.0 ** rng.uniform(-12, -1, part),
                sign * 10.0 ** rng.uniform(-6, 2, part),
            ])
            xs.append(x[(x >= low) & (x <= high)].astype(dtype))
        size = min(x.size for x in xs)
        yield tuple(rng.permutation(x[:size]) for x in xs)


def plain_of(name: str) -> Callable[..., Array]:
    """NumPy's function, or SciPy's."""
    found: Callable[..., Array] = getattr(np, name, None) or getattr(special, name)
    return found


def reference(name: str, wider: np.dtype, points: Points) -> Array:
    """The values in wider arithmetic."""
    if wider == np.float64 or name not in EXACT:
        return plain_of(name)(*(x.astype(wider) for x in points))
    made = np.empty(points[0].size, wider)
    with mpmath.workdps(40):
        for i, values in enumerate(zip(*points, strict=True)):
            exact = EXACT[name](*(mpmath.mpf(float(v)) for v in values))
            high = float(exact)
            made[i] = wider.type(high) + wider.type(float(exact - high))
    return made


def errors(made: Array, wanted: Array, least: float = 0.0) -> Array:
    """Units of the last place between results and a wider reference; inf where they disagree."""
    dtype = made.dtype
    rounded = wanted.astype(dtype)
    size = np.maximum(np.abs(np.where(np.isfinite(rounded), rounded, 1)), least)
    unit = np.spacing(size.astype(dtype))
    off = np.abs(made.astype(wanted.dtype) - wanted) / unit
    same = (made == rounded) | (np.isnan(made) & np.isnan(rounded))
    # Both overflow to the same infinity, or neither is a number.
    return np.where(same & ~np.isfinite(rounded), 0.0, np.where(np.isnan(off), np.inf, off))


def inside(name: str, chunks: Iterator[Array], most: int) -> Iterator[Points]:
    """Yield up to `most` points of each chunk that the function is defined at."""
    low, high = DOMAIN[name]
    for chunk in chunks:
        x = chunk[np.isfinite(chunk) & (chunk >= low) & (chunk <= high)]
        if x.size:
            yield (x[:: max(1, -(-x.size // most))],)


def worst(functions: list[Callable[..., Array]], name: str, chunks: Iterator[Points],
          wider: np.dtype) -> tuple[list[tuple[float, list[float]]], int]:
    """Return (error, point) of each of `functions`, and how many points were tried."""
    found: list[tuple[float, list[float]]] = [(0.0, [])] * len(functions)
    tried = 0
    for points in chunks:
        tried += points[0].size
        wanted = reference(name, wider, points)
        for i, function in enumerate(functions):
            off = errors(function(*points), wanted, LEAST.get(name, 0.0))
            at = int(off.argmax())
            found[i] = max(found[i], (float(off[at]), [float(x[at]) for x in points]))
    return found, tried


def row(name: str, dtype: np.dtype, count: int, exhaustive: bool) -> dict[str, object]:
    """Measure one function and print its row."""
    plain = plain_of(name)
    fast = jitla.jit(lambda *xs: plain(*xs), compile="sync")
    single = dtype == np.float32
    few = name in EXACT and not single
    if name in PAIRED:
        chunks = pairs(name, dtype, FEW if few else count)
    else:
        spread = patterns(EVERY if exhaustive else count) if single else drawn(
            name, dtype, CHUNK if few else count)
        chunks = inside(name, spread, FEW if few else CHUNK)
    wider = np.dtype(np.float64 if single else np.longdouble)
    (mine, theirs), tried = worst([fast, plain], name, chunks, wider)
    bound = limit(name, dtype)
    mark = "" if mine[0] <= bound else "   PASSED ITS LIMIT"
    print(f"{name:11}{dtype!s:9}{tried:14,}{mine[0]:9.3f}{theirs[0]:11.4g}{bound:8.1f}"
          f"   {mine[1]!r}{mark}", flush=True)
    return {"points": tried, "jitla": mine[0], "plain": theirs[0], "at": mine[1], "limit": bound}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", nargs="*", default=[*DOMAIN, *PAIRED])
    parser.add_argument("--points", type=int, default=4 * CHUNK, help="per function and dtype")
    parser.add_argument("--exhaustive", action="store_true",
                        help=f"every float32 of {', '.join(EXHAUSTIVE)}")
    options = parser.parse_args()
    print(f"{'':20}{'points':>14}{'jitla':>9}{'plain':>11}{'limit':>8}   worst point")
    report: dict[str, dict[str, object]] = {}
    with np.errstate(all="ignore"), jitla.options(compile="sync"):
        for dtype in (np.dtype(np.float64), np.dtype(np.float32)):
            for name in options.functions:
                every = options.exhaustive and name in EXHAUSTIVE and dtype == np.float32
                report[f"{name} {dtype}"] = row(name, dtype, options.points, every)
    print(json.dumps({"bench": "accuracy", "functions": report}))
    sys.exit(any(r["jitla"] > r["limit"] for r in report.values()))  # type: ignore[operator]


if __name__ == "__main__":
    main()
