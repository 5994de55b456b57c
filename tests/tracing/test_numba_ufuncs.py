"""Functions compiled with Numba by users, called from traced code: elementwise ones become operators."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import jitla
from jitla.tracing.numba_ufuncs import _KNOWN_FUNCTIONS, Elementwise

numba = pytest.importorskip("numba")


@pytest.fixture(scope="module")
def total():
    @numba.njit
    def total(x):
        s = 0.0
        for i in range(len(x)):
            s += x[i] * x[i]
        return s

    return total


def scaled(a, b, s, out):
    c = 0.5
    for i in range(a.shape[0]):
        t = a[i] * b[i]
        out[i] = t + s if t > c else math.sqrt(b[i])


def halved(a, out):
    for i in range(len(out)):
        if a[i] > 0.5:
            out[i] = a[i] / 3.0
        else:
            out[i] = -a[i]


def summed(a, out):
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


def guvectorized(function, signature="(n)->(n)", ins=1):
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


@pytest.mark.parametrize("function", [scaled, halved], ids=lambda f: f.__name__)
def test_elementwise_functions_are_operators(function):
    """Rows of any length, odd numbers, and shapes that only the function itself knows how to join."""
    many = function is scaled
    called = guvectorized(function, "(n),(n),()->(n)", 2) if many else guvectorized(function)

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


@pytest.mark.parametrize("function", [summed, backwards, marked, doubled, skipped], ids=lambda f: f.__name__)
def test_functions_of_whole_rows_are_called(function):
    """Also if the first values would not tell: a sum of zeros is a zero."""
    called = guvectorized(function)

    def f(x):
        return called(x * 1.0 + 0.75) * 2.0

    fast = jitla.jit(f, compile="sync")
    for x in (np.full(9, -0.75), np.full(9, 7.0), np.arange(9.0)):
        assert function is skipped or described(fast, x) == described(f, x)
        fast(x)
    assert set(_KNOWN_FUNCTIONS[called].operators.values()) == {None}
    assert _KNOWN_FUNCTIONS[called].reason != "other values than expected"


def test_operators_accept_rows_of_any_shape():
    called = Elementwise(guvectorized(scaled, "(n),(n),()->(n)", 2), (True, True, False))
    a, b = np.random.default_rng(0).random((2, 3, 4))
    wanted = called.function(a, b, 0.25)
    assert (called(a, b, 0.25) == wanted).all() and (called(a, b, np.full((3, 4), 0.25)) == wanted).all()
    assert called(a[0, 0], b[0, 0], 0.25) == wanted[0, 0] and called(a[0], b[0, 0], 0.25).shape == (4,)


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
