"""Rows that are taken crosswise have the bits of rows that are taken one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jitla
from jitla.codegen.kernel_abi import lay_out
from jitla.codegen.kernels.cell_layouts import is_crosswise
from jitla.fusion import Form, Schedule, crosswise_limit
from jitla.hops import Hop, Meta, apply, leaf, make
from jitla.recompile.schedule_choices import has_short_rows
from tests.codegen.driver import BACKEND, kernel_of
from tests.codegen.test_gather import leaves_of, operand, run

ACROSS = Schedule(crosswise=True)


def along(name: str, x: Hop) -> Hop:
    """Reduce the rows of `x`."""
    return make(name, (x,), axis=(len(x.meta.shape) - 1,), keepdims=False)


def programs(x: Hop, y: Hop) -> dict[str, list[Hop]]:
    """Return roots by the kind of kernel that they make."""
    both, term = apply("subtract", x, y), apply("multiply", x, y)
    found = {"cells": [both], "extremes": [along("max", x), along("min", both)],
             "sums": [along("sum", term)], "sum and value": [along("sum", both), both]}
    if x.meta.dtype.kind == "f":
        found["functions"] = [apply("tanh", both)]
        found["turns"] = [apply("sin", apply("multiply", x, leaf(2, Meta((), x.meta.dtype), "scalar")))]
        found["functions and sum"] = [along("sum", apply("exp", both))]
    return found


@pytest.mark.parametrize(("dtype", "kind"), [
    ("f8", "row"), ("f4", "padded"), ("i8", "padded"), ("?", "column"), ("f8", "strided")])
def test_bits_are_those_of_rows_one_by_one(dtype: str, kind: str) -> None:
    rng = np.random.default_rng(5)
    for width, rows in ((2, 33), (7, 70), (9, 17), (40, 9)):
        first = "flat" if kind != "row" else "padded"
        arrays: list[Any] = [operand(each, dtype, (rows, width), rng) for each in (first, kind)]
        if dtype[0] == "f":
            arrays[0][0, 0], arrays[0][-1, 1], arrays[0][1, 0] = np.nan, np.inf, -0.0
        if dtype == "?":
            x, y = leaves_of(arrays)
            every = {"cells": [apply("logical_and", x, y)], "any": [along("any", apply("not_equal", x, y))]}
        else:
            every = programs(*leaves_of(arrays))
        scalar = np.dtype(dtype).type(1000)
        for name, roots in every.items():
            if kind == "strided" and name not in ("cells", "functions"):
                continue  # aggregates are not walked by rows then
            (_, wanted), *others = [
                run(roots, [*arrays, scalar], chunk, schedule=how)
                for how, chunk in ((Schedule(), 0), (ACROSS, 0), (ACROSS, 3), (ACROSS, 11))]
            for _, found in others:
                assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted], (name, width, rows)


def test_which_kernels_have_code_for_short_rows() -> None:
    x, y = leaves_of([np.ones((50, 4)), np.ones(4)])
    roots = programs(x, y)
    rows, cell = Form("rows", 2, "ccb"), Form("cell", 2, "ccc")

    def across(name: str, form: Form, schedule: Schedule = ACROSS) -> bool:
        return is_crosswise(lay_out(kernel_of(roots[name]), form, schedule, BACKEND.jit.target))

    assert across("sums", rows) and across("cells", cell) and across("functions", cell)
    assert not across("cells", cell, Schedule()) and not across("cells", Form("cell", 1, "ccc"))
    most = [crosswise_limit(kernel_of(roots[n]), form) for n, form in (
        ("sums", rows), ("functions", cell), ("cells", cell), ("cells", Form("cell", 1, "ccc")))]
    assert most[1] > most[0] > most[2] > most[3] == 0
    text = BACKEND.compile(kernel_of(roots["functions"]), cell, ACROSS).text
    assert text.count("call void @across") == 1 and "call void @tail" in text


def test_plans_ask_for_it_where_rows_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bool]] = []

    def noted(kernel: Any, form: Form, geometry: Any) -> bool:
        asked.append((geometry.dims[-1], has_short_rows(kernel, form, geometry)))
        return asked[-1][1]

    monkeypatch.setattr("jitla.recompile.binding.has_short_rows", noted)
    monkeypatch.setattr("jitla.recompile.row_binding.has_short_rows", noted)

    @jitla.jit(compile="sync")
    def classes(x: np.ndarray) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    for width in (2, 3, 4, 100):
        x = np.random.default_rng(width).normal(size=(900, width))
        np.testing.assert_allclose(classes(x), classes.__wrapped__(x), rtol=1e-14)
    assert (2, True) in asked and (3, True) in asked and not any(short for n, short in asked if n == 100)
    shown = jitla.explain(lambda x, y: (x - y) / y, np.ones((900, 3)), np.ones(3), level="llvm")
    assert ", several short rows to a vector" in str(shown)
    # one set of kernels for all short rows, one for longer ones
    assert classes.stats().planned <= 2
