"""Functions that users compiled with Numba themselves, called from traced code."""

from __future__ import annotations

import copy
import operator

import numpy as np
import pytest

import jitla

numba = pytest.importorskip("numba")
from jitla.loops import worker  # noqa: E402  # it loads Numba
from tests.loops import compiled, emulated, programs  # noqa: E402
from tests.loops.fuzz import outcome  # noqa: E402


@pytest.fixture(scope="module")
def total():
    @numba.njit
    def total(x):
        s = 0.0
        for i in range(len(x)):
            s += x[i] * x[i]
        return s

    return total


def test_what_texts_call_is_compiled_and_does_what_python_does():
    """Numba does not know all of `math`: what it cannot compile would leave loops to Python."""
    names = worker._names()
    for name, operation in (("float_mod", operator.mod), ("float_div", operator.floordiv)):
        for a in (7.5, -7.5, 0.3, -0.0, 1e300):
            for b in (2.0, -2.0, 0.1, np.inf):
                found, wanted = names[name](a, b), operation(a, b)
                assert str(found) == str(wanted), (name, a, b)


def test_what_nothing_needs_is_complained_of_as_well(monkeypatch):
    """Compilers leave out what nothing reads; Python does not."""
    emulated.eager(monkeypatch.setattr)
    fast = compiled.version(programs.in_between)
    y = np.ones(9)
    for x in [np.arange(9.0)] * 5 + [np.full(9, 1e300)] * 2:
        given = {"x": x, "y": y if x[0] == 0 else y * np.array([1, 1, 1, 1e10, 1, 1, 1, 1, 1])}
        wanted = outcome(programs.in_between, copy.deepcopy(given))
        assert outcome(fast.version, copy.deepcopy(given)) == wanted
    assert len(wanted[1]) == 1
    assert fast.records()[0].left


def made_by(kind):
    if kind == "vectorize":
        return numba.vectorize(["float32(float32,float32)", "float64(float64,float64)"])(
            lambda a, b: a * b + 1.0)

    def running(x, y, out):
        s = 0.0
        for i in range(len(x)):
            s += x[i]
            out[i] = s * y[i]

    types = ["void(float64[:],float64[:],float64[:])", "void(float32[:],float32[:],float32[:])"]
    return numba.guvectorize(types, "(n),(n)->(n)")(running)


def test_a_compiled_function_is_called_between_blocks(total):
    def f(x, y):
        z = x * 2.0 + y
        return (z + total(z)) * 0.5 - x

    x, y = np.linspace(0, 1, 1000), np.linspace(1, 3, 1000)
    fast = jitla.jit(f, strict=True)
    for _ in range(3):
        assert (fast(x, y) == f(x, y)).all()
    assert fast.stats().fallbacks == 0


@pytest.mark.parametrize("kind", ["vectorize", "guvectorize"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_compiled_ufunc_takes_and_gives_arrays(kind, dtype):
    ufunc = made_by(kind)

    def f(x, y):
        w = ufunc(x * dtype(2.0) + y, y)
        return w, (w + x) * dtype(0.5)

    x, y = np.linspace(0, 1, 1000, dtype=dtype), np.linspace(1, 3, 1000, dtype=dtype)
    fast = jitla.jit(f, strict=True)
    for found, wanted in zip(fast(x, y), f(x, y), strict=True):
        assert type(found) is np.ndarray
        assert found.dtype == wanted.dtype
        assert (found == wanted).all()
    assert fast.stats().fallbacks == 0
