"""Where the elements of an array lie: NumPy's rule for result strides, and a kernel's walk over memory.

Knows: shapes, strides, NumPy's axis ordering. Must not know: what is computed, any backend.
Receives shapes and layouts; returns layouts and (Form, Geometry) pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from jitla.fusion.kernel import Form, Geometry, Kernel
from jitla.hops import Hop, Kind, Shape

Strides = tuple[int, ...]


class Layout(NamedTuple):
    """Shape and byte strides of one array."""

    shape: Shape
    strides: Strides


@lru_cache(maxsize=4096)
def contiguous(shape: Shape, itemsize: int) -> Layout:
    """Layout of a fresh C-ordered array; NumPy gives an array without elements zero strides."""
    return ordered(shape, itemsize, range(len(shape) - 1, -1, -1))


def ordered(shape: Shape, itemsize: int, inner_first: Sequence[int]) -> Layout:
    """Layout of a fresh array whose axes lie in memory in the order given, innermost first."""
    if 0 in shape:
        return Layout(shape, (0,) * len(shape))
    strides = [0] * len(shape)
    step = itemsize
    for axis in inner_first:
        strides[axis] = step
        step *= shape[axis]
    return Layout(shape, tuple(strides))


def is_c(shape: Shape, strides: Strides, itemsize: int) -> bool:
    """Tell whether NumPy would flag the array C-contiguous (dimensions of length 1 do not count)."""
    step = itemsize
    for n, s in zip(reversed(shape), reversed(strides)):
        if n != 1:
            if s != step and n != 0 and 0 not in shape:
                return False
            step *= n
    return True


def is_f(shape: Shape, strides: Strides, itemsize: int) -> bool:
    """Tell whether NumPy would flag the array Fortran-contiguous."""
    return is_c(shape[::-1], strides[::-1], itemsize)


def spread(shape: Shape, layout: Layout) -> Strides:
    """Strides of an operand broadcast to `shape`: 0 where it has length 1 or no such axis."""
    short, strides = layout
    if short == shape and 1 not in shape:
        return strides
    missing = len(shape) - len(short)
    return (0,) * missing + tuple(0 if n == 1 else s for n, s in zip(short, strides))


def axis_order(operands: Sequence[Strides], ndim: int) -> list[int]:
    """Order of the axes, innermost first, in which NumPy's iterator walks `operands` (order "K").

    A stable insertion sort from the smallest stride to the biggest. Operands that do not move along
    one of two axes have no say about them; where operands disagree, C order wins; two axes nobody
    has a say about keep looking for a better-founded place further in.
    """
    order = list(range(ndim - 1, -1, -1))
    for start in range(1, ndim):
        axis = order[start]
        place = start
        for at in range(start - 1, -1, -1):
            swap = _goes_inside(operands, axis, order[at])
            if swap is None:
                continue
            if not swap:
                break
            place = at
        if place != start:
            del order[start]
            order.insert(place, axis)
    return order


def _goes_inside(operands: Sequence[Strides], axis: int, other: int) -> bool | None:
    """Tell whether `axis` belongs inside `other`; None if no operand moves along both."""
    swap: bool | None = None
    for strides in operands:
        a, b = abs(strides[axis]), abs(strides[other])
        if a and b:
            if b <= a:
                return False
            swap = True
    return swap


def result_layout(
    shape: Shape, itemsize: int, operands: Sequence[tuple[Layout, int]], ufunc: bool = True
) -> Layout:
    """Layout NumPy gives a fresh element-wise result; `operands` are (layout, itemsize) of the arrays.

    0-d operands may be left out. `ufunc` is False for functions without the ufunc's short cut.
    """
    if len(shape) < 2 or 0 in shape:
        return contiguous(shape, itemsize)
    if ufunc:
        fast = _without_iterator(shape, operands)
        if fast is not None:
            return contiguous(shape, itemsize) if fast == "C" else _fortran(shape, itemsize)
    order = axis_order([spread(shape, layout) for layout, _ in operands], len(shape))
    return ordered(shape, itemsize, order)


def _without_iterator(shape: Shape, operands: Sequence[tuple[Layout, int]]) -> str | None:
    """Order of the result where all operands are alike: the ufunc machinery then skips the iterator."""
    arrays = [(layout, size) for layout, size in operands if layout.shape != ()]
    if any(layout.shape != shape for layout, _ in arrays):
        return None
    if all(is_c(*layout, size) for layout, size in arrays):
        return "C"
    return "F" if all(is_f(*layout, size) for layout, size in arrays) else None


def _fortran(shape: Shape, itemsize: int) -> Layout:
    return ordered(shape, itemsize, range(len(shape)))


def cast_layout(shape: Shape, itemsize: int, source: Layout, source_size: int) -> Layout:
    """Layout of ``astype(order="K")``: axes by falling absolute stride, ties in C order."""
    strides = source.strides
    if len(shape) < 2 or 0 in shape or is_c(shape, strides, source_size):
        return contiguous(shape, itemsize)
    if is_f(shape, strides, source_size):
        return _fortran(shape, itemsize)
    order = sorted(range(len(shape)), key=lambda i: (-abs(strides[i]), i))
    return ordered(shape, itemsize, order[::-1])


def reduced_layout(
    source: Layout, itemsize: int, axis: tuple[int, ...], keepdims: bool
) -> Layout:
    """Layout of a fresh reduction of `source` over `axis`, as NumPy's iterator allocates it."""
    shape = source.shape
    kept = tuple(1 if i in axis else n for i, n in enumerate(shape))
    if len(shape) < 2:
        full = contiguous(kept, itemsize)
    else:
        own = spread(shape, source)
        full = ordered(kept, itemsize, axis_order([own], len(shape)))
    if keepdims:
        return full
    rest = [i for i in range(len(shape)) if i not in axis]
    return Layout(tuple(shape[i] for i in rest), tuple(full.strides[i] for i in rest))


