"""Objects of classes in compiled loops: attributes that are assigned, methods, and what is left to Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jitla.loopjit import loop_sites, specialisations
from jitla.loopjit.specialisations import State
from tests.loopjit.compiled import loop_function


@pytest.fixture(autouse=True)
def without_judgement(monkeypatch):
    """Let no loop be left to Python because its compiled code is slower, as on a busy machine."""
    monkeypatch.setattr(specialisations, "WIN", 1e9)
    monkeypatch.setattr(loop_sites, "MIN_TRACED_SECONDS", 1e9)
    monkeypatch.setattr(loop_sites, "MAX_SKIPPED", 0)


def same(a, b):
    """Return whether two values have the same types and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(getattr(a, "__dict__", None)) is dict and not isinstance(a, type):
        return a.__dict__.keys() == b.__dict__.keys() and all(
            same(value, b.__dict__[name]) for name, value in a.__dict__.items())
    return repr(a) == repr(b)


def outcome(function, args):
    """Return the result of a call, or the type and text of its exception."""
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def check(function, make, calls=6):
    """Hold a function with compiled loops against the plain one; return its specialisations."""
    compiled = loop_function(function)
    for _ in range(calls):
        args, others = make(), make()
        assert same(outcome(function, args), outcome(lambda *a: compiled.call(a, {}), others))
        assert same(args, others)
        for site in compiled.entries:
            site.hot_seconds = 0.0
    return [x for site in compiled.entries for x in site.specialisations.values()]


def trusted(function, make, calls=6):
    """Hold a function against the plain one, and assert that its loops are compiled and used."""
    found = check(function, make, calls)
    assert any(x.state is State.READY and x.runs for x in found), [
        (x.state, x.reason, x.line, x.failure) for x in found]


class Ball:
    """A body that falls and bounces."""

    limit = 100

    def __init__(self, height=0.5):
        self.x, self.v, self.count, self.trace = height, 3.0, 0, []
        self.bins = np.zeros(4, np.int64)

    def force(self, k):
        """Return the force of a spring."""
        return -k * self.x - 0.1 * self.v

    def step(self, dt, k=2.0):
        """Go on in time."""
        self.v += self.force(k) * dt
        self.x += self.v * dt
        if self.x < 0:
            self.bounce()
        self.trace.append(self.x)
        self.bins[len(self.trace) % 4] += 1

    def bounce(self):
        """Turn back."""
        self.x, self.v = -self.x, -self.v
        self.count += 1

    def run(self, n):
        """Make steps."""
        for _ in range(n):
            self.step(0.01)
        return self.x

    def own_loop(self, n):
        """Change attributes without methods."""
        for i in range(n):
            self.x = self.x * 0.5 + i
            self.last = i
            if i % 5 == 4:
                self.count += 1
        return self.last


def by_argument(ball, n):
    total = 0.0
    for i in range(n):
        ball.step(0.01, k=1.5)
        ball.last = i
        total += ball.x
    return total


def moved(ball, dt):
    ball.x += ball.v * dt
    ball.v -= 9.81 * dt
    return math.sin(ball.x)


def by_function(ball, n):
    total = 0.0
    for _ in range(n):
        total += moved(ball, 0.1)
    return total


def two_objects(a, b, n):
    for i in range(n):
        a.x += b.x
        b.x = a.x * 0.25 + i
        a.step(0.1)
    return a.x, b.x


@pytest.mark.parametrize("function", [Ball.run, Ball.own_loop, by_argument, by_function])
def test_attributes_and_methods(function):
    trusted(function, lambda: (Ball(), 60))


def test_objects_that_are_one():
    """Two names of one object share its attributes."""
    trusted(two_objects, lambda: (Ball(), Ball(2.0), 30))

    def make():
        ball = Ball()
        return ball, ball, 30

    check(two_objects, make)


def test_objects_of_other_classes():
    """The method is that of the class of the object."""
    class Slow(Ball):
        def force(self, k):
            return -0.1 * k * self.x

    compiled = loop_function(by_argument)
    for kind in (Ball, Slow) * 5:
        assert same(by_argument(kind(), 40), compiled.call((kind(), 40), {}))
        for site in compiled.entries:
            site.hot_seconds = 0.0


def test_methods_that_change():
    """A method that is replaced is called as it is now, of the class or of the object."""
    class Counter:
        def __init__(self):
            self.n = 0

        def step(self):
            self.n += 1

    def count(counter, n):
        for _ in range(n):
            counter.step()
        return counter.n

    def twice(self):
        self.n += 2

    compiled = loop_function(count)
    for _ in range(5):
        assert compiled.call((Counter(), 20), {}) == 20
        for site in compiled.entries:
            site.hot_seconds = 0.0
    assert any(x.runs for site in compiled.entries for x in site.specialisations.values())
    counter = Counter()
    counter.step = lambda: None
    assert compiled.call((counter, 20), {}) == 0
    Counter.step = twice
    assert compiled.call((Counter(), 20), {}) == 40


def test_properties_and_slots_are_left_to_python():
    """Reads and stores that do more."""
    class Watched:
        def __init__(self):
            self.log, self._x = [], 0.0

        @property
        def x(self):
            return self._x

        @x.setter
        def x(self, value):
            self.log.append(value)
            self._x = value

    class Slotted:
        __slots__ = ("x",)

        def __init__(self):
            self.x = 0.0

    class Hooked:
        def __init__(self):
            self.x = 0.0

        def __setattr__(self, name, value):
            object.__setattr__(self, name, value + 1)

    def count(thing, n):
        for _ in range(n):
            thing.x += 0.5
        return thing.x

    for kind in (Watched, Hooked):
        check(count, lambda kind=kind: (kind(), 20))
    compiled = loop_function(count)
    assert [compiled.call((Slotted(), 20), {}) for _ in range(3)] == [10.0] * 3


def test_attributes_that_are_missing():
    """Python raises AttributeError."""
    def read(ball, n):
        for i in range(n):
            if i > 5:
                ball.x = ball.missing
        return ball.x

    check(read, lambda: (Ball(), 20))


def test_attributes_of_other_types_later():
    """An attribute is an integer at first, and a float later."""
    def average(ball, n):
        ball.mean = 0
        for i in range(n):
            ball.mean = ball.mean + (i - ball.mean) / (i + 1)
        return ball.mean

    trusted(average, lambda: (Ball(), 30))
