"""Positions in arrays by the axes of loops, and how views move them.

Knows: hops that are views. Must not know: products, machines, instructions.
Receives hops and positions in them; returns where that is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import count
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jitla.classes import dataclass
from jitla.hops import Hop, Shape

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
        """Return the sum with `other`, taken so many times."""
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
    """Axes that turned out to be two: their outer part takes so many steps of the inner."""

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
