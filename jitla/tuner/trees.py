"""Boosted regression trees on few samples, for ranks or for values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from jitla.classes import dataclass

Matrix = NDArray[np.float64]
Positions = NDArray[np.int64]
Loss = Literal["rank", "square"]
BINS = 32
MAX_GROUP_SAMPLES = 400  # samples of a group whose pairs are compared
TIE_LOG_COST = 0.005  # smaller differences are ties


@dataclass(slots=True)
class _Tree:
    """A complete binary tree: a feature and a bin per inner node, a value per leaf."""

    feature: Positions
    bound: Positions
    leaves: Matrix


@dataclass(slots=True)
class Trees:
    """Gradient-boosted trees: `rounds` trees of `depth`, learning rate `rate`, leaf regularisation `l2`."""

    rounds: int = 60
    depth: int = 4
    rate: float = 0.15
    l2: float = 1.0
    loss: Loss = "rank"
    _edges: list[Matrix] = field(default_factory=list)
    _trees: list[_Tree] = field(default_factory=list)

    def fit(self, x: Matrix, costs: Matrix, groups: Positions, offset: Matrix) -> Trees:
        """Fit scores that rank the samples of a group by cost, on top of the scores `offset`."""
        self._edges, self._trees = [_edges(column) for column in x.T], []
        binned, score = self._binned(x), offset.astype(float)
        loss = loss_gradient(self.loss, costs, groups)
        for _ in range(self.rounds):
            gradient, hessian = loss.step(score)
            tree = self._grow(binned, gradient, hessian)
            self._trees.append(tree)
            score = score + _leaf_values(tree, binned, self.depth)
        return self

    def score(self, x: Matrix) -> Matrix:
        """Return the scores that the trees add: higher for lower cost."""
        binned = self._binned(x)
        total = np.zeros(len(x))
        for tree in self._trees:
            total += _leaf_values(tree, binned, self.depth)
        return total

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self._edges)

    def to_json(self) -> dict[str, Any]:
        """Return the trees as JSON-compatible data for `parse`."""
        def short(values: Matrix) -> list[float]:
            return [float(f"{v:.4g}") for v in values]

        return {"depth": self.depth, "edges": [short(e) for e in self._edges],
                "trees": [[t.feature.tolist(), t.bound.tolist(), short(t.leaves)] for t in self._trees]}

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Trees:
        """Return the trees of the data of `to_json`."""
        trees = cls(rounds=len(data["trees"]), depth=data["depth"])
        trees._edges = [np.array(e, float) for e in data["edges"]]
        trees._trees = [_Tree(np.array(f, np.int64), np.array(b, np.int64), np.array(v, float))
                        for f, b, v in data["trees"]]
        return trees

    def _binned(self, x: Matrix) -> Positions:
        columns = [np.searchsorted(e, c, side="right") for e, c in zip(self._edges, x.T, strict=True)]
        return np.array(columns, np.int64).reshape(len(columns), len(x)).T

    def _grow(self, binned: Positions, gradient: Matrix, hessian: Matrix) -> _Tree:
        """Grow a tree by Newton gain on histograms, all nodes of a level at once."""
        samples, width = binned.shape
        node = np.zeros(samples, np.int64)
        features, bounds = np.zeros(2 ** self.depth - 1, np.int64), np.full(2 ** self.depth - 1, BINS)
        columns = np.arange(width) * BINS
        for level in range(self.depth):
            nodes = 2 ** level
            cells = (node[:, None] * (width * BINS) + columns + binned).ravel()
            size = nodes * width * BINS
            g, h = (np.bincount(cells, np.repeat(w, width), size).reshape(nodes, width, BINS).cumsum(2)
                    for w in (gradient, hessian))
            gain = _gain(g, h, self.l2).reshape(nodes, -1)
            best = gain.argmax(1)
            has_gain = gain[np.arange(nodes), best] > 1e-9
            level_nodes = slice(nodes - 1, 2 * nodes - 1)
            features[level_nodes] = best // BINS
            bounds[level_nodes] = np.where(has_gain, best % BINS, BINS)
            chosen = features[level_nodes][node], bounds[level_nodes][node]
            node = 2 * node + (binned[np.arange(samples), chosen[0]] > chosen[1])
        sums = [np.bincount(node, w, 2 ** self.depth) for w in (gradient, hessian)]
        return _Tree(features, bounds, self.rate * sums[0] / (sums[1] + self.l2))


def _gain(g: Matrix, h: Matrix, l2: float) -> Matrix:
    """Return the gain of every split of every node; bins up to the split go left."""
    whole_g, whole_h = g[..., -1:], h[..., -1:]
    right_g, right_h = whole_g - g, whole_h - h
    gain: Matrix = g * g / (h + l2) + right_g * right_g / (right_h + l2) - whole_g ** 2 / (whole_h + l2)
    return gain


def _leaf_values(tree: _Tree, binned: Positions, depth: int) -> Matrix:
    rows = np.arange(len(binned))
    node = np.zeros(len(binned), np.int64)
    for _ in range(depth):
        node = 2 * node + 1 + (binned[rows, tree.feature[node]] > tree.bound[node])
    values: Matrix = tree.leaves[node - (2 ** depth - 1)]
    return values


def _edges(column: Matrix) -> Matrix:
    """Return the upper edges of the bins of a feature: midpoints of its values, or of quantiles if many."""
    values = np.unique(column)
    if len(values) > BINS:
        values = np.unique(np.quantile(values, np.linspace(0, 1, BINS)))
    edges: Matrix = (values[1:] + values[:-1]) / 2
    return edges


class LossGradient(Protocol):
    """The derivatives of a loss with respect to scores."""

    def step(self, score: Matrix) -> tuple[Matrix, Matrix]:
        """Return the negative gradient and the second derivative at scores."""
        ...


class Learner(Protocol):
    """A learner of scores."""

    def fit(self, x: Matrix, costs: Matrix, groups: Positions, offset: Matrix) -> Learner:
        """Fit scores that rank the samples of a group by cost, on top of the scores `offset`."""
        ...

    def score(self, x: Matrix) -> Matrix:
        """Return the scores to add: higher for lower cost."""
        ...


def loss_gradient(loss: Loss, costs: Matrix, groups: Positions) -> LossGradient:
    """Return the derivatives of a loss for samples of these costs."""
    return _PairwiseLoss(costs, groups) if loss == "rank" else _SquaredLoss(costs, groups)


class _PairwiseLoss:
    """The logistic pairwise ranking loss, weighted towards pairs with a fast sample."""

    def __init__(self, costs: Matrix, groups: Positions) -> None:
        self.samples = len(costs)
        self.members, self.weights = [], []
        for group in np.unique(groups):
            members = np.flatnonzero(groups == group)
            if len(members) > MAX_GROUP_SAMPLES:
                members = members[np.linspace(0, len(members) - 1, MAX_GROUP_SAMPLES).astype(int)]
            cost = np.log(costs[members])
            is_faster = cost[:, None] < cost[None, :] - TIE_LOG_COST
            fast_weight = 1.0 / (1.0 + (cost - cost.min()) / max(float(np.median(cost - cost.min())), 0.02))
            gap_weight = np.minimum((cost[None, :] - cost[:, None]) * 10, 1.0)
            weight = np.where(is_faster, fast_weight[:, None] * gap_weight, 0.0)
            self.members.append(members)
            self.weights.append(weight * len(members) / max(float(weight.sum()), 1e-12))

    def step(self, score: Matrix) -> tuple[Matrix, Matrix]:
        """Return the negative gradient and the second derivative at scores."""
        gradient, hessian = np.zeros(self.samples), np.zeros(self.samples)
        for members, weight in zip(self.members, self.weights, strict=True):
            difference = np.clip(score[members][:, None] - score[members][None, :], -50, 50)
            wrong_probability = 1.0 / (1.0 + np.exp(difference))
            slope = weight * wrong_probability
            curvature = weight * wrong_probability * (1.0 - wrong_probability)
            gradient[members] += slope.sum(1) - slope.sum(0)
            hessian[members] += curvature.sum(1) + curvature.sum(0)
        return gradient, hessian + 1e-6


class _SquaredLoss:
    """The squared error of the logarithm of speed, centred in each group."""

    def __init__(self, costs: Matrix, groups: Positions) -> None:
        self.target = -np.log(costs)
        self.groups = groups

    def step(self, score: Matrix) -> tuple[Matrix, Matrix]:
        """Return the negative gradient and the second derivative at scores."""
        residual = self.target - score
        for group in np.unique(self.groups):
            residual[self.groups == group] -= residual[self.groups == group].mean()
        return residual, np.ones(len(residual))
