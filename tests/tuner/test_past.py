"""What other kernels have taught: kept as numbers, for traits as they are, and own records come on top."""

from __future__ import annotations

import numpy as np

import jitla
from jitla.fusion import Knob, Space
from jitla.gate import GATE
from jitla.tuner import Record, Records, Smooth, Trees, accuracy, built_in, features, remembered
from jitla.tuning import Session

X = np.random.default_rng(1).random((60, 3))
COSTS = 1.0 + (X[:, 0] - 0.3) ** 2 + 0.2 * X[:, 1]


def unit(x):
    return x / np.sqrt((x * x).sum(axis=1, keepdims=True))


def root(x):
    return np.sqrt(x * x + 1.0)


def test_trees_are_read_as_they_were_written():
    made = Trees(rounds=20).fit(X, COSTS, np.zeros(60, np.int64), np.zeros(60))
    assert np.allclose(Trees.parse(made.written()).score(X), made.score(X), rtol=1e-2, atol=1e-2)
    assert made.width == 3


def test_what_comes_with_the_library_fits_kernels_as_they_are():
    session = Session()
    GATE.renew(session)
    try:
        jitla.jit(unit, compile="sync")(np.ones((4000, 16)))
        jitla.jit(root, compile="sync")(np.ones((400, 16)))
    finally:
        GATE.renew()
    spaces = [t.choice.space() for t in session.tasks.values()]
    assert len(spaces) == 2
    for space in spaces:
        assert remembered(Records(), "here", space) is built_in()


def test_own_records_add_to_it_and_others_are_left_out():
    space = Space((Knob("a", tuple(range(1, 17))),), (0,), traits=lambda v: (float(v["a"]), 0.0))
    assert remembered(Records(), "here", space) is None
    known = features(space, space.points, structural=True).tolist()
    made = [Record("k", (9,), "here", {"a": 1}, 1.0 + abs(i - 8), 1.0, facts=tuple(f))
            for i, f in enumerate(known)]
    records = Records("".join(r.line() for r in made))
    past = remembered(records, "here", space)
    assert accuracy(past.score(space, space.points), np.array([r.seconds for r in made])) > 0.9
    assert remembered(records, "there", space) is None


def test_a_smooth_model_corrects_scores_that_it_is_given():
    start = -3.0 * X[:, 1]
    own = Smooth().fit(X[:40], COSTS[:40], np.zeros(40, np.int64), start[:40])
    made = accuracy(start[40:] + own.score(X[40:]), COSTS[40:])
    assert made > 0.9 > accuracy(start[40:], COSTS[40:])
