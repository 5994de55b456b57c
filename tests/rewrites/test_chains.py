"""Product chains: the order found is the best of all orders."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.hops import Hop, Meta, leaf, make, topo
from jitla.rewrites import RULES, simplify
from tests.rewrites.data import close, operands, values

CHAIN = RULES.only("matmul-chain")
F8 = np.dtype("f8")


def work(hop: Hop) -> int:
    """Multiplications of all products below `hop`, each node once."""
    return sum(h.inputs[0].meta.size * (h.inputs[1].meta.shape[1] if h.inputs[1].meta.ndim == 2 else 1)
               for h in topo((hop,)) if h.op.name == "matmul")


def orders(factors: list[Hop]) -> list[Hop]:
    """Every way to put brackets."""
    if len(factors) == 1:
        return factors
    return [make("matmul", (left, right)) for k in range(1, len(factors))
            for left in orders(factors[:k]) for right in orders(factors[k:])]


def factors_of(lengths: list[int], first_is_vector: bool, last_is_vector: bool) -> list[Hop]:
    shapes = [(a, b) for a, b in zip(lengths, lengths[1:], strict=False)]
    if first_is_vector:
        shapes[0] = shapes[0][1:]
    if last_is_vector:
        shapes[-1] = shapes[-1][:1]
    return [leaf(i, Meta(s, F8)) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("seed", range(40))
def test_the_best_of_all_orders_is_found(seed: int):
    rng = np.random.default_rng(seed)
    lengths = [int(n) for n in rng.integers(2, 30, rng.integers(4, 7))]
    ends = [bool(b) for b in rng.random(2) < 0.4]
    lengths[0], lengths[-1] = (1 if ends[0] else lengths[0]), (1 if ends[1] else lengths[-1])
    every = orders(factors_of(lengths, *ends))
    best = min(map(work, every))
    for given in (every[0], every[-1], every[int(rng.integers(len(every)))]):
        (after,) = simplify((given,), CHAIN)
        assert work(after) == best
        assert after is given or work(given) > best
        data = operands((given,), rng, special=False)
        assert close(values((given,), data)[0], values((after,), data)[0])


def test_chains_inside_chains_are_all_ordered():
    a, b, v = (leaf(i, Meta(s, F8)) for i, s in enumerate([(9, 8), (8, 9), (9,)]))
    first = make("exp", (make("matmul", (make("matmul", (a, b)), v)),))
    c, d = (leaf(i, Meta(s, F8)) for i, s in ((3, (9, 8)), (4, (8, 9))))
    second = make("matmul", (make("matmul", (c, d)), first))
    (after,) = simplify((second,), CHAIN)
    assert work(after) < work(second)
    shapes = {h.meta.shape for h in topo((after,)) if h.op.name == "matmul"}
    assert shapes == {(9,), (8,)}


def test_a_chain_through_transposes_and_its_sum():
    x, w = leaf(0, Meta((50, 8), F8)), leaf(1, Meta((8,), F8))
    gram = make("matmul", (make("transpose", (x,), axes=(1, 0)), x))
    (after,) = simplify((make("matmul", (gram, w)),))
    assert {h.meta.shape for h in topo((after,)) if h.op.name == "matmul"} == {(50,), (8,)}


def test_a_long_chain_is_quick():
    lengths = [int(n) for n in np.random.default_rng(0).integers(2, 50, 61)]
    hop, *rest = factors_of(lengths, False, False)
    for factor in rest:
        hop = make("matmul", (hop, factor))
    (after,) = simplify((hop,), CHAIN)
    assert work(after) <= work(hop)
