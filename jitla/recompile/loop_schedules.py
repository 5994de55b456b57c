"""Schedules of kernels as loop nests: listing and application."""

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
    Chosen,
    Made,
    Nested,
    RowTools,
    is_nest,
)

LETTERS = "ijklmnop"
Size = Callable[[Shape], Shape]


def nests_text(plan: Plan, chosen: Mapping[Any, Chosen]) -> str:
    """Return the nests of all kernels of a plan: as they are meant, and as they are run."""
    kernels = [s for s in plan.steps if not isinstance(s, Call)]
    return "\n".join(_text(kernel, f"K{at}", chosen.get(kernel)) for at, kernel in enumerate(kernels, 1))


def _text(kernel: Kernel | RowKernel | WindowKernel, name: str, found: Chosen | None) -> str:
    size = found.shapes.__getitem__ if found is not None else _as_planned
    values = found.values if found is not None else UNTUNED
    said = "" if found is None or not found.said else f"# {chosen_text(found)}\n"
    nest = nest_of(kernel, name, size)
    if nest is None:
        return f"{said}# {name} {kernel.template}: its loops are those of a template\n"
    schedule = schedule_of(kernel, values, size)
    lines = said + "".join(f"# {line}\n" for line in schedule.splitlines())
    try:
        return f"{show(nest)}\n{lines}{show(apply_schedule(nest, schedule))}"
    except ScheduleError as error:  # what cannot be proven of odd shapes
        return f"{show(nest)}\n{lines}# not shown as it is run: {error}\n"


def chosen_text(found: Chosen) -> str:
    """Return what was chosen for a kernel, and by whom, in a line; nothing if it is as usual."""
    values = ", ".join(f"{name}={_joined(value)}" for name, value in found.values.items() if value != "")
    return f"{found.said}: {values}" if values else found.said


def _joined(value: object) -> str:
    return "; ".join(str(value).splitlines())


def _as_planned(shape: Shape) -> Shape:
    return shape


def nest_of(kernel: object, name: str, size: Size = _as_planned) -> Nest | None:
    """Return what a kernel computes as a nest, stage after stage; None if it is not made of cells.

    Sizes are those the plan was made for, or what `size` says of them.
    """
    stages = kernel.stages if isinstance(kernel, WindowKernel) else (kernel,)
    if not isinstance(kernel, (Kernel, WindowKernel)) or not all(map(_is_cells, stages)):
        return None
    views = frozenset(kernel.views) if isinstance(kernel, WindowKernel) else frozenset[Hop]()
    names = _names(kernel.inputs, kernel.outputs, kernel.body)
    inputs = tuple(_buffer(h, names, size) for h in kernel.inputs if h.op.name != "const")
    body: list[Statement] = []
    for stage, made in enumerate(stages):
        assert isinstance(made, Kernel)
        body += [Alloc(_buffer(h, names, size)) for h in made.outputs if h not in kernel.outputs]
        suffix = "" if made is stages[-1] else str(stage + 1)
        body.append(_Stage(made, suffix, names, views, size).loops())
    return Nest(name, inputs, tuple(_buffer(h, names, size) for h in kernel.outputs), tuple(body))


def _is_cells(stage: object) -> bool:
    return isinstance(stage, Kernel) and bool(stage.shape) and not gather_tables(stage.body) and \
        all(h.op.kind is Kind.CELL for h in stage.body)


def _names(inputs: Iterable[Hop], outputs: Iterable[Hop], body: Iterable[Hop]) -> dict[Hop, str]:
    found: dict[Hop, str] = {}
    for hop in inputs:
        slot = hop.attr("slot") if hop.op.name == "leaf" else len(found)
        found[hop] = f"{'a' if hop.op.name == 'leaf' else 'v'}{slot}"
    for n, hop in enumerate(outputs):
        found[hop] = f"out{n}"
    for hop in body:
        found.setdefault(hop, f"t{len(found)}")
    return found


def _buffer(hop: Hop, names: Mapping[Hop, str], size: Size) -> Buffer:
    return Buffer(names[hop], size(hop.meta.shape) if hop.meta.shape else (), hop.meta.dtype, Scope.MEMORY)


