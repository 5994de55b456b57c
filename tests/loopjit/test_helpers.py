"""Functions of the user's that loops call for a number: they are written out in compiled code."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from tests.loopjit.fuzz import outcome

LIMIT = 2.0


def clamped(x, low, high):
    """Keep a number in bounds."""
    if x < low:
        return low
    if x > high:
        x = high
    return x


def weight(x, y):
    r = x * x + y * y
    r += LIMIT
    return clamped(math.sqrt(r) / x, 0.0, high_of(y))


def high_of(y):
    return 3.0 if y > 1.0 else 5


def doubled(y):
    return 2.0 * y


def weights(x, y):
    s = 0.0
    for i in range(len(x)):
        for j in range(len(y)):
            s += weight(x[i], y[j])
    return s, len(x)


def grown(x, n):
    return x * n + 1


def counted(x, n):
    s = 1
    for i in range(len(x)):
        s = grown(s, n)
        x[i] = s % 7
    return s, x


def nothing_at_times(x):
    if x > 0.0:
        return x


def maybe(x):
    for i in range(len(x)):
        x[i] = nothing_at_times(x[i])
    return (x,)


def loop_function(x):
    while x > 1.0:
        x /= 2.0
    return x


def looped(x):
    for i in range(len(x)):
        x[i] = loop_function(x[i])
    return (x,)


def same(fast, plain, **args):
    copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in args.items()}
    assert outcome(fast.version, args) == outcome(plain, copies)


def test_functions_that_make_a_number_are_written_out(eager):
    fast = eager(weights)
    for _ in range(6):
        same(fast, weights, x=np.linspace(1.0, 2.0, 4), y=np.linspace(0.0, 2.0, 5))
    assert [r.state for r in fast.records()] == ["trusted"] and fast.records()[0].runs
    for odd in (0.0, math.inf, math.nan):  # a warning in the function that is called, or none
        same(fast, weights, x=np.array([1.0, odd, 2.0]), y=np.array([0.5, 3.0]))
    assert fast.records()[0].left


def test_what_goes_wrong_in_them_is_done_by_python(eager):
    fast = eager(counted)
    for n in (1, 1, 1, 1, 1, 3):
        same(fast, counted, x=np.arange(60), n=n)  # threes: more than 64 bits
    assert sum(r.left for r in fast.records()) == 1


def test_they_may_change(eager, monkeypatch):
    fast = eager(weights)
    args = {"x": np.linspace(1.0, 2.0, 4), "y": np.linspace(0.0, 2.0, 5)}
    for _ in range(5):
        same(fast, weights, **args)
    for name, value in (("LIMIT", 9.0), ("clamped", lambda x, low, high: x), ("high_of", high_of)):
        with monkeypatch.context() as patched:
            patched.setitem(globals(), name, value)
            same(fast, weights, **args)
    for _ in range(5):
        same(fast, weights, **args)
    again = eager(weights)
    for code in (high_of.__code__, doubled.__code__, high_of.__code__):
        monkeypatch.setattr(high_of, "__code__", code)
        for _ in range(6):
            same(again, weights, **args)
        assert [r.state for r in again.records()] == ["trusted"]


@pytest.mark.parametrize(("function", "reason"), [
    (maybe, "a call of nothing_at_times: it may return nothing"),
    (looped, "a call of loop_function: it has a while statement")])
def test_others_are_called_by_python(eager, function, reason):
    fast = eager(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(fast, function, x=np.linspace(1.0, 9.0, 5))
    assert {r.reason for r in fast.records()} | {why for _, why in fast.refused} == {reason}
