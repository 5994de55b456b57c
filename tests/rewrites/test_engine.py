"""The rewrite engine and the named conditions of rules."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest

from jitla.hops import Meta, apply, const, evaluate, leaf, make, show, topo
from jitla.rewrites import RULES, Rule, RuleSet, Var, ops, simplify
from jitla.rewrites.rule import (
    is_droppable,
    is_lossless_cast,
    is_power_of_two,
    may_alias_argument,
    min_reduced_elements,
    owns_memory,
)
from tests.rewrites.programs import close, operands, random_roots, same_bits, signs_matter, values

# The engine: fixpoint, hook, budget, fresh memory, and results under any set of rules.

F8 = np.dtype("f8")
x = leaf(0, Meta((3, 4), F8))
y = leaf(1, Meta((3, 4), F8))
one = const(1, F8)


def neg(hop):
    return make("negative", (hop,))


def test_rules_fire_in_each_others_results():
    hop = make("exp", (neg(make("multiply", (neg(make("divide", (make("sqrt", (x,)), one))), one))),))
    fired = []
    after = simplify((hop,), on_match=lambda rule, old, new: not fired.append(rule.name))
    assert after == (make("exp", (make("sqrt", (x,)),)),)
    assert sorted(fired) == ["div-by-one", "mul-by-one", "neg-of-neg"]


def test_nothing_to_do_returns_the_same_nodes():
    hop = make("exp", (make("add", (x, y)),))
    assert simplify((hop, hop))[0] is hop


def test_the_hook_can_refuse():
    hop = make("exp", (neg(neg(x)),))
    assert simplify((hop,), on_match=lambda rule, old, new: False) == (hop,)
    chain = make("matmul", (make("matmul", (leaf(0, Meta((9, 8), F8)), leaf(1, Meta((8, 7), F8)))),
                            leaf(2, Meta((7,), F8))))
    assert simplify((chain,), on_match=lambda rule, old, new: False) == (chain,)
    assert simplify((chain,)) != (chain,)


def test_before_and_after_of_the_hook_have_one_meaning():
    def hook(rule, old, new):
        assert (old.meta.shape, old.meta.dtype) == (new.meta.shape, new.meta.dtype)
        return True

    simplify((make("std", (make("transpose", (x,), axes=(1, 0)),), axis=(0,), keepdims=True),), on_match=hook)


def test_a_set_that_never_ends_is_stopped(caplog):
    X, Y = Var("X"), Var("Y")
    swap = Rule("swap", ops.subtract(X, Y), ops.negative(ops.subtract(Y, X)), doc="d")
    hop = make("subtract", (x, y))
    with caplog.at_level(logging.WARNING, "jitla"):
        (after,) = simplify((hop,), RuleSet([swap]))
    assert "swap" in caplog.text
    given = [np.ones((3, 4)), np.zeros((3, 4))]
    assert same_bits(evaluate((after,), given)[0], evaluate((hop,), given)[0], zeros=False)


def test_a_long_chain_needs_no_deep_stack():
    hop = make("cos", (x,))
    for _ in range(3000):
        hop = make("sin", (make("multiply", (hop, one)),))
    (after,) = simplify((hop,))
    assert len(topo((after,))) == 3002


@pytest.mark.parametrize("view", [
    lambda h: make("transpose", (h,), axes=(1, 0)), lambda h: make("reshape", (h,), shape=(12,)),
    lambda h: h,
])
def test_a_root_that_was_fresh_never_becomes_an_argument_or_a_view_of_it(view):
    given = [np.arange(12.0).reshape(3, 4)]
    for fresh in (make("multiply", (view(x), one)), view(make("multiply", (x, one)))):
        (after,) = simplify((fresh,))
        (result,) = evaluate((after,), given)
        assert not np.shares_memory(result, given[0])
        assert result.strides == evaluate((fresh,), given)[0].strides
    if view(x) is not x:
        assert simplify((view(x),)) == (view(x),)


def test_a_view_of_fresh_memory_never_becomes_a_view_of_an_argument():
    flat = leaf(0, Meta((12,), F8))
    fresh = make("multiply", (flat, one))
    roots = (fresh, make("transpose", (fresh,), axes=(0,)), make("reshape", (fresh,), shape=(3, 4)))
    given = [np.arange(12.0)]
    results = evaluate(simplify(roots), given)
    assert not any(np.shares_memory(r, given[0]) for r in results)
    assert all(np.shares_memory(r, results[0]) for r in results)


def test_sums_still_see_fresh_memory():
    """The sum of a strided argument has another order than the sum of its copy."""
    big = leaf(0, Meta((300, 350), F8))
    total = make("sum", (make("multiply", (big, one)),), axis=(0, 1), keepdims=False)
    (after,) = simplify((total,))
    data = np.random.default_rng(0).standard_normal((300, 400))[:, :350]
    assert evaluate((after,), [data])[0] == (data * 1).sum() != data.sum()
    wide = leaf(0, Meta((300, 350), np.dtype("i8")))
    total = make("sum", (make("multiply", (wide, const(1, "i8"))),), axis=(0, 1), keepdims=False)
    assert simplify((total,)) == (make("sum", (wide,), axis=(0, 1), keepdims=False),)


def test_weak_scalars_do_not_come_out_as_they_are():
    scalar = leaf(0, Meta((), F8), "weak")
    (result,) = evaluate(simplify((make("multiply", (scalar, one)),)), [3])
    assert isinstance(result, np.float64)


def test_the_users_line_stays():
    # Equal hops that are alive are one hop with one line, so no other test may have a sum of this leaf.
    alone = leaf(7001, Meta((3, 7001), F8))
    hop = make("mean", (alone,), "file.py:7", axis=(0, 1), keepdims=False)
    (after,) = simplify((hop,))
    new = [h for h in topo((after,)) if h.inputs]
    assert new and {h.line for h in new} <= {"file.py:7"}


@pytest.mark.parametrize("level", ["strict", "numpy", "relaxed"])
@pytest.mark.parametrize("seed", range(60))
def test_any_set_of_rules_gives_the_same_results(level: str, seed: int):
    rng = np.random.default_rng(seed)
    roots = random_roots(rng)
    exact = level == "strict"
    given = operands(roots, rng, special=exact)
    wanted = values(roots, given)
    allowed = RULES.at(level)
    for share in (1.0, 0.5, 0.2):
        names = [r.name for r in allowed if rng.random() < share]
        after = simplify(roots, allowed.only(*names))
        for x0, x1 in zip(wanted, values(after, given), strict=True):
            same = same_bits(x0, x1, signs_matter(roots)) if exact else close(x0, x1)
            assert same, show(roots) + show(after)


def test_the_order_of_roots_and_shapes_stay():
    rng = np.random.default_rng(7)
    for _ in range(30):
        roots = random_roots(rng)
        after = simplify(roots, RULES)
        assert [(r.meta.shape, r.meta.dtype) for r in roots] == [(r.meta.shape, r.meta.dtype) for r in after]


def test_rewriting_again_changes_nothing():
    rng = np.random.default_rng(11)
    for _ in range(60):
        after = simplify(random_roots(rng))
        assert simplify(after) == after, show(after)


def test_promotion_is_not_lost():
    small = leaf(0, Meta((5,), np.dtype("i1")))
    hop = apply("multiply", small, const(1, "i4"))
    (after,) = simplify((hop,))
    assert after.meta.dtype == np.int32


# The named conditions, against brute force where they are about values.

DTYPES = [np.dtype(c) for c in "?bBhHiIqQefdg"]


def samples(dtype: np.dtype) -> np.ndarray:
    """Values at the edges of a dtype, and all of it where it is small."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        edges = {info.min, info.max, *(s * 2**k + d for k in range(64) for s in (1, -1) for d in (-1, 0, 1))}
        return np.array([e for e in sorted(edges) if info.min <= e <= info.max], dtype)
    info = np.finfo(dtype)
    edges = [0.0, -0.0, 1.0, -1.5, info.max, info.min, info.tiny, info.smallest_subnormal, np.inf, -np.inf,
             np.nan, 1 + info.eps, 127.0, 128.0, 255.0, 65504.0]
    with np.errstate(over="ignore"):
        return np.array([dtype.type(e) for e in edges])


