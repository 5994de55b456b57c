"""Section S: which operations raise floating-point flags, under every error state.

Casts that nobody reads, integers, complex numbers, products in kernels over rows, and large memory
that is overwritten while it is read.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import jitla
from tests.semantics.oracle import module
from tests.semantics.warned import check

LARGE = (1 << 18) + 3  # elements of 8 bytes: no copy of them stays in a cache


def _states(arguments: str, body: str, make: str, **options) -> None:
    """Compare `body` with NumPy under each state of `np.errstate`, and as filters show warnings."""
    for how in ("warn", "raise", "call", "ignore"):
        check(f"""
said = []
@jit
def f({arguments}):
    caught = result = None
    try:
        with np.errstate(all={how!r}, under='ignore', call=lambda kind, flag: said.append(kind)):
            result = {body}
    except FloatingPointError as error:
        caught = str(error), error.__traceback__.tb_lineno
    heard = list(said)
    said.clear()
    return result, caught, heard
def make(n):
{make}
""", filters=("always",), threads=(1, 2), **options)


# ---------------------------------------------------------------------- casts that nobody reads

DROPPED = [
    "x.astype(int)", "u = x.astype('i2')\n    u = None", "(y * y).astype('f4')",
    "(y * 1j).astype('c8')", "x.astype(int)[1:]", "u = x.astype(int)\n    v = u + 1",
    "for k in range(3):\n        x.astype('i4')\n        total = y.sum()",
    "x.astype(int).astype('f4')", "with np.errstate(invalid='ignore'):\n        x.astype(int)",
]


@pytest.mark.parametrize("statement", DROPPED)
def test_casts_warn_though_nobody_reads_them(statement: str):
    found = check(f"""
@jit
def f(x, y):
    {statement}
    return y + 1
def make(n):
    return np.full(n, np.nan), np.full(n, 1e300)
""", filters=("always", "default", "once"))
    assert bool(found) == ("ignore" not in statement)


def test_a_cast_between_two_stores():
    check("""
@jit
def f(x, y):
    x.astype('i4')
    y[...] = x * 2
    y.astype('f4')
    y += 1
    return y
def make(n):
    return np.full(n, 1e300), np.zeros(n)
""", filters=("always", "error"))


def test_casts_that_are_silent_are_not_computed():
    def drops(x, i):
        x.astype("c16")
        i.astype("i1")
        (i > 1).astype(float)
        return i

    fast = jitla.jit(drops)
    fast(np.ones(9), np.arange(9))
    assert fast.stats()["kernels"] == 0


# ---------------------------------------------------------------------- integers


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8"])
@pytest.mark.parametrize("quotient", ["x // y", "x // one", "x // -1", "x // zero", "x // (y * 0)",
                                      "x % y", "x % zero", "np.fmod(x, y)", "np.reciprocal(x - 1)"])
def test_divisions_of_integers(quotient: str, dtype: str):
    check(f"""
@jit
def f(x, y, one, zero):
    return {quotient}
def make(n):
    x, y = np.ones(n, {dtype!r}), np.ones(n, {dtype!r})
    x[-1], y[-1] = np.iinfo({dtype!r}).min, -1
    return x, y, np.array([-1], {dtype!r}), np.array([0], {dtype!r})
""", filters=("always",), sizes=(7, 33, 100), threads=(1,))


def test_integers_are_told_of_again_if_their_values_are_bad():
    """From the third hit on values are looked at: the least integer over -1 is found as well as 0."""
    check("""
@jit
def f(x, y):
    return x // y
calls = 0
def make(n):
    global calls
    calls += 1
    x, y = np.full(n, -2**31, 'i4'), np.ones(n, 'i4')
    y[0] = (-1, 0, 1)[calls % 3]
    return x, y
