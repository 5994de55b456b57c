"""Products of pairs of small matrices: exact where NumPy is, edges of vectors, matrices that lie anyhow."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.codegen.matmul.narrow import lies
from jitla.fusion import Layout, pair_strides
from tests.codegen.driver import BACKEND

DTYPES = ["f8", "f4", "c16", "c8", "i8", "i4", "u2", "i1"]
SIZES = [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4), (3, 4, 1), (1, 5, 7), (5, 6, 3), (9, 2, 13), (7, 16, 5),
         (16, 16, 16), (16, 1, 1), (33, 4, 4), (3, 32, 11)]
COUNT = 5


@pytest.fixture(scope="module")
def llvm() -> LlvmBackend:
    return BACKEND


def layout(X):
    return Layout(X.shape, X.strides)


def run(llvm, A, B, out):
    pairs = pair_strides(layout(A), layout(B), layout(out), out.itemsize)
    made = llvm.pairs(A.dtype, pairs)
    llvm.launch(made(pairs), A, B, out)
    return out


def numbers(rng, shape, dtype):
    found = rng.integers(-9, 9, shape)
    return (found + 1j * rng.integers(-9, 9, shape) if dtype[0] == "c" else found).astype(dtype)


def layouts(X):
    """The same stack, lying otherwise."""
    gap = np.zeros((len(X), X.shape[1], X.shape[2] + 3), X.dtype)
    gap[:, :, :X.shape[2]] = X
    far = np.zeros((len(X), 2 * X.shape[1], 2 * X.shape[2]), X.dtype)
    far[:, ::2, ::2] = X[:, ::-1, ::-1]
    return [X, np.ascontiguousarray(X.transpose(0, 2, 1)).transpose(0, 2, 1), gap[:, :, :X.shape[2]],
            far[:, ::2, ::2][:, ::-1, ::-1], np.asfortranarray(X), np.broadcast_to(X[1], X.shape)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_whole_numbers_are_exact(llvm, sizes, dtype):
    m, k, n = sizes
    rng = np.random.default_rng(m + k + n)
    lefts = layouts(numbers(rng, (COUNT, m, k), dtype))
    rights = layouts(numbers(rng, (COUNT, k, n), dtype))
    chosen = [(i, 0) for i in range(6)] + [(0, j) for j in range(1, 6)] if dtype == "f8" else [(0, 0)]
    for i, j in [*chosen, (1, 1), (3, 3)]:
        room = np.full((COUNT + 2, m, n), 7, dtype)
        assert (run(llvm, lefts[i], rights[j], room[1:-1]) == lefts[i] @ rights[j]).all()
        assert (room[[0, -1]] == 7).all()


@pytest.mark.parametrize("dtype", ["f8", "c8", "i2"])
def test_stacks_of_stacks_and_lone_matrices(llvm, dtype):
    rng = np.random.default_rng(1)
    A, B = numbers(rng, (4, 6, 3, 5), dtype), numbers(rng, (4, 6, 5, 2), dtype)
    for X, Y in ((A, B), (A[:, ::-1], B), (A[::-1], B), (A[0, 0], B), (A, B[0, 0]), (A[0], B), (A, B[:, :1]),
                 (A[:, :1], B[:1]), (A[0, 0, 0], B), (A, B[0, 0, :, 0]), (A.swapaxes(2, 3), A)):
        wanted = X @ Y
        assert (run(llvm, X, Y, np.full(wanted.shape, 7, dtype)) == wanted).all()


def test_stacks_that_no_two_loops_reach():
    X = np.zeros((4, 6, 5, 3, 3))
    out = layout(X)
    assert pair_strides(layout(X), layout(X), out, 8) is not None
    assert pair_strides(layout(X), layout(X[:, :, :1]), out, 8) is None
    assert pair_strides(layout(X), layout(X), layout(X.copy("F")), 8) is None


def test_infinities_and_nans_are_those_of_numpy(llvm):
    rng = np.random.default_rng(2)
    values = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, -3.0])
    for sizes in ((2, 2, 2), (3, 3, 3), (4, 4, 5), (2, 9, 3)):
        m, k, n = sizes
        A, B = rng.choice(values, (200, m, k)), rng.choice(values, (200, k, n))
        A[::3], B[::4] = 0.0, -0.0
        with np.errstate(all="ignore"):
            wanted = np.zeros((200, m, n))
            for i in range(k):
                wanted += A[:, :, i, None] * B[:, i, None, :]
        made = run(llvm, A, B, np.empty((200, m, n)))
        same = (made == wanted) & (np.signbit(made) == np.signbit(wanted)) | np.isnan(made) & np.isnan(wanted)
        assert same.all()


def test_a_pair_does_not_depend_on_its_neighbours(llvm):
    rng = np.random.default_rng(3)
    A, B = rng.normal(size=(9, 7, 13)), rng.normal(size=(9, 13, 6))
    whole = run(llvm, A, B, np.empty((9, 7, 6)))
    for i in range(9):
        assert (run(llvm, A[i:i + 1], B[i:i + 1], np.empty((1, 7, 6)))[0] == whole[i]).all()


def test_how_a_matrix_lies():
    assert lies((32, 8), (3, 4), 8) == "c" and lies((8, 24), (3, 4), 8) == "t"
    assert lies((40, 8), (3, 4), 8) == "r" and lies((40, 16), (3, 4), 8) == "s" == lies((0, 0), (3, 4), 8)
    assert lies((99, 8), (1, 4), 8) == "c" and lies((8, 99), (3, 1), 8) == "c"
    assert lies((99, 24), (1, 4), 8) == "s" and lies((24, 99), (4, 1), 8) == "r"
