"""The search of a schedule space: propose a batch, measure it, refit the model, until the budget is used up.

Proposals are all points of a small space, or found by annealing or a beam search on scores. Random, genetic
and annealing searches without a model are baselines for benchmarks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from jitla.classes import dataclass
from jitla.fusion import Point, Space
from jitla.tuner.model import History, Learner, Loss, Model

Score = Callable[[Sequence[Point]], NDArray[np.float64]]
Uncertainty = Callable[[Sequence[Point], Sequence[Point]], NDArray[np.float64]]
Strategy = Literal["auto", "all", "annealing", "beam"]
MAX_SCORED_POINTS = 20_000  # larger spaces are not scored completely
CHAINS, STEPS, MAX_IDLE_STEPS = 32, 100, 20  # of annealing; the last limits steps without a new point
ADJACENT_MOVE_FRACTION = 0.7  # of moves that go to an adjacent choice of a knob
BEAM_WIDTH = 32
EXPLORATION = 0.5  # of uncertainty, added to scores


def propose(space: Space, score: Score, wanted: int, excluded: Collection[Point],
            rng: np.random.Generator, strategy: Strategy = "auto",
            starts: Sequence[Point] = ()) -> list[tuple[float, Point]]:
    """Return up to `wanted` unseen points with the best scores, best first."""
    if strategy == "all" or strategy == "auto" and 0 < len(space.points) <= MAX_SCORED_POINTS:
        unseen = [p for p in space.points if p not in excluded]
        points = [unseen[i] for i in rng.permutation(len(unseen))]  # ties are broken at random
        return _best(zip(score(points), points, strict=True), wanted)
    if strategy == "beam":
        return _beam_search(space, score, wanted, excluded, starts or (space.default,))
    return _anneal(space, score, wanted, excluded, rng, starts)


def _best(scored: object, wanted: int) -> list[tuple[float, Point]]:
    pairs = [(float(s), p) for s, p in scored]  # type: ignore[attr-defined]
    return sorted(pairs, key=lambda sp: -sp[0])[:wanted]


def _anneal(space: Space, score: Score, wanted: int, excluded: Collection[Point],
            rng: np.random.Generator, starts: Sequence[Point]) -> list[tuple[float, Point]]:
    """Propose points by simulated annealing on scores in parallel chains, with a linear schedule."""
    chains = [*starts[:CHAINS // 2], *(space.random(rng) for _ in range(CHAINS))][:CHAINS]
    scores = score(chains)
    temperature = max(float(np.subtract(*np.percentile(scores, [75, 25]))), 1e-6)
    best: dict[Point, float] = {p: float(s) for p, s in zip(chains, scores, strict=True) if p not in excluded}
    idle, floor = 0, -np.inf
    for step in range(STEPS):
        moved = [neighbour(space, p, rng) for p in chains]
        new_scores = score(moved)
        current = max(temperature * (1.0 - step / STEPS), 1e-9)
        accepted = rng.random(len(chains)) < np.exp(np.minimum((new_scores - scores) / current, 0.0))
        chains = [m if t else c for m, c, t in zip(moved, chains, accepted, strict=True)]
        scores = np.where(accepted, new_scores, scores)
        improved = {p: float(s) for p, s in zip(moved, new_scores, strict=True)
                    if p not in excluded and p not in best and s > floor}
        idle = 0 if improved else idle + 1
        best |= improved
        if len(best) > 4 * wanted:
            best = {p: s for s, p in _best(((s, p) for p, s in best.items()), wanted)}
            floor = min(best.values())
        if idle >= MAX_IDLE_STEPS:
            break
    return _best(((s, p) for p, s in best.items()), wanted)


def neighbour(space: Space, point: Point, rng: np.random.Generator) -> Point:
    """Return a legal point with one or two choices changed; the point itself after 20 attempts."""
    for _ in range(20):
        choices = list(point)
        for _ in range(1 + (rng.random() < 0.3)):
            index = int(rng.integers(len(choices)))
            count = len(space.knobs[index].choices)
            if rng.random() < ADJACENT_MOVE_FRACTION:
                choices[index] = min(max(choices[index] + (1 if rng.random() < 0.5 else -1), 0), count - 1)
            else:
                choices[index] = int(rng.integers(count))
        candidate = tuple(choices)
        if candidate != point and space.is_legal(candidate):
            return candidate
    return point


def _beam_search(space: Space, score: Score, wanted: int, excluded: Collection[Point],
                 starts: Sequence[Point]) -> list[tuple[float, Point]]:
    """Propose points by a beam search over knobs; undecided knobs have the values of a starting point."""
    scores_by_point: dict[Point, float] = {}
    states = list(dict.fromkeys(starts))[:BEAM_WIDTH]
    for index, knob in enumerate(space.knobs):
        expanded = dict.fromkeys((*p[:index], i, *p[index + 1:])
                                 for p in states for i in range(len(knob.choices)))
        legal = [p for p in expanded if space.is_legal(p)]
        scored = _best(zip(score(legal), legal, strict=True), max(BEAM_WIDTH, wanted))
        scores_by_point |= {p: s for s, p in scored}
        states = [p for _, p in scored[:BEAM_WIDTH]] or states
    return _best(((s, p) for p, s in scores_by_point.items() if p not in excluded), wanted)


def diverse_batch(
    scored: Sequence[tuple[float, Point]], size: int, uncertainty: Uncertainty | None = None
) -> list[Point]:
    """Pick a batch greedily by score plus `uncertainty`, which is lower for points similar to picked ones."""
    points, scores = [p for _, p in scored], np.array([s for s, _ in scored])
    picked: list[Point] = []
    while points and len(picked) < size:
        gains = scores
        if picked and uncertainty is not None:
            gains = scores + EXPLORATION * uncertainty(points, picked)
        index = int(np.argmax(gains))
        picked.append(points.pop(index))
        scores = np.delete(scores, index)
    return picked


Measure = Callable[[Point], float | None]
PROPOSALS = 64  # per point of a batch


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a search; the switches are for comparisons."""

    trials: int = 64
    batch: int = 2
    random: float = 0.1  # fraction of random points in a batch
    strategy: Strategy = "auto"
    use_default: bool = True  # measured first
    use_prior: bool = True
    diverse: bool = True
    loss: Loss = "rank"
    learner: Callable[..., Learner] | None = None  # None: Gaussian processes
    patience: int = 0  # batches without a gain above `noise` before stopping; 0: never stop
    noise: float = 0.01


