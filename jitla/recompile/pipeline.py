"""The pipeline of compilation: estimates, rewrites, planning, code generation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any

from jitla.classes import dataclass
from jitla.concurrency import rest
from jitla.errors import InternalError
from jitla.events import Event
from jitla.fusion import (
    CostModel,
    Layout,
    PartitionCache,
    Plan,
    PlanExplanation,
    all_layouts,
    contiguous,
    expand_aggregates,
    explain_choice,
    format_plan,
    hop_layout,
    is_view,
    layout_operands,
    plan,
    plan_with_seconds,
)
from jitla.hops import Hop, Kind, Machine, make, topo, verify
from jitla.hops import show as show_hops
from jitla.recompile.loop_schedules import nests_text
from jitla.recompile.offload import Terms as Moving
from jitla.recompile.offload import placed, show_placed
from jitla.recompile.output_buffers import Aliases, Outs
from jitla.recompile.plan_store import Kept
from jitla.recompile.program import Program, Workshop
from jitla.recompile.schedule_choices import Chosen
from jitla.rewrites import Rule, RuleSet, SearchBudget, axis_lengths, minimise_cost, simplify

if TYPE_CHECKING:
    from jitla.fusion import Expansion
    from jitla.recompile.offload import Device, Placed
    from jitla.rewrites import SearchResult


Roots = tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """What plans depend on besides the roots, and which of these go to memory that exists."""

    layouts: Mapping[int, Layout]
    supports: Callable[[Hop], str | None]
    machine: Machine
    templates: Collection[str]
    fusion: str
    limit: int
    recall: PartitionCache | None


class Appraisals:
    """Prices of the states of a search, part by part, and the plans that were made for them."""

    def __init__(self, roots: Roots, outs: Sequence[int | None], terms: Terms) -> None:
        self._terms = terms
        self._places = all_layouts(roots, terms.layouts)
        self._whole = roots, frozenset(i for i, out in enumerate(outs) if out is not None)
        self._made: Appraisal | None = None

    def of(self, part: Roots, lent: Mapping[Hop, Hop]) -> Appraisal:
        """Return the prices of what may stand for a part; its leaves `lent` lie as the values they are."""
        if part == self._whole[0]:
            self._made = Appraisal(*self._whole, self._terms)
            return self._made
        given = {own.attr("slot"): self._places[value] for own, value in lent.items()}
        return Appraisal(part, frozenset(), replace(self._terms, layouts={**self._terms.layouts, **given}))

    def plan(self, roots: Roots) -> Plan | None:
        """Return the plan of all roots, if it was made."""
        return self._made.plans.get(roots) if self._made is not None else None


class Appraisal:
    """Prices of what may stand for `given`: results lie where they do there, unless they are `stored`."""

    def __init__(self, given: Roots, stored: frozenset[int], terms: Terms) -> None:
        self._terms = terms
        self._stored = stored
        self._known: dict[Roots, float] = {}
        self.plans: dict[Roots, Plan] = {}
        self._places = all_layouts(given, terms.layouts)
        self._prices = CostModel(terms.machine, self._places)
        self._wanted = {i: self._places[r] for i, r in enumerate(given) if i not in stored}
        self._least: dict[Hop, tuple[float, float]] = {}

    def floor(self, roots: Roots) -> float:
        """Return the least that reading leaves, computing and writing results takes, each once.

        What is only looked at in another order is neither read nor written.
        """
        hops = topo(roots)
        for hop in hops:
            if hop not in self._places:
                self._places[hop] = self._place(hop)
        if any(self._places[roots[i]] != place for i, place in self._wanted.items()):
            return inf
        read = {_viewed(i) for h in hops if h.inputs and not is_view(h) for i in h.inputs}
        terms = [self._once(h) for h in hops if h.inputs or h in read]
        written = sum(self._written(r) for r in set(roots) if r.inputs and not is_view(r))
        return written + max(sum(t[0] for t in terms), sum(t[1] for t in terms))

    def guess(self, roots: Roots) -> float:
        """Return what all operators take one by one, matrices on their way into products written and read."""
        hops = topo(roots)
        operands = {i for h in hops if h.op.name == "matmul" for i in map(_viewed, h.inputs) if i.inputs}
        kept = {i for i in operands if i.meta.ndim == 2 and i.op.kind is Kind.CELL}
        written = sum(map(self._prices.writes, kept.union(r for r in roots if r.inputs)))
        return written + sum(map(self._prices.reads, kept)) + sum(sum(self._once(h)) for h in hops)

    def _place(self, hop: Hop) -> Layout:
        shape = hop.meta.shape
        if shape == () or hop.op.kind is Kind.LEAF:
            given = self._terms.layouts.get(hop.attr("slot")) if hop.op.name == "leaf" and shape else None
            return given or contiguous(shape, hop.meta.dtype.itemsize)
        return hop_layout(hop, shape, dict(hop.attrs), [self._places[i] for i in layout_operands(hop)])

    def _once(self, hop: Hop) -> tuple[float, float]:
        """Return the seconds of reading a leaf, and of computing anything else."""
        found = self._least.get(hop)
        if found is None:
            if hop.op.kind is Kind.LEAF:
                found = self._prices.reads(hop), 0.0
            elif is_view(hop):
                found = 0.0, 0.0
            else:
                alone = self._prices.call(hop) if hop.op.kind is Kind.CALL else inf
                found = 0.0, min(self._prices.work(hop), alone)
            self._least[hop] = found
        return found

    def _written(self, root: Hop) -> float:
        """Return the seconds of writing a result, as far as the call that may make it does not do so."""
        seconds = self._prices.writes(root)
        if root.op.kind is Kind.CALL:
            seconds = min(seconds, max(self._prices.call(root) - self._prices.work(root), 0.0))
        return seconds

    def price(self, roots: Roots) -> float:
        """Return what the plan of `roots` is predicted to take."""
        found = self._known.get(roots)
        if found is None:
            t = self._terms
            stored = {roots[i] for i in self._stored}
            self.plans[roots], found = plan_with_seconds(
                roots, t.layouts, t.supports, t.machine, t.templates, t.fusion, t.limit, stored, t.recall)
            self._known[roots] = found
        return found

    def ceiling(self, roots: Roots) -> float:
        """Return what the calls take, one after the other, that NumPy does it with."""
        return sum(map(self._prices.call, topo(roots)))


def _viewed(hop: Hop) -> Hop:
    while is_view(hop):
        hop = hop.inputs[0]
    return hop


@dataclass(frozen=True, slots=True)
class Draft:
    """What is known of a program on its way; a stage returns a draft with more in it."""

    roots: tuple[Hop, ...]
    layouts: Mapping[int, Layout]
    outs: Outs
    aliases: Aliases
    fired: tuple[str, ...] = ()
    outcome: SearchResult | None = None
    lengths: frozenset[int] = frozenset()
    plan: Plan | None = None
    placed: Placed | None = None
    spelling: Expansion | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """What the stages work with, handed in from above; rules are loaded when somebody asks for them."""

    rules: Callable[[], RuleSet] | None
    supports: Callable[[Hop], str | None]
    machine: Machine
    templates: tuple[str, ...]
    fusion: str
    workshop: Workshop
    observe: Callable[[Event], None]
    check: bool = False
    limit: int = 0
    recall: Callable[[], PartitionCache] | None = None
    substitutions: Callable[[], RuleSet] | None = None
    effort: SearchBudget = SearchBudget()
    devices: tuple[Device, ...] = ()
    placement: str = "cost"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the pipeline; `verify` raises `InternalError` on a broken draft."""

    name: str
    doc: str
    run: Callable[[Draft, Tools], Draft]
    verify: Callable[[Draft], None]
    show: Callable[[Draft], str]


