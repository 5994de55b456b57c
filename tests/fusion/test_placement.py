"""The search for places finds what trying every assignment finds."""

from __future__ import annotations

from itertools import product
from math import inf, isclose

import numpy as np
import pytest

from jitla.fusion import HOST, PlacementTask, assign_places, assignment_seconds


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
