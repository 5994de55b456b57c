"""Stacks of small matrices: NumPy's products, wherever operands lie, with what follows in the same pass."""

from __future__ import annotations

import re

import numpy as np
import pytest

import jitla

rng = np.random.default_rng(6)
COUNTS = [3, 200, 2001]


def plain(A, B):
    return A @ B


def called(A, B):
    return np.matmul(A, B)


def followed(A, B):
    return np.tanh(A @ B - 1.0) * 2.0


def made_before(A, B):
    return (A * 2.0 + B[:, :1, :1]) @ np.maximum(B, 0.0)


def turned(A, B):
    return A.transpose(0, 2, 1) @ B


def turned_right(A, B):
    return B @ A.transpose(0, 2, 1)


def chained(A, B):
    return A @ B @ A


def summed(A, B):
    return (A @ B).sum(axis=(1, 2)), (A @ B).sum()


def forms(A, B):
    return (B[:, :1] @ A @ B[:, :, :1])[:, 0, 0]


def vectors(A, B):
    return A @ B[:, :, 1:2], A @ B[0, 0], B[0, 0] @ A


def one_for_all(A, B):
    return A[0] @ B, A @ B[0]


def spelled(A, B):
    return np.einsum("nij,njk->nik", A, B), np.einsum("ij,njk->nik", A[1], B), np.einsum("nij,nkj->nik", A, B)


def in_place(A, B):
    A @= B
    return A + 1.0


def over_itself(A, B):
    A[...] = B @ A
    B[:, 0] = (A @ B)[:, 1]
    return A


FUNCTIONS = [plain, called, followed, made_before, turned, turned_right, chained, summed, forms, vectors,
             one_for_all, spelled, in_place, over_itself]


def matrices(count, side, dtype):
    found = rng.integers(-4, 5, (2, count, side, side)) / 4
    return tuple((found + 1j * found[::-1] if dtype[0] == "c" else found).astype(dtype))


def compare(function, fast, given):
    """The same values, layouts and arguments afterwards."""
    mine, theirs = [[np.copy(a, order="K") for a in given] for _ in range(2)]
    wanted, made = function(*theirs), fast(*mine)
    if not isinstance(wanted, tuple):
        wanted, made = (wanted,), (made,)
    for a, b in zip((*made, *mine), (*wanted, *theirs), strict=True):
        assert type(a) is type(b) and a.dtype == b.dtype and np.shape(a) == np.shape(b)
        assert np.asarray(a).strides == np.asarray(b).strides
        size = max(np.abs(b).max(initial=0.0), 1.0)
        assert np.abs(a - b).max(initial=0.0) <= 64 * np.finfo(a.dtype).eps * size


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_same_as_numpy(function, dtype):
    fast = jitla.jit(function)
    for side in (2, 3, 4, 7):
        for count in COUNTS:
            given = matrices(count, side, dtype)
            for _ in range(2):
                compare(function, fast, given)
    assert fast.stats().failures == 0


@pytest.mark.parametrize("function", [plain, followed, turned, chained], ids=lambda f: f.__name__)
def test_stacks_that_lie_anyhow(function):
    A, B = matrices(700, 5, "f8")
    for X in (A[::2], A[::-1], A[:, ::-1], A.transpose(0, 2, 1), np.asfortranarray(A), A[:, :, ::-1],
              np.broadcast_to(A[0], (350, 5, 5)), A.transpose(1, 2, 0).copy().transpose(2, 0, 1)):
        for Y in (B[:len(X)], np.asfortranarray(B[:len(X)]), B[:len(X)].transpose(0, 2, 1)):
            fast = jitla.jit(function)
            wanted, made = function(X, Y), [fast(X, Y) for _ in range(2)][1]
            assert made.strides == wanted.strides and np.abs(made - wanted).max() < 1e-12
            assert fast.stats().failures == 0


def test_stacks_of_stacks():
    A, B = (x.reshape(12, 50, 4, 4) for x in matrices(600, 4, "f8"))
    fast = jitla.jit(plain)
    for X, Y in ((A, B), (A.swapaxes(0, 1), B.swapaxes(0, 1)), (A, B[0]), (A[:, :1], B), (A, B[:, :1]),
                 (A[:, None, 0], B), (A.swapaxes(0, 1), B[0, 0]), (A[:, ::2], B[:, 1::2]), (A[0], B)):
        for _ in range(2):
            made, wanted = fast(X, Y), X @ Y
            assert made.shape == wanted.shape and made.strides == wanted.strides
            assert np.abs(made - wanted).max() < 1e-12
    assert fast.stats().failures == 0


def test_integers_are_exact():
    fast = jitla.jit(plain)
    for dtype in ("i8", "i4", "i2", "i1", "u1", "u8"):
        A, B = (rng.integers(0, 250, (900, 3, 3)).astype(dtype) for _ in range(2))
        for _ in range(2):
            made = fast(A, B)
            assert made.dtype == dtype and (made == A @ B).all()
    for X, Y in ((A > 9, B > 9), (A, B.astype("f4")), (A.astype("i2"), B)):
        made = fast(X, Y)
        assert made.dtype == (X @ Y).dtype and (made == X @ Y).all()
    assert fast.stats().failures == 0


def test_what_does_not_fit_is_numpys_error():
    A, B = matrices(500, 4, "f8")
    for X, Y in ((A, B[:, :3]), (A, B[:499]), (A[:, :, :3], B)):
        with pytest.raises(ValueError) as wanted:
            X @ Y
        with pytest.raises(ValueError, match=re.escape(str(wanted.value))):
            jitla.jit(plain)(X, Y)


@pytest.mark.parametrize("shape", [(0, 3, 3), (5, 0, 3), (5, 3, 0)])
def test_nothing_to_multiply(shape):
    A, B = np.ones(shape), np.ones((shape[0], shape[2], shape[1]))
    for X, Y in ((A, B), (B, A)):
        made, wanted = jitla.jit(plain)(X, Y), X @ Y
        assert made.shape == wanted.shape and (made == wanted).all()


def weighed(x, w):
    y = x * w + 1
    return (x * w).mean(axis=-1), y - y.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_sums_along_an_axis_that_lies_between_are_numpys_in_blocks_of_rows(dtype):
    x = matrices(400, 19, dtype)[0].transpose(0, 2, 1) / 3
    fast = jitla.jit(weighed)
    for _ in range(2):
        for made, wanted in zip(fast(x, x[0, 0]), weighed(x, x[0, 0]), strict=True):
            assert made.strides == wanted.strides and made.tobytes() == wanted.tobytes()
    assert fast.stats().failures == 0


def test_overflow_is_reported_as_numpy_does():
    A, B = (np.abs(x) * 1e200 + 1e200 for x in matrices(500, 3, "f8"))
    fast = jitla.jit(plain)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="overflow"):
            assert np.isinf(fast(A, B)).all()


def test_results_do_not_depend_on_the_threads():
    A, B = rng.normal(size=(2, 20_003, 5, 5))
    fast = jitla.jit(followed)
    found = []
    for threads in (1, 2, 7):
        with jitla.options(num_threads=threads):
            found.append(fast(A, B).tobytes())
    assert found[0] == found[1] == found[2]


def test_pairs_share_a_pass_with_what_follows():
    fast = jitla.jit(followed)
    fast(*rng.normal(size=(2, 20_000, 4, 4)))
    plan = str(jitla.explain(fast, level="plan"))
    assert "1 kernel, 0 NumPy calls" in plan and "  Row " in plan
