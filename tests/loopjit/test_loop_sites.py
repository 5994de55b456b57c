"""Loops run by compiled code: values, types, warnings, errors and memory are those of plain Python."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from contextlib import suppress

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from jitla.loopjit import loop_sites
from tests.loopjit import adversarial, programs
from tests.loopjit.random_functions import check, outcome
from tests.loopjit.random_slice_loops import Slices


def f8(n=10):
    return np.arange(n) + 0.5


def i8(n=10):
    return np.arange(n)


def u1(n=10):
    return np.arange(n, dtype=np.uint8)


def distances(odd=2.0):
    d = np.arange(25.0).reshape(5, 5) % 7 + 1
    d[3, 2:4] = odd
    return d


# Function; arguments of the calls by which it is compiled; arguments of later calls.
CASES = [
    ("running_sum", lambda: (f8(),), [(f8(0),), (np.array([1e308, 1e308, np.nan]),), (f8()[::-1],)]),
    ("running_sum", lambda: (u1(),), [(np.full(10, 100, np.uint8),), (u1(3),)]),
    ("running_sum", lambda: (i8(),), [(np.full(3, 2**62),), (i8(1),)]),
    ("running_sum", lambda: (np.ones(4, bool),), [(np.zeros(3, bool),)]),
    ("left_over", lambda: (f8(), f8()), [
        (f8(), np.array([1e200, 1.0, 1.0, 1.0, 1e200, 1e300, 1.0, 1e300, 1e10])),
        (np.full(10, 1e300), np.array([1.0] * 6 + [1e10, 1.0, 1e9, 1.0])), (f8(3), f8(6))]),
    ("in_between", lambda: (f8(), f8()), [
        (np.full(9, 1e300), np.array([1.0] * 6 + [1e10, 1.0, 1.0])), (f8(), np.array([1.0, np.inf, 0.0]))]),
    ("table_of_costs", lambda: (i8(), i8(8)), [(i8(0), i8(3)), (i8()[::2], i8(5))]),
    ("largest_first", lambda: (f8(),), [(np.array([np.nan, 1.0]),), (f8(2)[::-1],)]),
    ("found_at", lambda: (i8(), 20), [(i8(), 3), (i8(), 0), (i8(0), 1)]),
    ("checked", lambda: (f8(),), [(np.array([4.0, -1.0, 9.0]),), (np.array([np.inf, np.nan, 2.0]),)]),
    ("growing", lambda: (i8(5),), [(i8(60),), (i8(39),), (i8(40),)]),
    ("added", lambda: (u1(5),), [(np.array([200, 100, 3], np.uint8),)]),
    ("added", lambda: (i8(5),), [(np.array([2**62, 2**62, 3]),)]),
    ("divided", lambda: (f8(), 2), [(f8(), 3), (np.array([0.0, 1.0]), 0)]),
    ("divided", lambda: (f8(), 2.0), [(f8(), 0.0), (np.array([1e300, 2.0]), 1e-300)]),
    ("halved", lambda: (f8(), f8()), [(f8(), np.array([1.0, 0.0] * 5)), (f8(4), f8(3))]),
    ("unbound", lambda: (f8(), True), [(f8(), False)]),
    ("named_later", lambda: (f8(),), [(np.zeros(9),), (f8(7),)]),
    ("by_rows", lambda: (np.ones((3, 4)), 3), [(np.ones((3, 4)), 4)]),
    ("of_module", lambda: (f8(20),), [(f8(5),)]),
    ("rows_of", lambda: (np.array([0, 3, 3, 7]), i8(7), f8(), f8(3)), [
        (np.array(starts), at, f8(), f8(3)) for starts, at in (
            ([0, 3, 3, 8], i8(7)), ([-2, 1, 9, 7], i8(7)), ([9, 3, -4, -1], i8(7)), ([0, 7, 7, 7], -i8(7)),
            ([0, 7, 2**62, 7], i8(7)), ([-2**63, 3, 2, 7], i8(7)), ([0, 3, 5, 7], i8(7) + 5))]),
    ("packed", lambda: (i8(4) + 2, f8(4), np.zeros(12)), [
        (np.array(sizes), f8(len(sizes)), np.zeros(12)) for sizes in (
            [3, 20, 2], [3, 0, 2], [3, -1, 2], [1, 2**62], [-2**63])]),
    ("packed", lambda: (u1(4) + 2, i8(4), i8(12)), [(u1(4), i8(4) + 2**62, i8(12)), (u1(2), i8(1), i8(12))]),
    ("extremes", lambda: (f8(), f8(4), f8(4)), [
        (f8(), np.array([1.0, 1e308, 2.0]), f8(3)), (np.array([np.inf, 1.0]), np.full(3, np.inf), f8(3)),
        (np.array([np.nan, 1.0]), f8(3), f8(3)), (f8(0), f8(3), f8(3))]),
    ("reversed_down", lambda: (f8(),), [(f8(1),), (f8(0),)]),
    ("swapped", lambda: (i8(),), [(i8(9),), (i8(1),)]),
    ("while_less", lambda: (f8(), 9.0), [(f8(), 1e9), (f8(), -1.0), (f8(3), np.nan)]),
    ("singles", lambda: (np.arange(5, dtype=np.float32),), [
        (np.array([3e38, 3e38, 1.0], np.float32),), (np.array([1e-45, 3.0], np.float32),)]),
    ("own_function", lambda: (f8(), lambda v: v + 3), [(-f8(), lambda v: v - 3)]),
    ("own_module", lambda: (f8(), programs.Odd), [(f8(), programs.Odd)]),
    ("captured", lambda: (f8(),), [(f8(3),)]),
    ("large_or_float", lambda: (f8(), 2**60 + 1), [(f8(0), 2**60 + 1), (f8(), 1), (f8(0), 2**70)]),
    ("large_or_float", lambda: (i8(), 0), [(i8(0), 2**60 + 1), (i8(), 1.5), (i8(0), 2**70)]),
    ("listed", lambda: (f8(),), [(f8(3),)]),
    ("tabled", lambda: (f8(),), [(f8(3),)]),
    ("exponentials", lambda: (f8(),), [(f8(3) * 1000,)]),
    ("sliced", lambda: (f8(), f8()), [(f8(3), f8(3))]),
    ("attempted", lambda: (f8(),), [(np.zeros(2),)]),
    ("products", lambda: (f8(), f8()), [
        (f8() * 2e153, f8()), (f8(20) * 1e154, f8(20)), (np.full(30, np.inf), f8(30)), (f8(7)[::-1], f8(9)),
        (np.array([1e200] * 9 + [np.nan]), np.full(10, -np.inf)), (f8(9), f8(7))]),
    ("row_sums", lambda: (np.ones((4, 6)), f8(4)), [
        (np.full((4, 6), 1e154), f8(4)), (np.full((3, 9), -np.inf), f8(5)), (np.ones((4, 6)), f8(3))]),
    ("reduced_rows", lambda: (distances(), f8(5), f8(5)), [
        (distances(np.nan), f8(5), f8(5)), (distances(np.inf), f8(5), f8(5)), (distances(), f8(6), f8(5)),
        (distances()[::-1], f8(10)[::2], f8(5)), (distances(), f8(5), f8(6)),
        (distances() * -0.0, f8(5), f8(5)), (distances(1.5e308), f8(5) * 2, f8(5)),
        (distances()[:, :0], f8(0), f8(1)),
        (np.sin(np.arange(22500.0)).reshape(150, 150), np.cos(np.arange(150.0)), f8(8))]),
    ("stepping", lambda: (i8(), 7), [(i8(20), -7), (i8(), -2**40), (i8(30), 2**60 + 1)]),
    ("neighbours", lambda: (f8(), f8()), [(f8(3), f8(2))]),
    ("shortest", lambda: (distances(), distances()), [
        (distances(1e308), distances()), (distances(-np.inf), distances(np.inf)),
        (distances(np.nan), distances()), (distances()[::-1], distances().T),
        (distances(), distances(-1e308)), (distances(), distances()[:4])]),
    ("shortest", lambda: (distances(),) * 2, [(distances(1e308),) * 2, (distances(-1e308),) * 2]),
    ("gathered", lambda: (f8(), i8(), f8()), [
        (f8(), np.array([1, 2, 3, 4, 99, 5, 6, 7, 8, 9]), f8()), (f8() * 1e154, i8(), f8()),
        (f8(), -i8() - 1, f8()), (f8() * 1e5, i8(), f8()), (f8(), i8(), f8(40)),
        (f8()[::-2], i8() % 4, f8(5))]),
    ("joined_bits", lambda: (np.arange(5, dtype=np.int32), 7), [
        (np.full(3, -2**31, np.int32), 2**31 - 1), (np.full(3, 2**31 - 1, np.int32), 2**31 - 1)]),
    ("scattered", lambda: (f8() + 1, 1, 9), [
        (np.full(10, 1e150), 1, 9), (f8(), 0, 9), (f8(), -3, 5), (f8(), 1, 30), (f8(), 9, 1), (f8(0), 0, 0),
        (np.array([1e300] * 9 + [np.inf]), 1, 10)]),
    ("eliminated", lambda: (distances(),), [
        (distances(1e308),), (distances(np.nan),), (distances().T,), (np.zeros((3, 3)),),
        (distances()[::-1],), (distances()[:, :4],), (distances()[:2],), (distances()[:0],)]),
    ("along", lambda: (distances(), f8(5), 2.0), [
        (distances(), f8(5), np.float32(0.1)), (distances(), f8(5) - 1.5, 3), (distances(), f8(4), 2.0),
        (distances(), f8(1), 2.0), (distances(1e308), f8(5), 0.5), (distances(), i8(5), 2.0),
        (distances(), f8(10)[::2], 2.0), (distances(np.inf), f8(5), 0), (distances(), f8(5), 2**60 + 1)]),
    ("nothing_there", lambda: (f8(), 1), [(f8() * 1e300, 4), (f8() * 1e300, 1), (f8(), -30), (f8(), 30)]),
    ("twice_sliced", lambda: (f8(),), [(f8(4),)]),
    ("reduced", lambda: (distances(),), [
        (distances(1e308),), (distances(np.nan),), (distances().T,), (np.zeros((3, 3)),), (np.ones((2, 0)),),
        (distances()[:, :4],), (distances()[:0],), (f8(),), (np.ones((2, 2, 2)),), (np.eye(3, dtype=int),)]),
    ("divided_rows", lambda: (f8(), f8()), [
        (f8(), i8() * 0.0), (f8(), np.array([3.0, 0.0, 1.0])), (f8() * 0.0 - 1.0, f8()), (f8(), i8())]),
    ("unneeded", lambda: (np.ones((4, 3)), f8(4)), [
        (np.ones((4, 0)), np.full(4, 1e200)), (np.ones((4, 3)), np.full(4, 1e200)),
        (np.ones((3, 3)), f8(4))]),
    ("never_assigned", lambda: (f8(), 3), [(f8(), 4), (f8(), 0)]),
    ("last_of_all", lambda: (f8(), 3), [(f8(), 9), (f8(40), 40)]),
]


def named(function, args):
    return dict(zip(function.__code__.co_varnames, args, strict=False))


@pytest.mark.parametrize(("name", "usual", "others"), CASES, ids=[f"{c[0]}{k}" for k, c in enumerate(CASES)])
def test_calls_are_those_of_python(eager, name, usual, others):
    plain = getattr(programs, name)
    fast = eager(plain)
    calls = [usual() for _ in range(4)] + [copy.deepcopy(args) for args in others] + [usual()]
    for args in calls:
        given = named(plain, args)
        wanted = outcome(plain, copy.deepcopy(given))
        if fast is not None:
            assert outcome(fast.version, given) == wanted


def states(fast):
    return {record.state for record in fast.records()}


def loop_function_of(name, args, make, calls=5):
    fast = make(getattr(programs, name))
    for _ in range(calls):
        fast.version(*copy.deepcopy(args))
    return fast


@pytest.mark.parametrize("name", ["running_sum", "reversed_down", "swapped", "largest_first"])
def test_loops_run_compiled(eager, name):
    fast = loop_function_of(name, (f8(),), eager)
    assert states(fast) == {"trusted"}
    assert max(record.runs for record in fast.records()) >= 4
    assert not any(record.left for record in fast.records())


@pytest.mark.parametrize(("name", "args"), [
    ("eliminated", (distances(),)), ("reduced", (distances(),)),
    ("along", (distances(), f8(5), 2.0)), ("over_one_place", (f8(), f8())),
    ("reduced_rows", (distances(), f8(5), f8(5)))])
def test_loops_over_rows_run_compiled(eager, name, args):
    fast = loop_function_of(name, args, eager)
    assert states(fast) == {"trusted"}
    assert all(record.runs >= 4 and not record.left for record in fast.records())


@pytest.mark.parametrize(("one", "other"), [
    (slice(9), slice(1, 10)), (slice(0, 8, 2), slice(1, 9, 2)), (slice(0, 8, 2), slice(2, 10, 2)),
    (slice(4), slice(5, 9)), (slice(9), slice(None, 0, -1)), (slice(2, 7), slice(2, 7)),
    (slice(0, 9, 2), slice(1, 6))])
def test_rows_that_share_memory_are_stored_as_numpy_does(eager, one, other):
    fast, results = eager(programs.over_one_place), []
    for _ in range(3):
        fast.version(f8()[one], f8()[other])
    for function in (programs.over_one_place, fast.version):
        x = f8()
        results.append((outcome(function, {"x": x[one], "y": x[other]}), x.tolist()))
    assert results[0] == results[1]
    assert not sum(record.left for record in fast.records())


@pytest.mark.parametrize(("name", "args", "reason"), [
    ("eliminated", (np.eye(4, dtype=int),), "NumPy raises TypeError: float64 is not cast to int64"),
    ("products_of_each", (f8(), f8(4)), "prod of a number (f8)"),
    ("while_less", (f8(), "text"), "Lt of a number (float) and text"),
    ("running_sum", (np.ones(3, np.uint64),), "a value is a uint64 at times, and another number")])
def test_refused_loops_have_reasons(eager, name, args, reason):
    fast = eager(getattr(programs, name))
    with suppress(TypeError):
        for _ in range(3):
            fast.version(*args)
    assert [record.reason.endswith(reason) for record in fast.records()] == [True], fast.records()


def test_loops_with_statements_that_no_program_has_are_refused(eager):
    fast = eager(programs.attempted)
    assert fast.version(f8()).tolist() == programs.attempted(f8()).tolist()
    assert [reason for _, reason in fast.refused] == ["a try statement"]


def test_integers_of_more_than_62_bits_are_left_to_python(eager):
    fast = loop_function_of("growing", (i8(5),), eager)
    for _ in range(3):
        assert fast.version(i8(60)) == programs.growing(i8(60))
    assert [(record.state, record.reason) for record in fast.records()] == [
        ("trusted", ""), ("refused", "an integer of more than 62 bits")]


def test_loops_that_python_has_to_run_often_are_given_up(eager):
    fast = loop_function_of("tabled", (f8(),), eager, 20)
    (record,) = fast.records()
    assert record.state == "refused" and record.reason.startswith("found: a variable is a dict")


def test_a_return_is_no_failure(eager):
    fast = loop_function_of("found_at", (i8(), 3), eager, 8)
    assert states(fast) == {"trusted"}
    assert not fast.records()[0].left


def test_names_of_the_module_may_change(eager, monkeypatch):
    fast = loop_function_of("of_module", (f8(20),), eager)
    monkeypatch.setattr(programs, "LIMIT", 4)
    monkeypatch.setattr(programs, "TABLE", np.arange(10.0) * 2)
    for _ in range(5):
        assert (fast.version(f8(20)) == programs.of_module(f8(20))).all()


def test_arrays_that_overlap_have_code_of_their_own(eager):
    plain = programs.shifted
    fast = loop_function_of("shifted", (f8(12), f8(10)), eager)
    for k in (0, 1, 2, 0, 1, 2):
        one, other = f8(12), f8(12)
        wanted = outcome(plain, {"x": one, "y": one[k:]})
        assert outcome(fast.version, {"x": other, "y": other[k:]}) == wanted
    assert len(fast.records()) == 2 and states(fast) == {"trusted"}


def test_code_that_differs_from_python_is_never_used(eager, monkeypatch):
    """The first parts of a loop are done by both, and compared."""
    monkeypatch.setattr(loop_sites, "_same_memory", lambda one, other: False)
    fast = loop_function_of("reversed_down", (f8(),), eager)
    assert states(fast) == {"refused"}
    assert "another array" in fast.records()[0].reason and not fast.records()[0].runs


def test_a_tracer_sees_every_line(eager):
    """Coverage and debuggers are told of the lines of loops, so Python runs them."""
    fast = loop_function_of("reversed_down", (f8(),), eager)
    runs = fast.records()[0].runs
    lines = set()

    def tracer(frame, event, _):
        lines.add(frame.f_lineno)
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        fast.version(f8())
    finally:
        sys.settrace(before)
    assert programs.reversed_down.__code__.co_firstlineno + 2 in lines
    assert fast.records()[0].runs == runs


def test_errors_of_floating_point_are_raised_at_their_line(eager):
    fast = loop_function_of("divided", (f8(), 2.0), eager)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        fast.version(f8(), np.float64(0.0))


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(eager, seed):
    what, text = check(seed, eager)
    assert what != "WRONG", text


# --------------------------------------------------------------------------- inlined functions


MOST = 2.0


def clamped(x, low, high):
    """Keep a number in bounds."""
    if x < low:
        return low
    if x > high:
        x = high
    return x


def weight(x, y):
    r = x * x + y * y
    r += MOST
    return clamped(math.sqrt(r) / x, 0.0, high_of(y))


def high_of(y):
    return 3.0 if y > 1.0 else 5


def doubled(y):
    return 2.0 * y


def weights(x, y):
    s = 0.0
    for i in range(len(x)):
        for j in range(len(y)):
            s += weight(x[i], y[j])
    return s, len(x)


def grown(x, n):
    return x * n + 1


def counted(x, n):
    s = 1
    for i in range(len(x)):
        s = grown(s, n)
        x[i] = s % 7
    return s, x


def nothing_at_times(x):
    if x > 0.0:
        return x


def maybe(x):
    for i in range(len(x)):
        x[i] = nothing_at_times(x[i])
    return (x,)

def halved_to_one(x):
    while x > 1.0:
        x /= 2.0
    return x


def each_halved(x):
    for i in range(len(x)):
        x[i] = halved_to_one(x[i])
    return (x,)


def assert_same(fast, plain, **args):
    copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in args.items()}
    assert outcome(fast.version, args) == outcome(plain, copies)


def test_functions_that_return_numbers_are_inlined(eager):
    fast = eager(weights)
    for _ in range(6):
        assert_same(fast, weights, x=np.linspace(1.0, 2.0, 4), y=np.linspace(0.0, 2.0, 5))
    assert "trusted" in states(fast) and any(record.runs for record in fast.records())
    for odd in (0.0, math.inf, math.nan):  # a warning in the function that is called, or none
        assert_same(fast, weights, x=np.array([1.0, odd, 2.0]), y=np.array([0.5, 3.0]))


def test_inlined_arithmetic_of_large_integers_is_left_to_python(eager):
    fast = eager(counted)
    for n in (1, 1, 1, 1, 1, 3):
        assert_same(fast, counted, x=np.arange(60), n=n)  # threes: more than 64 bits


def test_inlined_functions_may_change(eager, monkeypatch):
    fast = eager(weights)
    args = {"x": np.linspace(1.0, 2.0, 4), "y": np.linspace(0.0, 2.0, 5)}
    for _ in range(5):
        assert_same(fast, weights, **args)
    for name, value in (("MOST", 9.0), ("clamped", lambda x, low, high: x), ("high_of", high_of)):
        with monkeypatch.context() as patched:
            patched.setitem(globals(), name, value)
            assert_same(fast, weights, **args)
    for _ in range(5):
        assert_same(fast, weights, **args)
    again = eager(weights)
    for code in (high_of.__code__, doubled.__code__, high_of.__code__):
        monkeypatch.setattr(high_of, "__code__", code)
        for _ in range(6):
            assert_same(again, weights, **args)


@pytest.mark.parametrize(("function", "reason"), [
    (each_halved, ""), (maybe, "")])
def test_inlined_functions_may_have_loops_and_return_none_at_times(eager, function, reason):
    fast = eager(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            assert_same(fast, function, x=np.linspace(1.0, 9.0, 5))
        assert states(fast) == {"trusted"}
        assert_same(fast, function, x=np.linspace(-1.0, 9.0, 5))


# --------------------------------------------------------------------------- loops over slices


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
def test_recurrences_over_slices(eager, shape):
    fast = eager(thomas)
    for seed in range(6):
        assert outcome(fast.version, system(seed, shape)) == outcome(thomas, system(seed, shape))


@pytest.mark.parametrize("odd", [np.inf, np.nan, 0.0, 1e-310])
def test_slices_that_numpy_warns_of_are_done_by_python(eager, odd):
    fast = eager(thomas)
    for seed in range(4):
        outcome(fast.version, system(seed))
    assert outcome(fast.version, system(5, odd=odd)) == outcome(thomas, system(5, odd=odd))


def test_slices_of_other_shapes_and_memory(eager):
    fast = eager(smoothed)
    for seed in range(4):
        args = system(seed, (6, 5))
        assert outcome(fast.version, {"x": args["b"], "y": args["d"]}) \
            == outcome(smoothed, {"x": args["b"].copy(), "y": args["d"].copy()})

    def arrays(case):
        x = np.arange(30.0).reshape(6, 5)
        y = {"same": x, "shifted": x[::-1], "short": np.zeros((5, 5)), "one": np.zeros((1, 5)),
             "few": np.zeros((6, 3)), "lapped": as_strided(np.zeros(40), (6, 5), (16, 8)),
             "again": as_strided(np.zeros(40), (6, 5), (0, 8)), "down": np.zeros((6, 10))[::-1, ::2]}
        return {"x": x, "y": y[case]}

    for case in ("same", "shifted", "short", "one", "few", *("lapped", "again", "down") * 4):
        assert outcome(fast.version, arrays(case)) == outcome(smoothed, arrays(case)), case


def test_stores_before_an_error_of_python_stay(eager):
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


def test_large_integers_times_slices(eager):
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


@pytest.mark.parametrize("seed", range(0, 75, 3))
def test_random_programs_over_slices(eager, seed):
    kind, text = check(seed, eager, writes=Slices)
    assert kind != "WRONG", text


# --------------------------------------------------------------------------- tables, warnings


def table():
    t = np.zeros((6, 7))
    t[0], t[:, 0] = np.arange(7.0), 1.5
    return t


@pytest.mark.parametrize("odd", [3, 4.5, (2, 5)])
def test_iterations_before_a_warning_are_kept(eager, odd):
    """The part with the warning is undone; compiled code runs the iterations before, Python the iteration."""
    fast = eager(programs.summed_table)
    for _ in range(4):
        fast.version(table(), np.ones(7), 1e9)
    factors = np.ones(7)
    factors[np.array(odd, int)] = 1e308
    for make in (table, lambda: table()[:, ::-1][:, ::-1], lambda: np.broadcast_to(table()[2], (6, 7)).copy(),
                 lambda: np.repeat(table(), 2, 1)[:, ::2], lambda: table().T.copy().T):
        args = {"t": make(), "x": factors, "most": 1e307 if odd == 3 else 1e9}
        wanted = outcome(programs.summed_table, {**args, "t": make()})
        assert outcome(fast.version, args) == wanted


def test_elements_that_share_memory_with_others_of_their_array(eager):
    fast = eager(programs.summed_table)
    for k in range(5):
        results = []
        for function in (programs.summed_table, fast.version):
            memory = np.arange(20.0)
            t = np.lib.stride_tricks.as_strided(memory, (6, 7), (16, 8))
            x = np.full(7, 1.0 if k < 3 else 1e307)
            results.append(repr(outcome(function, {"t": t, "x": x, "most": 1e9})) + repr(memory))
        assert results[0] == results[1]


def test_integers_that_overflow_wrap_with_a_warning(eager):
    fast, letters = eager(programs.lengths_of_paths), np.arange(8) % 3
    for start in (0, 0, 0, 0, 125, 127, 122):
        args = {"a": letters, "b": letters[::-1], "t": np.full((9, 9), start, np.int8), "most": 126}
        wanted = outcome(programs.lengths_of_paths, {**args, "t": args["t"].copy()})
        assert outcome(fast.version, args) == wanted


def test_handlers_of_warnings_see_the_elements_of_python(eager, monkeypatch):
    """When a warning is shown, all iterations before are done, and none after."""
    fast, seen = eager(programs.summed_table), {"plain": [], "fast": []}
    for _ in range(4):
        fast.version(table(), np.ones(7), 1e9)
    for name, function in (("plain", programs.summed_table), ("fast", fast.version)):
        t = table()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            monkeypatch.setattr(
                warnings, "showwarning", lambda *args, t=t, name=name: seen[name].append(t.tobytes()))
            function(t, np.full(7, 1e200), np.inf)
        seen[name].append(t.tobytes())
    assert len(seen["plain"]) > 1 and seen["plain"] == seen["fast"]


@pytest.mark.parametrize("plain", adversarial.PROGRAMS, ids=lambda plain: plain.__name__)
def test_programs_that_fail(eager, plain):
    fast = eager(plain)
    for kind in adversarial.KINDS:
        assert not adversarial.compared(plain, fast.version, kind, 24)
