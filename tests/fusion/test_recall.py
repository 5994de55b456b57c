"""Partitions searched before: a key without exact sizes, a plan that is priced and checked again."""

from __future__ import annotations

import random

import numpy as np
import pytest

from jitla.fusion import PartitionCache, format_plan, plan
from jitla.fusion.planner import (
    partition_key,
    search_all,
)
from jitla.hops import Hop, Meta, apply, leaf, make
from tests.fusion.dags import joined_dag
from tests.fusion.exhaustive import prepared

F8 = np.dtype("f8")


def softmax(slot: int, n: int, k: int) -> tuple[Hop, Hop]:
    """Exponentials and their share of a row."""
    x = leaf(slot, Meta((n, k), F8))
    e = apply("exp", apply("subtract", x, apply("max", x, axis=(1,), keepdims=True)))
    return e, apply("divide", e, apply("sum", e, axis=(1,), keepdims=True))


def found_for(*roots: Hop, partition_cache: PartitionCache):
    memo, kernels, parts = prepared((roots, {}))
    return search_all(parts, memo, kernels, partition_cache=partition_cache)


def test_another_program_with_an_equal_partition_hits():
    partition_cache = PartitionCache()
    first = found_for(softmax(0, 3000, 40)[1], partition_cache=partition_cache)
    assert partition_cache.hits == 0 and len(partition_cache) == 1 and not first[0].from_cache
    beside = apply("sum", leaf(0, Meta((7000,), F8)), axis=(0,), keepdims=False)
    second = found_for(beside, softmax(1, 3000, 40)[1], partition_cache=partition_cache)
    (again,) = [f for f in second if f.from_cache]
    assert partition_cache.hits == 1 and again.costed == 0
    assert again.seconds == pytest.approx(first[0].seconds, rel=0.3)  # more is read meanwhile
    assert len(again.kernels) == len(first[0].kernels)


def test_sizes_count_by_powers_of_two():
    partition_cache = PartitionCache()
    for n in (2100, 2500, 300_000, 2101):
        found_for(softmax(0, n, 40)[1], partition_cache=partition_cache)
    assert partition_cache.hits == 2 and len(partition_cache) == 2


def test_what_is_asked_for_is_in_the_key():
    partition_cache = PartitionCache()
    e, share = softmax(0, 3000, 40)
    found_for(share, partition_cache=partition_cache)
    found_for(e, share, partition_cache=partition_cache)
    assert partition_cache.hits == 0


def test_plans_are_the_same_with_what_is_known():
    partition_cache = PartitionCache()
    for seed in range(40):
        roots, layouts = joined_dag(random.Random(seed), 8)
        fresh = format_plan(plan(roots, layouts, lambda hop: None))
        for _ in range(2):
            again = plan(roots, layouts, lambda hop: None, partition_cache=partition_cache)
            assert format_plan(again) == fresh, seed
    assert partition_cache.hits >= 20


def test_few_are_kept():
    partition_cache = PartitionCache(limit=3)
    for k in range(2, 12):
        e, share = softmax(0, 3000, 40)
        found_for(make("power", [share, leaf(1, Meta((), F8), "scalar")]) if k % 2 else share,
                  *[apply(name, e) for name in ("sqrt", "tanh", "square")[:k % 4]],
                  partition_cache=partition_cache)
    assert len(partition_cache) == 3


def test_keys_do_not_depend_on_what_else_is_planned():
    memo, kernels, parts = prepared(((softmax(0, 3000, 40)[1],), {}))
    x = leaf(0, Meta((5,), F8))
    other, others, rest = prepared(((apply("add", x, x), softmax(1, 3000, 40)[1]), {}))
    keys = {partition_key(p, m, c)[0] for p, m, c in (
        (parts[0], memo, kernels), *((p, other, others) for p in rest if p.points))}
    assert len(keys) == 1
