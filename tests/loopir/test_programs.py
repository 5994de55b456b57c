"""Loop programs: the laws of the verifier, the interpreter, text and state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitla.errors import NestError
from jitla.loopir import (
    INT64,
    PROGRAM_LAWS,
    Address,
    Allocate,
    Apply,
    Assign,
    AxisMap,
    BindView,
    Block,
    Break,
    Check,
    Checked,
    Continue,
    Dot,
    Element,
    ExitKind,
    Extent,
    For,
    Foreign,
    If,
    InnerLoop,
    Leave,
    Number,
    Outcome,
    Place,
    Pointer,
    Read,
    Repeat,
    Stride,
    pack_state,
    parse_program,
    run_program,
    show_program,
    state_layout,
    unpack_state,
    verify_program,
)
from jitla.loopir.program_interpreter import checked_result
from tests.loopir.agreement import interpreted
from tests.loopir.programs import (
    F8,
    PROGRAMS,
    apply,
    checked,
    element,
    number,
    program,
    read,
    store,
)
from tests.loopir.random_programs import random_case

SCALARS = [("n", INT64), ("x", F8), ("b", np.dtype(bool)), ("s", np.dtype("i2"))]
VIEWS = [("A", F8, 2), ("B", F8, 1), ("C", INT64, 1)]
X, N = read("x", F8), read("n")


def of(*body, **words):
    """Return a program of `SCALARS` and `VIEWS`; it ends by exit 0."""
    return program((*body, Leave(0)), SCALARS, VIEWS, **words)


def axis(k):
    return AxisMap(k, number(0), number(1), number(1))


BROKEN = (
    ("one-name", program((Leave(0),), [("x", F8), ("x", INT64)])),
    ("one-name", program((Leave(0),), [("A", F8)], [("A", F8, 1)])),
    ("one-name", of(Block("L", (Repeat("L", (Break("L"),)),)))),
    ("unknown-variable", of(Assign("y", X))),
    ("unknown-variable", of(Assign("A", X))),
    ("unknown-variable", of(Assign("x", Read("y", F8)))),
    ("unknown-variable", of(Assign("n", Extent("n", 0)))),
    ("unknown-variable", of(BindView("D", "B", (), (axis(0),)))),
    ("unknown-variable", of(parameters=("x", "y"))),
    ("unknown-variable", of(results=("y",))),
    ("unknown-variable", replace(of(), written=("x",))),
    ("unknown-variable", of(InnerLoop("exp.d->d", (Place("x"), Place("A")), (N,), (N, N)))),
    ("dtype", program((Leave(0),), [("x", np.longdouble)])),
    ("dtype", program((Leave(0),), [("x", ">f8")])),
    ("dtype", of(Assign("x", N))),
    ("dtype", of(Assign("x", Read("x", INT64)))),
    ("dtype", of(Assign("n", Read("s", np.dtype("i2"))))),
    ("dtype", of(Assign("n", Number(INT64, b"1234")))),
    ("dtype", of(store("A", 0, 0, value=N))),
    ("dtype", of(store("A", 0, X, value=X))),
    ("dtype", of(Assign("x", Element("B", (N,), INT64)))),
    ("dtype", of(If(N, (Leave(1),)))),
    ("dtype", of(Check(X, 0))),
    ("dtype", of(For("L", "x", N, N, 1, ()))),
    ("dtype", of(For("L", "n", X, N, 1, ()))),
    ("dtype", of(For("L", "n", N, N, 0, ()))),
    ("dtype", of(Assign("x", Apply("add", (X, N, ), INT64)))),
    ("dtype", of(Assign("x", Apply("bitwise_and", (X, X), F8)))),
    ("dtype", of(Assign("x", Checked("add", (X, X), F8, 0)))),
    ("dtype", of(Assign("n", Checked("add", (N, read("s", "i2")), INT64, 0)))),
    ("dtype", of(Assign("n", Checked("neg", (N, N), INT64, 0)))),
    ("dtype", of(Assign("x", Foreign("exp", (N,))))),
    ("dtype", of(BindView("B", "C", (), (axis(0),)))),
    ("dtype", of(Allocate("B", (X,), True, 0))),
    ("dtype", of(InnerLoop("exp.d->d", (Place("x"), Place("n")), (N,), (N, N)))),
    ("dtype", of(Dot(F8, Address("B", (N,)), N, Place("n"), N, Place("x"), N))),
    ("axes", of(Assign("x", element("A", 0)))),
    ("axes", of(store("B", value=X))),
    ("axes", of(Assign("n", Extent("B", 1)))),
    ("axes", of(Assign("n", Stride("B", -1)))),
    ("axes", of(Assign("n", Pointer("A", (N,))))),
    ("axes", of(Allocate("A", (N,), True, 0))),
    ("axes", of(BindView("B", "A", (), (axis(0),)))),
    ("axes", of(BindView("B", "A", ((0, N),), (axis(0),)))),
    ("axes", of(BindView("B", "A", ((0, N), (1, N)), ()))),
    ("axes", of(InnerLoop("exp.d->d", (Place("x"), Place("x")), (N, N), (N, N)))),
    ("axes", of(InnerLoop("exp.d->d", (Place("x"), Place("x")), (N,), (N,)))),
    ("axes", of(InnerLoop("matmul.dd->d", (Place("x"),) * 3, (N,) * 4, (N,) * 8))),
    ("unknown-operator", of(Assign("x", Apply("sum", (X,), F8)))),
    ("unknown-operator", of(Assign("x", Apply("no_such", (X,), F8)))),
    ("unknown-operator", of(Assign("x", Apply("add", (X,), F8)))),
    ("unknown-operator", of(Assign("n", Checked("pow", (N, N), INT64, 0)))),
    ("unknown-operator", of(Assign("x", Foreign("Not a name", (X,))))),
    ("unknown-operator", of(InnerLoop("exp.q->d", (Place("n"), Place("x")), (N,), (N, N)))),
    ("unknown-operator", of(InnerLoop("no_such.d->d", (Place("x"), Place("x")), (N,), (N, N)))),
    ("unknown-operator", of(InnerLoop("exp", (Place("x"), Place("x")), (N,), (N, N)))),
    ("label", of(Break("L"))),
    ("label", of(Repeat("L", (Break("L"),)), Break("L"))),
    ("label", of(Block("L", (Continue("L"),)))),
    ("exit", of(Leave(4))),
    ("exit", of(Check(read("b", bool), -1))),
    ("exit", of(Assign("n", checked("add", N, 1, exit=9)))),
    ("exit", of(Allocate("B", (N,), True, 4))),
    ("exit", program((Assign("x", X),), SCALARS)),
    ("exit", program((If(read("b", bool), (Leave(0),)),), SCALARS)),
    ("exit", program((Repeat("L", (If(read("b", bool), (Break("L"),)),)),), SCALARS)),
    ("exit", program((Block("L", (Leave(0),)), Block("M", (Break("M"),))), [("x", F8)])),
)


@pytest.mark.parametrize("law, broken", BROKEN, ids=lambda x: x if isinstance(x, str) else "")
def test_a_broken_law_is_named(law, broken):
    if law == "exit" and isinstance(broken.body[0], Block):
        return verify_program(broken)  # control does not get behind the first block
    with pytest.raises(NestError) as raised:
        verify_program(broken)
    assert raised.value.law == law


def test_every_law_has_a_broken_program():
    assert {law for law, _ in BROKEN} == set(PROGRAM_LAWS)


@pytest.mark.parametrize("body", (
    (Leave(0),), (Repeat("L", ()),), (Repeat("L", (Repeat("M", (Break("M"),)),)),),
    (If(read("b", bool), (Leave(0),), (Leave(1),)),), (Leave(0), Assign("x", X)),
    (Block("L", (If(read("b", bool), (Leave(1),)), Leave(2))),)))
def test_bodies_that_end(body):
    verify_program(program(body, SCALARS))


# --------------------------------------------------------------------------- text


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_listing_reads_back(name):
    code = PROGRAMS[name]()
    text = show_program(code)
    assert show_program(parse_program(text)) == text and parse_program(text).body == code.body


def test_random_listings_read_back():
    for seed in range(60):
        code = random_case(seed)[0]
        again = parse_program(show_program(code))
        assert (again.body, again.exits, again.results) == (code.body, code.exits, code.results)


def test_names_with_dots_read_back():
    body = (Assign(".x.i8", read("t.1")), store("A.f8", read("t.1"), value=number(1.0, F8)), Leave(0))
    code = program(body, [(".x.i8", INT64), ("t.1", INT64)], [("A.f8", F8, 1)], (".x.i8",), name="f.g")
    text = show_program(code)
    assert "_·x·i8 = t·1" in text and "A·f8[t·1] = 1.0" in text
    assert parse_program(text) == code


def test_a_listing():
    body = (
        For("L", "n", number(0), Extent("C", 0), -2, (
            If(apply("less", element("C", N, dtype=INT64), checked("mul", N, 2)), (Continue("L"),), (
                Check(apply("equal", X, 0.5), 2),
                store("B", N, value=apply("add", apply("negative", X), X)))),)),
        BindView("B", "A", ((1, N),), (axis(0),)),
        Allocate("B", (number(3),), True, 1),
        InnerLoop("exp.d->d", (Address("B", (number(0),)), Place("x")), (number(1),),
                  (Stride("B", 0), number(8))),
        Assign("s", number(-7, "i2")), Assign("x", Foreign("exp", (number(np.nan, F8),))))
    code = replace(of(*body, parameters=("A", "n"), results=("x",), exits=3, raises=True), written=("A",))
    verify_program(code)
    assert show_program(code) == """\
