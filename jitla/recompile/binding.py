"""Bound kernels: loops over operands with addresses and sizes filled in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from jitla.classes import dataclass
from jitla.compile_stats import MAKING
from jitla.fusion import (
    MIN_STREAMED_BYTES,
    Executable,
    Form,
    Geometry,
    Kernel,
    Layout,
    Operands,
    RowKernel,
    Schedule,
    Space,
    Values,
    WindowKernel,
    operands,
    structure_key,
    walk,
)
from jitla.hops import Hop, Kind, Shape, topo
from jitla.process.loading import later
from jitla.recompile.output_buffers import Order, delays, farthest
from jitla.recompile.row_binding import RowBinding, WindowBinding
from jitla.recompile.schedule_choices import (
    NO_TILES,
    UNTUNED,
    Cells,
    Choice,
    Launch,
    Made,
    RowTools,
    as_chosen,
    cell_space,
    is_nest,
    key_of,
    short_rows,
    tiles_of,
    work_of,
)


def may_stream(operands: Operands, form: Form, overwritten: Collection[int]) -> bool:
    """Tell whether results are contiguous and not read on the way: what was just read is in the cache."""
    cells = _cells(operands)
    letters = form.inner[len(operands.inputs):]
    if not cells or any(letters[i] != "c" for i in cells):
        return False
    return not any(h.op.name == "leaf" and h.attr("slot") in overwritten for h in operands.inputs)


def streams(
    operands: Operands, form: Form, overwritten: Collection[int], places: Mapping[Hop, Layout],
) -> bool:
    """Tell whether results may go around the caches, and are too large for these."""
    if not may_stream(operands, form, overwritten):
        return False
    outputs = operands.outputs
    return max(prod(places[outputs[i]].shape) * outputs[i].meta.dtype.itemsize
               for i in _cells(operands)) >= MIN_STREAMED_BYTES


def _cells(operands: Operands) -> list[int]:
    return [i for i, h in enumerate(operands.outputs) if h.op.kind is not Kind.AGG]


if TYPE_CHECKING:
    from jitla.recompile.loop_schedules import (
        nested,
        placements,
        schedule_of,
    )
else:  # for kernels that are chosen to be nests
    [schedule_of] = later("jitla.recompile.loop_schedules", "schedule_of")
    nested, placements = later("jitla.recompile.loop_schedules", "nested", "placements")


class Misfit(Exception):
    """The plan cannot be bound to these sizes and layouts; another plan is needed."""


class Binding(NamedTuple):
    """Sizes and layouts that a program is bound to; `layouts` are those of its leaves, by slot."""

    shapes: Mapping[Shape, Shape]
    places: Mapping[Hop, Layout]
    layouts: Mapping[int, Layout]
    order: Order
    tools: RowTools


class Walked(NamedTuple):
    """How a kernel walks over a binding: where it stores into leaves, and whether that waits."""

    form: Form
    geometry: Geometry
    stored: Mapping[Hop, Layout]
    late: bool


@dataclass(slots=True)
class CellLoop:
    """A kernel over elements, with its code by form and schedule."""

    kernel: Kernel
    key: Any
    operands: Operands
    variants: dict[tuple[Form, Schedule], tuple[Executable, Launch]] = field(default_factory=dict)

    def block(self, binding: Binding, chosen: Values = UNTUNED) -> Made:
        """Return the argument block and what runs it, knobs as `chosen`."""
        executable, launch, geometry = self.variant(binding, chosen)
        return executable.template(geometry), launch

    def space(self, binding: Binding) -> Space:
        """Return what may be chosen of it, bound like this."""
        form, _, stored, late = self._walked(binding)
        how = self.operands, form, {binding.order.direct[h] for h in stored}
        given = [h for h in (*self.kernel.inputs, *self.kernel.outputs) if h.meta.shape]
        # Elements that lie across, or next to each other in slices, may be met again: tile by tile, sooner.
        tiles = form.mode == "cell" and not stored and (len(set(form.inner)) > 1 or form.ndim > 1)
        sums = None if form.mode != "full" or form.ndim > 1 else any(
            h.op.name == "sum" and h.meta.dtype.kind in "fc" for h in self.kernel.outputs)
        return cell_space(Cells(
            may_stream(*how) and not late, streams(*how, binding.places) and not late,
            form.mode == "cell", sums, binding.tools.cores,
            sum(prod(binding.places[h].shape) * h.meta.dtype.itemsize for h in given),
            work_of(self.kernel.body),
            tiles_of(binding.shapes[self.kernel.shape]) if tiles else NO_TILES,
            self.kernel.outputs[0].meta.dtype.itemsize))

    def variant(self, binding: Binding, chosen: Values = UNTUNED) -> tuple[Executable, Launch, Geometry]:
        """Return it compiled for these layouts, what runs it, and how it walks over them."""
        form, geometry, stored, late = self._walked(binding)
        around = chosen["stores"] == "around" if "stores" in chosen else \
            streams(self.operands, form, {binding.order.direct[h] for h in stored}, binding.places)
        schedule = as_chosen(chosen, Schedule(
            threads=int(chosen.get("threads", 0)) or binding.tools.threads,
            unroll=int(chosen.get("sums", 1)), nontemporal=around and not late, delayed=late,
            crosswise=short_rows(self.kernel, form, geometry)))
        if (form, schedule) in self.variants:
            MAKING.now.kernel(None)
        else:
            self.variants[form, schedule] = binding.tools.executable(self.kernel, self.key, form, schedule)
        return *self.variants[form, schedule], geometry

    def _walked(self, binding: Binding) -> Walked:
        order = binding.order
        stored = {h: binding.layouts[order.direct[h]] for h in self.operands.outputs if h in order.direct}
        found = walk(self.operands, binding.shapes[self.kernel.shape], binding.places, stored)
        if found is None:
            raise Misfit
        form, geometry = found
        late = [(stored[h], order.delayed[h]) for h in stored if h in order.delayed]
        if late:
            if not delays(form, geometry):
                raise Misfit
            geometry = replace(geometry, alias_distance=farthest(*late[0], self.operands.sizes[-1]))
        return Walked(form, geometry, stored, bool(late))


@dataclass(slots=True)
class BlockLoop:
    """A kernel over blocks of rows, with all that its bindings run."""

    kernel: RowKernel | WindowKernel
    kept: list[Any] = field(default_factory=list)

    def block(self, binding: Binding, chosen: Values = UNTUNED) -> Made:
        """Return the argument block and what runs it, knobs as `chosen`."""
        bound = self._bound(binding, chosen)
        made = bound.block()
        if made is None:  # rows do not lie right
            raise Misfit
        self.kept += bound.kept
        return made

    def space(self, binding: Binding) -> Space:
        """Return what may be chosen of it, bound like this."""
        bound = self._bound(binding, UNTUNED)
        if isinstance(bound, RowBinding):
            return bound.space()
        return bound.space(placements(bound.kernel, binding.shapes))

    def _bound(self, binding: Binding, chosen: Values) -> RowBinding | WindowBinding:
        how = binding.shapes, binding.places, binding.tools, chosen
        if isinstance(self.kernel, RowKernel):
            return RowBinding(self.kernel, *how)
        return WindowBinding(self.kernel, *how)


def made(loop: CellLoop | BlockLoop, binding: Binding, chosen: Values) -> Made:
    """Return the argument block of a loop and what runs it: as a nest, if that is what is chosen."""
    if not is_nest(chosen):
        return loop.block(binding, chosen)
    return nested(loop.kernel, schedule_of(loop.kernel, chosen), binding.shapes, binding.places,
                  binding.order.direct, binding.tools)


def loop_of(kernel: Kernel | RowKernel | WindowKernel) -> CellLoop | BlockLoop:
    """Return a kernel with nothing made of it yet."""
    if isinstance(kernel, Kernel):
        return CellLoop(kernel, structure_key(kernel), operands(kernel))
    return BlockLoop(kernel)


class Parcel(NamedTuple):
    """A kernel and what it is bound to, without anything that was made of it in this process."""

    kernel: Kernel | RowKernel | WindowKernel
    shapes: Mapping[Shape, Shape]
    places: Mapping[Hop, Layout]
    layouts: Mapping[int, Layout]
    direct: Mapping[Hop, int]
    delayed: Mapping[Hop, int]

    def choice(self, tools: RowTools) -> Choice:
        """Return what may be chosen of the kernel, as `tools` make it."""
        order = Order((), 0, self.direct, (), (), self.delayed)
        return choice_of(loop_of(self.kernel), Binding(self.shapes, self.places, self.layouts, order, tools))


def choice_of(loop: CellLoop | BlockLoop, binding: Binding) -> Choice:
    """Return what may be chosen of a kernel that is bound."""
    key = key_of(loop.kernel, binding.shapes, binding.places)
    return Choice(key, binding.shapes, len(loop.kernel.outputs), partial(loop.space, binding),
                  partial(made, loop, binding), partial(_parcel, loop.kernel, binding))


def _parcel(kernel: Kernel | RowKernel | WindowKernel, binding: Binding) -> Parcel:
    known = set(topo(kernel.outputs))
    mine = {h: p for h, p in binding.places.items() if h in known}
    order = binding.order
    return Parcel(kernel, binding.shapes, mine, binding.layouts, order.direct, order.delayed)
