"""Passes over the rows of a matrix: several products and aggregates in one kernel, for every layout."""

from __future__ import annotations

import struct
import warnings

import numpy as np
import pytest

import jitla
from jitla.codegen import backend
from jitla.codegen.kernels.row import pack_rows
from tests.behaviour.passes import (
    gram_vector,
    hinge,
    logistic,
    one_behind_the_other,
    total_between,
    two_sums,
)

# Products that share the rows of a matrix: one pass, NumPy's results, whatever lies in between.

SIZES = [(1, 9000), (7, 2000), (160, 64), (161, 65), (1000, 100), (20_011, 5), (3000, 33)]
rng = np.random.default_rng(4)


def two_sides(X, w, v):
    return X @ v, X @ (v * 2.0) - w


def vector_first(X, w, v):
    return (np.abs(X @ v) + w) @ X


def matrices_between(X, w, v):
    t = X @ v
    Z = np.maximum(X - t[:, None], 0.0)
    return X.T @ (Z.sum(axis=1) * w)


def kept_in_place(X, w, v):
    w += X @ v
    return X.T @ w


FUNCTIONS = [gram_vector, logistic, hinge, two_sides, two_sums, vector_first, matrices_between,
             one_behind_the_other, total_between, kept_in_place]
# How many row kernels a call runs.
ROWS = {gram_vector: 1, logistic: 1, hinge: 1, two_sides: 1, two_sums: 1, vector_first: 1,
        matrices_between: 1, one_behind_the_other: 2}


def least_squares(X, V, Y):
    return X.T @ (X @ V - Y)


def logistic_classes(X, V, P):
    Q = P * (X @ V)
    return X.T @ (Q - P * Q.sum(1, keepdims=True))


def softmax_classes(X, V, Y):
    Z = X @ V
    E = np.exp(Z - Z.max(axis=1, keepdims=True))
    P = E / E.sum(axis=1, keepdims=True)
    return X.T @ (P - Y), P


def vectors_and_matrices(X, V, Y):
    A = X @ V
    return A * Y, X.T @ (A * Y), X @ V[:, 0], X.T @ Y[:, -1].copy()


CLASSES = [least_squares, logistic_classes, softmax_classes, vectors_and_matrices]


def arguments(m, n, dtype):
    X = rng.normal(size=(m, n)).astype(dtype)
    return X, rng.random(m).astype(dtype), rng.normal(size=n).astype(dtype)


def close(made, wanted, dtype):
    tolerance = 1e-11 if dtype == "f8" else 2e-3
    made = made if isinstance(made, tuple) else (made,)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for a, b in zip(made, wanted, strict=True):
        assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
        assert np.asarray(a).strides == np.asarray(b).strides
        assert np.abs(a - b).max(initial=0.0) <= tolerance * max(np.abs(b).max(initial=0.0), 1.0)


@pytest.fixture
def two_threads():
    """Plan for two threads: on one, other plans may be the cheapest."""
    with jitla.options(num_threads=2):
        yield


def row_kernels(fast):
    return str(jitla.explain(fast, level="plan")).count("  Row ")


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_same_as_numpy(function, dtype):
    fast = jitla.jit(function)
    for m, n in SIZES:
        given = arguments(m, n, dtype)
        wanted = function(*(a.copy() for a in given))
        for _ in range(2):
            close(fast(*(a.copy() for a in given)), wanted, dtype)
    assert fast.stats().failures == 0


@pytest.mark.parametrize("function", ROWS, ids=lambda f: f.__name__)
def test_the_matrix_is_read_once(function):
    fast = jitla.jit(function)
    fast(*arguments(30_000, 50, "f8"))
    assert row_kernels(fast) == ROWS[function]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_rows_that_lie_apart_or_backwards(function):
    X, w, v = arguments(500, 90, "f8")
    for A in (np.hstack([X, X])[:, :90], X[::2], X[::-1], X[:, ::-1], np.asfortranarray(X), X[:, ::2]):
        given = A, w[:len(A)].copy(), v[:A.shape[1]].copy()
        wanted = function(A, given[1].copy(), given[2])
        fast = jitla.jit(function)
        for _ in range(2):
            close(fast(A, given[1].copy(), given[2]), wanted, "f8")
        assert fast.stats().failures == 0


