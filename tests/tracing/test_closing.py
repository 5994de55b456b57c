"""What closing a block computes, and what it leaves."""

from __future__ import annotations

import weakref

import numpy as np

import jitla
from jitla.tracing.mutation import MemoryWriter
from jitla.tracing.tape import (
    data_address,
    is_same_view,
)
from tests.tracing.sameness import proxies_alive, same


def test_same_view() -> None:
    x = np.arange(6.0)
    assert is_same_view(x[1:], x[1:]) and not is_same_view(x[1:], x[:-1])
    assert not is_same_view(x, x.view("i8"))


def test_address() -> None:
    x = np.arange(6.0)
    for view in (x, x[1:], x[::-1], x[2:2], x.reshape(2, 3).T):
        assert data_address(view) == view.__array_interface__["data"][0]


def test_results_own_their_memory() -> None:
    @jitla.jit
    def f(a):
        x = a * 2
        return x, x[1:], x.T

    x, tail, turned = f(np.arange(4.0))
    assert x.base is None and tail.base is x and turned.base is x


def test_results_die_without_the_garbage_collector() -> None:
    @jitla.jit
    def f(a):
        x = a * 2
        y = x + 1
        return y * x

    for _ in range(4):
        result = f(np.ones(100))
        watch = weakref.ref(result)
        del result
        assert watch() is None
    assert not proxies_alive()


def test_a_ghost_is_computed_before_its_memory_changes() -> None:
    same("""
    @jit
    def f(a, b):
        y = a * 2
        s = (y + b).sum()
        a += 1
        if s > -1e9:
            return y, a
        return s
    """)


def test_a_ghost_asked_for_is_right_twice() -> None:
    same("""
    @jit
    def f(a, b):
        r = []
        for i in range(4):
            y = a * i
            s = (y + b).sum()
            if i == 2:
                r.append(y)
            r.append(s)
        return r, y
    """)


def learnt(x, parts):
    """Steps of a gradient: what is computed on the way is never read again, but is the parameters'."""
    moved = [np.zeros_like(p) for p in parts]
    for _ in range(3):
        inner = np.tanh(x * parts[0])
        outer = inner * parts[1] + parts[2]
        error = outer - x
        gradients = (error * inner, error * outer, error * 1.0)
        for p, v, g in zip(parts, moved, gradients, strict=True):
            v *= 0.9
            v -= 0.1 * g
            p += v
    return error.sum()


def test_what_is_dead_is_looked_at_once_when_its_memory_is_written(monkeypatch) -> None:
    x, parts = np.linspace(0.1, 1.0, 40), [np.full(40, v) for v in (0.5, 0.25, -0.5)]
    mine = [p.copy() for p in parts]
    wanted = learnt(x, mine)
    jitted = jitla.jit(learnt, compile="sync")
    for _ in range(2):
        yours = [p.copy() for p in parts]
        assert np.isclose(wanted, jitted(x, yours), rtol=1e-12, atol=0)
        assert all(np.allclose(a, b, rtol=1e-13, atol=0) for a, b in zip(mine, yours, strict=True))
    looked: list[int] = []
    before = MemoryWriter._dead_by_liveness
    monkeypatch.setattr(
        MemoryWriter, "_dead_by_liveness",
        lambda self, proxies: looked.append(len(proxies)) or before(self, proxies))
    jitted(x, [p.copy() for p in parts])
    assert 0 < len(looked) <= 3, looked  # once in a turn, not for each part
