"""Matching of tensor intrinsics on loop nests."""

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
    """A loop; `reduces` if results are joined over it."""

    extent: int
    reduces: bool = False
    number: int = field(default_factory=lambda: next(_NUMBERS))


@dataclass(frozen=True, slots=True)
class Place:
    """A position along a dimension: `start`, and how far each axis moves it."""

    start: int = 0
    by: tuple[tuple[Axis, int], ...] = ()

    def plus(self, other: Place, times: int = 1) -> Place:
        """Return the sum of this index and a multiple of `other`."""
        found = dict(self.by)
        for axis, step in other.by:
            found[axis] = found.get(axis, 0) + step * times
        return Place(self.start + other.start * times, tuple((a, s) for a, s in found.items() if s))

    @property
    def last(self) -> int:
        """The farthest position."""
        return self.start + sum(max(s * (a.extent - 1), 0) for a, s in self.by)


Places = tuple[Place, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """Where a value is read, dimension by dimension."""

    hop: Hop
    at: Places

    def axes(self) -> frozenset[Axis]:
        """Return the axes that it depends on."""
        return frozenset(a for p in self.at for a, _ in p.by)

    def view(self, array: np.ndarray, axes: Sequence[Axis]) -> np.ndarray:
        """Return the elements of `array` by `axes`."""
        start = tuple(slice(p.start, p.start + 1) for p in self.at)
        steps = [sum(dict(p.by).get(a, 0) * s for p, s in zip(self.at, array.strides, strict=True))
                 for a in axes]
        return as_strided(array[start], [a.extent for a in axes], steps)


class Splits:
    """Axes to be split in two, with the number of inner steps in one outer step."""

    def __init__(self) -> None:
        self.parts: dict[Axis, tuple[Axis, Axis]] = {}

    def split(self, axis: Axis, inner: int) -> tuple[Axis, Axis]:
        """Cut an axis into steps of `inner`."""
        made = Axis(axis.extent // inner, axis.reduces), Axis(inner, axis.reduces)
        self.parts[axis] = made
        return made

    def axes(self, axes: Iterable[Axis]) -> tuple[Axis, ...]:
        """Return the axes there are in the end."""
        found: list[Axis] = []
        for axis in axes:
            if axis in self.parts:
                found += self.axes(self.parts[axis])
            elif axis.extent > 1:
                found.append(axis)
        return tuple(found)

    def place(self, place: Place) -> Place:
        """Return a position by the axes there are in the end."""
        made = Place(place.start)
        for axis, step in place.by:
            if axis in self.parts:
                outer, inner = self.parts[axis]
                both = Place(0, ((outer, inner.extent * step), (inner, step)))
                made = made.plus(self.place(both))
            elif axis.extent > 1:
                made = made.plus(Place(0, ((axis, step),)))
        return made

    def places(self, places: Iterable[Place]) -> Places:
        """Return positions by the axes there are in the end."""
        return tuple(map(self.place, places))


def regrouped(places: Places, before: Shape, after: Shape, splits: Splits) -> Places | None:
    """Return positions in an array of shape `before` as those in its reshape to `after`; None if unclear."""
    found: list[Place] = []
    for old, new in _groups(before, after):
        flat, step = Place(), 1
        for i in reversed(old):
            flat = flat.plus(splits.place(places[i]), step)
            step *= before[i]
        parts = _spread(flat, [after[i] for i in new], splits)
        if parts is None:
            return None
        found += parts
    return tuple(found)


def _groups(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]]:
    """Cut both shapes into runs of as many elements."""
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        old, new = list(range(i, i + 1))[:len(before) - i], list(range(j, j + 1))[:len(after) - j]
        while (have := prod(before[k] for k in old)) != (want := prod(after[k] for k in new)):
            if have < want:
                old.append(old[-1] + 1 if old else i)
            else:
                new.append(new[-1] + 1 if new else j)
        i, j = i + len(old), j + len(new)
        found.append((old, new))
    return found


def _spread(flat: Place, sizes: Sequence[int], splits: Splits) -> list[Place] | None:
    """Return a position in one dimension as positions in several, the last of which runs fastest."""
    steps = [prod(sizes[i + 1:]) for i in range(len(sizes))]
    starts = []
    rest = flat.start
    for step in steps:
        starts.append(rest // step)
        rest %= step
    found = [Place(s) for s in starts]
    waiting = list(flat.by)
    while waiting:
        axis, by = waiting.pop()
        at = next((i for i, s in enumerate(steps) if by >= s and by % s == 0), None)
        if at is None:
            return None
        room = sizes[at] * steps[at]
        if at and by * (axis.extent - 1) >= room:  # it runs over into the next dimension
            if room % by or axis.extent % (room // by):
                return None
            outer, inner = splits.split(axis, room // by)
            waiting += [(outer, room), (inner, by)]
            waiting = [(a, s) for a, s in waiting if a.extent > 1]
            continue
        found[at] = found[at].plus(Place(0, ((axis, by // steps[at]),)))
    found = [splits.place(p) for p in found]
    return found if all(p.last < n for p, n in zip(found, sizes, strict=True)) else None


# ---------------------------------------------------------------------- down through views


def sources(hop: Hop, at: Places, splits: Splits, through: Any, pads: bool = False) -> Access:
    """Follow views and the casts that `through` allows, down to a value that lies in memory.

    With `pads`, zeros around it are places before its beginning and behind its end.
    """
    while True:
        below = _below(hop, splits.places(at), splits)
        if pads and hop.op.name == "pad":
            at = splits.places(at)
            at = tuple(Place(p.start - n, p.by) for p, (n, _) in zip(at, hop.attr("widths"), strict=True))
            hop, pads = hop.inputs[0], False  # what is followed from there on must be inside
            return Access(hop, at)
        if below is not None:
            hop, at = hop.inputs[0], below
        elif hop.op.name == "cast" and through(hop):
            hop = hop.inputs[0]
        else:
            return Access(hop, splits.places(at))


def _below(hop: Hop, at: Places, splits: Splits) -> Places | None:
    """Return the positions in the operand of a view; None if it is none, or not followed."""
    if not hop.inputs:
        return None
    shape = hop.inputs[0].meta.shape
    match hop.op.name:
        case "transpose":
            axes = hop.attr("axes")
            return tuple(at[axes.index(i)] for i in range(len(axes)))
        case "reshape" | "ravel":
            return regrouped(at, hop.meta.shape, shape, splits)
        case "expand_dims":
            return tuple(p for i, p in enumerate(at) if i not in hop.attr("axis"))
        case "squeeze":
            rest = iter(at)
            return tuple(Place() if i in hop.attr("axis") else next(rest) for i in range(len(shape)))
        case "broadcast_to":
            own = at[len(at) - len(shape):]
            return tuple(Place() if n == 1 else p for n, p in zip(shape, own, strict=True))
        case "flip":
            return tuple(Place(shape[i] - 1).plus(p, -1) if i in hop.attr("axis") else p
                         for i, p in enumerate(at))
        case "getitem":
            return _indexed(hop, at)
        case "windows":
            return _slid(hop.attr("axis"), at, len(shape))
    return None


def _slid(axis: Sequence[int], at: Places, ndim: int) -> Places:
    found = list(at[:ndim])
    for along, place in zip(axis, at[ndim:], strict=True):
        found[along] = found[along].plus(place)
    return tuple(found)


def _indexed(hop: Hop, at: Places) -> Places | None:
    index, shape = hop.attr("index"), hop.inputs[0].meta.shape
    kinds = [item[0] for item in index]
    missing = len(shape) - kinds.count("i") - kinds.count("s")
    given, found = iter(at), list[Place]()
    for item in index if "e" in kinds else (*index, ("e",)):
        match item:
            case ("n",):
                next(given)
            case ("e",):
                found += [next(given) for _ in range(missing)]
            case ("i", i):
                found.append(Place(i % shape[len(found)]))
            case ("s", *bounds):
                start, _, step = slice(*bounds).indices(shape[len(found)])
                found.append(Place(start).plus(next(given), step))
    return tuple(found)


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


Array = np.ndarray[Any, Any]
Values = Mapping[Hop, Array]
_REDUCES = {"+=": "add", "max=": "maximum", "min=": "minimum", "=": ""}
_COMBINES = {"*": "multiply", "+": "add"}
_SIDE = re.compile(r"(\w+)\[([\w, ]*)\]")
_LINE = re.compile(r"(\w+\[[\w, ]*\])\s*(\+=|max=|min=|=)\s*(.+)")


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A behaviour such as ``out[o] += images[i] * weights[i, o]``, and what makes a layer of a match.

    Letters stand for axes of one block; more of an axis, and all axes that are not named, are loops around.
    On the right are one or two operands, with ``*`` or ``+`` between, or ``name(x[..], y[..])``.
    """

    name: str
    behaviour: str
    lower: Callable[[Match], Fit | None]
    doc: str


@dataclass(frozen=True, slots=True)
class Match:
    """A nest in the roles of a behaviour: for each operand its number in the nest, for each letter its axes.

    `rows` are axes of results that only the first operand has, `groups` those that all operands have.
    """

    nest: Nest
    operands: tuple[int, ...]
    axes: Mapping[str, tuple[Axis, ...]]
    rows: tuple[Axis, ...]
    groups: tuple[Axis, ...]

    def accesses(self, operand: int) -> tuple[Access, ...]:
        """Return where an operand is read, term by term."""
        return tuple(t[self.operands[operand]] for t in self.nest.terms)


Loops = tuple[tuple[int, tuple[int, ...]], ...]  # turns, and how far one moves along each dimension


@dataclass(frozen=True, slots=True)
class Source:
    """An array of a layer: parts of values, each from a start on, by the loops of every dimension.

    Several parts are joined along dimension `join`, and take `shape` then.
    """

    parts: tuple[tuple[Hop, tuple[int, ...]], ...]
    dimensions: tuple[Loops, ...]
    shape: tuple[int, ...]
    join: int = 0

    def of(self, values: Values, dtype: Any) -> Array:
        """Return the array."""
        made = [self._part(values[hop], start) for hop, start in self.parts]
        whole = made[0] if len(made) == 1 else np.concatenate(made, axis=self.join)
        return whole.reshape(self.shape).astype(dtype, copy=False)

    def _part(self, value: Array, start: tuple[int, ...]) -> Array:
        begin = value[tuple([slice(s, s + 1) for s in start])]
        loops = [loop for d in self.dimensions for loop in d]
        steps = [sum(a * b for a, b in zip(by, value.strides, strict=True)) for _, by in loops]
        seen = as_strided(begin, [n for n, _ in loops], steps)
        return seen.reshape([prod(n for n, _ in d) for d in self.dimensions])


def loops_of(access: Access, axes: Sequence[Axis]) -> Loops:
    """Return how axes move through the dimensions of a value."""
    by = [dict(p.by) for p in access.at]
    return tuple((a.extent, tuple([b.get(a, 0) for b in by])) for a in axes)


def starts(access: Access) -> tuple[int, ...]:
    """Return where reading begins, by dimension; zeros before that are not read."""
    return tuple([max(p.start, 0) for p in access.at])


@dataclass(frozen=True, slots=True)
class Fit:
    """A layer for a nest: its arrays by name, and the axes that each dimension of its results has."""

    layer: Layer
    sources: Mapping[str, Source]
    dimensions: tuple[tuple[Axis, ...], ...]  # group, image, row, column, filter
    pixels: Access  # what images are read from

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes of results, in order."""
        return tuple(a for d in self.dimensions for a in d)


# ---------------------------------------------------------------------- matching


@dataclass(frozen=True, slots=True)
class _Pattern:
    reduce: str
    combine: str
    reads: tuple[tuple[str, ...], ...]
    out: tuple[str, ...]


def _letters(side: str) -> tuple[str, ...]:
    found = _SIDE.fullmatch(side.strip())
    if found is None:
        raise InternalError(f"intrinsic: {side!r} is not NAME[letters]")
    return tuple(x.strip() for x in found[2].split(",") if x.strip())


@lru_cache(maxsize=64)
def _pattern(behaviour: str) -> _Pattern:
    line = _LINE.fullmatch(behaviour.strip())
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


def matches(intrinsic: Intrinsic, nest: Nest) -> Iterator[Match]:
    """Yield the ways in which a nest does what an intrinsic does, over and over."""
    pattern = _pattern(intrinsic.behaviour)
    if (pattern.reduce, pattern.combine) != (nest.reduce, nest.combine) or \
            len(pattern.reads) != len(nest.reads):
        return
    for order in permutations(range(len(nest.reads))):
        axes = {}
        for letter in dict.fromkeys((*pattern.out, *(x for r in pattern.reads for x in r))):
            reads = [order[i] for i, r in enumerate(pattern.reads) if letter in r]
            axes[letter] = nest.of(reads, letter in pattern.out)
        alone = len(order) == 1
        rows = () if alone else nest.of((order[0],), True)
        groups = () if alone or any(set(x) == set(nest.of(order, True)) for x in axes.values()) else \
            nest.of(order, True)
        # a pooling reduces over axes of its only operand
        inner = nest.of((order[0],), False) if alone else ()
        named = {a for found in axes.values() for a in found} | {*rows, *groups, *inner}
        if named == set(nest.axes):
            yield Match(nest, order, {**axes, "inner": inner}, rows, groups)