def test_a_class_of_layouts_keeps_its_plan_only_where_it_fits():
    fast = jitla.jit(gram_vector)
    X, w, v = arguments(600, 40, "f8")
    wide = np.zeros((600, 2, 40))
    wide[:, 1] = X
    for A in (X, wide[:, 1], X, np.asfortranarray(X)):
        close(fast(A, w, v), gram_vector(A, w, v), "f8")
        close(fast(A, w[::-1], v), gram_vector(A, w[::-1], v), "f8")
    assert fast.stats().failures == 0


@pytest.mark.parametrize("order", ["C", "F"])
def test_results_do_not_depend_on_the_threads(order):
    X, w, v = arguments(40_003, 31, "f8")
    X = np.asarray(X, order=order)
    fast = jitla.jit(one_behind_the_other)
    found = []
    for threads in (1, 2, 7):
        with jitla.options(num_threads=threads, fusion="all"):  # one plan for any number
            found.append(fast(X, w, v))
    for other in found[1:]:
        assert all((a == b).all() for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("function", CLASSES, ids=lambda f: f.__name__)
def test_several_vectors_at_once(function, dtype):
    fast = jitla.jit(function)
    for m, n, k in ((1, 9000, 2), (160, 64, 3), (700, 100, 4), (3001, 33, 10), (5000, 4, 20), (900, 41, 63)):
        X, _, _ = arguments(m, n, dtype)
        V, Y = rng.normal(size=(n, k)).astype(dtype), rng.random((m, k)).astype(dtype)
        for W in (V, V, np.asfortranarray(V), np.hstack([V, V])[:, ::2], V[::-1]):
            wanted = function(X, W, Y)
            close(fast(X, W, Y), wanted, dtype)
    assert fast.stats().failures == 0


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("function", CLASSES[:3], ids=lambda f: f.__name__)
def test_the_matrix_is_read_once_for_all_vectors(function):
    fast = jitla.jit(function)
    X, _, _ = arguments(2000, 50, "f8")
    fast(X, rng.normal(size=(50, 7)), rng.random((2000, 7)))
    assert row_kernels(fast) == 1 and fast.stats().kernel_runs == 1 and fast.stats().numpy_calls == 0


def test_several_vectors_for_matrices_that_lie_otherwise():
    for function in CLASSES:
        X, _, _ = arguments(500, 90, "f8")
        V, Y = rng.normal(size=(90, 5)), rng.random((500, 5))
        for A in (np.hstack([X, X])[:, :90], X[::2], X[::-1], X[:, ::-1], np.asfortranarray(X)):
            given = A, V, Y[:len(A)]
            for P in (given[2], np.asfortranarray(given[2]), np.repeat(given[2], 2, axis=1)[:, ::2]):
                fast = jitla.jit(function)
                for _ in range(2):
                    close(fast(A, V, P), function(A, V, P), "f8")
                assert fast.stats().failures == 0


def stack_and_vector(T, V):
    return np.tanh(T @ V[:, 0])


def stack_softmax(T, V):
    Z = T @ V
    E = np.exp(Z - Z.max(axis=-1, keepdims=True))
    return E / E.sum(axis=-1, keepdims=True), T @ V[:, 1]


def stack_first_changed(T, V):
    return np.maximum((T * 2.0) @ V + V[0], 0.0)


@pytest.mark.parametrize("columns", [3, 80])
@pytest.mark.parametrize("function", [stack_and_vector, stack_softmax, stack_first_changed],
                         ids=lambda f: f.__name__)
def test_stacks_of_matrices_however_they_lie(function, columns):
    fast = jitla.jit(function)
    for shape in ((40, 64, 50), (3, 700, 50), (1, 64, 50), (300, 2, 50), (2, 3, 40, 50), (64, 50),
                  (0, 5, 50)):
        T = rng.normal(size=shape)
        V = rng.normal(size=(50, columns))
        apart = np.concatenate([T, T], axis=-2)[..., :shape[-2], :]
        for A in (T, T[::-1], T[..., ::-1], np.asfortranarray(T), apart):
            wanted = function(A, V)
            for _ in range(2):
                close(fast(A, V), wanted, "f8")
    assert fast.stats().failures == 0


def test_rows_of_a_stack_are_read_once():
    fast = jitla.jit(stack_softmax)
    fast(rng.normal(size=(40, 64, 50)), rng.normal(size=(50, 7)))
    assert row_kernels(fast) == 1 and fast.stats().kernel_runs == 1 and fast.stats().numpy_calls == 0


def running(X, v):
    return X - np.cumsum(X * v, axis=-1)


def above(X, v):
    return (np.cumsum(X, axis=-1) > v).sum(axis=-1), np.cumsum(X, axis=-1).max(axis=-1)


def running_product(X, v):
    return np.cumsum(X, axis=-1) @ v


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("function", [running, above, running_product], ids=lambda f: f.__name__)
def test_running_sums_of_rows_however_they_lie(function, dtype):
    fast = jitla.jit(function)
    for shape in ((900, 40), (7, 9000), (9001, 3), (60, 30, 20), (2, 1), (0, 40)):
        X, v = rng.normal(size=shape).astype(dtype), rng.normal(size=shape[-1]).astype(dtype)
        if not X.size and function is above:
            continue
        for A in (X, X[::-1], X[..., ::-1], np.asfortranarray(X), np.repeat(X, 2, axis=-1)[..., ::2]):
            wanted = function(A, v)
            for _ in range(2):
                made = fast(A, v)
                close(made, wanted, dtype)
                if function is not running_product:
                    assert np.asarray(made).tobytes() == np.asarray(wanted).tobytes()
    assert fast.stats().failures == 0


def test_running_sums_that_overflow_warn_as_numpys():
    X = np.full((900, 40), 1e307)
    fast = jitla.jit(running)
    for function in (running, fast, fast):
        with pytest.warns(RuntimeWarning, match="overflow encountered in accumulate"):
            assert np.isneginf(function(X, np.ones(40))[:, -1]).all()
    assert row_kernels(fast) == 1 and fast.stats().failures == 0


def columns_made(X, Y, w):
    return np.hstack([X * 2, np.maximum(Y, 1)])


def column_lengths(X, Y, w):
    short = np.column_stack([w * 2, w, w - 1])
    return (short ** 2).sum(axis=1), np.stack([X * 2, X + 1], axis=2).sum(axis=-1)


def with_intercept(X, Y, w):
    Z = np.column_stack([w, X])
    return Z.T @ (Z @ np.arange(Z.shape[1]).astype(Z.dtype)), Z.max(axis=1)


def rows_twice(X, Y, w):
    Z = np.concatenate([X, Y, X], axis=1)
    return (Z * 3).min(axis=1), Z + 1


JOINS = [columns_made, column_lengths, with_intercept, rows_twice]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
@pytest.mark.parametrize("function", JOINS, ids=lambda f: f.__name__)
def test_columns_side_by_side_however_they_lie(function, dtype):
    fast = jitla.jit(function)
    for n, k, m in ((900, 40, 7), (3000, 30, 20), (3, 9000, 1), (9001, 4, 3), (1, 20_000, 5)):
        X, Y = (9 * rng.normal(size=(n, c)).astype(dtype) for c in (k, m))
        w = np.arange(n).astype(dtype)
        for A in (X, X[::-1], np.asfortranarray(X), X[:, ::-1], np.hstack([X, X])[:, :k]):
            for B in (Y, np.asfortranarray(Y)):
                wanted = function(A, B, w)
                for _ in range(2):
                    close(fast(A, B, w), wanted, dtype)
    assert fast.stats().failures == 0


@pytest.mark.parametrize("function", [columns_made, with_intercept, rows_twice], ids=lambda f: f.__name__)
def test_columns_side_by_side_are_not_written_before(function):
    fast = jitla.jit(function)
    X, Y = rng.normal(size=(5000, 40)), rng.normal(size=(5000, 7))
    fast(X, Y, X[:, 0].copy())
    assert row_kernels(fast) == 1 and "concatenate" not in "".join(
        s.title for s in jitla.explain(fast).record.programs[0].steps)


def test_more_columns_than_loops_take_are_for_numpy():
    X, _, _ = arguments(600, 40, "f8")
    fast = jitla.jit(logistic_classes)
    for k in (7, 63, 64, 70, 7):
        V, P = rng.normal(size=(40, k)), rng.random((600, k))
        close(fast(X, V, P), logistic_classes(X, V, P), "f8")
    assert fast.stats().failures == 0


def test_results_of_several_vectors_do_not_depend_on_the_threads_of_one_plan():
    X, _, _ = arguments(40_003, 31, "f8")
    V, P = rng.normal(size=(31, 9)), rng.random((40_003, 9))
    fast = jitla.jit(fusion="all")(softmax_classes)  # cost may choose another plan for more threads
    found = []
    for threads in (1, 2, 7):
        with jitla.options(num_threads=threads):
            found.append(fast(X, V.T.copy().T, P))
    for other in found[1:]:
        assert all((a == b).all() for a, b in zip(found[0], other, strict=True))


def test_bits_are_numpys_where_they_are_asked_for():
    X, w, v = arguments(3000, 40, "f8")
    fast = jitla.jit(numerics="strict")(gram_vector)
    assert (fast(X, w, v) == gram_vector(X, w, v)).all()
    assert row_kernels(fast) == 0


def test_not_a_number_and_infinity_go_where_numpy_has_them():
    X, w, v = arguments(3000, 40, "f8")
    X[5, 3], X[17, 0], w[100] = np.nan, np.inf, np.inf
    with np.errstate(invalid="ignore"):
        made, wanted = jitla.jit(logistic)(X, w, v), logistic(X, w, v)
    for a, b in zip(made, wanted, strict=True):
        assert (np.isnan(a) == np.isnan(b)).all() and (np.isinf(a) == np.isinf(b)).all()


@pytest.mark.usefixtures("two_threads")
def test_two_matrices_that_wait_for_each_other():
    def crossed(X, Y, v, u):
        a, b = X @ v, Y @ u
        return a, b, X @ (v * b.sum()), Y @ (u * a.sum())

    X, _, v = arguments(2000, 50, "f8")
    Y, _, u = arguments(1000, 60, "f8")
    fast = jitla.jit(crossed)
    close(fast(X, Y, v, u), crossed(X, Y, v, u), "f8")
    assert fast.stats().failures == 0
    assert row_kernels(fast) == 1


def test_what_lies_between_two_parts_of_a_row_kernel_is_part_of_it():
    def between(X, w, v):
        t = (v @ X.T) * 0.1
        s = t + w
        return X * (X @ v)[:, None] * s[:, None], s, t @ X

    fast = jitla.jit(between)
    given = arguments(300, 40, "f8")
    close(fast(*given), between(*given), "f8")
    assert fast.stats().failures == 0


@pytest.mark.parametrize("order", "CF")
def test_rows_of_a_square_matrix_are_not_its_columns(order):
    def turned(X, v):
        Y, Z = X + 1.0, X.T - 1.0
        return Y, Y @ v, Y @ (v * 2.0), Z, Z @ v, Z @ (v * 2.0)

    X, v, _ = arguments(200, 200, "f8")
    X = np.asarray(X, order=order)
    fast = jitla.jit(turned)
    for _ in range(2):
        close(fast(X, v), turned(X, v), "f8")
    assert fast.stats().failures == 0


def test_every_stage_has_the_scratch_memory_it_asks_for(monkeypatch):
    def single(X, w, v):
        return X.T @ ((X * (X @ v)[:, None]).sum(axis=1) * w)

    asked = []

    def note(entry, finish, kinds, stages, combines, cut, *more):
        free = cut.slot_bytes - cut.scratch_offset
        asked.extend((struct.unpack_from("<q", b, 40)[0], free) for s in stages for b in s[:2])
        return pack_rows(entry, finish, kinds, stages, combines, cut, *more)

    monkeypatch.setattr(backend, "pack_rows", note)
    X, w, v = arguments(9, 600_000, "f4")  # the last block is one row
    fast = jitla.jit(single)
    close(fast(X, w, v), single(X, w, v), "f4")
    assert any(bytes_ for bytes_, _ in asked)
    assert all(bytes_ <= free for bytes_, free in asked)


@pytest.mark.usefixtures("two_threads")
def test_small_matrices_and_lone_products_stay_with_blas():
    fast = jitla.jit(lambda X, w, v: X.T @ (w * (X @ v) - 3.0))
    fast(*arguments(20, 30, "f8"))
    assert row_kernels(fast) == 0
    lone = jitla.jit(lambda X, v: X @ v)
    lone(*arguments(2000, 50, "f8")[::2])
    assert row_kernels(lone) == 0


def nearest(X, w, v):
    D = ((X[:, None] - X[:3]) ** 2).sum(-1)
    return D.argmin(1), D.min(1)


def nearest_by_product(X, w, v):
    C = X[:5] + v
    D = (X * X).sum(axis=1)[:, None] - 2.0 * (X @ C.T) + (C * C).sum(axis=1)
    return D.argmin(axis=1)


def signs(X, w, v):
    return (X > v).argmax(axis=-1), (X < v).argmin(axis=-1)


def kept(X, w, v):
    Y = np.abs(X - v)
    return Y, np.argmax(Y, axis=1, keepdims=True), Y.argmin(1)[:, None] * w[:, None]


def weights_behind(X, w, v):
    at = (X * v).argmax(axis=1)
    return X.T @ (w * at), at


def along_stacks(X, w, v):
    T = np.stack([X, X * v, -X], axis=1)
    return T.argmin(-1), (T * v).argmax(2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize(
    "function", [nearest, signs, kept, along_stacks], ids=lambda f: f.__name__)
def test_extremes_of_rows_are_found_where_numpy_finds_them(function, dtype, threads, monkeypatch):
    monkeypatch.setattr(backend, "runtime_threads", lambda: threads)
    g = jitla.jit(function)
    for m, n in [(1, 9000), (7, 2000), (161, 65), (3000, 33), (20_011, 5), (9000, 1)]:
        X = rng.integers(-3, 4, (m, n)).astype(dtype)
        X[m // 2:, n // 3] = np.nan
        args = X, rng.normal(size=m).astype(dtype), rng.normal(size=n).astype(dtype)
        for got, wanted in zip(g(*args), function(*args), strict=True):
            assert got.dtype == wanted.dtype and got.shape == wanted.shape
            assert got.tobytes() == wanted.tobytes(), (m, n)
    assert g.stats().failures == 0 and row_kernels(g)


@pytest.mark.parametrize("function", [nearest_by_product, weights_behind], ids=lambda f: f.__name__)
def test_extremes_beside_products(function):
    g = jitla.jit(function)
    for m, n in [(300, 41), (9001, 20)]:
        args = rng.integers(-9, 9, (m, n)) * 1.0, rng.integers(-9, 9, m) * 1.0, rng.integers(1, 9, n) * 1.0
        got, wanted = g(*args), function(*args)
        for x, y in zip(got, wanted, strict=True) if type(got) is tuple else [(got, wanted)]:
            assert x.tolist() == y.tolist()


def test_rows_without_elements_have_no_extreme():
    g = jitla.jit(lambda X: (X * 2.0).argmin(axis=1))
    for shape in [(5000, 8), (0, 8), (5000, 1)]:
        assert g(np.ones(shape)).tolist() == [0] * shape[0]
    for _ in range(3):
        with pytest.raises(ValueError, match="empty sequence"):
            g(np.ones((5000, 0)))


# Matrices in column-major order: one pass

COLUMNS_SIZES = [(8192, 4), (8195, 33), (20_011, 7)]
# How many passes over the matrix each takes.
PASSES = {gram_vector: 1, logistic: 1, hinge: 1, one_behind_the_other: 2, total_between: 2}
columns_rng = np.random.default_rng(9)


def of_rows(function):
    """Return the function of a matrix whose long rows are the columns that `function` is given."""

    def turned(X, w, v):
        return function(X.T, w, v)

    return turned


def column_major_arguments(rows, columns, dtype):
    X = np.asfortranarray(columns_rng.standard_normal((rows, columns)).astype(dtype))
    return X, columns_rng.standard_normal(rows).astype(dtype), \
        columns_rng.standard_normal(columns).astype(dtype)


def close_to_either(found, wanted, dtype):
    rtol = 1e-10 if dtype == "f8" else 3e-4
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else ((found, wanted),)
    for a, b in pairs:
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(np.abs(b).max(), 1))


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("function", PASSES, ids=lambda f: f.__name__)
def test_column_major_matrices_give_numpys_results(function, dtype):
    columns, rows = jitla.jit(function), jitla.jit(of_rows(function))
    for m, n in COLUMNS_SIZES:  # one plan for all
        X, w, v = column_major_arguments(m, n, dtype)
        wanted = function(X, w, v)
        close_to_either(columns(X, w, v), wanted, dtype)
        close_to_either(rows(X.T, w, v), wanted, dtype)
    assert columns.stats().failures == rows.stats().failures == 0


@pytest.mark.parametrize("function", PASSES, ids=lambda f: f.__name__)
def test_blocks_of_the_matrix_are_read_once(function):
    fast = jitla.jit(function)
    fast(*column_major_arguments(30_000, 50, "f8"))
    assert str(jitla.explain(fast, level="plan")).count("  Row ") == PASSES[function]


def test_vectors_that_lie_apart_or_backwards():
    X, w, v = column_major_arguments(9000, 20, "f8")
    apart = np.repeat(w, 2)[::2], np.repeat(v, 2)[::2]
    for A, r, c in ((X, *apart), (X[::-1], w, v[::-1]), (X[:, ::-1], w[::-1], v), (X[:, ::2], w, v[:10])):
        fast = jitla.jit(gram_vector)
        close_to_either(fast(A, r, c), gram_vector(A, r, c), "f8")
        assert fast.stats().failures == 0


def test_nan_and_infinity_of_column_major_matrices_go_where_numpy_has_them():
    X, w, v = column_major_arguments(8200, 12, "f8")
    X[8199, 3], X[5, 0], v[7] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        wanted, found = X @ v, jitla.jit(lambda X, v: X @ v)(X, v)
        assert (np.isnan(found) == np.isnan(wanted)).all() and (np.isinf(found) == np.isinf(wanted)).all()


# Aggregates of different directions in one pass over a matrix: NumPy's bits, on any number of threads.

SHAPES = [(20_011, 5), (2, 9000), (9, 1025), (1025, 8), (1601, 65), (3000, 2), (40, 30, 20)]
directions_rng = np.random.default_rng(14)


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


DIRECTIONS_FUNCTIONS = [rows_of_a_sum, sums, extremes, squares, centred, truths]


def values(shape, dtype):
    found = directions_rng.standard_normal(shape) * 10.0 ** directions_rng.integers(-3, 4, shape)
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
@pytest.mark.parametrize("function", DIRECTIONS_FUNCTIONS)
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


def test_aggregates_of_two_directions_read_the_matrix_once():
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
