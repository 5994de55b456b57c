"""Searches a space of schedules: propose a batch, measure it, learn, until the budget is used up.

Candidates are all points of a small space, or found by annealing or a beam. Random, genetic and annealing
searches without a model are here to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from jitla.classes import dataclass
from jitla.fusion import Point, Space
from jitla.tuner.model import History, Model
from jitla.tuner.trees import Learner, Loss

Score = Callable[[Sequence[Point]], NDArray[np.float64]]
Unsure = Callable[[Sequence[Point], Sequence[Point]], NDArray[np.float64]]
Way = Literal["auto", "all", "annealing", "beam"]
SCORED = 20_000  # points of a space that are all scored
CHAINS, STEPS, STILL = 32, 100, 20  # of annealing; steps without anything new after which it ends
NEAR = 0.7  # of the moves go to the next choice of a knob, the others anywhere
BEAM = 32
CURIOUS = 0.5  # of how far scores are unsure, that is added to them


def candidates(space: Space, score: Score, wanted: int, seen: Collection[Point],
               rng: np.random.Generator, way: Way = "auto",
               starts: Sequence[Point] = ()) -> list[tuple[float, Point]]:
    """Return up to `wanted` unseen points with the best scores that are found, best first."""
    if way == "all" or way == "auto" and 0 < len(space.points) <= SCORED:
        left = [p for p in space.points if p not in seen]
        points = [left[i] for i in rng.permutation(len(left))]  # of equal scores none comes first
        return _best(zip(score(points), points, strict=True), wanted)
    if way == "beam":
        return _beam(space, score, wanted, seen, starts or (space.default,))
    return _annealed(space, score, wanted, seen, rng, starts)


def _best(scored: object, wanted: int) -> list[tuple[float, Point]]:
    made = [(float(s), p) for s, p in scored]  # type: ignore[attr-defined]
    return sorted(made, key=lambda sp: -sp[0])[:wanted]


def _annealed(space: Space, score: Score, wanted: int, seen: Collection[Point],
              rng: np.random.Generator, starts: Sequence[Point]) -> list[tuple[float, Point]]:
    """Walk along scores, in many chains; the temperature falls from the spread of their scores to 0."""
    chains = [*starts[:CHAINS // 2], *(space.random(rng) for _ in range(CHAINS))][:CHAINS]
    here = score(chains)
    heat = max(float(np.subtract(*np.percentile(here, [75, 25]))), 1e-6)
    top: dict[Point, float] = {p: float(s) for p, s in zip(chains, here, strict=True) if p not in seen}
    still, floor = 0, -np.inf
    for step in range(STEPS):
        moved = [move(space, p, rng) for p in chains]
        there = score(moved)
        cold = max(heat * (1.0 - step / STEPS), 1e-9)
        taken = rng.random(len(chains)) < np.exp(np.minimum((there - here) / cold, 0.0))
        chains = [m if t else c for m, c, t in zip(moved, chains, taken, strict=True)]
        here = np.where(taken, there, here)
        fresh = {p: float(s) for p, s in zip(moved, there, strict=True)
                 if p not in seen and p not in top and s > floor}
        still = 0 if fresh else still + 1
        top |= fresh
        if len(top) > 4 * wanted:
            top = {p: s for s, p in _best(((s, p) for p, s in top.items()), wanted)}
            floor = min(top.values())
        if still >= STILL:
            break
    return _best(((s, p) for p, s in top.items()), wanted)


def move(space: Space, point: Point, rng: np.random.Generator) -> Point:
    """Return a legal point with one choice, or two, changed; the point itself if none is found soon."""
    for _ in range(20):
        made = list(point)
        for _ in range(1 + (rng.random() < 0.3)):
            at = int(rng.integers(len(made)))
            count = len(space.knobs[at].choices)
            if rng.random() < NEAR:
                made[at] = min(max(made[at] + (1 if rng.random() < 0.5 else -1), 0), count - 1)
            else:
                made[at] = int(rng.integers(count))
        found = tuple(made)
        if found != point and space.is_legal(found):
            return found
    return point


def _beam(space: Space, score: Score, wanted: int, seen: Collection[Point],
          starts: Sequence[Point]) -> list[tuple[float, Point]]:
    """Decide knob by knob, what is undecided as in a start; the best of each turn go on."""
    found: dict[Point, float] = {}
    states = list(dict.fromkeys(starts))[:BEAM]
    for at, knob in enumerate(space.knobs):
        every = dict.fromkeys((*p[:at], i, *p[at + 1:]) for p in states for i in range(len(knob.choices)))
        legal = [p for p in every if space.is_legal(p)]
        scored = _best(zip(score(legal), legal, strict=True), max(BEAM, wanted))
        found |= {p: s for s, p in scored}
        states = [p for _, p in scored[:BEAM]] or states
    return _best(((s, p) for p, s in found.items() if p not in seen), wanted)


def batch(scored: Sequence[tuple[float, Point]], size: int, unsure: Unsure | None = None) -> list[Point]:
    """Pick points: the best by its score, others also by how `unsure` that is, and how unlike the picked."""
    points, scores = [p for _, p in scored], np.array([s for s, _ in scored])
    picked: list[Point] = []
    while points and len(picked) < size:
        gains = scores + CURIOUS * unsure(points, picked) if picked and unsure is not None else scores
        at = int(np.argmax(gains))
        picked.append(points.pop(at))
        scores = np.delete(scores, at)
    return picked


Measure = Callable[[Point], float | None]
WIDER = 64  # times as many points as a batch has, of which it is picked


@dataclass(frozen=True, slots=True)
class Settings:
    """How a space is searched; what can be switched off is there to be compared with."""

    trials: int = 64
    batch: int = 2
    random: float = 0.1  # of a batch
    way: Way = "auto"
    use_default: bool = True  # which is then measured first
    use_prior: bool = True
    diverse: bool = True
    loss: Loss = "rank"
    learner: Callable[..., Learner] | None = None  # of scores; None: Gaussian processes
    patience: int = 0  # batches without a gain of `noise` after which to stop; 0: never
    noise: float = 0.01


@dataclass(slots=True)
class Found:
    """What was measured, in order, and whether the search was interrupted."""

    space: Space
    points: list[Point] = field(default_factory=list)
    costs: list[float | None] = field(default_factory=list)
    interrupted: bool = False

    @property
    def best(self) -> tuple[Point, float] | None:
        """The point that cost least; None if none could be run."""
        ran = [(c, i) for i, c in enumerate(self.costs) if c is not None]
        return (self.points[min(ran)[1]], min(ran)[0]) if ran else None


def search(
    space: Space, measure: Measure, settings: Settings = Settings(), seed: int = 0, *,
    history: History | None = None, warm: Sequence[Point] = (),
    observe: Callable[[Found], None] | None = None, going: Callable[[], bool] | None = None,
) -> Found:
    """Measure up to `trials` points, the default first, then those in `warm`, then what the model proposes.

    `observe` is told after every point; the search ends where `going` says no, and at an interrupt.
    """
    rng = np.random.default_rng(seed)
    found, model = Found(space), Model(space, history, use_prior=settings.use_prior, loss=settings.loss,
                                       learner=settings.learner)
    queue = _first(space, model, settings, rng, warm)
    still = 0
    try:
        while queue:
            before = found.best
            for point in queue:
                if len(found.points) >= settings.trials or going is not None and not going():
                    return found
                cost = measure(point)
                found.points.append(point)
                found.costs.append(cost)
                if observe is not None:
                    observe(found)
            now = found.best
            gained = now is not None and (before is None or now[1] < before[1] * (1.0 - settings.noise))
            still = 0 if gained else still + 1
            if settings.patience and still >= settings.patience:
                return found
            queue = _next(found, model, settings, rng)
    except KeyboardInterrupt:
        found.interrupted = True
    return found


def _first(space: Space, model: Model, settings: Settings, rng: np.random.Generator,
           warm: Sequence[Point]) -> list[Point]:
    """Return the default, what served others, and what the estimate and the history like best."""
    start = list(dict.fromkeys([*[space.default] * settings.use_default, *warm]))
    size = settings.batch + len(start) - bool(start)
    if settings.use_prior and space.estimate is not None or model.history is not None:
        scored = candidates(space, model.score, WIDER * settings.batch, start, rng, settings.way)
        start += batch(scored, size - len(start), model.unsure if settings.diverse else None)
    return _filled(space, start, (), size, rng)


def _next(found: Found, model: Model, settings: Settings, rng: np.random.Generator) -> list[Point]:
    seen = set(found.points)
    if space_is_done(found.space, seen):
        return []
    model.fit(found.points, found.costs)
    ran = sorted((c, p) for c, p in zip(found.costs, found.points, strict=True) if c is not None)
    scored = candidates(found.space, model.score, WIDER * settings.batch, seen, rng, settings.way,
                        [p for _, p in ran[:settings.batch]])
    count = settings.batch - int(rng.random() < settings.random * settings.batch)
    picked = batch(scored, count, model.unsure if settings.diverse else None)
    return _filled(found.space, picked, seen, settings.batch, rng)


def space_is_done(space: Space, seen: set[Point]) -> bool:
    """Tell whether nothing is left to measure."""
    return bool(space.points) and len(seen) >= len(space.points)


def _filled(space: Space, points: list[Point], seen: set[Point] | tuple[()], size: int,
            rng: np.random.Generator) -> list[Point]:
    """Fill a batch with random points that are new."""
    made = dict.fromkeys(points)
    for _ in range(20 * size):
        if len(made) >= size:
            break
        point = space.random(rng)
        if point not in seen:
            made[point] = None
    return list(made)


POPULATION, ELITE, MUTATION = 16, 3, 0.1
TRIES = 200  # for a legal point that was not measured yet
HEAT = 0.5  # of the logarithm of costs, at the beginning


class _Budget:
    """Measured points, each once, up to a number of them."""

    def __init__(self, space: Space, measure: Measure, trials: int) -> None:
        self.found, self.measure = Found(space), measure
        self.trials = min(trials, len(space.points) or trials)  # of a small space there are no more
        self.costs: dict[Point, float] = {}

    @property
    def left(self) -> int:
        """How many points may still be measured."""
        return self.trials - len(self.found.points)

    def cost(self, point: Point) -> float:
        """Return what a point costs; infinite if it could not be run, or may not be measured any more."""
        if point not in self.costs and self.left:
            made = self.measure(point)
            self.found.points.append(point)
            self.found.costs.append(made)
            self.costs[point] = np.inf if made is None else made
        return self.costs.get(point, np.inf)


def random_search(space: Space, measure: Measure, trials: int, seed: int = 0) -> Found:
    """Measure random points, none twice."""
    rng, budget = np.random.default_rng(seed), _Budget(space, measure, trials)
    for at in rng.permutation(len(space.points))[:trials]:
        budget.cost(space.points[int(at)])
    return budget.found


def genetic(space: Space, measure: Measure, trials: int, seed: int = 0) -> Found:
    """Breed points: parents by their speed, one cut, some mutations; a few of the best live on."""
    rng, budget = np.random.default_rng(seed), _Budget(space, measure, trials)
    people = [space.random(rng) for _ in range(POPULATION)]
    while budget.left:
        before = budget.left
        fit = 1.0 / np.array([max(budget.cost(p), 1e-30) for p in people])
        order = np.argsort(-fit)
        fit = fit / fit.sum() if np.isfinite(fit).all() and fit.sum() else np.full(len(fit), 1 / len(fit))
        made = [people[i] for i in order[:ELITE]]
        while len(made) < POPULATION:
            first, second = (people[int(i)] for i in rng.choice(len(people), 2, p=fit))
            made.append(_child(space, first, second, rng))
        people = made
        if before == budget.left:  # the population has become one family
            people = [*made[:ELITE], *(space.random(rng) for _ in range(POPULATION - ELITE))]
    return budget.found


def _child(space: Space, first: Point, second: Point, rng: np.random.Generator) -> Point:
    for _ in range(TRIES):
        cut = int(rng.integers(len(first) + 1))
        made = [*first[:cut], *second[cut:]]
        for at, knob in enumerate(space.knobs):
            if rng.random() < MUTATION:
                made[at] = int(rng.integers(len(knob.choices)))
        if space.is_legal(tuple(made)):
            return tuple(made)
    return space.random(rng)


def annealing(space: Space, measure: Measure, trials: int, seed: int = 0) -> Found:
    """Walk from a random point along measured costs, ever less uphill."""
    rng, budget = np.random.default_rng(seed), _Budget(space, measure, trials)
    here = space.random(rng)
    cost = budget.cost(here)
    for _ in range(100 * trials):
        if not budget.left:
            break
        there = move(space, here, rng)
        other = budget.cost(there)
        heat = max(HEAT * budget.left / trials, 1e-6)
        if other <= cost or rng.random() < (cost / other) ** (1.0 / heat):
            here, cost = there, other
    return budget.found
