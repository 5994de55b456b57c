"""Memory layouts of operands and results, as NumPy chooses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jitla.hops import Hop, Kind, RingWidths, Shape, is_roll_of_ring, topo

Strides = tuple[int, ...]


class Layout(NamedTuple):
    """Shape and byte strides of one array."""

    shape: Shape
    strides: Strides


@lru_cache(maxsize=4096)
def contiguous(shape: Shape, itemsize: int) -> Layout:
    """Return the layout of a new C-ordered array; NumPy gives an array without elements zero strides."""
    return ordered_layout(shape, itemsize, range(len(shape) - 1, -1, -1))


def ordered_layout(shape: Shape, itemsize: int, inner_first: Sequence[int]) -> Layout:
    """Return the layout of a new array with its axes in the memory order given, innermost first."""
    if 0 in shape:
        return Layout(shape, (0,) * len(shape))
    strides = [0] * len(shape)
    step = itemsize
    for axis in inner_first:
        strides[axis] = step
        step *= shape[axis]
    return Layout(shape, tuple(strides))


def layout_like(shape: Shape, itemsize: int, strides: Strides) -> Layout:
    """Return the layout of a new array whose axes have the memory order of one with these strides."""
    return ordered_layout(shape, itemsize, axis_order([strides], len(shape)))


def is_c_contiguous(shape: Shape, strides: Strides, itemsize: int) -> bool:
    """Return whether NumPy would flag the array C-contiguous (dimensions of length 1 do not count)."""
    step = itemsize
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1:
            if s != step and n != 0 and 0 not in shape:
                return False
            step *= n
    return True


def is_f_contiguous(shape: Shape, strides: Strides, itemsize: int) -> bool:
    """Return whether NumPy would flag the array Fortran-contiguous."""
    return is_c_contiguous(shape[::-1], strides[::-1], itemsize)


def broadcast_strides(shape: Shape, layout: Layout) -> Strides:
    """Return the strides of an operand broadcast to `shape`: 0 where it has length 1 or no such axis."""
    short, strides = layout
    if short == shape and 1 not in shape:
        return strides
    missing = len(shape) - len(short)
    return (0,) * missing + tuple(0 if n == 1 else s for n, s in zip(short, strides, strict=True))


def axis_order(operands: Sequence[Strides], ndim: int) -> list[int]:
    """Return the axes, innermost first, in the order in which NumPy's iterator visits `operands` (order "K").

    A stable insertion sort from the smallest stride to the largest. Operands with stride 0 along one of two
    axes do not count for these; where operands disagree, C order wins; a pair for which no operand counts
    leaves the position to pairs further in.
    """
    order = list(range(ndim - 1, -1, -1))
    for start in range(1, ndim):
        axis = order[start]
        position = start
        for other in range(start - 1, -1, -1):
            swap = _is_inner(operands, axis, order[other])
            if swap is None:
                continue
            if not swap:
                break
            position = other
        if position != start:
            del order[start]
            order.insert(position, axis)
    return order


def _is_inner(operands: Sequence[Strides], axis: int, other: int) -> bool | None:
    """Return whether `axis` belongs inside `other`; None if no operand has strides along both."""
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
    """Return the layout of a new element-wise result; `operands` are (layout, itemsize) of the arrays.

    0-d operands may be left out. `ufunc` is False for functions without the ufuncs' trivial loop.
    """
    if len(shape) < 2 or 0 in shape:
        return contiguous(shape, itemsize)
    if ufunc:
        common = _common_order(shape, operands)
        if common is not None:
            return contiguous(shape, itemsize) if common == "C" else _fortran_layout(shape, itemsize)
    order = axis_order([broadcast_strides(shape, layout) for layout, _ in operands], len(shape))
    return ordered_layout(shape, itemsize, order)


def _common_order(shape: Shape, operands: Sequence[tuple[Layout, int]]) -> str | None:
    """Return the order of the result if all operands have it: the ufunc machinery then skips the iterator."""
    arrays = [(layout, size) for layout, size in operands if layout.shape != ()]
    if any(layout.shape != shape for layout, _ in arrays):
        return None
    if all(is_c_contiguous(*layout, size) for layout, size in arrays):
        return "C"
    return "F" if all(is_f_contiguous(*layout, size) for layout, size in arrays) else None


def _fortran_layout(shape: Shape, itemsize: int) -> Layout:
    return ordered_layout(shape, itemsize, range(len(shape)))


def cast_layout(shape: Shape, itemsize: int, source: Layout, source_size: int) -> Layout:
    """Return the layout of ``astype(order="K")``: axes by falling absolute stride, ties in C order."""
    strides = source.strides
    if len(shape) < 2 or 0 in shape or is_c_contiguous(shape, strides, source_size):
        return contiguous(shape, itemsize)
    if is_f_contiguous(shape, strides, source_size):
        return _fortran_layout(shape, itemsize)
    order = sorted(range(len(shape)), key=lambda i: (-abs(strides[i]), i))
    return ordered_layout(shape, itemsize, order[::-1])


def reduced_layout(
    source: Layout, itemsize: int, axis: tuple[int, ...], keepdims: bool
) -> Layout:
    """Return the layout of a new reduction of `source` over `axis`, as NumPy's iterator allocates it."""
    shape = source.shape
    kept_shape = tuple(1 if i in axis else n for i, n in enumerate(shape))
    if len(shape) < 2:
        full = contiguous(kept_shape, itemsize)
    else:
        own = broadcast_strides(shape, source)
        full = ordered_layout(kept_shape, itemsize, axis_order([own], len(shape)))
    if keepdims:
        return full
    kept_axes = [i for i in range(len(shape)) if i not in axis]
    return Layout(tuple(shape[i] for i in kept_axes), tuple(full.strides[i] for i in kept_axes))


