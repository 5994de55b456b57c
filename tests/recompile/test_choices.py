"""Choices of kernels: each leaves every bit as it is, but those that say that they do not."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.engine import ENGINE
from jitla.recompile import UNTUNED

RNG = np.random.default_rng(1)
X = RNG.random((90, 70))


def cells(x, y):
    return np.exp(x) - y


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def laps(a):
    b = a[:-2, 1:-1] + a[2:, 1:-1] - 4 * a[1:-1, 1:-1]
    return b[:-2] * b[2:]


def dot(x, y):
    return (x * y).sum()


def largest(x):
    return np.abs(x).max()


class Trying:
    """Runs every kernel in many ways after the untuned one, and compares."""

    def __init__(self, most):
        self.chosen, self.notes, self.tried, self.most = {}, {}, [], most

    def block(self, choice):
        block, launch = choice.make(UNTUNED)

        def run(block, *operands):
            flags = launch(block, *operands)
            self.compare(choice, operands)
            return flags
        return block, run

    def compare(self, choice, operands):
        space, results = choice.space(), operands[-choice.outputs:]
        wanted, usual = [r.copy() for r in results], space.values(space.default)
        every = [space.points[i] for i in RNG.permutation(len(space.points))[:self.most]]
        for values in map(space.values, every):
            block, launch = choice.make(values)
            for result in results:
                result[...] = 0
            launch(block, *operands)
            exact = all(k.exact or values[k.name] == usual[k.name] for k in space.knobs)
            for result, want in zip(results, wanted, strict=True):
                assert np.allclose(result, want, rtol=1e-5), values
                assert not exact or result.tobytes() == want.tobytes(), values
            self.tried.append((values, exact))


@pytest.mark.parametrize("function, args, knobs", [
    (cells, (X, X[0]), {"stores", "unroll", "vector", "ahead"}),
    (cells, (X.astype("f4"), X.T.astype("f4").T), {"unroll", "vector", "ahead"}),
    (cells, (X[0], X[:70, 0]), {"unroll", "vector", "ahead"}),
    (softmax, (X,), {"height", "units", "unroll", "vector", "ahead"}),
    (laps, (RNG.random((400, 600)),), {"height", "units", "unroll", "vector", "ahead", "tile"}),
    (dot, (X, X), {"sums", "ahead"}), (dot, (X.astype("f4"), X.astype("f4")), {"sums", "ahead"}),
    (largest, (X,), {"sums", "ahead"})],
    ids=["cells", "floats turned", "strided", "softmax", "laps", "dot", "dot of floats", "largest"])
def test_choices_leave_results_as_they_are(function, args, knobs):
    trying = Trying(12)
    ENGINE.use_tuning_session(trying)
    try:
        jitla.jit(function, compile="sync")(*args)
    finally:
        ENGINE.use_tuning_session()
    assert len(trying.tried) >= 8 and knobs <= set(trying.tried[-1][0])
    assert any(not exact for _, exact in trying.tried) == (function is dot)


def test_memory_is_asked_for_as_early_as_chosen_and_vectors_are_as_wide():
    texts = {}

    class Reading(Trying):
        def compare(self, choice, operands):
            for values in ({"ahead": 1024}, {"vector": "half"}, {}):
                choice.make({**choice.space().values(choice.space().default), **values})

    ENGINE.use_tuning_session(Reading(0))
    try:
        f = jitla.jit(cells, compile="sync")
        f(X, X)
        (program,) = ENGINE.compiler(jitla.config.current()).programs()
        loop = program._loops[0]
        texts = {schedule: executable.text for (_, schedule), (executable, _) in loop.variants.items()}
    finally:
        ENGINE.use_tuning_session()
    early = [s for s, text in texts.items() if "llvm.prefetch" in text]
    assert [s.ahead for s in early] == [1024] and "i64 1024" in texts[early[0]]
    lanes = {s.part: max(int(w.split(" x double>")[0]) for w in text.split("<") if " x double>" in w)
             for s, text in texts.items() if not s.ahead}
    assert lanes[1] == 2 * lanes[2]


def test_kernels_without_a_value_of_their_own_for_every_row_have_choices() -> None:
    def twice(x, v, w):
        return x @ v, x @ w

    x = np.asfortranarray(RNG.random((1100, 12)))  # its columns are added up
    result = jitla.tune(jitla.jit(twice), x, RNG.random(12), RNG.random(12), trials=1)
    assert len(result) == 1
