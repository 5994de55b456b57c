"""State that outlives a turn or a call: dictionaries, attributes, lists, globals, closures."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import jitla
from tests.behaviour.counting import assert_same, counts, during

N = 4_000
X = np.random.default_rng(4).standard_normal(N)
BIG = 10_000_000


def update_entry(params, g, lr, turns):
    for _ in range(turns):
        params["w"] -= lr * g
    return params["w"].sum()


def rebind_entry(params, g, lr, turns):
    for _ in range(turns):
        params["w"] = params["w"] - lr * g
    return params["w"].sum()


class Momentum:
    def __init__(self) -> None:
        self.v = X * 0.0

    @jitla.jit
    def step(self, g):
        self.v = 0.9 * self.v + g
        return self.v

    @jitla.jit
    def many(self, g, turns):
        for _ in range(turns):
            self.v = 0.9 * self.v + g


def remember(x, turns):
    history = []
    z = x
    for _ in range(turns):
        z = z * 0.5 + 1
        history.append(z)
    return history


@pytest.mark.parametrize("function", [update_entry, rebind_entry])
def test_entries_of_a_dictionary(function) -> None:
    jitted = jitla.jit(function)
    plain, mine = {"w": X.copy()}, {"w": X.copy()}
    for turns in (3, 30, 100):
        assert_same(function(plain, X, 0.1, turns), jitted(mine, X, 0.1, turns))
        assert type(mine["w"]) is np.ndarray
        assert_same(plain, mine)
    assert counts(jitted).programs <= 5
    done = during(jitted, lambda: jitted(mine, X, 0.1, 50))
    assert done.kernel_runs <= 2 * 50 + 4


def test_attributes_do_not_recompute() -> None:
    held, expected = Momentum(), X * 0.0
    for _ in range(20):
        held.step(X)
        expected = 0.9 * expected + X
    assert_same(expected, held.v)
    done = during(Momentum.step, lambda: held.step(X))
    assert (done.kernel_runs, done.plans) == (1, 0)


def test_attributes_in_a_loop_do_not_grow() -> None:
    held, expected = Momentum(), X * 0.0
    held.many(X, 200)
    for _ in range(200):
        expected = 0.9 * expected + X
    assert_same(expected, held.v)
    assert counts(Momentum.many).programs <= 4
    done = during(Momentum.many, lambda: held.many(X, 100))
    assert done.kernel_runs <= 2 * 100 + 4


def test_a_list_of_results_does_not_recompute() -> None:
    jitted = jitla.jit(remember)
    assert_same(remember(X, 50), jitted(X, 50))
    assert all(type(z) is np.ndarray for z in jitted(X, 5))
    done = during(jitted, lambda: jitted(X, 100))
    assert done.kernel_runs <= 2 * 100 + 4
    assert counts(jitted).programs <= 4


class Holder:
    @jitla.jit
    def total(self):
        return (self.X * 2 + 1).sum()


HELD = None


@jitla.jit
def total_of_a_global():
    return (HELD * 2 + 1).sum()


def closure_over(held):
    @jitla.jit
    def total():
        return (held * 2 + 1).sum()

    return total


def total_of(where: str):
    global HELD
    held = np.ones(BIG)
    if where == "attribute":
        box = Holder()
        box.X = held
        return box.total
    if where == "global":
        HELD = held
        return total_of_a_global
    return closure_over(held)


@pytest.mark.parametrize("where", ["attribute", "global", "closure"])
def test_large_foreign_arrays_are_not_copied(where: str) -> None:
    call = total_of(where)
    call()
    tracemalloc.start()
    assert call() == 3.0 * BIG
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_an_attribute_that_was_a_number_is_an_array_later() -> None:
    box = Holder()

    @jitla.jit(compile="sync")
    def f(x):
        return x > box.limit, x * 1.0  # 1.0 is a literal that rewrites ask for

    for limit in (1.5, 1.5, X, X, 2.5, X, 1.5):
        box.limit = limit
        above, same = f(X)
        assert np.array_equal(above, X > limit) and np.array_equal(same, X)
