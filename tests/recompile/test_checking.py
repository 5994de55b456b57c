"""Kernels are compared with NumPy before they are used, and those that differ are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.codegen.kernels import (
    cell_layouts as crosswise,
)
from jitla.codegen.kernels import (
    reduce_all as reduce,
)
from jitla.events import Event
from jitla.fusion import (
    Executable,
    Form,
    Geometry,
    InterpretedBackend,
    InterpretedKernel,
    Kernel,
    Schedule,
)
from jitla.hops import Meta, apply, const, leaf, lookup
from jitla.recompile import Compiler
from jitla.recompile.compiler import numpy_difference
from tests.codegen.driver import BACKEND, drive, kernel_of

F8 = Meta((4,), np.dtype(np.float64))
X, Y = leaf(0, F8), leaf(1, F8)
CELL, FULL = Form("cell", 1, "ccc"), Form("full", 1, "ccb")


class Off(InterpretedKernel):
    """A kernel of which one element is not what it should be."""

    def template(self, geometry: Geometry, more: bool = False) -> bytes:
        block: Any = super().template(geometry, more)
        run = block.run

        def wrong(*operands: Any) -> None:
            run(*operands)
            last = operands[-1].reshape(-1)
            last[-1] = last[-1] * 2 + 1

        block.run = wrong
        return block


class Careless(InterpretedBackend):
    """A compiler that makes such kernels."""

    def compile(self, kernel: Kernel, form: Form, schedule: Schedule) -> InterpretedKernel:
        return Off(kernel, form)


def kernels() -> list[tuple[Kernel, Form]]:
    total = apply("sum", apply("multiply", X, Y), axis=(0,), keepdims=False)
    return [(kernel_of([apply("multiply", X, Y)]), CELL), (kernel_of([total]), FULL)]


@pytest.mark.parametrize(("kernel", "form"), kernels())
def test_a_kernel_that_differs_is_not_used(kernel: Kernel, form: Form, caplog: Any) -> None:
    told: list[Event] = []
    compiler = Compiler(Careless(), observe=told.append)
    made, launch = compiler.executable(kernel, "key", form, Schedule())
    assert type(made) is InterpretedKernel
    assert [event.kind for event in told] == ["kernel.failed"] and "in NumPy" in told[0].subject
    assert "differs from NumPy" in caplog.text


@pytest.mark.parametrize(("kernel", "form"), kernels())
def test_a_kernel_that_does_not_differ_is(kernel: Kernel, form: Form) -> None:
    made: Executable = BACKEND.compile(kernel, form, Schedule())
    assert numpy_difference(kernel, form, Schedule(), made, drive, True) == ""
    told: list[Event] = []
    found, _ = Compiler(InterpretedBackend(), observe=told.append).executable(kernel, "key", form, Schedule())
    assert type(found) is InterpretedKernel and [event.kind for event in told] == ["kernel"]
    assert made.text


def swapped(monkeypatch: pytest.MonkeyPatch) -> tuple[Kernel, Form]:
    """The other value is taken where a condition holds."""
    spec = lookup("where")
    real = spec.emit
    assert real is not None
    condition = apply("less", X, Y)
    kernel = kernel_of([apply("where", condition, X, Y)])
    object.__setattr__(spec, "emit", lambda b, c, x, y, attrs: real(b, c, y, x, attrs))
    return kernel, CELL


def shortened(monkeypatch: pytest.MonkeyPatch) -> tuple[Kernel, Form]:
    """Sums leave out the last element if it is the only one that fills no vector."""
    real = reduce._leaf
    monkeypatch.setattr(reduce, "_leaf", lambda *given: real(*given).replace(
        "icmp ne i64 %rest, 0", "icmp ugt i64 %rest, 1"))
    return kernels()[1]


@pytest.mark.parametrize("put", [swapped, shortened])
def test_a_wrong_instruction_is_found(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = lookup("where")
    real = spec.emit
    try:
        kernel, form = put(monkeypatch)
        backend = LlvmBackend(launch=drive, threads=1)
        made = backend.compile(kernel, form, Schedule())
        assert numpy_difference(kernel, form, Schedule(), made, drive, True)
    finally:
        object.__setattr__(spec, "emit", real)


def test_functions_without_exact_results_may_round_but_not_be_wrong() -> None:
    kernel = kernel_of([apply("exp", apply("add", X, const(1.0, "f8")))])
    form = Form("cell", 1, "cc")

    class Rounded(Off):
        def template(self, geometry: Geometry, more: bool = False) -> bytes:
            block: Any = InterpretedKernel.template(self, geometry, more)
            run = block.run

            def other(*operands: Any) -> None:
                run(*operands)
                operands[-1][...] = operands[-1] * factor

            block.run = other
            return block

    launch = InterpretedBackend().launch
    for factor, wrong in ((1.0, False), (1.0 + 4e-16, False), (1.001, True)):
        assert bool(numpy_difference(kernel, form, Schedule(), Rounded(kernel, form), launch, True)) is wrong


def test_results_are_as_precise_as_what_they_were_made_of() -> None:
    x = leaf(0, Meta((4,), np.dtype(np.float32)))
    kernel = kernel_of([apply("cast", apply("exp", x), dtype=np.dtype(np.float64))])
    form = Form("cell", 1, "cc")
    executable = BACKEND.compile(kernel, form, Schedule())
    assert numpy_difference(kernel, form, Schedule(), executable, drive, True) == ""


SUMS = apply("sum", apply("multiply", X, Y), axis=(0,), keepdims=False)
LAID = [
    (Form("cell", 2, "ccc"), False), (Form("cell", 2, "cbc"), True), (Form("cell", 3, "csc"), False),
    (Form("cell", 2, "scs"), False), (Form("cell", 1, "csc"), False), (Form("rows", 2, "ccb"), True),
    (Form("rows", 3, "ccb"), False), (Form("cols", 2, "ccc"), False), (Form("full", 2, "frb"), False)]


@pytest.mark.parametrize(("form", "crosswise"), LAID, ids=lambda x: f"{x}"[5:])
def test_kernels_are_looked_at_however_arrays_lie(form: Form, crosswise: bool) -> None:
    kernel = kernel_of([apply("multiply", X, Y) if form.mode == "cell" else SUMS])
    schedule = Schedule(crosswise=crosswise)
    made = BACKEND.compile(kernel, form, schedule)
    assert numpy_difference(kernel, form, schedule, made, drive, True) == ""
    launch = InterpretedBackend().launch
    assert "in NumPy" in numpy_difference(kernel, form, schedule, Off(kernel, form), launch, True)


def test_rows_that_share_vectors_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, form = kernel_of([apply("multiply", X, Y)]), Form("cell", 2, "ccc")
    schedule = Schedule(crosswise=True)
    real = crosswise.across
    monkeypatch.setattr("jitla.codegen.kernels.cell.across", lambda *a: real(*a).replace("fmul", "fadd"))
    made = LlvmBackend(launch=drive, threads=1).compile(kernel, form, schedule)
    assert numpy_difference(kernel, form, schedule, made, drive, True)


def test_results_of_other_kernels_are_arrays_like_others() -> None:
    every = apply("all", leaf(0, Meta((4, 3), np.dtype(bool))), axis=(1,), keepdims=True)
    count = apply("sum", apply("cast", every, dtype=np.dtype(np.int64)), axis=(0, 1), keepdims=False)
    kernel = Kernel("MAgg", (4, 1), (every,), (count.inputs[0], count), (count,))
    form = Form("full", 1, "cb")
    made = BACKEND.compile(kernel, form, Schedule())
    assert numpy_difference(kernel, form, Schedule(), made, drive, True) == ""


def test_what_is_stored_between_rows_is_found() -> None:
    class Beyond(Off):
        def template(self, geometry: Geometry, more: bool = False) -> bytes:
            block: Any = InterpretedKernel.template(self, geometry, more)
            run = block.run

            def wrong(*operands: Any) -> None:
                run(*operands)
                operands[-1][geometry.dims[-1]] = 1.0

            block.run = wrong
            return block

    kernel, form = kernel_of([apply("multiply", X, Y)]), Form("cell", 2, "ccc")
    launch = InterpretedBackend().launch
    assert numpy_difference(kernel, form, Schedule(), Beyond(kernel, form), launch, True)


def test_delayed_stores_and_tables_are_not_looked_at() -> None:
    kernel, _ = kernels()[0]
    launch = InterpretedBackend().launch
    for form, schedule in ((CELL, Schedule(delayed=True)), (Form("tally", 1, "ccc"), Schedule())):
        assert numpy_difference(kernel, form, schedule, Off(kernel, form), launch, True) == ""
