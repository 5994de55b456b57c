"""The native methods of a session and the native table of layouts do what Python's do."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import weakref
from pathlib import Path
from types import FunctionType, MethodDescriptorType

import numpy as np
import pytest

import jitla
from jitla.codegen import LlvmBackend
from jitla.runtime import layout_table, native_methods
from jitla.tracing.boundary import MIN_RELEASE_COUNT, Boundary
from jitla.tracing.lazy import LazyArray, LazyScalar
from jitla.tracing.open_tape import Tape
from jitla.tracing.session import Session
from jitla.tracing.site import Site
from jitla.tracing.tape import LAYOUT_CACHE, LAYOUTS, OP_ID, layout_id, meta_id

# The native methods of a session do what Python's do, and keep no reference too many or too few.

ROOT = Path(__file__).parents[2]
NAMES = ("arguments", "detach", "enter", "leave", "put", "repeats")


@jitla.jit
def first(x):
    return x + x


first(np.ones(3))
OWNERS = {name: Boundary if name == "arguments" else Tape for name in NAMES}
NATIVE = {name: OWNERS[name].__dict__[name] for name in NAMES}
PYTHON = native_methods().replaced
both = pytest.mark.parametrize("how", [NATIVE, PYTHON], ids=["native", "python"])


def session() -> Session:
    return Session(Site("test", None, False))


def known(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """The arrays, whose layouts have been seen."""
    for a in arrays:
        LAYOUT_CACHE.add(a)
    return arrays


def test_the_native_methods_are_in_use():
    assert native_methods().installed
    assert all(type(m) is MethodDescriptorType for m in NATIVE.values())
    assert all(type(m) is FunctionType for m in PYTHON.values())
    assert all(NATIVE[name].__doc__ == PYTHON[name].__doc__ for name in NAMES)


@pytest.mark.parametrize("unusual", ["", "lines", "views", "tables", "immediate", "more", "list"])
def test_detaches_as_python_does(unusual):
    a, b = known(np.zeros((3, 4)), np.zeros((3, 4)))
    found = []
    for how in (NATIVE, PYTHON):
        mine = session()
        mine.tape.lines = {} if unusual == "lines" else None
        mine.tape.reset()
        x, y = how["arguments"](mine.boundary, (a, b))
        how["enter"](mine.tape, x), how["enter"](mine.tape, y)
        made = how["put"](mine.tape, LazyArray, (OP_ID["add"], 0, 1), x._m)
        other = how["put"](mine.tape, LazyArray, (OP_ID["add"], 2, -5), x._m, 2.0)
        if unusual == "views":
            mine.tape.views[3] = (made, "copy", ())
        if unusual == "tables":
            mine.tape.tables[0] = x
        mine.tape.immediate = unusual == "immediate"
        alive = [2, 3] if unusual == "list" else (2, 3)
        before = mine.tape.ops, mine.tape.nodes, mine.tape.leaves, mine.tape.scalars
        count, alive = (3, alive[:1]) if unusual == "more" else (4, alive)
        parts = how["detach"](mine.tape, count, alive)
        assert type(parts) is tuple
        assert all(one is two for one, two in zip(parts, before, strict=False))
        assert mine.tape.running is parts
        tape = mine.tape
        assert (tape.ops, tape.leaves, tape.scalars, tape.entered, tape.tables) == ([], [], [], [], {})
        assert len(mine.tape.nodes) == 0
        assert made._n == other._n == x._n == y._n == -1
        found.append((len(parts[1]), parts[4:], sys.getrefcount(parts[0]), sys.getrefcount(parts)))
        if unusual == "more":
            assert np.array_equal(other._v, a + b + 2.0)
    assert str(found[0]) == str(found[1])


def test_detaching_keeps_no_reference():
    a, b = known(np.zeros((3, 4)), np.zeros((3, 4)))
    mine = session()
    mine.tape.lines = None
    mine.tape.reset()
    counts = []
    for _ in range(3):
        for _ in range(100):
            x, y = mine.boundary.arguments((a, b))
            mine.tape.enter(x), mine.tape.enter(y)
            made = mine.tape.put(LazyArray, (OP_ID["add"], 0, 1), x._m)
            mine.tape.detach(3, (2,))
            mine.tape.running = None
            mine.boundary.foreigners.clear()
            del x, y, made
        counts.append((sys.getrefcount(a), sys.getrefcount(mine), sys.getrefcount(-1), sys.getrefcount(None),
                       sys.getrefcount(mine.tape.views)))
    assert counts[1][:3] == counts[2][:3] and counts[1][4] == counts[2][4]
    assert abs(counts[1][3] - counts[2][3]) < 20


class Own(np.ndarray):
    """A kind of array of the user's."""


