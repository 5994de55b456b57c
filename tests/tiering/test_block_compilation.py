"""Which blocks wait for the compiler, what runs meanwhile, and when programs take over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.dispatch import block_compilation as blocks
from jitla.engine import ENGINE
from jitla.hops import cost
from jitla.tiering import policy
from jitla.tracing import fallback as replay
from tests.behaviour.nineteen import ARGUMENTS, FUNCTIONS
from tests.fuzz.compare import compare, outcome

# Which blocks wait for the compiler, what runs meanwhile, and when programs take over.


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Nobody compiles behind the program; what is asked for is noted. No program is there."""
    asked: list[Any] = []
    monkeypatch.setattr(ENGINE, "_compilers", {})
    monkeypatch.setattr(policy, "LONG_SECONDS", 0.0)  # first calls are traced
    monkeypatch.setattr(ENGINE.background, "submit", lambda job, priority=0.0: asked.append(job))
    return asked


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_does_the_same_until_programs_are_there(name: str, nobody: list[Any]) -> None:
    function, f = FUNCTIONS[name], jitla.jit(FUNCTIONS[name], compile="background")
    file = function.__code__.co_filename
    for _ in range(2):
        plain, made = (outcome(each, ARGUMENTS[name](), tuple, file) for each in (function, f))
        assert compare(plain, made) == []
    assert f.stats().kernel_runs == 0 and f.stats().failures == 0


def test_programs_take_over_once_they_are_there(nobody: list[Any]) -> None:
    f, x = jitla.jit(lambda x: (x * 2.5 - 1.0).sum(), compile="background"), np.ones(9000)
    f(x)
    f(x)
    assert f.stats().waiting == len(nobody) == 1 and f.stats().kernel_runs == 0
    nobody[0]()
    assert f.stats().waiting == 0
    assert f(x) == 13500.0 and f.stats().kernel_runs == 1
    assert [r.tier for r in jitla.recompilations(f)] == ["none", "behind"]
    assert f.stats().forces == 3  # two of them by NumPy


def test_programs_take_over_inside_a_call(nobody: list[Any]) -> None:
    @jitla.jit(compile="background")
    def steps(x: np.ndarray) -> np.ndarray:
        for k in range(10):
            x = x * 0.5 + 1.0
            if k == 4:
                nobody.pop()()
        return x

    made = steps(np.zeros(9000))
    assert (made == _halved(np.zeros(9000))).all()
    assert 4 <= steps.stats().kernel_runs <= 6


def _halved(x: np.ndarray, times: int = 10) -> np.ndarray:
    for _ in range(times):
        x = x * 0.5 + 1.0
    return x


def test_where_numpy_takes_far_longer_the_call_waits(
        monkeypatch: pytest.MonkeyPatch, nobody: list[Any]) -> None:
    x = np.ones(300_000)
    f = jitla.jit(lambda x: np.exp(x) * 2.5, compile="auto")
    f(x)
    assert f.stats().waiting == 1 and not nobody
    monkeypatch.setattr(cost, "NUMPY_SECONDS_PER_BYTE", 1.0)
    g = jitla.jit(lambda x: np.exp(x) * 3.5, compile="auto")
    g(x)
    assert g.stats().kernel_runs == 1 and g.stats().waiting == 0


def test_where_intermediates_do_not_fit_the_call_waits(
        monkeypatch: pytest.MonkeyPatch, nobody: list[Any]) -> None:
    monkeypatch.setattr(blocks, "MAX_TEMPORARY_BYTES", 8 << 20)
    f = jitla.jit(lambda x: np.exp(np.exp(-x) * 4.5).sum(), compile="auto")
    f(np.ones(300_000))
    assert f.stats().waiting == 1
    f(np.ones(2_000_000))
    assert f.stats().kernel_runs == 1


def test_blocks_are_compiled_when_numpy_has_taken_long(
        monkeypatch: pytest.MonkeyPatch, nobody: list[Any]) -> None:
    monkeypatch.setattr(blocks, "COMPILE_BLOCK_SECONDS", 1e-9)
    monkeypatch.setattr(blocks, "COMPILE_OPERATION_SECONDS", 0.0)
    monkeypatch.setattr(blocks, "LOAD_SECONDS", 0.0)
    monkeypatch.setattr(policy, "WAIT_RATIO", float("inf"))
    f = jitla.jit(lambda x: x * 5.5 - 1.0, compile="auto")
    f(np.ones(300_000))
    assert len(nobody) == 1
    f(np.ones(300_000))
    assert len(nobody) == 1  # asked for once


