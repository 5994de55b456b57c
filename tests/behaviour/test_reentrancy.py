"""Code of users that runs in the midst of an operation: handlers of signals, finalizers, callbacks."""

from __future__ import annotations

import gc
import inspect
import itertools
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.runtime import native_methods
from jitla.tracing import force as closing
from jitla.tracing.force import BlockCloser
from jitla.tracing.lazy import LAZY
from jitla.tracing.open_tape import Tape

MODES = ("sync", "background", "auto")


def made(function: Callable[..., Any], mode: str = "sync") -> Any:
    return jitla.jit(function, compile=mode)


class Box:
    """Holds a value that a traced call has stored."""

    x: Any = None
    y: Any = None


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b) or type(a) in LAZY:
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(np.array_equal(a, b, equal_nan=True)) if isinstance(a, (np.ndarray, np.generic)) else a == b


# -- code that runs at any place inside of the closing of a block


def part_of(name: str) -> Any:
    """Return the method of that name of a session's tape or closer, as written in Python."""
    method = getattr(Tape if hasattr(Tape, name) else BlockCloser, name)
    return method if inspect.isfunction(method) else native_methods().replaced[name]


def points(function: Any) -> Iterator[int]:
    """Yield the lines at which a function can be interrupted."""
    text, first = inspect.getsourcelines(function)
    atomic = next((first + i for i, line in enumerate(text) if "Nothing is called" in line), sys.maxsize)
    yield from sorted({line for _, _, line in function.__code__.co_lines() if line and line <= atomic})


PLACES = [(name, line) for name in ("close", "detach", "_run_program", "_deliver", "value")
          for line in points(part_of(name))]


def interrupted(
    run: Callable[[], Any], name: str, line: int, handler: Callable[[], None], nth: int = 0,
) -> Any:
    """Call `run`; `handler` runs once, as one of a signal would, the `nth` time before the given line."""
    wanted = part_of(name).__code__
    left = [handler] + nth * [lambda: None]

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code is not wanted:
            return None
        if event == "line" and frame.f_lineno == line and left:
            sys.settrace(None)
            left.pop()()
            sys.settrace(trace)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return run()
    finally:
        sys.settrace(before)


@pytest.mark.parametrize(("name", "line"), PLACES)
def test_a_handler_at_any_line_of_the_closing_of_a_block(name: str, line: int) -> None:
    box, seen = Box(), []

    @made
    def other(x):
        return (x * 3).sum()

    def program(x, y):
        def inner():
            seen.append((x * 2).sum())
        handlers.append(inner)
        box.x = x + y
        box.y = (box.x * 2).sum()
        s = float(box.y)
        y[1:3] = box.x[:2]
        z = y * s
        return z, box.x, box.y

    f = made(program)
    handlers: list[Any] = []
    arguments = np.arange(8.0), np.ones(8)
    wanted = program(*[each.copy() for each in arguments])
    f(*[each.copy() for each in arguments])

    def handler() -> None:
        seen.append(other(np.ones(4)))
        if handlers:
            handlers[-1]()
        if type(box.x) in LAZY:
            seen.append(np.asarray(box.x) * 1)
        if type(box.y) in LAZY:
            seen.append(float(box.y))

    found = interrupted(lambda: f(*[each.copy() for each in arguments]), name, line, handler)
    assert same(found, wanted)
    assert same(f(*[each.copy() for each in arguments]), wanted)
    assert not f.stats()["failures"] and not other.stats()["failures"]
    for each in seen:
        assert type(each) not in LAZY
        if isinstance(each, np.ndarray):
            assert np.array_equal(each, wanted[1])
        else:
            assert each in (12.0, 56.0, float(wanted[2]))


_RECORDING = ("perform_now", "put", "append", "enter", "forget", "leave", "reset", "update_error_state")
ONE_BY_ONE = [(name, line) for name in _RECORDING for line in points(part_of(name))]


