"""Powers by whole numbers and SciPy's element-wise functions."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import jitla
from tests.behaviour.counting import assert_same, during
from tests.semantics.oracle import module

# Powers by whole numbers have NumPy's bits, wherever they stand, compiled or plain.

#: Exponents: literals of a function.
LITERALS = ["3", "4", "5", "-2", "-3", "7", "3.0", "4.0", "-2.0", "0", "1", "2", "-1", "12", "-9", "True",
            "np.float64(3)", "np.float32(3)", "np.int64(-2)", "np.int8(5)"]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, -2.0, 5e-324, -5e-324, 1e-310, 1e-45, -1e-40,
           1e38, -3e38, 1e103, -1e103, 1e308, -1e308]
#: Whether NumPy's powers have the same bits whatever the strides: with AVX-512 its loops for contiguous
#: operands are others, and jitla has the bits of those (docs/dev/semantics.md).
SAMPLE = np.linspace(0.5, 3.0, 1000)
IS_EVEN = all(np.array_equal(a[::-1] ** 3, a[::-1].copy() ** 3) for a in (SAMPLE, SAMPLE.astype("f4")))
SIZES = [1, 2, 3, 5, 7, 8, 9, 31, 64, 1000, 4099]


def bits_of(x: Any) -> tuple[Any, ...]:
    """Return type, shape and bits of a value; all NaNs are one."""
    a = np.asarray(x)
    if a.dtype.kind == "f":
        a = np.where(np.isnan(a), np.array(np.nan, a.dtype), a)
    return type(x), a.dtype, a.shape, a.tobytes()


def results_of(function: Callable[..., Any], *args: Any) -> tuple[list[Any], list[str]]:
    """Return the bits of what a function gives, and its warnings, which may come in another order."""
    copies = [a.copy() if isinstance(a, np.ndarray) and a.flags.owndata else a for a in args]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = function(*copies)
    made = made if isinstance(made, tuple) else (made,)
    return [bits_of(x) for x in made], sorted(str(w.message) for w in caught)


def function_of(name: str, args: str, text: str) -> Callable[..., Any]:
    """Return a function whose text can be found, as jitla needs it."""
    source = f"import numpy as np\ndef f({args}):\n    return {text}\n"
    names = module(source, f"powers-{name}", jitla.jit)
    names["changed"] = changed
    made: Callable[..., Any] = names["f"]
    return made


def assert_same_bits(function: Callable[..., Any], *args: Any, text: str = "", calls: int = 3) -> None:
    """Compare a function that is always compiled to the plain one."""
    fast = jitla.jit(function, compile="sync")
    wanted = results_of(function, *args)
    for _ in range(calls):
        found = results_of(fast, *args)
        assert found == wanted, text
    assert not fast.stats()["failures"] and fast.stats()["calls"]


def values(rng: np.random.Generator, size: int, dtype: str) -> np.ndarray:
    """Return numbers of both signs and many magnitudes, special ones among them."""
    made = rng.standard_normal(size) * np.exp(rng.standard_normal(size) * 3)
    at = rng.integers(0, size, size // 3)
    made[at] = rng.choice(SPECIAL, len(at))
    with np.errstate(all="ignore"):
        return made.astype(dtype)


class Expressions:
    """Random expressions in which powers by whole numbers stand anywhere."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def exponent(self) -> str:
        """Return an exponent: a literal, a number given, an array of whole numbers."""
        return self.random.choice([*LITERALS, "k", "w", "n", "n.astype('f8')", "n[:1]"])

    def power(self, depth: int) -> str:
        """Return a power."""
        x, n = self.array(depth - 1), self.exponent()
        return self.random.choice([
            f"({x}) ** {n}", f"({x}) ** {n}", f"np.power({x}, {n})", f"pow({x}, {n})",
            f"np.float_power({x}, {n})", f"changed({x}, {n})"])

    def array(self, depth: int) -> str:
        """Return an expression of an array."""
        if depth <= 0:
            reverse = "x[::-1]" if IS_EVEN else "x[::-1].copy()"
            return self.random.choice(["x", "y", "x", reverse, "y * 0.5", "abs(x)"])
        a, b = self.array(depth - 1), self.power(depth)
        return self.random.choice([
            b, b, f"({a}) + {b}", f"{b} - ({a})", f"({a}) * {b}", f"{b} / ({a})", f"np.maximum({b}, {a})",
            f"np.where(({a}) > {b}, {b}, 1.5)", f"np.sqrt(abs({b}))", f"-({b})", f"({b}).astype('f4')",
            f"({b}) * 0.25"])

    def result(self) -> str:
        """Return an expression of a result."""
        x = self.array(self.random.randint(1, 3))
        return self.random.choice([
            x, x, f"({x}).sum()", f"({x}).mean()", f"({x}).max()", f"({x}).reshape(1, -1).sum(axis=0)",
            f"({x}).reshape(1, -1).sum(axis=1)", f"({x})[0] ** {self.random.choice(LITERALS)}",
            f"({x})[::2].min() ** k", f"np.abs({x}).sum() ** 3"])


