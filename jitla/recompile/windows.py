"""A window kernel bound to sizes: blocks of rows, where stages find the rows of each other, what is kept.

Knows: layouts, argument blocks, scratch memory. Must not know: machine code, how the kernel was chosen.
Receives a `WindowKernel`, bound shapes and layouts; returns its argument block.

A stage that is read `ahead` rows further on has made so many when a block begins: at the first block of a
unit it makes them then, at others the block before has moved them to the front of its memory. Of every
block it makes what lies behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from jitla.fusion import (
    ALWAYS,
    OPENING,
    OPERAND,
    ROOM,
    STREAMED,
    Cut,
    Geometry,
    Kernel,
    Layout,
    Place,
    Schedule,
    Space,
    Stage,
    Values,
    WindowKernel,
    blocks_per_unit,
    contiguous,
    operands,
    structure_key,
    walk,
    window_height,
    window_row,
)
from jitla.hops import Hop, Meta, Shape, leaf, make, sections
from jitla.recompile.asked import RowTools
from jitla.recompile.choices import UNTUNED, Made, as_chosen
from jitla.recompile.cuts import BYTES_PER_NS, padded
from jitla.recompile.spaces import Rows, row_space, tiles_of, work_of

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
        self.rate = kernel.rate
        self.ahead = {h: shapes[s.shape][0] - n * self.rows
                      for s, n in zip(kernel.stages, kernel.rates, strict=True) for h in s.outputs}
        most = max(self.ahead.values())
        each = window_row(kernel, lambda shape: shapes[shape])
        self.height = int(chosen.get("height") or window_height(each, self.rows, most))
        self.each = max(each, 1)
        self.room: dict[Hop, int] = {}
        self.size = 0
        for hop in kernel.inner:
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
                stages.append(Stage(first, first, self._places(stage, 0, rate), OPENING))
                spare = max(spare, more)
            whole, more = self._template(stage, rate * self.height)
            end, less = self._template(stage, rate * last)
            stages.append(Stage(whole, end, self._places(stage, ahead, rate), ALWAYS))
            spare = max(spare, more, less)
        if blocks > 1:
            stages += [self._moving(h) for h in self.kernel.inner if self.ahead[h]]
        cut = Cut(blocks, self._per_unit(blocks), 0, padded(self.size) + padded(spare), padded(self.size), 0)
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
            blocks, self.each * self.height, sum(self._row(h) * self.ahead[h] for h in self.kernel.inner))

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
            h in self.number and prod(self.places[h].shape) * h.meta.dtype.itemsize >= STREAMED
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

    def _places(self, stage: Kernel, ahead: int, rate: int) -> tuple[Place, ...]:
        """Say where a stage finds its operands, the first `ahead` rows left out."""
        every = (h for h in (*stage.inputs, *stage.outputs) if h.op.name != "const")
        return tuple(self._place(h, ahead, rate) for h in every)

    def _place(self, hop: Hop, ahead: int, rate: int) -> Place:
        if hop in self.kernel.views:
            source = hop.inputs[0]
            taken = sections(hop)
            assert taken is not None
            steps = contiguous(self.shapes[source.meta.shape], source.meta.dtype.itemsize).strides
            skipped = sum(s.first * step for s, step in zip(taken, steps, strict=True))
            return Place(ROOM, self.room[source] + skipped + ahead * taken[0].step * steps[0])
        if hop in self.room:
            return Place(ROOM, self.room[hop] + ahead * self._row(hop))
        if self.axis.get(hop, 0) is None:
            return Place(OPERAND, self.number[hop])
        step = self.places[hop].strides[0]
        return Place(OPERAND, self.number[hop], step * rate * self.height, ahead * step)

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
            Place(ROOM, room + self.rate[hop] * self.height * self._row(hop)), Place(ROOM, room)), ALWAYS)
