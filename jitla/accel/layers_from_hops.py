"""Layers from hops: matches operators, checks that they fit, and prepares their operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jitla.accel.isa import SHIFT, AluOp, to_immediate
from jitla.accel.layer import Layer, Mode, Step, Window
from jitla.accel.matching import (
    Access,
    Axis,
    Fit,
    Intrinsic,
    Loops,
    Match,
    Nest,
    Places,
    Source,
    Splits,
    is_sum,
    keeps_integers,
    loops_of,
    matches,
    nest_of,
    regrouped,
    replaced,
    sources,
    starts,
)
from jitla.accel.spec import Memory, Spec
from jitla.classes import dataclass
from jitla.hops import Hop, Kind, const_value, topo, uses

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


_OPS = {"add": AluOp.ADD, "subtract": AluOp.ADD, "maximum": AluOp.MAX, "minimum": AluOp.MIN,
        "multiply": AluOp.MUL, "right_shift": AluOp.SHR, "left_shift": AluOp.SHR}
_SELECTING = frozenset({"maximum", "minimum"})  # what bytes and accumulators have the same result of
_VIEWS = frozenset({"reshape", "ravel", "transpose", "expand_dims", "squeeze"})


class Touch(NamedTuple):
    """A step on accumulators as a program has it: by operator, with a scalar or the elements of an array."""

    name: str
    scalar: Hop | None
    access: Access | None


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """What one layer does for a program: from the values it reads to `out`, that is `body` in all."""

    intrinsic: Intrinsic
    fit: Fit
    touches: tuple[Touch, ...]
    out: Hop
    at: Places  # where in `out` results are, by the axes of the fit
    body: tuple[Hop, ...]
    inputs: tuple[Hop, ...]
    stored: int
    terms: tuple[Access, ...]  # all that is read, but for what steps read
    longer: bool  # the program's accumulators have more bits: all values have to be shown to fit

    def reads(self) -> Iterator[tuple[Hop, Places]]:
        """Yield values that are read, and where."""
        for access in self.terms:
            yield access.hop, access.at
        for touch in self.touches:
            if touch.access is not None:
                yield touch.access.hop, touch.access.at

    @property
    def name(self) -> str:
        """The intrinsic and what follows it, for people."""
        return " ".join([self.intrinsic.name, *(t.name for t in self.touches)])


# ---------------------------------------------------------------------- finding units


def units(roots: Sequence[Hop], spec: Spec, intrinsics: Sequence[Intrinsic] = INTRINSICS) -> list[Unit]:
    """Return the units of a DAG, operands first; no hop is in two."""
    users = uses(roots)
    taken: set[Hop] = set()
    found = []
    order = topo(roots)
    inner = _inside_sums(order)
    for hop in order:
        if hop in taken or hop in inner or 0 in hop.meta.shape:
            continue
        unit = _unit(hop, users, frozenset(roots), spec, intrinsics)
        if unit is not None and not taken.intersection(unit.body):
            found.append(unit)
            taken.update(unit.body)
    return found


def _inside_sums(order: Sequence[Hop]) -> set[Hop]:
    """Return the terms of sums of products: the sum is looked at, not they."""
    sums: set[Hop] = set()
    inside: set[Hop] = set()
    for hop in order:
        if not is_sum(hop, hop.meta.shape) or not hop.meta.shape:
            continue
        arrays = _added(hop)
        if all(i.op.name in ("matmul", "dot") or i in sums for i in arrays) and len(arrays) + len(sums) > 0:
            sums.add(hop)
            inside.update(arrays)
    tops = sums - inside
    lone = {h for h in tops
            if not sums.intersection(h.inputs) and len(_added(h)) < 2}
    return inside - {i for h in lone for i in h.inputs}


def _added(hop: Hop) -> list[Hop]:
    """Return the operands of a sum but numbers, however often these are there."""
    return [i for i in hop.inputs if i.meta.shape and i.op.name != "full"]


def _unit(hop: Hop, users: Mapping[Hop, list[Hop]], roots: frozenset[Hop], spec: Spec,
          intrinsics: Sequence[Intrinsic]) -> Unit | None:
    wide = spec.element(Memory.ACC).dtype
    for pads in (True, False):  # zeros around values are made by loads, if they are where these make them
        nest = nest_of(hop, wide, pads)
        made = fit(nest, intrinsics) if nest is not None else None
        if made is not None:
            break
    if nest is None or made is None:
        return None
    body = _between(hop, {a.hop for t in nest.terms for a in t})
    terms = [h for h in body if h is not hop and h.op.name in ("matmul", "dot", "add")]
    if any(set(users[h]) - set(body) or h in roots for h in terms):
        return None  # a term is wanted by itself
    splits = Splits()
    touches, out, at, chain = _chain(hop, nest.out, users, roots, spec, splits)
    if splits.parts:
        nest = replaced(nest, splits)
        made = fit(nest, intrinsics)
        if made is None:
            return None
        touches = tuple(t if t.access is None else
                        t._replace(access=Access(t.access.hop, splits.places(t.access.at))) for t in touches)
        at = splits.places(at)
    touches = (*(Touch("add", h, None) for h in nest.scalars), *touches)
    stored = min(out.meta.dtype.itemsize, wide.itemsize)
    inside = {*body, *chain}
    reads = [a.hop for t in nest.terms for a in t]
    for touch in touches:
        reads += [touch.access.hop] if touch.access is not None else [touch.scalar] if touch.scalar else []
    inputs = tuple(dict.fromkeys(h for h in reads if h not in inside and h.op.name != "const"))
    longer = hop.meta.dtype.itemsize > wide.itemsize
    every = tuple(a for t in nest.terms for a in t)
    return Unit(made[0], made[1], touches, out, at, tuple(inside), inputs, stored, every, longer)


def _between(hop: Hop, ends: set[Hop]) -> list[Hop]:
    """Return `hop` and all below it, down to `ends`."""
    found: dict[Hop, None] = {}
    stack = [hop]
    while stack:
        one = stack.pop()
        if one in ends or one in found or one.op.kind is Kind.LEAF:
            continue
        found[one] = None
        stack += one.inputs
    return list(found)


def _chain(hop: Hop, at: Places, users: Mapping[Hop, list[Hop]], roots: frozenset[Hop], spec: Spec,
           splits: Splits) -> tuple[tuple[Touch, ...], Hop, Places, list[Hop]]:
    """Follow the only user of each value as far as the device has what it does."""
    touches: list[Touch] = []
    body: list[Hop] = []
    end = hop, at, 0
    bytes_only = hop.meta.dtype.itemsize < spec.element(Memory.ACC).dtype.itemsize
    while hop not in roots and len(set(users[hop])) == 1:
        user = users[hop][0]
        step = _touches(user, hop, splits.places(at), spec, splits)
        narrows = user.op.name == "cast" and not bytes_only and _narrows(user, spec)
        if step is not None and not (bytes_only and any(t.name not in _SELECTING for t in step)):
            touches += step
        elif user.op.name in _VIEWS:
            moved = _moved(user, at, splits)
            if moved is None:
                break
            at = moved
        elif not narrows:
            break
        hop = user
        body.append(user)
        if user.op.name not in _VIEWS:  # views at the end are the host's: they cost nothing there
            end = hop, at, len(body)
        if narrows:
            break
    hop, at, count = end
    return tuple(touches), hop, splits.places(at), body[:count]


def _narrows(user: Hop, spec: Spec) -> bool:
    to, of = user.meta.dtype, user.inputs[0].meta.dtype
    return not spec.is_float and to.kind == "i" and to.itemsize < of.itemsize


def _moved(user: Hop, at: Places, splits: Splits) -> Places | None:
    """Return the positions in the result of a view."""
    at = splits.places(at)
    if user.op.name == "transpose":
        return tuple(at[i] for i in user.attr("axes"))
    return regrouped(at, user.inputs[0].meta.shape, user.meta.shape, splits)


def _touches(user: Hop, hop: Hop, at: Places, spec: Spec, splits: Splits) -> list[Touch] | None:
    """Return what `user` does to accumulators, None if the device does not do that."""
    if user.meta.shape != hop.meta.shape or user.meta.dtype != hop.meta.dtype:
        return None
    name = user.op.name
    if name == "clip" and user.inputs[0] is hop:
        low, high = (_operand(i, at, user, splits) for i in user.inputs[1:])
        return [Touch("maximum", *low), Touch("minimum", *high)] if low and high else None
    if name not in _OPS or len(user.inputs) != 2 or user.inputs.count(hop) != 1:
        return None
    first = user.inputs[0] is hop
    if not first and name in ("subtract", "right_shift", "left_shift"):
        return None
    other = _operand(user.inputs[1 if first else 0], at, user, splits)
    if other is None or spec.is_float and name.endswith("shift"):
        return None
    if other[1] is not None and (name.endswith("shift") or name == "multiply" and spec.dialect == "strict"):
        return None
    return [Touch(name, *other)]


def _operand(hop: Hop, at: Places, user: Hop, splits: Splits) -> tuple[Hop | None, Access | None] | None:
    if hop.meta.shape == ():
        return hop, None
    own = at[len(at) - hop.meta.ndim:]
    here = tuple(own[i] if n > 1 else type(own[i])() for i, n in enumerate(hop.meta.shape))
    before = len(splits.parts)
    access = sources(hop, here, splits, keeps_integers)
    return None if len(splits.parts) != before else (None, access)


def operator_of(touch: Touch) -> AluOp:
    """Return the operation that a step takes."""
    return _OPS[touch.name]


Array = np.ndarray[Any, Any]


class Refused(Exception):
    """The device cannot do it for these values."""


class Ready(NamedTuple):
    """A layer with its steps, and its arrays."""

    layer: Layer
    arrays: dict[str, Array]


def ready(unit: Unit, values: Mapping[Hop, Any], spec: Spec, given: bool = False) -> Ready:
    """Return the layer for these values; raises `Refused`. With `given`, images come from another layer."""
    inp, wgt, acc = (spec.element(m).dtype for m in (Memory.INP, Memory.WGT, Memory.ACC))
    arrays = {name: source.of(values, inp if name == "images" else wgt)
              for name, source in unit.fit.sources.items() if not (given and name == "images")}
    steps: list[Step] = []
    for touch in unit.touches:
        steps += _steps_ready(unit, touch, values, spec, arrays, acc)
    if unit.longer:
        _check(unit, steps, arrays)
    layer = replace(unit.fit.layer, steps=(*unit.fit.layer.steps, *steps),
                    stored=1 if spec.is_float else unit.stored)
    return Ready(layer, arrays)


def _check(unit: Unit, steps: Sequence[Step], arrays: Mapping[str, Array]) -> None:
    """Raise `Refused` unless no accumulator can leave its range."""
    layer = unit.fit.layer
    most = layer.rows.taps * layer.columns.taps * 128
    most *= 128 * layer.channels if layer.mode == "product" else 1
    for step in (Step(AluOp.ADD), *steps):
        other = abs(int(step.number))
        if step.operand:
            other = int(np.abs(arrays[step.operand].astype(np.int64)).max(initial=0))
        if step.op is AluOp.SHR:
            amount = int(step.number)
            most = most + (1 << amount) - 1 >> amount if amount >= 0 else most << -amount
        else:
            most = {AluOp.ADD: most + other, AluOp.MUL: most * other}.get(step.op, max(most, other))
        if most >= 1 << 31:
            raise Refused("sums may have more than 32 bits")


def _steps_ready(unit: Unit, touch: Touch, values: Mapping[Hop, Any], spec: Spec, arrays: dict[str, Array],
           acc: np.dtype) -> Iterator[Step]:
    op = operator_of(touch)
    if touch.access is not None:
        yield _tensor(unit, touch, values, arrays, acc)
        return
    assert touch.scalar is not None
    number = const_value(touch.scalar) if touch.scalar.op.name == "const" else values[touch.scalar]
    number = float(number) if spec.is_float else int(number)
    if op is AluOp.SHR:
        if not 0 <= number <= 31:  # not what a shift in the other direction would give
            raise Refused(f"a shift by {number}")
        yield from _shift(int(number) if touch.name == "right_shift" else -int(number))
        return
    if touch.name == "subtract":
        number = -number
    if unit.longer and abs(number) >= 1 << 31:
        raise Refused("a number has more than 32 bits")
    if not spec.is_float:
        number = (int(number) + (1 << 31)) % (1 << 32) - (1 << 31)
    if op is AluOp.ADD and not number and not spec.is_float:
        return  # what sums begin with
    if op is AluOp.MUL and spec.dialect == "strict" or to_immediate(spec, number) is not None:
        yield Step(op, number)
        return
    name = f"number{len(arrays)}"
    arrays[name] = np.full((unit.fit.layer.groups, unit.fit.layer.filters), number, acc)
    yield Step(op, operand=name, form="channel")


def _shift(amount: int) -> Iterator[Step]:
    """Cut a shift into ones that every implementation does."""
    sign = 1 if amount > 0 else -1
    while amount:
        part = sign * min(abs(amount), SHIFT)
        yield Step(AluOp.SHR, part)
        amount -= part


def _tensor(unit: Unit, touch: Touch, values: Mapping[Hop, Any], arrays: dict[str, Array],
            acc: np.dtype) -> Step:
    access = touch.access
    assert access is not None
    value = values[access.hop]
    group, _, _, _, filters = unit.fit.dimensions
    layer = unit.fit.layer
    per_filter = access.axes() <= {*group, *filters}
    axes = (*group, *filters) if per_filter else unit.fit.axes
    shape = (layer.groups, layer.filters) if per_filter else layer.output_shape
    array = access.view(value, axes).reshape(shape)
    if unit.longer and (array.astype(acc) != array).any():
        raise Refused("numbers have more than 32 bits")
    array = array.astype(acc)
    if touch.name == "subtract":
        with np.errstate(over="ignore"):
            array = -array
    name = f"operand{len(arrays)}"
    arrays[name] = array
    return Step(operator_of(touch), operand=name, form="channel" if per_filter else "full")


def placed(unit: Unit, results: Array, out: Array) -> None:
    """Write the results of a layer where the program wants them."""
    axes = unit.fit.axes
    begin = out[tuple([slice(p.start, p.start + 1) for p in unit.at])]
    steps = [sum(dict(p.by).get(a, 0) * s for p, s in zip(unit.at, out.strides, strict=True)) for a in axes]
    target = as_strided(begin, [a.extent for a in axes], steps)
    target[...] = results.reshape(target.shape)
