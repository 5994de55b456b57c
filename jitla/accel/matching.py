"""Matching of tensor intrinsics on loop nests.

A hop becomes a `LoopNest` whose accesses are affine index expressions of loop axes, followed through views
down to values in memory. A behaviour such as ``out[o] += images[i] * weights[i, o]`` matches a nest if every
axis has a role.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from itertools import count, permutations
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jitla.accel.layer import Layer
from jitla.classes import dataclass
from jitla.errors import InternalError
from jitla.hops import Hop, Kind, Shape

_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop axis; `reduces` marks a reduction axis."""

    extent: int
    reduces: bool = False
    number: int = field(default_factory=lambda: next(_NUMBERS))


@dataclass(frozen=True, slots=True)
class AffineIndex:
    """An affine index along one dimension: `start` plus a coefficient times each axis in `by`."""

    start: int = 0
    by: tuple[tuple[Axis, int], ...] = ()

    def plus(self, other: AffineIndex, times: int = 1) -> AffineIndex:
        """Return this index plus `times` times `other`."""
        coefficients = dict(self.by)
        for axis, step in other.by:
            coefficients[axis] = coefficients.get(axis, 0) + step * times
        by = tuple((a, s) for a, s in coefficients.items() if s)
        return AffineIndex(self.start + other.start * times, by)

    @property
    def last(self) -> int:
        """The largest position."""
        return self.start + sum(max(s * (a.extent - 1), 0) for a, s in self.by)


