"""Whose results something needs for sure: of others the flags have to be asked for at once."""

from __future__ import annotations

import ast
import textwrap

import pytest

from jitla.loopjit.dataflow import needs


def found(text):
    (loop,) = ast.parse(textwrap.dedent(text)).body
    made = needs(loop)
    return sorted(node.lineno for node in made.needed), sorted(
        (node.lineno, *names) for node, names in made.after.items())


@pytest.mark.parametrize(("text", "lines", "after"), [
    ("for i in range(n):\n    s += x[i] * y[i]", [2], [(1, "s")]),
    ("for i in range(n):\n    s = x[i] * y[i]", [], []),
    ("for i in range(n):\n    s += x[i]\n    s = 0.0", [], []),
    ("for i in range(n):\n    s += x[i]\n    if s > 3:\n        return s", [], []),
    ("for i in range(n):\n    t = x[i] * 2\n    s += t * y[i]", [2, 3], [(1, "s")]),
    ("for i in range(n):\n    t = x[i] * 2\n    if i > 3:\n        s += t", [4], [(1, "s")]),
    ("for i in range(n):\n    t = x[i] * 2\n    t = y[i]\n    s += t", [3, 4], [(1, "s")]),
    ("for i in range(n):\n    x[i] = y[i] * 2", [2], []),
    ("for i in range(n):\n    x[0] = y[i] * 2", [], []),
    ("for i in range(n):\n    x[0] += y[i] * 2", [2], []),
    ("for i in range(n):\n    x[0] += y[i]\n    x[i] = 0.0", [], []),
    ("for i in range(n):\n    x[i] = y[i] * 2\n    x[i + 1] = 0.5 * y[i]", [], []),
    ("for i in range(n):\n    x[i, 0] = y[i] * 2\n    x[i, 1] = 0.5 * y[i]", [2, 3], []),
    ("for i in range(n):\n    for j in range(n):\n        x[j] = y[i] * 2", [], []),
    ("for i in range(n):\n    for j in range(n):\n        x[i, j] = y[i] * 2", [3], []),
    ("for i in range(n):\n    if x[i] + y > s:\n        s = x[i] + y", [3], [(1, "s")]),
    ("for i in range(n):\n    if x[i] + y > s:\n        s = x[i] + z", [], []),
    ("for i in range(n):\n    s = y\n    if x[i] + y > s:\n        s = x[i] + y", [], []),
    ("for i in range(n):\n    if x[0] > x[i] + y:\n        x[0] = x[i] + y", [3], []),
    ("for i in range(n):\n    z[0] = 0.0\n    if x[i] * y < z[0]:\n        z[0] = x[i] * y", [], []),
    ("while n > 0:\n    x[n] = y[n] * 2\n    n -= 1", [3], [(1, "n")]),
])
def test_what_is_replaced_before_anything_reads_it_is_not_needed_for_sure(text, lines, after):
    assert found(text) == (lines, after)