def kinds() -> tuple:
    """Arguments of all kinds."""
    a, b = known(np.zeros((3, 4)), np.zeros(5, "f4"))
    return (a, b, a, a[1:], a.T, a[::2, ::-1], np.float64(2.0), 3, None, "text", [a], np.array(1.0),
            np.zeros(3, object), np.zeros(2, "M8[s]"), np.ma.zeros(3), np.zeros(3, ">f8"),
            np.zeros(3).view(Own), np.zeros((1, 1, 1, 1, 1, 2)), np.zeros((2, 0)), np.broadcast_to(b, (2, 5)),
            np.frombuffer(b"12345678"), first, (a, b))


def described(made: tuple, mine: Session, given: tuple) -> list:
    """What can be compared of proxies in two sessions."""
    found = []
    for m, g in zip(made, given, strict=True):
        if type(m) is LazyArray:
            assert m._v is g
            is_known = mine.boundary.foreigners[id(g)] is m
            found.append((m._s is mine, m._n, m._m, m._l, is_known, hasattr(m, "_r")))
        else:
            assert m is g
            found.append(None)
    return found


@pytest.mark.parametrize("count", [0, 1, MIN_RELEASE_COUNT, MIN_RELEASE_COUNT + 1, 30])
def test_takes_in_as_python_does(count):
    more = known(*(np.zeros(n + 1) for n in range(count)))
    for given in (more, (*kinds(), *more), (*more, *kinds())):
        one, other = session(), session()
        native, python = NATIVE["arguments"](one.boundary, given), PYTHON["arguments"](other.boundary, given)
        assert type(native) is type(python) is tuple
        assert described(native, one, given) == described(python, other, given)
        assert [*one.boundary.foreigners] == [*other.boundary.foreigners]
        assert one.boundary.release_count == other.boundary.release_count


def test_the_same_array_is_the_same_proxy():
    a, = known(np.zeros((3, 4)))
    mine = session()
    x, y = NATIVE["arguments"](mine.boundary, (a, a))
    z, = NATIVE["arguments"](mine.boundary, (a,))
    assert x is y is z
    layout = x._l
    a.shape = (4, 3)
    known(a)
    w, = NATIVE["arguments"](mine.boundary, (a,))
    assert w is not x
    assert w._l != layout
    assert mine.boundary.foreigners[id(a)] is w


