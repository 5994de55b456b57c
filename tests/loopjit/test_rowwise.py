"""Functions of ``numba.guvectorize`` that go through rows element by element: operators like any other."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import jitla
from jitla.tracing.numba_ufuncs import _KNOWN_FUNCTIONS, Elementwise

numba = pytest.importorskip("numba")


def scaled(a, b, s, out):
    c = 0.5
    for i in range(a.shape[0]):
        t = a[i] * b[i]
        out[i] = t + s if t > c else math.sqrt(b[i])


def chosen(a, out):
    for i in range(len(out)):
        if a[i] > 0.5:
            out[i] = a[i] / 3.0
        else:
            out[i] = -a[i]


def running(a, out):
    s = 0.0
    for i in range(len(a)):
        s += a[i]
        out[i] = s


def backwards(a, out):
    for i in range(len(a)):
        out[i] = a[len(a) - 1 - i]


def marked(a, out):
    for i in range(len(a)):
        out[i] = a[i]
    out[0] = 7.0


def skipped(a, out):
    for i in range(len(a)):
        if a[i] > 0.5:
            out[i] = a[i]


def doubled(a, out):
    for i in range(len(a)):
        out[i] = a[i]
        out[i] = out[i] * 2.0


def made(function, signature="(n)->(n)", ins=1):
    kinds = ["float64[:]"] * ins + ["float64"] * signature.count("()") + ["float64[:]"]
    return numba.guvectorize([f"void({','.join(kinds)})"], signature)(function)


def described(f, *args):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = f(*args)
            found = found.dtype, found.shape, np.where(np.isnan(found), np.nan, found).tobytes()
        except ValueError as error:
            found = str(error)
        return found, [str(each.message) for each in said]


@pytest.mark.parametrize("function", [scaled, chosen], ids=lambda f: f.__name__)
def test_what_goes_through_elements_is_an_operator(function):
    """Rows of any length, odd numbers, and shapes that only the function itself knows how to join."""
    many = function is scaled
    called = made(function, "(n),(n),()->(n)", 2) if many else made(function)

    def f(x, y):
        z = x * 2.0 - y
        return (called(z, y, 0.25) if many else called(z)) * 0.5 + x

    fast, random = jitla.jit(f, compile="sync"), np.random.default_rng(0)
    for shape in ((30, 40), (7,), (2, 3, 4)):
        x, y = random.random(shape), random.random(shape)
        for _ in range(3):
            assert described(fast, x, y) == described(f, x, y)
    (operator,) = _KNOWN_FUNCTIONS[called].operators.values()
    assert operator is not None
    x.flat[:3], y.flat[:3] = (np.nan, np.inf, 1.0), (-1.0, 0.0, np.inf)
    for given in ((x, y), (x[:1], y), (x[0], y[:, :1]), (x[:0], y[:0]), (x, y[:, :2])):
        assert described(fast, *given) == described(f, *given)


@pytest.mark.parametrize("function", [running, backwards, marked, doubled, skipped], ids=lambda f: f.__name__)
def test_what_is_more_than_one_element_at_a_time_is_called(function):
    """Also if the first values would not tell: a sum of zeros is a zero."""
    called = made(function)

    def f(x):
        return called(x * 1.0 + 0.75) * 2.0

    fast = jitla.jit(f, compile="sync")
    for x in (np.full(9, -0.75), np.full(9, 7.0), np.arange(9.0)):
        assert function is skipped or described(fast, x) == described(f, x)
        fast(x)
    assert set(_KNOWN_FUNCTIONS[called].operators.values()) == {None}
    assert _KNOWN_FUNCTIONS[called].reason != "other values than expected"


def test_rows_have_any_shape_for_what_evaluates_operators():
    called = Elementwise(made(scaled, "(n),(n),()->(n)", 2), (True, True, False))
    a, b = np.random.default_rng(0).random((2, 3, 4))
    wanted = called.function(a, b, 0.25)
    assert (called(a, b, 0.25) == wanted).all() and (called(a, b, np.full((3, 4), 0.25)) == wanted).all()
    assert called(a[0, 0], b[0, 0], 0.25) == wanted[0, 0] and called(a[0], b[0, 0], 0.25).shape == (4,)
