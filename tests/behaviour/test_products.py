"""Products with wide matrices and of stacks of small matrices, fused with the operations around them."""

from __future__ import annotations

import re
import struct
import warnings

import numpy as np
import pytest

import jitla

# Products with wide matrices: their rows are used while they are in the cache.

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


# Stacks of small matrices: NumPy's products, wherever operands lie, with what follows in the same pass.

stacks_rng = np.random.default_rng(6)
COUNTS = [3, 200, 2001]


def plain(A, B):
    return A @ B


def called(A, B):
    return np.matmul(A, B)


def followed(A, B):
    return np.tanh(A @ B - 1.0) * 2.0


def made_before(A, B):
    return (A * 2.0 + B[:, :1, :1]) @ np.maximum(B, 0.0)


def turned(A, B):
    return A.transpose(0, 2, 1) @ B


def turned_right(A, B):
    return B @ A.transpose(0, 2, 1)


def chained(A, B):
    return A @ B @ A


def summed(A, B):
    return (A @ B).sum(axis=(1, 2)), (A @ B).sum()


def forms(A, B):
    return (B[:, :1] @ A @ B[:, :, :1])[:, 0, 0]


def vectors(A, B):
    return A @ B[:, :, 1:2], A @ B[0, 0], B[0, 0] @ A


def one_for_all(A, B):
    return A[0] @ B, A @ B[0]


def spelled(A, B):
    return np.einsum("nij,njk->nik", A, B), np.einsum("ij,njk->nik", A[1], B), np.einsum("nij,nkj->nik", A, B)


def added_in_place(A, B):
    A @= B
    return A + 1.0


def over_itself(A, B):
    A[...] = B @ A
    B[:, 0] = (A @ B)[:, 1]
    return A


STACKS_FUNCTIONS = [plain, called, followed, made_before, turned, turned_right, chained, summed, forms,
                    vectors, one_for_all, spelled, added_in_place, over_itself]


def matrices(count, side, dtype):
    found = stacks_rng.integers(-4, 5, (2, count, side, side)) / 4
    return tuple((found + 1j * found[::-1] if dtype[0] == "c" else found).astype(dtype))


def compare(function, fast, given):
    """The same values, layouts and arguments afterwards."""
    mine, theirs = [[np.copy(a, order="K") for a in given] for _ in range(2)]
    wanted, made = function(*theirs), fast(*mine)
    if not isinstance(wanted, tuple):
        wanted, made = (wanted,), (made,)
    for a, b in zip((*made, *mine), (*wanted, *theirs), strict=True):
        assert type(a) is type(b) and a.dtype == b.dtype and np.shape(a) == np.shape(b)
        assert np.asarray(a).strides == np.asarray(b).strides
        size = max(np.abs(b).max(initial=0.0), 1.0)
        assert np.abs(a - b).max(initial=0.0) <= 64 * np.finfo(a.dtype).eps * size


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
@pytest.mark.parametrize("function", STACKS_FUNCTIONS, ids=lambda f: f.__name__)
def test_stacks_give_numpys_results(function, dtype):
    fast = jitla.jit(function)
    for side in (2, 3, 4, 7):
        for count in COUNTS:
            given = matrices(count, side, dtype)
            for _ in range(2):
                compare(function, fast, given)
    assert fast.stats().failures == 0


@pytest.mark.parametrize("function", [plain, followed, turned, chained], ids=lambda f: f.__name__)
def test_stacks_that_lie_anyhow(function):
    A, B = matrices(700, 5, "f8")
    for X in (A[::2], A[::-1], A[:, ::-1], A.transpose(0, 2, 1), np.asfortranarray(A), A[:, :, ::-1],
              np.broadcast_to(A[0], (350, 5, 5)), A.transpose(1, 2, 0).copy().transpose(2, 0, 1)):
        for Y in (B[:len(X)], np.asfortranarray(B[:len(X)]), B[:len(X)].transpose(0, 2, 1)):
            fast = jitla.jit(function)
            wanted, made = function(X, Y), [fast(X, Y) for _ in range(2)][1]
            assert made.strides == wanted.strides and np.abs(made - wanted).max() < 1e-12
            assert fast.stats().failures == 0


