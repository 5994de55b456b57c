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
MOST = 400  # samples of a group that are compared with each other
TIE = 0.005  # costs that differ by less are the same


@dataclass(slots=True)
class _Tree:
    """A complete binary tree: a feature and a bin per inner node, a value per leaf."""

    feature: Positions
    bound: Positions
    leaves: Matrix


@dataclass(slots=True)
class Trees:
    """A model of `rounds` trees of `depth`, each `rate` of a Newton step; `l2` holds back small leaves."""

    rounds: int = 60
    depth: int = 4
    rate: float = 0.15
    l2: float = 1.0
    loss: Loss = "rank"
    _edges: list[Matrix] = field(default_factory=list)
    _trees: list[_Tree] = field(default_factory=list)

    def fit(self, x: Matrix, costs: Matrix, groups: Positions, offset: Matrix) -> Trees:
        """Learn which of the samples in a group cost less; `offset` are scores that trees are added to."""
        self._edges, self._trees = [_edges(column) for column in x.T], []
        binned, score = self._binned(x), offset.astype(float)
        pull = gradients(self.loss, costs, groups)
        for _ in range(self.rounds):
            gradient, hessian = pull.step(score)
            tree = self._grow(binned, gradient, hessian)
            self._trees.append(tree)
            score = score + _leaf_values(tree, binned, self.depth)
        return self

    def score(self, x: Matrix) -> Matrix:
        """Return what trees add to the scores of samples: more for those that cost less."""
        binned = self._binned(x)
        total = np.zeros(len(x))
        for tree in self._trees:
            total += _leaf_values(tree, binned, self.depth)
        return total

    @property
    def width(self) -> int:
        """How many features it was fitted to."""
        return len(self._edges)

    def written(self) -> dict[str, Any]:
        """Return it as numbers, which `parse` reads."""
        def short(values: Matrix) -> list[float]:
            return [float(f"{v:.4g}") for v in values]

        return {"depth": self.depth, "edges": [short(e) for e in self._edges],
                "trees": [[t.feature.tolist(), t.bound.tolist(), short(t.leaves)] for t in self._trees]}

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> Trees:
        """Return the trees that `written` has written."""
        made = cls(rounds=len(found["trees"]), depth=found["depth"])
        made._edges = [np.array(e, float) for e in found["edges"]]
        made._trees = [_Tree(np.array(f, np.int64), np.array(b, np.int64), np.array(v, float))
                       for f, b, v in found["trees"]]
        return made

    def _binned(self, x: Matrix) -> Positions:
        made = [np.searchsorted(e, c, side="right") for e, c in zip(self._edges, x.T, strict=True)]
        return np.array(made, np.int64).reshape(len(made), len(x)).T

    def _grow(self, binned: Positions, gradient: Matrix, hessian: Matrix) -> _Tree:
        """Return the tree that follows a gradient, all nodes of a level at once."""
        samples, width = binned.shape
        node = np.zeros(samples, np.int64)
        features, bounds = np.zeros(2 ** self.depth - 1, np.int64), np.full(2 ** self.depth - 1, BINS)
        columns = np.arange(width) * BINS
        for level in range(self.depth):
            nodes = 2 ** level
            at = (node[:, None] * (width * BINS) + columns + binned).ravel()
            size = nodes * width * BINS
            g, h = (np.bincount(at, np.repeat(w, width), size).reshape(nodes, width, BINS).cumsum(2)
                    for w in (gradient, hessian))
            gain = _gain(g, h, self.l2).reshape(nodes, -1)
            best = gain.argmax(1)
            worth = gain[np.arange(nodes), best] > 1e-9
            here = slice(nodes - 1, 2 * nodes - 1)
            features[here] = best // BINS
            bounds[here] = np.where(worth, best % BINS, BINS)
            chosen = features[here][node], bounds[here][node]
            node = 2 * node + (binned[np.arange(samples), chosen[0]] > chosen[1])
        sums = [np.bincount(node, w, 2 ** self.depth) for w in (gradient, hessian)]
        return _Tree(features, bounds, self.rate * sums[0] / (sums[1] + self.l2))


