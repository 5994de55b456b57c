"""What sparse matrices leave open: warnings at positions that are not stored; memory and dtypes of parts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import jitla
from jitla.config import TracingThresholds
from jitla.tracing.site import FallbackCounter

DIVIDED = ("RuntimeWarning", "divide by zero encountered in divide")


def weighted(X: Any, D: Any) -> Any:
    return X.multiply(1 / D).sum()


def told(function: Callable[..., Any], *given: Any) -> tuple[Any, set[tuple[str, str]]]:
    """Return the result of a call, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*given)
    return result, {(w.category.__name__, str(w.message)) for w in caught}


@pytest.fixture
def every_size() -> Iterator[None]:
    """Small matrices are recorded, too."""
    with jitla.options(thresholds=TracingThresholds(min_sparse_elements=0)):
        yield


@pytest.mark.usefixtures("every_size")
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize("stored", [False, True])
def test_policy_only_stored_positions_warn(kind: type, stored: bool) -> None:
    D = np.random.default_rng(0).uniform(1, 2, (50, 40))
    X = kind(sp.eye_array(50, 40, format="csr"))
    D[(3, 3) if stored else (3, 4)] = 0
    fast = jitla.jit(weighted, compile="sync")
    for _ in range(2):
        (wanted, warned), (found, warns) = told(weighted, X, D), told(fast, X, D)
        assert found == wanted and warned == {DIVIDED}
        assert warns == ({DIVIDED} if stored else set())
    assert "sampled" in str(jitla.explain(fast))


@pytest.mark.usefixtures("every_size")
def test_policy_sums_of_duplicates_warn_as_part_of_the_sum() -> None:
    def invalid(name: str) -> set[tuple[str, str]]:
        return {("RuntimeWarning", f"invalid value encountered in {name}")}

    def added(X: Any, D: np.ndarray) -> Any:
        return X.multiply(D).sum()

    fast, D = jitla.jit(added, compile="sync"), np.ones((2, 3))
    for places, own in (([0, 0, 1], "reduceat"), ([0, 2, 1], "reduce")):
        entries = np.array([np.inf, -np.inf, 1]), np.array(places), np.array([0, 2, 3])
        X = sp.csr_array(entries, shape=(2, 3))
        (wanted, warned), (found, warns) = told(added, X, D), told(fast, X, D)
        assert np.isnan(wanted) and np.isnan(found)
        assert warned == invalid(own) and warns == invalid("reduce")


def test_parts_may_own_their_memory_or_not() -> None:
    X = sp.eye_array(40, format="csr")
    wanted, found = X.maximum(X * 0.5), jitla.jit(lambda X: X.maximum(X * 0.5))(X)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        assert not np.shares_memory(getattr(found, name), getattr(X, name))


@pytest.mark.parametrize("left", [0, 1 << 40])
def test_memory_says_which_dtype_index_arrays_have(left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def filled(shape: Any, dtype: Any = float) -> Any:
        return np.full(shape, np.asarray(left).astype(dtype))

    X = sp.csr_matrix(sp.eye_array(9))
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    monkeypatch.setattr("scipy.sparse._compressed.np", SimpleNamespace(**{**vars(np), "empty": filled}))
    assert (X + X).indices.dtype == (np.int64 if left else np.int32)
    found = jitla.jit(lambda X: X + X)(X)
    assert found.indices.dtype in (np.int32, np.int64) and found.indices.tolist() == list(range(9))


@pytest.mark.usefixtures("every_size")
def test_items_of_pending_matrices_are_stored_as_scipy_stores_them() -> None:
    def storing(X: Any, D: Any) -> Any:
        Y, Z = X.astype("f4"), X.multiply(D + 1)
        Y[0] = Z[0, 0] = 3
        return Y.toarray(), Z.toarray()

    X, D = sp.csr_array(sp.eye_array(9)), np.ones((9, 9))
    for _ in range(2):
        for wanted, found in zip(storing(X, D), jitla.jit(storing)(X, D), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_names_that_numpy_warns_of_are_not_asked_for() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert FallbackCounter(str).reason == "not in the op table"  # `np.str` is to become something