def operand_names(kernel: Kernel | WindowKernel) -> list[str]:
    """Return the names of what is handed to a kernel when it runs, in their order."""
    names = _names(kernel.inputs, kernel.outputs, kernel.body)
    return [names[h] for h in (*kernel.inputs, *kernel.outputs) if h.op.name != "const"]


@dataclass(frozen=True, slots=True)
class _Stage:
    """One kernel of cells: a loop for each axis, and values that are read twice in registers."""

    kernel: Kernel
    suffix: str
    names: Mapping[Hop, str]
    views: frozenset[Hop]
    size: Size

    def loops(self) -> Loop:
        """Return the loops with all stores in the innermost."""
        kernel = self.kernel
        uses = Counter(i for h in kernel.body for i in h.inputs)
        held = {h for h in kernel.body if uses[h] > 1 or h in kernel.outputs}
        body: list[Statement] = []
        for hop in kernel.body:
            if hop not in held:
                continue
            if hop in kernel.outputs:
                body.append(Store(self.names[hop], self._at(hop), self._value(hop, held)))
            else:
                register = Buffer(self.names[hop], (), hop.meta.dtype, Scope.REGISTER)
                body += [Alloc(register), Store(register.name, (), self._value(hop, held))]
        axes = list(enumerate(self.size(kernel.shape)))[::-1]
        made = Loop(self._name(axes[0][0]), axes[0][1], tuple(body))
        for axis, size in axes[1:]:
            made = Loop(self._name(axis), size, (made,))
        return made

    def _name(self, axis: int) -> str:
        return LETTERS[axis] + self.suffix

    def _at(self, hop: Hop, taken: Sequence[Section] = ()) -> tuple:  # type: ignore[type-arg]
        """Return where the element of `hop` lies that belongs to the turn."""
        if not hop.meta.shape:
            return ()
        shape = self.size(self.kernel.shape)
        behind = len(shape) - hop.meta.ndim
        taken = taken or [WHOLE_AXIS] * hop.meta.ndim
        return tuple(
            number(0) if n == 1 and shape[a + behind] != 1
            else variable(self._name(a + behind)) * taken[a].step + taken[a].first
            for a, n in enumerate(self.size(hop.meta.shape)))

    def _value(self, hop: Hop, held: set[Hop]) -> Value:
        args = tuple(self._operand(i, held) for i in hop.inputs)
        return Apply(hop.op.name, args, hop.meta.dtype, hop.attrs)

    def _operand(self, hop: Hop, held: set[Hop]) -> Value:
        if hop.op.name == "const":
            return Number(hop.meta.dtype, hop.attr("bits"))
        if hop in self.views:
            return Load(self.names[hop.inputs[0]], self._at(hop, sections(hop) or ()))
        if hop in self.kernel.body and hop not in self.kernel.outputs:
            return Load(self.names[hop], ()) if hop in held else self._value(hop, held)
        return Load(self.names[hop], self._at(hop))


