"""The scan of a code object asks for a twin wherever one could matter."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from jitla.source.scan import needs_twin
from tests.source.twin_kit import define

# attributes of what a module imports are called by other instructions
IMPORTS = "import numpy as np\nfrom numpy import exp\n"
NAMES = {"np": np, "exp": np.exp}


def scan(body: str, before: str = "") -> bool:
    f = define(before + "def f(a, b, c):\n" + textwrap.indent(body, "    "), **NAMES)
    return needs_twin(f.__code__, f.__globals__, lambda g: g in (np.sum, np.where, np.dot))


@pytest.mark.parametrize("body", [
    "return a + b * c",
    "return np.exp(a) + np.sum(b, axis=0)",
    "x = a @ b\nreturn exp(x)",
    "return np.where(a > 0, np.sqrt(a), -np.sum(b, axis=0, keepdims=True))",
    "if a > b:\n    return np.add(a, b)\nreturn abs(a) + float(len(b))",
    "return a[1:] - b[0] + c.x",
    "assert a.shape == b.shape, 'shapes'\nreturn f'{a}'",
    "try:\n    return np.exp(a)\nexcept ValueError:\n    return b",
    "return np.add(a, b, dtype=float)",
])  # fmt: skip
def test_straight_lines_of_known_calls_need_none(body: str) -> None:
    assert not scan(body)
    assert not scan(body, IMPORTS)


@pytest.mark.parametrize("body", [
    "a += b\nreturn a",
    "a[0] = b",
    "a[1:2] = b",
    "a.x = b",
    "del a[0]",
    "global g\ng = a",
    "x = a\nreturn lambda: x",
    "return [x for x in a]",
    "for x in a:\n    pass",
    "while a:\n    b",
    "yield a",
    "with a:\n    pass",
    "return a.sum()",
    "return a(b)",
    "return g(a)",
    "return np.zeros(3)",
    "return np.add(a, b, c)",
    "return np.exp(a, out=b)",
    "return np.sum(a, 0, None, b)",
    "return np.exp(*a)",
    "return np.exp(a, **b)",
    "return np.add.at(a, b, c)",
    "g = np.exp\nreturn g(a)",
    "return print(a)",
    "import os",
    "class K: pass",
    "return np.exp(a)(b)",
    "return np.exp(b(a))",
    "exp = a\nreturn exp(b)",
    "return np.random.rand(3)",
    "return np(a)",
    "return a.exp(b)",
    "return (a or np).exp(b)",
    "return super().f()",
])  # fmt: skip
def test_everything_else_needs_one(body: str) -> None:
    assert scan(body)
    assert scan(body, IMPORTS)


def test_a_rebound_name_is_seen() -> None:
    f = define("def f(a):\n    return np.exp(a)", np=np)
    assert not needs_twin(f.__code__, f.__globals__)
    assert needs_twin(f.__code__, {})
    assert needs_twin(f.__code__, {"np": object()})
