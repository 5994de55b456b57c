"""Exceptions are NumPy's own, with the user's line innermost, and what was done before is kept."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import jitla

X = np.arange(6.0)


def wrong_shape(x):
    y = x * 2
    z = y + np.ones(4)
    return z


def wrong_axis(x):
    y = x * 2
    return y.sum(axis=3)


def wrong_index(x):
    y = x + 1
    return y[17]


def wrong_product(x):
    y = x * 2
    return y @ np.ones((3, 2))


def wrong_reshape(x):
    return (x + 1).reshape(4, 4)


def wrong_store(x):
    x += 1
    x[2:] = np.ones(7)
    return x


def wrong_cast(x):
    n = np.arange(6)
    n += x * 0.5
    return n


def empty_maximum(x):
    y = x[6:] * 2
    return y.max()


def ambiguous(x):
    y = x > 2
    if y:
        return 1
    return 0


def no_attribute(x):
    y = x * 2
    return y.nothing_like_this


def out_of_range(x):
    y = x.astype(np.uint8)
    return y + 300


def own_exception(x):
    y = x * 2
    raise KeyError(float(y.sum()))


def negative_power(x):
    n = x.astype(int)
    return n**-1


def bool_minus(x):
    return (x > 1) - (x > 2)


def in_a_helper(x):
    return wrong_shape(x * 2)


@pytest.mark.parametrize(
    "function",
    [
        wrong_shape,
        wrong_axis,
        wrong_index,
        wrong_product,
        wrong_reshape,
        wrong_store,
        wrong_cast,
        empty_maximum,
        ambiguous,
        no_attribute,
        out_of_range,
        own_exception,
        negative_power,
        bool_minus,
        in_a_helper,
    ],
)
@pytest.mark.parametrize("call", ["cold", "warm"])
def test_exceptions_are_numpys(function, call: str) -> None:
    jitted = jitla.jit(function)
    if call == "warm":
        with pytest.raises(Exception):  # noqa: B017
            jitted(X.copy())
    x, y = X.copy(), X.copy()
    with pytest.raises(Exception) as expected:
        function(x)
    with pytest.raises(Exception) as actual:
        jitted(y)
    assert actual.type is expected.type
    assert str(actual.value) == str(expected.value)
    assert _innermost_user_line(actual.value) == _innermost_user_line(expected.value)
    assert actual.value.__cause__ is None and actual.value.__context__ is None
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "function",
    [
        wrong_shape,
        wrong_axis,
        wrong_product,
        wrong_reshape,
        wrong_store,
        wrong_cast,
        ambiguous,
        no_attribute,
        own_exception,
        in_a_helper,
    ],
)
def test_the_users_line_is_the_innermost_frame(function) -> None:
    with pytest.raises(Exception) as plain:
        function(X.copy())
    with pytest.raises(Exception) as jitted:
        jitla.jit(function)(X.copy())
    if traceback.extract_tb(plain.value.__traceback__)[-1].filename == __file__:
        assert traceback.extract_tb(jitted.value.__traceback__)[-1].filename == __file__


def _innermost_user_line(error: BaseException) -> tuple[str, int | None]:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    return frames[-1].name, frames[-1].lineno


def test_what_was_done_before_stays_done() -> None:
    @jitla.jit
    def f(x, log, held):
        x += 1
        log.append(x * 2)
        held.v = x + 1
        x[99] = 0
        return x

    class Held:
        v = None

    x, log, held = X.copy(), [], Held()
    with pytest.raises(IndexError):
        f(x, log, held)
    np.testing.assert_array_equal(x, X + 1)
    np.testing.assert_array_equal(log[0], (X + 1) * 2)
    np.testing.assert_array_equal(held.v, X + 2)
    assert type(log[0]) is type(held.v) is np.ndarray


def test_a_handler_sees_the_exception_at_its_line() -> None:
    @jitla.jit
    def f(x):
        steps = []
        try:
            y = x * 2
            steps.append("before")
            y = y + np.ones(4)
            steps.append("after")
        except ValueError as error:
            steps.append(str(error)[:8])
        finally:
            steps.append("finally")
        return steps, x + 1

    steps, _ = f(X)
    assert steps == ["before", "operands", "finally"]
