"""Programs on SciPy's sparse matrices: one pass over compressed rows, sampled products, whole algorithms."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import jitla
from bench.algorithms.sparse import ALGORITHMS, drawn
from jitla.config import TracingThresholds
from jitla.tracing.site import FallbackCounter
from tests.behaviour.passes import gram_vector, hinge, logistic, one_behind_the_other, total_between

# Products with one sparse matrix and the operations between them: one pass over its rows.

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


# Factors multiplied at the stored positions of a sparse matrix: as in SciPy, the product never formed.

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
def test_sampled_results_are_those_of_scipy(form, kind, dtype):
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


# What sparse matrices leave open: warnings at positions that are not stored; memory and dtypes of parts.

DIVIDED = ("RuntimeWarning", "divide by zero encountered in divide")


def weighted_entries(X: Any, D: Any) -> Any:
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
    fast = jitla.jit(weighted_entries, compile="sync")
    for _ in range(2):
        (wanted, warned), (found, warns) = told(weighted_entries, X, D), told(fast, X, D)
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


# Algorithms on sparse matrices learn what their plain functions do, without matrices SciPy would fill.

FORMATS = ("csr_array", "csr_matrix")
#: Algorithms in which SciPy computes a dense matrix to look at its stored positions only.
FILLING = {"NMF, KL": "sampled_product"}
every = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)


@pytest.fixture
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


@pytest.mark.usefixtures("whatever_it_gains")
@every
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_the_same_is_learned(algorithm: Any, kind: str, index: type) -> None:
    X = drawn(150, 60, 0.1, np.random.default_rng(0), getattr(sp, kind))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    compare(algorithm, X, 4)


@pytest.mark.usefixtures("whatever_it_gains")
@every
@pytest.mark.parametrize("kind", FORMATS)
def test_skewed_matrices_with_empty_rows_and_columns(algorithm: Any, kind: str) -> None:
    compare(algorithm, unusual(getattr(sp, kind)), 2)


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("name", FILLING)
def test_what_scipy_fills_is_not_formed(name: str) -> None:
    algorithm, = (a for a in ALGORITHMS if a.name == name)
    X = drawn(150, 60, 0.1, np.random.default_rng(0), sp.csr_array)
    fast = compare(algorithm, X, 2)
    assert FILLING[name] in str(jitla.explain(fast))
    # The steps after the first two blocks do not form the product of the factors either.
    most = max(p.cost.peak for p in jitla.explain(fast).record.programs)
    assert most < 0.7 * 8 * X.shape[0] * X.shape[1]
