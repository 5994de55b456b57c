"""Forks, threads, signals, failures and settings of NumPy while loops are in each of their states."""

from __future__ import annotations

import ctypes
import signal
import threading
import time
import warnings
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

import jitla
from jitla.dispatch import function_state
from jitla.engine import ENGINE
from jitla.errors import BackendError
from jitla.loopjit import LoopSite, loop_compiler, loop_functions, loop_sites, specialisations
from jitla.loopjit.loop_sites import LoopRun
from tests.faults.compiling import failing, interrupted
from tests.faults.living import paused, together
from tests.faults.running import SECONDS, ended, fault, in_child

Arrays = tuple[np.ndarray, np.ndarray]
ROWS, WORK, RARE = 4000, 20, 900


def smoothed(a: np.ndarray, b: np.ndarray, rare: int) -> float:
    """Change two arrays element by element; iterations whose number `rare` divides are Python's."""
    total = 0.0
    for i in range(1, len(a)):
        x = a[i - 1]
        for _ in range(WORK):
            x = 0.5 * x + b[i]
        a[i] = x
        if i % rare == 0:
            str(i)
        b[i - 1] = total - x
        total += x
    return total


def refused(a: np.ndarray, b: np.ndarray, rare: int) -> float:
    """Do the same in a loop that no program has."""
    total = 0.0
    for i in range(1, len(a)):
        seen = {i: 0.5 * a[i - 1]}
        a[i] = seen[i] + b[i]
        b[i - 1] = total - a[i]
        total += a[i]
    return total


def quotients(a: np.ndarray, b: np.ndarray, rare: int) -> float:
    """Divide elements; the divisor of an iteration whose number `rare` divides is zero."""
    total = 0.0
    for i in range(1, len(a)):
        a[i] = 0.5 * a[i - 1] + 1.0
        b[i - 1] = a[i] / (i % rare)
        total += a[i]
    return total


def arrays(rows: int = ROWS) -> Arrays:
    return np.linspace(0.5, 1.0, rows), np.linspace(-1.0, 2.0, rows)


def outcome(function: Callable[..., Any], rare: int = RARE, rows: int = ROWS) -> Any:
    """Return all that a call does: result or exception, arrays, warnings."""
    a, b = arrays(rows)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = repr(function(a, b, rare))
        except Exception as error:
            result = repr(error)
    return result, a.tobytes(), b.tobytes(), [(str(w.message), w.lineno) for w in caught]


def decorated(function: Callable[..., Any] = smoothed) -> Any:
    """Return a decorated function whose loops are compiled, in the background, as soon as they run."""
    jitla.configure(disk_cache=False)
    loop_sites.HOT_SECONDS = 0.0
    loop_functions.JUDGED_SECONDS = inf
    function_state.SHORT_CALL_SECONDS = -1.0
    specialisations.WIN = inf  # machines that do much else are slow: compiled code stays
    return jitla.jit(function, compile="auto")


def settle(f: Any, function: Callable[..., Any] = smoothed, rare: int = RARE) -> None:
    """Call a function until compiled code runs its loops; raise if a result is wrong."""
    wanted = outcome(function, rare)
    until = time.monotonic() + SECONDS / 2
    while not f.stats().loop_runs:
        assert outcome(f, rare) == wanted
        assert time.monotonic() < until, str(f.stats())
        ENGINE.background.wait(1.0)
    assert outcome(f, rare) == wanted


# ------------------------------------------------------------------------------ states


def cold(f: Any, function: Callable[..., Any]) -> None:
    """Leave the function as it is: not called yet."""


def queued(f: Any, function: Callable[..., Any]) -> None:
    """Have the loop wait for the compiler, which is held up by another job for a while."""
    ENGINE.background.submit(lambda: time.sleep(0.5))
    outcome(f)
    assert f.stats().loops_waiting


def compiled(f: Any, function: Callable[..., Any]) -> None:
    """Have the loop compiled, but not checked."""
    outcome(f)
    ENGINE.background.wait()


def ready(f: Any, function: Callable[..., Any]) -> None:
    settle(f, function)


STATES = {state.__name__: state for state in (cold, queued, compiled, ready)}


