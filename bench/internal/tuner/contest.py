"""Searches against each other on tables: how many trials until near the best, how far from it after some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from statistics import median, quantiles
from typing import NamedTuple

import numpy as np

from bench.internal.tuner.neural import Neural
from bench.internal.tuner.tables import Table
from jitla.tuner.model import History, Trees, accuracy, features
from jitla.tuner.search import (
    Settings,
    TuningResult,
    annealing_search,
    genetic_search,
    random_search,
    search,
)

SHARE = 0.95  # of the best speed
TRIALS, LEAST = 64, 32  # at most; at least, even if the best is near by then
AT = (8, 16, 32)
HISTORY = 200  # points of every other table that history is made of
TIES = (0.05, 0.1)  # by how much points differ that are to be put in order
QUARTILES, AGAIN = 1.349, 8  # how many deviations the middle half spans; turns in which noise is added


class Result(NamedTuple):
    """Of one search: trials until near the best (one more than there were: never), regrets after some."""

    trials: int
    regrets: tuple[float, ...]
    curve: tuple[float, ...]  # regrets after every trial


def judged(table: Table, costs: Sequence[float]) -> Result:
    """Return how a search did; one that has measured all there is goes on at its best."""
    near = next((i for i, c in enumerate(costs, 1) if c <= table.best / SHARE), TRIALS + 1)
    curve = [float(c) / table.best - 1.0 for c in np.minimum.accumulate(costs)]
    curve += curve[-1:] * (LEAST - len(curve))
    return Result(near, tuple(curve[n - 1] for n in AT), tuple(curve[:LEAST]))


def replayed(table: Table, method: Callable[..., TuningResult], **given: object) -> Result:
    """Return how a search does that is given what a table says."""
    seen: list[float] = []

    def measure(point: tuple[int, ...]) -> float | None:
        seen.append(table.costs[point])
        return None if seen[-1] == float("inf") else seen[-1]

    if method is search:  # once it is near, only regrets are left to tell
        given["may_continue"] = lambda: len(seen) < LEAST or min(seen) > table.best / SHARE
    method(table.space, measure, **given)
    return judged(table, seen)


def searched(table: Table, seed: int, told: History | None = None, **changes: object) -> Result:
    """Return how the tuner does on a table, with a history and with other settings."""
    settings = Settings(trials=TRIALS, use_default=False, **changes)  # type: ignore[arg-type]
    return replayed(table, search, settings=settings, seed=seed, history=told)


def methods(table: Table, tables: Sequence[Table]) -> dict[str, Callable[[int], Result]]:
    """Return the searches by name; none measures the default first, as random ones do not."""
    others, sizes = apart(table, tables), apart(table, tables, shapes=True)
    past = history(others)
    known = history(sizes) if len(sizes) > len(others) else None

    def model(seed: int, told: History | None = past, **changes: object) -> Result:
        return searched(table, seed, told, **changes)

    def run(method: Callable[..., TuningResult], seed: int) -> Result:
        return replayed(table, method, trials=TRIALS, seed=seed)

    made: dict[str, Callable[[int], Result]] = {}
    if known:
        made["other sizes"] = lambda seed: model(seed, known)
    if find_spec("lightgbm"):  # the extra `tuner`
        boosted = import_module("jitla.tuner.lightgbm_model").LightGbmTrees
        made["lightgbm"] = lambda seed: model(seed, learner=boosted)
    return made | {
        "tuner": model,
        "no transfer": lambda seed: model(seed, None),
        "no estimate": lambda seed: model(seed, use_prior=False),
        "neither": lambda seed: model(seed, None, use_prior=False),
        "trees": lambda seed: model(seed, learner=Trees),
        "trees, squares": lambda seed: model(seed, learner=Trees, loss="square"),
        "neural": lambda seed: model(seed, learner=Neural),
        "not diverse": lambda seed: model(seed, diverse=False),
        "batches of 8": lambda seed: model(seed, batch=8),
        "annealed scores": lambda seed: model(seed, strategy="annealing"),
        "beam of scores": lambda seed: model(seed, strategy="beam"),
        "genetic": lambda seed: run(genetic_search, seed),
        "annealing": lambda seed: run(annealing_search, seed),
        "random": lambda seed: run(random_search, seed),
    }


def samples(table: Table, most: int = HISTORY) -> tuple[np.ndarray, list[float]]:
    """Return structural features and costs of some points of a table."""
    points = [p for p, c in table.costs.items() if c < float("inf")]
    picked = [points[int(i)] for i in np.random.default_rng(0).permutation(len(points))[:most]]
    return features(table.space, picked, structural=True), [table.costs[p] for p in picked]


def history(tables: Sequence[Table], most: int = HISTORY) -> History | None:
    """Learn from some points of other tables."""
    return History.fit([samples(t, most) for t in tables])


def apart(table: Table, tables: Sequence[Table], shapes: bool = False) -> list[Table]:
    """Return tables of other functions; with `shapes` those of other sizes of the same one as well."""
    def of(t: Table) -> str:
        return t.name.split("-")[0]

    return [t for t in tables if t.kind == table.kind and t is not table and (shapes or of(t) != of(table))]


class Orders(NamedTuple):
    """Shares of pairs that are put in order, by history of other functions if nothing else is said."""

    every: float  # of those that differ by 1 %
    apart: tuple[float, ...]  # by more
    beyond: float  # by more than noise
    attainable: float  # by measuring again
    sizes: float  # by history that knows other sizes of the same function as well
    estimate: float  # by the analytic estimate alone


def orders(table: Table, tables: Sequence[Table]) -> Orders:
    """Return how well history of other tables puts the points of one in order, and how well that can be done.

    A point that is measured again takes another time, as far off as noise is: what was measured first puts
    so many pairs of the second times in order.
    """
    x, found = samples(table, len(table.costs))
    costs, rng = np.array(found), np.random.default_rng(0)

    def score(shapes: bool) -> np.ndarray:
        past = history(apart(table, tables, shapes))
        assert past is not None
        made: np.ndarray = past.predict(x) + past.baseline(x)
        return made

    noise = table.noise or 0.0
    again = [accuracy(-np.log(costs) + rng.normal(0, noise / QUARTILES, len(costs)), costs)
             for _ in range(AGAIN)]
    known = score(False)
    return Orders(accuracy(known, costs), tuple(accuracy(known, costs, tie) for tie in TIES),
                  accuracy(known, costs, max(noise, 0.01)), float(np.mean(again)),
                  accuracy(score(True), costs), accuracy(History.baseline(x), costs))


def told(table: Table) -> str:
    """Return what a table is like."""
    worst = max(c for c in table.costs.values() if c < float("inf"))
    return (f"{table.name}: {len(table.costs)} points, {table.good()} within 5 % of the best; default "
            f"{table.usual / table.best:.3f}, estimate's choice {table.costs[table.guess] / table.best:.3f}, "
            f"worst {worst / table.best:.1f} times the best; random needs {table.random_trials():.1f}")


def contest(table: Table, tables: Sequence[Table], seeds: int, only: Sequence[str] = ()
            ) -> Iterator[tuple[str, list[Result]]]:
    """Yield every search with its results on a table, of even seeds; odd ones are for choosing."""
    for name, run in methods(table, tables).items():
        if not only or name in only:
            yield name, [run(seed) for seed in range(0, 2 * seeds, 2)]


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
