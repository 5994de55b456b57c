"""Writes into arrays: the end of a block, writes that follow each other, interrupts, unseen writers."""

from __future__ import annotations

import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.config import TracingThresholds
from jitla.errors import InternalError
from jitla.tracing import force as closing
from jitla.tracing.mutation import MemoryDependences
from jitla.tracing.open_tape import LEAVES, SCALARS, Tape
from jitla.tracing.tape import data_address, is_same_view
from tests.tracing.sameness import proxies_alive, same

# What closing a block computes, and what it leaves.


def test_same_view() -> None:
    x = np.arange(6.0)
    assert is_same_view(x[1:], x[1:]) and not is_same_view(x[1:], x[:-1])
    assert not is_same_view(x, x.view("i8"))


def test_data_address_of_views() -> None:
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
    before = MemoryDependences._dead_by_liveness
    monkeypatch.setattr(
        MemoryDependences, "_dead_by_liveness",
        lambda self, proxies: looked.append(len(proxies)) or before(self, proxies))
    jitted(x, [p.copy() for p in parts])
    assert 0 < len(looked) <= 3, looked  # once in a turn, not for each part


# Changes in place that follow each other: one block, NumPy's results, warnings and memory.

Array = np.ndarray[Any, Any]


@pytest.fixture
def small() -> Iterator[None]:
    with jitla.options(thresholds=TracingThresholds(min_update_elements=1)):
        yield


def changed(x: Array, y: Array) -> Array:
    a = np.zeros_like(x)
    if a.sum() == 0:  # from here on it is in memory
        a += x * y
        a -= y
        a *= x * 2
    return a


def narrower(x: Array, y: Array) -> Array:
    a = x.astype(np.float32)
    if a.sum() != 0:
        a += x * y
        a -= y * 2
        a *= x * 2
        a /= y + 3
    return a


def turned(x: Array, y: Array) -> Array:
    a = x * 2
    for k in range(3):
        a += y * k
        a -= x * 0.5
        if a[0] > 1e9:
            break
    return a


def seen(x: Array, y: Array) -> tuple[Any, ...]:
    a, b = x * 2, y * 3
    held, part = [a], b[1:]
    if a.sum() + b.sum() != 0:
        a += x * y
        a *= x * 2
        b += x * y
        b *= x * 2
        x += y * 2
        x -= y * a
    return a, b, held[0], part, held[0] is a, np.shares_memory(part, b)


def read(x: Array, y: Array) -> tuple[Array, Array]:
    a = x * 2
    if a.sum() != 0:
        c = a * y
        a += a * y
        c += a
        a -= c * a
        np.add(a, x, out=a)
    return a, c


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("function", [changed, narrower, turned, seen, read])
def test_changes_in_place_are_those_of_numpy(function: Callable[..., Any]) -> None:
    x, y = np.linspace(1, 2, 40), np.linspace(-1, 0.5, 40)
    f = jitla.jit(function, compile="sync")
    for _ in range(3):
        mine, plain = [x.copy(), y.copy()], [x.copy(), y.copy()]
        made, wanted = f(*mine), function(*plain)
        for a, b in zip((*np.atleast_1d(made), *mine) if type(made) is np.ndarray else (*made, *mine),
                        (*np.atleast_1d(wanted), *plain) if type(wanted) is np.ndarray else (*wanted, *plain),
                        strict=True):
            assert type(a) is type(b) and np.array_equal(a, b)
    assert not f.stats().failures


@pytest.mark.usefixtures("small")
def test_they_are_one_block() -> None:
    x, y = np.linspace(1, 2, 40), np.linspace(-1, 0.5, 40)
    f = jitla.jit(changed, compile="sync")
    f(x, y)
    f(x, y)
    before = f.stats().forces
    f(x, y)
    assert f.stats().forces - before == 2  # the sum, and all that follows


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("large", [1e39, 1e300])
def test_what_overflows_as_it_is_stored_overflows_in_the_operation(large: float) -> None:
    x, y = np.linspace(1, 2, 40), np.linspace(-1, 0.5, 40)
    x[3] = y[3] = large
    f = jitla.jit(narrower, compile="sync")

    def told(function: Callable[..., Any]) -> list[tuple[str, int, str]]:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            function(x, y)
        return [(str(w.message), w.lineno, w.filename) for w in heard]

    for _ in range(3):
        assert told(f) == told(narrower) != []


