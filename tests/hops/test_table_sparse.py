"""Operators at stored positions mean what SciPy's matrices say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from jitla.hops import Meta, apply, evaluate, flops, leaf

DENSE = np.random.default_rng(0).random((9, 6))
DENSE[np.random.default_rng(1).random((9, 6)) < 0.6] = 0
ROWS = sp.csr_array(DENSE)
S, C, D = ROWS.indptr, ROWS.indices, ROWS.data
AT = ROWS.tocoo().coords

X, LONG, WIDE = (np.random.default_rng(2).random(s) for s in ((9, 6), 9, 6))
A, B = (np.random.default_rng(3).random(s) for s in ((9, 4), (6, 4)))
# op name -> operands, attributes, what they give
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], np.ndarray]] = {
    "sampled": ((X, S, C), {}, X[AT]),
    "by_row": ((LONG, S, C), {}, LONG[AT[0]]),
    "by_column": ((WIDE, C), {}, WIDE[AT[1]]),
    "sampled_product": ((A, B, S, C), {}, (A @ B.T)[AT]),
    "csr_product": ((D, C, S, B), {}, ROWS @ B),
    "csr_vector": ((D, C, S, WIDE), {}, ROWS @ WIDE),
    "csr_transposed_vector": ((D, C, S, LONG), {"width": 6}, ROWS.T @ LONG),
    "csr_transposed_product": ((D, C, S, A), {"width": 6}, ROWS.T @ A),
    "csr_row_sums": ((D, S), {}, ROWS.sum(axis=1)),
}


def hop_of(name: str, operands: Any, **attrs: Any) -> Any:
    return apply(name, *[leaf(k, Meta(x.shape, x.dtype)) for k, x in enumerate(operands)], **attrs)


@pytest.mark.parametrize("name", CASES)
def test_they_mean_what_scipy_says(name: str) -> None:
    operands, attrs, wanted = CASES[name]
    hop = hop_of(name, operands, **attrs)
    (found,) = evaluate([hop], list(operands))
    assert (hop.meta.shape, hop.meta.dtype) == (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
    assert found.flags.owndata and flops(hop) > 0


@pytest.mark.parametrize(("name", "change"), [
    ("sampled", lambda x, s, c: (x[:-1], s, c)), ("by_row", lambda x, s, c: (x[:-1], s, c)),
    ("by_column", lambda x, c: (x, c[None])), ("sampled_product", lambda a, b, s, c: (a, b[:, :3], s, c)),
    ("csr_product", lambda d, c, s, x: (d[None], c, s, x)),
    ("csr_vector", lambda d, c, s, x: (d[:-1], c, s, x)),
    ("csr_vector", lambda d, c, s, x: (d, c, s, x[None])),
    ("csr_transposed_vector", lambda d, c, s, x: (d, c, s, x[:-1])),
    ("csr_transposed_vector", lambda d, c, s, x: (d[:-1], c, s, x)),
    ("csr_transposed_product", lambda d, c, s, x: (d, c, s, x[0])),
    ("csr_row_sums", lambda d, s: (d, s[:0])), ("csr_row_sums", lambda d, s: (d[None], s)),
])
def test_operands_that_do_not_fit(name: str, change: Callable[..., Any]) -> None:
    operands, attrs, _ = CASES[name]
    with pytest.raises(Exception, match=r".") as caught:
        hop_of(name, change(*operands), **attrs)
    assert not isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("kind", ["?", "i1", "u4", "f4", "f8", "c16"])
def test_results_have_the_dtypes_of_scipy(kind: str) -> None:
    rows = ROWS.astype(kind)
    for name, x, wanted in (
        ("csr_vector", WIDE, rows @ WIDE), ("csr_vector", WIDE.astype("f4"), rows @ WIDE.astype("f4")),
        ("csr_transposed_vector", LONG, rows.T @ LONG), ("csr_transposed_product", A, rows.T @ A),
        ("csr_row_sums", None, rows.sum(axis=1)),
    ):
        operands = (rows.data, S) if x is None else (rows.data, C, S, x)
        attrs = {"width": 6} if "transposed" in name else {}
        hop = hop_of(name, operands, **attrs)
        (found,) = evaluate([hop], list(operands))
        assert hop.meta.dtype == found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_rows_that_are_long_or_empty_are_added_as_scipy_does() -> None:
    counts = np.array([0, 700, 0, 0, 3, 9, 129, 0])
    starts = np.concatenate([[0], np.cumsum(counts)])
    data = np.random.default_rng(4).normal(size=counts.sum()).astype("f4")
    rows = sp.csr_array((data, np.arange(counts.sum()), starts), shape=(8, counts.sum()))
    assert evaluate([hop_of("csr_row_sums", (data, starts))], [data, starts])[0].tobytes() == \
        rows.sum(axis=1).tobytes()
