"""Short ways of division are exact: near multiples, at the limits, for all magnitudes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from jitla.hops import Meta, leaf, make
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
