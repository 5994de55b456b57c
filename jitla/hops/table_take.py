"""The op table, part five: elements of a table at positions.

Knows: NumPy meaning, result meta and cost. Must not know: how positions were found, how it is run.
Receives metas; returns metas; operands that do not fit raise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.hops.meta import Meta
from jitla.hops.spec import Attrs, Kind, OpSpec, register

__all__ = ["POSITION"]

#: The dtype of positions: half of an index's, so that twice as many are read at a time.
POSITION = np.dtype(np.int32)
_EACH = 8.0  # additions that finding one element takes


def _take(table: Any, positions: Any) -> Any:
    return table[positions]


def _meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    table, positions = metas
    if table.ndim != 1 or positions.ndim != 1 or positions.dtype != POSITION:
        raise IndexError(positions)
    return Meta(positions.shape, table.dtype)


def _as_given(dtypes: tuple[Any, ...], attrs: Attrs) -> tuple[np.dtype, ...]:
    return dtypes


# Positions are those of elements, none is negative. A table is nothing else to the same DAG.
register(OpSpec(
    name="take", kind=Kind.TAKE, arity=2, ref=_take, meta=_meta, resolve=_as_given,
    doc="elements of a table at positions", flops=_EACH,
))
