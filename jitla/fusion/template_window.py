"""The Window template: stencil chains as one kernel, and aggregates of sliding windows as sums of slices."""

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
    depends_on_position,
    has_recipe,
    make,
    sections,
    substitute,
    topo,
    uses,
)


@dataclass(slots=True)
class _StencilChain:
    """Kernels that could be fused into one; the last of them computes the results."""

    stages: list[Kernel]
    views: list[Call]


def fuse_windows(steps: Sequence[Step], roots: Sequence[Hop], cost_model: CostModel) -> list[Step]:
    """Return the steps of a plan in execution order, with chains of stencils fused where that is cheaper."""
    plan = list(steps)
    tried: set[int] = set()
    while True:
        last = next((s for s in reversed(plan) if isinstance(s, Kernel) and id(s) not in tried), None)
        if last is None:
            return plan
        tried.add(id(last))
        chain = _find_chain(last, plan, frozenset(roots), cost_model)
        while chain is not None:
            kernel = _window_kernel(chain)
            if kernel is not None and _is_profitable(kernel) and \
                    cost_model.step(kernel).total < sum(cost_model.step(s).total for s in chain.stages):
                fused = {id(s) for s in (*chain.stages, *chain.views)} - {id(last)}
                plan = [kernel if s is last else s for s in plan if id(s) not in fused]
                break
            chain = _without_first(chain)


