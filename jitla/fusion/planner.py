"""The plan of a block: explore, divide, search, write down.

Knows: the stages of planning. Must not know: their insides, backends.
Receives roots, leaf layouts and the backend's verdicts; returns a `Plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count

from jitla.classes import dataclass
from jitla.fusion.build import calls_for, in_turn, step_of, uncovered
from jitla.fusion.candidates import Candidate, Candidates
from jitla.fusion.heuristics import RULES, kept
from jitla.fusion.kernel import Plan, Product, Step
from jitla.fusion.layout import Layout
from jitla.fusion.limits import Limit, within
from jitla.fusion.memo import TEMPLATES, Memo, members
from jitla.fusion.points import keep_apart, partitions
from jitla.fusion.price import Prices
from jitla.fusion.recall import Recall, search_all
from jitla.fusion.results import all_layouts
from jitla.fusion.rows import ROW
from jitla.fusion.search import BUDGET, INSIDE, Found
from jitla.fusion.templates import CELL, MAGG, Facts
from jitla.fusion.windows import windowed
from jitla.hops import REFERENCE, Hop, Machine

MAX_TURNS = 4  # searches in which row kernels are chosen that turn out not to be loops over blocks of rows


@dataclass(frozen=True, slots=True)
class Chosen:
    """A plan, how its partitions were searched, and all kernels that were considered."""

    plan: Plan
    found: list[Found]
    kernels: Candidates


def plan(
    roots: Sequence[Hop],
    layouts: Mapping[int, Layout],
    backend_supports: Callable[[Hop], str | None],
    machine: Machine = REFERENCE,
    templates: Collection[str] = ("Cell", "MAgg", "Row"),
    fusion: str = "cost",
    limit: int = 0,
    stored: Collection[Hop] = (),
    recall: Recall | None = None,
) -> Plan:
    """Choose which hops share a loop; `layouts` are those of the array leaves, by slot.

    `fusion` is "cost" for the cheapest plan, or the name of a rule of thumb. With `limit` the plan takes
    at most so many bytes, if there is one; the roots `stored` go to memory that exists. `recall` knows
    plans of parts of earlier DAGs, planned for the same machine, and takes in those of this one.
    """
    return choose(roots, layouts, backend_supports, machine, templates, fusion, limit, stored, recall).plan


def choose(
    roots: Sequence[Hop], layouts: Mapping[int, Layout], backend_supports: Callable[[Hop], str | None],
    machine: Machine, templates: Collection[str], fusion: str, limit: int = 0,
    stored: Collection[Hop] = (), recall: Recall | None = None,
) -> Chosen:
    """Return what `plan` does, with all that led to it."""
    roots = tuple(roots)
    facts = Facts(backend_supports, all_layouts(roots, layouts))
    prices = Prices(machine, facts.layouts)
    memo = Memo(roots, facts, templates=[t for t in TEMPLATES if t.name in templates])
    most = Limit(limit, roots, machine.threads, frozenset(stored)) if limit and fusion == "cost" else None
    steps, found, kernels = _plan(memo, prices, BUDGET, fusion=fusion, limit=most, recall=recall)
    order = in_turn(steps, roots)
    if fusion == "cost" and ROW.name in templates and not limit:
        order = windowed(order, roots, prices)
    return Chosen(Plan(tuple(order), roots), found, kernels)


def _plan(
    memo: Memo, prices: Prices, budget: float, near: bool = False, fusion: str = "cost",
    limit: Limit | None = None, recall: Recall | None = None,
) -> tuple[list[Step], list[Found], Candidates]:
    """Return steps, in no particular order, for all values of `memo` that are not made otherwise."""
    kernels = Candidates(memo, prices, near=near)

    def stages(roots: Sequence[Hop], given: frozenset[Hop], made: Mapping[Hop, Product]) -> list[Step]:
        inside = Memo(roots, memo.facts, given, made, (CELL, MAGG))
        return _plan(inside, prices, INSIDE, near=True, recall=recall)[0]

    def write(every: Sequence[Candidate]) -> list[Step] | None:
        made = [step_of(candidate, kernels, stages) for candidate in every]
        if None in made:
            kernels.forbid(c for c, step in zip(every, made, strict=True) if step is None)
            return None
        return [*[s for s in made if s is not None], *calls_for(memo, uncovered(memo, every))]

    for turn in count():
        if turn == MAX_TURNS:
            kernels = Candidates(memo, prices, rows=False, near=near)
        found: list[Found] = []
        if fusion == "cost":
            found = search_all(partitions(memo, kernels), memo, kernels, budget, recall)
        every = best_of(found, kernels) if fusion == "cost" else by_rule(fusion, kernels)
        steps = write(every)
        if steps is not None and limit is not None and limit.peak(steps) > limit.nbytes:
            steps = within(limit, [f.partition for f in found], memo, kernels, write)
        if steps is not None:
            return steps, found, kernels
        recall = None  # what it knows has just been chosen
    raise AssertionError("count ends")


def best_of(found: Sequence[Found], kernels: Candidates) -> list[Candidate]:
    """Return the kernels found; where a search ended early, those of a rule of thumb if they cost less."""
    best = [c for f in found for c in f.kernels]
    if any(f.spent for f in found):
        forced = kernels.memo.forced
        for rule in RULES:
            other = by_rule(rule, kernels)
            kernels.memo.forced = forced  # what a rule has to keep in memory is its own
            if sum(c.seconds for c in other) < sum(c.seconds for c in best):
                best = other
    return best


def by_rule(rule: str, kernels: Candidates) -> list[Candidate]:
    """Return the kernels of a rule of thumb: each has one result."""
    memo = kernels.memo
    points = kept(rule, memo)
    keep_apart(memo, kernels, points)
    memory = kernels.in_memory(points)
    found: list[Candidate] = []
    for i in members(memo.computed & memory & ~memo.views):
        if not memo.is_call(i):
            body, _ = kernels.grow(1 << i, memory)
            found.append(kernels.price(1 << i, body, memory))
    return found
