"""Decisions by the last bits of inexact functions are rounding; anything else is a difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fuzz import load
from tests.fuzz.noise import Noisy
from tests.fuzz.runner import run

SOURCE = """
import numpy as np


@jit
def f(x):
    steep = np.tanh(x) == 1
    return 1e6 * np.average(x, weights=1.0 + steep)


CALLS = ((0, 1),)


def make(call):
    return (np.linspace(8.9, 9.1, 2001, dtype="f4"),)


def state():
    return ()
"""


def saturated(x: np.ndarray) -> np.ndarray:
    return np.tanh(x)


def wrong(function: Any) -> Any:
    """Compile, and be wrong by a tenth."""
    fast = load.the_jit()(function)
    return lambda *args: fast(*args) * 1.1


@pytest.mark.parametrize("jit, faults", [(None, 0), (wrong, 1)])
def test_decisions_by_last_bits_are_rounding(jit: Any, faults: int) -> None:
    x = np.linspace(8.9, 9.1, 2001, dtype="f4")
    assert np.any((np.tanh(x) == 1) != (load.the_jit()(saturated)(x) == 1))
    assert len(run(SOURCE, "last-bits", jit).faults) == faults


FAR = """
import numpy as np


@jit
def f(x):
    kept = np.zeros(7, "u4")
    kept[:] = x * 2
    return kept


CALLS = ((0, 1),)


def make(call):
    return (np.full(7, {}),)


def state():
    return ()
"""


def changed(function: Any) -> Any:
    """Compile, and be wrong in one element."""
    fast = load.the_jit()(function)

    def call(*args: Any) -> Any:
        result = fast(*args)
        result[3] += 1
        return result

    return call


@pytest.mark.parametrize("x, undefined", [(2.0**32 + 1, 1), (2.0**30, 0)])
def test_what_integers_cannot_hold_is_left_out_though_numpy_does_not_warn(
    x: float, undefined: int,
) -> None:
    report = run(FAR.format(x), "far", changed)
    assert (report.undefined, len(report.faults)) == (undefined, 1 - undefined)


def test_what_vanishes_in_every_digit_does_so_with_noise() -> None:
    made = [getattr(Noisy(seed), name)(np.array([at, 0.5])) for seed in range(20)
            for name, at in (("log", 1.0), ("sin", 0.0), ("arccos", 1.0))]
    assert all(found[0] == 0 for found in made) and len({found[1] for found in made}) > 6


TAILS = """
import numpy as np
from scipy import special


@jit
def f(x, y):
    tails = special.erfc(x), special.ndtr(-x), special.expit(-30 * x)
    return *tails, np.logaddexp(y, -1.0), special.xlogy.outer(x[:3], y + 2)


CALLS = ((0, 1),)


def make(call):
    return np.linspace(0, 27, 999), np.linspace(-0.6, -0.3, 999)


def state():
    return ()
"""


def off(function: Any) -> Any:
    """Be wrong by little."""
    return lambda *args: tuple(t * (1 + 1e-12) for t in function(*args))


@pytest.mark.parametrize("jit, faults", [(None, 0), (off, 1)])
def test_tails_that_scipy_loses_and_sums_that_cancel_are_rounding(jit: Any, faults: int) -> None:
    assert bool(run(TAILS, "tails", jit).faults) is bool(faults)


PIECES = """
import numpy as np


@jit
def f(x):
    return np.mean(x.sum(axis=1)), (x * 2).sum(axis=0).sum()


CALLS = ((0, 1),)


def make(call):
    return (np.random.default_rng(call).normal(size=(37, 211, 2)).view("c16")[..., 0],)


def state():
    return ()
"""


def far_off(function: Any) -> Any:
    """Be wrong by more than sums are."""
    return lambda *args: tuple(t * (1 + 1e-6) for t in function(*args))


@pytest.mark.parametrize("jit, faults", [(None, 0), (far_off, 1)])
def test_sums_of_complex_sums_are_rounding(jit: Any, faults: int) -> None:
    assert bool(run(PIECES, "pieces", jit).faults) is bool(faults)


LOST = """
import numpy as np


@jit
def f(x):
    return (np.tan(np.exp(x) * 1e18),)


CALLS = ((0, 1),)


def make(call):
    return (np.linspace(1, 9, 1300),)


def state():
    return ()
"""


def larger(function: Any) -> Any:
    """Be wrong by orders of magnitude."""
    return lambda *args: tuple(t * 1e9 for t in function(*args))


@pytest.mark.parametrize("jit, faults", [(None, 0), (larger, 1)])
def test_where_noise_leaves_nothing_any_value_of_that_size_will_do(jit: Any, faults: int) -> None:
    assert bool(run(LOST, "lost", jit).faults) is bool(faults)