@pytest.mark.parametrize("nth", [0, 1, 5])
@pytest.mark.parametrize(("name", "line"), ONE_BY_ONE)
def test_a_handler_at_any_line_of_operations_done_one_by_one(name: str, line: int, nth: int) -> None:
    told: list[Any] = []

    @made
    def other(x):
        y = x * 3 + 1
        y[0] = y.sum()
        return y / (x - x)

    def program(x, y):
        def inner():
            return x / (y - y)
        handlers.append(inner)
        a = x + y
        with np.errstate(all="call", call=lambda kind, flag: told.append(kind)):
            b = np.floor(a) / (x - x)
            b[1:3] = a[:2]
            c = b.sum() * a[0]
        return a, b, c, b[:3] + c

    f = made(program)
    handlers: list[Any] = []
    arguments = np.arange(8.0), np.ones(8)
    with np.errstate(all="ignore"):
        wanted = program(*[each.copy() for each in arguments])
        f(*[each.copy() for each in arguments])
        expected, told[:] = told[: len(told) // 2], []

        def handler() -> None:
            with np.errstate(all="ignore"):
                other(np.ones(4))
            with np.errstate(all="call", call=lambda kind, flag: None):
                other(np.ones(4))
                if handlers:
                    handlers[-1]()

        found = interrupted(lambda: f(*[each.copy() for each in arguments]), name, line, handler, nth)
        assert same(found, wanted)
        assert told == expected
        assert same(f(*[each.copy() for each in arguments]), wanted)
    assert not f.stats()["failures"] and not other.stats()["failures"]


# -- timers


@pytest.mark.timing
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["plain", "decorated", "inside"])
def test_a_timer_whose_handler_calls_decorated_functions(kind: str, mode: str) -> None:
    seen: list[Any] = []

    def doubled(x):
        return (x * 2).sum()

    decorated = made(doubled, mode)

    def plain(*_):
        seen.append(decorated(np.ones(10)))

    def itself(*_):
        seen.append((np.ones(10) * 2).sum())

    def program(x):
        def inside(*_):
            seen.append((np.ones(10) * 2).sum())
        if kind == "inside":
            signal.signal(signal.SIGALRM, inside)
        total = x.sum()
        for i in range(10):
            x = x * 1.5 + i
            total = total + x.max()
            x[i] = float(total)
        return total, x

    f = made(program, mode)
    x = np.linspace(0.0, 1.0, 50)
    handler = made(itself, mode) if kind == "decorated" else plain
    before = signal.signal(signal.SIGALRM, handler)
    handler()
    try:
        wanted = program(x.copy())
        assert same(f(x.copy()), wanted)
        for i in itertools.takewhile(lambda i: len(seen) < 60 and i < 4000, itertools.count()):
            signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + 7 * i % 50))
            assert same(f(x.copy()), wanted)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) >= 2 and all(type(each) is np.float64 and each == 20.0 for each in seen)
    assert not f.stats()["failures"] and not decorated.stats()["failures"]


# -- callbacks of warnings and errors


