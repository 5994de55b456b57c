"""Functions that users compiled with Numba themselves, called from traced code."""

from __future__ import annotations

import copy
import ctypes
import math
import operator
import warnings

import numpy as np
import pytest

import jitla

numba = pytest.importorskip("numba")
from jitla.loopjit import worker  # noqa: E402  # it loads Numba
from tests.loopjit import compiled, emulated, programs  # noqa: E402
from tests.loopjit.fuzz import outcome  # noqa: E402


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


def test_sums_of_rows_are_those_of_numpy():
    """Emulated kernels ask NumPy for them."""
    add, double = worker._names()["row_product"], numba.types.float64
    memory, number = numba.types.CPointer(double), numba.int64

    @numba.cfunc(double(memory, number, number, memory, number, number, number))
    def called(p, a, s, q, b, t, n):
        return 0.0 + add(p, a, s, q, b, t, n)

    rows = np.sin(np.arange(3000.0)) * 10.0 ** (np.arange(3000) % 7)
    address = rows.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    for n in (0, 1, 7, 8, 9, 128, 129, 264, 1000):
        x, y = rows[3::2][:n], rows[5:][:n]
        assert called.ctypes(address, 3, 2, address, 5, 1, n) == (x * y).sum()


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


def running(x, y, out):
    s = 0.0
    for i in range(len(x)):
        s += x[i]
        out[i] = s * y[i]


def chosen(a, b):
    if a > 0.5 and b < 2:
        return max(a * b, 0.75) + 1.0
    if a == 0:
        return -b
    return math.sqrt(a) / b if b > 1.5 else b ** 3


def exponential(a, b):
    return math.exp(a) + b if b < 2 else np.arctan(a)


def remainder(a, b):
    return a % b


UFUNCS = {
    "chosen": lambda: numba.vectorize(["float32(float32,float32)", "float64(float64,float64)"])(chosen),
    "exponential": lambda: numba.vectorize(exponential), "remainder": lambda: numba.vectorize(remainder),
    "running": lambda: numba.guvectorize(
        [f"void({3 * f'{kind}[:],'})" for kind in ("float64", "float32")], "(n),(n)->(n)")(running),
}


def test_a_compiled_function_is_called_between_blocks(total):
    def f(x, y):
        z = x * 2.0 + y
        return (z + total(z)) * 0.5 - x

    x, y = np.linspace(0, 1, 1000), np.linspace(1, 3, 1000)
    fast = jitla.jit(f, strict=True)
    for _ in range(3):
        assert (fast(x, y) == f(x, y)).all()
    assert fast.stats().fallbacks == 0


@pytest.mark.parametrize("kind", UFUNCS)
def test_a_compiled_ufunc_takes_and_gives_arrays(kind):
    """Numba's dtypes are not NumPy's: a float32 and a constant make a float64 if no signature says else."""
    ufunc = UFUNCS[kind]()

    def f(x, y):
        w = ufunc(x * x.dtype.type(2.0), y)
        return w, (w + x) * x.dtype.type(0.5)

    fast = jitla.jit(f, strict=True, compile="sync")
    for dtype in (np.float64, np.float32):
        x, y = np.linspace(0, 1, 1000, dtype=dtype), np.linspace(1, 3, 1000, dtype=dtype)
        for _ in range(3):
            for found, wanted in zip(fast(x, y), f(x, y), strict=True):
                assert type(found) is np.ndarray
                assert found.dtype == wanted.dtype
                near = 4 * np.finfo(found.dtype).eps if kind == "exponential" else 0.0
                assert (abs(found - wanted) <= near * abs(wanted)).all()
    assert fast.stats().fallbacks == 0
    text = str(jitla.explain(fast))
    assert (f"{ufunc.__name__}_" in text) == (kind not in ("remainder", "running"))  # it is an operator
    if kind == "remainder":
        assert "remainder, compiled with Numba (mod of float64)" in text


def test_what_a_traced_ufunc_warns_of_is_what_it_says_itself():
    """Numba puts numbers in order in a way that raises a flag for NaN; NumPy's loops do not."""
    ufunc = numba.vectorize(chosen)

    def f(x, y):
        return ufunc(x, y) + x

    fast = jitla.jit(f, compile="sync")
    x, y = np.linspace(0, 1, 1000), np.linspace(1, 3, 1000)
    for odd in (0.5, 0.5, np.nan, 1e308, -1.0, *[np.nan] * 10):
        x[7], y[7] = odd, abs(odd)
        seen = []
        for function in (f, fast):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                seen.append((repr(function(x, y)[7]), [(str(w.message), w.lineno) for w in caught]))
        assert seen[0] == seen[1]
    assert "it warns too often" in str(jitla.explain(fast))
