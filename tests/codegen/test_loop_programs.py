"""Loop programs as machine code: every statement, value and exit, against the interpreter."""

from __future__ import annotations

import ctypes
import itertools
import math

import numpy as np
import pytest

from jitla.codegen import Jit, lacking, level_target
from jitla.codegen.loop_programs import compile_program, program_text
from jitla.codegen.native import routines
from jitla.errors import BackendError
from jitla.hops import Meta, lookup
from jitla.loopir.program import (
    BOOL,
    INT64,
    Address,
    Allocate,
    Apply,
    Assign,
    AxisMap,
    BindView,
    Block,
    Break,
    Check,
    Continue,
    Dot,
    Expires,
    Extent,
    For,
    Foreign,
    If,
    InnerLoop,
    Leave,
    Place,
    Pointer,
    Repeat,
    Stride,
    constant,
    dtype_of_value,
)
from jitla.loopir.program_state import Outcome, pack_state
from tests.loopir.agreement import assert_agrees, compiled, interpreted, same
from tests.loopir.programs import (
    F8,
    PROGRAMS,
    apply,
    cast,
    checked,
    element,
    number,
    program,
    read,
    store,
)
from tests.loopir.random_programs import random_case

INTEGERS = tuple(np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8))
FLOATS = (np.dtype("f4"), np.dtype("f8"))
COMPLEX = (np.dtype("c8"), np.dtype("c16"))


@pytest.fixture(scope="module")
def jit() -> Jit:
    return Jit()


def count(name):
    """Return the statement that adds 1 to an int64."""
    return Assign(name, apply("add", read(name), 1))


# --------------------------------------------------------------------------- whole programs


