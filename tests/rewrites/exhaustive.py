"""`python -m tests.rewrites.exhaustive --graphs N --chains M`: searches and chains against all there is."""

from __future__ import annotations

import argparse
import sys
from math import inf

import numpy as np

from jitla.hops import Hop, topo
from jitla.rewrites import SUBSTITUTIONS, SearchBudget
from jitla.rewrites.contractions import FactorSize, cheapest_order, order_price
from jitla.rewrites.rule import may_alias_argument, owns_memory
from jitla.rewrites.search import search
from tests.recompile.test_pipeline import ALL, allowed_states, appraisals
from tests.rewrites.test_matmul_chains import brute_force
from tests.rewrites.test_search import everything, random_products

MOST_STATES = 150
LENGTHS = (30, 250, 1700)
USUAL = SearchBudget(seconds=inf, min_seconds=0.0)


def graphs(count: int, first: int) -> str:
    """Search graphs whose states can all be priced, without limits and with the usual bound."""
    looked = states_in_all = missed = behind = 0
    worst = 1.0
    seed = first
    while looked < count:
        rng = np.random.default_rng(seed)
        seed += 1
        roots = random_products(rng, int(rng.integers(3, 9)), LENGTHS)
        small = sum(bool(h.inputs) for h in topo(roots)) <= 8
        if not small or everything(roots, SUBSTITUTIONS, MOST_STATES) is None:
            continue
        costs = appraisals(roots).of(roots, {})
        states = [s for s in allowed_states(roots, costs, SUBSTITUTIONS) if all(map(as_fresh, roots, s))]
        if len(states) == 1:
            continue
        looked += 1
        best = min(map(costs.price, states))
        missed += search(roots, SUBSTITUTIONS, costs, ALL).after > best / 0.98
        usual = search(roots, SUBSTITUTIONS, costs, USUAL).after / best
        behind += usual > 1 / 0.98
        worst = max(worst, usual)
        states_in_all += len(states)
    return (f"{looked} graphs of {states_in_all} states: the best of all "
            f"missed {missed} times without limits, {behind} times with the usual ones, at most "
            f"{worst:.2f} times as dear")


def as_fresh(old: Hop, new: Hop) -> bool:
    """Return whether a result still owns its memory."""
    if owns_memory(new) or owns_memory(old):
        return owns_memory(new)
    return may_alias_argument(old) or not may_alias_argument(new)


def chains(count: int, first: int) -> str:
    """Order chains of random sizes and densities, and compare with all orders."""
    rng = np.random.default_rng(first)
    wrong = 0
    for n in range(count):
        lengths = [int(i) for i in np.exp(rng.uniform(0, 8, 3 + n % 6))]
        factors = [FactorSize(a, b, None if rng.random() < 0.5 else float(10 ** rng.uniform(-3, 0)) * a * b)
                   for a, b in zip(lengths, lengths[1:], strict=False)]
        least, split = cheapest_order(factors)
        wrong += not np.isclose(least, [brute_force(factors), order_price(factors, split)]).all()
    return f"{count} chains of two to seven factors: {wrong} dearer than the cheapest of all orders"


def main() -> None:
    """Look at both."""
    parser = argparse.ArgumentParser(prog="python -m tests.rewrites.exhaustive", description=__doc__)
    parser.add_argument("--graphs", type=int, default=300)
    parser.add_argument("--chains", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    sys.stdout.write(chains(given.chains, given.first) + "\n")
    sys.stdout.flush()
    sys.stdout.write(graphs(given.graphs, given.first) + "\n")


if __name__ == "__main__":
    main()