def _is_profitable(kernel: WindowKernel) -> bool:
    """Return whether intermediate rows stay in a cache, and there are enough rows for all threads."""
    rate = kernel.rows_per_result
    carried = sum(rate[h] * (h.meta.nbytes // h.meta.shape[0]) for h in kernel.intermediates)
    return is_window_profitable(window_row_bytes(kernel), carried, kernel.rows, kernel.lookahead_rows())


def _without_first(chain: _StencilChain) -> _StencilChain | None:
    """Return a chain without its first kernel; None if no slices are left in it."""
    stages = chain.stages[1:]
    produced = {h for s in stages for h in s.outputs}
    views = [v for v in chain.views if v.hop.inputs[0] in produced]
    return _StencilChain(stages, views) if views else None


def _find_chain(
    last: Kernel, steps: Sequence[Step], roots: frozenset[Hop], cost_model: CostModel,
) -> _StencilChain | None:
    """Return the kernels that only compute what `last` reads, sliced or whole; None without slices."""
    readers: dict[Hop, list[Step]] = {}
    for step in steps:
        for hop in step.inputs:
            readers.setdefault(hop, []).append(step)
    if not _is_cell_over_rows(last, cost_model):
        return None
    chain = _StencilChain([last], [])
    inside = {id(last)}
    cells = {h for s in steps if isinstance(s, Kernel) for h in s.outputs}
    for step in reversed(steps):
        if isinstance(step, Call) and sections(step.hop) is not None and step.hop not in roots:
            if step.hop.inputs[0] in cells and _is_read_elementwise(step.hop, readers) and \
                    _are_readers_inside(readers.get(step.hop, ()), inside):
                inside.add(id(step))
                chain.views.append(step)
        elif isinstance(step, Kernel) and step is not last and _is_cell_over_rows(step, cost_model):
            if all(h not in roots and _are_readers_inside(readers.get(h, ()), inside)
                   and _is_read_elementwise(h, readers) for h in step.outputs):
                inside.add(id(step))
                chain.stages.append(step)
    produced = {h for s in chain.stages for h in s.outputs}
    chain.views = [v for v in chain.views if v.hop.inputs[0] in produced]
    chain.stages.reverse()
    chain.views.reverse()
    return chain if chain.views else None


def _are_readers_inside(readers: Iterable[Step], inside: set[int]) -> bool:
    """Return whether a value has readers, and all of them are `inside`."""
    ids = [id(s) for s in readers]
    return bool(ids) and inside.issuperset(ids)


def _is_read_elementwise(hop: Hop, readers: dict[Hop, list[Step]]) -> bool:
    """Return whether kernels read `hop` element by element, not broadcast or as a table."""
    return all(isinstance(s, Call) or isinstance(s, Kernel) and s.shape == hop.meta.shape
               for s in readers[hop])


def _is_cell_over_rows(kernel: Kernel, cost_model: CostModel) -> bool:
    """Return whether a kernel is element-wise over arrays whose rows are outermost in memory."""
    if kernel.template != CELL.name or len(kernel.shape) < 2 or gather_tables(kernel.body):
        return False
    if min(kernel.shape) < 2 or any(h.op.kind is not Kind.CELL for h in kernel.body):
        return False
    return all(_are_rows_outermost(cost_model.layouts[h].strides) for h in (*kernel.inputs, *kernel.outputs)
               if h.meta.shape == kernel.shape)


def _are_rows_outermost(strides: Sequence[int]) -> bool:
    return all(strides[0] >= abs(s) for s in strides[1:])


def _rates(chain: _StencilChain) -> tuple[int, ...] | None:
    """Return the rows of every stage for one row of the last; None if readers differ in that."""
    producer = {h: at for at, s in enumerate(chain.stages) for h in s.outputs}
    views = {v.hop: v.hop.inputs[0] for v in chain.views}
    rates = {len(chain.stages) - 1: 1}
    for at in range(len(chain.stages) - 1, -1, -1):
        if at not in rates:
            return None
        for hop in chain.stages[at].inputs:
            source = views.get(hop, hop)
            if source not in producer:
                continue
            section = (sections(hop) or (WHOLE_AXIS,))[0] if hop in views else WHOLE_AXIS
            rate = rates[at] * section.step
            if rates.setdefault(producer[source], rate) != rate:
                return None
    return tuple(rates[at] for at in range(len(chain.stages)))


def _window_kernel(chain: _StencilChain) -> WindowKernel | None:
    """Return the chain as one kernel; None if its stages are not over the same rows."""
    last = chain.stages[-1]
    rows = last.shape[0]
    produced = {h for s in chain.stages for h in s.outputs} | {v.hop for v in chain.views}
    inputs: dict[Hop, int | None] = {}
    rates = _rates(chain)
    if rates is None:
        return None
    for stage, rate in zip(chain.stages, rates, strict=True):
        if len(stage.shape) != len(last.shape) or stage.shape[0] < rate * rows:
            return None
        for hop in stage.inputs:
            if hop in produced:
                continue
            is_by_rows = hop.meta.ndim == len(stage.shape) and hop.meta.shape[0] == stage.shape[0]
            axis = 0 if is_by_rows else None
            if inputs.setdefault(hop, axis) != axis:
                return None  # read by rows in one stage, whole in another
    return WindowKernel(
        rows, tuple(chain.stages), rates, tuple(v.hop for v in chain.views), tuple(inputs),
        tuple(inputs.values()), last.outputs)


Indices = Mapping[int, int]


def is_windows(hop: Hop) -> bool:
    """Return whether `hop` is a sliding-window view of another value."""
    return hop.op.name == "windows"


def shifted_slice(value: Hop, axis: int, offset: int, length: int, line: Hop) -> Hop:
    """Return the elements at `offset` of all windows of `length` along `axis`, as a slice."""
    index: list[tuple[object, ...]] = [("s", None, None, None)] * value.meta.ndim
    index[axis] = Section(offset, length - 1 - offset, 1).item
    return make("getitem", (value,), line.line, index=tuple(index))


class ElementPicker:
    """Rewrites a value to some of its elements, at fixed indices along some axes."""

    def cells(self, hop: Hop) -> frozenset[Hop] | None:
        """Return the cells that have to be computed for every element; None if elements cannot be picked."""
        cells: set[Hop] = set()
        stack = [hop]
        while stack:
            value = stack.pop()
            if not value.meta.shape or value in cells:
                continue
            if value.op.kind is Kind.CELL:
                if not has_recipe(value) or value.op.name == "ring" or depends_on_position(value):
                    return None
                cells.add(value)
                stack += value.inputs
            elif value.op.name == "expand_dims" or _is_slice_of_windows(value):
                stack.append(value.inputs[0])
            elif not (value.op.kind is Kind.LEAF or is_windows(value) or _block_axes(value)):
                return None
        return frozenset(cells)

    def pick(self, hop: Hop, indices: Indices) -> Hop:
        """Return the elements of `hop` at `indices`, one for each of some axes."""
        if not hop.meta.shape or not indices:
            return hop
        if hop.op.kind is Kind.CELL:
            operands = [self.pick(i, _operand_indices(i, hop, indices)) for i in hop.inputs]
            return make(hop.op.name, operands, hop.line, **dict(hop.attrs))
        if hop.op.name == "expand_dims":
            return self._pick_expanded(hop, indices)
        if is_windows(hop):
            return self._pick_windows(hop, indices)
        blocks = _block_axes(hop)
        if blocks and set(indices) <= set(blocks):
            return self._pick_blocks(hop, indices, blocks)
        if _is_slice_of_windows(hop) and min(indices) >= hop.inputs[0].inputs[0].meta.ndim:
            return _slice_picked(self.pick(hop.inputs[0], indices), hop)
        return _getitem(hop, indices)

    def _pick_expanded(self, hop: Hop, indices: Indices) -> Hop:
        new = [a % hop.meta.ndim for a in hop.attr("axis")]
        old = [a for a in range(hop.meta.ndim) if a not in new]
        inner = self.pick(hop.inputs[0], {old.index(a): i for a, i in indices.items() if a in old})
        kept_axes = [a for a in range(hop.meta.ndim) if a not in indices]
        axes = tuple(kept_axes.index(a) for a in new if a in kept_axes)
        return make("expand_dims", (inner,), hop.line, axis=axes) if axes else inner

    def _pick_windows(self, hop: Hop, indices: Indices) -> Hop:
        """Return slices of the value that windows are over; the result has no window axes any more."""
        value, along, sizes = hop.inputs[0], hop.attr("axis"), hop.attr("sizes")
        first = value.meta.ndim
        if set(indices) != set(range(first, hop.meta.ndim)):
            return _getitem(hop, indices)
        for k, (axis, n) in enumerate(zip(along, sizes, strict=True)):
            value = _merge_slices(shifted_slice(value, axis, indices[first + k], n, hop))
        return value

    def _pick_blocks(self, hop: Hop, indices: Indices, blocks: Mapping[int, int]) -> Hop:
        """Return strided elements of an array whose axes a reshape divides into blocks."""
        whole: list[tuple[object, ...]] = [("s", None, None, None)] * hop.inputs[0].meta.ndim
        for axis, index in indices.items():
            if hop.meta.shape[axis] > 1:
                whole[blocks[axis]] = Section(index, 0, hop.meta.shape[axis]).item
        value = make("getitem", (hop.inputs[0],), hop.line, index=tuple(whole))
        kept_shape = tuple(n for a, n in enumerate(hop.meta.shape) if a not in indices)
        return value if value.meta.shape == kept_shape else _getitem(hop, indices)


def _operand_indices(operand: Hop, cell: Hop, indices: Indices) -> dict[int, int]:
    """Return `indices` into a cell as indices into one of its operands, by broadcasting."""
    missing = cell.meta.ndim - operand.meta.ndim
    return {a - missing: i if operand.meta.shape[a - missing] > 1 else 0
            for a, i in indices.items() if a >= missing}


def _getitem(hop: Hop, indices: Indices) -> Hop:
    index = tuple(
        ("i", indices[a]) if a in indices else ("s", None, None, None) for a in range(hop.meta.ndim))
    return make("getitem", (hop,), hop.line, index=index)


def _is_slice_of_windows(hop: Hop) -> bool:
    """Return whether `hop` is a slice of windows in which every window is whole."""
    taken = sections(hop)
    source = hop.inputs[0] if hop.inputs else hop
    return taken is not None and is_windows(source) and not any(
        (s.first, s.end) != (0, 0) or s.step != 1 for s in taken[source.inputs[0].meta.ndim:])


def _slice_picked(value: Hop, view: Hop) -> Hop:
    """Return the elements picked of every window, restricted to the windows of the slice `view`."""
    index = view.attr("index")[:value.meta.ndim]
    return _merge_slices(make("getitem", (value,), view.line, index=index))


def _merge_slices(view: Hop) -> Hop:
    """Return a slice of a slice as one slice."""
    outer, inner = sections(view), sections(view.inputs[0])
    if outer is None or inner is None:
        return view
    both = tuple(s.then(t).item for s, t in zip(inner, outer, strict=True))
    return make("getitem", (view.inputs[0].inputs[0],), view.line, index=both)


def _block_axes(hop: Hop) -> dict[int, int]:
    """Return the axes within the blocks of a reshape, each with the axis that it divides."""
    if hop.op.name != "reshape":
        return {}
    shape, remaining, block_axes = hop.inputs[0].meta.shape, list(enumerate(hop.meta.shape)), dict[int, int]()
    for axis, n in enumerate(shape):
        if not remaining:
            return {}
        (_, first), remaining = remaining[0], remaining[1:]
        if first == n:
            continue
        if not remaining or first * remaining[0][1] != n:
            return {}
        block_axes[remaining[0][0]] = axis
        remaining = remaining[1:]
    return block_axes if not remaining else {}


MAX_TERMS = 64  # elements per result that are picked one by one
MAX_CELLS = 192  # operators of an expansion
PAIRWISE_LANES = 8  # accumulators of NumPy's pairwise sum
CELL_OF_REDUCTION = {"sum": "add", "prod": "multiply", "min": "minimum", "max": "maximum",
                     "any": "logical_or", "all": "logical_and"}
_FLOATS = ("f4", "f8")


class ReductionOrder(NamedTuple):
    """The order in which NumPy reduces: the reduced axes longer than 1, innermost first, and their lengths.

    Elements of the first `run` axes are added up pairwise before they are added to the result.
    """

    axes: tuple[int, ...]
    lengths: tuple[int, ...]
    run: int


#: The roots before the expansion, and the order of every aggregate in them; None if it was not expanded.
Expansion = tuple[tuple[Hop, ...], tuple[ReductionOrder | None, ...]]


def expand_aggregates(
    roots: tuple[Hop, ...], leaves: Mapping[int, Layout],
) -> tuple[tuple[Hop, ...], Expansion | None]:
    """Return `roots` with aggregates expanded to cells of slices, where no loop, or a slower one, exists."""
    if not any(map(_is_local, _aggregates(roots))) and not any(map(is_windows, topo(roots))):
        return roots, None
    layouts = all_layouts(roots, leaves)
    users = uses(roots)
    replacements: dict[Hop, Hop] = {}
    orders: list[ReductionOrder | None] = []
    for hop in _aggregates(roots):
        reduction = _reduction_order(hop, layouts) if _is_expandable(hop, users, roots) else None
        expanded = None
        if reduction is not None and _is_expansion_profitable(hop, layouts):
            expanded = _expansion(substitute((hop,), replacements)[0], reduction)
        if expanded is None or all_layouts((expanded,), leaves)[expanded] != layouts[hop]:
            orders.append(None)
            continue
        orders.append(reduction)
        replacements[hop] = expanded
    return (substitute(roots, replacements), (roots, tuple(orders))) if replacements else (roots, None)


def is_expansion_valid(expansion: Expansion, roots: tuple[Hop, ...], leaves: Mapping[int, Layout]) -> bool:
    """Return whether an expansion is valid for `roots`, the same ones with other sizes or layouts."""
    layouts = all_layouts(roots, leaves)
    current = [_reduction_order(hop, layouts) for hop in _aggregates(roots)]
    return len(current) == len(expansion[1]) and all(
        before is None or before == order for before, order in zip(expansion[1], current, strict=True))


def _aggregates(roots: Sequence[Hop]) -> list[Hop]:
    return [h for h in topo(roots) if h.op.name in CELL_OF_REDUCTION and h.op.kind is Kind.AGG]


def _is_expandable(hop: Hop, users: Mapping[Hop, Sequence[Hop]], roots: Sequence[Hop]) -> bool:
    """Return whether the elements of `hop` can be picked, and nothing else needs their operands."""
    if hop.attr("keepdims") or not hop.meta.shape or 0 in hop.inputs[0].meta.shape:
        return False
    dtype = hop.meta.dtype
    if hop.op.name in ("sum", "prod") and dtype.kind in "fc" and dtype.str[1:] not in _FLOATS:
        return False
    inside = ElementPicker().cells(hop.inputs[0])
    if inside is None:
        return False
    return all(c not in roots and all(u is hop or u in inside or u.op.name == "count" for u in users[c])
               for c in inside)


def _reduction_order(hop: Hop, layouts: Mapping[Hop, Layout]) -> ReductionOrder | None:
    """Return the order in which NumPy reduces `hop`; None if it is unknown."""
    source = hop.inputs[0]
    shape, strides = layouts[source]
    long = [a for a, n in enumerate(shape) if n != 1]
    reduced = [a for a in long if a in hop.attr("axis")]
    if not reduced:
        return None
    if hop.op.name not in ("sum", "prod") or hop.meta.dtype.kind not in "fc":
        return ReductionOrder(tuple(reversed(reduced)), tuple(shape[a] for a in reversed(reduced)), 0)
    if any(strides[a] <= 0 for a in long) or not all(map(has_exact_layout, topo((source,)))):
        return None
    order = [a for a in axis_order([strides], len(shape)) if shape[a] != 1]
    reduced = [a for a in order if a in reduced]
    run = 0
    while run < len(reduced) and order[run] == reduced[run] and (
            run == 0 or strides[order[run]] == strides[order[run - 1]] * shape[order[run - 1]]):
        run += 1
    lengths = tuple(shape[a] for a in reduced)
    return ReductionOrder(tuple(reduced), lengths, run if hop.op.name == "sum" else 0)


def _is_local(hop: Hop) -> bool:
    """Return whether results outnumber the elements of each; not along the first or last axis, with loops."""
    source, axes = hop.inputs[0], hop.attr("axis")
    return axes not in ((0,), (source.meta.ndim - 1,)) and \
        hop.meta.size >= prod(source.meta.shape[a] for a in axes)


def _is_expansion_profitable(hop: Hop, layouts: Mapping[Hop, Layout]) -> bool:
    """Return whether elements are read by several windows, or no loop computes `hop` otherwise."""
    source = hop.inputs[0]
    if any(map(is_windows, topo((source,)))):
        return True
    loop = Kernel("MAgg", source.meta.shape, (source,), (hop,), (hop,))
    return _is_local(hop) and geometry(loop, source.meta.shape, layouts) is None


def _expansion(hop: Hop, reduction: ReductionOrder) -> Hop | None:
    """Return `hop` expanded to cells; None if that takes too many operators."""
    value = _expand_by_axes(hop, reduction) or _expand_by_terms(hop, reduction)
    if value is not None and hop.op.name == "sum" and hop.meta.dtype.kind == "f":
        # NumPy starts with 0.0: no sum is -0.0.
        value = make("add", (value, const(0.0, hop.meta.dtype)), hop.line)
    return value


def _expand_by_axes(hop: Hop, reduction: ReductionOrder) -> Hop | None:
    """Return the aggregate of whole windows, axis by axis: several windows reuse a partial result."""
    source = _as_windows(hop.inputs[0])
    if source is None or len(reduction.axes) == 1 and reduction.lengths[0] > MAX_TERMS or \
            sum(reduction.lengths) > MAX_CELLS:
        return None
    base, along = source.inputs[0], source.attr("axis")
    exact = hop.op.name not in ("sum", "prod") or hop.meta.dtype.kind not in "fc"
    windows = tuple(range(base.meta.ndim, source.meta.ndim))
    if hop.attr("axis") != windows or len(set(along)) < len(along) or \
            not exact and not (len(reduction.axes) == 1 or len(reduction.axes) == 2 and reduction.run == 1):
        return None
    value = base
    for at, (axis, n) in enumerate(zip(reduction.axes, reduction.lengths, strict=True)):
        over = along[axis - base.meta.ndim]
        terms = [shifted_slice(value, over, i, n, hop) for i in range(n)]
        value = _pairwise(hop, terms) if at < reduction.run else _sequential(hop, terms)
    return value


def _as_windows(source: Hop) -> Hop | None:
    """Return `source` as windows over a value, with a cast moved inside; None if it is something else."""
    if source.op.name == "cast" and is_windows(source.inputs[0]):
        inner = source.inputs[0]
        whole = make("cast", inner.inputs, source.line, **dict(source.attrs))
        return make("windows", (whole,), source.line, **dict(inner.attrs))
    return source if is_windows(source) else None


def _expand_by_terms(hop: Hop, reduction: ReductionOrder) -> Hop | None:
    count = prod(reduction.lengths)
    if count > MAX_TERMS or count * (1 + len(ElementPicker().cells(hop.inputs[0]) or ())) > MAX_CELLS:
        return None
    terms: list[Hop] = []
    axes = hop.attr("axis")
    for position in product(*[range(n) for n in reversed(reduction.lengths)]):
        indices = dict.fromkeys(axes, 0) | dict(zip(reversed(reduction.axes), position, strict=True))
        terms.append(ElementPicker().pick(hop.inputs[0], indices))
    size = prod(reduction.lengths[:reduction.run])
    if reduction.run:
        terms = [_pairwise(hop, terms[i:i + size]) for i in range(0, count, size)]
    return _sequential(hop, terms)


def _sequential(hop: Hop, terms: Sequence[Hop]) -> Hop:
    return reduce(lambda x, y: make(CELL_OF_REDUCTION[hop.op.name], (x, y), hop.line), terms)


def _pairwise(hop: Hop, terms: Sequence[Hop]) -> Hop:
    """Return a sum of at most 128 terms in the order of NumPy's pairwise summation."""
    if len(terms) < PAIRWISE_LANES:
        return _sequential(hop, terms)
    even = len(terms) - len(terms) % PAIRWISE_LANES
    lanes = [_sequential(hop, terms[i:even:PAIRWISE_LANES]) for i in range(PAIRWISE_LANES)]
    while len(lanes) > 1:
        lanes = [_sequential(hop, lanes[i:i + 2]) for i in range(0, len(lanes), 2)]
    return _sequential(hop, [lanes[0], *terms[even:]])