VIEW_OPS = frozenset({
    "transpose", "reshape", "ravel", "broadcast_to", "expand_dims", "squeeze", "flip", "getitem",
    "diagonal", "part", "windows",
})
# Reductions by calls, with approximate layouts: programs compare before relying on them.
_REDUCTION_CALLS = frozenset({"mean", "var", "std"})


def is_view(hop: Hop) -> bool:
    """Return whether the result may share memory with the first operand."""
    return hop.op.name in VIEW_OPS or is_roll_of_ring(hop)


def has_exact_layout(hop: Hop) -> bool:
    """Return whether `hop_layout` is exact for `hop`."""
    return hop.op.kind is not Kind.CALL or is_view(hop) or len(hop.meta.shape) < 2


def layout_operands(hop: Hop) -> tuple[Hop, ...]:
    """Return the operands whose layouts NumPy considers: ufuncs and reductions cast while they read."""
    if hop.op.kind not in (Kind.CELL, Kind.AGG) or hop.op.name == "cast":
        return hop.inputs
    return tuple(i.inputs[0] if i.op.name == "cast" else i for i in hop.inputs)


def hop_layout(
    hop: Hop, shape: Shape, attrs: Mapping[str, Any], sources: Sequence[Layout]
) -> Layout:
    """Return the layout of `hop`, bound to `shape` and `attrs`, given those of its `layout_operands`."""
    size = hop.meta.dtype.itemsize
    sizes = [h.meta.dtype.itemsize for h in layout_operands(hop)]
    name = hop.op.name
    if name == "ring":
        return _ring_layout(shape, size, attrs["widths"], sources[0])
    if hop.op.kind is Kind.CELL:
        # a cast to the same dtype replaces a ufunc, with its result's layout
        if name == "cast" and hop.inputs[0].meta.dtype != hop.meta.dtype:
            return cast_layout(shape, size, sources[0], sizes[0])
        return result_layout(shape, size, list(zip(sources, sizes, strict=True)), ufunc=name != "where")
    if hop.op.kind is Kind.AGG or name in _REDUCTION_CALLS:
        return reduced_layout(sources[0], size, attrs["axis"], attrs["keepdims"])
    if name == "norm" and attrs["axis"] is not None:
        return reduced_layout(sources[0], size, attrs["axis"], attrs["keepdims"])
    if name == "matmul" and len(shape) > 2:
        return _stack_layout(shape, size, sources)
    if name == "einsum" and len(shape) > 1:
        return _einsum_layout(hop, shape, attrs, sources)
    if name == "roll":
        if is_roll_of_ring(hop):
            return Layout(shape, sources[0].strides)
        return cast_layout(shape, size, sources[0], size)
    if name == "take" and "axes" in attrs:
        return ordered_layout(shape, size, attrs["axes"][::-1])
    if name == "pad":
        return _pad_layout(shape, size, sources[0], sizes[0])
    if name == "part":
        return Layout(shape, sources[0].strides)
    if name in VIEW_OPS:
        return _view_layout(hop, attrs, sources[0])
    if name in ("cumsum", "cumprod") and attrs["axis"] is not None:
        return result_layout(shape, size, [(sources[0], sizes[0])], ufunc=False)
    return contiguous(shape, size)


