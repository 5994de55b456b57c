"""Bound kernels: machine code variants and argument blocks of kernels, for given sizes and layouts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from jitla.classes import dataclass
from jitla.compile_stats import COMPILING
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
from jitla.process.loading import lazy_functions
from jitla.recompile.output_buffers import ExecutionOrder, can_delay_stores, delay_bytes
from jitla.recompile.row_binding import RowBinding, WindowBinding
from jitla.recompile.schedule_choices import (
    NO_TILES,
    UNTUNED,
    CellPass,
    KernelBuilder,
    Launch,
    Launchable,
    TunableKernel,
    apply_knobs,
    cell_space,
    has_short_rows,
    is_nest,
    key_of,
    tiles_of,
    work_of,
)


def may_stream(operands: Operands, form: Form, overwritten: Collection[int]) -> bool:
    """Return whether non-temporal stores are legal: results are contiguous and not read by the kernel.

    What was just read is in the cache, where a non-temporal store would be slower.
    """
    cells = _cell_outputs(operands)
    letters = form.inner[len(operands.inputs):]
    if not cells or any(letters[i] != "c" for i in cells):
        return False
    return not any(h.op.name == "leaf" and h.attr("slot") in overwritten for h in operands.inputs)


def should_stream(
    operands: Operands, form: Form, overwritten: Collection[int], places: Mapping[Hop, Layout],
) -> bool:
    """Return whether results should bypass the caches, as they are too large for them."""
    if not may_stream(operands, form, overwritten):
        return False
    outputs = operands.outputs
    return max(prod(places[outputs[i]].shape) * outputs[i].meta.dtype.itemsize
               for i in _cell_outputs(operands)) >= MIN_STREAMED_BYTES


def _cell_outputs(operands: Operands) -> list[int]:
    return [i for i, h in enumerate(operands.outputs) if h.op.kind is not Kind.AGG]


if TYPE_CHECKING:
    from jitla.recompile.loop_schedules import (
        bind_nest,
        schedule_of,
        stage_placements,
    )
else:  # for kernels that are chosen to be nests
    [schedule_of] = lazy_functions("jitla.recompile.loop_schedules", "schedule_of")
    bind_nest, stage_placements = lazy_functions("jitla.recompile.loop_schedules", "bind_nest",
                                                 "stage_placements")


class Misfit(Exception):
    """The plan cannot be bound to these sizes and layouts; another plan is needed."""


class Binding(NamedTuple):
    """Sizes and layouts that a program is bound to; `layouts` are those of its leaves, by slot."""

    shapes: Mapping[Shape, Shape]
    places: Mapping[Hop, Layout]
    layouts: Mapping[int, Layout]
    order: ExecutionOrder
    tools: KernelBuilder


class KernelWalk(NamedTuple):
    """How a kernel iterates over its operands; `stored` are leaves it stores into."""

    form: Form
    geometry: Geometry
    stored: Mapping[Hop, Layout]
    delayed: bool


@dataclass(slots=True)
class CellLoop:
    """An elementwise kernel or full aggregate, with its machine code by form and schedule."""

    kernel: Kernel
    key: Any
    operands: Operands
    variants: dict[tuple[Form, Schedule], tuple[Executable, Launch]] = field(default_factory=dict)

    def block(self, binding: Binding, chosen: Values = UNTUNED) -> Launchable:
        """Return the argument block and its launcher, with the knobs `chosen`."""
        executable, launch, geometry = self.variant(binding, chosen)
        return executable.template(geometry), launch

    def space(self, binding: Binding) -> Space:
        """Return the space of schedules of this binding."""
        form, _, stored, delayed = self._walk(binding)
        walk_args = self.operands, form, {binding.order.direct[h] for h in stored}
        arrays = [h for h in (*self.kernel.inputs, *self.kernel.outputs) if h.meta.shape]
        # Strided and sliced operands share cache lines between iterations, which tiles reuse sooner.
        tiles = form.mode == "cell" and not stored and (len(set(form.inner)) > 1 or form.ndim > 1)
        sums = None if form.mode != "full" or form.ndim > 1 else any(
            h.op.name == "sum" and h.meta.dtype.kind in "fc" for h in self.kernel.outputs)
        return cell_space(CellPass(
            may_stream(*walk_args) and not delayed, should_stream(*walk_args, binding.places) and not delayed,
            form.mode == "cell", sums, binding.tools.cores,
            sum(prod(binding.places[h].shape) * h.meta.dtype.itemsize for h in arrays),
            work_of(self.kernel.body),
            tiles_of(binding.shapes[self.kernel.shape]) if tiles else NO_TILES,
            self.kernel.outputs[0].meta.dtype.itemsize))

    def variant(self, binding: Binding, chosen: Values = UNTUNED) -> tuple[Executable, Launch, Geometry]:
        """Return the machine code for these layouts, its launcher, and the geometry of the loops."""
        form, geometry, stored, is_delayed = self._walk(binding)
        around = chosen["stores"] == "around" if "stores" in chosen else \
            should_stream(self.operands, form, {binding.order.direct[h] for h in stored}, binding.places)
        schedule = apply_knobs(chosen, Schedule(
            threads=int(chosen.get("threads", 0)) or binding.tools.threads,
            unroll=int(chosen.get("sums", 1)), nontemporal=around and not is_delayed, delayed=is_delayed,
            crosswise=has_short_rows(self.kernel, form, geometry)))
        if (form, schedule) in self.variants:
            COMPILING.current.count_kernel(None)
        else:
            self.variants[form, schedule] = binding.tools.executable(self.kernel, self.key, form, schedule)
        return *self.variants[form, schedule], geometry

    def _walk(self, binding: Binding) -> KernelWalk:
        order = binding.order
        stored = {h: binding.layouts[order.direct[h]] for h in self.operands.outputs if h in order.direct}
        walked = walk(self.operands, binding.shapes[self.kernel.shape], binding.places, stored)
        if walked is None:
            raise Misfit
        form, geometry = walked
        delayed_stores = [(stored[h], order.delayed[h]) for h in stored if h in order.delayed]
        if delayed_stores:
            if not can_delay_stores(form, geometry):
                raise Misfit
            distance = delay_bytes(*delayed_stores[0], self.operands.sizes[-1])
            geometry = replace(geometry, alias_distance=distance)
        return KernelWalk(form, geometry, stored, bool(delayed_stores))


@dataclass(slots=True)
class BlockLoop:
    """A kernel over blocks of rows, with the executables that its bindings need."""

    kernel: RowKernel | WindowKernel
    executables: list[Any] = field(default_factory=list)

    def block(self, binding: Binding, chosen: Values = UNTUNED) -> Launchable:
        """Return the argument block and its launcher, with the knobs `chosen`."""
        bound = self._bound(binding, chosen)
        launchable = bound.block()
        if launchable is None:  # unsupported layouts
            raise Misfit
        self.executables += bound.executables
        return launchable

    def space(self, binding: Binding) -> Space:
        """Return the space of schedules of this binding."""
        bound = self._bound(binding, UNTUNED)
        if isinstance(bound, RowBinding):
            return bound.space()
        return bound.space(stage_placements(bound.kernel, binding.shapes))

    def _bound(self, binding: Binding, chosen: Values) -> RowBinding | WindowBinding:
        args = binding.shapes, binding.places, binding.tools, chosen
        if isinstance(self.kernel, RowKernel):
            return RowBinding(self.kernel, *args)
        return WindowBinding(self.kernel, *args)


def bind_loop(loop: CellLoop | BlockLoop, binding: Binding, chosen: Values) -> Launchable:
    """Return the argument block of a kernel and its launcher, as a loop nest if one is chosen."""
    if not is_nest(chosen):
        return loop.block(binding, chosen)
    return bind_nest(loop.kernel, schedule_of(loop.kernel, chosen), binding.shapes, binding.places,
                     binding.order.direct, binding.tools)


def loop_of(kernel: Kernel | RowKernel | WindowKernel) -> CellLoop | BlockLoop:
    """Return a kernel without machine code."""
    if isinstance(kernel, Kernel):
        return CellLoop(kernel, structure_key(kernel), operands(kernel))
    return BlockLoop(kernel)


class PortableKernel(NamedTuple):
    """A kernel with its sizes and layouts, which can be sent to another process."""

    kernel: Kernel | RowKernel | WindowKernel
    shapes: Mapping[Shape, Shape]
    places: Mapping[Hop, Layout]
    layouts: Mapping[int, Layout]
    direct: Mapping[Hop, int]
    delayed: Mapping[Hop, int]

    def choice(self, tools: KernelBuilder) -> TunableKernel:
        """Return the tunable kernel, compiled by `tools`."""
        order = ExecutionOrder((), 0, self.direct, (), (), self.delayed)
        return choice_of(loop_of(self.kernel), Binding(self.shapes, self.places, self.layouts, order, tools))


def choice_of(loop: CellLoop | BlockLoop, binding: Binding) -> TunableKernel:
    """Return a bound kernel as a tunable kernel."""
    key = key_of(loop.kernel, binding.shapes, binding.places)
    return TunableKernel(key, binding.shapes, len(loop.kernel.outputs), partial(loop.space, binding),
                         partial(bind_loop, loop, binding), partial(_portable_kernel, loop.kernel, binding))


def _portable_kernel(kernel: Kernel | RowKernel | WindowKernel, binding: Binding) -> PortableKernel:
    hops = set(topo(kernel.outputs))
    own_places = {h: p for h, p in binding.places.items() if h in hops}
    order = binding.order
    return PortableKernel(kernel, binding.shapes, own_places, binding.layouts, order.direct, order.delayed)
