"""Values that a traced call hands to memory outside of it are there, as arrays, when the call has ended."""

from __future__ import annotations

import functools
import gc
import itertools
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.introspection import is_decorated
from jitla.tracing.force import BlockCloser
from jitla.tracing.lazy import LAZY
from jitla.tracing.open_tape import NODES

MODES = ("sync", "background", "auto")


def passing(method: Any) -> Any:
    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        return method(self, *args, **kwargs)
    return wrapper


def forwarding(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*a, **k):
        return function(*a, **k)
    return wrapper


def nameless(function: Any) -> Any:
    def wrapper(*a, **k):
        return function(*a, **k)
    return wrapper


def unseen(function: Any) -> Any:
    """A wrapper without a source, which is not traced."""
    space: dict[str, Any] = {"function": function, "functools": functools}
    exec("@functools.wraps(function)\ndef wrapper(*a, **k): return function(*a, **k)", space)
    return space["wrapper"]


WRAPPERS = {"passing": passing, "forwarding": forwarding, "nameless": nameless, "unseen": unseen}


class Store:
    """Where steps leave values: attributes, items of dictionaries and lists, class attributes."""

    last: Any = None

    def __init__(self) -> None:
        self.d: dict[str, Any] = {}
        self.l: list[Any] = [0, 0]
        self.err: Any = 0


def attribute(store, x):
    store.err = (x * 2).sum()


def both(store, x):
    store.y = y = x * 2 + 1
    store.err = y.sum() + store.err


def item(store, x):
    store.d["k"] = (x * 2).sum()


def array_item(store, x):
    store.d["a"], store.d["b"] = x + 1, (x + 2)[1:]


def element(store, x):
    store.l[0] = x - 1
    store.l[-1] = (x - 1).max()


def of_class(store, x):
    type(store).last = x * 3


def appended(store, x):
    store.l.append(x * x)


def with_a_loop(store, x):
    total = 0.0
    for i in range(4):
        store.d[i] = x * i
        total = total + (x * i).sum()
    store.err = total


STEPS = (attribute, both, item, array_item, element, of_class, appended, with_a_loop)


def program(jit: Any, step: Any, around: tuple[Any, ...], raises: bool) -> Any:
    """Make a function that calls `step`, decorated and within the wrappers, from a decorated one."""
    inner = jit(step)
    for wrapper in around:
        inner = wrapper(inner)

    def fit(store, x):
        before = x + 1
        inner(store, before)
        inner(store, before * 2)
        if raises:
            raise ValueError(before)
        return before
    return jit(fit)


def run(f: Any) -> Any:
    Store.last = None
    store, x = Store(), np.arange(20.0)
    try:
        result = f(store, x)
    except ValueError as error:
        result = error.args
    return result, store.__dict__, Store.last


def same(a: Any, b: Any) -> bool:
    """Return whether two values are of the same types, throughout, and equal; no proxy is among them."""
    if type(a) is not type(b) or type(a) in LAZY:
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, (list, tuple)):  # namedtuples, too
        return len(a) == len(b) and all(map(same, a, b))
    return bool(np.array_equal(a, b))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_values_are_there_whatever_stands_between(step: Any, mode: str) -> None:
    around = [(), *itertools.product(WRAPPERS.values()), (forwarding, forwarding), (passing, nameless),
              (unseen, forwarding)]
    for wrappers, raises in itertools.product(around, (False, True)):
        f = program(functools.partial(jitla.jit, compile=mode), step, wrappers, raises)
        wanted = run(program(lambda function: function, step, wrappers, raises))
        for _ in range(3):
            assert same(run(f), wanted), (wrappers, raises)
        assert not f.stats()["failures"]


def test_a_wrapper_of_a_decorated_function_can_be_decorated() -> None:
    inner = jitla.jit(lambda x: x + 1)
    wrapper = forwarding(inner)
    assert is_decorated(inner) and not is_decorated(wrapper)
    outer = jitla.jit(wrapper)
    assert outer is not wrapper and is_decorated(outer) and jitla.jit(outer) is outer
    assert np.array_equal(outer(np.ones(4)), np.full(4, 2.0))


def test_a_value_that_a_block_did_not_deliver_is_computed_and_counted(monkeypatch) -> None:
    real = BlockCloser._deliver

    def deliver(self, parts, closed, key, outs):
        real(self, parts, closed, key, outs)
        for _, i, _ in closed.places:
            parts[NODES][i]._v = None

    @jitla.jit(compile="sync")
    def f(x):
        s = float((x * 2).sum())
        return s

    monkeypatch.setattr(BlockCloser, "_deliver", deliver)
    assert f(np.ones(8)) == 16.0
    assert f.stats()["failures"] == 1


Pair = namedtuple("Pair", "a b")


def wrapped(function: Any) -> Any:
    def inner(*a):
        return function(*a)
    return inner


def walked(x, log):
    kept = x
    yield x
    log.append(type(kept))
    yield kept * 2


def in_namedtuples(x, store):
    store.err, store.d = Pair(x, x * 2), {"p": [Pair(x * 3, x)]}
    return Pair(x + 1, x), store.err.a.sum()


def by_a_generator_that_a_list_steps_through(x, store):
    return list(walked(x * 2, store.l))


def by_a_generator_that_is_returned(x, store):
    y = x * 3
    return walked(y, store.l)


def by_generator_expressions(x, store):
    y = x * 2 + 1
    return b"".join(y for _ in range(2)), list(map(memoryview, (x + y for _ in range(2)))), \
        np.fromiter((float((y * i).sum()) for i in range(3)), float)


