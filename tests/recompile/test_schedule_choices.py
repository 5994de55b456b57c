"""Schedules of kernels: bits under every choice; kernels as loop nests."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.engine import ENGINE
from jitla.fusion import (
    Cost,
    CostModel,
    InterpretedBackend,
    Layout,
    WindowKernel,
    all_layouts,
    contiguous,
    plan,
)
from jitla.fusion.template_window import fuse_windows
from jitla.hops import REFERENCE_MACHINE, Meta, apply, const, evaluate, leaf, make
from jitla.loopir import apply_schedule, parse, run, show, verify
from jitla.recompile import UNTUNED
from jitla.recompile.loop_schedules import nest_of, schedule_of

# Choices of kernels: each leaves every bit as it is, but those that say that they do not.

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


# Kernels as nests: what these mean is what the kernels compute, before and after their schedules.

SHAPE = (21, 7)


def cut(x, first: int, last: int):
    """Leave out rows at either end, and a column at the front."""
    return make("getitem", (x,), index=(("s", first or None, -last or None, None), ("s", 1, None, None)))


def smaller(x):
    top, middle, bottom = cut(x, 0, 2), cut(x, 1, 1), cut(x, 2, 0)
    return apply("divide", apply("add", apply("multiply", top, middle), bottom), const(3.0, x.meta.dtype))


def squares(x):
    """Values that are made by one kernel, of which three are read further on."""
    a, b = apply("add", x, const(1.0, "f8")), apply("multiply", x, const(0.5, "f8"))
    made = [apply("multiply", a, a), apply("multiply", a, b), apply("add", apply("multiply", b, b), a)]
    return apply("subtract", apply("multiply", smaller(made[0]), smaller(made[2])), smaller(made[1]))


class Cheap(CostModel):
    """Prices at which windows always pay."""

    def step(self, step):
        return Cost(0, 0, 0, 0, -1.0) if isinstance(step, WindowKernel) else super().step(step)


def windows(root, layouts: dict[int, Layout]):
    supports = InterpretedBackend().supports
    found = plan((root,), layouts, supports, templates=("Cell",))
    return fuse_windows(found.steps, (root,), Cheap(REFERENCE_MACHINE, all_layouts((root,), layouts)))


@pytest.mark.parametrize("times", (0, 2, 3, 4))
def test_a_chain_of_stencils_is_one_kernel_and_its_nest_means_it(times):
    a = leaf(0, Meta(SHAPE, np.dtype("f8")))
    root = a if times else squares(a)
    for _ in range(times):
        root = smaller(apply("add", apply("multiply", root, root), const(0.5, "f8")))
    layouts = {0: contiguous(SHAPE, 8)}
    steps = windows(root, layouts)
    kernels = [s for s in steps if isinstance(s, WindowKernel)]
    assert len(kernels) == 1 and len(steps) == 1
    array = np.random.default_rng(0).random(SHAPE)
    nest = nest_of(kernels[0], "K1")
    assert nest is not None
    verify(nest)
    assert parse(show(nest)) == nest
    (wanted,) = evaluate((root,), (array,))
    assert run(nest, {nest.inputs[0].name: array})["out0"].tobytes() == wanted.tobytes()
    made = apply_schedule(nest, schedule_of(kernels[0]))
    assert run(made, {nest.inputs[0].name: array}, backwards=True)["out0"].tobytes() == wanted.tobytes()


def test_a_value_that_somebody_else_reads_stays_in_memory():
    a = leaf(0, Meta(SHAPE, np.dtype("f8")))
    b = apply("multiply", a, a)
    layouts = {0: contiguous(SHAPE, 8)}
    roots = (smaller(b), b)
    found = plan(roots, layouts, InterpretedBackend().supports, templates=("Cell",))
    steps = fuse_windows(found.steps, roots, Cheap(REFERENCE_MACHINE, all_layouts(roots, layouts)))
    assert not any(isinstance(s, WindowKernel) for s in steps)


def test_explanations_show_the_loops():
    def f(a):
        b = np.sqrt(a * a + 1) / (1 + a * a * a)
        return (b[2:] - b[:-2]) / (1 + b[1:-1] * b[1:-1])

    a = np.random.default_rng(0).random((700, 800))
    fast = jitla.jit(f, compile="sync")
    fast(a)
    text = str(jitla.explain(fast, a, level="loops"))
    assert "for i in parallel(" in text or "parallel(i_o" in text
    assert "def K1(" in text and "-- loops" not in str(jitla.explain(fast, a, level="all"))