@exit_point(0, 'final', 0, 'exit 0')
@exit_point(1, 'undo', 1, 'exit 1')
@exit_point(2, 'part', 2, 'exit 2')
@written(A)
@raises
def f(A: f8[:, :], n: i8) -> (x,):
    x: f8
    b: b1
    s: i2
    B: f8[:]
    C: i8[:]
    for n in range(0, size(C, 0), -2, label='L'):
        if C[n] < checked_mul(n, 2, exit=1):
            continue_('L')
        else:
            check(x == 0.5, exit=2)
            B[n] = negative(x) + x
    B = view(A, point(1, n), axis(0, 0, 1, 1))
    B = zeros(3, exit=1)
    call('exp.d->d', B[0], x, dims=(1,), steps=(stride(B, 0), 8,))
    s = i2(-7)
    x = c.exp(f8('000000000000f87f'))
    leave(0)
"""


@pytest.mark.parametrize("text", (
    "x = 1", "def f(", "def f(x: f8) -> ():\n    x += 1", "def f(x: no_dtype) -> ():\n    leave(0)",
    "def f(x: f8) -> ():\n    x = y", "def f(x: f8) -> ():\n    x = no_such(x)",
    "def f(x: f8) -> ():\n    while True:\n        pass", "def f(x: f8) -> ():\n    leave('a')",
    "@other\ndef f(x: f8) -> ():\n    leave(0)", "def f(x: f8) -> ():\n    for x in range(3):\n        pass"))
def test_text_that_is_no_program(text):
    with pytest.raises(NestError):
        parse_program(text)


# --------------------------------------------------------------------------- state and interpreter


def test_the_state_holds_parameters_and_results():
    code = program((Leave(0),), [("c", "c16"), ("s", "i2"), ("b", bool)], [("A", "f4", 2)],
                   ("b", "c"), ("A", "c", "s"))
    layout = state_layout(code)
    assert layout.places == {"A": 0, "c": 5, "s": 7, "b": 8} and layout.arena == 9 and layout.size == 11
    array, arena = np.arange(12, dtype="f4").reshape(3, 4)[::-1, 1::2], np.zeros(100, np.uint8)
    state = pack_state(code, {"A": array, "c": 1 - 2j, "s": -3, "b": True}, arena)
    assert run_program(code, state) == Outcome(0)
    results = unpack_state(code, state)
    assert results == {"b": False, "c": 1 - 2j}  # `b` has no value on entry
    assert state[:5].tolist() == [array.ctypes.data, 3, 2, *array.strides]
    assert state[7:8].view("i2")[0] == -3
    assert state[9:].tolist() == [arena.ctypes.data, arena.ctypes.data + 100]


def test_operands_of_another_type_are_refused():
    for wrong in (np.zeros(3), np.zeros((2, 2), "f4")):
        with pytest.raises(NestError):
            pack_state(program((Leave(0),), [], [("A", F8, 2)]), {"A": wrong})


def test_outcomes_are_decoded():
    assert Outcome.of_word(7) == Outcome(7)
    assert Outcome.of_word(3 << 32 | 2) == Outcome(2, divide=True, overflow=True)
    assert Outcome.of_word(4 << 32) == Outcome(0, invalid=True)


@pytest.mark.parametrize("op, args, dtype, result", (
    ("add", (100, 27), "i1", 127), ("add", (100, 28), "i1", None), ("neg", (-128,), "i1", None),
    ("neg", (1,), "u1", None), ("shl", (1, 6), "i1", 64), ("shl", (1, 7), "i1", None),
    ("shl", (0, 8), "u1", None), ("floordiv", (-7, 2), "i8", -4), ("floordiv", (-(2**63), -1), "i8", None),
    ("mod", (-(2**63), -1), "i8", 0), ("mod", (-7, 3), "i8", 2), ("mod", (7, -3), "i8", -2),
    ("mod", (1, 0), "i8", None)))
def test_checked_arithmetic(op, args, dtype, result):
    dtype = np.dtype(dtype)
    assert checked_result(op, [dtype.type(a) for a in args], dtype) == result


def test_exit_points_have_kinds():
    assert [e.kind for e in of(exits=3).exits] == [ExitKind.FINAL, ExitKind.UNDO, ExitKind.PART]


def test_flags_are_those_of_numpy():
    body = (Assign("x", apply("divide", X, read("y", F8))), Leave(0))
    code = program(body, [("x", F8), ("y", F8)], (), ("x",), raises=True)
    for x, y, flags in ((1, 0, (True, False, False)), (0, 0, (False, False, True)), (1, 3, (False,) * 3)):
        assert interpreted(code, {"x": x, "y": y})[0] == Outcome(0, *flags)
    assert interpreted(replace(code, raises=False), {"x": 1, "y": 0})[0] == Outcome(0)
