"""Iteration spaces of kernels in memory order, and the loops at their ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from jitla.fusion.kernel import Form, Geometry, Kernel, gather_tables
from jitla.fusion.layout import Layout, Strides, axis_order, contiguous, spread
from jitla.hops import Hop, Kind, Shape, flops


class Operands(NamedTuple):
    """What the walk of a kernel depends on besides layouts: its array operands, in launch order.

    `axis` is None without aggregates; `keepdims` has one entry per output, None for cells;
    `reduced` are the values that are aggregated, `gather_tables` the inputs that are not walked. With
    `tallies` results are tables.
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
    """Return how `kernel` walks `shape`; None if its aggregates would not be NumPy's bit for bit.

    `layouts` knows the array inputs, the outputs, and the values that are aggregated.
    """
    return walk(operands(kernel), shape, layouts, {})


def walk(
    ops: Operands, shape: Shape, layouts: Mapping[Hop, Layout], stored: Mapping[Hop, Layout]
) -> tuple[Form, Geometry] | None:
    """Like `geometry`; outputs in `stored` are written into memory that lies differently."""
    if ops.axis is None and not stored and not ops.gather_tables and _all_in_order(ops, shape, layouts):
        flat = Geometry((prod(shape),), tuple((size,) for size in ops.sizes))
        return Form("cell", 1, "c" * len(ops.sizes)), flat
    if ops.tallies:
        return _tallied(ops, shape, layouts)
    fixed = (0,) * len(shape)
    strides = [fixed if h in ops.gather_tables else spread(shape, layouts[h]) for h in ops.inputs]
    for hop, keepdims in zip(ops.outputs, ops.keepdims, strict=True):
        own = stored.get(hop) or layouts[hop]
        if keepdims is False and ops.axis is not None:
            own = _with_ones(own, ops.axis)
        strides.append(spread(shape, own))
    if ops.axis is None:
        order = axis_order(strides, len(shape)) if len(shape) > 1 else range(len(shape))
        outer_first = [a for a in reversed(order) if shape[a] != 1]
        dims, merged = _merge(shape, strides, outer_first)
        return _form("cell", dims, merged, ops), Geometry(dims, merged)
    found = _walk_aggregates(ops, shape, strides, [spread(shape, layouts[h]) for h in ops.reduced])
    return None if ops.gather_tables and found is not None and found[0].mode != "full" else found


def _tallied(
    ops: Operands, shape: Shape, layouts: Mapping[Hop, Layout]
) -> tuple[Form, Geometry] | None:
    """Walk arrays that lie in one run; for results, tables of so many elements, these are the strides."""
    for hop, size in zip(ops.inputs, ops.sizes, strict=False):
        if hop not in ops.gather_tables and layouts[hop] != contiguous(shape, size):
            return None
    letters = "".join("t" if h in ops.gather_tables else "c" for h in ops.inputs) + "t" * len(ops.outputs)
    strides: list[tuple[int, ...]] = [
        (0,) if h in ops.gather_tables else (n,) for h, n in zip(ops.inputs, ops.sizes, strict=False)]
    strides += [layouts[h].shape for h in ops.outputs]
    return Form("tally", 1, letters), Geometry(shape, tuple(strides))


def _all_in_order(ops: Operands, shape: Shape, layouts: Mapping[Hop, Layout]) -> bool:
    """Tell the usual case: every operand has the full shape in C order."""
    hops = (*ops.inputs, *ops.outputs)
    return all(layouts[h] == contiguous(shape, n) for h, n in zip(hops, ops.sizes, strict=True))


def _with_ones(layout: Layout, axis: tuple[int, ...]) -> Layout:
    """Put the dimensions back that a reduction over `axis` dropped."""
    shape, strides = list(layout.shape), list(layout.strides)
    for a in axis:
        shape.insert(a, 1)
        strides.insert(a, 0)
    return Layout(tuple(shape), tuple(strides))


def _merge(
    shape: Shape, strides: Sequence[Strides], outer_first: Sequence[int]
) -> tuple[Shape, tuple[Strides, ...]]:
    """Join neighbouring axes that every operand walks as one; no axis at all counts as one of 1."""
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
    """Read the layout variant off the strides; a walk of one element counts as contiguous."""
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


