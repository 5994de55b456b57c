"""Changes in place that follow each other: one block, NumPy's results, warnings and memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.config import TracingThresholds

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with jitla.options(thresholds=TracingThresholds(min_update_elements=1)):
        yield


def changed(x: Array, y: Array) -> Array:
    a = np.zeros_like(x)
    if a.sum() == 0:  # from here on it is in memory
        a += x * y
        a -= y
        a *= x * 2
    return a


def narrower(x: Array, y: Array) -> Array:
    a = x.astype(np.float32)
    if a.sum() != 0:
        a += x * y
        a -= y * 2
        a *= x * 2
        a /= y + 3
    return a


def turned(x: Array, y: Array) -> Array:
    a = x * 2
    for k in range(3):
        a += y * k
        a -= x * 0.5
        if a[0] > 1e9:
            break
    return a


def seen(x: Array, y: Array) -> tuple[Any, ...]:
    a, b = x * 2, y * 3
    held, part = [a], b[1:]
    if a.sum() + b.sum() != 0:
        a += x * y
        a *= x * 2
        b += x * y
        b *= x * 2
        x += y * 2
        x -= y * a
    return a, b, held[0], part, held[0] is a, np.shares_memory(part, b)


def read(x: Array, y: Array) -> tuple[Array, Array]:
    a = x * 2
    if a.sum() != 0:
        c = a * y
        a += a * y
        c += a
        a -= c * a
        np.add(a, x, out=a)
    return a, c


@pytest.mark.parametrize("function", [changed, narrower, turned, seen, read])
def test_changes_in_place_are_those_of_numpy(function: Callable[..., Any]) -> None:
    x, y = np.linspace(1, 2, 40), np.linspace(-1, 0.5, 40)
    f = jitla.jit(function, compile="sync")
    for _ in range(3):
        mine, plain = [x.copy(), y.copy()], [x.copy(), y.copy()]
        made, wanted = f(*mine), function(*plain)
        for a, b in zip((*np.atleast_1d(made), *mine) if type(made) is np.ndarray else (*made, *mine),
                        (*np.atleast_1d(wanted), *plain) if type(wanted) is np.ndarray else (*wanted, *plain),
                        strict=True):
            assert type(a) is type(b) and np.array_equal(a, b)
    assert not f.stats().failures


def test_they_are_one_block() -> None:
    x, y = np.linspace(1, 2, 40), np.linspace(-1, 0.5, 40)
    f = jitla.jit(changed, compile="sync")
    f(x, y)
    f(x, y)
    before = f.stats().forces
    f(x, y)
    assert f.stats().forces - before == 2  # the sum, and all that follows


@pytest.mark.parametrize("large", [1e39, 1e300])
def test_what_overflows_as_it_is_stored_overflows_in_the_operation(large: float) -> None:
    x, y = np.linspace(1, 2, 40), np.linspace(-1, 0.5, 40)
    x[3] = y[3] = large
    f = jitla.jit(narrower, compile="sync")

    def told(function: Callable[..., Any]) -> list[tuple[str, int, str]]:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            function(x, y)
        return [(str(w.message), w.lineno, w.filename) for w in heard]

    for _ in range(3):
        assert told(f) == told(narrower) != []