@both
def test_enters_and_puts(how):
    a, b = known(np.zeros((3, 4)), np.zeros(5, "f4"))
    mine = session()
    x, y = how["arguments"](mine.boundary, (a, b))
    meta = meta_id((), np.dtype("f8"))
    assert how["enter"](mine.tape, y) == y._n == 0
    assert how["enter"](mine.tape, x) == x._n == 1
    made = how["put"](mine.tape, LazyScalar, (5, 1, 0), meta)
    array = how["put"](mine.tape, LazyArray, (6, 2), x._m)
    assert type(made) is LazyScalar
    assert type(array) is LazyArray
    assert (made._s, made._n, made._m, made._v) == (mine, 2, meta, None)
    assert (array._s, array._n, array._m, array._v) == (mine, 3, x._m, None)
    assert not hasattr(array, "_l")
    assert mine.tape.ops == [(0, layout_id(b)), (0, layout_id(a)), (5, 1, 0), (6, 2)]
    assert mine.tape.ops[0] is LAYOUTS[y._l].entry
    assert [*map(id, mine.tape.nodes)] == [*map(id, (mine.tape.hole, mine.tape.hole, made, array))]
    assert mine.tape.leaves[0] is b
    assert mine.tape.leaves[1] is a
    assert mine.tape.entered[0] is y
    assert mine.tape.entered[1] is x
    assert how["leave"](mine.tape) is None
    assert (x._n, y._n, made._n, array._n) == (-1, -1, 2, 3)


class Noted(list):
    """A list that is more than a list."""

    def __iadd__(self, items):
        super().__iadd__(items)
        self.note = len(self)
        return self


@both
@pytest.mark.parametrize("slot", ["ops", "nodes"])
def test_a_tape_that_is_no_plain_list_is_asked(how, slot):
    a, = known(np.zeros(4))
    mine = session()
    noted = Noted()
    setattr(mine.tape, slot, noted)
    x, = how["arguments"](mine.boundary, (a,))
    how["enter"](mine.tape, x)
    assert noted.note == 1
    made = how["put"](mine.tape, LazyArray, (5, 0, 0), x._m)
    assert noted.note == 2
    references = tuple(map(sys.getrefcount, mine.tape.nodes))
    assert how["repeats"](mine.tape, tuple(mine.tape.ops), references)
    assert made._n == 1


@both
def test_a_scalar_in_memory_is_entered_as_one(how):
    mine = session()
    made = LazyScalar()
    made._s, made._n, made._v, made._m = mine, -1, np.float64(2.0), meta_id((), np.dtype("f8"))
    assert how["enter"](mine.tape, made) == 0
    assert mine.tape.scalars == [2.0]
    assert mine.tape.leaves == []
    assert how["leave"](mine.tape) is None
    assert made._n == -1


@both
def test_repeats_says_when_a_tape_is_the_same(how):
    a, = known(np.zeros(4))
    mine = session()
    x, = how["arguments"](mine.boundary, (a,))
    how["enter"](mine.tape, x)
    attrs = (("axis", (0, 1)), ("ddof", np.float64(1.0)), ("name", "long text"), ("n", 70_000))
    kept = [how["put"](mine.tape, LazyArray, entry, x._m) for entry in ((5, 0, 0), (9, 1, attrs))]
    ops, references = tuple(mine.tape.ops), tuple(map(sys.getrefcount, mine.tape.nodes))
    alike = (("axis", (0, int("1"))), ("ddof", np.float64(1.0)), ("name", "long" + " text"[:]),
             ("n", int("70000")))
    assert how["repeats"](mine.tape, ops, references)
    assert how["repeats"](mine.tape, (*ops[:2], (9, 1, alike)), references)
    others = [
        (*ops[:2], (9, 1)), (*ops[:2], (9, 2, attrs)), (ops[0], (5, 0, 1), ops[2]), ops[:2], (*ops, ops[2]),
        (*ops[:2], (9, 1, attrs[:2])), (*ops[:2], (9, 1, (attrs[0], ("ddof", (1.0, 2.0)), *attrs[2:]))),
        (*ops[:2], (9, 1, (("axis", np.float64(1.0)), *attrs[1:]))), ((0, -1), *ops[1:]), (None, *ops[1:]),
    ]
    for other in others:
        assert not how["repeats"](mine.tape, other, references)
    assert not how["repeats"](mine.tape, ops, references[:2])
    assert not how["repeats"](mine.tape, ops, (*references[:2], references[2] + 1))
    more = kept[0]
    assert not how["repeats"](mine.tape, ops, references)
    del more
    assert how["repeats"](mine.tape, ops, references)


