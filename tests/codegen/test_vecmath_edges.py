"""Special values, exact points, overflow, huge arguments and flags of the vector math."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from functools import partial
from itertools import count

import mpmath
import numpy as np
import pytest

from jitla.codegen.vecmath import definitions, emit_math, inline_math, supports
from tests.codegen.vecmath_loop import compiled
from tests.codegen.vecmath_points import (
    F32,
    F64,
    OF_ONE,
    PERIODIC,
    WIDTH,
    bits,
    limit,
    overflow,
    reference,
    run,
    units,
)

names = pytest.mark.parametrize("name", OF_ONE)
dtypes = pytest.mark.parametrize("dtype", [F64, F32], ids=str)


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
    symbol, text = emit_math("exp", F64, 4, False)
    assert f"define internal <4 x double> @{symbol}(<4 x double> %x)" in text
    numbers = count()
    lines, result = inline_math("exp", F64, 1, True, ["%a"], lambda hint: f"%{next(numbers)}")
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
