"""Searches over schedule spaces; models learned from records of other kernels."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.dispatch.tuning import TuningSession
from jitla.engine import ENGINE
from jitla.fusion import Knob, Space
from jitla.recompile.schedule_choices import RowPass, row_space
from jitla.tuner.model import (
    GaussianProcess,
    History,
    Model,
    Trees,
    accuracy,
    built_in_history,
    features,
    history_for,
)
from jitla.tuner.records import Record, Records
from jitla.tuner.search import (
    Settings,
    annealing_search,
    genetic_search,
    propose,
    random_search,
    search,
)
from tests.tuner.spaces import bowl, cost

# Searches find what is cheap, keep what they were told to, and give the same for the same seed.


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


# What other kernels have taught: kept as numbers, for traits as they are, and own records come on top.

X = np.random.default_rng(1).random((60, 3))
COSTS = 1.0 + (X[:, 0] - 0.3) ** 2 + 0.2 * X[:, 1]


def unit(x):
    return x / np.sqrt((x * x).sum(axis=1, keepdims=True))


def root(x):
    return np.sqrt(x * x + 1.0)


def test_trees_are_read_as_they_were_written():
    made = Trees(rounds=20).fit(X, COSTS, np.zeros(60, np.int64), np.zeros(60))
    assert np.allclose(Trees.parse(made.to_json()).score(X), made.score(X), rtol=1e-2, atol=1e-2)
    assert made.width == 3


def test_what_comes_with_the_library_fits_kernels_as_they_are():
    session = TuningSession()
    ENGINE.use_tuning_session(session)
    try:
        jitla.jit(unit, compile="sync")(np.ones((4000, 16)))
        jitla.jit(root, compile="sync")(np.ones((400, 16)))
    finally:
        ENGINE.use_tuning_session()
    spaces = [t.choice.space() for t in session.tasks.values()]
    assert len(spaces) == 2
    for space in spaces:
        assert history_for(Records(), "here", space) is built_in_history()


def test_own_records_add_to_it_and_others_are_left_out():
    space = Space((Knob("a", tuple(range(1, 17))),), (0,), traits=lambda v: (float(v["a"]), 0.0))
    assert history_for(Records(), "here", space) is None
    known = features(space, space.points, structural=True).tolist()
    made = [Record("k", (9,), "here", {"a": 1}, 1.0 + abs(i - 8), 1.0, facts=tuple(f))
            for i, f in enumerate(known)]
    records = Records("".join(r.line() for r in made))
    past = history_for(records, "here", space)
    assert accuracy(past.score(space, space.points), np.array([r.seconds for r in made])) > 0.9
    assert history_for(records, "there", space) is None


def test_a_smooth_model_corrects_what_is_expected():
    expected, speeds = -0.3 * X[:, 1], -np.log(COSTS)
    own = GaussianProcess().fit(X[:40], speeds[:40], expected[:40])
    made, uncertainty = own.predict(X[40:], expected[40:])
    assert accuracy(made, COSTS[40:]) > 0.9 > accuracy(expected[40:], COSTS[40:])
    assert (own.predict(X[:40], expected[:40])[1].mean() < uncertainty.mean()), "what was measured is surer"


def test_beliefs_count_as_measurements_bear_them_out():
    space = Space((Knob("a", tuple(range(1, 17))), Knob("b", tuple(range(1, 9)))), (0, 0),
                  estimate=lambda v: 1.0 + abs(v["a"] - 5), traits=lambda v: (float(v["a"]), float(v["b"])))
    wrong = [1.0 / space.estimate(space.values(p)) for p in space.points]
    model = Model(space, History.fit([(features(space, space.points, structural=True), wrong)]))
    assert model.shares.tolist() == [0.5, 0.5]
    points = [(a, b) for a in (0, 3, 7, 12, 15) for b in (0, 4, 7)]
    model.fit(points, [space.estimate(space.values(p)) for p in points])
    assert model.shares[0] > 0.9
    model.fit(points, [1.0 / space.estimate(space.values(p)) for p in points])
    assert model.shares[1] > 0.9


def test_rows_tell_how_many_turns_their_loops_have():
    space = row_space(RowPass(100, 960, 3, 2, 1.0, cells=True, length=60, size=8, sums=1), 16, 4, True, True)
    plain = space.values(space.default)
    one, four = (np.array(space.traits({**plain, "unroll": n})) for n in (1, 4))
    turns = int(np.flatnonzero(np.isclose(one, np.log2(60 / 4)))[-1])
    assert np.allclose(one[turns:turns + 2], [np.log2(15.0), 0.0])
    assert np.allclose(four[turns:turns + 2], np.log2([3.75, 4 / 3.75]))
    half = np.array(space.traits({**plain, "unroll": 4, "vector": "half"}))
    assert np.allclose(half[turns:turns + 2], np.log2([7.5, 8 / 7.5]))


def test_windows_tell_which_rows_are_computed_again_and_which_move():
    cut = RowPass(100, 960, 3, 2, 1.0, cells=True, length=60)
    plain, ahead = (row_space(c, 16, 4, True, True) for c in (cut, cut._replace(ahead=4)))
    values = plain.values(plain.default)
    less, more = (np.array(s.traits(values)) for s in (plain, ahead))
    at = np.flatnonzero(less != more)
    assert np.allclose(less[at], 0) and np.allclose(more[at], np.log2([1 + 4 / 16, 1 + 4 * 4 / 100]))

    def costs(space, units):
        return space.estimate({**values, "units": units}) / plain.estimate({**values, "units": units})

    assert 1.0 < costs(ahead, 2) < costs(ahead, 4)


# LightGBM in the place of the built-in trees: as good on a small space, and asked for by name.


@pytest.mark.parametrize("loss", ["rank", "square"])
def test_lightgbm_learns_what_the_built_in_trees_learn(loss):
    pytest.importorskip("lightgbm")
    from jitla.tuner.lightgbm_model import LightGbmTrees
    rng = np.random.default_rng(1)
    x = rng.random((200, 3))
    costs, groups = 1 + (x[:, 0] - 0.3) ** 2 + 0.2 * x[:, 1], np.zeros(200, np.int64)
    start = np.zeros(200)
    for learner in (LightGbmTrees, Trees):
        scores = learner(loss=loss).fit(x, costs, groups, start).score(x)
        assert np.corrcoef(scores, -costs)[0, 1] > 0.8
    space = bowl()
    found = search(space, cost(space), Settings(trials=24, batch=4, loss=loss, learner=LightGbmTrees), seed=3)
    assert found.best[1] <= 1.3


def test_lightgbm_says_nothing_of_samples_that_no_tree_can_part():
    pytest.importorskip("lightgbm")
    from jitla.tuner.lightgbm_model import LightGbmTrees
    one = np.zeros(4, np.int64)
    for x in (np.ones((4, 3)), np.arange(6.0).reshape(2, 3), np.ones((1, 3))):
        scores = LightGbmTrees().fit(x, np.arange(1.0, len(x) + 1), one[:len(x)], np.zeros(len(x))).score(x)
        assert (scores == 0.0).all()


def test_learners_that_are_not_there_are_refused():
    with pytest.raises(jitla.ConfigError, match="learner='forest'"):
        jitla.tune(lambda x: x + 1.0, np.ones(9), learner="forest")
