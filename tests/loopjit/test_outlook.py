"""Calls of loops that are short: they are as they are, and what is prepared for the next waits for these."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

import jitla
from jitla import packages
from jitla.dispatch import function_state as state
from jitla.engine import ENGINE
from jitla.profiling import call_classes as outlook
from jitla.profiling.call_classes import (
    ShortCalls,
    _estimable_loops,
    estimate_call_seconds,
)

STEPS = 40


def added(x):
    s = 0.0
    for i in range(len(x)):
        s += x[i]
    return s


def twice(d, n):
    for i in range(n):
        for j in range(d.shape[1]):
            d[i, j] = d[i, j - 1] + 1.0
    return d


def halved(x):
    k = 0
    while x[k] > 1.0:
        x[k] /= 2.0
    return x


def repeated(x):
    for _ in range(STEPS):
        x[0] = added(x)
    return x


def stepped(x):
    for i in range(STEPS):
        x[i] = -x[i]
    return x


decorated = jitla.jit(added)


def handed(x):
    for i in range(len(x)):
        x[i] = decorated(x)
    return x


def taken(function, *args):
    return estimate_call_seconds(_estimable_loops(function), function, args, {})


def test_a_loop_takes_as_many_turns_as_there_are_elements():
    assert taken(added, np.zeros(2_000)) == pytest.approx(2 * taken(added, np.zeros(1_000)))
    assert 1e-4 < taken(added, np.zeros(1_000)) < 1e-2


def test_a_loop_in_a_loop_takes_the_product():
    some = taken(twice, np.zeros((50, 30)), 50)
    assert 3 < taken(twice, np.zeros((100, 30)), 100) / some < 5
    assert taken(twice, np.zeros((50, 30)), 10**9) > 1e3


def test_integers_of_the_module_count():
    assert taken(stepped, np.zeros(3)) == pytest.approx(taken(stepped, np.zeros(STEPS)))


@pytest.mark.parametrize("function", [halved, repeated, handed], ids=lambda f: f.__name__)
def test_of_other_loops_nothing_is_known(function):
    assert taken(function, np.ones(9)) == inf


def test_of_objects_nothing_is_known():
    assert taken(added, object()) == inf


def test_calls_that_are_short_have_their_loops_looked_for_behind_them(monkeypatch):
    monkeypatch.delitem(vars(packages), "tracing", raising=False)
    asked = []
    monkeypatch.setattr(ENGINE.background, "submit", lambda job, **how: asked.append(job))
    monkeypatch.setattr(state, "ShortCalls", lambda *given: brief.append(ShortCalls(*given)) or brief[-1])
    brief = []
    fast = jitla.jit(added, compile="auto")
    assert fast(np.ones(10)) == 10.0 and not asked and len(brief) == 1
    brief[0]._spent = 1.0
    assert fast(np.ones(10)) == fast(np.ones(10)) == 10.0
    assert len(asked) == 1 and brief[0].calls == 3
    asked[0]()
    assert fast(np.ones(10)) == 10.0 and brief[0].calls == 3
    monkeypatch.undo()
    assert fast.stats().calls == 4 and fast.stats().loops_cold == 1


def test_a_call_that_may_take_long_is_looked_at_before(monkeypatch):
    monkeypatch.setattr(outlook, "SHORT_CALL_SECONDS", taken(added, np.ones(99)))
    fast = jitla.jit(added, compile="auto")
    assert fast(np.ones(99)) == 99.0
    short_calls = [brief for _, brief in fast.__jitla_state__.short_calls.values()]
    assert fast(np.ones(100)) == 100.0  # its loops are known now
    assert fast(np.ones(99)) == 99.0
    assert [brief.calls for brief in short_calls] == [1] and fast.stats().calls == 3


def test_errors_of_short_calls_are_told_as_they_are():
    fast = jitla.jit(twice, compile="auto")
    with pytest.raises(IndexError) as raised:
        fast(np.zeros((2, 2)), 3)
    assert raised.traceback[-1].name == "twice"
