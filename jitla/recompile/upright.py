"""Which values of a block of rows lie column by column: narrow ones in which rows are searched or added up.

Knows: row kernels, the order of sums. Must not know: blocks, machine code.
Receives a row kernel with its sizes; returns hops.

A product writes such rows, cells read and write them, and what is left of each row is the extreme, or the
sum of so few elements that NumPy adds them one after the other. So loops go over many rows, however short
they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from jitla.fusion import EXTREMES, NARROW, PAIRS, Kernel, Product, RowKernel, over_rows
from jitla.hops import Hop, Kind, Shape

__all__ = ["upright_values"]

MOST = 32  # columns: of more, rows fill vectors
IN_ORDER = 8  # elements that NumPy adds up in several sums
_ANY_ORDER = frozenset({"min", "max", "any", "all"})


def upright_values(kernel: RowKernel, inner: Iterable[Hop], shapes: Mapping[Shape, Shape]) -> frozenset[Hop]:
    """Return those of the `inner` values, which only stages see, that are to lie column by column."""
    sizes = {h: shapes[h.meta.shape] for h in inner if h.meta.ndim == 2}
    sources = {v.inputs[0] for v in kernel.views}
    found = {h for h, shape in sizes.items() if 1 < shape[1] <= MOST and h not in sources}
    before = None
    while found and found != before:
        before = set(found)
        for stage in kernel.stages:
            touched = found.intersection((*stage.inputs, *stage.outputs))
            if touched and not _fits(stage, found.__contains__, shapes):
                found -= touched
    made = any(isinstance(s, Product) and s.hop in found for s in kernel.stages)
    used = any(_ends_rows(s) and found.intersection(s.inputs) for s in kernel.stages)
    return frozenset(found) if made and used else frozenset()


def _ends_rows(stage: Kernel | Product) -> bool:
    """Tell whether little is left of every row."""
    if isinstance(stage, Product):
        return stage.form in EXTREMES
    return any(h.op.kind is Kind.AGG for h in stage.outputs)


def _fits(stage: Kernel | Product, is_upright: Callable[[Hop], bool], shapes: Mapping[Shape, Shape]) -> bool:
    if isinstance(stage, Product):
        return _fits_product(stage, is_upright, shapes)
    return _fits_cells(stage, is_upright, shapes)


def _fits_product(stage: Product, is_upright: Callable[[Hop], bool], shapes: Mapping[Shape, Shape]) -> bool:
    if stage.form in EXTREMES:
        return stage.matrix.meta.dtype.kind == "f" and stage.hop.meta.dtype.itemsize == 8
    plain = stage.form == "dot" and not (stage.turned or stage.columnwise or stage.compressed)
    few = stage.form != PAIRS and 1 < shapes[stage.vector.meta.shape][-1] <= NARROW
    return plain and few and stage.matrix.meta.ndim == stage.vector.meta.ndim == 2 \
        and not is_upright(stage.matrix) and not is_upright(stage.vector)


def _fits_cells(stage: Kernel, is_upright: Callable[[Hop], bool], shapes: Mapping[Shape, Shape]) -> bool:
    """Tell whether all rows that the stage reads and writes lie so, and the order of sums does not change."""
    if len(stage.shape) != 2 or any(h.op.kind is Kind.TAKE for h in stage.body):
        return False
    rows, columns = shapes[stage.shape]
    for hop in stage.body:
        if hop.op.kind is Kind.AGG and (over_rows(hop) or hop.op.name not in _ANY_ORDER and not (
                hop.op.name == "sum" and columns < IN_ORDER)):
            return False
    whole = [h for h in (*stage.inputs, *stage.outputs) if h.meta.ndim == 2 and h.op.name != "const"
             and shapes[h.meta.shape] == (rows, columns)]
    return all(map(is_upright, whole))
