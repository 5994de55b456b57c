"""The op table, part three: functions of NumPy that mean sums of products, which rewrites spell out.

Knows: NumPy meaning, result meta and cost of each operator. Must not know: how it is run.
Receives metas and attributes; returns metas; wrong operands raise what NumPy raises.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitla.hops.meta import Meta, reduced_shape
from jitla.hops.nnz import of_lines, of_terms
from jitla.hops.spec import Attrs, Zeros
from jitla.hops.table_cell import common_dtype
from jitla.hops.table_matrix import call

# --------------------------------------------------------------------------- norms


def _norm(x: Any, order: float | None, axis: tuple[int, ...] | None, keepdims: bool) -> Any:
    return np.linalg.norm(x, order, axis if axis is None or len(axis) > 1 else axis[0], keepdims)


def _norm_meta(x: Meta, order: float | None, axis: tuple[int, ...] | None, keepdims: bool) -> Meta:
    every = tuple(range(x.ndim))
    if axis is not None and list(axis) != sorted({a for a in axis if a in every}):
        raise ValueError(axis)
    if order is not None and len(every if axis is None else axis) > 1 or order == math.inf and not x.size:
        raise ValueError(order)
    dtype = x.dtype if x.dtype.kind in "fc" else np.dtype(float)
    real = np.empty(0, dtype).real.dtype
    return Meta(reduced_shape(x.shape, every if axis is None else axis, keepdims), real)


call("norm", _norm, _norm_meta, "Euclidean norm over axes, or that of `order` over one axis",
     zeros=Zeros.ALL, flops=lambda metas, attrs: 2.0 * metas[0].size, also=(np.linalg.norm,),
     bound=of_lines)

# --------------------------------------------------------------------------- einsum


def parsed(subscripts: str) -> tuple[tuple[str, ...], str]:
    """Return the labels of every operand of an explicit einsum, and of the result."""
    given, _, result = subscripts.partition("->")
    return tuple(given.split(",")), result


def _einsum(*xs: Any, subscripts: str) -> Any:
    return np.einsum(subscripts, *xs)


def _lengths(metas: tuple[Meta, ...], subscripts: str) -> dict[str, int]:
    """Return the length of every label; axes of length 1 are repeated."""
    given, _ = parsed(subscripts)
    if len(given) != len(metas) or any(len(g) != m.ndim for g, m in zip(given, metas, strict=True)):
        raise ValueError(subscripts)
    lengths: dict[str, int] = {}
    for labels, meta in zip(given, metas, strict=True):
        for label, n in zip(labels, meta.shape, strict=True):
            if lengths.setdefault(label, n) == 1:
                lengths[label] = n
            elif n not in (1, lengths[label]):
                raise ValueError(subscripts)
    return lengths


def _einsum_meta(*xs: Meta, subscripts: str) -> Meta:
    lengths = _lengths(xs, subscripts)
    return Meta(tuple(lengths[label] for label in parsed(subscripts)[1]), xs[0].dtype)


def _einsum_flops(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    """NumPy takes a product and a sum for every combination of labels, one after the other."""
    return 2.0 * len(metas) * math.prod(_lengths(metas, attrs["subscripts"]).values())


def _einsum_dtypes(dtypes: Any, attrs: Attrs) -> tuple[np.dtype, ...]:
    return (common_dtype(dtypes),) * len(dtypes)


call("einsum", _einsum, _einsum_meta, "sums of products over labelled axes, `ij,j->i`", arity=None,
     resolve=_einsum_dtypes, zeros=Zeros.ANY, flops=_einsum_flops, also=(np.einsum,),
     bound=of_terms)
