"""Layers from hops: matches operators with intrinsics and epilogues, and prepares operands at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jitla.accel.isa import MAX_SHIFT, AluOp, to_immediate
from jitla.accel.layer import EpilogueOp, Layer, Mode, SlidingWindow
from jitla.accel.matching import (
    AffineAccess,
    AffineIndices,
    Axis,
    AxisSplits,
    LayerFit,
    LoopNest,
    Loops,
    Match,
    OperandSource,
    TensorIntrinsic,
    find_matches,
    is_addition,
    is_lossless_cast,
    loop_nest_of,
    loops_of,
    reshape_indices,
    resolve_access,
    start_indices,
    with_splits,
)
from jitla.accel.spec import AccelSpec, Memory
from jitla.classes import dataclass
from jitla.hops import Hop, Kind, const_value, topo, uses

TYPICAL_BLOCK, MAX_LANE_OVERHEAD = 16, 1.5  # typical block size, and the acceptable overhead of padded lanes
MAX_PAD = 15  # of a load, on each side


def _padding(span: int, step: int, start: int, size: int) -> tuple[int, int] | None:
    """Return the padding before and after `span` pixels from `start`; None if loads cannot make it."""
    before, after = max(-start, 0), max(start + (span - 1) * step - size + 1, 0)
    if not before and not after:
        return 0, 0
    return (before, after) if step == 1 and max(before, after) <= MAX_PAD and before + after < span else None


def _is_inside(access: AffineAccess, windows: Iterable[int]) -> bool:
    """Return whether all indices except those of windows are in bounds."""
    return all(i in windows or p.start >= 0 and p.last < n
               for i, (p, n) in enumerate(zip(access.at, access.hop.meta.shape, strict=True)))


@dataclass(frozen=True, slots=True)
class _WindowAxes:
    """The dimensions of images with windows: row axis, tap axis, window and dimension of each."""

    windows: tuple[tuple[Axis | None, Axis | None, SlidingWindow, int], ...]

    def rows_and_columns(self) -> tuple[Any, Any]:
        """Return the windows of rows and columns; a missing one has a single pixel."""
        none = (None, None, SlidingWindow(1), -1)
        return ((none, none), (none, *self.windows),
                self.windows)[len(self.windows)]  # type: ignore[return-value]


def _find_windows(access: AffineAccess, result_axes: Sequence[Axis],
                  reduction_axes: Sequence[Axis]) -> _WindowAxes:
    """Return up to two dimensions whose index is a sum of one result axis and one reduction axis."""
    windows = []
    for dimension, index in enumerate(access.at):
        row_steps = [(a, s) for a, s in index.by if a in result_axes]
        tap_steps = [(a, s) for a, s in index.by if a in reduction_axes]
        if len(row_steps) != 1 or len(tap_steps) != 1 or len(index.by) != 2:
            continue
        (row, stride), (tap, dilation) = row_steps[0], tap_steps[0]
        is_separate = all(a not in dict(p.by) for i, p in enumerate(access.at) if i != dimension
                          for a in (row, tap))
        if is_separate and stride > 0 and dilation > 0:
            step = gcd(stride, dilation)
            stride, dilation = stride // step, dilation // step
            size = (row.extent - 1) * stride + (tap.extent - 1) * dilation + 1
            padding = _padding(size, step, index.start, access.hop.meta.shape[dimension])
            if padding is not None:
                window = SlidingWindow(size - sum(padding), tap.extent, stride, dilation, *padding)
                windows.append((row, tap, window, dimension))
    return _WindowAxes(tuple(windows[:2]))


def _whole_image_windows(access: AffineAccess, reduction_axes: Sequence[Axis]) -> _WindowAxes:
    """Return windows as large as the image if a product reduces over all pixels, to avoid repacking."""
    windows = []
    for dimension, index in enumerate(access.at):
        if len(index.by) == 1 and index.by[0][0] in reduction_axes and index.by[0][1] > 0 and \
                all(index.by[0][0] not in dict(p.by) for i, p in enumerate(access.at) if i != dimension):
            axis = index.by[0][0]
            windows.append((None, axis, SlidingWindow(axis.extent, axis.extent), dimension))
    if len(windows) not in (2, 3) or len(windows) != len(reduction_axes):
        return _WindowAxes(())
    channels = windows[-1][1].extent
    is_efficient = -(-channels // TYPICAL_BLOCK) * TYPICAL_BLOCK <= MAX_LANE_OVERHEAD * channels
    return _WindowAxes(tuple(windows[:-1]) if is_efficient else ())


def _prefers_im2col(access: AffineAccess, taps: int, channels: int) -> bool:
    """Return whether windows of a host array are better unfolded (im2col): channels fill few lanes."""
    separate_blocks = taps * -(-channels // TYPICAL_BLOCK)
    unfolded_blocks = -(-taps * channels // TYPICAL_BLOCK)
    return access.hop.op.kind is Kind.LEAF and separate_blocks > MAX_LANE_OVERHEAD * unfolded_blocks


def _image_loops(access: AffineAccess, windows_found: _WindowAxes, groups: Sequence[Axis],
                 rows: Sequence[Axis],
            inner: Sequence[Axis]) -> tuple[tuple[Loops, ...], tuple[int, ...]]:
    """Return the loops of each dimension of the images, and their sizes."""
    windows = windows_found.rows_and_columns()

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


def lower_product(match: Match) -> LayerFit | None:
    """Lower a matched product, sum of products or convolution to a layer."""
    pixels, weights = match.accesses(0), match.accesses(1)
    filters, reduction_axes = match.axes["o"], match.axes["i"]
    if not all(_is_inside(w, ()) for w in weights):
        return None
    if len(pixels) > 1:
        return _lower_sum_of_products(match, pixels, weights)
    window_axes = _find_windows(pixels[0], match.rows, reduction_axes)
    if _prefers_im2col(pixels[0], prod(w[2].taps for w in window_axes.windows),
                       prod(a.extent for a in reduction_axes
                            if all(a is not w[1] for w in window_axes.windows))) and \
            _is_inside(pixels[0], ()):
        window_axes = _WindowAxes(())
    window_axes = window_axes if window_axes.windows else _whole_image_windows(pixels[0], reduction_axes)
    if not _is_inside(pixels[0], [w[3] for w in window_axes.windows]):
        return None
    windows = window_axes.rows_and_columns()
    used = {a for w in windows for a in w[:2] if a is not None}
    rows = [a for a in match.rows if a not in used]
    channels = [a for a in reduction_axes if a not in used]
    dimensions, shape = _image_loops(pixels[0], window_axes, match.groups, rows, channels)
    taps = [() if w[1] is None else (w[1],) for w in windows]
    weight_axes = (match.groups, *taps, channels, filters)
    loops = tuple(loops_of(weights[0], d) for d in weight_axes)
    sizes = tuple([prod(a.extent for a in d) for d in weight_axes])
    layer = Layer(shape[1], shape[4], sizes[4], windows[0][2], windows[1][2], shape[0])
    out = [() if w[0] is None else (w[0],) for w in windows]
    return LayerFit(layer, {
        "images": OperandSource(((pixels[0].hop, start_indices(pixels[0])),), dimensions, shape),
        "weights": OperandSource(((weights[0].hop, start_indices(weights[0])),), loops, sizes),
    }, (match.groups, tuple(rows), *out, filters), pixels[0])


def _lower_sum_of_products(
    match: Match, pixels: Sequence[AffineAccess], weights: Sequence[AffineAccess]
) -> LayerFit | None:
    """Lower a sum of products; terms become taps of a window if their accesses form a regular grid."""
    filters, reduction_axes = match.axes["o"], match.axes["i"]
    weight_axes = (match.groups, (), (), reduction_axes, filters)
    loops = tuple(loops_of(weights[0], d) for d in weight_axes)
    if any(loops_of(p, match.rows) != loops_of(pixels[0], match.rows) or
           loops_of(p, reduction_axes) != loops_of(pixels[0], reduction_axes) for p in pixels) or \
            any(tuple(loops_of(w, d) for d in weight_axes) != loops for w in weights):
        return None
    parts = tuple((w.hop, start_indices(w)) for w in weights)
    width, filter_count = prod(a.extent for a in reduction_axes), prod(a.extent for a in filters)
    groups = prod(a.extent for a in match.groups)
    grid = _tap_grid(pixels, match.rows)
    if grid is not None and _prefers_im2col(pixels[0], len(pixels), width) and \
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
              if w[0] is not None else () for w in windows), loops_of(first, reduction_axes))
        shape = tuple([prod(n for n, _ in d) for d in dimensions])
        layer = Layer(shape[1], width, filter_count, windows[0][2], windows[1][2], groups)
        return LayerFit(layer, {
            "images": OperandSource(((first.hop, start_indices(first)),), dimensions, shape),
            "weights": OperandSource(
                tuple(parts[i] for i in order), loops, (groups, *taps, width, filter_count), 1),
        }, (match.groups, rows, *(() if w[0] is None else (w[0],) for w in windows), filters), first)
    dimensions = (loops_of(pixels[0], match.groups), loops_of(pixels[0], match.rows), (), (),
                  loops_of(pixels[0], reduction_axes))
    images = prod(a.extent for a in match.rows)
    layer = Layer(images, width * len(parts), filter_count, groups=groups)
    return LayerFit(layer, {
        "images": OperandSource(tuple((p.hop, start_indices(p)) for p in pixels), dimensions,
                                (groups, images, 1, 1, width * len(parts)), 4),
        "weights": OperandSource(parts, loops, (groups, 1, 1, width * len(parts), filter_count), 3),
    }, (match.groups, match.rows, (), (), filters), pixels[0])


def _starts(access: AffineAccess) -> tuple[int, ...]:
    return tuple([p.start for p in access.at])


def _tap_grid(pixels: Sequence[AffineAccess], rows: Sequence[Axis]) -> Any:
    """Return windows, first access and order of terms if the starts of accesses form a grid of taps."""
    first = min(pixels, key=_starts)
    if any(p.hop is not first.hop for p in pixels):
        return None
    moves = [tuple(b - a for a, b in zip(_starts(first), _starts(p), strict=True)) for p in pixels]
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
        (axis, stride), tap_step = row[0], steps[1]
        if stride < 0 or steps != list(range(0, tap_step * len(steps), tap_step)):
            return None
        step = gcd(stride, tap_step)
        size = (axis.extent - 1) * (stride // step) + (len(steps) - 1) * (tap_step // step) + 1
        padding = _padding(size, step, first.at[i].start, first.hop.meta.shape[i])
        if padding is None:
            return None
        window = SlidingWindow(size - sum(padding), len(steps), stride // step, tap_step // step, *padding)
        windows.append((axis, None, window, (i, step), tap_step))
    if not _is_inside(first, along):
        return None
    terms_by_tap = {}
    for i, move in enumerate(moves):
        terms_by_tap[tuple(move[w[3][0]] // w[4] for w in windows)] = i
    counts = [w[2].taps for w in windows]
    if len(terms_by_tap) != prod(counts):
        return None
    order = [terms_by_tap[tuple(at)] for at in np.ndindex(*counts)]
    padded_windows = [(None, None, SlidingWindow(1), (0, 0), 0)] * (2 - len(windows)) + windows
    return padded_windows, first, order


def pooling_lowering(mode: Mode) -> Callable[[Match], LayerFit | None]:
    """Return the lowering of a pooling with reduction `mode`."""

    def lower(match: Match) -> LayerFit | None:
        access = match.accesses(0)[0]
        kept, inner = match.axes["o"], match.axes["inner"]
        seen = _find_windows(access, kept, inner)
        windows = list(seen.rows_and_columns())
        used = {a for w in windows for a in w[:2] if a is not None}
        rest = [a for a in inner if a not in used]
        if len(rest) > 2 - len(seen.windows) or not inner or \
                not _is_inside(access, [w[3] for w in seen.windows]):
            return None
        for axis in rest:  # a window over the whole axis
            at = windows.index((None, None, SlidingWindow(1), -1))
            windows[at] = (None, axis, SlidingWindow(axis.extent, axis.extent), -1)
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
        images = OperandSource(((access.hop, start_indices(access)),), dimensions, shape)
        return LayerFit(layer, {"images": images},
                        ((), tuple(rows), *out, tuple(channels)), access)

    return lower


INTRINSICS: tuple[TensorIntrinsic, ...] = (
    TensorIntrinsic("gemm", "out[o] += images[i] * weights[i, o]", lower_product,
                    "a row of pixels times a block of weights, added to accumulators"),
    TensorIntrinsic("pool-max", "out[o] max= images[o]", pooling_lowering("max"),
                    "maximum of two, lane by lane"),
    TensorIntrinsic("pool-min", "out[o] min= images[o]", pooling_lowering("min"),
                    "minimum of two, lane by lane"),
    TensorIntrinsic("pool-sum", "out[o] += images[o]", pooling_lowering("sum"),
                    "sums over windows, lane by lane"),
)


def fit_intrinsic(
    nest: LoopNest, intrinsics: Sequence[TensorIntrinsic] = INTRINSICS
) -> tuple[TensorIntrinsic, LayerFit] | None:
    """Return the first intrinsic that matches a nest, in the operand order with fewest block products."""
    for intrinsic in intrinsics:
        fits = [f for m in find_matches(intrinsic, nest) if (f := intrinsic.lower(m)) is not None]
        if fits:
            # the program's operand order lets layers follow each other without repacking
            return intrinsic, min(
                fits, key=lambda f: _block_products(f.layer) * (1 if f is fits[0] else SWAP_PENALTY))
    return None


SWAP_PENALTY = 4  # the ratio of block products above which operands are swapped


def _block_products(layer: Layer) -> int:
    """Return the number of block products of a layer for typical blocks."""
    places = prod(layer.output_shape[:4]) * layer.rows.taps * layer.columns.taps
    return places * -(-layer.channels // 16) * -(-layer.filters // 16)


_ALU_OPS = {"add": AluOp.ADD, "subtract": AluOp.ADD, "maximum": AluOp.MAX, "minimum": AluOp.MIN,
        "multiply": AluOp.MUL, "right_shift": AluOp.SHR, "left_shift": AluOp.SHR}
_SELECTIONS = frozenset({"maximum", "minimum"})  # same result on bytes and on accumulators
_VIEWS = frozenset({"reshape", "ravel", "transpose", "expand_dims", "squeeze"})


class EpilogueStep(NamedTuple):
    """An epilogue step of the program: an operator with a scalar or an array access."""

    name: str
    scalar: Hop | None
    access: AffineAccess | None


@dataclass(frozen=True, slots=True, eq=False)
class MatchedLayer:
    """A part of a DAG, the hops `body` with the result `out`, matched to one layer."""

    intrinsic: TensorIntrinsic
    fit: LayerFit
    epilogue: tuple[EpilogueStep, ...]
    out: Hop
    at: AffineIndices  # the indices of results in `out`, by axes of the fit
    body: tuple[Hop, ...]
    inputs: tuple[Hop, ...]
    stored: int
    terms: tuple[AffineAccess, ...]  # the accesses of the nest, without those of the epilogue
    needs_range_check: bool  # the program accumulates in wider integers: ranges are checked at run time

    def reads(self) -> Iterator[tuple[Hop, AffineIndices]]:
        """Yield the values that are read, with their indices."""
        for access in self.terms:
            yield access.hop, access.at
        for op_step in self.epilogue:
            if op_step.access is not None:
                yield op_step.access.hop, op_step.access.at

    @property
    def name(self) -> str:
        """The names of the intrinsic and of the epilogue, for messages."""
        return " ".join([self.intrinsic.name, *(t.name for t in self.epilogue)])


# ---------------------------------------------------------------------- finding units


def match_layers(
    roots: Sequence[Hop], spec: AccelSpec, intrinsics: Sequence[TensorIntrinsic] = INTRINSICS
) -> list[MatchedLayer]:
    """Return disjoint matched layers of a DAG in topological order."""
    users = uses(roots)
    covered: set[Hop] = set()
    layers = []
    order = topo(roots)
    sum_terms = _terms_of_sums(order)
    for hop in order:
        if hop in covered or hop in sum_terms or 0 in hop.meta.shape:
            continue
        unit = _match_layer(hop, users, frozenset(roots), spec, intrinsics)
        if unit is not None and not covered.intersection(unit.body):
            layers.append(unit)
            covered.update(unit.body)
    return layers


def _terms_of_sums(order: Sequence[Hop]) -> set[Hop]:
    """Return the terms of sums of products, which are matched as part of the sum."""
    sums: set[Hop] = set()
    inside: set[Hop] = set()
    for hop in order:
        if not is_addition(hop, hop.meta.shape) or not hop.meta.shape:
            continue
        arrays = _array_addends(hop)
        if all(i.op.name in ("matmul", "dot") or i in sums for i in arrays) and len(arrays) + len(sums) > 0:
            sums.add(hop)
            inside.update(arrays)
    tops = sums - inside
    single_products = {h for h in tops
            if not sums.intersection(h.inputs) and len(_array_addends(h)) < 2}
    return inside - {i for h in single_products for i in h.inputs}


def _array_addends(hop: Hop) -> list[Hop]:
    """Return the array operands of a sum."""
    return [i for i in hop.inputs if i.meta.shape and i.op.name != "full"]


def _match_layer(hop: Hop, users: Mapping[Hop, list[Hop]], roots: frozenset[Hop], spec: AccelSpec,
                 intrinsics: Sequence[TensorIntrinsic]) -> MatchedLayer | None:
    wide = spec.element(Memory.ACC).dtype
    for pads in (True, False):  # zero padding is left to loads if they can make it
        nest = loop_nest_of(hop, wide, pads)
        matched = fit_intrinsic(nest, intrinsics) if nest is not None else None
        if matched is not None:
            break
    if nest is None or matched is None:
        return None
    body = _hops_between(hop, {a.hop for t in nest.terms for a in t})
    terms = [h for h in body if h is not hop and h.op.name in ("matmul", "dot", "add")]
    if any(set(users[h]) - set(body) or h in roots for h in terms):
        return None  # a term has another user
    splits = AxisSplits()
    epilogue, out, at, chain = _match_epilogue(hop, nest.out, users, roots, spec, splits)
    if splits.parts:
        nest = with_splits(nest, splits)
        matched = fit_intrinsic(nest, intrinsics)
        if matched is None:
            return None
        epilogue = tuple(t if t.access is None else
                         t._replace(access=AffineAccess(t.access.hop, splits.indices(t.access.at)))
                         for t in epilogue)
        at = splits.indices(at)
    epilogue = (*(EpilogueStep("add", h, None) for h in nest.scalars), *epilogue)
    stored = min(out.meta.dtype.itemsize, wide.itemsize)
    inside = {*body, *chain}
    reads = [a.hop for t in nest.terms for a in t]
    for op_step in epilogue:
        if op_step.access is not None:
            reads.append(op_step.access.hop)
        elif op_step.scalar:
            reads.append(op_step.scalar)
    inputs = tuple(dict.fromkeys(h for h in reads if h not in inside and h.op.name != "const"))
    needs_range_check = hop.meta.dtype.itemsize > wide.itemsize
    terms_read = tuple(a for t in nest.terms for a in t)
    return MatchedLayer(matched[0], matched[1], epilogue, out, at, tuple(inside), inputs, stored, terms_read,
                        needs_range_check)


def _hops_between(hop: Hop, ends: set[Hop]) -> list[Hop]:
    """Return `hop` and all hops below it, above `ends`."""
    hops: dict[Hop, None] = {}
    stack = [hop]
    while stack:
        current = stack.pop()
        if current in ends or current in hops or current.op.kind is Kind.LEAF:
            continue
        hops[current] = None
        stack += current.inputs
    return list(hops)


def _match_epilogue(
    hop: Hop, at: AffineIndices, users: Mapping[Hop, list[Hop]], roots: frozenset[Hop], spec: AccelSpec,
    splits: AxisSplits,
) -> tuple[tuple[EpilogueStep, ...], Hop, AffineIndices, list[Hop]]:
    """Match the epilogue: follow single users as long as the device supports their operator."""
    epilogue: list[EpilogueStep] = []
    body: list[Hop] = []
    last_step = hop, at, 0
    bytes_only = hop.meta.dtype.itemsize < spec.element(Memory.ACC).dtype.itemsize
    while hop not in roots and len(set(users[hop])) == 1:
        user = users[hop][0]
        steps = _epilogue_steps(user, hop, splits.indices(at), spec, splits)
        narrows = user.op.name == "cast" and not bytes_only and _is_narrowing(user, spec)
        if steps is not None and not (bytes_only and any(t.name not in _SELECTIONS for t in steps)):
            epilogue += steps
        elif user.op.name in _VIEWS:
            indices = _view_result_indices(user, at, splits)
            if indices is None:
                break
            at = indices
        elif not narrows:
            break
        hop = user
        body.append(user)
        if user.op.name not in _VIEWS:  # trailing views stay on the host, where they are free
            last_step = hop, at, len(body)
        if narrows:
            break
    hop, at, count = last_step
    return tuple(epilogue), hop, splits.indices(at), body[:count]


def _is_narrowing(user: Hop, spec: AccelSpec) -> bool:
    target, source = user.meta.dtype, user.inputs[0].meta.dtype
    return not spec.is_float and target.kind == "i" and target.itemsize < source.itemsize


def _view_result_indices(user: Hop, at: AffineIndices, splits: AxisSplits) -> AffineIndices | None:
    """Return the indices in the result of a view; None if they are not affine."""
    at = splits.indices(at)
    if user.op.name == "transpose":
        return tuple(at[i] for i in user.attr("axes"))
    return reshape_indices(at, user.inputs[0].meta.shape, user.meta.shape, splits)


def _epilogue_steps(
    user: Hop, hop: Hop, at: AffineIndices, spec: AccelSpec, splits: AxisSplits
) -> list[EpilogueStep] | None:
    """Return the epilogue steps of `user`; None if the device does not support it."""
    if user.meta.shape != hop.meta.shape or user.meta.dtype != hop.meta.dtype:
        return None
    name = user.op.name
    if name == "clip" and user.inputs[0] is hop:
        low, high = (_epilogue_operand(i, at, splits) for i in user.inputs[1:])
        return [EpilogueStep("maximum", *low), EpilogueStep("minimum", *high)] if low and high else None
    if name not in _ALU_OPS or len(user.inputs) != 2 or user.inputs.count(hop) != 1:
        return None
    is_first = user.inputs[0] is hop
    if not is_first and name in ("subtract", "right_shift", "left_shift"):
        return None
    operand = _epilogue_operand(user.inputs[1 if is_first else 0], at, splits)
    if operand is None or spec.is_float and name.endswith("shift"):
        return None
    if operand[1] is not None and (name.endswith("shift") or name == "multiply" and spec.dialect == "strict"):
        return None
    return [EpilogueStep(name, *operand)]


def _epilogue_operand(
    hop: Hop, at: AffineIndices, splits: AxisSplits
) -> tuple[Hop | None, AffineAccess | None] | None:
    if hop.meta.shape == ():
        return hop, None
    trailing = at[len(at) - hop.meta.ndim:]
    indices = tuple(trailing[i] if n > 1 else type(trailing[i])() for i, n in enumerate(hop.meta.shape))
    split_count = len(splits.parts)
    access = resolve_access(hop, indices, splits, is_lossless_cast)
    return None if len(splits.parts) != split_count else (None, access)


def alu_op_of(op_step: EpilogueStep) -> AluOp:
    """Return the ALU operation of an epilogue step."""
    return _ALU_OPS[op_step.name]


Array = np.ndarray[Any, Any]


class UnsupportedValues(Exception):
    """The device cannot represent these values."""


class PreparedLayer(NamedTuple):
    """A layer with the immediates of its steps, and its operand arrays."""

    layer: Layer
    arrays: dict[str, Array]


def prepare(
    unit: MatchedLayer, values: Mapping[Hop, Any], spec: AccelSpec, images_on_device: bool = False
) -> PreparedLayer:
    """Return the layer for values, or raise `UnsupportedValues`.

    With `images_on_device`, images are the results of another layer.
    """
    inp, wgt, acc = (spec.element(m).dtype for m in (Memory.INP, Memory.WGT, Memory.ACC))
    arrays = {name: source.array_of(values, inp if name == "images" else wgt)
              for name, source in unit.fit.sources.items() if not (images_on_device and name == "images")}
    steps: list[EpilogueOp] = []
    for op_step in unit.epilogue:
        steps += _prepare_steps(unit, op_step, values, spec, arrays, acc)
    if unit.needs_range_check:
        _check_range(unit, steps, arrays)
    layer = replace(unit.fit.layer, steps=(*unit.fit.layer.steps, *steps),
                    stored=1 if spec.is_float else unit.stored)
    return PreparedLayer(layer, arrays)


def _check_range(unit: MatchedLayer, steps: Sequence[EpilogueOp], arrays: Mapping[str, Array]) -> None:
    """Raise `UnsupportedValues` unless a bound shows that no accumulator overflows."""
    layer = unit.fit.layer
    bound = layer.rows.taps * layer.columns.taps * 128
    bound *= 128 * layer.channels if layer.mode == "product" else 1
    for step in (EpilogueOp(AluOp.ADD), *steps):
        other = abs(int(step.number))
        if step.operand:
            other = int(np.abs(arrays[step.operand].astype(np.int64)).max(initial=0))
        if step.op is AluOp.SHR:
            amount = int(step.number)
            bound = bound + (1 << amount) - 1 >> amount if amount >= 0 else bound << -amount
        else:
            bound = {AluOp.ADD: bound + other, AluOp.MUL: bound * other}.get(step.op, max(bound, other))
        if bound >= 1 << 31:
            raise UnsupportedValues("sums may have more than 32 bits")


def _prepare_steps(
    unit: MatchedLayer, op_step: EpilogueStep, values: Mapping[Hop, Any], spec: AccelSpec,
    arrays: dict[str, Array], acc: np.dtype,
) -> Iterator[EpilogueOp]:
    op = alu_op_of(op_step)
    if op_step.access is not None:
        yield _prepare_operand(unit, op_step, values, arrays, acc)
        return
    assert op_step.scalar is not None
    number = const_value(op_step.scalar) if op_step.scalar.op.name == "const" else values[op_step.scalar]
    number = float(number) if spec.is_float else int(number)
    if op is AluOp.SHR:
        if not 0 <= number <= 31:  # unlike a shift in the other direction
            raise UnsupportedValues(f"a shift by {number}")
        yield from _split_shift(int(number) if op_step.name == "right_shift" else -int(number))
        return
    if op_step.name == "subtract":
        number = -number
    if unit.needs_range_check and abs(number) >= 1 << 31:
        raise UnsupportedValues("a number has more than 32 bits")
    if not spec.is_float:
        number = (int(number) + (1 << 31)) % (1 << 32) - (1 << 31)
    if op is AluOp.ADD and not number and not spec.is_float:
        return  # the neutral start of a sum
    if op is AluOp.MUL and spec.dialect == "strict" or to_immediate(spec, number) is not None:
        yield EpilogueOp(op, number)
        return
    name = f"number{len(arrays)}"
    arrays[name] = np.full((unit.fit.layer.groups, unit.fit.layer.filters), number, acc)
    yield EpilogueOp(op, operand=name, form="channel")


def _split_shift(amount: int) -> Iterator[EpilogueOp]:
    """Yield a shift as steps that all implementations support."""
    sign = 1 if amount > 0 else -1
    while amount:
        part = sign * min(abs(amount), MAX_SHIFT)
        yield EpilogueOp(AluOp.SHR, part)
        amount -= part


def _prepare_operand(
    unit: MatchedLayer, op_step: EpilogueStep, values: Mapping[Hop, Any], arrays: dict[str, Array],
    acc: np.dtype,
) -> EpilogueOp:
    access = op_step.access
    assert access is not None
    value = values[access.hop]
    group, _, _, _, filters = unit.fit.dimensions
    layer = unit.fit.layer
    per_filter = access.axes() <= {*group, *filters}
    axes = (*group, *filters) if per_filter else unit.fit.axes
    shape = (layer.groups, layer.filters) if per_filter else layer.output_shape
    array = access.view(value, axes).reshape(shape)
    if unit.needs_range_check and (array.astype(acc) != array).any():
        raise UnsupportedValues("numbers have more than 32 bits")
    array = array.astype(acc)
    if op_step.name == "subtract":
        with np.errstate(over="ignore"):
            array = -array
    name = f"operand{len(arrays)}"
    arrays[name] = array
    return EpilogueOp(alu_op_of(op_step), operand=name, form="channel" if per_filter else "full")


def write_results(unit: MatchedLayer, results: Array, out: Array) -> None:
    """Write the results of a layer into the result array of the program."""
    axes = unit.fit.axes
    begin = out[tuple([slice(p.start, p.start + 1) for p in unit.at])]
    steps = [sum(dict(p.by).get(a, 0) * s for p, s in zip(unit.at, out.strides, strict=True)) for a in axes]
    target = as_strided(begin, [a.extent for a in axes], steps)
    target[...] = results.reshape(target.shape)
