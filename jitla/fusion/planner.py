"""The plan of a block: explore, divide, search, write down.

Knows: the stages of planning. Must not know: their insides, backends.
Receives roots, leaf layouts and the backend's verdicts; returns a `Plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count

from jitla.fusion.build import calls_for, in_turn, step_of, uncovered
from jitla.fusion.candidates import Candidate, Candidates
from jitla.fusion.heuristics import kept
from jitla.fusion.kernel import Plan, Product, Step
from jitla.fusion.layout import Layout
from jitla.fusion.memo import TEMPLATES, Memo, members
from jitla.fusion.points import keep_apart, partitions
from jitla.fusion.price import Prices
from jitla.fusion.recall import Recall, search_all
from jitla.fusion.results import all_layouts
from jitla.fusion.search import BUDGET, INSIDE, Found
from jitla.fusion.templates import CELL, MAGG, Facts
from jitla.hops import REFERENCE, Hop, Machine

MAX_TURNS = 4  # searches in which row kernels are chosen that turn out not to be loops over blocks of rows


def plan(
    roots: Sequence[Hop],
    layouts: Mapping[int, Layout],
    backend_supports: Callable[[Hop], str | None],
    machine: Machine = REFERENCE,
    templates: Collection[str] = ("Cell", "MAgg", "Row"),
    fusion: str = "cost",
    recall: Recall | None = None,
) -> Plan:
    """Choose which hops share a loop; `layouts` are those of the array leaves, by slot.

    `fusion` is "cost" for the cheapest plan, or the name of a rule of thumb. `recall` knows plans of parts
    of earlier DAGs, planned for the same machine, and takes in those of this one.
    """
    roots = tuple(roots)
    facts = Facts(backend_supports, all_layouts(roots, layouts))
    prices = Prices(machine, facts.layouts)
    memo = Memo(roots, facts, templates=[t for t in TEMPLATES if t.name in templates])
    steps, _ = _plan(memo, prices, BUDGET, fusion=fusion, recall=recall)
    return Plan(tuple(in_turn(steps, roots)), roots)


def _plan(
    memo: Memo, prices: Prices, budget: float, near: bool = False, fusion: str = "cost",
    recall: Recall | None = None,
) -> tuple[list[Step], list[Found]]:
    """Return steps, in no particular order, for all values of `memo` that are not made otherwise."""
    kernels = Candidates(memo, prices, near=near)

    def stages(roots: Sequence[Hop], given: frozenset[Hop], made: Mapping[Hop, Product]) -> list[Step]:
        inner = Memo(roots, memo.facts, given, made, (CELL, MAGG))
        return _plan(inner, prices, INSIDE, near=True, recall=recall)[0]

    for turn in count():
        if turn == MAX_TURNS:
            kernels = Candidates(memo, prices, rows=False, near=near)
        found = []
        if fusion == "cost":
            found = search_all(partitions(memo, kernels), memo, kernels, budget, recall)
        every = [c for f in found for c in f.kernels] if fusion == "cost" else by_rule(fusion, kernels)
        made = [step_of(candidate, kernels, stages) for candidate in every]
        if None not in made:
            break
        recall = None  # what it knows has just been chosen
        kernels.forbid(c for c, step in zip(every, made, strict=True) if step is None)
    steps = [step for step in made if step is not None]
    return [*steps, *calls_for(memo, uncovered(memo, every))], found


def by_rule(rule: str, kernels: Candidates) -> list[Candidate]:
    """Return the kernels of a rule of thumb: each has one result."""
    memo = kernels.memo
    points = kept(rule, memo)
    keep_apart(memo, kernels, points)
    memory = kernels.in_memory(points)
    found = []
    for i in members(memo.computed & memory & ~memo.views):
        if not memo.is_call(i):
            body, _ = kernels.grow(1 << i, memory)
            found.append(kernels.price(1 << i, body, memory))
    return found
