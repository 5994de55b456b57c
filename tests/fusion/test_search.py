"""The search finds what trying everything finds; what it prefers does not hang on the prices' digits."""

from __future__ import annotations

import random
from math import isclose

import numpy as np
import pytest

from jitla.fusion import Facts, all_layouts
from jitla.fusion.candidates import Candidates
from jitla.fusion.memo import Memo
from jitla.fusion.points import partitions
from jitla.fusion.price import Prices
from jitla.fusion.search import Search
from jitla.hops import REFERENCE, Meta, apply, leaf
from tests.fusion.dags import random_dag


def searches(seed: int, hops: int, prune: bool):
    """Run the search of every partition of a random DAG."""
    roots, layouts = random_dag(random.Random(seed), hops)
    facts = Facts(lambda hop: None, all_layouts(roots, layouts))
    memo = Memo(roots, facts)
    kernels = Candidates(memo, Prices(REFERENCE, facts.layouts))
    return [Search(p, memo, kernels, prune=prune) for p in partitions(memo, kernels)]


@pytest.mark.parametrize("first", range(0, 600, 50))
def test_equal_to_trying_everything(first):
    points = []
    for seed in range(first, first + 50):
        pruned = [s.run() for s in searches(seed, 3 + seed % 10, True)]
        for found, search in zip(pruned, searches(seed, 3 + seed % 10, False), strict=True):
            if len(found.partition.points) > 8:
                continue
            every = search.run()
            assert isclose(found.seconds, every.seconds, rel_tol=1e-9), seed
            assert every.costed == 1 << len(found.partition.points)
            points.append(len(found.partition.points))
    assert max(points) >= 3


def test_the_budget_holds_within_one_choice_of_points():
    x = leaf(0, Meta((1000,), np.dtype(np.float64)))
    y = apply("divide", x, apply("sum", x, axis=(0,), keepdims=True))
    roots = [apply("sum", apply(name, of), axis=(0,), keepdims=False)
             for of in (x, y) for name in ("isnan", "exp", "square", "floor", "sqrt", "sin", "sign")]
    facts = Facts(lambda hop: None, all_layouts(roots, {}))
    memo = Memo(roots, facts)
    kernels = Candidates(memo, Prices(REFERENCE, facts.layouts))
    for partition in partitions(memo, kernels):
        search = Search(partition, memo, kernels, budget=20).run()
        assert len(search.kernels) > 1 and search.spent
    first_descent = len(roots) * (len(roots) + 1) // 2
    assert kernels.priced < 20 + 2 * first_descent
