"""Which points to measure next: all scored, or found by annealing or a beam; then a batch that differs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from jitla.fusion import Point, Space

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
