"""Literals of the user's code in plans: rules for them fire, other values get other programs."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.engine import ENGINE
from jitla.rewrites import RULES

SPECIAL = np.array([[0.0, -0.0, np.nan, np.inf, -np.inf, 1.0], [-1.5, 5e-324, -1e-310, 1.7e308, 3.0, -7.0]])


def times_one(x):
    return np.sqrt(np.sqrt(x) * 1) + 1.0 * x


def over_one(x):
    return np.sqrt(np.sqrt(x) / 1.0)


def less_nothing(x):
    return np.sqrt(np.sqrt(x) - 0)


def to_the_first(x):
    return np.sqrt(np.power(x, 1.0))


def negated(x):
    return np.sqrt(np.sqrt(x) * -1)


def halved(x):
    return np.sqrt(x / 2)


def doubled(x):
    return np.sqrt(2 * x)


def plus_minus_zero(x):
    return np.sqrt(np.sqrt(x) + -0.0)


def through_helper(x):
    return np.sqrt(times(np.sqrt(x)))


def times(x):
    return x * 1


def plus_zero(x):
    return np.copysign(1.0, x + 0.0)


def times_zero(x):
    return x * 0


FIRES = {
    times_one: "mul-by-one", over_one: "div-by-one", less_nothing: "sub-zero", negated: "mul-by-minus-one",
    halved: "div-by-power-of-two", doubled: "double-as-sum", plus_minus_zero: "add-zero",
    through_helper: "mul-by-one",
}


def fired() -> tuple[str, ...]:
    """Return the rules that fired in the program compiled last."""
    with jitla.options() as config:
        return ENGINE.compiler(config).programs()[-1].fired


def same(x: np.ndarray, y: np.ndarray) -> bool:
    signs = np.array_equal(np.signbit(x) & (x == x), np.signbit(y) & (y == y))
    return x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f") and signs


@pytest.mark.parametrize("dtype", ["f8", "i2"])
@pytest.mark.parametrize("function", [*FIRES, plus_zero, times_zero, to_the_first])
def test_results_are_numpys(function, dtype: str):
    fast = jitla.jit(function, compile="sync")
    with np.errstate(all="ignore"):
        given = SPECIAL.astype(dtype)
        for _ in range(3):
            assert same(fast(given), function(given))
        assert same(fast(given[:1]), function(given[:1]))


@pytest.mark.parametrize("function", FIRES)
def test_rules_for_literals_fire(function):
    with np.errstate(invalid="ignore"):
        jitla.jit(function, compile="sync")(np.full((7, 9), 4.0))
    assert FIRES[function] in fired()


@pytest.mark.parametrize("function", [plus_zero, times_zero])
def test_what_is_not_exact_stays(function):
    jitla.jit(function, compile="sync")(np.full((5, 11), 4.0))
    assert not {"add-zero", "mul-by-zero"} & set(fired())


def scaled(x, k):
    return np.sqrt(x * k)


def by_turns(x, once, k):
    y = np.sqrt(x) * 1 if once else np.sqrt(x) * k
    return np.sqrt(y)


def powers(x):
    for k in range(1, 5):
        x = x * k + 1.0
    return x


def test_values_of_variables_are_no_literals():
    x = np.arange(1.0, 14.0)
    fast = jitla.jit(scaled, compile="sync")
    for k in (1, 2, 1.0, 0, 0.5, 1):
        assert same(fast(x, k), scaled(x, k))
        assert "mul-by-one" not in fired()
    assert same(jitla.jit(powers, compile="sync")(x), powers(x))


def test_the_same_operations_with_another_value_get_another_program():
    """A line with a literal and a variable: its tape is the same, whichever it is."""
    x = np.arange(1.0, 15.0)
    fast = jitla.jit(by_turns, compile="sync")
    assert same(fast(x, True, 3), by_turns(x, True, 3)) and "mul-by-one" in fired()
    for once, k in [(False, 3), (True, 3), (False, 1), (False, 2), (True, 1)]:
        assert same(fast(x, once, k), by_turns(x, once, k))
    assert "mul-by-one" not in fired()
    assert fast.stats()["programs"] == 2


def test_no_lines_are_needed_for_what_was_met_before():
    """Other sizes come when lines are not noted any more: the literal is still one."""
    fast = jitla.jit(times_one, compile="sync")
    for n in (10, 11, 12, 13, 14, 15):
        x = np.arange(1.0, n)
        for _ in range(5):
            assert same(fast(x), times_one(x))
    assert fast.stats()["programs"] == 1


def test_without_rewrites_there_are_none():
    x = np.full((3, 13), 4.0)
    with jitla.options(rewrites=False):
        fast = jitla.jit(times_one, compile="sync")
        assert same(fast(x), times_one(x))
    with jitla.options(rewrites=False) as config:
        assert ENGINE.compiler(config).programs()[-1].fired == ()


def test_numbers_that_rules_ask_for():
    matched_numbers = RULES.at("strict").matched_numbers
    assert {1, -1, 2} <= matched_numbers["multiply"] and 0 not in matched_numbers["multiply"]
    assert matched_numbers["divide"] == {0.5, 1, 2.0} and 0.0 in matched_numbers["subtract"]
    assert "sin" not in matched_numbers
