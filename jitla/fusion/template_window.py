"""The Window template: aggregates of sliding windows computed as sums of slices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import NamedTuple

from jitla.classes import dataclass
from jitla.fusion.cost_model import CostModel, window_row_bytes
from jitla.fusion.iteration import geometry
from jitla.fusion.kernel import (
    Call,
    Kernel,
    Step,
    WindowKernel,
    gather_tables,
    is_window_profitable,
)
from jitla.fusion.layout import Layout, all_layouts, axis_order, has_exact_layout
from jitla.fusion.templates import CELL
from jitla.hops import (
    WHOLE_AXIS,
    Hop,
    Kind,
    Section,
    const,
    has_recipe,
    make,
    sections,
    substitute,
    topo,
    uses,
)


@dataclass(slots=True)
class _Chain:
    """Kernels that could be one: the last of them makes the results."""

    stages: list[Kernel]
    views: list[Call]


def fuse_windows(steps: Sequence[Step], roots: Sequence[Hop], cost_model: CostModel) -> list[Step]:
    """Return the steps of a plan, in running order, with chains of stencils as one where that is cheaper."""
    found = list(steps)
    tried: set[int] = set()
    while True:
        last = next((s for s in reversed(found) if isinstance(s, Kernel) and id(s) not in tried), None)
        if last is None:
            return found
        tried.add(id(last))
        chain = _chain(last, found, frozenset(roots), cost_model)
        while chain is not None:
            kernel = _kernel(chain)
            if kernel is not None and _is_near(kernel) and \
                    cost_model.step(kernel).total < sum(cost_model.step(s).total for s in chain.stages):
                gone = {id(s) for s in (*chain.stages, *chain.views)} - {id(last)}
                found = [kernel if s is last else s for s in found if id(s) not in gone]
                break
            chain = _shorter(chain)


def _is_near(kernel: WindowKernel) -> bool:
    """Tell whether what lies between the stages stays near, and there is something to share out."""
    rate = kernel.rows_per_result
    kept = sum(rate[h] * (h.meta.nbytes // h.meta.shape[0]) for h in kernel.intermediates)
    return is_window_profitable(window_row_bytes(kernel), kept, kernel.rows, kernel.lookahead_rows())


def _shorter(chain: _Chain) -> _Chain | None:
    """Return a chain without its first kernel; None if no slices are left in it."""
    stages = chain.stages[1:]
    made = {h for s in stages for h in s.outputs}
    views = [v for v in chain.views if v.hop.inputs[0] in made]
    return _Chain(stages, views) if views else None


def _chain(
    last: Kernel, steps: Sequence[Step], roots: frozenset[Hop], cost_model: CostModel,
) -> _Chain | None:
    """Return the kernels that only make what `last` reads, by way of slices or as it is; None if none do."""
    readers: dict[Hop, list[Step]] = {}
    for step in steps:
        for hop in step.inputs:
            readers.setdefault(hop, []).append(step)
    if not _fits(last, cost_model):
        return None
    chain = _Chain([last], [])
    inside = {id(last)}
    cells = {h for s in steps if isinstance(s, Kernel) for h in s.outputs}
    for step in reversed(steps):
        if isinstance(step, Call) and sections(step.hop) is not None and step.hop not in roots:
            if step.hop.inputs[0] in cells and _whole(step.hop, readers) and \
                    _only(readers.get(step.hop, ()), inside):
                inside.add(id(step))
                chain.views.append(step)
        elif isinstance(step, Kernel) and step is not last and _fits(step, cost_model):
            if all(h not in roots and _only(readers.get(h, ()), inside) and _whole(h, readers)
                   for h in step.outputs):
                inside.add(id(step))
                chain.stages.append(step)
    made = {h for s in chain.stages for h in s.outputs}
    chain.views = [v for v in chain.views if v.hop.inputs[0] in made]
    chain.stages.reverse()
    chain.views.reverse()
    return chain if chain.views else None


def _only(readers: Iterable[Step], inside: set[int]) -> bool:
    """Tell whether somebody reads a value, and all who do are `inside`."""
    every = [id(s) for s in readers]
    return bool(every) and inside.issuperset(every)


def _whole(hop: Hop, readers: dict[Hop, list[Step]]) -> bool:
    """Tell whether kernels read `hop` element by element: nowhere is it repeated, or a table."""
    return all(isinstance(s, Call) or isinstance(s, Kernel) and s.shape == hop.meta.shape
               for s in readers[hop])


def _fits(kernel: Kernel, cost_model: CostModel) -> bool:
    """Tell whether a kernel is cells over rows that lie one after the other."""
    if kernel.template != CELL.name or len(kernel.shape) < 2 or gather_tables(kernel.body):
        return False
    if min(kernel.shape) < 2 or any(h.op.kind is not Kind.CELL for h in kernel.body):
        return False
    return all(_by_rows(cost_model.layouts[h].strides) for h in (*kernel.inputs, *kernel.outputs)
               if h.meta.shape == kernel.shape)


def _by_rows(strides: Sequence[int]) -> bool:
    return all(strides[0] >= abs(s) for s in strides[1:])


def _rates(chain: _Chain) -> tuple[int, ...] | None:
    """Return how many rows of every stage belong to one of the last; None if readers differ in that."""
    maker = {h: at for at, s in enumerate(chain.stages) for h in s.outputs}
    views = {v.hop: v.hop.inputs[0] for v in chain.views}
    found = {len(chain.stages) - 1: 1}
    for at in range(len(chain.stages) - 1, -1, -1):
        if at not in found:
            return None
        for hop in chain.stages[at].inputs:
            source = views.get(hop, hop)
            if source not in maker:
                continue
            section = (sections(hop) or (WHOLE_AXIS,))[0] if hop in views else WHOLE_AXIS
            rate = found[at] * section.step
            if found.setdefault(maker[source], rate) != rate:
                return None
    return tuple(found[at] for at in range(len(chain.stages)))


def _kernel(chain: _Chain) -> WindowKernel | None:
    """Return the chain as one kernel; None if its stages do not walk the same rows."""
    last = chain.stages[-1]
    rows = last.shape[0]
    made = {h for s in chain.stages for h in s.outputs} | {v.hop for v in chain.views}
    inputs: dict[Hop, int | None] = {}
    rates = _rates(chain)
    if rates is None:
        return None
    for stage, rate in zip(chain.stages, rates, strict=True):
        if len(stage.shape) != len(last.shape) or stage.shape[0] < rate * rows:
            return None
        for hop in stage.inputs:
            if hop in made:
                continue
            own = hop.meta.ndim == len(stage.shape) and hop.meta.shape[0] == stage.shape[0]
            axis = 0 if own else None
            if inputs.setdefault(hop, axis) != axis:
                return None  # rows of one stage, and the same for all of another
    return WindowKernel(
        rows, tuple(chain.stages), rates, tuple(v.hop for v in chain.views), tuple(inputs),
        tuple(inputs.values()), last.outputs)


Places = Mapping[int, int]


def is_windows(hop: Hop) -> bool:
    """Tell whether `hop` is windows over another value."""
    return hop.op.name == "windows"


def shifted(value: Hop, axis: int, at: int, length: int, line: Hop) -> Hop:
    """Return the elements number `at` of all windows of `length` along `axis`."""
    whole: list[tuple[object, ...]] = [("s", None, None, None)] * value.meta.ndim
    whole[axis] = Section(at, length - 1 - at, 1).item
    return make("getitem", (value,), line.line, index=tuple(whole))


class Picker:
    """What makes the elements at certain places of a value."""

    def cells(self, hop: Hop) -> frozenset[Hop] | None:
        """Return the cells that have to be computed for every place; None if elements cannot be picked."""
        found: set[Hop] = set()
        stack = [hop]
        while stack:
            each = stack.pop()
            if not each.meta.shape or each in found:
                continue
            if each.op.kind is Kind.CELL:
                if not has_recipe(each) or each.op.name == "ring" or _looks_at_places(each):
                    return None
                found.add(each)
                stack += each.inputs
            elif each.op.name == "expand_dims" or _sliced_windows(each):
                stack.append(each.inputs[0])
            elif not (each.op.kind is Kind.LEAF or is_windows(each) or _blocks(each)):
                return None
        return frozenset(found)

    def pick(self, hop: Hop, at: Places) -> Hop:
        """Return the elements of `hop` at `at`, an index each for some axes."""
        if not hop.meta.shape or not at:
            return hop
        if hop.op.kind is Kind.CELL:
            return make(hop.op.name, [self.pick(i, _for(i, hop, at)) for i in hop.inputs], hop.line,
                        **dict(hop.attrs))
        if hop.op.name == "expand_dims":
            return self._expanded(hop, at)
        if is_windows(hop):
            return self._of_windows(hop, at)
        blocks = _blocks(hop)
        if blocks and set(at) <= set(blocks):
            return self._of_blocks(hop, at, blocks)
        if _sliced_windows(hop) and min(at) >= hop.inputs[0].inputs[0].meta.ndim:
            return _then(self.pick(hop.inputs[0], at), hop)
        return _items(hop, at)

    def _expanded(self, hop: Hop, at: Places) -> Hop:
        new = [a % hop.meta.ndim for a in hop.attr("axis")]
        old = [a for a in range(hop.meta.ndim) if a not in new]
        inner = self.pick(hop.inputs[0], {old.index(a): i for a, i in at.items() if a in old})
        kept = [a for a in range(hop.meta.ndim) if a not in at]
        axes = tuple(kept.index(a) for a in new if a in kept)
        return make("expand_dims", (inner,), hop.line, axis=axes) if axes else inner

    def _of_windows(self, hop: Hop, at: Places) -> Hop:
        """Return slices of what windows lie over; what is left of them is no window any more."""
        value, along, sizes = hop.inputs[0], hop.attr("axis"), hop.attr("sizes")
        first = value.meta.ndim
        if set(at) != set(range(first, hop.meta.ndim)):
            return _items(hop, at)
        for k, (axis, n) in enumerate(zip(along, sizes, strict=True)):
            value = _joined(shifted(value, axis, at[first + k], n, hop))
        return value

    def _of_blocks(self, hop: Hop, at: Places, blocks: Mapping[int, int]) -> Hop:
        """Return every so many elements of an array that a shape divides into blocks."""
        whole: list[tuple[object, ...]] = [("s", None, None, None)] * hop.inputs[0].meta.ndim
        for axis, index in at.items():
            if hop.meta.shape[axis] > 1:
                whole[blocks[axis]] = Section(index, 0, hop.meta.shape[axis]).item
        value = make("getitem", (hop.inputs[0],), hop.line, index=tuple(whole))
        kept = tuple(n for a, n in enumerate(hop.meta.shape) if a not in at)
        return value if value.meta.shape == kept else _items(hop, at)


def _for(operand: Hop, cell: Hop, at: Places) -> dict[int, int]:
    """Return `at`, places of a cell, as places of one of its operands."""
    missing = cell.meta.ndim - operand.meta.ndim
    return {a - missing: i if operand.meta.shape[a - missing] > 1 else 0
            for a, i in at.items() if a >= missing}


def _items(hop: Hop, at: Places) -> Hop:
    index = tuple(("i", at[a]) if a in at else ("s", None, None, None) for a in range(hop.meta.ndim))
    return make("getitem", (hop,), hop.line, index=index)


def _sliced_windows(hop: Hop) -> bool:
    """Tell whether `hop` is some of all windows, each one whole."""
    taken = sections(hop)
    source = hop.inputs[0] if hop.inputs else hop
    return taken is not None and is_windows(source) and not any(
        (s.first, s.end) != (0, 0) or s.step != 1 for s in taken[source.inputs[0].meta.ndim:])


def _then(value: Hop, view: Hop) -> Hop:
    """Return what the slice `view` takes, of the elements picked of every window."""
    index = view.attr("index")[:value.meta.ndim]
    return _joined(make("getitem", (value,), view.line, index=index))


def _joined(view: Hop) -> Hop:
    """Return a slice of a slice as one slice."""
    outer, inner = sections(view), sections(view.inputs[0])
    if outer is None or inner is None:
        return view
    both = tuple(s.then(t).item for s, t in zip(inner, outer, strict=True))
    return make("getitem", (view.inputs[0].inputs[0],), view.line, index=both)


def _blocks(hop: Hop) -> dict[int, int]:
    """Return the axes that count within blocks, if a shape divides axes into blocks, and of what axis."""
    if hop.op.name != "reshape":
        return {}
    shape, rest, found = hop.inputs[0].meta.shape, list(enumerate(hop.meta.shape)), dict[int, int]()
    for axis, n in enumerate(shape):
        if not rest:
            return {}
        (_, first), rest = rest[0], rest[1:]
        if first == n:
            continue
        if not rest or first * rest[0][1] != n:
            return {}
        found[rest[0][0]] = axis
        rest = rest[1:]
    return found if not rest else {}


def _looks_at_places(cell: Hop) -> bool:
    """Say whether NumPy may cast an element by where it lies: a float that no integer holds."""
    whole = cell.op.name == "cast" and cell.meta.dtype.kind in "iu"
    return whole and cell.inputs[0].meta.dtype.kind in "fc"


MOST_TERMS = 64  # elements that meet in one, if each is picked
MOST_CELLS = 192  # operators that come of it
BLOCK = 8  # accumulators of NumPy's pairwise sum
CELLS = {"sum": "add", "prod": "multiply", "min": "minimum", "max": "maximum", "any": "logical_or",
         "all": "logical_and"}
_FLOATS = ("f4", "f8")


class ReductionOrder(NamedTuple):
    """How NumPy takes the elements of an aggregate: its axes longer than 1, innermost first, and lengths.

    Those of the first `run` axes meet before they are added to what is there.
    """

    axes: tuple[int, ...]
    lengths: tuple[int, ...]
    run: int


#: What was looked at, and for every aggregate in it the way that was spelled out; None: not that one.
Expansion = tuple[tuple[Hop, ...], tuple[ReductionOrder | None, ...]]


def expand_aggregates(
    roots: tuple[Hop, ...], leaves: Mapping[int, Layout],
) -> tuple[tuple[Hop, ...], Expansion | None]:
    """Return `roots` with aggregates spelled out where no loop, or a slower one, makes them otherwise."""
    if not any(map(_is_local, _aggregates(roots))) and not any(map(is_windows, topo(roots))):
        return roots, None
    layouts = all_layouts(roots, leaves)
    users = uses(roots)
    after: dict[Hop, Hop] = {}
    found: list[ReductionOrder | None] = []
    for hop in _aggregates(roots):
        way = _way(hop, layouts) if _fits_spelling(hop, users, roots) else None
        made = None
        if way is not None and _gains(hop, layouts):
            made = _written(substitute((hop,), after)[0], way)
        if made is None or all_layouts((made,), leaves)[made] != layouts[hop]:
            found.append(None)
            continue
        found.append(way)
        after[hop] = made
    return (substitute(roots, after), (roots, tuple(found))) if after else (roots, None)


def is_expansion_valid(spelling: Expansion, roots: tuple[Hop, ...], leaves: Mapping[int, Layout]) -> bool:
    """Tell whether what was spelled out means the same for `roots`, the same ones of other sizes."""
    layouts = all_layouts(roots, leaves)
    now = [_way(hop, layouts) for hop in _aggregates(roots)]
    return len(now) == len(spelling[1]) and all(
        before is None or before == way for before, way in zip(spelling[1], now, strict=True))


def _aggregates(roots: Sequence[Hop]) -> list[Hop]:
    return [h for h in topo(roots) if h.op.name in CELLS and h.op.kind is Kind.AGG]


def _fits_spelling(hop: Hop, users: Mapping[Hop, Sequence[Hop]], roots: Sequence[Hop]) -> bool:
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


def _way(hop: Hop, layouts: Mapping[Hop, Layout]) -> ReductionOrder | None:
    """Return how NumPy takes the elements of `hop`; None if that is not known."""
    source = hop.inputs[0]
    shape, strides = layouts[source]
    long = [a for a, n in enumerate(shape) if n != 1]
    inside = [a for a in long if a in hop.attr("axis")]
    if not inside:
        return None
    if hop.op.name not in ("sum", "prod") or hop.meta.dtype.kind not in "fc":
        return ReductionOrder(tuple(reversed(inside)), tuple(shape[a] for a in reversed(inside)), 0)
    if any(strides[a] <= 0 for a in long) or not all(map(has_exact_layout, topo((source,)))):
        return None
    order = [a for a in axis_order([strides], len(shape)) if shape[a] != 1]
    inside = [a for a in order if a in inside]
    run = 0
    while run < len(inside) and order[run] == inside[run] and (
            run == 0 or strides[order[run]] == strides[order[run - 1]] * shape[order[run - 1]]):
        run += 1
    return ReductionOrder(tuple(inside), tuple(shape[a] for a in inside), run if hop.op.name == "sum" else 0)


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


def _written(hop: Hop, way: ReductionOrder) -> Hop | None:
    """Return `hop` spelled out; None if that takes too many operators."""
    found = _by_axes(hop, way) or _term_by_term(hop, way)
    if found is not None and hop.op.name == "sum" and hop.meta.dtype.kind == "f":
        # NumPy begins with it: there is no sum that is -0.0.
        found = make("add", (found, const(0.0, hop.meta.dtype)), hop.line)
    return found


def _by_axes(hop: Hop, way: ReductionOrder) -> Hop | None:
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


def _term_by_term(hop: Hop, way: ReductionOrder) -> Hop | None:
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
