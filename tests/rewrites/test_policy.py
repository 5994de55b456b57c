"""What rewrites of products may change at inf, NaN and overflow, and what not."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.hops import topo
from jitla.rewrites import RULES, simplify
from tests.rewrites.data import operands, values
from tests.rewrites.expression import Reader

PRODUCTS = [
    "sum(matmul(A[5,4], B[4,6]))", "sum(matmul(A[5,4], B[4,6]), axis=(0,))",
    "sum(matmul(A[5,4], B[4,6]), axis=(1,))", "matmul(matmul(A[9,5], B[5,6]), v[6])",
    "matmul(v[9], matmul(A[9,5], B[5,6]))", "matmul(matmul(A[9,2], B[2,9]), C[9,2])",
    "matmul(A[5,1], B[1,4])",
]


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("text", PRODUCTS)
def test_results_are_finite_where_numpys_are(text: str, special: float):
    """An inf may become a NaN, or the other way round; a number stays a number."""
    roots = Reader().read(text)
    after = simplify(roots)
    assert after != roots
    rng = np.random.default_rng(3)
    for _ in range(30):
        given = operands(roots, rng, special=False)
        hit = given[int(rng.integers(len(given)))]
        hit.flat[int(rng.integers(hit.size))] = special
        before, rewritten = values(roots, given)[0], values(after, given)[0]
        assert np.array_equal(np.isfinite(before), np.isfinite(rewritten))
        assert np.allclose(before[np.isfinite(before)], rewritten[np.isfinite(rewritten)])


def test_sums_of_factors_may_overflow_where_products_do_not():
    """The written exception: column sums past the largest number, met by a zero."""
    roots = Reader().read("sum(matmul(A[2,1], B[1,2]))")
    given = [np.full((2, 1), 1e308), np.zeros((1, 2))]
    after = simplify(roots, RULES.only("sum-of-product"))
    assert values(roots, given)[0] == 0.0 and np.isnan(values(after, given)[0])


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_rows_that_are_scaled_afterwards_may_overflow_or_vanish(size: float):
    """The next one: what is divided into the usual range by NumPy is not yet when it is summed."""
    roots = Reader().read("matmul(divide(A[5,4], C[5,1]), B[4,2])")
    given = [np.full((5, 4), size), np.full((5, 1), size), np.full((4, 2), size)]
    after = simplify(roots, RULES.only("divided-rows-times"))
    assert after != roots
    with np.errstate(all="ignore"):
        before, rewritten = values(roots, given)[0], values(after, given)[0]
    assert np.allclose(before, 4 * size, atol=0)
    assert np.isinf(rewritten).all() if size > 1 else not rewritten.any()


@pytest.mark.parametrize("special", [np.inf, np.nan])
@pytest.mark.parametrize("text", ["matmul(X[5,4], diag(v[4]))", "matmul(diag(v[5]), X[5,4])"])
def test_a_diagonal_matrix_that_is_not_made_spreads_nothing(text: str, special: float):
    """The other written exception: NumPy multiplies infinity and NaN by the zeros beside the diagonal."""
    roots = Reader().read(text)
    after = simplify(roots)
    assert after != roots
    given = operands(roots, np.random.default_rng(6), special=False)
    for hit in given:
        kept, hit.flat[1] = hit.flat[1], special
        before, rewritten = values(roots, given)[0], values(after, given)[0]
        finite = np.isfinite(before)
        more = np.isfinite(rewritten).sum() - finite.sum()
        assert not finite.all() and (more > 0 if hit.ndim == 2 else more == 0)
        assert np.allclose(before[finite], rewritten[finite])
        hit.flat[1] = kept


def test_strict_does_none_of_it():
    for text in PRODUCTS:
        roots = Reader().read(text)
        assert simplify(roots, RULES.at("strict")) == roots


@pytest.mark.parametrize("text", PRODUCTS)
def test_errors_stay_within_the_bound_of_products(text: str):
    """Against float64 summed in extended precision: no worse than a few roundings per term."""
    roots = Reader().read(text)
    (after,) = simplify(roots)
    rng = np.random.default_rng(4)
    terms = max(sum(h.meta.shape) for h in topo(roots) if h.op.name == "leaf") ** 2
    for _ in range(20):
        given = operands(roots, rng, special=False)
        wide = [g.astype(np.longdouble) for g in given]
        size = [np.abs(g) for g in wide]
        exact, bound = values(roots, wide)[0], values(roots, size)[0]
        error = np.abs(values((after,), given)[0] - exact)
        assert np.all(error <= terms * np.finfo(float).eps * bound)
