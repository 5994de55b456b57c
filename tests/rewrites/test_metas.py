"""Both sides of every rule have one shape and dtype, and mean the same, for many dtypes and shapes."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.hops import Meta, leaf, make
from jitla.rewrites import RULES, SUBSTITUTIONS, Rule, Var, ops
from tests.rewrites.data import same_bits
from tests.rewrites.metas import differs, rewritten

X, Y = Var("X"), Var("Y")


def faults(rule: Rule, each: int) -> list[str]:
    rng = np.random.default_rng(sum(map(ord, rule.name)))
    found = (differs(rule, before, after, rng) for before, after in rewritten(rule, rng, each))
    return [text for text in found if text is not None]


@pytest.mark.parametrize("rule", [*RULES, *SUBSTITUTIONS], ids=lambda r: r.name)
def test_both_sides_have_one_shape_and_dtype(rule: Rule):
    assert not faults(rule, 8)


@pytest.mark.parametrize("rule", [
    Rule("no-cast", ops.logical_xor(ops.logical_not(X), ops.logical_not(Y)), ops.logical_xor(X, Y), doc="d"),
    Rule("other-shape", ops.add(X, Y), ops.add(X, X), doc="d"),
    Rule("other-dtype", ops.absolute(X), ops.positive(X), doc="d"),
    Rule("other-value", ops.subtract(X, Y), ops.subtract(Y, X), doc="d"),
], ids=lambda r: r.name)
def test_rules_without_their_conditions_are_found(rule: Rule):
    assert faults(rule, 60)


def test_a_matrix_product_beside_a_stack_is_summed_as_it_stands():
    """The sum is broadcast: sums of the product alone would be summed once too seldom."""
    a, b, c = (leaf(n, Meta(s, np.dtype("f8"))) for n, s in enumerate([(3, 2), (2, 4), (5, 3, 4)]))
    whole = make("sum", (make("add", (make("matmul", (a, b)), c)),), axis=(0,), keepdims=False)
    assert not list(RULES["sum-of-product-plus"].candidates(whole, lambda hop: False))


@pytest.mark.parametrize("dtype", ["u1", "i8", "b1"])
def test_integers_that_wrap_around_are_searched_shifted(dtype: str):
    x, s = leaf(0, Meta((5,), np.dtype(dtype))), leaf(1, Meta((), np.dtype(dtype)), "scalar")
    for name in ("argmin", "argmax"):
        found = make(name, (make("add", (x, s)),), axis=0, keepdims=False)
        assert not list(RULES[f"{name}-of-shifted-sum"].candidates(found, lambda hop: False))


def test_logarithms_of_complex_exponentials_are_of_one_turn():
    z = leaf(0, Meta((5,), np.dtype("c16")))
    assert not list(RULES["log-of-exp"].candidates(make("log", (make("exp", (z,)),)), lambda hop: False))
    with np.errstate(all="ignore"):
        assert not same_bits(np.log(np.exp(np.array([4j]))), np.array([4j]))
