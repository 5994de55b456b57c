"""Decorated functions with loops over elements: found, compiled behind the user's back, told of."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import jitla
from jitla import packages
from jitla.engine import ENGINE
from jitla.loopjit import (
    Loops,
)
from jitla.loopjit import (
    compiler as foreman,
)
from jitla.loopjit import function as loops_function
from jitla.loopjit import (
    policy as entry,
)
from jitla.loopjit.detect import find
from jitla.profiling import call_classes as outlook
from jitla.profiling.loop_detector import (
    has_element_loops,
    may_have_element_loops,
)
from tests.loopjit import emulated, programs, test_within

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def at_once(eager, monkeypatch):
    """Let decorated functions compile their loops at once, without a compiler."""
    loops = Loops(emulated._link, ENGINE._load_loop_text, emulated.at_once, lambda: emulated.unwatched)
    loops._foreman = emulated.Foreman()
    monkeypatch.setattr(ENGINE, "_loops", loops)


def test_what_has_loops_over_elements_is_told_from_the_instructions():
    for function in (f for f in vars(programs).values() if inspect.isfunction(f)):
        code = function.__code__
        local = frozenset((*code.co_varnames, *code.co_cellvars))
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        if isinstance(node, ast.FunctionDef) and find(node, local, frozenset(code.co_freevars)).nests:
            assert may_have_element_loops(code) and has_element_loops(code), function


def sliced(x):
    for _ in range(x.shape[0]):
        x[1:] = x[:-1] * 0.5
    return x


def last_ones(x):
    for _ in range(3):
        x[0] = x[-1] + x[0]
    return x


def halved(x):
    while np.abs(x).max() > 1.0:
        x = 0.5 * x
    x[x < 0.1] = 0.0
    return x


def masked(x):
    for _ in range(3):
        x = x + x[x > 0.5].sum()
    return x


def weighted(x, w):
    for _ in range(3):
        x = x * w[:, None] + x[:2, 0].sum() + w[:, np.newaxis] * x[..., -1:]
    return x


def test_axes_that_are_added_are_no_indices_of_elements():
    assert not may_have_element_loops(weighted.__code__) or sys.version_info >= (3, 14)


def test_masks_are_no_indices_of_elements():
    assert not may_have_element_loops(masked.__code__) or sys.version_info >= (3, 14)


def test_indices_behind_loops_are_no_indices_of_elements():
    assert not may_have_element_loops(halved.__code__) or sys.version_info >= (3, 14)


def test_slices_and_constants_are_no_indices_of_elements():
    assert not may_have_element_loops(sliced.__code__) or sys.version_info >= (3, 14)
    assert may_have_element_loops(last_ones.__code__)  # by an operation, as it is written
    assert not may_have_element_loops(jitla.jit.__code__)


def axes(x, w, n):
    for _ in range(3):
        x = x * w[:, None] + x[:, n:2 * n] - x[1:, np.newaxis] * w[None, 0]
        x[..., 0] += 1.0
        x[:, 1] *= 2.0
    return x


def corners(x):
    for k in range(2):
        x = x + x[k:, -1] * x[k, 0] + x[-1, :2]
    return x


def test_indices_that_begin_with_a_slice_or_a_constant_are_none_of_elements():
    assert not may_have_element_loops(axes.__code__) or sys.version_info >= (3, 13)
    assert may_have_element_loops(corners.__code__) and has_element_loops(corners.__code__)


def centres(x, near, c):
    for k in range(len(c)):
        c[k] = x[near == k].mean(axis=0)
    return c


def directions(x, p):
    for k in range(3):
        p[k] = (x @ p)[k] + p[k]
    return p


def channels(x, out, w):
    for c in range(3):
        out[:, :, c] = x * w[c]
    return out


def shifted(x, at):
    for i in (0, 1):
        for j in (0, 1):
            x = x + x[at + i, at + j]
    return x


def halves(x, few):
    for k in range(4):
        few.append(x[k])
    return few


def test_loops_over_arrays_or_constants_are_not_over_elements():
    for function in (centres, directions, channels, shifted, halves):
        assert may_have_element_loops(function.__code__)
        assert not has_element_loops(function.__code__) or sys.version_info >= (3, 14)


def test_few_elements_need_no_loops_to_be_looked_for_where_none_could_be_compiled(monkeypatch):
    monkeypatch.delitem(vars(packages), "loopjit", raising=False)
    called(centres, np.ones((4, 2)), np.zeros(4), np.ones((1, 2)), times=1)
    assert "loopjit" not in vars(packages)


def called(function, *args, times=6):
    fast = jitla.jit(function, compile="auto")
    for _ in range(times):
        fast(*args)
    return fast


def test_statistics_count_loops(at_once):
    stats = called(programs.reversed_down, np.ones(9)).stats()
    assert (stats.loops, stats.loops_refused, stats.loop_runs, stats.calls) == (1, 0, 3, 6)


def test_statistics_count_loops_of_functions_that_are_called(at_once):
    stats = called(test_within.by_name, np.ones(9)).stats()
    assert (stats.loops, stats.loop_runs, stats.calls) == (2, 6, 6)


def test_an_explanation_shows_loops_and_what_they_are_given(at_once):
    text = str(jitla.explain(called(programs.reversed_down, np.ones(9))))
    assert "== loops over elements: 1" in text
    assert "compiled, 3 runs by Python" in text
    assert "x f8[:]" in text
    assert "for i in range(len(x) - 1, -1, -1):" in text


def test_an_explanation_of_arguments_says_what_will_become_of_loops(at_once, monkeypatch):
    monkeypatch.setattr(entry, "WORTH", 1.0)

    def told(function, *args):
        return str(jitla.explain(jitla.jit(function, compile="auto"), *args))

    text = told(programs.reversed_down, np.ones(9))
    assert "left to Python until calls have spent 5 ms in it, then compiled, 1 run" in text
    assert "(x f8[:])" in text
    assert "left to Python: a call of np.exp" in told(programs.exponentials, np.ones(9))
    assert "left to Python: a slice of a slice" in told(programs.twice_sliced, np.ones(9))


def test_an_explanation_and_coverage_say_why_python_keeps_a_loop(at_once):
    fast = called(programs.exponentials, np.ones(9))
    assert "left to Python: a call of np.exp" in str(jitla.explain(fast))
    assert "loop over elements" in jitla.coverage()
    assert fast.stats().loops_refused == 1


def words(x):
    counts = {}
    for i in range(len(x)):
        counts[int(x[i])] = counts.get(int(x[i]), 0) + 1
    return counts


def labelled(x):
    for i in range(len(x)):
        x[i] = len(str(i))
    return x


@pytest.mark.parametrize(("function", "reason"), [
    (words, "what is in the variable counts is called"), (labelled, "a call of str"),
    (programs.exponentials, "a call of np.exp")])
def test_with_strict_a_loop_that_python_has_to_keep_is_an_error_that_says_where_and_why(function, reason):
    line = function.__code__.co_firstlineno
    for _ in range(2):
        with pytest.raises(jitla.UnsupportedError, match="left to Python") as caught:
            jitla.jit(function, strict=True)(np.ones(9))
        assert reason in str(caught.value) and "or drop strict=True" in str(caught.value)
        assert any(f"{function.__code__.co_filename}:{line + k}:" in str(caught.value) for k in range(1, 5))


ROW = np.arange(4.0)


def line(x, slope):
    return x * slope + 1


def given_rows(w, x=ROW):
    s = 0.0
    for i in range(3):
        s = s + line(x, w[i])
    return s


def rows_of_all(w):
    s = 0.0
    for i in range(3):
        s = s + line(ROW, w[i])
    return s


def rows_of_list(w, *rows):
    s = 0.0
    for i in range(3):
        s = s + line(rows[i], w[i])
    return s


@pytest.mark.parametrize(("function", "args", "kwargs"), [
    (given_rows, (), {"w": np.ones(3), "x": ROW}), (given_rows, (np.ones(3),), {}),
    (rows_of_all, (np.ones(3),), {}), (rows_of_list, (np.ones(3), ROW, ROW, ROW), {})])
def test_with_strict_a_loop_over_whole_arrays_is_no_error_however_they_are_given(function, args, kwargs):
    fast = jitla.jit(function, strict=True)
    for _ in range(2):
        assert np.asarray(fast(*args, **kwargs)).tolist() == function(*args, **kwargs).tolist()


def test_strict_that_is_asked_for_later_looks_at_loops_as_well():
    fast = jitla.jit(words)
    with jitla.options(compile="sync"):  # it loads the tracer
        fast(np.ones(9))
    with jitla.options(strict=True):
        for _ in range(2):
            with pytest.raises(jitla.UnsupportedError, match="left to Python"):
                fast(np.ones(9))


def test_a_loop_that_is_refused_at_sight_is_run_as_it_is_and_told_of(at_once):
    """No twin is made, no call traced, however many elements there are."""
    fast = called(words, np.ones(200_000, np.int8), times=1)
    assert fast(np.arange(3)) == {0: 1, 1: 1, 2: 1}
    assert fast.stats().forces == 0
    assert "left to Python" in str(jitla.explain(fast))
    assert "words" in jitla.coverage() or "counts" in jitla.coverage()


def test_a_loop_over_rows_with_an_index_in_turn_is_still_traced(at_once):
    def fitted(a, b, history):
        for k in range(20):
            b = b - 0.1 * (a @ b)
            history[k] = (b * b).sum()
            np.clip(b, -1.0, 1.0, out=b)
        return b

    fast = called(fitted, np.eye(600), np.ones(600), np.zeros(20), times=1)
    assert fast.stats().forces > 0
    assert fast.stats().loops_refused == 0


def test_forgetting_begins_anew(at_once):
    fast = called(programs.reversed_down, np.ones(9))
    fast.cache_clear()
    assert fast.stats().loops == 0
    fast(np.ones(9))
    assert fast.stats().loops_waiting == 1


def test_a_loop_over_whole_arrays_is_traced(at_once):
    def rows(a, b):
        for i in range(1, a.shape[0]):
            b[i] = 0.5 * b[i - 1] + a[i]
        return b

    fast = called(rows, np.ones((6, 40_000)), np.zeros((6, 40_000)), times=3)
    assert fast.stats().forces > 0


def test_what_takes_next_to_no_part_of_a_call_does_not_keep_it_from_being_traced(at_once, monkeypatch):
    monkeypatch.setattr(loops_function, "ENOUGH", 0.0)

    def much(x):
        s = 0.0
        for i in range(2):
            s += x[i]
        return (x * 2.0 + s).sum() + np.exp(x).sum()

    x = np.arange(300_000) * 1e-6
    assert called(much, x, times=3).stats().forces > 0


def test_a_decorated_function_calls_one_with_loops(at_once):
    inner = called(programs.reversed_down, np.ones(9))

    @jitla.jit(compile="auto")
    def outer(x):
        y = x * 2.0
        return inner(y) + y

    for _ in range(4):
        x = np.arange(9.0)
        y = x * 2.0
        assert (outer(x) == programs.reversed_down(y) + y).all()
    assert inner.stats().loop_runs > 3


class Shelf(dict):
    """Keeps machine code in memory."""

    def get(self, key, maker):
        return dict.get(self, (key, maker))

    def put(self, key, maker, code):
        self[key, maker] = code


def test_what_is_kept_is_not_compiled_again(eager, monkeypatch):
    asked = []

    class Foreman(emulated.Foreman):
        def ask(self, text, pointers):
            asked.append(text)
            return super().ask(text, pointers)

    shelf = Shelf()
    for _ in range(2):
        loops = Loops(
            emulated._link, ENGINE._load_loop_text, emulated.at_once, lambda: emulated.unwatched,
            lambda: lambda: (shelf, "this processor"))
        loops._foreman = Foreman()
        fast = loops.version(programs.reversed_down)
        for _ in range(5):
            assert (fast.version(np.arange(9.0)) == programs.reversed_down(np.arange(9.0))).all()
        assert fast.records()[0].runs == 2
    assert len(asked) == len(shelf) == 1
    shelf.clear()
    loops.version(programs.reversed_down).version(np.arange(9.0))
    assert len(asked) == 2


def test_a_function_that_waits_for_its_loop_is_not_traced(at_once, monkeypatch):
    """The runs that are not timed count, too, when it is asked what a function lives by."""
    monkeypatch.setattr(loops_function, "ENOUGH", 1e-3)
    monkeypatch.setattr(emulated.Foreman, "submit", lambda self, task: None)

    def sweeps(x):
        for _ in range(50):
            y = x * 2.0
            for i in range(1, len(x)):
                x[i] = 0.5 * (x[i - 1] + y[i])
        return x

    fast = called(sweeps, np.ones(300), times=3)
    assert fast.stats().loops_waiting == 1
    assert fast.stats().forces == 0


def test_code_that_is_exchanged_is_met(at_once):
    def f(x):
        for i in range(len(x)):
            x[i] = 1.0
        return x

    def g(x):
        for i in range(len(x)):
            x[i] = 2.0
        return x

    fast = called(f, np.zeros(3))
    f.__code__ = g.__code__
    assert (fast(np.zeros(3)) == 2.0).all()


@pytest.mark.parametrize("options", [{"compile": "sync"}, {"strict": True}, {"compile": "off"}])
def test_other_ways_to_compile_leave_loops_alone(at_once, options):
    fast = jitla.jit(programs.reversed_down, **options)
    assert (fast(np.arange(9.0)) == programs.reversed_down(np.arange(9.0))).all()
    assert fast.stats().loops_cold == 0


@pytest.mark.timing
def test_a_compiler_that_cannot_be_had_leaves_loops_to_python(monkeypatch):
    monkeypatch.setattr(entry, "WORTH", 0.0)
    monkeypatch.setattr(entry, "SHORT", 0.0)
    monkeypatch.setattr(loops_function, "ENOUGH", np.inf)
    monkeypatch.setattr(outlook, "SHORT_CALL_SECONDS", -1.0)
    loops = Loops(emulated._link, ENGINE._load_loop_text, emulated.at_once, lambda: emulated.unwatched)
    loops._foreman = foreman.Foreman(str(ROOT / "no such program.py"))
    monkeypatch.setattr(ENGINE, "_loops", loops)
    fast = called(programs.reversed_down, np.ones(9), times=1)
    _wait(lambda: fast.stats().loops_refused)
    assert "has ended" in str(jitla.explain(fast))
    assert (fast(np.arange(9.0)) == programs.reversed_down(np.arange(9.0))).all()


def _wait(until, seconds=60.0):
    start = time.monotonic()
    while not until():
        assert time.monotonic() - start < seconds
        time.sleep(0.01)


@pytest.mark.process
def test_the_compiler_runs_elsewhere():
    """Numba is never loaded where the user's program runs, and the process that loads it ends with it."""
    program = textwrap.dedent("""
        import sys, time
        import numpy as np
        import jitla
        from tests.loopjit.programs import table_of_costs

        fast = jitla.jit(table_of_costs, compile="auto")
        a, b = np.arange(300) % 7, np.arange(200) % 5
        wanted = table_of_costs(a, b)
        start = time.monotonic()
        while not fast.stats()["loop_runs"] and time.monotonic() - start < 500:
            assert (fast(a, b) == wanted).all()
            time.sleep(0.01)
        assert (fast(a, b) == wanted).all()
        print(fast.stats().loops, "numba" in sys.modules)
    """)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True,
                          check=False, timeout=600)
    assert done.stdout == "1 False\n", done.stderr
