"""Values that a traced call hands to memory outside of it are there, as arrays, when the call has ended."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.callables import is_decorated
from jitla.tracing.array import LAZY
from jitla.tracing.closing import Closing

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
    if isinstance(a, (list, tuple)):
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
    real = Closing._deliver

    def deliver(self, closed, key, outs):
        real(self, closed, key, outs)
        for _, i, _ in closed.places:
            self.nodes[i]._v, self.nodes[i]._n = None, i

    @jitla.jit(compile="sync")
    def f(x):
        s = float((x * 2).sum())
        return s

    monkeypatch.setattr(Closing, "_deliver", deliver)
    assert f(np.ones(8)) == 16.0
    assert f.stats()["failures"] == 1
