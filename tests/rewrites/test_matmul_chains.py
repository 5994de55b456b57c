"""Product chains: the order found is the best of all orders."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.hops import Hop, Meta, leaf, make, topo
from jitla.rewrites import RULES, simplify
from jitla.rewrites.contractions import (
    MAX_COST_RATIO,
    FactorSize,
    cheapest_order,
    order_chains,
    order_price,
    product_price,
    product_size,
)
from tests.rewrites.programs import close, operands, values

# Product chains: the order found is the best of all orders.

CHAIN = RULES.only("matmul-chain")
F8 = np.dtype("f8")


def work(hop: Hop) -> float:
    """What all products below `hop` take, each node once."""
    return sum(product_price(*(sized(i, at) for at, i in enumerate(h.inputs)))
               for h in topo((hop,)) if h.op.name == "matmul")


def sized(hop: Hop, at: int) -> FactorSize:
    shape = hop.meta.shape
    return FactorSize(*(shape if len(shape) == 2 else (1, *shape) if at == 0 else (*shape, 1)))


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
    margin = best / MAX_COST_RATIO
    for given in (every[0], every[-1], every[int(rng.integers(len(every)))]):
        (after,) = simplify((given,), CHAIN)
        assert work(after) <= margin if after is given else work(after) == pytest.approx(best)
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


def brute_force(factors: list[FactorSize]) -> float:
    """The least price of all orders; what is known of a product is found from the left."""
    if len(factors) == 1:
        return 0.0
    def joined(part: list[FactorSize]) -> FactorSize:
        found = part[0]
        for factor in part[1:]:
            found = product_size(found, factor)
        return found
    parts = [(factors[:k], factors[k:]) for k in range(1, len(factors))]
    return min(brute_force(x) + brute_force(y) + product_price(joined(x), joined(y)) for x, y in parts)


@pytest.mark.parametrize("count", range(2, 8))
def test_chains_with_sizes_and_densities_are_ordered_as_brute_force_does(count: int):
    rng = np.random.default_rng(count)
    for _ in range(40):
        lengths = [int(n) for n in np.exp(rng.uniform(0, 8, count + 1))]
        factors = [FactorSize(m, n, None if rng.random() < 0.5 else float(10 ** rng.uniform(-3, 0)) * m * n)
                   for m, n in zip(lengths, lengths[1:], strict=False)]
        least, split = cheapest_order(factors)
        assert least == pytest.approx(brute_force(factors))
        assert order_price(factors, split) == pytest.approx(least)


def test_what_is_stored_decides():
    """Two sparse factors first, though lengths alone say otherwise."""
    dense, sparse = FactorSize(100, 100), FactorSize(100, 100, 50.0)
    assert cheapest_order([dense, sparse, sparse])[1][0, 2] == 0
    assert cheapest_order([sparse, sparse, dense])[1][0, 2] == 1


def matrices(*shapes: tuple[int, ...]) -> list[Hop]:
    return [leaf(i, Meta(s, F8)) for i, s in enumerate(shapes)]


def turned(hop: Hop) -> Hop:
    return make("transpose", (hop,), axes=(1, 0))


def same_values(before: Hop, after: Hop) -> bool:
    data = operands((before,), np.random.default_rng(0), special=False)
    return close(values((before,), data)[0], values((after,), data)[0])


def test_a_transposed_product_is_part_of_the_chain():
    a, b, v = matrices((90, 80), (80, 70), (90,))
    before = make("matmul", (turned(make("matmul", (a, b))), v))
    (after,) = simplify((before,), CHAIN)
    assert after is make("matmul", (turned(b), make("matmul", (turned(a), v))))
    assert same_values(before, after)


def test_a_product_of_transposes_within_a_transpose():
    a, b, c = matrices((60, 50), (60, 40), (50, 2))
    inner = turned(make("matmul", (turned(b), a)))
    before = make("matmul", (turned(inner), c))
    (after,) = simplify((before,), CHAIN)
    assert after is make("matmul", (turned(b), make("matmul", (a, c))))
    assert same_values(before, after)


@pytest.mark.parametrize("row", [(1, 80), (80,)])
@pytest.mark.parametrize("last", [(80,), (80, 3)])
def test_a_column_times_a_row_is_never_formed(row: tuple[int, ...], last: tuple[int, ...]):
    e, u, p = matrices((90, 1), row, last)
    before = make("matmul", (make("multiply", (e, u)), p))
    (after,) = simplify((before,), CHAIN)
    assert max(h.meta.size for h in topo((after,))) <= 90 * 3
    assert same_values(before, after)


def test_a_column_times_a_row_that_is_needed_stays():
    e, u, p = matrices((90, 1), (1, 80), (80,))
    outer = make("multiply", (e, u))
    roots = (make("matmul", (outer, p)), outer)
    assert simplify(roots, CHAIN) == roots


def compressed(rows: int, entries: int, slot: int = 10) -> tuple[Hop, Hop, Hop]:
    index = np.dtype(np.int32)
    return (leaf(slot, Meta((entries,), F8)), leaf(slot + 1, Meta((entries,), index)),
            leaf(slot + 2, Meta((rows + 1,), index)))


@pytest.mark.parametrize("entries", [400, 8000])
def test_compressed_rows_meet_the_vector_first(entries: int):
    rows = compressed(100, entries)
    a, v = matrices((90, 80), (80,))
    (after,) = simplify((make("matmul", (make("csr_product", (*rows, a)), v)),), CHAIN)
    assert after is make("csr_vector", (*rows, make("matmul", (a, v))))


def test_how_much_is_stored_decides_the_order():
    rows = compressed(1000, 8000)
    a, b = matrices((20, 2), (2, 70))
    before = make("csr_product", (*rows, make("matmul", (a, b))))
    after = make("matmul", (make("csr_product", (*rows, a)), b))

    def agree(rule, old: Hop, new: Hop) -> bool:
        return True

    few, many = (order_chains((before,), agree, lambda hop, n=n: n) for n in (200, 8000))
    assert few == (before,) and many == (after,)


def test_compressed_rows_are_not_turned_nor_put_behind():
    rows = compressed(100, 400)
    a, v = matrices((2, 100), (100,))
    product = make("csr_product", (*rows, leaf(3, Meta((90, 80), F8))))
    roots = (make("matmul", (turned(product), v)),)
    assert simplify(roots, CHAIN) == roots
    roots = (make("matmul", (a, product)),)
    assert simplify(roots, CHAIN) == roots
