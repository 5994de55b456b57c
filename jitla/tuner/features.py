"""Points of a space as numbers that a model learns from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jitla.fusion import Point, Space, Value

Matrix = NDArray[np.float64]


def features(space: Space, points: Sequence[Point], structural: bool = False) -> Matrix:
    """Return a row of numbers for every point.

    `structural` ones mean the same in every space of a kind: traits and the estimate. Else the choices
    themselves come with them, which only this space has.
    """
    rows = []
    for point in points:
        values = space.values(point)
        row = [*space.traits(values), _log(prior(space, [point])[0])]
        rows.append(row if structural else [*row, *map(_number, values.values(), point)])
    width = len(rows[0]) if rows else 0
    return np.array(rows, float).reshape(len(rows), width)


def facts(space: Space, points: Sequence[Point]) -> list[tuple[float, ...]]:
    """Return the structural features of points, as records keep them."""
    return [tuple(row) for row in features(space, points, structural=True).tolist()]


def prior(space: Space, points: Sequence[Point]) -> Matrix:
    """Return the estimated costs of points; all the same where nothing estimates."""
    if space.estimate is None:
        return np.ones(len(points))
    return np.array([space.estimate(space.values(p)) for p in points], float)


def _number(value: Value, position: int) -> float:
    return float(position) if isinstance(value, str) else float(np.log2(value + 1.0))


def _log(cost: float) -> float:
    return float(np.log2(max(cost, 1e-12)))