def _gain(g: Matrix, h: Matrix, l2: float) -> Matrix:
    """Return what every cut of every node gains: left of it are the bins up to one."""
    whole_g, whole_h = g[..., -1:], h[..., -1:]
    right_g, right_h = whole_g - g, whole_h - h
    found: Matrix = g * g / (h + l2) + right_g * right_g / (right_h + l2) - whole_g ** 2 / (whole_h + l2)
    return found


def _leaf_values(tree: _Tree, binned: Positions, depth: int) -> Matrix:
    rows = np.arange(len(binned))
    node = np.zeros(len(binned), np.int64)
    for _ in range(depth):
        node = 2 * node + 1 + (binned[rows, tree.feature[node]] > tree.bound[node])
    found: Matrix = tree.leaves[node - (2 ** depth - 1)]
    return found


def _edges(column: Matrix) -> Matrix:
    """Return where bins of a feature end: between its values, of many at quantiles."""
    values = np.unique(column)
    if len(values) > BINS:
        values = np.unique(np.quantile(values, np.linspace(0, 1, BINS)))
    found: Matrix = (values[1:] + values[:-1]) / 2
    return found


class Pull(Protocol):
    """Where a loss pulls scores."""

    def step(self, score: Matrix) -> tuple[Matrix, Matrix]:
        """Return which way scores should go, and how sharply the loss bends there."""
        ...


class Learner(Protocol):
    """What learns scores: trees of our own, or of others."""

    def fit(self, x: Matrix, costs: Matrix, groups: Positions, offset: Matrix) -> Learner:
        """Learn which of the samples in a group cost less; `offset` are scores that are added to."""
        ...

    def score(self, x: Matrix) -> Matrix:
        """Return what is added to the scores of samples: more for those that cost less."""
        ...


def gradients(loss: Loss, costs: Matrix, groups: Positions) -> Pull:
    """Return where a loss pulls the scores of samples of these costs."""
    return _Pairs(costs, groups) if loss == "rank" else _Square(costs, groups)


class _Pairs:
    """The loss of pairs in the wrong order: logistic, more for pairs with one that costs little."""

    def __init__(self, costs: Matrix, groups: Positions) -> None:
        self.samples = len(costs)
        self.members, self.weights = [], []
        for group in np.unique(groups):
            at = np.flatnonzero(groups == group)
            if len(at) > MOST:
                at = at[np.linspace(0, len(at) - 1, MOST).astype(int)]
            cost = np.log(costs[at])
            less = cost[:, None] < cost[None, :] - TIE
            near = 1.0 / (1.0 + (cost - cost.min()) / max(float(np.median(cost - cost.min())), 0.02))
            far = np.minimum((cost[None, :] - cost[:, None]) * 10, 1.0)
            weight = np.where(less, near[:, None] * far, 0.0)
            self.members.append(at)
            self.weights.append(weight * len(at) / max(float(weight.sum()), 1e-12))

    def step(self, score: Matrix) -> tuple[Matrix, Matrix]:
        """Return which way scores should go, and how sharply the loss bends there."""
        gradient, hessian = np.zeros(self.samples), np.zeros(self.samples)
        for at, weight in zip(self.members, self.weights, strict=True):
            apart = np.clip(score[at][:, None] - score[at][None, :], -50, 50)
            wrong = 1.0 / (1.0 + np.exp(apart))
            pull, bend = weight * wrong, weight * wrong * (1.0 - wrong)
            gradient[at] += pull.sum(1) - pull.sum(0)
            hessian[at] += bend.sum(1) + bend.sum(0)
        return gradient, hessian + 1e-6


class _Square:
    """The squared distance from the logarithm of speed, centred in each group."""

    def __init__(self, costs: Matrix, groups: Positions) -> None:
        self.target = -np.log(costs)
        self.groups = groups

    def step(self, score: Matrix) -> tuple[Matrix, Matrix]:
        """Return which way scores should go, and how sharply the loss bends there."""
        left = self.target - score
        for group in np.unique(self.groups):
            left[self.groups == group] -= left[self.groups == group].mean()
        return left, np.ones(len(left))
