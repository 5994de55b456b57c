"""Blocks as Python code: each value is computed once, read where it is there, and dropped after that."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.engine import ENGINE
from jitla.hops import evaluate
from jitla.tracing.fallback import (
    Replay,
    _Writer,
    replay_function,
)


def tapes(function, *arguments):
    """Return the requests that a call makes, with leaves and scalars of each run."""
    found = []
    run = Replay.run

    def noted(self, leaves):
        found.append((self.request, list(leaves)))
        return run(self, leaves)

    f = jitla.jit(function, compile="background")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ENGINE, "_compilers", {})
        patch.setattr(ENGINE.background, "submit", lambda job, soon=False, share=1.0: None)
        patch.setattr(Replay, "run", noted)
        f(*arguments)
    return found


def straight(x, y):
    return (x * 2.0 + y).sum() - (y / x).max(axis=0)


def shared(x, y):
    a = x + y
    b = a * a
    c = np.exp(-b)  # is read after a was read last
    d = a - 3.0
    return d / c, (b @ b.T).mean(), np.where(d > c, d, c)


def deep(x, y):
    for _ in range(40):
        x = x * 0.5 + y
    return x


def kinds(x, y):
    return (x > y).any(axis=1), x.astype("f4") // 2, ~(x < 1), abs(-x), np.arctan2(x, y), (x > 0) * y


@pytest.mark.parametrize("function", [straight, shared, deep, kinds])
def test_the_code_is_what_the_operators_mean(function) -> None:
    x, y = np.random.default_rng(0).random((2, 6, 6)) + 0.5
    found = tapes(function, x, y)
    assert found
    for request, leaves in found:
        made = replay_function(*request.tape)(leaves)
        for value, wanted in zip(made, evaluate(request.roots, leaves), strict=True):
            assert type(value) is type(wanted) and value.dtype == wanted.dtype
            assert np.array_equal(value, wanted)
            assert getattr(value, "strides", ()) == getattr(wanted, "strides", ())


def test_values_are_dropped_when_they_were_read_last() -> None:
    ((request, _),) = tapes(shared, *np.ones((2, 6, 6)))
    text = _Writer(*request.tape).source()
    deleted = {name for line in text.splitlines() if line.strip().startswith("del ")
               for name in line.replace(",", " ").split()[1:]}
    kept = text.rpartition("return ")[2]
    assert deleted and not any(name in kept for name in deleted)
