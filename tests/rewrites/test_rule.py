"""The pattern language, and the checks of rules when they are made and when they are applied."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.errors import InternalError
from jitla.hops import Meta, const, leaf, make
from jitla.rewrites import (
    RULES,
    AnyConst,
    AttrVar,
    Num,
    Rule,
    RuleSet,
    Var,
    ops,
    simplify,
    single_use,
)
from jitla.rewrites.rule import bound_names, instantiate, is_same_number, matches
from jitla.tracing import LITERAL_VALUES

# The pattern language: matching, commutativity, constants, building.

X, Y = Var("X"), Var("Y")
F8 = np.dtype("f8")
x, y = (leaf(i, Meta((3, 4), F8)) for i in (0, 1))


def all_matches(pattern, hop, shared=()):
    return list(matches(pattern, hop, {}, set(shared).__contains__))


def test_a_variable_matches_anything_and_itself_again():
    assert all_matches(ops.subtract(X, Y), make("subtract", (x, y))) == [{"X": x, "Y": y}]
    assert all_matches(ops.subtract(X, X), make("subtract", (x, y))) == []
    assert all_matches(ops.subtract(X, X), make("subtract", (x, x))) == [{"X": x}]


def test_commuting_operands_match_in_both_orders():
    hop = make("add", (x, make("negative", (y,))))
    assert all_matches(ops.add(ops.negative(X), Y), hop) == [{"X": y, "Y": x}]
    assert len(all_matches(ops.add(X, Y), hop)) == 2
    assert len(all_matches(ops.add(X, Y), make("add", (x, x)))) == 1
    assert all_matches(ops.subtract(ops.negative(X), Y), make("subtract", (x, hop))) == []


def test_a_wrong_first_choice_is_taken_back():
    deep = make("multiply", (make("negative", (x,)), make("negative", (y,))))
    pattern = ops.multiply(ops.negative(X), ops.negative(Y))
    assert {(m["X"], m["Y"]) for m in all_matches(pattern, deep)} == {(x, y), (y, x)}


def test_attributes_bind_and_compare():
    total = make("sum", (x,), axis=(0,), keepdims=False)
    axis = AttrVar("axis")
    assert all_matches(ops.sum(X, axis=axis), total) == [{"X": x, "axis": (0,)}]
    assert all_matches(ops.sum(X, axis=(1,)), total) == []
    assert all_matches(ops.sum(X, keepdims=False), total) == [{"X": x}]
    assert all_matches(ops.sum(X, keepdims=0), total) == []
    twice = make("flip", (make("flip", (x,), axis=(0,)),), axis=(1,))
    assert all_matches(ops.flip(ops.flip(X, axis=axis), axis=axis), twice) == []


def test_once_wants_a_node_of_its_own():
    inner = make("negative", (x,))
    pattern = ops.negative(single_use(ops.negative(X)))
    assert all_matches(pattern, make("negative", (inner,)))
    assert not all_matches(pattern, make("negative", (inner,)), shared=[inner])


@pytest.mark.parametrize(("found", "wanted", "same"), [
    (np.float64(0.0), 0, True), (np.float64(-0.0), 0, False), (np.float64(-0.0), -0.0, True),
    (np.int32(0), -0.0, True), (np.float32(2.0), 2, True), (np.float64(2.5), 2, False),
    (np.bool_(True), True, True), (np.bool_(True), 1, False), (np.int8(1), True, False),
    (np.float64("nan"), 1, False), (np.complex128(1), 1, False), (np.uint8(255), -1, False),
])
def test_constants_match_by_value_and_sign_of_zero(found, wanted, same):
    assert is_same_number(found, wanted) is same


def test_a_constant_is_no_array_and_no_argument():
    one = const(1, F8)
    assert all_matches(ops.multiply(X, Num(1)), make("multiply", (x, one))) == [{"X": x}]
    argument = leaf(2, Meta((), F8), "weak")
    assert all_matches(ops.multiply(X, Num(1)), make("multiply", (x, argument))) == []
    assert all_matches(AnyConst("K"), one) == [{"K": one}]


def test_build_is_the_inverse_of_match():
    pattern = ops.add(ops.negative(X), Y)
    hop = make("add", (make("negative", (x,)), y))
    assert all(instantiate(pattern, m) is hop for m in all_matches(pattern, hop))
    assert instantiate(Num(2, like=X), {"X": x}) is const(2, F8)
    assert bound_names(ops.add(X, ops.sum(Y, axis=AttrVar("axis")))) == {"X", "Y", "axis"}


def test_the_vocabulary_is_the_op_table():
    with pytest.raises(InternalError, match="'sine'"):
        ops.sine(X)
    with pytest.raises(InternalError, match="takes 2 operands"):
        ops.add(X)
    with pytest.raises(InternalError, match="dtype"):
        instantiate(Num(2), {})


# Rules are checked when they are made and when they fire; sets are found by root and level.

X_VAR, Y_VAR = Var("X"), Var("Y")
x_leaf = leaf(0, Meta((3, 4), np.dtype("f8")))


@pytest.mark.parametrize(("arguments", "message"), [
    ({"right": X_VAR}, "no doc line"),
    ({"right": Y_VAR, "doc": "d"}, r"\['Y'\] occur only on its right"),
    ({"doc": "d"}, "exactly one of"),
    ({"right": X_VAR, "build": lambda root, b: root, "doc": "d"}, "exactly one of"),
    ({"right": X_VAR, "doc": "d", "exactness": "about"}, "no exactness 'about'"),
    ({"right": X_VAR, "doc": "d", "when": lambda root, b: True}, "condition has no name"),
])
def test_a_bad_rule_is_refused(arguments, message):
    with pytest.raises(InternalError, match=message):
        Rule("bad", ops.negative(X_VAR), **arguments)


@pytest.mark.parametrize("numerics", ["strict", "numpy", "relaxed"])
def test_what_tracing_notes_is_what_rules_ask_for(numerics):
    assert LITERAL_VALUES[numerics] == RULES.at(numerics).matched_numbers


def test_names_are_unique():
    rule = Rule("same", ops.negative(X_VAR), ops.negative(X_VAR), doc="d")
    with pytest.raises(InternalError, match="'same'"):
        RuleSet([rule, rule])
    assert len({r.name for r in RULES}) == len(RULES)


def test_a_rule_must_not_change_the_shape():
    rule = Rule("wrong-shape", ops.negative(X_VAR), ops.transpose(X_VAR, axes=(1, 0)), doc="d")
    with pytest.raises(InternalError, match=r"wrong-shape.*\(3, 4\).*\(4, 3\)"):
        simplify((make("negative", (x_leaf,)),), RuleSet([rule]))


def test_a_rule_must_not_change_the_dtype():
    rule = Rule("wrong-dtype", ops.negative(X_VAR), ops.isnan(X_VAR), doc="d")
    with pytest.raises(InternalError, match="wrong-dtype.*float64.*bool"):
        simplify((make("negative", (x_leaf,)),), RuleSet([rule]))


def test_levels_nest():
    names = [{r.name for r in RULES.at(level)} for level in ("strict", "numpy", "relaxed")]
    assert names[0] < names[1] < names[2] == {r.name for r in RULES}
    assert "sum-of-product" in names[1] - names[0]
    assert "factor-out" in names[2] - names[1]


def test_sets_add_and_select():
    pair = RULES.only("neg-of-neg", "matmul-chain")
    assert [r.name for r in pair] == ["neg-of-neg", "matmul-chain"]
    assert [r.name for r in pair.whole_dag] == ["matmul-chain"]
    single_use = make("negative", (x_leaf,))
    assert [r.name for r in pair.rules_for(make("negative", (single_use,)))] == ["neg-of-neg"]
    assert list(pair.rules_for(single_use)) == []
    assert len(RULES.without("neg-of-neg")) == len(RULES) - 1
    assert len(pair + RULES.only("mul-by-one")) == 3
    assert RULES["mul-by-one"].right == X_VAR
    assert Num(1) in RULES["mul-by-one"].left.args


def test_rules_below_exact_say_what_they_may_change():
    for rule in RULES:
        assert rule.doc[-1] != "." and len(rule.doc) > 5
        if rule.exactness != "exact":
            assert rule.doc.count(";") + rule.doc.count(",") >= 1 or "same" in rule.doc, rule.name
