"""The search: propose a batch, measure it, learn, again, until the budget or the hope is used up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from jitla.classes import dataclass
from jitla.fusion import Point, Space
from jitla.tuner.model import History, Model
from jitla.tuner.proposing import Way, batch, candidates
from jitla.tuner.trees import Learner, Loss

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