@fault(*STATES)
def fork_in(at: Path, state: str) -> None:
    """A fork of a process whose loop is in a state: the child compiles it, or has it."""
    f = decorated()
    STATES[state](f, smoothed)
    children = [in_child(lambda: settle(f)) for _ in range(2)]
    settle(f)
    assert {ended(child, SECONDS) for child in children} == {""}


STEPS: dict[str, tuple[Any, str]] = {
    "request": (LoopSite, "specialisation"), "lower": (loop_compiler, "lower_loop_of"),
    "compile": (ENGINE, "_compile_loop"), "optimise": (loop_compiler, "_optimise"),
    "try": (LoopRun, "_try"), "enter": (LoopRun, "_enter"),
    "compare": (LoopRun, "_compare"), "execute": (LoopRun, "_execute"), "give": (LoopRun, "_hand_out"),
}


@fault(*STEPS)
def fork_while(at: Path, step: str) -> None:
    """A fork while another thread is in a step of the life of a loop."""
    f = decorated()
    inside, go = paused(*STEPS[step])
    thread = threading.Thread(target=lambda: settle(f))
    thread.start()
    assert inside.wait(SECONDS)
    child = in_child(lambda: settle(f))
    go.set()
    assert ended(child, SECONDS) == ""
    thread.join(SECONDS)
    settle(f)


# ------------------------------------------------------------------------------ threads


@fault(2, 8)
def one_function(at: Path, threads: int) -> None:
    """Threads call the same function from the first call on."""
    f, wanted = decorated(), outcome(smoothed)

    def work(k: int) -> None:
        for _ in range(12):
            a, b = arrays()
            result = repr(f(a, b, RARE))
            assert (result, a.tobytes(), b.tobytes()) == wanted[:3]

    together(threads, work)
    settle(f)


def halves(a: np.ndarray, b: np.ndarray, rare: int, begin: int, end: int) -> None:
    """Change a range of elements."""
    for i in range(begin, end):
        a[i] = 0.5 * a[i] + b[i]
        if i % rare == 0:
            str(i)
        b[i] = a[i] - 1.0


@fault(*[(threads, rare) for threads in (2, 4) for rare in (10**9, 1001)])
def shared_arrays(at: Path, threads: int, rare: int) -> None:
    """Threads change ranges of elements of the same arrays, some of whose iterations are undone."""
    rows = 5_000 * threads
    a, b = arrays(rows)
    halves(a, b, rare, 0, rows)
    f = decorated(halves)
    for _ in range(20):
        one, other = arrays(rows)
        together(threads, lambda k, one=one, other=other: f(
            one, other, rare, k * rows // threads, (k + 1) * rows // threads))
        assert (one == a).all() and (other == b).all()
        ENGINE.background.wait()
    assert f.stats().loop_runs, str(jitla.explain(f))


@fault(*STATES)
def killed_thread(at: Path, state: str) -> None:
    """An exception thrown into a thread from outside, anywhere in its calls."""
    f = decorated()
    STATES[state](f, smoothed)
    for k in range(12):
        def work() -> None:
            try:
                for _ in range(20):
                    f(*arrays(), RARE)
            except SystemError:
                pass
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.003 * (k % 5))
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemError))
        thread.join(SECONDS)
        assert not thread.is_alive()
    settle(f)


# ------------------------------------------------------------------------------ signals


def is_prefix(a: np.ndarray, b: np.ndarray, wanted: tuple[Any, ...]) -> bool:
    """Return whether arrays are as Python leaves them after some iterations, the last of them in part."""
    first_a, first_b = arrays()
    last_a, last_b = (np.frombuffer(data) for data in wanted[1:3])
    done = int((a != first_a).sum())
    behind = int((b != first_b).sum())
    return behind <= done <= behind + 1 \
        and bool((a[1:done + 1] == last_a[1:done + 1]).all() and (b[:behind] == last_b[:behind]).all())


