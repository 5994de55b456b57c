"""Searches against each other on tables: how many trials until near the best, how far from it after some.

Knows: the searches, what is said of them. Must not know: what tables are about.
Receives tables and seeds; returns numbers, and lines that show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median, quantiles
from typing import NamedTuple

import numpy as np

from bench.tuner.tables import Table
from jitla.tuner import Found, History, Settings, annealing, genetic, random_search, search

SHARE = 0.95  # of the best speed
TRIALS = 64
AT = (8, 32)
HISTORY = 200  # points of every other table that history is made of


class Result(NamedTuple):
    """Of one search: trials until near the best (one more than there were: never), regrets after some."""

    trials: int
    regrets: tuple[float, ...]


def judged(table: Table, found: Found) -> Result:
    """Return how a search did; one that has measured all there is goes on at its best."""
    costs = [float("inf") if c is None else c for c in found.costs]
    near = next((i for i, c in enumerate(costs, 1) if c <= table.best / SHARE), TRIALS + 1)
    return Result(near, tuple(min(costs[:n]) / table.best - 1.0 for n in AT))


def methods(table: Table, others: Sequence[Table]) -> dict[str, Callable[[int], Found]]:
    """Return the searches by name; none measures the default first, as random ones do not."""
    space, costs = table.space, table.costs
    made: dict[str, History | None] = {}

    def measure(point: tuple[int, ...]) -> float | None:
        cost = costs[point]
        return None if cost == float("inf") else cost

    def model(seed: int, transfer: bool = False, **changes: object) -> Found:
        if transfer and "history" not in made:
            made["history"] = history(others)
        settings = Settings(trials=TRIALS, use_default=False, **changes)  # type: ignore[arg-type]
        return search(space, measure, settings, seed, history=made.get("history") if transfer else None)

    return {
        "tuner": model,
        "with transfer": lambda seed: model(seed, transfer=True),
        "no estimate": lambda seed: model(seed, use_prior=False),
        "squares, not ranks": lambda seed: model(seed, loss="square"),
        "not diverse": lambda seed: model(seed, diverse=False),
        "annealed scores": lambda seed: model(seed, way="annealing"),
        "beam of scores": lambda seed: model(seed, way="beam"),
        "genetic": lambda seed: genetic(space, measure, TRIALS, seed),
        "annealing": lambda seed: annealing(space, measure, TRIALS, seed),
        "random": lambda seed: random_search(space, measure, TRIALS, seed),
    }


def history(tables: Sequence[Table]) -> History | None:
    """Learn from some points of other tables."""
    rng = np.random.default_rng(0)
    samples = []
    for table in tables:
        points = [p for p, c in table.costs.items() if c < float("inf")]
        picked = [points[int(i)] for i in rng.permutation(len(points))[:HISTORY]]
        samples.append((table.space, picked, [table.costs[p] for p in picked]))
    return History.of(samples)


def lines(tables: Sequence[Table], seeds: int, only: Sequence[str] = ()) -> Iterator[str]:
    """Yield what every table is like, and how every search does on it."""
    for table in tables:
        others = [t for t in tables if t is not table and t.kind == table.kind]
        worst = max(c for c in table.costs.values() if c < float("inf"))
        guess = table.costs[table.guess] / table.best
        yield (f"{table.name}: {len(table.costs)} points, {table.good()} within 5 % of the best; default "
               f"{table.usual / table.best:.3f}, estimate's choice {guess:.3f}, "
               f"worst {worst / table.best:.1f} times the best; random needs {table.random_trials():.1f}")
        for name, run in methods(table, others).items():
            if only and name not in only:
                continue
            results = [judged(table, run(seed)) for seed in range(seeds)]
            yield f"  {name:20} {shown(results)}"


def shown(results: Sequence[Result]) -> str:
    """Return medians and quartiles."""
    trials = [r.trials for r in results]
    low, _, high = quantiles(trials, n=4)
    words = [f"trials to 95 % {median(trials):5.1f} ({low:.0f}-{high:.0f})"]
    for i, n in enumerate(AT):
        regrets = [r.regrets[i] for r in results]
        low, _, high = quantiles(regrets, n=4)
        words.append(f"regret@{n} {median(regrets):6.2%} ({low:.1%}-{high:.1%})")
    return "  ".join(words)