@dataclass(slots=True)
class TuningResult:
    """The measured points and costs in order, and whether the search was interrupted."""

    space: Space
    points: list[Point] = field(default_factory=list)
    costs: list[float | None] = field(default_factory=list)
    interrupted: bool = False

    @property
    def best(self) -> tuple[Point, float] | None:
        """The point of least cost and its cost; None if none ran."""
        ran = [(c, i) for i, c in enumerate(self.costs) if c is not None]
        return (self.points[min(ran)[1]], min(ran)[0]) if ran else None


def search(
    space: Space, measure: Measure, settings: Settings = Settings(), seed: int = 0, *,
    history: History | None = None, warm: Sequence[Point] = (),
    observe: Callable[[TuningResult], None] | None = None, may_continue: Callable[[], bool] | None = None,
) -> TuningResult:
    """Measure up to `trials` points: the default, those in `warm`, then proposals of the model.

    `observe` is called after every point; `may_continue` returning false or an interrupt ends the search.
    """
    rng = np.random.default_rng(seed)
    result = TuningResult(space)
    model = Model(space, history, use_prior=settings.use_prior, loss=settings.loss,
                  learner=settings.learner)
    queue = _first_batch(space, model, settings, rng, warm)
    idle = 0
    try:
        while queue:
            before = result.best
            for point in queue:
                if len(result.points) >= settings.trials or may_continue is not None and not may_continue():
                    return result
                cost = measure(point)
                result.points.append(point)
                result.costs.append(cost)
                if observe is not None:
                    observe(result)
            after = result.best
            has_improved = after is not None and (
                before is None or after[1] < before[1] * (1.0 - settings.noise))
            idle = 0 if has_improved else idle + 1
            if settings.patience and idle >= settings.patience:
                return result
            queue = _next_batch(result, model, settings, rng)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def _first_batch(space: Space, model: Model, settings: Settings, rng: np.random.Generator,
                 warm: Sequence[Point]) -> list[Point]:
    """Return the first batch: the default, the `warm` points, and the best by estimate and history."""
    points = list(dict.fromkeys([*[space.default] * settings.use_default, *warm]))
    size = settings.batch + len(points) - bool(points)
    if settings.use_prior and space.estimate is not None or model.history is not None:
        scored = propose(space, model.score, PROPOSALS * settings.batch, points, rng, settings.strategy)
        points += diverse_batch(scored, size - len(points), model.uncertainty if settings.diverse else None)
    return _fill(space, points, (), size, rng)


