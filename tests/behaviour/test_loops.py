"""Loops: bounded numbers of plans, hoisted values, state that outlives iterations and calls."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.config import TracingThresholds
from jitla.tracing import hoisting as keeping
from tests.behaviour.counting import assert_same, counts, during

# Loops of every kind compile a bounded number of plans, however often they turn.

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


# Loop-invariant values: which are hoisted, how often they are computed, which are not worth it.

RNG = np.random.default_rng(11)
G = RNG.random((300, 300))
HOISTING_X, Y = RNG.random((2000, 30)), RNG.random(2000)
TURNS = 50


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(keeping, "is_alone", lambda: True)  # test runners have threads
    with jitla.options(thresholds=TracingThresholds(min_watched_seconds=0.0, min_split_seconds=0.0)):
        yield


def counted(function: Callable[..., Any], *args: Any) -> tuple[Any, int, int, Any]:
    """Return what a call returns, how many values it kept, how often it used them; the decorated function."""
    jitted = function if hasattr(function, "stats") else jitla.jit(function)
    before = jitted.stats()
    result = jitted(*args)
    after = jitted.stats()
    return result, int(after.kept - before.kept), int(after.reused - before.reused), jitted


def rank(g: np.ndarray, p: np.ndarray, change: int) -> np.ndarray:
    for i in range(TURNS):
        p = 0.85 * ((g / g.sum(0)) @ p) + 0.15 / len(p)
        if i == change:
            g *= 1.0 + g
    return p


@pytest.mark.usefixtures("_at_once")
def test_a_normalised_matrix_is_computed_once_in_a_loop() -> None:
    p = np.full(300, 1 / 300)
    result, kept, used, f = counted(rank, G.copy(), p, -1)
    assert (kept, used) == (1, TURNS - 1)  # computed in the second turn to be kept
    np.testing.assert_allclose(result, rank(G.copy(), p, -1), rtol=1e-12)
    result, kept, used, f = counted(f, G.copy(), p, -1)
    assert (kept, used) == (1, TURNS - 1)  # later calls know
    assert f.stats().kept_bytes == G[0].nbytes  # the sums: what they divide is multiplied first


@pytest.mark.usefixtures("_at_once")
def test_it_is_computed_again_after_a_change_in_place() -> None:
    p = np.full(300, 1 / 300)
    f = jitla.jit(rank)
    for call in range(3):
        result, kept, used, f = counted(f, G.copy(), p, 20)
        np.testing.assert_allclose(result, rank(G.copy(), p, 20), rtol=1e-12)
        if call:
            assert kept == 2 and used >= TURNS - 3  # the turn that writes is a block of its own


def plain_rank(g: np.ndarray, p: np.ndarray, e: np.ndarray, u: np.ndarray) -> np.ndarray:
    alpha = 0.85
    for _ in range(TURNS):
        p = alpha * (g @ p) + (1 - alpha) * (e @ u @ p)
    return p


@pytest.mark.usefixtures("_at_once")
def test_no_matrix_is_made_for_a_product_that_is_better_ordered() -> None:
    e, u = np.ones((300, 1)), np.full((1, 300), 1 / 300)
    _, kept, _, f = counted(plain_rank, G / 150, np.full(300, 1 / 300), e, u)
    assert kept == 0
    assert "== kept" not in str(jitla.explain(f))


def teleporting(g: np.ndarray, p: np.ndarray, e: np.ndarray, u: np.ndarray, change: int) -> np.ndarray:
    alpha = 0.85
    for i in range(TURNS):
        p = alpha * ((g / g.sum(0)) @ p) + (1 - alpha) * (e @ u @ p)
        if i == change:
            g[3] *= 2.0
    return p


@pytest.mark.usefixtures("_at_once")
def test_what_does_not_change_in_pagerank_is_computed_once_and_again_after_a_change() -> None:
    e, u, p = np.ones((300, 1)), np.full((1, 300), 1 / 300), np.full(300, 1 / 300)
    f = jitla.jit(teleporting)
    counted(f, G.copy(), p, e, u, -1)
    for change, made in ((-1, 1), (20, 2)):
        counted(f, G.copy(), p, e, u, change)
        result, kept, used, _ = counted(f, G.copy(), p, e, u, change)
        assert kept == made and used >= TURNS - 3
        assert f.stats().kept_bytes < G.nbytes / 100  # the sums: nothing of the size of G
        np.testing.assert_allclose(result, teleporting(G.copy(), p, e, u, change), rtol=1e-12)


def descent_hoisting(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    for _ in range(TURNS):
        w = w - 1e-6 * (x.T @ x @ w - x.T @ y)
    return w


@pytest.mark.usefixtures("_at_once")
def test_products_with_the_transpose_are_computed_once() -> None:
    result, kept, used, f = counted(descent_hoisting, HOISTING_X, Y, np.zeros(30))
    assert (kept, used) == (2, 2 * (TURNS - 1))
    np.testing.assert_allclose(result, descent_hoisting(HOISTING_X, Y, np.zeros(30)), rtol=1e-9)
    work = during(f, lambda: f(HOISTING_X, Y, np.zeros(30)))
    assert work.forces == TURNS + 2  # the rest, and each product once


def ridge(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    for _ in range(TURNS):
        h = x.T @ x + 0.1 * np.eye(30)
        w = w - 1e-6 * (h @ w - x.T @ y)
    return w


@pytest.mark.usefixtures("_at_once")
def test_a_product_beside_what_is_made_in_every_turn() -> None:
    result, kept, used, _ = counted(ridge, HOISTING_X, Y, np.zeros(30))
    assert (kept, used) == (2, 2 * (TURNS - 1))
    np.testing.assert_allclose(result, ridge(HOISTING_X, Y, np.zeros(30)), rtol=1e-9)


def distances(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    for _ in range(TURNS):
        s = (x @ c.T) / np.sqrt((x ** 2).sum(1))[:, None]
        c = c + 1e-4 * (s.T @ x)
    return c


@pytest.mark.usefixtures("_at_once")
def test_norms_are_kept_squares_are_not() -> None:
    x = RNG.random((20000, 40))
    _, kept, used, f = counted(distances, x, RNG.random((8, 40)))
    assert kept <= 1
    assert f.stats().kept_bytes <= 20000 * 8


def weighted(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    for _ in range(TURNS):
        w = w * 0.5 + ((x ** 2) * w).sum(0) * 1e-9
    return w


@pytest.mark.usefixtures("_at_once")
def test_a_square_in_a_loop_that_reads_as_much_is_not_kept() -> None:
    _, kept, _, _ = counted(weighted, RNG.random((20000, 40)), RNG.random(40))
    assert kept == 0


@pytest.mark.usefixtures("_at_once")
def test_nothing_is_kept_where_it_is_switched_off_or_there_is_no_room() -> None:
    p = np.full(300, 1 / 300)
    with jitla.config.options(invariants="none"):
        assert counted(jitla.jit(rank), G.copy(), p, -1)[1] == 0
    with jitla.config.options(invariants_limit=10_000):
        _, kept, _, f = counted(jitla.jit(rank), G.copy(), p, -1)
        assert kept == 1 and f.stats().kept_bytes == 300 * 8  # the sums, which the quotient is made of
    with jitla.config.options(memory_limit="1GB"):
        assert counted(jitla.jit(rank), G.copy(), p, -1)[1] == 0


def unsteady(g: np.ndarray, p: np.ndarray) -> np.ndarray:
    for _ in range(TURNS):
        p = 0.85 * ((g / g.sum(0)) @ p) + 0.15 / len(p)
        g[0, 0] += 1.0
    return p


@pytest.mark.usefixtures("_at_once")
def test_what_changes_in_every_turn_is_given_up() -> None:
    p = np.full(300, 1 / 300)
    result, kept, _, f = counted(unsteady, G.copy(), p)
    assert kept <= keeping.MIN_COMPUTATIONS
    np.testing.assert_allclose(result, unsteady(G.copy(), p), rtol=1e-12)


@pytest.mark.usefixtures("_at_once")
def test_explain_names_what_is_kept() -> None:
    f = jitla.jit(rank)
    f(G.copy(), np.full(300, 1 / 300), -1)
    text = str(jitla.explain(f))
    assert "== kept between runs: 1 value" in text
    assert "sum 300, computed 1 time, used 49 times, 2.4 kB" in text


@pytest.mark.usefixtures("_at_once")
def test_every_warning_is_given(recwarn: pytest.WarningsRecorder) -> None:
    def f(g: np.ndarray, p: np.ndarray) -> np.ndarray:
        for _ in range(10):
            p = np.sqrt(g / g.sum(0)) @ p
        return p

    g = G.copy()
    g[:, 3] = 0.0
    with jitla.config.options(invariants="all"):
        warnings.simplefilter("always")
        jitla.jit(f)(g, np.ones(300))
    jitted = len(recwarn)
    f(g, np.ones(300))
    assert jitted == 10 == len(recwarn) - jitted


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("broken", ["choose", "rest"])
def test_a_loop_goes_on_where_no_parts_can_be_made(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fails(*given: Any) -> Any:
        raise MemoryError("no compiler")

    monkeypatch.setattr(keeping, {"choose": "find_hoistable", "rest": "bind_remainder"}[broken], fails)
    result, _, used, f = counted(jitla.jit(rank), G.copy(), np.full(300, 1 / 300), -1)
    assert used == 0 and f.stats().failures == 1
    np.testing.assert_allclose(result, rank(G.copy(), np.full(300, 1 / 300), -1), rtol=1e-12)


@pytest.mark.threads
@pytest.mark.usefixtures("_at_once")
def test_without_being_alone_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    jitla.configure(invariants="all")
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert counted(jitla.jit(rank), G.copy(), np.full(300, 1 / 300), -1)[1] == 0
    finally:
        stop.set()
        thread.join()
        jitla.configure(invariants="cost")


# State that outlives a turn or a call: dictionaries, attributes, lists, globals, closures.

STATE_N = 4_000
STATE_X = np.random.default_rng(4).standard_normal(STATE_N)
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
        self.v = STATE_X * 0.0

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
    plain, mine = {"w": STATE_X.copy()}, {"w": STATE_X.copy()}
    for turns in (3, 30, 100):
        assert_same(function(plain, STATE_X, 0.1, turns), jitted(mine, STATE_X, 0.1, turns))
        assert type(mine["w"]) is np.ndarray
        assert_same(plain, mine)
    assert counts(jitted).programs <= 5
    done = during(jitted, lambda: jitted(mine, STATE_X, 0.1, 50))
    assert done.kernel_runs <= 2 * 50 + 4


def test_attributes_do_not_recompute() -> None:
    held, expected = Momentum(), STATE_X * 0.0
    for _ in range(20):
        held.step(STATE_X)
        expected = 0.9 * expected + STATE_X
    assert_same(expected, held.v)
    done = during(Momentum.step, lambda: held.step(STATE_X))
    assert (done.kernel_runs, done.plans) == (1, 0)


def test_attributes_in_a_loop_do_not_grow() -> None:
    held, expected = Momentum(), STATE_X * 0.0
    held.many(STATE_X, 200)
    for _ in range(200):
        expected = 0.9 * expected + STATE_X
    assert_same(expected, held.v)
    assert counts(Momentum.many).programs <= 4
    done = during(Momentum.many, lambda: held.many(STATE_X, 100))
    assert done.kernel_runs <= 2 * 100 + 4


def test_a_list_of_results_does_not_recompute() -> None:
    jitted = jitla.jit(remember)
    assert_same(remember(STATE_X, 50), jitted(STATE_X, 50))
    assert all(type(z) is np.ndarray for z in jitted(STATE_X, 5))
    done = during(jitted, lambda: jitted(STATE_X, 100))
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

    for limit in (1.5, 1.5, STATE_X, STATE_X, 2.5, STATE_X, 1.5):
        box.limit = limit
        above, same = f(STATE_X)
        assert np.array_equal(above, STATE_X > limit) and np.array_equal(same, STATE_X)
