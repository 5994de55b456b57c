"""Numbers of nonzeros: bounds, estimates by every method, sketches."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from jitla.hops import (
    ESTIMATORS,
    Hop,
    Meta,
    Sketch,
    apply,
    const,
    csr_sketch,
    estimate_nnz,
    evaluate,
    leaf,
    make,
    nnz_of_product,
)
from jitla.hops.sparsity import concatenation_sketch as joined
from jitla.hops.sparsity import diagonal_sketch as of_diagonal
from jitla.hops.sparsity import (
    intersection_sketch,
    product_sketch,
    reshape_sketch,
    slice_sketch,
    uniform_sketch,
    union_sketch,
)
from tests.hops.test_operators import AGGS, FULL, MADE, MATRIX_CASES, axes_of
from tests.hops.test_operators import CASES as SPARSE

# How many elements are other than 0, at most: never too few, and of use where that can be.

F8 = np.dtype(float)
LABELS = np.array([2, 0, 2, 5])
TAKES = {
    "take": ([0.0, 3.0], np.array([1, 1, 0], np.int32)), "bincount": (LABELS, [0.0, 1.0, 0.0, 0.0]),
}


def sparse(shape: tuple[int, ...], density: float, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(rng.integers(-3, 4, shape) * (rng.random(shape) < density), float)


def counted(arrays: list[np.ndarray]) -> list[Hop]:
    """Leaves whose nonzeros are known."""
    return [leaf(k, Meta(a.shape, a.dtype, min(int(np.count_nonzero(a)), a.size)))
            for k, a in enumerate(arrays)]


def check(hop: Hop, arrays: list[np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        (found,) = evaluate([hop], arrays)
    bound, size = hop.meta.nnz, hop.meta.size
    assert bound is None or np.count_nonzero(found) <= bound <= max(size - 1, 0), hop
    assert hop.meta.nnz is None or np.shape(found) == hop.meta.shape


@pytest.mark.parametrize("name", MATRIX_CASES)
def test_bounds_of_calls_hold(name: str) -> None:
    rng = np.random.default_rng(3)
    for (_, attrs, shapes), density in [(c, d) for c in MATRIX_CASES[name] for d in (0.0, 0.1, 0.5, 1.0)]:
        arrays = [sparse(s, density, rng) for s in shapes]
        check(apply(name, *counted(arrays), **attrs), arrays)


@pytest.mark.parametrize("name", AGGS)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_bounds_of_aggregates_hold(name: str) -> None:
    rng = np.random.default_rng(4)
    for shape in FULL:
        for axis in axes_of(len(shape)):
            for density in (0.0, 0.2, 0.9):
                arrays = [sparse(shape, density, rng)]
                ddof = {"ddof": int(rng.integers(3))} if name in ("var", "std") else {}
                try:
                    hop = apply(name, *counted(arrays), axis=axis, keepdims=False, **ddof)
                except ValueError:  # nothing to take the least of
                    continue
                check(hop, arrays)


@pytest.mark.parametrize("name", SPARSE)
def test_bounds_at_stored_positions_hold(name: str) -> None:
    operands, attrs, _ = SPARSE[name]
    for k in range(len(operands)):
        arrays = list(operands)
        arrays[k] = arrays[k] * 0 if arrays[k].dtype == F8 else arrays[k]
        check(apply(name, *counted(arrays), **attrs), arrays)


@pytest.mark.parametrize("name", TAKES)
def test_bounds_of_positions_and_labels_hold(name: str) -> None:
    arrays = list(map(np.asarray, TAKES[name]))
    attrs = {"shape": (9,)} if name == "bincount" else {}
    for given in (arrays, [a * (a.dtype.kind != "f") for a in arrays]):
        check(apply(name, *counted(given), **attrs), given)
    if name == "bincount":
        check(apply(name, *counted(arrays[:1]), **attrs), arrays[:1])


@pytest.mark.parametrize("attrs", [attrs for attrs, _ in MADE["eye"]])
def test_ones_of_a_diagonal_are_counted(attrs: dict) -> None:
    hop = make("eye", (), **attrs)
    assert hop.meta.nnz == (np.count_nonzero(evaluate([hop], [])[0]) if hop.meta.size else None)


def matrix(slot: int, *shape: int, nnz: int | None = None) -> Hop:
    return leaf(slot, Meta(shape, F8, nnz))


X, Y = matrix(0, 10, 20, nnz=3), matrix(1, 20, 30, nnz=4)
BATCH = matrix(2, 5, 10, 20, nnz=3)


@pytest.mark.parametrize(("hop", "nnz"), [
    (apply("matmul", X, Y), 3 * 4), (apply("dot", X, Y), 3 * 4),
    (apply("matmul", X, matrix(1, 20, 30)), 3 * 30), (apply("matmul", BATCH, Y), 3 * 4),
    (apply("matmul", BATCH, matrix(1, 20, 3)), 3 * 3),
    (apply("sum", X, axis=(1,), keepdims=False), 3), (apply("sum", X, axis=(0, 1), keepdims=False), None),
    (apply("prod", X, axis=(0, 1), keepdims=False), 0), (apply("all", make("cast", [X], dtype=bool),
                                                               axis=(1,), keepdims=False), 0),
    (apply("mean", X, axis=(0,), keepdims=False), 3),
    (apply("var", X, axis=(1,), keepdims=False, ddof=1), 3),
    (apply("var", X, axis=(1,), keepdims=False, ddof=20), None),
    (apply("concatenate", X, X, axis=0), 6), (apply("concatenate", X, matrix(1, 1, 20), axis=0), 23),
    (apply("stack", X, X, axis=1), 6), (apply("transpose", X, axes=(1, 0)), 3),
    (apply("broadcast_to", matrix(0, 20, nnz=2), shape=(7, 20)), 14),
    (apply("cumsum", X, axis=0), 30), (apply("cumsum", X, axis=None), None),
    (apply("full", const(0.0, F8), shape=(4, 5)), 0), (apply("full", const(1.0, F8), shape=(4, 5)), None),
    (apply("full", const(-0.0, F8), shape=(4, 5)), 0),
    (apply("multiply", matrix(0, 4, 5), const(0.0, F8)), 0), (const(np.nan, F8), None),
    (apply("einsum", X, matrix(1, 20, 3, nnz=0), subscripts="ij,jk->ik"), 0),
])
def test_bounds_are_of_use(hop: Hop, nnz: int | None) -> None:
    assert hop.meta.nnz == nnz


# Sketches count what can be counted, and are near to it otherwise.

RNG = np.random.default_rng(5)


def pattern(m: int, n: int, density: float) -> np.ndarray:
    return (RNG.random((m, n)) < density).astype(float)


def sketch(x: np.ndarray) -> Sketch:
    rows = sp.csr_array(x)
    return csr_sketch(rows.indptr, rows.indices, rows.shape)


def skewed(m: int, n: int, rows: float, columns: float, per_row: int = 5) -> np.ndarray:
    share = np.outer(RNG.permutation(1 / np.arange(1, m + 1) ** rows),
                     RNG.permutation(1 / np.arange(1, n + 1) ** columns))
    return (RNG.random((m, n)) < share * (per_row * m / share.sum())).astype(float)


def exact(a: np.ndarray, b: np.ndarray) -> int:
    return int(np.count_nonzero(a @ b))


@pytest.mark.parametrize("density", [0.0, 0.02, 0.1, 0.6, 1.0])
def test_counts_are_counted(density: float) -> None:
    x = pattern(30, 20, density)
    found = sketch(x)
    rows, columns = x.sum(1), x.sum(0)
    assert found.shape == x.shape and found.nnz == x.sum()
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.columns, columns)
    assert (found.fullest_row, found.fullest_column) == (rows.max(), columns.max())
    if found.lone_rows is not None:
        np.testing.assert_array_equal(found.lone_rows, (x * (columns == 1)).sum(1))
        np.testing.assert_array_equal(found.lone_columns, (x * (rows == 1)[:, None]).sum(0))
    else:
        assert max(rows.max(), columns.max()) <= 1
    assert not found.diagonal


def test_diagonals_are_known() -> None:
    assert sketch(np.diag([1.0, 2, 3])).diagonal
    assert not any(sketch(x).diagonal for x in (
        np.diag([1.0, 0, 3]), np.eye(3)[::-1], np.eye(3, 4), np.zeros((2, 2)), np.ones((2, 2))))
    x = sketch(pattern(9, 9, 0.3))
    assert product_sketch(of_diagonal(9), x) is x is product_sketch(x, sketch(np.eye(9)))


def one_a_row(m: int, n: int) -> np.ndarray:
    return np.eye(n)[RNG.integers(0, n // 3, m)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("a", "b"), [
    (one_a_row(40, 30), skewed(30, 50, 1.0, 1.0)), (skewed(40, 30, 1.0, 1.0), one_a_row(50, 30).T),
    (np.eye(30)[RNG.permutation(30)], pattern(30, 9, 0.5)),
    (pattern(20, 30, 0.7) * 0, pattern(30, 10, 0.4)), (np.ones((20, 30)), np.ones((30, 10))),
])
def test_products_that_are_exact(a: np.ndarray, b: np.ndarray, weighted: bool) -> None:
    found = product_sketch(sketch(a), sketch(b), weighted)
    assert found.nnz == pytest.approx(exact(a, b), abs=1e-9)
    assert found.columns.sum() == pytest.approx(found.nnz)


def test_products_of_even_matrices_are_near() -> None:
    for density in (0.002, 0.01, 0.05, 0.2):
        a, b = pattern(300, 400, density), pattern(400, 350, density)
        for weighted in (False, True):
            assert nnz_of_product(sketch(a), sketch(b), weighted) == pytest.approx(exact(a, b), rel=0.1)


@pytest.mark.parametrize(("rows", "columns"), [(0.0, 1.0), (0.8, 0.8), (1.2, 1.0)])
def test_weights_follow_skew(rows: float, columns: float) -> None:
    a, b = skewed(600, 600, rows, columns), skewed(600, 600, rows, columns)
    wanted = exact(a, b)
    plain, weighted = (nnz_of_product(sketch(a), sketch(b), w) for w in (False, True))
    even = nnz_of_product(uniform_sketch(a.shape, a.sum()), uniform_sketch(b.shape, b.sum()))
    assert weighted == pytest.approx(wanted, rel=0.15)
    assert abs(weighted - wanted) < min(abs(plain - wanted), abs(even - wanted))


def test_weights_share_out_to_rows_and_columns() -> None:
    a, b = skewed(500, 400, 1.0, 0.5), skewed(400, 300, 0.5, 1.0)
    made = a @ b != 0
    off = []
    for weighted in (False, True):
        found = product_sketch(sketch(a), sketch(b), weighted)
        off.append(np.abs(found.rows - made.sum(1)).sum() + np.abs(found.columns - made.sum(0)).sum())
    assert off[1] < 0.6 * off[0]


def test_half_full_rows_and_columns_meet() -> None:
    a, b = np.zeros((10, 100)), np.zeros((100, 10))
    a[:4, :60] = 1
    b[30:, :5] = 1
    assert nnz_of_product(sketch(a), sketch(b)) >= 20 == exact(a, b)


def test_bounds_of_lines_go_through_products() -> None:
    a, b = np.eye(30)[RNG.permutation(30)], np.eye(30)[RNG.permutation(30)]
    two = product_sketch(sketch(a), sketch(b))
    c = skewed(30, 40, 1.0, 1.0)
    assert two.fullest_row == two.fullest_column == 1
    assert product_sketch(two, sketch(c)).nnz == pytest.approx(c.sum())


def test_element_by_element() -> None:
    a, b = pattern(200, 300, 0.3), pattern(200, 300, 0.2)
    both, either = intersection_sketch(sketch(a), sketch(b)), union_sketch(sketch(a), sketch(b))
    assert both.nnz == pytest.approx(np.count_nonzero(a * b), rel=0.05)
    assert either.nnz == pytest.approx(np.count_nonzero(a + b), rel=0.05)
    assert both.columns.sum() == pytest.approx(both.nnz) and either.columns.sum() == pytest.approx(either.nnz)
    apart = np.zeros((4, 6)), np.zeros((4, 6))
    apart[0][:2], apart[1][2:] = 1, 1
    assert intersection_sketch(*map(sketch, apart)).nnz == 0
    assert union_sketch(*map(sketch, apart)).nnz == 24
    assert intersection_sketch(sketch(a), sketch(np.zeros_like(a))).nnz == 0
    near = skewed(300, 300, 1.0, 1.0), skewed(300, 300, 0.0, 0.0)
    wanted = np.count_nonzero(near[0] * near[1])
    assert intersection_sketch(*map(sketch, near)).nnz == pytest.approx(wanted, rel=0.5)


def test_reorganisations_keep_counts() -> None:
    a, b = pattern(12, 8, 0.3), pattern(12, 5, 0.5)
    for found, wanted in (
        (sketch(a).T, a.T), (joined([sketch(a), sketch(b)], 1), np.concatenate([a, b], 1)),
        (joined([sketch(a.T), sketch(b.T)], 0), np.concatenate([a.T, b.T])),
    ):
        np.testing.assert_array_equal(found.rows, wanted.sum(1))
        np.testing.assert_array_equal(found.columns, wanted.sum(0))
        assert found.fullest_row >= wanted.sum(1).max() and found.fullest_column >= wanted.sum(0).max()
    np.testing.assert_array_equal(reshape_sketch(sketch(a), (4, 24)).rows, a.reshape(4, 24).sum(1))
    np.testing.assert_array_equal(reshape_sketch(sketch(a), (48, 2)).columns, a.reshape(48, 2).sum(0))
    assert reshape_sketch(sketch(a), (24, 4)).nnz == reshape_sketch(sketch(a),
                                                                    (32, 3)).nnz == pytest.approx(a.sum())
    rows = slice_sketch(sketch(a), slice(2, 7), slice(None))
    np.testing.assert_allclose(rows.rows, a[2:7].sum(1))
    assert slice_sketch(sketch(a * 0), slice(2, 7), slice(3)).nnz == 0


# Every method gives every hop a number of nonzeros; the bound holds, the others are near.

N = 120


def matrices() -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    return [x * rng.random(x.shape) for x in (
        skewed(N, N, 0.8, 0.8, 6), skewed(N, N, 0.0, 0.5, 9), skewed(N, N, 0.3, 0.0, 4))]


def expressions(a: Hop, b: Hop, c: Hop) -> dict[str, Hop]:
    v = leaf(3, Meta((N,), F8, N))
    return {
        "product": apply("matmul", a, b), "chain": apply("matmul", apply("matmul", a, b), c),
        "gram": apply("matmul", make("transpose", [a], axes=(1, 0)), a),
        "times vector": apply("matmul", a, v), "cells": apply("multiply", a, apply("add", b, c)),
        "unary": apply("negative", apply("sqrt", a)), "dense": apply("cos", a),
        "not equal": apply("not_equal", a, b), "scaled": apply("multiply", a, v),
        "joined": apply("concatenate", a, b, axis=1), "stacked": apply("stack", a, b, axis=1),
        "reshaped": make("reshape", [a], shape=(N // 2, 2 * N)),
        "part": make("getitem", [a], index=(("s", 3, 70, None),)),
        "row": make("getitem", [a], index=(("i", 3),)),
        "row sums": apply("sum", a, axis=(1,), keepdims=False),
        "column maxima": apply("max", b, axis=(0,), keepdims=False),
        "all": apply("sum", a, axis=(0, 1), keepdims=False),
        "kept": apply("sum", a, axis=(0,), keepdims=True),
        "mean": apply("mean", a, axis=(1,), keepdims=False),
        "chosen": apply("where", apply("greater", a, b), b, c),
        "product of rows": apply("prod", a, axis=(1,), keepdims=False),
        "diagonal": apply("matmul", make("eye", [], n=N, m=N, k=0, dtype="f8"), a),
        "above it": apply("matmul", make("eye", [], n=N, m=N, k=1, dtype="f8"), a),
        "repeated": apply("matmul", make("broadcast_to", [v], shape=(N, N)), a),
    }


NAMES = tuple(expressions(*counted(matrices())))


@pytest.mark.parametrize("method", ESTIMATORS)
@pytest.mark.parametrize("name", NAMES)
def test_all_methods_know_all_operators(name: str, method: str) -> None:
    arrays = [*matrices(), np.ones(N)]
    leaves = counted(arrays[:3])
    hop = expressions(*leaves)[name]
    known = dict(zip(leaves, map(sketch, arrays[:3]), strict=True))
    (value,) = evaluate([hop], arrays)
    wanted = np.count_nonzero(value)
    for given in (None, known):
        numbers = estimate_nnz([hop], method, given)
        assert set(leaves[:1]) <= set(numbers) | set(leaves)
        assert all(0 <= n <= h.meta.size + 1e-6 for h, n in numbers.items())
        if method == "worst":
            assert numbers[hop] >= wanted
    if method == "weighted":
        assert numbers[hop] == pytest.approx(wanted, rel=0.6, abs=20)


def test_exact_where_structure_says_so() -> None:
    a, b, c = arrays = matrices()
    leaves = counted(arrays)
    hops = expressions(*leaves)
    known = dict(zip(leaves, map(sketch, arrays), strict=True))
    found = estimate_nnz(hops.values(), "mnc", known)
    for name, wanted in (
        ("row sums", np.count_nonzero(a.sum(1))), ("column maxima", np.count_nonzero(b.max(0))),
        ("joined", np.count_nonzero(a) + np.count_nonzero(b)), ("diagonal", np.count_nonzero(a)),
        ("reshaped", np.count_nonzero(a)), ("unary", np.count_nonzero(a)),
        ("part", np.count_nonzero(a[3:70])), ("dense", N * N),
    ):
        assert found[hops[name]] == pytest.approx(wanted), name


def test_skew_is_seen_by_sketches_only() -> None:
    arrays = matrices()
    leaves = counted(arrays)
    known = dict(zip(leaves, map(sketch, arrays), strict=True))
    hops = expressions(*leaves)
    a = arrays[0]
    wanted = np.count_nonzero(a.T @ a)
    off = {m: abs(estimate_nnz([hops["gram"]], m, known)[hops["gram"]] - wanted) for m in ESTIMATORS}
    assert off["weighted"] < off["meta"] < off["worst"]


def test_leaves_without_sketches_are_even() -> None:
    a, b = leaf(0, Meta((50, 60), F8, 150)), leaf(1, Meta((60, 70), F8, 210))
    product = apply("matmul", a, b)
    even = estimate_nnz([product], "meta")[product]
    assert even == pytest.approx(50 * 70 * (1 - (1 - 150 / 3000 * 210 / 4200) ** 60))
    assert estimate_nnz([product], "mnc")[product] == pytest.approx(even, rel=0.1)
    assert estimate_nnz([product], "worst")[product] == 50 * 70
    empty = csr_sketch(np.zeros(51, int), np.zeros(0, int), (50, 60))
    assert estimate_nnz([product], "mnc", {a: empty})[product] == 0
