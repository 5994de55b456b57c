"""LightGBM in the place of the built-in trees: as good on a small space, and asked for by name."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.tuner.model import Trees
from jitla.tuner.search import (
    Settings,
    search,
)
from tests.tuner.spaces import bowl, cost


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
