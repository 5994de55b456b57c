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
    """Run a product; what "sum" adds to begins with zeros."""
    columns = v.shape[1] if v.ndim > 1 else 1
    made = llvm.product(form, X.dtype, columns)
    if form == "sum":
        out[...] = 0.0
    llvm.launch(made(len(X), X.shape[1], X.strides[0], v.strides[0]), X, v, out)
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
    # of columns: added to what is there, and written over it
    room = np.full(m + 2, 7.0, dtype)
    assert (run(llvm, "across", X, v, room[1:-1]) == X @ v + 7).all() and room[0] == room[-1] == 7.0
    room = np.full(n + 2, 7.0, dtype)
    assert (run(llvm, "down", X, p, room[1:-1]) == X.T @ p).all() and room[0] == room[-1] == 7.0


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_running_sums_have_numpys_bits(llvm, shape, gap, dtype):
    m, n = shape
    X = np.random.default_rng(n).standard_normal((m, n + gap)).astype(dtype)[:, :n]
    X[:, :1] = -0.0
    room = np.full((m + 2, n), 7.0, dtype)
    run(llvm, "scan", X, np.ones(1, dtype), room[1:-1])
    assert room[1:-1].tobytes() == np.cumsum(X, axis=1).tobytes() and (room[[0, -1]] == 7.0).all()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("columns", [*range(2, 18), 20, 23, 24, 25, 31, 33, 47, 63])
def test_whole_numbers_are_exact_with_several_vectors(llvm, columns, dtype):
    rng = np.random.default_rng(columns)
    for m, n in SHAPES:
        X = rng.integers(-9, 9, (m, n + 1)).astype(dtype)[:, :n]
        V = rng.integers(-9, 9, (n, columns + columns % 3)).astype(dtype)[:, :columns]
        P = rng.integers(-9, 9, (m, columns + columns % 2)).astype(dtype)[:, :columns]
        room = np.full((m + 2, columns), 7.0, dtype)
        assert (run(llvm, "dot", X, V, room[1:-1]) == X @ V).all()
        assert (room[[0, -1]] == 7.0).all()
        room = np.full((n + 2, columns), 7.0, dtype)
        assert (run(llvm, "sum", X, P, room[1:-1]) == X.T @ P).all()
        assert (room[[0, -1]] == 7.0).all()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_vectors_are_packed_from_wherever_they_lie(llvm, dtype):
    V = np.arange(24.0).astype(dtype).reshape(6, 4)
    for W in (V, V.T, V[::-1, ::2], np.broadcast_to(V[0], (6, 4)), V[:, 1:2], V[:0]):
        out = np.full(W.shape, 7.0, dtype)
        made = llvm.product("pack", W.dtype, W.shape[1])
        llvm.launch(made(*W.shape, *W.strides), W, W, out)
        assert (out == W).all()


@pytest.mark.parametrize("columns", [2, 5, 11, 40])
def test_a_row_of_results_does_not_depend_on_its_neighbours(llvm, columns):
    rng = np.random.default_rng(columns)
    X, V = rng.normal(size=(11, 29)), rng.normal(size=(29, columns))
    whole = run(llvm, "dot", X, V, np.empty((11, columns)))
    alone = [run(llvm, "dot", X[i:i + 1], V, np.empty((1, columns)))[0] for i in range(11)]
    assert (whole == alone).all()


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