@pytest.mark.parametrize(("old", "new"), list(itertools.product(DTYPES, DTYPES)), ids=str)
def test_what_widens_keeps_every_value(old: np.dtype, new: np.dtype):
    given = samples(old)
    with np.errstate(all="ignore"):
        there = given.astype(new)
        lossless = same_bits(there.astype(old), given)
        if old.kind in "iu" and new.kind in "iu":
            lossless = lossless and all(int(a) == int(b) for a, b in zip(given, there, strict=True))
    if is_lossless_cast(old, new):
        assert lossless
    elif new.kind != "b" and (old.kind, new.kind) not in {("f", "i"), ("f", "u")}:
        assert not lossless


@pytest.mark.parametrize("old", DTYPES, ids=str)
def test_casts_that_are_skipped_did_nothing(old: np.dtype):
    rules = RULES.only("cast-of-cast")
    given = samples(old)
    source = leaf(0, Meta(given.shape, old))
    for middle, new in itertools.product(DTYPES, DTYPES):
        hop = make("cast", (make("cast", (source,), dtype=middle),), dtype=new)
        (after,) = simplify((hop,), rules)
        if after is not hop:
            assert same_bits(values((hop,), [given])[0], values((after,), [given])[0]), (middle, new)


@pytest.mark.parametrize(("value", "yes"), [
    (2.0, True), (-0.25, True), (1.0, True), (3.0, False), (0.0, False), (np.inf, False), (np.nan, False),
    (2.0**1022, True), (2.0**1023, False), (2.0**-1022, True), (2.0**-1023, False),
])
def test_powers_of_two_have_exact_reciprocals(value: float, yes: bool):
    assert is_power_of_two(np.float64(value)) is yes


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_quotients_by_powers_of_two_are_products(dtype: str):
    rng = np.random.default_rng(0)
    info = np.finfo(dtype)
    with np.errstate(over="ignore"):
        scale = 2.0 ** rng.integers(info.minexp, info.maxexp, 3000)
        data = (rng.standard_normal(3000) * scale).astype(dtype)
    with np.errstate(all="ignore"):
        for k in range(info.minexp, -info.minexp + 1):
            divisor = np.dtype(dtype).type(2.0**k)
            if is_power_of_two(divisor):
                assert same_bits(data / divisor, data * (1 / divisor)), k


