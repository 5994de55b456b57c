"""Loops that are entered natively: results, errors, warnings and memory are those of Python."""

from __future__ import annotations

import copy
import gc
import math
import sys
import threading
import warnings

import numpy as np
import pytest

from jitla.codegen.native import loop_entry
from jitla.errors import BackendError
from jitla.loopjit import loop_sites
from jitla.loopjit.specialisations import State
from jitla.runtime.entry_table import EntryWord
from tests.loopjit import compiled
from tests.loopjit.random_functions import outcome

SCALE = 2.0


def f8(n=10):
    return np.arange(n) + 0.5


def native_runs(fast):
    """The runs that native entry has done, of all loops of a function."""
    return sum(int(x.entry.table[EntryWord.RUNS]) for site in fast.sites
               for x in site.specialisations.values() if x.entry is not None)


def same_as_plain(fast, plain, args):
    """Call both with copies of the arguments, and compare all that they do."""
    names = plain.__code__.co_varnames
    results = []
    for function in (plain, fast.version):
        given = dict(zip(names, copy.deepcopy(args), strict=False))
        results.append(outcome(lambda f=function, **values: (f(**values),), given))
    assert results[0] == results[1]


def entered(eager, plain, args, calls=4):
    """Return a function that is entered natively for such arguments."""
    fast = eager(plain)
    for _ in range(12):
        same_as_plain(fast, plain, args)
        if native_runs(fast):
            break
    before = native_runs(fast)
    for _ in range(calls):
        same_as_plain(fast, plain, args)
    assert native_runs(fast) >= before + calls, [
        x.entry_refusal for site in fast.sites for x in site.specialisations.values()]
    return fast


# --------------------------------------------------------------------------- kinds of operands and results


def scaled(x, a, n):
    s = a
    for i in range(n):
        s = s * a
        x[i] = x[i] + 1
    return s, a, n, i


def each(x, a):
    s = 0.0
    for v in x:
        s += v * a
    return s


def numbered(x, a):
    best, at = a, -1
    for k, v in enumerate(x, 3):
        if v > best:
            best, at = v, k
    return best, at


def paired(x, y):
    s = 0.0
    for a, b in zip(x, y):  # noqa: B905
        s += a * b
    return s


def stepped(x, begin, end, step):
    s = 0.0
    for i in range(begin, end, 3):
        s += x[i]
    for j in range(begin, end, -2):
        s += 2 * x[j]
    return s, step


def halved(x, a):
    while a > 1.0:
        a = a / 2
        x[0] += 1.0
    return a, x


def of_pair(x, pair, table):
    s = 0.0
    for i in range(len(x)):
        s += x[i] * pair[0] + pair[1] + table[2]
    return s, pair


def largest(x, none):
    best = none
    for i in range(len(x)):
        if best is None or x[i] > best:
            best = x[i]
    return best


def rows(t, out):
    for k in range(t.shape[0]):
        out[k] = t[k, 1] * SCALE
    last = out
    return last, k


def kept_row(t):
    for k in range(t.shape[0]):
        row = t[k]
    return row, k


def unassigned(x, n):
    for i in range(n):
        last = x[i]
    if n:
        return last
    return "none"


CASES = [
    (scaled, (f8(), 2, 6)), (scaled, (f8(), -2, 6)), (scaled, (f8(), 1.5, 6)), (scaled, (f8(), True, 6)),
    (scaled, (f8(), 1 + 2j, 4)), (scaled, (f8()[::-2], 2.0, 4)),
    (scaled, (np.arange(7, dtype=np.int16), 3, 5)),
    *((scaled, (f8(), kind(1), 5)) for kind in (
        np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.float32, np.float64,
        np.complex64, np.complex128)),
    (scaled, (f8(), 2.0, np.int64(5))), (each, (f8(), 2**40)), (each, (f8(), -2**52)),
    (scaled, (f8(), 2.0, 1)),
    (each, (f8(), 2)), (each, (f8()[::3], 2.0)), (each, (np.arange(5, dtype=np.uint8), 3)),
    (numbered, (f8(), 3.0)), (numbered, (f8(), np.float64(30.0))), (paired, (f8(), f8(7))),
    (paired, (f8(7), f8(4)[::-1])), (stepped, (f8(), 1, 9, 3)), (stepped, (f8(), 8, 0, -2)),
    (halved, (f8(), 100.0)), (halved, (f8(), np.float64(0.5))), (of_pair, (f8(), (1.5, 2), [1, 2, 3.5])),
    (rows, (np.ones((3, 4)), np.zeros(5))), (rows, (np.ones((4, 3)).T, np.zeros(9)[::2])),
    (kept_row, (np.arange(12.0).reshape(3, 4),)), (unassigned, (f8(), 4)),
]


