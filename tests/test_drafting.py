"""Programs that functions share are explained as each of these runs them: its lines, sizes and times."""

from __future__ import annotations

import numpy as np

import jitla
from jitla.explanations.rendering import LEVELS

RNG = np.random.default_rng(5)


def _first(X, y, w):
    out = np.maximum(1.0 - y * (X @ w), 0.0)
    return 0.5 * (out * out).sum(), -(X.T @ (out * y))


def _second(X, y, w):
    margins = X @ w
    out = np.maximum(1.0 - y * margins, 0.0)
    loss = 0.5 * (out * out).sum()
    return loss, -(X.T @ (out * y))


def _data(rows, columns):
    X = RNG.normal(size=(rows, columns))
    return X, np.sign(X[:, 0]), RNG.normal(size=columns)


def _programs(function):
    return {p for site in function.__jitla_state__.all_sites() for p in site.runs()}


def test_a_shared_program_has_the_sizes_lines_and_runs_of_each_function():
    first, second = (jitla.jit(compile="sync")(f) for f in (_first, _second))
    one, two = _data(1613, 11), _data(1201, 17)
    for _ in range(3):
        first(*one)
    second(*two)
    assert _programs(first) & _programs(second)
    for level in LEVELS:
        told = str(second.explain(level=level))
        assert "1613" not in told, level
        last = _first.__code__.co_firstlineno + 2
        assert all(f"test_drafting.py:{n} " not in told for n in range(last - 1, last + 1)), level
    plan = str(second.explain())
    assert "Row 1201x17" in plan and "measured: " in plan and "the first run" in plan
    assert "| margins = X @ w" in plan and "| loss = 0.5 * (out * out).sum()" in plan
    (program,) = second.explain().record.programs
    assert program.runs == program.timed == len(program.laps) == 1
    (program,) = first.explain().record.programs
    assert program.runs == program.timed == 3 and "Row 1613x11" in str(first.explain())


def test_what_is_predicted_is_for_the_sizes_shown():
    def f(x, y):
        return np.exp(x) * y + 1.0

    few, many = (RNG.random((2, n)) for n in (50_000, 60_000))
    fast, slow = jitla.jit(compile="sync")(f), jitla.jit(compile="sync")(lambda x, y: np.exp(x) * y + 1.0)
    fast(*few)
    slow(*many)
    assert _programs(fast) & _programs(slow)
    records = [function.explain().record.programs[0] for function in (fast, slow)]
    assert [r.steps[0].nbytes for r in records] == [3 * 8 * 50_000, 3 * 8 * 60_000]
    small, large = (r.cost.seconds for r in records)
    assert small < large


def test_one_function_is_explained_for_the_sizes_it_met_last():
    fast = jitla.jit(compile="sync")(lambda x: (np.sin(x) * 2.0).sum())
    fast(RNG.random(7001))
    fast(RNG.random(8003))
    assert "MAgg 8003" in str(fast.explain()) and "7001" not in str(fast.explain())
    assert "2 runs of 2 sizes" in str(fast.explain()) and "2 runs of 2 sizes" in fast.explain().to_html()
    assert "MAgg 7001" in str(jitla.explain(fast, RNG.random(7001)))
