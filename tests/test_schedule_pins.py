"""Schedules that are pinned: the same bits, refusals with a reason, and their explanations."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import jitla
from jitla.engine import ENGINE

# Schedules that are pinned: the same bits, refusals with a reason, and what explanations say of them.

X = np.random.default_rng(1).random((300, 40))


def distance(x, y, by):
    return np.sqrt(x * x + y) * by


def corners(a):
    x, y = a[1:-1, 2:] - a[1:-1, :-2], a[2:, 1:-1] - a[:-2, 1:-1]

    def around(v):
        rows = v[:-2] + v[1:-1] + v[2:]
        return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]

    xx, xy, yy = around(x * x), around(x * y), around(y * y)
    return xx * yy - xy * xy - 0.04 * (xx + yy) * (xx + yy)


def means(a):
    b = a / (1 + a * a)
    return (b[::2, ::2] + b[1::2, ::2] + b[::2, 1::2] + b[1::2, 1::2]) / 4


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def total(x, w):
    return x.T @ (x @ w)


def weighted(x, w, y):
    return (np.maximum(x @ w, 0) * y) @ x


@pytest.fixture
def decorated():
    """Decorate a function, call it, and return it with its arguments and what it gave."""
    def made(function, *args, **options):
        f = jitla.jit(function, compile="sync", **options)
        return f, args, f(*args)

    with jitla.options(cache_dir="", disk_cache=False, progress=False):
        yield made


def same(found, wanted):
    return found.tobytes() == wanted.tobytes() and found.strides == wanted.strides


@pytest.mark.parametrize("pin", [
    {"tile": (16, 8)}, {"tile": (300, 40)}, {"tile": 7}, {"tile": (17, 13)}, {"unroll": 2},
    {"stores": "around"}, {"loops": "reorder(j, i)"}, {"loops": ["fuse(i, j)", "parallel(i_j)"]},
    {"loops": "split(j, 9, 'shifted')\nunroll(j_i)\nparallel(i)"}], ids=str)
def test_cells_run_as_they_are_pinned(decorated, pin):
    f, args, wanted = decorated(distance, X, X[0], 3.0)
    (found,) = jitla.schedule(f, kernel="K1", **pin)
    assert set(found.pinned) == set(pin)
    assert same(f(*args), wanted)
    assert "pinned: " in str(jitla.explain(f))
    assert not jitla.schedule(f, usual=True)[0].pinned
    assert same(f(*args), wanted) and "pinned" not in str(jitla.explain(f))


@pytest.mark.parametrize("pin", [
    {"tile": (16, 24)}, {"tile": (9, 36)}, {"height": 16}, {"height": 16, "units": 4},
    {"loops": "split(i, 24)\nparallel(i_o)"}], ids=str)
def test_stencils_of_stencils_run_as_they_are_pinned(decorated, pin):
    image = np.random.default_rng(2).random((500, 600)).astype("f4")
    f, args, wanted = decorated(corners, image)
    (found,) = jitla.schedule(f, **pin)
    assert found.loops.startswith("split(i, ") and "height" in [k.name for k in found.knobs]
    assert same(f(*args), wanted)
    text = str(jitla.explain(f, level="loops"))
    assert "# pinned: " in text and text.count("def K1(") == 2


@pytest.mark.parametrize("pin", [{"tile": (16, 24)}, {"tile": (13, 250)}, {"height": 24}, {}], ids=str)
def test_every_second_row_runs_as_it_is_pinned(decorated, pin):
    f, args, wanted = decorated(means, np.random.default_rng(2).random((500, 600)))
    jitla.schedule(f, **pin)
    assert same(f(*args), wanted)
    text = str(jitla.explain(f, level="loops"))
    assert text.count("def K1(") == 2, text


def test_loops_are_those_of_the_pinned_schedule_and_its_sizes(decorated):
    f, args, _ = decorated(distance, X, X[0], 3.0)
    assert "for i in parallel(300)" in str(jitla.explain(f, level="loops"))
    jitla.schedule(f, tile=(16, 8))
    f(*args)
    assert "for i_o in parallel(19)" in str(jitla.explain(f, level="loops"))


def test_rows_run_as_they_are_pinned(decorated):
    f, args, wanted = decorated(softmax, X)
    jitla.schedule(f, height=16, units=2)
    assert same(f(*args), wanted)
    assert "pinned: height=16, units=2" in str(jitla.explain(f))


@pytest.mark.parametrize("pin, law", [
    ({"loops": "frobnicate(i)"}, "no-primitive"), ({"loops": "split(k, 4)"}, "unknown-loop"),
    ({"loops": "vectorise(i)"}, "not-innermost"), ({"tile": (301, 4)}, "factor"),
    ({"tile": (1, 2, 3)}, "axes"),
    ({"unroll": 3}, "knob"), ({"height": 8}, "knob"), ({"kernel": "K2", "unroll": 2}, "kernel"),
    ({"program": 2, "unroll": 2}, "kernel"), ({"tile": 4, "unroll": 2}, "knob")], ids=str)
def test_what_does_not_fit_is_refused_and_changes_nothing(decorated, pin, law):
    f, args, wanted = decorated(distance, X, X[0], 3.0)
    with pytest.raises(jitla.ScheduleError) as refused:
        jitla.schedule(f, **pin)
    assert refused.value.law == law
    assert same(f(*args), wanted) and not jitla.schedule(f)[0].pinned


def test_the_order_of_sums_is_refused_unless_relaxed(decorated):
    x, w = np.random.default_rng(3).random((4000, 16)), np.ones(16)
    f, args, wanted = decorated(total, x, w)
    with pytest.raises(jitla.ScheduleError, match="order"):
        jitla.schedule(f, height=64)
    jitla.schedule(f, height=jitla.schedule(f)[0].usual["height"])  # as it is
    assert same(f(*args), wanted)
    loose, args, _ = decorated(total, x, w, numerics="relaxed")
    jitla.schedule(loose, height=64)
    assert np.allclose(loose(*args), wanted)


def test_loops_of_templates_cannot_be_pinned(decorated):
    f, *_ = decorated(softmax, X)
    for pin in ({"tile": 8}, {"loops": "split(i, 8)"}):
        with pytest.raises(jitla.ScheduleError) as refused:
            jitla.schedule(f, **pin)
        assert refused.value.law == "template"
    assert not jitla.schedule(f)[0].loops


def test_loops_of_kernels_that_write_over_arrays_cannot_be_pinned(decorated):
    def f(a, out):
        out[:] = np.sqrt(a * a + 1.0)

    out = np.zeros_like(X)
    g, *_ = decorated(f, X, out)
    with pytest.raises(jitla.ScheduleError) as refused:
        jitla.schedule(g, tile=(16, 8))
    assert refused.value.law == "operand"
    jitla.schedule(g, unroll=2)
    g(X, out)
    assert same(out, np.sqrt(X * X + 1.0))


def test_a_pin_that_other_sizes_do_not_allow_is_left_out_and_explained(decorated):
    f, args, wanted = decorated(distance, X, X[0], 3.0)
    jitla.schedule(f, tile=(200, 8))
    assert same(f(*args), wanted)
    assert same(f(X[:150], X[0], 3.0), wanted[:150])
    assert "the pinned schedule is not possible here: factor" in str(jitla.explain(f))


def cross(a):
    b = 1.0 / (a * a - 1.0)
    return b[2:, 1:-1] + b[:-2, 1:-1] + b[1:-1, 2:] + b[1:-1, :-2]  # without its corners


def ends(a):
    b = 1.0 / (a * a - 1.0)
    return b[:-2] * b[1:-1]  # without the last row


def test_elements_that_nobody_reads_warn_as_they_do_in_numpy(decorated):
    a = np.full((700, 800), 2.0)
    f, _, wanted = decorated(cross, a)
    jitla.schedule(f, tile=(64, 64))
    assert same(f(a), wanted)
    g, *_ = decorated(ends, a)
    for refused in ((f, "compute_inline(t3)"), (g, "split(i, 16)\ncompute_at(t3, i_o)")):
        name = jitla.schedule(refused[0])[0].loops.partition("compute_at(")[2] or \
            jitla.schedule(refused[0])[0].loops.partition("store_at(")[2]
        with pytest.raises(jitla.ScheduleError) as wrong:
            jitla.schedule(refused[0], loops=refused[1].replace("t3", name.partition(",")[0]))
        assert wrong.value.law == "unread"
    a[0, 0] = a[-1, -1] = 1.0
    for function in (f, g):
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            function(a)


def test_flags_of_nests_are_seen(decorated):
    f, *_ = decorated(lambda x, y: np.sqrt(x) / y, X, X)
    jitla.schedule(f, tile=(16, 8))
    f(X, X)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        f(X, X * 0.0)


def test_nests_warn_of_what_is_not_chosen(decorated):
    f, *_ = decorated(lambda x, y: np.where(y > 0, (x / y).astype(np.int64), 3), X, X)
    g, *_ = decorated(lambda x, y: np.where(y > 0, (x > 0) / y, 3.0), X, X)
    other = X + 1.0
    other[5, 5] = 0.0
    for function, pin in ((f, "reorder(j, i)"), (g, "split(j, 8)")):
        function(X, X + 1.0)
        jitla.schedule(function, loops=pin)
        function(X, X + 1.0)
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            function(X, other)
    with pytest.warns(RuntimeWarning, match="invalid value encountered in cast"):
        f(X, other)


def test_pins_belong_to_one_function_and_travel_with_it(decorated):
    f, args, _ = decorated(distance, X, X[0], 3.0)
    g, *_ = decorated(distance, X, X[0], 3.0)
    jitla.schedule(f, unroll=4)
    f(*args), g(*args)
    assert jitla.schedule(f)[0].pinned == {"unroll": 4} and not jitla.schedule(g)[0].pinned
    assert pickle.loads(pickle.dumps(f.__jitla_state__)).changes == f.__jitla_state__.changes


def test_pins_do_not_heap_up_compilers(decorated):
    f, args, _ = decorated(distance, X, X[0], 3.0)
    before = len(ENGINE._compilers)
    for n in (1, 2, 4, 8):
        jitla.schedule(f, unroll=n)
        f(*args)
    assert len(ENGINE._compilers) <= before + 1


def test_text_that_is_no_schedule_is_refused():
    with jitla.options(schedules="{1: 2"), pytest.raises(jitla.ConfigError, match="schedules="):
        jitla.jit(distance, compile="sync")(X, X[0], 3.0)


def test_passes_that_read_a_matrix_turned_are_pinned(decorated):
    x = X.astype("f4")
    f, args, wanted = decorated(weighted, x, x[0], X[:, 0], numerics="relaxed")
    jitla.schedule(f, kernel="K1", height=8)
    np.testing.assert_allclose(f(*args), wanted, rtol=1e-6)
    assert f.stats()["failures"] == 0 and "pinned" in str(jitla.explain(f))


def test_order_and_place_are_pinned_with_a_tile_or_without():
    def thrice(x):
        y = np.sqrt(x[:, 1:] * x[:, :-1])
        return y[2:] + y[1:-1] - y[:-2]

    f = jitla.jit(thrice, compile="sync")
    x = np.random.default_rng(4).random((200, 1200))
    before, tile = f(x), {"tile": (16, 256)}
    for pin in ({"place": "inline"}, {**tile, "place": "inline"}, {**tile, "order": "columns"},
                {**tile, "order": "columns", "place": "root"}):
        jitla.schedule(f, **pin)
        assert f(x).tobytes() == before.tobytes()
    loops = str(jitla.explain(f, level="loops"))
    assert "# reorder(j_o, i_o, i_i, j_i)" in loops and "# parallel(i1)" in loops
    assert "compute_at" not in loops
    for wrong in ({"order": "columns"}, {**tile, "height": 16}, {**tile, "order": "up"}):
        with pytest.raises(jitla.ScheduleError):
            jitla.schedule(f, **wrong)
    (kernel,) = jitla.schedule(f)
    assert next(k.choices for k in kernel.knobs if k.name == "place") == ("block", "inline", "root")
