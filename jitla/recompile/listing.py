"""Kernels of a plan as loop nests: what they compute, and in which loops.

Knows: kernels, nests, primitives. Must not know: machine code, how a kernel was chosen.
Receives a plan; returns text that reads back as nests, each after the schedule that it is run by.

Only kernels of cells have nests: the loops of others are written by templates, in an order that is NumPy's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jitla.errors import ScheduleError
from jitla.fusion import (
    Call,
    Kernel,
    Plan,
    WindowKernel,
    blocks_per_unit,
    tables,
    window_height,
    window_row,
)
from jitla.hops import Hop, Kind, margins
from jitla.nests import (
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
    number,
    scheduled,
    show,
    variable,
)

LETTERS = "ijklmnop"


def nests_text(plan: Plan) -> str:
    """Return the nests of all kernels of a plan: as they are meant, and as they are run."""
    parts = []
    kernels = [s for s in plan.steps if not isinstance(s, Call)]
    for at, kernel in enumerate(kernels, 1):
        nest = nest_of(kernel, f"K{at}")
        if nest is None:
            parts.append(f"# K{at} {kernel.template}: its loops are those of a template\n")
            continue
        schedule = schedule_of(kernel)
        lines = "".join(f"# {line}\n" for line in schedule.splitlines())
        try:
            parts.append(f"{show(nest)}\n{lines}{show(scheduled(nest, schedule))}")
        except ScheduleError as error:  # what cannot be proven of odd shapes
            parts.append(f"{show(nest)}\n{lines}# not shown as it is run: {error}\n")
    return "\n".join(parts)


def nest_of(kernel: object, name: str) -> Nest | None:
    """Return what a kernel computes as a nest, stage after stage; None if it is not made of cells."""
    stages = kernel.stages if isinstance(kernel, WindowKernel) else (kernel,)
    if not isinstance(kernel, (Kernel, WindowKernel)) or not all(map(_is_cells, stages)):
        return None
    views = frozenset(kernel.views) if isinstance(kernel, WindowKernel) else frozenset[Hop]()
    names = _names(kernel.inputs, kernel.outputs, kernel.body)
    inputs = tuple(_buffer(h, names) for h in kernel.inputs if h.op.name != "const")
    body: list[Statement] = []
    for stage, made in enumerate(stages):
        assert isinstance(made, Kernel)
        body += [Alloc(_buffer(h, names)) for h in made.outputs if h not in kernel.outputs]
        body.append(_Stage(made, "" if made is stages[-1] else str(stage + 1), names, views).loops())
    return Nest(name, inputs, tuple(_buffer(h, names) for h in kernel.outputs), tuple(body))


def _is_cells(stage: object) -> bool:
    return isinstance(stage, Kernel) and bool(stage.shape) and not tables(stage.body) and \
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


def _buffer(hop: Hop, names: Mapping[Hop, str], scope: Scope = Scope.MEMORY) -> Buffer:
    return Buffer(names[hop], hop.meta.shape, hop.meta.dtype, scope)


@dataclass(frozen=True, slots=True)
class _Stage:
    """One kernel of cells: a loop for each axis, and values that are read twice in registers."""

    kernel: Kernel
    suffix: str
    names: Mapping[Hop, str]
    views: frozenset[Hop]

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
        axes = list(enumerate(kernel.shape))[::-1]
        made = Loop(self._name(axes[0][0]), axes[0][1], tuple(body))
        for axis, size in axes[1:]:
            made = Loop(self._name(axis), size, (made,))
        return made

    def _name(self, axis: int) -> str:
        return LETTERS[axis] + self.suffix

    def _at(self, hop: Hop, cut: Iterable[tuple[int, int]] = ()) -> tuple:  # type: ignore[type-arg]
        """Return where the element of `hop` lies that belongs to the turn."""
        behind = len(self.kernel.shape) - hop.meta.ndim
        first = [f for f, _ in cut] or [0] * hop.meta.ndim
        return tuple(
            number(0) if n == 1 and self.kernel.shape[a + behind] != 1
            else variable(self._name(a + behind)) + first[a] for a, n in enumerate(hop.meta.shape))

    def _value(self, hop: Hop, held: set[Hop]) -> Value:
        args = tuple(self._operand(i, held) for i in hop.inputs)
        return Apply(hop.op.name, args, hop.meta.dtype, hop.attrs)

    def _operand(self, hop: Hop, held: set[Hop]) -> Value:
        if hop.op.name == "const":
            return Number(hop.meta.dtype, hop.attr("bits"))
        if hop in self.views:
            return Load(self.names[hop.inputs[0]], self._at(hop, margins(hop) or ()))
        if hop in self.kernel.body and hop not in self.kernel.outputs:
            return Load(self.names[hop], ()) if hop in held else self._value(hop, held)
        return Load(self.names[hop], self._at(hop))


def schedule_of(kernel: object) -> str:
    """Return the primitives by which a nest becomes the loops that are run, threads and vectors included."""
    if isinstance(kernel, Kernel):
        last = LETTERS[len(kernel.shape) - 1]
        return f"parallel(i)\nvectorise({last})" if last != "i" else "vectorise(i)"
    assert isinstance(kernel, WindowKernel)
    ahead = max(s.shape[0] for s in kernel.stages) - kernel.rows
    height = window_height(window_row(kernel), kernel.rows, ahead)
    blocks = -(-kernel.rows // height)
    aside = sum(h.meta.nbytes // h.meta.shape[0] * (h.meta.shape[0] - kernel.rows) for h in kernel.inner)
    each = blocks_per_unit(blocks, window_row(kernel) * height, aside)
    lines = [f"split(i, {height})"]
    lines += ["parallel(i_o)"] if each == 1 else [f"split(i_o, {each})", "parallel(i_o_o)"]
    names = _names(kernel.inputs, kernel.outputs, kernel.body)
    block = "i_o" if each == 1 else "i_o_i"
    for stage in reversed(kernel.stages[:-1]):
        slides = stage.shape[0] > kernel.rows and each > 1
        first = names[stage.outputs[0]]  # what one stage makes is placed together
        lines.append(f"store_at({first}, i_o_o, {block})" if slides else f"compute_at({first}, {block})")
    return "\n".join(lines)
