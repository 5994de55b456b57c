"""How the result of every operator lies in memory, found without computing it.

Knows: NumPy's layout of results, which operators return views. Must not know: plans, kernels.
Receives a hop with its bound shape and the layouts of its operands; returns a layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from jitla.fusion.layout import (
    Layout,
    axis_order,
    cast_layout,
    contiguous,
    is_c,
    is_f,
    ordered,
    reduced_layout,
    result_layout,
    spread,
)
from jitla.hops import Hop, Kind, Shape, Widths, is_turn, topo

VIEWS = frozenset({
    "transpose", "reshape", "ravel", "broadcast_to", "expand_dims", "squeeze", "flip", "getitem",
    "diagonal", "part", "windows",
})
# Fresh results whose layout is not followed exactly; the runner compares before relying on it.
_LIKE_A_SUM = frozenset({"mean", "var", "std"})


def is_view(hop: Hop) -> bool:
    """Tell whether the result may share memory with the first operand."""
    return hop.op.name in VIEWS or is_turn(hop)


def is_certain(hop: Hop) -> bool:
    """Tell whether `result_of` is exact for `hop`."""
    return hop.op.kind is not Kind.CALL or is_view(hop) or len(hop.meta.shape) < 2


def seen_operands(hop: Hop) -> tuple[Hop, ...]:
    """Return the operands whose layouts NumPy looks at: ufuncs and reductions cast while they read."""
    if hop.op.kind not in (Kind.CELL, Kind.AGG) or hop.op.name == "cast":
        return hop.inputs
    return tuple(i.inputs[0] if i.op.name == "cast" else i for i in hop.inputs)


def result_of(
    hop: Hop, shape: Shape, attrs: Mapping[str, Any], sources: Sequence[Layout]
) -> Layout:
    """Return the layout of `hop`, bound to `shape` and `attrs`; its `seen_operands` lie as `sources`."""
    size = hop.meta.dtype.itemsize
    sizes = [h.meta.dtype.itemsize for h in seen_operands(hop)]
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
        if is_turn(hop):
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


def _ring(shape: Shape, size: int, widths: Widths, source: Layout) -> Layout:
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
            found[hop] = result_of(hop, shape, dict(hop.attrs), [found[i] for i in seen_operands(hop)])
    return found
