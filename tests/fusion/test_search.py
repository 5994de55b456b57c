"""The searches for plans and placements against exhaustive enumeration; spaces of schedules."""

from __future__ import annotations

import random
from itertools import product
from math import inf, isclose

import numpy as np
import pytest

from jitla.errors import ConfigError
from jitla.fusion import plan
from jitla.fusion.enumeration import BUDGET, STAGE_BUDGET, Search
from jitla.hops import Hop, Kind
from jitla.recompile.offload import HOST, PlacementTask, assign_places, assignment_seconds
from tests.fusion import every, exhaustive
from tests.fusion.dags import joined_dag, random_dag
from tests.tuner.spaces import bowl

# The search finds what trying everything finds, within its budget if it is given one.


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


# The search for places finds what trying every assignment finds.


def chain(rng: np.random.Generator, count: int, places: int) -> tuple[list[PlacementTask], set[int]]:
    """Return parts that read up to three of what comes before, some of which a place cannot do."""
    known = list(range(int(rng.integers(1, 4))))
    parts = []
    for made in range(len(known), len(known) + count):
        seconds = rng.uniform(0, 10, places)
        seconds[1:][rng.uniform(size=places - 1) < 0.2] = inf
        reads = rng.choice(known, size=min(len(known), int(rng.integers(1, 4))), replace=False)
        parts.append(PlacementTask(tuple(seconds.tolist()), tuple(reads.tolist()), made))
        known.append(made)
    wanted = {p.result for p in parts if rng.uniform() < 0.3} | {parts[-1].result}
    return parts, wanted


@pytest.mark.parametrize("seed", range(60))
def test_no_assignment_takes_less(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9 if seed else 11))  # 3 ** 10 of them once
    parts, wanted = chain(rng, count, 3)
    far = rng.uniform(0, 6, (40, 3))

    def move(value, source, target):
        return sum(far[value, p] for p in (source, target) if p != HOST)

    best, places = assign_places(parts, wanted, move)
    every = min(assignment_seconds(parts, a, wanted, move) for a in product(range(3), repeat=count))
    assert isclose(best, every)
    assert isclose(best, assignment_seconds(parts, places, wanted, move))


def test_a_value_that_stays_is_not_moved():
    parts = [PlacementTask((5.0, 1.0), (0,), 1), PlacementTask((5.0, 1.0), (1,), 2)]
    moved = []

    def move(value, source, target):
        moved.append((value, source, target))
        return 3.0

    assert assign_places(parts, {2}, move) == (8.0, (1, 1))
    assert assignment_seconds(parts, (1, 0), {2}, lambda *a: 3.0) == 12.0


def test_what_reads_a_value_twice_brings_it_once():
    parts = [PlacementTask((9.0, 1.0), (0,), 1), PlacementTask((9.0, 1.0), (0, 1), 2)]
    assert assignment_seconds(parts, (1, 1), {2}, lambda *a: 1.0) == 4.0


def test_transfers_keep_parts_at_the_host():
    parts = [PlacementTask((2.0, 1.0), (0,), 1)]
    assert assign_places(parts, {1}, lambda *a: 1.0) == (2.0, (HOST,))


# Spaces: legal points, neighbours, pins, and what only relaxed numerics may choose.


def test_points_neighbours_and_random_ones_are_legal():
    space = bowl(5, legal=lambda v: v["units"] <= v["height"])
    assert len(space.points) == 2 * 15
    rng = np.random.default_rng(0)
    assert all(space.random(rng) in space.points for _ in range(20))
    near = list(space.neighbours((2, 2, 0)))
    assert (3, 2, 0) in near and (2, 1, 0) in near and (1, 2, 0) not in near and (2, 2, 1) in near


def test_values_name_points_and_the_nearest_is_found():
    space = bowl(5)
    assert space.point(space.values((3, 1, 1))) == (3, 1, 1)
    assert space.point({"height": 3, "units": 1, "stay": "here"}) is None
    assert space.point({"height": 2}) is None
    assert space.nearest({"height": 9, "stay": "there"}) == (3, 0, 1)


def test_pinned_spaces_have_only_matching_points():
    space = bowl(5, legal=lambda v: v["units"] <= v["height"])
    pinned = space.pinned({"units": 4})
    assert {p[0] for p in pinned.points} == {2, 3, 4} and pinned.values(pinned.default)["units"] == 4
    assert all(v["units"] == 1 for v in map(space.exact().values, space.exact().points))
    for wrong in ({"tile": 3}, {"units": 3}):
        with pytest.raises(ConfigError):
            space.pinned(wrong)
