"""Where units of a kernel over rows begin: by entries, whatever lies where rows should begin."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from jitla.codegen import Jit, Library, host_target
from jitla.codegen.kernel_abi import HEADER
from jitla.codegen.kernels.row import (
    BOUND,
    PER_ROW,
)

UNITS, HEIGHT, OPERAND = 8, 16, 3


@cache
def code() -> tuple[Library, Callable[..., int]]:
    text = f'target triple = "{host_target().triple}"\ndeclare i64 @llvm.umin.i64(i64, i64)\n'
    made = Jit().load(text + BOUND.replace("define internal i64 @bound", "define i64 @bound"), ("bound",))
    return made, ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 8)(
        made.addresses["bound"])


def bounds(starts: np.ndarray, operand: int = OPERAND) -> list[int]:
    """Return with which block of rows units begin, and where the last one ends."""
    rows = len(starts) - 1
    blocks = -(-rows // HEIGHT)
    block = np.zeros(HEADER + OPERAND, np.int64)
    block[HEADER + OPERAND - 1] = starts.ctypes.data
    per = -(-blocks // UNITS)
    return [code()[1](block.ctypes.data, UNITS, blocks, per, operand, starts.itemsize, HEIGHT, rows, u)
            for u in range(UNITS + 1)]


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("where", [slice(0, 64), slice(1000, 1064), slice(1987, None), slice(7, 8)])
def test_units_have_about_as_many_entries(where, index):
    lengths = np.full(2001, 3)
    lengths[where] = 1000
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(index)
    found = bounds(starts)
    assert found[0] == 0 and found[-1] == -(-2001 // HEIGHT) and found == sorted(found)
    weight = starts.astype(np.int64) + PER_ROW * np.arange(len(starts))
    at = weight[np.minimum(np.array(found) * HEIGHT, 2001)]
    largest = np.diff(weight[np.minimum(np.arange(0, 2001 + HEIGHT, HEIGHT), 2001)]).max()
    assert np.diff(at).max() <= weight[-1] // UNITS + largest


def test_without_entries_units_have_as_many_blocks():
    assert bounds(np.zeros(1601, np.int32), 0) == [min(13 * u, 100) for u in range(UNITS + 1)]


@pytest.mark.parametrize("seed", range(4))
def test_every_block_is_some_units_whatever_lies_there(seed):
    starts = np.random.default_rng(seed).integers(-1 << 62, 1 << 62, 1601)
    found = bounds(starts)
    assert found[0] == 0 and found[-1] == 100
    assert all(0 <= b <= 100 for b in found)