@pytest.mark.parametrize("program_seconds, runs", [(0.0, 10), (0.75e-3, 40), (2e-3, 200)])
def test_programs_are_requested_when_they_would_have_saved_what_they_cost(
        monkeypatch: pytest.MonkeyPatch, program_seconds: float, runs: int) -> None:
    clock, asked = [0.0], []

    def run(standby: Any, leaves: list[Any]) -> tuple[Any, ...]:
        clock[0] += 1e-3
        return ()

    def ask(standby: Any, priority: float) -> None:
        asked.append(priority)
        standby.program_state.requested = True

    monkeypatch.setattr(replay, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(replay.Replay, "run", run)
    price = 1e-2 / policy.weight(1.0)
    job = SimpleNamespace(
        ask=ask, price=price,
        is_worth_compiling=lambda spent, saved: policy.is_worth_compiling(spent, saved, price, 1.0))
    standby = replay.InterimReplay(
        replay.Request((), {}, (), frozenset(), (), ((), ())), program_seconds, job)
    while not asked:
        standby.run([])
    assert clock[0] == pytest.approx(runs * 1e-3, abs=1.1e-3)
    standby.run([])
    assert len(asked) == 1 and asked[0] > 0.0


def test_no_program_is_thought_to_take_no_time(nobody: list[Any]) -> None:
    found = []
    for n in (300_000, 600_000):
        f = jitla.jit(lambda x: np.exp(x) * 2.5, compile="auto")
        f(np.ones(n))
        (site,) = f.__jitla_state__.all_sites()
        (standby,) = site.interim_replays
        found.append(standby.program_seconds)
    small, large = found
    assert blocks.CALL_SECONDS + blocks.OPERATION_SECONDS < small < large < 2.1 * small


def test_what_cannot_be_compiled_stays_with_numpy(
        monkeypatch: pytest.MonkeyPatch, nobody: list[Any]) -> None:
    f, x = jitla.jit(lambda x: x * 6.5 - 1.0, compile="background"), np.ones(9000)
    f(x)
    monkeypatch.setattr(ENGINE, "bind", lambda *given: 1 / 0)
    nobody[0]()
    assert f.stats().waiting == 0 and f.stats().failures == 1
    assert (f(x) == 5.5).all() and len(nobody) == 1


def test_stores_and_warnings_are_numpys_meanwhile(nobody: list[Any]) -> None:
    @jitla.jit(compile="background")
    def divided(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        y[2:] += x[:-2] / y[1:-1]
        return y

    x, y = np.ones(500), np.arange(500.0)
    y[7] = 0.0
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        wanted = divided.__wrapped__(x, y.copy())
    with pytest.warns(RuntimeWarning, match="divide by zero") as told:
        assert (divided(x, y) == wanted).all()
    assert [w.filename for w in told] == [__file__]


def test_blocks_of_an_earlier_process_cost_less(nobody: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    prices = []
    for is_stored in (False, True):
        monkeypatch.setattr(ENGINE, "has_plan", lambda config, request, stored=is_stored: stored)
        f = jitla.jit(lambda x: x * 8.5 + 1.0, compile="auto")
        assert (f(np.ones(300_000)) == 9.5).all()
        (site,) = f.__jitla_state__.all_sites()
        (standby,) = site.interim_replays
        prices.append(standby.price)
    assert prices[0] > 3 * prices[1]


def test_explain_shows_programs_whatever_pays(nobody: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "LONG_SECONDS", 1.0)
        f = jitla.jit(lambda x: x * 9.5 + np.exp(x), compile="auto")
        f(np.ones(10))
        assert "have not taken long enough" in str(jitla.explain(f))
        assert "== program 1" in str(jitla.explain(f, np.ones(10)))


def test_a_program_for_another_magnitude_runs_until_the_best_one_is_planned() -> None:
    def scaled(x: Any) -> Any:
        return (x * 3.25 - x.mean(axis=1, keepdims=True)) / 7.5

    small, large = np.arange(60.0).reshape(3, 20), np.arange(20_000.0).reshape(1000, 20)
    f = jitla.jit(scaled, compile="background")
    f(small)
    assert ENGINE.background.wait(60.0)
    runs = f.stats().kernel_runs
    assert (f(large) == scaled(large)).all()
    assert f.stats().kernel_runs == runs + 1 and not f.stats().waiting  # at once
    assert ENGINE.background.wait(60.0)
    records = jitla.recompilations(f)[-2:]
    assert [(r.tier, r.plans) for r in records] == [("now", 0), ("behind", 1)]
    assert [r.guard.name for r in records] == ["size", "magnitude"]
    assert (f(large) == scaled(large)).all() and f.stats().kernel_runs == runs + 2
