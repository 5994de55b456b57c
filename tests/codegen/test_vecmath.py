"""Accuracy, monotonicity, symmetry and equal bits of the vector math functions."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from tests.codegen.vecmath_loop import compiled
from tests.codegen.vecmath_points import (
    DOMAIN,
    EVEN,
    F32,
    F64,
    FALLING,
    ODD,
    OF_ONE,
    PERIODIC,
    WIDTH,
    bits,
    limit,
    points,
    reference,
    run,
    units,
    within,
)

MPMATH = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh",
          "arccosh": "acosh", "arctanh": "atanh"}  # fmt: skip

names = pytest.mark.parametrize("name", OF_ONE)
dtypes = pytest.mark.parametrize("dtype", [F64, F32], ids=str)


@names
@dtypes
def test_stays_within_the_promised_error(name: str, dtype: np.dtype) -> None:
    x = points(name, dtype)
    error = units(run(name, x), reference(name, x))
    worst = np.argmax(np.where(np.isnan(error), np.inf, error))
    assert error[worst] <= limit(name, dtype), (x[worst], error[worst])


@names
def test_stays_within_the_error_on_every_1999th_float32(name: str) -> None:
    patterns = np.arange(0, 2**32, 1999, dtype=np.uint32).view(np.float32)
    x = within(name, patterns)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x.astype(np.float64))
    error = units(run(name, x), want)
    worst = np.argmax(np.where(np.isnan(error), np.inf, error))
    assert error[worst] <= 2.5, (x[worst], error[worst])


@names
def test_agrees_with_arbitrary_precision(name: str) -> None:
    rng = np.random.default_rng(7)
    x = rng.choice(points(name, F64, 1000), 60)
    x = x[np.abs(x) < 1e4]
    function = {
        "cbrt": lambda v: mpmath.sign(v) * mpmath.cbrt(abs(v)),
        "exp2": lambda v: mpmath.mpf(2) ** v,
        "log2": lambda v: mpmath.log(v, 2),
    }.get(name, getattr(mpmath, MPMATH.get(name, name), None))
    with mpmath.workdps(60):
        for value, got in zip(x, run(name, x), strict=True):
            want = function(mpmath.mpf(float(value)))
            if np.isfinite(got) and abs(want) > 1e-300:
                error = abs(mpmath.mpf(float(got)) - want) / float(np.spacing(abs(float(want))))
                assert error <= limit(name, F64) + 1e-9, value


@names
@dtypes
def test_is_monotone_on_neighbours(name: str, dtype: np.dtype) -> None:
    if name in PERIODIC:
        return
    x = points(name, dtype, 40000)
    after = np.nextafter(x, dtype.type(np.inf))
    inside = after <= DOMAIN.get(name, (-np.inf, np.inf))[1]
    x, after = x[inside], after[inside]
    low, high = run(name, x), run(name, after)
    falls = (x < 0) if name in EVEN else np.full(x.shape, name in FALLING)
    assert np.all(np.where(falls, high <= low, low <= high))


@dtypes
@pytest.mark.parametrize(
    ("name", "low", "high", "way"),
    [("sin", -1.5707, 1.5707, 1), ("cos", 0.0, 3.1415, -1), ("tan", -1.5707, 1.5707, 1)],
)
def test_periodic_ones_are_monotone_between_turning_points(
    name: str, low: float, high: float, way: int, dtype: np.dtype
) -> None:
    x = np.random.default_rng(3).uniform(low, high, 200000).astype(dtype)
    after = np.nextafter(x, dtype.type(9))
    assert np.all(way * (run(name, after) - run(name, x)) >= 0)


@names
@dtypes
def test_is_odd_or_even_in_every_bit(name: str, dtype: np.dtype) -> None:
    x = points(name, dtype)
    if name in ODD:
        assert np.array_equal(bits(run(name, -x)), bits(-run(name, x)))
    if name in EVEN:
        assert np.array_equal(bits(run(name, -x)), bits(run(name, x)))


@names
@dtypes
@pytest.mark.parametrize("features", ["x86-64-v2", "x86-64-v3"])
def test_bits_depend_neither_on_width_nor_on_processor(
    name: str, dtype: np.dtype, features: str
) -> None:
    x = points(name, dtype, 3000)
    want = bits(run(name, x))
    for width in (1, 2, WIDTH[dtype]):
        assert np.array_equal(bits(compiled(name, dtype, width, features)(x)), want), width
