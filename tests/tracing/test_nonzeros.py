"""Dense matrices that are mostly zero and stay the same: products leave zeros out, results stay NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.runtime import watch_arrays
from jitla.tracing import TimedClass
from jitla.tracing.lazy import clear_operator_caches
from jitla.tracing.sparse import (
    zero_skipping as forms,
)
from jitla.tracing.sparse import (
    zero_skipping as nonzeros,
)
from tests.tracing.form_calls import product, title, transposed

pytestmark = pytest.mark.skipif(watch_arrays((np.ones(4096),)) is None, reason="nobody tells of writes")

RNG = np.random.default_rng(3)
ROWS, COLUMNS = 300, 40


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(forms, "is_alone", lambda: True)  # test runners have threads
    monkeypatch.setattr(nonzeros, "MIN_DENSE_ELEMENTS", 0)
    monkeypatch.setattr(nonzeros, "LOOP_START_NS", 0.0)
    clear_operator_caches()
    forms.clear_forms()
    with jitla.config.options(invariants="all", compile="sync"):
        yield
    forms.clear_forms()
    clear_operator_caches()


def drawn(dtype: str = "f8", order: Any = "C", share: float = 0.02) -> np.ndarray:
    made = np.zeros((ROWS, COLUMNS), dtype, order)
    made[RNG.random(made.shape) < share] = 1.5
    made[2, 3], made[5, 7] = -2.5, -0.0
    return made


def reflected(X: Any, w: Any) -> Any:
    return w @ X


def both(X: Any, v: Any) -> Any:
    return X.T.dot(np.dot(X, v) * 2.0)


def same(fast: Callable[..., Any], X: Any, *args: Any) -> None:
    found, expected = fast(X, *args), fast.__wrapped__(X, *args)
    assert type(found) is np.ndarray and found.dtype == expected.dtype and found.strides == expected.strides
    assert found.flags.owndata == expected.flags.owndata and found.flags.writeable
    np.testing.assert_allclose(found, expected, rtol=2e-5 if X.dtype == np.float32 else 1e-12, atol=1e-12)


V, W = RNG.random(COLUMNS), RNG.random(ROWS)
USES = [(product, V), (transposed, W), (reflected, W), (both, V), (product, RNG.random((COLUMNS, 3))),
        (transposed, RNG.random((ROWS, 3)))]


@pytest.mark.parametrize(("order", "dtype"), [("C", "f8"), ("F", "f8"), ("C", "f4")])
@pytest.mark.parametrize(("function", "operand"), USES)
def test_zeros_are_left_out_of_what_stays(function: Any, operand: Any, order: Any, dtype: str) -> None:
    X, fast = drawn(dtype, order), jitla.jit(function)
    for _ in range(5):
        same(fast, X, operand.astype(dtype))
    shape = f"{ROWS}x{COLUMNS}" if order == "C" else f"{COLUMNS}x{ROWS}"
    assert title(fast)[0] == f"compressed rows of dense {shape}"
    stats = fast.stats()
    assert stats.kept == 1 and stats.reused >= 2 and 0 < stats.kept_bytes < X.nbytes


def _written(X: np.ndarray, how: str) -> None:
    if how == "element":
        X[1, 1] = 50
    elif how == "last":
        X.flat[-1] += 9
    elif how == "all":
        X *= 2
    elif how == "view":
        X[::7].T[3] = 4.0
    elif how == "memory":
        memoryview(X)[9, 9] = 3.5
    elif how == "thread":
        other = Thread(target=X.__setitem__, args=((0, 0), 7.0))
        other.start()
        other.join()
    else:
        X[:] = np.nan


@pytest.mark.parametrize("how", ["element", "last", "all", "view", "memory", "thread", "nan"])
def test_a_change_between_calls_is_seen(how: str) -> None:
    X, fast = drawn(), jitla.jit(both)
    for _ in range(2):
        for _ in range(4):
            same(fast, X, V)
        with np.errstate(all="ignore"):
            _written(X, how)
            same(fast, X, V)
    assert fast.stats().kept >= 1


def changing(X: Any, v: Any) -> Any:
    total = np.zeros(X.shape[0])
    row = X[3]
    for turn in range(8):
        total = total + X @ v
        if turn > 3:
            row[turn] = 10.0 * turn
        if turn == 6:
            X *= 3.0
    return total + X @ v


def test_a_change_within_a_call_is_seen() -> None:
    fast = jitla.jit(changing)
    X = drawn()
    Y = X.copy()
    for _ in range(4):
        np.testing.assert_allclose(fast(X, V), changing(Y, V), rtol=1e-12)
    np.testing.assert_array_equal(X, Y)


@pytest.mark.parametrize("odd", [np.inf, np.nan, 1e308])
def test_factors_that_are_not_finite_or_may_overflow_meet_all_zeros(odd: float) -> None:
    X, fast = drawn(), jitla.jit(product)
    for _ in range(4):
        same(fast, X, V)
    made = fast.stats().kept
    vector = V.copy()
    vector[COLUMNS // 2] = odd
    with np.errstate(all="ignore"):
        same(fast, X, vector)
        X[0, 0] = odd
        for _ in range(9):
            same(fast, X, V)
    assert made == 1 and fast.stats().kept == 1 + bool(np.isfinite(odd))  # made again, but not used


@pytest.mark.parametrize("X", [
    drawn(share=0.7), drawn().astype(int), drawn().astype(complex), np.zeros((3, ROWS, COLUMNS))[:, :, :],
    drawn()[::2], np.frombuffer(bytearray(drawn().tobytes())).reshape(ROWS, COLUMNS)])
def test_other_matrices_stay_as_they_are(X: np.ndarray) -> None:
    fast = jitla.jit(product)
    for _ in range(5):
        np.testing.assert_allclose(fast(X, V), X @ V)
    assert fast.stats().kept == 0


@pytest.mark.parametrize(
    "option", [{"invariants": "none"}, {"invariants_limit": 1000}, {"numerics": "strict"}])
def test_nothing_is_left_out_where_that_is_not_wanted(option: dict[str, Any]) -> None:
    X = drawn()
    with jitla.config.options(**option):
        fast = jitla.jit(product)
        for _ in range(5):
            same(fast, X, V)
    assert fast.stats().kept == 0


def test_a_form_is_made_when_products_have_lost_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MIN_SAVING_NS", 0.0)
    X, fast = drawn(), jitla.jit(product)
    with jitla.config.options(invariants="cost"):
        for _ in range(20):
            fast(X, V)
        assert fast.stats().kept == 0
        for _ in range(20):
            same(fast, X, V)
    assert fast.stats().kept == 1


def test_matrices_of_scipy_are_loaded_first(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr("jitla.engine.load", loaded.append)
    fast = jitla.jit(product)
    for _ in range(4):
        same(fast, drawn(), V)
    assert not loaded
    X = drawn()
    for _ in range(4):
        same(fast, X, V)
    assert loaded == ["scipy.sparse"]


def test_calls_wait_for_what_makes_them_faster() -> None:
    site: Any = SimpleNamespace(awaited=7, interim_replays=set(), annotated_calls=0)
    kind = TimedClass(20)
    kind.choose_plain(site, 2e-3, 1e-3)
    assert not kind.bypassed and kind.left == 7 and not site.awaited
    site.awaited = 7  # once
    kind.choose_plain(site, 2e-3, 1e-3)
    assert kind.bypassed
