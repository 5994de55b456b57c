"""The pipeline of compilation: cost estimates, rewrites, planning; and the choice of hoisted values by plans.

Hoisted values are loop-invariant values of a block that are kept in memory from run to run. A greedy search
chooses them: it begins with all values that variant operators read. The largest is then replaced by its
inputs if the plan costs no more: an operator that fuses with others costs what it reads, so `X ** 2` within a
kernel is not hoisted, its column sums are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any

from jitla.classes import dataclass
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
    memory_owner,
    plan,
    plan_with_seconds,
)
from jitla.hops import Hop, Kind, Machine, make, replace_by_leaves, topo, verify
from jitla.hops import show as show_hops
from jitla.recompile.loop_schedules import nests_text
from jitla.recompile.offload import HostContext, place_operators, show_placement
from jitla.recompile.output_buffers import Aliases, Outs
from jitla.recompile.plan_store import StoredPlan
from jitla.recompile.program import Program, ProgramBuilder
from jitla.recompile.schedule_choices import ChosenSchedule
from jitla.rewrites import Rule, RuleSet, SearchBudget, axis_lengths, minimise_cost, simplify

if TYPE_CHECKING:
    from jitla.fusion import Expansion
    from jitla.recompile.offload import OffloadTarget, Placement
    from jitla.rewrites import SearchResult


Roots = tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """What plans depend on besides the roots."""

    layouts: Mapping[int, Layout]
    supports: Callable[[Hop], str | None]
    machine: Machine
    templates: Collection[str]
    fusion: str
    limit: int
    recall: PartitionCache | None


class SearchCosts:
    """Cost functions of the rewrite search, part by part, and the plans made for them."""

    def __init__(self, roots: Roots, outs: Sequence[int | None], context: PlanningContext) -> None:
        self._context = context
        self._places = all_layouts(roots, context.layouts)
        self._roots_and_stored = roots, frozenset(i for i, out in enumerate(outs) if out is not None)
        self._whole_costs: PartCosts | None = None

    def of(self, part: Roots, leaf_values: Mapping[Hop, Hop]) -> PartCosts:
        """Return the costs of alternatives to a part; its leaves `leaf_values` stand for other values."""
        if part == self._roots_and_stored[0]:
            self._whole_costs = PartCosts(*self._roots_and_stored, self._context)
            return self._whole_costs
        replaced = {leaf.attr("slot"): self._places[value] for leaf, value in leaf_values.items()}
        context = replace(self._context, layouts={**self._context.layouts, **replaced})
        return PartCosts(part, frozenset(), context)

    def plan(self, roots: Roots) -> Plan | None:
        """Return the plan of all roots, if it was made."""
        return self._whole_costs.plans.get(roots) if self._whole_costs is not None else None


class PartCosts:
    """Costs of alternatives to `original_roots`: from a cheap lower bound to the price of a full plan.

    Results have the layouts of the original's, unless they are `stored`.
    """

    def __init__(self, original_roots: Roots, stored: frozenset[int], context: PlanningContext) -> None:
        self._context = context
        self._stored = stored
        self._price_of: dict[Roots, float] = {}
        self.plans: dict[Roots, Plan] = {}
        self._places = all_layouts(original_roots, context.layouts)
        self._prices = CostModel(context.machine, self._places)
        self._required_layouts = {i: self._places[r] for i, r in enumerate(original_roots) if i not in stored}
        self._min_seconds: dict[Hop, tuple[float, float]] = {}

    def floor(self, roots: Roots) -> float:
        """Return a lower bound: the seconds of reading leaves, computing, and writing results, each once.

        Views are neither read nor written.
        """
        hops = topo(roots)
        for hop in hops:
            if hop not in self._places:
                self._places[hop] = self._place(hop)
        if any(self._places[roots[i]] != place for i, place in self._required_layouts.items()):
            return inf
        read = {memory_owner(i) for h in hops if h.inputs and not is_view(h) for i in h.inputs}
        terms = [self._min_seconds_of(h) for h in hops if h.inputs or h in read]
        written = sum(self._written(r) for r in set(roots) if r.inputs and not is_view(r))
        return written + max(sum(t[0] for t in terms), sum(t[1] for t in terms))

    def guess(self, roots: Roots) -> float:
        """Return the seconds of all operators one by one, with operands of products materialised."""
        hops = topo(roots)
        operands = {i for h in hops if h.op.name == "matmul" for i in map(memory_owner, h.inputs) if i.inputs}
        matrices = {i for i in operands if i.meta.ndim == 2 and i.op.kind is Kind.CELL}
        written = sum(map(self._prices.writes, matrices.union(r for r in roots if r.inputs)))
        read = sum(map(self._prices.reads, matrices))
        return written + read + sum(sum(self._min_seconds_of(h)) for h in hops)

    def _place(self, hop: Hop) -> Layout:
        shape = hop.meta.shape
        if shape == () or hop.op.kind is Kind.LEAF:
            is_array = hop.op.name == "leaf" and shape
            layout = self._context.layouts.get(hop.attr("slot")) if is_array else None
            return layout or contiguous(shape, hop.meta.dtype.itemsize)
        return hop_layout(hop, shape, dict(hop.attrs), [self._places[i] for i in layout_operands(hop)])

    def _min_seconds_of(self, hop: Hop) -> tuple[float, float]:
        """Return the least seconds of reading a leaf, and of computing another value."""
        seconds = self._min_seconds.get(hop)
        if seconds is None:
            if hop.op.kind is Kind.LEAF:
                seconds = self._prices.reads(hop), 0.0
            elif is_view(hop):
                seconds = 0.0, 0.0
            else:
                numpy_call = self._prices.call(hop) if hop.op.kind is Kind.CALL else inf
                seconds = 0.0, min(self._prices.work(hop), numpy_call)
            self._min_seconds[hop] = seconds
        return seconds

    def _written(self, root: Hop) -> float:
        """Return the seconds of writing a result, unless the NumPy call that computes it includes that."""
        seconds = self._prices.writes(root)
        if root.op.kind is Kind.CALL:
            seconds = min(seconds, max(self._prices.call(root) - self._prices.work(root), 0.0))
        return seconds

    def price(self, roots: Roots) -> float:
        """Return the predicted seconds of the plan of `roots`."""
        seconds = self._price_of.get(roots)
        if seconds is None:
            c = self._context
            stored = {roots[i] for i in self._stored}
            self.plans[roots], seconds = plan_with_seconds(
                roots, c.layouts, c.supports, c.machine, c.templates, c.fusion, c.limit, stored, c.recall)
            self._price_of[roots] = seconds
        return seconds

    def ceiling(self, roots: Roots) -> float:
        """Return an upper bound: the seconds of one NumPy call per operator."""
        return sum(map(self._prices.call, topo(roots)))


@dataclass(frozen=True, slots=True)
class Draft:
    """The state of a program between stages; each stage returns a more complete draft."""

    roots: tuple[Hop, ...]
    layouts: Mapping[int, Layout]
    outs: Outs
    aliases: Aliases
    fired: tuple[str, ...] = ()
    outcome: SearchResult | None = None
    lengths: frozenset[int] = frozenset()
    plan: Plan | None = None
    placement: Placement | None = None
    expansion: Expansion | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """The environment of the stages, handed in from above; rules are loaded when first used."""

    rules: Callable[[], RuleSet] | None
    supports: Callable[[Hop], str | None]
    machine: Machine
    templates: tuple[str, ...]
    fusion: str
    builder: ProgramBuilder
    observe: Callable[[Event], None]
    check: bool = False
    limit: int = 0
    recall: Callable[[], PartitionCache] | None = None
    substitutions: Callable[[], RuleSet] | None = None
    effort: SearchBudget = SearchBudget()
    devices: tuple[OffloadTarget, ...] = ()
    placement: str = "cost"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the pipeline; `verify` raises `InternalError` on an invalid draft."""

    name: str
    doc: str
    run: Callable[[Draft, Tools], Draft]
    verify: Callable[[Draft], None]
    show: Callable[[Draft], str]


