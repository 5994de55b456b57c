"""Section S: which operations raise floating-point flags, and the warnings of every recorded function."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.tracing.numpy_api.functions import FUNCTIONS
from tests.semantics.oracle import check_warnings as check
from tests.semantics.oracle import module

# Section S: which operations raise floating-point flags, under every error state.
#
# Casts that nobody reads, integers, complex numbers, products in kernels over rows, and large memory
# that is overwritten while it is read.

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


# Warnings of every function that is recorded: signalling NaNs, overflow, zeros, what is invalid.

SIZE = 60
#: Ufuncs of floats that have no signature.
UFUNCS = sorted(n for n in dir(np) if isinstance(u := getattr(np, n), np.ufunc) and not u.signature
                and any(set(types[: u.nin]) == {"d"} for types in u.types))
#: Calls of NumPy's functions; `m` is `x` in rows of five, `i` are indices.
CALLS = """
np.sum(x) np.sum(m,axis=0) np.sum(m,axis=1) np.sum(x*2) np.prod(x) np.prod(m,axis=0) np.min(x)
np.min(m,axis=1) np.min(x*1.0) np.max(x) np.max(m,axis=0) np.amin(x) np.amax(x*1) np.any(x)
np.any(m,axis=0) np.any(m,axis=1) np.all(x) np.all(m,axis=1) np.all(x+0) np.mean(x) np.mean(m,axis=0)
np.mean(m,axis=1) np.var(x) np.var(m,axis=1) np.std(x) np.std(m,axis=0) np.argmin(x) np.argmin(m,axis=1)
np.argmin(x*1.0) np.argmax(x) np.argmax(x/1) np.where(x>0,x,y) np.where(x,x,y)
np.where(np.isnan(x),0,x)+1 np.clip(x,-1,1) np.clip(x,y,2) np.dot(x,y) np.dot(m.T,x[:12]) x@y m.T@m
np.vdot(x,y) np.vdot(x+1,y*2)+1 np.concatenate([x,y]) np.transpose(m) np.reshape(x,(5,-1)) np.shape(x)
np.astype(x,np.float32) np.real(x) np.imag(x) np.angle(x) np.conj(x) np.conjugate(x*1) np.iscomplexobj(x)
np.isrealobj(x) np.count_nonzero(x) np.linalg.norm(x) np.linalg.norm(m,axis=1) np.einsum('i,i->',x,y)
np.einsum('i,j->ij',x,y) np.einsum('ij,kj->ik',m,m) np.cumsum(x) np.cumprod(x) np.expand_dims(x,0)+1
np.swapaxes(m,0,1) np.moveaxis(m,0,1) np.ptp(x) np.diff(x) np.round(x) np.round(x,2) np.around(x)
np.inner(x,y) np.outer(x,y) np.ravel(m) np.trace(m) np.diagonal(m) np.diag(x[:5]) np.column_stack([x,y])
np.pad(x,2) np.roll(x,3) np.hstack([x,y]) np.vstack([x,y]) np.stack([x,y]) np.stack([x,y]).sum(axis=0)
np.stack([x,y]).max(axis=0) np.dstack([x,y]) np.tril(m) np.triu(m) np.tensordot(x,y,1)
np.lib.stride_tricks.sliding_window_view(x,3).sum(axis=1) np.take(x,i) np.bincount(i,weights=x)
np.repeat(x,2) np.tile(x,2) np.average(x) np.average(x,weights=y) np.cov(x,y) np.cov(m[:3])
np.corrcoef(x,y) np.polyval([1.,2.,3.],x) np.trapezoid(x) np.trapezoid(x,y) np.select([x>0,y>0],[x,y])
np.zeros_like(x) np.ones_like(x)+x np.empty_like(x).shape np.full_like(x,y[0]) np.squeeze(m[:1])
np.flip(x)+1 np.fliplr(m) np.flipud(m) np.split(x,2)[1]+1 np.cross(x.reshape(-1,3),y.reshape(-1,3))
np.sinc(x) np.nansum(x) np.nansum(m,axis=0) np.nanmean(x) np.nanvar(x) np.nanstd(m,axis=1) np.nanmin(x)
np.nanmin(x*1.0) np.nanmax(m,axis=0) np.nan_to_num(x) np.isclose(x,y) np.isclose(x,0.5) np.allclose(x,y)
np.array_equal(x,y) np.array_equiv(x,y) np.histogram(np.clip(np.nan_to_num(x),0,1),5)[0]
""".split()
#: Operators, methods, casts, what is moved, and what changes nothing but a signalling NaN.
OPERATIONS = """
x<y x==y x!=y x>=0 -x +x abs(x) x%y x//y divmod(x,y)[0] x+y x-y x*y x/y x**3 x**2 x**-1 x**0.5 x**1
x**2.5 np.power(x,1) x*1 1*x x*-1 x/1 x/-1 x-0 x+0 x+-0.0 -0.0-x 0-x 0*x 2*x x.copy() x[::-1] x[i]
x[3]+y[4] x[3]*1 float(x[0]) x.astype('f4') x.astype('f8') x.astype('f4').astype('f8')
x.astype('f8').astype('f4') x.astype(bool) x.astype('D') x.astype('f8')>0 x.astype('f4').sum()
np.isnan(x.astype('f8')) np.isfinite(x*1) np.isnan(x*1.0) np.isinf(x-0.0) np.isinf(x/1)
np.signbit(-0.0-x) np.abs(x*-1) np.isfinite(x*-1) np.signbit(x+-0.0) np.modf(x*1)[0] x[::2]*1 m.T*1+0
m.T+1 m.T.copy() np.where(x>0,x*1,y) np.where(x*1>0,1,2) (x>0)&(y>0) (x*y).sum() (x-y).max()
((x-x.mean())**2).sum() np.exp(x).sum() x.sum()*2 x.mean()+1 x[:5]*x[:5,None] np.maximum(x,0)
np.minimum(x,y)+1 np.floor(x).sum() np.floor(x*y) np.rint(x+1) np.logical_not(x)&(y>0)
np.logical_and(x,y) np.logical_or(x,0.5)
""".split()
_WARNING = [*CALLS, *OPERATIONS]
for _name in UFUNCS:
    if getattr(np, _name).nin == 1:
        _first = "[0]" if getattr(np, _name).nout > 1 else ""
        _WARNING += [f"np.{_name}(x)", f"np.{_name}(x*1){_first}+1"]
    elif getattr(np, _name).nin == 2:
        _WARNING += [f"np.{_name}(x,y)", f"np.{_name}(y,x)", f"np.{_name}(x,0.5)"]


def signalling(dtype: str) -> np.ndarray:
    """Return a signalling NaN, as an array of one number."""
    bits = {"f": (np.uint32, 0x7F800001), "d": (np.uint64, 0x7FF0000000000001)}[dtype]
    return np.array([bits[1]], bits[0]).view(dtype)


def operands(dtype: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return pairs of vectors, by what is special about them."""
    large, small = (1e300, 1e-300) if dtype == "d" else (1e38, 1e-38)
    special = {
        "ordinary": ([], []), "nan": ([np.nan], []),
        "overflow": ([large, large, -large], [large, -large, large]),
        "infinite": ([np.inf, -np.inf, np.inf, 0, 0], [np.inf, np.inf, 0, np.inf, 0]),
        "zero": ([1, 0, 0], [0, 0, 1]), "negative": ([-1, -2], [-0.5]), "tiny": ([small] * 3, [small] * 3),
        "several": ([np.inf, large, -1, 0], [0, large, 0, 0]), "signal": ([], []), "other signal": ([], []),
    }
    found = {}
    for name, numbers in special.items():
        pair = np.linspace(0.1, 1, SIZE).astype(dtype), np.linspace(1, 0.1, SIZE).astype(dtype)
        for values, given in zip(pair, numbers, strict=True):
            values[5 : 5 + len(given)] = given
        found[name] = pair
    found["signal"][0][7:8] = found["other signal"][1][7:8] = signalling(dtype)
    return found


def warned(function: Any, x: np.ndarray, y: np.ndarray) -> list[str]:
    """Return the warnings of a call, and its exception."""
    x, y = x.copy(), y.copy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function(x, y, x.reshape(-1, 5), np.arange(SIZE)[::-1] % 7)
        except (TypeError, ValueError) as error:
            return [type(error).__name__]
    return [f"{w.category.__name__}: {w.message}" for w in caught]


@pytest.mark.parametrize("text", _WARNING)
def test_warnings_are_numpys(text: str) -> None:
    source = f"import numpy as np\ndef f(x, y, m, i):\n    return {text}\n"
    plain = module(source, f"signals {text}", jitla.jit)["f"]
    for dtype in "df":
        fast = jitla.jit(plain, compile="sync")
        for name, (x, y) in operands(dtype).items():
            wanted = warned(plain, x, y)
            for _ in range(2):
                assert warned(fast, x, y) == wanted, f"{name}, {dtype}"
        assert fast.stats()["calls"] and not fast.stats()["failures"]


def test_every_function_is_called() -> None:
    missing = {f.__name__ for f in FUNCTIONS if not any(f"{f.__name__}(" in text for text in CALLS)}
    assert not missing