@pytest.mark.parametrize(("plain", "args"), CASES, ids=[f"{c[0].__name__}{k}" for k, c in enumerate(CASES)])
def test_short_runs_are_entered_natively(eager, plain, args):
    fast = entered(eager, plain, args)
    found = [x for site in fast.sites for x in site.specialisations.values() if x.entry]
    assert all(x.state is State.READY for x in found)


OTHERS = [
    (f8(), 2, 3), (f8(), 2.0, 3), (f8(), -3, 3), (f8(), 2**40, 2), (f8(), 2**70, 3), (f8(), np.float32(2), 3),
    (f8(), 2, 0), (f8(), 2, -3), (f8(), 2, 40), (f8().astype(np.float32), 2, 3), (f8().astype(int), 2, 3),
    (f8()[::2], 2, 3), (f8(16)[8:], 2, 3), (np.zeros((4, 3)), 2, 3), (f8(), "text", 3), (f8(), 2, 2.0),
    (f8(), None, 3), (f8(), 2, 2**33), (f8(), False, 3), (f8(), 2, True), (f8(), 2, np.int32(3)),
    (f8().view(np.ma.MaskedArray), 2, 3), (f8().astype(">f8"), 2, 3), ([1.0, 2.0, 3.0], 2, 3)]


def test_other_kinds_of_operands_are_left_to_python(eager):
    fast = entered(eager, scaled, (f8(), 2, 6))
    for args in OTHERS * 2:
        same_as_plain(fast, scaled, args)
        same_as_plain(fast, scaled, (f8(), 2, 6))


def convolved(x, w, out):
    for i in range(len(out)):
        out[i] = np.sum(x[i:i + 2] * w, axis=(0, 1))
    return out


@pytest.mark.parametrize("axes", [(1, 3), (3, 1)])
def test_axes_of_one_element_belong_to_the_kinds_of_operands(eager, axes):
    fast = eager(convolved)
    for n in (*axes, *axes):
        args = f8(6 * n).reshape(6, n, 1), f8(2 * n * 4).reshape(2, n, 4), np.zeros((5, 4))
        for _ in range(20):
            same_as_plain(fast, convolved, args)
    assert native_runs(fast)


def test_arrays_that_are_read_only_or_not_aligned(eager):
    fast = entered(eager, scaled, (f8(), 2, 6))
    frozen = f8()
    frozen.flags.writeable = False
    odd = np.frombuffer(bytearray(81), np.uint8)[1:].view(np.float64)
    for x in (frozen, odd):
        for _ in range(3):
            errors = []
            for function in (scaled, fast.version):
                try:
                    errors.append(function(x, 2, 6))
                except ValueError as error:
                    errors.append(str(error))
            assert errors[0] == errors[1]


# --------------------------------------------------------------------------- identity, exits, positions


def test_operands_come_back_as_the_same_objects(eager):
    fast = entered(eager, rows, (np.ones((3, 4)), np.zeros(5)))
    out = np.zeros(5)
    assert fast.version(np.ones((3, 4)), out)[0] is out


def found_at(x, v):
    for i in range(len(x)):
        if x[i] == v:
            return i, "returned"
        if x[i] > 8.0:
            break
        if x[i] < 0.0:
            raise ValueError(i)
    else:
        return "exhausted"
    return "broken", i


