"""Explanation of a plan: its predicted cost, the alternatives, and the plans of other fusion rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from math import nan, prod

from jitla.classes import dataclass
from jitla.fusion.cost_model import (
    Cost,
    CostModel,
    peak_bytes,
)
from jitla.fusion.enumeration import BUDGET, MANY_VALUES, Search
from jitla.fusion.kernel import (
    Call,
    Plan,
    Step,
)
from jitla.fusion.layout import Layout
from jitla.fusion.planner import (
    RULES,
    PartitionCache,
    PlanChoice,
    choose_plan,
)
from jitla.hops import Hop, Machine


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The cheapest plan that was costed and not chosen, as the values it stores and those it does not.

    `more` is its cost beyond that of the chosen plan, in total and by cause.
    """

    keeps: tuple[Hop, ...]
    drops: tuple[Hop, ...]
    more: Cost


@dataclass(frozen=True, slots=True)
class PlanExplanation:
    """How a plan was found. Counts are choices of values to store in memory; `points` values are open.

    `costs` are those of the plan's steps. `shares` are the parts of a step's time that its operators take, in
    the order of its body: of computing, and of what they are the first to read, or write. `rules` are the
    seconds predicted for the plans of heuristic fusion rules. `by_cost`: choices pruned by a lower bound.
    `by_structure`: choices that need not be costed because partitions are independent. `spent`: the budget
    ran out before the end of the search. `unlimited`: cost and peak memory of the plan without a memory
    limit, if it is another one. `flip_costs`: for every open value, the extra cost of the cheapest plan with
    the opposite decision (NaN: unknown).
    """

    costs: tuple[Cost, ...]
    shares: tuple[tuple[float, ...], ...]
    rules: Mapping[str, float]
    bound: float
    partitions: int
    points: int
    costed: int
    by_cost: int
    by_structure: int
    kernels: int
    spent: bool
    runner_up: RunnerUp | None
    peak: int
    unlimited: tuple[float, int] | None = None
    flip_costs: Mapping[Hop, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The predicted seconds of the plan."""
        return sum(c.total for c in self.costs)


def explain_choice(
    plan: Plan, layouts: Mapping[int, Layout], backend_supports: Callable[[Hop], str | None],
    machine: Machine, templates: Collection[str], fusion: str, limit: int = 0,
    stored: Collection[Hop] = (),
) -> PlanExplanation:
    """Return how `plan` was found, given the same arguments, and its alternatives."""

    def choose_by(rule: str) -> PlanChoice:
        return choose_plan(plan.outputs, layouts, backend_supports, machine, templates, rule, limit, stored)

    chosen = choose_by(fusion)
    cost_model = chosen.kernels.cost_model
    other_rules = ("cost", *RULES) if chosen.kernels.memo.computed.bit_count() <= MANY_VALUES else ()
    rules = {r: _seconds(choose_by(r).plan, cost_model) for r in other_rules if r != fusion}
    costs = tuple(cost_model.step(s) for s in plan.steps)
    peak = peak_bytes(plan.steps, plan.outputs, machine.threads, stored)
    results = chosen.results
    choices = [1 << len(f.partition.points) for f in results]
    unlimited = plan
    if limit:
        unlimited = choose_plan(
            plan.outputs, layouts, backend_supports, machine, templates, fusion).plan
    unlimited_peak = peak_bytes(unlimited.steps, unlimited.outputs, machine.threads, stored)
    limited = unlimited_peak > peak
    return PlanExplanation(
        costs, tuple(_shares(s, cost_model) for s in plan.steps), rules,
        min(_bound(chosen, costs, plan), sum(c.total for c in costs)),
        partitions=len(results),
        points=sum(len(f.partition.points) for f in results),
        costed=sum(f.costed for f in results),
        by_cost=sum(f.pruned_by_cost for f in results),
        by_structure=prod(choices) - max(sum(n for n in choices if n > 1), 1),
        kernels=chosen.kernels.evaluated,
        spent=any(f.budget_exhausted for f in results),
        runner_up=None if limited else _runner_up(chosen),
        peak=peak,
        unlimited=(_seconds(unlimited, cost_model), unlimited_peak) if limited else None,
        flip_costs={} if limited else _flip_costs(chosen))


def plan_with_seconds(
    roots: Sequence[Hop], layouts: Mapping[int, Layout], backend_supports: Callable[[Hop], str | None],
    machine: Machine, templates: Collection[str], fusion: str, limit: int = 0,
    stored: Collection[Hop] = (), partition_cache: PartitionCache | None = None,
) -> tuple[Plan, float]:
    """Return the plan of `roots`, see `plan`, and its predicted seconds."""
    chosen = choose_plan(
        roots, layouts, backend_supports, machine, templates, fusion, limit, stored, partition_cache)
    return chosen.plan, _seconds(chosen.plan, chosen.kernels.cost_model)


def _shares(step: Step, cost_model: CostModel) -> tuple[float, ...]:
    """Return the predicted part of a step's time that each of its operators takes."""
    if isinstance(step, Call):
        return (1.0,)
    body = step.body
    seconds = {h: cost_model.work(h) for h in body}
    for hop in step.inputs:
        reader = next((h for h in body if hop in h.inputs), body[0])
        seconds[reader] += cost_model.reads(hop)
    for hop in seconds.keys() & set(step.outputs):
        seconds[hop] += cost_model.writes(hop)
    total = sum(seconds.values())
    return tuple(seconds[h] / total if total else 1.0 / len(body) for h in body)


def _seconds(plan: Plan, cost_model: CostModel) -> float:
    return sum(cost_model.step(s).total for s in plan.steps)


def _bound(chosen: PlanChoice, costs: Sequence[Cost], plan: Plan) -> float:
    """Return a lower bound on the cost of any plan: bounds of partitions, and other steps."""
    inside = 0
    for f in chosen.results:
        inside |= f.partition.values
    memo = chosen.kernels.memo
    searched = {h for h in memo.hops(inside)}
    outside = sum(
        c.total for c, s in zip(costs, plan.steps, strict=True) if not searched.intersection(s.outputs))
    return outside + sum(Search(f.partition, memo, chosen.kernels).min_seconds() for f in chosen.results)


def _flip_costs(chosen: PlanChoice) -> dict[Hop, float]:
    """Return, for every open value, the extra cost of the opposite decision; NaN beyond the search budget."""
    memo, costs = chosen.kernels.memo, {}
    for f in chosen.results:
        search = Search(f.partition, memo, chosen.kernels, chosen.kernels.evaluated + BUDGET)
        for point in f.partition.points:
            grouping = search.arrange_within_budget(f.chosen ^ 1 << point)
            costs[next(iter(memo.hops(1 << point)))] = nan if grouping is None else grouping[0] - f.seconds
    return costs


def _runner_up(chosen: PlanChoice) -> RunnerUp | None:
    """Return the second-best choice of the partition where it is closest to the best."""
    gaps = [(f.second_best[0] - f.seconds, i) for i, f in enumerate(chosen.results)
            if f.second_best is not None]
    if not gaps:
        return None
    gap, at = min(gaps)
    result, memo = chosen.results[at], chosen.kernels.memo
    assert result.second_best is not None
    stored = result.second_best[1]
    search = Search(result.partition, memo, chosen.kernels, chosen.kernels.evaluated + BUDGET)
    rival = search.arrange_within_budget(stored)
    theirs, ours = [
        [sum(c.cost[k] for c in kernels if c.cost) for k in range(4)]
        for kernels in (rival[1] if rival else result.kernels, result.kernels)]
    read, write, compute, launch = (t - o for t, o in zip(theirs, ours, strict=True))
    return RunnerUp(tuple(memo.hops(stored & ~result.chosen)), tuple(memo.hops(result.chosen & ~stored)),
                    Cost(read, write, compute, launch, gap))
