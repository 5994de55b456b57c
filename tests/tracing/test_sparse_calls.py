"""Random programs on sparse matrices of every kind, plain and traced."""

from __future__ import annotations

import pytest

import jitla
from tests.tracing.sparse_calls import faults


@pytest.mark.parametrize("part", range(6))
def test_random_programs(monkeypatch, part):
    monkeypatch.setattr("jitla.tracing.sparse.products.MIN_RECORDED_ELEMENTS", 0)
    with jitla.options(compile="sync"):
        found = [fault for seed in range(40 * part, 40 * part + 40) for fault in faults(seed)]
    assert not found, "\n".join(found[:3])
