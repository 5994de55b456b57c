"""Sketches count what can be counted, and are near to it otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from jitla.hops import Sketch, csr_sketch, nnz_of_product
from jitla.hops.sparsity import (
    concatenation_sketch as joined,
)
from jitla.hops.sparsity import (
    diagonal_sketch as of_diagonal,
)
from jitla.hops.sparsity import (
    intersection_sketch,
    product_sketch,
    reshape_sketch,
    slice_sketch,
    uniform_sketch,
    union_sketch,
)

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
