"""Iteration spaces of kernels in memory order, and the costs at the ends of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from jitla.fusion.kernel import Form, Geometry, Kernel, gather_tables
from jitla.fusion.layout import Layout, Strides, axis_order, broadcast_strides, contiguous
from jitla.hops import Hop, Kind, Shape, flops


class Operands(NamedTuple):
    """The array operands of a kernel in launch order, and all that its geometry depends on besides layouts.

    `axis` is None without aggregates; `keepdims` has one entry per output, None for cells; `reduced` are the
    values that are aggregated, `gather_tables` the inputs that are not iterated over. With `tallies` results
    are tables.
    """

    inputs: tuple[Hop, ...]
    outputs: tuple[Hop, ...]
    sizes: tuple[int, ...]
    axis: tuple[int, ...] | None
    keepdims: tuple[bool | None, ...]
    reduced: tuple[Hop, ...]
    gather_tables: frozenset[Hop]
    tallies: bool


def operands(kernel: Kernel) -> Operands:
    """Return the array operands of `kernel`."""
    inputs = tuple(h for h in kernel.inputs if h.meta.shape != ())
    aggregates = [h for h in kernel.outputs if h.op.kind is Kind.AGG]
    return Operands(
        inputs,
        kernel.outputs,
        tuple(h.meta.dtype.itemsize for h in (*inputs, *kernel.outputs)),
        aggregates[0].attr("axis") if aggregates else None,
        tuple(h.attr("keepdims") if h.op.kind is Kind.AGG else None for h in kernel.outputs),
        tuple(dict.fromkeys(h.inputs[0] for h in aggregates)),
        gather_tables(kernel.body),
        any(h.op.kind is Kind.TALLY for h in kernel.outputs),
    )


def geometry(
    kernel: Kernel, shape: Shape, layouts: Mapping[Hop, Layout]
) -> tuple[Form, Geometry] | None:
    """Return the form and geometry of `kernel` over `shape`; None if it cannot aggregate in NumPy's order.

    `layouts` has the array inputs, the outputs, and the values that are aggregated.
    """
    return walk(operands(kernel), shape, layouts, {})


def walk(
    ops: Operands, shape: Shape, layouts: Mapping[Hop, Layout], stored: Mapping[Hop, Layout]
) -> tuple[Form, Geometry] | None:
    """Return `geometry` of operands; outputs in `stored` are written into memory with another layout."""
    if ops.axis is None and not stored and not ops.gather_tables and _is_all_c_order(ops, shape, layouts):
        flat = Geometry((prod(shape),), tuple((size,) for size in ops.sizes))
        return Form("cell", 1, "c" * len(ops.sizes)), flat
    if ops.tallies:
        return _tally_geometry(ops, shape, layouts)
    no_strides = (0,) * len(shape)
    strides = [no_strides if h in ops.gather_tables else broadcast_strides(shape, layouts[h])
               for h in ops.inputs]
    for hop, keepdims in zip(ops.outputs, ops.keepdims, strict=True):
        own = stored.get(hop) or layouts[hop]
        if keepdims is False and ops.axis is not None:
            own = _insert_unit_axes(own, ops.axis)
        strides.append(broadcast_strides(shape, own))
    if ops.axis is None:
        order = axis_order(strides, len(shape)) if len(shape) > 1 else range(len(shape))
        outer_first = [a for a in reversed(order) if shape[a] != 1]
        dims, merged = _merge_axes(shape, strides, outer_first)
        return _form("cell", dims, merged, ops), Geometry(dims, merged)
    reduced = [broadcast_strides(shape, layouts[h]) for h in ops.reduced]
    walked = _reduction_geometry(ops, shape, strides, reduced)
    return None if ops.gather_tables and walked is not None and walked[0].mode != "full" else walked


def _tally_geometry(
    ops: Operands, shape: Shape, layouts: Mapping[Hop, Layout]
) -> tuple[Form, Geometry] | None:
    """Return the geometry of sums by label over contiguous arrays, with the sizes of tables as strides."""
    for hop, size in zip(ops.inputs, ops.sizes, strict=False):
        if hop not in ops.gather_tables and layouts[hop] != contiguous(shape, size):
            return None
    letters = "".join("t" if h in ops.gather_tables else "c" for h in ops.inputs) + "t" * len(ops.outputs)
    strides: list[tuple[int, ...]] = [
        (0,) if h in ops.gather_tables else (n,) for h, n in zip(ops.inputs, ops.sizes, strict=False)]
    strides += [layouts[h].shape for h in ops.outputs]
    return Form("tally", 1, letters), Geometry(shape, tuple(strides))


def _is_all_c_order(ops: Operands, shape: Shape, layouts: Mapping[Hop, Layout]) -> bool:
    """Return whether every operand has the full shape in C order, the common case."""
    hops = (*ops.inputs, *ops.outputs)
    return all(layouts[h] == contiguous(shape, n) for h, n in zip(hops, ops.sizes, strict=True))


def _insert_unit_axes(layout: Layout, axis: tuple[int, ...]) -> Layout:
    """Return a layout with the dimensions that a reduction over `axis` dropped."""
    shape, strides = list(layout.shape), list(layout.strides)
    for a in axis:
        shape.insert(a, 1)
        strides.insert(a, 0)
    return Layout(tuple(shape), tuple(strides))


def _merge_axes(
    shape: Shape, strides: Sequence[Strides], outer_first: Sequence[int]
) -> tuple[Shape, tuple[Strides, ...]]:
    """Merge neighbouring axes that are contiguous for all operands; no axes become one of length 1."""
    if not outer_first:
        return (1,), tuple((0,) for _ in strides)
    runs = [[outer_first[0], shape[outer_first[0]]]]
    for axis in outer_first[1:]:
        last, length = runs[-1]
        n = shape[axis]
        if all(s[last] == s[axis] * n for s in strides):
            runs[-1] = [axis, length * n]
        else:
            runs.append([axis, n])
    return tuple(n for _, n in runs), tuple(tuple(s[a] for a, _ in runs) for s in strides)


def _form(mode: str, dims: Shape, strides: Sequence[Strides], ops: Operands) -> Form:
    """Return the form of merged strides; a space of one element counts as contiguous."""
    inner = ""
    for i, (own, size) in enumerate(zip(strides, ops.sizes, strict=True)):
        aggregate = i >= len(ops.inputs) and ops.keepdims[i - len(ops.inputs)] is not None
        if i < len(ops.inputs) and ops.inputs[i] in ops.gather_tables:
            inner += "t"
        elif own[-1] == size or dims == (1,) and not aggregate:
            inner += "c"
        else:
            inner += "s" if own[-1] else "b"
    return Form(mode, len(dims), inner)


def _reduction_geometry(
    ops: Operands, shape: Shape, strides: list[Strides], reduced: Sequence[Strides]
) -> tuple[Form, Geometry] | None:
    """Return form and geometry in the order in which NumPy reduces the aggregated values."""
    outer_first = _common_axis_order(shape, reduced)
    axis = ops.axis or ()
    reduced_axes = [a for a in outer_first or () if a in axis]
    if outer_first is None or not reduced_axes and max(shape, default=1) > 1:
        return None
    dims, merged = _merge_axes(shape, strides, outer_first)
    if len(reduced_axes) == len(outer_first):
        is_flat = _is_contiguous(shape, reduced, ops, outer_first)
        return _total_geometry(dims, merged, ops) if is_flat else None
    dimension = _reduced_dimension(shape, strides, outer_first, reduced_axes)
    if dimension is None:
        return None
    if dimension == len(dims) - 1:
        form = _form("rows", dims, merged, ops)
        return (form, Geometry(dims, merged)) if "s" not in form.inner[:len(ops.inputs)] else None
    first = [dimension, *(i for i in range(len(dims)) if i != dimension)]
    dims = tuple(dims[i] for i in first)
    merged = tuple(tuple(s[i] for i in first) for s in merged)
    return _form("cols", dims, merged, ops), Geometry(dims, merged)


def _is_contiguous(
    shape: Shape, reduced: Sequence[Strides], ops: Operands, outer_first: Sequence[int]
) -> bool:
    """Return whether the aggregated values are contiguous: NumPy then sums by the flat index."""
    for hop, strides in zip(ops.reduced, reduced, strict=True):
        step = hop.meta.dtype.itemsize
        for axis in reversed(outer_first):
            if strides[axis] != step:
                return False
            step *= shape[axis]
    return True


def _total_geometry(
    dims: Shape, strides: tuple[Strides, ...], ops: Operands
) -> tuple[Form, Geometry] | None:
    """Return the geometry of full reductions by flat index; results must be contiguous, inputs need not."""
    form = _form("full", dims, strides, ops)
    letters = ""
    for i, (letter, own, size) in enumerate(zip(form.inner, strides, ops.sizes, strict=True)):
        is_result = i >= len(ops.inputs)
        if is_result and ops.keepdims[i - len(ops.inputs)] is not None:
            letters += "b"
        elif letter == "t":
            letters += letter
        elif dims == (1,) or own == contiguous(dims, size).strides:
            letters += "f"
        elif is_result:
            return None
        else:
            letters += "r" if letter == "c" and not any(own[:-1]) else letter
    if len(dims) == 1 and set(letters[:len(ops.inputs)]) <= {"f", "t"}:
        letters = letters.replace("f", "c")
    return Form("full", len(dims), letters), Geometry(dims, strides)


def _common_axis_order(shape: Shape, reduced: Sequence[Strides]) -> list[int] | None:
    """Return the axes longer than 1, outermost first, in the common memory order of `reduced`, or None."""
    common: list[int] | None = None
    long = [a for a, n in enumerate(shape) if n != 1]
    for strides in reduced:
        if any(strides[a] <= 0 for a in long):
            return None
        order = [a for a in reversed(axis_order([strides], len(shape))) if shape[a] != 1]
        if common not in (None, order):
            return None
        common = order
    return common


def _reduced_dimension(
    shape: Shape, strides: Sequence[Strides], outer_first: Sequence[int], reduced_axes: Sequence[int]
) -> int | None:
    """Return the merged dimension that consists of the reduced axes; None if there is not exactly one."""
    start = outer_first.index(reduced_axes[0])
    if list(outer_first[start:start + len(reduced_axes)]) != list(reduced_axes):
        return None
    if len(_merge_axes(shape, strides, reduced_axes)[0]) != 1:
        return None
    return len(_merge_axes(shape, strides, outer_first[:start])[0]) if start else 0


ROW_START_OPERATIONS = 65.0  # additions that starting a row takes in a loop that ends at every row
VECTOR_LOOP_BYTES = 64  # of one iteration of such a loop; functions take as long for a partial vector
SCALAR_OPERATIONS = 3.0  # additions that a remaining element takes in a scalar epilogue, without functions


def iteration_space(hop: Hop) -> Shape:
    """Return the shape of the loop nest that computes `hop`."""
    return hop.inputs[0].meta.shape if hop.op.kind in (Kind.AGG, Kind.TALLY) else hop.meta.shape


def row_space(hop: Hop) -> Shape:
    """Return the iteration space of `hop` if its loop has rows with a cost at their ends, else ()."""
    space = iteration_space(hop) if hop.op.kind in (Kind.CELL, Kind.AGG) else ()
    return space if len(space) > 1 else ()


def breaks_at_rows(hop: Hop) -> bool:
    """Return whether a loop for `hop` over its `row_space` cannot continue over the ends of rows."""
    space = row_space(hop)
    return bool(space) and (_reduces(hop, space) or _broadcasts(hop, space))


def _reduces(hop: Hop, space: Shape) -> bool:
    return hop.op.kind is Kind.AGG and len(hop.attr("axis")) < len(space)


def _broadcasts(hop: Hop, space: Shape) -> bool:
    return hop.op.kind is Kind.CELL and any(i.meta.shape not in (space, ()) for i in hop.inputs)


class _RowEnd(NamedTuple):
    """The effect of a hop on loops over `space`: whether they end at rows, and the seconds lost there.

    `start` is lost at every row, `remainder` by partial vectors, `scalar` where the remainder of a reduction
    is added up element by element.
    """

    space: Shape
    broadcasts: bool
    reduces: bool
    start: float
    remainder: float
    scalar: float


class RowEnds:
    """Costs at the ends of rows, where one addition per element takes `unit` seconds with all threads."""

    def __init__(self, unit: float) -> None:
        self._unit = unit
        self._memo: dict[Hop, _RowEnd] = {}

    def row_end_seconds(self, hops: Iterable[Hop], as_stages: bool = False) -> float:
        """Return the seconds that loops over `hops` lose; `as_stages`: reductions may be loops of their own.

        A loop restarts at every row if it broadcasts an array, twice if it also reduces rows. The remainder
        of a row costs functions one more vector, and other reductions single elements. More hops never lose
        less: lower bounds depend on it.
        """
        seconds = 0.0
        by_space: dict[Shape, list[tuple[Hop, _RowEnd]]] = {}
        for hop in hops:
            end = self._memo.get(hop) or self._end(hop)
            if end.space:
                by_space.setdefault(end.space, []).append((hop, end))
        for hop_ends in by_space.values():
            reduces = broadcasts = False
            for _, e in hop_ends:
                reduces |= e.reduces
                broadcasts |= e.broadcasts
            if not reduces and not broadcasts:
                continue
            starts = 1.0 if broadcasts else 0.0
            for loop in _dependent_groups(hop_ends) if reduces else ():
                if any([e.reduces for e in loop]):
                    seconds += sum([e.scalar for e in loop])
                    if any([e.broadcasts for e in loop]) and not as_stages:
                        starts = 2.0
            seconds += starts * hop_ends[0][1].start + sum([e.remainder for _, e in hop_ends])
        return seconds

    def _end(self, hop: Hop) -> _RowEnd:
        space = row_space(hop)
        if not space:
            end = _RowEnd((), False, False, 0.0, 0.0, 0.0)
        else:
            rows, length = prod(space[:-1]), space[-1]
            vector = max(VECTOR_LOOP_BYTES // hop.meta.dtype.itemsize, 1)
            remaining = length % vector
            remainder = 0.0
            if remaining and hop.op.transcendental:
                remainder = flops(hop) / max(length, 1) * (vector - remaining)
            scalar = 0.0 if hop.op.transcendental else SCALAR_OPERATIONS * remaining * rows
            end = _RowEnd(space, _broadcasts(hop, space), _reduces(hop, space), *(
                n * self._unit for n in (ROW_START_OPERATIONS * rows, remainder, scalar)))
        self._memo[hop] = end
        return end


def _dependent_groups(hop_ends: Iterable[tuple[Hop, _RowEnd]]) -> list[list[_RowEnd]]:
    """Return the row ends of one space's hops, operands first, grouped by data dependence."""
    groups: list[list[_RowEnd]] = []
    group_of: dict[Hop, int] = {}
    for hop, end in hop_ends:
        merged = sorted({group_of[i] for i in hop.inputs if i in group_of})
        group_of[hop] = len(groups)
        groups.append([end])
        for group in merged:
            groups[-1] += groups[group]
            groups[group] = []
        if merged:
            for h, group in group_of.items():
                if group in merged:
                    group_of[h] = len(groups) - 1
    return [ends for ends in groups if ends]