def by_rows(x, store):
    rows = (x * 2).reshape(2, -1)
    return sorted((row.sum() for row in rows), key=lambda v: -v), max(row.max() for row in rows), \
        list(zip(rows, (row * 2 for row in rows), strict=True))


def by_iterators(x, store):
    store.d["k"] = map(wrapped(np.sum), [x * 2, x * 3])
    store.l[:] = enumerate([x + 1])
    return list(store.d["k"])


class Calling:
    def __init__(self, f):
        self.f = f

    def __call__(self, *a):
        return self.f(*a)


def in_lists_whose_items_move(x, store):
    held = store.l
    held[:] = [0, 1, 2]
    held[-1] = x * 2
    held.append("behind")
    held[-1] = x * 3
    held[np.int64(-2)] = x * 4
    held.insert(0, held.pop(1))
    held[1] = x * 5
    held.reverse()
    held *= 2
    held[3] = x * 6
    del held[0]
    held[-1] = x.sum()


def talked(x, store):
    try:
        yield x
    finally:
        store.err = x


async def later(x, store):
    store.d["k"] = x
    return x


def by_a_generator_that_is_closed(x, store):
    g = talked(x * 2, store)
    next(g)
    g.close()


def by_a_generator_whose_caller_fails(x, store):
    g = talked(x * 2, store)
    next(g)
    raise ValueError(x + 1)


def by_a_coroutine_that_is_sent(x, store):
    try:
        later(x * 2, store).send(None)
    except StopIteration as stop:
        return stop.value


INNER = {mode: jitla.jit(Calling(lambda x, store: setattr(store, "err", x)), compile=mode) for mode in MODES}


def by_an_object_that_calls(x, store):
    for mode in MODES:
        INNER[mode](x * 2, store)


WAYS = (by_a_generator_that_is_closed, by_a_generator_whose_caller_fails, by_a_coroutine_that_is_sent,
        by_an_object_that_calls, in_namedtuples, by_a_generator_that_a_list_steps_through,
        by_a_generator_that_is_returned,
        by_generator_expressions, by_rows, by_iterators,
        in_lists_whose_items_move)


def settled(value: Any) -> Any:
    return [bytes(each) if type(each) is memoryview else each for each in value] \
        if type(value).__name__ == "generator" or type(value) is list else \
        tuple(map(settled, value)) if type(value) is tuple else value


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_values_leave_by(way: Any, mode: str) -> None:
    f = jitla.jit(wrapped(way) if way is by_a_generator_that_is_returned else way, compile=mode)

    def outcome(g: Any) -> Any:
        store = Store()
        try:
            result = settled(g(np.arange(8.0), store))
        except ValueError as error:
            result = error.args
        gc.collect()
        return result, {k: v for k, v in store.__dict__.items() if k != "d" or way is in_namedtuples}
    wanted = outcome(way)
    for _ in range(3):
        assert same(outcome(f), wanted)
    assert not f.stats()["failures"]


@pytest.mark.parametrize("mode", MODES)
def test_what_a_frame_held_goes_with_the_call(mode: str) -> None:
    log: list[str] = []

    class Watched:
        def __del__(self):
            log.append("end")

    def take(x):
        log.append("begin")

    @jitla.jit(compile=mode)
    def f(x):
        held = Watched()
        take(x / x)
        return x + (held is not None)

    gc.disable()
    try:
        for _ in range(4):
            log.clear()
            with np.errstate(all="ignore"):
                f(np.arange(8.0))
            assert log == ["begin", "end"]
    finally:
        gc.enable()


def test_a_suspended_generator_that_is_closed_in_a_handler_keeps_no_exception() -> None:
    log: list[str] = []
    box = Store()

    @jitla.jit(compile="sync")
    def walk(x):
        yield x
        try:
            yield x
        finally:
            log.append("walk")

    def run(x):
        first = walk(x)
        next(first), next(first)
        box.err = walk(x)
        next(box.err)
        try:
            x + x[:4]
        except ValueError:
            box.err = None

    gc.disable()
    try:
        with np.errstate(all="warn"):
            run(np.arange(8.0))
        assert log == ["walk"]
    finally:
        gc.enable()


GLOBAL = None


@pytest.mark.parametrize("mode", MODES)
def test_attributes_of_users_are_asked_for_as_often_as_in_plain_code(mode: str, monkeypatch) -> None:
    log: list[str] = []

    class Logging:
        def __getattribute__(self, name):
            log.append(name)
            return super().__getattribute__(name)

    @jitla.jit(compile=mode)
    def f(x, thing):
        thing.z = x * 2
        return thing if GLOBAL is not None else x

    monkeypatch.setitem(globals(), "GLOBAL", Logging())
    for _ in range(3):
        thing = f(np.arange(8.0), Logging())
        assert not log
        assert same(thing.z, np.arange(8.0) * 2)
        log.clear()


@pytest.mark.parametrize("mode", MODES)
def test_methods_that_builtins_call_are_given_arrays(mode: str) -> None:
    seen: list[Any] = []

    class Owner:
        def weigh(self, x):
            seen.append(x)
            return float(x[0])

    owner = Owner()

    @jitla.jit(compile=mode)
    def f(x):
        y = x + 1
        top = max([x * 2, y], key=owner.weigh)
        list(map(owner.weigh, [y * 2]))
        sorted([y * 3], key=seen.append)
        return top

    for _ in range(3):
        assert same(f(np.arange(3.0)), np.arange(3.0) + 1)
    assert len(seen) == 12 and all(type(each) is np.ndarray for each in seen)