@fault(*[(state, rare) for state in STATES for rare in (RARE, 7)])
def interrupt(at: Path, state: str, rare: int) -> None:
    """^C at any time: it comes out, arrays have the values of iterations that were done, and no others."""
    f = decorated()
    wanted = outcome(smoothed)
    STATES[state](f, smoothed)
    draw = np.random.default_rng(len(state) + rare)
    hit = 0
    for _ in range(80 if state == "ready" else 12):
        a, b = arrays()
        hit += interrupted(lambda a=a, b=b: f(a, b, rare), float(draw.uniform(1e-5, 4e-3)))
        assert is_prefix(a, b, wanted), (np.flatnonzero(a != arrays()[0]), np.flatnonzero(b != arrays()[1]))
    assert hit
    settle(f)


@fault(*STATES)
def storm(at: Path, state: str) -> None:
    """A signal every few milliseconds, whose handler calls the function that it interrupts."""
    f = decorated()
    STATES[state](f, smoothed)
    small = repr(smoothed(*arrays(50), ROWS))
    seen: set[str] = set()
    inside: list[int] = []

    def call(*args: Any) -> None:
        if not inside:
            inside.append(1)
            seen.add(repr(f(*arrays(50), ROWS)))
            inside.pop()

    wanted = outcome(smoothed, ROWS)
    signal.signal(signal.SIGALRM, call)
    signal.setitimer(signal.ITIMER_REAL, 5e-4, 3e-3)
    for _ in range(40):
        assert outcome(f, ROWS) == wanted
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert seen == {small}
    settle(f, rare=ROWS)


# ------------------------------------------------------------------------------ settings of NumPy

ERRORS: dict[str, dict[str, Any]] = {
    "raise": {"divide": "raise"}, "ignore": {"divide": "ignore"}, "call": {"divide": "call"},
    "all": {"all": "raise"},
}


@fault(*[(state, errors) for state in STATES for errors in ERRORS])
def errstate(at: Path, state: str, errors: str) -> None:
    """NumPy is told what to do about divisions by zero when the loop is in a state."""
    f = decorated(quotients)
    STATES[state](f, quotients)
    calls: list[Any] = []
    found = []
    for function in (quotients, f, f, f):
        with np.errstate(call=lambda *args: calls.append(args), **ERRORS[errors]):
            found.append((outcome(function), list(calls)))
        calls.clear()
        if function is f:
            ENGINE.background.wait()
    assert all(each == found[0] for each in found), found
    settle(f, quotients)


@fault(*STATES)
def warnings_as_errors(at: Path, state: str) -> None:
    """Warnings are exceptions: arrays have the values of the iterations before."""
    f = decorated(quotients)
    STATES[state](f, quotients)
    found = []
    for function in (quotients, f, f, f):
        a, b = arrays()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                function(a, b, RARE)
                raise AssertionError("no warning")
            except RuntimeWarning as error:
                found.append((str(error), a.tobytes(), b.tobytes()))
    assert len(set(found)) == 1
    settle(f, quotients)


# ------------------------------------------------------------------------------ failures


@fault(*[(step, error) for step in ("lower", "compile") for error in (
    BackendError, MemoryError, RecursionError, OSError, AssertionError)])
def compiler(at: Path, step: str, error: type[Exception]) -> None:
    """The compiler fails: Python runs the loop."""
    f = decorated()
    calls = failing(*STEPS[step], error, lambda n: True)
    wanted = outcome(smoothed)
    for _ in range(4):
        assert outcome(f) == wanted
        ENGINE.background.wait()
    assert calls and f.stats().loops_refused


@fault(*range(1, 6))
def no_memory(at: Path, number: int) -> None:
    """There is no memory for the copies of arrays that a part may have to restore."""
    f = decorated()
    settle(f)
    calls = failing(loop_sites, "_saved", MemoryError, lambda n: n == number)
    wanted = outcome(smoothed)
    for _ in range(4):
        assert outcome(f) == wanted
    assert len(calls) >= number


@fault()
def never_compiled(at: Path) -> None:
    """A loop that no program has is called by threads, and in children."""
    f, wanted = decorated(refused), outcome(refused)

    def work(k: int) -> None:
        for _ in range(5):
            a, b = arrays()
            assert repr(f(a, b, RARE)) == wanted[0]
            assert (a.tobytes(), b.tobytes()) == wanted[1:3]

    together(4, work)
    ENGINE.background.wait()
    assert ended(in_child(lambda: work(0)), SECONDS) == ""
    assert f.stats().loops_refused
