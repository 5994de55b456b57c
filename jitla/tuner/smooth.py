"""A Gaussian process on few samples: points that lie near each other cost about the same.

Knows: distances of features. Must not know: spaces, schedules.
Receives a matrix, costs, and scores to begin with; returns scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jitla.tuner.trees import Loss, Positions

Matrix = NDArray[np.float64]
SCALES = (0.5, 1.0, 2.0, 4.0)  # how fast likeness falls with distance
NOISE = (0.05, 0.2, 0.6)  # of measurements, as a share of what differs
WORST = 3.0  # times the usual cost, beyond which it does not matter how bad a point is
LEAST = 0.01  # of the slope of speeds along scores: less says that scores tell nothing


class Smooth:
    """Speeds go along a multiple of the scores that are given; what is left over is smooth."""

    def __init__(self, loss: Loss = "rank") -> None:
        self.loss = loss  # of those it is used in the place of; it has likelihood
        self._low = self._wide = self._apart = self._weights = np.zeros(0)
        self._rate = 1.0

    def fit(self, x: Matrix, costs: Matrix, groups: Positions, offset: Matrix) -> Smooth:
        """Learn how much less samples cost than `offset` lets expect; they are one group."""
        self._low = x.mean(0)
        self._wide = np.where(x.std(0) > 1e-9, x.std(0), np.inf)
        self._apart = self._scaled(x)
        speed = -np.log(np.minimum(costs, WORST * np.median(costs)))
        speed, known = speed - speed.mean(), offset - offset.mean()
        slope = max(float(known @ speed) / (float(known @ known) + 1.0), LEAST)
        left = speed - slope * known
        size = float(left.std()) + 1e-3
        distances = _distances(self._apart, self._apart)
        fits = [_fit(distances, left / size, s, n) for s in SCALES for n in NOISE]
        _, self._rate, weights = max(fits, key=lambda f: f[0])
        self._weights = weights * size / slope
        return self

    def score(self, x: Matrix) -> Matrix:
        """Return what is added to the scores of samples: more for those that cost less."""
        found: Matrix = np.exp(-self._rate * _distances(self._scaled(x), self._apart)) @ self._weights
        return found

    def _scaled(self, x: Matrix) -> Matrix:
        """Return features of equal spread, by which points are near or far."""
        found: Matrix = (x - self._low) / self._wide / max(np.isfinite(self._wide).sum(), 1) ** 0.5
        return found


def _distances(one: Matrix, other: Matrix) -> Matrix:
    squares = (one * one).sum(1)[:, None] + (other * other).sum(1) - 2.0 * one @ other.T
    found: Matrix = np.sqrt(np.maximum(squares, 0.0) + 1e-12)
    return found


def _fit(distances: Matrix, left: Matrix, rate: float, noise: float) -> tuple[float, float, Matrix]:
    """Return how likely what is left is if likeness falls at `rate`, and the weights of samples."""
    lower = np.linalg.cholesky(np.exp(-rate * distances) + noise * np.eye(len(left)))
    weights = np.linalg.solve(lower.T, np.linalg.solve(lower, left))
    spread = float(left @ weights) / len(left)
    likely = -0.5 * len(left) * np.log(spread + 1e-12) - float(np.log(np.diag(lower)).sum())
    return likely, rate, weights