@dataclass(frozen=True, slots=True)
class StageTrace:
    """A stage that has run: its seconds and the draft it returned."""

    stage: Stage
    draft: Draft
    seconds: float

    @property
    def name(self) -> str:
        """Name of the stage."""
        return self.stage.name

    @property
    def doc(self) -> str:
        """Purpose of the stage."""
        return self.stage.doc

    def text(self) -> str:
        """Return the draft after the stage as text."""
        return self.stage.show(self.draft).rstrip("\n")


def _start(draft: Draft, tools: Tools) -> Draft:
    """Add the casts of stored values to the dtypes of their leaves, and collect the traced lengths."""
    dtypes = {h.attr("slot"): h.meta.dtype for h in topo(draft.roots) if h.op.name == "leaf"}
    roots = []
    for root, out in zip(draft.roots, draft.outs, strict=True):
        dtype = dtypes.get(out, root.meta.dtype)
        roots.append(root if dtype == root.meta.dtype else make("cast", (root,), root.line, dtype=dtype))
    return replace(draft, roots=tuple(roots), lengths=axis_lengths(tuple(roots)))


def _simplify(draft: Draft, tools: Tools) -> Draft:
    if tools.rules is None:
        return draft
    required = _places(draft.roots, draft)
    rules = tools.rules()
    simplified = _apply_rules(draft, rules)
    if _places(simplified.roots, draft) == required:
        return simplified
    # The layout of NumPy's results depends on the operators: on transposes, and on broadcast operands.
    for name in dict.fromkeys(simplified.fired):
        alternative = _apply_rules(draft, rules.without(name))
        if _places(alternative.roots, draft) == required:
            return alternative
    return draft


