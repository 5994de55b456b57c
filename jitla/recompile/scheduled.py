"""Kernels whose loops are chosen line by line: they are run as nests, not by templates.

Knows: what nests need of operands, which elements NumPy computes. Must not know: who chooses, machine code.
Receives kernels, lines of primitives, bound shapes and layouts; returns what runs them, or raises
`ScheduleError` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from math import lcm
from typing import Any

import numpy as np

from jitla.errors import BackendError, ScheduleError
from jitla.fusion import Kernel, Layout, RowKernel, WindowKernel
from jitla.hops import Hop, Section, Shape, sections
from jitla.hops import may_raise as raises
from jitla.nests import scheduled
from jitla.recompile.asked import Nested, RowTools
from jitla.recompile.choices import PLACE, PLACES, Made
from jitla.recompile.listing import cut, nest_of, operand_names

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
        made = tools.nest(scheduled(nest, lines), steps)
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
            scheduled(nest, cut(kernel, {PLACE: "inline"}))
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
