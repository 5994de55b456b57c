"""Errors planted in the loop compiler: each has to be found by the tests that it names.

An error is a function that replaces a part of the compiler. A new process plants it and runs the tests; they
have to fail by an assertion, or to crash where the error is one of machine code.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitla.codegen import loop_programs
from jitla.loopir import program as ir
from jitla.loopjit import (
    arrays,
    bounds,
    builder,
    loop_compiler,
    loop_sites,
    lowering,
    reductions,
    rollback,
    selections,
    state,
)
from jitla.loopjit.loop_functions import LoopFunction
from jitla.loopjit.loop_sites import LoopRun, State
from jitla.loopjit.values import Arr
from tests.faults.running import SECONDS, fault

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS, SITES, CODE = (f"tests/{path}.py" for path in (
    "loopjit/test_loop_programs", "loopjit/test_loop_sites", "codegen/test_loop_programs"))
Plant = Callable[[], None]
ERRORS: dict[str, tuple[Plant, tuple[str, ...]]] = {}


def error(*tests: str) -> Callable[[Plant], Plant]:
    """Register an error, with the tests that find it."""

    def register(plant: Plant) -> Plant:
        ERRORS[plant.__name__] = plant, tests
        return plant

    return register


def replace(owner: Any, name: str, new: Callable[..., Any]) -> None:
    """Replace a function of a module or a class by one that is called with the old one first."""
    assert hasattr(owner, name)
    old = getattr(owner, name)
    setattr(owner, name, lambda *args, **options: new(old, *args, **options))


class Failures:
    """Collects how tests have failed."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self.texts.append(str(report.longrepr))


def run_tests(name: str) -> None:
    """Plant an error, and run its tests until one fails; raise unless one fails by an assertion."""
    plant, tests = ERRORS[name]
    plant()
    failures = Failures()
    pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], plugins=[failures])
    assert failures.texts, "no test has failed"
    assert "AssertionError" in failures.texts[0] or "DID NOT RAISE" in failures.texts[0], failures.texts[0]


# ------------------------------------------------------------------------------ roll-back


@error(f"{PROGRAMS}::test_warnings_of_iterations_that_are_undone")
def arrays_are_not_restored() -> None:
    replace(rollback, "restore", lambda old, saved: None)


@error(f"{PROGRAMS}::test_overlapping_slices_and_arguments_that_share_memory")
def no_array_is_saved() -> None:
    replace(loop_sites, "_saved", lambda old, *args, always=False: old(*args, always=True) if always else [])


@error("tests/loopjit/test_rollback.py")
def elements_of_other_threads_are_restored() -> None:
    replace(rollback, "restore_changed", lambda old, saved, after: rollback.restore(saved))


@error(f"{PROGRAMS}::test_warnings_of_iterations_that_are_undone")
def failing_iteration_is_not_left_to_python() -> None:
    replace(LoopRun, "_fail", lambda old, run, specialisation: setattr(run, "_position", run._position + 1))


# ------------------------------------------------------------------------------ bounds


@error(f"{PROGRAMS}::test_exceptions_are_raised_at_their_line_with_the_state_of_arrays",
       f"{SITES}::test_calls_are_those_of_python")
def only_the_first_index_is_checked() -> None:
    replace(bounds, "_last", lambda old, loop: loop.begin)


@error(f"{SITES}::test_calls_are_those_of_python")
def assigned_variables_are_invariant() -> None:
    replace(bounds._Scope, "_is_invariant", lambda old, scope, value: True)


@error(f"{PROGRAMS}::test_exceptions_are_raised_at_their_line_with_the_state_of_arrays")
def negative_indices_count_from_the_last_element() -> None:
    def wrong(old: Any, b: Any, index: Any, size: ir.Value) -> ir.Value:
        return old(b, index, size) if index.low >= 0 else old(b, index, builder.minus(size, ir.constant(1)))

    replace(arrays, "position", wrong)
    selections.position = arrays.position


