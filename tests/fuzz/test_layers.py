"""The layer that is to blame is named: one is made wrong, and found."""

from __future__ import annotations

import pytest

import jitla.codegen.backend
import jitla.codegen.module
from jitla.engine import ENGINE
from jitla.rewrites import RULES, Rule, RuleSet, Var, ops
from tests.fuzz import layers, load

SOURCE = """
import numpy as np
from tests.fuzz.arrays import array
CALLS = [(0, 1)]
@jit
def f(x, y):
    return np.floor(x) + y * 0.25
def make(call):
    return array((19,), 'f8', 'C', 'normal', 1), array((19,), 'f8', 'C', 'normal', 2)
def state():
    return ()
"""


@pytest.fixture(autouse=True)
def own_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENGINE, "_compilers", {})


def test_a_wrong_tracer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "the_jit", lambda: lambda function: lambda *given: function(*given) + 1)
    assert layers.guilty(SOURCE, "wrong", "value") == "tracing"


def test_a_wrong_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Var("X")
    wrong = Rule("floor-is-ceil", ops.floor(x), ops.ceil(x), doc="it is not")
    monkeypatch.setattr(layers, "RULES", RULES + RuleSet([wrong]))
    assert layers.guilty(SOURCE, "wrong", "value") == "rewrites"


def test_wrong_machine_code_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # else the kernel would not be used
    monkeypatch.setattr("jitla.recompile.compiler.numpy_difference", lambda *given: "")
    real = jitla.codegen.module.module_text
    monkeypatch.setattr(
        jitla.codegen.module, "module_text", lambda *given: real(*given).replace(" fadd ", " fsub ")
    )
    assert layers.guilty(SOURCE, "wrong", "value") == "codegen"


def test_nothing_is_named_where_nothing_is_wrong() -> None:
    assert layers.guilty(SOURCE, "right", "value") == "process"
