"""Loops of every kind compile a bounded number of plans, however often they turn."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import jitla
from tests.behaviour.counting import assert_same, counts

N = 3_000
X = np.random.default_rng(2).standard_normal(N)


def step(w, g):
    t = w - 0.1 * g
    return t * 0.99


def in_a_helper(x, turns):
    w = x
    for _ in range(turns):
        w = step(w, x)
    return w


def nested(x, turns):
    w = x * 1.0
    for _ in range(turns // 10):
        v = w * 0.5
        for _ in range(10):
            v = v * 0.9 + x
        w = w - 0.1 * v
    return w


def recursive(x, turns):
    if turns == 0:
        return x
    return recursive(x * 0.5 + 1, turns - 1)


def recursion(x, turns):
    w = x
    for _ in range(turns // 20):
        w = recursive(w, 20)
    return w


def comprehension(x, turns):
    rows = [x * k + 1 for k in range(turns)]
    return sum(r.sum() for r in rows), len(rows)


def generator(x, turns):
    return sum((x * k - 1).sum() for k in range(turns))


def inner_generator(x, turns):
    def steps():
        w = x
        for _ in range(turns):
            w = w * 0.9 + 1
            yield w

    last = None
    for last in steps():
        pass
    return last


def value_test(x, turns):
    w, n = x, 0
    while n < turns and np.abs(w).max() > 1e-300:
        w = w * 0.99
        n += 1
    return w, n


def branches(x, turns):
    w = x
    for i in range(turns):
        if i % 3 == 0:
            w = w * 0.9
        elif w.sum() > 0:
            w = w - 0.1
        else:
            w = w + 0.1
    return w


def early_continue(x, turns):
    w = x
    for i in range(turns):
        w = w + 1
        if i % 2:
            continue
        w = w * 0.5
    return w


def several_values(x, turns):
    w, v, m = x, x * 0, x * 0
    for _ in range(turns):
        g = 2 * w - 1
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        w = w - 0.01 * m / (np.sqrt(v) + 1e-8)
    return w, v, m


def in_place(x, turns):
    w = x.copy()
    for _ in range(turns):
        w -= 0.1 * (w - 1)
        w *= 0.999
    return w


def created_inside(x, turns):
    w = np.zeros(len(x))
    for i in range(turns):
        w[1:-1] += 0.5 * (x[2:] - w[:-2])
    return w


LOOPS = {
    f.__name__: f
    for f in (
        in_a_helper,
        nested,
        recursion,
        comprehension,
        generator,
        inner_generator,
        value_test,
        branches,
        early_continue,
        several_values,
        in_place,
        created_inside,
    )
}


@pytest.mark.parametrize("name", LOOPS)
def test_plans_do_not_grow_with_the_turns(name: str) -> None:
    jitted = jitla.jit(LOOPS[name])
    assert_same(LOOPS[name](X, 40), jitted(X, 40), digits=10)
    few = counts(jitted)
    assert_same(LOOPS[name](X, 200), jitted(X, 200), digits=10)
    many = counts(jitted)
    assert many.programs <= few.programs + 2
    assert many.programs <= 10
    assert many.failures == 0


@pytest.mark.parametrize("name", sorted(set(LOOPS) - {"comprehension", "recursion"}))
def test_every_turn_runs_few_kernels(name: str) -> None:
    jitted = jitla.jit(LOOPS[name])
    jitted(X, 40)
    before = counts(jitted)
    jitted(X, 200)
    done = counts(jitted)
    assert done.kernel_runs - before.kernel_runs <= 3 * 200 + 10


def descent(x, y, turns):
    w = np.zeros(x.shape[1])
    for _ in range(turns):
        g = x.T @ (x @ w - y)
        w = w - 1e-4 * g
    return w


def cellwise_descent(x, turns):
    w = x * 0.0
    for _ in range(turns):
        g = 2 * (w - x) + 0.1 * w
        w = w - 0.05 * g
    return w


@pytest.mark.parametrize("turns", [1_000, 10_000])
def test_gradient_descent(turns: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((200, 10))
    y = rng.standard_normal(200)
    jitted = jitla.jit(descent)
    assert_same(descent(x, y, turns), jitted(x, y, turns), digits=9)
    assert counts(jitted).plans <= 3


@pytest.mark.parametrize("turns", [1_000, 10_000])
def test_gradient_descent_without_a_product_keeps_memory_flat(turns: int) -> None:
    jitted = jitla.jit(cellwise_descent)
    x = X[:1000]
    assert_same(cellwise_descent(x, 100), jitted(x, 100))
    gc.collect()
    tracemalloc.start()
    result = jitted(x, turns)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_same(cellwise_descent(x, turns), result)
    assert counts(jitted).plans <= 3
    assert peak < 40 * x.nbytes + 600_000


def lower(a, c):
    for i in range(1, a.shape[0]):
        a[i] -= c * a[i - 1]
    return a


def shifted(x, m):
    for i in range(len(x) - 2 * m):
        j = i + m // 2
        x[i : i + m] += x[j : j + m]
    return x


def growing(a):
    s = np.zeros(a.shape[0])
    for j in range(1, min(a.shape)):
        s[j] = a[j, :j] @ a[:j, j] + (a[j, :j] * 2).sum()
    return s


def shrinking(x):
    t = 0.0
    for i in range(len(x)):
        t += (x[i:] * 0.5 + 1).sum()
    return t


def eliminated(a):
    for k in range(min(a.shape) - 1):
        a[k + 1 :, k] /= a[k, k] + 50
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k : k + 1] * a[k, k + 1 :]
    return a


def table(n, m):
    return np.random.default_rng(n).standard_normal((n, m))


@pytest.mark.parametrize(
    ("function", "short", "long"),
    [
        (lower, (table(10, 40), 0.5), (table(100, 40), 0.25)),
        (shifted, (X[:40], 6), (X[:200], 8)),
        (growing, (table(12, 12),), (table(60, 60),)),
        (shrinking, (X[:20],), (X[:150],)),
        (eliminated, (table(12, 12),), (table(50, 50),)),
    ],
)
def test_moving_bounds_compile_once(function, short, long) -> None:
    jitted = jitla.jit(function)
    for given in (short, long):
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
        mine = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
        assert_same(function(*copies), jitted(*mine), digits=9)
        assert_same(copies, mine, digits=9)
        if given is short:
            few = counts(jitted)
    assert counts(jitted).programs <= few.programs + 2
    assert counts(jitted).programs <= 12
