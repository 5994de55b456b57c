"""Functions that come along with a decorated one: those defined in it, and those that it calls."""

from __future__ import annotations

import sys
import traceback
from types import FunctionType

import numpy as np
import pytest

import jitla
from jitla import packages
from jitla.dispatch import function_state as state
from jitla.profiling import call_classes as outlook
from jitla.profiling.loop_detector import (
    any_reachable,
    may_have_element_loops,
)
from tests.loopjit import programs


def swept(x, by):
    for i in range(1, len(x)):
        x[i] = x[i] - by * x[i - 1]
    return x


def once_more(x):
    return swept(x, 0.5)


def round_and_round(x, times):
    for i in range(1, len(x)):
        x[i] += x[i - 1]
    return x if times == 0 else round_and_round(x, times - 1)


def by_name(x):
    return swept(x * 2.0, 0.25) + once_more(x.copy())


def by_module(x):
    return programs.reversed_down(x * 2.0) + 1.0


def inside(x, span=3):
    weight = 2.0 / (span + 1)

    def smooth(y, start=0.0):
        out = np.empty_like(y)
        last = start
        for i in range(len(y)):
            last = weight * y[i] + (1.0 - weight) * last
            out[i] = last
        return out

    first = smooth(x)
    weight = 0.125
    return first - smooth(first, start=1.0)


def round_itself(x):
    return round_and_round(x, 3)


def given_away(x):
    def smooth(y):
        for i in range(1, len(y)):
            y[i] += y[i - 1]
        return y

    return list(map(smooth, [x, x + 1.0]))


def hidden(x, swept):
    return swept(x, 0.5)


@pytest.mark.parametrize(("function", "nests"), [
    (by_name, 2), (by_module, 1), (inside, 1), (round_itself, 1), (once_more, 1)])
def test_loops_of_what_is_called_are_compiled(eager, function, nests):
    fast = eager(function)
    assert any_reachable(function, may_have_element_loops)
    assert len(fast.entries) == nests
    for n in (9, 9, 9, 9, 9, 5):
        x = np.linspace(1.0, 2.0, n)
        assert fast.version(x.copy()).tolist() == function(x.copy()).tolist()
    assert all(entry.variants for entry in fast.entries)
    assert {record.state for record in fast.records()} == {"trusted"}
    assert all(record.runs for record in fast.records())


@pytest.mark.parametrize("function", [given_away, hidden])
def test_what_others_may_see_or_exchange_stays_as_it_is(eager, function):
    assert eager(function) is None


def test_who_is_called_is_asked_each_time(eager):
    space = {"np": np, "swept": swept}
    function = FunctionType(once_more.__code__, space)
    fast = eager(function)
    assert len(fast.entries) == 1
    for _ in range(5):
        fast.version(np.arange(4.0))
    space["swept"] = lambda x, by: (x, by)
    assert fast.version(3) == (3, 0.5)
    del space["swept"]
    with pytest.raises(NameError):
        fast.version(3)


def test_decorated_functions_and_those_of_libraries_look_after_themselves(eager):
    space = {"swept": jitla.jit(swept)}
    assert eager(FunctionType(once_more.__code__, space)) is None
    assert not any_reachable(FunctionType(once_more.__code__, space), may_have_element_loops)
    library = FunctionType(swept.__code__.replace(co_filename=np.__file__), globals())
    assert not any_reachable(FunctionType(once_more.__code__, {"swept": library}), may_have_element_loops)
    assert eager(FunctionType(once_more.__code__, {"swept": library})) is None


def test_calls_before_the_tracer_is_loaded_do_not_look_for_loops_again(monkeypatch):
    monkeypatch.delitem(vars(packages), "tracing", raising=False)
    looked = []
    monkeypatch.setattr(outlook, "SHORT_CALL_SECONDS", -1.0)
    monkeypatch.setattr(state, "any_reachable", lambda *given: looked.append(given) or any_reachable(*given))
    fast = jitla.jit(swept, compile="auto")
    assert fast(np.arange(3.0), 0.5).tolist() == swept(np.arange(3.0), 0.5).tolist()
    once = len(looked)
    for _ in range(5):
        fast(np.arange(3.0), 0.5)
    assert once and len(looked) == once and not packages.is_loaded("tracing")


def wrong(x):
    def total(y):
        s = 0.0
        for i in range(len(y) + 1):
            s += y[i]
        return s

    return total(x) + swept(x, 0.5)


def test_errors_are_of_the_lines_that_were_written(eager):
    fast = eager(wrong)
    seen = []
    for function in (*[fast.version] * 5, wrong):
        with pytest.raises(IndexError) as caught:
            function(np.arange(4.0))
        frames = traceback.extract_tb(caught.value.__traceback__)[1:]
        seen.append([(frame.name, frame.lineno, frame.colno) for frame in frames])
    assert all(each == seen[-1] for each in seen), sys.version
    assert fast.records()[0].left
