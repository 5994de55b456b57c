"""Accuracy, special values and equal bits of the vector math functions of two arguments."""

from __future__ import annotations

from collections.abc import Iterator

import mpmath
import numpy as np
import pytest

from tests.codegen.vecmath_loop import compiled
from tests.codegen.vecmath_points import F32, F64, WIDTH, bits, reference, run, units

names = pytest.mark.parametrize("name", ["arctan2", "hypot", "power", "logaddexp", "logaddexp2"])
dtypes = pytest.mark.parametrize("dtype", [F64, F32], ids=str)
LIMIT = {"arctan2": 2.0, "hypot": 1.5, "power": 1.0}
BASES = {"logaddexp": mpmath.e, "logaddexp2": mpmath.mpf(2)}


def pairs(dtype: np.dtype, count: int = 20000) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ordinary ones, those near each other and near 1, integers, any bit patterns."""
    rng = np.random.default_rng(11)
    whole = np.iinfo(f"i{dtype.itemsize}")

    def drawn(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, count).astype(dtype)

    def wide(low: float, high: float) -> np.ndarray:
        return (rng.choice([-1, 1], count) * 10 ** rng.uniform(low, high, count)).astype(dtype)

    def patterns() -> np.ndarray:
        return rng.integers(whole.min, whole.max, count, whole.dtype).view(dtype)

    near = drawn(-5, 5)
    yield drawn(-10, 10), drawn(-10, 10)
    yield drawn(0, 5), drawn(-60, 60)
    yield wide(-3, 3), wide(-3, 3)
    yield patterns(), patterns()
    yield np.abs(patterns()), drawn(-3, 3)
    yield near, (near * (1 + wide(-9, -1))).astype(dtype)
    yield (1 + wide(-9, -1)).astype(dtype), wide(-2, 9)
    yield drawn(-3, 3), np.round(drawn(-20, 20))


def grid(dtype: np.dtype) -> list[np.ndarray]:
    """Every pair of special values."""
    info = np.finfo(dtype)
    even = 2.0 ** (info.nmant + 1)
    size = [0, info.smallest_subnormal, info.tiny, 1e-3, 0.5, 1 - info.epsneg, 1, 1 + info.eps, 1.5, 2, 2.5,
            3, 5, 1e5, even / 2, even - 1, even, even + 2, info.max, np.inf, np.nan]  # fmt: skip
    ends = np.array([*size, *(-v for v in size)], dtype)
    return [axis.ravel() for axis in np.meshgrid(ends, ends)]


@dtypes
@pytest.mark.parametrize("name", LIMIT)
def test_stays_within_the_promised_error(name: str, dtype: np.dtype) -> None:
    for x, y in pairs(dtype):
        want = reference(name, x, y)
        known = np.isfinite(want) & np.isfinite(x) & np.isfinite(y)
        x, y, want = x[known], y[known], want[known]
        if x.size:
            error = units(run(name, x, y), want)
            worst = np.argmax(np.where(np.isnan(error), np.inf, error))
            assert error[worst] <= LIMIT[name], (x[worst], y[worst], error[worst])


@dtypes
@pytest.mark.parametrize("name", BASES)
def test_logarithms_of_sums_may_cancel(name: str, dtype: np.dtype) -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-1, 0, 300), rng.uniform(-9, 9, 300)]).astype(dtype)
    y = np.concatenate([rng.uniform(-3, 0, 300), rng.uniform(-9, 9, 300)]).astype(dtype)
    base = BASES[name]
    with mpmath.workdps(40):
        for p, q, got in zip(x, y, run(name, x, y), strict=True):
            want = mpmath.log(base ** mpmath.mpf(float(p)) + base ** mpmath.mpf(float(q))) / mpmath.log(base)
            unit = np.spacing(dtype.type(max(abs(float(want)), 0.25)))
            assert abs(mpmath.mpf(float(got)) - want) <= 2 * float(unit), (p, q, got)


@dtypes
@pytest.mark.parametrize("name", ["arctan2", "hypot", "power", "logaddexp"])
def test_special_values_are_those_of_numpy(name: str, dtype: np.dtype) -> None:
    x, y = grid(dtype)
    with np.errstate(all="ignore"):
        got, want = run(name, x, y), getattr(np, name)(x, y)
    # NumPy's loops of some processors round what is next to 1.
    special = ~np.isfinite(want) | (want == 0) | (np.abs(want) == 1) & (np.abs(got) == 1)
    assert np.array_equal(bits(got[special]), bits(want[special]))
    rest = ~special
    assert np.all(units(got[rest], reference(name, x[rest], y[rest])) <= 2.5)


@dtypes
def test_logaddexp2_keeps_infinities_and_exact_sums(dtype: np.dtype) -> None:
    x, y = grid(dtype)
    with np.errstate(all="ignore"):
        got, want = run("logaddexp2", x, y), np.logaddexp2(x, y)
    odd = ~np.isfinite(want)
    assert np.array_equal(bits(got[odd]), bits(want[odd]))
    whole = np.arange(-100, 100).astype(dtype)
    assert np.array_equal(run("logaddexp2", whole, whole), whole + 1)


@dtypes
def test_exact_powers_are_exact(dtype: np.dtype) -> None:
    base, exponent = (v.ravel() for v in np.meshgrid(np.arange(1.0, 33.0), np.arange(0.0, 12.0)))
    exact = base**exponent
    fits = exact <= 2.0 ** (np.finfo(dtype).nmant + 1)
    base, exponent, exact = (v[fits].astype(dtype) for v in (base, exponent, exact))
    assert np.array_equal(run("power", base, exponent), exact)
    assert np.array_equal(run("power", -base, exponent), np.where(exponent % 2 == 1, -exact, exact))
    assert np.array_equal(run("power", base * base, np.full_like(base, 0.5)), base)
    assert np.array_equal(run("hypot", 3 * base, 4 * base), 5 * base)


@names
@dtypes
@pytest.mark.parametrize("features", ["x86-64-v2", "x86-64-v3"])
def test_bits_depend_neither_on_width_nor_on_processor(
    name: str, dtype: np.dtype, features: str
) -> None:
    for x, y in (*pairs(dtype, 3000), grid(dtype)):
        want = bits(run(name, x, y))
        for width in (1, 2, WIDTH[dtype]):
            assert np.array_equal(bits(compiled(name, dtype, width, features)(x, y)), want), width
