"""How much memory a plan takes: what lies in fresh arrays at the same time, and what kernels need beside.

Knows: when values are made and last read, how row kernels use scratch memory. Must not know: prices.
Receives steps in running order; returns bytes, and at which step most are taken.

Leaves are the user's and do not count. What NumPy's own calls allocate beside their result is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod

from jitla.fusion.blocks import (
    block_height,
    blocks_per_unit,
    packs_once,
    panels_bytes,
    window_height,
)
from jitla.fusion.kernel import Product, RowKernel, Step, WindowKernel, over_rows
from jitla.fusion.results import is_view
from jitla.hops import Hop, Kind, Shape

Resize = Callable[[Shape], Shape]


def peak(
    steps: Sequence[Step], outputs: Sequence[Hop], threads: int = 1, stored: Collection[Hop] = (),
    resize: Resize = lambda shape: shape, waiting: Mapping[Hop, int] | None = None,
) -> int:
    """Return the most bytes that are taken at a time; `stored` are written into memory that exists.

    `resize` gives the shapes of the binding in question for those of the plan; `waiting` are the bytes
    of those rows of stored values that wait until what they overwrite has been read.
    """
    late = waiting or {}
    last: dict[Hop, int] = {}
    for at, step in enumerate(steps):
        last |= {owner(h): at for h in step.inputs}
    kept = {owner(h) for h in outputs}
    # a result that is asked for twice is two arrays
    live = sum(_bytes(h, resize) for h in set(outputs) for _ in range(outputs.count(h) - 1))
    most = live
    for at, step in enumerate(steps):
        live += sum(_bytes(h, resize) for h in step.outputs if h not in stored)
        beside = scratch(step, threads, resize) + sum(late.get(h, 0) for h in step.outputs)
        most = max(most, live + beside)
        read = {owner(h) for h in step.inputs}
        live -= sum(_bytes(h, resize) for h in read if last[h] == at and h not in kept)
    return most


def owner(hop: Hop) -> Hop:
    """Return the value whose memory `hop` lies in."""
    while is_view(hop):
        hop = hop.inputs[0]
    return hop


def _bytes(hop: Hop, resize: Resize) -> int:
    """Return the bytes of the array that making `hop` allocates."""
    if hop.meta.shape == () or hop.op.kind is Kind.LEAF or is_view(hop):
        return 0
    return prod(resize(hop.meta.shape)) * hop.meta.dtype.itemsize


def scratch(step: Step, threads: int, resize: Resize = lambda shape: shape) -> int:
    """Return the bytes that a step needs beside its results: the blocks and sums of a row kernel."""
    if isinstance(step, WindowKernel):
        return _windows(step, threads, resize)
    if not isinstance(step, RowKernel):
        return 0
    rows = resize(step.shape)[0] if step.stages else step.rows
    each = row_bytes(step, resize)
    wide = [s for s in step.stages if isinstance(s, Product) and s.wide]
    matrices = dict.fromkeys(s.vector for s in wide if s.form == "dot")
    panels = sum(panels_bytes(resize(h.meta.shape), h.meta.dtype.itemsize) for h in matrices)
    if not packs_once(rows, panels):
        panels = 0
    packed = panels > 0 and all(s.form == "dot" for s in wide)
    height = block_height(each, rows, bool(wide), bool(step.in_turn), packed, step.columnwise)
    sums = {s.hop for s in step.stages if isinstance(s, Product) and s.form == "sum"}
    seen = {*step.inputs, *step.outputs, *sums}
    inner = sum(_row(h, 0, resize) for s in step.stages for h in s.outputs if h not in seen)
    part = sum(prod(resize(h.meta.shape)) * h.meta.dtype.itemsize for h in sums)
    blocks = -(-rows // height)
    units = blocks if step.in_turn else -(-blocks // blocks_per_unit(blocks, each * height, part))
    return (units - 1) * part + min(threads, units) * inner * height + panels


def _windows(step: WindowKernel, threads: int, resize: Resize) -> int:
    """Return the bytes of what all threads keep between the stages of a window that slides."""
    rows, ahead, rate = resize(step.shape)[0], step.ahead(resize), step.rate
    each = sum(rate[h] * _row(h, 0, resize) for h in step.inner)
    return threads * each * (window_height(window_row(step, resize), rows, ahead) + ahead)


def window_row(kernel: WindowKernel, resize: Resize = lambda shape: shape) -> int:
    """Return the bytes of all that one row of the results is computed from, through and to."""
    given, rate = (h for h, axis in zip(kernel.inputs, kernel.axes, strict=True) if axis == 0), kernel.rate
    return sum(rate[h] * _row(h, 0, resize) for h in (*given, *kernel.inner, *kernel.outputs))


def row_bytes(kernel: RowKernel, resize: Resize = lambda shape: shape) -> int:
    """Return the bytes of one row of every value that a row kernel reads or makes by rows."""
    sums = {s.hop for s in kernel.stages if isinstance(s, Product) and s.form == "sum"}
    axes = {h: 0 for s in kernel.stages for h in s.outputs if h not in sums and not over_rows(h)}
    axes |= {h: a for h, a in zip(kernel.inputs, kernel.axes, strict=True) if a is not None}
    entries = dict.fromkeys(
        h for s in kernel.stages if isinstance(s, Product) and s.compressed for h in s.inputs[:2])
    whole = sum(prod(resize(h.meta.shape)) * h.meta.dtype.itemsize for h in entries)
    each = whole // max(resize(kernel.shape)[0], 1) if entries else 0
    return max(sum(_row(h, a, resize) for h, a in axes.items()) + each, 1)


def _row(hop: Hop, axis: int, resize: Resize) -> int:
    shape = resize(hop.meta.shape) if hop.meta.shape else ()
    return prod(n for i, n in enumerate(shape) if i != axis) * hop.meta.dtype.itemsize
