"""Launch arguments of kernels that run several loops on one block of rows at a time, by sizes and layouts.

A row kernel or window kernel is a sequence of stages over blocks of rows. Binding chooses the block height,
assigns scratch memory, and packs the arguments into bytes that the native launcher reads.
"""

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
    BlockStage,
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
    KernelBuilder,
    Launchable,
    RowPass,
    apply_knobs,
    has_short_rows,
    row_space,
    tiles_of,
    work_of,
)

__all__ = ["column_major_values"]


CACHE_LINE_BYTES = 64
BYTES_PER_NS, FLOPS_PER_NS = 10.0, 20.0


def columns_of(shape: Shape) -> int:
    """Return the number of vectors in a value of `shape`."""
    return shape[1] if len(shape) > 1 else 1


def wide_tile(stage: Product, rows: int, layouts: Mapping[Hop, Layout]) -> Tile | None:
    """Return a product of `rows` rows in panels; None if the layout of the result is another."""
    matrix, vector, result = (layouts[h] for h in (stage.matrix, stage.vector, stage.hop))
    if result != contiguous(result.shape, stage.hop.meta.dtype.itemsize) or not _is_contiguous_stack(matrix):
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
    """Return whether a sum is symmetric: a product of rows with themselves."""
    return stage.form == "sum" and stage.wide and stage.matrix is stage.vector


def narrow_sizes(
    stage: Product, rows: int, layouts: Mapping[Hop, Layout], packed: bool, column_major: bool = False
) -> tuple[int, int, int, int] | None:
    """Return rows, their length, and the byte strides of rows and vectors; None for unsupported layouts.

    Columns of a column-major matrix are counted as rows. The results may be `column_major`.
    """
    matrix, vector, result_layout = (layouts[h] for h in (stage.matrix, stage.vector, stage.hop))
    across, along = _axes(stage)[::-1 if stage.columnwise else 1]
    size, result = stage.matrix.meta.dtype.itemsize, stage.hop.meta.dtype.itemsize
    if stage.form in ROWWISE_FORMS:
        vector = contiguous((1,), size)
    if matrix.strides[along] != size or matrix.strides[across] < 0 or not _is_contiguous_stack(matrix):
        return None
    if packed:
        vector = contiguous(vector.shape, size)
    vector_stride = vector.strides[0]
    if size != (vector.strides[-1] if columns_of(vector.shape) > 1 else vector_stride):
        return None
    if not column_major and result_layout != contiguous(result_layout.shape, result):
        return None
    count = matrix.shape[across] if stage.columnwise else _all_rows(rows, matrix)
    return count, matrix.shape[along], matrix.strides[across], vector_stride


def _axes(stage: Product) -> tuple[int, int]:
    """Return the axis of the rows of the matrix, and the axis along a row."""
    return (1, 0) if stage.transposed else (-2, -1)


def _all_rows(rows: int, matrix: Layout) -> int:
    """Return the number of rows of `rows` matrices of a stack; of a matrix, one is one."""
    return rows * prod(matrix.shape[1:-1])


def _is_contiguous_stack(matrix: Layout) -> bool:
    """Return whether the rows of all matrices of a stack have one stride."""
    shape, strides = matrix
    return all(s == n * t for s, n, t in zip(strides, shape[1:-1], strides[1:-1], strict=False))


def is_wide(stage: object, shapes: Mapping[Shape, Shape]) -> bool:
    """Return whether rows are multiplied with more vectors than fit into registers."""
    return isinstance(stage, Product) and stage.form not in (*ROWWISE_FORMS, PAIRS) and \
        not stage.compressed and columns_of(shapes[stage.vector.meta.shape]) > MAX_NARROW_COLUMNS


def order_stages(kernel: RowKernel) -> list[Kernel | Product]:
    """Return the stages, with those that carry values from block to block after all independent ones."""
    independent: list[Kernel | Product] = []
    dependent: list[Kernel | Product] = []
    carried: set[Hop] = set(kernel.ordered_outputs)
    for stage in kernel.stages:
        for view in kernel.views:
            if view.inputs[0] in carried:
                carried.add(view)
        if carried.intersection((*stage.inputs, *stage.outputs)):
            carried.update(stage.outputs)
            dependent.append(stage)
        else:
            independent.append(stage)
    return independent + dependent


def padded(size: int) -> int:
    """Return `size` rounded up to whole cache lines, plus one line against false sharing."""
    return size + -size % CACHE_LINE_BYTES + CACHE_LINE_BYTES


def estimate_ns(
    kernel: RowKernel, arrays: Iterable[Hop], shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout]
) -> float:
    """Return the predicted nanoseconds of one thread for a row kernel that reads and writes `arrays`."""
    moved = sum(prod(places[h].shape) * h.meta.dtype.itemsize for h in arrays if h.meta.shape)
    work = sum(_flops(s, shapes) for s in kernel.stages if isinstance(s, Product))
    return max(moved / BYTES_PER_NS, work / FLOPS_PER_NS)


