"""Short ways of division are exact: near multiples, at the limits, for all magnitudes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from jitla.hops import Meta, const, leaf, make
from tests.codegen.driver import run_cells

N = 2051


def floats(dtype: np.dtype, rng: np.random.Generator) -> list[np.ndarray]:
    """Return arrays of several magnitudes."""
    normal, wide = rng.standard_normal(N), 10 if dtype.itemsize == 4 else 290
    powers = 10.0 ** rng.integers(-wide, wide, N)
    eighths = rng.integers(-50, 50, N) / 8
    return [a.astype(dtype) for a in (normal, normal * powers, eighths, eighths * 0.1)]


def compare(x: np.ndarray, y: np.ndarray) -> None:
    """Compare the three divisions of `x` by `y` with NumPy, signs of zeros included."""
    a, b = (leaf(i, Meta((N,), x.dtype)) for i in range(2))
    for name in ("remainder", "floor_divide", "fmod"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = getattr(np, name)(x, y)
        got = np.empty_like(want)
        run_cells([make(name, (a, b))], [x, y], [got])
        np.testing.assert_array_equal(got, want, err_msg=name)
        if x.dtype.kind == "f":
            there = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(want)[there])


@pytest.mark.parametrize("dtype", [np.dtype("f8"), np.dtype("f4")], ids=str)
def test_float_remainders(dtype: np.dtype) -> None:
    rng = np.random.default_rng(1)
    for x in floats(dtype, rng):
        for y in floats(dtype, rng):
            compare(x, y)
            near = (y * rng.integers(1, 2**20, N)).astype(dtype)
            compare(np.nextafter(near, rng.choice([-np.inf, np.inf], N).astype(dtype)), y)
            compare(near, y)


@pytest.mark.parametrize("dtype", [np.dtype("i8"), np.dtype("u8")], ids=str)
@pytest.mark.parametrize("bits", [3, 20, 40, 50, 51, 52, 53, 62])
def test_integer_quotients(dtype: np.dtype, bits: int) -> None:
    rng = np.random.default_rng(bits)
    low = -(2**bits) if dtype.kind == "i" else 0
    x = rng.integers(low, 2**bits, N, dtype)
    for small in (3, bits // 2, bits):
        y = rng.integers(-(2**small) if dtype.kind == "i" else 0, 2**small, N, dtype)
        compare(x, y)
        compare(x // np.where(y == 0, 1, y) * y, y)


def by_scalar(x: np.ndarray, y: np.generic, constant: bool) -> None:
    """Compare the divisions of `x` by the scalar `y`, an operand or a `constant`, with NumPy."""
    a = leaf(0, Meta((N,), x.dtype))
    for name in ("remainder", "floor_divide", "fmod"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = getattr(np, name)(x, y)
        b = const(y, x.dtype) if constant else leaf(1, Meta((), x.dtype), "scalar")
        got = np.empty_like(want)
        run_cells([make(name, (a, b))], [x] if constant else [x, y], [got])
        np.testing.assert_array_equal(got, want, err_msg=f"{name} {y}")


@pytest.mark.parametrize("code", list("bBhHiIqQ"))
def test_integers_by_a_scalar(code: str) -> None:
    dtype = np.dtype(code)
    rng, info = np.random.default_rng(5), np.iinfo(dtype)
    places = 8 * dtype.itemsize - (dtype.kind == "i")
    divisors = {0, 1, 2, 3, 7, 10, info.max, info.max - 1, info.max // 2 + 1}
    divisors |= {2**k + d for k in (5, 12, 21, 30, 48, 49, 50, 51, 62) if k < places for d in (-1, 0, 1)}
    if dtype.kind == "i":
        divisors |= {-d for d in divisors} | {info.min, info.min + 1}
    for y in sorted(divisors):
        for bits in {3, min(places, 31), min(places, 48), min(places, 49), places}:
            low = -(2**bits) if dtype.kind == "i" else 0
            x = rng.integers(low, 2**bits, N, dtype, endpoint=False)
            near = (x.astype(object) // (y or 1) * (y or 1)).tolist()
            x[N // 2:] = [min(max(v + k % 3 - 1, low), 2**bits - 1) for k, v in enumerate(near[N // 2:])]
            x[:4] = info.min, info.max, 0, 1
            if bits < places:
                x[:2] = low, 2**bits - 1
            by_scalar(x, dtype.type(y), constant=bits == places and abs(y) < 8)


@pytest.mark.parametrize("dtype", [np.dtype("f8"), np.dtype("f4")], ids=str)
@pytest.mark.parametrize("to", [np.dtype(c) for c in "bhiqBHQ"], ids=str)
def test_casts_to_integers(dtype: np.dtype, to: np.dtype) -> None:
    rng = np.random.default_rng(3)
    for x in [*floats(dtype, rng), *(rng.standard_normal(N).astype(dtype) * 2.0**k for k in (50, 51, 52))]:
        for special in ((), (np.nan, np.inf, -np.inf, -0.0, 2.0**63, -(2.0**63), 2.0**31, 0.5, -0.5)):
            x = x.astype(dtype)
            x[100:100 + len(special)] = special
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want = x.astype(to)
            got = np.empty(N, to)
            run_cells([make("cast", (leaf(0, Meta((N,), dtype)),), dtype=to)], [x], [got])
            np.testing.assert_array_equal(got, want)