""", filters=("always",), sizes=(50,), calls=9)


# ---------------------------------------------------------------------- complex numbers

COMPLEX = """
    x, y = np.ones(n, complex), np.ones(n, complex)
    x[-1], y[n // 2] = {}
    return x, y
"""


@pytest.mark.parametrize("values", ["complex(np.nan, 1), 1", "1, complex(1, np.nan)",
                                    "complex(0, np.nan), 1", "2, complex(2, 1e300)"])
@pytest.mark.parametrize("expression", ["x < y", "x <= y", "x > y", "x >= y", "x == y", "x / y",
                                        "np.reciprocal(y)", "np.exp(x)", "np.maximum(x, y)",
                                        "np.where(x < y, x, y).sum()"])
def test_complex_numbers_with_nan(expression: str, values: str):
    _states("x, y", expression, COMPLEX.format(values), sizes=(2, 9), calls=3)


# ---------------------------------------------------------------------- products

PRODUCTS = {
    "X @ w": ("1e200", "1e200"), "X @ X.T[:, :3]": ("1e200", "1"), "np.dot(X, w)": ("1e200", "1e200"),
    "X.T @ (X @ w)": ("1e150", "1e10"), "X.T @ (v * (X @ w))": ("1e160", "0.1"),
    "X.T @ (v / (X @ w))": ("0.0", "1.0"), "X.T @ np.sqrt(X @ w)": ("-1.0", "1.0"),
    "X.T @ np.exp(X @ w)": ("1.0", "1e3"), "X.T @ (X @ w - X @ w)": ("1e200", "1e200"),
    "X.T @ np.abs(X @ w)": ("np.inf", "-1.0"), "((X @ w) * 2).sum()": ("1e200", "1e200"),
    "X.T @ (v + X @ w)": ("1.0", "1.0"),
}


@pytest.mark.parametrize("expression", PRODUCTS)
def test_products_and_kernels_over_rows(expression: str):
    element, weight = PRODUCTS[expression]
    _states("X, v, w", expression, f"""
    X, v, w = np.ones((n, 20)), np.ones(n), np.full(20, {weight})
    X[n // 2] = {element}
    return X, v, w
""", sizes=(7, 3000), calls=3)


def test_products_that_were_tested_run_over_rows():
    def both(X, v, w):
        return X.T @ (v / (X @ w))

    fast = jitla.jit(both)
    with np.errstate(all="ignore"):
        for _ in range(2):
            fast(np.zeros((3000, 20)), np.ones(3000), np.ones(20))
    assert fast.stats()["kernels"] == 1 and not fast.stats()["failures"]


# ---------------------------------------------------------------------- large memory

INSIDE = [
    "np.exp(x, out=x)", "np.log(x, out=x)", "x //= y", "x %= y", "x **= 0.5", "x /= y", "x -= x.mean()",
    "x[...] = np.exp(x) / y", "x += np.exp(x)", "np.arctanh(x, out=x)", "np.fmod(x, y, out=x)",
    "x[...] = np.where(x > 0, np.log(x), x / y)", "x[1:] = np.log(x[:-1])", "x[::2] = np.exp(x[::2])",
    "x[:] = x[::-1] / y", "x[...] = np.tan(x)\n    np.log(x, out=x)",
]


@pytest.mark.parametrize("statement", INSIDE)
def test_large_memory_that_is_overwritten(statement: str):
    check(f"""
@jit
def f(x, y):
    {statement}
def make(n):
    x, y = np.ones(n), np.ones(n)
    x[[6, 7, 11, 12, 13]] = 1000.0, 1000.0, -1.0, np.inf, np.nan
    y[9] = 0.0
    return x, y
""", filters=("always", "default"), sizes=(LARGE,), calls=4)


@pytest.mark.parametrize("statement", ["x //= y", "x *= y", "x /= y", "np.exp(x, out=x)"])
@pytest.mark.parametrize("kind", ["i4", "c16"])
def test_large_memory_of_other_dtypes(statement: str, kind: str):
    if kind == "i4" and "//" not in statement or kind == "c16" and "//" in statement:
        pytest.skip("NumPy refuses")
    check(f"""
@jit
def f(x, y):
    {statement}
def make(n):
    x, y = np.full(n, 3, {kind!r}), np.ones(n, {kind!r})
    x[7], y[7], y[9] = (-2**31, -1, 0) if {kind!r} == 'i4' else (1e200, 1e200, 0)
    return x, y
""", filters=("always",), sizes=(2 * LARGE,))


@pytest.mark.parametrize("shape", ["(n, 300)", "(300, n)"])
@pytest.mark.parametrize("view", ["x", "x.T", "x[::2]", "x[:, ::-1]"])
def test_evidence_is_read_where_it_lies(view: str, shape: str):
    """From the third hit on programs look at copies of what was overwritten."""
    name = "evidence"
    source = f"import numpy as np\ndef inside(x):\n    v = {view}\n    np.exp(v, out=v)\n"
    texts = []
    for jit in (lambda f: f, jitla.jit):
        fast = jit(module(source, name, jitla.jit)["inside"])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for call in range(5):
                x = np.ones(eval(shape, {"n": 1000}))
                x[0, 0] = np.inf if call % 2 else 1000.0
                fast(x)
        texts.append([str(w.message) for w in caught])
    assert texts[0] == texts[1] and len(texts[0]) in (3, 0)
