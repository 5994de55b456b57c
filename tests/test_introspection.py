"""What tools see of a decorated function; kinds of callables; functions that read frames."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import traceback as tb
from functools import partial
from inspect import stack as callers

import numpy as np
import pytest

import jitla
from jitla.errors import ConfigError, TraceError
from jitla.introspection import (
    frame_access_of,
    frame_sensitivity_of,
    outer_frame_access_of,
    untraceable_reason,
    unwrap_callable,
)
from jitla.tiering.engine import CallClass

# What tools are told of a decorated function: as of the plain one, also after its defaults have changed.

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
def test_code_object_has_names_and_arguments_of_the_function(function):
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
    """Return whether calls may take the fast path."""
    return isinstance(decorated.__jitla_state__.fast_path.kind, CallClass)


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


# Methods, partial calls, objects, generators: what is explained of each.

CALLABLES_X = np.random.default_rng(3).normal(size=(60, 4))


class Model:
    def __init__(self):
        self.w = np.arange(4.0)

    @jitla.jit
    def score(self, x):
        return (x * self.w).sum()

    @jitla.jit
    @classmethod
    def scaled(cls, x):
        return x * 2.5

    def __call__(self, x):
        return x * 3.5 + self.w


def scale(x, by):
    return x * by + 1.0


@pytest.mark.parametrize(("given", "name"), [
    (Model().score, "Model.score"), (Model().scaled, "Model.scaled"), (Model(), "Model.__call__"),
    (partial(jitla.jit(scale), by=2.5), "scale"), (partial(scale, by=1.5), "scale")])
def test_what_calls_a_function_is_explained_by_it(given, name):
    found = jitla.explain(given, CALLABLES_X).record
    assert found.name == name and found.programs and found.call is not None


def test_methods_and_partial_calls_can_be_decorated():
    model = Model()
    bound, part = jitla.jit(model.__call__, compile="sync"), jitla.jit(partial(scale, by=2.0), compile="sync")
    assert (bound(CALLABLES_X) == model(CALLABLES_X)).all()
    assert (part(CALLABLES_X) == scale(CALLABLES_X, 2.0)).all()
    assert bound.stats().kernels == 1 and part.func.stats().kernels == 1
    assert len(jitla.recompilations(part)) == 1


def test_arguments_of_partial_calls_come_first():
    given = partial(partial(scale, 1), by=2)
    assert unwrap_callable(given) == (scale, (1,), {"by": 2})


@pytest.mark.parametrize("ask", [Model().score.explain, Model().score.compile])
def test_a_method_that_has_lost_its_object_says_how_to_ask(ask):
    with pytest.raises(TypeError, match=r"jitla.explain\(object.score, ...\), or Model.score.explain\("):
        ask(CALLABLES_X)


def test_generators_are_asked_for_some_values():
    closed = []

    @jitla.jit
    def rows(x):
        try:
            while True:
                yield (x * 2.5).sum()
        finally:
            closed.append(True)

    found = jitla.explain(rows, CALLABLES_X)
    assert found.record.programs and closed == [True]


def test_what_has_to_be_awaited_is_not_called():
    async def later(x):
        return x

    with pytest.raises(TraceError, match="later runs in an event loop: await a call of it, then explain"):
        jitla.explain(later, CALLABLES_X)


@pytest.mark.parametrize("ask", [jitla.jit, jitla.jit(compile="sync"), jitla.explain])
def test_a_class_is_refused_with_what_to_do(ask):
    with pytest.raises(TraceError, match=r"not the class Model; decorate its methods \[J101\]"):
        ask(Model)


class Table:
    """Has arrays, and does their arithmetic."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values

    def total(self):
        return sum(range(9))


def test_tables_do_their_own_arithmetic():
    @jitla.jit
    def total(table):
        return table.total()

    @jitla.jit
    def taken(table):
        return (table.to_numpy() * 2.5).sum()

    table = Table(np.ones(9))
    with jitla.options(compile="auto"):
        for asked in (False, True):
            total(table)
            told = str(jitla.explain(total, table) if asked else jitla.explain(total))
            assert "runs in NumPy: arithmetic of a Table is not traced" in told and ".to_numpy()" in told
        taken(table)
        told = str(jitla.explain(taken, table))
    assert "was compiled for this call; other calls run in NumPy" in told and "pass arrays instead" in told