def _flops(stage: Product, shapes: Mapping[Shape, Shape]) -> int:
    """Return the additions and multiplications of a product."""
    if stage.form == PAIRS:
        return 2 * prod(shapes[stage.hop.meta.shape]) * shapes[stage.matrix.meta.shape][-1]
    columns = 1 if stage.form in ROWWISE_FORMS else columns_of(shapes[stage.vector.meta.shape])
    return 2 * prod(shapes[stage.matrix.meta.shape]) * columns


MAX_COLUMN_MAJOR_COLUMNS = 32  # longer rows fill vectors
SEQUENTIAL_SUM_LENGTH = 8  # shorter sums NumPy adds up sequentially
_ANY_ORDER = frozenset({"min", "max", "any", "all"})


def column_major_values(
    kernel: RowKernel, inner: Iterable[Hop], shapes: Mapping[Shape, Shape],
) -> frozenset[Hop]:
    """Return those of the `inner` values, which only stages read, to store column by column."""
    sizes = {h: shapes[h.meta.shape] for h in inner if h.meta.ndim == 2}
    sources = {v.inputs[0] for v in kernel.views}
    values = {h for h, shape in sizes.items()
              if 1 < shape[1] <= MAX_COLUMN_MAJOR_COLUMNS and h not in sources}
    previous = None
    while values and values != previous:
        previous = set(values)
        for stage in kernel.stages:
            touched = values.intersection((*stage.inputs, *stage.outputs))
            if touched and not _fits(stage, values.__contains__, shapes):
                values -= touched
    is_produced = any(isinstance(s, Product) and s.hop in values for s in kernel.stages)
    is_reduced = any(_ends_rows(s) and values.intersection(s.inputs) for s in kernel.stages)
    return frozenset(values) if is_produced and is_reduced else frozenset()


def _ends_rows(stage: Kernel | Product) -> bool:
    """Return whether the stage reduces every row."""
    if isinstance(stage, Product):
        return stage.form in ARG_REDUCTIONS
    return any(h.op.kind is Kind.AGG for h in stage.outputs)


def _fits(
    stage: Kernel | Product, is_column_major: Callable[[Hop], bool], shapes: Mapping[Shape, Shape],
) -> bool:
    if isinstance(stage, Product):
        return _fits_product(stage, is_column_major, shapes)
    return _fits_cells(stage, is_column_major, shapes)


def _fits_product(
    stage: Product, is_column_major: Callable[[Hop], bool], shapes: Mapping[Shape, Shape],
) -> bool:
    if stage.form in ARG_REDUCTIONS:
        return stage.matrix.meta.dtype.kind == "f" and stage.hop.meta.dtype.itemsize == 8
    is_plain_dot = stage.form == "dot" and not (stage.transposed or stage.columnwise or stage.compressed)
    is_narrow = stage.form != PAIRS and 1 < shapes[stage.vector.meta.shape][-1] <= MAX_NARROW_COLUMNS
    return is_plain_dot and is_narrow and stage.matrix.meta.ndim == stage.vector.meta.ndim == 2 \
        and not is_column_major(stage.matrix) and not is_column_major(stage.vector)


def _fits_cells(stage: Kernel, is_column_major: Callable[[Hop], bool], shapes: Mapping[Shape, Shape]) -> bool:
    """Return whether all rows of the stage are column-major, and sums keep NumPy's order."""
    if len(stage.shape) != 2 or any(h.op.kind is Kind.TAKE for h in stage.body):
        return False
    rows, columns = shapes[stage.shape]
    for hop in stage.body:
        if hop.op.kind is Kind.AGG and (reduces_rows(hop) or hop.op.name not in _ANY_ORDER and not (
                hop.op.name == "sum" and columns < SEQUENTIAL_SUM_LENGTH)):
            return False
    full_size = [h for h in (*stage.inputs, *stage.outputs) if h.meta.ndim == 2 and h.op.name != "const"
                 and shapes[h.meta.shape] == (rows, columns)]
    return all(map(is_column_major, full_size))


SERIAL, CROSSWISE = Schedule(threads=1), Schedule(threads=1, crosswise=True)
UNEVEN_UNIT_COUNTS = frozenset({3, 5, 7})  # that two threads cannot share equally
COLUMNWISE_FORMS = {"dot": "down", "sum": "across"}  # by the form of products of rows
SCATTER_COST = 2  # relative cost of results that entries are added to in random order
MAX_FETCH_RATIO = 4  # of columns to elements of a row: above it, reading rows takes little of the time


