"""Products with a matrix that lies column by column: one pass over it, NumPy's results."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from tests.behaviour.passes import gram_vector, hinge, logistic, one_behind_the_other, total_between

SIZES = [(8192, 4), (8195, 33), (20_011, 7)]
# How many passes over the matrix each takes.
PASSES = {gram_vector: 1, logistic: 1, hinge: 1, one_behind_the_other: 2, total_between: 2}
rng = np.random.default_rng(9)


def of_rows(function):
    """Return the function of a matrix whose long rows are the columns that `function` is given."""

    def turned(X, w, v):
        return function(X.T, w, v)

    return turned


def arguments(rows, columns, dtype):
    X = np.asfortranarray(rng.standard_normal((rows, columns)).astype(dtype))
    return X, rng.standard_normal(rows).astype(dtype), rng.standard_normal(columns).astype(dtype)


def close(found, wanted, dtype):
    rtol = 1e-10 if dtype == "f8" else 3e-4
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else ((found, wanted),)
    for a, b in pairs:
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(np.abs(b).max(), 1))


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("function", PASSES, ids=lambda f: f.__name__)
def test_the_same_as_numpy(function, dtype):
    columns, rows = jitla.jit(function), jitla.jit(of_rows(function))
    for m, n in SIZES:  # one plan for all
        X, w, v = arguments(m, n, dtype)
        wanted = function(X, w, v)
        close(columns(X, w, v), wanted, dtype)
        close(rows(X.T, w, v), wanted, dtype)
    assert columns.stats().failures == rows.stats().failures == 0


@pytest.mark.parametrize("function", PASSES, ids=lambda f: f.__name__)
def test_blocks_of_the_matrix_are_read_once(function):
    fast = jitla.jit(function)
    fast(*arguments(30_000, 50, "f8"))
    assert str(jitla.explain(fast, level="plan")).count("  Row ") == PASSES[function]


def test_vectors_that_lie_apart_or_backwards():
    X, w, v = arguments(9000, 20, "f8")
    apart = np.repeat(w, 2)[::2], np.repeat(v, 2)[::2]
    for A, r, c in ((X, *apart), (X[::-1], w, v[::-1]), (X[:, ::-1], w[::-1], v), (X[:, ::2], w, v[:10])):
        fast = jitla.jit(gram_vector)
        close(fast(A, r, c), gram_vector(A, r, c), "f8")
        assert fast.stats().failures == 0


def test_not_a_number_and_infinity_go_where_numpy_has_them():
    X, w, v = arguments(8200, 12, "f8")
    X[8199, 3], X[5, 0], v[7] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        wanted, found = X @ v, jitla.jit(lambda X, v: X @ v)(X, v)
        assert (np.isnan(found) == np.isnan(wanted)).all() and (np.isinf(found) == np.isinf(wanted)).all()
