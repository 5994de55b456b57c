"""The decorator with its options, on every kind of callable, and what explain says of the rest."""

from __future__ import annotations

import asyncio
import inspect

import numpy as np
import pytest

import jitla

X = np.linspace(0.0, 1.0, 7)


def double(x):
    """Twice x."""
    return x + x


def steps(x, n):
    for i in range(n):
        yield x * float(i) + 1.0


async def later(x):
    await asyncio.sleep(0)
    return x * x


class Model:
    scale = 3.0

    @jitla.jit
    def method(self, x):
        return self.scale * x

    @classmethod
    @jitla.jit
    def inner(cls, x):
        return cls.scale * x

    @jitla.jit(strict=True)
    @classmethod
    def outer(cls, x):
        return cls.scale * x

    @jitla.jit
    @staticmethod
    def static(x):
        return 3.0 * x


def test_the_decorated_looks_like_the_function():
    fast = jitla.jit(double)
    assert (fast.__name__, fast.__doc__, fast.__wrapped__) == ("double", "Twice x.", double)
    assert inspect.signature(fast) == inspect.signature(double)
    assert jitla.jit(fast) is fast


@pytest.mark.parametrize("name", ["method", "inner", "outer", "static"])
def test_methods_of_every_kind(name):
    assert (getattr(Model(), name)(X) == 3.0 * X).all()


def test_generators_and_coroutines():
    fast = jitla.jit(steps)
    assert [v[-1] for v in fast(X, 3)] == [1.0, 2.0, 3.0]
    assert fast.stats().kernel_runs == 3
    assert (asyncio.run(jitla.jit(later)(X)) == X * X).all()


def test_compile_off_runs_the_plain_function():
    fast = jitla.jit(compile="off")(double)
    assert (fast(X) == X + X).all() and fast.stats().calls == 0
    assert [v[-1] for v in jitla.jit(compile="off")(steps)(X, 2)] == [1.0, 2.0]
    assert (asyncio.run(jitla.jit(compile="off")(later)(X)) == X * X).all()
    assert 'compile="off"' in str(jitla.explain(fast))
    again = jitla.jit(double)
    with jitla.options(compile="off"):
        again(X)
    again(X)
    assert again.stats().calls == 1


def test_explain_says_that_there_is_no_source():
    names: dict[str, object] = {}
    exec("def made(x): return x + x", names)
    fast = jitla.jit(names["made"])
    assert (fast(X) == X + X).all()
    assert "its source was not found" in str(jitla.explain(fast))


def test_explain_decorates_and_calls():
    text = str(jitla.explain(double, X, level="plan"))
    assert "1 call, 1 program" in text and "return x + x" in text


def test_wrong_use_is_explained():
    with pytest.raises(jitla.TraceError, match="use it as a decorator"):
        jitla.jit(7)
    with pytest.raises(jitla.ConfigError, match="'sync', 'off'"):
        jitla.jit(compile="later")


def test_what_exec_makes_is_refused_when_strict():
    space = {}
    exec("def made(x):\n    return x * 2.0\n\ndef steps(x):\n    yield x * 2.0\n", space)
    made, steps = (jitla.jit(space[name], strict=True) for name in ("made", "steps"))
    for call in (made, lambda x: list(steps(x))):
        for _ in range(2):
            with pytest.raises(jitla.UnsupportedError, match="source was not found.*\n.*drop strict=True"):
                call(np.ones(3))
    assert (jitla.jit(space["made"], compile="sync")(np.ones(3)) == 2.0).all()
