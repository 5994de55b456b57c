"""Blocks of other sizes that wait for the same program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import jitla
from jitla.dispatch import tiering as tiers
from jitla.engine import ENGINE
from jitla.profiling import call_classes as cold


def totals(x: np.ndarray, sizes: tuple[int, ...]) -> list[float]:
    return [float((x[:n] * 7.125 - 1.5).sum()) for n in sizes]


@pytest.mark.parametrize("fails", [False, True])
def test_what_one_program_serves_waits_together(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    jobs: list[Callable[[], None]] = []
    monkeypatch.setattr(ENGINE, "_compilers", {})
    # the first call is traced, though what it does is done once
    monkeypatch.setattr(cold, "MAX_COLD_BITS_LOOP_FREE", cold.MAX_COLD_BITS)
    monkeypatch.setattr(ENGINE.background, "submit", lambda job, soon=False, share=1.0: jobs.append(job))
    monkeypatch.setattr(tiers, "TIMES", float("inf"))
    monkeypatch.setattr(tiers.Tiers, "is_time", lambda self, times=1.0, kept=False: False)
    f, x = jitla.jit(totals, compile="auto"), np.ones(400_000)
    f(x, (300_000, 310_000))
    (site,) = f.__jitla_state__.all_sites()
    first, other = site.interim_replays
    state = first.program_state
    assert state is other.program_state
    assert state.numpy_seconds == pytest.approx(first.numpy_seconds + other.numpy_seconds)
    monkeypatch.setattr(tiers.Tiers, "is_time", lambda self, times=1.0, kept=False: True)
    first.ask(False)
    other.ask(False)
    assert len(jobs) == 1 and other.requested
    with monkeypatch.context() as broken:
        if fails:
            broken.setattr(ENGINE, "bind", lambda *given: 1 / 0)
        jobs[0]()
    assert not site.interim_replays and state.available is not fails and state.abandoned is fails
    assert (first.compiled is None) is fails and other.compiled is None
    with jitla.options(compile="auto"):
        assert f(x, (300_000, 310_000, 320_000)) == totals(x, (300_000, 310_000, 320_000))
    assert not site.interim_replays and len(jobs) == 1