@dataclass(frozen=True, slots=True)
class Trace:
    """A stage that has run: how long it took and what it left, written out on demand."""

    stage: Stage
    draft: Draft
    seconds: float

    @property
    def name(self) -> str:
        """Name of the stage."""
        return self.stage.name

    @property
    def doc(self) -> str:
        """What the stage is for."""
        return self.stage.doc

    def text(self) -> str:
        """Write down the state after the stage."""
        return self.stage.show(self.draft).rstrip("\n")


def _take(draft: Draft, tools: Tools) -> Draft:
    """Start from what was traced; a stored value takes the dtype of its leaf."""
    dtypes = {h.attr("slot"): h.meta.dtype for h in topo(draft.roots) if h.op.name == "leaf"}
    roots = []
    for root, out in zip(draft.roots, draft.outs, strict=True):
        dtype = dtypes.get(out, root.meta.dtype)
        roots.append(root if dtype == root.meta.dtype else make("cast", (root,), root.line, dtype=dtype))
    return replace(draft, roots=tuple(roots), lengths=axis_lengths(tuple(roots)))


def _simplify(draft: Draft, tools: Tools) -> Draft:
    if tools.rules is None:
        return draft
    wanted = _places(draft.roots, draft)
    rules = tools.rules()
    first = _rewritten(draft, rules)
    if _places(first.roots, draft) == wanted:
        return first
    # Where NumPy's results lie depends on the operators: on transposes, and on broadcast operands.
    for name in dict.fromkeys(first.fired):
        found = _rewritten(draft, rules.without(name))
        if _places(found.roots, draft) == wanted:
            return found
    return draft


