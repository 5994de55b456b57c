"""Accuracy, special values, symmetry, monotonicity and width of the vector math functions.

Knows: the limits that users are promised. Must not know: how a function is computed.
"""

from __future__ import annotations

from itertools import count

import mpmath
import numpy as np
import pytest
from tests.codegen.vecmath_loop import compiled

from jitla.codegen.vecmath import FUNCTIONS, emit_math, inline_math, supports

F64, F32 = np.dtype(np.float64), np.dtype(np.float32)
WIDTH = {F64: 4, F32: 8}
ODD = {"expm1": False, "tanh": True, "sinh": True, "arcsinh": True, "arctanh": True,
       "arcsin": True, "arctan": True, "sin": True, "tan": True, "cbrt": True}  # fmt: skip
EVEN = ("cosh", "cos")
ONE_UNIT = ("exp", "exp2", "log", "log2", "log10")
DOMAIN = {"log": (0.0, np.inf), "log2": (0.0, np.inf), "log10": (0.0, np.inf),
          "log1p": (-1.0, np.inf), "arccosh": (1.0, np.inf), "arcsin": (-1.0, 1.0),
          "arccos": (-1.0, 1.0), "arctanh": (-1.0, 1.0)}  # fmt: skip
FALLING = ("arccos",)
PERIODIC = ("sin", "cos", "tan")
MPMATH = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh",
          "arccosh": "acosh", "arctanh": "atanh"}  # fmt: skip

names = pytest.mark.parametrize("name", FUNCTIONS)
dtypes = pytest.mark.parametrize("dtype", [F64, F32], ids=str)


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


def run(name: str, x: np.ndarray) -> np.ndarray:
    """The compiled function."""
    return compiled(name, x.dtype, WIDTH[x.dtype])(x)


def reference(name: str, x: np.ndarray) -> np.ndarray:
    """NumPy in extended precision."""
    with np.errstate(all="ignore"):
        return getattr(np, name)(x.astype(np.longdouble))


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


@names
@dtypes
def test_stays_within_the_promised_error(name: str, dtype: np.dtype) -> None:
    x = points(name, dtype)
    error = units(run(name, x), reference(name, x))
    worst = np.argmax(np.where(np.isnan(error), np.inf, error))
    assert error[worst] <= limit(name, dtype), (x[worst], error[worst])


@names
def test_stays_within_the_error_on_every_997th_float32(name: str) -> None:
    patterns = np.arange(0, 2**32, 997, dtype=np.uint32).view(np.float32)
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
    function = {"exp2": lambda v: mpmath.mpf(2) ** v, "log2": lambda v: mpmath.log(v, 2)}.get(
        name, getattr(mpmath, MPMATH.get(name, name), None)
    )
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


@names
@dtypes
def test_is_odd_or_even_in_every_bit(name: str, dtype: np.dtype) -> None:
    x = points(name, dtype)
    if ODD.get(name):
        assert np.array_equal(bits(run(name, -x)), bits(-run(name, x)))
    if name in EVEN:
        assert np.array_equal(bits(run(name, -x)), bits(run(name, x)))


@names
@dtypes
def test_special_values_are_those_of_numpy(name: str, dtype: np.dtype) -> None:
    info = np.finfo(dtype)
    size = [0.0, info.smallest_subnormal, info.tiny, 1.0, info.max, np.inf, np.nan]
    size += [np.nextafter(dtype.type(1), dtype.type(2)), 2.0, 1e30]
    x = np.array([*size, *(-v for v in size)], dtype)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x)
    got = run(name, x)
    special = ~np.isfinite(want) | (want == 0) | (np.abs(want) == 1)
    assert np.array_equal(bits(got[special]), bits(want[special]))
    rest = ~special
    assert np.all(units(got[rest], reference(name, x[rest])) <= limit(name, dtype))
    assert np.array_equal(np.signbit(got[rest]), np.signbit(want[rest]))


@dtypes
def test_exact_points_are_exact(dtype: np.dtype) -> None:
    info = np.finfo(dtype)
    powers = np.arange(info.minexp - info.nmant, info.maxexp)
    exact = np.ldexp(dtype.type(1), powers)
    assert np.array_equal(run("exp2", powers.astype(dtype)), exact)
    assert np.array_equal(run("log2", exact), powers.astype(dtype))
    tens = np.arange(0, 23 if dtype == F64 else 11)
    assert np.array_equal(run("log10", dtype.type(10) ** tens.astype(dtype)), tens)
    for name, at, value in [
        ("exp", 0.0, 1.0), ("log", 1.0, 0.0), ("cosh", 0.0, 1.0), ("arccos", 1.0, 0.0),
        ("arccos", -1.0, np.pi), ("arcsin", 1.0, np.pi / 2), ("arctan", 1.0, np.pi / 4),
        ("arctan", np.inf, np.pi / 2), ("arccosh", 1.0, 0.0), ("tanh", 30.0, 1.0),
        ("expm1", -60.0, -1.0), ("exp", 1.0, np.e),
    ]:  # fmt: skip
        assert run(name, np.array([at], dtype))[0] == dtype.type(value), name


@dtypes
def test_overflow_and_underflow_happen_where_they_should(dtype: np.dtype) -> None:
    for name in ("exp", "exp2", "expm1", "sinh", "cosh"):
        edge = np.log(overflow(dtype))
        edge = {"exp2": edge / np.log(np.longdouble(2))}.get(name, edge)
        edge = edge + np.log(np.longdouble(2)) if name in ("sinh", "cosh") else edge
        near = edge.astype(dtype) * (1 + np.arange(-4, 5) * np.finfo(dtype).eps).astype(dtype)
        want = reference(name, near)
        clear = np.abs(want / overflow(dtype) - 1) > 2 * np.finfo(dtype).eps
        inf = np.isinf(run(name, near))
        assert np.array_equal(inf[clear], (want > overflow(dtype))[clear]), name


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


def test_offers_two_forms_of_the_same_text() -> None:
    symbol, text = emit_math("exp", F64, 4, False)
    assert f"define internal <4 x double> @{symbol}(<4 x double> %x)" in text
    numbers = count()
    lines, result = inline_math("exp", F64, 1, True, ["%a"], lambda hint: f"%{next(numbers)}")
    assert lines[-1].startswith(result)
    assert not any("br " in line for line in lines)
    assert not supports("power", F64)
    assert not supports("exp", np.dtype(np.float16))
    assert not supports("exp", np.dtype(">f8"))
