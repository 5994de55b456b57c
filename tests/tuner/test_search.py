"""Searches find what is cheap, keep what they were told to, and give the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.fusion import Knob, Space
from jitla.tuner.model import History, accuracy, features
from jitla.tuner.search import (
    Settings,
    annealing_search,
    genetic_search,
    propose,
    random_search,
    search,
)
from tests.tuner.spaces import bowl, cost


@pytest.mark.parametrize("strategy", ["all", "annealing", "beam"])
def test_search_comes_near_the_best_with_few_trials(strategy):
    space = bowl()
    found = search(space, cost(space), Settings(trials=32, strategy=strategy), seed=3)
    assert len(found.points) == len(set(found.points)) <= 32
    assert found.points[0] == space.default
    assert found.best[1] <= 1.3


def test_the_same_seed_measures_the_same_points():
    space = bowl()
    one, two = (search(space, cost(space), Settings(trials=24), seed=5).points for _ in range(2))
    assert one == two != search(space, cost(space), Settings(trials=24), seed=6).points


def test_a_good_estimate_is_tried_at_once_and_a_bad_one_overcome():
    good = bowl(estimate=lambda v: 1 + 0.1 * (np.log2(v["height"]) - 6) ** 2)
    first = search(good, cost(good), Settings(trials=8, use_default=False)).points
    assert any(p[0] == 6 for p in first)
    bad = bowl(estimate=lambda v: 1 / (1 + 0.1 * (np.log2(v["height"]) - 6) ** 2))
    assert search(bad, cost(bad), Settings(trials=48)).best[1] <= 1.3


def test_what_cannot_be_run_is_learnt_from_and_never_best():
    space = bowl()
    real = cost(space)
    found = search(space, lambda p: None if p[2] else real(p), Settings(trials=32))
    assert None in found.costs and found.best[0][2] == 0


def test_an_interrupt_keeps_what_was_found():
    space = bowl()
    real = cost(space)
    calls = []

    def measure(point):
        calls.append(point)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(point)

    found = search(space, measure, Settings(trials=32))
    assert found.interrupted and len(found.points) == 4 and found.best is not None


def test_warm_points_come_after_the_default_and_the_search_ends_when_told():
    space = bowl()
    found = search(space, cost(space), Settings(trials=32), warm=[(6, 3, 1)])
    assert found.points[:2] == [(0, 0, 0), (6, 3, 1)]
    left = iter([True, True, False])
    assert len(search(space, cost(space), may_continue=lambda: next(left)).points) == 2


def test_a_small_space_is_measured_whole():
    space = Space((Knob("stores", ("near", "around")),), (0,))
    assert sorted(search(space, lambda p: 1.0).points) == [(0,), (1,)]


@pytest.mark.parametrize("method", [random_search, genetic_search, annealing_search])
def test_baselines_measure_no_point_twice_and_keep_to_the_budget(method):
    space = bowl(6, legal=lambda v: v["units"] <= v["height"])
    found = method(space, cost(space), 20, seed=2)
    assert len(set(found.points)) == len(found.points) == 20
    assert all(space.is_legal(p) for p in found.points)
    small = bowl(2)
    assert len(small.points) == 8
    assert len(method(small, cost(small), 20, seed=2).points) <= 8, "it ends where nothing is left"


def test_history_of_another_space_helps_and_a_misleading_one_is_dropped():
    def kind(turn):
        space = Space((Knob("a", tuple(range(1, 17))), Knob("b", tuple(range(1, 17)))), (0, 0),
                      traits=lambda v: (float(v["a"]), float(v["b"])))
        return space, lambda p: 1.0 + turn * (p[0] - 8) * 0.04 + turn * (p[1] - 8) * 0.02

    space, real = kind(1)
    past = History.fit([(features(space, space.points, structural=True), [real(p) for p in space.points])])
    first = search(space, real, Settings(trials=8, use_default=False), history=past)
    assert accuracy(past.score(space, space.points), np.array([real(p) for p in space.points])) > 0.9
    assert first.best[1] < 0.8
    other, opposite = kind(-1)
    found = search(other, opposite, Settings(trials=40), history=past)
    assert found.best[1] < min(opposite(p) for p in other.points) + 0.2


def test_candidates_are_legal_and_unseen():
    space = bowl(6, legal=lambda v: v["units"] <= v["height"])
    seen = {p for p in space.points if p[2]}
    for strategy in ("all", "annealing", "beam"):
        found = [p for _, p in propose(space, lambda ps: np.array([-float(sum(p)) for p in ps]), 9, seen,
                                          np.random.default_rng(1), strategy)]
        assert found and all(space.is_legal(p) and p not in seen for p in found)
