"""verify=True: what agrees passes unseen, and each kind of divergence is found and named."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.dispatch.verify_mode import divergences

X = np.linspace(0.1, 2.0, 50)


class Wrong:
    """A bound program whose first value is off by one."""

    def __init__(self, of):
        self.of, self.program, self.count = of, of.program, 0

    def run(self, leaves):
        first, *rest = self.of.run(leaves)
        return (~first if first.dtype == bool else first + 1, *rest)


def sabotage(monkeypatch):
    from jitla.engine import ENGINE

    bind = ENGINE.bind

    def bind_wrong(*args):
        bound, reason = bind(*args)
        return Wrong(bound), reason

    monkeypatch.setattr(ENGINE, "bind", bind_wrong)


def test_what_agrees_is_returned():
    fast = jitla.jit(lambda x: (np.exp(x) * x, x.sum()), verify=True)
    made, total = fast(X)
    assert np.allclose(made, np.exp(X) * X) and total == X.sum()
    assert fast.stats().kernel_runs > 0


def test_a_wrong_kernel_is_named_with_the_line_and_the_plan(monkeypatch):
    sabotage(monkeypatch)

    @jitla.jit(verify=True)
    def scaled(x):
        return x * 3.0 - x

    with pytest.raises(jitla.VerificationError) as caught:
        scaled(X)
    first, line, told = str(caught.value).split("\n")
    place = f"{__file__}:{scaled.__wrapped__.__code__.co_firstlineno + 2}: subtract"
    assert first.startswith(f"{place} at [0] (50 of 50 differ)")
    assert line == "    return x * 3.0 - x" and "report this" in told
    assert "Cell" in caught.value.plan


def test_a_wrong_value_does_not_reach_what_follows(monkeypatch):
    sabotage(monkeypatch)
    seen = []

    @jitla.jit(verify=True)
    def branch(x):
        if (x * 2.0).sum() > 1e6:
            seen.append("wrong")
        return x

    with pytest.raises(jitla.VerificationError, match=r": greater is np.True_"):
        branch(X)
    assert seen == []


def test_the_arguments_afterwards_are_compared():
    class Counter:
        calls = 0

        def __deepcopy__(self, memo):
            return self

    counter = Counter()

    @jitla.jit(verify=True)
    def moody(x, c):
        c.calls += 1
        x[0] = float(c.calls)
        return c.calls

    with pytest.raises(jitla.VerificationError, match="the result is 2, NumPy has 1"):
        moody(X.copy(), counter)


def test_overlapping_arguments_stay_so_in_the_copies():
    @jitla.jit(verify=True)
    def shift(a, b, o):
        a += b
        o.v *= 2.0
        return a, o.v

    def arguments():
        base = np.arange(12.0).reshape(3, 4).T
        box = type("Box", (), {})()
        box.v = base[:, 1]
        return base[1:], base[:-1], box

    first, second = arguments(), arguments()
    made = shift(*first)
    wanted = shift.__wrapped__(*second)
    for a, b in zip((*made, *first[:2]), (*wanted, *second[:2]), strict=True):
        assert a.tobytes() == b.tobytes()


def test_what_the_function_raises_is_raised():
    fast = jitla.jit(lambda x: x + np.ones(3), verify=True)
    with pytest.raises(ValueError, match="could not be broadcast"):
        fast(X)


def test_random_numbers_are_the_same_for_both():
    fast = jitla.jit(lambda x: x * np.random.rand(50), verify=True)
    np.random.seed(3)
    made = fast(X)
    np.random.seed(3)
    assert (made == X * np.random.rand(50)).all()


def test_arguments_that_cannot_be_copied_leave_the_blocks():
    class Bound:
        def __deepcopy__(self, memo):
            raise TypeError("bound to this process")

    fast = jitla.jit(lambda x, lock: x + 1.0, verify=True)
    with pytest.warns(jitla.JitlaWarning, match="bound to this process.*only its blocks"):
        assert (fast(X, Bound()) == X + 1.0).all()


def test_generators_are_verified_by_block(monkeypatch):
    @jitla.jit(verify=True)
    def steps(x):
        yield x + 1.0
        yield x * 2.0

    assert [v[0] for v in steps(X)] == [X[0] + 1.0, X[0] * 2.0]


@pytest.mark.parametrize("made, wanted, text", [
    ((1.0, [X]), (1.0, [X.astype("f4")]), "[1][0] dtype is float64, NumPy has float32"),
    ({"a": X[:3]}, {"a": X[:2]}, "['a'] shape is (3,), NumPy has (2,)"),
    ({"a": 1}, {"b": 1}, " is made of [\"['a']\"], NumPy has [\"['b']\"]"),
    (np.float64(1), 1.0, " is float64, NumPy has float"),
    (np.array([1.0, np.nan]), np.array([1.0, 2.0]), " at [1] (1 of 2 differ) is np.float64(nan)"),
    (True, False, " is True, NumPy has False"),
    (2.0, 3.0, " is np.float64(2.0), NumPy has np.float64(3.0)"),
])
def test_each_difference_is_named(made, wanted, text):
    assert str(next(divergences(made, wanted, False))).startswith(text)


def test_roundings_are_allowed_unless_bits_are_asked_for():
    near = X * (1 + 1e-12)
    assert list(divergences(near, X, False)) == []
    assert list(divergences(near, X, True)) != []
    assert list(divergences(X * (1 + 1e-6), X, False)) != []
