"""Products of a block of rows with a wide matrix: exact where NumPy is, edges of panels, order of sums."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.fusion import FROM_PANELS, PACK_ONLY, Tile, panel_bytes
from tests.codegen.driver import BACKEND

SHAPES = [(1, 1, 1), (1, 7, 64), (4, 4, 24), (5, 3, 12), (3, 8, 8), (7, 300, 13), (9, 513, 65), (4, 0, 5),
          (33, 257, 100), (8, 256, 16), (6, 2, 17), (0, 5, 70)]


@pytest.fixture(scope="module")
def llvm() -> LlvmBackend:
    return BACKEND


def run(llvm, A, B, out, adds=0, fetches=False):
    made = llvm.wide(A.dtype, fetches)
    tile = Tile(*A.shape, B.shape[1], *A.strides, *B.strides, out.strides[0], adds, cold=fetches)
    llvm.launch(made(tile), A, B, out)
    return out


def layouts(X):
    """The same values, lying otherwise."""
    gap = np.zeros((X.shape[0], X.shape[1] + 3), X.dtype)
    gap[:, :X.shape[1]] = X
    return [X, np.asfortranarray(X), gap[:, :X.shape[1]], np.ascontiguousarray(X[:, ::-1])[:, ::-1]]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", SHAPES)
def test_whole_numbers_are_exact(llvm, shape, dtype):
    rng = np.random.default_rng(shape[1])
    m, k, n = shape
    X = rng.integers(-9, 9, (m, k)).astype(dtype)
    Y = rng.integers(-9, 9, (k, n)).astype(dtype)
    for A in layouts(X):
        for B in layouts(Y):
            room = np.full((m + 2, n + 2), 7.0, dtype)
            out = room[1:-1, 1:-1]
            assert (run(llvm, A, B, out) == X @ Y).all()
            assert (run(llvm, A, B, out, adds=1) == 2 * (X @ Y)).all()
            assert (room[[0, -1]] == 7.0).all() and (room[:, [0, -1]] == 7.0).all()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_fetched_ahead_changes_nothing(llvm, shape, dtype):
    rng = np.random.default_rng(shape[0])
    m, k, n = shape
    X, Y = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
    for A in layouts(X):
        for B in layouts(Y):
            for adds in (0, 1):
                given, out = (run(llvm, A, B, np.ones((m, n), dtype), adds, f) for f in (False, True))
                assert (out == given).all()


@pytest.mark.parametrize("columns", [5, 24, 64, 131])
def test_a_result_depends_on_its_row_and_its_column_only(llvm, columns):
    rng = np.random.default_rng(columns)
    A, B = rng.normal(size=(11, 700)), rng.normal(size=(700, columns))
    whole = run(llvm, A, B, np.empty((11, columns)))
    for i in range(11):
        assert (run(llvm, A[i:i + 1], B, np.empty((1, columns)))[0] == whole[i]).all()
    for j in range(columns):
        assert (run(llvm, A, B[:, j:j + 1], np.empty((11, 1)))[:, 0] == whole[:, j]).all()


def test_sums_are_as_good_as_those_of_blas(llvm):
    rng = np.random.default_rng(3)
    A, B = rng.normal(size=(20, 900)), rng.normal(size=(900, 70))
    exact = A.astype(np.longdouble) @ B.astype(np.longdouble)
    bound = 900 * 2.0**-53 * (np.abs(A) @ np.abs(B))
    assert (np.abs(run(llvm, A, B, np.empty((20, 70))) - exact) <= bound).all()


def test_infinities_meet_no_zeros_of_padding():
    llvm = LlvmBackend()
    A, B = np.full((5, 3), np.inf), np.full((3, 66), 2.0)
    out = np.empty((5, 66))
    made = llvm.wide(A.dtype)
    tile = Tile(5, 3, 66, *A.strides, *B.strides, out.strides[0])
    assert llvm.launch(made(tile), A, B, out) == 0  # no flag
    assert (out == np.inf).all()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", SHAPES)
def test_panels_that_are_made_once(llvm, shape, dtype):
    rng = np.random.default_rng(shape[2])
    m, k, n = shape
    A, Y = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
    made = llvm.wide(A.dtype)
    for B in layouts(Y):
        size = panel_bytes((k, n), A.itemsize)
        room = np.full(size + 64, 77, np.uint8)
        panels = room[8:8 + size]  # wherever it lies
        llvm.launch(made(Tile(0, k, n, 0, 0, *B.strides, 0, panels=PACK_ONLY)), B, B, panels)
        assert (room[:8] == 77).all() and (room[8 + size:] == 77).all()
        given = run(llvm, A, B, np.empty((m, n), dtype))
        out = np.empty((m, n), dtype)
        tile = Tile(*A.shape, n, *A.strides, 0, 0, out.strides[0], panels=FROM_PANELS)
        llvm.launch(made(tile), A, panels, out)
        assert (out == given).all()
