"""Calls whose tracing costs more than it can give go on plain."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import jitla
from jitla.tracing import (
    fallback as retreat,
)
from jitla.tracing import (
    profile as onset,
)
from jitla.tracing.fallback import (
    CHECK_INTERVAL_SECONDS,
    MAX_COST_RATIO,
    MAX_EXTRA_SECONDS,
    MAX_NEW_BLOCKS,
    MIN_NEW_BLOCK_SECONDS,
    MIN_RECHECK_SECONDS,
    TracingBudget,
)

MANY = 1 << 19  # elements: not left to the plain function at first


def held(*names: str) -> list[type]:
    """Return the types of the locals of `f`, whatever they pretend to be."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "f":
        frame = frame.f_back
    found = frame.f_locals
    return [object.__getattribute__(found[name], "__class__") for name in names]


def test_locals_are_arrays_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    over = SimpleNamespace(
        traced_seconds=0.0, check_at=0.0, add_new_block=lambda *_: None, is_exhausted=lambda site: True)
    monkeypatch.setattr(onset, "TracingBudget", lambda plain: over)
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

    x, same = np.arange(float(MANY)), np.arange(float(MANY))
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

    n = 1 + int(MANY**0.5)
    L, b = np.tri(n) + n * np.eye(n), np.ones(n)
    assert solve(L, b).tobytes() == solve.__wrapped__(L, b).tobytes()
    assert solve.stats().plans < n // 2


@pytest.mark.parametrize(("saved", "is_exhausted"), [(0.0, True), (1.0, False)])
def test_what_ends_an_allowance(monkeypatch: pytest.MonkeyPatch, saved: float, is_exhausted: bool) -> None:
    clock, numpy = [100.0], [0.0]
    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(retreat, name, lambda: clock[0])
    site = SimpleNamespace(numpy_seconds=lambda: numpy[0], interim_replays=[])
    known, other = TracingBudget(1.0), TracingBudget(0.0)
    assert known.check_at == pytest.approx(100.0 + MAX_COST_RATIO + MAX_EXTRA_SECONDS)
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
    clock[0] = 100.0 + MAX_COST_RATIO + 2 * MAX_EXTRA_SECONDS
    assert known.is_exhausted(site)


@pytest.mark.parametrize(("program_seconds", "later", "programs", "is_exhausted"), [
    (6e-6, 0.03, [], True), (2e-6, 0.03, [], False), (6e-6, 0.015, [], False),
    (6e-6, 0.03, [object()], False)])
def test_where_the_plain_function_is_not_known_blocks_tell(
    monkeypatch: pytest.MonkeyPatch, program_seconds: float, later: float, programs: list[object],
    is_exhausted: bool,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(retreat, "perf_counter", lambda: clock[0])
    budget = TracingBudget(0.0)
    block = SimpleNamespace(
        numpy_seconds=0.01, best_seconds=1e-5, program_seconds=program_seconds, count=1000)
    site = SimpleNamespace(interim_replays=[block], fallbacks={}, bound_programs=lambda: [block, *programs])
    clock[0] += later
    assert budget.is_exhausted(site) is is_exhausted and budget.check_at == clock[0] + CHECK_INTERVAL_SECONDS
