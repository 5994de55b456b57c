"""SciPy's element-wise functions inside decorated functions: they fuse, and SciPy stays optional."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jitla
from tests.behaviour.counting import assert_same, during

special = pytest.importorskip("scipy.special")

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


@pytest.fixture(autouse=True)
def at_once() -> Any:
    with jitla.options(compile="sync"):
        yield


@pytest.mark.parametrize("name", FUSED)
def test_they_share_a_kernel_with_what_surrounds_them(name: str) -> None:
    plain = FUSED[name]
    fast = jitla.jit(lambda x, p: plain(x, p))
    for _ in range(3):
        result = fast(X, P)
        assert_same(plain(X, P), result, 6 if name == "single" else 12)
    counted = during(fast, lambda: fast(X, P))
    assert (counted.kernel_runs, counted.numpy_calls, counted.fallbacks, counted.failures) == (1, 0, 0, 0)


def test_strict_numerics_calls_scipy() -> None:
    fast = jitla.jit(lambda x: special.erf(x * 2) + 1, numerics="strict")
    fast(X)
    assert np.array_equal(fast(X), special.erf(X * 2) + 1)


def test_strict_tracing_knows_them() -> None:
    fast = jitla.jit(lambda x: special.erfc(x) * 2, strict=True)
    assert_same(special.erfc(X) * 2, fast(X))


def test_complex_numbers_outputs_scalars_and_others_are_scipys() -> None:
    def plain(x: np.ndarray) -> Any:
        out = np.empty_like(x)
        special.erf(x * 2, out=out)
        single = special.expit(x, dtype="f4")
        return out, special.erf(x * 1j), special.erf(x.sum()), special.gammaln(x + 4), single

    fast = jitla.jit(plain)
    for _ in range(3):
        assert_same(plain(X), fast(X))


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


def test_zero_times_the_logarithm_of_zero_raises_no_flag_for_others() -> None:
    x = np.array([0.0, 0.5, 1.0] * 100)
    fast = jitla.jit(lambda x: (special.xlogy(x, x) - 1.0) / 3.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert_same((special.xlogy(x, x) - 1) / 3, fast(x))
    assert not caught


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


def test_others_of_the_same_name_are_not_taken_for_them() -> None:
    erf = np.frompyfunc(lambda v: v + 1, 1, 1)
    fast = jitla.jit(lambda x: erf(x * 2))
    assert np.array_equal(fast(X), erf(X * 2))
