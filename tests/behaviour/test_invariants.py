"""Which values of loops are kept, how often they are computed, and which it does not pay to keep."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.config import TracingThresholds
from jitla.tracing import hoisting as keeping
from tests.behaviour.counting import during

RNG = np.random.default_rng(11)
G = RNG.random((300, 300))
X, Y = RNG.random((2000, 30)), RNG.random(2000)
TURNS = 50


@pytest.fixture(autouse=True)
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


def test_a_normalised_matrix_is_computed_once_in_a_loop() -> None:
    p = np.full(300, 1 / 300)
    result, kept, used, f = counted(rank, G.copy(), p, -1)
    assert (kept, used) == (1, TURNS - 1)  # computed in the second turn to be kept
    np.testing.assert_allclose(result, rank(G.copy(), p, -1), rtol=1e-12)
    result, kept, used, f = counted(f, G.copy(), p, -1)
    assert (kept, used) == (1, TURNS - 1)  # later calls know
    assert f.stats().kept_bytes == G[0].nbytes  # the sums: what they divide is multiplied first


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


def descent(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    for _ in range(TURNS):
        w = w - 1e-6 * (x.T @ x @ w - x.T @ y)
    return w


def test_products_with_the_transpose_are_computed_once() -> None:
    result, kept, used, f = counted(descent, X, Y, np.zeros(30))
    assert (kept, used) == (2, 2 * (TURNS - 1))
    np.testing.assert_allclose(result, descent(X, Y, np.zeros(30)), rtol=1e-9)
    work = during(f, lambda: f(X, Y, np.zeros(30)))
    assert work.forces == TURNS + 2  # the rest, and each product once


def ridge(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    for _ in range(TURNS):
        h = x.T @ x + 0.1 * np.eye(30)
        w = w - 1e-6 * (h @ w - x.T @ y)
    return w


def test_a_product_beside_what_is_made_in_every_turn() -> None:
    result, kept, used, _ = counted(ridge, X, Y, np.zeros(30))
    assert (kept, used) == (2, 2 * (TURNS - 1))
    np.testing.assert_allclose(result, ridge(X, Y, np.zeros(30)), rtol=1e-9)


def distances(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    for _ in range(TURNS):
        s = (x @ c.T) / np.sqrt((x ** 2).sum(1))[:, None]
        c = c + 1e-4 * (s.T @ x)
    return c


def test_norms_are_kept_squares_are_not() -> None:
    x = RNG.random((20000, 40))
    _, kept, used, f = counted(distances, x, RNG.random((8, 40)))
    assert kept <= 1
    assert f.stats().kept_bytes <= 20000 * 8


def weighted(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    for _ in range(TURNS):
        w = w * 0.5 + ((x ** 2) * w).sum(0) * 1e-9
    return w


def test_a_square_in_a_loop_that_reads_as_much_is_not_kept() -> None:
    _, kept, _, _ = counted(weighted, RNG.random((20000, 40)), RNG.random(40))
    assert kept == 0


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


def test_what_changes_in_every_turn_is_given_up() -> None:
    p = np.full(300, 1 / 300)
    result, kept, _, f = counted(unsteady, G.copy(), p)
    assert kept <= keeping.MIN_COMPUTATIONS
    np.testing.assert_allclose(result, unsteady(G.copy(), p), rtol=1e-12)


def test_explain_names_what_is_kept() -> None:
    f = jitla.jit(rank)
    f(G.copy(), np.full(300, 1 / 300), -1)
    text = str(jitla.explain(f))
    assert "== kept between runs: 1 value" in text
    assert "sum 300, computed 1 time, used 49 times, 2.4 kB" in text


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


@pytest.mark.parametrize("broken", ["choose", "rest"])
def test_a_loop_goes_on_where_no_parts_can_be_made(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fails(*given: Any) -> Any:
        raise MemoryError("no compiler")

    monkeypatch.setattr(keeping, {"choose": "find_hoistable", "rest": "bind_remainder"}[broken], fails)
    result, _, used, f = counted(jitla.jit(rank), G.copy(), np.full(300, 1 / 300), -1)
    assert used == 0 and f.stats().failures == 1
    np.testing.assert_allclose(result, rank(G.copy(), np.full(300, 1 / 300), -1), rtol=1e-12)


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
