"""NumPy's inner loops that kernels call: found as NumPy has them, or not called."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import jitla
from jitla.codegen.native import ufunc_loops
from jitla.codegen.vecmath.library import supports

Loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch):
    """Let no loop be found."""
    monkeypatch.setattr(ufunc_loops, "_pair", lambda name: None)


@pytest.mark.parametrize("name", ufunc_loops.SYMBOLS)
def test_a_loop_is_that_of_the_ufunc(name: str) -> None:
    ufunc, types = ufunc_loops.SYMBOLS[name]
    at = ufunc_loops.symbols_in([b"other", name.encode()])[name]
    code, data = (ctypes.c_void_p * 2).from_address(at)
    x = np.random.default_rng(3).standard_normal(1001).astype(types[0])
    n = np.arange(1001).astype(types[0]) % 9 - 4
    made = np.empty_like(x)
    places = (ctypes.c_void_p * 3)(x.ctypes.data, n.ctypes.data, made.ctypes.data)
    steps = (ctypes.c_ssize_t * 3)(*[x.itemsize] * 3)
    count = ctypes.c_ssize_t(len(x))
    Loop(code)(*[ctypes.addressof(a) for a in (places, count, steps)], data)
    assert made.tobytes() == ufunc(x, n).tobytes()


def test_what_code_does_not_name_is_not_looked_for() -> None:
    assert ufunc_loops.symbols_in([b"jitla.numpy", b""]) == {}


def test_a_ufunc_that_is_made_in_another_way_has_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    find = ufunc_loops._pair.__wrapped__
    assert find("jitla.numpy.power.f64") is not None
    monkeypatch.setitem(ufunc_loops.SYMBOLS, "jitla.numpy.power.f64", (np.power, "dd->f"))
    assert find("jitla.numpy.power.f64") is None


def test_without_a_loop_powers_are_numpys(unknown: None) -> None:
    assert not supports("power", np.dtype("d"), defines=True)
    assert supports("exp", np.dtype("d"), defines=True)
    fast = jitla.jit(lambda x: x**3 + x**2.5, compile="sync")
    x = np.random.default_rng(1).random(1000)
    assert fast(x).tobytes() == (x**3 + x**2.5).tobytes()
    assert not fast.stats()["failures"]