@error(f"{PROGRAMS}::test_slices_with_any_bounds")
def ends_of_slices_are_not_negative() -> None:
    def wrong(old: Any, b: Any, end: Any, *args: Any) -> ir.Value:
        if end is None or end.low >= 0:
            return old(b, end, *args)
        return old(b, arrays.of_kind("int", builder.apply("absolute", end.value), 0), *args)

    replace(arrays, "_clamped", wrong)


# ------------------------------------------------------------------------------ overlaps


@error(f"{PROGRAMS}::test_overlapping_slices_and_arguments_that_share_memory")
def operands_never_overlap() -> None:
    replace(loop_sites, "overlap_groups", lambda old, operands: tuple(range(len(operands))))


@error(f"{PROGRAMS}::test_overlapping_slices_and_arguments_that_share_memory")
def slices_never_overlap() -> None:
    replace(arrays, "may_overlap", lambda old, target, operand: False)


@error(f"{PROGRAMS}::test_overlapping_slices_and_arguments_that_share_memory")
def arrays_never_share_memory() -> None:
    replace(Arr, "may_share_memory", lambda old, one, other: False)


@error("tests/loopjit/test_loop_coverage.py::test_overlapping_selections")
def selections_never_overlap() -> None:
    replace(selections, "may_overlap", lambda old, target, operand: False)


# ------------------------------------------------------------------------------ variables of several types


@error(f"{PROGRAMS}::test_scalars_of_several_kinds")
def tags_are_not_written() -> None:
    def wrong(old: Any, b: Any, name: str, value: ir.Value) -> Any:
        return old(b, name, ir.constant(1, np.int8) if name.endswith(".tag") else value)

    replace(builder.ProgramBuilder, "assign", wrong)


@error(f"{PROGRAMS}::test_scalars_of_several_kinds")
def tags_are_not_entered() -> None:
    replace(state, "_tag_of", lambda old, value: 1)


@error("tests/loopjit/test_unions.py")
def options_of_unions_are_not_written() -> None:
    def wrong(old: Any, b: Any, name: str, value: ir.Value) -> Any:
        return old(b, name, ir.constant(0, np.int8) if name.endswith(".option") else value)

    replace(builder.ProgramBuilder, "assign", wrong)


# ------------------------------------------------------------------------------ flags and checks


@error(f"{PROGRAMS}::test_warnings_of_iterations_that_are_undone")
def flags_are_not_read() -> None:
    replace(loop_sites, "_is_reported", lambda old, flags: False)


@error(f"{PROGRAMS}::test_warnings_of_iterations_that_are_undone")
def programs_never_raise_flags() -> None:
    replace(lowering, "may_raise_flags", lambda old, body: False)


@error(f"{CODE}::test_flags_of_single_operations", f"{SITES}::test_calls_are_those_of_python",
       f"{CODE}::test_random_programs")
def flags_are_those_of_the_last_routine() -> None:
    loop_programs._FLAG_KEEPING = type("All", (), {"__contains__": lambda self, name: True})()


@error(f"{SITES}::test_code_that_differs_from_python_is_never_used")
def code_is_not_compared_with_python() -> None:
    def wrong(old: Any, run: LoopRun, check: Any, values: Any) -> None:
        run._check = None
        check.specialisation.state = State.READY

    replace(LoopRun, "_compare", wrong)


@error(f"{SITES}::test_code_that_differs_from_python_is_never_used")
def code_is_not_tried() -> None:
    replace(LoopRun, "_try", lambda old, run, specialisation, *args: setattr(
        specialisation, "state", State.READY))


# ------------------------------------------------------------------------------ sums


@error(f"{PROGRAMS}::test_reductions_and_products", "tests/loopjit/test_loop_coverage.py")
def sums_are_added_in_turn() -> None:
    def wrong(old: Any, b: Any, op: str, array: Arr) -> Any:
        if op != "add" or array.ndim != 1:
            return old(b, op, array)
        name = b.fresh("r")
        total = b.assign(name, reductions._sum_identity(array.dtype))
        arrays.each_element(b, array.shape, lambda at: b.emit(ir.Assign(name, builder.apply(
            "add", total, ir.Element(array.view, at, array.dtype)))))
        return reductions.of_kind(reductions.kind_of(array.dtype), total)

    replace(reductions, "_line", wrong)


