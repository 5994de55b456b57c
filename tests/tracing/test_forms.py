"""Forms of matrices that stay the same: made when they pay, gone when the matrix is written or freed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import jitla
from jitla.runtime import watch_arrays
from jitla.tracing.sparse import (
    zero_skipping as forms,
)
from jitla.tracing.sparse import (
    zero_skipping as turned,
)
from tests.tracing.form_calls import product, title, transposed

pytestmark = pytest.mark.skipif(watch_arrays((np.ones(4096),)) is None, reason="nobody tells of writes")

RNG = np.random.default_rng(3)
ROWS, COLUMNS = 300, 40


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(forms, "is_alone", lambda: True)  # test runners have threads
    monkeypatch.setattr("jitla.tracing.sparse.products.MIN_RECORDED_ELEMENTS", 0)
    forms.clear_forms()
    with jitla.config.options(invariants="all", compile="sync"):
        yield
    forms.clear_forms()


def drawn(kind: Any = sp.csc_array, index: str = "i4") -> Any:
    made = kind(sp.random(ROWS, COLUMNS, 0.3, "csr", random_state=5))
    made.indices, made.indptr = made.indices.astype(index), made.indptr.astype(index)
    return made


def both(X: Any, v: Any) -> Any:
    return X.T @ (X @ v)


def same(fast: Callable[..., Any], *args: Any) -> None:
    np.testing.assert_allclose(fast(*args), fast.__wrapped__(*args), rtol=1e-12, atol=1e-12)


V, W = RNG.random(COLUMNS), RNG.random(ROWS)


@pytest.mark.parametrize("kind", [sp.csc_array, sp.csc_matrix])
@pytest.mark.parametrize(("function", "vector"), [(product, V), (both, V), (product, V[:, None])])
def test_compressed_columns_become_rows(kind: Any, function: Any, vector: Any) -> None:
    X, fast = drawn(kind), jitla.jit(function)
    for _ in range(4):
        same(fast, X, vector)
    assert title(fast)[0] == f"compressed rows of {ROWS}x{COLUMNS}"
    stats = fast.stats()
    assert stats.kept == 1 and stats.reused >= 2 and stats.kept_bytes > 0


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_matrix])
@pytest.mark.parametrize(("function", "operand"), [
    (product, V), (transposed, W), (both, V), (product, RNG.random((COLUMNS, 5))),
    (transposed, RNG.random((ROWS, 5)))])
def test_indices_of_eight_bytes_become_narrow(kind: Any, function: Any, operand: Any) -> None:
    X, fast = drawn(kind, "i8"), jitla.jit(function)
    for _ in range(4):
        same(fast, X, operand)
    assert fast.stats().kept >= 1
    assert X.indices.dtype == np.int64


def test_functions_share_a_form() -> None:
    X, one, other = drawn(), jitla.jit(product), jitla.jit(both)
    for _ in range(4):
        same(one, X, V)
        same(other, X, V)
    assert one.stats().kept + other.stats().kept == 1
    assert one.stats().reused and other.stats().reused


def _written(X: Any, how: str) -> None:
    if how == "first":
        X.data[0] = 50
    elif how == "last":
        X.data[-1] += 9
    elif how == "all":
        X.data *= 2
    elif how == "place":
        X.indices[:] = np.sort(RNG.integers(0, ROWS, len(X.indices)))
        X.has_canonical_format = X.has_sorted_indices = False
    elif how == "starts":
        X.indptr[1:-1] = 0
    else:
        X.data = X.data * 3


@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("how", ["first", "last", "all", "place", "starts", "exchanged"])
def test_a_change_in_place_between_calls_is_seen(how: str, index: str) -> None:
    X, fast = drawn(index=index), jitla.jit(product)
    for _ in range(3):
        for _ in range(3):
            same(fast, X, V)
        _written(X, how)
        same(fast, X, V)
    assert fast.stats().kept >= 1


def changing(X: Any, v: Any) -> Any:
    total = np.zeros(X.shape[0])
    for turn in range(6):
        total = total + X @ v
        if turn % 2:
            X.data[turn] = 10.0 * turn
    return total


def test_a_change_within_a_call_is_seen() -> None:
    fast = jitla.jit(changing)
    X, Y = drawn(), drawn()
    for _ in range(4):
        np.testing.assert_allclose(fast(X, V), changing(Y, V), rtol=1e-12)


def test_what_is_stored_oddly_stays_so() -> None:
    X = drawn()
    X.data[::7], X.data[1], X.data[5] = 0.0, np.inf, np.nan
    X.indices[1] = X.indices[0]  # twice at one place
    X.has_canonical_format = False
    fast = jitla.jit(product)
    for _ in range(4):
        np.testing.assert_allclose(fast(X, V), X @ V, rtol=1e-12)
    assert fast.stats().kept == 1


def test_forms_go_with_the_matrix() -> None:
    X, fast = drawn(), jitla.jit(product)
    for _ in range(4):
        same(fast, X, V)
    assert any(each.forms for each in forms._histories.values())
    del X
    gc.collect()
    assert not any(each.forms for each in forms._histories.values())


@pytest.mark.parametrize(
    "option", [{"invariants": "none"}, {"invariants_limit": 1000}, {"numerics": "strict"}])
def test_no_forms_where_they_are_not_wanted(option: dict[str, Any]) -> None:
    X = drawn()
    with jitla.config.options(**option):
        fast = jitla.jit(product)
        for _ in range(5):
            same(fast, X, V)
    assert fast.stats().kept == 0


def test_not_of_memory_that_others_own() -> None:
    X = drawn()
    X.data = np.frombuffer(bytearray(X.data.tobytes()))
    fast = jitla.jit(product)
    for _ in range(5):
        same(fast, X, V)
    assert fast.stats().kept == 0


def test_not_while_other_threads_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "is_alone", lambda: False)
    X, fast = drawn(), jitla.jit(product)
    for _ in range(5):
        same(fast, X, V)
    assert fast.stats().kept == 0


def test_a_form_is_made_when_products_have_lost_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MIN_SAVING_NS", 0.0)
    X, fast = drawn(), jitla.jit(product)
    saved = turned.SCATTER_ENTRY_NS[0] - turned.GATHER_ENTRY_NS[0]
    uses = int(np.ceil(turned.TRANSPOSE_ENTRY_NS / saved))
    with jitla.config.options(invariants="cost"):
        for _ in range(uses - 2):
            fast(X, V)
        assert fast.stats().kept == 0
        for _ in range(5):
            same(fast, X, V)
        assert fast.stats().kept == 1
        X.data[3] = 8.0
        for _ in range(uses + 3):  # now it has to wait for twice as long
            same(fast, X, V)
        assert fast.stats().kept == 1


def test_small_gains_are_not_watched() -> None:
    X, fast = drawn(), jitla.jit(product)
    with jitla.config.options(invariants="cost"):
        for _ in range(60):
            fast(X, V)
    assert fast.stats().kept == 0 and not forms._histories
