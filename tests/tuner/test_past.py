"""What other kernels have taught: kept as numbers, for traits as they are, and own records come on top."""

from __future__ import annotations

import numpy as np

import jitla
from jitla.dispatch.tuning import TuningSession
from jitla.engine import ENGINE
from jitla.fusion import Knob, Space
from jitla.recompile.schedule_choices import (
    RowPass,
    row_space,
)
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
