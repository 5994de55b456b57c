"""Operators as loops over axes: where each operand is read, what is joined; intrinsics are matched with that.

Knows: products, sums of them, aggregates, operations on two arrays. Must not know: machines, instructions.
Receives hops; returns `Nest` records, None for what is no such loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jitla.accel.access import Access, Axis, Place, Places, Splits, sources
from jitla.classes import dataclass
from jitla.hops import Hop, Kind, Shape

BYTES = frozenset({np.dtype(np.int8), np.dtype(np.bool_)})


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """``out[..] = reduce over axes of combine(reads)``; `terms` are the operands of each term of a sum.

    `reduce` and `combine` name operators, "" where there is nothing to join. All terms have the same axes.
    """

    hop: Hop
    axes: tuple[Axis, ...]
    reduce: str
    combine: str
    terms: tuple[tuple[Access, ...], ...]
    out: Places
    scalars: tuple[Hop, ...] = ()  # that are added to results

    @property
    def reads(self) -> tuple[Access, ...]:
        """The operands of the first term."""
        return self.terms[0]

    def of(self, reads: Iterable[int], out: bool) -> tuple[Axis, ...]:
        """Return the axes that these operands depend on, and no others, and the result or not."""
        wanted = frozenset(reads)
        kept = frozenset(a for p in self.out for a, _ in p.by)
        inside = [r.axes() for r in self.reads]
        return tuple(a for a in self.axes if (a in kept) is out and
                     frozenset(i for i, axes in enumerate(inside) if a in axes) == wanted)


def nest_of(hop: Hop, wide: np.dtype, pads: bool = False) -> Nest | None:
    """Return the loops of a product, a sum of products, an aggregate, or an operation on two arrays.

    Accumulators are `wide`; factors are bytes, however they were cast, if that is an integer. With `pads`
    zeros around values are no values of their own.
    """
    if hop.meta.dtype != wide and not _longer(hop.meta.dtype, wide) and hop.op.kind is not Kind.AGG:
        return None
    if hop.op.name in ("matmul", "dot"):
        return _sum_of([hop], hop, wide, pads)
    if hop.op.name == "einsum" and hop.meta.shape:
        return _labelled(hop, wide, pads)
    if hop.op.name == "add" and hop.meta.shape:
        terms, scalars = _terms(hop)
        if len(terms) + len(scalars) > 1 and terms and all(t.op.name in ("matmul", "dot") for t in terms):
            made = _sum_of(terms, hop, wide, pads)
            return made and replace(made, scalars=scalars)
    if hop.op.name in ("max", "min", "sum"):
        return _aggregate(hop, wide, pads)
    if hop.op.kind is Kind.CELL and len(hop.inputs) == 2 and hop.meta.shape:
        return _cells(hop, wide)
    return None


def _longer(dtype: np.dtype, wide: np.dtype) -> bool:
    """Tell whether integers of `dtype` may be those of accumulators, if all are small enough."""
    return wide.kind == "i" and dtype.kind == "i" and dtype.itemsize > wide.itemsize


def _widening(wide: np.dtype) -> Any:
    if wide.kind == "f":
        return lambda hop: False
    return keeps_integers


def keeps_integers(cast: Hop) -> bool:
    """Tell whether a cast gives every integer as it is."""
    to, of = cast.meta.dtype, cast.inputs[0].meta.dtype
    return to.kind == "i" and of.kind in "ib" and to.itemsize >= of.itemsize


def _is_factor(hop: Hop, wide: np.dtype) -> bool:
    return hop.meta.dtype == wide if wide.kind == "f" else hop.meta.dtype in BYTES


def _terms(hop: Hop) -> tuple[list[Hop], tuple[Hop, ...]]:
    """Return what a chain of additions adds up: arrays, and scalars."""
    found: list[Hop] = []
    scalars: list[Hop] = []
    stack = [hop]
    while stack:
        one = stack.pop()
        if is_sum(one, hop.meta.shape):
            stack += reversed(one.inputs)
        elif one.op.name == "full":
            scalars.append(one.inputs[0])
        else:
            (found if one.meta.shape else scalars).append(one)
    return found, tuple(scalars)


def is_sum(hop: Hop, shape: Shape) -> bool:
    """Tell whether `hop` adds arrays of a shape, or a scalar to one."""
    return hop.op.name == "add" and hop.meta.shape == shape and all(
        i.meta.shape in (shape, ()) for i in hop.inputs)


def _sum_of(products: Sequence[Hop], hop: Hop, wide: np.dtype, pads: bool) -> Nest | None:
    """Return the loops of products that are added up; all are alike but for where they read."""
    first = products[0]
    left, right = (i.meta for i in first.inputs)
    if left.ndim < 1 or right.ndim < 1 or first.op.name == "dot" and max(left.ndim, right.ndim) > 2:
        return None
    if any([i.meta.shape for i in p.inputs] != [left.shape, right.shape] for p in products):
        return None
    batch = first.meta.shape[:max(left.ndim, right.ndim) - 2] if max(left.ndim, right.ndim) > 2 else ()
    inner = Axis(left.shape[-1], True)
    outer = [Axis(n) for n in batch]
    rows = [Axis(left.shape[-2])] if left.ndim > 1 else []
    columns = [Axis(right.shape[-1])] if right.ndim > 1 else []
    one = {axis: Place(0, ((axis, 1),)) for axis in (inner, *outer, *rows, *columns)}

    def spread(shape: Shape) -> list[Place]:
        own = outer[len(outer) - max(len(shape) - 2, 0):] if len(shape) > 2 else []
        return [one[a] if n > 1 else Place() for n, a in zip(shape, own, strict=False)]

    at = ((*spread(left.shape), *(one[a] for a in rows), one[inner]),
          (*spread(right.shape), one[inner], *(one[a] for a in columns)))
    splits = Splits()
    terms = [[sources(o, p, splits, _widening(wide), pads) for o, p in zip(t.inputs, at, strict=True)]
             for t in products]
    if not all(_is_factor(a.hop, wide) for t in terms for a in t):
        return None
    ended = tuple(tuple(Access(a.hop, splits.places(a.at)) for a in t) for t in terms)
    out = splits.places(one[a] for a in (*outer, *rows, *columns))
    return Nest(hop, splits.axes((*outer, *rows, *columns, inner)), "add", "multiply", ended, out)


def _labelled(hop: Hop, wide: np.dtype, pads: bool) -> Nest | None:
    """Return the loops of an einsum of two operands, a loop per label."""
    given, _, result = hop.attr("subscripts").partition("->")
    labels = given.split(",")
    if len(labels) != 2 or any(len(set(own)) < len(own) for own in labels):
        return None
    extents = dict[str, int]()
    for own, x in zip(labels, hop.inputs, strict=True):
        for label, n in zip(own, x.meta.shape, strict=True):
            extents[label] = max(extents.get(label, 1), n)
    one = {label: Axis(n, label not in result) for label, n in extents.items()}
    splits = Splits()
    term = []
    for own, x in zip(labels, hop.inputs, strict=True):
        lengths = zip(own, x.meta.shape, strict=True)
        here = (Place(0, ((one[k], 1),)) if n > 1 else Place() for k, n in lengths)
        term.append(sources(x, tuple(here), splits, _widening(wide), pads))
    if not all(_is_factor(a.hop, wide) for a in term):
        return None
    ended = tuple(Access(a.hop, splits.places(a.at)) for a in term)
    kept = [one[k] for k in result]
    out = splits.places(Place(0, ((a, 1),)) for a in kept)
    axes = splits.axes((*kept, *(one[k] for k in dict.fromkeys("".join(labels)) if k not in result)))
    return Nest(hop, axes, "add", "multiply", (ended,), out)


def _aggregate(hop: Hop, wide: np.dtype, pads: bool) -> Nest | None:
    shape, over = hop.inputs[0].meta.shape, hop.attr("axis")
    if not hop.meta.shape or wide.kind != "f" and hop.meta.dtype.kind != "i":
        return None
    if hop.op.name == "sum" and hop.meta.dtype != wide and not _longer(hop.meta.dtype, wide):
        return None
    axes = [Axis(n, i in over) for i, n in enumerate(shape)]
    one = [Place(0, ((a, 1),)) for a in axes]
    splits = Splits()
    read = sources(hop.inputs[0], tuple(one), splits, _widening(wide), pads)
    if not _is_factor(read.hop, wide):
        return None
    kept = [Place() if i in over else p for i, p in enumerate(one) if hop.attr("keepdims") or i not in over]
    name = {"sum": "add", "max": "maximum", "min": "minimum"}[hop.op.name]
    return Nest(hop, splits.axes(axes), name, "", ((Access(read.hop, splits.places(read.at)),),),
                splits.places(kept))


def _cells(hop: Hop, wide: np.dtype) -> Nest | None:
    if any(i.meta.shape != hop.meta.shape for i in hop.inputs):
        return None
    axes = [Axis(n) for n in hop.meta.shape]
    one = tuple(Place(0, ((a, 1),)) for a in axes)
    splits = Splits()
    reads = [sources(i, one, splits, _widening(wide)) for i in hop.inputs]
    if not all(_is_factor(r.hop, wide) for r in reads):
        return None
    ended = tuple(Access(r.hop, splits.places(r.at)) for r in reads)
    return Nest(hop, splits.axes(axes), "", hop.op.name, (ended,), splits.places(one))


def replaced(nest: Nest, splits: Splits) -> Nest:
    """Return the nest by axes that were split later."""
    terms = tuple(tuple(Access(a.hop, splits.places(a.at)) for a in t) for t in nest.terms)
    return replace(nest, axes=splits.axes(nest.axes), terms=terms, out=splits.places(nest.out))
