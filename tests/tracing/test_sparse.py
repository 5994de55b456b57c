"""Sparse matrices of SciPy in traced functions."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import jitla
from jitla.config import TracingThresholds
from tests.tracing.sparse_calls import differs, faults

# Sparse matrices of SciPy in traced functions: what SciPy gives, without what it would write on the way.


@pytest.fixture
def whatever_it_gains():
    """Small matrices are recorded, too."""
    with jitla.options(thresholds=TracingThresholds(min_sparse_elements=0)):
        yield


ROWS = (sp.csr_array, sp.csr_matrix)
CLASSES = (*ROWS, sp.csc_array, sp.csc_matrix)


def matrix(kind=sp.csr_array, m=60, n=40, dtype="f8"):
    dense = np.random.default_rng(m).random((m, n)).astype(dtype)
    dense[np.random.default_rng(n).random((m, n)) > 0.2] = 0
    return kind(dense)


def parts(value: Any) -> Any:
    """What can be seen of a result."""
    if isinstance(value, tuple):
        return [parts(each) for each in value]
    if sp.issparse(value):
        fields = {k: v for k, v in vars(value).items() if "_has_" not in k and k != "has_canonical_format"}
        return type(value), {k: parts(v) for k, v in fields.items()}
    if isinstance(value, np.ndarray):
        return type(value), value.dtype, value.shape, value.strides, value.flags.owndata, value.tobytes()
    return type(value), value


def same(function, *args, kernels=None):
    """Both give the same, twice, and leave the same arguments behind."""
    fast = jitla.jit(function)
    for _ in range(2):
        given = [[a.copy() for a in args] for _ in range(2)]
        wanted, found = function(*given[0]), fast(*given[1])
        assert parts(found) == parts(wanted)
        assert parts(tuple(given[1])) == parts(tuple(given[0]))
    if kernels is not None:
        assert fast.stats().kernels >= kernels
    return fast


def alike(function, *args):
    """Both give the same but for rounding, twice."""
    fast = jitla.jit(function)
    for _ in range(2):
        given = [[a.copy() for a in args] for _ in range(2)]
        found = list(differs(function(*given[0]), fast(*given[1]), 1e-16))
        assert not found and parts(tuple(given[1])) == parts(tuple(given[0]))


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_products_with_matrices(kind, dtype):
    x, v = matrix(kind, dtype=dtype), np.linspace(1, 2, 40).astype(dtype)
    fast = same(lambda x, v: (x @ (v[:, None] - v[:5]), x.dot(v[:, None] + v[:3])), x, v)
    assert "csr_product" in str(jitla.explain(fast))

    def products(x, v):
        return x @ (v * 2), x.dot(v), x.T @ x.toarray()

    fast = jitla.jit(products)
    for _ in range(2):
        for found, wanted in zip(fast(x, v), products(x, v), strict=True):
            assert found.dtype == wanted.dtype and found.strides == wanted.strides
            np.testing.assert_allclose(found, wanted, rtol=1e-5 if dtype == "f4" else 1e-13)


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_products_with_vectors_add_in_another_order(kind, dtype):
    def products(x, v):
        return x @ (v * 2), x.dot(v), v @ x.T, x.T @ (x @ v)

    x, v = matrix(kind, dtype=dtype), np.linspace(1, 2, 40).astype(dtype)
    fast = jitla.jit(products, compile="sync")
    for _ in range(2):
        for found, wanted in zip(fast(x, v), products(x, v), strict=True):
            assert (found.dtype, found.shape, found.strides) == (wanted.dtype, wanted.shape, wanted.strides)
            np.testing.assert_allclose(found, wanted, rtol=50 * np.finfo(dtype).eps)
    assert "csr_" in str(jitla.explain(fast))


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", ROWS)
def test_products_of_coordinates_with_matrices_are_views(kind):
    x, d = matrix(kind), np.random.default_rng(0).random((60, 40))
    same(lambda x, d: (x.multiply(d) @ d[:3].T, x.multiply(d).T @ d[:, :3], d[:3] @ x.multiply(d).T), x, d)


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", CLASSES)
def test_means_along_an_axis_are_products_with_ones(kind):
    x = kind(sp.csr_array([[2.5, -3.75, 1.0, 0, 0], [0, 2.5, 0, -3.75, 1.0], [0] * 5]))
    same(lambda x: (x.mean(axis=1), x.mean(0), np.mean(x, axis=-1), (x * 2).mean(-2)), x)


@pytest.mark.usefixtures("whatever_it_gains")
def test_small_ones_are_scipys():
    with jitla.options(thresholds=TracingThresholds()):
        fast = same(lambda x, v: x @ (v[:, None] * v[:5]), matrix(), np.linspace(1, 2, 40))
        assert "csr_product" not in str(jitla.explain(fast))


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", ROWS)
def test_a_product_of_factors_is_never_formed(kind):
    def loss(x, u, v):
        return x.multiply(np.log(u @ v.T + 1e-15)).sum()

    fast = jitla.jit(loss)
    x = matrix(kind)
    u, v = (np.random.default_rng(k).random((n, 7)) for k, n in enumerate((60, 40)))
    for _ in range(2):
        np.testing.assert_allclose(fast(x, u, v), loss(x, u, v), rtol=1e-12)
    assert "sampled_product" in str(jitla.explain(fast)) and "matmul" not in str(jitla.explain(fast))


@pytest.mark.usefixtures("whatever_it_gains")
def test_strict_numerics_form_it():
    def product(x, u, v):
        return x.multiply(u @ v.T)

    fast = jitla.jit(product, numerics="strict")
    u, v = (np.random.default_rng(k).random((n, 7)) for k, n in enumerate((60, 40)))
    for _ in range(2):
        assert parts(fast(matrix(), u, v)) == parts(product(matrix(), u, v))


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", ROWS)
def test_a_pending_matrix_is_what_scipy_makes(kind):
    def whole(x, d):
        p = x.multiply(d + 1)
        return p, p.sum(), type(p).__name__, p.shape, p.dtype, p.format, sp.issparse(p), p.nnz

    same(whole, matrix(kind), np.random.default_rng(0).random((60, 40)))


@pytest.mark.usefixtures("whatever_it_gains")
def test_the_operator_of_arrays_is_element_wise():
    d = np.random.default_rng(0).random((60, 40))
    same(lambda x, d: (x * (d - 1), (d - 1) * x, (x * (d - 1)).sum()), matrix(), d)

    def products(x, d):
        return (x * (d * 2)) @ d[0], (x * d) @ d.T

    fast = jitla.jit(products)
    for _ in range(2):
        for found, wanted in zip(fast(matrix(), d), products(matrix(), d), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-13)


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("change", [
    lambda x: x.data.__imul__(2), lambda x: x.sum_duplicates(), lambda x: x.eliminate_zeros(),
    lambda x: x.indices.__setitem__(slice(0, 3), x.indices[:3][::-1].copy()),
])
def test_what_is_pending_is_computed_before_the_matrix_changes(change):
    def changing(x, d):
        p, s = x.multiply(d * 2), x @ (d[:2].T * 3)
        change(x)
        return p, s, p.sum(), x @ d[:2].T

    x = matrix()
    x.data[3] = 0
    alike(changing, x, np.random.default_rng(0).random((60, 40)))


@pytest.mark.usefixtures("whatever_it_gains")
def test_stores_in_place_on_entries_come_after_reads():
    def changing(x, d):
        p = x.multiply(d * 2)
        x.data *= 3
        x.data[0] = 7
        return p, p.sum(), x.sum()

    same(changing, matrix(), np.random.default_rng(0).random((60, 40)))


@pytest.mark.usefixtures("whatever_it_gains")
def test_duplicates_and_order():
    x = matrix()
    turned = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(x.indptr, x.indptr[1:], strict=False)])
    mixed = sp.csr_array((x.data[turned], x.indices[turned], x.indptr), shape=x.shape)
    twice = sp.csr_array((x.data, np.maximum(x.indices - x.indices % 2, 0), x.indptr), shape=x.shape)
    d = np.random.default_rng(0).random((60, 40))
    for given in (mixed, twice):
        alike(lambda x, d: (x.multiply(d + 1), x @ d[0]), given, d)

        def summed(x, d):
            p = x.multiply(d + 1)
            s = p.sum()
            return p, s

        fast = jitla.jit(summed)
        for _ in range(2):
            (p, s), (q, t) = fast(given.copy(), d), summed(given.copy(), d)
            assert parts(p) == parts(q)
            np.testing.assert_allclose(s, t, rtol=1e-13)


def random(seed, kind=sp.csr_array, shape=(60, 40)):
    return kind(sp.random_array(shape, density=0.2, rng=seed))


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", CLASSES)
def test_merged_matrices_are_never_made(kind):
    """Not at first: where both have entries is looked for when they are met again."""
    def merged(a, b, c):
        return (a + b).multiply(c).sum()

    given = [random(seed, kind) for seed in range(3)]
    fast = jitla.jit(merged, compile="sync")
    for _ in range(4):
        np.testing.assert_allclose(fast(*given), merged(*given), rtol=1e-13)
    shown = str(jitla.explain(fast))
    assert "stored_add" in shown and "take where stored_mul sum" in shown


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("index", ["i4", "i8"])
def test_products_of_what_was_made_share_its_positions(kind, index):
    def f(X, d):
        scaled = X * 3
        return scaled.multiply(d), scaled

    X = matrix(kind)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    d = np.ones(X.shape)
    for function in (f, jitla.jit(f)):
        product, scaled = function(X, d)
        assert np.shares_memory(product.coords[1], scaled.indices)
        assert scaled.indices.dtype == (index if kind is sp.csr_array else "i4")


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", CLASSES)
def test_the_transposed_matrix_shares_the_arrays_of_one_in_memory(kind):
    def f(X, w):
        Y = X.T
        first = Y @ w
        X.data[0] = 5
        X.data = X.data * 2
        return first, Y, Y @ w, X.T @ w, Y.T

    X = matrix(kind)
    X.data = np.arange(1.0, X.nnz + 1)
    same(f, X, np.ones(X.shape[0]))
    view = jitla.jit(lambda X: X.T)(X)
    assert np.shares_memory(view.data, X.data) and np.shares_memory(view.indices, X.indices)


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("left", CLASSES)
@pytest.mark.parametrize("right", CLASSES)
def test_products_have_indices_as_wide_as_those_of_the_factors(left, right):
    for which in range(2):
        A, B = matrix(left), matrix(right, 40, 20)
        wide = (A, B)[which]
        wide.indices, wide.indptr = wide.indices.astype("i8"), wide.indptr.astype("i8")
        wanted, found = A @ B, jitla.jit(lambda A, B: A @ B)(A, B)
        assert found.indices.dtype == wanted.indices.dtype and found.indptr.dtype == wanted.indptr.dtype


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("left", CLASSES)
@pytest.mark.parametrize("right", CLASSES)
def test_products_with_products_begin_with_the_vector(monkeypatch, left, right):
    def once(A, B, v):
        return A @ B @ v

    def more(A, B, v):
        P = A @ B
        A.data[0] = 7
        first = P @ v
        return first, P @ v, P, P.nnz, P.T @ first, P.sum(), P.shape, P.dtype, P.format, type(P)

    A, B = matrix(left), matrix(right, 40, 20)
    v = np.random.default_rng(0).random(20)
    B.data[::5] = 0  # stored; a product with infinity is NaN
    alike(once, A, B, np.where(v > 0.9, np.inf, v))
    asked = []
    monkeypatch.setattr(sp._compressed._cs_matrix, "_matmul_sparse",
                        lambda self, other, do=sp._compressed._cs_matrix._matmul_sparse:
                        asked.append(1) or do(self, other))
    alike(once, A, B, v)
    assert len(asked) == 2  # the plain function, twice
    for _ in range(2):
        given = [[x.copy() for x in (A, B, v)] for _ in range(2)]
        wanted, found = more(*given[0]), jitla.jit(more)(*given[1])
        for x, y in zip(wanted, found, strict=True):
            assert type(x) is type(y)
            if isinstance(x, np.ndarray | float):
                np.testing.assert_allclose(y, x, rtol=1e-12)
            else:
                assert parts(x) == parts(y)


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", CLASSES)
def test_strict_numerics_have_the_bits_of_scipy(kind):
    def f(A, B, v, W):
        return A @ B @ v, A @ W, A.T @ (A @ W), A.sum(0), A.sum(1), A.mean(1), v @ B.T, A @ W[:, :1]

    A, B, rng = matrix(kind), matrix(m=40, n=20), np.random.default_rng(0)
    for x, y in zip(*(g(A, B, v, W) for v, W in [(rng.random(20), rng.random((40, 3)))]
                      for g in (f, jitla.jit(f, numerics="strict"))), strict=True):
        assert parts(x) == parts(y)


@pytest.mark.usefixtures("whatever_it_gains")
def test_what_was_found_of_a_matrix_is_not_kept_for_longer():
    def f(X, v, change):
        before = X @ v
        change(X)
        return before, X @ v, X.T @ (X @ v)

    def moved(X):
        X.indices[:] = X.indices[::-1].copy()

    def shorter(X):
        X.resize(X.shape)
        X.data = X.data * 2

    def otherwise(X):
        X.data[:] = X.data[::-1].copy()

    X = sp.csr_array(np.arange(12.0).reshape(3, 4))
    for change in (moved, shorter, otherwise):
        same(lambda X, v, change=change: f(X, v, change), X, np.ones(4))

    def written(X, v):
        before = X @ v
        X.indices[0], X.indices[1] = X.indices[1], X.indices[0]
        return before, X @ v

    same(written, X, np.arange(4.0))


@pytest.mark.usefixtures("whatever_it_gains")
def test_what_is_merged_is_looked_at_every_time():
    fast = jitla.jit(lambda a, b: a - b.multiply(a), compile="sync")
    a, b = random(0), random(1)
    for k in range(6):
        if k > 2:
            a.indices[:] = np.concatenate([np.sort(np.roll(np.arange(40), k)[:n]) for n in np.diff(a.indptr)])
        found, wanted = fast(a, b), a - b.multiply(a)
        assert parts(found)[0] is parts(wanted)[0]
        for name in ("indptr", "indices", "data"):
            assert np.array_equal(getattr(found, name), getattr(wanted, name))


@pytest.mark.usefixtures("whatever_it_gains")
def test_zeros_that_scipy_drops_are_dropped():
    def dropping(a, b):
        p = a - b
        q = p * 1e-300 * 1e-300  # these zeros stay
        return p, q, q.nnz, p.T, abs(p).sum(1), (a > 0.5), a.maximum(0.5 - 1), p.power(2)

    a, b = random(0), random(0)
    b.data[::3] += 1
    a.data[1::3] -= 0.7
    fast = jitla.jit(dropping, compile="sync")
    for _ in range(3):
        for found, wanted in zip(fast(a, b), dropping(a, b), strict=True):
            if sp.issparse(wanted):
                for name in ("indptr", "indices", "data"):
                    assert np.array_equal(getattr(found, name), getattr(wanted, name))
            else:
                np.testing.assert_allclose(found, wanted, rtol=1e-13)


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", CLASSES)
def test_views_of_what_is_pending_share_its_memory(kind):
    def shared(x):
        y = x * 2
        z = y.T
        w = z.T
        y.data[0] = 7
        s = z.sum()
        z.data[1] = 8
        return y, z, w, s, np.shares_memory(y.data, z.data), np.shares_memory(y.indices, w.indices)

    same(shared, matrix(kind))


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("change", [
    lambda x: setattr(x, "indices", x.indices[::-1].copy()), lambda x: setattr(x, "data", x.data + 1),
    lambda x: x.sort_indices(), lambda x: x.resize(50, 30),
])
def test_a_pending_matrix_keeps_the_positions_it_was_made_of(change):
    def changing(x):
        y = x * 2
        z = x.multiply(x.toarray() + 1)
        change(x)
        return y, z, x * 2

    same(changing, matrix())


@pytest.mark.usefixtures("whatever_it_gains")
def test_what_scipy_does_with_large_matrices_is_counted():
    fast = jitla.jit(lambda x: x.tocsc().diagonal())
    with jitla.options(thresholds=TracingThresholds(min_sparse_elements=0, min_counted_sparse_entries=0)):
        fast(matrix())
    assert fast.stats().fallbacks == 2 and "tocsc" in str(jitla.coverage())


class Box:
    """Has attributes."""


@pytest.mark.usefixtures("whatever_it_gains")
def test_what_outlives_the_call_is_scipys():
    kept: list[Any] = []
    box, table = Box(), {}

    def storing(x, d):
        p = x.multiply(d + 1)
        box.p, table["p"] = p, p
        kept.append(p)
        return [p], (p, p)

    fast = jitla.jit(storing)
    x, d = matrix(), np.random.default_rng(0).random((60, 40))
    for _ in range(2):
        result = fast(x, d)
        for found in (box.p, table["p"], kept[-1], result[0][0], *result[1]):
            assert type(found) is sp.coo_array and parts(found) == parts(x.multiply(d + 1))


@pytest.mark.usefixtures("whatever_it_gains")
def test_it_answers_as_scipys():
    def asked(x, d):
        p = x.multiply(d + 1)
        q = x.multiply(d + 2)
        return (p + q, p - x, p * 2, 2 * p, p / 2, -p, abs(p), p.T, p.tocsr(), p.toarray(), p.max(),
                p.sum(axis=0), p.sum(1), repr(q), bool(p.nnz), np.sum(q),
                pickle.loads(pickle.dumps(p)), np.sqrt(abs(q)),
                isinstance(p, sp.sparray), q.power(2), q.data, p.row, p.multiply(d), sp.hstack([p, q]))

    same(asked, matrix(), np.random.default_rng(0).random((60, 40)))


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("ask", [len, lambda p: p[0, 0, 0], lambda p: p.nowhere, bool, hash, iter, float])
def test_it_refuses_as_scipys(ask):
    def refused(x, d):
        p = x.multiply(d + 1)
        try:
            return ask(p)
        except Exception as error:
            return type(error), str(error)

    x, d = matrix(), np.random.default_rng(0).random((60, 40))
    wanted = refused(x, d)
    if isinstance(wanted, tuple):
        assert jitla.jit(refused)(x, d) == wanted


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", [*CLASSES, sp.coo_array, sp.coo_matrix, sp.lil_matrix])
@pytest.mark.parametrize("dtype", ["f8", "i4", "c16", "?"])
def test_other_kinds_are_scipys(kind, dtype):
    x = kind(matrix(m=9, n=6).astype(dtype))
    d = np.random.default_rng(0).random((9, 6))

    def function(x, d, v):
        return x @ v, x.multiply(d), x.T @ d[:, 0], x.multiply(2.0), x.multiply(v)

    fast = jitla.jit(function)
    v = np.ones(6)
    for _ in range(2):
        for found, wanted in zip(fast(x, d, v), function(x, d, v), strict=True):
            assert type(found) is type(wanted)
            wanted, found = (r.toarray() if sp.issparse(r) else r for r in (wanted, found))
            np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.usefixtures("whatever_it_gains")
def test_errors_are_scipys():
    x = matrix()
    for wrong in (np.ones(41), np.ones((41, 2)), np.ones((2, 40, 3))):
        with pytest.raises(ValueError) as plain:
            x @ wrong
        with pytest.raises(ValueError) as traced:
            jitla.jit(lambda x, v: x @ (v * 2))(x, wrong)
        assert str(traced.value) == str(plain.value)


@pytest.mark.usefixtures("whatever_it_gains")
def test_callables_of_users_are_not_asked_whose_they_are():
    asked = []

    class Callee:
        def __getattr__(self, name):
            asked.append(name)
            raise AttributeError(name)

        def __call__(self, x):
            return x + 1

    callee = Callee()
    jitla.jit(lambda x: callee(x * 2))(np.ones(5))
    assert "__self__" not in asked


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", CLASSES)
def test_zeros_of_coordinates_are_left_out_where_they_meet_infinity(kind):
    x, v = matrix(kind), np.linspace(1, 2, 40)
    m = np.ones((40, 3))
    m[7, 1], m[9] = np.inf, np.nan

    def masked(x, v, m):
        return x.multiply((v > 1.5) * 1.0) @ m

    fast = jitla.jit(masked, compile="sync")
    for given in (m, np.ones((40, 3))):
        for _ in range(2):
            np.testing.assert_allclose(fast(x, v, given), masked(x, v, given), rtol=1e-13)


@pytest.mark.usefixtures("whatever_it_gains")
def test_numpy_multiplies_elements_of_arrays_with_a_matrix():
    X, d = sp.csr_array(np.eye(3)), np.arange(9.0).reshape(3, 3)
    for f in (lambda X, d: np.multiply(X, d), lambda X, d: np.multiply(d * 2, X * 2)):
        found, wanted = jitla.jit(f, compile="sync")(X, d), f(X, d)
        assert found.dtype == wanted.dtype == object and found.shape == wanted.shape
        assert type(found[1, 2]) is type(wanted[1, 2]) and (found[1, 2] != wanted[1, 2]).nnz == 0


@pytest.mark.usefixtures("whatever_it_gains")
def test_coordinates_that_scipy_looked_at_are_known_to_be_in_order():
    def function(X):
        doubled = X * 2
        turned = doubled.T
        return doubled, turned, abs(doubled), turned.sqrt(), X * 3

    coo = matrix(sp.coo_array)
    coo.has_canonical_format = False
    wanted, found = function(coo), jitla.jit(function)(coo)
    flags = [x.has_canonical_format for x in wanted]
    assert [x.has_canonical_format for x in found] == flags and True in flags and False in flags


@pytest.mark.usefixtures("whatever_it_gains")
@pytest.mark.parametrize("kind", CLASSES)
def test_conversions_that_scipy_need_not_make_are_the_matrix_itself(kind: Any) -> None:
    def conversions(x: Any) -> Any:
        y = x * 2.0
        return [y.asformat("csr") is y, y.tocsc() is y, y.tocsr(copy=False) is y, y.copy() is y, y.T.T is y]

    same(conversions, matrix(kind))


@pytest.mark.usefixtures("whatever_it_gains")
def test_quotients_that_scipy_has_to_make_warn_once() -> None:
    def quotient(x: Any, d: Any) -> Any:
        return (x - x) / d

    found = []
    for function in (quotient, jitla.jit(quotient)):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            function(matrix(), np.zeros((60, 40)))
        found.append([str(each.message) for each in heard])
    assert found[0] == found[1] and len(found[0]) == 1


# Random programs on sparse matrices of every kind, plain and traced.


@pytest.mark.parametrize("part", range(6))
def test_random_programs(part):
    with jitla.options(compile="sync", thresholds=TracingThresholds(min_sparse_elements=0)):
        found = [fault for seed in range(40 * part, 40 * part + 40) for fault in faults(seed)]
    assert not found, "\n".join(found[:3])