def _apply_rules(draft: Draft, rules: RuleSet) -> Draft:
    fired: list[str] = []

    def note(rule: Rule, before: Hop, after: Hop) -> bool:
        fired.append(rule.name)
        return True

    return replace(draft, roots=simplify(draft.roots, rules, note), fired=tuple(fired))


def _expand(draft: Draft, tools: Tools) -> Draft:
    """Expand aggregates of few elements into elementwise operators, which rules simplify further.

    Not with devices, which support windows and blocks themselves.
    """
    if tools.rules is None or tools.fusion != "cost" or tools.devices:
        return draft
    roots, expansion = expand_aggregates(draft.roots, draft.layouts)
    if expansion is None:
        return draft
    simplified = _simplify(replace(draft, roots=roots), tools)
    return replace(simplified, fired=(*draft.fired, *simplified.fired), expansion=expansion)


def _places(roots: tuple[Hop, ...], draft: Draft) -> list[Layout]:
    layout_of = all_layouts(roots, draft.layouts)
    return [layout_of[root] for root, out in zip(roots, draft.outs, strict=True) if out is None]


def _improve(draft: Draft, tools: Tools) -> Draft:
    """Search for cheaper equivalents; new lengths must differ from traced ones, which have a meaning."""
    if tools.substitutions is None or not tools.effort.seconds:
        return draft
    context = PlanningContext(draft.layouts, tools.supports, tools.machine, tools.templates, tools.fusion,
                              tools.limit, _partition_cache(tools))
    costs = SearchCosts(draft.roots, draft.outs, context)
    search_outcome = minimise_cost(draft.roots, tools.substitutions(), costs.of, tools.effort, draft.lengths)
    fired = (*draft.fired, *[rule.name for rule in search_outcome.fired])
    return replace(draft, roots=search_outcome.roots, fired=fired, outcome=search_outcome,
                   plan=costs.plan(search_outcome.roots))


def _place(draft: Draft, tools: Tools) -> Draft:
    """Place operators on devices; the plan of the whole is dropped if any is offloaded."""
    context = HostContext(draft.layouts, tools.supports, tools.machine, tools.templates)
    result = place_operators(draft.roots, tools.devices, tools.placement, context)
    is_unchanged = result.roots == draft.roots
    return replace(draft, roots=result.roots, placement=result, plan=draft.plan if is_unchanged else None)


