"""Factors multiplied at the stored positions of a sparse matrix: as in SciPy, the product never formed."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse as sp

import jitla

ROWS, COLUMNS, DEPTH = 400, 300, 13
KINDS = ("csr_array", "csr_matrix", "csc_array", "csc_matrix")


def logarithms(X, U, V):
    return X.multiply(np.log(U @ V.T + 1e-15)).sum()


def by_dot(X, U, V):
    return X.multiply(np.log(U.dot(V.T) + 1e-15)).sum()


def turned(X, U, V):
    return X.multiply(np.log((V @ U.T).T + U[:, :1])).sum()


def masked_right(X, U, V):
    return (X != 0).multiply(U @ V.T) @ V


def masked_left(X, U, V):
    return (X != 0).multiply(U @ V.T).T @ U


def squared_loss(X, U, V):
    return (X - (X != 0).multiply(U @ V.T)).power(2).sum()


def weighted(X, U, V):
    return X.multiply((U @ V.T - 1.0) ** 2).sum()


def divergence(X, U, V):
    return X.multiply(np.log(U @ V.T)).sum() - (U.sum(axis=0) * V.sum(axis=0)).sum()


def quotient(X, U, V):
    return X.multiply(1 / (U @ V.T)) @ V


def entries(X, U, V):
    return X.multiply(U @ V.T).data


FORMS = (logarithms, by_dot, turned, masked_right, masked_left, squared_loss, weighted, divergence, quotient,
         entries)


def given(kind, dtype, density=0.05, sizes=(ROWS, COLUMNS, DEPTH)):
    rng = np.random.default_rng(sum(sizes))
    m, n, depth = sizes
    X = getattr(sp, kind)(sp.random_array((m, n), density=density, rng=rng).astype(dtype))
    return X, (rng.random((m, depth)) + 0.1).astype(dtype), (rng.random((n, depth)) + 0.1).astype(dtype)


def check(found, wanted):
    assert type(found) is type(wanted)
    a, b = (x.toarray() if sp.issparse(x) else np.asarray(x) for x in (found, wanted))
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=1e-11 if a.dtype == np.float64 else 1e-3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_results_are_those_of_scipy(form, kind, dtype):
    X, U, V = given(kind, dtype)
    wanted = form(X, U, V)
    function = jitla.jit(form, compile="sync")
    for _ in range(2):
        check(function(X, U, V), wanted)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_product_is_not_formed(form, kind):
    X, U, V = given(kind, "f8")
    function = jitla.jit(form, compile="sync")
    function(X, U, V)
    plan = str(jitla.explain(function, X, U, V))
    assert "sampled_product" in plan and not re.search(r"C\d+  matmul", plan), plan


def test_a_product_of_which_most_is_read_is_formed():
    X, U, V = given("csr_array", "f8", density=0.9, sizes=(300, 400, 300))
    function = jitla.jit(entries, compile="sync")
    check(function(X, U, V), entries(X, U, V))
    plan = str(jitla.explain(function, X, U, V))
    assert "sampled_product" not in plan and re.search(r"C\d+  matmul", plan), plan


def test_a_product_that_is_needed_anyway_is_formed_once():
    def both(X, U, V):
        P = U @ V.T
        return X.multiply(P).sum(), np.exp(P)

    X, U, V = given("csr_array", "f8")
    function = jitla.jit(both, compile="sync")
    for a, b in zip(function(X, U, V), both(X, U, V), strict=True):
        check(a, b)
    assert "sampled_product" not in str(jitla.explain(function, X, U, V))


def test_factors_of_different_types():
    X, U, V = given("csr_array", "f8")
    check(jitla.jit(entries, compile="sync")(X, U.astype("f4"), V), entries(X, U.astype("f4"), V))


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_any_number_of_threads_gives_the_same_bits(dtype):
    X, U, V = given("csr_array", dtype, density=0.2, sizes=(900, 2000, 70))
    found = set()
    for threads in (1, 2, 3):
        with jitla.options(num_threads=threads):
            function = jitla.jit(entries, compile="sync")
            found.add(function(X, U, V).tobytes())
            found.add(np.float64(jitla.jit(logarithms, compile="sync")(X, U, V)).tobytes())
    assert len(found) == 2
