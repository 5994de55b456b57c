"""Cells that read operands across their rows: NumPy's bits in whole and partial tiles, wherever they lie."""

from __future__ import annotations

import numpy as np
import pytest

import jitla

SHAPES = [(2, 3), (7, 9), (8, 16), (64, 33), (129, 130), (257, 511), (300, 1040), (1, 700), (523, 17)]


def added(A, B):
    return A + B.T


def mixed(A, B):
    return np.where(B.T > A, A * 2, B.T - A)


def symmetric(A, B):
    S = B[:min(B.shape), :min(B.shape)]
    return (S + S.T) * 0.5, S.T < S


def in_place(A, B):
    A += B.T
    return A * B.T


def apart(A, B):
    return A[::2, ::3] + B.T[::2, ::3]


FUNCTIONS = [added, mixed, symmetric, in_place, apart]


def same(function, fast, A, B):
    mine, theirs = A.copy("K"), A.copy("K")
    made, wanted = fast(mine, B), function(theirs, B)
    if not isinstance(wanted, tuple):
        made, wanted = (made,), (wanted,)
    for a, b in zip((*made, mine), (*wanted, theirs), strict=True):
        assert a.dtype == b.dtype and a.strides == b.strides and a.tobytes("A") == b.tobytes("A")


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1", "c16"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_bits_are_those_of_numpy(function, dtype):
    if dtype == "c16" and function in (mixed, symmetric) or dtype in ("i2", "u1") and function is in_place:
        dtype = "f8"
    rng = np.random.default_rng(1)
    fast = jitla.jit(function)
    for n, m in SHAPES:
        A, B = (rng.integers(0, 99, s).astype(dtype) for s in ((n, m), (m, n)))
        for _ in range(2):
            same(function, fast, A, B)
        same(function, fast, A, np.concatenate([B, B], axis=1)[:, 1:n + 1])
        same(function, fast, A, B[::-1, ::-1])
    assert fast.stats().failures == 0


def test_axes_exchanged_further_out():
    rng = np.random.default_rng(2)
    fast = jitla.jit(lambda A, B: A - B.transpose(0, 2, 1) * 2.0)
    last = jitla.jit(lambda A, B: A - B.transpose(2, 1, 0) * 2.0)
    for a, n, m in ((3, 40, 70), (17, 9, 1030), (2, 300, 8), (40, 1, 9)):
        A, B, C = rng.normal(size=(a, n, m)), rng.normal(size=(a, m, n)), rng.normal(size=(m, n, a))
        for _ in range(2):
            assert (fast(A, B) == A - B.transpose(0, 2, 1) * 2.0).all()
            assert (last(A, C) == A - C.transpose(2, 1, 0) * 2.0).all()
    assert fast.stats().failures == last.stats().failures == 0


def test_results_do_not_depend_on_the_threads():
    rng = np.random.default_rng(3)
    A, B = rng.normal(size=(1300, 900)), rng.normal(size=(900, 1300))
    fast = jitla.jit(added)
    for threads in (1, 2, 7):
        with jitla.options(num_threads=threads):
            for _ in range(2):
                assert (fast(A, B) == A + B.T).all()
