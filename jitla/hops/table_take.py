"""The op table, part five: elements of a table at positions, sums by label.

Knows: NumPy meaning, result meta and cost. Must not know: how positions were found, how it is run.
Receives metas; returns metas; operands that do not fit raise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.hops.meta import Meta, Shape
from jitla.hops.nnz import bounded, of_nothing, of_tally
from jitla.hops.spec import Attrs, Kind, OpSpec, register

__all__ = ["POSITION"]

#: The dtype of positions: half of an index's, so that twice as many are read at a time.
POSITION = np.dtype(np.int32)
_EACH = 8.0  # additions that finding one element takes
_ADDED = 24.0  # additions that adding to an element of a table takes
_DOUBLE = np.dtype(np.float64)


def _take(table: Any, positions: Any, axes: tuple[int, ...] = ()) -> Any:
    found = table[positions]
    if not axes:
        return found
    lying = np.empty(tuple(found.shape[a] for a in axes), found.dtype).transpose(np.argsort(axes))
    lying[...] = found
    return lying


def _meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    table, positions = metas
    if table.ndim != 1 or not positions.ndim or positions.dtype != POSITION:
        raise IndexError(positions)
    return bounded(Meta(positions.shape, table.dtype), of_nothing(metas, positions.shape, attrs))


def _as_given(dtypes: tuple[Any, ...], attrs: Attrs) -> tuple[np.dtype, ...]:
    return dtypes


# Positions are those of elements, none is negative. A table is nothing else to the same DAG. The result lies
# in memory with its axes in the order `axes`, from the outermost on; if there is one, it is a view.
register(OpSpec(
    name="take", kind=Kind.TAKE, arity=2, ref=_take, meta=_meta, resolve=_as_given,
    doc="elements of a table at positions", flops=_EACH,
))


def _bincount(labels: Any, weights: Any = None, *, shape: Shape) -> Any:
    return np.bincount(labels, weights, minlength=shape[0])


def _sums(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    labels, *weights = metas
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or any(
            (w.shape, w.dtype) != (labels.shape, _DOUBLE) for w in weights):
        raise ValueError(labels)
    made = Meta(attrs["shape"], _DOUBLE if weights else np.dtype(np.intp))
    return bounded(made, of_tally(metas, made.shape, attrs))


def _as_doubles(dtypes: tuple[Any, ...], attrs: Attrs) -> tuple[np.dtype, ...]:
    return (dtypes[0], *(_DOUBLE for _ in dtypes[1:]))


def _additions(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    return _ADDED * metas[0].size


# All labels have a place in the result.
register(OpSpec(
    name="bincount", kind=Kind.TALLY, arity=None, ref=_bincount, meta=_sums, resolve=_as_doubles,
    doc="how often labels occur, or sums of weights by label", flops=_additions,
))
