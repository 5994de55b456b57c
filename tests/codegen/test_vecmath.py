"""Vector math: accuracy, special values, flags and equal bits; NumPy's inner loops that kernels call."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

import jitla
from jitla.codegen.native import symbols
from jitla.codegen.vecmath.library import NEAR, definitions, emit_math, inline_math, supports
from tests.codegen.vecmath import (
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
    called,
    chosen_by,
    compiled,
    limit,
    overflow,
    points,
    reference,
    run,
    units,
    within,
)

# Functions of one argument: accuracy, monotonicity, symmetry, equal bits.

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


# Special values, exact points, overflow, huge arguments, flags


@dtypes
@pytest.mark.parametrize("name", PERIODIC)
def test_huge_arguments_are_reduced_exactly(name: str, dtype: np.dtype) -> None:
    rng = np.random.default_rng(4)
    info = np.finfo(dtype)
    x = 2.0 ** rng.uniform(10, info.maxexp - 0.01, 400)
    multiples = rng.integers(1, 2**21, 100) * np.pi / 2
    worst = [6381956970095103 * 2.0**797 if dtype == F64 else 16367173 * 2.0**72]
    edges = np.nextafter(2.0**20, [0, 2.0**20, 2.0**21])
    x = np.concatenate([x, multiples, worst, edges, [info.max]]).astype(dtype)
    with mpmath.workprec(1400):
        for value, got in zip(x, run(name, x), strict=True):
            want = getattr(mpmath, name)(mpmath.mpf(float(value)))
            unit = float(np.spacing(dtype.type(abs(float(want)))))
            assert abs(mpmath.mpf(float(got)) - want) / unit <= limit(name, dtype), value


@names
@dtypes
def test_the_processor_notices_what_numpy_warns_of(name: str, dtype: np.dtype) -> None:
    kinds = {"invalid value": 1, "divide by zero": 4, "overflow": 8}
    call = compiled(name, dtype, WIDTH[dtype])
    for value in (-np.inf, -1e30, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 1e30, 1e300, np.inf):
        with np.errstate(all="ignore"):
            x = np.full(WIDTH[dtype], value).astype(dtype)
        seen: list[str] = []
        note = partial(record, seen)
        with np.errstate(all="call", under="ignore", call=note):
            getattr(np, name)(x)
        for kind in seen:
            assert flags(call, x) & kinds[kind.removesuffix(" encountered")], (value, kind)


def record(seen: list[str], kind: str, _flag: int) -> None:
    """Keep what NumPy would warn of."""
    seen.append(kind)


def flags(call: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> int:
    """The processor's exception flags after the loop alone."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    out = np.empty_like(x)
    source, target = x.ctypes.data, out.ctypes.data
    libm.feclearexcept(63)
    call.raw(source, target, x.size)  # type: ignore[attr-defined]
    return int(libm.fetestexcept(63))


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


def test_offers_two_forms_of_the_same_text() -> None:
    symbol, text = emit_math("exp", F64, 4)
    assert f"define internal <4 x double> @{symbol}(<4 x double> %x)" in text
    numbers = count()
    lines, result = inline_math("exp", F64, 1, ["%a"], lambda hint: f"%{next(numbers)}")
    assert lines[-1].startswith(result)
    assert not any("br " in line for line in lines)
    assert not supports("gcd", F64)
    assert not supports("sin", F64)
    assert supports("sin", F64, defines=True)
    assert definitions("exp", F64, 4) == {}
    assert set(definitions("sin", F64, 4)) == {
        "jitla_digits", "jitla_turns", "jitla_sin_far", "jitla_sin_slow_f64x4", "far_sin_f64x4"
    }  # fmt: skip
    assert not supports("exp", np.dtype(np.float16))
    assert not supports("exp", np.dtype(">f8"))


@dtypes
@pytest.mark.parametrize("name", sorted(NEAR))
@pytest.mark.parametrize("width", [1, 2, 8, 16])
def test_short_code_is_asked_for_usual_numbers_only(name: str, dtype: np.dtype, width: int) -> None:
    info = np.finfo(dtype)
    usual = np.array([info.tiny, 0.7, 1.0, 3.0, info.max / 2], dtype)
    tiny = info.tiny / 2
    unusual = np.array([0.0, -0.0, tiny, -tiny, -1.0, -info.max, np.inf, -np.inf, np.nan, -np.nan], dtype)
    is_far = chosen_by(name, dtype, width)
    for x in usual:
        assert not is_far(np.full(width, x)), x
    for x in unusual:
        mixed = np.full(width, usual[1])
        mixed[-1] = x
        assert is_far(mixed), x


@dtypes
@pytest.mark.parametrize("name", sorted(NEAR))
def test_short_code_gives_the_same_bits(name: str, dtype: np.dtype) -> None:
    # one lane that is not usual makes the whole vector take the long code
    x = np.abs(np.random.default_rng(4).standard_normal(300).astype(dtype)) + dtype.type(1e-3)
    call, width = called(name, dtype, WIDTH[dtype]), WIDTH[dtype]
    for at in range(0, x.size - width, width):
        usual = x[at : at + width].copy()
        mixed = usual.copy()
        mixed[-1] = -1
        assert np.array_equal(bits(call(usual)), bits(run(name, usual)))
        assert np.array_equal(bits(call(mixed))[:-1], bits(call(usual))[:-1])
        assert np.isnan(call(mixed)[-1])


