"""Loops over elements by any means: everything observable is what Python makes of it."""

from __future__ import annotations

import copy
import sys
from contextlib import suppress

import numpy as np
import pytest

from jitla.loopjit import policy as entry_module
from jitla.loopjit import policy as variants
from tests.loopjit import adversarial, emulated, programs
from tests.loopjit.fuzz import check, outcome

# Whatever runs a loop over elements, everything that can be seen is what Python makes of it.


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


# Function; arguments of the calls by which it is compiled; those of calls that compiled code begins.
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
def test_all_that_can_be_seen_is_the_same(eager, name, usual, others):
    plain = getattr(programs, name)
    fast = eager(plain)
    calls = [usual() for _ in range(4)] + [copy.deepcopy(args) for args in others] + [usual()]
    for args in calls:
        given = named(plain, args)
        wanted = outcome(plain, copy.deepcopy(given))
        if fast is not None:
            assert outcome(fast.version, given) == wanted


@pytest.mark.parametrize(("name", "args"), [
    ("shortest", (distances(), distances())), ("gathered", (f8(), i8(), f8())), ("scattered", (f8(), 1, 9))])
def test_nests_that_do_much_with_few_elements_are_begun_again_if_anything_is_wrong(eager, name, args):
    fast = compiled(eager, name, args)
    assert "def quick(" in next(iter(fast.entries[0].variants.values())).code.kernel.text
    assert states(fast) == {"trusted"}


def states(fast):
    return {record.state for record in fast.records()}


def compiled(make, name, args, calls=5):
    fast = make(getattr(programs, name))
    for _ in range(calls):
        fast.version(*copy.deepcopy(args))
    return fast


@pytest.mark.parametrize("name", ["running_sum", "reversed_down", "swapped", "largest_first"])
def test_compiled_code_runs_what_it_may(eager, name):
    fast = compiled(eager, name, (f8(),))
    assert states(fast) == {"trusted"}
    assert all(record.runs == 2 and not record.left for record in fast.records())


@pytest.mark.parametrize(("name", "args"), [("products", (f8(), f8())), ("running_sum", (f8(),))])
def test_elements_are_kept_where_loops_may_be_done_again(eager, name, args):
    fast = compiled(eager, name, args)
    made = next(iter(fast.entries[0].variants.values())).code.kernel
    assert "spare(" in made.text
    assert states(fast) == {"trusted"}


@pytest.mark.parametrize(("name", "args"), [
    ("eliminated", (distances(),)), ("reduced", (distances(),)),
    ("along", (distances(), f8(5), 2.0)), ("over_one_place", (f8(), f8())),
    ("reduced_rows", (distances(), f8(5), f8(5)))])
def test_rows_run_compiled(eager, name, args):
    fast = compiled(eager, name, args)
    assert states(fast) == {"trusted"}
    assert all(record.runs == 2 and not record.left for record in fast.records())


@pytest.mark.parametrize(("one", "other", "left"), [
    (slice(9), slice(1, 10), 1), (slice(0, 8, 2), slice(1, 9, 2), 0), (slice(0, 8, 2), slice(2, 10, 2), 1),
    (slice(4), slice(5, 9), 0), (slice(9), slice(None, 0, -1), 1), (slice(2, 7), slice(2, 7), 0),
    (slice(0, 9, 2), slice(1, 6), 1)])
def test_rows_that_share_memory_are_stored_as_numpy_does(eager, one, other, left):
    fast, results = eager(programs.over_one_place), []
    for _ in range(3):
        fast.version(f8()[one], f8()[other])
    for function in (programs.over_one_place, fast.version):
        x = f8()
        results.append((outcome(function, {"x": x[one], "y": x[other]}), x.tolist()))
    assert results[0] == results[1]
    assert sum(record.left for record in fast.records()) == left


@pytest.mark.parametrize(("name", "args", "reason"), [
    ("twice_sliced", (f8(),), "a slice of a slice"), ("eliminated", (np.eye(4, dtype=int),), "a row of i8"),
    ("along", (distances(), f8(5), True), "a value that is no number among rows"),
    ("exponentials", (f8(),), "a call of np.exp"), ("sums_of_each", (f8(), f8(4)), "a[i] is no row"),
    ("added", (np.ones((3, 3)),), "rows, and no elements"),
    ("added", (np.ones(3, complex),), "x is an array of complex128"),
    ("while_less", (f8(), "text"), "limit is a str"),
    ("running_sum", (np.ones(3, np.uint64),), "x is an array of uint64"),
])
def test_what_is_refused_says_why(eager, name, args, reason):
    fast = eager(getattr(programs, name))
    assert fast.alone(args, {}) == (name == "exponentials")
    with suppress(TypeError):
        for _ in range(3):
            fast.version(*args)
    assert [record.reason for record in fast.records()] == [reason]


@pytest.mark.parametrize("name", ["listed", "attempted", "each_of", "waiting"])
def test_functions_without_loops_over_elements_have_no_version(eager, name):
    found = eager(getattr(programs, name))
    assert found is None or found.refused and not found.entries


def test_overflow_is_finished_by_python(eager):
    fast = compiled(eager, "growing", (i8(5),))
    assert fast.version(i8(60)) == programs.growing(i8(60))
    assert fast.records()[0].left == 1


