"""Products of one sparse matrix, and what lies between them: one pass over its rows, SciPy's results."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import jitla
from jitla.config import TracingThresholds
from tests.behaviour.passes import (
    gram_vector,
    hinge,
    logistic,
    one_behind_the_other,
    total_between,
)

rng = np.random.default_rng(5)


def sums_and_product(X, w, v):
    return X.T @ w, X.T @ (w * w), X @ v


def several(X, w, v):
    Q = w[:, None] * (X @ np.stack([v, v * v, v + 1.0], 1))
    return X.T @ (Q - w[:, None] * Q.sum(axis=1, keepdims=True))


PROGRAMS = (gram_vector, logistic, hinge, sums_and_product, several, total_between, one_behind_the_other)
ONE_PASS = (gram_vector, logistic, hinge, sums_and_product, several)


def skewed(m, n, dtype="f8"):
    """Rows of very different length: many are empty, some hold most entries, one is full."""
    lengths = np.minimum(rng.geometric(0.01, m) * (rng.random(m) < 0.7), n)
    lengths[m // 2] = n
    columns = np.concatenate([np.sort(rng.choice(n, k, replace=False)) for k in lengths])
    data = rng.normal(size=len(columns)).astype(dtype)
    return sp.csr_array((data, columns, np.concatenate([[0], np.cumsum(lengths)])), shape=(m, n))


def even(m, n, dtype="f8"):
    return sp.csr_array(sp.random(m, n, 0.08, format="csr", dtype=dtype, random_state=m))


def same(found, wanted, tolerance):
    if isinstance(wanted, tuple):
        for a, b in zip(found, wanted, strict=True):
            same(a, b, tolerance)
        return
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * max(abs(wanted).max(), 1.0))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("make", [even, skewed])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_results_are_those_of_scipy(program, make, dtype):
    X = make(3000, 400, dtype)
    w, v = (rng.random(k).astype(dtype) for k in (3000, 400))
    fast = jitla.jit(program, compile="sync")
    for _ in range(2):
        same(fast(X, w, v), program(X, w, v), 1e-11 if dtype == "f8" else 1e-3)


@pytest.mark.parametrize("program", ONE_PASS)
def test_rows_are_read_once(program):
    X, w, v = even(3000, 400), rng.random(3000), rng.random(400)
    fast = jitla.jit(program, compile="sync")
    with jitla.options(num_threads=2):  # on one thread, other plans may be the cheapest
        fast(X, w, v)
    text = str(jitla.explain(fast))
    assert "Row 3000" in text and " csr_" in text
    assert not [line for line in text.splitlines() if line.lstrip().startswith("C") and " csr_" in line]


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.csc_matrix])
@pytest.mark.parametrize("index", ["i4", "i8"])
def test_classes_and_indices(kind, index):
    X = kind(even(3000, 300))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    w, v = rng.random(3000), rng.random(300)
    for program in (gram_vector, several):
        same(jitla.jit(program, compile="sync")(X, w, v), program(X, w, v), 1e-11)


def less_product(A, B, x):
    return A - B.multiply(x)


def less_compressed_product(A, B, x):
    return A.multiply(x).tocsr() - B.multiply(x).tocsr()


@pytest.mark.parametrize("program", [less_product, less_compressed_product])
def test_what_older_classes_make_has_narrow_indices_before_it_meets_an_array(program):
    A, B = even(300, 40), sp.csr_matrix(even(300, 40)[::-1])
    B.indices, B.indptr = B.indices.astype("i8"), B.indptr.astype("i8")
    fast, x = jitla.jit(program, compile="sync"), np.full(B.shape, 2.0)
    with jitla.options(thresholds=TracingThresholds(min_sparse_elements=0)):
        fast(A, B, x)
        found = fast(A, B, x)
    wanted = program(A, B, x)
    assert type(found) is type(wanted) and found.indices.dtype == wanted.indices.dtype == np.int32
    assert (found != wanted).nnz == 0


def test_bits_do_not_depend_on_threads():
    X, w, v = skewed(20_000, 300), rng.random(20_000), rng.random(300)
    found = []
    for threads in (1, 2, 5):
        with jitla.options(num_threads=threads):
            fast = jitla.jit(logistic, compile="sync")
            found.append([part.tobytes() for part in fast(X, w, v)])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("at", [0, 7940])
@pytest.mark.parametrize("index", ["i4", "i8"])
def test_rows_of_most_entries_come_first_or_last(at, index):
    X = sp.lil_array(even(8000, 500))
    X[at:at + 60] = 1.5
    X[100:7000] = 0.0
    X = sp.csr_array(X)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    w, v = rng.random(8000), rng.random(500)
    for program in (gram_vector, lambda X, w, v: w * (X @ v) + 1.0):
        found = []
        for threads in (2, 5):
            with jitla.options(num_threads=threads):
                found.append(jitla.jit(program, compile="sync")(X, w, v))
        same(found[0], program(X, w, v), 1e-11)
        assert found[0].tobytes() == found[1].tobytes()


def test_sizes_and_entries_may_change_between_calls():
    fast = jitla.jit(gram_vector, compile="sync")
    for m, n in ((3000, 400), (5000, 400), (4000, 350), (3000, 400)):
        X, w, v = even(m, n), rng.random(m), rng.random(n)
        same(fast(X, w, v), gram_vector(X, w, v), 1e-11)
        X.data *= 2.0
        X.indices[:] = n - 1 - X.indices
        same(fast(X, w, v), gram_vector(X, w, v), 1e-11)


def test_operands_that_do_not_lie_in_one_run():
    X = even(3000, 400)
    w, v = rng.random(6000)[::2], rng.random((400, 2))[:, 0]
    for program in (gram_vector, sums_and_product, several):
        same(jitla.jit(program, compile="sync")(X, w, v), program(X, w, v), 1e-11)


def test_rows_of_a_square_matrix_are_not_its_columns():
    X, w, v = even(1000, 1000), rng.random(1000), rng.random(1000)

    def program(X, w, v):
        return X.T @ (X @ (X.T @ w + v))

    same(jitla.jit(program, compile="sync")(X, w, v), program(X, w, v), 1e-11)


@pytest.mark.parametrize("kind", [sp.coo_matrix, sp.coo_array, sp.dia_array])
def test_matrices_made_within_meet_pending_arrays(kind):
    def program(a, b):
        s = sp.coo_matrix(np.abs(a)) if kind is sp.coo_matrix else sp.csr_array(a).asformat(kind.__name__[:3])
        return s @ (b * a), s.T @ (b - a)

    a, b = rng.random((2, 16, 16))
    for found, wanted in zip(jitla.jit(program, compile="sync")(a, b), program(a, b), strict=True):
        assert type(found) is np.ndarray and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("wrong", [400, -1, 1 << 30])
def test_columns_that_are_none_are_not_read(wrong):
    X, w, v = even(3000, 400), rng.random(3000), rng.random(400)
    X.indices[1234] = wrong
    found = jitla.jit(gram_vector, compile="sync")(X, w, v)  # SciPy reads what lies there
    assert found.shape == (400,)
