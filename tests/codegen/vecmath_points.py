"""Points, references and limits that the tests of the vector math share."""

from __future__ import annotations

import numpy as np

from jitla.codegen.vecmath.library import (
    FUNCTIONS,
    OF_TWO,
)
from tests.codegen.vecmath_loop import compiled

F64, F32 = np.dtype(np.float64), np.dtype(np.float32)
WIDTH = {F64: 4, F32: 8}
OF_ONE = [name for name in FUNCTIONS if name not in OF_TWO and hasattr(np, name)]
ODD = ("tanh", "sinh", "arcsinh", "arctanh", "arcsin", "arctan", "sin", "tan", "cbrt")
EVEN = ("cosh", "cos")
ONE_UNIT = ("exp", "exp2", "log", "log2", "log10")
DOMAIN = {"log": (0.0, np.inf), "log2": (0.0, np.inf), "log10": (0.0, np.inf),
          "log1p": (-1.0, np.inf), "arccosh": (1.0, np.inf), "arcsin": (-1.0, 1.0),
          "arccos": (-1.0, 1.0), "arctanh": (-1.0, 1.0)}  # fmt: skip
FALLING = ("arccos",)
PERIODIC = ("sin", "cos", "tan")


def limit(name: str, dtype: np.dtype) -> float:
    """The promised error in units of the last place."""
    if dtype == F32:
        return 2.5
    return 1.0 if name in ONE_UNIT else 2.0


def within(name: str, x: np.ndarray) -> np.ndarray:
    """The finite points inside the function's domain."""
    low, high = DOMAIN.get(name, (-np.inf, np.inf))
    return x[np.isfinite(x) & (x >= low) & (x <= high)]


def points(name: str, dtype: np.dtype, count: int = 20000) -> np.ndarray:
    """Wide, near 0, log-uniform, near 1, all bit patterns, and the seams of reductions."""
    rng = np.random.default_rng(len(name))
    sign = rng.choice([-1.0, 1.0], count)
    whole = np.int64 if dtype == F64 else np.int32
    patterns = rng.integers(0, np.iinfo(whole).max, count, dtype=whole).view(dtype)
    wide = 760.0 if dtype == F64 else 110.0
    seams = np.concatenate(
        [
            (np.arange(-40, 40) + 0.5) * np.log(2),
            (np.arange(-40, 40) + 0.5) * np.log(2) / 2,
            np.sqrt(0.5) * 2.0 ** np.arange(-20, 20),
            np.sqrt(0.5) * 2.0 ** np.arange(-20, 20) - 1,
            [0.25, 0.5, 0.6, 0.625, 1.0, 1.8, 2.0],
        ]
    )
    near = seams[:, None] * (1 + np.arange(-8, 9) * np.finfo(dtype).eps)
    x = np.concatenate(
        [
            rng.uniform(-1, 1, count),
            rng.uniform(-10, 10, count),
            rng.uniform(-wide, wide, count),
            sign * 10 ** rng.uniform(-20, 3, count),
            sign * 10 ** rng.uniform(-1.3, 0.7, count),
            1 + sign * 2.0 ** rng.uniform(-52, 0, count),
            near.ravel(),
            -near.ravel(),
        ]
    )
    return within(name, np.concatenate([x.astype(dtype), patterns, -patterns]))


def run(name: str, *xs: np.ndarray) -> np.ndarray:
    """The compiled function."""
    return compiled(name, xs[0].dtype, WIDTH[xs[0].dtype])(*xs)


def reference(name: str, *xs: np.ndarray) -> np.ndarray:
    """NumPy in extended precision."""
    with np.errstate(all="ignore"):
        return getattr(np, name)(*(x.astype(np.longdouble) for x in xs))


def units(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Error in units of the last place of the exact value (0 where both overflow)."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        size = np.minimum(np.abs(want), np.nextafter(info.max, 0)).astype(got.dtype)
        size = np.where(size > np.abs(want), np.nextafter(size, got.dtype.type(0)), size)
        error = np.abs(got.astype(np.longdouble) - want) / np.spacing(size)
        over = np.isinf(got) & (np.abs(want) >= overflow(got.dtype))
        return np.where(over, 0.0, error)


def overflow(dtype: np.dtype) -> np.longdouble:
    """The smallest number that rounds to infinity."""
    info = np.finfo(dtype)
    one = np.longdouble(1)
    return np.ldexp(one, info.maxexp) - np.ldexp(one, info.maxexp - info.nmant - 2)


def bits(x: np.ndarray) -> np.ndarray:
    """Bit patterns, all NaNs made equal."""
    return np.where(np.isnan(x), np.nan, x).astype(x.dtype).view(f"i{x.itemsize}")