def test_what_python_has_to_finish_often_it_runs(eager):
    fast = compiled(eager, "growing", (i8(5),), 4)
    for _ in range(10):
        fast.version(i8(60))
    assert states(fast) == {"refused"}


def test_a_return_is_no_failure(eager):
    fast = compiled(eager, "found_at", (i8(), 3), 8)
    assert states(fast) == {"trusted"}
    assert not fast.records()[0].left


def test_names_of_the_module_may_change(eager, monkeypatch):
    fast = compiled(eager, "of_module", (f8(20),))
    monkeypatch.setattr(programs, "LIMIT", 4)
    monkeypatch.setattr(programs, "TABLE", np.arange(10.0) * 2)
    for _ in range(5):
        assert (fast.version(f8(20)) == programs.of_module(f8(20))).all()


def test_arrays_that_overlap_are_not_compared_but_run(eager):
    plain = programs.shifted
    fast, shared = eager(plain), f8(12)
    for _ in range(5):
        fast.version(shared, shared[2:])
    assert fast.records()[0].runs == 0
    fast = compiled(eager, "shifted", (f8(12), f8(10)))
    for k in (0, 1, 2):
        one, other = f8(12), f8(12)
        wanted = outcome(plain, {"x": one, "y": one[k:]})
        assert outcome(fast.version, {"x": other, "y": other[k:]}) == wanted
    assert fast.records()[0].runs == 5


@pytest.mark.parametrize(("one", "other", "apart"), [
    (slice(0, 4), slice(4, 8), True), (slice(0, 4), slice(3, 7), False), (slice(4), slice(4, 2, -1), False),
    (slice(0, 8, 2), slice(1, 9, 2), True), (slice(0, 8, 2), slice(2, 10, 2), False),
    (slice(3, None, -1), slice(4, 8), True), (slice(0, 9, 3), slice(1, 6, 2), False)])
def test_compilers_are_told_that_arrays_share_no_memory_only_where_they_do_not(
        eager, monkeypatch, one, other, apart):
    told, at, space = [], np.array([1, 0, 2, 1]), eager.__globals__["SPACE"]
    monkeypatch.setitem(space, "raised", lambda seen, asked=space["raised"]: told.append(1) or asked(seen))
    fast = eager(programs.gathered)
    for _ in range(3):
        fast.version(f8()[one], at, f8()[other])
    told.clear()
    found, wanted = f8(), f8()
    fast.version(found[one], at, found[other])
    programs.gathered(wanted[one], at, wanted[other])
    assert found.tolist() == wanted.tolist()
    assert bool(told) == apart


def test_what_differs_is_never_used(eager, monkeypatch):
    monkeypatch.setitem(eager.__globals__["SPACE"], "int64", lambda value: int(value) * 1)
    monkeypatch.setitem(eager.__globals__["SPACE"], "float64", lambda value: float(value) + 1.0)
    fast = compiled(eager, "reversed_down", (f8(),))
    assert states(fast) == {"refused"}
    assert "made another" in fast.records()[0].reason


def test_a_tracer_sees_every_line(eager):
    """Coverage and debuggers are told of the lines of loops, so Python runs them."""
    fast = compiled(eager, "reversed_down", (f8(),))
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
    fast = compiled(eager, "divided", (f8(), 2.0))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        fast.version(f8(), np.float64(0.0))


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(eager, seed):
    what, text = check(seed, eager)
    assert what != "WRONG", text


def test_runs_that_are_short_beside_others_do_not_say_what_is_faster(eager, monkeypatch):
    """The clock is asked where a run of Python begins and ends, and thrice more where both run."""
    short, long = (5, 5, 6, 6, 6.1), (5, 5, 6, 6, 16)
    clock = iter((0, 10, *short, *short, *long))
    fast = eager(programs.running_sum)
    monkeypatch.setattr(entry_module, "SHORTER", 0.5)
    monkeypatch.setattr(entry_module, "SLOWER", 0.9)
    monkeypatch.setattr(entry_module, "LONG", 100.0)
    for module in (entry_module, variants):
        monkeypatch.setattr(module, "perf_counter", lambda: next(clock))
    for state in ("tried", "tried", "tried", "trusted"):
        fast.version(f8())
        assert states(fast) == {state}


def test_some_runs_are_timed_while_a_nest_is_compiled(eager, monkeypatch):
    monkeypatch.setattr(emulated.Foreman, "submit", lambda self, task: None)
    fast = eager(programs.running_sum)
    for _ in range(17):
        fast.version(f8())
    assert fast.records()[0].plain == 1 + 2 * entry_module.SAMPLED


# Loops that are meant to go wrong are the same through emulated kernels.


@pytest.mark.parametrize("plain", adversarial.PROGRAMS, ids=lambda plain: plain.__name__)
def test_what_goes_wrong_goes_wrong_as_in_python(plain, monkeypatch):
    emulated.eager(monkeypatch.setattr)
    loops = emulated.version(plain)
    for kind in ("float64", "uint8", "int64"):
        assert not adversarial.compared(plain, loops.version, kind, 12)
    assert not emulated.FAULTS
