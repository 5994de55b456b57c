"""Spaces: legal points, neighbours, pins, and what only relaxed numerics may choose."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.errors import ConfigError
from tests.tuner.spaces import bowl


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


def test_pins():
    space = bowl(5, legal=lambda v: v["units"] <= v["height"])
    pinned = space.pinned({"units": 4})
    assert {p[0] for p in pinned.points} == {2, 3, 4} and pinned.values(pinned.default)["units"] == 4
    assert all(v["units"] == 1 for v in map(space.exact().values, space.exact().points))
    for wrong in ({"tile": 3}, {"units": 3}):
        with pytest.raises(ConfigError):
            space.pinned(wrong)