def _rewritten(draft: Draft, rules: RuleSet) -> Draft:
    fired: list[str] = []

    def note(rule: Rule, before: Hop, after: Hop) -> bool:
        fired.append(rule.name)
        return True

    return replace(draft, roots=simplify(draft.roots, rules, note), fired=tuple(fired))


def _spell(draft: Draft, tools: Tools) -> Draft:
    """Spell out aggregates of few elements; the rules then know the slices that these are made of.

    Not where there are devices: they know windows and blocks themselves.
    """
    if tools.rules is None or tools.fusion != "cost" or tools.devices:
        return draft
    roots, spelling = expand_aggregates(draft.roots, draft.layouts)
    if spelling is None:
        return draft
    again = _simplify(replace(draft, roots=roots), tools)
    return replace(again, fired=(*draft.fired, *again.fired), spelling=spelling)


def _places(roots: tuple[Hop, ...], draft: Draft) -> list[Layout]:
    found = all_layouts(roots, draft.layouts)
    return [found[root] for root, out in zip(roots, draft.outs, strict=True) if out is None]


def _improve(draft: Draft, tools: Tools) -> Draft:
    """Search for what is cheaper; lengths that were traced have a meaning that new ones must not share."""
    if tools.substitutions is None or not tools.effort.seconds:
        return draft
    terms = Terms(draft.layouts, tools.supports, tools.machine, tools.templates, tools.fusion, tools.limit,
                  _recall(tools))
    costs = Appraisals(draft.roots, draft.outs, terms)
    found = minimise_cost(draft.roots, tools.substitutions(), costs.of, tools.effort, draft.lengths)
    fired = (*draft.fired, *[rule.name for rule in found.fired])
    return replace(draft, roots=found.roots, fired=fired, outcome=found, plan=costs.plan(found.roots))


def _place(draft: Draft, tools: Tools) -> Draft:
    """Let devices do what they do faster; a plan of the whole is none of the rest."""
    terms = Moving(draft.layouts, tools.supports, tools.machine, tools.templates)
    found = placed(draft.roots, tools.devices, tools.placement, terms)
    same = found.roots == draft.roots
    return replace(draft, roots=found.roots, placed=found, plan=draft.plan if same else None)


def _plan(draft: Draft, tools: Tools) -> Draft:
    if draft.plan is not None:  # the search has asked for it
        return draft
    terms = *_terms(draft, tools), _recall(tools)
    return replace(draft, plan=plan(draft.roots, *terms))


def _recall(tools: Tools) -> PartitionCache | None:
    return None if tools.recall is None else tools.recall()


def _terms(draft: Draft, tools: Tools) -> tuple[Any, ...]:
    """Return what plans depend on besides the roots."""
    stored = {r for r, out in zip(draft.roots, draft.outs, strict=True) if out is not None}
    return (draft.layouts, tools.supports, tools.machine, tools.templates, tools.fusion, tools.limit, stored)


def _verify_roots(draft: Draft) -> None:
    verify(draft.roots)


def _verify_plan(draft: Draft) -> None:
    """Every step reads what is known by then, and every root is made."""
    assert draft.plan is not None
    known = {h for h in topo(draft.roots) if not h.inputs and h.op.name in ("leaf", "const")}
    for step in draft.plan.steps:
        missing = [h for h in step.inputs if h not in known]
        if missing:
            raise InternalError(f"plan: a step reads {missing} before they are made")
        known.update(step.outputs)
    if any(r not in known for r in draft.plan.outputs):
        raise InternalError("plan: a root is never made")