@pytest.mark.parametrize("args", [(f8(), 3.5), (f8(6), 77.0), (f8(), 77.0), (-f8(), 77.0), (f8(0), 1.0)])
def test_ends_of_loops(eager, args):
    fast = eager(found_at)
    for _ in range(5):
        same_as_plain(fast, found_at, args)


def test_loops_in_loops_of_python_end_where_they_do(eager):
    def sums(x, n):
        found = []
        for k in [1, 2, 3]:
            s = 0.0
            for i in range(n):
                s += x[i] * k
            else:
                found.append(s)
                if k == 2:
                    continue
            found.append(k)
        return found

    fast = eager(sums)
    for n in (4, 4, 4, 4, 0, 4):
        assert fast.version(f8(), n) == sums(f8(), n)


def test_while_loops_of_many_iterations_are_continued(eager):
    def counted(x, n):
        i = 0
        while i < n:
            x[i % 7] += i
            i += 1
        return i

    fast = entered(eager, counted, (f8(), 20))
    for site in fast.sites:
        for x in site.specialisations.values():
            x.entry.table[EntryWord.ENDLESS] = 8
    for n in (7, 8, 9, 16, 30):
        same_as_plain(fast, counted, (f8(), n))


# --------------------------------------------------------------------------- undone iterations, warnings


def spread(x, at, out):
    for i in range(len(at)):
        x[i] = x[i] + 1.0
        out[at[i]] = 1.0 / x[i]
    return i


AT = np.array([3, 1, 2])


@pytest.mark.parametrize("layout", [lambda a: a, lambda a: a[::-1], lambda a: np.repeat(a, 2)[::2],
                                    lambda a: np.stack([a, a], 1)[:, 1]])
def test_iterations_that_fail_are_undone(eager, layout):
    fast = entered(eager, spread, (layout(f8()), AT, layout(f8())))
    for at in ([3, 1, 99], [99, 1], [3, -1, 2], [0, -99, 2], [3, 1, 2]):
        args = layout(f8()), np.array(at), layout(f8())
        mine = copy.deepcopy(args)
        for function in (spread, fast.version):
            values = args if function is spread else mine
            try:
                result = function(*values)
            except IndexError as error:
                result = str(error)
            if function is spread:
                wanted = result
        assert result == wanted and all(np.array_equal(a, b) for a, b in zip(args, mine, strict=True))


def test_elements_between_those_of_an_array_are_not_restored(eager):
    """Another thread may have changed them."""
    memory = np.zeros(40)
    fast = entered(eager, spread, (f8(), AT, np.zeros(40)[::4]))
    memory[1::2] = 5.0
    with pytest.raises(IndexError):
        fast.version(f8(), np.array([1, 99]), memory[::4])
    assert memory[4] and (memory[1::2] == 5.0).all()


def test_warnings_come_from_python(eager):
    fast = entered(eager, spread, (f8(), AT, f8()))
    for x in (np.array([-1.0, 2.0, 3.0]), np.array([1.0, -1.0, 3.0]), np.full(3, np.nan)):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            same_as_plain(fast, spread, (x, AT, f8()))
    before = native_runs(fast)
    with np.errstate(divide="ignore"):
        same_as_plain(fast, spread, (np.array([-1.0, 2.0, 3.0]), AT, f8()))
    assert native_runs(fast) == before + 1
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        fast.version(np.array([-1.0, 2.0, 3.0]), AT, f8())
    before = native_runs(fast)
    with np.errstate(under="warn"):
        same_as_plain(fast, spread, (f8(), AT, f8()))
    assert native_runs(fast) == before


def test_programs_that_are_undone_often_are_not_entered_any_more(eager):
    fast = entered(eager, spread, (f8(), AT, f8()))
    for _ in range(60):
        same_as_plain(fast, spread, (f8(), np.full(len(AT), 99), f8()))
    (entry,) = [x.entry for site in fast.sites for x in site.specialisations.values() if x.entry] or [None]
    assert entry is None or entry.table[EntryWord.DISABLED]


# --------------------------------------------------------------------------- guards


