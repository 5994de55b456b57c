"""Which calls of decorated functions are traced, with the clock of the process; calls that go on plain."""

from __future__ import annotations

import re
import sys
import threading
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.dispatch.function_state import FunctionTracer
from jitla.tiering import policy
from jitla.tiering.engine import CallState
from jitla.tracing import fallback
from jitla.tracing.fallback import (
    CHECK_INTERVAL_SECONDS,
    MAX_NEW_BLOCKS,
    MIN_NEW_BLOCK_SECONDS,
    MIN_RECHECK_SECONDS,
    TracingBudget,
)
from jitla.tracing.force import ClosedBlock
from jitla.tracing.frames import LOCAL
from tests.tracing.sameness import same

X = np.arange(10.0)


@pytest.fixture
def traced_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are traced from the second on, wait for programs, and stay traced."""
    for name, value in {"MIN_TRACED_SECONDS": 0.0, "RECORDING_SECONDS": 0.0, "WAIT_RATIO": -1.0,
                        "LOADING_SECONDS": 0.0, "REGRET_SECONDS": 1e9, "PROCESS_REGRET_SECONDS": 1e9,
                        "MAX_UNCOUNTED_CALLS": 1, "CROWDED_PROCESSORS": 1e9}.items():
        monkeypatch.setattr(policy, name, value)
    monkeypatch.setattr("jitla.tiering.ledger.REGRET_SECONDS", 1e9)
    monkeypatch.setattr("jitla.tiering.ledger.PROCESS_REGRET_SECONDS", 1e9)
    monkeypatch.setattr(FunctionTracer, "load", lambda self: self.state.try_load_tracing())
    monkeypatch.setattr(policy, "is_gain", lambda seconds, plain: True)


def state_of(function: Any) -> list[CallState]:
    """Return the states of the call classes of a function."""
    return [kind.state for _, classes in function.__jitla_state__.classes_by_epoch.values()
            for kind in classes.kinds.values()]


def test_calls_are_counted_whichever_way_they_go(traced_soon: None) -> None:
    f = jitla.jit(lambda x: x * 2.0, compile="auto")
    for _ in range(50):
        assert (f(X) == X * 2.0).all() and type(f(X)) is np.ndarray
    stats = f.stats()
    assert stats.calls == 100 and 0 < stats.bypassed < 100 and stats.kernel_runs == 100 - stats.bypassed


def test_calls_of_another_class_are_judged_for_themselves(traced_soon: None) -> None:
    f = jitla.jit(lambda x, y=None: x * 2.0 if y is None else x * y, compile="auto")
    for _ in range(10):
        f(X)
    assert state_of(f) == [CallState.TRACED]
    f(X, 3.0)
    assert state_of(f)[0] is CallState.TRACED and state_of(f)[1] is not CallState.TRACED


def test_errors_come_through_and_leave_nothing_behind(traced_soon: None) -> None:
    @jitla.jit(compile="auto")
    def f(x: Any, k: int) -> Any:
        if k % 3 == 2:
            raise ValueError(f"{-k}")
        return float((x * k).sum())

    for k in range(40):
        if k % 3 == 2:
            with pytest.raises(ValueError, match=f"-{k}") as caught:
                f(X, k)
            assert {entry.path.name for entry in caught.traceback} == {"test_calls.py"}
        else:
            assert f(X, k) == 45.0 * k
    assert LOCAL.session is None


@pytest.mark.threads
def test_threads_decide_together(traced_soon: None) -> None:
    f = jitla.jit(lambda x: x * 2.0, compile="auto")
    wrong: list[Any] = []

    def work() -> None:
        for n in range(300):
            x = np.arange(1.0, 2.0 + n % 40)
            if not (f(x) == x * 2.0).all():
                wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # counters are not locked: calls that end at the same time may be counted as one
    assert not wrong and f.stats().calls == pytest.approx(1200, abs=20) and f.stats().bypassed > 0


@pytest.mark.parametrize(
    "options", [{"compile": "sync"}, {"strict": True}, {"verify": True}, {"memory_limit": "1GB"}])
def test_some_options_have_every_call_traced(options: dict[str, Any]) -> None:
    f = jitla.jit(**options)(lambda x: x * 2.0)
    with jitla.options(compile=options.get("compile", "auto")):
        for _ in range(100):
            f(X)
    assert f.stats().bypassed == 0 and f.stats().kernel_runs == 100


def test_calls_that_take_little_time_stay_plain() -> None:
    f = jitla.jit(lambda x: x * 7.5, compile="auto")
    for _ in range(50):
        f(X)
    assert f.stats().bypassed == f.stats().calls == 50 and f.stats().plans == 0
    assert "have not taken long enough" in str(jitla.explain(f))


def test_functions_that_are_not_traced_yet_are_not_instrumented() -> None:
    def halved(x: np.ndarray) -> np.ndarray:
        for _ in range(10):
            x = x * 0.5 + 1.0
        return x

    f = jitla.jit(halved, compile="auto")
    f(X)
    assert f.__jitla_state__.instrumented is None and f.stats().bypassed == 1


def test_explain_and_coverage_show_calls_that_are_faster_plain() -> None:
    f = jitla.jit(lambda x: x * 8.25, compile="auto")
    f(X)
    ((_, classes),) = f.__jitla_state__.classes_by_epoch.values()
    (kind,) = classes.kinds.values()
    kind.best = 2e-5, 1e-6
    row = "<lambda>.*test_calls.py:.*whole calls, on 8 to 15 elements: 1 us each, traced 20 us"
    for text in (str(jitla.explain(f)), jitla.coverage()):
        assert any(re.search(row, line) for line in text.split("\n")), text
    f.cache_clear()
    assert f.stats().bypassed == 0 and "whole calls" not in str(jitla.explain(f))


PROGRAMS = {
    "methods": """