@error(f"{PROGRAMS}::test_reductions_and_products", "tests/loopjit/test_loop_coverage.py")
def products_are_added_in_turn() -> None:
    def wrong(old: Any, b: Any, a: Arr, c: Arr) -> Any:
        terms = arrays.map_elements(b, "multiply", [a, c])
        return reductions._exact(b, "add", terms)

    replace(reductions, "_dot", wrong)


# ------------------------------------------------------------------------------ guards


@error(f"{SITES}::test_names_of_the_module_may_change")
def names_are_not_looked_up_again() -> None:
    replace(loop_compiler.NameResolver, "is_current", lambda old, resolver: True)


@error("tests/loopjit/test_constants.py::test_attributes_of_modules_may_change")
def attributes_do_not_change() -> None:
    replace(loop_compiler.NameResolver, "attribute",
            lambda old, resolver, module, name: getattr(module, name))


@error("tests/loopjit/test_loop_coverage.py::test_names_outside_of_the_function")
def lists_do_not_change() -> None:
    replace(loop_compiler.NameResolver, "list_items", lambda old, resolver, value: tuple(value))


@error(f"{SITES}::test_inlined_functions_may_change",
       f"{PROGRAMS}::test_defaults_of_inlined_functions_that_change")
def inlined_functions_do_not_change() -> None:
    def wrong(old: Any, resolver: Any, function: Any) -> Any:
        helper = old(resolver, function)
        resolver.inlined.clear()
        return helper

    replace(loop_compiler.NameResolver, "helper", wrong)


@error("tests/loopjit/test_loop_coverage.py::test_names_outside_of_the_function")
def variables_of_outer_functions_do_not_change() -> None:
    replace(loop_compiler, "_contents", lambda old, cell: next(
        (value for noted, value in CELLS if noted is cell), None))
    replace(loop_compiler.NameResolver, "_free_variable", _noted_variable)


CELLS: list[tuple[Any, Any]] = []


def _noted_variable(old: Any, resolver: Any, *args: Any) -> Any:
    value = old(resolver, *args)
    CELLS.extend(resolver.cells)
    return value


@error("tests/loopjit/test_loop_functions.py::test_functions_whose_code_is_exchanged")
def functions_do_not_change() -> None:
    replace(LoopFunction, "is_current", lambda old, function: True)


# ------------------------------------------------------------------------------ memory


@error(f"{CODE}::test_shapes_that_do_not_fit_leave")
def arena_has_no_end() -> None:
    def wrong(old: Any, writer: Any, statement: ir.Allocate) -> None:
        leave, writer._exit_if = writer._exit_if, lambda test, number: None
        old(writer, statement)
        writer._exit_if = leave

    replace(loop_programs._Writer, "_allocate", wrong)


@error(f"{CODE}::test_memory_is_free_again_in_the_next_iteration")
def arena_is_never_free_again() -> None:
    replace(loop_programs._Writer, "_reset_arena", lambda old, writer: None)


@error(f"{PROGRAMS}::test_views_and_arrays_that_outlive_an_iteration")
def memory_of_the_iteration_before_is_used_again() -> None:
    replace(lowering, "retain", lambda old, b, variables: None)


@error(f"{PROGRAMS}::test_views_and_arrays_that_outlive_an_iteration")
def results_are_views_of_the_arena() -> None:
    def wrong(old: Any, memory: Any) -> None:
        memory._copies = [(low, high, True, state.read_memory(low, np.dtype(np.uint8), (high - low,), (1,)))
                          for low, high in sorted(memory.spans)]

    replace(state._Memory, "copy_spans", wrong)


@fault(*(plant for plant, _ in ERRORS.values()))
def planted(at: Path, plant: Plant) -> None:
    text = f"from tests.faults.planted import run_tests; run_tests({plant.__name__!r})"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True,
                          timeout=SECONDS)
    assert done.returncode <= 0, done.stdout + done.stderr  # below 0: a crash
