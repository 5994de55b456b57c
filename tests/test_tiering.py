"""Which blocks wait for the compiler, what runs meanwhile, and when programs take over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.dispatch import tiering as foresight
from jitla.dispatch import tiering as tiers
from jitla.engine import ENGINE
from jitla.hops import cost
from jitla.profiling import call_classes as cold
from jitla.profiling.call_classes import ColdCallClass
from jitla.tracing import fallback as replay
from jitla.tracing import profile as onset
from jitla.tracing import profile as payoff
from tests.behaviour.nineteen import ARGUMENTS, FUNCTIONS
from tests.fuzz.compare import compare, outcome

# Which blocks wait for the compiler, what runs meanwhile, and when programs take over.


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Nobody compiles behind the program; what is asked for is noted. No program is there."""
    asked: list[Any] = []
    monkeypatch.setattr(ENGINE, "_compilers", {})
    # first calls are traced, though what they do is done once
    monkeypatch.setattr(cold, "MAX_COLD_BITS_LOOP_FREE", cold.MAX_COLD_BITS)
    monkeypatch.setattr(ENGINE.background, "submit", lambda job, soon=False, share=1.0: asked.append(job))
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
    monkeypatch.setattr(tiers, "MANY", 8 << 20)
    f = jitla.jit(lambda x: np.exp(np.exp(-x) * 4.5).sum(), compile="auto")
    f(np.ones(300_000))
    assert f.stats().waiting == 1
    f(np.ones(2_000_000))
    assert f.stats().kernel_runs == 1


def test_blocks_are_compiled_when_numpy_has_taken_long(
        monkeypatch: pytest.MonkeyPatch, nobody: list[Any]) -> None:
    monkeypatch.setattr(foresight, "BLOCK", 0.0)
    monkeypatch.setattr(foresight, "OPERATION", 0.0)
    monkeypatch.setattr(foresight, "LOADING", 0.0)
    monkeypatch.setattr(tiers, "TIMES", float("inf"))
    f = jitla.jit(lambda x: x * 5.5 - 1.0, compile="auto")
    f(np.ones(300_000))
    assert len(nobody) == 1
    f(np.ones(300_000))
    assert len(nobody) == 1  # asked for once