class Model:
    def __init__(self): self.w = np.arange(6.0); self.n = 0
    @jit
    def step(self, x):
        self.n += 1
        self.w -= 0.1 * x
        return self.w.sum() * self.n
model = Model()
def f(a, b): return [model.step(a) for _ in range(40)], model.w.copy(), model.n
def state(): return model
""",
    "closures": """
def make():
    return array((6,), 'f8', 'C', 'normal', 1), array((6,), 'f8', 'C', 'normal', 2)
def f(a, b):
    count = 0
    @jit
    def g(x):
        nonlocal count
        count += 1
        return x * b + count
    return [g(a) for _ in range(40)], count
""",
    "in place": """
@jit
def g(x, y):
    x += y
    x[1:] *= 0.5
    return x
def f(a, b):
    return [g(a, b) is a for _ in range(40)], a
""",
    "recursion": """
@jit
def g(x, n):
    return x if n == 0 else g(x * 0.5 + 1.0, n - 1) + x
def f(a, b): return [g(a, 5) for _ in range(40)]
""",
    "generators": """
@jit
def g(x):
    for k in range(3): yield x * k
def f(a, b): return [list(g(a)) for _ in range(40)]
""",
    "callbacks": """
@jit
def h(x): return x + 1.0
@jit
def g(x, y): return sorted([x, y], key=lambda v: float(h(v).sum()))[0] - h(y)
def f(a, b): return [g(a, b) for _ in range(40)]
""",
    "warnings": """
@jit
def g(x): return np.sqrt(x - 100.0)
def f(a, b): return [g(a) for _ in range(40)]
""",
    "sizes": """
@jit
def g(x): return (x * x).sum() + x[::2].sum()
def f(a, b): return [g(np.arange(1.0, 2.0 + n % 23)) for n in range(400)]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_the_same_whichever_way_calls_go(name: str, traced_soon: None) -> None:
    with jitla.options(compile="auto"):
        same(PROGRAMS[name], calls=3)


def test_what_numpy_took_for_a_block_is_what_it_is_foreseen_to_take() -> None:
    made = ClosedBlock(None, (), (), (), {})
    made.set_numpy_seconds(inf)  # it has not run
    assert made.numpy_seconds == 0.0
    made.set_numpy_seconds(0.25)
    assert made.numpy_seconds == 0.25


# Calls whose tracing costs more than it can give go on plain.


