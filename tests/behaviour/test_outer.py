"""Products whose rows are used while they are in the cache: NumPy's results, whatever is done with them."""

from __future__ import annotations

import re
import struct
import warnings

import numpy as np
import pytest

import jitla

rng = np.random.default_rng(8)
# Rows, length of the sums, columns: all bound to plans that were made for some of them.
SIZES = [(3000, 20, 200), (3001, 33, 65), (2500, 300, 64), (5000, 24, 70), (1023, 600, 129),
         (40, 24, 1000), (5, 30, 5000), (1, 20, 200), (3000, 1, 200), (3000, 20, 1), (3000, 20, 30),
         (0, 20, 70)]


def relu(A, W, S, b):
    return np.maximum(A @ W + b, 0.0)


def logistic(A, W, S, b):
    return 1.0 / (1.0 + np.exp(-(A @ W + b)))


def largest(A, W, S, b):
    return (A @ W).max(axis=1)


def softmax(A, W, S, b):
    Z = A @ W + b
    E = np.exp(Z - Z.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


def weighted_total(A, W, S, b):
    return (S * (A @ W)).sum()


def squared_loss(A, W, S, b):
    return ((S - A @ W) ** 2).sum(), ((S - A @ W) ** 2).sum(axis=0)


def column_sums(A, W, S, b):
    return np.abs(A @ W).sum(axis=0, keepdims=True)


def right(A, W, S, b):
    return (S * (A @ W)) @ W.T


def left(A, W, S, b):
    return A.T @ (S * (A @ W))


def gradients(A, W, S, b):
    R = S - A @ W
    return R @ W.T, A.T @ R, (R * R).sum()


def gate(A, W, S, b):
    return np.tanh(A @ W + A @ (2.0 * W) + b) * S


def two_layers(A, W, S, b):
    return np.maximum(A @ W, 0.0), np.tanh(A @ (W * 0.5))


def standardised(A, W, S, b):
    X = (S - b) / (b * b + 1.0)
    return X.T @ X, X.T @ A[:, 0]


def in_place(A, W, S, b):
    out = S.copy()
    out += A @ W
    np.maximum(out, 0.0, out=out)
    return out


FUNCTIONS = [relu, logistic, largest, softmax, weighted_total, squared_loss, column_sums, right, left,
             gradients, gate, two_layers, standardised, in_place]


def arguments(size, dtype):
    m, k, n = size
    return [rng.normal(size=s).astype(dtype) for s in ((m, k), (k, n), (m, n), (n,))]


def same(made, wanted, scale):
    made = made if isinstance(made, tuple) else (made,)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for a, b in zip(made, wanted, strict=True):
        assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
        assert np.asarray(a).strides == np.asarray(b).strides
        assert np.array_equal(np.isnan(a), np.isnan(b))
        finite = np.isfinite(b)
        assert ((a == b) | np.isnan(b) | finite).all()
        apart = np.abs(np.subtract(a, b, where=finite, out=np.zeros_like(b)))
        assert np.max(apart, initial=0.0) <= scale * np.max(
            np.abs(b), where=finite, initial=1.0)


def outers(fast):
    return str(jitla.explain(fast, level="plan")).count("  Outer ")


@pytest.mark.parametrize("dtype, threads", [("f8", 1), ("f8", 2), ("f4", 2)])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_same_as_numpy(function, dtype, threads):
    fast = jitla.jit(function)
    with jitla.options(num_threads=threads):
        for size in SIZES if threads > 1 else SIZES[::3]:
            if function in (largest, softmax) and not size[0]:
                continue
            given = arguments(size, dtype)
            same(fast(*given), function(*given), 1e-11 if dtype == "f8" else 3e-3)
    fast(*arguments(SIZES[0], dtype))
    assert outers(fast) > 0


@pytest.mark.parametrize("function", [relu, gradients, standardised], ids=lambda f: f.__name__)
def test_operands_that_lie_otherwise(function):
    fast = jitla.jit(function)
    A, W, S, b = arguments((3000, 24, 200), "f8")
    wide = np.zeros((3000, 60))
    wide[:, ::2][:, :24] = A
    for X in (A, np.asfortranarray(A), wide[:, ::2][:, :24], A[::-1]):
        for V in (W, np.asfortranarray(W), W[:, ::-1]):
            for Y in (S, np.asfortranarray(S)):
                same(fast(X, V, Y, b), function(X, V, Y, b), 1e-11)


@pytest.mark.parametrize("function", [weighted_total, squared_loss, gradients, standardised],
                         ids=lambda f: f.__name__)
def test_sums_do_not_depend_on_threads(function):
    given = arguments((4001, 24, 200), "f8")
    found = []
    for threads in (1, 2):
        with jitla.options(num_threads=threads):
            made = jitla.jit(function)(*given)
            found.append([np.asarray(a).tobytes() for a in (made if isinstance(made, tuple) else (made,))])
    assert found[0] == found[1]


def test_a_sum_of_products_with_itself_is_symmetric():
    given = arguments((3000, 24, 200), "f8")
    made, _ = jitla.jit(standardised)(*given)
    assert (made == made.T).all()


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e308])
def test_values_that_are_no_numbers_and_their_warnings(value):
    A, W, S, b = arguments((3000, 24, 200), "f8")
    A[7, 3], W[3, 5] = value, -2.0
    fast = jitla.jit(relu)
    told = []
    for function in (relu, fast, fast):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = function(A, W, S, b)
        told.append({(w.category, str(w.message)) for w in caught})
        same(made, relu(A, W, S, b) if function is fast else made, 1e-11)
    assert told[0] == told[1] == told[2]


