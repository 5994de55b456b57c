"""Aggregates of a few elements each, spelled out as cells of slices: windows, and blocks of an image.

Knows: in which order NumPy's reductions meet elements, slices. Must not know: prices, backends.
Receives roots and the layouts of leaves; returns roots, and what has to hold for them to be right.

Of windows no element is written: what they are slices of is read in several places. A stencil is all that
is left, for the passes behind this one to work on. The terms of a sum meet in NumPy's order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import NamedTuple

from jitla.fusion.kernel import Kernel
from jitla.fusion.layout import Layout, axis_order
from jitla.fusion.picked import Picker, is_windows, shifted
from jitla.fusion.results import all_layouts, is_certain
from jitla.fusion.walks import geometry
from jitla.hops import Hop, Kind, const, make, substitute, topo, uses

MOST_TERMS = 64  # elements that meet in one, if each is picked
MOST_CELLS = 192  # operators that come of it
BLOCK = 8  # accumulators of NumPy's pairwise sum
CELLS = {"sum": "add", "prod": "multiply", "min": "minimum", "max": "maximum", "any": "logical_or",
         "all": "logical_and"}
_FLOATS = ("f4", "f8")


class Way(NamedTuple):
    """How NumPy takes the elements of an aggregate: its axes longer than 1, innermost first, and lengths.

    Those of the first `run` axes meet before they are added to what is there.
    """

    axes: tuple[int, ...]
    lengths: tuple[int, ...]
    run: int


#: What was looked at, and for every aggregate in it the way that was spelled out; None: not that one.
Spelling = tuple[tuple[Hop, ...], tuple[Way | None, ...]]


def spelled(roots: tuple[Hop, ...], leaves: Mapping[int, Layout]) -> tuple[tuple[Hop, ...], Spelling | None]:
    """Return `roots` with aggregates spelled out where no loop, or a slower one, makes them otherwise."""
    if not any(map(_is_local, _aggregates(roots))) and not any(map(is_windows, topo(roots))):
        return roots, None
    layouts = all_layouts(roots, leaves)
    users = uses(roots)
    after: dict[Hop, Hop] = {}
    found: list[Way | None] = []
    for hop in _aggregates(roots):
        way = _way(hop, layouts) if _fits(hop, users, roots) else None
        made = None
        if way is not None and _gains(hop, layouts):
            made = _written(substitute((hop,), after)[0], way)
        if made is None or all_layouts((made,), leaves)[made] != layouts[hop]:
            found.append(None)
            continue
        found.append(way)
        after[hop] = made
    return (substitute(roots, after), (roots, tuple(found))) if after else (roots, None)


def holds(spelling: Spelling, roots: tuple[Hop, ...], leaves: Mapping[int, Layout]) -> bool:
    """Tell whether what was spelled out means the same for `roots`, the same ones of other sizes."""
    layouts = all_layouts(roots, leaves)
    now = [_way(hop, layouts) for hop in _aggregates(roots)]
    return len(now) == len(spelling[1]) and all(
        before is None or before == way for before, way in zip(spelling[1], now, strict=True))


def _aggregates(roots: Sequence[Hop]) -> list[Hop]:
    return [h for h in topo(roots) if h.op.name in CELLS and h.op.kind is Kind.AGG]


def _fits(hop: Hop, users: Mapping[Hop, Sequence[Hop]], roots: Sequence[Hop]) -> bool:
    """Tell whether the elements of `hop` can be picked, and nobody else asks for what they are made by."""
    if hop.attr("keepdims") or not hop.meta.shape or 0 in hop.inputs[0].meta.shape:
        return False
    dtype = hop.meta.dtype
    if hop.op.name in ("sum", "prod") and dtype.kind in "fc" and dtype.str[1:] not in _FLOATS:
        return False
    inside = Picker().cells(hop.inputs[0])
    if inside is None:
        return False
    return all(c not in roots and all(u is hop or u in inside or u.op.name == "count" for u in users[c])
               for c in inside)


def _way(hop: Hop, layouts: Mapping[Hop, Layout]) -> Way | None:
    """Return how NumPy takes the elements of `hop`; None if that is not known."""
    source = hop.inputs[0]
    shape, strides = layouts[source]
    long = [a for a, n in enumerate(shape) if n != 1]
    inside = [a for a in long if a in hop.attr("axis")]
    if not inside:
        return None
    if hop.op.name not in ("sum", "prod") or hop.meta.dtype.kind not in "fc":
        return Way(tuple(reversed(inside)), tuple(shape[a] for a in reversed(inside)), 0)
    if any(strides[a] <= 0 for a in long) or not all(map(is_certain, topo((source,)))):
        return None
    order = [a for a in axis_order([strides], len(shape)) if shape[a] != 1]
    inside = [a for a in order if a in inside]
    run = 0
    while run < len(inside) and order[run] == inside[run] and (
            run == 0 or strides[order[run]] == strides[order[run - 1]] * shape[order[run - 1]]):
        run += 1
    return Way(tuple(inside), tuple(shape[a] for a in inside), run if hop.op.name == "sum" else 0)


def _is_local(hop: Hop) -> bool:
    """Tell whether there are as many results as elements for each; along one end there are loops for that."""
    source, axes = hop.inputs[0], hop.attr("axis")
    return axes not in ((0,), (source.meta.ndim - 1,)) and \
        hop.meta.size >= prod(source.meta.shape[a] for a in axes)


def _gains(hop: Hop, layouts: Mapping[Hop, Layout]) -> bool:
    """Tell whether elements are read in several places, or no loop makes `hop` otherwise."""
    source = hop.inputs[0]
    if any(map(is_windows, topo((source,)))):
        return True
    loop = Kernel("MAgg", source.meta.shape, (source,), (hop,), (hop,))
    return _is_local(hop) and geometry(loop, source.meta.shape, layouts) is None


def _written(hop: Hop, way: Way) -> Hop | None:
    """Return `hop` spelled out; None if that takes too many operators."""
    found = _by_axes(hop, way) or _term_by_term(hop, way)
    if found is not None and hop.op.name == "sum" and hop.meta.dtype.kind == "f":
        # NumPy begins with it: there is no sum that is -0.0.
        found = make("add", (found, const(0.0, hop.meta.dtype)), hop.line)
    return found


def _by_axes(hop: Hop, way: Way) -> Hop | None:
    """Build the aggregate of whole windows axis by axis: the first ones are read by several of the next."""
    found = _windows(hop.inputs[0])
    if found is None or len(way.axes) == 1 and way.lengths[0] > MOST_TERMS or \
            sum(way.lengths) > MOST_CELLS:
        return None
    base, along = found.inputs[0], found.attr("axis")
    exact = hop.op.name not in ("sum", "prod") or hop.meta.dtype.kind not in "fc"
    windows = tuple(range(base.meta.ndim, found.meta.ndim))
    if hop.attr("axis") != windows or len(set(along)) < len(along) or \
            not exact and not (len(way.axes) == 1 or len(way.axes) == 2 and way.run == 1):
        return None
    value = base
    for at, (axis, n) in enumerate(zip(way.axes, way.lengths, strict=True)):
        over = along[axis - base.meta.ndim]
        terms = [shifted(value, over, i, n, hop) for i in range(n)]
        value = _pairwise(hop, terms) if at < way.run else _in_turn(hop, terms)
    return value


def _windows(source: Hop) -> Hop | None:
    """Return `source` as windows over a value; None if it is something else."""
    if source.op.name == "cast" and is_windows(source.inputs[0]):
        inner = source.inputs[0]
        whole = make("cast", inner.inputs, source.line, **dict(source.attrs))
        return make("windows", (whole,), source.line, **dict(inner.attrs))
    return source if is_windows(source) else None


def _term_by_term(hop: Hop, way: Way) -> Hop | None:
    count = prod(way.lengths)
    if count > MOST_TERMS or count * (1 + len(Picker().cells(hop.inputs[0]) or ())) > MOST_CELLS:
        return None
    terms: list[Hop] = []
    axes = hop.attr("axis")
    for at in product(*[range(n) for n in reversed(way.lengths)]):
        place = dict.fromkeys(axes, 0) | dict(zip(reversed(way.axes), at, strict=True))
        terms.append(Picker().pick(hop.inputs[0], place))
    size = prod(way.lengths[:way.run])
    if way.run:
        terms = [_pairwise(hop, terms[i:i + size]) for i in range(0, count, size)]
    return _in_turn(hop, terms)


def _in_turn(hop: Hop, terms: Sequence[Hop]) -> Hop:
    return reduce(lambda x, y: make(CELLS[hop.op.name], (x, y), hop.line), terms)


def _pairwise(hop: Hop, terms: Sequence[Hop]) -> Hop:
    """Build a sum of at most 128 terms as NumPy does that runs along them."""
    if len(terms) < BLOCK:
        return _in_turn(hop, terms)
    even = len(terms) - len(terms) % BLOCK
    lanes = [_in_turn(hop, terms[i:even:BLOCK]) for i in range(BLOCK)]
    while len(lanes) > 1:
        lanes = [_in_turn(hop, lanes[i:i + 2]) for i in range(0, len(lanes), 2)]
    return _in_turn(hop, [lanes[0], *terms[even:]])