def held(*names: str) -> list[type]:
    """Return the types of the locals of `f`, whatever they pretend to be."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "f":
        frame = frame.f_back
    found = frame.f_locals
    return [object.__getattribute__(found[name], "__class__") for name in names]


def test_locals_are_arrays_from_then_on(traced_soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    over = SimpleNamespace(
        plain=0.0, traced_seconds=0.0, check_at=0.0, add_new_block=lambda *_: None,
        is_exhausted=lambda site: True)
    monkeypatch.setattr(FunctionTracer, "budget", lambda self, plain, allowance: over)
    kinds = []

    @jitla.jit(compile="auto")
    def f(x: np.ndarray) -> tuple[np.ndarray, float]:
        y = x * 2
        def inner() -> np.ndarray:
            return y + 1
        kept = [y - 1, y]
        total = float(y.sum())
        z = y + total
        kinds.append(held("x", "y", "z"))
        kinds.append(type(kept) is list and kept[1] is y)
        y += 1
        x[0] = kept[0][1]
        return z - inner() * y, total

    x, same = np.arange(1000.0), np.arange(1000.0)
    f(x.copy())
    kinds.clear()
    found = f(x)
    assert kinds == [[np.ndarray] * 3, True]
    kinds.clear()
    wanted = f.__wrapped__(same)
    assert found[1] == wanted[1] and found[0].tobytes() == wanted[0].tobytes() and (x == same).all()


def test_sizes_that_differ_in_every_turn_are_not_planned_for() -> None:
    @jitla.jit(compile="auto")
    def solve(L: np.ndarray, b: np.ndarray) -> np.ndarray:
        x = np.zeros_like(b)
        for i in range(len(b)):
            x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]
        return x

    n = 700
    L, b = np.tri(n) + n * np.eye(n), np.ones(n)
    for _ in range(3):
        assert solve(L, b).tobytes() == solve.__wrapped__(L, b).tobytes()
    assert solve.stats().plans < n // 2


@pytest.mark.parametrize(("saved", "is_exhausted"), [(0.0, True), (1.0, False)])
def test_what_ends_an_allowance(monkeypatch: pytest.MonkeyPatch, saved: float, is_exhausted: bool) -> None:
    clock, numpy = [100.0], [0.0]
    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(fallback, name, lambda: clock[0])
    site = SimpleNamespace(numpy_seconds=lambda: numpy[0], interim_replays=[])
    known, other = TracingBudget(1.0, 0.25), TracingBudget(0.0)
    assert known.check_at == pytest.approx(101.25)
    for _ in range(2 * MAX_NEW_BLOCKS):
        other.add_new_block((1, 2), 0.0)
    other.add_new_block((3, 4), 2 * MIN_NEW_BLOCK_SECONDS)
    assert other.check_at == 100.0 + CHECK_INTERVAL_SECONDS
    other.add_new_block((1, 2), 2 * MIN_NEW_BLOCK_SECONDS)
    assert other.check_at == 0.0 and not other.is_exhausted(site)  # from now on it is compared with NumPy
    clock[0] += 1.5 * MIN_RECHECK_SECONDS
    numpy[0] += saved
    other.add_new_block((1, 2), 2 * MIN_NEW_BLOCK_SECONDS)
    assert other.check_at < clock[0] and other.is_exhausted(site) is is_exhausted
    clock[0] = 101.5
    assert known.is_exhausted(site)


@pytest.mark.parametrize(("program_seconds", "later", "programs", "is_exhausted"), [
    (6e-6, 0.03, [], True), (2e-6, 0.03, [], False), (6e-6, 0.015, [], False),
    (6e-6, 0.03, [object()], False)])
def test_where_the_plain_function_is_not_known_blocks_tell(
    monkeypatch: pytest.MonkeyPatch, program_seconds: float, later: float, programs: list[object],
    is_exhausted: bool,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(fallback, "perf_counter", lambda: clock[0])
    budget = TracingBudget(0.0)
    block = SimpleNamespace(
        numpy_seconds=0.01, best_seconds=1e-5, program_seconds=program_seconds, count=1000)
    site = SimpleNamespace(interim_replays=[block], fallbacks={}, bound_programs=lambda: [block, *programs])
    clock[0] += later
    assert budget.is_exhausted(site) is is_exhausted and budget.check_at == clock[0] + CHECK_INTERVAL_SECONDS
