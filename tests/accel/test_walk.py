"""Loops folded into an instruction walk as they did, and do not meet too soon."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from jitla.accel.layer import (
    MIN_ACCUMULATOR_DISTANCE,
    FoldedLoops,
    StridedLoop,
    accumulator_distance,
    fold_loops,
    merge_loops,
)
from jitla.errors import DeviceError


def visited(loops) -> list[tuple[int, int, int]]:
    found = []
    for at in product(*(range(x.extent) for x in loops)):
        found.append(tuple(sum(i * x[k] for i, x in zip(at, loops, strict=True)) for k in (1, 2, 3)))
    return found


def steps(folded: FoldedLoops) -> list[tuple[int, int, int]]:
    return [tuple(a * folded.outer[k] + b * folded.inner[k] + u[k - 1] for k in (1, 2, 3))
            for a in range(folded.outer.extent) for b in range(folded.inner.extent) for u in folded.uops]


@pytest.mark.parametrize("seed", range(20))
def test_a_fold_visits_what_its_loops_visit(seed):
    rng = np.random.default_rng(seed)
    across, size = [], 1
    for n in rng.integers(1, 6, 3)[::-1]:
        across.insert(0, StridedLoop(int(n), size, int(rng.integers(0, 9)), int(rng.integers(0, 3))))
        size *= int(n)
    along = [StridedLoop(int(n), 0, int(rng.integers(0, 9)), int(rng.integers(0, 9)))
             for n in rng.integers(1, 4, 2)]
    if size < MIN_ACCUMULATOR_DISTANCE:
        return
    made = fold_loops(tuple(across), tuple(along))
    assert sorted(steps(made)) == sorted(visited([*across, *along]))
    last: dict[int, int] = {}
    for at, (dst, _, _) in enumerate(steps(made)):
        assert at - last.get(dst, -MIN_ACCUMULATOR_DISTANCE) >= MIN_ACCUMULATOR_DISTANCE
        last[dst] = at


def test_fewest_micro_ops_are_spelled_out():
    made = fold_loops((StridedLoop(4, 56), StridedLoop(7, 8, 9), StridedLoop(8, 1, 1)),
                      (StridedLoop(3, 0, 9, 1), StridedLoop(3, 0, 1, 3)))
    assert len(made.uops) == 36  # the two longest loops are the instruction's
    assert {made.outer.extent, made.inner.extent} == {7, 8}


def test_neighbours_become_one_loop():
    assert merge_loops([StridedLoop(4, 8, 8), StridedLoop(8, 1, 1), StridedLoop(1, 5)]) \
        == [StridedLoop(32, 1, 1)]
    assert merge_loops([StridedLoop(4, 8, 9), StridedLoop(8, 1, 1)]) \
        == [StridedLoop(4, 8, 9), StridedLoop(8, 1, 1)]


def test_accumulators_that_meet_too_soon_are_refused():
    with pytest.raises(DeviceError, match="written again too soon"):
        fold_loops((StridedLoop(2, 1),), (StridedLoop(9, 0, 1),))
    assert accumulator_distance((StridedLoop(9, 0, 1), StridedLoop(2, 1))) == 2