def test_the_product_is_not_written():
    given = arguments((20_000, 24, 200), "f8")
    fast = jitla.jit(gradients)
    fast(*given)
    text = str(jitla.explain(fast, level="plan"))
    assert outers(fast) == 1 and "0 intermediates in memory" in text


def test_strict_leaves_products_to_numpy():
    given = arguments((3000, 24, 200), "f8")
    with jitla.options(numerics="strict"):
        fast = jitla.jit(relu)
        assert struct.pack("d", fast(*given)[0, 0]) == struct.pack("d", relu(*given)[0, 0])
        assert (fast(*given) == relu(*given)).all() and not outers(fast)


@pytest.mark.parametrize("rule", ["none", "patterns", "all", "no-redundancy"])
@pytest.mark.parametrize("function", [logistic, gradients, standardised], ids=lambda f: f.__name__)
def test_plans_by_rule_of_thumb(function, rule):
    given = arguments((3000, 24, 200), "f8")
    with jitla.options(fusion=rule):
        fast = jitla.jit(function)
        same(fast(*given), function(*given), 1e-11)


def column_sums(v, w, b):
    s = v + w
    return np.abs(s @ b.T).sum(axis=0), s * 2.0


@pytest.mark.parametrize("rows", [128, 129, 130])
def test_a_last_block_of_one_row_is_added_as_others_are(rows):
    v, w = rng.normal(size=(2, rows, 16))
    b = rng.normal(size=(rows, 16))
    fast = jitla.jit(column_sums)
    with jitla.options(fusion="all"):
        same(fast(v, w, b), column_sums(v, w, b), 1e-11)
    assert fast.stats().failures == 0 and outers(fast)


def attention(Q, K, V, M):
    S = Q @ K.T / np.sqrt(Q.shape[-1])
    S = S - S.max(-1, keepdims=True)
    E = np.exp(S)
    P = E / E.sum(-1, keepdims=True)
    return P @ V


def masked_attention(Q, K, V, M):
    S = np.where(M, Q @ K.T * 0.125, -np.inf)
    E = np.exp(S - S.max(axis=-1, keepdims=True))
    return (E @ V) / E.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("function", [attention, masked_attention], ids=lambda f: f.__name__)
def test_attention_never_writes_the_matrix_of_all_pairs(function, dtype):
    fast = jitla.jit(function)
    for n in (1100, 1473, 1100):
        Q, K, V = (rng.normal(size=(n, 64)).astype(dtype) for _ in range(3))
        M = np.tri(n, dtype=bool)
        M[[0, 7, n - 1]] = False  # nothing at all to look at
        M[n // 2] = True
        with np.errstate(invalid="ignore"):
            made, wanted = fast(Q, K, V, M), function(Q, K, V, M)
        same(made, wanted, 1e-13 if dtype == "f8" else 2e-5)
        assert np.isnan(wanted).any() == (function is masked_attention)
    assert fast.stats().failures == 0 and outers(fast)
    if dtype == "f8":
        assert fast.stats().numpy_calls == 0
        assert not re.search(r"[1-9]\d* intermediates? in memory", str(jitla.explain(fast)))
