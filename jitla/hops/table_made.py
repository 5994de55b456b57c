"""The op table: new arrays, and what other machines compute.

Knows: NumPy meaning, result meta and cost of each operator. Must not know: how it is run.
Receives metas and attributes; returns metas; wrong operands raise what NumPy raises.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitla.hops import nnz
from jitla.hops.meta import Meta, Shape
from jitla.hops.spec import Attrs
from jitla.hops.table_cell import common_dtype
from jitla.hops.table_matrix import ANY, Dtypes, call

# --------------------------------------------------------------------------- new arrays


def _full(x: Any, shape: Shape) -> Any:
    return np.full(shape, x, dtype=x.dtype)


def _full_meta(x: Meta, shape: Shape) -> Meta:
    if any(n < 0 for n in shape):
        raise ValueError(shape)
    return Meta(shape, x.dtype)


def _arange(start: Any, stop: Any, step: Any, dtype: np.dtype) -> Any:
    return np.arange(start, stop, step, dtype=dtype)


def _arange_meta(start: Any, stop: Any, step: Any, dtype: np.dtype) -> Meta:
    return Meta((max(math.ceil((stop - start) / step), 0),), np.dtype(dtype))


def _eye(n: int, m: int, k: int, dtype: np.dtype) -> Any:
    return np.eye(n, m, k, dtype=dtype)


def _linspace(start: Any, stop: Any, num: int, endpoint: bool) -> Any:
    return np.linspace(start, stop, num, endpoint=endpoint)


def _linspace_meta(start: Meta, stop: Meta, num: int, endpoint: bool) -> Meta:
    if num < 0:
        raise ValueError(num)
    return Meta((num, *np.broadcast_shapes(start.shape, stop.shape)), start.dtype)


def _linspace_resolve(dtypes: Dtypes, attrs: Attrs) -> tuple[np.dtype, ...]:
    """The number of steps joins the promotion as a weak float, so integers become float64."""
    return (common_dtype((*dtypes, float)),) * 2


call("full", _full, _full_meta, "a new array with every element equal to the 0-d operand",
     zeros=ANY, bound=nnz.repeated)
call("arange", _arange, _arange_meta, "evenly spaced values from start below stop", arity=0)
call("eye", _eye, lambda n, m, k, dtype: Meta((n, m), np.dtype(dtype)),
     "ones on the k-th diagonal of an n by m matrix", arity=0, bound=nnz.of_diagonal)
call("linspace", _linspace, _linspace_meta, "num evenly spaced values from start to stop", arity=2,
     resolve=_linspace_resolve, flops=40.0)

# --------------------------------------------------------------------------- other machines


def _offload(*xs: Any, part: Any) -> Any:
    return part(*xs)


# `part` has the result's meta and the predicted seconds; it is called with the operands.
call("offload", _offload, lambda *xs, part: part.meta, "what a device computes of its operands", arity=None)
