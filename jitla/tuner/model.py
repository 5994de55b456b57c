"""A learned score model of schedules: boosted trees or a Gaussian process that correct a given estimate.

Each schedule is a vector of features. Corrections are boosted regression trees (`Trees`, for ranks or for
values) or a Gaussian process on few samples; measurements of other kernels are the prior.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from jitla.classes import dataclass
from jitla.fusion import Point, Space, Value
from jitla.tuner.records import Records

# --------------------------------------------------------------------------- boosted trees


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


# --------------------------------------------------------------------------- features and the model


def features(space: Space, points: Sequence[Point], structural: bool = False) -> Matrix:
    """Return the feature vectors of points, one row each.

    `structural` features are comparable between spaces of a kind: traits and the estimate. Otherwise the
    choices of this space follow.
    """
    rows = []
    for point in points:
        values = space.values(point)
        row = [*space.traits(values), _log(prior(space, [point])[0])]
        rows.append(row if structural else [*row, *map(_number, values.values(), point)])
    width = len(rows[0]) if rows else 0
    return np.array(rows, float).reshape(len(rows), width)


def structural_features(space: Space, points: Sequence[Point]) -> list[tuple[float, ...]]:
    """Return the structural features of points in the form of records."""
    return [tuple(row) for row in features(space, points, structural=True).tolist()]


def prior(space: Space, points: Sequence[Point]) -> Matrix:
    """Return the estimated costs of points; all equal without an estimator."""
    if space.estimate is None:
        return np.ones(len(points))
    return np.array([space.estimate(space.values(p)) for p in points], float)


def _number(value: Value, position: int) -> float:
    return float(position) if isinstance(value, str) else float(np.log2(value + 1.0))


def _log(cost: float) -> float:
    return float(np.log2(max(cost, 1e-12)))


LENGTH_RATES = (0.5, 1.0, 2.0, 4.0)  # inverse length scales of the covariance
NOISE_RATIOS = (0.02, 0.1, 0.4)  # variance of the noise relative to the signal
RATES, NOISES = np.repeat(LENGTH_RATES, len(NOISE_RATIOS)), np.tile(NOISE_RATIOS, len(LENGTH_RATES))
PRIOR_SPREAD, PRIOR_SAMPLES = 0.2, 2.0  # prior deviation of log speeds, and its weight in samples
SLOPE_SPREAD = 0.3  # prior deviation of the slope along the expectation
OFFSET_VARIANCE = 100.0  # prior variance of a common offset


class GaussianProcess:
    """A Gaussian process on log speeds: a linear function of the expectation plus a smooth residual.

    The covariance is exponential; scale and noise are the pair of maximum marginal likelihood.
    """

    def __init__(self) -> None:
        self.log_likelihood = 0.0  # marginal, of the samples

    def fit(self, x: Matrix, speeds: Matrix, expected: Matrix) -> GaussianProcess:
        """Fit the deviation of log speeds from the expected ones."""
        distance, slope, count = distances(x, x), expected * (SLOPE_SPREAD / PRIOR_SPREAD), len(x)
        covariance = np.exp(-RATES[:, None, None] * distance) + NOISES[:, None, None] * np.eye(count)
        lower = np.linalg.cholesky(covariance + OFFSET_VARIANCE + np.outer(slope, slope))
        residual = np.broadcast_to((speeds - expected)[:, None], (len(RATES), count, 1))
        solution = np.linalg.solve(lower, residual)[..., 0]
        prior_sum = 2 * PRIOR_SAMPLES * PRIOR_SPREAD ** 2
        variance = ((solution ** 2).sum(1) + prior_sum) / (count + 2 * PRIOR_SAMPLES)
        log_likelihoods = -0.5 * (count + 2 * PRIOR_SAMPLES) * np.log(variance) \
            - np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(1)
        best = int(log_likelihoods.argmax())
        self.log_likelihood = float(log_likelihoods[best])
        self._variance, self._rate = float(variance[best]), RATES[best]
        self._lower, self._solution, self._x, self._slope = lower[best], solution[best], x, slope
        return self

    def predict(self, x: Matrix, expected: Matrix) -> tuple[Matrix, Matrix]:
        """Return the predicted log speeds of points and their variances."""
        slope = expected * (SLOPE_SPREAD / PRIOR_SPREAD)
        smooth = np.exp(-self._rate * distances(self._x, x))
        covariance = smooth + OFFSET_VARIANCE + np.outer(self._slope, slope)
        projection = np.linalg.solve(self._lower, covariance)
        variance = np.maximum(1.0 + OFFSET_VARIANCE + slope ** 2 - (projection ** 2).sum(0), 1e-9)
        return expected + self._solution @ projection, variance * self._variance


def distances(a_rows: Matrix, b_rows: Matrix) -> Matrix:
    """Return the Euclidean distances of the rows of two matrices."""
    squares = (a_rows * a_rows).sum(1)[:, None] + (b_rows * b_rows).sum(1) - 2.0 * a_rows @ b_rows.T
    distance: Matrix = np.sqrt(np.maximum(squares, 0.0) + 1e-12)
    return distance


ESTIMATE_WEIGHTS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)  # candidates for the weight of the log estimate
DEFAULT_WEIGHT = 4.0
MIN_JUDGED_SAMPLES = 8  # samples that are enough to judge estimate and history
MIN_HISTORY_ACCURACY = 0.55  # fraction of pairs that history has to order correctly
HISTORY_HALF_LIFE = 32.0  # in samples of this space
FAILURE_COST_FACTOR = 4.0  # cost of a failed point relative to the worst
HISTORY_ROUNDS, HISTORY_DEPTH = 80, 3  # of history: shallow trees transfer better to other kernels
MAX_COST_FACTOR = 3.0  # costs are clipped at this multiple of the median
# Log speed per unit of the log estimate and of a history score; the minimum weight of a belief that counts;
# points that sample the features of a space.
ESTIMATE_SCALE, HISTORY_SCALE, MIN_BELIEF_SHARE, SAMPLED_POINTS = 0.6, 0.1, 0.01, 1000


@dataclass(slots=True)
class History:
    """Boosted trees fitted to other spaces on structural features, on top of a previous history."""

    trees: Trees
    previous: History | None = None

    @classmethod
    def fit(cls, samples: Sequence[tuple[Matrix, Sequence[float]]], previous: History | None = None
           ) -> History | None:
        """Fit features and costs of points, grouped by space; without samples return `previous`."""
        spaces = [(np.asarray(x, float), np.asarray(c, float)) for x, c in samples if len(c) > 1]
        if not spaces:
            return previous
        x = np.concatenate([x for x, _ in spaces])
        costs = np.concatenate([c for _, c in spaces])
        groups = np.repeat(np.arange(len(spaces)), [len(c) for _, c in spaces])
        offset = cls.baseline(x) + (previous.predict(x) if previous is not None else 0.0)
        return cls(Trees(rounds=HISTORY_ROUNDS, depth=HISTORY_DEPTH).fit(x, costs, groups, offset), previous)

    @staticmethod
    def baseline(x: Matrix) -> Matrix:
        """Return the scores of the estimate, which is the last feature; history is added to them."""
        scores: Matrix = -DEFAULT_WEIGHT * np.log(2.0) * x[:, -1]
        return scores

    @property
    def width(self) -> int:
        """The number of features."""
        return self.trees.width

    def predict(self, x: Matrix) -> Matrix:
        """Return the correction of scores for features."""
        scores = self.trees.score(x)
        return scores if self.previous is None else scores + self.previous.predict(x)

    def score(self, space: Space, points: Sequence[Point]) -> Matrix:
        """Return the correction of scores for points."""
        return self.predict(features(space, points, structural=True))


class Model:
    """The score model of one space; higher scores mean lower expected cost.

    Without a `learner` it averages two beliefs, the estimate alone and with history: a Gaussian process fits
    the deviation of measurements from each, and their weights are their marginal likelihoods.
    """

    def __init__(self, space: Space, history: History | None = None, *, use_prior: bool = True,
                 loss: Loss = "rank", learner: Callable[..., Learner] | None = None) -> None:
        self.space, self.history, self.loss, self.learner = space, history, loss, learner
        self.use_prior = use_prior and space.estimate is not None
        self.weight = DEFAULT_WEIGHT if self.use_prior else 0.0
        self.trust = 1.0 if history is not None else 0.0
        self._trees: Learner | None = None
        self._beliefs: list[GaussianProcess] = []
        self._features: dict[Point, tuple[Matrix, float, float]] = {}
        points = _sample_points(space)
        x = features(space, points)
        spread = np.where(x.std(0) > 1e-9, x.std(0), np.inf)
        self._centre, self._scale = x.mean(0), spread * max(np.isfinite(spread).sum(), 1) ** 0.5
        self._means = np.zeros(2)  # of the estimate and of history
        self._means = np.array([float(v.mean()) for v in self._inputs(points)[1:]])

    def fit(self, points: Sequence[Point], costs: Sequence[float | None]) -> None:
        """Fit all measurements so far; a cost of None is a failure."""
        measured = [c for c in costs if c is not None]
        if len(measured) < 2:
            return
        cost = np.array([FAILURE_COST_FACTOR * max(measured) if c is None else c for c in costs], float)
        x, estimate, corrections = self._inputs(points)
        if self.learner is None:
            speeds = -np.log(np.minimum(cost, MAX_COST_FACTOR * np.median(cost)))
            self._beliefs = [GaussianProcess().fit(x, speeds, e)
                             for e in self._expected(estimate, corrections)]
            return
        if len(points) >= MIN_JUDGED_SAMPLES:
            self._weigh_estimate_and_history(cost, estimate, corrections)
        if self.history is not None and self.trust:
            self.trust = 2.0 ** (-len(points) / HISTORY_HALF_LIFE)
        groups = np.zeros(len(points), np.int64)
        offset = self.weight * estimate + self.trust * corrections
        if self.loss == "square" and self.use_prior:
            offset = estimate - estimate.mean()
        self._trees = self.learner(loss=self.loss).fit(x, cost, groups, offset)

    def _expected(self, estimate: Matrix, corrections: Matrix) -> list[Matrix]:
        """Return the log speeds that each belief expects."""
        expectations = [ESTIMATE_SCALE * estimate * self.use_prior]
        if self.history is not None:
            expectations.append(HISTORY_SCALE * (DEFAULT_WEIGHT * estimate * self.use_prior + corrections))
        return expectations

    def _weigh_estimate_and_history(self, cost: Matrix, estimate: Matrix, corrections: Matrix) -> None:
        """Choose the weight of the estimate that orders pairs best; drop a history that misorders them."""
        if self.use_prior:
            self.weight = min(ESTIMATE_WEIGHTS, key=lambda w: _pairwise_loss(w * estimate, cost))
        if self.history is not None and \
                accuracy(self.weight * estimate + corrections, cost) < MIN_HISTORY_ACCURACY:
            self.trust = 0.0

    @property
    def shares(self) -> Matrix:
        """The posterior weight of each belief: the estimate, then history."""
        count = 1 + (self.history is not None)
        log_likelihoods = np.array([b.log_likelihood for b in self._beliefs] or [0.0] * count)
        weights: Matrix = np.exp(log_likelihoods - log_likelihoods.max())
        weights /= weights.sum()
        return weights

    def score(self, points: Sequence[Point]) -> Matrix:
        """Return a score for every point."""
        if not points:
            return np.zeros(0)
        x, estimate, corrections = self._inputs(points)
        if self.learner is None:
            return self._mix_beliefs(x, estimate, corrections)[0]
        weight = 1.0 if self.loss == "square" and self._trees is not None else self.weight
        scores: Matrix = weight * estimate * self.use_prior + self.trust * corrections
        return scores + self._trees.score(x) if self._trees is not None else scores

    def _mix_beliefs(self, x: Matrix, estimate: Matrix, corrections: Matrix) -> tuple[Matrix, Matrix]:
        """Return log speeds averaged over beliefs by their weights, and their deviations."""
        speeds, squares = np.zeros(len(x)), np.full(len(x), 0.0 if self._beliefs else PRIOR_SPREAD ** 2)
        expectations = self._expected(estimate, corrections)
        for n, (share, expected) in enumerate(zip(self.shares, expectations, strict=True)):
            if self._beliefs and share > MIN_BELIEF_SHARE:
                expected, square = self._beliefs[n].predict(x, expected)
                squares += share * square
            speeds += share * expected
        return speeds, np.sqrt(squares)

    def uncertainty(self, points: Sequence[Point], picked: Sequence[Point]) -> Matrix:
        """Return the deviations of scores, reduced for points similar to picked ones."""
        x, estimate, corrections = self._inputs(points)
        if self.learner is None:
            deviation = self._mix_beliefs(x, estimate, corrections)[1]
        else:
            deviation = np.full(len(points), float(self.score(points).std()))
        similarity = np.exp(-distances(x, self._inputs(picked)[0])).max(1)
        result: Matrix = deviation * np.sqrt(1.0 - np.minimum(similarity, 0.999) ** 2)
        return result

    def _inputs(self, points: Sequence[Point]) -> tuple[Matrix, Matrix, Matrix]:
        """Return features, estimates and history scores of points, memoised per point."""
        missing = [p for p in dict.fromkeys(points) if p not in self._features]
        if missing:
            corrections = np.zeros(len(missing))
            if self.history is not None:
                corrections = self.history.score(self.space, missing)
            x = (features(self.space, missing) - self._centre) / self._scale
            rows = zip(x, -np.log(prior(self.space, missing)), corrections, strict=True)
            self._features |= {p: (r, float(e), float(t)) for p, (r, e, t) in zip(missing, rows, strict=True)}
        entries = [self._features[p] for p in points]
        return (np.array([f[0] for f in entries]), np.array([f[1] for f in entries]) - self._means[0],
                np.array([f[2] for f in entries]) - self._means[1])


def _sample_points(space: Space) -> list[Point]:
    """Return points that sample the range of the features of a space."""
    if 0 < len(space.points) <= SAMPLED_POINTS:
        return list(space.points)
    rng = np.random.default_rng(0)
    return [space.random(rng) for _ in range(SAMPLED_POINTS)]


def accuracy(score: Matrix, cost: Matrix, tie: float = 0.01) -> float:
    """Return the fraction of pairs of different cost that scores order correctly."""
    is_faster = cost[:, None] < cost[None, :] * (1.0 - tie)
    if not is_faster.any():
        return 1.0
    difference = score[:, None] - score[None, :]
    right = np.where(difference > 0, 1.0, np.where(difference == 0, 0.5, 0.0))
    return float((right * is_faster).sum() / is_faster.sum())


def _pairwise_loss(score: Matrix, cost: Matrix) -> float:
    is_faster = cost[:, None] < cost[None, :] * 0.995
    difference = np.clip(score[:, None] - score[None, :], -50, 50)
    return float((np.log1p(np.exp(-difference)) * is_faster).sum())


BUILT_IN_PATH = Path(__file__).parent / "past.json"  # ``python -m bench.internal.tuner --past`` writes it


@cache
def built_in_history() -> History:
    """Return the history that was fitted to the tables of ``bench/internal/tuner``."""
    return History(Trees.parse(json.loads(BUILT_IN_PATH.read_text())))


def history_for(records: Records, target: str, space: Space) -> History | None:
    """Return the history of records with the structural features of `space`, on top of the built-in one."""
    width = features(space, [space.default], structural=True).shape[1]
    previous = built_in_history() if built_in_history().width == width else None
    return History.fit(records.samples(width, target), previous)
