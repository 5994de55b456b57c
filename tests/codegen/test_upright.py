"""Narrow rows that lie column by column: products like those row by row, NumPy's indices of extremes."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.codegen import LlvmBackend
from jitla.fusion import COLUMNWISE_PREFIX
from jitla.recompile import row_binding as binding
from tests.codegen.driver import BACKEND, drive
from tests.codegen.test_targets import RUNS

DTYPES = ["f8", "f4"]
ROWS = [1, 3, 7, 8, 9, 17, 31, 33, 67]
rng = np.random.default_rng(11)


@pytest.fixture(scope="module", params=[None, *RUNS], ids=lambda t: t.cpu if t else "host")
def llvm(request: pytest.FixtureRequest) -> LlvmBackend:
    return LlvmBackend(launch=drive, threads=1, target=request.param) if request.param else BACKEND


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_have_the_bits_of_those_row_by_row(llvm, dtype):
    for rows in ROWS:
        for length, columns in ((1, 2), (8, 9), (27, 32)):
            X = rng.normal(size=(rows, length + 2)).astype(dtype)[:, 1:1 + length]
            V = rng.normal(size=(length, columns + 1)).astype(dtype)[:, :columns]
            sizes = rows, length, X.strides[0], V.strides[0]
            along, down = np.empty((rows, columns), dtype), np.full((columns * rows + 2,), 7, dtype)
            made, other = (
                llvm.product(form, X.dtype, columns) for form in ("dot", COLUMNWISE_PREFIX + "dot"))
            llvm.launch(made(*sizes), X, V, along)
            llvm.launch(other(*sizes), X, V, down[1:-1])
            assert (down[1:-1].reshape(columns, rows).T == along).all(), (rows, length, columns)
            assert down[0] == down[-1] == 7


@pytest.mark.parametrize("form", ["argmin", "argmax"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_extreme_and_the_first_nan(llvm, dtype, form):
    for rows in ROWS:
        for columns in (1, 2, 5, 32):
            X = rng.integers(-2, 3, (rows, columns)).astype(dtype)
            X[rng.random(X.shape) < 0.2] = np.nan
            X[rng.random(X.shape) < 0.1] = np.inf
            room, lying = np.full(rows + 2, -7, np.intp), np.asfortranarray(X)
            made = llvm.product(COLUMNWISE_PREFIX + form, X.dtype, 1)
            llvm.launch(made(rows, columns, 0, 0), lying, lying, room[1:-1])
            assert room[1:-1].tolist() == getattr(X, form)(axis=1).tolist()
            assert room[0] == room[-1] == -7


def nearest(X, C):
    D = (X ** 2).sum(axis=1)[:, None] - 2 * X @ C.T + (C ** 2).sum(axis=1)
    return D.argmin(axis=1), D.min(axis=1)


def odds(X, C):
    P = X @ C.T
    return P.max(axis=1, keepdims=True), (P * P + 1.0).sum(axis=1)


def scores(X, C):
    P = X @ C.T
    return P, P.argmax(axis=1)


def even(X, C):
    return (X @ C.T + 1.0).sum(axis=1)


@pytest.mark.parametrize(("function", "centres", "upright"), [
    (nearest, 10, True), (odds, 5, True), (nearest, 40, False), (scores, 10, False), (even, 8, False)])
def test_values_that_only_rows_are_asked_of_lie_so(monkeypatch, function, centres, upright):
    found = []
    whole = binding.column_major_values
    monkeypatch.setattr(binding, "column_major_values", lambda *a: found.append(whole(*a)) or found[-1])
    X, C = rng.normal(size=(9001, 12)), rng.normal(size=(centres, 12))
    X[5000, 3] = np.nan
    made = jitla.jit(function, compile="sync")(X, C)
    assert any(found) == upright
    for got, wanted in zip(made, function(X, C), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10)
