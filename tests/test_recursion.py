"""Decorated functions that call themselves go as deep as plain ones, and end as these do at the limit."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest

import jitla
from jitla.engine import ENGINE
from jitla.introspection import DEEP_NESTING, NESTING, SUSPENDED_STATES, call_with_stack_headroom
from jitla.tiering.call_classes import RUNNING_SESSIONS
from jitla.tracing import LOCAL

MODES: dict[str, dict[str, Any]] = {
    "auto": {"compile": "auto"}, "sync": {"compile": "sync"}, "background": {"compile": "background"},
    "off": {"compile": "off"}, "strict": {"strict": True}, "verify": {"verify": True}}
X = np.arange(6.0)
LEVEL: list[int] = []
Decorator = Callable[[Any], Any]


def plainly(function: Any) -> Any:
    return function


def itself(decorator: Decorator) -> Any:
    @decorator
    def f(x: Any, n: int) -> Any:
        LEVEL.append(n)
        return x if n == 0 else f(x + 1.0, n - 1) * 0.5
    return f


@jitla.jit(compile="auto")
def of_module(x: Any, n: int) -> Any:
    LEVEL.append(n)
    return x if n == 0 else of_module(x + 1.0, n - 1) * 0.5


def method(decorator: Decorator) -> Any:
    class Base:
        def f(self, x: Any, n: int) -> Any:
            return x * 2.0

    class Own(Base):
        @decorator
        def f(self, x: Any, n: int) -> Any:
            LEVEL.append(n)
            return super().f(x, n) if n == 0 else self.f(x + 1.0, n - 1) * 0.5

    return Own().f


def mutual(decorator: Decorator) -> Any:
    @decorator
    def f(x: Any, n: int) -> Any:
        LEVEL.append(n)
        return x if n == 0 else g(x + 1.0, n - 1)

    @decorator
    def g(x: Any, n: int, *rest: Any, by: float = 0.5) -> Any:
        LEVEL.append(n)
        return x if n == 0 else f(x * by, n - 1)

    return f


def by_a_helper(decorator: Decorator) -> Any:
    def helper(x: Any, n: int) -> Any:
        return f(x, n)

    @decorator
    def f(x: Any, n: int) -> Any:
        LEVEL.append(n)
        return x if n == 0 else helper(x + 1.0, n - 1)

    return f


def with_an_answer(decorator: Decorator) -> Any:
    @decorator
    def f(x: Any, n: int) -> Any:
        LEVEL.append(n)
        if x.sum() < 0.0:
            return x
        return x if n == 0 else f(x + 1.0, n - 1) * 0.5
    return f


def with_a_loop(decorator: Decorator) -> Any:
    @decorator
    def f(x: Any, n: int) -> Any:
        LEVEL.append(n)
        s = 0.0
        for i in range(len(x)):
            s += x[i] * x[i]
        return s if n == 0 else f(x, n - 1) + s
    return f


SHAPES = [itself, method, mutual, by_a_helper, with_an_answer, with_a_loop]
for_all = pytest.mark.parametrize("mode", MODES)
for_shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)


def depth(f: Any) -> int:
    """Return how many levels an endless recursion has."""
    LEVEL.clear()
    with pytest.raises(RecursionError):
        f(X, 1 << 20)
    return len(LEVEL)


def check_nothing_is_left() -> None:
    assert LOCAL.session is None and not LOCAL.timing
    assert not RUNNING_SESSIONS and not SUSPENDED_STATES and NESTING.nested == 0


@for_all
@for_shapes
def test_as_deep_as_plain(shape: Any, mode: str) -> None:
    plain, f = shape(plainly), shape(jitla.jit(**MODES[mode]))
    least = 0.9 * depth(plain)
    blocks = shape is with_an_answer and mode not in ("auto", "off")  # one at each level takes its time
    for n in (20,) if blocks else (0, 20):
        for _ in range(1 if blocks else 3):
            assert depth(f) >= least
            check_nothing_is_left()
            for _ in range(12):
                assert np.array_equal(f(X, n), plain(X, n))
    deep = int(least) - 40
    assert np.array_equal(f(X, deep), plain(X, deep))
    assert f.__func__.stats().failures == 0 if hasattr(f, "__func__") else f.stats().failures == 0


def test_calls_that_are_weighed_are_as_deep() -> None:
    def shape(decorator: Decorator) -> Any:
        @decorator
        def f(x: Any, n: int) -> Any:
            LEVEL.append(n)
            return x if n == 0 else f(x, n - 1)
        return f

    large, plain, f = np.ones(1 << 19), shape(plainly), shape(jitla.jit(compile="auto"))
    LEVEL.clear()
    with pytest.raises(RecursionError):
        plain(large, 1 << 20)
    least = 0.9 * len(LEVEL)
    for _ in range(60):  # traced and plain calls by turns
        LEVEL.clear()
        with pytest.raises(RecursionError):
            f(large, 1 << 20)
        assert len(LEVEL) >= least
        assert f(large, 800) is large
        check_nothing_is_left()


def test_a_function_of_a_module() -> None:
    least = 0.9 * depth(itself(plainly))
    for _ in range(40):
        of_module(X, 1)
    assert depth(of_module) >= least
    assert np.array_equal(of_module(X, 700), itself(plainly)(X, 700))


def test_under_flags_that_are_exceptions() -> None:
    least, f = 0.9 * depth(itself(plainly)), itself(jitla.jit(compile="sync"))
    with np.errstate(all="raise"):
        assert depth(f) >= least
    check_nothing_is_left()


def test_code_is_given_back() -> None:
    f = itself(jitla.jit(compile="auto"))
    seen = []

    def made() -> Any:
        @jitla.jit(compile="auto")
        def g(n: int) -> Any:
            seen.append(g.__code__ is g.__wrapped__.__code__)
            return g(n - 1) if n else f(X, 2)
        return g

    shallow, deep = made(), made()  # each is called for the first time: no call is left to the plain function
    shallow(DEEP_NESTING - 1)
    assert not any(seen)
    deep(4 * DEEP_NESTING)
    assert any(seen)
    for each in (f, shallow, deep):
        assert each.__code__ is each.__jitla_state__.fast_path.code is not each.__wrapped__.__code__
    check_nothing_is_left()


def test_deep_recursions_leave_other_calls_to_be_traced() -> None:
    """A traced call that begins within one runs what it calls in its own session."""

    @jitla.jit(compile="sync")
    def traced(x: Any) -> Any:
        return f(x * 2.0, -1)

    @jitla.jit(compile="off")
    def f(x: Any, n: int) -> Any:
        if n < 0:
            return x + 1.0
        return f(x, n - 1) if n else traced(x) + f(x, -1)

    for _ in range(3):
        assert np.array_equal(f(X, 3 * DEEP_NESTING), X * 2.0 + 1.0 + X + 1.0)
    assert traced.stats().forces == 3 and traced.stats().fallbacks == 0
    check_nothing_is_left()


def test_operators_of_users_are_called_as_they_were() -> None:
    """A decorated method that an operator calls in a traced function has no plain code then."""
    class Own:
        def __init__(self, x: Any) -> None:
            self.x = x

        @jitla.jit(compile="auto")
        def __add__(self, n: Any) -> Any:
            if n > 0:
                return self + (n - 1)
            return traced(self) if n == 0 else self.x * 3.0 + 1.0

    @jitla.jit(compile="sync")
    def traced(own: Any) -> Any:
        made = own.x * 2.0
        return (Own(made) + -1) + made

    own = Own(X)
    for _ in range(3):
        assert np.array_equal(own + 3 * DEEP_NESTING, (X * 2.0) * 3.0 + 1.0 + X * 2.0)
    check_nothing_is_left()


def test_options_that_change_within_a_recursion_count() -> None:
    @jitla.jit
    def f(x: Any, n: int) -> Any:
        if n < 0:
            return x * 2.0
        if n:
            return f(x, n - 1)
        with jitla.options(compile="sync"):
            return f(x, -1)

    assert np.array_equal(f(X, 3 * DEEP_NESTING), X * 2.0)
    assert f.stats().forces == 1
    check_nothing_is_left()


def test_a_recursion_that_traced_code_waits_for() -> None:
    def count(f: Any) -> int:
        LEVEL.clear()
        with pytest.raises(RecursionError):
            f(X, 1 << 20)
        return len(LEVEL)

    inner = itself(jitla.jit(compile="auto"))

    @jitla.jit(compile="sync")
    def outer(x: Any, n: int) -> Any:
        return list(map(inner, [x * 1.0], [n]))[0]

    assert np.array_equal(outer(X, 500), itself(plainly)(X, 500))
    assert count(outer) >= 0.9 * count(itself(plainly))
    check_nothing_is_left()


@pytest.mark.threads
def test_threads_recurse_side_by_side() -> None:
    f, g = itself(jitla.jit(compile="auto")), itself(jitla.jit(compile="sync"))
    wanted = {n: itself(plainly)(X, n) for n in (5, 60, 300)}
    wrong: list[Any] = []

    def work(mine: Any) -> None:
        for turn in range(25):
            for n, value in wanted.items():
                try:
                    if not np.array_equal(mine(X, n), value):
                        wrong.append((turn, n))
                except Exception as error:
                    wrong.append(error)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in (f, g, f, f, g)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    check_nothing_is_left()
    assert f.__code__ is f.__jitla_state__.fast_path.code


@for_all
def test_the_error_is_the_users(mode: str) -> None:
    f = itself(jitla.jit(**MODES[mode]))
    for _ in range(2):
        with pytest.raises(RecursionError) as caught:
            f(X, 1 << 20)
        assert caught.value.__cause__ is None and caught.value.__context__ is None
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert len(frames) > 500
        own = [frame for frame in frames if "/jitla/" in frame.filename and frame.name != "wrapper"]
        assert len(own) <= 4, own


def test_other_errors_of_a_deep_recursion() -> None:
    @jitla.jit(compile="auto")
    def f(x: Any, n: int) -> Any:
        if n == 0:
            raise KeyError("at the end")
        return f(x, n - 1)

    for n in (3, 500, 3):
        with pytest.raises(KeyError, match="at the end") as caught:
            f(X, n)
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert names.count("f") == n + 1
        check_nothing_is_left()


def body(x: Any, out: dict[str, Any]) -> Any:
    y = x * 2.0 + 1.0
    out["y"] = y
    out["l"] = [y, y - x]
    if y.sum() > 5:
        y = y - x.mean()
    y[1] = 3.0
    z = np.where(y > 2, y, x)
    z += 1.0
    for i in range(3):
        z = z * 0.5 + i
    out["z"] = z
    return z.sum(), z


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_same, a, b))
    return type(a) is type(b) and np.array_equal(a, b)


def descend(levels: int, function: Callable[[], Any]) -> Any:
    return descend(levels - 1, function) if levels else function()


def levels_so_far() -> int:
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("mode", ["auto", "sync"])
def test_calls_near_the_limit_are_right_or_end(mode: str, fresh: bool) -> None:
    """The right value, or RecursionError and no proxies outside; later calls go well."""
    wanted_out: dict[str, Any] = {}
    wanted = body(X, wanted_out)
    ended, went = 0, 0
    made = jitla.jit(body, compile=mode)
    for left in range(4, 100, 3) if fresh else range(4, 50):
        if fresh:
            made = jitla.jit(body, compile=mode)
        out: dict[str, Any] = {}
        down = sys.getrecursionlimit() - levels_so_far() - left
        try:
            found = descend(down, lambda f=made, o=out: f(X, o))
            assert is_same(found, wanted) and all(is_same(out[k], wanted_out[k]) for k in wanted_out)
            went += 1
        except RecursionError:
            assert all(is_same(value, wanted_out[name]) for name, value in out.items())
            ended += 1
        assert np.array_equal(X, np.arange(6.0))
        check_nothing_is_left()
        again: dict[str, Any] = {}
        assert is_same(made(X, again), wanted) and all(is_same(again[k], wanted_out[k]) for k in wanted_out)
    assert ended and went


@pytest.mark.parametrize("kind", ["answers", "writes", "keeps", "waits"])
def test_traced_code_may_catch_the_error_and_go_on(kind: str) -> None:
    log: list[Any] = []

    def down(a: Any, n: int) -> Any:
        a = a + 1.0
        try:
            if kind == "answers" and a.sum() < 0:
                return a
            if kind == "writes":
                a[0] = n
            if kind == "keeps":
                log.append(a * 2.0)
            return down(a * 0.999, n + 1)
        except RecursionError:
            log.append(n)
            return a

    f = jitla.jit(lambda x: down(x, 0), compile="sync")
    for extra in range(2):
        log.clear()
        found = descend(extra, lambda: f(X))
        a, kept, candidates = X, [], []
        for n in range(log[-1] + 1):
            a = a + 1.0
            candidates = [a]
            if kind == "writes":
                a = a.copy()
                a[0] = n
                candidates.append(a)
            kept.append(a * 2.0)
            a = a * 0.999
        assert type(found) is np.ndarray and any(np.array_equal(found, each) for each in candidates)
        if kind == "keeps":
            assert all(is_same(each, want) for each, want in zip(log[:-1], kept, strict=False))
        check_nothing_is_left()


def test_functions_that_travel_recurse_as_well() -> None:
    f = itself(jitla.jit(compile="auto"))
    f(X, 3)
    copy = pickle.loads(cloudpickle.dumps(f))
    assert np.array_equal(copy(X, 20), itself(plainly)(X, 20))


def test_functions_that_refer_to_themselves_are_collected() -> None:
    f = itself(jitla.jit(compile="auto"))
    own = method(jitla.jit(compile="auto"))
    for _ in range(40):
        f(X, 20)
        own(X, 20)
    gone = [weakref.ref(f), weakref.ref(type(own.__self__))]
    del f, own
    ENGINE.background.wait(10.0)  # jobs under way hold what they compile for
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_defaults_and_names_that_hide_builtins() -> None:
    space: dict[str, Any] = {
        "jit": jitla.jit(compile="auto"), "type": None, "len": 3, "BaseException": "x", "__name__": "m"}
    exec("@jit\ndef f(x, n=2, *, by=1.0):\n    return x if n == 0 else f(x * by, n - 1, by=by)\n", space)
    f = space["f"]
    for _ in range(100):
        assert np.array_equal(f(X), X) and np.array_equal(f(X, 300, by=1.0), X)
    with pytest.raises(TypeError):
        f(X, "1")


@pytest.mark.parametrize("deep", [False, True])
def test_calls_with_room(deep: bool) -> None:
    here: list[int] = []

    def found(value: int) -> int:
        here.append(threading.get_ident())
        if value < 0:
            raise ValueError(value)
        return value + 1

    levels = sys.getrecursionlimit() - levels_so_far() - 60 if deep else 0
    with jitla.options(num_threads=1):
        assert descend(levels, lambda: call_with_stack_headroom(lambda: jitla.config.num_threads)) == 1
    assert descend(levels, lambda: call_with_stack_headroom(found, 3)) == 4
    with pytest.raises(ValueError, match="-3"):
        descend(levels, lambda: call_with_stack_headroom(found, -3))
    assert (here[0] == threading.get_ident()) is not deep
