"""What tools are told of a decorated function: as of the plain one, also after its defaults have changed."""

from __future__ import annotations

import asyncio
import functools
import inspect

import numpy as np
import pytest

import jitla

MODES = ("sync", "background", "auto", "off")
X = np.arange(1.0, 2000.0)


def one(x):
    return x


def default(x, y=2):
    return x, y


def ahead(x, y=2, /, z=3):
    return x, y, z


def named(x, *, k=1, j):
    return x, k, j


def required(x, *, k):
    return x, k


def everything(x: int, y: str = "y", *r: float, k=1, **w) -> tuple:
    return x, y, r, k, w


def anything(*a, **k):
    return a, k


def taken(type, int=3, called=4, BaseException=5, _j0=7, _jp0=8):
    return type, int, called, BaseException, _j0, _jp0


def many(self, x=None, y=None, z=None):
    return self, x, y, z


def none():
    return 1


def steps(x, y=1, *, k=2):
    yield x
    yield y, k


async def later(x, y=1, *r):
    return x, y, r


FUNCTIONS = [one, default, ahead, named, required, everything, anything, taken, many, none, steps, later]
CALLS = [
    ((1,), {}), ((1, 2), {}), ((1, 2, 3), {}), ((), {}), ((1,), {"y": 9}), ((1,), {"j": 3}),
    ((1,), {"j": 3, "k": 1}), ((1, 2, 3, 4, 5, 6), {}), ((1, 2, 3), {"q": 1, "k": 8}), ((1,), {"k": 2}),
    ((), {"k": 5}), ((1,), {"z": 9}), ((1,), {"y": 2}), ((1, 2), {"x": 2}), ((), {"x": 4}),
    ((), {"type": 1, "int": 2, "_j0": 3, "_jp0": 4}), ((X,), {}), ((X, 3.0), {})]


def outcome(function, args, kwargs):
    """Return what a call returns, or the error's text."""
    try:
        made = function(*args, **kwargs)
    except TypeError as error:
        return str(error)
    if inspect.isgenerator(made):
        return list(made)
    return asyncio.run(made) if inspect.iscoroutine(made) else made


def bound(function, args, kwargs):
    try:
        return inspect.getcallargs(function, *args, **kwargs)
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_calls_and_parameters(function, mode):
    decorated = jitla.jit(compile=mode)(function)
    for _ in range(30 if mode == "auto" else 2):
        for args, kwargs in CALLS:
            assert repr(outcome(decorated, args, kwargs)) == repr(outcome(function, args, kwargs))
            assert repr(bound(decorated, args, kwargs)) == repr(bound(function, args, kwargs))
        assert inspect.getfullargspec(decorated) == inspect.getfullargspec(function)
        assert inspect.signature(decorated) == inspect.signature(function)
        assert decorated.__defaults__ == function.__defaults__
        assert decorated.__kwdefaults__ == function.__kwdefaults__


@pytest.mark.parametrize("function", FUNCTIONS)
def test_code(function):
    decorated = jitla.jit(function)
    made, code = decorated.__code__, function.__code__
    for name in ("co_argcount", "co_kwonlyargcount", "co_posonlyargcount", "co_name", "co_qualname",
                 "co_firstlineno"):
        assert getattr(made, name) == getattr(code, name)
    kinds = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
    assert made.co_flags & kinds == code.co_flags & kinds
    count = code.co_argcount + code.co_kwonlyargcount
    assert made.co_varnames[:count] == code.co_varnames[:count]
    assert inspect.getsource(decorated) == inspect.getsource(function)
    assert inspect.unwrap(decorated) is function


def test_the_code_of_hot_calls_says_the_same():
    decorated = jitla.jit(compile="auto")(default)
    for _ in range(40):
        decorated(X)
    made = decorated.__code__
    assert is_hot(decorated)
    assert (made.co_name, made.co_firstlineno, made.co_varnames[:2]) == (
        "default", default.__code__.co_firstlineno, ("x", "y"))


def is_hot(decorated):
    """Say whether calls of some kind are not even noted: the code has a variable for that kind."""
    return "_j3" in decorated.__code__.co_varnames


def new():
    def scaled(x, factor=2.0, *, offset=1.0):
        return x * factor + offset
    return scaled


