"""The search finds what trying everything finds, within its budget if it is given one."""

from __future__ import annotations

import random

import pytest

from jitla.fusion import plan
from jitla.fusion.enumeration import (
    BUDGET,
    STAGE_BUDGET,
    Search,
)
from jitla.hops import Hop, Kind
from tests.fusion import every, exhaustive
from tests.fusion.dags import joined_dag, random_dag


@pytest.mark.parametrize("first", range(0, 5000, 1000))
def test_equal_to_trying_every_choice(first):
    tally = exhaustive.compare(20, first, exhaustive.small, lambda n: 1 <= n <= 8, widest=10)
    assert tally.gaps == [] and tally.costed < tally.plans
    assert max(tally.points) >= 3


def test_long_dags_grow_until_most_points_are_in_one_partition():
    largest = []
    for seed in range(30):
        parts = exhaustive.prepared(exhaustive.long(seed))[2]
        points = [len(p.points) for p in parts]
        if sum(points) == exhaustive.MANY:
            largest.append(max(points))
    assert len(largest) >= 12 and sum(n >= 8 for n in largest) >= 10 and exhaustive.MANY in largest


@pytest.mark.parametrize("seed", [297, 484])
def test_equal_to_trying_every_choice_where_rows_are_broadcast_and_reduced(seed):
    assert exhaustive.compare(1, seed, exhaustive.small, lambda n: True).gaps == []


@pytest.mark.parametrize("seed", [105, 21_323])
def test_equal_to_trying_every_choice_where_a_wider_kernel_is_no_loop(seed):
    assert exhaustive.compare(1, seed, exhaustive.small, lambda n: True).gaps == []


@pytest.mark.parametrize("first", range(0, 10_000, 1000))
def test_equal_to_the_best_of_all_legal_plans(first):
    done = 0
    for seed in range(first, first + 30):
        found = every.compare(seed, 6)
        if found is not None:
            assert not found.dearer and not found.cheaper, seed
            done += 1
    assert done >= 6


@pytest.mark.parametrize("seed", [202302, 202541])
def test_calls_that_rows_take_in_and_loops_that_wait_for_each_other(seed):
    found = every.compare(seed, 6)
    assert found is not None and not found.dearer


def test_what_a_row_kernel_makes_for_a_loop_is_a_point():
    compared = every.compare(5126, 8)
    assert compared is not None and not compared.dearer


@pytest.mark.parametrize("seed", [200335, 202056])
def test_unrelated_results_where_related_ones_would_wait(seed):
    found = every.compare(seed, 6)
    assert found is not None and found.every <= found.planned < 0.99 * found.related


@pytest.mark.parametrize("make", [random_dag, joined_dag])
def test_a_thousand_operators_are_planned_within_the_budget(make):
    roots, layouts = make(random.Random(1), 1000)
    known: set[Hop] = set()
    for step in plan(roots, layouts, lambda hop: None).steps:
        assert all(h in known or h.op.kind is Kind.LEAF for h in step.inputs)
        assert known.isdisjoint(step.outputs)
        known.update(step.outputs)
    assert known.issuperset(roots)
    memo, kernels, parts = exhaustive.prepared((roots, layouts))
    results = memo.computed.bit_count()
    found = [Search(p, memo, kernels, budget=BUDGET).run() for p in parts]
    assert any(f.budget_exhausted for f in found)
    assert kernels.evaluated < BUDGET + 12 * results  # that much one arrangement of everything takes
    assert all(f.second_best is None or f.second_best[0] >= f.seconds for f in found)


def test_a_larger_budget_finds_nothing_dearer():
    for seed in range(6):
        seconds = []
        for budget in (STAGE_BUDGET, BUDGET, 4 * BUDGET):
            memo, kernels, parts = exhaustive.prepared(random_dag(random.Random(seed), 14))
            found = [Search(p, memo, kernels, budget=budget).run() for p in parts]
            seconds.append(sum(f.seconds for f in found))
        assert seconds[2] <= seconds[0] * (1 + 1e-9), seed