# An interrupt while a block that writes into memory is closed: nothing is read after it was overwritten.


def program(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    y = x * 2.0 + w
    z = w * 3.0
    try:
        w[:] = y + 1.0
    except KeyboardInterrupt:
        pass
    return y, z


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(50.0), np.ones(50)


def expected() -> tuple[np.ndarray, np.ndarray]:
    return program(*arrays())


def test_an_interrupt_before_values_are_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    f = jitla.jit(program)
    real = closing.BlockCloser._deliver
    interrupts = [KeyboardInterrupt]

    def deliver(self, *args):
        if interrupts:
            raise interrupts.pop()
        real(self, *args)

    monkeypatch.setattr(closing.BlockCloser, "_deliver", deliver)
    x, w = arrays()
    for found, wanted in zip(f(x, w), expected(), strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(w, x * 2.0 + 2.0)
    assert not interrupts


def test_an_interrupt_before_the_tape_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    f = jitla.jit(program)
    real = Tape.detach
    interrupts = [KeyboardInterrupt]

    def detach(self, *args):
        if interrupts:
            raise interrupts.pop()
        return real(self, *args)

    monkeypatch.setattr(Tape, "detach", detach)
    for found, wanted in zip(f(*arrays()), expected(), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not interrupts


def test_values_lost_in_a_program_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    f = jitla.jit(program)
    real = closing.BlockCloser._run_program

    def outputs(self, parts, closed):
        monkeypatch.setattr(closing.BlockCloser, "_run_program", real)
        closed.bound.run(parts[LEAVES] + parts[SCALARS])
        raise KeyboardInterrupt

    monkeypatch.setattr(closing.BlockCloser, "_run_program", outputs)
    with pytest.raises(InternalError, match="interrupted"):
        f(*arrays())


# Whether other code of the program may write unseen: threads, handlers of signals, tracers.

# In a process of its own: test runners have threads, handlers and tracers.
HEAD = """
import signal, sys, threading, types
from jitla.tracing.frames import is_alone
stop = threading.Event()
def waits(): stop.wait()
"""
CASES = {
    "nothing": ("pass", True),
    "a thread": ("threading.Thread(target=waits, daemon=True).start()", False),
    "a thread that has ended": ("t = threading.Thread(target=print); t.start(); t.join()", True),
    "a thread of a notebook": ("waits.__module__ = 'ipykernel.iostream'; "
                               "threading.Thread(target=waits, daemon=True).start()", True),
    "one of these and another": ("threading.Thread(target=waits, daemon=True).start(); "
                                 "waits.__module__ = 'tqdm'; "
                                 "threading.Thread(target=stop.wait, daemon=True).start()", False),
    "a thread nobody knows": ("import _thread; _thread.start_new_thread(waits, ())", False),
    "a handler": ("signal.signal(signal.SIGINT, lambda *x: None)", False),
    "a handler of an alarm": ("signal.signal(signal.SIGTERM, waits)", False),
    "handlers that were there": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", True),
    "a tracer": ("sys.settrace(lambda *x: None)", False),
    "a profiler": ("sys.setprofile(lambda *x: None)", False),
}


@pytest.mark.process
@pytest.mark.parametrize("case", CASES)
def test_is_alone(case: str) -> None:
    text, alone = CASES[case]
    program = f"{HEAD}{text}\nimport time; time.sleep(0.05); print(is_alone()); stop.set()"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout.split()[-1] == str(alone)


@pytest.mark.process
def test_a_thread_is_not_alone_beside_the_main_one() -> None:
    program = HEAD + "t = threading.Thread(target=lambda: print(is_alone())); t.start(); t.join()"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout == "False\n"
