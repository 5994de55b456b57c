"""The random DAGs of this room through LLVM: the same bits, strides and types."""

from __future__ import annotations

import pytest

from jitla.codegen import Jit, LlvmBackend
from jitla.codegen.native.loader import load_native
from jitla.recompile import Compiler
from tests.recompile import dags
from tests.recompile.support import difference, expected, layouts_of, run


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(LlvmBackend(load_native(Jit().load), 2), rules=None, check=True)


@pytest.fixture(autouse=True)
def exact_operators(monkeypatch):
    """Leave out what may differ in the last bit, and the sign of NaN, which no standard fixes."""
    monkeypatch.setattr(dags, "UNARY", tuple(n for n in dags.UNARY if n not in ("exp", "tanh")))
    monkeypatch.setattr(
        dags, "BINARY", tuple(n for n in dags.BINARY if n not in ("hypot", "copysign")))


@pytest.mark.parametrize("block", range(4))
def test_random_dags(compiler, block):
    for seed in range(1000 * block, 1000 * block + 12):
        dag = dags.sample(seed, dags.SYMBOLS, plain=seed % 2 == 0)
        layouts = layouts_of(dag.leaves)
        program = compiler.build(dag.roots, layouts)
        found = run(program.bind(program.identity(), layouts), dag.leaves)
        for got, want in zip(found, expected(dag.roots, dag.leaves), strict=True):
            assert not difference(got, want), f"seed {seed}\n{program.text()}"