def changed(x: np.ndarray, n: Any) -> np.ndarray:
    """Raise what is in memory to a power in place, if its dtype can hold it."""
    x = x + 0
    if np.result_type(x, n) == x.dtype:
        x **= n
    return x


@pytest.mark.parametrize("seed", range(60))
def test_powers_by_whole_numbers_have_numpys_bits(seed: int) -> None:
    made, rng = Expressions(seed), np.random.default_rng(seed)
    text = ", ".join(made.result() for _ in range(3))
    function = function_of(str(seed), "x, y, k, w, n", text)
    for dtype in "fd":
        for size in rng.choice(SIZES, 2):
            given = values(rng, size, dtype), values(rng, size, dtype)
            k, w = int(rng.integers(-6, 9)), float(rng.integers(-6, 9))
            n = rng.integers(-6, 9, size).astype(dtype)
            assert_same_bits(function, *given, k, w, n, text=f"{text} of {size} {dtype}, {k}, {w}")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", "fd")
def test_fractions_beside_whole_numbers_change_nothing(size: int, dtype: str) -> None:
    """An element depends on its operands alone, not on which lie beside them in a vector."""
    rng = np.random.default_rng(size)
    x, n = values(rng, size, dtype), rng.integers(-8, 9, size) / 2
    fast = jitla.jit(lambda x, n: (x**n, np.float_power(x, n), (x**n).max() * 0 + x**n), compile="sync")
    with np.errstate(all="ignore"):
        found, whole = fast(x, n.astype(dtype)), n == np.floor(n)
        wanted = x ** n.astype(dtype), np.float_power(x, n.astype(dtype))
        for a, b in zip(found, wanted, strict=False):
            assert bits_of(a[whole]) == bits_of(b[whole])
            np.testing.assert_allclose(a, b, rtol=1e-6)
        if size > 1:  # one exponent is a scalar to NumPy, and left to it
            alone = [fast(x[i].repeat(2), n[i].repeat(2).astype(dtype))[0][0] for i in range(min(size, 40))]
            assert bits_of(found[0][:40]) == bits_of(np.array(alone, dtype))


@pytest.mark.parametrize("rows", [
    "x.T ** 3", "x[::2, ::-1] ** -2", "x ** row", "x ** column", "row ** 3 + x",
    "np.power(x, row).sum(axis=0)", "np.power(x, 3).sum(axis=1)", "(x ** 4).T.sum(axis=0)",
    "np.vander(row[:5] + 0.5, 4)",
    "row[:, None] ** row", "x ** 3 - x.mean(axis=0) ** 3",
])
def test_powers_of_matrices_have_numpys_bits(rows: str) -> None:
    rng = np.random.default_rng(5)
    function = function_of(rows, "x, row, column", rows)
    for dtype in "fd":
        for shape in ((3, 2), (40, 33), (7, 300)):
            x = (rng.standard_normal(shape) * 3).astype(dtype)
            row = rng.integers(1, 4, shape[1]).astype(dtype)
            column = rng.integers(-3, 4, (shape[0], 1)).astype(dtype)
            for given in (x, np.asfortranarray(x)):
                assert_same_bits(function, given, row, column, text=f"{rows} of {shape} {dtype}")


def cells(x: np.ndarray) -> np.ndarray:
    """Element i depends on element i."""
    return x**3 - 2 * x**-2 + np.power(x, 5) / (1 + x**4)


def neighbours(x: np.ndarray) -> np.ndarray:
    """Element i depends on elements i - 1 and i."""
    return x**3 + np.append(0.0, x[:-1] ** 4.0)


def jacobian(
    function: Callable[..., np.ndarray], other: Callable[..., np.ndarray], x: np.ndarray,
) -> np.ndarray:
    """Return forward differences; calls of `function` and of `other` take turns."""
    base, step = function(x), 1e-6
    columns = []
    for j in range(len(x)):
        moved = x.copy()
        moved[j] += step
        columns.append(((function, other)[j % 2](moved) - base) / step)
    return np.array(columns).T


@pytest.mark.parametrize("function", [cells, neighbours])
def test_finite_differences_are_exact_zeros_where_numpys_are(function: Callable[..., np.ndarray]) -> None:
    """Some calls are plain and some compiled: both have the same bits."""
    x = np.random.default_rng(8).standard_normal(61) * 3
    compiled, usual = jitla.jit(function, compile="sync"), jitla.jit(function)
    wanted = jacobian(function, function, x)
    assert (wanted == 0).mean() > 0.9
    for one, other in ((compiled, function), (function, compiled), (usual, function), (usual, usual),
                       (usual, compiled)):
        assert bits_of(jacobian(one, other, x)) == bits_of(wanted)


