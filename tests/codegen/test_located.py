"""Positions that masks and indices stand for, and the extremes of labels: NumPy's, or nothing."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.codegen.indexing.kernels import (
    MOST,
    Located,
)
from tests.codegen.test_targets import RUNS

SIZES = (1, 7, 8, 63, 64, 65, 1025, 16384, 16385, 100_003)
INDICES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")


@pytest.fixture(scope="module", params=[1, 3])
def loops(request: pytest.FixtureRequest) -> Located:
    return LlvmBackend().indexed(request.param)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kept", [0.0, 0.001, 0.03, 0.5, 0.97, 1.0])
def test_where_a_mask_is_true(loops, size, kept):
    mask = np.random.default_rng(size).random(size) < kept
    found = loops.positions(mask, size)
    assert found.dtype == np.int32 and np.array_equal(found, np.flatnonzero(mask))


@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("size", SIZES)
def test_which_elements_indices_name(loops, kind, size):
    rng = np.random.default_rng(size)
    for least in (0, -100 if kind[0] == "i" else 0):
        index = rng.integers(least, 100, size).astype(kind)
        found = loops.positions(index, 100)
        assert found.dtype == np.int32 and np.array_equal(found, np.arange(100)[index])
        index[size // 2] = 100
        assert loops.positions(index, 100) is None


def test_keys_that_are_left_to_numpy(loops):
    mask = np.ones(64, bool)
    for key, length in ((mask, 63), (mask.reshape(8, 8), 64), (mask[::2], 32), (np.ones(5), 5),
                        (np.zeros(0, int), 5), (np.zeros(5, int), 0), (np.zeros(5, int), MOST + 1)):
        assert loops.positions(key, length) is None
    assert loops.bounds(np.ones(3)) is None and loops.bounds(np.zeros(3, "u8")) is None
    assert loops.bounds(np.zeros(0, int)) is None and loops.bounds(np.array([3, -1, 9])) == (-1, 9)


@pytest.mark.parametrize("target", RUNS, ids=lambda t: t.cpu)
def test_positions_on_every_processor(target):
    backend = LlvmBackend(target=target)
    rng = np.random.default_rng(0)
    for kept in (0.01, 0.5):
        mask = rng.random(40_000) < kept
        assert np.array_equal(backend.indexed(2).positions(mask, 40_000), np.flatnonzero(mask))
