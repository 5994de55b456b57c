"""Which intermediates are written to memory under which rule, counted where memory is handed out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jitla
from jitla import runtime
from jitla.cli.demo_algorithms import hinge_search
from tests.behaviour.counting import assert_same, counts

N = 100_000  # so that bools, too, are large enough for the memory that counts
RNG = np.random.default_rng(4)
A, B = RNG.uniform(2.0, 3.0, N), RNG.uniform(0.0, 1.0, N)
Y = np.sign(RNG.standard_normal(N))
SEARCH = (np.zeros(N), RNG.standard_normal(N) + Y, Y, 0.1, 2.0)


def allocations(call: Callable[[], Any]) -> int:
    """Arrays that were allocated during a call."""
    def handed_out() -> int:
        found = runtime.statistics()
        return found["fresh"] + found["reused"]

    before = handed_out()
    call()
    return handed_out() - before


@pytest.mark.parametrize(("rule", "vectors"), [
    ("none", 10), ("patterns", 4), ("no-redundancy", 2), ("all", 0), ("cost", 0)])
def test_vectors_of_the_line_search(rule: str, vectors: int) -> None:
    fast = jitla.jit(hinge_search, fusion=rule)
    turns = hinge_search(*SEARCH)[1]
    assert_same(tuple(hinge_search(*SEARCH)), tuple(fast(*SEARCH)))
    assert turns > 1 and allocations(lambda: fast(*SEARCH)) == vectors * turns
    assert counts(fast).failures == 0


def kept_search(Xw, Xd, y, wd, dd):
    """The line search, and what it made last."""
    step = 0.0
    evaluations = 0
    searching = True
    while searching:
        out = 1.0 - y * (Xw + step * Xd)
        sv = out > 0
        out = out * sv
        g = wd + step * dd - (out * y * Xd).sum()
        h = dd + (Xd * sv * Xd).sum()
        step = step - g / h
        evaluations += 1
        searching = g * g / h > 1e-10 and evaluations < 50
    return step, evaluations, out


def test_a_later_use_keeps_one_vector() -> None:
    fast = jitla.jit(kept_search)
    turns = kept_search(*SEARCH)[1]
    assert_same(kept_search(*SEARCH), fast(*SEARCH))
    assert allocations(lambda: fast(*SEARCH)) == turns


def consumers(A, B, s):
    C = A + s * B
    D = np.cumsum(C / 2, axis=0), np.cumsum(C - 1, axis=0)
    E = np.exp(C - 1)
    return *D, E


def consumers_and_value(A, B, s):
    C = A + s * B
    D = np.cumsum(C / 2, axis=0), np.cumsum(C - 1, axis=0)
    E = np.exp(C - 1)
    return C, *D, E


def cheap_twice(A, B, s):
    C = A + s * B
    return np.exp(C - C.max())


def dear_twice(A, B, s):
    C = np.exp(np.sin(A) + s * B)
    return C / C.sum()


@pytest.mark.parametrize(("function", "arrays"), [
    # C / 2 and C - 1 are for calls, which read memory; the exponential takes its own C - 1 on the way
    (consumers, 3),
    (consumers_and_value, 4),
    (cheap_twice, 1),  # computed again by its second reader
    (dear_twice, 2),   # read by it
])
def test_a_value_is_written_for_the_consumers_that_need_it(function, arrays: int) -> None:
    """Counted are the arrays that kernels write, results among them; a call's result is NumPy's."""
    fast = jitla.jit(function)
    assert_same(function(A, B, 0.5), fast(A, B, 0.5))
    assert allocations(lambda: fast(A, B, 0.5)) == arrays


def test_without_fusion_every_step_is_written() -> None:
    fast = jitla.jit(consumers, fusion="none")
    fast(A, B, 0.5)
    assert allocations(lambda: fast(A, B, 0.5)) == 6
