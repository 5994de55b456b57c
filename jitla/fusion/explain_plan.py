"""Why a plan was chosen: what it is predicted to cost, what else there was, what other rules would do."""

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
from jitla.fusion.enumeration import (
    BUDGET,
    Search,
)
from jitla.fusion.kernel import (
    Call,
    Plan,
    Step,
)
from jitla.fusion.layout import Layout
from jitla.fusion.partitions import MANY
from jitla.fusion.planner import (
    RULES,
    Chosen,
    PartitionCache,
    choose,
)
from jitla.hops import Hop, Machine


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The cheapest plan that was costed and not chosen: which values it keeps in memory, and which not.

    `more` has what it costs beyond the plan chosen, in all and by what it is spent on.
    """

    keeps: tuple[Hop, ...]
    drops: tuple[Hop, ...]
    more: Cost


@dataclass(frozen=True, slots=True)
class PlanExplanation:
    """How a plan was found. Counts are choices of values to keep in memory; `points` of them are open.

    `costs` are those of the plan's steps. `shares` are the parts of a step's time that its operators take, in
    the order of its body: of computing, and of what they are the first to read, or write. `rules` are the
    seconds predicted for the plans by rule of thumb.
    `by_structure`: choices that are no plans of their own because partitions do not depend on each other.
    `spent`: the search ended before it was through. `free`: what the plan without a limit of memory
    would cost and take, where that is another one. `open`: values that may be in memory or not, and
    what the cheapest plan with that one the other way round costs more (NaN: unknown).
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
    free: tuple[float, int] | None = None
    open: Mapping[Hop, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """What the plan is predicted to take."""
        return sum(c.total for c in self.costs)


def explain_choice(
    plan: Plan, layouts: Mapping[int, Layout], backend_supports: Callable[[Hop], str | None],
    machine: Machine, templates: Collection[str], fusion: str, limit: int = 0,
    stored: Collection[Hop] = (),
) -> PlanExplanation:
    """Return how `plan` was found from the same arguments, and what there was beside it."""

    def other(rule: str) -> Chosen:
        return choose(plan.outputs, layouts, backend_supports, machine, templates, rule, limit, stored)

    chosen = other(fusion)
    prices = chosen.kernels.prices
    beside = ("cost", *RULES) if chosen.kernels.memo.computed.bit_count() <= MANY else ()
    rules = {r: _seconds(other(r).plan, prices) for r in beside if r != fusion}
    costs = tuple(prices.step(s) for s in plan.steps)
    taken = peak_bytes(plan.steps, plan.outputs, machine.threads, stored)
    found = chosen.found
    choices = [1 << len(f.partition.points) for f in found]
    free = choose(plan.outputs, layouts, backend_supports, machine, templates, fusion).plan if limit else plan
    free_peak = peak_bytes(free.steps, free.outputs, machine.threads, stored)
    limited = free_peak > taken
    return PlanExplanation(
        costs, tuple(_shares(s, prices) for s in plan.steps), rules,
        min(_bound(chosen, costs, plan), sum(c.total for c in costs)),
        partitions=len(found),
        points=sum(len(f.partition.points) for f in found),
        costed=sum(f.costed for f in found),
        by_cost=sum(f.cut_by_cost for f in found),
        by_structure=prod(choices) - max(sum(n for n in choices if n > 1), 1),
        kernels=chosen.kernels.priced,
        spent=any(f.spent for f in found),
        runner_up=None if limited else _runner_up(chosen),
        peak=taken,
        free=(_seconds(free, prices), free_peak) if limited else None,
        open={} if limited else _turned(chosen))


def plan_with_seconds(
    roots: Sequence[Hop], layouts: Mapping[int, Layout], backend_supports: Callable[[Hop], str | None],
    machine: Machine, templates: Collection[str], fusion: str, limit: int = 0,
    stored: Collection[Hop] = (), recall: PartitionCache | None = None,
) -> tuple[Plan, float]:
    """Return the plan of `roots`, see `plan`, and the seconds that it is predicted to take."""
    chosen = choose(roots, layouts, backend_supports, machine, templates, fusion, limit, stored, recall)
    return chosen.plan, _seconds(chosen.plan, chosen.kernels.prices)


def _shares(step: Step, prices: CostModel) -> tuple[float, ...]:
    """Return what part of the time of a step each of its operators takes, by what is predicted of each."""
    if isinstance(step, Call):
        return (1.0,)
    body = step.body
    taken = {h: prices.work(h) for h in body}
    for hop in step.inputs:
        reader = next((h for h in body if hop in h.inputs), body[0])
        taken[reader] += prices.reads(hop)
    for hop in taken.keys() & set(step.outputs):
        taken[hop] += prices.writes(hop)
    whole = sum(taken.values())
    return tuple(taken[h] / whole if whole else 1.0 / len(body) for h in body)


def _seconds(plan: Plan, prices: CostModel) -> float:
    return sum(prices.step(s).total for s in plan.steps)


def _bound(chosen: Chosen, costs: Sequence[Cost], plan: Plan) -> float:
    """What no plan goes below: the bounds of all partitions, and what is not in any."""
    inside = 0
    for f in chosen.found:
        inside |= f.partition.values
    memo = chosen.kernels.memo
    known = {h for h in memo.hops(inside)}
    rest = sum(c.total for c, s in zip(costs, plan.steps, strict=True) if not known.intersection(s.outputs))
    return rest + sum(Search(f.partition, memo, chosen.kernels).least() for f in chosen.found)


def _turned(chosen: Chosen) -> dict[Hop, float]:
    """Return what it costs more to decide otherwise about one value, for every value that is open.

    NaN: finding out would take too long.
    """
    memo, more = chosen.kernels.memo, {}
    for f in chosen.found:
        search = Search(f.partition, memo, chosen.kernels, chosen.kernels.priced + BUDGET)
        for point in f.partition.points:
            found = search.within(f.chosen ^ 1 << point)
            more[next(iter(memo.hops(1 << point)))] = nan if found is None else found[0] - f.seconds
    return more


def _runner_up(chosen: Chosen) -> RunnerUp | None:
    """Return the second-best choice of the partition where it is closest to the best."""
    rivals = [(f.second[0] - f.seconds, i) for i, f in enumerate(chosen.found) if f.second is not None]
    if not rivals:
        return None
    more, at = min(rivals)
    found, memo = chosen.found[at], chosen.kernels.memo
    assert found.second is not None
    kept = found.second[1]
    rival = Search(found.partition, memo, chosen.kernels, chosen.kernels.priced + BUDGET).within(kept)
    theirs, ours = [
        [sum(c.cost[k] for c in some if c.cost) for k in range(4)]
        for some in (rival[1] if rival else found.kernels, found.kernels)]
    read, write, compute, launch = (t - o for t, o in zip(theirs, ours, strict=True))
    return RunnerUp(tuple(memo.hops(kept & ~found.chosen)), tuple(memo.hops(found.chosen & ~kept)),
                    Cost(read, write, compute, launch, more))