def _plan(draft: Draft, tools: Tools) -> Draft:
    if draft.plan is not None:  # made by the search
        return draft
    args = *_planning_args(draft, tools), _partition_cache(tools)
    return replace(draft, plan=plan(draft.roots, *args))


def _partition_cache(tools: Tools) -> PartitionCache | None:
    """Return the cache of partial plans, which is created at its first use."""
    return None if tools.recall is None else tools.recall()


def _planning_args(draft: Draft, tools: Tools) -> tuple[Any, ...]:
    """Return what plans depend on besides the roots."""
    stored = {r for r, out in zip(draft.roots, draft.outs, strict=True) if out is not None}
    return (draft.layouts, tools.supports, tools.machine, tools.templates, tools.fusion, tools.limit, stored)


def _verify_roots(draft: Draft) -> None:
    verify(draft.roots)


def _verify_plan(draft: Draft) -> None:
    """Check that every step reads values already computed, and every root is computed."""
    assert draft.plan is not None
    available = {h for h in topo(draft.roots) if not h.inputs and h.op.name in ("leaf", "const")}
    for step in draft.plan.steps:
        missing = [h for h in step.inputs if h not in available]
        if missing:
            raise InternalError(f"plan: a step reads {missing} before they are made")
        available.update(step.outputs)
    if any(r not in available for r in draft.plan.outputs):
        raise InternalError("plan: a root is never made")


def _show_roots(draft: Draft) -> str:
    return show_hops(draft.roots, lines=True)


def _show_search(draft: Draft) -> str:
    search = draft.outcome
    if search is None or not search.priced:
        return "nothing to search for"
    summary = (f"{search.before * 1e6:.4g} us predicted before, {search.after * 1e6:.4g} us after; "
            f"{search.expanded} expanded, {search.priced} priced"
            + ", ended by its budget" * search.exhausted)
    if not search.fired:
        return summary
    path = " > ".join(rule.name for rule in search.fired)
    return "\n".join([summary, path, show_hops(draft.roots, lines=True)])


def _show_placement(draft: Draft) -> str:
    return show_placement(draft.placement)


def _show_plan(draft: Draft) -> str:
    assert draft.plan is not None
    return format_plan(draft.plan)


STAGES: tuple[Stage, ...] = (
    Stage("hops", "what was traced", _start, _verify_roots, _show_roots),
    # Before planning: what a rule removes needs no loop.
    Stage("rewrites", "the same values, cheaper", _simplify, _verify_roots, _show_roots),
    # After rules that turn other operators into sums, such as einsum; before those that match slices.
    Stage("spelled", "aggregates of few elements, as cells of slices", _expand, _verify_roots, _show_roots),
    # After the rules that always pay: these may not, so every state has to be planned.
    Stage("rewrites.search", "the same values, by what plans cost", _improve, _verify_roots, _show_search),
    Stage("plan", "which operators share a loop", _plan, _verify_plan, _show_plan),
)


def _show_loops(chosen: Mapping[Any, ChosenSchedule], draft: Draft) -> str:
    assert draft.plan is not None
    return nests_text(draft.plan, chosen) or "no kernel"


def _loops(chosen: Mapping[Any, ChosenSchedule]) -> Stage:
    """Return the stage of loops, which does nothing: machine code is made when a program is bound.

    It exists for explanations; the schedules may change with every binding.
    """
    return Stage("loops", "kernels as nests of loops", lambda draft, tools: draft, _verify_plan,
                 partial(_show_loops, chosen))


def with_drafts(
    traces: Sequence[StageTrace], drafts: Sequence[Draft], chosen: Mapping[Any, ChosenSchedule],
) -> tuple[StageTrace, ...]:
    """Return the same stages with other drafts; the last is that of loops, with the schedules `chosen`."""
    stages = [*[trace.stage for trace in traces[:-1]], _loops(chosen)]
    return tuple(StageTrace(s, d, t.seconds) for s, d, t in zip(stages, drafts, traces, strict=True))


