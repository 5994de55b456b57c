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
    assert flops(hop) > 0


@pytest.mark.parametrize(("name", "change"), [
    ("sampled", lambda x, s, c: (x[:-1], s, c)), ("by_row", lambda x, s, c: (x[:-1], s, c)),
    ("by_column", lambda x, c: (x, c[None])), ("sampled_product", lambda a, b, s, c: (a, b[:, :3], s, c)),
    ("csr_product", lambda d, c, s, x: (d[None], c, s, x)),
])
def test_operands_that_do_not_fit(name: str, change: Callable[..., Any]) -> None:
    operands, attrs, _ = CASES[name]
    with pytest.raises(Exception, match=r".") as caught:
        hop_of(name, change(*operands), **attrs)
    assert not isinstance(caught.value, AssertionError)
