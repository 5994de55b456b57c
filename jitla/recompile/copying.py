"""A program as one function runs it: its plan and stages, with the sizes and the lines of that function."""

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
from jitla.recompile.pipeline import (
    Draft,
    Trace,
    retold,
)
from jitla.recompile.program import (
    Bound,
    Program,
    rebuild,
)
from jitla.recompile.schedule_choices import Chosen


@dataclass(frozen=True, slots=True)
class Sized:
    """What there is to say of a program; `steps` are in the order of running."""

    plan: Plan
    given: tuple[Hop, ...]
    steps: tuple[Any, ...]
    layouts: Mapping[int, Layout]
    stages: tuple[Trace, ...]
    chosen: Mapping[Any, Chosen]
    peak: int
    weigh: Callable[[], PlanExplanation]


def sized(program: Program, bound: Bound | None, line: Callable[[Hop], Any]) -> Sized:
    """Return `program` as `bound` runs it; as it was planned if that is None, or of another program.

    `line` says of a hop of the program which line of the user's it has.
    """
    judge, last = program.weigh, program.stages[-1].draft
    assert judge is not None
    mine = bound is not None and bound.program is program
    dims, layouts = (bound.dims, bound.layouts) if bound is not None and mine else ({}, program.layouts)
    own = _Copier(dims, line)
    steps = {step: own.step(step) for step in program.plan.steps}
    plan = Plan(tuple(steps.values()), own.hops(program.plan.outputs))
    chosen = {steps[k]: found._replace(shapes={s: s for s in map(own.shape, found.shapes)})
              for k, found in program.chosen.items()}
    drafts = {id(s.draft): own.draft(s.draft, plan, layouts) for s in program.stages}
    stages = retold(program.stages, [drafts[id(s.draft)] for s in program.stages], chosen)
    return Sized(plan, own.hops(program.given), tuple(steps[s] for s in program.order.steps), layouts, stages,
                 chosen, program.peak(dims or None, layouts), lambda: judge(drafts[id(last)]))


def traced(program: Program, bound: Bound | None) -> tuple[Hop, ...]:
    """Return what was traced for `bound`, the very hops; what was planned for if that is None."""
    own = bound is not None and bound.program is program
    return rebuild(program.given, bound.dims) if bound is not None and own else program.given


class _Copier:
    """Hops and what is made of them, with other sizes and lines, each once."""

    def __init__(self, dims: Mapping[int, int], line: Callable[[Hop], Any]) -> None:
        self._dims, self._line = dims, line
        self._new: dict[Hop, Hop] = {}

    def shape(self, shape: Shape) -> Shape:
        """Return the shape now; a size that no symbol stands for stays."""
        return tuple([n if n < 2 else self._dims.get(n, n) for n in shape])

    def hops(self, hops: Iterable[Hop]) -> tuple[Hop, ...]:
        """Return the same values."""
        hops = tuple(hops)
        for hop in topo([h for h in hops if h not in self._new]):
            if hop not in self._new:
                self._new[hop] = self._copied(hop)
        return tuple([self._new[h] for h in hops])

    def _copied(self, hop: Hop) -> Hop:
        inputs = tuple([self._new[i] for i in hop.inputs])
        attrs = tuple([(k, self.shape(v) if k == "shape" else v) for k, v in hop.attrs])
        return Hop(hop.op, inputs, attrs, self._meta(hop, inputs, dict(attrs)), self._line(hop))

    def _meta(self, hop: Hop, inputs: tuple[Hop, ...], attrs: Mapping[str, Any]) -> Meta:
        known = all(n < 2 or n in self._dims for n in hop.meta.shape)
        if hop.op.kind is Kind.LEAF or known and hop.meta.nnz is None:
            return replace(hop.meta, shape=self.shape(hop.meta.shape))
        return hop.op.meta(tuple([i.meta for i in inputs]), dict(attrs))

    def step(self, step: Any) -> Any:
        """Return the same step over these values."""
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
        """Return what a stage made; the plan is `plan`, if there was one by then."""
        found = draft.outcome and replace(draft.outcome, roots=self.hops(draft.outcome.roots))
        return replace(draft, roots=self.hops(draft.roots), layouts=layouts, outcome=found,
                       plan=draft.plan and plan)