def explain_draft(tools: Tools, draft: Draft) -> PlanExplanation:
    """Return how the plan of a draft was chosen."""
    assert draft.plan is not None
    return explain_choice(draft.plan, *_planning_args(draft, tools))


# After all rewrites, which change what is computed; before planning of the host's remainder.
PLACEMENT = Stage("placement", "which parts leave the host", _place, _verify_roots, _show_placement)


def run_pipeline(draft: Draft, tools: Tools) -> tuple[StoredPlan, tuple[StageTrace, ...]]:
    """Run all stages; return the plan, and the stages that led to it."""
    traces: list[StageTrace] = []
    for stage in (*STAGES[:-1], PLACEMENT, STAGES[-1]) if tools.devices else STAGES:
        start = perf_counter()
        draft = stage.run(draft, tools)
        seconds = perf_counter() - start
        if tools.check:
            stage.verify(draft)
        traces.append(StageTrace(stage, draft, seconds))
        tools.observe(Event(f"pipeline.{stage.name}", seconds=seconds))
    assert draft.plan is not None
    found_by_search = draft.outcome is not None and bool(draft.outcome.fired)
    return StoredPlan(draft.plan, traces[0].draft.roots, draft.expansion, found_by_search), tuple(traces)


def stage_traces(
    draft: Draft, tools: Tools, program: Program, traces: Sequence[StageTrace] = (),
) -> tuple[StageTrace, ...]:
    """Return the stages of the program of a draft, with its current loops."""
    traces = traces or run_pipeline(draft, tools)[1]
    final = replace(traces[-1].draft, roots=program.plan.outputs, plan=program.plan)
    return (*traces[:-1], replace(traces[-1], draft=final), StageTrace(_loops(program.chosen), final, 0.0))


# --------------------------------------------------------------------------- hoisted values


MIN_SAVED_SECONDS, MIN_SAVED_SHARE = 4e-6, 0.05  # of a run: what hoisting has to save
# A set of fewer bytes is preferred if its cost is at most `MAX_COST_RATIO` times the best, or, if it has at
# most `LIGHTER_BYTES_SHARE` of the bytes, if it adds at most `MAX_LIGHTER_SHARE` of the cost without
# hoisting: hoisted values compete for the caches.
MAX_COST_RATIO, MAX_LIGHTER_SHARE, LIGHTER_BYTES_SHARE = 1.02, 0.15, 0.25
MAX_PLANS = 12

HoistedValues = tuple[Hop, ...]


def choose_hoisted(
    draft: Draft, tools: Tools, invariant_slots: Collection[int], candidates: Collection[Hop], max_bytes: int,
    ignore_costs: bool,
) -> HoistedValues:
    """Return which of `candidates` to hoist, where leaves in `invariant_slots` are invariant.

    They take at most `max_bytes`. With `ignore_costs` they need not save time.
    """
    invariant = InvariantValues(draft.roots, invariant_slots, frozenset(candidates))
    hoisted = invariant.frontier(draft.roots)
    while sum(h.meta.nbytes for h in hoisted) > max_bytes:
        hoisted = invariant.replaced_by_inputs(hoisted, max(hoisted, key=_bytes_of))
    if ignore_costs or not hoisted:
        return hoisted
    before = _planned_seconds(draft, tools)
    hoisted, after = _cheapest_hoisting(draft, tools, invariant, hoisted, before)
    return hoisted if before - after >= max(MIN_SAVED_SECONDS, MIN_SAVED_SHARE * before) else ()


