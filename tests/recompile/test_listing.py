"""Kernels as nests: what these mean is what the kernels compute, before and after their schedules."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
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
from jitla.recompile.loop_schedules import (
    nest_of,
    schedule_of,
)

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
