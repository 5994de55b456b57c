"""Shifted parts of one array: one kernel, in place without a copy, in time loops."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import jitla
from tests.behaviour.counting import during

RNG = np.random.default_rng(3)
Array = np.ndarray


def cross(a: Array) -> Array:
    return a[1:-1, 1:-1] + a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]


def jacobi(a: Array) -> None:
    a[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])


def heat(a: Array) -> None:
    a[1:-1, 1:-1] += 0.1 * (
        a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4 * a[1:-1, 1:-1])


def alternating(a: Array) -> Array:
    b = a.copy()
    for _ in range(5):
        b[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
        a, b = b, a
    return a


def steps(a: Array) -> None:
    for _ in range(5):
        jacobi(a)


def along(a: Array) -> None:
    a[1:-1] = 0.5 * (a[:-2] + a[2:])


def far(a: Array) -> None:
    a[300:] = a[300:] - a[:-300]


def cube(a: Array) -> None:
    a[1:-1, 1:-1, 1:-1] = (a[:-2, 1:-1, 1:-1] + a[1:-1, 2:, 1:-1]) * a[1:-1, 1:-1, :-2]


def every_second(a: Array) -> None:
    a[1:-1:2, 1:-1:2] = a[:-2:2, 1:-1:2] + a[2::2, 1:-1:2]


def upside_down(a: Array) -> None:
    a[1:-1, 1:-1] = a[::-1][1:-1, 1:-1] + a[:-2, 1:-1]


def backwards(a: Array) -> None:
    b = a[::-1]
    b[1:-1, 1:-1] = b[:-2, 1:-1] + b[2:, 1:-1]


def blur(a: Array) -> Array:
    rows = (a[:-2] + a[1:-1] + a[2:]) / 3
    return (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 3


def differences(a: Array) -> Array:
    squares = a * a - 0.5
    return (squares[1:] - squares[:-1]) * a[:-1]


def inner(a: Array) -> Array:
    ratios = 1 / a
    return ratios[1:-1, 1:-1] - ratios[:-2, 1:-1]


def both_asked(a: Array) -> tuple[Array, Array]:
    twice = a + a
    return twice[1:] - twice[:-1], twice


def into_itself(a: Array) -> None:
    twice = a * 0.75
    a[1:-1] = twice[2:] - twice[:-2]


SQUARES = [(20, 30), (401, 402), (4, 50_000), (50_000, 4)]
CASES = [(f, SQUARES) for f in (
    cross, jacobi, heat, alternating, steps, along, backwards, blur, differences, inner, both_asked,
    into_itself)]
CASES += [(f, [(21, 31), (401, 403)]) for f in (every_second, upside_down)]
CASES += [(f, [(400,), (300_000,)]) for f in (along, far)]
CASES += [(cube, [(6, 7, 8), (60, 61, 62)])]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("function, shapes", CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_same_as_numpy(
    function: Callable[[Array], object], shapes: list[tuple[int, ...]], dtype: str, order: str,
    threads: int,
) -> None:
    fast = jitla.jit(function)
    with jitla.options(num_threads=threads):
        for shape in shapes:
            plain = RNG.random(shape).astype(dtype, order=order)
            mine = plain.copy("K")
            for _ in range(2):
                want, got = function(plain), fast(mine)
                np.testing.assert_array_equal(mine, plain)
                for x, y in zip(flat(got), flat(want), strict=True):
                    np.testing.assert_array_equal(x, y)
                    assert x.strides == y.strides and x.flags.owndata == y.flags.owndata


def flat(found: object) -> tuple[Array, ...]:
    """Return the arrays that a function gave."""
    return found if isinstance(found, tuple) else () if found is None else (found,)  # type: ignore[return-value]


@pytest.mark.parametrize("function", [blur, differences])
def test_slices_of_a_value_take_one_kernel(function: Callable[[Array], Array]) -> None:
    fast = jitla.jit(function)
    a = RNG.random((500, 500))
    fast(a)
    assert during(fast, lambda: fast(a)).kernel_runs == 1


@pytest.mark.parametrize("place", [(0, 0), (-1, -1), (7, 9)])
@pytest.mark.parametrize("value", [np.inf, 1e308, 0.0])
@pytest.mark.parametrize("function", [blur, differences, inner, both_asked])
def test_values_of_which_slices_are_taken_warn_as_numpys(
    function: Callable[[Array], Array], value: float, place: tuple[int, int],
) -> None:
    fast = jitla.jit(function)
    for shape in ((4, 5), (3, 3), (40, 50), (2, 9)):
        a = RNG.random(shape) + 1
        a[min(place[0], shape[0] - 1), min(place[1], shape[1] - 1)] = value
        a[-1, 0] = -value
        for _ in range(2):
            said = []
            for call in (function, fast):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    found = flat(call(a))
                said.append(([str(w.message) for w in caught], [x.tobytes() for x in found]))
            assert said[0] == said[1]


@pytest.mark.parametrize("function, shape", [(jacobi, (500, 500)), (heat, (500, 500)), (cube, (60, 60, 60)),
                                             (along, (300_000,))])
def test_large_updates_in_place_take_no_copy(
    function: Callable[[Array], None], shape: tuple[int, ...]
) -> None:
    fast = jitla.jit(function)
    a = RNG.random(shape)
    fast(a)
    found = during(fast, lambda: fast(a))
    assert (found.kernel_runs, found.numpy_calls, found.materialised) == (1, 0, 0)


def test_parts_that_lie_otherwise_take_a_copy() -> None:
    fast = jitla.jit(upside_down)
    a = RNG.random((500, 500))
    fast(a)
    assert during(fast, lambda: fast(a)).materialised == 1


def test_steps_of_many_lengths_share_plans() -> None:
    def shifted(a: Array, by: int) -> None:
        a[by:] = a[by:] + a[:-by]

    fast = jitla.jit(shifted)
    plain = np.zeros(400_000)
    plain[0] = 1
    mine = plain.copy()
    for by in (1, 2, 3, 5, 8, 13, 21, 34, 55, 1000):
        shifted(plain, by)
        fast(mine, by)
        np.testing.assert_array_equal(mine, plain)
    assert fast.stats()["failures"] == 0


@pytest.mark.parametrize("n", [100, 600])
@pytest.mark.parametrize("value", [np.inf, 1e308, np.nan])
def test_warnings_are_numpys(n: int, value: float) -> None:
    fast = jitla.jit(jacobi)
    for _ in range(3):
        plain = RNG.random((n, n))
        plain[50, 50], plain[52, 50] = value, -value if np.isinf(value) else value
        mine = plain.copy()
        said = []
        for call, a in ((jacobi, plain), (fast, mine)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(a)
            said.append([str(w.message) for w in caught])
        assert said[0] == said[1]
        np.testing.assert_array_equal(mine, plain)
