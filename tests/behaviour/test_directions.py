"""Aggregates of different directions in one pass over a matrix: NumPy's bits, on any number of threads."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import jitla

SHAPES = [(20_011, 5), (2, 9000), (9, 1025), (1025, 8), (1601, 65), (3000, 2), (40, 30, 20)]
rng = np.random.default_rng(14)


def sums(X):
    return X.sum(0), X.sum(1)


def extremes(X):
    return X.min(0), X.max(0), X.max(1), X.mean(0)


def squares(X):
    Y = X * X
    return Y.sum(0), (X - 1).sum(1), X.sum(0), Y


def centred(X):
    D = X - X.mean(1, keepdims=True)
    return D.sum(0, keepdims=True), (D * D).sum(0)


def truths(X):
    return (X > 1).any(1), (X > -1e9).all(0), (X > 0).sum(0)


def rows_of_a_sum(X):
    D = np.sqrt(np.abs(X * X[:, :1] + X[0]))
    return D.sum(1), D.sum(0)


FUNCTIONS = [rows_of_a_sum, sums, extremes, squares, centred, truths]


def values(shape, dtype):
    found = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    return (found * (1 + 2j) if np.dtype(dtype).kind == "c" else found).astype(dtype)


def layouts(X):
    apart = np.zeros((2 * X.shape[0], *X.shape[1:-1], X.shape[-1] + 3), X.dtype)
    apart[1::2, ..., 2:-1] = X
    return X, apart[1::2, ..., 2:-1], np.asfortranarray(X), X[::-1]


def agree(function, compiled, X):
    for got, want in zip(compiled(X), function(X), strict=True):
        assert got.dtype == want.dtype and got.strides == want.strides
        assert got.tobytes() == want.tobytes(), (function.__name__, X.shape, X.strides)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "c16"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_bits_are_numpys(function, dtype):
    compiled = jitla.jit(function)
    for shape in SHAPES:
        if dtype == "c16" and function in (extremes, truths):
            continue  # NumPy orders complex numbers by both parts
        for X in layouts(values(shape, dtype)):
            agree(function, compiled, X)
    assert compiled.stats().failures == 0


@pytest.mark.parametrize("function", [sums, extremes, centred])
def test_threads_take_turns(function):
    compiled = {threads: jitla.jit(function) for threads in (1, 2, 3)}
    for shape in [(30_000, 100), (4001, 1000), (100_000, 3)]:
        X = values(shape, "f8")
        for threads in (1, 2, 3) * 3:
            with jitla.options(num_threads=threads):
                agree(function, compiled[threads], X)


def test_the_matrix_is_read_once():
    for function in (sums, extremes, centred):
        compiled = jitla.jit(function)
        compiled(values((30_000, 40), "f8"))
        assert str(jitla.explain(compiled, level="plan")).count("  Row ") == 1


def test_not_a_number_and_signs_of_zeros():
    X = np.full((3001, 40), -0.0)
    X[17, 3], X[3000, 5], X[2, 2] = np.nan, np.inf, -np.inf
    for function in (sums, extremes):
        agree(function, jitla.jit(function), X)


def test_warnings_are_numpys():
    X = np.zeros((3001, 40))
    X[17, 3], X[3000, 3] = np.inf, -np.inf
    found = []
    for function in (sums, jitla.jit(sums)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(X)
        found.append(sorted(str(w.message) for w in caught))
    assert found[0] == found[1] != []