def helped(x):
    s = 0.0
    for i in range(len(x)):
        s += helper(x[i]) * SCALE + math.sqrt(x[i]) + TABLE[1]
    return s


def helper(v, w=1.0):
    return v + w


def other_helper(v, w=1.0):
    return v - w


TABLE = [1.0, 2.0, 3.0]


def test_names_and_functions_may_change(eager, monkeypatch):
    fast = entered(eager, helped, (f8(),))

    def compare():
        for _ in range(3):
            same_as_plain(fast, helped, (f8(),))

    with monkeypatch.context() as patched:
        patched.setitem(globals(), "SCALE", 3.0)
        compare()
    compare()
    with monkeypatch.context() as patched:
        patched.setattr(helper, "__code__", other_helper.__code__)
        compare()
    with monkeypatch.context() as patched:
        patched.setattr(helper, "__defaults__", (5.0,))
        compare()
    with monkeypatch.context() as patched:
        patched.setattr(math, "sqrt", math.cos)
        compare()
    for change in (lambda: TABLE.append(1.0), lambda: TABLE.__setitem__(1, 7.0), lambda: TABLE.pop(0),
                   lambda: TABLE.insert(0, 1.0)):
        change()
        compare()
    TABLE[:] = [1.0, 2.0, 3.0]
    before = native_runs(fast)
    compare()
    assert native_runs(fast) >= before
    with monkeypatch.context() as patched:
        patched.setitem(globals(), "range", lambda n: [1, 0])
        compare()


def test_variables_of_enclosing_functions_may_change(eager):
    factor = 2.0

    def inner(v):
        return v * factor

    def outer(x):
        s = 0.0
        for i in range(len(x)):
            s += inner(x[i])
        return s

    fast = eager(outer)
    for value in (2.0, 2.0, 2.0, 2.0, 3.0, 2.0, 4, 2.0):
        factor = value
        assert fast.version(f8()) == outer(f8())


def test_tracers_see_every_line(eager):
    fast = entered(eager, each, (f8(), 2.0))
    lines, before, runs = set(), sys.gettrace(), native_runs(fast)

    def tracer(frame, event, _):
        lines.add(frame.f_lineno)
        return tracer

    sys.settrace(tracer)
    try:
        fast.version(f8(), 2.0)
    finally:
        sys.settrace(before)
    assert each.__code__.co_firstlineno + 3 in lines and native_runs(fast) == runs


@pytest.mark.parametrize("offset", [0, 1, 9, 10, 12])
def test_overlaps_are_those_the_program_was_compiled_for(eager, offset):
    def shifted(x, y):
        for i in range(len(x)):
            y[i] = x[i] + 1.0
        return y

    fast = entered(eager, shifted, (f8(), f8()))
    results = []
    for function in (shifted, fast.version):
        for _ in range(3):
            memory = f8(30)
            function(memory[:10], memory[offset:offset + 10])
        results.append(memory.tolist())
    assert results[0] == results[1]


# --------------------------------------------------------------------------- threads, memory, profiles


def with_temporary(x, y, n):
    for _ in range(n):
        t = x + y
        y[:] = t * 0.5
    return y


def test_threads_and_temporary_arrays(eager):
    fast, wanted, wrong = entered(eager, with_temporary, (f8(), f8(), 3)), [], []
    wanted = [with_temporary(f8() * k, f8(), 5) for k in range(4)]

    def work(k):
        for _ in range(400):
            if not np.array_equal(fast.version(f8() * k, f8(), 5), wanted[k]):
                wrong.append(k)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for site in fast.sites:
            for x in site.specialisations.values():
                x.entry.table[EntryWord.HOLD_NANOSECONDS] = 0  # the lock is released in each run
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_larger_temporary_arrays_than_before(eager):
    fast = entered(eager, with_temporary, (f8(), f8(), 3))
    for n in (300_000, 10, 300_000, 10):
        assert np.array_equal(fast.version(f8(n), f8(n), 2), with_temporary(f8(n), f8(n), 2))
    before = native_runs(fast)
    for _ in range(3):
        same_as_plain(fast, with_temporary, (f8(), f8(), 3))
    assert native_runs(fast) > before


