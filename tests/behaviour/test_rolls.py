"""Rolled arrays: NumPy's results for all shapes and shifts, one copy where cells read them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import jitla
from tests.behaviour.counting import counts

RNG = np.random.default_rng(8)
Array = np.ndarray


def laplace(a: Array) -> Array:
    return -4 * a + np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) + np.roll(a, -1, 1)


def several(a: Array) -> tuple[Array, ...]:
    shifted = np.roll(np.roll(a, 3, 0), -1, 1)
    return np.roll(a, (1, -2), (0, 1)) * 2 + shifted, np.roll(a, np.int64(-3), axis=-1) + a, shifted


def far(a: Array) -> Array:
    return np.roll(a, 7, 0) + np.roll(a, -8, 1) * np.roll(a, (1, 1, -1), (0, 0, 1)) + np.roll(a, 2, (0, 1))


def asked_for(a: Array) -> tuple[Array, ...]:
    up = np.roll(a, 1, 0)
    return up, up + a, np.roll(a, 0, 0), np.roll(a, 2) + a


def along(a: Array) -> tuple[Array, ...]:
    flat = a.ravel()
    moved = np.roll(flat, 1)
    return flat - 0.5 * (flat - np.roll(flat, 1)), moved, np.roll(flat, (1, -3)), np.roll(flat, -1, 0)


def added_up(a: Array) -> tuple[Array, ...]:
    return (np.roll(a, 1, 0) * a).sum(), np.roll(a, 1, 1).sum(0), (np.roll(a, 1, 1) + a).max(1)


def of_cells(a: Array) -> Array:
    b = a * a + 1
    return np.roll(b, 1, 0) + np.roll(b, -1, 1) * b


def of_views(a: Array) -> Array:
    return np.roll(a[1:], 1, 0) + a[1:] + np.roll(a[:, ::-1], 1, 1)[1:] + np.roll(a.T, 1, 0).T[1:]


def in_time(a: Array) -> Array:
    b = a.copy()
    for _ in range(4):
        b += (laplace(b) * 2).astype(b.dtype)
    return b


def neighbours(a: Array) -> Array:
    total = 0
    for i in (-1, 0, 1):
        for j in range(-1, 2):
            if i or j:
                total = total + np.roll(np.roll(a, i, 0), j, 1)
    return total


def generated(a: Array) -> Array:
    return sum(np.roll(np.roll(a, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if i != 0 or j != 0)


def listed(a: Array) -> Array:
    return sum([np.roll(a, (i, j), (0, 1)) for i, j in ((0, 1), (1, 0), (1, 1))])


PROGRAMS = (
    laplace, several, far, asked_for, along, added_up, of_cells, of_views, in_time, neighbours, generated,
    listed)
SHAPES = ((16, 17), (40, 30), (3, 4), (2, 2), (1, 5), (0, 3), (50, 60))
ORDERS = (np.ascontiguousarray, np.asfortranarray, lambda a: np.repeat(a, 2, 1)[:, ::2])


def facts(value: object) -> object:
    if isinstance(value, tuple):
        return [facts(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.shape, value.strides, value.dtype, value.flags.owndata, value.tobytes("A")
    return type(value), repr(value)


def outcome(function: Callable[..., object], a: Array) -> object:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            return facts(function(a.copy("K"))), [str(w.message) for w in told]
        except Exception as error:
            return type(error), str(error)


@pytest.mark.parametrize("program", PROGRAMS)
def test_rolls_are_numpys(program: Callable[..., object]) -> None:
    """One function for all sizes, larger and smaller than the shifts."""
    fast = jitla.jit(program, compile="sync")
    for code, shapes, orders in (("f8", SHAPES, ORDERS[:1]), ("f8", SHAPES[:3], ORDERS[1:]),
                                 ("i2", SHAPES[:3], ORDERS[:1]), ("c16", SHAPES[:1], ORDERS[:1])):
        for shape in shapes:
            numbers = (RNG.standard_normal(shape) * 9).astype(code)
            for order in orders:
                a = order(numbers)
                assert outcome(fast, a) == outcome(program, a), (code, shape, a.strides)
    assert counts(fast).failures == 0


@pytest.mark.parametrize("arguments", [
    (1, 2), (1.0, 0), ((1, 2), (0, 1, 0)), (1, (0, 5)), ("1", 0), (np.array([1, 2]), (0, 1)),
    ([1, 2], [0, 1]), (True, 0), (100, 0), (-(2**40), 1), ((), ()), ((1, 2), 0), (1, ()), (None, 0)])
def test_odd_arguments_are_numpys(arguments: tuple[object, object]) -> None:
    def rolled(a: Array) -> Array:
        return np.roll(a, *arguments) + a

    fast = jitla.jit(rolled, compile="sync")
    a = RNG.random((5, 6))
    for _ in range(2):
        assert outcome(fast, a) == outcome(rolled, a)


@pytest.mark.parametrize(("program", "rolls"), [(laplace, 5), (neighbours, 8), (generated, 8), (listed, 3)])
def test_one_copy_serves_all_rolls(program: Callable[..., object], rolls: int) -> None:
    fast = jitla.jit(program, compile="sync")
    a = RNG.integers(0, 9, (64, 80))
    assert facts(fast(a)) == facts(program(a))
    found = counts(fast)
    assert (found.programs, found.kernels, found.numpy_calls, found.fallbacks) == (1, 2, rolls, 0)


def test_what_is_rolled_is_written_where_its_edges_have_room() -> None:
    """What is computed and then rolled is no array of its own."""
    fast = jitla.jit(of_cells, compile="sync")
    a = RNG.random((64, 80))
    assert facts(fast(a)) == facts(of_cells(a))
    found = counts(fast)
    assert (found.programs, found.kernels, found.numpy_calls) == (1, 2, 3)


def test_a_long_loop_has_a_plan_for_its_turns() -> None:
    def lags(a: Array, most: int) -> list[float]:
        return [float((a * np.roll(a, k)).sum()) for k in range(most)]

    fast = jitla.jit(lags, compile="sync")
    a = RNG.random(500)
    assert fast(a, 40) == lags(a, 40)
    assert counts(fast).programs <= 20


def test_what_was_rolled_by_nothing_is_a_result_of_its_own() -> None:
    def back(a: Array) -> tuple[Array, Array]:
        return np.roll(a, 0, 0) | a, np.minimum(np.roll(np.roll(a, -1), 1), a)

    fast = jitla.jit(back, compile="sync")
    a = RNG.integers(0, 9, 7)
    assert facts(fast(a)) == facts(back(a))
    assert all(made.base is None for made in fast(a))
