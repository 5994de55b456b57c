"""Dataflow of loops: results that are needed for sure, arrays that need not be kept."""

from __future__ import annotations

import ast
import textwrap
import warnings

import numpy as np
import pytest

from jitla.loopjit.dataflow import needs, ordered, unread
from tests.loopjit import programs
from tests.loopjit.fuzz import outcome

# Whose results something needs for sure: of others the flags have to be asked for at once.


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


# Which arrays need not be kept: those that a nest, done once more, leaves the same.


def found_redone(text):
    (loop,) = ast.parse(textwrap.dedent(text)).body
    if unread(loop, "x"):
        return "unread"
    return "ordered" if any(ordered(loop, "x", axes) for axes in (1, 2)) else "kept"


ROWS = "for i in range(n):\n    for j in range(m):\n        "


@pytest.mark.parametrize(("text", "what"), [
    ("for i in range(n):\n    x[i] = t[i, 0] * 2", "unread"),
    ("for i in range(n):\n    x[i] += 2", "kept"),
    ("for i in range(n):\n    x[i] = x[i - 1] * 2", "ordered"),
    ("for i in range(n):\n    x[i] = x[i] * 2", "kept"),
    ("for i in range(n):\n    x[i] = x[i + 1] * 2", "kept"),
    ("for i in range(n - 1, -1, -1):\n    x[i] = x[i + 1] * 2", "ordered"),
    ("for i in range(0, n, s):\n    x[i] = x[i - 1] * 2", "kept"),
    ("for i in range(n):\n    x[k] = x[i - 1] * 2", "kept"),
    ("while i < n:\n    x[i] = x[i - 1] * 2\n    i += 1", "kept"),
    ("for i in range(n):\n    x[i] = x[i - 1] * 2\n    i = 3", "kept"),
    ("for i in range(n):\n    x[i] = x[i - 2]\n    x[i - 2] = 3", "kept"),
    ("for i in range(n):\n    x[i] = 2.0\n    s += x.sum()", "kept"),
    (ROWS + "x[i, j] = x[i - 1, j] + x[i, j - 1]", "ordered"),
    (ROWS + "x[i, j] = x[i - 1, k] + len(x)", "ordered"),
    (ROWS + "x[i, j] = x[i, j + 1]", "kept"),
    (ROWS + "x[i][j] = x[i - 1][j + 9]", "ordered"),
    (ROWS + "x[j, i] = x[j - 1, i]", "ordered"),
    (ROWS + "x[j] = x[j - 1]", "kept"),
    (ROWS + "x[i, j] = 1\n    for j in range(m):\n        s += x[i, j - 1]", "kept"),
])
def test_what_is_read_before_it_is_stored_has_to_be_kept(text, what):
    assert found_redone(text) == what


def table():
    t = np.zeros((6, 7))
    t[0], t[:, 0] = np.arange(7.0), 1.5
    return t


@pytest.mark.parametrize("odd", [3, 4.5, (2, 5)])
def test_elements_stored_too_early_are_stored_again(eager, odd):
    """Where the processor notes an overflow late, Python goes on at the statement that made it."""
    fast = eager(programs.summed_table)
    for _ in range(4):
        fast.version(table(), np.ones(7), 1e9)
    assert "spare(" not in next(iter(fast.entries[0].variants.values())).code.kernel.text
    factors = np.ones(7)
    factors[np.array(odd, int)] = 1e308
    for made in (table, lambda: table()[:, ::-1][:, ::-1], lambda: np.broadcast_to(table()[2], (6, 7)).copy(),
                 lambda: np.repeat(table(), 2, 1)[:, ::2], lambda: table().T.copy().T):
        given = {"t": made(), "x": factors, "most": 1e307 if odd == 3 else 1e9}
        wanted = outcome(programs.summed_table, {**given, "t": made()})
        assert outcome(fast.version, given) == wanted


def test_elements_that_lie_over_one_another_are_kept_in_order(eager):
    fast = eager(programs.summed_table)
    for k in range(5):
        results = []
        for function in (programs.summed_table, fast.version):
            memory = np.arange(20.0)
            t = np.lib.stride_tricks.as_strided(memory, (6, 7), (16, 8))
            x = np.full(7, 1.0 if k < 3 else 1e307)
            results.append(repr(outcome(function, {"t": t, "x": x, "most": 1e9})) + repr(memory))
        assert results[0] == results[1]


def test_integers_that_lapse_are_what_numpy_goes_on_with(eager):
    """NumPy warns, and goes on with what is left of the number: what is chosen by it is chosen so."""
    fast, letters = eager(programs.lengths_of_paths), np.arange(8) % 3
    for start in (0, 0, 0, 0, 125, 127, 122):
        given = {"a": letters, "b": letters[::-1], "t": np.full((9, 9), start, np.int8), "most": 126}
        wanted = outcome(programs.lengths_of_paths, {**given, "t": given["t"].copy()})
        assert outcome(fast.version, given) == wanted
    made = next(iter(fast.entries[0].variants.values()))
    assert made.all_runs and "spare(" not in made.code.kernel.text


def test_policy_a_handler_of_warnings_may_see_elements_of_later_turns(eager, monkeypatch):
    fast, seen = eager(programs.summed_table), []
    for _ in range(4):
        fast.version(table(), np.ones(7), 1e9)
    wanted, found = table(), table()
    with np.errstate(over="ignore"):
        programs.summed_table(wanted, np.full(7, 1e200), np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda *said: seen.append(found.copy()))
        fast.version(found, np.full(7, 1e200), np.inf)
    assert seen
    assert (found == wanted).all()
    assert all(((each == wanted) | (each == table())).all() for each in seen)