class InvariantValues:
    """The invariant values of a DAG, and the candidates for hoisting among them."""

    def __init__(
        self, roots: tuple[Hop, ...], invariant_slots: Collection[int], candidates: frozenset[Hop],
    ) -> None:
        self._invariant: set[Hop] = set()
        self._reads_arrays: set[Hop] = set()  # those of them that depend on an array
        self._candidates = candidates
        for hop in topo(roots):
            slot = hop.attr("slot") if hop.op.name == "leaf" else None
            if slot in invariant_slots if slot is not None else all(i in self._invariant for i in hop.inputs):
                self._invariant.add(hop)
                if slot is not None and hop.meta.shape or any(i in self._reads_arrays for i in hop.inputs):
                    self._reads_arrays.add(hop)

    def frontier(self, roots: tuple[Hop, ...]) -> HoistedValues:
        """Return the values to hoist so that no other invariant value is computed for `roots`."""
        values: dict[Hop, None] = {}
        for hop in topo(roots):
            if hop not in self._invariant:
                values |= dict.fromkeys(self._inputs(hop))
        for hop in roots:
            if hop in self._invariant:
                values |= dict.fromkeys(self._stand_ins(hop))
        return tuple(values)

    def replaced_by_inputs(self, hoisted: HoistedValues, hop: Hop) -> HoistedValues:
        """Return `hoisted` with `hop` replaced by its invariant inputs."""
        remaining = (h for h in hoisted if h is not hop)
        return tuple(dict.fromkeys((*remaining, *self._inputs(hop))))

    def _inputs(self, hop: Hop) -> HoistedValues:
        return tuple(dict.fromkeys(h for i in hop.inputs if i in self._invariant for h in self._stand_ins(i)))

    def _stand_ins(self, hop: Hop) -> HoistedValues:
        """Return what to hoist for `hop`: itself, or the inputs of a view or of no candidate."""
        if hop not in self._reads_arrays or not hop.inputs:
            return ()
        if hop in self._candidates and not is_view(hop):
            return (hop,)
        return self._inputs(hop)


def _cheapest_hoisting(
    draft: Draft, tools: Tools, invariant: InvariantValues, hoisted: HoistedValues, before: float,
) -> tuple[HoistedValues, float]:
    """Return the cheapest set found from `hoisted` on, and its seconds; `before`: without hoisting."""
    def cost(values: HoistedValues) -> float:
        return _planned_seconds(_with_leaves(draft, values), tools)

    best = cost(hoisted)
    tried = {frozenset(hoisted)}
    untried = sorted(hoisted, key=_bytes_of)
    while untried and len(tried) < MAX_PLANS:
        hop = untried.pop()
        alternative = invariant.replaced_by_inputs(hoisted, hop)
        if frozenset(alternative) in tried:
            continue
        tried.add(frozenset(alternative))
        seconds = cost(alternative)
        lighter = _total_bytes(alternative) <= LIGHTER_BYTES_SHARE * _total_bytes(hoisted)
        limit = max(best * MAX_COST_RATIO, best + MAX_LIGHTER_SHARE * before if lighter else 0.0)
        if seconds < best or seconds <= limit and _total_bytes(alternative) <= _total_bytes(hoisted):
            untried = sorted({*untried, *(set(alternative) - set(hoisted))}, key=_bytes_of)
            hoisted, best = alternative, seconds
    return hoisted, best


def _with_leaves(draft: Draft, hoisted: HoistedValues) -> Draft:
    """Return `draft` with the values `hoisted` as leaves in the layouts of NumPy's results."""
    first_slot = 1 + max((h.attr("slot") for h in topo(draft.roots) if h.op.name == "leaf"), default=0)
    places = all_layouts(hoisted, draft.layouts)
    slots = {h: first_slot + n for n, h in enumerate(hoisted)}
    layouts = {slot: places[h] for h, slot in slots.items() if h.meta.shape}
    return replace(draft, roots=replace_by_leaves(draft.roots, slots), layouts={**draft.layouts, **layouts})


def _planned_seconds(draft: Draft, tools: Tools) -> float:
    """Return the predicted seconds of the plan of `draft`."""
    for stage in STAGES:
        draft = stage.run(draft, tools)
    assert draft.plan is not None
    prices = CostModel(tools.machine, all_layouts(draft.roots, draft.layouts))
    return sum(prices.step(step).total for step in draft.plan.steps)


def _bytes_of(hop: Hop) -> int:
    return hop.meta.nbytes


def _total_bytes(hoisted: HoistedValues) -> int:
    return sum(map(_bytes_of, hoisted))
