"""Searches without a model, to compare with: random, genetic, annealing on measurements."""

from __future__ import annotations

import numpy as np

from jitla.fusion import Point, Space
from jitla.tuner.proposing import move
from jitla.tuner.searching import Found, Measure

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
