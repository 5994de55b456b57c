"""A row kernel bound to sizes: how rows are cut into blocks, and where every stage finds its operands.

Knows: layouts, argument blocks, scratch memory. Must not know: machine code, how the kernel was chosen.
Receives a `RowKernel`, bound shapes and layouts; returns its argument block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from math import prod
from typing import Any

from jitla.fusion import (
    ALONE,
    BEFORE,
    OPENING,
    OPERAND,
    PACKED,
    PACKS,
    PAIRS,
    PARTIAL,
    ROOM,
    SHARED,
    UPRIGHT,
    Combine,
    Cut,
    Entries,
    Form,
    Geometry,
    Kernel,
    Layout,
    Place,
    Product,
    RowKernel,
    Schedule,
    Shares,
    Space,
    Stage,
    Tile,
    Values,
    alike,
    block_height,
    blocks_per_unit,
    contiguous,
    operands,
    over_rows,
    packs_once,
    pairs_in,
    panels_bytes,
    result_of,
    structure_key,
    walk,
)
from jitla.hops import Hop, Kind, Meta, Shape, apply, leaf, make
from jitla.recompile.asked import RowTools
from jitla.recompile.choices import UNTUNED, Made, as_chosen, short_rows
from jitla.recompile.cuts import (
    columns_of,
    is_wide,
    mirrored,
    nanoseconds,
    narrow_sizes,
    padded,
    turns_last,
    wide_tile,
)
from jitla.recompile.spaces import Rows, row_space, work_of
from jitla.recompile.upright import upright_values

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
                       if over_rows(h) and h not in kernel.in_turn]
        summed = dict.fromkeys((*(s.hop for s in self.sums), *self.totals))
        self.axis |= {h: None if h in summed or h in kernel.in_turn else 0 for h in kernel.body}
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
                    at += padded(panels_bytes(self.places[hop].shape, hop.meta.dtype.itemsize))
        return (found, at) if packs_once(self.rows, at) else ({}, 0)

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
            self.each, self.rows, wide, bool(self.kernel.in_turn), packed, self.kernel.columnwise)

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
        if self.kernel.in_turn and not self.packed:
            return 1
        if "units" in self.chosen:
            return max(-(-blocks // int(self.chosen["units"])), 1)
        aside = sum(map(self._bytes, (*self.part, *self.packed))) * (SCATTERED if self.compressed else 1)
        found = blocks_per_unit(blocks, self.each * self.height, aside)
        units = -(-blocks // found)
        if self.compressed and units in UNEVEN:
            found = -(-blocks // (units + 1))
        return found

    def _shares(self) -> Shares:
        """Return by what units are shared out: by entries, where rows of a block have any number of them."""
        starts = self.compressed[0].inputs[2] if self.compressed else None
        if starts not in self.number or self.kernel.in_turn:
            return Shares()
        return Shares(self.number[starts] + 1, starts.meta.dtype.itemsize, self.height, self.rows)

    def space(self) -> Space:
        """Return what may be chosen: partial sums over rows depend on it, nothing else does."""
        blocks = -(-self.rows // self.height)
        shared = not self.kernel.in_turn or bool(self.packed)
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
            if isinstance(stage, Kernel) and any(h in self.kernel.in_turn for h in stage.outputs):
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
        cut = Cut(blocks, self._per_unit(blocks), 0, room, padded(self.size),
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
                found[hop] = result_of(hop, tuple(shape), dict(hop.attrs), [found[hop.inputs[0]]])
            else:  # rows lie one after the other, each as in the whole value: its sums have NumPy's order
                whole = self.places[hop].strides if hop in self.places else ()
                found[hop] = alike(tuple(shape), hop.meta.dtype.itemsize, whole or (0,) * len(shape))
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
                tile = tile._replace(panels=PACKED)
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
            return self._made(UPRIGHT + stage.form, stage.matrix, 1)(rows, length, 0, 0)
        upright = UPRIGHT if stage.hop in self.upright else ""
        sizes = narrow_sizes(stage, rows, layouts, stage.vector in self.packed, bool(upright))
        columns = 1 if stage.form in ALONE else columns_of(layouts[stage.vector].shape)
        form = COLUMNWISE[stage.form] if stage.columnwise else stage.form
        return None if sizes is None else self._made(upright + form, stage.matrix, columns)(*sizes)

    def _pairs(self, stage: Product, layouts: Mapping[Hop, Layout]) -> bytes | None:
        dtype = stage.hop.meta.dtype
        found = pairs_in(layouts[stage.matrix], layouts[stage.vector], layouts[stage.hop], dtype.itemsize)
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
        return made_block(Entries(rows, width, data.shape[0], depth))

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
        block = made(Tile(0, depth, columns, 0, 0, down, across, 0, panels=PACKS))
        given = Place(OPERAND, self.number[hop])
        return Stage(block, block, (given, given, Place(SHARED, self.panels[hop])), BEFORE)

    def _packing(self, hop: Hop) -> Stage:
        """Return the stage that copies vectors into a thread's memory, one row after the other."""
        here = self.places[hop]
        columns = columns_of(here.shape)
        block = self._made("pack", hop, columns)(
            here.shape[0], columns, here.strides[0], here.strides[-1])
        given = Place(OPERAND, self.number[hop])
        return Stage(block, block, (given, given, Place(ROOM, self.room[hop])), OPENING)

    def _operands(self, stage: Kernel | Product) -> tuple[Hop, ...]:
        if isinstance(stage, Product):  # a loop has a place for a vector, needed or not
            return (*stage.inputs, stage.hop) if stage.compressed else \
                (stage.matrix, stage.vector, stage.hop)
        return tuple(h for h in (*stage.inputs, *stage.outputs) if h.op.name != "const")

    def _place(self, hop: Hop, stage: Kernel | Product) -> Place:
        """Say where `stage` finds `hop`."""
        while hop in self.kernel.views:
            hop = hop.inputs[0]
        if hop in self.totals:
            return Place(ROOM, self.room[hop])
        if hop in self.part:
            return Place(PARTIAL, self.number[hop], 0, self.part[hop])
        if isinstance(stage, Product) and hop is stage.vector and self._in_panels(stage):
            return Place(SHARED, self.panels[hop])
        if hop in self.packed and isinstance(stage, Product) and hop is stage.vector:
            return Place(ROOM, self.room[hop])
        if hop in self.number:
            axis = self.axis[hop]
            step = 0 if axis is None else self.places[hop].strides[axis] * self.height
            return Place(OPERAND, self.number[hop], step)
        return Place(ROOM, self.room[hop])

    def _combine(self, hop: Hop) -> Combine:
        itself = any(s.hop is hop and is_wide(s, self.shapes) and mirrored(s) for s in self.sums)
        square = (self.shapes[hop.meta.shape][0] if itself else 0, hop.meta.dtype.itemsize)
        return Combine(self._adder(hop), self.number[hop], self.part[hop], self._bytes(hop), *square)

    def _adding(self, hop: Hop) -> Stage:
        """Return the stage that adds a block's total to those of the blocks before it."""
        block, so_far = self._adder(hop), Place(PARTIAL, self.number[hop], 0, self.part[hop])
        return Stage(block, block, (so_far, Place(ROOM, self.room[hop]), so_far))

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


def _behind(place: Place, nbytes: int) -> Place:
    """Return the place so many bytes behind the beginning of rows."""
    if place.kind == OPERAND:
        return place._replace(other=nbytes)
    return place._replace(value=place.value + nbytes)
