"""Accuracy, tails, special values and equal bits of the vector code for SciPy's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from tests.codegen.vecmath_loop import compiled
from tests.codegen.vecmath_points import F32, F64, WIDTH, bits, run

special = pytest.importorskip("scipy.special")

EXACT: dict[str, Callable[..., Any]] = {
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "ndtr": lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "expit": lambda x: 1 / (1 + mpmath.exp(-x)),
    "log_expit": lambda x: -mpmath.log1p(mpmath.exp(-x)),
    "logit": lambda x: mpmath.log(x / (1 - x)),
}
OF_TWO = {
    "xlogy": lambda x, y: x * mpmath.log(y),
    "xlog1py": lambda x, y: x * mpmath.log1p(y),
}
dtypes = pytest.mark.parametrize("dtype", [F64, F32], ids=str)
of_one = pytest.mark.parametrize("name", EXACT)
of_two = pytest.mark.parametrize("name", OF_TWO)


def points(name: str, dtype: np.dtype, count: int) -> np.ndarray:
    """Where the function bends, its seams, both tails as far as they reach."""
    rng = np.random.default_rng(5)
    far = {"expit": 745, "log_expit": 745, "ndtr": 38.5}.get(name, 27.3)
    if name == "logit":
        half = rng.uniform(0, 1, count), rng.uniform(0.4, 0.6, count), 10 ** rng.uniform(-320, -0.01, count)
        x = np.concatenate([*half, 1 - 2.0 ** rng.uniform(-52, -1, count)])
    else:
        sign = rng.choice([-1, 1], count)
        near = [rng.uniform(-a, a, count) for a in (1, 6, far)]
        x = np.concatenate([
            *near, rng.uniform(0.45, 0.55, count) * sign, rng.uniform(0.67, 0.74, count) * sign,
            sign * 10 ** rng.uniform(-12, 1, count),
        ])
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
    return x[(x > 0) & (x < 1)] if name == "logit" else x


def wrong(got: Any, want: Any, dtype: np.dtype) -> float:
    """Units of the last place between a result and the exact value."""
    with np.errstate(all="ignore"):
        unit = mpmath.mpf(float(np.spacing(np.abs(dtype.type(float(want))))))
    return float(abs(mpmath.mpf(float(got)) - want) / unit)


@of_one
@dtypes
def test_stays_within_the_promised_error(name: str, dtype: np.dtype) -> None:
    x = points(name, dtype, 500)
    with mpmath.workdps(40):
        for value, got in zip(x, run(name, x), strict=True):
            assert wrong(got, EXACT[name](mpmath.mpf(float(value))), dtype) <= 2.0, value


@of_two
@dtypes
def test_products_with_logarithms_are_as_good(name: str, dtype: np.dtype) -> None:
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=1500).astype(dtype), (10 ** rng.uniform(-6, 6, 1500)).astype(dtype)
    with mpmath.workdps(40):
        for p, q, got in zip(x, y, run(name, x, y), strict=True):
            want = OF_TWO[name](mpmath.mpf(float(p)), mpmath.mpf(float(q)))
            assert wrong(got, want, dtype) <= 2.5, (p, q)


@of_one
@dtypes
def test_is_monotone_on_neighbours(name: str, dtype: np.dtype) -> None:
    x = points(name, dtype, 20000)
    after = np.nextafter(x, dtype.type(np.inf))
    low, high = (run(name, v) for v in ((after, x) if name == "erfc" else (x, after)))
    assert np.all(low <= high), x[low > high][:5]


@dtypes
def test_erf_is_odd_in_every_bit(dtype: np.dtype) -> None:
    x = points("erf", dtype, 5000)
    assert np.array_equal(bits(run("erf", -x)), bits(-run("erf", x)))


@of_one
@dtypes
def test_special_values_are_those_of_scipy(name: str, dtype: np.dtype) -> None:
    info = np.finfo(dtype)
    size = [0.0, info.smallest_subnormal, info.tiny, 0.5, 1.0, 2.0, 30.0, 800.0, info.max, np.inf, np.nan]
    x = np.array([*size, *(-v for v in size)], dtype)
    with np.errstate(all="ignore"):
        got, want = run(name, x), getattr(special, name)(x)
    exact = ~np.isfinite(want) | (want == 0) | (np.abs(want) == 1) | (want == 2) | (want == 0.5)
    assert np.array_equal(bits(got[exact]), bits(want[exact]))
    np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == F32 else 1e-13, atol=info.tiny)


@of_two
@dtypes
def test_pairs_of_special_values_are_those_of_scipy(name: str, dtype: np.dtype) -> None:
    ends = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, np.inf, -np.inf, np.nan], dtype)
    x, y = (v.ravel() for v in np.meshgrid(ends, ends))
    with np.errstate(all="ignore"):
        got, want = run(name, x, y), getattr(special, name)(x, y)
    odd = ~np.isfinite(want) | (want == 0)
    assert np.array_equal(bits(got[odd]), bits(want[odd]))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_tails_reach_the_smallest_numbers() -> None:
    for name, x, want in [
        ("erfc", 26.5, "3.7e-307"), ("erfc", 27.2, "2.1e-323"), ("ndtr", -38.4, "5.6e-323"),
        ("expit", -740.0, "4.2e-322"), ("log_expit", 740.0, "-4.2e-322"), ("erfc", 28.0, "0"),
    ]:  # fmt: skip
        exact = EXACT[name](mpmath.mpf(x))
        got = run(name, np.array([x]))[0]
        assert abs(got - float(exact)) <= np.spacing(abs(float(exact))), (name, x, want)


@pytest.mark.parametrize("name", [*EXACT, *OF_TWO])
@dtypes
@pytest.mark.parametrize("features", ["x86-64-v2", "x86-64-v3"])
def test_bits_depend_neither_on_width_nor_on_processor(
    name: str, dtype: np.dtype, features: str
) -> None:
    rng = np.random.default_rng(8)
    xs = (points(name, dtype, 500),)
    if name in OF_TWO:
        xs = (rng.normal(size=3000).astype(dtype), rng.exponential(size=3000).astype(dtype))
    want = bits(run(name, *xs))
    for width in (1, 2, WIDTH[dtype]):
        assert np.array_equal(bits(compiled(name, dtype, width, features)(*xs)), want), width
