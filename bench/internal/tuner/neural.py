"""A small neural network in the place of the tuner's models, to compare them with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jitla.tuner.model import Loss, loss_gradient

Matrix = NDArray[np.float64]
UNITS, STEPS, RATE, DECAY = 24, 150, 0.02, 1e-3


class Neural:
    """One layer of units between features and scores, trained by Adam."""

    def __init__(self, loss: Loss = "rank") -> None:
        self.loss = loss
        self._low = self._wide = np.zeros(0)
        self._weights: list[Matrix] = []

    def fit(self, x: Matrix, costs: Matrix, groups: NDArray[np.int64], offset: Matrix) -> Neural:
        """Learn which of the samples in a group cost less; `offset` are scores that are added to."""
        self._low, self._wide = x.mean(0), np.where(x.std(0) > 1e-9, x.std(0), np.inf)
        rng, z = np.random.default_rng(0), (x - self._low) / self._wide
        self._weights = [rng.normal(size=(x.shape[1], UNITS)) / x.shape[1] ** 0.5, np.zeros(UNITS),
                         np.zeros(UNITS)]
        pull = loss_gradient(self.loss, costs, groups)
        first = [np.zeros_like(w) for w in self._weights]
        second = [np.zeros_like(w) for w in self._weights]
        for step in range(1, STEPS + 1):
            hidden = np.tanh(z @ self._weights[0] + self._weights[1])
            up, _ = pull.step(offset + hidden @ self._weights[2])
            back = up[:, None] * self._weights[2] * (1 - hidden * hidden)
            for at, slope in enumerate((z.T @ back, back.sum(0), hidden.T @ up)):
                slope = slope / len(x) - DECAY * self._weights[at]
                first[at] = 0.9 * first[at] + 0.1 * slope
                second[at] = 0.999 * second[at] + 0.001 * slope * slope
                mean, square = first[at] / (1 - 0.9 ** step), second[at] / (1 - 0.999 ** step)
                self._weights[at] = self._weights[at] + RATE * mean / (np.sqrt(square) + 1e-8)
        return self

    def score(self, x: Matrix) -> Matrix:
        """Return what is added to the scores of samples: more for those that cost less."""
        inner, bias, outer = self._weights
        found: Matrix = np.tanh((x - self._low) / self._wide @ inner + bias) @ outer
        return found