# ------------------------------------------------------------------------------ a kernel's walk


class Operands(NamedTuple):
    """What the walk of a kernel depends on besides layouts: its array operands, in launch order.

    `axis` is None without aggregates; `keepdims` has one entry per output, None for cells;
    `reduced` are the values that are aggregated.
    """

    inputs: tuple[Hop, ...]
    outputs: tuple[Hop, ...]
    sizes: tuple[int, ...]
    axis: tuple[int, ...] | None
    keepdims: tuple[bool | None, ...]
    reduced: tuple[Hop, ...]


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
    strides = [spread(shape, layouts[h]) for h in ops.inputs]
    for hop, keepdims in zip(ops.outputs, ops.keepdims):
        own = stored.get(hop) or layouts[hop]
        if keepdims is False and ops.axis is not None:
            own = _with_ones(own, ops.axis)
        strides.append(spread(shape, own))
    if ops.axis is None:
        order = axis_order(strides, len(shape)) if len(shape) > 1 else range(len(shape))
        outer_first = [a for a in reversed(order) if shape[a] != 1]
        dims, merged = _merge(shape, strides, outer_first)
        return _form("cell", dims, merged, ops), Geometry(dims, merged)
    return _walk_aggregates(ops, shape, strides, [spread(shape, layouts[h]) for h in ops.reduced])


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
    for i, (own, size) in enumerate(zip(strides, ops.sizes)):
        aggregate = i >= len(ops.inputs) and ops.keepdims[i - len(ops.inputs)] is not None
        if own[-1] == size or dims == (1,) and not aggregate:
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
        form = _form("full", dims, merged, ops)
        alike = all(f == "c" or k is not None for f, k in zip(
            form.inner, (None,) * len(ops.inputs) + ops.keepdims))
        return (form, Geometry(dims, merged)) if len(dims) == 1 and alike else None
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
