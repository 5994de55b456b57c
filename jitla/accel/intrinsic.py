"""What the device computes in one go, declared: behaviour as loops over a block, and a way to layers.

Knows: how declared loops are found in those of a program. Must not know: streams, tiles.
Receives nests; returns fits: a layer, and where its arrays come from and its results go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jitla.accel.access import Access, Axis
from jitla.accel.layer import Layer
from jitla.accel.nest import Nest
from jitla.classes import dataclass
from jitla.errors import InternalError
from jitla.hops import Hop

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
