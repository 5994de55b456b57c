"""Random programs on sparse matrices of every kind, plain and traced."""

from __future__ import annotations

import pytest

import jitla
from jitla.config import TracingThresholds
from tests.tracing.sparse_calls import faults


@pytest.mark.parametrize("part", range(6))
def test_random_programs(part):
    with jitla.options(compile="sync", thresholds=TracingThresholds(min_sparse_elements=0)):
        found = [fault for seed in range(40 * part, 40 * part + 40) for fault in faults(seed)]
    assert not found, "\n".join(found[:3])
