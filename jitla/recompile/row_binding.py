"""Binding of row kernels and windows: heights of blocks, layouts of narrow ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from math import prod
from typing import Any

from jitla.fusion import (
    ARG_REDUCTIONS,
    BEFORE_BLOCKS,
    COLUMNWISE_PREFIX,
    EVERY_BLOCK,
    FIRST_BLOCK,
    FROM_PANELS,
    MAX_NARROW_COLUMNS,
    MIN_STREAMED_BYTES,
    OPERAND,
    PACK_ONLY,
    PAIRS,
    PARTIAL,
    ROWWISE_FORMS,
    SCRATCH,
    SHARED,
    Blocking,
    Combine,
    EntryShares,
    Form,
    Geometry,
    Kernel,
    Layout,
    Product,
    RowKernel,
    Schedule,
    Space,
    SparseProduct,
    Stage,
    StageOperand,
    Tile,
    Values,
    WindowKernel,
    block_height,
    blocks_per_unit,
    contiguous,
    hop_layout,
    layout_like,
    operands,
    pair_strides,
    panel_bytes,
    prepacks_panels,
    reduces_rows,
    structure_key,
    walk,
    window_height,
    window_row_bytes,
)
from jitla.hops import Hop, Kind, Meta, Shape, apply, leaf, make, sections
from jitla.recompile.schedule_choices import (
    UNTUNED,
    Made,
    Rows,
    RowTools,
    as_chosen,
    row_space,
    short_rows,
    tiles_of,
    work_of,
)

__all__ = ["upright_values"]


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
    if stage.form in ROWWISE_FORMS:
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
    return (1, 0) if stage.transposed else (-2, -1)


def _all_rows(rows: int, matrix: Layout) -> int:
    """Return how many rows `rows` matrices of a stack have; of a matrix, one is one."""
    return rows * prod(matrix.shape[1:-1])


def _in_one_run(matrix: Layout) -> bool:
    """Tell whether the rows of all matrices of a stack lie one after the other."""
    shape, strides = matrix
    return all(s == n * t for s, n, t in zip(strides, shape[1:-1], strides[1:-1], strict=False))


def is_wide(stage: object, shapes: Mapping[Shape, Shape]) -> bool:
    """Tell whether rows meet more vectors than stay in registers, in the sizes bound."""
    return isinstance(stage, Product) and stage.form not in (*ROWWISE_FORMS, PAIRS) and \
        not stage.compressed and columns_of(shapes[stage.vector.meta.shape]) > MAX_NARROW_COLUMNS


def turns_last(kernel: RowKernel) -> list[Kernel | Product]:
    """Return the stages, those that are run in turn behind all that do not wait for what they make."""
    free: list[Kernel | Product] = []
    behind: list[Kernel | Product] = []
    late: set[Hop] = set(kernel.ordered_outputs)
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
    columns = 1 if stage.form in ROWWISE_FORMS else columns_of(shapes[stage.vector.meta.shape])
    return 2 * prod(shapes[stage.matrix.meta.shape]) * columns


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
        return stage.form in ARG_REDUCTIONS
    return any(h.op.kind is Kind.AGG for h in stage.outputs)


def _fits(stage: Kernel | Product, is_upright: Callable[[Hop], bool], shapes: Mapping[Shape, Shape]) -> bool:
    if isinstance(stage, Product):
        return _fits_product(stage, is_upright, shapes)
    return _fits_cells(stage, is_upright, shapes)


def _fits_product(stage: Product, is_upright: Callable[[Hop], bool], shapes: Mapping[Shape, Shape]) -> bool:
    if stage.form in ARG_REDUCTIONS:
        return stage.matrix.meta.dtype.kind == "f" and stage.hop.meta.dtype.itemsize == 8
    plain = stage.form == "dot" and not (stage.transposed or stage.columnwise or stage.compressed)
    few = stage.form != PAIRS and 1 < shapes[stage.vector.meta.shape][-1] <= MAX_NARROW_COLUMNS
    return plain and few and stage.matrix.meta.ndim == stage.vector.meta.ndim == 2 \
        and not is_upright(stage.matrix) and not is_upright(stage.vector)


def _fits_cells(stage: Kernel, is_upright: Callable[[Hop], bool], shapes: Mapping[Shape, Shape]) -> bool:
    """Tell whether all rows that the stage reads and writes lie so, and the order of sums does not change."""
    if len(stage.shape) != 2 or any(h.op.kind is Kind.TAKE for h in stage.body):
        return False
    rows, columns = shapes[stage.shape]
    for hop in stage.body:
        if hop.op.kind is Kind.AGG and (reduces_rows(hop) or hop.op.name not in _ANY_ORDER and not (
                hop.op.name == "sum" and columns < IN_ORDER)):
            return False
    whole = [h for h in (*stage.inputs, *stage.outputs) if h.meta.ndim == 2 and h.op.name != "const"
             and shapes[h.meta.shape] == (rows, columns)]
    return all(map(is_upright, whole))


SERIAL, CROSSWISE = Schedule(threads=1), Schedule(threads=1, crosswise=True)
UNEVEN = frozenset({3, 5, 7})  # units that two threads cannot share out, where rows are short or long
COLUMNWISE = {"dot": "down", "sum": "across"}  # what a block's columns are to what its rows would be
SCATTERED = 2  # times as much as others cost results that entries are added to in no order
FETCHED = 4  # times as many columns as a row has elements: of more, rows are read too seldom to matter


class RowBinding:
    """One binding of a row kernel while its block is made."""

    def __init__(
        self, kernel: RowKernel, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout],
        tools: RowTools, chosen: Values = UNTUNED,
    ) -> None:
        self.kernel = kernel
        self.chosen = chosen
        self.shapes = shapes
        self.places = places
        self.tools = tools
        self.kept: list[Any] = []
        given = [h for h in kernel.inputs if h.op.name != "const"]
        self.axis = dict(zip(kernel.inputs, kernel.axes, strict=True))
        self.number = {h: i for i, h in enumerate((*given, *kernel.outputs))}
        self.sums = [s for s in kernel.stages if isinstance(s, Product) and s.form == "sum"]
        # sums over rows that a stage makes of every block, and another one adds up
        self.totals = [h for s in kernel.stages if isinstance(s, Kernel) for h in s.outputs
                       if reduces_rows(h) and h not in kernel.ordered_outputs]
        summed = dict.fromkeys((*(s.hop for s in self.sums), *self.totals))
        self.axis |= {h: None if h in summed or h in kernel.ordered_outputs else 0 for h in kernel.body}
        self.axis |= {h: 0 for h in kernel.views}
        self.compressed = [s for s in kernel.stages if isinstance(s, Product) and s.compressed]
        bounds = {s.inputs[2] for s in self.compressed}  # where rows begin, and the last one ends
        self.rows = next(places[h].shape[a] - (h in bounds) for h, a in self.axis.items()
                         if a is not None and h in self.number)
        self.panels, self.shared = self._panels()
        usual = self._height()
        self.height = int(chosen.get("height", usual))
        self.inner = [  # values that only stages see
            h for s in kernel.stages for h in s.outputs if h not in self.number and h not in summed]
        self.upright = upright_values(kernel, self.inner, shapes)
        if self.upright and not self._walks():
            self.upright = frozenset()
        self.packed = list(dict.fromkeys(
            s.vector for s in kernel.stages if isinstance(s, Product) and self._is_packed(s)))
        self.room: dict[Hop, int] = {}
        self.part: dict[Hop, int] = {}
        self.size = self._lay_out(summed)

    def _row_bytes(self, hop: Hop) -> int:
        shape = self.shapes[hop.meta.shape] if hop.meta.shape else ()
        axis = self.axis[hop]
        return prod(n for i, n in enumerate(shape) if i != axis) * hop.meta.dtype.itemsize

    def _is_packed(self, stage: Product) -> bool:
        """Tell whether every row needs vectors that do not lie one row after the other."""
        if stage.form != "dot" or stage.vector not in self.number or is_wide(stage, self.shapes):
            return False
        if stage.compressed:
            return False
        here = self.places[stage.vector]
        return here != contiguous(here.shape, stage.vector.meta.dtype.itemsize)

    def _panels(self) -> tuple[dict[Hop, int], int]:
        """Give wide matrices that all rows meet their places in shared memory, if they are copied there."""
        found: dict[Hop, int] = {}
        at = 0
        for stage in self.kernel.stages:
            if isinstance(stage, Product) and stage.form == "dot" and is_wide(stage, self.shapes):
                hop = stage.vector
                if hop not in found and hop in self.number and self.axis[hop] is None:
                    found[hop] = at
                    at += padded(panel_bytes(self.places[hop].shape, hop.meta.dtype.itemsize))
        return (found, at) if prepacks_panels(self.rows, at) else ({}, 0)

    def _bytes(self, hop: Hop) -> int:
        """Bytes of a value that does not lie by rows."""
        return prod(self.shapes[hop.meta.shape]) * hop.meta.dtype.itemsize

    def _height(self) -> int:
        """Return how many rows make a block."""
        values = dict.fromkeys((*self.kernel.inputs, *(h for s in self.kernel.stages for h in s.outputs)))
        entries = dict.fromkeys(h for s in self.compressed for h in s.inputs[:2])
        self.each = max(sum(self._row_bytes(h) for h in values if self.axis[h] is not None)
                        + sum(map(self._bytes, entries)) // max(self.rows, 1), 1)
        wide = any(is_wide(s, self.shapes) for s in self.kernel.stages)
        packed = all(self._in_panels(s) for s in self.kernel.stages if is_wide(s, self.shapes))
        return block_height(
            self.each, self.rows, wide, bool(self.kernel.ordered_outputs), packed, self.kernel.columnwise)

    def _walks(self) -> bool:
        """Tell whether all loops over cells can go over blocks of rows as they lie."""
        last = self.rows - (-(-self.rows // self.height) - 1) * self.height
        for rows in {self.height, last}:
            layouts = self._layouts(rows)
            for stage in self.kernel.stages:
                if isinstance(stage, Kernel) and walk(
                        operands(stage), (rows, *self.shapes[stage.shape][1:]), layouts, {}) is None:
                    return False
        return True

    def _lay_out(self, summed: Iterable[Hop]) -> int:
        """Give every value between stages its place in a thread's memory; return its bytes."""
        at = 0
        for hop in self.inner:
            self.room[hop] = at
            at += padded(self._row_bytes(hop) * self.height)
        for hop in (*self.packed, *self.totals):
            self.room[hop] = at
            at += padded(self._bytes(hop))
        offset = 0
        for hop in summed:
            self.part[hop] = offset
            offset += padded(self._bytes(hop))
        return at

    def _per_unit(self, blocks: int) -> int:
        """Return how many blocks make a unit; it must not depend on the number of threads.

        Those that are added up in turn are shared out one by one, unless much is copied for each.
        """
        if self.kernel.ordered_outputs and not self.packed:
            return 1
        if "units" in self.chosen:
            return max(-(-blocks // int(self.chosen["units"])), 1)
        aside = sum(map(self._bytes, (*self.part, *self.packed))) * (SCATTERED if self.compressed else 1)
        found = blocks_per_unit(blocks, self.each * self.height, aside)
        units = -(-blocks // found)
        if self.compressed and units in UNEVEN:
            found = -(-blocks // (units + 1))
        return found

    def _shares(self) -> EntryShares:
        """Return by what units are shared out: by entries, where rows of a block have any number of them."""
        starts = self.compressed[0].inputs[2] if self.compressed else None
        if starts not in self.number or self.kernel.ordered_outputs:
            return EntryShares()
        return EntryShares(self.number[starts] + 1, starts.meta.dtype.itemsize, self.height, self.rows)

    def space(self) -> Space:
        """Return what may be chosen: partial sums over rows depend on it, nothing else does."""
        blocks = -(-self.rows // self.height)
        shared = not self.kernel.ordered_outputs or bool(self.packed)
        loops = [s for s in self.kernel.stages if isinstance(s, Kernel)]
        sums = sum(any(h.op.kind is Kind.AGG for h in s.outputs) for s in loops)
        lengths = [prod(self.shapes[h.meta.shape][1:]) for h in self.kernel.body if self.axis[h] == 0]
        return row_space(
            Rows(self.rows, self.each, len(self.kernel.stages), self.tools.cores, work_of(self.kernel.body),
                 cells=sums < len(loops), length=max(lengths, default=1),
                 size=self.kernel.outputs[0].meta.dtype.itemsize, sums=sums), self.height,
            -(-blocks // self._per_unit(blocks)), not self.part, shared)

    def block(self) -> Made | None:
        """Return the argument block and what runs it; None if rows do not lie as they have to."""
        blocks = -(-self.rows // self.height)
        last = self.rows - (blocks - 1) * self.height
        whole_layouts, last_layouts = self._layouts(self.height), self._layouts(last)
        stages = [*map(self._panelling, self.panels), *map(self._packing, self.packed)]
        for stage in turns_last(self.kernel):
            own = tuple(self._place(h, stage) for h in self._operands(stage))
            if isinstance(stage, Kernel) and any(h in self.kernel.ordered_outputs for h in stage.outputs):
                made = self._in_turn(stage, last, whole_layouts)
                if made is None:
                    return None
                stages.append(Stage(*made[:2], own, first=made[2]))
                continue
            if isinstance(stage, Product) and stage.form == "join":
                parts = [self._part(stage, i, last, whole_layouts, last_layouts)
                         for i in range(len(stage.hop.inputs))]
                if None in parts:
                    return None
                stages += [p for p in parts if p is not None]
                continue
            pair = [self._template(stage, *which) for which in (
                (self.height, whole_layouts), (last, last_layouts))]
            if pair[0] is None or pair[1] is None:
                return None
            stages.append(Stage(pair[0], pair[1], own))
            stages += [self._adding(h) for h in stage.outputs if h in self.totals]
        combines = [self._combine(h) for h in self.part]
        # The last block of rows may be walked otherwise: a single row is added up as a whole.
        spare = max(int.from_bytes(b[40:48], "little") for s in stages for b in (s.whole, s.last))
        room = padded(self.size) + padded(spare)
        cut = Blocking(blocks, self._per_unit(blocks), 0, room, padded(self.size),
                  sum(padded(self._bytes(h)) for h in self.part), self.shared, self._shares())
        scalars = tuple(
            h.meta.dtype if h.meta.shape == () and h not in self.kernel.outputs else None
            for h in self.number)
        return self.tools.rows_block(
            scalars, stages, combines, cut,
            nanoseconds(self.kernel, self.number, self.shapes, self.places))

    def _layouts(self, rows: int) -> dict[Hop, Layout]:
        """Return how every value lies within a block of `rows` rows."""
        found: dict[Hop, Layout] = {}
        for hop in (*self.kernel.inputs, *self.kernel.body, *self.kernel.views):
            if hop.meta.shape == ():
                found[hop] = Layout((), ())
                continue
            shape = list(self.shapes[hop.meta.shape])
            axis = self.axis[hop]
            if axis is not None:
                shape[axis] = rows
            if hop in self.number:
                found[hop] = Layout(tuple(shape), self.places[hop].strides)
            elif hop in self.upright:
                size = hop.meta.dtype.itemsize
                found[hop] = Layout(tuple(shape), (size, size * rows))
            elif hop in self.kernel.views:
                found[hop] = hop_layout(hop, tuple(shape), dict(hop.attrs), [found[hop.inputs[0]]])
            else:  # rows lie one after the other, each as in the whole value: its sums have NumPy's order
                whole = self.places[hop].strides if hop in self.places else ()
                found[hop] = layout_like(tuple(shape), hop.meta.dtype.itemsize, whole or (0,) * len(shape))
        return found

    def _template(
        self, stage: Kernel | Product, rows: int, layouts: Mapping[Hop, Layout]
    ) -> bytes | None:
        """Return the argument block of one stage on `rows` rows."""
        if isinstance(stage, Product):
            return self._product(stage, rows, layouts)
        found = walk(operands(stage), (rows, *self.shapes[stage.shape][1:]), layouts, {})
        if found is None and rows == 1:
            whole = self._down_columns(stage, self._layouts(self.height))
            found = None if whole is None else (whole[0], self._shorter(whole[1], rows))
        if found is None:
            return None
        schedule = CROSSWISE if short_rows(stage, *found) else SERIAL
        if found[0].mode == "cell":
            schedule = as_chosen(self.chosen, schedule)
        executable, _ = self.tools.executable(stage, structure_key(stage), found[0], schedule)
        self.kept.append(executable)
        return executable.template(found[1])

    def _in_turn(
        self, stage: Kernel, last: int, layouts: Mapping[Hop, Layout]
    ) -> tuple[bytes, bytes, bytes] | None:
        """Return a stage that goes on from earlier rows: for whole blocks, the last, the first."""
        found = self._down_columns(stage, layouts)
        if found is None:
            return None
        form, whole = found
        executable, _ = self.tools.executable(stage, structure_key(stage), form, SERIAL)
        self.kept.append(executable)
        alone = self.rows <= self.height
        return (executable.template(whole, True), executable.template(self._shorter(whole, last), not alone),
                executable.template(whole))

    def _down_columns(self, stage: Kernel, layouts: Mapping[Hop, Layout]) -> tuple[Form, Geometry] | None:
        """Return how the rows of a whole block are added to columns."""
        found = walk(operands(stage), (self.height, *self.shapes[stage.shape][1:]), layouts, {})
        return found if found is not None and found[0].mode == "cols" else None

    def _shorter(self, whole: Geometry, rows: int) -> Geometry:
        """Return the walk of `rows` rows: a single one is walked as whole blocks are."""
        return Geometry((whole.dims[0] // self.height * rows, *whole.dims[1:]), whole.strides)

    def _product(self, stage: Product, rows: int, layouts: Mapping[Hop, Layout]) -> bytes | None:
        if is_wide(stage, self.shapes):
            tile = wide_tile(stage, rows, layouts)
            if tile is not None and self._in_panels(stage):
                tile = tile._replace(panels=FROM_PANELS)
            if tile is not None and stage.vector in self.number:
                tile = tile._replace(cold=1)
            self.kept.append(made := self.tools.wide(stage.hop.meta.dtype, self._fetches(stage)))
            return None if tile is None else made(tile)
        if stage.form == PAIRS:
            return self._pairs(stage, layouts)
        if stage.compressed:
            return self._entries(stage, rows, layouts)
        if stage.matrix in self.upright:
            length = layouts[stage.matrix].shape[1]
            return self._made(COLUMNWISE_PREFIX + stage.form, stage.matrix, 1)(rows, length, 0, 0)
        upright = COLUMNWISE_PREFIX if stage.hop in self.upright else ""
        sizes = narrow_sizes(stage, rows, layouts, stage.vector in self.packed, bool(upright))
        columns = 1 if stage.form in ROWWISE_FORMS else columns_of(layouts[stage.vector].shape)
        form = COLUMNWISE[stage.form] if stage.columnwise else stage.form
        return None if sizes is None else self._made(upright + form, stage.matrix, columns)(*sizes)

    def _pairs(self, stage: Product, layouts: Mapping[Hop, Layout]) -> bytes | None:
        dtype = stage.hop.meta.dtype
        found = pair_strides(layouts[stage.matrix], layouts[stage.vector], layouts[stage.hop], dtype.itemsize)
        if found is None:
            return None
        self.kept.append(made := self.tools.pairs(dtype, found))
        return made(found)

    def _entries(self, stage: Product, rows: int, layouts: Mapping[Hop, Layout]) -> bytes | None:
        """Return the argument block of a product over compressed rows, all of whose operands are runs."""
        data, columns, _, x = (layouts[h] for h in stage.inputs)
        made = layouts[stage.hop]
        runs = ((h, layouts[h]) for h in (*stage.inputs, stage.hop))
        if any(place != contiguous(place.shape, h.meta.dtype.itemsize) for h, place in runs):
            return None
        width = made.shape[0] if stage.form == "sum" else x.shape[0]
        depth = columns_of(x.shape)
        self.kept.append(made_block := self.tools.compressed(
            stage.form, stage.hop.meta.dtype, stage.inputs[1].meta.dtype, depth))
        return made_block(SparseProduct(rows, width, data.shape[0], depth))

    def _made(self, form: str, hop: Hop, columns: int) -> Callable[[int, int, int, int], bytes]:
        self.kept.append(made := self.tools.product(form, hop.meta.dtype, columns))
        return made

    def _part(
        self, stage: Product, at: int, last: int, whole: Mapping[Hop, Layout], end: Mapping[Hop, Layout],
    ) -> Stage | None:
        """Return the stage that copies the rows of operand number `at` to their place in the result's."""
        hop, part = stage.hop, stage.hop.inputs[at]
        meta = Meta((2,) * part.meta.ndim, hop.meta.dtype)
        x = leaf(0, meta)
        copy = make("cast", (x,), dtype=hop.meta.dtype)
        kernel = Kernel("Cell", meta.shape, (x,), (copy,), (copy,))
        blocks = []
        for layouts in (whole, end):
            here, there = layouts[part], layouts[hop]
            if any(a < b for a, b in pairwise(here.strides)):
                return None  # the result would lie otherwise, too
            target = Layout(here.shape, there.strides[:len(here.shape)])
            found = walk(operands(kernel), here.shape, {x: here}, {copy: target})
            if found is None:
                return None
            executable, _ = self.tools.executable(kernel, structure_key(kernel), found[0], SERIAL)
            self.kept.append(executable)
            blocks.append(executable.template(found[1]))
        joined = hop.meta.ndim == part.meta.ndim
        before = sum(whole[i].shape[-1] if joined else 1 for i in hop.inputs[:at])
        places = self._place(part, stage), _behind(self._place(hop, stage), before * hop.meta.dtype.itemsize)
        return Stage(blocks[0], blocks[1], places)

    def _in_panels(self, stage: object) -> bool:
        """Tell whether `stage` is a product that finds its matrix in panels."""
        return isinstance(stage, Product) and stage.form == "dot" and stage.vector in self.panels

    def _fetches(self, stage: Product) -> bool:
        """Tell whether the rows of a wide product come from memory, and soon after each other."""
        columns = columns_of(self.shapes[stage.vector.meta.shape])
        return stage.matrix in self.number and columns <= FETCHED * self.shapes[stage.matrix.meta.shape][-1]

    def _panelling(self, hop: Hop) -> Stage:
        """Return the stage that copies the columns of a wide matrix into panels."""
        (depth, columns), (down, across) = self.places[hop]
        fetches = any(self._fetches(s) for s in self.kernel.stages
                      if self._in_panels(s) and isinstance(s, Product) and s.vector is hop)
        self.kept.append(made := self.tools.wide(hop.meta.dtype, fetches))
        block = made(Tile(0, depth, columns, 0, 0, down, across, 0, panels=PACK_ONLY))
        given = StageOperand(OPERAND, self.number[hop])
        return Stage(block, block, (given, given, StageOperand(SHARED, self.panels[hop])), BEFORE_BLOCKS)

    def _packing(self, hop: Hop) -> Stage:
        """Return the stage that copies vectors into a thread's memory, one row after the other."""
        here = self.places[hop]
        columns = columns_of(here.shape)
        block = self._made("pack", hop, columns)(
            here.shape[0], columns, here.strides[0], here.strides[-1])
        given = StageOperand(OPERAND, self.number[hop])
        return Stage(block, block, (given, given, StageOperand(SCRATCH, self.room[hop])), FIRST_BLOCK)

    def _operands(self, stage: Kernel | Product) -> tuple[Hop, ...]:
        if isinstance(stage, Product):  # a loop has a place for a vector, needed or not
            return (*stage.inputs, stage.hop) if stage.compressed else \
                (stage.matrix, stage.vector, stage.hop)
        return tuple(h for h in (*stage.inputs, *stage.outputs) if h.op.name != "const")

    def _place(self, hop: Hop, stage: Kernel | Product) -> StageOperand:
        """Say where `stage` finds `hop`."""
        while hop in self.kernel.views:
            hop = hop.inputs[0]
        if hop in self.totals:
            return StageOperand(SCRATCH, self.room[hop])
        if hop in self.part:
            return StageOperand(PARTIAL, self.number[hop], 0, self.part[hop])
        if isinstance(stage, Product) and hop is stage.vector and self._in_panels(stage):
            return StageOperand(SHARED, self.panels[hop])
        if hop in self.packed and isinstance(stage, Product) and hop is stage.vector:
            return StageOperand(SCRATCH, self.room[hop])
        if hop in self.number:
            axis = self.axis[hop]
            step = 0 if axis is None else self.places[hop].strides[axis] * self.height
            return StageOperand(OPERAND, self.number[hop], step)
        return StageOperand(SCRATCH, self.room[hop])

    def _combine(self, hop: Hop) -> Combine:
        itself = any(s.hop is hop and is_wide(s, self.shapes) and mirrored(s) for s in self.sums)
        square = (self.shapes[hop.meta.shape][0] if itself else 0, hop.meta.dtype.itemsize)
        return Combine(self._adder(hop), self.number[hop], self.part[hop], self._bytes(hop), *square)

    def _adding(self, hop: Hop) -> Stage:
        """Return the stage that adds a block's total to those of the blocks before it."""
        block, so_far = self._adder(hop), StageOperand(PARTIAL, self.number[hop], 0, self.part[hop])
        return Stage(block, block, (so_far, StageOperand(SCRATCH, self.room[hop]), so_far))

    def _adder(self, hop: Hop) -> bytes:
        """Return the argument block of ``a = a + b`` for values like `hop`."""
        meta = Meta((2,), hop.meta.dtype)
        a, b = leaf(0, meta), leaf(1, meta)
        total = apply("add", a, b)
        kernel = Kernel("Cell", (2,), (a, b), (total,), (total,))
        executable, _ = self.tools.executable(
            kernel, structure_key(kernel), Form("cell", 1, "ccc"), SERIAL)
        self.kept.append(executable)
        size = prod(self.shapes[hop.meta.shape])
        return executable.template(Geometry((size,), ((hop.meta.dtype.itemsize,),) * 3))


def _behind(place: StageOperand, nbytes: int) -> StageOperand:
    """Return the place so many bytes behind the beginning of rows."""
    if place.kind == OPERAND:
        return place._replace(other=nbytes)
    return place._replace(value=place.value + nbytes)


PLAIN, PAST = Schedule(threads=1), Schedule(threads=1, nontemporal=True)


class WindowBinding:
    """One binding of a window kernel while its block is made."""

    def __init__(
        self, kernel: WindowKernel, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout],
        tools: RowTools, chosen: Values = UNTUNED,
    ) -> None:
        self.kernel, self.shapes, self.places, self.tools = kernel, shapes, places, tools
        self.chosen = chosen
        self.kept: list[Any] = []
        given = [h for h in kernel.inputs if h.op.name != "const"]
        self.axis = dict(zip(kernel.inputs, kernel.axes, strict=True))
        self.number = {h: i for i, h in enumerate((*given, *kernel.outputs))}
        self.rows = shapes[kernel.shape][0]
        self.rate = kernel.rows_per_result
        self.ahead = {h: shapes[s.shape][0] - n * self.rows
                      for s, n in zip(kernel.stages, kernel.rates, strict=True) for h in s.outputs}
        most = max(self.ahead.values())
        each = window_row_bytes(kernel, lambda shape: shapes[shape])
        self.height = int(chosen.get("height") or window_height(each, self.rows, most))
        self.each = max(each, 1)
        self.room: dict[Hop, int] = {}
        self.size = 0
        for hop in kernel.intermediates:
            self.room[hop] = self.size
            self.size += padded(self._row(hop) * (self.rate[hop] * self.height + self.ahead[hop]))

    def _row(self, hop: Hop) -> int:
        return prod(self.shapes[hop.meta.shape][1:]) * hop.meta.dtype.itemsize

    def block(self) -> Made | None:
        """Return the argument block and what runs it; None if a stage has too few rows."""
        if min(self.ahead.values()) < 0:
            return None
        blocks = -(-self.rows // self.height)
        last = self.rows - (blocks - 1) * self.height
        stages: list[Stage] = []
        spare = 0
        for stage, rate in zip(self.kernel.stages, self.kernel.rates, strict=True):
            ahead = self.ahead[stage.outputs[0]]
            if ahead:
                first, more = self._template(stage, ahead)
                stages.append(Stage(first, first, self._places(stage, 0, rate), FIRST_BLOCK))
                spare = max(spare, more)
            whole, more = self._template(stage, rate * self.height)
            end, less = self._template(stage, rate * last)
            stages.append(Stage(whole, end, self._places(stage, ahead, rate), EVERY_BLOCK))
            spare = max(spare, more, less)
        if blocks > 1:
            stages += [self._moving(h) for h in self.kernel.intermediates if self.ahead[h]]
        cut = Blocking(blocks, self._per_unit(blocks), 0, padded(self.size) + padded(spare),
                       padded(self.size), 0)
        scalars = tuple(
            h.meta.dtype if h.meta.shape == () and h not in self.kernel.outputs else None
            for h in self.number)
        moved = sum(prod(self.places[h].shape) * h.meta.dtype.itemsize for h in self.number if h.meta.shape)
        return self.tools.rows_block(scalars, stages, [], cut, moved / BYTES_PER_NS)

    def _per_unit(self, blocks: int) -> int:
        """Return how many blocks make a unit."""
        if "units" in self.chosen:
            return max(-(-blocks // int(self.chosen["units"])), 1)
        return blocks_per_unit(
            blocks, self.each * self.height,
            sum(self._row(h) * self.ahead[h] for h in self.kernel.intermediates))

    def space(self, places: tuple[str, ...]) -> Space:
        """Return what may be chosen, `places` of what stages pass on too: no value depends on it."""
        blocks = -(-self.rows // self.height)
        ahead = max(self.ahead.values())
        return row_space(
            Rows(self.rows, self.each, len(self.kernel.stages), self.tools.cores, work_of(self.kernel.body),
                 max(2 * ahead, 1),
                 tiles_of(self.shapes[self.kernel.shape]),
                 places, True, self.shapes[self.kernel.shape][-1],
                 self.kernel.outputs[0].meta.dtype.itemsize, ahead=ahead),
            self.height, -(-blocks // self._per_unit(blocks)), True, True)

    def _template(self, stage: Kernel, rows: int) -> tuple[bytes, int]:
        """Return the argument block of one stage on so many rows, and the scratch memory it takes."""
        layouts = {h: self._layout(h, rows) for h in (*stage.inputs, *stage.body)}
        found = walk(operands(stage), (rows, *self.shapes[stage.shape][1:]), layouts, {})
        assert found is not None, "cells can be walked in any way"
        form, geometry = found
        ends = form.inner[-len(stage.outputs):]
        past = self.shapes[stage.shape][0] > rows and set(ends) == {"c"} and all(
            h in self.number and prod(self.places[h].shape) * h.meta.dtype.itemsize >= MIN_STREAMED_BYTES
            for h in stage.outputs)
        schedule = as_chosen(self.chosen, PAST if past else PLAIN)
        executable, _ = self.tools.executable(stage, structure_key(stage), form, schedule)
        self.kept.append(executable)
        return executable.template(geometry), executable.scratch(geometry)

    def _layout(self, hop: Hop, rows: int) -> Layout:
        """Return how `rows` rows of a value lie."""
        if hop.meta.shape == ():
            return Layout((), ())
        shape = self.shapes[hop.meta.shape]
        source = hop.inputs[0] if hop in self.kernel.views else hop
        if source in self.room:
            strides = contiguous(self.shapes[source.meta.shape], source.meta.dtype.itemsize).strides
            if hop is not source:
                strides = tuple(s * n.step for s, n in zip(strides, sections(hop) or (), strict=True))
        elif hop in self.number:
            if self.axis.get(hop, 0) is None:
                return self.places[hop]
            strides = self.places[hop].strides
        else:  # computed on the way
            strides = contiguous(shape, hop.meta.dtype.itemsize).strides
        return Layout((rows, *shape[1:]), strides)

    def _places(self, stage: Kernel, ahead: int, rate: int) -> tuple[StageOperand, ...]:
        """Say where a stage finds its operands, the first `ahead` rows left out."""
        every = (h for h in (*stage.inputs, *stage.outputs) if h.op.name != "const")
        return tuple(self._place(h, ahead, rate) for h in every)

    def _place(self, hop: Hop, ahead: int, rate: int) -> StageOperand:
        if hop in self.kernel.views:
            source = hop.inputs[0]
            taken = sections(hop)
            assert taken is not None
            steps = contiguous(self.shapes[source.meta.shape], source.meta.dtype.itemsize).strides
            skipped = sum(s.first * step for s, step in zip(taken, steps, strict=True))
            return StageOperand(SCRATCH, self.room[source] + skipped + ahead * taken[0].step * steps[0])
        if hop in self.room:
            return StageOperand(SCRATCH, self.room[hop] + ahead * self._row(hop))
        if self.axis.get(hop, 0) is None:
            return StageOperand(OPERAND, self.number[hop])
        step = self.places[hop].strides[0]
        return StageOperand(OPERAND, self.number[hop], step * rate * self.height, ahead * step)

    def _moving(self, hop: Hop) -> Stage:
        """Return the stage that moves the last rows of a value to the front of its memory."""
        dtype = hop.meta.dtype
        x = leaf(0, Meta((2,), dtype))
        copy = make("cast", (x,), dtype=dtype)
        kernel = Kernel("Cell", (2,), (x,), (copy,), (copy,))
        size = prod(self.shapes[hop.meta.shape][1:]) * self.ahead[hop]
        found = walk(operands(kernel), (size,), {x: contiguous((size,), dtype.itemsize),
                                                 copy: contiguous((size,), dtype.itemsize)}, {})
        assert found is not None
        executable, _ = self.tools.executable(kernel, structure_key(kernel), found[0], PLAIN)
        self.kept.append(executable)
        block = executable.template(Geometry((size,), ((dtype.itemsize,),) * 2))
        room = self.room[hop]
        return Stage(block, block, (
            StageOperand(SCRATCH, room + self.rate[hop] * self.height * self._row(hop)),
            StageOperand(SCRATCH, room)), EVERY_BLOCK)
