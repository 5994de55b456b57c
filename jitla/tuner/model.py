"""Scores schedules: an analytic estimate, corrected by what was measured, here and for other kernels.

Each schedule is a vector of features. Corrections are boosted trees or a Gaussian process on few samples;
measurements of other kernels are the prior.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jitla.classes import dataclass
from jitla.fusion import Point, Space, Value
from jitla.tuner.records import Records
from jitla.tuner.trees import Learner, Loss, Trees

__all__ = ["PLACE", "built_in", "remembered"]


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


WEIGHTS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)  # of the estimate's logarithm, of which the best is taken
USUAL_WEIGHT = 4.0
ENOUGH = 8  # own samples from which on they say what the estimate and the history are worth
GUARD = 0.55  # pairs that history has to put in the right order
FADES = 32.0  # own samples after which history counts half
FAILED = 4.0  # times the worst cost, for what could not be run
ROUNDS, DEPTH = 80, 3  # of history: shallow trees carry over to other kernels better than deep ones
WORST = 3.0  # times the usual cost, beyond which it does not matter how bad a point is
# By how much speeds differ, if the estimate differs by one, or the score of history; the least share of a
# belief that counts; points of a space that tell what it is like.
ESTIMATED, TOLD, LEAST, SOME = 0.6, 0.1, 0.01, 1000


@dataclass(slots=True)
class History:
    """Trees learnt from other spaces of the same kind, on structural features, beside those learnt before."""

    trees: Trees
    before: History | None = None

    @classmethod
    def of(cls, samples: Sequence[tuple[Matrix, Sequence[float]]], before: History | None = None
           ) -> History | None:
        """Learn from features and costs of points, space by space; without any it is as `before`."""
        kept = [(np.asarray(x, float), np.asarray(c, float)) for x, c in samples if len(c) > 1]
        if not kept:
            return before
        x = np.concatenate([x for x, _ in kept])
        costs = np.concatenate([c for _, c in kept])
        groups = np.repeat(np.arange(len(kept)), [len(c) for _, c in kept])
        start = cls.begun(x) + (before.told(x) if before is not None else 0.0)
        return cls(Trees(rounds=ROUNDS, depth=DEPTH).fit(x, costs, groups, start), before)

    @staticmethod
    def begun(x: Matrix) -> Matrix:
        """Return the scores that history is added to: the estimate is the last of the features."""
        found: Matrix = -USUAL_WEIGHT * np.log(2.0) * x[:, -1]
        return found

    @property
    def width(self) -> int:
        """How many features it was learnt from."""
        return self.trees.width

    def told(self, x: Matrix) -> Matrix:
        """Return what history adds to the scores of points with these features."""
        made = self.trees.score(x)
        return made if self.before is None else made + self.before.told(x)

    def score(self, space: Space, points: Sequence[Point]) -> Matrix:
        """Return what history adds to the scores of points."""
        return self.told(features(space, points, structural=True))


class Model:
    """Scores of the points of one space.

    Without a `learner` of scores there are two beliefs about speeds, by history and by the estimate alone; a
    Gaussian process for each learns how far measurements are from it, and they count as they are likely.
    """

    def __init__(self, space: Space, history: History | None = None, *, use_prior: bool = True,
                 loss: Loss = "rank", learner: Callable[..., Learner] | None = None) -> None:
        self.space, self.history, self.loss, self.learner = space, history, loss, learner
        self.use_prior = use_prior and space.estimate is not None
        self.weight = USUAL_WEIGHT if self.use_prior else 0.0
        self.trust = 1.0 if history is not None else 0.0
        self._own: Learner | None = None
        self._beliefs: list[Smooth] = []
        self._known: dict[Point, tuple[Matrix, float, float]] = {}
        points = _some(space)
        x = features(space, points)
        wide = np.where(x.std(0) > 1e-9, x.std(0), np.inf)
        self._low, self._wide = x.mean(0), wide * max(np.isfinite(wide).sum(), 1) ** 0.5
        self._usual = np.zeros(2)  # what the estimate and history say of all, about
        self._usual = np.array([float(v.mean()) for v in self._facts(points)[1:]])

    def fit(self, points: Sequence[Point], costs: Sequence[float | None]) -> None:
        """Learn from everything that was measured so far; None stands for what could not be run."""
        ran = [c for c in costs if c is not None]
        if len(ran) < 2:
            return
        cost = np.array([FAILED * max(ran) if c is None else c for c in costs], float)
        x, estimate, told = self._facts(points)
        if self.learner is None:
            speeds = -np.log(np.minimum(cost, WORST * np.median(cost)))
            self._beliefs = [Smooth().fit(x, speeds, e) for e in self._expected(estimate, told)]
            return
        if len(points) >= ENOUGH:
            self._judge(cost, estimate, told)
        if self.history is not None and self.trust:
            self.trust = 2.0 ** (-len(points) / FADES)
        group = np.zeros(len(points), np.int64)
        start = self.weight * estimate + self.trust * told
        if self.loss == "square" and self.use_prior:
            start = estimate - estimate.mean()
        self._own = self.learner(loss=self.loss).fit(x, cost, group, start)

    def _expected(self, estimate: Matrix, told: Matrix) -> list[Matrix]:
        """Return what every belief says of speeds: their logarithms."""
        every = [ESTIMATED * estimate * self.use_prior]
        if self.history is not None:
            every.append(TOLD * (USUAL_WEIGHT * estimate * self.use_prior + told))
        return every

    def _judge(self, cost: Matrix, estimate: Matrix, told: Matrix) -> None:
        """Give the estimate the weight by which pairs are told apart best; drop a history that misleads."""
        if self.use_prior:
            self.weight = min(WEIGHTS, key=lambda w: _loss(w * estimate, cost))
        if self.history is not None and accuracy(self.weight * estimate + told, cost) < GUARD:
            self.trust = 0.0

    @property
    def shares(self) -> Matrix:
        """How much every belief counts: the estimate, then history."""
        count = 1 + (self.history is not None)
        likely = np.array([b.likely for b in self._beliefs] or [0.0] * count)
        made: Matrix = np.exp(likely - likely.max())
        made /= made.sum()
        return made

    def score(self, points: Sequence[Point]) -> Matrix:
        """Return a score for every point."""
        if not points:
            return np.zeros(0)
        x, estimate, told = self._facts(points)
        if self.learner is None:
            return self._believed(x, estimate, told)[0]
        weight = 1.0 if self.loss == "square" and self._own is not None else self.weight
        made: Matrix = weight * estimate * self.use_prior + self.trust * told
        return made + self._own.score(x) if self._own is not None else made

    def _believed(self, x: Matrix, estimate: Matrix, told: Matrix) -> tuple[Matrix, Matrix]:
        """Return speeds by all beliefs, each by its share, and how far they are unsure."""
        speeds, squares = np.zeros(len(x)), np.full(len(x), 0.0 if self._beliefs else SPREAD ** 2)
        every = self._expected(estimate, told)
        for n, (share, expected) in enumerate(zip(self.shares, every, strict=True)):
            if self._beliefs and share > LEAST:
                expected, square = self._beliefs[n].told(x, expected)
                squares += share * square
            speeds += share * expected
        return speeds, np.sqrt(squares)

    def unsure(self, points: Sequence[Point], picked: Sequence[Point]) -> Matrix:
        """Return how far scores are unsure, less for points that are like some that were picked."""
        x, estimate, told = self._facts(points)
        if self.learner is None:
            found = self._believed(x, estimate, told)[1]
        else:
            found = np.full(len(points), float(self.score(points).std()))
        like = np.exp(-distances(x, self._facts(picked)[0])).max(1)
        made: Matrix = found * np.sqrt(1.0 - np.minimum(like, 0.999) ** 2)
        return made

    def _facts(self, points: Sequence[Point]) -> tuple[Matrix, Matrix, Matrix]:
        """Return features, the estimate and what history says, each found once per point."""
        new = [p for p in dict.fromkeys(points) if p not in self._known]
        if new:
            told = self.history.score(self.space, new) if self.history is not None else np.zeros(len(new))
            x = (features(self.space, new) - self._low) / self._wide
            rows = zip(x, -np.log(prior(self.space, new)), told, strict=True)
            self._known |= {p: (r, float(e), float(t)) for p, (r, e, t) in zip(new, rows, strict=True)}
        found = [self._known[p] for p in points]
        return (np.array([f[0] for f in found]), np.array([f[1] for f in found]) - self._usual[0],
                np.array([f[2] for f in found]) - self._usual[1])


def _some(space: Space) -> list[Point]:
    """Return points that tell how far features of a space differ."""
    if 0 < len(space.points) <= SOME:
        return list(space.points)
    rng = np.random.default_rng(0)
    return [space.random(rng) for _ in range(SOME)]


def accuracy(score: Matrix, cost: Matrix, tie: float = 0.01) -> float:
    """Return the share of pairs, of different cost, that scores put in the right order."""
    less = cost[:, None] < cost[None, :] * (1.0 - tie)
    if not less.any():
        return 1.0
    apart = score[:, None] - score[None, :]
    return float((np.where(apart > 0, 1.0, np.where(apart == 0, 0.5, 0.0)) * less).sum() / less.sum())


def _loss(score: Matrix, cost: Matrix) -> float:
    less = cost[:, None] < cost[None, :] * 0.995
    apart = np.clip(score[:, None] - score[None, :], -50, 50)
    return float((np.log1p(np.exp(-apart)) * less).sum())


PLACE = Path(__file__).parent / "past.json"  # ``python -m bench.tuner --past`` writes it


@cache
def built_in() -> History:
    """Return what kernels of the tables in ``bench/tuner`` have taught."""
    return History(Trees.parse(json.loads(PLACE.read_text())))


def remembered(records: Records, target: str, space: Space) -> History | None:
    """Return what is known of spaces whose traits mean the same as those of `space`."""
    width = features(space, [space.default], structural=True).shape[1]
    before = built_in() if built_in().width == width else None
    return History.of(records.samples(width, target), before)
