"""Ids of metas and layouts, and what they keep of a layout."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.tracing.tape import (
    LAYOUTS,
    METAS,
    Symbols,
    layout_id,
    meta_id,
)

X = np.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize(
    ("array", "group"),
    [
        (X, ("C",)), (X.T, ("F",)), (X[0], ("C",)), (X[:, ::2], ("N", (0, 1), (False, False))),
        (np.broadcast_to(X[0], (3, 6)), ("N", (1, 0), (True, False))), (X[:0], ("C",)),
        (X[::-1], ("N", (0, 1), (False, False))), (X[:1], ("C",)), (X[:, :1], ("N", (0, 1), (False, False))),
    ],
)
def test_group(array: np.ndarray, group: tuple) -> None:
    assert LAYOUTS[layout_id(array)].group == group


@pytest.mark.parametrize("array", [X, X.T, X[1:3, ::2], X[::-1], X[:, ::-2], X[:0], X[1:2, 3:4]])
def test_extent_is_the_memory_that_is_read(array: np.ndarray) -> None:
    layout = LAYOUTS[layout_id(array)]
    start = array.__array_interface__["data"][0]
    low, high = np.lib.array_utils.byte_bounds(array) if array.size else (start, start)
    assert (layout.low, layout.high) == (low - start, high - start)


def test_equal_layouts_have_one_id() -> None:
    assert layout_id(X) == layout_id(X.copy()) != layout_id(X.T)
    assert METAS[meta_id((2, 3), np.dtype("f4"))].shape == (2, 3)


def test_symbols_keep_zero_and_one() -> None:
    symbols = Symbols()
    assert symbols.of((0, 1, 7, 9, 7)) == (0, 1, -1, -2, -1)
    assert symbols.sizes == (7, 9)
