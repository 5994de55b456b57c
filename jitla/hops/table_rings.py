"""The op table, part six: arrays that are turned, their ends joined; copies with room for that.

Knows: NumPy meaning, result meta and cost. Must not know: where copies lie, who reads them.
Receives metas; returns metas; operands that do not fit raise.

A roll of a `ring` moves nothing: the ring has opposite edges around it, and the roll is a part of that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.errors import InternalError
from jitla.hops import nnz
from jitla.hops.meta import Meta
from jitla.hops.node import Hop
from jitla.hops.spec import Attrs, Kind, OpSpec, ScalarBuilder, Zeros, lookup, register
from jitla.hops.table_cell import cell_meta, value
from jitla.hops.table_matrix import call

#: Of every axis, how many elements a ring has in front and behind at least.
Widths = tuple[tuple[int, int], ...]


def _roll(x: Any, shifts: tuple[int, ...]) -> Any:
    return np.roll(x, shifts, tuple(range(len(shifts))))


def _roll_meta(x: Meta, shifts: tuple[int, ...]) -> Meta:
    if len(shifts) != x.ndim or not shifts:
        raise ValueError(shifts)
    return Meta(x.shape, x.dtype)


call("roll", _roll, _roll_meta, "turned by so many elements along every axis", zeros=Zeros.ANY,
     bound=nnz.kept)


def _ring(x: Any, widths: Widths = ()) -> Any:
    return value(np.asarray(x).copy("K"))


def _ring_meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    (x,) = metas
    if x.ndim and len(attrs.get("widths", x.shape)) != x.ndim:  # one element of it is asked about, too
        raise InternalError(f"ring: {attrs['widths']} around {x.shape}")
    return cell_meta(metas, x.dtype, Zeros.ANY)


def _as_it_is(b: ScalarBuilder, x: Any, attrs: Attrs) -> Any:
    return lookup("cast").emit(b, x, {"dtype": x.dtype})  # type: ignore[misc]


# An element-wise copy: kernels write it where its edges have room, and those are added when they have run.
register(OpSpec(
    name="ring", kind=Kind.CELL, arity=1, ref=_ring, meta=_ring_meta, resolve=lambda dtypes, attrs: dtypes,
    doc="a copy with its opposite edges around it, for rolls of it", emit=_as_it_is, zeros=Zeros.ANY,
))


def is_turn(hop: Hop) -> bool:
    """Tell whether `hop` is a roll that moves nothing."""
    return hop.op.name == "roll" and hop.inputs[0].op.name == "ring"