@pytest.mark.parametrize(("plain", "args"), [
    (scaled, (f8(), 2.5, 6)), (rows, (np.ones((3, 4)), np.zeros(5))),
    (kept_row, (np.ones((3, 4)),)), (halved, (f8(), 9.0)), (of_pair, (f8(), (1.5, 2), [1, 2, 3.5]))])
def test_no_reference_is_lost_or_left(eager, plain, args):
    fast = entered(eager, plain, args)
    counts = [sys.getrefcount(value) for value in args]
    for _ in range(300):
        fast.version(*args)
    gc.collect()
    blocks = sys.getallocatedblocks()
    for _ in range(1000):
        fast.version(*args)
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 300
    assert all(abs(sys.getrefcount(value) - count) < 100 for value, count in zip(args, counts, strict=True))


def test_records_count_native_runs(eager):
    fast = eager(each)
    for _ in range(20):
        fast.version(f8(), 2.0)
    record = max(fast.records(), key=lambda record: record.runs)
    assert record.runs == 19 and record.state == "trusted" and 0.0 < record.compiled < 1.0
    x = next(x for x in fast.sites[0].specialisations.values() if x.entry)
    assert x.compiled_iterations == 190 and x.entries == 20


def test_code_that_loses_time_is_given_up(eager):
    fast = entered(eager, each, (f8(), 2.0))
    for site in fast.sites:
        for x in site.specialisations.values():
            x.seconds, x.iterations = 1e-9, 1
    for _ in range(20):
        same_as_plain(fast, each, (f8(), 2.0))
    assert fast.sites[0].disabled == (each.__code__.co_firstlineno + 2, loop_sites.LOSS)


def test_objects_of_other_layouts_are_refused(monkeypatch):
    loop_entry._require_layouts()
    monkeypatch.setattr(loop_entry, "_error_modes", lambda: (0, 0, 0, 0))
    with pytest.raises(BackendError):
        loop_entry._require_layouts()


# --------------------------------------------------------------------------- runs that are not measured


def test_short_runs_by_python_are_sampled(monkeypatch):
    monkeypatch.setattr(loop_sites, "SAMPLED_SECONDS", 1.0)
    fast = compiled.loop_function(each, hot_seconds=10.0)
    for _ in range(300):
        assert fast.version(f8(3), 2.0) == each(f8(3), 2.0)
    x = next(iter(fast.sites[0].specialisations.values()))
    assert x.samples < 100 <= x.entries <= 300
    long = x.iterations
    fast.version(f8(20_000), 2.0)  # operands of another extent are measured
    assert x.iterations > long + 10_000


def test_while_loops_that_are_not_measured_end_where_they_do(monkeypatch):
    monkeypatch.setattr(loop_sites, "SAMPLED_SECONDS", 1.0)
    fast = compiled.loop_function(halved, hot_seconds=10.0)
    for a in (9.0,) * 40 + (1e300, 0.5, 1e10, 9.0):
        same_as_plain(fast, halved, (f8(), a))


def test_very_short_loops_are_left_to_python(monkeypatch):
    monkeypatch.setattr(loop_sites, "SHORT_RUN_SECONDS", 1.0)
    fast = compiled.loop_function(each, hot_seconds=10.0)
    for _ in range(3000):
        fast.version(f8(3), 2.0)
    assert fast.sites[0].disabled == (each.__code__.co_firstlineno + 2, loop_sites.SHORT)


def test_variables_of_several_types(eager):
    def nearest(x, v):
        best = None
        for i in range(len(x)):
            if best is None or abs(x[i] - v) < best[0]:
                best = abs(x[i] - v), i
        return best

    def summed(t, acc):
        for k in range(t.shape[0]):
            acc = acc + t[k]
        return acc

    t = np.ones((3, 4))
    for plain, args in ((nearest, (f8(), 4.2)), (summed, (t, 0)), (summed, (t, f8(4)))):
        entered(eager, plain, args)
