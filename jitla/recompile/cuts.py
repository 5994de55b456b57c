"""Blocks of rows: how many rows make one, and what a product does with one.

Knows: caches, layouts of a block's operands. Must not know: machine code, where operands are.
Receives products and the layouts of a block; returns numbers of rows, sizes, `Tile` records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from jitla.fusion import ALONE, NARROW, PAIRS, Kernel, Layout, Product, RowKernel, Tile, contiguous
from jitla.hops import Hop, Shape

LINE = 64
BYTES_PER_NS, FLOPS_PER_NS = 10.0, 20.0


def columns_of(shape: Shape) -> int:
    """Return how many vectors a value of `shape` is."""
    return shape[1] if len(shape) > 1 else 1


def wide_tile(stage: Product, rows: int, layouts: Mapping[Hop, Layout]) -> Tile | None:
    """Return a product in panels on `rows` rows: rows of results, or a sum; None if results lie otherwise."""
    matrix, vector, result = (layouts[h] for h in (stage.matrix, stage.vector, stage.hop))
    if result != contiguous(result.shape, stage.hop.meta.dtype.itemsize) or not _in_one_run(matrix):
        return None
    across, along = _axes(stage)
    sizes = _all_rows(rows, matrix), matrix.shape[along]
    steps = matrix.strides[across], matrix.strides[along]
    adds = int(stage.form == "sum")
    if adds:
        sizes, steps = sizes[::-1], steps[::-1]
    return Tile(
        sizes[0], sizes[1], vector.shape[1], steps[0], steps[1], vector.strides[0], vector.strides[1],
        result.strides[-2], adds, int(mirrored(stage)))


def mirrored(stage: Product) -> bool:
    """Tell whether a sum is the same above and below its diagonal: of rows with themselves."""
    return stage.form == "sum" and stage.wide and stage.matrix is stage.vector


def narrow_sizes(
    stage: Product, rows: int, layouts: Mapping[Hop, Layout], packed: bool, upright: bool = False
) -> tuple[int, int, int, int] | None:
    """Return rows, their length, bytes apart, and bytes from vector to vector; None if they lie otherwise.

    The columns of a matrix that lies column by column are counted as rows. The results may lie `upright`.
    """
    matrix, vector, made = (layouts[h] for h in (stage.matrix, stage.vector, stage.hop))
    across, along = _axes(stage)[::-1 if stage.columnwise else 1]
    size, result = stage.matrix.meta.dtype.itemsize, stage.hop.meta.dtype.itemsize
    if stage.form in ALONE:
        vector = contiguous((1,), size)
    if matrix.strides[along] != size or matrix.strides[across] < 0 or not _in_one_run(matrix):
        return None
    if packed:
        vector = contiguous(vector.shape, size)
    apart = vector.strides[0]
    if size != (vector.strides[-1] if columns_of(vector.shape) > 1 else apart):
        return None
    if not upright and made != contiguous(made.shape, result):
        return None
    count = matrix.shape[across] if stage.columnwise else _all_rows(rows, matrix)
    return count, matrix.shape[along], matrix.strides[across], apart


def _axes(stage: Product) -> tuple[int, int]:
    """Return across which axis of the matrix its rows follow each other, and along which they lie."""
    return (1, 0) if stage.turned else (-2, -1)


def _all_rows(rows: int, matrix: Layout) -> int:
    """Return how many rows `rows` matrices of a stack have; of a matrix, one is one."""
    return rows * prod(matrix.shape[1:-1])


def _in_one_run(matrix: Layout) -> bool:
    """Tell whether the rows of all matrices of a stack lie one after the other."""
    shape, strides = matrix
    return all(s == n * t for s, n, t in zip(strides, shape[1:-1], strides[1:-1], strict=False))


def is_wide(stage: object, shapes: Mapping[Shape, Shape]) -> bool:
    """Tell whether rows meet more vectors than stay in registers, in the sizes bound."""
    return isinstance(stage, Product) and stage.form not in (*ALONE, PAIRS) and not stage.compressed and \
        columns_of(shapes[stage.vector.meta.shape]) > NARROW


def turns_last(kernel: RowKernel) -> list[Kernel | Product]:
    """Return the stages, those that are run in turn behind all that do not wait for what they make."""
    free: list[Kernel | Product] = []
    behind: list[Kernel | Product] = []
    late: set[Hop] = set(kernel.in_turn)
    for stage in kernel.stages:
        for view in kernel.views:
            if view.inputs[0] in late:
                late.add(view)
        if late.intersection((*stage.inputs, *stage.outputs)):
            late.update(stage.outputs)
            behind.append(stage)
        else:
            free.append(stage)
    return free + behind


def padded(size: int) -> int:
    """Return `size` rounded up to whole cache lines, and one more between neighbours."""
    return size + -size % LINE + LINE


def nanoseconds(
    kernel: RowKernel, arrays: Iterable[Hop], shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout]
) -> float:
    """Estimate one thread's time for a row kernel that reads and writes `arrays`."""
    moved = sum(prod(places[h].shape) * h.meta.dtype.itemsize for h in arrays if h.meta.shape)
    work = sum(_flops(s, shapes) for s in kernel.stages if isinstance(s, Product))
    return max(moved / BYTES_PER_NS, work / FLOPS_PER_NS)


def _flops(stage: Product, shapes: Mapping[Shape, Shape]) -> int:
    """Return the additions and multiplications of a product."""
    if stage.form == PAIRS:
        return 2 * prod(shapes[stage.hop.meta.shape]) * shapes[stage.matrix.meta.shape][-1]
    columns = 1 if stage.form in ALONE else columns_of(shapes[stage.vector.meta.shape])
    return 2 * prod(shapes[stage.matrix.meta.shape]) * columns
