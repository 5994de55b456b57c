"""`python -m tests.rewrites.times --count N`: how long searches take, over real plans of random DAGs."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from time import thread_time

import numpy as np

from jitla.hops import topo
from jitla.rewrites import SUBSTITUTIONS, SearchBudget, minimise_cost, simplify
from tests.recompile.test_pipeline import appraisals
from tests.rewrites.test_search import random_products

OPERATORS = (4, 8, 12, 20, 40, 80)
LENGTHS = (30, 250, 1700)


def timed(seed: int, operators: int, effort: SearchBudget) -> tuple[float, float, int]:
    """Return the milliseconds of the search of a DAG, those of its plan, and how many operators it has."""
    roots = simplify(random_products(np.random.default_rng(seed), operators, LENGTHS))
    costs = appraisals(roots)
    start = thread_time()
    minimise_cost(roots, SUBSTITUTIONS.at("relaxed"), costs.of, effort)
    between = thread_time()
    appraisals(roots).of(roots, {}).price(roots)
    count = sum(bool(h.inputs) for h in topo(roots))
    return (between - start) * 1e3, (thread_time() - between) * 1e3, count


def main() -> None:
    """Time the searches, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.rewrites.times", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--from-us", type=float, default=100.0)
    given = parser.parse_args()
    effort = replace(SearchBudget(), min_seconds=given.from_us * 1e-6)
    timed(0, 12, effort)
    for operators in OPERATORS:
        found = [timed(seed, operators, effort) for seed in range(given.count // len(OPERATORS))]
        *times, left = zip(*found, strict=True)
        told = [" ".join(f"{ms:6.2f}" for ms in np.percentile(t, [0, 50, 99, 100])) for t in times]
        sys.stdout.write(f"{operators:3} operators, {np.mean(left):5.1f} left: {told[0]}   plan: {told[1]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
