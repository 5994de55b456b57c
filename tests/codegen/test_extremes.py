"""Where rows have their extremes: NumPy's indices at every length, for ties, zeros, NaN and infinities."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.codegen.matmul.argmin import (
    GROUP,
    KEPT,
    STRETCH,
    extreme_text,
)
from tests.codegen.driver import BACKEND, drive
from tests.codegen.test_targets import RUNS, V4

DTYPES = ["f8", "f4", *(kind + size for kind in "iu" for size in "8421"), "?"]
LENGTHS = [*range(1, 36), *(n + d for n in (GROUP, STRETCH, 2 * STRETCH) for d in (-1, 0, 1, 5))]
rng = np.random.default_rng(8)


@pytest.fixture(scope="module", params=[None, *RUNS], ids=lambda t: t.cpu if t else "host")
def llvm(request: pytest.FixtureRequest) -> LlvmBackend:
    return LlvmBackend(launch=drive, threads=1, target=request.param) if request.param else BACKEND


def check(llvm, X):
    """Compare both forms with NumPy's, and see that nothing else is written."""
    for form in ("argmin", "argmax"):
        room = np.full(len(X) + 2, -7, np.intp)
        made = llvm.product(form, X.dtype, 1)
        llvm.launch(made(len(X), X.shape[1], X.strides[0], 0), X, X, room[1:-1])
        assert room[1:-1].tolist() == getattr(X, form)(axis=1).tolist(), (form, X.dtype, X.shape)
        assert room[0] == room[-1] == -7


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_length(llvm, dtype):
    for n in LENGTHS:
        X = np.abs(rng.normal(0.0, 50.0, (6, n + n % 3))).astype(dtype)[:, :n]
        check(llvm, X)
        check(llvm, X[:1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_of_several(llvm, dtype):
    for n in LENGTHS:
        check(llvm, rng.integers(0, 3, (9, n)).astype(dtype))
        check(llvm, np.ones((2, n), dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_wherever_it_is(llvm, dtype):
    for n in (3, 9, 33, 70, STRETCH + 3):
        least = np.ones((n, n), dtype)
        np.fill_diagonal(least, 0)
        check(llvm, least)
        check(llvm, (1 - least.astype("i1")).astype(dtype))


@pytest.mark.parametrize("dtype", ["i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"])
def test_the_limits_of_integers(llvm, dtype):
    info = np.iinfo(dtype)
    for n in (2, 5, 40, 600):
        X = np.full((3, n), info.max, dtype)
        X[1] = info.min
        X[2, n // 2] = info.min
        check(llvm, X)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_the_first_nan_wins(llvm, dtype):
    for n in LENGTHS:
        X = rng.normal(size=(n + 3, n)).astype(dtype)
        X[np.arange(n), np.arange(n)] = np.nan
        X[np.arange(n), np.arange(n)[::-1]] = -np.nan
        X[n], X[n + 1] = np.nan, -np.inf
        X[n + 1, -1] = np.nan
        check(llvm, X)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_zeros_are_equal_and_infinities_numbers(llvm, dtype):
    for n in LENGTHS:
        X = np.zeros((6, n), dtype)
        X[0, n // 2:] = -0.0
        X[1, :n // 2] = -0.0
        X[2], X[3] = np.inf, -np.inf
        X[4, n // 2], X[5, n // 2] = -np.inf, np.inf
        check(llvm, X)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u4"])
def test_stretches_whose_indices_are_kept(llvm, dtype):
    for n in (KEPT - 1, KEPT, KEPT + 1, 2 * KEPT + 3):
        X = np.full((8, n), 3, dtype)
        for i, at in enumerate((0, KEPT - 2, KEPT - 1, KEPT, n - 1)):
            X[i, at % n] = 1
            X[i, (at + 5) % n] = 5
        X[5, [7, -1]] = 1, 1
        X[6, [n // 3, n // 2]] = 5, 5
        if dtype[0] == "f":
            X[7, [n // 2, n - 1]] = np.nan, np.nan
        check(llvm, X)


@pytest.mark.parametrize("form", ["argmin", "argmax"])
def test_code_for_wider_vectors_is_emitted(form):
    far = LlvmBackend(launch=drive, threads=1, target=V4)
    for dtype in DTYPES:
        assert len(far.jit.compile(extreme_text(form, np.dtype(dtype), V4))) > 500, dtype