def test_loops_over_elements_raise_to_powers_as_numpy_does() -> None:
    def filled(x: np.ndarray, n: Any, out: np.ndarray) -> np.ndarray:
        for i in range(x.shape[0]):
            out[i] = x[i] ** 3 + x[i] ** n - pow(x[i], -2)
        return out

    rng = np.random.default_rng(2)
    for dtype in "fd":
        x = (rng.standard_normal(300) * 2).astype(dtype)
        for n in (2, 3, -1, 4.0, -3.0, 0):
            assert_same_bits(filled, x, n, np.zeros_like(x), calls=4)


def test_two_products_are_taken_where_rounding_may_differ() -> None:
    x = np.random.default_rng(4).standard_normal(1000)
    relaxed = jitla.jit(lambda x: x**3, compile="sync", numerics="relaxed")
    for _ in range(3):
        assert bits_of(relaxed(x)) == bits_of(x * x * x)


# SciPy's element-wise functions inside decorated functions: they fuse, and SciPy stays optional.


X = np.linspace(-3, 3, 5001)
P = np.linspace(0.01, 0.99, 5001)
FUSED: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "erf": lambda x, p: special.erf(x * 2) + 1,
    "erfc": lambda x, p: special.erfc(x) * p,
    "gelu": lambda x, p: x * special.ndtr(x),
    "loss": lambda x, p: (special.xlogy(p, special.expit(x)) + special.log_expit(-x)).sum(),
    "logit": lambda x, p: special.logit(p) - x,
    "xlog1py": lambda x, p: special.xlog1py(2, p) + x,
    "integers": lambda x, p: special.erf((x * 3).astype(int)) + 1,
    "single": lambda x, p: special.expit(x.astype("f4")) * 2,
}


@pytest.fixture
def at_once() -> Any:
    with jitla.options(compile="sync"):
        yield


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", FUSED)
def test_they_share_a_kernel_with_what_surrounds_them(name: str) -> None:
    plain = FUSED[name]
    fast = jitla.jit(lambda x, p: plain(x, p))
    for _ in range(3):
        result = fast(X, P)
        assert_same(plain(X, P), result, 6 if name == "single" else 12)
    counted = during(fast, lambda: fast(X, P))
    assert (counted.kernel_runs, counted.numpy_calls, counted.fallbacks, counted.failures) == (1, 0, 0, 0)


@pytest.mark.usefixtures("at_once")
def test_strict_numerics_calls_scipy() -> None:
    fast = jitla.jit(lambda x: special.erf(x * 2) + 1, numerics="strict")
    fast(X)
    assert np.array_equal(fast(X), special.erf(X * 2) + 1)


@pytest.mark.usefixtures("at_once")
def test_strict_tracing_knows_them() -> None:
    fast = jitla.jit(lambda x: special.erfc(x) * 2, strict=True)
    assert_same(special.erfc(X) * 2, fast(X))


@pytest.mark.usefixtures("at_once")
def test_complex_numbers_outputs_scalars_and_others_are_scipys() -> None:
    def plain(x: np.ndarray) -> Any:
        out = np.empty_like(x)
        special.erf(x * 2, out=out)
        single = special.expit(x, dtype="f4")
        return out, special.erf(x * 1j), special.erf(x.sum()), special.gammaln(x + 4), single

    fast = jitla.jit(plain)
    for _ in range(3):
        assert_same(plain(X), fast(X))


@pytest.mark.usefixtures("at_once")
def test_they_never_warn() -> None:
    ends = np.array([0.0, -0.0, 1.0, 2.0, -1e3, 1e3, np.inf, -np.inf, np.nan])

    @jitla.jit
    def fast(x: np.ndarray, p: np.ndarray) -> Any:
        return special.logit(x), special.expit(x), special.xlogy(p, x), special.erfc(x), special.log_expit(x)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            fast(ends, np.zeros(9))
            fast(ends, ends[::-1].copy())
    assert not caught


@pytest.mark.usefixtures("at_once")
def test_zero_times_the_logarithm_of_zero_raises_no_flag_for_others() -> None:
    x = np.array([0.0, 0.5, 1.0] * 100)
    fast = jitla.jit(lambda x: (special.xlogy(x, x) - 1.0) / 3.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert_same((special.xlogy(x, x) - 1) / 3, fast(x))
    assert not caught


@pytest.mark.process
@pytest.mark.usefixtures("at_once")
def test_scipy_is_not_needed() -> None:
    source = """
import sys
sys.modules["scipy"] = None
import numpy as np, jitla

@jitla.jit
def f(x):
    return np.arctan2(x, x * 2) + x ** 1.7
with jitla.options(compile="sync"):
    f(np.arange(5.0)), f(np.arange(5.0))
assert not any(name.startswith("scipy.") for name in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", source], check=False, timeout=120).returncode == 0


@pytest.mark.usefixtures("at_once")
def test_others_of_the_same_name_are_not_taken_for_them() -> None:
    erf = np.frompyfunc(lambda v: v + 1, 1, 1)
    fast = jitla.jit(lambda x: erf(x * 2))
    assert np.array_equal(fast(X), erf(X * 2))