def _walk_aggregates(
    ops: Operands, shape: Shape, strides: list[Strides], reduced: Sequence[Strides]
) -> tuple[Form, Geometry] | None:
    """Walk in the order NumPy's reduction takes the aggregated values in."""
    outer_first = _memory_order(shape, reduced)
    axis = ops.axis or ()
    inside = [a for a in outer_first or () if a in axis]
    if outer_first is None or not inside and max(shape, default=1) > 1:
        return None
    dims, merged = _merge(shape, strides, outer_first)
    if len(inside) == len(outer_first):
        return _total(dims, merged, ops) if _in_one_run(shape, reduced, ops, outer_first) else None
    at = _only_run(shape, strides, outer_first, inside)
    if at is None:
        return None
    if at == len(dims) - 1:
        form = _form("rows", dims, merged, ops)
        return (form, Geometry(dims, merged)) if "s" not in form.inner[:len(ops.inputs)] else None
    first = [at, *(i for i in range(len(dims)) if i != at)]
    dims = tuple(dims[i] for i in first)
    merged = tuple(tuple(s[i] for i in first) for s in merged)
    return _form("cols", dims, merged, ops), Geometry(dims, merged)


def _in_one_run(
    shape: Shape, reduced: Sequence[Strides], ops: Operands, outer_first: Sequence[int]
) -> bool:
    """Tell whether the aggregated values are contiguous: NumPy then takes them by the flat index."""
    for hop, strides in zip(ops.reduced, reduced, strict=True):
        step = hop.meta.dtype.itemsize
        for axis in reversed(outer_first):
            if strides[axis] != step:
                return False
            step *= shape[axis]
    return True


def _total(
    dims: Shape, strides: tuple[Strides, ...], ops: Operands
) -> tuple[Form, Geometry] | None:
    """Walk `dims` by the flat index; results have to lie in that order, the arrays read need not."""
    form = _form("full", dims, strides, ops)
    letters = ""
    for i, (letter, own, size) in enumerate(zip(form.inner, strides, ops.sizes, strict=True)):
        result = i >= len(ops.inputs)
        if result and ops.keepdims[i - len(ops.inputs)] is not None:
            letters += "b"
        elif letter == "t":
            letters += letter
        elif dims == (1,) or own == contiguous(dims, size).strides:
            letters += "f"
        elif result:
            return None
        else:
            letters += "r" if letter == "c" and not any(own[:-1]) else letter
    if len(dims) == 1 and set(letters[:len(ops.inputs)]) <= {"f", "t"}:
        letters = letters.replace("f", "c")
    return Form("full", len(dims), letters), Geometry(dims, strides)


def _memory_order(shape: Shape, reduced: Sequence[Strides]) -> list[int] | None:
    """Axes longer than 1, outermost first, as all of `reduced` lie in memory; None if they differ."""
    found: list[int] | None = None
    long = [a for a, n in enumerate(shape) if n != 1]
    for strides in reduced:
        if any(strides[a] <= 0 for a in long):
            return None
        order = [a for a in reversed(axis_order([strides], len(shape))) if shape[a] != 1]
        if found not in (None, order):
            return None
        found = order
    return found


def _only_run(
    shape: Shape, strides: Sequence[Strides], outer_first: Sequence[int], inside: Sequence[int]
) -> int | None:
    """Return which merged dimension the reduced axes `inside` make up; None if not exactly one."""
    start = outer_first.index(inside[0])
    if list(outer_first[start:start + len(inside)]) != list(inside):
        return None
    if len(_merge(shape, strides, inside)[0]) != 1:
        return None
    return len(_merge(shape, strides, outer_first[:start])[0]) if start else 0


BEGIN = 65.0  # additions that beginning a row takes in a loop that cannot run on over the end of one
STEP = 64  # bytes that such a loop handles at a time; functions take as long for a rest of them
SINGLE = 3.0  # additions that an element of the rest takes where it is handled alone, beside functions