@pytest.mark.parametrize("least, runs", [(0.0, 10), (0.75e-3, 40), (2e-3, 200)])
def test_programs_are_asked_for_when_they_would_have_saved_what_they_cost(
        monkeypatch: pytest.MonkeyPatch, least: float, runs: int) -> None:
    clock, asked = [0.0], []

    def run(standby: Any, leaves: list[Any]) -> tuple[Any, ...]:
        clock[0] += 1e-3
        return ()

    monkeypatch.setattr(replay, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(replay.Replay, "run", run)
    job = SimpleNamespace(
        ask=lambda *given: asked.append(given), before=asked.append, saw=lambda *given: None)
    standby = replay.InterimReplay(replay.Request((), {}, (), frozenset(), (), ((), ())), 1e-2, least, job)
    while not asked:
        standby.run([])
    assert clock[0] == pytest.approx(runs * 1e-3, abs=1.1e-3)
    standby.run([])
    assert asked[:2] == [(standby, True), standby]  # after a run, before the next


@pytest.mark.parametrize("processors, waits", [(0.9, True), (0.4, False)])
def test_calls_wait_for_programs_where_numpy_keeps_all_processors_busy(
        monkeypatch: pytest.MonkeyPatch, nobody: list[Any], processors: float, waits: bool) -> None:
    @jitla.jit(compile="auto")
    def steps(x: np.ndarray) -> np.ndarray:
        for _ in range(32):  # four of them are a block
            x = x * 0.5 + 1.0
        return x

    worked = processors * tiers._processors()
    clock = [0.0]
    monkeypatch.setattr(replay, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(replay, "process_time", lambda: worked * clock[0])
    monkeypatch.setattr(tiers.ProcessorLoad, "seconds", 0.0)
    monkeypatch.setattr(tiers.ProcessorLoad, "worked", 0.0)
    monkeypatch.setattr(replay.InterimSeconds, "replaying", 0.0)
    run = replay.Replay.run

    def slowly(standby: Any, leaves: list[Any]) -> tuple[Any, ...]:
        clock[0] += 0.3
        return run(standby, leaves)

    monkeypatch.setattr(replay.Replay, "run", slowly)
    assert (steps(np.zeros(300_000)) == _halved(np.zeros(300_000), 32)).all()
    stats = steps.stats()
    assert (stats.kernel_runs > 0) is waits is (not nobody)
    assert [r.tier for r in jitla.recompilations(steps)] == ["none", "now"][:1 + waits]
    assert (replay.InterimSeconds.waiting > 0.0) or not waits


def test_no_program_is_thought_to_take_no_time(nobody: list[Any]) -> None:
    found = []
    for n in (300_000, 600_000):
        f = jitla.jit(lambda x: np.exp(x) * 2.5, compile="auto")
        f(np.ones(n))
        (site,) = f.__jitla_state__.all_sites()
        (standby,) = site.interim_replays
        found.append(standby.program_seconds)
    small, large = found
    assert foresight.TRACED + foresight.OPERATION_TRACED < small < large < 2.1 * small


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


def test_calls_on_few_elements_are_not_traced_at_first(
        monkeypatch: pytest.MonkeyPatch, nobody: list[Any]) -> None:
    f = jitla.jit(lambda x: x * 7.5, compile="auto")
    for _ in range(50):
        f(np.ones(10))
    assert f.stats().bypassed == f.stats().calls == 50 and f.stats().plans == 0
    (site,) = f.__jitla_state__.all_sites()
    (cold,) = site.call_classes.kinds.values()
    assert type(cold) is ColdCallClass
    cold._spent, cold.skip = 1.0, 0
    bypassed = f.stats().bypassed
    f(np.ones(10))
    f(np.ones(10))
    assert f.stats().plans == 1 and f.stats().bypassed == bypassed + 1


def test_functions_with_loops_over_whole_arrays_have_no_twin_at_first(nobody: list[Any]) -> None:
    f = jitla.jit(_halved, compile="auto")
    f(np.ones(10))
    assert f.__jitla_state__.instrumented is None and f.stats().calls == 1 and not f.stats().forces


def test_short_calls_are_plain_while_programs_are_made(
        nobody: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onset, "LONG_CALL_SECONDS", 1e9)
    monkeypatch.setattr(onset, "UNTIMED_SECONDS", 0.0)
    monkeypatch.setattr(foresight, "LOADING", 0.0)
    monkeypatch.setattr(foresight, "BLOCK", 1e6)
    f, x = jitla.jit(lambda x: x * 8.5 + 1.0, compile="auto"), np.ones(300_000)
    for _ in range(5):
        f(x)
    assert f.stats().forces == 1 and f.stats().bypassed == 4 and not nobody
    (site,) = f.__jitla_state__.all_sites()
    (kind,) = site.call_classes.kinds.values()
    kind._spent = 1e9
    f(x)
    assert len(nobody) == 1 and kind.bypassed
    nobody[0]()
    f(x)
    assert f.stats().kernel_runs == 0 and not kind.bypassed  # it has seen that the program is there
    f(x)
    assert f.stats().kernel_runs == 1 and f.stats().calls == 8


def test_jobs_of_programs_with_brief_operations_rest_most(
        nobody: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr(ENGINE.background, "submit", lambda job, soon=False, share=1.0: shares.append(share))
    monkeypatch.setattr(tiers.Tiers, "is_time", lambda self, times=1.0, kept=False: True)
    for seconds in (1e-6, 1.0):
        f = jitla.jit(lambda x, y: x * 8.75 + y, compile="auto")
        f(np.ones(300_000), seconds)
        (site,) = f.__jitla_state__.all_sites()
        (standby,) = site.interim_replays
        standby.best_seconds = seconds
        standby.ask(False)
    assert shares == [tiers.LEAST, tiers.MOST]
    g = jitla.jit(lambda x: x * 8.75 + 3.0, compile="background")
    g(np.ones(300_000))
    assert shares[2:] == [1.0]  # at once


@pytest.mark.parametrize(("seconds", "loaded", "tier"), [
    (2e-2, False, "now"), (1e-3, False, "none"), (1e-3, True, "now"), (1e-4, True, "none")])
def test_blocks_that_an_earlier_process_compiled_wait_for_their_programs(
    nobody: list[Any], monkeypatch: pytest.MonkeyPatch, seconds: float, loaded: bool, tier: str,
) -> None:
    monkeypatch.setattr(ENGINE, "has_plan", lambda config, request: True)
    monkeypatch.setattr(tiers, "numpy_seconds", lambda request: seconds)
    if loaded:
        jitla.jit(lambda x: x - 3.25, compile="sync")(np.ones(9))
    f = jitla.jit(lambda x: x * 8.5 + 1.0, compile="auto")
    assert (f(np.ones(300_000)) == 9.5).all()
    assert [r.tier for r in jitla.recompilations(f)] == [tier] and bool(f.stats().waiting) == (tier == "none")


@pytest.mark.parametrize("plain", [0.5e-3, 2e-3])
def test_calls_that_are_slower_while_blocks_wait_rise_again(
    monkeypatch: pytest.MonkeyPatch, plain: float,
) -> None:
    def call(seconds: float) -> Any:
        def act(*given: Any) -> None:
            clock[0] += seconds
        return act

    clock = [0.0]
    monkeypatch.setattr(payoff, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(payoff, "run_traced", call(1e-3))
    monkeypatch.setattr(payoff, "run_untraced", call(plain))
    site = SimpleNamespace(
        interim_replays={"a block"}, annotated_calls=0, numpy_seconds=lambda: 0.0)
    made = cold.CallClasses("file", 1, lambda: (onset.WarmUp, payoff.TimedClass))
    many = np.ones(1 << cold.MAX_COLD_BITS)
    times = 0
    kind = made.class_of((many,), {})._grow(0.0)
    for _ in range(100):
        kind.weigh(site, len, len, (), {})
        if type(made.class_of((many,), {})) is onset.WarmUp:
            times, kind = times + 1, made.class_of((many,), {})._grow(0.0)
    assert times == (cold.MAX_RESTARTS if plain < 1e-3 else 0)
    assert kind.bypassed is (plain < 1e-3)


def test_explain_shows_programs_whatever_pays() -> None:
    f = jitla.jit(lambda x: x * 9.5 + np.exp(x), compile="auto")
    f(np.ones(10))
    assert "have not taken long enough" in str(jitla.explain(f))
    assert "== program 1" in str(jitla.explain(f, np.ones(10)))
    g = jitla.jit(lambda x: x * 9.5 - np.exp(-x), compile="auto")
    g(np.ones(2 << cold.MAX_COLD_BITS_LOOP_FREE))
    assert "== program 1" in str(jitla.explain(g)) and g.stats().waiting == 0


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