def test_stacks_of_stacks():
    A, B = (x.reshape(12, 50, 4, 4) for x in matrices(600, 4, "f8"))
    fast = jitla.jit(plain)
    for X, Y in ((A, B), (A.swapaxes(0, 1), B.swapaxes(0, 1)), (A, B[0]), (A[:, :1], B), (A, B[:, :1]),
                 (A[:, None, 0], B), (A.swapaxes(0, 1), B[0, 0]), (A[:, ::2], B[:, 1::2]), (A[0], B)):
        for _ in range(2):
            made, wanted = fast(X, Y), X @ Y
            assert made.shape == wanted.shape and made.strides == wanted.strides
            assert np.abs(made - wanted).max() < 1e-12
    assert fast.stats().failures == 0


def test_integers_are_exact():
    fast = jitla.jit(plain)
    for dtype in ("i8", "i4", "i2", "i1", "u1", "u8"):
        A, B = (stacks_rng.integers(0, 250, (900, 3, 3)).astype(dtype) for _ in range(2))
        for _ in range(2):
            made = fast(A, B)
            assert made.dtype == dtype and (made == A @ B).all()
    for X, Y in ((A > 9, B > 9), (A, B.astype("f4")), (A.astype("i2"), B)):
        made = fast(X, Y)
        assert made.dtype == (X @ Y).dtype and (made == X @ Y).all()
    assert fast.stats().failures == 0


def test_what_does_not_fit_is_numpys_error():
    A, B = matrices(500, 4, "f8")
    for X, Y in ((A, B[:, :3]), (A, B[:499]), (A[:, :, :3], B)):
        with pytest.raises(ValueError) as wanted:
            X @ Y
        with pytest.raises(ValueError, match=re.escape(str(wanted.value))):
            jitla.jit(plain)(X, Y)


@pytest.mark.parametrize("shape", [(0, 3, 3), (5, 0, 3), (5, 3, 0)])
def test_nothing_to_multiply(shape):
    A, B = np.ones(shape), np.ones((shape[0], shape[2], shape[1]))
    for X, Y in ((A, B), (B, A)):
        made, wanted = jitla.jit(plain)(X, Y), X @ Y
        assert made.shape == wanted.shape and (made == wanted).all()


def weighed(x, w):
    y = x * w + 1
    return (x * w).mean(axis=-1), y - y.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_sums_along_an_axis_that_lies_between_are_numpys_in_blocks_of_rows(dtype):
    x = matrices(400, 19, dtype)[0].transpose(0, 2, 1) / 3
    fast = jitla.jit(weighed)
    for _ in range(2):
        for made, wanted in zip(fast(x, x[0, 0]), weighed(x, x[0, 0]), strict=True):
            assert made.strides == wanted.strides and made.tobytes() == wanted.tobytes()
    assert fast.stats().failures == 0


def test_overflow_is_reported_as_numpy_does():
    A, B = (np.abs(x) * 1e200 + 1e200 for x in matrices(500, 3, "f8"))
    fast = jitla.jit(plain)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="overflow"):
            assert np.isinf(fast(A, B)).all()


def test_results_do_not_depend_on_the_threads():
    A, B = stacks_rng.normal(size=(2, 20_003, 5, 5))
    fast = jitla.jit(followed)
    found = []
    for threads in (1, 2, 7):
        with jitla.options(num_threads=threads):
            found.append(fast(A, B).tobytes())
    assert found[0] == found[1] == found[2]


def test_pairs_share_a_pass_with_what_follows():
    fast = jitla.jit(followed)
    fast(*stacks_rng.normal(size=(2, 20_000, 4, 4)))
    plan = str(jitla.explain(fast, level="plan"))
    assert "1 kernel, 0 NumPy calls" in plan and "  Row " in plan
