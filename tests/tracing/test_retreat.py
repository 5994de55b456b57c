"""Calls whose tracing costs more than it can give go on plain."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import jitla
from jitla.tracing import onset
from jitla.tracing.retreat import LEAST, NEW, Allowance

MANY = 1 << 19  # elements: not left to the plain function at first


def held(*names: str) -> list[type]:
    """Return the types of the locals of `f`, whatever they pretend to be."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "f":
        frame = frame.f_back
    found = frame.f_locals
    return [object.__getattribute__(found[name], "__class__") for name in names]


def test_locals_are_arrays_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onset, "Allowance", lambda plain: SimpleNamespace(until=0.0, meet=lambda *_: None))
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


def test_what_ends_an_allowance() -> None:
    never = Allowance(0.0)
    assert never.until == float("inf")
    for _ in range(2 * NEW):
        never.meet((1, 2), 0.0)
    never.meet((3, 4), 2 * LEAST)
    assert never.until == float("inf")
    never.meet((1, 2), 2 * LEAST)
    assert never.until == 0.0
