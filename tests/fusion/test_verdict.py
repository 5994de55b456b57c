"""What is said of a plan agrees with the plan, and with what other rules make of the same roots."""

from __future__ import annotations

import random
from math import isnan

import numpy as np
import pytest

from jitla.fusion import CostModel, InterpretedBackend, all_layouts, explain_choice, plan
from jitla.fusion.planner import RULES
from jitla.hops import REFERENCE_MACHINE, Hop, Meta, apply, leaf
from tests.fusion.dags import random_dag

F8 = np.dtype("f8")
SUPPORTS = InterpretedBackend().supports
TEMPLATES = ("Cell", "MAgg", "Row")


def seconds(roots, layouts, rule: str) -> float:
    """What the plan by a rule is predicted to cost."""
    found = plan(roots, layouts, SUPPORTS, fusion=rule)
    cost_model = CostModel(REFERENCE_MACHINE, all_layouts(roots, layouts))
    return sum(cost_model.step(s).total for s in found.steps)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_said_is_what_plans_cost(seed: int):
    roots, layouts = random_dag(random.Random(seed), 4 + seed % 10)
    found = plan(roots, layouts, SUPPORTS)
    said = explain_choice(found, layouts, SUPPORTS, REFERENCE_MACHINE, TEMPLATES, "cost")
    assert said.seconds == pytest.approx(seconds(roots, layouts, "cost"))
    assert set(said.rules) == set(RULES)
    for rule, cost in said.rules.items():
        assert cost == pytest.approx(seconds(roots, layouts, rule))
        assert said.seconds <= cost * (1 + 1e-9)
    assert 0 <= said.bound <= said.seconds * (1 + 1e-9)
    assert said.by_structure >= 0 and len(said.costs) == len(found.steps)
    if said.runner_up is not None:
        assert said.runner_up.more.total >= 0
        assert said.runner_up.keeps or said.runner_up.drops
    assert len(said.flip_costs) == said.points
    assert said.spent or all(more >= -1e-12 for more in said.flip_costs.values() if not isnan(more))


def twice() -> tuple[Hop, ...]:
    """A value that is dear to compute, with two readers in two passes."""
    x = leaf(0, Meta((1_000_000,), F8))
    w = apply("exp", apply("sin", x))
    return (apply("divide", w, apply("sum", w, axis=(0,), keepdims=False)),)


def test_the_second_best_plan_and_why_it_lost():
    found = plan(twice(), {}, SUPPORTS)
    said = explain_choice(found, {}, SUPPORTS, REFERENCE_MACHINE, TEMPLATES, "cost")
    assert said.runner_up is not None
    assert [h.op.name for h in said.runner_up.drops] == ["exp"] and not said.runner_up.keeps
    more = said.runner_up.more
    assert more.compute > 0 > more.write and more.total > 0
    assert (said.partitions, said.points, said.costed, said.spent) == (1, 1, 2, False)


def test_a_limit_and_what_it_costs():
    limit = 12_000_000
    found = plan(twice(), {}, SUPPORTS, limit=limit)
    said = explain_choice(found, {}, SUPPORTS, REFERENCE_MACHINE, TEMPLATES, "cost", limit)
    assert said.peak == 8_000_000 and said.unlimited is not None
    assert said.unlimited == (pytest.approx(seconds(twice(), {}, "cost")), 16_000_000)
    assert said.seconds > said.unlimited[0]


def test_where_nothing_fits_the_least_is_taken():
    least = plan(twice(), {}, SUPPORTS, limit=1)
    assert explain_choice(least, {}, SUPPORTS, REFERENCE_MACHINE, TEMPLATES, "cost", 1).peak == 8_000_000


@pytest.mark.parametrize("seed", range(40))
def test_a_limit_is_kept_by_the_cheapest_plan_that_can(seed: int):
    """Against the plan without a limit: never cheaper, never more memory, the same where it fits."""
    roots, layouts = random_dag(random.Random(seed), 5 + seed % 8)

    def said(limit: int):
        found = plan(roots, layouts, SUPPORTS, limit=limit)
        return explain_choice(found, layouts, SUPPORTS, REFERENCE_MACHINE, TEMPLATES, "cost", limit)

    free = said(0)
    assert said(max(free.peak, 1)).seconds == pytest.approx(free.seconds)
    tight = said(max(free.peak - 1, 1))
    assert tight.peak <= free.peak
    # the search estimates the stages of a row kernel before they are planned
    assert tight.seconds >= free.seconds * 0.95