@pytest.mark.parametrize("at", [0, 3, 20, 39])
def test_kernels_take_the_long_code_where_it_is_needed(at: int) -> None:
    def function(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.log(x) * y, np.log10(x) + np.log2(y), y - 1

    x, y = np.linspace(0.1, 9, 40000), np.linspace(3, 0.2, 40000)
    with jitla.options(compile="sync"):
        fast = jitla.jit(function)
        usual = fast(x, y)
        for value in (0.0, 5e-324, np.inf, -2.0, np.nan):
            changed = x.copy()
            changed[at] = value
            with np.errstate(all="ignore"):
                made, wanted = fast(changed, y), function(changed, y)
            for m, w, u in zip(made, wanted, usual, strict=True):
                np.testing.assert_allclose(m[at], w[at], rtol=1e-15)
                assert np.array_equal(np.delete(m, at), np.delete(u, at))


# Functions of two arguments

two_arguments_names = pytest.mark.parametrize(
    "name", ["arctan2", "hypot", "power", "logaddexp", "logaddexp2"])
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
def test_functions_of_two_arguments_stay_within_the_promised_error(name: str, dtype: np.dtype) -> None:
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
def test_special_values_of_two_arguments_are_those_of_numpy(name: str, dtype: np.dtype) -> None:
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


@two_arguments_names
@dtypes
@pytest.mark.parametrize("features", ["x86-64-v2", "x86-64-v3"])
def test_bits_of_two_arguments_depend_neither_on_width_nor_on_processor(
    name: str, dtype: np.dtype, features: str
) -> None:
    for x, y in (*pairs(dtype, 3000), grid(dtype)):
        want = bits(run(name, x, y))
        for width in (1, 2, WIDTH[dtype]):
            assert np.array_equal(bits(compiled(name, dtype, width, features)(x, y)), want), width


# SciPy's functions


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
of_one = pytest.mark.parametrize("name", EXACT)
of_two = pytest.mark.parametrize("name", OF_TWO)


def scipys_points(name: str, dtype: np.dtype, count: int) -> np.ndarray:
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
def test_scipys_functions_stay_within_the_promised_error(name: str, dtype: np.dtype) -> None:
    x = scipys_points(name, dtype, 500)
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
def test_scipys_functions_are_monotone_on_neighbours(name: str, dtype: np.dtype) -> None:
    x = scipys_points(name, dtype, 20000)
    after = np.nextafter(x, dtype.type(np.inf))
    low, high = (run(name, v) for v in ((after, x) if name == "erfc" else (x, after)))
    assert np.all(low <= high), x[low > high][:5]


@dtypes
def test_erf_is_odd_in_every_bit(dtype: np.dtype) -> None:
    x = scipys_points("erf", dtype, 5000)
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
def test_bits_of_scipys_functions_depend_neither_on_width_nor_on_processor(
    name: str, dtype: np.dtype, features: str
) -> None:
    rng = np.random.default_rng(8)
    xs = (scipys_points(name, dtype, 500),)
    if name in OF_TWO:
        xs = (rng.normal(size=3000).astype(dtype), rng.exponential(size=3000).astype(dtype))
    want = bits(run(name, *xs))
    for width in (1, 2, WIDTH[dtype]):
        assert np.array_equal(bits(compiled(name, dtype, width, features)(*xs)), want), width


# NumPy's inner loops that kernels call

Loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch):
    """Let no loop be found."""
    monkeypatch.setattr(symbols, "_loop_pair", lambda name: None)


@pytest.mark.parametrize("name", symbols.LOOP_SYMBOLS)
def test_a_loop_is_that_of_the_ufunc(name: str) -> None:
    ufunc, types = symbols.LOOP_SYMBOLS[name]
    at = symbols.loop_symbols_in([b"other", name.encode()])[name]
    code, data = (ctypes.c_void_p * 2).from_address(at)
    x = np.random.default_rng(3).standard_normal(1001).astype(types[0])
    n = np.arange(1001).astype(types[0]) % 9 - 4
    made = np.empty_like(x)
    places = (ctypes.c_void_p * 3)(x.ctypes.data, n.ctypes.data, made.ctypes.data)
    steps = (ctypes.c_ssize_t * 3)(*[x.itemsize] * 3)
    count = ctypes.c_ssize_t(len(x))
    Loop(code)(*[ctypes.addressof(a) for a in (places, count, steps)], data)
    assert made.tobytes() == ufunc(x, n).tobytes()


def test_what_code_does_not_name_is_not_looked_for() -> None:
    assert symbols.loop_symbols_in([b"jitla.numpy", b""]) == {}


def test_a_ufunc_that_is_made_in_another_way_has_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    find = symbols._loop_pair.__wrapped__
    assert find("jitla.numpy.power.f64") is not None
    monkeypatch.setitem(symbols.LOOP_SYMBOLS, "jitla.numpy.power.f64", (np.power, "dd->f"))
    assert find("jitla.numpy.power.f64") is None


def test_without_a_loop_powers_are_numpys(unknown: None) -> None:
    assert not supports("power", np.dtype("d"), defines=True)
    assert supports("exp", np.dtype("d"), defines=True)
    fast = jitla.jit(lambda x: x**3 + x**2.5, compile="sync")
    x = np.random.default_rng(1).random(1000)
    assert fast(x).tobytes() == (x**3 + x**2.5).tobytes()
    assert not fast.stats()["failures"]