def _show_roots(draft: Draft) -> str:
    return show_hops(draft.roots, lines=True)


def _show_search(draft: Draft) -> str:
    found = draft.outcome
    if found is None or not found.priced:
        return "nothing to search for"
    told = (f"{found.before * 1e6:.4g} us predicted before, {found.after * 1e6:.4g} us after; "
            f"{found.expanded} expanded, {found.priced} priced" + ", ended by its budget" * found.exhausted)
    if not found.fired:
        return told
    path = " > ".join(rule.name for rule in found.fired)
    return "\n".join([told, path, show_hops(draft.roots, lines=True)])


def _show_placed(draft: Draft) -> str:
    return show_placed(draft.placed)


def _show_plan(draft: Draft) -> str:
    assert draft.plan is not None
    return format_plan(draft.plan)


STAGES: tuple[Stage, ...] = (
    Stage("hops", "what was traced", _take, _verify_roots, _show_roots),
    # Before planning: what a rule removes needs no loop.
    Stage("rewrites", "the same values, cheaper", _simplify, _verify_roots, _show_roots),
    # After rules that make sums of other operators, such as einsum; before all that looks at slices.
    Stage("spelled", "aggregates of few elements, as cells of slices", _spell, _verify_roots, _show_roots),
    # After the rules that always pay: these may lead anywhere, so every state has to be planned.
    Stage("rewrites.search", "the same values, by what plans cost", _improve, _verify_roots, _show_search),
    Stage("plan", "which operators share a loop", _plan, _verify_plan, _show_plan),
)


def _show_loops(chosen: Mapping[Any, Chosen], draft: Draft) -> str:
    assert draft.plan is not None
    return nests_text(draft.plan, chosen) or "no kernel"


def _loops(chosen: Mapping[Any, Chosen]) -> Stage:
    """Return the stage of loops; nothing is done there, as machine code is made when a program is bound.

    It is what a reader may ask for; what is chosen may change from binding to binding.
    """
    return Stage("loops", "kernels as nests of loops", lambda draft, tools: draft, _verify_plan,
                 partial(_show_loops, chosen))


def retold(
    traces: Sequence[Trace], drafts: Sequence[Draft], chosen: Mapping[Any, Chosen],
) -> tuple[Trace, ...]:
    """Return the same stages with other drafts; the last is that of loops, of which `chosen` tells."""
    stages = [*[trace.stage for trace in traces[:-1]], _loops(chosen)]
    return tuple(Trace(s, d, t.seconds) for s, d, t in zip(stages, drafts, traces, strict=True))


def weighed(tools: Tools, draft: Draft) -> PlanExplanation:
    """Say how the plan of a draft was chosen."""
    assert draft.plan is not None
    return explain_choice(draft.plan, *_terms(draft, tools))


# After all rewrites, so that parts are what is computed; before planning, for what is left to the host.
PLACEMENT = Stage("placement", "which parts leave the host", _place, _verify_roots, _show_placed)


def run_pipeline(draft: Draft, tools: Tools) -> tuple[Kept, tuple[Trace, ...]]:
    """Run all stages; return what a program is made of, and how that was found."""
    traces: list[Trace] = []
    for stage in (*STAGES[:-1], PLACEMENT, STAGES[-1]) if tools.devices else STAGES:
        start = perf_counter()
        draft = stage.run(draft, tools)
        seconds = perf_counter() - start
        if tools.check:
            stage.verify(draft)
        traces.append(Trace(stage, draft, seconds))
        tools.observe(Event(f"pipeline.{stage.name}", seconds=seconds))
        rest()
    assert draft.plan is not None
    searched = draft.outcome is not None and bool(draft.outcome.fired)
    return Kept(draft.plan, traces[0].draft.roots, draft.spelling, searched), tuple(traces)


def told(draft: Draft, tools: Tools, program: Program, traces: Sequence[Trace] = ()) -> tuple[Trace, ...]:
    """Return how the program of a draft was found, the loops that it has now included."""
    traces = traces or run_pipeline(draft, tools)[1]
    final = replace(traces[-1].draft, roots=program.plan.outputs, plan=program.plan)
    return (*traces[:-1], replace(traces[-1], draft=final), Trace(_loops(program.chosen), final, 0.0))
