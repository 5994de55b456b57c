"""A Gaussian process on few samples: points that lie near each other cost about the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
SCALES = (0.5, 1.0, 2.0, 4.0)  # how fast likeness falls with distance
NOISE = (0.02, 0.1, 0.4)  # of measurements, as a share of what differs
RATES, NOISES = np.repeat(SCALES, len(NOISE)), np.tile(NOISE, len(SCALES))
SPREAD, SURE = 0.2, 2.0  # how far speeds are off, before any is known; samples that this counts as
SLOPE = 0.3  # how far the slope of speeds along what is expected may be off
FREE = 100.0  # how far all of them together


class Smooth:
    """Speeds are what is expected, by a slope that may be another one; what is left over is smooth."""

    def __init__(self) -> None:
        self.likely = 0.0  # the logarithm of how likely the samples are

    def fit(self, x: Matrix, speeds: Matrix, expected: Matrix) -> Smooth:
        """Learn how far speeds are from those expected."""
        apart, slope, count = distances(x, x), expected * (SLOPE / SPREAD), len(x)
        like = np.exp(-RATES[:, None, None] * apart) + NOISES[:, None, None] * np.eye(count)
        lower = np.linalg.cholesky(like + FREE + np.outer(slope, slope))
        left = np.broadcast_to((speeds - expected)[:, None], (len(RATES), count, 1))
        whole = np.linalg.solve(lower, left)[..., 0]
        spread = ((whole ** 2).sum(1) + 2 * SURE * SPREAD ** 2) / (count + 2 * SURE)
        likely = -0.5 * (count + 2 * SURE) * np.log(spread) \
            - np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(1)
        best = int(likely.argmax())
        self.likely, self._spread, self._rate = float(likely[best]), float(spread[best]), RATES[best]
        self._lower, self._whole, self._x, self._slope = lower[best], whole[best], x, slope
        return self

    def told(self, x: Matrix, expected: Matrix) -> tuple[Matrix, Matrix]:
        """Return the speeds of other points, and the squares of how far these are unsure."""
        slope = expected * (SLOPE / SPREAD)
        like = np.exp(-self._rate * distances(self._x, x)) + FREE + np.outer(self._slope, slope)
        known = np.linalg.solve(self._lower, like)
        left = np.maximum(1.0 + FREE + slope ** 2 - (known ** 2).sum(0), 1e-9)
        return expected + self._whole @ known, left * self._spread


def distances(one: Matrix, other: Matrix) -> Matrix:
    """Return how far the rows of two matrices are from each other."""
    squares = (one * one).sum(1)[:, None] + (other * other).sum(1) - 2.0 * one @ other.T
    found: Matrix = np.sqrt(np.maximum(squares, 0.0) + 1e-12)
    return found
