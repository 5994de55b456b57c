"""Layers from matches: convolutions, products, poolings; the intrinsics that every device has.

Knows: which loops are windows, images, channels, filters. Must not know: streams, tiles.
Receives matches of nests; returns fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import gcd, prod
from typing import Any

import numpy as np

from jitla.accel.access import Access, Axis
from jitla.accel.intrinsic import Fit, Intrinsic, Loops, Match, Source, loops_of, matches, starts
from jitla.accel.layer import Layer, Mode, Window
from jitla.accel.nest import Nest
from jitla.classes import dataclass
from jitla.hops import Kind

LANES, MORE = 16, 1.5  # channels of a block on most machines, and times more lanes that images may take
PAD = 15  # zeros that a load makes on each side


def _around(span: int, step: int, start: int, size: int) -> tuple[int, int] | None:
    """Return how many of `span` pixels from `start` on lie before and behind `size`; None: too many."""
    before, after = max(-start, 0), max(start + (span - 1) * step - size + 1, 0)
    if not before and not after:
        return 0, 0
    return (before, after) if step == 1 and max(before, after) <= PAD and before + after < span else None


def _is_inside(access: Access, windows: Iterable[int]) -> bool:
    """Tell whether nothing is read before the beginning or behind the end, but by windows."""
    return all(i in windows or p.start >= 0 and p.last < n
               for i, (p, n) in enumerate(zip(access.at, access.hop.meta.shape, strict=True)))


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
            around = _around(size, step, place.start, access.hop.meta.shape[at])
            if around is not None:
                window = Window(size - sum(around), tap.extent, stride, dilation, *around)
                found.append((row, tap, window, at))
    return _Windows(tuple(found[:2]))


def _whole(access: Access, inner: Sequence[Axis]) -> _Windows:
    """Return windows as large as the image, where all pixels are multiplied, channels by themselves."""
    found = []
    for at, place in enumerate(access.at):
        if len(place.by) == 1 and place.by[0][0] in inner and place.by[0][1] > 0 and \
                all(place.by[0][0] not in dict(p.by) for i, p in enumerate(access.at) if i != at):
            axis = place.by[0][0]
            found.append((None, axis, Window(axis.extent, axis.extent), at))
    if len(found) not in (2, 3) or len(found) != len(inner):
        return _Windows(())
    channels = found[-1][1].extent
    whole = -(-channels // LANES) * LANES <= MORE * channels
    return _Windows(tuple(found[:-1]) if whole else ())


def _is_thin(access: Access, taps: int, channels: int) -> bool:
    """Tell whether windows of values that the host has are better written out: channels fill few lanes."""
    apart, together = taps * -(-channels // LANES), -(-taps * channels // LANES)
    return access.hop.op.kind is Kind.LEAF and apart > MORE * together


def _pixels(access: Access, seen: _Windows, groups: Sequence[Axis], rows: Sequence[Axis],
            inner: Sequence[Axis]) -> tuple[tuple[Loops, ...], tuple[int, ...]]:
    """Return the dimensions of images, and their sizes."""
    windows = seen.both()

    def line(window: Any) -> Loops:
        row, tap, size, at = window
        if row is None:
            return () if tap is None else loops_of(access, (tap,))
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
    if not all(_is_inside(w, ()) for w in weights):
        return None
    if len(pixels) > 1:
        return _sum_layer(match, pixels, weights)
    seen = _windows(pixels[0], match.rows, inner)
    if _is_thin(pixels[0], prod(w[2].taps for w in seen.found),
                prod(a.extent for a in inner if all(a is not w[1] for w in seen.found))) and \
            _is_inside(pixels[0], ()):
        seen = _Windows(())
    seen = seen if seen.found else _whole(pixels[0], inner)
    if not _is_inside(pixels[0], [w[3] for w in seen.found]):
        return None
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
    if grid is not None and _is_thin(pixels[0], len(pixels), width) and \
            all(_is_inside(p, ()) for p in pixels):
        grid = None
    if grid is None and not all(_is_inside(p, ()) for p in pixels):
        return None
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


def _begins(access: Access) -> tuple[int, ...]:
    return tuple([p.start for p in access.at])


def _grid(pixels: Sequence[Access], rows: Sequence[Axis]) -> Any:
    """Return windows, the first access, and the terms tap by tap, if starts are those of all taps."""
    first = min(pixels, key=_begins)
    if any(p.hop is not first.hop for p in pixels):
        return None
    moves = [tuple(b - a for a, b in zip(_begins(first), _begins(p), strict=True)) for p in pixels]
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
        around = _around(size, step, first.at[i].start, first.hop.meta.shape[i])
        if around is None:
            return None
        window = Window(size - sum(around), len(steps), stride // step, each // step, *around)
        windows.append((axis, None, window, (i, step), each))
    if not _is_inside(first, along):
        return None
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
        if len(rest) > 2 - len(seen.found) or not inner or \
                not _is_inside(access, [w[3] for w in seen.found]):
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


EXCHANGED = 4  # times fewer steps for which operands take each other's role


def _steps(layer: Layer) -> int:
    """Return how many products of blocks a layer takes, for blocks as most machines have them."""
    places = prod(layer.output_shape[:4]) * layer.rows.taps * layer.columns.taps
    return places * -(-layer.channels // 16) * -(-layer.filters // 16)
