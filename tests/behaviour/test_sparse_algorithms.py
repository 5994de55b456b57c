"""Algorithms on sparse matrices learn what their plain functions do, without matrices SciPy would fill."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import jitla
from bench.algorithms.sparse import ALGORITHMS, drawn
from jitla.config import TracingThresholds

KINDS = ("csr_array", "csr_matrix")
#: Algorithms in which SciPy computes a dense matrix to look at its stored positions only.
FILLING = {"NMF, KL": "sampled_product"}
every = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)


@pytest.fixture(autouse=True)
def whatever_it_gains() -> Iterator[None]:
    """Small matrices are recorded, too."""
    with jitla.options(thresholds=TracingThresholds(min_sparse_elements=0)):
        yield


def unusual(kind: type) -> Any:
    """Return a matrix of few full rows, with empty ones and empty columns, and unsorted indices."""
    rng = np.random.default_rng(3)
    X = sp.lil_array((90, 70))
    X[:4, :60] = rng.uniform(0.5, 5.0, (4, 60))
    X[10:80:3, 1] = 2.0
    X[10:80:7, 30:34] = 1.5
    found = kind(X.tocsr())
    for a, b in zip(found.indptr, found.indptr[1:], strict=False):
        found.indices[a:b], found.data[a:b] = found.indices[a:b][::-1].copy(), found.data[a:b][::-1].copy()
    found.has_sorted_indices = False
    return found


def compare(algorithm: Any, X: Any, steps: int) -> Any:
    """Run an algorithm plain and decorated, twice; return the decorated function."""
    fast = jitla.jit(algorithm.plain, compile="sync")
    with warnings.catch_warnings(record=True) as told:
        for _ in range(2):
            wanted = algorithm.plain(*algorithm.arguments(X, np.random.default_rng(1)), steps)
            found = fast(*algorithm.arguments(X, np.random.default_rng(1)), steps)
            assert [type(each) for each in found] == [type(each) for each in wanted]
            np.testing.assert_allclose(found[-1], wanted[-1], rtol=1e-9, atol=1e-15)
            for a, b in zip(found[:-1], wanted[:-1], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-12)
    assert fast.stats().failures == 0 and fast.stats().kernel_runs > 0
    assert told == []
    return fast


@every
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_the_same_is_learned(algorithm: Any, kind: str, index: type) -> None:
    X = drawn(150, 60, 0.1, np.random.default_rng(0), getattr(sp, kind))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    compare(algorithm, X, 4)


@every
@pytest.mark.parametrize("kind", KINDS)
def test_skewed_matrices_with_empty_rows_and_columns(algorithm: Any, kind: str) -> None:
    compare(algorithm, unusual(getattr(sp, kind)), 2)


@pytest.mark.parametrize("name", FILLING)
def test_what_scipy_fills_is_not_formed(name: str) -> None:
    algorithm, = (a for a in ALGORITHMS if a.name == name)
    X = drawn(150, 60, 0.1, np.random.default_rng(0), sp.csr_array)
    fast = compare(algorithm, X, 2)
    assert FILLING[name] in str(jitla.explain(fast))
    # The steps after the first two blocks do not form the product of the factors either.
    most = max(p.cost.peak for p in jitla.explain(fast).record.programs)
    assert most < 0.7 * 8 * X.shape[0] * X.shape[1]
