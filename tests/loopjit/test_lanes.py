"""Loops over slices, each place of which goes its own way: what is compiled, what has to stay as it is."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import jitla
from jitla.loopjit.detect import find
from jitla.profiling.loop_detector import may_have_element_loops
from tests.loopjit.fuzz import check, outcome
from tests.loopjit.slices import Slices


def thomas(a, b, c, d):
    n = d.shape[2]
    up = np.empty(d.shape)
    for k in range(n):
        below = above = 0.0
        if k > 0:
            below = a[1:, :, k] - a[:-1, :, k]
        if k < n - 1:
            above = c[:, :, k]
        middle = b[:, :, k]
        if k > 0:
            middle = middle - up[:, :, k - 1] * below
            d[:, :, k] -= d[:, :, k - 1] * below
        up[:, :, k] = above / middle
        d[:, :, k] = d[:, :, k] / middle
    last = d[:, :, -1]
    for k in range(n - 2, -1, -1):
        last = d[:, :, k] - up[:, :, k] * last
        d[:, :, k] = last
    return (k,)


def system(seed=0, shape=(3, 5, 7), odd=None):
    chosen = np.random.default_rng(seed)
    a, b, c, d = (chosen.random(s) + more for s, more in (
        ((shape[0] + 1, *shape[1:]), 0.0), (shape, 3.0), (shape, 0.0), (shape, 0.0)))
    if odd is not None:
        b[1, 2, 3] = odd
    return {"a": a, "b": b, "c": c, "d": d}


def smoothed(x, y):
    before = 0.0
    for j in range(x.shape[1]):
        y[:, j] = 0.25 * x[:, j] + 0.75 * before
        before = y[:, j] * 1.0
    return (j,)


@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 1, 2), (2, 8, 3)])
def test_recurrences_are_compiled_lane_by_lane(eager, shape):
    assert may_have_element_loops(thomas.__code__)
    fast = eager(thomas)
    for seed in range(6):
        assert outcome(fast.version, system(seed, shape)) == outcome(thomas, system(seed, shape))
    # the second loop stores what is read before by another name, a view of the same array: Python keeps it
    assert [record.state for record in fast.records()] == ["trusted", "tried"]
    assert fast.records()[0].runs > 0


@pytest.mark.parametrize("odd", [np.inf, np.nan, 0.0, 1e-310])
def test_what_numpy_warns_of_is_undone_and_done_by_python(eager, odd):
    fast = eager(thomas)
    for seed in range(4):
        outcome(fast.version, system(seed))
    assert outcome(fast.version, system(5, odd=odd)) == outcome(thomas, system(5, odd=odd))


def test_shapes_and_memory_that_do_not_fit_are_python_s(eager):
    fast = eager(smoothed)
    for seed in range(4):
        args = system(seed, (6, 5))
        assert outcome(fast.version, {"x": args["b"], "y": args["d"]}) \
            == outcome(smoothed, {"x": args["b"].copy(), "y": args["d"].copy()})

    def one(case):
        x = np.arange(30.0).reshape(6, 5)
        y = {"same": x, "shifted": x[::-1], "short": np.zeros((5, 5)), "one": np.zeros((1, 5)),
             "few": np.zeros((6, 3)), "lapped": as_strided(np.zeros(40), (6, 5), (16, 8)),
             "again": as_strided(np.zeros(40), (6, 5), (0, 8)), "down": np.zeros((6, 10))[::-1, ::2]}
        return {"x": x, "y": y[case]}

    for case in ("same", "shifted", "short", "one", "few", *("lapped", "again", "down") * 4):
        assert outcome(fast.version, one(case)) == outcome(smoothed, one(case)), case
    assert fast.records()[0].state == "trusted" and fast.records()[0].left == 4


REFUSED = {
    "it is read afterwards": ["s = p[:, k] * 2", "r[:, k] = s", "return s"],
    "a view of what is stored": ["s = r[:, k]", "r[:, k] = p[:, k]", "p[:, k] = s"],
    "two names of one array": ["s = p[:, k] * 2", "t = s", "s += 1", "r[:, k] = t"],
    "lanes that read others": ["r[1:, k] = r[:-1, k - 1]"],
    "turns that ask for elements": ["s = p[:, k] * 2", "if s > 0: r[:, k] = s"],
    "a name that has no value yet": ["r[:, k] = t", "t = p[:, k] * 2"],
    "what is changed was given": ["s += p[:, k]", "r[:, k] = s"],
    "functions": ["r[:, k] = np.exp(p[:, k])"],
    "it leaves": ["r[:, k] = p[:, k]", "break"],
}


@pytest.mark.parametrize("why", REFUSED)
def test_lanes_that_are_not_independent_are_left(why):
    lines = ["def f(p, r, w, n):", "    s = w", "    for k in range(1, n):"]
    lines += ["    " * (1 if line.startswith("return") else 2) + line for line in REFUSED[why]]
    function = ast.parse("\n".join(lines)).body[0]
    assert not find(function, frozenset("prwnkst"), frozenset()).nests, why


def test_stores_after_an_error_of_python_s_are_undone(eager):
    def half(p, r, h):
        for k in range(r.shape[1]):
            p[:, k] = k
            if k > 1:
                r[:, k] = 1.0 / (h - k)
        return (k,)

    fast = eager(half)
    for h in (0.5, 0.5, 0.5, 1.5, 3.0, 0.25):
        mine, plain = ({"p": np.ones((3, 6)), "r": np.zeros((3, 6)), "h": h} for _ in range(2))
        assert outcome(fast.version, mine) == outcome(half, plain)
    assert fast.records()[0].state == "trusted" and fast.records()[0].left == 1


def test_integers_of_python_are_not_taken_for_floats(eager):
    def growing(p, r):
        s = 3
        for k in range(r.shape[1]):
            s = s * 3
            r[:, k] = p[:, k] * s
        return (k,)

    fast = eager(growing)
    for _ in range(4):
        mine, plain = ({"p": np.ones((2, 60)), "r": np.zeros((2, 60))} for _ in range(2))
        assert outcome(fast.version, mine) == outcome(growing, plain)
    assert fast.records()[0].state == "refused" and "integers" in fast.records()[0].reason


@pytest.mark.parametrize("seed", range(0, 75, 3))
def test_random_programs_over_slices(eager, seed):
    what, text = check(seed, eager, writes=Slices)
    assert what != "WRONG", text


def test_such_loops_are_compiled_whatever_calls_wait_for():
    fast = jitla.jit(thomas, compile="sync")
    mine, plain = system(1), system(1)
    fast(**mine)
    thomas(**plain)
    assert np.array_equal(mine["d"], plain["d"])
    assert [record.state for record in fast.__jitla_state__.loop_function.records()] == ["cold", "cold"]
    assert fast.stats().forces == 0
    strict = jitla.jit(thomas, compile="sync", numerics="strict", verify=True)
    strict(**system(2))
    assert strict.stats().forces > 0