def test_loops_that_asked_for_nothing_have_a_cure():
    def clipped(values):
        return [v if v > 0.0 else 0.0 for v in values]

    told = str(jitla.explain(clipped, [1.0, -1.0]))
    assert "its loops have no operations on arrays" in told and "Python runs its loops" in told


def test_why_there_is_nothing_to_explain_is_said():
    assert "has not been called" in str(jitla.explain(scale))
    assert "nothing was compiled" in str(jitla.explain(lambda x: x.T, CALLABLES_X))
    told = str(jitla.explain(np.sum, CALLABLES_X))
    assert told.startswith("sum  0 calls") and "is not a Python function" in told and "source" not in told
    assert "is not a Python function" in jitla.explain(np.sum)._repr_html_()
    told = str(jitla.explain(np.linalg.norm.__wrapped__, CALLABLES_X))
    assert "is a function of NumPy or SciPy itself" in told and "source" not in told
    assert untraceable_reason(scale) == ""
    with jitla.options(disable=True):
        assert "the option disable is on" in str(jitla.explain(scale, CALLABLES_X, 2.0))


@pytest.mark.parametrize("wrong", [
    lambda: jitla.spec(-1), lambda: jitla.spec("a"), lambda: jitla.spec(3, order="X"),
    lambda: jitla.spec(3, density=2.0), lambda: jitla.spec(3, kind=np.array)])
def test_arrays_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match="is not possible; use"):
        wrong()


# Functions that look at frames, and those that look further than at their caller's.


def one_above():
    return sys._getframe(1).f_locals


def two_above():
    return sys._getframe(2).f_locals


def some_above(n):
    return sys._getframe(n).f_locals


def one_back():
    return sys._getframe().f_back.f_locals


def two_back():
    return inspect.currentframe().f_back.f_back


def frame_reads():
    return inspect.stack()[1].function, callers()[1][3]


def second():
    return callers()[2]


def all_of_them():
    return inspect.stack()


def imported():
    import inspect as i
    from inspect import stack
    return i.stack()[0], stack()[1]


def imported_all():
    from inspect import stack
    return stack()


def walks():
    frame = sys._getframe(1)
    while frame:
        frame = frame.f_back


def printed():
    return tb.extract_stack()


def from_inside():
    return (lambda: sys._getframe(1))()


def with_numpy(x):
    inspect.isfunction(x)
    return np.stack([x, x]) + np.trace(x) + x.trace()


def names_another():
    return two_above()


def names_a_near_one():
    return one_above()


@pytest.mark.parametrize(("function", "looks", "beyond", "plain"), [
    (one_above, True, False, True), (two_above, True, True, True), (some_above, True, True, True),
    (one_back, True, False, True), (two_back, True, True, True), (frame_reads, True, False, True),
    (second, True, True, True), (all_of_them, True, True, True), (imported, True, False, True),
    (imported_all, True, True, True), (walks, True, True, True), (printed, True, True, True),
    (from_inside, True, True, True), (with_numpy, False, False, False),
    (names_another, False, False, True), (names_a_near_one, False, False, False)])
def test_what_is_looked_at(function, looks, beyond, plain):
    assert bool(frame_access_of(function)) is looks
    assert bool(outer_frame_access_of(function)) is beyond
    assert bool(frame_sensitivity_of(function)) is plain


def test_long_functions():
    lines = "".join(f"    a.b{n}\n" for n in range(300))  # names whose numbers take more than a byte
    names: dict = {"inspect": inspect}
    exec(f"def long(a):\n{lines}    return inspect.stack()\n", names)
    assert frame_access_of(names["long"]) == "inspect.stack" and outer_frame_access_of(names["long"])


def test_a_closure_that_names_one():
    def deep():
        return sys._getframe(3)

    def outer():
        return deep()

    assert "deep, which it calls" in frame_sensitivity_of(outer)
