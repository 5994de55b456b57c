"""What the device computes in one go, declared: behaviour as loops over a block, and a way to layers.

Knows: how declared loops are found in those of a program. Must not know: streams, tiles.
Receives nests; returns fits: a layer, and where its arrays come from and its results go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jitla.accel.layer import Layer, Mode, Window
from jitla.accel.nest import Access, Axis, Nest
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
    """Return where reading begins, by dimension."""
    return tuple([p.start for p in access.at])


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


# ---------------------------------------------------------------------- from matches to layers


@dataclass(frozen=True, slots=True)
class _Windows:
    """Which dimensions of pixels are windows: their row axis, tap axis, and the window."""

    found: tuple[tuple[Axis | None, Axis | None, Window, int], ...]

    def both(self) -> tuple[Any, Any]:
        """Return rows and columns; what is not there is one pixel."""
        none = (None, None, Window(1), -1)
        return ((none, none), (none, *self.found), self.found)[len(self.found)]  # type: ignore[return-value]


def _windows(access: Access, kept: Sequence[Axis], inner: Sequence[Axis]) -> _Windows:
    """Return the dimensions, two at most, along which one axis of results and one that is reduced move."""
    found = []
    for at, place in enumerate(access.at):
        rows = [(a, s) for a, s in place.by if a in kept]
        taps = [(a, s) for a, s in place.by if a in inner]
        if len(rows) != 1 or len(taps) != 1 or len(place.by) != 2:
            continue
        (row, stride), (tap, dilation) = rows[0], taps[0]
        alone = all(a not in dict(p.by) for i, p in enumerate(access.at) if i != at for a in (row, tap))
        if alone and stride > 0 and dilation > 0:
            step = gcd(stride, dilation)
            stride, dilation = stride // step, dilation // step
            size = (row.extent - 1) * stride + (tap.extent - 1) * dilation + 1
            found.append((row, tap, Window(size, tap.extent, stride, dilation), at))
    return _Windows(tuple(found[:2]))


def _pixels(access: Access, seen: _Windows, groups: Sequence[Axis], rows: Sequence[Axis],
            inner: Sequence[Axis]) -> tuple[tuple[Loops, ...], tuple[int, ...]]:
    """Return the dimensions of images, and their sizes."""
    windows = seen.both()

    def line(window: Any) -> Loops:
        row, tap, size, at = window
        if row is None:
            return ()
        step = gcd(dict(access.at[at].by)[row], dict(access.at[at].by)[tap])
        by = tuple([step if i == at else 0 for i in range(len(access.at))])
        return ((size.size, by),)

    dimensions = (loops_of(access, groups), loops_of(access, rows), line(windows[0]), line(windows[1]),
                  loops_of(access, inner))
    return dimensions, tuple([prod(n for n, _ in d) for d in dimensions])


def product_layer(match: Match) -> Fit | None:
    """Return the layer of a product, a sum of products, or a convolution."""
    pixels, weights = match.accesses(0), match.accesses(1)
    filters, inner = match.axes["o"], match.axes["i"]
    seen = _windows(pixels[0], match.rows, inner)
    if len(pixels) > 1:
        return _sum_layer(match, pixels, weights)
    windows = seen.both()
    used = {a for w in windows for a in w[:2] if a is not None}
    rows = [a for a in match.rows if a not in used]
    channels = [a for a in inner if a not in used]
    dimensions, shape = _pixels(pixels[0], seen, match.groups, rows, channels)
    taps = [() if w[1] is None else (w[1],) for w in windows]
    theirs = (match.groups, *taps, channels, filters)
    loops = tuple(loops_of(weights[0], d) for d in theirs)
    sizes = tuple([prod(a.extent for a in d) for d in theirs])
    layer = Layer(shape[1], shape[4], sizes[4], windows[0][2], windows[1][2], shape[0])
    out = [() if w[0] is None else (w[0],) for w in windows]
    return Fit(layer, {
        "images": Source(((pixels[0].hop, starts(pixels[0])),), dimensions, shape),
        "weights": Source(((weights[0].hop, starts(weights[0])),), loops, sizes),
    }, (match.groups, tuple(rows), *out, filters), pixels[0])


def _sum_layer(match: Match, pixels: Sequence[Access], weights: Sequence[Access]) -> Fit | None:
    """Return the layer of a sum of products: terms are taps of a window if they read like these."""
    filters, inner = match.axes["o"], match.axes["i"]
    theirs = (match.groups, (), (), inner, filters)
    loops = tuple(loops_of(weights[0], d) for d in theirs)
    if any(loops_of(p, match.rows) != loops_of(pixels[0], match.rows) or
           loops_of(p, inner) != loops_of(pixels[0], inner) for p in pixels) or \
            any(tuple(loops_of(w, d) for d in theirs) != loops for w in weights):
        return None
    parts = tuple((w.hop, starts(w)) for w in weights)
    width, many = prod(a.extent for a in inner), prod(a.extent for a in filters)
    groups = prod(a.extent for a in match.groups)
    grid = _grid(pixels, match.rows)
    if grid is not None:
        windows, first, order = grid
        taps = (windows[0][2].taps, windows[1][2].taps)
        used = {w[0] for w in windows}
        rows = tuple(a for a in match.rows if a not in used)
        dimensions = (
            loops_of(first, match.groups), loops_of(first, rows),
            *(((w[2].size, tuple([w[3][1] if i == w[3][0] else 0 for i in range(len(first.at))])),)
              if w[0] is not None else () for w in windows), loops_of(first, inner))
        shape = tuple([prod(n for n, _ in d) for d in dimensions])
        layer = Layer(shape[1], width, many, windows[0][2], windows[1][2], groups)
        return Fit(layer, {
            "images": Source(((first.hop, starts(first)),), dimensions, shape),
            "weights": Source(tuple(parts[i] for i in order), loops, (groups, *taps, width, many), 1),
        }, (match.groups, rows, *(() if w[0] is None else (w[0],) for w in windows), filters), first)
    dimensions = (loops_of(pixels[0], match.groups), loops_of(pixels[0], match.rows), (), (),
                  loops_of(pixels[0], inner))
    images = prod(a.extent for a in match.rows)
    layer = Layer(images, width * len(parts), many, groups=groups)
    return Fit(layer, {
        "images": Source(tuple((p.hop, starts(p)) for p in pixels), dimensions,
                         (groups, images, 1, 1, width * len(parts)), 4),
        "weights": Source(parts, loops, (groups, 1, 1, width * len(parts), many), 3),
    }, (match.groups, match.rows, (), (), filters), pixels[0])


def _grid(pixels: Sequence[Access], rows: Sequence[Axis]) -> Any:
    """Return windows, the first access, and the terms tap by tap, if starts are those of all taps."""
    first = min(pixels, key=starts)
    if any(p.hop is not first.hop for p in pixels):
        return None
    moves = [tuple(b - a for a, b in zip(starts(first), starts(p), strict=True)) for p in pixels]
    along = [i for i in range(len(first.at)) if any(m[i] for m in moves)]
    if not 0 < len(along) <= 2 or len(set(moves)) < len(moves):
        return None
    windows: list[Any] = []
    for i in along:
        row = [(a, s) for a, s in first.at[i].by if a in rows]
        steps = sorted({m[i] for m in moves})
        if len(row) != 1 or len(first.at[i].by) != 1 or steps[0] < 0 or \
                any(a in dict(p.by) for k, p in enumerate(first.at) if k != i for a, _ in row):
            return None
        (axis, stride), each = row[0], steps[1]
        if stride < 0 or steps != list(range(0, each * len(steps), each)):
            return None
        step = gcd(stride, each)
        size = (axis.extent - 1) * (stride // step) + (len(steps) - 1) * (each // step) + 1
        windows.append((axis, None, Window(size, len(steps), stride // step, each // step), (i, step), each))
    wanted = {}
    for i, move in enumerate(moves):
        wanted[tuple(move[w[3][0]] // w[4] for w in windows)] = i
    counts = [w[2].taps for w in windows]
    if len(wanted) != prod(counts):
        return None
    order = [wanted[tuple(at)] for at in np.ndindex(*counts)]
    both = [(None, None, Window(1), (0, 0), 0)] * (2 - len(windows)) + windows
    return both, first, order


def pooling_layer(mode: Mode) -> Callable[[Match], Fit | None]:
    """Return what makes the layer that joins a window of every channel."""

    def lower(match: Match) -> Fit | None:
        access = match.accesses(0)[0]
        kept, inner = match.axes["o"], match.axes["inner"]
        seen = _windows(access, kept, inner)
        windows = list(seen.both())
        used = {a for w in windows for a in w[:2] if a is not None}
        rest = [a for a in inner if a not in used]
        if len(rest) > 2 - len(seen.found) or not inner:
            return None
        for axis in rest:  # a window with all there is
            at = windows.index((None, None, Window(1), -1))
            windows[at] = (None, axis, Window(axis.extent, axis.extent), -1)
        free = [a for a in kept if a not in used]
        channels = free[-1:]
        rows = free[:-1]

        def line(window: Any) -> Loops:
            row, tap, size, at = window
            if row is None:
                return () if tap is None else loops_of(access, (tap,))
            step = gcd(dict(access.at[at].by)[row], dict(access.at[at].by)[tap])
            return ((size.size, tuple([step if i == at else 0 for i in range(len(access.at))])),)

        dimensions = ((), loops_of(access, rows), line(windows[0]), line(windows[1]),
                      loops_of(access, channels))
        shape = tuple([prod(n for n, _ in d) for d in dimensions])
        layer = Layer(shape[1], shape[4], shape[4], windows[0][2], windows[1][2], mode=mode)
        out = [() if w[0] is None else (w[0],) for w in windows]
        return Fit(layer, {"images": Source(((access.hop, starts(access)),), dimensions, shape)},
                   ((), tuple(rows), *out, tuple(channels)), access)

    return lower


INTRINSICS: tuple[Intrinsic, ...] = (
    Intrinsic("gemm", "out[o] += images[i] * weights[i, o]", product_layer,
              "a row of pixels times a block of weights, added to accumulators"),
    Intrinsic("pool-max", "out[o] max= images[o]", pooling_layer("max"), "the larger of two, lane by lane"),
    Intrinsic("pool-min", "out[o] min= images[o]", pooling_layer("min"), "the smaller of two, lane by lane"),
    Intrinsic("pool-sum", "out[o] += images[o]", pooling_layer("sum"), "sums over windows, lane by lane"),
)


def fit(nest: Nest, intrinsics: Sequence[Intrinsic] = INTRINSICS) -> tuple[Intrinsic, Fit] | None:
    """Return the first intrinsic that a nest is made of, in the roles that leave fewest lanes unused."""
    for intrinsic in intrinsics:
        found = [f for m in matches(intrinsic, nest) if (f := intrinsic.lower(m)) is not None]
        if found:
            # results follow each other best in the order in which programs have them
            return intrinsic, min(found, key=lambda f: _steps(f.layer) * (1 if f is found[0] else EXCHANGED))
    return None


EXCHANGED = 2  # times fewer steps for which operands take each other's role


def _steps(layer: Layer) -> int:
    """Return how many products of blocks a layer takes, for blocks as most machines have them."""
    places = prod(layer.output_shape[:4]) * layer.rows.taps * layer.columns.taps
    return places * -(-layer.channels // 16) * -(-layer.filters // 16)