AffineIndices = tuple[AffineIndex, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AffineAccess:
    """An access to a value: an affine index per dimension."""

    hop: Hop
    at: AffineIndices

    def axes(self) -> frozenset[Axis]:
        """Return the axes that the indices depend on."""
        return frozenset(a for p in self.at for a, _ in p.by)

    def view(self, array: np.ndarray, axes: Sequence[Axis]) -> np.ndarray:
        """Return a strided view of `array` with one dimension per axis."""
        start = tuple(slice(p.start, p.start + 1) for p in self.at)
        steps = [sum(dict(p.by).get(a, 0) * s for p, s in zip(self.at, array.strides, strict=True))
                 for a in axes]
        return as_strided(array[start], [a.extent for a in axes], steps)


class AxisSplits:
    """A substitution of axes by pairs of outer and inner axes."""

    def __init__(self) -> None:
        self.parts: dict[Axis, tuple[Axis, Axis]] = {}

    def split(self, axis: Axis, inner: int) -> tuple[Axis, Axis]:
        """Split an axis into an outer one and an inner one of extent `inner`."""
        pair = Axis(axis.extent // inner, axis.reduces), Axis(inner, axis.reduces)
        self.parts[axis] = pair
        return pair

    def axes(self, axes: Iterable[Axis]) -> tuple[Axis, ...]:
        """Return axes with all splits applied; axes of extent 1 are dropped."""
        resolved: list[Axis] = []
        for axis in axes:
            if axis in self.parts:
                resolved += self.axes(self.parts[axis])
            elif axis.extent > 1:
                resolved.append(axis)
        return tuple(resolved)

    def index(self, index: AffineIndex) -> AffineIndex:
        """Return an index with all splits applied."""
        result = AffineIndex(index.start)
        for axis, step in index.by:
            if axis in self.parts:
                outer, inner = self.parts[axis]
                outer_and_inner = AffineIndex(0, ((outer, inner.extent * step), (inner, step)))
                result = result.plus(self.index(outer_and_inner))
            elif axis.extent > 1:
                result = result.plus(AffineIndex(0, ((axis, step),)))
        return result

    def indices(self, indices: Iterable[AffineIndex]) -> AffineIndices:
        """Return indices with all splits applied."""
        return tuple(map(self.index, indices))


def reshape_indices(
    positions: AffineIndices, before: Shape, after: Shape, splits: AxisSplits
) -> AffineIndices | None:
    """Return the indices after a reshape from `before` to `after`; None if they are not affine."""
    indices: list[AffineIndex] = []
    for old, new in _equal_size_groups(before, after):
        flat_index, step = AffineIndex(), 1
        for i in reversed(old):
            flat_index = flat_index.plus(splits.index(positions[i]), step)
            step *= before[i]
        parts = _unflatten(flat_index, [after[i] for i in new], splits)
        if parts is None:
            return None
        indices += parts
    return tuple(indices)


def _equal_size_groups(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]]:
    """Partition both shapes into groups of dimensions with equal numbers of elements."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        old, new = list(range(i, i + 1))[:len(before) - i], list(range(j, j + 1))[:len(after) - j]
        while (old_size := prod(before[k] for k in old)) != (new_size := prod(after[k] for k in new)):
            if old_size < new_size:
                old.append(old[-1] + 1 if old else i)
            else:
                new.append(new[-1] + 1 if new else j)
        i, j = i + len(old), j + len(new)
        groups.append((old, new))
    return groups


def _unflatten(flat: AffineIndex, sizes: Sequence[int], splits: AxisSplits) -> list[AffineIndex] | None:
    """Return a flat index as indices of row-major dimensions `sizes`; None if they are not affine."""
    steps = [prod(sizes[i + 1:]) for i in range(len(sizes))]
    starts = []
    remainder = flat.start
    for step in steps:
        starts.append(remainder // step)
        remainder %= step
    indices = [AffineIndex(s) for s in starts]
    pending = list(flat.by)
    while pending:
        axis, coefficient = pending.pop()
        dimension = next((i for i, s in enumerate(steps) if coefficient >= s and coefficient % s == 0), None)
        if dimension is None:
            return None
        extent = sizes[dimension] * steps[dimension]
        if dimension and coefficient * (axis.extent - 1) >= extent:  # it carries into the next dimension
            if extent % coefficient or axis.extent % (extent // coefficient):
                return None
            outer, inner = splits.split(axis, extent // coefficient)
            pending += [(outer, extent), (inner, coefficient)]
            pending = [(a, s) for a, s in pending if a.extent > 1]
            continue
        index = AffineIndex(0, ((axis, coefficient // steps[dimension]),))
        indices[dimension] = indices[dimension].plus(index)
    indices = [splits.index(p) for p in indices]
    return indices if all(p.last < n for p, n in zip(indices, sizes, strict=True)) else None


# ---------------------------------------------------------------------- down through views


def resolve_access(
    hop: Hop, at: AffineIndices, splits: AxisSplits, through: Any, pads: bool = False
) -> AffineAccess:
    """Resolve an access through views, and casts that `through` allows, down to a value in memory.

    With `pads`, zero padding becomes indices out of bounds.
    """
    while True:
        operand_indices = _view_operand_indices(hop, splits.indices(at), splits)
        if pads and hop.op.name == "pad":
            at = splits.indices(at)
            at = tuple(AffineIndex(p.start - n, p.by)
                       for p, (n, _) in zip(at, hop.attr("widths"), strict=True))
            hop, pads = hop.inputs[0], False  # indices below the padding must be in bounds
            return AffineAccess(hop, at)
        if operand_indices is not None:
            hop, at = hop.inputs[0], operand_indices
        elif hop.op.name == "cast" and through(hop):
            hop = hop.inputs[0]
        else:
            return AffineAccess(hop, splits.indices(at))


def _view_operand_indices(hop: Hop, at: AffineIndices, splits: AxisSplits) -> AffineIndices | None:
    """Return the indices in the operand of a view; None for other operators or non-affine indices."""
    if not hop.inputs:
        return None
    shape = hop.inputs[0].meta.shape
    match hop.op.name:
        case "transpose":
            axes = hop.attr("axes")
            return tuple(at[axes.index(i)] for i in range(len(axes)))
        case "reshape" | "ravel":
            return reshape_indices(at, hop.meta.shape, shape, splits)
        case "expand_dims":
            return tuple(p for i, p in enumerate(at) if i not in hop.attr("axis"))
        case "squeeze":
            remaining = iter(at)
            return tuple(AffineIndex() if i in hop.attr("axis") else next(remaining)
                         for i in range(len(shape)))
        case "broadcast_to":
            trailing = at[len(at) - len(shape):]
            return tuple(AffineIndex() if n == 1 else p for n, p in zip(shape, trailing, strict=True))
        case "flip":
            return tuple(AffineIndex(shape[i] - 1).plus(p, -1) if i in hop.attr("axis") else p
                         for i, p in enumerate(at))
        case "getitem":
            return _getitem_indices(hop, at)
        case "windows":
            return _window_indices(hop.attr("axis"), at, len(shape))
    return None


def _window_indices(axis: Sequence[int], at: AffineIndices, ndim: int) -> AffineIndices:
    indices = list(at[:ndim])
    for along, index in zip(axis, at[ndim:], strict=True):
        indices[along] = indices[along].plus(index)
    return tuple(indices)


def _getitem_indices(hop: Hop, at: AffineIndices) -> AffineIndices | None:
    index, shape = hop.attr("index"), hop.inputs[0].meta.shape
    kinds = [item[0] for item in index]
    missing = len(shape) - kinds.count("i") - kinds.count("s")
    remaining, indices = iter(at), list[AffineIndex]()
    for item in index if "e" in kinds else (*index, ("e",)):
        match item:
            case ("n",):
                next(remaining)
            case ("e",):
                indices += [next(remaining) for _ in range(missing)]
            case ("i", i):
                indices.append(AffineIndex(i % shape[len(indices)]))
            case ("s", *bounds):
                start, _, step = slice(*bounds).indices(shape[len(indices)])
                indices.append(AffineIndex(start).plus(next(remaining), step))
    return tuple(indices)


FACTOR_DTYPES = frozenset({np.dtype(np.int8), np.dtype(np.bool_)})


@dataclass(frozen=True, slots=True, eq=False)
class LoopNest:
    """A loop nest ``out[..] = reduce over axes of combine(reads)``; `terms` has the operands of each addend.

    `reduce` and `combine` are operator names, "" for none. All terms have the same axes.
    """

    hop: Hop
    axes: tuple[Axis, ...]
    reduce: str
    combine: str
    terms: tuple[tuple[AffineAccess, ...], ...]
    out: AffineIndices
    scalars: tuple[Hop, ...] = ()  # added to results

    @property
    def reads(self) -> tuple[AffineAccess, ...]:
        """The operands of the first term."""
        return self.terms[0]

    def axes_of(self, reads: Iterable[int], out: bool) -> tuple[Axis, ...]:
        """Return the axes that exactly the operands `reads` depend on, and the result iff `out`."""
        wanted = frozenset(reads)
        kept = frozenset(a for p in self.out for a, _ in p.by)
        inside = [r.axes() for r in self.reads]
        return tuple(a for a in self.axes if (a in kept) is out and
                     frozenset(i for i, axes in enumerate(inside) if a in axes) == wanted)


def loop_nest_of(hop: Hop, wide: np.dtype, pads: bool = False) -> LoopNest | None:
    """Return the loop nest of a product, a sum of products, an aggregate, or an elementwise operation.

    Accumulators have the dtype `wide`; for an integer one, factors are bytes below lossless casts. With
    `pads` zero padding becomes indices out of bounds.
    """
    if hop.meta.dtype != wide and not _is_wider_integer(hop.meta.dtype, wide) and hop.op.kind is not Kind.AGG:
        return None
    if hop.op.name in ("matmul", "dot"):
        return _products_nest([hop], hop, wide, pads)
    if hop.op.name == "einsum" and hop.meta.shape:
        return _einsum_nest(hop, wide, pads)
    if hop.op.name == "add" and hop.meta.shape:
        terms, scalars = _addends(hop)
        if len(terms) + len(scalars) > 1 and terms and all(t.op.name in ("matmul", "dot") for t in terms):
            nest = _products_nest(terms, hop, wide, pads)
            return nest and replace(nest, scalars=scalars)
    if hop.op.name in ("max", "min", "sum"):
        return _aggregate_nest(hop, wide, pads)
    if hop.op.kind is Kind.CELL and len(hop.inputs) == 2 and hop.meta.shape:
        return _elementwise_nest(hop, wide)
    return None


def _is_wider_integer(dtype: np.dtype, wide: np.dtype) -> bool:
    """Return whether `dtype` is a wider integer than accumulators, which hold it if values are small."""
    return wide.kind == "i" and dtype.kind == "i" and dtype.itemsize > wide.itemsize


def _allowed_casts(wide: np.dtype) -> Any:
    if wide.kind == "f":
        return lambda hop: False
    return is_lossless_cast


def is_lossless_cast(cast: Hop) -> bool:
    """Return whether a cast preserves every integer."""
    to, of = cast.meta.dtype, cast.inputs[0].meta.dtype
    return to.kind == "i" and of.kind in "ib" and to.itemsize >= of.itemsize


def _is_factor(hop: Hop, wide: np.dtype) -> bool:
    return hop.meta.dtype == wide if wide.kind == "f" else hop.meta.dtype in FACTOR_DTYPES


def _addends(hop: Hop) -> tuple[list[Hop], tuple[Hop, ...]]:
    """Return the array and scalar addends of a chain of additions."""
    arrays: list[Hop] = []
    scalars: list[Hop] = []
    stack = [hop]
    while stack:
        current = stack.pop()
        if is_addition(current, hop.meta.shape):
            stack += reversed(current.inputs)
        elif current.op.name == "full":
            scalars.append(current.inputs[0])
        else:
            (arrays if current.meta.shape else scalars).append(current)
    return arrays, tuple(scalars)


def is_addition(hop: Hop, shape: Shape) -> bool:
    """Return whether `hop` adds arrays of a shape, or a scalar to one."""
    return hop.op.name == "add" and hop.meta.shape == shape and all(
        i.meta.shape in (shape, ()) for i in hop.inputs)


def _products_nest(products: Sequence[Hop], hop: Hop, wide: np.dtype, pads: bool) -> LoopNest | None:
    """Return the loop nest of a sum of products that differ only in their accesses."""
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
    unit_index = {axis: AffineIndex(0, ((axis, 1),)) for axis in (inner, *outer, *rows, *columns)}

    def spread(shape: Shape) -> list[AffineIndex]:
        batch_axes = outer[len(outer) - max(len(shape) - 2, 0):] if len(shape) > 2 else []
        return [unit_index[a] if n > 1 else AffineIndex() for n, a in zip(shape, batch_axes, strict=False)]

    at = ((*spread(left.shape), *(unit_index[a] for a in rows), unit_index[inner]),
          (*spread(right.shape), unit_index[inner], *(unit_index[a] for a in columns)))
    splits = AxisSplits()
    terms = [[resolve_access(o, p, splits, _allowed_casts(wide), pads)
              for o, p in zip(t.inputs, at, strict=True)]
             for t in products]
    if not all(_is_factor(a.hop, wide) for t in terms for a in t):
        return None
    resolved = tuple(tuple(AffineAccess(a.hop, splits.indices(a.at)) for a in t) for t in terms)
    out = splits.indices(unit_index[a] for a in (*outer, *rows, *columns))
    return LoopNest(hop, splits.axes((*outer, *rows, *columns, inner)), "add", "multiply", resolved, out)


def _einsum_nest(hop: Hop, wide: np.dtype, pads: bool) -> LoopNest | None:
    """Return the loop nest of an einsum of two operands, an axis per label."""
    operand_labels, _, result = hop.attr("subscripts").partition("->")
    labels = operand_labels.split(",")
    if len(labels) != 2 or any(len(set(operand)) < len(operand) for operand in labels):
        return None
    extents = dict[str, int]()
    for operand, x in zip(labels, hop.inputs, strict=True):
        for label, n in zip(operand, x.meta.shape, strict=True):
            extents[label] = max(extents.get(label, 1), n)
    axes_by_label = {label: Axis(n, label not in result) for label, n in extents.items()}
    splits = AxisSplits()
    accesses = []
    for operand, x in zip(labels, hop.inputs, strict=True):
        lengths = zip(operand, x.meta.shape, strict=True)
        indices = (AffineIndex(0, ((axes_by_label[k], 1),)) if n > 1 else AffineIndex() for k, n in lengths)
        accesses.append(resolve_access(x, tuple(indices), splits, _allowed_casts(wide), pads))
    if not all(_is_factor(a.hop, wide) for a in accesses):
        return None
    resolved = tuple(AffineAccess(a.hop, splits.indices(a.at)) for a in accesses)
    result_axes = [axes_by_label[k] for k in result]
    out = splits.indices(AffineIndex(0, ((a, 1),)) for a in result_axes)
    reduced = (axes_by_label[k] for k in dict.fromkeys("".join(labels)) if k not in result)
    axes = splits.axes((*result_axes, *reduced))
    return LoopNest(hop, axes, "add", "multiply", (resolved,), out)


def _aggregate_nest(hop: Hop, wide: np.dtype, pads: bool) -> LoopNest | None:
    shape, reduced = hop.inputs[0].meta.shape, hop.attr("axis")
    if not hop.meta.shape or wide.kind != "f" and hop.meta.dtype.kind != "i":
        return None
    if hop.op.name == "sum" and hop.meta.dtype != wide and not _is_wider_integer(hop.meta.dtype, wide):
        return None
    axes = [Axis(n, i in reduced) for i, n in enumerate(shape)]
    indices = [AffineIndex(0, ((a, 1),)) for a in axes]
    splits = AxisSplits()
    access = resolve_access(hop.inputs[0], tuple(indices), splits, _allowed_casts(wide), pads)
    if not _is_factor(access.hop, wide):
        return None
    result_indices = [AffineIndex() if i in reduced else p for i, p in enumerate(indices)
                      if hop.attr("keepdims") or i not in reduced]
    name = {"sum": "add", "max": "maximum", "min": "minimum"}[hop.op.name]
    return LoopNest(hop, splits.axes(axes), name, "",
                    ((AffineAccess(access.hop, splits.indices(access.at)),),),
                splits.indices(result_indices))


def _elementwise_nest(hop: Hop, wide: np.dtype) -> LoopNest | None:
    if any(i.meta.shape != hop.meta.shape for i in hop.inputs):
        return None
    axes = [Axis(n) for n in hop.meta.shape]
    indices = tuple(AffineIndex(0, ((a, 1),)) for a in axes)
    splits = AxisSplits()
    reads = [resolve_access(i, indices, splits, _allowed_casts(wide)) for i in hop.inputs]
    if not all(_is_factor(r.hop, wide) for r in reads):
        return None
    resolved = tuple(AffineAccess(r.hop, splits.indices(r.at)) for r in reads)
    return LoopNest(hop, splits.axes(axes), "", hop.op.name, (resolved,), splits.indices(indices))


def with_splits(nest: LoopNest, splits: AxisSplits) -> LoopNest:
    """Return the nest with later splits applied."""
    terms = tuple(tuple(AffineAccess(a.hop, splits.indices(a.at)) for a in t) for t in nest.terms)
    return replace(nest, axes=splits.axes(nest.axes), terms=terms, out=splits.indices(nest.out))


Array = np.ndarray[Any, Any]
Values = Mapping[Hop, Array]
_REDUCES = {"+=": "add", "max=": "maximum", "min=": "minimum", "=": ""}
_COMBINES = {"*": "multiply", "+": "add"}
_OPERAND_RE = re.compile(r"(\w+)\[([\w, ]*)\]")
_BEHAVIOUR_RE = re.compile(r"(\w+\[[\w, ]*\])\s*(\+=|max=|min=|=)\s*(.+)")


@dataclass(frozen=True, slots=True)
class TensorIntrinsic:
    """A tensor intrinsic: a behaviour such as ``out[o] += images[i] * weights[i, o]``, and its lowering.

    Letters are axes of one block; multiples of an axis and unnamed axes become surrounding loops.
    The right side has one or two operands, joined by ``*`` or ``+``, or ``name(x[..], y[..])``.
    """

    name: str
    behaviour: str
    lower: Callable[[Match], LayerFit | None]
    doc: str


@dataclass(frozen=True, slots=True)
class Match:
    """A nest matched to a behaviour: the nest's operand for each operand, the axes for each letter.

    `rows` are result axes of the first operand only, `groups` result axes of all operands.
    """

    nest: LoopNest
    operands: tuple[int, ...]
    axes: Mapping[str, tuple[Axis, ...]]
    rows: tuple[Axis, ...]
    groups: tuple[Axis, ...]

    def accesses(self, operand: int) -> tuple[AffineAccess, ...]:
        """Return the accesses to an operand, term by term."""
        return tuple(t[self.operands[operand]] for t in self.nest.terms)


Loops = tuple[tuple[int, tuple[int, ...]], ...]  # trip count, and the steps along each dimension


@dataclass(frozen=True, slots=True)
class OperandSource:
    """An operand array of a layer: strided parts of values, each with a start, by loops per dimension.

    Several parts are concatenated along dimension `join` and reshaped to `shape`.
    """

    parts: tuple[tuple[Hop, tuple[int, ...]], ...]
    dimensions: tuple[Loops, ...]
    shape: tuple[int, ...]
    join: int = 0

    def array_of(self, values: Values, dtype: Any) -> Array:
        """Build the array from values."""
        parts = [self._part(values[hop], start) for hop, start in self.parts]
        array = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=self.join)
        return array.reshape(self.shape).astype(dtype, copy=False)

    def _part(self, value: Array, start: tuple[int, ...]) -> Array:
        origin = value[tuple([slice(s, s + 1) for s in start])]
        loops = [loop for d in self.dimensions for loop in d]
        steps = [sum(a * b for a, b in zip(by, value.strides, strict=True)) for _, by in loops]
        view = as_strided(origin, [n for n, _ in loops], steps)
        return view.reshape([prod(n for n, _ in d) for d in self.dimensions])


def loops_of(access: AffineAccess, axes: Sequence[Axis]) -> Loops:
    """Return the loops of axes over the dimensions of a value."""
    coefficients = [dict(p.by) for p in access.at]
    return tuple((a.extent, tuple([b.get(a, 0) for b in coefficients])) for a in axes)


def start_indices(access: AffineAccess) -> tuple[int, ...]:
    """Return the first index read per dimension, without padding."""
    return tuple([max(p.start, 0) for p in access.at])


@dataclass(frozen=True, slots=True)
class LayerFit:
    """A layer that computes a nest: its operand arrays by name, and the axes of each result dimension."""

    layer: Layer
    sources: Mapping[str, OperandSource]
    dimensions: tuple[tuple[Axis, ...], ...]  # group, image, row, column, filter
    pixels: AffineAccess  # the access of the images

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All result axes, in order."""
        return tuple(a for d in self.dimensions for a in d)


# ---------------------------------------------------------------------- matching


@dataclass(frozen=True, slots=True)
class _Pattern:
    reduce: str
    combine: str
    reads: tuple[tuple[str, ...], ...]
    out: tuple[str, ...]


def _letters(side: str) -> tuple[str, ...]:
    parsed = _OPERAND_RE.fullmatch(side.strip())
    if parsed is None:
        raise InternalError(f"intrinsic: {side!r} is not NAME[letters]")
    return tuple(x.strip() for x in parsed[2].split(",") if x.strip())


@lru_cache(maxsize=64)
def _parse_behaviour(behaviour: str) -> _Pattern:
    line = _BEHAVIOUR_RE.fullmatch(behaviour.strip())
    if line is None:
        raise InternalError(f"intrinsic: {behaviour!r} is not OUT[..] = ..")
    out, sign, right = line.groups()
    call = re.fullmatch(r"(\w+)\((\w+\[.*?\]),\s*(\w+\[.*?\])\)", right)
    if call is not None:
        return _Pattern(_REDUCES[sign], call[1], (_letters(call[2]), _letters(call[3])), _letters(out))
    for mark, name in _COMBINES.items():
        if mark in right:
            left, _, other = right.partition(mark)
            return _Pattern(_REDUCES[sign], name, (_letters(left), _letters(other)), _letters(out))
    return _Pattern(_REDUCES[sign], "", (_letters(right),), _letters(out))


def find_matches(intrinsic: TensorIntrinsic, nest: LoopNest) -> Iterator[Match]:
    """Yield the matches of a nest with an intrinsic, for each order of operands."""
    pattern = _parse_behaviour(intrinsic.behaviour)
    if (pattern.reduce, pattern.combine) != (nest.reduce, nest.combine) or \
            len(pattern.reads) != len(nest.reads):
        return
    for order in permutations(range(len(nest.reads))):
        axes = {}
        for letter in dict.fromkeys((*pattern.out, *(x for r in pattern.reads for x in r))):
            reads = [order[i] for i, r in enumerate(pattern.reads) if letter in r]
            axes[letter] = nest.axes_of(reads, letter in pattern.out)
        is_unary = len(order) == 1
        rows = () if is_unary else nest.axes_of((order[0],), True)
        groups = () if is_unary or any(set(x) == set(nest.axes_of(order, True)) for x in axes.values()) else \
            nest.axes_of(order, True)
        # a pooling reduces over axes of its only operand
        inner = nest.axes_of((order[0],), False) if is_unary else ()
        used_axes = {a for found in axes.values() for a in found} | {*rows, *groups, *inner}
        if used_axes == set(nest.axes):
            yield Match(nest, order, {**axes, "inner": inner}, rows, groups)