@pytest.mark.parametrize("calls", [0, 1, 40])
@pytest.mark.parametrize("mode", MODES)
def test_defaults_that_change(mode, calls):
    decorated = jitla.jit(compile=mode)(new())
    plain = decorated.__wrapped__

    def check():
        for _ in range(calls + 1):
            for args, kwargs in (((X,), {}), ((X, 5.0), {}), ((X,), {"offset": 7.0})):
                assert np.array_equal(decorated(*args, **kwargs), plain(*args, **kwargs))
        assert decorated.__defaults__ == plain.__defaults__
        assert decorated.__kwdefaults__ == plain.__kwdefaults__
        assert inspect.getfullargspec(decorated) == inspect.getfullargspec(plain)

    for _ in range(calls):
        decorated(X)
    assert calls == 1 or is_hot(decorated) == (mode == "auto" and calls > 1)
    check()
    plain.__defaults__ = (3.0,)
    check()
    plain.__kwdefaults__["offset"] = 4.0
    check()
    plain.__kwdefaults__ = {"offset": 6.0}
    check()
    plain.__kwdefaults__, plain.__defaults__ = {"offset": 8.0}, (9.0,)
    check()


@pytest.mark.parametrize("calls", [0, 40])
@pytest.mark.parametrize("mode", MODES)
def test_defaults_of_the_decorated_function(mode, calls):
    decorated = jitla.jit(compile=mode)(new())
    for _ in range(calls):
        decorated(X)
    decorated.__defaults__ = (10.0,)
    for _ in range(calls + 1):
        assert np.array_equal(decorated(X), X * 10.0 + 1.0)
        assert np.array_equal(decorated(X, 2.0), X * 2.0 + 1.0)
    decorated.__kwdefaults__ = {"offset": 20.0}
    for _ in range(calls + 1):
        assert np.array_equal(decorated(X), X * 10.0 + 20.0)
    decorated.__defaults__ = None
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'factor'"):
        decorated(X)


@pytest.mark.parametrize("mode", MODES)
def test_defaults_that_go_away(mode):
    decorated = jitla.jit(compile=mode)(new())
    for _ in range(40):
        decorated(X)
    assert is_hot(decorated) == (mode == "auto")
    decorated.__wrapped__.__defaults__ = None
    for _ in range(2):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'factor'"):
            decorated(X)
    assert np.array_equal(decorated(X, 3.0), X * 3.0 + 1.0)


def test_methods():
    class Scaled:
        factor = 3.0

        @jitla.jit
        def plain(self, x, offset=1.0):
            return x * self.factor + offset

        @jitla.jit
        @staticmethod
        def alone(x, offset=2.0):
            return x + offset

        @classmethod
        @jitla.jit
        def of_class(cls, x, /):
            return x * cls.factor

    assert inspect.getfullargspec(Scaled().plain).args == ["self", "x", "offset"]
    assert inspect.getcallargs(Scaled.alone, 1) == {"x": 1, "offset": 2.0}
    assert inspect.getfullargspec(Scaled.of_class).args == ["cls", "x"]
    for _ in range(30):
        assert np.array_equal(Scaled().plain(X), X * 3.0 + 1.0)
        assert np.array_equal(Scaled.alone(X), X + 2.0) and np.array_equal(Scaled.of_class(X), X * 3.0)


def test_errors_of_calls_name_the_function() -> None:
    def named(function):
        @functools.wraps(function)
        def inner(first, *rest):
            return function(first, *rest)
        return inner

    def plain(x):
        return x

    def message(function):
        try:
            return function()
        except TypeError as error:
            return str(error)

    decorated = jitla.jit(named(plain), compile="sync")

    @jitla.jit(compile="sync")
    def outer(x):
        return message(decorated)

    wanted = message(named(plain))
    assert outer(np.ones(3)) == outer(np.ones(3)) == message(decorated) == wanted
    assert "plain()" in wanted


def test_errors_about_scalars_name_their_type() -> None:
    def messages(x):
        found = []
        for function in (len, iter, reversed, next):
            try:
                function(x.sum())
            except TypeError as error:
                found.append(str(error))
        return found

    assert jitla.jit(messages, compile="sync")(np.ones(3)) == messages(np.ones(3))