def _next_batch(
    result: TuningResult, model: Model, settings: Settings, rng: np.random.Generator
) -> list[Point]:
    excluded = set(result.points)
    if is_exhausted(result.space, excluded):
        return []
    model.fit(result.points, result.costs)
    measured = sorted((c, p) for c, p in zip(result.costs, result.points, strict=True) if c is not None)
    scored = propose(result.space, model.score, PROPOSALS * settings.batch, excluded, rng, settings.strategy,
                     [p for _, p in measured[:settings.batch]])
    count = settings.batch - int(rng.random() < settings.random * settings.batch)
    picked = diverse_batch(scored, count, model.uncertainty if settings.diverse else None)
    return _fill(result.space, picked, excluded, settings.batch, rng)


def is_exhausted(space: Space, measured: set[Point]) -> bool:
    """Return whether all points of a space are measured."""
    return bool(space.points) and len(measured) >= len(space.points)


def _fill(space: Space, points: list[Point], excluded: set[Point] | tuple[()], size: int,
            rng: np.random.Generator) -> list[Point]:
    """Fill a batch with new random points."""
    batch = dict.fromkeys(points)
    for _ in range(20 * size):
        if len(batch) >= size:
            break
        point = space.random(rng)
        if point not in excluded:
            batch[point] = None
    return list(batch)


POPULATION, ELITE, MUTATION = 16, 3, 0.1
MAX_ATTEMPTS = 200  # to breed a legal point
INITIAL_TEMPERATURE = 0.5  # on the logarithm of costs


class _Budget:
    """A budget of measurements that measures each point once."""

    def __init__(self, space: Space, measure: Measure, trials: int) -> None:
        self.result, self.measure = TuningResult(space), measure
        self.trials = min(trials, len(space.points) or trials)  # a small space has no more points
        self.costs: dict[Point, float] = {}

    @property
    def remaining(self) -> int:
        """The number of measurements left."""
        return self.trials - len(self.result.points)

    def cost(self, point: Point) -> float:
        """Return the cost of a point; infinite if it fails or the budget is used up."""
        if point not in self.costs and self.remaining:
            cost = self.measure(point)
            self.result.points.append(point)
            self.result.costs.append(cost)
            self.costs[point] = np.inf if cost is None else cost
        return self.costs.get(point, np.inf)


def random_search(space: Space, measure: Measure, trials: int, seed: int = 0) -> TuningResult:
    """Measure distinct random points."""
    rng, budget = np.random.default_rng(seed), _Budget(space, measure, trials)
    for index in rng.permutation(len(space.points))[:trials]:
        budget.cost(space.points[int(index)])
    return budget.result


def genetic_search(space: Space, measure: Measure, trials: int, seed: int = 0) -> TuningResult:
    """Run a genetic search: fitness-proportional selection, one-point crossover, mutation and elitism."""
    rng, budget = np.random.default_rng(seed), _Budget(space, measure, trials)
    population = [space.random(rng) for _ in range(POPULATION)]
    while budget.remaining:
        before = budget.remaining
        fitness = 1.0 / np.array([max(budget.cost(p), 1e-30) for p in population])
        order = np.argsort(-fitness)
        has_weights = np.isfinite(fitness).all() and fitness.sum()
        fitness = fitness / fitness.sum() if has_weights else np.full(len(fitness), 1 / len(fitness))
        offspring = [population[i] for i in order[:ELITE]]
        while len(offspring) < POPULATION:
            first, second = (population[int(i)] for i in rng.choice(len(population), 2, p=fitness))
            offspring.append(_child(space, first, second, rng))
        population = offspring
        if before == budget.remaining:  # the population has converged
            population = [*offspring[:ELITE], *(space.random(rng) for _ in range(POPULATION - ELITE))]
    return budget.result


def _child(space: Space, first: Point, second: Point, rng: np.random.Generator) -> Point:
    for _ in range(MAX_ATTEMPTS):
        cut = int(rng.integers(len(first) + 1))
        child = [*first[:cut], *second[cut:]]
        for index, knob in enumerate(space.knobs):
            if rng.random() < MUTATION:
                child[index] = int(rng.integers(len(knob.choices)))
        if space.is_legal(tuple(child)):
            return tuple(child)
    return space.random(rng)


def annealing_search(space: Space, measure: Measure, trials: int, seed: int = 0) -> TuningResult:
    """Run simulated annealing on measured costs from a random point."""
    rng, budget = np.random.default_rng(seed), _Budget(space, measure, trials)
    point = space.random(rng)
    cost = budget.cost(point)
    for _ in range(100 * trials):
        if not budget.remaining:
            break
        candidate = neighbour(space, point, rng)
        other = budget.cost(candidate)
        temperature = max(INITIAL_TEMPERATURE * budget.remaining / trials, 1e-6)
        if other <= cost or rng.random() < (cost / other) ** (1.0 / temperature):
            point, cost = candidate, other
    return budget.result
