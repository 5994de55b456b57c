"""Whether the plan that is predicted to be best is: all plans of small blocks are run.

Inner parts used: `ENGINE` of jitla, whose compiler is made to follow a plan, and `jitla.fusion`.
Plans are run in turn; the least of many runs counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np

import jitla
from jitla.config import current
from jitla.engine import ENGINE
from jitla.fusion import (
    PartitionCache,
    all_layouts,
    planner,
)
from jitla.fusion.candidates import Candidates
from jitla.fusion.enumeration import EnumerationResult, Partition, Search
from jitla.fusion.memo import Memo
from jitla.fusion.planner import search_all

Array = np.ndarray


def hinge(X: Array, y: Array, a: Array) -> tuple[Array, float]:
    out = np.maximum(1.0 - y * a, 0.0)
    return out * y, (out * out).sum()


def logistic(X: Array, y: Array, a: Array) -> tuple[Array, float]:
    p = 1.0 / (1.0 + np.exp(-(X @ X[0])))
    return X.T @ (p - y), (p * (1.0 - p)).sum()


def softmax(X: Array, y: Array, a: Array) -> Array:
    e = np.exp(X - X.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def columns(X: Array, y: Array, a: Array) -> tuple[Array, Array, Array]:
    d = X - X.mean(axis=0)
    return d.sum(axis=0), (d * d).sum(axis=0), np.abs(d).max(axis=0)


def weighted(X: Array, y: Array, a: Array) -> Array:
    return X.T @ (y * (X @ X[0]))


def residuals(X: Array, y: Array, a: Array) -> tuple[float, float, float]:
    r = y - a
    s = np.sqrt(r * r + 1.0)
    return (r * r).sum(), s.sum(), (r / s).sum()


def distances(X: Array, y: Array, a: Array) -> tuple[Array, Array]:
    n = (X * X).sum(axis=1)
    return np.sqrt(n) * y, X / np.sqrt(n)[:, None]


def huber(X: Array, y: Array, a: Array) -> tuple[Array, float, Array]:
    r = np.tanh(y - a)
    w = np.minimum(1.0, 1.345 / np.maximum(np.abs(r), 1e-9))
    return w, (w * r * r).sum(), w * r


CASES: dict[str, Callable[..., Any]] = {
    "hinge loss": hinge, "logistic step": logistic, "softmax": softmax, "column statistics": columns,
    "X.T @ (w * (X @ v))": weighted, "sums of residuals": residuals, "row norms": distances, "huber": huber}


def blocks(function: Callable[..., Any], arguments: Sequence[Any]) -> list[tuple[Any, list[Any]]]:
    """Return what is known of the blocks that a function runs before they are rewritten, and their leaves."""
    noted: list[tuple[Any, list[Any]]] = []
    bind = ENGINE.bind

    def noting(*given: Any) -> Any:
        bound, reason = bind(*given)
        run = bound.run

        def once(leaves: Sequence[Any]) -> Any:
            noted.append((bound.program.stages[0].draft, list(leaves)))
            return run(leaves)

        bound.run = once
        return bound, reason

    ENGINE.bind = noting  # type: ignore[method-assign]
    try:
        ENGINE.compiler(current()).clear()
        jitla.jit(function, compile="sync")(*arguments)
    finally:
        ENGINE.bind = bind  # type: ignore[method-assign]
    return noted


class Plans:
    """All choices of points of a block: the searches of its partitions, tried one choice after the other."""

    def __init__(self, draft: Any) -> None:
        self.compiler = ENGINE.compiler(current())
        self.draft = draft
        self.searches: list[Search] = []
        self.chosen: list[int] = []
        self.wanted: Sequence[int] | None = None
        self.build(None)

    def every(self) -> Iterator[tuple[int, ...]]:
        """Return all choices, one set of values per partition."""
        subsets = []
        for s in self.searches:
            points = s.partition.points
            subsets.append([sum(1 << p for p in some) for n in range(len(points) + 1)
                            for some in combinations(points, n)])
        return product(*subsets)

    def build(self, wanted: Sequence[int] | None) -> Any:
        """Return the program that keeps `wanted`, of the plan that is best if there is none."""
        self.wanted = wanted
        real = planner.search_all
        planner.search_all = self._search  # type: ignore[assignment]
        try:
            d = self.draft
            return self.compiler.build(d.roots, d.layouts, d.outs, d.aliases)
        finally:
            planner.search_all = real

    def _search(
        self, parts: Sequence[Partition], memo: Memo, kernels: Candidates, budget: float,
        recall: PartitionCache | None,
    ) -> list[EnumerationResult]:
        if kernels.in_cache:
            return search_all(parts, memo, kernels, budget)
        self.searches = [Search(p, memo, kernels) for p in parts]
        if self.wanted is None:
            found = [s.run() for s in self.searches]
            self.chosen = [f.chosen for f in found]
            return found
        return [EnumerationResult(s.partition, *_kept(s, kept))
                for s, kept in zip(self.searches, self.wanted, strict=True)]


class Impossible(Exception):
    """With such a choice something has no kernel that may make it."""


def _kept(search: Search, kept: int) -> tuple[float, int, Any]:
    memory = search.kernels.in_memory(kept)
    found = search.groups.arrange(search.results & memory, memory)
    if found is None:
        raise Impossible
    return found[0], kept, found[1]


def ranked(
    function: Callable[..., Any], arguments: Sequence[Any], rounds: int, clock: Callable[[], float],
) -> dict[str, Any]:
    """Run all plans of the largest block of a function in turn."""
    every = blocks(function, arguments)
    draft, leaves = max(every, key=lambda b: len(all_layouts(b[0].roots, b[0].layouts)))
    plans = Plans(draft)
    chosen = tuple(plans.chosen)
    bound = {}
    for choice in plans.every():
        try:
            program = plans.build(choice)
        except Impossible:
            continue
        bound[choice] = program.bind(program.identity(), draft.layouts)
    taken: dict[Any, list[float]] = {choice: [] for choice in bound}
    for _ in range(rounds):
        for choice, program in bound.items():
            program.run(leaves)  # what another plan left in the caches is not its own
            start = clock()
            program.run(leaves)
            taken[choice].append(clock() - start)
    least = {choice: min(some) for choice, some in taken.items()}
    best = min(least, key=least.__getitem__)
    return {
        "plans": len(bound), "rank": 1 + sum(t < least[chosen] for t in least.values()),
        "ratio": least[chosen] / least[best], "chosen": least[chosen], "best": least[best],
        "worst": max(least.values()),
        "ties": sum(t < 1.02 * least[best] for t in least.values())}


def main() -> None:
    """Print a line for every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    rng = np.random.default_rng(5)
    arguments = [rng.random((given.rows, 20)), rng.random(given.rows), rng.random(given.rows)]
    rows = {}
    print(f"{'':22}{'plans':>6}{'rank':>6}{'within 2 %':>11}{'chosen us':>11}{'best us':>10}"
          f"{'worst us':>10}{'ratio':>7}")
    # with one thread, only the processor's time counts, not that of other programs
    clock = time.thread_time if given.threads == 1 else time.perf_counter
    with jitla.options(num_threads=given.threads):
        jitla.calibrate()
        for name, function in CASES.items():
            r = rows[name] = ranked(function, arguments, given.rounds, clock)
            print(f"{name:22}{r['plans']:6}{r['rank']:6}{r['ties']:11}{r['chosen'] * 1e6:11.0f}"
                  f"{r['best'] * 1e6:10.0f}{r['worst'] * 1e6:10.0f}{r['ratio']:7.2f}")
    print(json.dumps({"bench": "ranks", "rows": rows}))


if __name__ == "__main__":
    main()
