"""Loop programs for tests and measurements, and short names to write them with."""

from __future__ import annotations

import numpy as np

from jitla.loopir.nodes import Apply
from jitla.loopir.program import (
    BOOL,
    INT64,
    Address,
    Assign,
    AxisMap,
    BindView,
    Check,
    Checked,
    Dot,
    Element,
    ExitKind,
    ExitPoint,
    Extent,
    For,
    If,
    Leave,
    LoopProgram,
    Place,
    Read,
    ScalarVariable,
    StoreElement,
    Stride,
    ViewVariable,
    constant,
    dtype_of_value,
)

F8 = np.dtype(np.float64)


def number(value, dtype=INT64):
    """Return a constant; other nodes are returned as they are."""
    return constant(value, dtype) if isinstance(value, (bool, int, float, complex, np.generic)) else value


def read(name, dtype=INT64):
    return Read(name, np.dtype(dtype))


COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and",
               "logical_or", "logical_not", "logical_xor")


def apply(op, *args, dtype=None):
    """Return an operator on values; numbers take the dtype of the last operand that has one."""
    known = next((dtype_of_value(a) for a in reversed(args)
                  if not isinstance(a, (bool, int, float, complex))), INT64)
    values = tuple(number(a, known) for a in args)
    result = np.dtype(dtype) if dtype is not None else BOOL if op in COMPARISONS else known
    return Apply(op, values, result)


def cast(value, dtype):
    """Return a value in another dtype."""
    return Apply("cast", (value,), np.dtype(dtype), (("dtype", np.dtype(dtype)),))


def checked(op, *args, exit=1, dtype=INT64):
    return Checked(op, tuple(number(a, dtype) for a in args), np.dtype(dtype), exit)


def element(view, *index, dtype=F8):
    return Element(view, tuple(number(i) for i in index), np.dtype(dtype))


def store(view, *index, value):
    return StoreElement(view, tuple(number(i) for i in index), value)


def program(body, scalars, views=(), results=(), parameters=None, exits=4, raises=False, name="f"):
    """Return a program of `scalars` and `views`, pairs of names and dtypes (and numbers of axes)."""
    declared = tuple(ScalarVariable(n, np.dtype(d)) for n, d in scalars)
    seen = tuple(ViewVariable(n, np.dtype(d), k) for n, d, k in views)
    given = tuple(v.name for v in (*declared, *seen)) if parameters is None else parameters
    kinds = (ExitKind.FINAL, ExitKind.UNDO, ExitKind.PART)
    points = tuple(ExitPoint(kinds[min(k, 2)], k, f"exit {k}") for k in range(exits))
    return LoopProgram(name, declared, seen, tuple(given), tuple(results), tuple(body), points, raises=raises)


def index_checks(view, *index):
    """Return the checks that indices are in bounds, neither negative."""
    return tuple(
        Check(apply("logical_or", apply("less", number(i), 0),
                    apply("greater_equal", number(i), Extent(view, axis))), 1)
        for axis, i in enumerate(index))


def edit_distance():
    """Return the edit distance of `s` and `t`, by a table `D`, with every check that Python needs."""
    i, j = read("i"), read("j")
    before_i, before_j = checked("sub", i, 1), checked("sub", j, 1)
    cell = (
        *index_checks("s", before_i), *index_checks("t", before_j),
        If(apply("equal", element("s", before_i, dtype=INT64), element("t", before_j, dtype=INT64)),
           (Assign("cost", number(0)),), (Assign("cost", number(1)),)),
        *index_checks("D", before_i, j), *index_checks("D", i, before_j),
        Assign("best", checked("add", element("D", before_i, j, dtype=INT64), 1)),
        Assign("other", checked("add", element("D", i, before_j, dtype=INT64), 1)),
        If(apply("less", read("other"), read("best")), (Assign("best", read("other")),)),
        Assign("other", checked("add", element("D", before_i, before_j, dtype=INT64), read("cost"))),
        If(apply("less", read("other"), read("best")), (Assign("best", read("other")),)),
        *index_checks("D", i, j),
        store("D", i, j, value=read("best")))
    end = [checked("add", read(n), 1) for n in ("n", "m")]
    rows = For("rows", "i", number(1), end[0], 1, (For("columns", "j", number(1), end[1], 1, cell),))
    scalars = [(n, INT64) for n in ("n", "m", "i", "j", "cost", "best", "other")]
    views = [("D", INT64, 2), ("s", INT64, 1), ("t", INT64, 1)]
    return program((rows, Leave(0)), scalars, views, ("i", "j"), ("n", "m", "D", "s", "t"))


def lu():
    """Return the LU decomposition of `A` in place, by `dot` of rows with columns."""
    i, j, n = read("i"), read("j"), Extent("A", 0)

    def entry(length):
        return (
            *index_checks("A", i, j),
            BindView("row", "A", ((0, i),), (AxisMap(1, number(0), length, number(1)),)),
            BindView("column", "A", ((1, j),), (AxisMap(0, number(0), length, number(1)),)),
            Dot(F8, Address("row", (number(0),)), Stride("row", 0), Address("column", (number(0),)),
                Stride("column", 0), Place("d"), Extent("row", 0)),
            Assign("x", apply("subtract", element("A", i, j), read("d", F8))))

    lower = (*entry(j), Assign("pivot", element("A", j, j)),
             Check(apply("equal", read("pivot", F8), 0.0), 2),
             store("A", i, j, value=apply("divide", read("x", F8), read("pivot", F8))))
    upper = (*entry(i), store("A", i, j, value=read("x", F8)))
    body = (For("rows", "i", number(0), n, 1, (
        For("lower", "j", number(0), i, 1, lower), For("upper", "j", i, n, 1, upper))), Leave(0))
    scalars = [("i", INT64), ("j", INT64), ("d", F8), ("x", F8), ("pivot", F8)]
    return program(body, scalars, [("A", F8, 2), ("row", F8, 1), ("column", F8, 1)], ("i", "j"), ("A",))


def stencil():
    """Return `steps` sweeps of a 1-D stencil from `a` to `b` and back."""
    i = read("i")

    def sweep(label, source, target):
        total = apply("add", element(source, checked("sub", i, 1)), element(source, checked("add", i, 1)))
        return For(label, "i", number(1), checked("sub", Extent(source, 0), 1), 1, (
            *index_checks(source, checked("sub", i, 1)), *index_checks(source, checked("add", i, 1)),
            *index_checks(target, i),
            store(target, i, value=apply("add", apply("multiply", total, number(0.25, F8)),
                                         apply("multiply", element(source, i), number(0.5, F8))))))

    sweeps = sweep("there", "a", "b"), sweep("back", "b", "a")
    body = (For("time", "k", number(0), read("steps"), 1, sweeps), Leave(0))
    return program(body, [("steps", INT64), ("k", INT64), ("i", INT64)], [("a", F8, 1), ("b", F8, 1)],
                   ("k", "i"), ("steps", "a", "b"), raises=True)


PROGRAMS = {"edit distance": edit_distance, "lu": lu, "stencil": stencil}
