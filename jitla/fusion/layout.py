"""Memory layouts of operands and results."""

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


def layout_like(shape: Shape, itemsize: int, strides: Strides) -> Layout:
    """Layout of a fresh array whose axes lie in the order of one with these strides."""
    return ordered(shape, itemsize, axis_order([strides], len(shape)))


def is_c(shape: Shape, strides: Strides, itemsize: int) -> bool:
    """Tell whether NumPy would flag the array C-contiguous (dimensions of length 1 do not count)."""
    step = itemsize
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
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
    return (0,) * missing + tuple(0 if n == 1 else s for n, s in zip(short, strides, strict=True))


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


VIEWS = frozenset({
    "transpose", "reshape", "ravel", "broadcast_to", "expand_dims", "squeeze", "flip", "getitem",
    "diagonal", "part", "windows",
})
# Fresh results whose layout is not followed exactly; the runner compares before relying on it.
_LIKE_A_SUM = frozenset({"mean", "var", "std"})


def is_view(hop: Hop) -> bool:
    """Tell whether the result may share memory with the first operand."""
    return hop.op.name in VIEWS or is_roll_of_ring(hop)


def has_exact_layout(hop: Hop) -> bool:
    """Tell whether `hop_layout` is exact for `hop`."""
    return hop.op.kind is not Kind.CALL or is_view(hop) or len(hop.meta.shape) < 2


def layout_operands(hop: Hop) -> tuple[Hop, ...]:
    """Return the operands whose layouts NumPy looks at: ufuncs and reductions cast while they read."""
    if hop.op.kind not in (Kind.CELL, Kind.AGG) or hop.op.name == "cast":
        return hop.inputs
    return tuple(i.inputs[0] if i.op.name == "cast" else i for i in hop.inputs)


def hop_layout(
    hop: Hop, shape: Shape, attrs: Mapping[str, Any], sources: Sequence[Layout]
) -> Layout:
    """Return the layout of `hop`, bound to `shape` and `attrs`; its `layout_operands` lie as `sources`."""
    size = hop.meta.dtype.itemsize
    sizes = [h.meta.dtype.itemsize for h in layout_operands(hop)]
    name = hop.op.name
    if name == "ring":
        return _ring(shape, size, attrs["widths"], sources[0])
    if hop.op.kind is Kind.CELL:
        # a cast to the same dtype is a copy that stands for a ufunc whose result it is
        if name == "cast" and hop.inputs[0].meta.dtype != hop.meta.dtype:
            return cast_layout(shape, size, sources[0], sizes[0])
        return result_layout(shape, size, list(zip(sources, sizes, strict=True)), ufunc=name != "where")
    if hop.op.kind is Kind.AGG or name in _LIKE_A_SUM:
        return reduced_layout(sources[0], size, attrs["axis"], attrs["keepdims"])
    if name == "norm" and attrs["axis"] is not None:
        return reduced_layout(sources[0], size, attrs["axis"], attrs["keepdims"])
    if name == "matmul" and len(shape) > 2:
        return _stacked(shape, size, sources)
    if name == "einsum" and len(shape) > 1:
        return _einsum(hop, shape, attrs, sources)
    if name == "roll":
        if is_roll_of_ring(hop):
            return Layout(shape, sources[0].strides)
        return cast_layout(shape, size, sources[0], size)
    if name == "take" and "axes" in attrs:
        return ordered(shape, size, attrs["axes"][::-1])
    if name == "pad":
        return _padded(shape, size, sources[0], sizes[0])
    if name == "part":
        return Layout(shape, sources[0].strides)
    if name in VIEWS:
        return _view(hop, attrs, sources[0])
    if name in ("cumsum", "cumprod") and attrs["axis"] is not None:
        return result_layout(shape, size, [(sources[0], sizes[0])], ufunc=False)
    return contiguous(shape, size)


def _view(hop: Hop, attrs: Mapping[str, Any], source: Layout) -> Layout:
    """Ask NumPy for the strides, on an array that has no memory behind it."""
    ghost = as_strided(np.empty(1, hop.inputs[0].meta.dtype), *source)
    if hop.op.name in ("reshape", "ravel"):
        shape = attrs["shape"] if hop.op.name == "reshape" else (ghost.size,)
        try:
            view = np.reshape(ghost, shape, copy=False)
        except ValueError:
            return contiguous(shape, ghost.itemsize)
        return Layout(shape, view.strides)
    view = hop.op.ref(ghost, **attrs) if source.shape or hop.meta.shape else ghost
    return Layout(view.shape, view.strides) if isinstance(view, np.ndarray) else Layout((), ())


def _stacked(shape: Shape, size: int, sources: Sequence[Layout]) -> Layout:
    """Return the layout of products of matrices in C order, stacked in the order of the operands' axes."""
    batch = shape[:max(len(s.shape) for s in sources) - 2]
    order = axis_order([spread(batch, Layout(s.shape[:-2], s.strides[:-2])) for s in sources], len(batch))
    return ordered(shape, size, [*range(len(shape) - 1, len(batch) - 1, -1), *order])


def _padded(shape: Shape, size: int, source: Layout, source_size: int) -> Layout:
    """Return the layout of an array with zeros around: Fortran's order if only that is the operand's."""
    if is_f(*source, source_size) and not is_c(*source, source_size):
        return ordered(shape, size, range(len(shape)))
    return contiguous(shape, size)


def _ring(shape: Shape, size: int, widths: RingWidths, source: Layout) -> Layout:
    """Return the layout of a copy inside its edges, in the order in which NumPy copies."""
    copy = cast_layout(shape, size, source, size)
    inner_first = sorted(range(len(shape)), key=lambda a: (copy.strides[a], -a))
    whole = tuple(n + sum(pair) for n, pair in zip(shape, widths, strict=True))
    return Layout(shape, ordered(whole, size, inner_first).strides)


def _einsum(hop: Hop, shape: Shape, attrs: Mapping[str, Any], sources: Sequence[Layout]) -> Layout:
    """Ask NumPy for the order of the axes, of small arrays that lie alike."""
    small = []
    for layout in sources:
        inner_first = sorted(range(len(layout.shape)), key=lambda a: abs(layout.strides[a]))
        strides, step = [0] * len(inner_first), 8
        for a in inner_first:
            if layout.strides[a]:
                strides[a], step = step, step * min(layout.shape[a], 2)
        memory = np.empty(step // 8)
        small.append(as_strided(memory, tuple(min(n, 2) for n in layout.shape), tuple(strides)))
    found = hop.op.ref(*small, **attrs)
    order = sorted(range(len(shape)), key=lambda a: -found.strides[a])
    strides, step = [0] * len(shape), hop.meta.dtype.itemsize
    for a in reversed(order):
        strides[a], step = step, step * shape[a]
    return Layout(shape, tuple(strides))


def all_layouts(roots: Sequence[Hop], leaves: Mapping[int, Layout]) -> dict[Hop, Layout]:
    """Return the layout of every value below `roots`; array leaves not in `leaves` are C-ordered."""
    found: dict[Hop, Layout] = {}
    for hop in topo(roots):
        shape = hop.meta.shape
        if shape == ():
            found[hop] = Layout((), ())
        elif hop.op.kind is Kind.LEAF:
            given = leaves.get(hop.attr("slot"))
            found[hop] = given or contiguous(shape, hop.meta.dtype.itemsize)
        else:
            found[hop] = hop_layout(hop, shape, dict(hop.attrs), [found[i] for i in layout_operands(hop)])
    return found