def operands_of(name, rng):
    if name == "edit distance":
        table = np.zeros((31, 24), np.int64)
        table[0], table[:, 0] = np.arange(24), np.arange(31)
        return {"n": 30, "m": 23, "D": table, "s": rng.integers(0, 3, 30), "t": rng.integers(0, 3, 23)}
    if name == "lu":
        return {"A": rng.normal(size=(17, 17)) + 9 * np.eye(17)}
    return {"steps": 4, "a": rng.normal(size=50), "b": np.zeros(50)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_programs(jit, name):
    outcome, _, _ = assert_agrees(jit, PROGRAMS[name](), **operands_of(name, np.random.default_rng(5)))
    assert outcome == Outcome(0)


def test_lu_leaves_at_a_zero_pivot(jit):
    matrix = np.random.default_rng(2).normal(size=(6, 6))
    matrix[3] = matrix[2]
    matrix[3, :3] = matrix[2, :3]
    matrix[0, 0] = 0
    assert assert_agrees(jit, PROGRAMS["lu"](), A=matrix)[0].exit == 2


def test_a_check_of_an_index_leaves(jit):
    values = operands_of("edit distance", np.random.default_rng(5)) | {"n": 31}
    outcome, results, _ = assert_agrees(jit, PROGRAMS["edit distance"](), **values)
    assert outcome.exit == 1 and results["i"] == 31


def test_text_does_not_depend_on_the_process(jit):
    text = program_text(PROGRAMS["lu"](), jit.target)
    assert str(routines._dot("d")[0]) not in text and 'jitla.dot.d' in text


# --------------------------------------------------------------------------- control flow


ENDS = (-2**63, -2**63 + 1, -5, 0, 1, 7, 2**63 - 2, 2**63 - 1)


@pytest.mark.parametrize("step", (1, -1, 3, -7, 2**62, -2**63))
def test_counted_loops_near_the_ends_of_int64(jit, step):
    body = (For("L", "i", read("begin"), read("end"), step, (
        count("n"), Assign("sum", apply("add", read("sum"), read("i"))),
        If(apply("greater", read("n"), 20), (Break("L"),)))), Leave(0))
    scalars = [(n, INT64) for n in ("begin", "end", "i", "n", "sum")]
    code = program(body, scalars, (), ("i", "n", "sum"), ("begin", "end"))
    for begin, end in itertools.product(ENDS, ENDS):
        _, results, _ = assert_agrees(jit, code, levels=(1,), begin=begin, end=end)
        assert results["n"] == min(max(-(-(end - begin) // step), 0), 21)


def test_ends_are_read_once_and_the_counter_is_hidden(jit):
    body = (For("L", "i", read("i"), read("n"), 2, (
        count("k"), Assign("n", number(100)), Assign("i", apply("add", read("i"), 50)))), Leave(0))
    code = program(body, [(n, INT64) for n in ("i", "n", "k")], (), ("i", "n", "k"), ("i", "n"))
    _, results, _ = assert_agrees(jit, code, i=3, n=10)
    assert (results["i"], results["k"]) == (59, 4)


def test_a_loop_without_iterations_leaves_its_variable(jit):
    loop = For("L", "i", number(3), number(3), 1, (count("i"),))
    code = program((loop, Leave(0)), [("i", INT64)], (), ("i",))
    assert assert_agrees(jit, code, i=8)[1]["i"] == 8


def test_break_and_continue_of_nested_loops_and_blocks(jit):
    i, j = read("i"), read("j")
    inner = For("inner", "j", number(0), number(9), 1, (
        If(apply("equal", apply("remainder", apply("add", i, j), 3), 0), (Continue("inner"),)),
        If(apply("greater", j, i), (Break("inner"),)),
        If(apply("equal", apply("multiply", i, j), 12), (Continue("outer"),)),
        If(apply("equal", i, 7), (Break("block"),)),
        Assign("sum", apply("add", apply("multiply", read("sum"), 3), j))))
    body = (
        Block("block", (
            For("outer", "i", number(0), read("n"), 1, (inner, count("rows"))),
            count("whole"))),
        Assign("k", number(0)),
        Repeat("endless", (count("k"), If(apply("less", read("k"), 5), (Continue("endless"),), (
            If(apply("equal", read("k"), 9), (Break("endless"),)),)), count("late"))),
        Leave(2))
    names = ("n", "i", "j", "k", "sum", "rows", "whole", "late")
    code = program(body, [(n, INT64) for n in names], (), names[1:], ("n",))
    for n in range(12):
        outcome, results, _ = assert_agrees(jit, code, n=n)
        assert outcome.exit == 2 and results["whole"] == (n < 8) and results["k"] == 9


def test_leaving_from_both_branches_and_statements_behind(jit):
    body = (If(apply("less", read("x"), 0), (Leave(3),), (Check(apply("equal", read("x"), 5), 1), Leave(2))),
            count("x"), Leave(0))
    code = program(body, [("x", INT64)], (), ("x",))
    assert [assert_agrees(jit, code, x=x)[0].exit for x in (-1, 5, 6)] == [3, 1, 2]


@pytest.mark.parametrize("exit", range(4))
def test_every_exit_gives_results_back(jit, exit):
    body = (For("L", "i", number(0), number(100), 1, (
        Assign("f", apply("add", read("f", F8), 0.5)),
        *(Check(apply("equal", apply("add", read("i"), 100 * (exit != k)), 41), k) for k in range(4)))),
        Leave(0))
    scalars = [("i", INT64), ("f", F8), ("c", "c16"), ("b", BOOL), ("small", "u1")]
    code = program(body, scalars, [("v", F8, 2)], ("i", "f", "c", "b", "small", "v"),
                   ("f", "c", "b", "small", "v"))
    view = np.arange(24.).reshape(4, 6)[::-2, 1::3]
    outcome, results, _ = assert_agrees(jit, code, f=1.0, c=2 - 3j, b=True, small=200, v=view)
    assert outcome.exit == exit and results["i"] == 41 and results["c"] == 2 - 3j and results["small"] == 200
    assert same(results["v"], view)


# --------------------------------------------------------------------------- memory


@pytest.mark.parametrize("dtype", ("?", *INTEGERS, *FLOATS, *COMPLEX), ids=str)
def test_elements_of_every_dtype(jit, dtype):
    dtype = np.dtype(dtype)
    data = np.frombuffer(np.random.default_rng(1).bytes(40 * dtype.itemsize), dtype)[:35].reshape(5, 7)
    source = data != 0 if dtype == BOOL else data
    target = np.zeros((7, 5), dtype)
    body = (For("a", "i", number(0), Extent("A", 0), 1, (For("b", "j", number(0), Extent("A", 1), 1, (
        Assign("x", element("A", read("i"), read("j"), dtype=dtype)),
        store("B", read("j"), read("i"), value=read("x", dtype)))),)), Leave(0))
    code = program(body, [("i", INT64), ("j", INT64), ("x", dtype)], [("A", dtype, 2), ("B", dtype, 2)],
                   ("x",), ("A", "B"))
    _, _, after = assert_agrees(jit, code, A=source, B=target)
    assert after["B"].tobytes() == source.T.tobytes()


def test_any_byte_but_zero_is_true(jit):
    data = np.array([0, 1, 2, 255, 128], np.uint8).view(bool)
    body = (For("L", "i", number(0), Extent("A", 0), 1, (
        If(element("A", read("i"), dtype=BOOL), (count("n"),)),
        store("A", read("i"), value=apply("logical_not", element("A", read("i"), dtype=BOOL))))), Leave(0))
    code = program(body, [("i", INT64), ("n", INT64)], [("A", BOOL, 1)], ("n",), ("A",))
    outcome, results, after = compiled(jit, code, {"A": data})
    assert results["n"] == 4 and after["A"].view(np.uint8).tolist() == [1, 0, 0, 0, 0]


def test_unaligned_and_overlapping_views(jit):
    memory = np.arange(200, dtype=np.uint8)
    a, b = memory[1:81].view(np.float64), memory[9:89].view(np.float64)
    body = (For("L", "i", number(0), Extent("a", 0), 1, (
        store("b", read("i"), value=apply("add", element("a", read("i")), 1.0)),)), Leave(0))
    code = program(body, [("i", INT64)], [("a", F8, 1), ("b", F8, 1)], (), ("a", "b"))
    assert_agrees(jit, code, a=a, b=b)


def total(view, dtype=F8, ndim=2):
    """Return statements that mix all elements of a view into `sum`, in order."""
    index = [read(f"t{k}") for k in range(ndim)]
    smaller = apply("multiply", read("sum", F8), 0.7)
    body = (Assign("sum", apply("add", smaller, element(view, *index))),)
    for k in reversed(range(ndim)):
        body = (For(f"{view}.{k}", f"t{k}", number(0), Extent(view, k), 1, body),)
    return body


@pytest.mark.parametrize("step", (1, 2, -1, -3))
def test_bound_views(jit, step):
    begin = number(1 if step > 0 else 5)
    body = (
        BindView("p", "A", ((1, read("k")),), (AxisMap(2, begin, number(2), number(step)),
                                               AxisMap(0, number(0), Extent("A", 0), number(1)))),
        *total("p"),
        BindView("q", "p", (), (AxisMap(1, number(0), Extent("p", 1), number(1)),
                                AxisMap(None, number(0), number(3), number(1)),
                                AxisMap(0, checked("sub", Extent("p", 0), 1), Extent("p", 0), number(-1)))),
        Assign("sum", apply("add", read("sum", F8), element("q", 0, 2, 1))),
        BindView("p", "p", (), (AxisMap(1, number(0), number(1), number(1)),
                                AxisMap(0, number(0), Extent("p", 0), number(1)))),
        BindView("p", "p", (), (AxisMap(0, number(0), number(1), number(4)),
                                AxisMap(1, number(0), number(2), number(1)))),
        *total("p"), Leave(0))
    scalars = [("k", INT64), ("t0", INT64), ("t1", INT64), ("sum", F8)]
    code = program(body, scalars, [("A", F8, 3), ("p", F8, 2), ("q", F8, 3)], ("sum", "p", "q"), ("k", "A"))
    array = np.random.default_rng(4).normal(size=(6, 4, 8))
    for a in (array, array[::-1, :, ::-1], np.asfortranarray(array), array[:1]):
        _, results, _ = assert_agrees(jit, code, k=2, A=a)
        assert results["p"].shape == (1, 2) and results["q"].shape == (len(a), 3, 2)


def test_pointers_sizes_and_strides(jit):
    body = (Assign("a", Pointer("A")), Assign("b", Pointer("A", (number(1), number(2)))),
            Assign("n", Extent("A", 1)), Assign("s", Stride("A", 0)), Leave(0))
    code = program(body, [(n, INT64) for n in "abns"], [("A", F8, 2)], tuple("abns"), ("A",))
    array = np.zeros((5, 6))[::2, ::-1]
    state = pack_state(code, {"A": array})
    assert compile_program(code, jit).run(state) == Outcome(0)
    assert state[-6:-2].tolist() == [array.ctypes.data, array[1:, 2:].ctypes.data, 6, 96]


def arrays_in_loops(shape, zero=True, exit=3):
    i = read("i")
    body = (
        Allocate("fixed", (number(4),), True, exit), store("fixed", 1, value=number(7.0, F8)),
        For("L", "i", number(0), read("n"), 1, (
            Allocate("x", shape, zero, exit), Allocate("y", (number(3),), zero, exit),
            Assign("first", Pointer("x")),
            If(apply("equal", i, 0), (Assign("start", Pointer("x")),)),
            If(apply("not_equal", read("first"), read("start")), (Assign("moved", number(True, BOOL)),)),
            For("M", "j", number(0), number(5), 1, (Allocate("z", (number(2), read("j")), True, exit),)),
            store("y", 2, value=cast(i, F8)),
            Assign("sum", apply("add", read("sum", F8), element("y", 2))),
        )),
        Assign("sum", apply("add", read("sum", F8), element("fixed", 1))), Leave(0))
    scalars = [("n", INT64), ("m", INT64), ("i", INT64), ("j", INT64), ("first", INT64), ("start", INT64),
               ("moved", BOOL), ("sum", F8)]
    views = [("fixed", F8, 1), ("x", "i2", 2), ("y", F8, 1), ("z", "c16", 2)]
    return program(body, scalars, views, ("i", "moved", "sum", "x", "y"), ("n", "m"))


def test_memory_is_free_again_in_the_next_iteration(jit):
    code = arrays_in_loops((number(30), read("m")))
    outcome, results, _ = assert_agrees(jit, code, n=500, m=20)
    assert outcome.exit == 0 and not results["moved"] and results["sum"] == sum(range(500)) + 7
    assert results["x"].shape == (30, 20) and not results["x"].any()


@pytest.mark.parametrize("m", (-1, -2**63, 2**62, 2**63 - 1, 60_000, 0, 1))
def test_shapes_that_do_not_fit_leave(jit, m):
    outcome = assert_agrees(jit, arrays_in_loops((number(3), read("m"))), n=2, m=m)[0]
    assert outcome.exit == (0 if m in (0, 1) else 3)


def test_memory_of_the_iteration_before(jit):
    whole = AxisMap(0, number(0), Extent("x", 0), number(1))
    body = (
        Assign("outside", Expires("kept")),
        For("L", "i", number(0), read("n"), 1, (
            If(apply("greater", read("i"), 0), (
                Assign("sum", apply("add", read("sum", F8), element("kept", 3))),)),
            If(Expires("kept"), (count("expired"),)), If(Expires("A"), (count("late"),)),
            Allocate("x", (number(40),), True, 3), store("x", 3, value=cast(read("i"), F8)),
            If(Expires("x"), (count("late"),)),
            If(apply("not_equal", apply("remainder", read("i"), 3), 1),
               (BindView("kept", "x", (), (whole,)),), (BindView("kept", "A", (), (whole,)),)))), Leave(0))
    scalars = [*((k, INT64) for k in ("n", "i", "expired", "late")), ("sum", F8), ("outside", BOOL)]
    code = program(body, scalars, [("A", F8, 1), ("x", F8, 1), ("kept", F8, 1)],
                   ("sum", "expired", "late", "outside", "kept"), ("n", "A"))
    for n in (0, 1, 2, 3, 7, 100):
        outcome, results, _ = assert_agrees(jit, code, n=n, A=np.ones(40))
        kept = [i for i in range(n - 1) if i % 3 != 1]
        assert outcome == Outcome(0) and not results["late"] and not results["outside"]
        assert results["expired"] == len(kept)
        assert results["sum"] == sum(kept) + max(n - 1, 0) - len(kept)


# --------------------------------------------------------------------------- checked integers


def border(dtype):
    info = np.iinfo(dtype)
    root = math.isqrt(info.max)
    values = {info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.max // 2 + 1}
    values |= {root, root + 1, * (-root, -root - 1, -8, -3, -1, 0, 1, 2, 3, 7, 8, 15, 31, 33, 63, 64)}
    return np.array(sorted(n for n in values if info.min <= n <= info.max), dtype)


def over_pairs(op, dtype, source=None, raises=False):
    """Return a program that applies a checked operation to `x[i]` and `y[i]`, from `begin` on."""
    source = source or dtype
    operands = [element("x", read("i"), dtype=source)]
    if op not in ("neg", "cast"):
        operands.append(element("y", read("i"), dtype=source))
    body = (For("L", "i", read("begin"), Extent("x", 0), 1, (
        store("z", read("i"), value=checked(op, *operands, dtype=dtype, exit=2)),)), Leave(0))
    views = [("x", source, 1), ("y", source, 1), ("z", dtype, 1)]
    return program(body, [("begin", INT64), ("i", INT64)], views, ("i",), ("begin", "x", "y", "z"),
                   raises=raises)


def assert_checked(jit, code, x, y, dtype, source):
    """Compare every element: a run goes on behind each element that leaves."""
    machine = compile_program(code, jit)
    z, wanted = np.zeros(len(x), dtype), np.zeros(len(x), dtype)
    begin, exits = 0, []
    while begin < len(x):
        state = pack_state(code, {"begin": begin, "x": x, "y": y, "z": z})
        outcome = machine.run(state)
        if outcome.exit == 0:
            break
        begin = int(state[-3]) + 1
        exits.append(begin - 1)
    begin, expected = 0, []
    while begin < len(x):
        outcome, results, after = interpreted(code, {"begin": begin, "x": x, "y": y, "z": wanted})
        wanted = after["z"]
        if outcome.exit == 0:
            break
        begin = int(results["i"]) + 1
        expected.append(begin - 1)
    assert exits == expected
    assert same(z, wanted)
    return exits


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", ("add", "sub", "mul", "neg", "shl", "floordiv", "mod"))
def test_checked_arithmetic(jit, op, dtype):
    numbers = border(dtype)
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(numbers, numbers))
    exits = assert_checked(jit, over_pairs(op, dtype), x, y, dtype, dtype)
    assert 0 < len(exits) < len(x)


REALS = (0.0, -0.0, 0.5, 1.0, -1.0, 127.0, 128.0, 255.0, 256.0, -128.0, -129.0, 32767.0, 65536.0, 2.0**31,
         -(2.0**31), 2.0**32, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, 1e300, -1e300, np.inf, -np.inf, np.nan,
         0.1, float(np.float32(0.1)), 3.4e38, 3.5e38)


@pytest.mark.parametrize("dtype", (BOOL, *INTEGERS, *FLOATS), ids=str)
@pytest.mark.parametrize("source", (BOOL, *INTEGERS, *FLOATS), ids=str)
def test_checked_casts(jit, source, dtype):
    with np.errstate(all="ignore"):
        numbers = np.array(REALS, source) if source.kind == "f" else np.array([False, True]) \
            if source == BOOL else np.concatenate([border(source), np.array([2**k for k in range(
                8 * source.itemsize - 1)], source)])
    for raises in (False, True):
        assert_checked(jit, over_pairs("cast", dtype, source, raises), numbers, numbers, dtype, source)


# --------------------------------------------------------------------------- operators of the table


SAMPLES = {
    "f": [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.7, 1e-300, 1e308, -1e308, np.inf, -np.inf, np.nan, 7.0, -7.25],
    "i": [0, 1, -1, 2, -3, 7, 100, -128, 127, 2**31 - 1, -2**31, 2**63 - 1, -2**63],
    "u": [0, 1, 2, 3, 7, 100, 127, 128, 255, 2**32 - 1, 2**64 - 1],
    "b": [False, True],
    "c": [0, 1, 1 + 1j, -2 + 0.5j, 1e200 - 1e200j, complex(np.nan, 1), complex(np.inf, -1), -0.0j, 3 - 4j],
}


def samples(dtype):
    values = SAMPLES[dtype.kind]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = [v for v in values if info.min <= v <= info.max] + [info.min, info.max]
    with np.errstate(all="ignore"):
        return np.array(values, dtype)


OPERATORS = {
    "add": "biufc", "subtract": "iufc", "multiply": "biufc", "divide": "fc", "floor_divide": "iuf",
    "remainder": "iuf", "fmod": "iuf", "power": "f", "negative": "ifc", "absolute": "biufc", "sqrt": "f",
    "square": "iuf", "reciprocal": "fc", "sign": "iuf", "copysign": "f", "exp": "f", "log": "f", "sin": "f",
    "tanh": "f", "arctan2": "f", "hypot": "f", "floor": "f", "rint": "f", "maximum": "biufc",
    "minimum": "iuf", "fmax": "f", "fmin": "f", "less": "biufc", "less_equal": "iuf", "equal": "biufc",
    "not_equal": "fc", "greater": "f", "logical_and": "bif", "logical_not": "bifc", "bitwise_and": "biu",
    "invert": "biu", "left_shift": "iu", "right_shift": "iu", "isnan": "fc", "isinf": "f", "signbit": "f",
    "real": "fc", "conjugate": "fc", "gcd": "iu", "nextafter": "f", "heaviside": "f", "clip": "if",
    "where": "if",
}


def over_table(op, dtype, raises=True):
    """Return a program that applies `op` to all pairs of elements of `x` and `y`."""
    spec = lookup(op)
    i, j = read("i"), read("j")
    operands = [element("x", i, dtype=dtype), element("x", j, dtype=dtype)][:spec.arity]
    if op == "clip":
        operands = [element("x", i, dtype=dtype), element("x", j, dtype=dtype), constant(3, dtype)]
    if op == "where":
        operands = [apply("less", i, j), *operands]
    dtypes = spec.resolve(tuple(dtype_of_value(o) for o in operands), {})
    out = spec.meta(tuple(Meta((), d) for d in dtypes), {}).dtype
    body = (For("a", "i", number(0), Extent("x", 0), 1, (For("b", "j", number(0), Extent("x", 0), 1, (
        store("z", i, j, value=apply(op, *operands, dtype=out)),)),)), Leave(0))
    code = program(body, [("i", INT64), ("j", INT64)], [("x", dtype, 1), ("z", out, 2)], (), ("x", "z"),
                   raises=raises)
    return code, out


@pytest.mark.parametrize("op", OPERATORS)
def test_operators(jit, op):
    for kind in OPERATORS[op]:
        for dtype in {"b": (BOOL,), "f": FLOATS, "c": COMPLEX}.get(kind) or [
                d for d in INTEGERS if d.kind == kind]:
            x = samples(dtype)
            for raises in (False, True):
                code, out = over_table(op, dtype, raises)
                z = np.zeros((len(x), len(x)), out)
                assert_agrees(jit, code, levels=(1,), flags=dtype.kind != "c", x=x, z=z)


@pytest.mark.parametrize("op", [op for op, kinds in OPERATORS.items() if "f" in kinds])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_flags_of_single_operations(jit, op, dtype):
    code, out = over_table(op, dtype)
    machine = compile_program(code, jit)
    for x in itertools.product(samples(dtype), repeat=2):
        values = {"x": np.array(x, dtype), "z": np.zeros((2, 2), out)}
        assert machine.run(pack_state(code, values)) == interpreted(code, values)[0], x


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_products_of_complex_scalars_are_rounded_like_pythons(jit, dtype):
    rng = np.random.default_rng(1)
    parts = rng.normal(size=(200, 2)) * 10.0 ** rng.integers(-3, 3, (200, 1))
    x = np.concatenate([samples(dtype), (parts @ [1, 1j]).astype(dtype)])
    factors = (element("x", read("i"), dtype=dtype), element("x", read("j"), dtype=dtype))
    value = Apply("multiply", factors, dtype, (("rounded", True),))
    body = (For("a", "i", number(0), Extent("x", 0), 1, (For("b", "j", number(0), Extent("x", 0), 1, (
        store("z", read("i"), read("j"), value=value),)),)), Leave(0))
    for raises in (False, True):
        code = program(body, [("i", INT64), ("j", INT64)], [("x", dtype, 1), ("z", dtype, 2)], (), ("x", "z"),
                       raises=raises)
        outcome, _, after = compiled(jit, code, {"x": x, "z": np.zeros((len(x), len(x)), dtype)})
        with np.errstate(all="ignore"):
            wanted = [[p * q for q in x] for p in x]
            assert same(after["z"], np.array(wanted, dtype))
            if dtype == np.complex128:
                assert same(after["z"], np.array([[p * q for q in x.tolist()] for p in x.tolist()]))
        assert outcome == Outcome(0, invalid=raises, overflow=raises and dtype == np.complex128)
    assert_agrees(jit, code, x=x[:20], z=np.zeros((20, 20), dtype))


def test_casts_between_all_dtypes(jit):
    dtypes = (BOOL, *INTEGERS, *FLOATS, *COMPLEX)
    for source, dtype in itertools.product(dtypes, dtypes):
        if source.kind == "c" and dtype.kind not in "cb" or source.kind == "f" and dtype == np.uint32:
            continue
        x = samples(source)
        body = (For("L", "i", number(0), Extent("x", 0), 1, (
            store("z", read("i"), value=cast(element("x", read("i"), dtype=source), dtype)),)), Leave(0))
        for raises in (False, True):
            code = program(body, [("i", INT64)], [("x", source, 1), ("z", dtype, 1)], (), ("x", "z"),
                           raises=raises)
            assert_agrees(jit, code, levels=(1,), x=x, z=np.zeros(len(x), dtype))


def test_casts_of_constants_that_do_not_fit(jit):
    for big in (1e300, -1e300, np.nan, 2.0**40):
        for dtype in ("i8", "i4", "i1"):
            value = cast(read("x", F8), dtype)
            for raises in (False, True):
                body = (Assign("x", number(big, F8)), Assign("n", value), Leave(0))
                code = program(body, [("x", F8), ("n", dtype)], (), ("n",), (), raises=raises)
                assert_agrees(jit, code)


def test_an_operator_without_a_loop_is_refused(jit):
    body = (Assign("x", apply("power", read("x", "i8"), read("x", "i8"))), Leave(0))
    assert_agrees(jit, program(body, [("x", INT64)], (), ("x",)), x=5)
    wide = np.dtype(np.longdouble)
    with pytest.raises(BackendError):
        program_text(program((Leave(0),), [("x", wide)]), jit.target)


# --------------------------------------------------------------------------- flags


def branch(op, x, y):
    """Return a program whose quotient is needed only where `c` holds."""
    body = (Assign("x", apply(op, read("a", F8), read("b", F8))),
            If(read("c", BOOL), (Assign("y", read("x", F8)),)), Leave(1))
    scalars = [("a", F8), ("b", F8), ("x", F8), ("y", F8), ("c", BOOL)]
    return program(body, scalars, (), ("y",), ("a", "b", "c"), raises=True)


@pytest.mark.parametrize("c", (False, True))
def test_values_that_are_not_needed_raise_flags(jit, c):
    for level in (0, 1):
        for a, b, flags in ((1.0, 0.0, (True, False, False)), (0.0, 0.0, (False, False, True)),
                            (1e300, 1e-300, (False, True, False)), (1.0, 3.0, (False, False, False))):
            outcome = compiled(jit, branch("divide", a, b), {"a": a, "b": b, "c": c}, level)[0]
            assert outcome == Outcome(1, *flags)


def test_a_branch_that_is_not_taken_raises_nothing(jit):
    quotient = Assign("y", apply("divide", read("a", F8), read("b", F8)))
    body = (If(apply("not_equal", read("b", F8), 0.0), (quotient,), (Assign("y", number(0.0, F8)),)),
            Assign("y", apply("where", apply("less", read("y", F8), 5.0), read("y", F8), read("a", F8))),
            For("L", "i", number(0), read("n"), 1, (
                Assign("y", apply("add", read("y", F8), apply("divide", 1.0, read("b", F8)))),)), Leave(0))
    code = program(body, [("a", F8), ("b", F8), ("y", F8), ("i", INT64), ("n", INT64)], (), ("y",),
                   ("a", "b", "n"), raises=True)
    assert assert_agrees(jit, code, a=np.nan, b=0.0, n=0)[0] == Outcome(0)
    assert assert_agrees(jit, code, a=np.nan, b=0.0, n=1)[0] == Outcome(0, divide=True)


def test_constants_raise_flags(jit):
    body = (Assign("x", apply("divide", number(1.0, F8), number(0.0, F8))), Leave(0))
    code = program(body, [("x", F8)], (), (), (), raises=True)
    assert assert_agrees(jit, code)[0] == Outcome(0, divide=True)


def test_flags_from_before_are_kept_and_not_counted(jit):
    libm = ctypes.CDLL(None)
    code = branch("divide", 1.0, 2.0)
    machine = compile_program(code, jit)
    quiet, loud = ({"a": 1.0, "b": b, "c": True} for b in (2.0, 0.0))
    quiet, loud = pack_state(code, quiet), pack_state(code, loud)
    invalid, divide = 1, 4
    if not hasattr(libm, "feraiseexcept"):
        pytest.skip("no fenv.h")
    libm.feclearexcept(61)
    libm.feraiseexcept(invalid)
    first = machine.run(quiet)
    after_first = libm.fetestexcept(61)
    second = machine.run(loud)
    after_second = libm.fetestexcept(61)
    libm.feclearexcept(61)
    assert (first, second) == (Outcome(1), Outcome(1, divide=True))
    assert after_first & (invalid | divide) == invalid and after_second & divide


def test_comparisons_and_choices_with_nan_are_quiet(jit):
    x = read("x", F8)
    values = [apply(op, x, 1.0) for op in ("less", "less_equal", "greater", "greater_equal", "equal")]
    choices = [apply("where", v, x, number(2.0, F8)) for v in values]
    extremes = [apply(op, x, number(1.0, F8)) for op in ("maximum", "minimum", "fmax", "fmin")]
    body = tuple(store("z", k, value=v) for k, v in enumerate((*choices, *extremes))) + (Leave(0),)
    code = program(body, [("x", F8)], [("z", F8, 1)], (), raises=True)
    assert assert_agrees(jit, code, x=np.nan, z=np.zeros(9))[0] == Outcome(0)


# --------------------------------------------------------------------------- routines


@pytest.mark.parametrize("name", ("exp", "log", "sin", "cos", "tan", "sqrt", "tanh", "log1p", "atan", "cbrt"))
def test_functions_of_the_c_library(jit, name):
    body = (For("L", "i", number(0), Extent("x", 0), 1, (
        store("x", read("i"), value=Foreign(name, (element("x", read("i")),))),)), Leave(0))
    code = program(body, [("i", INT64)], [("x", F8, 1)])
    x = np.random.default_rng(3).uniform(0.1, 20, 100)
    outcome, _, after = compiled(jit, code, {"x": x, "i": 0})
    assert outcome.exit == 0
    assert after["x"].tolist() == [getattr(math, name)(v) for v in x.tolist()]


def test_a_function_of_two_operands_and_one_that_is_not_there(jit):
    value = Foreign("pow", (read("x", F8), read("y", F8)))
    code = program((Assign("x", value), Leave(0)), [("x", F8), ("y", F8)], (), ("x",))
    assert assert_agrees(jit, code, x=1.7, y=-3.3)[1]["x"] == 1.7 ** -3.3
    value = Foreign("no_such_function", (read("x", F8),))
    code = program((Assign("x", value), Leave(0)), [("x", F8)], (), ("x",))
    with pytest.raises(BackendError):
        compile_program(code, jit)


def test_foreign_flags(jit):
    body = (Assign("x", Foreign("exp", (read("x", F8),))), Leave(0))
    code = program(body, [("x", F8)], raises=True)
    assert compiled(jit, code, {"x": 1e4})[0].overflow


@pytest.mark.parametrize("n", (0, 1, 7, 8, 9, 127, 128, 129, 1000, 5000))
def test_sums_are_pairwise(jit, n):
    x = np.random.default_rng(n).normal(size=(n, 3))
    reduce_ = InnerLoop("add.dd->d", (Place("sum"), Address("x", (number(0), read("k"))), Place("sum")),
                        (Extent("x", 0),), (number(0), Stride("x", 0), number(0)))
    body = (Assign("sum", number(0.0, F8)), For("L", "k", number(0), number(3), 1, (
        Assign("sum", number(0.0, F8)), reduce_,
        Assign("all", apply("add", read("all", F8), read("sum", F8))))), Leave(0))
    code = program(body, [("k", INT64), ("sum", F8), ("all", F8)], [("x", F8, 2)], ("sum", "all"), ("x",))
    _, results, _ = assert_agrees(jit, code, x=x)
    assert results["sum"] == np.add.reduce(x[:, 2]) and results["all"] == sum(
        (np.add.reduce(x[:, k]) for k in range(3)), 0.0)


@pytest.mark.parametrize("routine", ("exp.d->d", "add.dd->d", "less.dd->?", "multiply.DD->D", "sin.f->f",
                                     "floor_divide.ll->l", "maximum.dd->d"))
def test_inner_loops_of_ufuncs(jit, routine):
    name, types = routine.split(".")
    ins, out = types.split("->")
    rng = np.random.default_rng(1)
    views = [(f"x{k}", np.dtype(t), 1) for k, t in enumerate(ins)] + [("z", np.dtype(out), 1)]
    names = [v[0] for v in views]
    call = InnerLoop(routine, tuple(Address(v, (number(0),)) for v in names), (Extent("z", 0),),
                     tuple(Stride(v, 0) for v in names))
    code = program((call, Leave(0)), [], views)
    values = {}
    for k, (view, dtype, _) in enumerate(views):
        data = (rng.normal(size=60) * 20 + 1.5).astype(dtype)
        values[view] = [data[:20], data[::3], data[::-3]][k % 3]
    _, _, after = assert_agrees(jit, code, **values)
    with np.errstate(all="ignore"):
        assert same(after["z"], getattr(np, name)(*[values[f"x{k}"] for k in range(len(ins))]))


@pytest.mark.parametrize("dtype", ("f8", "f4", "i8", "c16"))
def test_matmul_as_an_inner_loop(jit, dtype):
    rng, dtype = np.random.default_rng(1), np.dtype(dtype)
    zero = number(0)
    c = dtype.char
    call = InnerLoop(f"matmul.{c}{c}->{c}", tuple(Address(v, (zero, zero)) for v in "abc"),
                     (number(1), Extent("a", 0), Extent("a", 1), Extent("b", 1)),
                     (zero, zero, zero, *(Stride(v, k) for v in "abc" for k in (0, 1))))
    code = program((call, Leave(0)), [], [(v, dtype, 2) for v in "abc"])
    for n, k, m in ((3, 4, 5), (30, 40, 20), (1, 9, 1)):
        a, b = ((rng.normal(size=s) * 9).astype(dtype) for s in ((n, k), (m, k)))
        _, _, after = assert_agrees(jit, code, a=a, b=b.T, c=np.zeros((n, m), dtype))
        assert same(after["c"], a @ b.T)


@pytest.mark.parametrize("dtype", ("?", "i4", "i8", "u2", "f4", "f8", "c8", "c16"))
def test_dot(jit, dtype):
    rng, dtype = np.random.default_rng(1), np.dtype(dtype)
    code = program((
        Dot(dtype, Address("a", (number(0),)), Stride("a", 0), Address("b", (number(0),)), Stride("b", 0),
            Place("d"), Extent("a", 0)),
        store("c", 0, value=read("d", dtype)), Leave(0)),
        [("d", dtype)], [(v, dtype, 1) for v in "abc"], ("d",), tuple("abc"))
    for n, steps in itertools.product((0, 1, 2, 3, 17, 64, 333), ((1, 1), (2, 1), (-1, 3), (-2, -2), (5, 1))):
        a, b = ((rng.normal(size=n * abs(s)) * 9).astype(dtype)[::s] for s in steps)
        _, results, _ = assert_agrees(jit, code, levels=(1,), a=a, b=b, c=np.zeros(1, dtype))
        assert same(results["d"], a @ b)


def test_an_unknown_routine_is_refused(jit):
    call = InnerLoop("exp.q->q", (Place("x"), Place("x")), (number(1),), (number(0), number(0)))
    with pytest.raises(BackendError):
        compile_program(program((call, Leave(0)), [("x", INT64)]), jit)


# --------------------------------------------------------------------------- random programs


@pytest.mark.parametrize("part", range(10))
def test_random_programs(jit, part):
    for seed in range(30 * part, 30 * part + 30):
        code, values = random_case(seed)
        assert_agrees(jit, code, levels=(seed % 2,), **values)


# --------------------------------------------------------------------------- targets, caches and names


@pytest.mark.parametrize("name", PROGRAMS)
def test_older_processors(name):
    target = level_target("x86-64-v2")
    if lacking(target):
        pytest.skip("not a processor of this family")
    old = Jit(target=target)
    assert_agrees(old, PROGRAMS[name](), **operands_of(name, np.random.default_rng(5)))
    for seed in range(12):
        code, values = random_case(seed)
        assert_agrees(old, code, levels=(1,), **values)


def test_names_of_any_letters(jit):
    body = (For("läbel 1", "größe\"", number(0), read("n x"), 1, (
        store("Ä", read("größe\""), value=number(2.0, F8)), Continue("läbel 1"))), Leave(0))
    code = program(body, [("größe\"", INT64), ("n x", INT64)], [("Ä", F8, 1)])
    assert_agrees(jit, code, **{"größe\"": 0, "n x": 3, "Ä": np.zeros(5)})


def test_objects_are_found_by_their_text(jit):
    objects: dict[str, bytes] = {}
    first = compile_program(PROGRAMS["lu"](), Jit(objects))
    again = Jit(objects)
    again._emit = None  # type: ignore[method-assign, assignment]
    second = compile_program(PROGRAMS["lu"](), again)
    assert len(objects) == 1
    matrix = np.random.default_rng(2).normal(size=(9, 9)) + 5 * np.eye(9)
    results = []
    for machine in (first, second):
        copy = matrix.copy()
        machine.run(pack_state(machine.program, {"A": copy}))
        results.append(copy)
    assert same(*results) and not same(results[0], matrix)


def test_levels_are_different_objects(jit):
    objects: dict[str, bytes] = {}
    other = Jit(objects)
    for level in (0, 1, 1, 2):
        compile_program(PROGRAMS["stencil"](), other, level)
    assert len(objects) == 3
