"""The wrapper of decorated functions: calls that go straight to the plain function."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import jitla

# Calls that are left to the plain function: what their code tests for, and that nothing else changes.

X = np.arange(6.0)
CALLS = 40  # more than go by until the first is not timed


def auto(function: Any) -> Any:
    """Decorate a function; calls go the way that pays."""
    return jitla.jit(function, compile="auto")


class Own:
    pass


def settled(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Call `f` until calls take the fast path."""
    for _ in range(CALLS):
        f(*args, **kwargs)
    return f


def plain(x: Any, k: int = 2, /, mode: str = "add", *, by: Any = None) -> Any:
    if k < 0:
        raise ValueError(k)
    return (x + k if mode == "add" else x * k), by


def test_arguments_arrive_as_they_were_given() -> None:
    f = settled(auto(plain), X)
    for given in (lambda g: g(X), lambda g: g(X, 3), lambda g: g(X, 2, "add"), lambda g: g(X, mode="times"),
                  lambda g: g(X, 4, mode="times", by=X), lambda g: g(X, by=None), lambda g: g(2.0, 1)):
        for _ in range(CALLS):
            (a, b), (c, d) = given(f), given(plain)
            assert type(a) is type(c) and np.array_equal(a, c) and b is d


@pytest.mark.parametrize("wrong", [
    lambda g: g(), lambda g: g(X, k=3), lambda g: g(X, 1, "add", None), lambda g: g(X, other=1),
    lambda g: g(X, 1, "add", mode="add"), lambda g: g(X, -1)])
def test_errors_are_those_of_the_plain_function(wrong: Callable[[Any], Any]) -> None:
    f = settled(auto(plain), X)
    told = []
    for g in (plain, f):
        with pytest.raises((TypeError, ValueError)) as caught:
            wrong(g)
        frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)[1:]]
        told.append((type(caught.value), str(caught.value), frames))
    assert told[0] == told[1]


def test_calls_are_counted_once() -> None:
    f = settled(auto(plain), X)
    for _ in range(1000 - CALLS):
        f(X)
    assert f.stats().calls == f.stats().bypassed == 1000


def test_other_options_are_seen() -> None:
    def f(x: Any) -> Any:
        return x * 3.25 + 1.0

    fast = settled(auto(f), X)
    fast_path = fast.__jitla_state__.fast_path
    with jitla.options(num_threads=1):
        assert not fast_path.holds()
        fast(X)
    assert len(fast.__jitla_state__.classes_by_epoch) == 2
    settled(fast, X)
    before = jitla.config.num_threads
    jitla.configure(num_threads=2)
    try:
        assert not fast_path.holds()
        fast(X)
    finally:
        jitla.configure(num_threads=before)
    assert len(fast.__jitla_state__.classes_by_epoch) == 3


def test_traced_code_is_gone_on_with() -> None:
    inner = settled(auto(lambda x: x * 1.75), X)

    @jitla.jit(compile="sync")
    def outer(x: Any) -> Any:
        return inner(x) + 1.0

    before = inner.stats().calls
    outer(X)
    assert outer.stats().forces == 1 and inner.stats().calls == before


def test_calls_with_other_arguments_are_right() -> None:
    f = auto(lambda x, y: (x, y))
    for y in (1.0, None, "a", 3, 1j, True, X, Own(), "b"):
        for _ in range(CALLS):
            assert f(X, y)[1] is y


def test_code_that_is_changed_is_seen() -> None:
    def f(x: Any) -> Any:
        return x + 1.0

    def g(x: Any) -> Any:
        return x + 2.0

    fast = settled(auto(f), X)
    f.__code__ = g.__code__
    for _ in range(CALLS):
        assert fast(X)[0] == 2.0


def test_functions_of_any_arguments_and_methods() -> None:
    f = auto(lambda *xs, **named: (xs, named))
    for _ in range(CALLS):
        assert f(1, 2, a=X) == ((1, 2), {"a": X})

    class Model:
        @auto
        def run(self, x: Any, type: Any = None) -> Any:
            return self, x, type

        @auto
        def go(self, x: Any, state: Any) -> Any:
            return self, x, state

    model, other = Model(), Model()
    settled(Model.go, model, X, 1.0)
    for _ in range(CALLS):
        assert model.run(X) == (model, X, None)
        assert model.go(X, 2.0) == (model, X, 2.0) and other.go(X, state=None) == (other, X, None)


def test_calls_that_raise_have_the_short_way() -> None:
    def f(x: Any) -> Any:
        return x[10]

    fast = auto(f)
    for _ in range(CALLS):
        with pytest.raises(IndexError):
            fast(X)
    assert fast.stats().calls == CALLS


def test_functions_of_nothing() -> None:
    f = settled(auto(lambda: X.sum()))
    for _ in range(CALLS):
        assert f() == 15.0
    assert f.stats().calls == 2 * CALLS


def test_defaults_that_are_changed_later() -> None:
    def f(x: Any, k: float = 1.0) -> Any:
        return x * k

    fast = auto(f)
    f.__defaults__ = (2.0,)
    for _ in range(CALLS):
        assert (fast(X) == 2.0 * X).all()


def test_they_travel() -> None:
    factor = 2.5
    f = settled(auto(lambda x, k=1.0: x * k * factor), X)
    copy = pickle.loads(cloudpickle.dumps(f))
    for _ in range(CALLS):
        assert (copy(X) == X * 2.5).all() and (copy(X, 2.0) == X * 5.0).all()


@pytest.mark.threads
def test_threads_share_the_code() -> None:
    f, wrong = auto(lambda x, y: x - y), []

    def work(y: Any) -> None:
        for _ in range(400):
            if not np.array_equal(f(X, y), X - y):
                wrong.append(y)

    threads = [threading.Thread(target=work, args=(y,)) for y in (X, 1.0, 2, np.float64(3.0), True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


FEW = """
import sys
import numpy as np
import jitla

@jitla.jit
def f(x):
    return x + 1.0

@jitla.jit
def rows(x, k):
    for i in range(3):
        x = np.sort(x * k[i]) + x[k > i].sum()
    return x

@jitla.jit
def added(x):
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    return total

for _ in range(500):
    f(np.ones(3))
rows(np.ones(3), np.arange(3.0))
assert "jitla.tracing" not in sys.modules, "the tracer was loaded"
assert added(np.ones(9)) == 9.0
assert "jitla.loopjit.loop_compiler" not in sys.modules, "the compiler of loops was loaded"
assert "subprocess" not in sys.modules, "a process was started"
assert f.stats().calls == f.stats().bypassed == 500
"""


@pytest.mark.process
def test_a_program_on_few_elements_needs_no_tracer(tmp_path: Path) -> None:
    (tmp_path / "few.py").write_text(FEW, encoding="utf-8")
    root = str(Path(__file__).resolve().parents[1])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JITLA_")}
    subprocess.run([sys.executable, str(tmp_path / "few.py")], check=True,
                   env={**environment, "PYTHONPATH": root})
