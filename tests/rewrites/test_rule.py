"""Rules are checked when they are made and when they fire; sets are found by root and level."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.errors import InternalError
from jitla.hops import Meta, leaf, make
from jitla.rewrites import RULES, Num, Rule, RuleSet, Var, ops, simplify
from jitla.tracing import LITERAL_VALUES

X, Y = Var("X"), Var("Y")
x = leaf(0, Meta((3, 4), np.dtype("f8")))


@pytest.mark.parametrize(("arguments", "message"), [
    ({"right": X}, "no doc line"),
    ({"right": Y, "doc": "d"}, r"\['Y'\] occur only on its right"),
    ({"doc": "d"}, "exactly one of"),
    ({"right": X, "build": lambda root, b: root, "doc": "d"}, "exactly one of"),
    ({"right": X, "doc": "d", "exactness": "about"}, "no exactness 'about'"),
    ({"right": X, "doc": "d", "when": lambda root, b: True}, "condition has no name"),
])
def test_a_bad_rule_is_refused(arguments, message):
    with pytest.raises(InternalError, match=message):
        Rule("bad", ops.negative(X), **arguments)


@pytest.mark.parametrize("numerics", ["strict", "numpy", "relaxed"])
def test_what_tracing_notes_is_what_rules_ask_for(numerics):
    assert LITERAL_VALUES[numerics] == RULES.at(numerics).matched_numbers


def test_names_are_unique():
    rule = Rule("same", ops.negative(X), ops.negative(X), doc="d")
    with pytest.raises(InternalError, match="'same'"):
        RuleSet([rule, rule])
    assert len({r.name for r in RULES}) == len(RULES)


def test_a_rule_must_not_change_the_shape():
    rule = Rule("wrong-shape", ops.negative(X), ops.transpose(X, axes=(1, 0)), doc="d")
    with pytest.raises(InternalError, match=r"wrong-shape.*\(3, 4\).*\(4, 3\)"):
        simplify((make("negative", (x,)),), RuleSet([rule]))


def test_a_rule_must_not_change_the_dtype():
    rule = Rule("wrong-dtype", ops.negative(X), ops.isnan(X), doc="d")
    with pytest.raises(InternalError, match="wrong-dtype.*float64.*bool"):
        simplify((make("negative", (x,)),), RuleSet([rule]))


def test_levels_nest():
    names = [{r.name for r in RULES.at(level)} for level in ("strict", "numpy", "relaxed")]
    assert names[0] < names[1] < names[2] == {r.name for r in RULES}
    assert "sum-of-product" in names[1] - names[0]
    assert "factor-out" in names[2] - names[1]


def test_sets_add_and_select():
    pair = RULES.only("neg-of-neg", "matmul-chain")
    assert [r.name for r in pair] == ["neg-of-neg", "matmul-chain"]
    assert [r.name for r in pair.whole_dag] == ["matmul-chain"]
    single_use = make("negative", (x,))
    assert [r.name for r in pair.rules_for(make("negative", (single_use,)))] == ["neg-of-neg"]
    assert list(pair.rules_for(single_use)) == []
    assert len(RULES.without("neg-of-neg")) == len(RULES) - 1
    assert len(pair + RULES.only("mul-by-one")) == 3
    assert RULES["mul-by-one"].right == X
    assert Num(1) in RULES["mul-by-one"].left.args


def test_rules_below_exact_say_what_they_may_change():
    for rule in RULES:
        assert rule.doc[-1] != "." and len(rule.doc) > 5
        if rule.exactness != "exact":
            assert rule.doc.count(";") + rule.doc.count(",") >= 1 or "same" in rule.doc, rule.name
