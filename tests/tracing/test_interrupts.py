"""An interrupt while a block that writes into memory is closed: nothing is read after it was overwritten."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.errors import InternalError
from jitla.tracing import force as closing
from jitla.tracing.session import Session


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
    real = Session.detach
    interrupts = [KeyboardInterrupt]

    def detach(self, *args):
        if interrupts:
            raise interrupts.pop()
        return real(self, *args)

    monkeypatch.setattr(Session, "detach", detach)
    for found, wanted in zip(f(*arrays()), expected(), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not interrupts


def test_values_lost_in_a_program_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    f = jitla.jit(program)
    real = closing.BlockCloser._run_program

    def outputs(self, parts, closed):
        monkeypatch.setattr(closing.BlockCloser, "_run_program", real)
        closed.bound.run(parts[closing.LEAVES] + parts[closing.SCALARS])
        raise KeyboardInterrupt

    monkeypatch.setattr(closing.BlockCloser, "_run_program", outputs)
    with pytest.raises(InternalError, match="interrupted"):
        f(*arrays())