def _view_layout(hop: Hop, attrs: Mapping[str, Any], source: Layout) -> Layout:
    """Return the layout of a view, from NumPy, by way of an array without memory behind it."""
    base = as_strided(np.empty(1, hop.inputs[0].meta.dtype), *source)
    if hop.op.name in ("reshape", "ravel"):
        shape = attrs["shape"] if hop.op.name == "reshape" else (base.size,)
        try:
            view = np.reshape(base, shape, copy=False)
        except ValueError:
            return contiguous(shape, base.itemsize)
        return Layout(shape, view.strides)
    view = hop.op.ref(base, **attrs) if source.shape or hop.meta.shape else base
    return Layout(view.shape, view.strides) if isinstance(view, np.ndarray) else Layout((), ())


def _stack_layout(shape: Shape, size: int, sources: Sequence[Layout]) -> Layout:
    """Return the layout of products of matrices in C order, stacked in the order of the operands' axes."""
    batch = shape[:max(len(s.shape) for s in sources) - 2]
    strides = [broadcast_strides(batch, Layout(s.shape[:-2], s.strides[:-2])) for s in sources]
    order = axis_order(strides, len(batch))
    return ordered_layout(shape, size, [*range(len(shape) - 1, len(batch) - 1, -1), *order])


def _pad_layout(shape: Shape, size: int, source: Layout, source_size: int) -> Layout:
    """Return the layout of a padded array: Fortran order if the operand has only that."""
    if is_f_contiguous(*source, source_size) and not is_c_contiguous(*source, source_size):
        return ordered_layout(shape, size, range(len(shape)))
    return contiguous(shape, size)


def _ring_layout(shape: Shape, size: int, widths: RingWidths, source: Layout) -> Layout:
    """Return the layout of a copy inside its edges, in the order in which NumPy copies."""
    copy = cast_layout(shape, size, source, size)
    inner_first = sorted(range(len(shape)), key=lambda a: (copy.strides[a], -a))
    whole = tuple(n + sum(pair) for n, pair in zip(shape, widths, strict=True))
    return Layout(shape, ordered_layout(whole, size, inner_first).strides)


def _einsum_layout(hop: Hop, shape: Shape, attrs: Mapping[str, Any], sources: Sequence[Layout]) -> Layout:
    """Return the layout of an einsum, by running NumPy's on small arrays with the same axis orders."""
    small = []
    for layout in sources:
        inner_first = sorted(range(len(layout.shape)), key=lambda a: abs(layout.strides[a]))
        strides, step = [0] * len(inner_first), 8
        for a in inner_first:
            if layout.strides[a]:
                strides[a], step = step, step * min(layout.shape[a], 2)
        memory = np.empty(step // 8)
        small.append(as_strided(memory, tuple(min(n, 2) for n in layout.shape), tuple(strides)))
    result = hop.op.ref(*small, **attrs)
    order = sorted(range(len(shape)), key=lambda a: -result.strides[a])
    strides, step = [0] * len(shape), hop.meta.dtype.itemsize
    for a in reversed(order):
        strides[a], step = step, step * shape[a]
    return Layout(shape, tuple(strides))


def all_layouts(roots: Sequence[Hop], leaves: Mapping[int, Layout]) -> dict[Hop, Layout]:
    """Return the layout of every value below `roots`; array leaves not in `leaves` are C-ordered."""
    layouts: dict[Hop, Layout] = {}
    for hop in topo(roots):
        shape = hop.meta.shape
        if shape == ():
            layouts[hop] = Layout((), ())
        elif hop.op.kind is Kind.LEAF:
            layout = leaves.get(hop.attr("slot"))
            layouts[hop] = layout or contiguous(shape, hop.meta.dtype.itemsize)
        else:
            layouts[hop] = hop_layout(hop, shape, dict(hop.attrs), [layouts[i] for i in layout_operands(hop)])
    return layouts