def iteration(hop: Hop) -> Shape:
    """Return the shape a loop that computes `hop` runs over."""
    return hop.inputs[0].meta.shape if hop.op.kind in (Kind.AGG, Kind.TALLY) else hop.meta.shape


def ended(hop: Hop) -> Shape:
    """Return the space of the loops that lose something at the ends of rows with `hop`, or ()."""
    space = iteration(hop) if hop.op.kind in (Kind.CELL, Kind.AGG) else ()
    return space if len(space) > 1 else ()


def ends_rows(hop: Hop) -> bool:
    """Tell whether a loop over the `ended` space of `hop` cannot run on over the ends of rows for it."""
    space = ended(hop)
    return bool(space) and (_reduces(hop, space) or _broadcasts(hop, space))


def _reduces(hop: Hop, space: Shape) -> bool:
    return hop.op.kind is Kind.AGG and len(hop.attr("axis")) < len(space)


def _broadcasts(hop: Hop, space: Shape) -> bool:
    return hop.op.kind is Kind.CELL and any(i.meta.shape not in (space, ()) for i in hop.inputs)


class _End(NamedTuple):
    """What a hop does to loops over `space`: whether rows end them, and what is lost there by each way.

    `begin` for every row, `rest` behind whole vectors, `single` where elements of the rest are added up.
    """

    space: Shape
    broadcasts: bool
    reduces: bool
    begin: float
    rest: float
    single: float


class Ends:
    """Losses where an addition of all threads together takes `unit` seconds."""

    def __init__(self, unit: float) -> None:
        self._unit = unit
        self._known: dict[Hop, _End] = {}

    def lost(self, hops: Iterable[Hop], apart: bool = False) -> float:
        """Return the seconds that loops over `hops` lose; `apart`: what reduces may be loops of its own.

        A loop starts anew at every row if it broadcasts an array, twice if it reduces rows, too. What is
        left of a row behind whole vectors is one more vector to functions; in reductions, to others, an
        element at a time. More hops never lose less: bounds depend on it.
        """
        lost = 0.0
        found: dict[Shape, list[tuple[Hop, _End]]] = {}
        for hop in hops:
            end = self._known.get(hop) or self._end(hop)
            if end.space:
                found.setdefault(end.space, []).append((hop, end))
        for some in found.values():
            reduces = broadcasts = False
            for _, e in some:
                reduces |= e.reduces
                broadcasts |= e.broadcasts
            if not reduces and not broadcasts:
                continue
            begun = 1.0 if broadcasts else 0.0
            for loop in _linked(some) if reduces else ():
                if any([e.reduces for e in loop]):
                    lost += sum([e.single for e in loop])
                    if any([e.broadcasts for e in loop]) and not apart:
                        begun = 2.0
            lost += begun * some[0][1].begin + sum([e.rest for _, e in some])
        return lost

    def _end(self, hop: Hop) -> _End:
        space = ended(hop)
        if not space:
            found = _End((), False, False, 0.0, 0.0, 0.0)
        else:
            rows, length, whole = prod(space[:-1]), space[-1], max(STEP // hop.meta.dtype.itemsize, 1)
            left = length % whole
            more = flops(hop) / max(length, 1) * (whole - left) if left and hop.op.transcendental else 0.0
            single = 0.0 if hop.op.transcendental else SINGLE * left * rows
            found = _End(space, _broadcasts(hop, space), _reduces(hop, space), *(
                n * self._unit for n in (BEGIN * rows, more, single)))
        self._known[hop] = found
        return found


def _linked(some: Iterable[tuple[Hop, _End]]) -> list[list[_End]]:
    """Put together what hops of one space, operands first, have at the ends of rows, if some read others."""
    parts: list[list[_End]] = []
    at: dict[Hop, int] = {}
    for hop, end in some:
        mine = sorted({at[i] for i in hop.inputs if i in at})
        at[hop] = len(parts)
        parts.append([end])
        for part in mine:
            parts[-1] += parts[part]
            parts[part] = []
        if mine:
            for h, part in at.items():
                if part in mine:
                    at[h] = len(parts) - 1
    return [ends for ends in parts if ends]
