"""Functions that look at frames, and those that look further than at their caller's."""

from __future__ import annotations

import inspect
import sys
import traceback as tb
from inspect import stack as callers

import numpy as np
import pytest

from jitla.introspection import frame_access_of, frame_sensitivity_of, outer_frame_access_of


def one_above():
    return sys._getframe(1).f_locals


def two_above():
    return sys._getframe(2).f_locals


def some_above(n):
    return sys._getframe(n).f_locals


def one_back():
    return sys._getframe().f_back.f_locals


def two_back():
    return inspect.currentframe().f_back.f_back


def taken():
    return inspect.stack()[1].function, callers()[1][3]


def second():
    return callers()[2]


def all_of_them():
    return inspect.stack()


def imported():
    import inspect as i
    from inspect import stack
    return i.stack()[0], stack()[1]


def imported_all():
    from inspect import stack
    return stack()


def walks():
    frame = sys._getframe(1)
    while frame:
        frame = frame.f_back


def printed():
    return tb.extract_stack()


def from_inside():
    return (lambda: sys._getframe(1))()


def with_numpy(x):
    inspect.isfunction(x)
    return np.stack([x, x]) + np.trace(x) + x.trace()


def names_another():
    return two_above()


def names_a_near_one():
    return one_above()


@pytest.mark.parametrize(("function", "looks", "beyond", "plain"), [
    (one_above, True, False, True), (two_above, True, True, True), (some_above, True, True, True),
    (one_back, True, False, True), (two_back, True, True, True), (taken, True, False, True),
    (second, True, True, True), (all_of_them, True, True, True), (imported, True, False, True),
    (imported_all, True, True, True), (walks, True, True, True), (printed, True, True, True),
    (from_inside, True, True, True), (with_numpy, False, False, False),
    (names_another, False, False, True), (names_a_near_one, False, False, False)])
def test_what_is_looked_at(function, looks, beyond, plain):
    assert bool(frame_access_of(function)) is looks
    assert bool(outer_frame_access_of(function)) is beyond
    assert bool(frame_sensitivity_of(function)) is plain


def test_long_functions():
    lines = "".join(f"    a.b{n}\n" for n in range(300))  # names whose numbers take more than a byte
    names: dict = {"inspect": inspect}
    exec(f"def long(a):\n{lines}    return inspect.stack()\n", names)
    assert frame_access_of(names["long"]) == "inspect.stack" and outer_frame_access_of(names["long"])


def test_a_closure_that_names_one():
    def deep():
        return sys._getframe(3)

    def outer():
        return deep()

    assert "deep, which it calls" in frame_sensitivity_of(outer)