def schedule_of(kernel: object, chosen: Values = UNTUNED, size: Size = _as_planned) -> str:
    """Return the primitives by which a nest becomes the loops that are run, threads and vectors included.

    `chosen` are knobs, or the lines themselves.
    """
    if chosen.get(LOOPS):
        return str(chosen[LOOPS])
    if is_nest(chosen):
        assert isinstance(kernel, (Kernel, RowKernel, WindowKernel))
        return cut(kernel, chosen)
    if isinstance(kernel, Kernel):
        last = LETTERS[len(kernel.shape) - 1]
        return f"parallel(i)\nvectorise({last})" if last != "i" else "vectorise(i)"
    assert isinstance(kernel, WindowKernel)
    rows, each = size(kernel.shape)[0], window_row_bytes(kernel, size)
    ahead, rate = kernel.lookahead_rows(size), kernel.rows_per_result
    height = int(chosen.get("height") or window_height(each, rows, ahead))
    blocks = -(-rows // height)
    aside = sum(h.meta.dtype.itemsize * prod(size(h.meta.shape)[1:]) *
                (size(h.meta.shape)[0] - rate[h] * rows) for h in kernel.intermediates)
    units = int(chosen.get("units", 0))
    per_unit = -(-blocks // units) if units else blocks_per_unit(blocks, each * height, aside)
    lines = [f"split(i, {height})"]
    lines += ["parallel(i_o)"] if per_unit == 1 else [f"split(i_o, {per_unit})", "parallel(i_o_o)"]
    block = "i_o" if per_unit == 1 else "i_o_i"
    names = _names(kernel.inputs, kernel.outputs, kernel.body)
    for stage in reversed(kernel.stages[:-1]):
        slides = size(stage.shape)[0] > rate[stage.outputs[0]] * rows and per_unit > 1
        first = names[stage.outputs[0]]  # what one stage makes is placed together
        lines.append(f"store_at({first}, i_o_o, {block})" if slides else f"compute_at({first}, {block})")
    return "\n".join(lines)


def usual_loops(kernel: Kernel | RowKernel | WindowKernel, shapes: Mapping[Shape, Shape]) -> str:
    """Return the lines by which a kernel is run untuned; nothing if its loops are those of a template."""
    size = shapes.__getitem__
    return "" if nest_of(kernel, "K", size) is None else schedule_of(kernel, UNTUNED, size)


def cut(kernel: Kernel | RowKernel | WindowKernel, chosen: Values) -> str:
    """Return the primitives that cut a kernel into tiles ("16x256") along its last axes, for all threads.

    Tiles are walked in the `order` of rows or of columns. What stages pass on is computed tile by tile, with
    what neighbours need, too; or where it is read (`place` "inline"); or as a whole before ("root").
    """
    if isinstance(kernel, RowKernel):
        raise ScheduleError("template", f"the loops of a {kernel.template} kernel are those of a template")
    sizes = [int(n) for n in str(chosen[TILE]).split("x")] if chosen.get(TILE) else []
    place, order = chosen.get(PLACE, PLACES[0]), chosen.get(ORDER, ORDERS[0])
    every = LETTERS[:len(kernel.shape)]
    if len(sizes) > len(every):
        raise ScheduleError("axes", f"{len(every)} axes have no tiles of {len(sizes)} sizes")
    if place not in PLACES or order not in ORDERS or order != ORDERS[0] and len(sizes) < 2 or \
            not sizes and len(every) < 2:
        raise ScheduleError("knob", f"tiles of {len(sizes)} sizes have no order={order!r}, place={place!r}")
    axes = every[-len(sizes):] if sizes else ""
    lines = [f"split({a}, {n})" for a, n in zip(axes, sizes, strict=True)]
    outer = [a + "_o" for a in axes][::-1 if order == ORDERS[1] else 1]
    if len(sizes) > 1:
        lines.append(f"reorder({', '.join([*outer, *(a + '_i' for a in axes)])})")
    inside = every[:len(every) - len(sizes)]
    lines.append(f"parallel({inside[0] if inside else outer[0]})")
    stages = kernel.stages[:-1] if isinstance(kernel, WindowKernel) else ()
    names = _names(kernel.inputs, kernel.outputs, kernel.body)
    if place == "inline":
        lines += [f"compute_inline({names[h]})" for s in reversed(stages) for h in s.outputs]
        stages = ()
    elif place == "root":
        lines += [f"parallel({every[0]}{at})" for at, s in enumerate(stages, 1) if len(s.shape) > 1]
    elif outer:
        lines += [f"compute_at({names[s.outputs[0]]}, {outer[-1]})" for s in reversed(stages)]
    lines += [f"vectorise({LETTERS[len(s.shape) - 1]}{at})" for at, s in enumerate(stages, 1)]
    return "\n".join([*lines, f"vectorise({axes[-1]}_i)" if axes else f"vectorise({every[-1]})"])


# Primitives after which only what is read is computed: at a loop all that lies between, inline that alone.
MOVES = ("compute_at", "store_at", INLINE := "compute_inline")
MOST_INLINE = 64  # operations of one element, if what stages pass on is computed where it is read


def nested(
    kernel: Kernel | RowKernel | WindowKernel, lines: str, shapes: Mapping[Shape, Shape],
    places: Mapping[Hop, Layout], direct: Collection[Hop], tools: RowTools,
) -> Made:
    """Return what runs a kernel in the loops that `lines` of primitives make of it."""
    nest = None if isinstance(kernel, RowKernel) else nest_of(kernel, "K", shapes.__getitem__)
    if nest is None or isinstance(kernel, RowKernel):
        raise ScheduleError("template", f"the loops of a {kernel.template} kernel are those of a template")
    if any(h in direct for h in kernel.outputs):
        raise ScheduleError("operand", "a result is stored into memory that may be read on the way")
    given = [h for h in (*kernel.inputs, *kernel.outputs) if h.op.name != "const"]
    names = operand_names(kernel)
    steps = {name: places[h].strides for name, h in zip(names, given, strict=True) if h.meta.shape}
    if any(f"{name}(" in lines for name in MOVES) and isinstance(kernel, WindowKernel):
        _check_read(kernel, shapes, _covered if f"{INLINE}(" in lines else _spanned)
    try:
        made = tools.nest(apply_schedule(nest, lines), steps)
    except BackendError as error:
        raise ScheduleError("operand", str(error)) from None
    return b"", partial(_run, made, names, {b.name: b.dtype for b in nest.inputs})


def placements(kernel: WindowKernel, shapes: Mapping[Shape, Shape]) -> tuple[str, ...]:
    """Return where what stages pass on may be computed: inline, if that is one expression, and not much."""
    if len(kernel.shape) < 2:
        return PLACES[:1]
    work: dict[Hop, int] = {}
    for stage in kernel.stages:
        read = (v.inputs[0] if v in kernel.views else v for v in stage.inputs)
        work |= dict.fromkeys(stage.outputs, len(stage.body) + sum(work.get(h, 0) for h in read))
    nest = nest_of(kernel, "K", shapes.__getitem__) if max(work.values()) <= MOST_INLINE else None
    if nest is not None:
        try:
            _check_read(kernel, shapes, _covered)
            apply_schedule(nest, cut(kernel, {PLACE: "inline"}))
            return PLACES
        except ScheduleError:  # more than one value at a time, or some that would not be computed
            return PLACES[0], PLACES[2]
    return PLACES[0], PLACES[2]


def _run(made: Nested, names: Iterable[str], given: Mapping[str, np.dtype], block: bytes, *operands: Any
         ) -> int:
    """Run a nest as a kernel is run; numbers become arrays of a single element."""
    arrays = dict(zip(names, operands, strict=True))
    for name, dtype in given.items():
        if not isinstance(arrays[name], np.ndarray):
            arrays[name] = np.asarray(arrays[name], dtype)
    return made.into(arrays)


def _check_read(
    kernel: WindowKernel, shapes: Mapping[Shape, Shape],
    reads_all: Callable[[Shape, Sequence[Sequence[Section]]], bool],
) -> None:
    """Refuse to leave out elements that nobody reads if computing them may warn, as NumPy does so."""
    for stage in kernel.stages[:-1]:
        if not any(map(raises, stage.body)):
            continue
        for hop in stage.outputs:
            views = [v for v in kernel.views if v.inputs[0] is hop]
            whole = any(hop in s.inputs for s in kernel.stages)
            if not whole and not reads_all(shapes[hop.meta.shape], [sections(v) or () for v in views]):
                raise ScheduleError("unread", f"elements of {hop.op.name} are not read, and may warn")


def _spanned(shape: Shape, slices: Sequence[Sequence[Section]]) -> bool:
    """Tell whether every element of an array lies between those that slices take for one turn of a loop."""
    for axis, n in enumerate(shape):
        own = [s[axis] for s in slices]
        firsts, steps = [s.first for s in own], {s.step for s in own}
        if len(steps) > 1 or min(firsts) or max(firsts) + 1 < max(steps):
            return False
        if max(s.first + s.step * ((n - s.first - s.end - 1) // s.step) for s in own) != n - 1:
            return False
    return True


def _covered(shape: Shape, slices: Sequence[Sequence[Section]]) -> bool:
    """Tell whether slices that leave out some elements cover an array together.

    What is taken repeats itself in the midst of an axis: a short one, which ends as the long one does, tells.
    """
    sizes = []
    for axis, n in enumerate(shape):
        period = lcm(*(s[axis].step for s in slices))
        ends = max((s[axis].first + s[axis].end for s in slices), default=0)
        least = (2 * ends // period + 2) * period
        sizes.append(n if n <= least else least + (n - least) % period)
    seen = np.zeros(sizes, bool)
    for taken in slices:
        seen[tuple(slice(s.first, n - s.end, s.step) for s, n in zip(taken, sizes, strict=True))] = True
    return bool(seen.all())
