"""Whole algorithms, decorated, learn what their plain functions do; every one on little data."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import jitla
from bench.algorithms.cases import MADE, Case, objective, work

ROWS, ENOUGH = 150, 1000  # reweighted equations of fewer rows have no solution that roundings leave alone


def leaves(value: Any) -> Iterator[Any]:
    """Yield the arrays and numbers of a result."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def kind(value: Any) -> Any:
    return (value.dtype, value.shape) if isinstance(value, np.ndarray) else type(value)


@pytest.mark.parametrize("name", MADE)
def test_the_same_is_learned(name: str) -> None:
    if "table" in name or "object" in name:
        pytest.importorskip("pandas")
    given = work(Case(name, ENOUGH if "GLM" in name else ROWS, "float64", "dense"))
    fast = jitla.jit(given.plain, compile="sync")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        wanted = given.plain(*given.arguments)
        before = len(told)
        found = fast(*given.arguments)
    assert [str(w.message) for w in told[before:]] == [str(w.message) for w in told[:before]]
    assert type(found) is type(wanted)
    assert objective(found) == pytest.approx(objective(wanted), rel=1e-8)
    pairs = list(zip(leaves(found), leaves(wanted), strict=True))
    assert [kind(a) for a, _ in pairs] == [kind(b) for _, b in pairs]
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)
    assert fast.stats().failures == 0
