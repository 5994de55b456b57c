"""What closing a block computes, and what it leaves."""

from __future__ import annotations

import weakref

import numpy as np

import jitla
from jitla.tracing.enacting import address, same_view
from tests.tracing.sameness import proxies_alive, same


def test_same_view() -> None:
    x = np.arange(6.0)
    assert same_view(x[1:], x[1:]) and not same_view(x[1:], x[:-1]) and not same_view(x, x.view("i8"))


def test_address() -> None:
    x = np.arange(6.0)
    for view in (x, x[1:], x[::-1], x[2:2], x.reshape(2, 3).T):
        assert address(view) == view.__array_interface__["data"][0]


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