class Stream:
    """Stands for a stream of errors whose code is the user's."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback

    def write(self, text: str) -> int:
        self.callback()
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["errstate", "seterrcall", "showwarning", "stderr"])
def test_callbacks_of_warnings(way: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    box, log = Box(), []

    def tripled(x):
        return (x * 3).sum()

    decorated = made(tripled, mode)

    def callback(*_: Any, **__: Any) -> None:
        # What it finds in the box may be of a later line: warnings are given when values are computed.
        assert type(box.x) is np.ndarray and box.x.sum() in (20.0, 24.0)
        log.append(decorated(np.ones(4)))

    def program(x):
        box.x = x * 2
        y = x / (x - x)
        s = y.sum()
        box.x = box.x + 1
        return s, y, box.x.max()

    def errors(x):
        with np.errstate(divide="call", call=callback) if way == "errstate" else np.errstate(divide="call"):
            return program(x)

    given = errors if way in ("errstate", "seterrcall") else program
    f = made(given, mode)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        if way == "showwarning":
            monkeypatch.setattr(warnings, "showwarning", callback)
        if way == "stderr":
            monkeypatch.setattr(sys, "stderr", Stream(callback))
            monkeypatch.setattr(warnings, "showwarning", lambda text, *_: sys.stderr.write(str(text)))
        known = np.seterrcall(callback)
        try:
            outcomes = []
            for each in (given, f, f, f):
                log.clear()
                outcomes.append((each(np.arange(1.0, 5.0)), list(log)))
        finally:
            np.seterrcall(known)
    assert outcomes[0][1]
    for found in outcomes[1:]:
        assert same(found[0], outcomes[0][0]) and found[1] == outcomes[0][1]
    assert not f.stats()["failures"]


# -- finalizers


@pytest.mark.parametrize("mode", MODES)
def test_finalizers_run_by_the_garbage_collector(mode: str) -> None:
    log: list[Any] = []

    def doubled(x):
        return (x * 2).sum()

    decorated = made(doubled, mode)

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            log.append(decorated(np.ones(6)))

    def program(x):
        total = 0.0
        for i in range(12):
            Cycle()

            class Inner:
                def __init__(self):
                    self.me = self

                def __del__(self):
                    log.append((x * 2).sum())
            Inner()
            y = x * i + 1
            total = total + y.sum()
        return total

    f = made(program, mode)
    x, before = np.ones(6), gc.get_threshold()
    gc.set_threshold(25)
    try:
        wanted = program(x)
        for _ in range(30):
            assert same(f(x), wanted)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert log and all(type(each) is np.float64 and each == 12.0 for each in log)
    assert not f.stats()["failures"]


# -- threads


@pytest.mark.threads
@pytest.mark.parametrize("mode", MODES)
def test_threads_started_inside(mode: str) -> None:
    def part(x, i):
        y = x[i] * 2
        return (y + 1).sum()

    decorated = made(part, mode)

    def program(x):
        z, box = x * 2, Box()
        found = [None] * 4
        box.x = z + 1

        def work(i):
            found[i] = decorated(z, i), box.x[i].sum(), (z[i] * 3).sum()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for each in threads:
            each.start()
        more = (z * 5).sum()
        for each in threads:
            each.join()
        return found, more

    f = made(program, mode)
    x = np.arange(40.0).reshape(4, 10)
    wanted = program(x)
    for _ in range(8):
        assert same(f(x), wanted)
    assert not f.stats()["failures"]


@pytest.mark.threads
def test_another_thread_reads_a_stored_value_while_the_call_goes_on() -> None:
    box, found = Box(), []
    begun, end = threading.Event(), threading.Event()

    def watch() -> None:
        begun.wait(20)
        while not end.is_set():
            value = box.x
            if value is not None:
                found.append(float(np.asarray(value)[3]))

    @made
    def f(x):
        for i in range(200):
            box.x = x * 0 + i
            if i % 3 == 0:
                float((x * i).sum())

    f(np.ones(8))
    box.x = None
    thread = threading.Thread(target=watch)
    thread.start()
    begun.set()
    for _ in range(20):
        f(np.ones(8))
    end.set()
    thread.join()
    assert found and all(0 <= each < 200 and each == int(each) for each in found)
    assert not f.stats()["failures"] and closing.LOST_VALUE


class _Integer:
    """What stands for an integer, and calls back where it is asked for it."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self.ask = ask

    def __index__(self) -> int:
        self.ask()
        return 1


@pytest.mark.parametrize("key", [
    lambda i: i, lambda i: (i,), lambda i: slice(i, None), lambda i: (slice(0, i), None)])
@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_callbacks_of_keys(key: Any, stores: bool, mode: str) -> None:
    seen: list[Any] = []
    x = np.arange(4.0)

    def inverse() -> None:
        with np.errstate(all="call", call=lambda kind, flag: seen.append((kind, flag))):
            y = 1 / x
            seen.append(("done", y.shape))

    def work(a: Any, ask: Any) -> Any:
        b = a * 2
        where = key(_Integer(ask))
        if stores:
            b[where] = 7.0
            return b
        return b[where]

    expected = work(x, inverse)
    wanted, seen = seen, []
    traced, asking = jitla.jit(work, compile=mode), jitla.jit(inverse, compile=mode)
    for _ in range(3):
        np.testing.assert_array_equal(traced(x, asking), expected)
        assert seen == wanted
        seen.clear()
