"""Where the elements of an array lie: NumPy's rules for the strides of fresh results.

Knows: shapes, strides, NumPy's axis ordering. Must not know: what is computed, kernels.
Receives shapes and layouts of operands; returns layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from jitla.hops import Shape

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


def alike(shape: Shape, itemsize: int, strides: Strides) -> Layout:
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
