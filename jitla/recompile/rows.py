"""A row kernel bound to sizes: how rows are cut into blocks, and where every stage finds its operands.

Knows: layouts, argument blocks, scratch memory. Must not know: machine code, how the kernel was chosen.
Receives a `RowKernel`, bound shapes and layouts; returns its argument block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

from jitla.fusion import (
    FRESH,
    OPERAND,
    PARTIAL,
    ROOM,
    Combine,
    Cut,
    Executable,
    Form,
    Geometry,
    Kernel,
    Layout,
    Place,
    Product,
    RowKernel,
    Schedule,
    Stage,
    contiguous,
    operands,
    result_of,
    structure_key,
    walk,
)
from jitla.hops import Hop, Meta, Shape, apply, leaf

BLOCK_BYTES = 160 << 10  # of all rows of a block: they stay in the second-level cache
MAX_UNITS = 64  # so many partial results at most, whatever the number of threads
LINE = 64
SERIAL = Schedule(threads=1)

Launch = Callable[..., None]


class RowTools(Protocol):
    """What binding a row kernel asks for."""

    def executable(
        self, kernel: Kernel, key: Any, form: Form, schedule: Schedule
    ) -> tuple[Executable, Launch]:
        """Machine code for one variant of a kernel, and what runs it."""
        ...

    def product(self, product: Product) -> Callable[[int, int, int], bytes]:
        """Return what makes the argument block for so many rows, of a length, bytes apart."""
        ...

    def rows_block(
        self, scalars: tuple[bool, ...], stages: list[Stage], combines: list[Combine], cut: Cut,
        nanoseconds: float,
    ) -> tuple[bytes, Launch]:
        """Return the argument block of the whole, and what runs it."""
        ...


@dataclass(slots=True)
class RowLoop:
    """A row kernel of a program; its machine code is kept as long as the program."""

    kernel: RowKernel
    kept: list[Any] = field(default_factory=list)

    def block(
        self, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout], tools: RowTools
    ) -> tuple[bytes, Launch] | None:
        """Return the argument block and what runs it; None if rows do not lie as they have to."""
        bound = _Binding(self.kernel, shapes, places, tools)
        made = bound.block()
        if made is not None:
            self.kept += bound.kept
        return made


class _Binding:
    """One binding of a row kernel while its block is made."""

    def __init__(
        self, kernel: RowKernel, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout],
        tools: RowTools,
    ) -> None:
        self.kernel = kernel
        self.shapes = shapes
        self.places = places
        self.tools = tools
        self.kept: list[Any] = []
        given = [h for h in kernel.inputs if h.op.name != "const"]
        self.axis = dict(zip(kernel.inputs, kernel.axes, strict=True))
        self.number = {h: i for i, h in enumerate((*given, *kernel.outputs))}
        self.sums = [s for s in kernel.stages if isinstance(s, Product) and s.form == "sum"]
        summed = {s.hop for s in self.sums}
        self.axis |= {h: None if h in summed else 0 for h in kernel.body}
        self.axis |= {h: 0 for h in kernel.views}
        self.rows = next(
            places[h].shape[a] for h, a in self.axis.items() if a is not None and h in self.number)
        self.height = self._height()
        self.inner = [  # values that only stages see
            h for s in kernel.stages for h in s.outputs if h not in self.number and h not in summed]
        self.room: dict[Hop, int] = {}
        self.part: dict[Hop, int] = {}
        self.size = self._lay_out(summed)

    def _row_bytes(self, hop: Hop) -> int:
        shape = self.shapes[hop.meta.shape] if hop.meta.shape else ()
        axis = self.axis[hop]
        return prod(n for i, n in enumerate(shape) if i != axis) * hop.meta.dtype.itemsize

    def _height(self) -> int:
        """Return how many rows make a block."""
        values = dict.fromkeys((*self.kernel.inputs, *(h for s in self.kernel.stages for h in s.outputs)))
        each = sum(self._row_bytes(h) for h in values if self.axis[h] is not None)
        height = max(BLOCK_BYTES // max(each, 1), 8)
        return min(height - height % 8, self.rows)

    def _lay_out(self, summed: set[Hop]) -> int:
        """Give every value between stages its place in a thread's memory; return its bytes."""
        at = 0
        for hop in self.inner:
            self.room[hop] = at
            at += _padded(self._row_bytes(hop) * self.height)
        offset = 0
        for hop in summed:
            self.room[hop], self.part[hop] = at, offset
            size = _padded(prod(self.shapes[hop.meta.shape]) * hop.meta.dtype.itemsize)
            at, offset = at + size, offset + size
        return at

    def block(self) -> tuple[bytes, Launch] | None:
        blocks = -(-self.rows // self.height)
        last = self.rows - (blocks - 1) * self.height
        whole_layouts, last_layouts = self._layouts(self.height), self._layouts(last)
        stages: list[Stage] = []
        for stage in self.kernel.stages:
            pair = [self._template(stage, *which) for which in (
                (self.height, whole_layouts), (last, last_layouts))]
            if pair[0] is None or pair[1] is None:
                return None
            own = self._operands(stage)
            stages.append(Stage(pair[0], pair[1], tuple(self._place(h, stage) for h in own)))
            if stage in self.sums:
                stages.append(self._adding(stage.outputs[0]))
        combines = [
            Combine(self._adder(h), self.number[h], offset) for h, offset in self.part.items()]
        spare = max(int.from_bytes(s.whole[40:48], "little") for s in stages)
        room = _padded(self.size) + _padded(spare)
        cut = Cut(blocks, -(-blocks // MAX_UNITS), 0, room, _padded(self.size), sum(
            _padded(prod(self.shapes[h.meta.shape]) * h.meta.dtype.itemsize) for h in self.part))
        scalars = tuple(h.meta.shape == () and h not in self.kernel.outputs for h in self.number)
        moved = sum(
            prod(self.places[h].shape) * h.meta.dtype.itemsize for h in self.number if h.meta.shape)
        return self.tools.rows_block(scalars, stages, combines, cut, moved / 10.0)

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
            elif hop in self.kernel.views:
                found[hop] = result_of(hop, tuple(shape), dict(hop.attrs), [found[hop.inputs[0]]])
            else:
                found[hop] = contiguous(tuple(shape), hop.meta.dtype.itemsize)
        return found

    def _template(
        self, stage: Kernel | Product, rows: int, layouts: Mapping[Hop, Layout]
    ) -> bytes | None:
        """Return the argument block of one stage on `rows` rows."""
        if isinstance(stage, Product):
            return self._product(stage, rows, layouts)
        shape = (rows, *self.shapes[stage.shape][1:])
        found = walk(operands(stage), shape, layouts, {})
        if found is None:
            return None
        executable, _ = self.tools.executable(stage, structure_key(stage), found[0], SERIAL)
        self.kept.append(executable)
        return executable.template(found[1])

    def _product(
        self, stage: Product, rows: int, layouts: Mapping[Hop, Layout]
    ) -> bytes | None:
        matrix, vector = layouts[stage.matrix], layouts[stage.vector]
        across, along = (1, 0) if stage.turned else (0, 1)
        size = stage.hop.meta.dtype.itemsize
        if matrix.strides[along] != size or vector.strides != (size,) or matrix.strides[across] < 0:
            return None
        made = self.tools.product(stage)
        self.kept.append(made)
        return made(rows, matrix.shape[along], matrix.strides[across])

    def _operands(self, stage: Kernel | Product) -> tuple[Hop, ...]:
        return tuple(h for h in (*stage.inputs, *stage.outputs) if h.op.name != "const")

    def _place(self, hop: Hop, stage: Kernel | Product) -> Place:
        """Say where `stage` finds `hop`."""
        while hop in self.kernel.views:
            hop = hop.inputs[0]
        if hop in self.part and stage in self.sums and hop in stage.outputs:
            return Place(FRESH, self.number[hop], self.room[hop], self.part[hop])
        if hop in self.number:
            axis = self.axis[hop]
            step = 0 if axis is None else self.places[hop].strides[axis] * self.height
            return Place(OPERAND, self.number[hop], step)
        return Place(ROOM, self.room[hop])

    def _adding(self, hop: Hop) -> Stage:
        """Return the stage that adds a block's sum to the unit's."""
        unit = Place(PARTIAL, self.number[hop], 0, self.part[hop])
        adder = self._adder(hop)
        return Stage(adder, adder, (unit, Place(ROOM, self.room[hop]), unit), later=True)

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


def _padded(size: int) -> int:
    """Return `size` rounded up to whole cache lines, and one more between neighbours."""
    return size + -size % LINE + LINE
