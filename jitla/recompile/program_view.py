"""A program as one function runs it, for explanations: with the sizes and source lines of that function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from jitla.classes import dataclass
from jitla.fusion import (
    Call,
    Kernel,
    Layout,
    Plan,
    PlanExplanation,
    Product,
    RowKernel,
    WindowKernel,
)
from jitla.hops import Hop, Kind, Meta, Shape, topo
from jitla.recompile.pipeline import Draft, StageTrace, with_drafts
from jitla.recompile.program import (
    BoundProgram,
    Program,
    rebuild,
)
from jitla.recompile.schedule_choices import ChosenSchedule


@dataclass(frozen=True, slots=True)
class ProgramView:
    """Plan, stages and schedules of a program for one binding; `steps` are in execution order."""

    plan: Plan
    traced_roots: tuple[Hop, ...]
    steps: tuple[Any, ...]
    layouts: Mapping[int, Layout]
    stages: tuple[StageTrace, ...]
    chosen: Mapping[Any, ChosenSchedule]
    peak: int
    explain_plan: Callable[[], PlanExplanation]


def view_program(program: Program, bound: BoundProgram | None, line: Callable[[Hop], Any]) -> ProgramView:
    """Return `program` for the sizes of `bound`; as planned if that is None or of another program.

    `line` returns the user's source line of a hop of the program.
    """
    explain, final_draft = program.explain_plan, program.stages[-1].draft
    assert explain is not None
    is_current = bound is not None and bound.program is program
    dims, layouts = (bound.dims, bound.layouts) if bound is not None and is_current else ({}, program.layouts)
    resizer = _Resizer(dims, line)
    steps = {step: resizer.step(step) for step in program.plan.steps}
    plan = Plan(tuple(steps.values()), resizer.hops(program.plan.outputs))
    chosen = {steps[k]: c._replace(shapes={s: s for s in map(resizer.shape, c.shapes)})
              for k, c in program.chosen.items()}
    drafts = {id(s.draft): resizer.draft(s.draft, plan, layouts) for s in program.stages}
    stages = with_drafts(program.stages, [drafts[id(s.draft)] for s in program.stages], chosen)
    in_order = tuple(steps[s] for s in program.order.steps)
    return ProgramView(plan, resizer.hops(program.traced_roots), in_order, layouts, stages,
                       chosen, program.peak(dims or None, layouts), lambda: explain(drafts[id(final_draft)]))


def traced_roots(program: Program, bound: BoundProgram | None) -> tuple[Hop, ...]:
    """Return the roots as traced for `bound`; those planned for if it is None or of another program."""
    is_current = bound is not None and bound.program is program
    if bound is None or not is_current:
        return program.traced_roots
    return rebuild(program.traced_roots, bound.dims)


class _Resizer:
    """Copies hops and steps with other sizes and lines, each once."""

    def __init__(self, dims: Mapping[int, int], line: Callable[[Hop], Any]) -> None:
        self._dims, self._line = dims, line
        self._new: dict[Hop, Hop] = {}

    def shape(self, shape: Shape) -> Shape:
        """Return the shape in the new sizes; a size without a symbol stays."""
        return tuple([n if n < 2 else self._dims.get(n, n) for n in shape])

    def hops(self, hops: Iterable[Hop]) -> tuple[Hop, ...]:
        """Return the same values in the new sizes."""
        hops = tuple(hops)
        for hop in topo([h for h in hops if h not in self._new]):
            if hop not in self._new:
                self._new[hop] = self._copy(hop)
        return tuple([self._new[h] for h in hops])

    def _copy(self, hop: Hop) -> Hop:
        inputs = tuple([self._new[i] for i in hop.inputs])
        attrs = tuple([(k, self.shape(v) if k == "shape" else v) for k, v in hop.attrs])
        return Hop(hop.op, inputs, attrs, self._meta(hop, inputs, dict(attrs)), self._line(hop))

    def _meta(self, hop: Hop, inputs: tuple[Hop, ...], attrs: Mapping[str, Any]) -> Meta:
        has_all_sizes = all(n < 2 or n in self._dims for n in hop.meta.shape)
        if hop.op.kind is Kind.LEAF or has_all_sizes and hop.meta.nnz is None:
            return replace(hop.meta, shape=self.shape(hop.meta.shape))
        return hop.op.meta(tuple([i.meta for i in inputs]), dict(attrs))

    def step(self, step: Any) -> Any:
        """Return the same step over the resized values."""
        hops = self.hops
        match step:
            case Call():
                return replace(step, hop=hops((step.hop,))[0])
            case Product():
                hop, matrix, vector = hops((step.hop, step.matrix, step.vector))
                return replace(step, hop=hop, matrix=matrix, vector=vector)
            case Kernel():
                return replace(step, shape=self.shape(step.shape), inputs=hops(step.inputs),
                               body=hops(step.body), outputs=hops(step.outputs))
            case RowKernel() | WindowKernel():
                return replace(
                    step, rows=self.shape((step.rows,))[0], stages=tuple(map(self.step, step.stages)),
                    views=hops(step.views), inputs=hops(step.inputs), outputs=hops(step.outputs))
        raise AssertionError(step)

    def draft(self, draft: Draft, plan: Plan, layouts: Mapping[int, Layout]) -> Draft:
        """Return the draft of a stage in the new sizes, with `plan` if it has one."""
        result = draft.outcome and replace(draft.outcome, roots=self.hops(draft.outcome.roots))
        return replace(draft, roots=self.hops(draft.roots), layouts=layouts, outcome=result,
                       plan=draft.plan and plan)
