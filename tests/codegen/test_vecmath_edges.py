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

import jitla
from jitla.codegen.vecmath.library import (
    NEAR,
    definitions,
    emit_math,
    inline_math,
    supports,
)
from tests.codegen.vecmath_loop import compiled
from tests.codegen.vecmath_near import called, chosen_by
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
