"""Products of a block of rows: exact where NumPy is, tails, distances between rows, order of sums."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from tests.codegen.driver import BACKEND

SHAPES = [(1, 1), (1, 8), (2, 3), (3, 4), (4, 5), (5, 15), (7, 16), (8, 17), (9, 31), (33, 100), (4, 0)]


@pytest.fixture(scope="module")
def llvm() -> LlvmBackend:
    return BACKEND


def run(llvm, form, X, v, out):
    made = llvm.product(form, X.dtype)
    llvm.launch(made(len(X), X.shape[1], X.strides[0]), X, v, out)
    return out


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_whole_numbers_are_exact(llvm, shape, gap, dtype):
    rng = np.random.default_rng(shape[1])
    m, n = shape
    X = rng.integers(-9, 9, (m, n + gap)).astype(dtype)[:, :n]
    v, p = rng.integers(-9, 9, n).astype(dtype), rng.integers(-9, 9, m).astype(dtype)
    room = np.full(m + 2, 7.0, dtype)
    assert (run(llvm, "dot", X, v, room[1:-1]) == X @ v).all() and room[0] == room[-1] == 7.0
    room = np.full(n + 2, 7.0, dtype)
    assert (run(llvm, "sum", X, p, room[1:-1]) == X.T @ p).all() and room[0] == room[-1] == 7.0


@pytest.mark.parametrize("form", ["dot", "sum"])
def test_a_row_does_not_depend_on_its_neighbours(llvm, form):
    rng = np.random.default_rng(1)
    X, v = rng.normal(size=(11, 29)), rng.normal(size=29)
    if form == "dot":
        whole = run(llvm, form, X, v, np.empty(11))
        alone = [run(llvm, form, X[i:i + 1], v, np.empty(1))[0] for i in range(11)]
        assert whole.tolist() == alone
    else:
        weights = rng.normal(size=11)
        whole = run(llvm, form, X, weights, np.empty(29))
        half = run(llvm, form, X[:, :13], weights, np.empty(13))
        assert whole[:12].tolist() == half[:12].tolist()


def test_errors_stay_within_the_bound_of_a_sum(llvm):
    rng = np.random.default_rng(2)
    X, v = rng.normal(size=(40, 1000)), rng.normal(size=1000)
    exact = (X.astype(np.longdouble) * v).sum(axis=1)
    bound = 1000 * np.finfo(float).eps * (np.abs(X) * np.abs(v)).sum(axis=1)
    assert (np.abs(run(llvm, "dot", X, v, np.empty(40)) - exact) <= bound / 8).all()