@pytest.mark.parametrize("name", NAMES)
def test_misuse_is_an_error(name):
    for given in ((1, 2, 3, 4), *([] if name == "leave" else [()])):
        with pytest.raises(TypeError):
            NATIVE[name](session().boundary if name == "arguments" else session().tape, *given)
    with pytest.raises(TypeError):
        NATIVE[name](object(), ())
    with pytest.raises(TypeError):
        NATIVE[name]()


def traced(mine: Session, given: tuple, meta: int) -> None:
    """One call's worth of native methods."""
    proxies = mine.boundary.arguments(given)
    for p in proxies[:2]:
        mine.tape.enter(p)
    made = [mine.tape.put(LazyArray, (5, 0, 1), proxies[0]._m), mine.tape.put(LazyScalar, (7, 2), meta)]
    key = (tuple(mine.tape.ops), tuple(map(sys.getrefcount, mine.tape.nodes)))
    assert mine.tape.repeats(*key)
    assert not mine.tape.repeats(key[0][:3], key[1])
    del made
    mine.tape.leave()
    assert proxies[0]._n == proxies[1]._n == -1
    mine.tape.reset()
    mine.boundary.foreigners.clear()


def failing(mine: Session, given: tuple, meta: int) -> None:
    """One call's worth of failure: `argument` raises for the last array, which is a view."""
    mine.boundary.release_count = "none"
    try:
        mine.boundary.arguments(given)
    except TypeError:
        mine.boundary.foreigners.clear()
    else:
        raise AssertionError


@pytest.mark.parametrize("work", [traced, failing])
def test_references_and_memory_are_as_before(work):
    a, b = known(np.zeros((3, 4)), np.zeros(300, "f4"))
    mine, meta, view = session(), meta_id((), np.dtype("f8")), a[1:]
    given = (a, b, a, "text", view)
    work(mine, given, meta)
    layout = LAYOUTS[layout_id(b)]
    watched = [a, b, view, given, mine, LazyArray, LazyScalar, layout, layout.entry, LAYOUT_CACHE.find(a),
               LAYOUT_CACHE.find(b), LAYOUTS, mine.tape.hole, meta, None, -1, True, False]
    least = None
    for _ in range(4):  # the interpreter itself may keep a few things at first
        gc.collect()
        before, blocks = [*map(sys.getrefcount, watched)], sys.getallocatedblocks()
        for _ in range(10_000):
            work(mine, given, meta)
        gc.collect()
        now = [n - m for m, n in zip(before, map(sys.getrefcount, watched), strict=True)]
        assert max(map(abs, now)) < 100, now
        grown = abs(sys.getallocatedblocks() - blocks)
        least = grown if least is None else min(least, grown)
    assert least < 100


def test_proxies_are_seen_by_the_garbage_collector_and_can_go():
    a, = known(np.zeros(4))
    mine = session()
    x, = mine.boundary.arguments((a,))
    mine.tape.enter(x)
    made = mine.tape.put(LazyArray, (5, 0, 0), x._m)
    assert gc.is_tracked(x)
    assert gc.is_tracked(made)
    gone = [weakref.ref(x), weakref.ref(made), weakref.ref(mine)]
    del x, made, mine  # the session and its proxies refer to each other
    gc.collect()
    assert [g() for g in gone] == [None] * 3


def test_collecting_garbage_at_every_object_changes_nothing():
    @jitla.jit
    def work(x, y, z):
        u = x + y * z - x
        return u.sum() + (u * 2.0).max(), u

    given = [np.linspace(0, n, 7) for n in (1, 2, 3)]
    usual = gc.get_threshold()
    gc.set_threshold(1)
    try:
        found = [work(*given) for _ in range(60)]
    finally:
        gc.set_threshold(*usual)
    total, u = work.__wrapped__(*given)
    assert all(t == total and (v == u).all() for t, v in found)


