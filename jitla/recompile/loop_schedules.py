"""Kernels as loop nests: their IR, their schedules as primitives, and compilation as nests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from math import lcm, prod
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.errors import BackendError, ScheduleError
from jitla.fusion import (
    Call,
    Kernel,
    Layout,
    Plan,
    RowKernel,
    Values,
    WindowKernel,
    blocks_per_unit,
    gather_tables,
    window_height,
    window_row_bytes,
)
from jitla.hops import WHOLE_AXIS, Hop, Kind, Section, Shape, sections
from jitla.hops import possible_flags as raises
from jitla.loopir import (
    Alloc,
    Apply,
    Buffer,
    Load,
    Loop,
    Nest,
    Number,
    Scope,
    Statement,
    Store,
    Value,
    apply_schedule,
    number,
    show,
    variable,
)
from jitla.recompile.schedule_choices import (
    LOOPS,
    ORDER,
    ORDERS,
    PLACE,
    PLACES,
    TILE,
    UNTUNED,
    ChosenSchedule,
    ExecutableNest,
    KernelBuilder,
    Launchable,
    is_nest,
)

AXIS_NAMES = "ijklmnop"
Size = Callable[[Shape], Shape]


def nests_text(plan: Plan, chosen: Mapping[Any, ChosenSchedule]) -> str:
    """Return the loop nests of all kernels of a plan, before and after scheduling."""
    kernels = [s for s in plan.steps if not isinstance(s, Call)]
    return "\n".join(_text(kernel, f"K{n}", chosen.get(kernel)) for n, kernel in enumerate(kernels, 1))


def _text(kernel: Kernel | RowKernel | WindowKernel, name: str, chosen: ChosenSchedule | None) -> str:
    size = chosen.shapes.__getitem__ if chosen is not None else _as_planned
    values = chosen.values if chosen is not None else UNTUNED
    note_line = "" if chosen is None or not chosen.note else f"# {schedule_text(chosen)}\n"
    nest = nest_of(kernel, name, size)
    if nest is None:
        return f"{note_line}# {name} {kernel.template}: its loops are those of a template\n"
    schedule = schedule_of(kernel, values, size)
    lines = note_line + "".join(f"# {line}\n" for line in schedule.splitlines())
    try:
        return f"{show(nest)}\n{lines}{show(apply_schedule(nest, schedule))}"
    except ScheduleError as error:  # legality cannot be proven for these shapes
        return f"{show(nest)}\n{lines}# not shown as it is run: {error}\n"


def schedule_text(chosen: ChosenSchedule) -> str:
    """Return one line with the knobs of a kernel and their origin; empty for the default schedule."""
    values = ", ".join(f"{name}={_joined(value)}" for name, value in chosen.values.items() if value != "")
    return f"{chosen.note}: {values}" if values else chosen.note


def _joined(value: object) -> str:
    return "; ".join(str(value).splitlines())


def _as_planned(shape: Shape) -> Shape:
    return shape


def nest_of(kernel: object, name: str, size: Size = _as_planned) -> Nest | None:
    """Return the loop nest of a kernel, stage after stage; None if it is not elementwise.

    Sizes are those planned for, mapped by `size`.
    """
    stages = kernel.stages if isinstance(kernel, WindowKernel) else (kernel,)
    if not isinstance(kernel, (Kernel, WindowKernel)) or not all(map(_is_cells, stages)):
        return None
    views = frozenset(kernel.views) if isinstance(kernel, WindowKernel) else frozenset[Hop]()
    names = _names(kernel.inputs, kernel.outputs, kernel.body)
    inputs = tuple(_buffer(h, names, size) for h in kernel.inputs if h.op.name != "const")
    body: list[Statement] = []
    for stage, cell_stage in enumerate(stages):
        assert isinstance(cell_stage, Kernel)
        body += [Alloc(_buffer(h, names, size)) for h in cell_stage.outputs if h not in kernel.outputs]
        suffix = "" if cell_stage is stages[-1] else str(stage + 1)
        body.append(_StageLoops(cell_stage, suffix, names, views, size).loops())
    return Nest(name, inputs, tuple(_buffer(h, names, size) for h in kernel.outputs), tuple(body))


def _is_cells(stage: object) -> bool:
    return isinstance(stage, Kernel) and bool(stage.shape) and not gather_tables(stage.body) and \
        all(h.op.kind is Kind.CELL for h in stage.body)


def _names(inputs: Iterable[Hop], outputs: Iterable[Hop], body: Iterable[Hop]) -> dict[Hop, str]:
    names: dict[Hop, str] = {}
    for hop in inputs:
        slot = hop.attr("slot") if hop.op.name == "leaf" else len(names)
        names[hop] = f"{'a' if hop.op.name == 'leaf' else 'v'}{slot}"
    for n, hop in enumerate(outputs):
        names[hop] = f"out{n}"
    for hop in body:
        names.setdefault(hop, f"t{len(names)}")
    return names


def _buffer(hop: Hop, names: Mapping[Hop, str], size: Size) -> Buffer:
    return Buffer(names[hop], size(hop.meta.shape) if hop.meta.shape else (), hop.meta.dtype, Scope.MEMORY)


def operand_names(kernel: Kernel | WindowKernel) -> list[str]:
    """Return the names of the operands of a kernel, in the order of its arguments."""
    names = _names(kernel.inputs, kernel.outputs, kernel.body)
    return [names[h] for h in (*kernel.inputs, *kernel.outputs) if h.op.name != "const"]


@dataclass(frozen=True, slots=True)
class _StageLoops:
    """One elementwise stage: a loop for each axis, with values used twice in registers."""

    kernel: Kernel
    suffix: str
    names: Mapping[Hop, str]
    views: frozenset[Hop]
    size: Size

    def loops(self) -> Loop:
        """Return the loops, with all stores in the innermost."""
        kernel = self.kernel
        uses = Counter(i for h in kernel.body for i in h.inputs)
        in_registers = {h for h in kernel.body if uses[h] > 1 or h in kernel.outputs}
        body: list[Statement] = []
        for hop in kernel.body:
            if hop not in in_registers:
                continue
            if hop in kernel.outputs:
                body.append(Store(self.names[hop], self._at(hop), self._value(hop, in_registers)))
            else:
                register = Buffer(self.names[hop], (), hop.meta.dtype, Scope.REGISTER)
                body += [Alloc(register), Store(register.name, (), self._value(hop, in_registers))]
        axes = list(enumerate(self.size(kernel.shape)))[::-1]
        loop = Loop(self._name(axes[0][0]), axes[0][1], tuple(body))
        for axis, size in axes[1:]:
            loop = Loop(self._name(axis), size, (loop,))
        return loop

    def _name(self, axis: int) -> str:
        return AXIS_NAMES[axis] + self.suffix

    def _at(self, hop: Hop, slices: Sequence[Section] = ()) -> tuple:  # type: ignore[type-arg]
        """Return the index of the element of `hop` of an iteration."""
        if not hop.meta.shape:
            return ()
        shape = self.size(self.kernel.shape)
        leading = len(shape) - hop.meta.ndim
        slices = slices or [WHOLE_AXIS] * hop.meta.ndim
        return tuple(
            number(0) if n == 1 and shape[a + leading] != 1
            else variable(self._name(a + leading)) * slices[a].step + slices[a].first
            for a, n in enumerate(self.size(hop.meta.shape)))

    def _value(self, hop: Hop, in_registers: set[Hop]) -> Value:
        args = tuple(self._operand(i, in_registers) for i in hop.inputs)
        return Apply(hop.op.name, args, hop.meta.dtype, hop.attrs)

    def _operand(self, hop: Hop, in_registers: set[Hop]) -> Value:
        if hop.op.name == "const":
            return Number(hop.meta.dtype, hop.attr("bits"))
        if hop in self.views:
            return Load(self.names[hop.inputs[0]], self._at(hop, sections(hop) or ()))
        if hop in self.kernel.body and hop not in self.kernel.outputs:
            return Load(self.names[hop], ()) if hop in in_registers else self._value(hop, in_registers)
        return Load(self.names[hop], self._at(hop))


def schedule_of(kernel: object, chosen: Values = UNTUNED, size: Size = _as_planned) -> str:
    """Return the primitives that transform a nest into the loops run, including threads and vectors.

    `chosen` are knobs, or the primitives themselves.
    """
    if chosen.get(LOOPS):
        return str(chosen[LOOPS])
    if is_nest(chosen):
        assert isinstance(kernel, (Kernel, RowKernel, WindowKernel))
        return tile_schedule(kernel, chosen)
    if isinstance(kernel, Kernel):
        inner_axis = AXIS_NAMES[len(kernel.shape) - 1]
        return f"parallel(i)\nvectorise({inner_axis})" if inner_axis != "i" else "vectorise(i)"
    assert isinstance(kernel, WindowKernel)
    rows, row_bytes = size(kernel.shape)[0], window_row_bytes(kernel, size)
    ahead, rate = kernel.lookahead_rows(size), kernel.rows_per_result
    height = int(chosen.get("height") or window_height(row_bytes, rows, ahead))
    blocks = -(-rows // height)
    extra_bytes = sum(h.meta.dtype.itemsize * prod(size(h.meta.shape)[1:]) *
                      (size(h.meta.shape)[0] - rate[h] * rows) for h in kernel.intermediates)
    units = int(chosen.get("units", 0))
    per_unit = -(-blocks // units) if units else blocks_per_unit(blocks, row_bytes * height, extra_bytes)
    lines = [f"split(i, {height})"]
    lines += ["parallel(i_o)"] if per_unit == 1 else [f"split(i_o, {per_unit})", "parallel(i_o_o)"]
    block = "i_o" if per_unit == 1 else "i_o_i"
    names = _names(kernel.inputs, kernel.outputs, kernel.body)
    for stage in reversed(kernel.stages[:-1]):
        slides = size(stage.shape)[0] > rate[stage.outputs[0]] * rows and per_unit > 1
        name = names[stage.outputs[0]]  # all outputs of a stage are placed together
        lines.append(f"store_at({name}, i_o_o, {block})" if slides else f"compute_at({name}, {block})")
    return "\n".join(lines)


def default_loops(kernel: Kernel | RowKernel | WindowKernel, shapes: Mapping[Shape, Shape]) -> str:
    """Return the primitives of the default schedule; empty if the loops are those of a template."""
    size = shapes.__getitem__
    return "" if nest_of(kernel, "K", size) is None else schedule_of(kernel, UNTUNED, size)


def tile_schedule(kernel: Kernel | RowKernel | WindowKernel, chosen: Values) -> str:
    """Return the primitives that tile the last axes of a kernel ("16x256") for all threads.

    Tiles are visited in the `order` of rows or of columns. Intermediates are computed tile by tile, with the
    halo that neighbours need, too; or where they are read (`place` "inline"); or as a whole before ("root").
    """
    if isinstance(kernel, RowKernel):
        raise ScheduleError("template", f"the loops of a {kernel.template} kernel are those of a template")
    sizes = [int(n) for n in str(chosen[TILE]).split("x")] if chosen.get(TILE) else []
    place, order = chosen.get(PLACE, PLACES[0]), chosen.get(ORDER, ORDERS[0])
    axis_names = AXIS_NAMES[:len(kernel.shape)]
    if len(sizes) > len(axis_names):
        raise ScheduleError("axes", f"{len(axis_names)} axes have no tiles of {len(sizes)} sizes")
    if place not in PLACES or order not in ORDERS or order != ORDERS[0] and len(sizes) < 2 or \
            not sizes and len(axis_names) < 2:
        raise ScheduleError("knob", f"tiles of {len(sizes)} sizes have no order={order!r}, place={place!r}")
    axes = axis_names[-len(sizes):] if sizes else ""
    lines = [f"split({a}, {n})" for a, n in zip(axes, sizes, strict=True)]
    outer = [a + "_o" for a in axes][::-1 if order == ORDERS[1] else 1]
    if len(sizes) > 1:
        lines.append(f"reorder({', '.join([*outer, *(a + '_i' for a in axes)])})")
    inside = axis_names[:len(axis_names) - len(sizes)]
    lines.append(f"parallel({inside[0] if inside else outer[0]})")
    stages = kernel.stages[:-1] if isinstance(kernel, WindowKernel) else ()
    names = _names(kernel.inputs, kernel.outputs, kernel.body)
    if place == "inline":
        lines += [f"compute_inline({names[h]})" for s in reversed(stages) for h in s.outputs]
        stages = ()
    elif place == "root":
        lines += [f"parallel({axis_names[0]}{n})" for n, s in enumerate(stages, 1) if len(s.shape) > 1]
    elif outer:
        lines += [f"compute_at({names[s.outputs[0]]}, {outer[-1]})" for s in reversed(stages)]
    lines += [f"vectorise({AXIS_NAMES[len(s.shape) - 1]}{number})" for number, s in enumerate(stages, 1)]
    return "\n".join([*lines, f"vectorise({axes[-1]}_i)" if axes else f"vectorise({axis_names[-1]})"])


# Primitives that compute only what is read: at a loop the span of the elements read, inline these alone.
PRUNING_PRIMITIVES = ("compute_at", "store_at", INLINE := "compute_inline")
MAX_INLINE_OPERATIONS = 64  # of one element, with intermediates inlined


def bind_nest(
    kernel: Kernel | RowKernel | WindowKernel, lines: str, shapes: Mapping[Shape, Shape],
    places: Mapping[Hop, Layout], direct: Collection[Hop], tools: KernelBuilder,
) -> Launchable:
    """Return the argument block and launcher of a kernel scheduled by the primitives in `lines`."""
    nest = None if isinstance(kernel, RowKernel) else nest_of(kernel, "K", shapes.__getitem__)
    if nest is None or isinstance(kernel, RowKernel):
        raise ScheduleError("template", f"the loops of a {kernel.template} kernel are those of a template")
    if any(h in direct for h in kernel.outputs):
        raise ScheduleError("operand", "a result is stored into memory that the kernel may read")
    operands = [h for h in (*kernel.inputs, *kernel.outputs) if h.op.name != "const"]
    names = operand_names(kernel)
    steps = {name: places[h].strides for name, h in zip(names, operands, strict=True) if h.meta.shape}
    if any(f"{name}(" in lines for name in PRUNING_PRIMITIVES) and isinstance(kernel, WindowKernel):
        _check_unread(kernel, shapes, _is_covered if f"{INLINE}(" in lines else _is_spanned)
    try:
        compiled = tools.nest(apply_schedule(nest, lines), steps)
    except BackendError as error:
        raise ScheduleError("operand", str(error)) from None
    return b"", partial(_run_nest, compiled, names, {b.name: b.dtype for b in nest.inputs})


def stage_placements(kernel: WindowKernel, shapes: Mapping[Shape, Shape]) -> tuple[str, ...]:
    """Return where intermediates may be computed: inline, if that is one short expression."""
    if len(kernel.shape) < 2:
        return PLACES[:1]
    work: dict[Hop, int] = {}
    for stage in kernel.stages:
        read = (v.inputs[0] if v in kernel.views else v for v in stage.inputs)
        work |= dict.fromkeys(stage.outputs, len(stage.body) + sum(work.get(h, 0) for h in read))
    nest = nest_of(kernel, "K", shapes.__getitem__) if max(work.values()) <= MAX_INLINE_OPERATIONS else None
    if nest is not None:
        try:
            _check_unread(kernel, shapes, _is_covered)
            apply_schedule(nest, tile_schedule(kernel, {PLACE: "inline"}))
            return PLACES
        except ScheduleError:  # several outputs of a stage, or unread elements that may warn
            return PLACES[0], PLACES[2]
    return PLACES[0], PLACES[2]


def _run_nest(
    nest: ExecutableNest, names: Iterable[str], dtypes: Mapping[str, np.dtype], block: bytes, *operands: Any
) -> int:
    """Run a compiled nest by the protocol of kernels; scalars become arrays of one element."""
    arrays = dict(zip(names, operands, strict=True))
    for name, dtype in dtypes.items():
        if not isinstance(arrays[name], np.ndarray):
            arrays[name] = np.asarray(arrays[name], dtype)
    return nest.into(arrays)


def _check_unread(
    kernel: WindowKernel, shapes: Mapping[Shape, Shape],
    reads_all: Callable[[Shape, Sequence[Sequence[Section]]], bool],
) -> None:
    """Raise `ScheduleError` if the schedule drops unread elements whose computation may warn.

    NumPy computes them, and warns.
    """
    for stage in kernel.stages[:-1]:
        if not any(map(raises, stage.body)):
            continue
        for hop in stage.outputs:
            views = [v for v in kernel.views if v.inputs[0] is hop]
            is_read_whole = any(hop in s.inputs for s in kernel.stages)
            slices = [sections(v) or () for v in views]
            if not is_read_whole and not reads_all(shapes[hop.meta.shape], slices):
                raise ScheduleError("unread", f"elements of {hop.op.name} are not read, and may warn")


def _is_spanned(shape: Shape, slices: Sequence[Sequence[Section]]) -> bool:
    """Return whether every element lies between those that the slices take in one iteration."""
    for axis, n in enumerate(shape):
        sections_of_axis = [s[axis] for s in slices]
        firsts, steps = [s.first for s in sections_of_axis], {s.step for s in sections_of_axis}
        if len(steps) > 1 or min(firsts) or max(firsts) + 1 < max(steps):
            return False
        if max(s.first + s.step * ((n - s.first - s.end - 1) // s.step) for s in sections_of_axis) != n - 1:
            return False
    return True


def _is_covered(shape: Shape, slices: Sequence[Sequence[Section]]) -> bool:
    """Return whether strided slices cover an array together.

    The pattern is periodic along an axis, so a short array with the same ends is representative.
    """
    sizes = []
    for axis, n in enumerate(shape):
        period = lcm(*(s[axis].step for s in slices))
        ends = max((s[axis].first + s[axis].end for s in slices), default=0)
        representative = (2 * ends // period + 2) * period
        sizes.append(n if n <= representative else representative + (n - representative) % period)
    covered = np.zeros(sizes, bool)
    for slice_ in slices:
        covered[tuple(slice(s.first, n - s.end, s.step) for s, n in zip(slice_, sizes, strict=True))] = True
    return bool(covered.all())
