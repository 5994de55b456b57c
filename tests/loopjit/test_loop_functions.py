"""Decorated functions with loops: detection, compilation, statistics, explanations, functions called."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import traceback
from math import inf
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import jitla
from jitla import packages
from jitla.dispatch import function_state as state
from jitla.engine import ENGINE, Engine
from jitla.loopjit import loop_functions, loop_sites
from jitla.tiering import policy
from jitla.tiering.loop_detector import (
    any_reachable,
    has_element_loops,
    has_loops,
)
from jitla.tiering.loop_estimates import estimable_loops, estimate_call_seconds
from tests.loopjit import programs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hot(monkeypatch):
    """Have loops compiled as soon as they run, in the background."""
    monkeypatch.setattr(loop_sites, "HOT_SECONDS", 0.0)
    monkeypatch.setattr(loop_functions, "JUDGED_SECONDS", inf)
    monkeypatch.setattr(state, "SHORT_CALL_SECONDS", -1.0)


def called(function, *args, times=6, **options):
    """Return a decorated function that was called, each time after the background compilation."""
    fast = jitla.jit(function, **{"compile": "auto", **options})
    for _ in range(times):
        fast(*args)
        ENGINE.background.wait()
    return fast


# --------------------------------------------------------------------------- detection


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


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="subscripts are no instructions of their own")
@pytest.mark.parametrize("function", [weighted, masked, halved, sliced, jitla.jit])
def test_slices_masks_and_constants_are_no_indices_of_elements(function):
    assert not has_element_loops(function.__code__)


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
    assert not has_element_loops(axes.__code__) or sys.version_info >= (3, 13)
    assert has_element_loops(last_ones.__code__)
    assert has_element_loops(corners.__code__)


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
        assert not has_element_loops(function.__code__) or sys.version_info >= (3, 14)


# --------------------------------------------------------------------------- decorated functions


def test_statistics_count_loops(hot):
    stats = called(programs.reversed_down, np.ones(500)).stats()
    assert (stats.loops, stats.loops_refused, stats.calls) == (1, 0, 6)
    assert stats.loop_runs >= 4 and stats.forces == 0


def test_statistics_count_loops_of_functions_that_are_called(hot):
    stats = called(by_name, np.ones(500)).stats()
    assert (stats.loops, stats.calls) == (2, 6) and stats.loop_runs >= 8


def words(x):
    counts = {}
    for i in range(len(x)):
        counts[int(x[i])] = counts.get(int(x[i]), 0) + 1
    return counts


def test_loops_that_cannot_be_compiled_run_in_python(hot):
    fast = called(words, np.arange(3))
    assert fast(np.arange(3)) == {0: 1, 1: 1, 2: 1}
    stats = fast.stats()
    assert (stats.loops, stats.loops_refused, stats.forces) == (0, 1, 0)


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
def test_with_strict_a_loop_over_whole_arrays_is_no_error(function, args, kwargs):
    fast = jitla.jit(function, strict=True)
    for _ in range(2):
        assert np.asarray(fast(*args, **kwargs)).tolist() == function(*args, **kwargs).tolist()


def test_with_strict_a_loop_that_is_left_to_python_is_an_error_with_line_and_reason():
    function, reason = programs.attempted, "a try statement"
    first = function.__code__.co_firstlineno
    for _ in range(2):
        with pytest.raises(jitla.UnsupportedError, match="left to Python") as caught:
            jitla.jit(function, strict=True)(np.ones(9))
        assert reason in str(caught.value) and "or drop strict=True" in str(caught.value)
        assert any(f"{function.__code__.co_filename}:{first + k}:" in str(caught.value) for k in range(1, 5))


def test_strict_that_is_set_later_applies_to_loops():
    fast = jitla.jit(programs.attempted)
    with jitla.options(compile="sync"):  # it loads the tracer
        fast(np.ones(2))
    with jitla.options(strict=True):
        for _ in range(2):
            with pytest.raises(jitla.UnsupportedError, match="left to Python"):
                fast(np.ones(2))


def test_a_loop_over_long_rows_is_traced_unless_it_is_compiled(hot):
    def fitted(a, b, history):
        for k in range(20):
            b = b - 0.1 * (a @ b)
            history[k] = (b * b).sum()
            np.clip(b, -1.0, 1.0, out=b)
        return b

    fast = called(fitted, np.eye(600), np.ones(600), np.zeros(20), times=4)
    stats = fast.stats()
    assert fast.__jitla_state__.loop_function.traced or stats.loops == 1


def test_cleared_functions_begin_anew(hot):
    fast = called(programs.reversed_down, np.ones(9))
    fast.cache_clear()
    assert fast.stats().loops == 0
    fast(np.ones(9))
    ENGINE.background.wait()
    assert fast.stats().loops_waiting + fast.stats().loops == 1


def test_short_loops_beside_much_work_on_arrays_do_not_keep_it_from_being_traced(monkeypatch):
    monkeypatch.setattr(loop_functions, "JUDGED_SECONDS", 0.0)
    monkeypatch.setattr(loop_functions, "FIRST_CALL_SECONDS", 0.0)

    def much(x):
        s = 0.0
        for i in range(2):
            s += x[i]
        return (x * 2.0 + s).sum() + np.exp(x).sum()

    monkeypatch.setattr(state, "SHORT_CALL_SECONDS", -1.0)
    x = np.arange(300_000) * 1e-6
    assert called(much, x).__jitla_state__.loop_function.traced


def test_decorated_functions_call_decorated_ones_with_loops(hot):
    inner = called(programs.reversed_down, np.ones(500))

    @jitla.jit(compile="auto")
    def outer(x):
        y = x * 2.0
        return inner(y) + y

    for _ in range(4):
        x = np.arange(500.0)
        y = x * 2.0
        assert (outer(x) == programs.reversed_down(y) + y).all()
    assert inner.stats().loop_runs > 3


def test_functions_that_wait_for_their_loops_are_not_traced(hot, monkeypatch):
    monkeypatch.setattr(loop_functions, "JUDGED_SECONDS", 1e-3)
    monkeypatch.setattr(ENGINE.background, "submit", lambda job, **options: None)

    def sweeps(x):
        for _ in range(50):
            y = x * 2.0
            for i in range(1, len(x)):
                x[i] = 0.5 * (x[i - 1] + y[i])
        return x

    fast = jitla.jit(sweeps, compile="auto")
    for _ in range(3):
        fast(np.ones(300))
    stats = fast.stats()
    assert (stats.loops_waiting, stats.forces) == (1, 0)


def test_functions_whose_code_is_exchanged(hot):
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
def test_results_do_not_depend_on_options(hot, options):
    fast = jitla.jit(programs.reversed_down, **options)
    for _ in range(4):
        assert (fast(np.arange(9.0)) == programs.reversed_down(np.arange(9.0))).all()
        ENGINE.background.wait()


@pytest.mark.parametrize("error", [MemoryError, AssertionError])
def test_errors_of_the_compiler_leave_loops_to_python(hot, monkeypatch, error):
    def fail(program):
        raise error

    monkeypatch.setattr(ENGINE, "_compile_loop", fail)
    fast = called(programs.reversed_down, np.ones(9), times=4)
    assert (fast(np.arange(9.0)) == programs.reversed_down(np.arange(9.0))).all()
    stats = fast.stats()
    assert (stats.loop_runs, stats.loops_refused) == (0, 1)
    assert f"the compiler failed: {error.__name__}" in str(jitla.explain(fast))


def test_a_new_process_compiles_its_loops_in_the_background():
    program = textwrap.dedent("""
        import time
        import numpy as np
        import jitla
        from tests.loopjit.programs import table_of_costs

        fast = jitla.jit(table_of_costs, compile="auto")
        a, b = np.arange(300) % 7, np.arange(200) % 5
        wanted = table_of_costs(a, b)
        start = time.monotonic()
        while not fast.stats()["loop_runs"] and time.monotonic() - start < 100:
            assert (fast(a, b) == wanted).all()
        assert (fast(a, b) == wanted).all()
        print(fast.stats().loops)
    """)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True,
                          check=False, timeout=200)
    assert done.stdout == "1\n", done.stderr


# --------------------------------------------------------------------------- explanations


def test_explanations_show_loops_with_kinds_iterations_and_parts(hot):
    text = str(jitla.explain(called(programs.reversed_down, np.ones(500))))
    assert "== loops: 1" in text and "x float64[:]" in text
    assert "for i in range(len(x) - 1, -1, -1):" in text
    assert "N1  compiled, " in text and " by Python, " in text and " by compiled code, " in text


def test_explanations_show_loop_programs(hot):
    fast = called(programs.reversed_down, np.ones(500))
    text = str(jitla.explain(fast, level="loops"))
    assert "== loop N1" in text and "def reversed_down(" in text and "leave(0)" in text
    assert "x·f8_1[i·i8] = x·f8_1[i·i8] - " in text
    assert "def reversed_down(" not in str(jitla.explain(fast, level="all"))


def test_explanations_say_what_left_iterations_to_python(hot):
    fast = called(programs.halved, np.ones(500), np.ones(500))
    divisors = np.ones(500)
    divisors[7] = 0.0
    with np.errstate(divide="ignore"):
        fast(np.ones(500), divisors)
    assert "iterations left to Python" not in str(jitla.explain(fast))
    with pytest.warns(RuntimeWarning):
        fast(np.ones(500), divisors)
    assert "last for floating-point warnings" in str(jitla.explain(fast))


def test_explanations_with_arguments_say_what_becomes_of_loops():
    def explained(function, *args):
        return str(jitla.explain(jitla.jit(function, compile="auto"), *args))

    text = explained(programs.reversed_down, np.ones(9))
    assert "run by Python until it has spent 2 ms in it, then compiled" in text
    assert "(x float64[:])" in text
    assert "N1  left to Python: " in explained(words, np.ones(9))


def test_explanations_and_coverage_say_why_python_runs_a_loop(hot):
    fast = called(words, np.ones(500))
    text = str(jitla.explain(fast))
    assert "left to Python: " in text and "Python runs the loop (" in text
    assert " x loop " in jitla.coverage()
    assert fast.stats().loops_refused == 1


# --------------------------------------------------------------------------- functions that are called


def swept(x, by):
    for i in range(1, len(x)):
        x[i] = x[i] - by * x[i - 1]
    return x


def once_more(x):
    return swept(x, 0.5)


def round_and_round(x, times):
    for i in range(1, len(x)):
        x[i] += x[i - 1]
    return x if times == 0 else round_and_round(x, times - 1)


def by_name(x):
    return swept(x * 2.0, 0.25) + once_more(x.copy())


def by_module(x):
    return programs.reversed_down(x * 2.0) + 1.0


def inside(x, span=3):
    weight = 2.0 / (span + 1)

    def smooth(y, start=0.0):
        out = np.empty_like(y)
        last = start
        for i in range(len(y)):
            last = weight * y[i] + (1.0 - weight) * last
            out[i] = last
        return out

    first = smooth(x)
    weight = 0.125
    return first - smooth(first, start=1.0)


def round_itself(x):
    return round_and_round(x, 3)


def given_away(x):
    def smooth(y):
        for i in range(1, len(y)):
            y[i] += y[i - 1]
        return y

    return list(map(smooth, [x, x + 1.0]))


def hidden(x, swept):
    return swept(x, 0.5)


@pytest.mark.parametrize(("function", "loops"), [
    (by_name, 2), (by_module, 1), (round_itself, 1), (once_more, 1)])
def test_loops_of_functions_that_are_called_are_compiled(eager, function, loops):
    fast = eager(function)
    assert any_reachable(function, has_loops)
    assert len(fast.entries) == loops
    for n in (9, 9, 9, 9, 9, 5):
        x = np.linspace(1.0, 2.0, n)
        assert fast.version(x.copy()).tolist() == function(x.copy()).tolist()
    assert {record.state for record in fast.records()} == {"trusted"}
    assert all(record.runs for record in fast.records())


@pytest.mark.parametrize("function", [given_away, hidden, inside])
def test_functions_that_others_may_see_or_exchange_stay_as_they_are(eager, function):
    fast = eager(function)
    assert fast is None or not fast.entries


def test_names_of_functions_are_resolved_for_each_call(eager):
    space = {"np": np, "swept": swept}
    function = FunctionType(once_more.__code__, space)
    fast = eager(function)
    assert len(fast.entries) == 1
    for _ in range(5):
        fast.version(np.arange(4.0))
    space["swept"] = lambda x, by: (x, by)
    assert fast.version(3) == (3, 0.5)
    del space["swept"]
    with pytest.raises(NameError):
        fast.version(3)


def test_decorated_functions_and_those_of_libraries_are_called_as_they_are(eager):
    space = {"swept": jitla.jit(swept)}
    assert eager(FunctionType(once_more.__code__, space)) is None
    assert not any_reachable(FunctionType(once_more.__code__, space), has_element_loops)
    library = FunctionType(swept.__code__.replace(co_filename=np.__file__), globals())
    assert not any_reachable(FunctionType(once_more.__code__, {"swept": library}), has_element_loops)
    assert eager(FunctionType(once_more.__code__, {"swept": library})) is None


def wrong(x):
    def total(y):
        s = 0.0
        for i in range(len(y) + 1):
            s += y[i]
        return s

    return total(x) + swept(x, 0.5)


def wrong_loop(x):
    return overrun(x)


def overrun(y):
    s = 0.0
    for i in range(len(y) + 1):
        s += y[i]
    return s


@pytest.mark.parametrize("function", [wrong, wrong_loop])
def test_errors_have_the_lines_of_the_source(eager, function):
    fast = eager(function)
    seen = []
    for call in (*[fast.version] * 5, function):
        with pytest.raises(IndexError) as caught:
            call(np.arange(4.0))
        frames = traceback.extract_tb(caught.value.__traceback__)[1:]
        seen.append([(frame.name, frame.lineno, frame.colno) for frame in frames])
    assert all(each == seen[-1] for each in seen), sys.version


# --------------------------------------------------------------------------- short calls

STEPS = 40


def added(x):
    s = 0.0
    for i in range(len(x)):
        s += x[i]
    return s


def filled(d, n):
    for i in range(n):
        for j in range(d.shape[1]):
            d[i, j] = d[i, j - 1] + 1.0
    return d


def halvings(x):
    k = 0
    while x[k] > 1.0:
        x[k] /= 2.0
    return x


def repeated(x):
    for _ in range(STEPS):
        x[0] = added(x)
    return x


def stepped(x):
    for i in range(STEPS):
        x[i] = -x[i]
    return x


decorated = jitla.jit(added)


def nested(x):
    for i in range(len(x)):
        x[i] = decorated(x)
    return x


def estimated(function, *args):
    return estimate_call_seconds(estimable_loops(function), function, args, {})


def test_loops_are_estimated_by_the_elements():
    assert estimated(added, np.zeros(2_000)) == pytest.approx(2 * estimated(added, np.zeros(1_000)))
    assert 1e-4 < estimated(added, np.zeros(1_000)) < 1e-2


def test_nested_loops_are_estimated_by_the_product():
    some = estimated(filled, np.zeros((50, 30)), 50)
    assert 3 < estimated(filled, np.zeros((100, 30)), 100) / some < 5
    assert estimated(filled, np.zeros((50, 30)), 10**9) > 1e3


def test_integers_of_the_module_count():
    assert estimated(stepped, np.zeros(3)) == pytest.approx(estimated(stepped, np.zeros(STEPS)))


@pytest.mark.parametrize("function", [halvings, repeated, nested], ids=lambda f: f.__name__)
def test_other_loops_are_not_estimated(function):
    assert estimated(function, np.ones(9)) == inf


def test_loops_over_objects_are_not_estimated():
    assert estimated(added, object()) == inf


def test_loops_are_looked_for_once_calls_have_taken_a_while(monkeypatch):
    monkeypatch.delitem(vars(packages), "tracing", raising=False)
    fast = jitla.jit(added, compile="auto")
    assert fast(np.ones(10)) == fast(np.ones(10)) == 10.0
    assert fast.__jitla_state__._looping is state._UNKNOWN
    monkeypatch.setattr(policy, "PREPARE_SECONDS", 0.0)
    assert fast(np.ones(10)) == fast(np.ones(10)) == 10.0
    assert fast.__jitla_state__._looping is not state._UNKNOWN
    monkeypatch.undo()
    stats = fast.stats()
    assert (stats.calls, stats.loops_cold) == (4, 2)  # loops of int and float64


def test_a_call_that_may_take_long_is_looked_at_before(monkeypatch):
    monkeypatch.setattr(state, "SHORT_CALL_SECONDS", estimated(added, np.ones(99)))
    fast = jitla.jit(added, compile="auto")
    assert fast(np.ones(99)) == 99.0 and fast.stats().bypassed == 1
    assert fast(np.ones(200)) == 200.0  # its loops are known now
    assert fast(np.ones(99)) == 99.0
    assert fast.stats().bypassed == 1 and fast.stats().calls == 3


def test_errors_of_short_calls_are_raised():
    fast = jitla.jit(filled, compile="auto")
    with pytest.raises(IndexError) as raised:
        fast(np.zeros((2, 2)), 3)
    assert raised.traceback[-1].name == "filled"


def test_calls_before_the_tracer_is_loaded_do_not_look_for_loops_again(monkeypatch):
    monkeypatch.delitem(vars(packages), "tracing", raising=False)
    looked = []
    monkeypatch.setattr(state, "SHORT_CALL_SECONDS", -1.0)
    find = Engine.loop_function
    monkeypatch.setattr(Engine, "loop_function", lambda *args: looked.append(args) or find(*args))
    fast = jitla.jit(swept, compile="auto")
    assert fast(np.arange(3.0), 0.5).tolist() == swept(np.arange(3.0), 0.5).tolist()
    once = len(looked)
    for _ in range(5):
        fast(np.arange(3.0), 0.5)
    assert once and len(looked) == once and not packages.is_loaded("tracing")