def test_memory_of_its_own():
    fresh, view = apply("exp", x), make("transpose", (x,), axes=(1, 0))
    assert owns_memory(fresh) and not owns_memory(view) and not owns_memory(x)
    assert owns_memory(const(1, F8)) and owns_memory(leaf(0, Meta((), F8), "scalar"))
    assert not owns_memory(leaf(0, Meta((), F8), "weak"))
    assert may_alias_argument(view) and may_alias_argument(x)
    assert not may_alias_argument(make("ravel", (fresh,)))


def test_operations_that_raise_no_flags_are_droppable():
    compared = apply("less", x, const(0, F8))
    assert is_droppable(compared) and is_droppable(apply("logical_not", compared))
    assert not is_droppable(apply("less", apply("log", x), const(0, F8)))
    deep = x
    for _ in range(300):
        deep = apply("negative", deep)
    assert not is_droppable(deep)


def test_counts_hold_for_a_whole_class_of_sizes():
    assert [min_reduced_elements(x, axis) for axis in ((), (0,), (0, 1))] == [1, 2, 4]
    assert min_reduced_elements(leaf(0, Meta((0, 5), F8)), (0, 1)) == 0
    assert min_reduced_elements(leaf(0, Meta((1, 5), F8)), (0, 1)) == 2