WITHOUT = """
import sys; sys.path.insert(0, sys.argv[1])
from types import FunctionType
import numpy as np
import jitla
from jitla import tracing
tracing.install_native_methods = lambda native: False
from jitla.tracing.boundary import Boundary
from jitla.tracing.open_tape import Tape
@jitla.jit
def work(x, y, z, n):
    u = x + y * n - z
    for _ in range(3):
        u = u * x + y.T
    x[0] = 1.0
    return u.sum(axis=0), u.max(), -u, z @ u
def given():
    return [np.arange(9.0).reshape(3, 3) + k for k in range(2)] + [np.ones((4, 3))[1:], 3]
for _ in range(50):
    ours, theirs = given(), given()
    for a, b in zip((*work(*ours), *ours), (*work.__wrapped__(*theirs), *theirs), strict=True):
        assert np.array_equal(a, b)
assert type(Tape.enter) is type(Tape.put) is type(Boundary.arguments) is FunctionType
assert not work.stats()["failures"], work.stats()["failures"]
"""


@pytest.mark.process
def test_without_native_methods_all_is_the_same():
    done = subprocess.run([sys.executable, "-c", WITHOUT, str(ROOT)], capture_output=True, text=True,
                          timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


# The native table of layouts: it recognises exactly what it was shown.

assert LlvmBackend().launch is not None
TABLE = layout_table()
assert TABLE is not None
find, remember, forget = TABLE


@pytest.fixture
def empty_table():
    forget()
    yield
    forget()


def arrays():
    """Arrays that own their memory, all of different dtype, shape or strides."""
    for dtype, shape, order in itertools.product(
            ("f8", "f4", "i8", "u1", "?"), ((3,), (4,), (3, 4), (4, 3), (2, 3, 4), (2, 1, 3, 2)), "CF"):
        if order == "C" or len(shape) > 1:
            yield np.zeros(shape, dtype, order)


@pytest.mark.usefixtures("empty_table")
def test_finds_what_it_was_shown():
    kept = [(a, (i, i)) for i, a in enumerate(arrays())]
    for a, mark in kept:
        assert find(a) is None
        remember(a, mark)
    for a, mark in kept:
        assert find(a) is mark
        assert find(np.empty_like(a)) is mark


@pytest.mark.usefixtures("empty_table")
def test_looks_at_owners_only():
    a = np.zeros((4, 5))
    mark = (1, 2)
    remember(a, mark)
    assert find(a[:]) is None
    assert find(a.T) is None
    assert find([1.0]) is None
    assert find(np.ma.zeros((4, 5))) is None


@pytest.mark.usefixtures("empty_table")
def test_a_new_shape_is_seen():
    a = np.zeros((4, 5))
    mark = (1, 2)
    remember(a, mark)
    a.shape = (5, 4)
    assert find(a) is None
    a.shape = (4, 5)
    assert find(a) is mark


@pytest.mark.usefixtures("empty_table")
def test_more_than_four_dimensions_are_not_remembered():
    a = np.zeros((1, 2, 1, 2, 1))
    remember(a, (0,))
    assert find(a) is None


@pytest.mark.usefixtures("empty_table")
def test_a_full_table_refuses_and_stays_right():
    marks = {}
    for n in range(1, 6000):
        a = np.zeros(n, "i1")
        marks[n] = (n,)
        remember(a, marks[n])
    found = [n for n in marks if find(np.zeros(n, "i1")) is not None]
    assert 2000 < len(found) <= 4096
    assert all(find(np.zeros(n, "i1")) is marks[n] for n in found)


@pytest.mark.usefixtures("empty_table")
def test_misuse_of_the_layout_table_is_an_error():
    for call in (lambda: find(), lambda: find(1, 2), lambda: remember(1), lambda: remember(1, 2)):
        with pytest.raises(TypeError):
            call()
