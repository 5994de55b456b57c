"""Tests of `jitla.tracing.profile`: calls of a new kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jitla.tracing import profile as onset
from jitla.tracing.fallback import TracingBudget
from jitla.tracing.profile import TimedClass


class Block:
    """A block that waits for its program."""

    def __init__(
        self, program_seconds: float = 0.0, request_after: float = 1e9, numpy_seconds: float = 0.0,
    ) -> None:
        self.program_seconds, self.request_after = program_seconds, request_after
        self.numpy_seconds, self.count = numpy_seconds, 0


@pytest.mark.parametrize("plain, traced, wanted", [
    (0.008, 0.05, "ttppppp"), (0.04, 0.043, "ttptttt"), (0.04, 0.05, "ttptppp")])
def test_long_calls_are_traced_while_that_does_not_take_much_longer(
        monkeypatch: pytest.MonkeyPatch, plain: float, traced: float, wanted: str) -> None:
    done: list[str] = []

    def call(way: str, seconds: float) -> Any:
        def act(*given: Any) -> None:
            done.append(way)
            clock[0] += seconds
        return act

    clock = [0.0]
    monkeypatch.setattr(onset, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(onset, "run_traced", call("t", traced))
    monkeypatch.setattr(onset, "run_untraced", call("p", plain))
    kind = onset.WarmUp(10, pytest.fail)
    site = SimpleNamespace(interim_replays=[Block()], request_programs=pytest.fail)
    for _ in range(7):
        kind.weigh(site, len, len, (), {})
    assert "".join(done) == wanted


def test_short_calls_that_wait_are_noted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def run_untraced(*given: Any) -> None:
        clock[0] += onset.UNTIMED_SECONDS / 10.5

    monkeypatch.setattr(onset, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(onset, "run_untraced", run_untraced)
    monkeypatch.setattr(onset, "run_traced", run_untraced)
    site = SimpleNamespace(interim_replays=[Block()], request_programs=lambda again: None, calls=0)
    kind = onset.WarmUp(10, pytest.fail)
    kind.weigh(site, len, len, (), {})
    assert kind.bypassed and kind.skip == kind.granted == 10
    kind.skip -= 7  # calls that went by
    kind.bypass(site, len, (), {})
    assert (kind.calls, site.calls, kind.skip) == (8, 7, 10)  # `run_untraced` counts its own
    assert kind._spent == pytest.approx(9 * onset.UNTIMED_SECONDS / 10.5)
    site.interim_replays.clear()
    kind.bypass(site, len, (), {})
    assert not kind.bypassed and not kind.skip


@pytest.mark.parametrize(("program_seconds", "left"), [(1.1e-3, True), (0.9e-3, False)])
def test_blocks_that_cannot_make_up_for_tracing_wait_no_longer(
        monkeypatch: pytest.MonkeyPatch, program_seconds: float, left: bool) -> None:
    clock, block = [0.0], Block(program_seconds)

    def traced(*given: Any) -> None:
        clock[0] += 2e-2
        block.count += 10

    monkeypatch.setattr(onset, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(onset, "run_traced", traced)
    site = SimpleNamespace(interim_replays={block}, request_programs=pytest.fail, calls=0)
    found = TimedClass(10)
    kind = onset.WarmUp(10, lambda plain: found, 0.0, 1e-2)  # a plain call takes half as long
    kind.weigh(site, len, len, (), {})
    assert found.bypassed is left and (block in site.interim_replays) is not left
    assert found.best == ((2e-2, 1e-2) if left else (0.0, 0.0))
    assert kind.bypassed is not left


@pytest.mark.parametrize(("ended", "asked"), [(0.0, 0.5), (2e-3, 0.1)])
def test_time_that_no_program_saves_asks_for_none(
        monkeypatch: pytest.MonkeyPatch, ended: float, asked: float) -> None:
    """Of a call that soon went on plain only the beginning tells what part programs save."""
    clock, hurried = [0.0], []

    def run_untraced(*given: Any) -> None:
        clock[0] += 1e-2
        if isinstance(given[-1], TracingBudget):
            given[-1].traced_seconds = ended

    monkeypatch.setattr(onset, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(onset, "run_untraced", run_untraced)
    monkeypatch.setattr(onset, "run_traced", run_untraced)
    blocks = Block(request_after=0.05, numpy_seconds=1e-3)  # a tenth of a call
    site = SimpleNamespace(
        interim_replays=[blocks], request_programs=lambda again: hurried.append(round(clock[0], 6)))
    kind = onset.WarmUp(10, pytest.fail)
    for _ in range(50):
        kind.weigh(site, len, len, (), {})
    assert hurried[0] == pytest.approx(asked, abs=0.02)
