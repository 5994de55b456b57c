"""Boosted trees of LightGBM as the tuner's score model, used if the extra `tuner` is installed."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray

from jitla.tuner.model import Loss, loss_gradient

__all__ = ["LightGbmTrees"]

Matrix = NDArray[np.float64]
ROUNDS = 60
PARAMETERS = {
    "verbosity": -1, "num_threads": 1, "deterministic": True, "seed": 0, "num_leaves": 15, "max_depth": 4,
    "learning_rate": 0.15, "lambda_l2": 1.0, "min_data_in_leaf": 2, "min_sum_hessian_in_leaf": 1e-6,
    "min_data_in_bin": 1, "feature_pre_filter": False, "boost_from_average": False}


class LightGbmTrees:
    """A score model of LightGBM's trees, fitted to the same loss as the built-in trees."""

    def __init__(self, rounds: int = ROUNDS, loss: Loss = "rank") -> None:
        self.rounds, self.loss = rounds, loss
        self._booster: Any = None

    def fit(self, x: Matrix, costs: Matrix, groups: NDArray[np.int64], offset: Matrix) -> LightGbmTrees:
        """Fit scores that rank the samples of a group by cost, on top of the scores `offset`."""
        loss = loss_gradient(self.loss, costs, groups)

        def objective(score: Matrix, data: Any) -> tuple[Matrix, Matrix]:
            gradient, hessian = loss.step(np.asarray(score, float))
            return -gradient, hessian

        self._booster = None
        if (x == x[:1]).all():  # no trees can be grown, and LightGBM raises
            return self
        data = lightgbm.Dataset(x, np.zeros(len(x)), init_score=offset.astype(float), params=PARAMETERS,
                                free_raw_data=False)
        self._booster = lightgbm.train({**PARAMETERS, "objective": objective}, data, self.rounds)
        return self

    def score(self, x: Matrix) -> Matrix:
        """Return the scores that the trees add: higher for lower cost."""
        if self._booster is None:
            return np.zeros(len(x))
        return np.asarray(self._booster.predict(x, raw_score=True), float)
