"""Programs give what the interpreter gives: bits, dtypes, types, strides; for every binding."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.fusion import InterpretedBackend
from jitla.hops import show
from jitla.recompile import Compiler
from tests.recompile.dags import OTHER_SYMBOLS, SYMBOLS, binding, sample
from tests.recompile.support import difference, expected, layouts_of, run


def compiler(**options: object) -> Compiler:
    return Compiler(InterpretedBackend(), rules=None, check=True, **options)


def check(bound, roots, leaves, note="") -> None:
    for got, want in zip(run(bound, leaves), expected(roots, leaves), strict=True):
        wrong = difference(got, want)
        assert not wrong, f"{note} {wrong}\n{show(roots)}\n{bound.program.text()}"


@pytest.mark.parametrize("block", range(20))
def test_random_dags(block):
    build = compiler()
    for seed in range(100 * block, 100 * block + 20):
        dag = sample(seed, SYMBOLS, plain=seed % 2 == 0)
        layouts = layouts_of(dag.leaves)
        program = build.build(dag.roots, layouts)
        check(program.bind(program.identity(), layouts), dag.roots, dag.leaves, f"seed {seed}")


@pytest.mark.parametrize("block", range(20))
def test_rebinding(block):
    build = compiler()
    for seed in range(100 * block, 100 * block + 20):
        dag = sample(seed, SYMBOLS, plain=seed % 3 == 0)
        other = sample(seed, OTHER_SYMBOLS, plain=seed % 3 == 0, layout_seed=seed % 2)
        dims = binding(dag, other)
        if dims is None:
            continue
        program = build.build(dag.roots, layouts_of(dag.leaves))
        bound = program.bind(dims, layouts_of(other.leaves))
        check(bound, other.roots, other.leaves, f"seed {seed}")
        check(program.bind(program.identity(), layouts_of(dag.leaves)), dag.roots, dag.leaves)


@pytest.mark.parametrize("function", (
    lambda v: np.fmin(v, v).astype(float),
    lambda v: np.positive(v).astype(float),
))
def test_a_rewrite_leaves_results_of_broadcast_operands_where_they_lie(function):
    jitted = jitla.jit(function)
    for given in (np.ones((5, 3), int), np.broadcast_to(np.arange(3), (5, 3)), np.ones((3, 5), int).T):
        assert jitted(given).strides == function(given).strides