class RowBinding:
    """A row kernel bound to sizes and layouts, while its argument block is made."""

    def __init__(
        self, kernel: RowKernel, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout],
        tools: KernelBuilder, chosen: Values = UNTUNED,
    ) -> None:
        self.kernel = kernel
        self.chosen = chosen
        self.shapes = shapes
        self.places = places
        self.tools = tools
        self.executables: list[Any] = []
        arguments = [h for h in kernel.inputs if h.op.name != "const"]
        self.axis = dict(zip(kernel.inputs, kernel.axes, strict=True))
        self.number = {h: i for i, h in enumerate((*arguments, *kernel.outputs))}
        self.sums = [s for s in kernel.stages if isinstance(s, Product) and s.form == "sum"]
        # sums over rows that a stage computes of every block, and another one accumulates
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
        default_height = self._height()
        self.height = int(chosen.get("height", default_height))
        self.inner = [  # values that only stages see
            h for s in kernel.stages for h in s.outputs if h not in self.number and h not in summed]
        self.column_major = column_major_values(kernel, self.inner, shapes)
        if self.column_major and not self._is_walkable():
            self.column_major = frozenset()
        self.packed = list(dict.fromkeys(
            s.vector for s in kernel.stages if isinstance(s, Product) and self._is_packed(s)))
        self.scratch_offset: dict[Hop, int] = {}
        self.partial_offset: dict[Hop, int] = {}
        self.size = self._lay_out(summed)

    def _row_bytes(self, hop: Hop) -> int:
        shape = self.shapes[hop.meta.shape] if hop.meta.shape else ()
        axis = self.axis[hop]
        return prod(n for i, n in enumerate(shape) if i != axis) * hop.meta.dtype.itemsize

    def _is_packed(self, stage: Product) -> bool:
        """Return whether the stage reads vectors that are not contiguous and need packing."""
        if stage.form != "dot" or stage.vector not in self.number or is_wide(stage, self.shapes):
            return False
        if stage.compressed:
            return False
        layout = self.places[stage.vector]
        return layout != contiguous(layout.shape, stage.vector.meta.dtype.itemsize)

    def _panels(self) -> tuple[dict[Hop, int], int]:
        """Return offsets of wide matrices in shared panels, and their bytes; none if they are not shared."""
        offsets: dict[Hop, int] = {}
        end = 0
        for stage in self.kernel.stages:
            if isinstance(stage, Product) and stage.form == "dot" and is_wide(stage, self.shapes):
                hop = stage.vector
                if hop not in offsets and hop in self.number and self.axis[hop] is None:
                    offsets[hop] = end
                    end += padded(panel_bytes(self.places[hop].shape, hop.meta.dtype.itemsize))
        return (offsets, end) if prepacks_panels(self.rows, end) else ({}, 0)

    def _bytes(self, hop: Hop) -> int:
        """Return the bytes of a value that is not divided into rows."""
        return prod(self.shapes[hop.meta.shape]) * hop.meta.dtype.itemsize

    def _height(self) -> int:
        """Return the number of rows of a block."""
        values = dict.fromkeys((*self.kernel.inputs, *(h for s in self.kernel.stages for h in s.outputs)))
        entries = dict.fromkeys(h for s in self.compressed for h in s.inputs[:2])
        self.bytes_per_row = max(sum(self._row_bytes(h) for h in values if self.axis[h] is not None)
                                 + sum(map(self._bytes, entries)) // max(self.rows, 1), 1)
        wide = any(is_wide(s, self.shapes) for s in self.kernel.stages)
        packed = all(self._in_panels(s) for s in self.kernel.stages if is_wide(s, self.shapes))
        return block_height(
            self.bytes_per_row, self.rows, wide, bool(self.kernel.ordered_outputs), packed,
            self.kernel.columnwise)

    def _is_walkable(self) -> bool:
        """Return whether every elementwise stage can iterate over blocks in their layouts."""
        last_rows = self.rows - (-(-self.rows // self.height) - 1) * self.height
        for rows in {self.height, last_rows}:
            layouts = self._layouts(rows)
            for stage in self.kernel.stages:
                if isinstance(stage, Kernel) and walk(
                        operands(stage), (rows, *self.shapes[stage.shape][1:]), layouts, {}) is None:
                    return False
        return True

    def _lay_out(self, summed: Iterable[Hop]) -> int:
        """Assign offsets in a thread's scratch memory to all intermediates; return its bytes."""
        end = 0
        for hop in self.inner:
            self.scratch_offset[hop] = end
            end += padded(self._row_bytes(hop) * self.height)
        for hop in (*self.packed, *self.totals):
            self.scratch_offset[hop] = end
            end += padded(self._bytes(hop))
        offset = 0
        for hop in summed:
            self.partial_offset[hop] = offset
            offset += padded(self._bytes(hop))
        return end

    def _per_unit(self, blocks: int) -> int:
        """Return the number of blocks of a unit of work; it must not depend on the number of threads.

        Blocks that carry sums are handed out one by one, unless much is packed for each.
        """
        if self.kernel.ordered_outputs and not self.packed:
            return 1
        if "units" in self.chosen:
            return max(-(-blocks // int(self.chosen["units"])), 1)
        extra_bytes = sum(map(self._bytes, (*self.partial_offset, *self.packed)))
        extra_bytes *= SCATTER_COST if self.compressed else 1
        per_unit = blocks_per_unit(blocks, self.bytes_per_row * self.height, extra_bytes)
        units = -(-blocks // per_unit)
        if self.compressed and units in UNEVEN_UNIT_COUNTS:
            per_unit = -(-blocks // (units + 1))
        return per_unit

    def _shares(self) -> EntryShares:
        """Return how units are divided: by entries, where compressed rows have any number of them."""
        starts = self.compressed[0].inputs[2] if self.compressed else None
        if starts not in self.number or self.kernel.ordered_outputs:
            return EntryShares()
        return EntryShares(self.number[starts] + 1, starts.meta.dtype.itemsize, self.height, self.rows)

    def space(self) -> Space:
        """Return the space of schedules; only partial sums over rows depend on the choice."""
        blocks = -(-self.rows // self.height)
        shared = not self.kernel.ordered_outputs or bool(self.packed)
        loops = [s for s in self.kernel.stages if isinstance(s, Kernel)]
        sums = sum(any(h.op.kind is Kind.AGG for h in s.outputs) for s in loops)
        lengths = [prod(self.shapes[h.meta.shape][1:]) for h in self.kernel.body if self.axis[h] == 0]
        return row_space(
            RowPass(self.rows, self.bytes_per_row, len(self.kernel.stages), self.tools.cores,
                    work_of(self.kernel.body), cells=sums < len(loops), length=max(lengths, default=1),
                    size=self.kernel.outputs[0].meta.dtype.itemsize, sums=sums), self.height,
            -(-blocks // self._per_unit(blocks)), not self.partial_offset, shared)

    def block(self) -> Launchable | None:
        """Return the argument block and its launcher; None for unsupported layouts."""
        blocks = -(-self.rows // self.height)
        last_rows = self.rows - (blocks - 1) * self.height
        whole_layouts, last_layouts = self._layouts(self.height), self._layouts(last_rows)
        stages = [*map(self._panel_stage, self.panels), *map(self._pack_stage, self.packed)]
        for stage in order_stages(self.kernel):
            operands_of_stage = tuple(self._operand_place(h, stage) for h in self._operands(stage))
            if isinstance(stage, Kernel) and any(h in self.kernel.ordered_outputs for h in stage.outputs):
                blocks_of_stage = self._sequential_stage(stage, last_rows, whole_layouts)
                if blocks_of_stage is None:
                    return None
                stages.append(BlockStage(*blocks_of_stage[:2], operands_of_stage, first=blocks_of_stage[2]))
                continue
            if isinstance(stage, Product) and stage.form == "join":
                parts = [self._join_stage(stage, i, whole_layouts, last_layouts)
                         for i in range(len(stage.hop.inputs))]
                if None in parts:
                    return None
                stages += [p for p in parts if p is not None]
                continue
            pair = [self._template(stage, *which) for which in (
                (self.height, whole_layouts), (last_rows, last_layouts))]
            if pair[0] is None or pair[1] is None:
                return None
            stages.append(BlockStage(pair[0], pair[1], operands_of_stage))
            stages += [self._add_stage(h) for h in stage.outputs if h in self.totals]
        combines = [self._combine(h) for h in self.partial_offset]
        # The last block of rows may use another form: a single row is added up as a whole.
        stage_scratch = max(int.from_bytes(b[40:48], "little") for s in stages for b in (s.whole, s.last))
        thread_bytes = padded(self.size) + padded(stage_scratch)
        partial_bytes = sum(padded(self._bytes(h)) for h in self.partial_offset)
        blocking = Blocking(blocks, self._per_unit(blocks), 0, thread_bytes, padded(self.size), partial_bytes,
                            self.shared, self._shares())
        scalars = tuple(
            h.meta.dtype if h.meta.shape == () and h not in self.kernel.outputs else None
            for h in self.number)
        return self.tools.rows_block(
            scalars, stages, combines, blocking,
            estimate_ns(self.kernel, self.number, self.shapes, self.places))

    def _layouts(self, rows: int) -> dict[Hop, Layout]:
        """Return the layout of every value within a block of `rows` rows."""
        layouts: dict[Hop, Layout] = {}
        for hop in (*self.kernel.inputs, *self.kernel.body, *self.kernel.views):
            if hop.meta.shape == ():
                layouts[hop] = Layout((), ())
                continue
            shape = list(self.shapes[hop.meta.shape])
            axis = self.axis[hop]
            if axis is not None:
                shape[axis] = rows
            if hop in self.number:
                layouts[hop] = Layout(tuple(shape), self.places[hop].strides)
            elif hop in self.column_major:
                size = hop.meta.dtype.itemsize
                layouts[hop] = Layout(tuple(shape), (size, size * rows))
            elif hop in self.kernel.views:
                layouts[hop] = hop_layout(hop, tuple(shape), dict(hop.attrs), [layouts[hop.inputs[0]]])
            else:  # contiguous rows with the axis order of the whole value: its sums have NumPy's order
                whole = self.places[hop].strides if hop in self.places else ()
                layouts[hop] = layout_like(tuple(shape), hop.meta.dtype.itemsize, whole or (0,) * len(shape))
        return layouts

    def _template(
        self, stage: Kernel | Product, rows: int, layouts: Mapping[Hop, Layout]
    ) -> bytes | None:
        """Return the argument block of one stage on `rows` rows."""
        if isinstance(stage, Product):
            return self._product_template(stage, rows, layouts)
        walked = walk(operands(stage), (rows, *self.shapes[stage.shape][1:]), layouts, {})
        if walked is None and rows == 1:
            down_columns = self._down_columns(stage, self._layouts(self.height))
            if down_columns is not None:
                walked = down_columns[0], self._with_rows(down_columns[1], rows)
        if walked is None:
            return None
        schedule = CROSSWISE if has_short_rows(stage, *walked) else SERIAL
        if walked[0].mode == "cell":
            schedule = apply_knobs(self.chosen, schedule)
        executable, _ = self.tools.executable(stage, structure_key(stage), walked[0], schedule)
        self.executables.append(executable)
        return executable.template(walked[1])

    def _sequential_stage(
        self, stage: Kernel, last_rows: int, layouts: Mapping[Hop, Layout]
    ) -> tuple[bytes, bytes, bytes] | None:
        """Return the blocks of a stage that carries sums: for whole blocks, the last, the first."""
        walked = self._down_columns(stage, layouts)
        if walked is None:
            return None
        form, whole = walked
        executable, _ = self.tools.executable(stage, structure_key(stage), form, SERIAL)
        self.executables.append(executable)
        is_only_block = self.rows <= self.height
        last_block = executable.template(self._with_rows(whole, last_rows), not is_only_block)
        return executable.template(whole, True), last_block, executable.template(whole)

    def _down_columns(self, stage: Kernel, layouts: Mapping[Hop, Layout]) -> tuple[Form, Geometry] | None:
        """Return how the rows of a whole block are added to columns."""
        walked = walk(operands(stage), (self.height, *self.shapes[stage.shape][1:]), layouts, {})
        return walked if walked is not None and walked[0].mode == "cols" else None

    def _with_rows(self, geometry: Geometry, rows: int) -> Geometry:
        """Return the geometry for `rows` rows: a single row is visited as whole blocks are."""
        return Geometry((geometry.dims[0] // self.height * rows, *geometry.dims[1:]), geometry.strides)

    def _product_template(self, stage: Product, rows: int, layouts: Mapping[Hop, Layout]) -> bytes | None:
        if is_wide(stage, self.shapes):
            tile = wide_tile(stage, rows, layouts)
            if tile is not None and self._in_panels(stage):
                tile = tile._replace(panels=FROM_PANELS)
            if tile is not None and stage.vector in self.number:
                tile = tile._replace(cold=1)
            factory = self.tools.wide(stage.hop.meta.dtype, self._should_prefetch(stage))
            self.executables.append(factory)
            return None if tile is None else factory(tile)
        if stage.form == PAIRS:
            return self._pairs_block(stage, layouts)
        if stage.compressed:
            return self._sparse_block(stage, rows, layouts)
        if stage.matrix in self.column_major:
            length = layouts[stage.matrix].shape[1]
            return self._product_factory(COLUMNWISE_PREFIX + stage.form, stage.matrix, 1)(rows, length, 0, 0)
        column_major = COLUMNWISE_PREFIX if stage.hop in self.column_major else ""
        sizes = narrow_sizes(stage, rows, layouts, stage.vector in self.packed, bool(column_major))
        columns = 1 if stage.form in ROWWISE_FORMS else columns_of(layouts[stage.vector].shape)
        form = COLUMNWISE_FORMS[stage.form] if stage.columnwise else stage.form
        if sizes is None:
            return None
        return self._product_factory(column_major + form, stage.matrix, columns)(*sizes)

    def _pairs_block(self, stage: Product, layouts: Mapping[Hop, Layout]) -> bytes | None:
        dtype = stage.hop.meta.dtype
        strides = pair_strides(
            layouts[stage.matrix], layouts[stage.vector], layouts[stage.hop], dtype.itemsize)
        if strides is None:
            return None
        self.executables.append(factory := self.tools.pairs(dtype, strides))
        return factory(strides)

    def _sparse_block(self, stage: Product, rows: int, layouts: Mapping[Hop, Layout]) -> bytes | None:
        """Return the argument block of a product over compressed rows with contiguous operands."""
        data, columns, _, x = (layouts[h] for h in stage.inputs)
        result = layouts[stage.hop]
        runs = ((h, layouts[h]) for h in (*stage.inputs, stage.hop))
        if any(layout != contiguous(layout.shape, h.meta.dtype.itemsize) for h, layout in runs):
            return None
        width = result.shape[0] if stage.form == "sum" else x.shape[0]
        depth = columns_of(x.shape)
        self.executables.append(factory := self.tools.compressed(
            stage.form, stage.hop.meta.dtype, stage.inputs[1].meta.dtype, depth))
        return factory(SparseProduct(rows, width, data.shape[0], depth))

    def _product_factory(self, form: str, hop: Hop, columns: int) -> Callable[[int, int, int, int], bytes]:
        self.executables.append(factory := self.tools.product(form, hop.meta.dtype, columns))
        return factory

    def _join_stage(
        self, stage: Product, position: int, full_layouts: Mapping[Hop, Layout],
        last_layouts: Mapping[Hop, Layout],
    ) -> BlockStage | None:
        """Return the stage that copies operand number `position` into its columns of a concatenation."""
        hop, operand = stage.hop, stage.hop.inputs[position]
        meta = Meta((2,) * operand.meta.ndim, hop.meta.dtype)
        x = leaf(0, meta)
        copy = make("cast", (x,), dtype=hop.meta.dtype)
        kernel = Kernel("Cell", meta.shape, (x,), (copy,), (copy,))
        blocks = []
        for layouts in (full_layouts, last_layouts):
            source, target_layout = layouts[operand], layouts[hop]
            if any(a < b for a, b in pairwise(source.strides)):
                return None  # the result would have another layout, too
            target = Layout(source.shape, target_layout.strides[:len(source.shape)])
            walked = walk(operands(kernel), source.shape, {x: source}, {copy: target})
            if walked is None:
                return None
            executable, _ = self.tools.executable(kernel, structure_key(kernel), walked[0], SERIAL)
            self.executables.append(executable)
            blocks.append(executable.template(walked[1]))
        joined = hop.meta.ndim == operand.meta.ndim
        before = sum(full_layouts[i].shape[-1] if joined else 1 for i in hop.inputs[:position])
        target_place = _shifted(self._operand_place(hop, stage), before * hop.meta.dtype.itemsize)
        places = self._operand_place(operand, stage), target_place
        return BlockStage(blocks[0], blocks[1], places)

    def _in_panels(self, stage: object) -> bool:
        """Return whether `stage` is a product with its matrix in panels."""
        return isinstance(stage, Product) and stage.form == "dot" and stage.vector in self.panels

    def _should_prefetch(self, stage: Product) -> bool:
        """Return whether a wide product reads its rows from memory, with little work for each."""
        columns = columns_of(self.shapes[stage.vector.meta.shape])
        length = self.shapes[stage.matrix.meta.shape][-1]
        return stage.matrix in self.number and columns <= MAX_FETCH_RATIO * length

    def _panel_stage(self, hop: Hop) -> BlockStage:
        """Return the stage that packs the columns of a wide matrix into panels."""
        (depth, columns), (down, across) = self.places[hop]
        fetches = any(self._should_prefetch(s) for s in self.kernel.stages
                      if self._in_panels(s) and isinstance(s, Product) and s.vector is hop)
        self.executables.append(factory := self.tools.wide(hop.meta.dtype, fetches))
        block = factory(Tile(0, depth, columns, 0, 0, down, across, 0, panels=PACK_ONLY))
        operand = StageOperand(OPERAND, self.number[hop])
        return BlockStage(block, block, (operand, operand, StageOperand(SHARED, self.panels[hop])),
                          BEFORE_BLOCKS)

    def _pack_stage(self, hop: Hop) -> BlockStage:
        """Return the stage that packs vectors into a thread's scratch memory."""
        layout = self.places[hop]
        columns = columns_of(layout.shape)
        block = self._product_factory("pack", hop, columns)(
            layout.shape[0], columns, layout.strides[0], layout.strides[-1])
        operand = StageOperand(OPERAND, self.number[hop])
        packed = StageOperand(SCRATCH, self.scratch_offset[hop])
        return BlockStage(block, block, (operand, operand, packed), FIRST_BLOCK)

    def _operands(self, stage: Kernel | Product) -> tuple[Hop, ...]:
        if isinstance(stage, Product):  # a loop has a place for a vector, needed or not
            return (*stage.inputs, stage.hop) if stage.compressed else \
                (stage.matrix, stage.vector, stage.hop)
        return tuple(h for h in (*stage.inputs, *stage.outputs) if h.op.name != "const")

    def _operand_place(self, hop: Hop, stage: Kernel | Product) -> StageOperand:
        """Return where `stage` finds `hop`."""
        while hop in self.kernel.views:
            hop = hop.inputs[0]
        if hop in self.totals:
            return StageOperand(SCRATCH, self.scratch_offset[hop])
        if hop in self.partial_offset:
            return StageOperand(PARTIAL, self.number[hop], 0, self.partial_offset[hop])
        if isinstance(stage, Product) and hop is stage.vector and self._in_panels(stage):
            return StageOperand(SHARED, self.panels[hop])
        if hop in self.packed and isinstance(stage, Product) and hop is stage.vector:
            return StageOperand(SCRATCH, self.scratch_offset[hop])
        if hop in self.number:
            axis = self.axis[hop]
            step = 0 if axis is None else self.places[hop].strides[axis] * self.height
            return StageOperand(OPERAND, self.number[hop], step)
        return StageOperand(SCRATCH, self.scratch_offset[hop])

    def _combine(self, hop: Hop) -> Combine:
        itself = any(s.hop is hop and is_wide(s, self.shapes) and mirrored(s) for s in self.sums)
        square = (self.shapes[hop.meta.shape][0] if itself else 0, hop.meta.dtype.itemsize)
        offset = self.partial_offset[hop]
        return Combine(self._adder(hop), self.number[hop], offset, self._bytes(hop), *square)

    def _add_stage(self, hop: Hop) -> BlockStage:
        """Return the stage that adds a block's total to the running sum."""
        block, so_far = self._adder(hop), StageOperand(PARTIAL, self.number[hop], 0, self.partial_offset[hop])
        return BlockStage(block, block, (so_far, StageOperand(SCRATCH, self.scratch_offset[hop]), so_far))

    def _adder(self, hop: Hop) -> bytes:
        """Return the argument block of ``a = a + b`` for values like `hop`."""
        meta = Meta((2,), hop.meta.dtype)
        a, b = leaf(0, meta), leaf(1, meta)
        total = apply("add", a, b)
        kernel = Kernel("Cell", (2,), (a, b), (total,), (total,))
        executable, _ = self.tools.executable(
            kernel, structure_key(kernel), Form("cell", 1, "ccc"), SERIAL)
        self.executables.append(executable)
        size = prod(self.shapes[hop.meta.shape])
        return executable.template(Geometry((size,), ((hop.meta.dtype.itemsize,),) * 3))


def _shifted(place: StageOperand, nbytes: int) -> StageOperand:
    """Return the place `nbytes` further on."""
    if place.kind == OPERAND:
        return place._replace(other=nbytes)
    return place._replace(value=place.value + nbytes)


SINGLE_THREADED, NONTEMPORAL = Schedule(threads=1), Schedule(threads=1, nontemporal=True)


class WindowBinding:
    """A window kernel bound to sizes and layouts, while its argument block is made."""

    def __init__(
        self, kernel: WindowKernel, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout],
        tools: KernelBuilder, chosen: Values = UNTUNED,
    ) -> None:
        self.kernel, self.shapes, self.places, self.tools = kernel, shapes, places, tools
        self.chosen = chosen
        self.executables: list[Any] = []
        arguments = [h for h in kernel.inputs if h.op.name != "const"]
        self.axis = dict(zip(kernel.inputs, kernel.axes, strict=True))
        self.number = {h: i for i, h in enumerate((*arguments, *kernel.outputs))}
        self.rows = shapes[kernel.shape][0]
        self.rate = kernel.rows_per_result
        self.ahead = {h: shapes[s.shape][0] - n * self.rows
                      for s, n in zip(kernel.stages, kernel.rates, strict=True) for h in s.outputs}
        max_ahead = max(self.ahead.values())
        bytes_per_row = window_row_bytes(kernel, lambda shape: shapes[shape])
        self.height = int(chosen.get("height") or window_height(bytes_per_row, self.rows, max_ahead))
        self.bytes_per_row = max(bytes_per_row, 1)
        self.scratch_offset: dict[Hop, int] = {}
        self.size = 0
        for hop in kernel.intermediates:
            self.scratch_offset[hop] = self.size
            self.size += padded(self._row(hop) * (self.rate[hop] * self.height + self.ahead[hop]))

    def _row(self, hop: Hop) -> int:
        return prod(self.shapes[hop.meta.shape][1:]) * hop.meta.dtype.itemsize

    def block(self) -> Launchable | None:
        """Return the argument block and its launcher; None if a stage has too few rows."""
        if min(self.ahead.values()) < 0:
            return None
        blocks = -(-self.rows // self.height)
        last_rows = self.rows - (blocks - 1) * self.height
        stages: list[BlockStage] = []
        stage_scratch = 0
        for stage, rate in zip(self.kernel.stages, self.kernel.rates, strict=True):
            ahead = self.ahead[stage.outputs[0]]
            if ahead:
                ahead_block, scratch = self._template(stage, ahead)
                operand_places = self._operand_places(stage, 0, rate)
                stages.append(BlockStage(ahead_block, ahead_block, operand_places, FIRST_BLOCK))
                stage_scratch = max(stage_scratch, scratch)
            full_block, scratch = self._template(stage, rate * self.height)
            last_block, last_scratch = self._template(stage, rate * last_rows)
            operand_places = self._operand_places(stage, ahead, rate)
            stages.append(BlockStage(full_block, last_block, operand_places, EVERY_BLOCK))
            stage_scratch = max(stage_scratch, scratch, last_scratch)
        if blocks > 1:
            stages += [self._carry_stage(h) for h in self.kernel.intermediates if self.ahead[h]]
        blocking = Blocking(blocks, self._per_unit(blocks), 0, padded(self.size) + padded(stage_scratch),
                            padded(self.size), 0)
        scalars = tuple(
            h.meta.dtype if h.meta.shape == () and h not in self.kernel.outputs else None
            for h in self.number)
        moved = sum(prod(self.places[h].shape) * h.meta.dtype.itemsize for h in self.number if h.meta.shape)
        return self.tools.rows_block(scalars, stages, [], blocking, moved / BYTES_PER_NS)

    def _per_unit(self, blocks: int) -> int:
        """Return the number of blocks of a unit of work."""
        if "units" in self.chosen:
            return max(-(-blocks // int(self.chosen["units"])), 1)
        return blocks_per_unit(
            blocks, self.bytes_per_row * self.height,
            sum(self._row(h) * self.ahead[h] for h in self.kernel.intermediates))

    def space(self, places: tuple[str, ...]) -> Space:
        """Return the space of schedules, with `places` of intermediates; no value depends on the choice."""
        blocks = -(-self.rows // self.height)
        ahead = max(self.ahead.values())
        return row_space(
            RowPass(self.rows, self.bytes_per_row, len(self.kernel.stages), self.tools.cores,
                    work_of(self.kernel.body), max(2 * ahead, 1),
                    tiles_of(self.shapes[self.kernel.shape]),
                    places, True, self.shapes[self.kernel.shape][-1],
                    self.kernel.outputs[0].meta.dtype.itemsize, ahead=ahead),
            self.height, -(-blocks // self._per_unit(blocks)), True, True)

    def _template(self, stage: Kernel, rows: int) -> tuple[bytes, int]:
        """Return the argument block of one stage on `rows` rows, and its scratch bytes."""
        layouts = {h: self._layout(h, rows) for h in (*stage.inputs, *stage.body)}
        walked = walk(operands(stage), (rows, *self.shapes[stage.shape][1:]), layouts, {})
        assert walked is not None, "elementwise stages support every layout"
        form, geometry = walked
        ends = form.inner[-len(stage.outputs):]
        streams = self.shapes[stage.shape][0] > rows and set(ends) == {"c"} and all(
            h in self.number and prod(self.places[h].shape) * h.meta.dtype.itemsize >= MIN_STREAMED_BYTES
            for h in stage.outputs)
        schedule = apply_knobs(self.chosen, NONTEMPORAL if streams else SINGLE_THREADED)
        executable, _ = self.tools.executable(stage, structure_key(stage), form, schedule)
        self.executables.append(executable)
        return executable.template(geometry), executable.scratch(geometry)

    def _layout(self, hop: Hop, rows: int) -> Layout:
        """Return the layout of `rows` rows of a value."""
        if hop.meta.shape == ():
            return Layout((), ())
        shape = self.shapes[hop.meta.shape]
        source = hop.inputs[0] if hop in self.kernel.views else hop
        if source in self.scratch_offset:
            strides = contiguous(self.shapes[source.meta.shape], source.meta.dtype.itemsize).strides
            if hop is not source:
                strides = tuple(s * n.step for s, n in zip(strides, sections(hop) or (), strict=True))
        elif hop in self.number:
            if self.axis.get(hop, 0) is None:
                return self.places[hop]
            strides = self.places[hop].strides
        else:  # an intermediate within a stage
            strides = contiguous(shape, hop.meta.dtype.itemsize).strides
        return Layout((rows, *shape[1:]), strides)

    def _operand_places(self, stage: Kernel, ahead: int, rate: int) -> tuple[StageOperand, ...]:
        """Return where a stage finds its operands, after skipping the first `ahead` rows."""
        values = (h for h in (*stage.inputs, *stage.outputs) if h.op.name != "const")
        return tuple(self._operand_place(h, ahead, rate) for h in values)

    def _operand_place(self, hop: Hop, ahead: int, rate: int) -> StageOperand:
        if hop in self.kernel.views:
            source = hop.inputs[0]
            slices = sections(hop)
            assert slices is not None
            steps = contiguous(self.shapes[source.meta.shape], source.meta.dtype.itemsize).strides
            skipped = sum(s.first * step for s, step in zip(slices, steps, strict=True))
            skipped += ahead * slices[0].step * steps[0]
            return StageOperand(SCRATCH, self.scratch_offset[source] + skipped)
        if hop in self.scratch_offset:
            return StageOperand(SCRATCH, self.scratch_offset[hop] + ahead * self._row(hop))
        if self.axis.get(hop, 0) is None:
            return StageOperand(OPERAND, self.number[hop])
        step = self.places[hop].strides[0]
        return StageOperand(OPERAND, self.number[hop], step * rate * self.height, ahead * step)

    def _carry_stage(self, hop: Hop) -> BlockStage:
        """Return the stage that moves the last rows of a value to the front of its scratch memory."""
        dtype = hop.meta.dtype
        x = leaf(0, Meta((2,), dtype))
        copy = make("cast", (x,), dtype=dtype)
        kernel = Kernel("Cell", (2,), (x,), (copy,), (copy,))
        size = prod(self.shapes[hop.meta.shape][1:]) * self.ahead[hop]
        walked = walk(operands(kernel), (size,), {x: contiguous((size,), dtype.itemsize),
                                                 copy: contiguous((size,), dtype.itemsize)}, {})
        assert walked is not None
        executable, _ = self.tools.executable(kernel, structure_key(kernel), walked[0], SINGLE_THREADED)
        self.executables.append(executable)
        block = executable.template(Geometry((size,), ((dtype.itemsize,),) * 2))
        offset = self.scratch_offset[hop]
        return BlockStage(block, block, (
            StageOperand(SCRATCH, offset + self.rate[hop] * self.height * self._row(hop)),
            StageOperand(SCRATCH, offset)), EVERY_BLOCK)
