"""What would make functions faster is said of records, what costs most first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jitla.explanations.advice import (
    MAX_ADVICE,
    MAX_BRIEF_SECONDS,
    MIN_BRIEF_RUNS,
    MIN_GUARD_CHANGES,
    MIN_TIME_SHARE,
    advice,
)
from jitla.explanations.records import (
    CallRecord,
    CoveredOperator,
    FallbackRecord,
    FunctionRecord,
    ProgramRecord,
    ScalarLoopRecord,
    SourceLine,
    StepRecord,
)
from tests.test_explanation import COMPILED

LINE = SourceLine("a/f.py", 7, "y = np.median(x)")
PLAIN = FunctionRecord("f", LINE)


def test_nothing_is_said_of_what_is_fine():
    assert advice(PLAIN) == ()


@pytest.mark.parametrize(("reason", "told"), [
    ("not in the op table", "took 2 s and ends its block: docs/supported.md lists"),
    ("not in this form, or not of these dtypes", "is traced with other arguments or dtypes"),
    ("whole calls, on 8 to 15 elements: 1 us each", "pass more data at a time"),
    ("something else", "is run by NumPy")])
def test_fallbacks_have_a_cure(reason, told):
    (text,) = advice(replace(PLAIN, fallbacks=(FallbackRecord("median", LINE, 3, 2.0, reason),)))
    assert text.startswith("f.py:7: median took 2 s") and told in text


def test_what_costs_most_is_first_and_not_all_is_said():
    found = tuple(FallbackRecord(f"f{n}", LINE, 1, float(n), "not in the op table") for n in range(1, 20))
    texts = advice(replace(PLAIN, fallbacks=found))
    assert len(texts) == MAX_ADVICE and [t.split()[1] for t in texts] == [f"f{n}" for n in range(19, 13, -1)]


@pytest.mark.parametrize(("note", "told"), [
    ("runs in NumPy: its source was not found", "define it in a file"),
    ("runs in NumPy: compile=\"off\"", "leave it out"),
    ("runs in NumPy: calls have not", "compile=\"sync\" traces every call")])
def test_functions_that_are_not_compiled(note, told):
    assert told in advice(replace(PLAIN, note=note))[0]


def test_products_that_are_most_of_the_time():
    step = StepRecord("call", "matmul 900x900 float64", seconds=0.9, reason="not element-wise")
    program = ProgramRecord("p", steps=(step,), runs=2, seconds=1.0)
    assert "runs in BLAS" in advice(replace(PLAIN, programs=(program,)))[0]
    assert advice(replace(PLAIN, programs=(replace(program, seconds=4.0),))) == ()


def test_loops_changes_waiting_failures_and_assumptions():
    record = replace(
        PLAIN, nests=(ScalarLoopRecord(LINE, "refused", "it calls print", seconds=1.0),), waiting=2,
        compilations=(replace(COMPILED[1], guard="dtype of X: float64 -> float32"),) * MIN_GUARD_CHANGES,
        failures=("BackendError: no",), assumed=True, programs=(ProgramRecord("p"),))
    texts = "\n".join(advice(record))
    changed = f"{MIN_GUARD_CHANGES} times because of another dtype"
    for told in ("Python runs the loop (it calls print)", "compiles ahead", changed, "please report", "calibrate"):
        assert told in texts


def test_what_takes_next_to_nothing_is_not_named():
    some = FallbackRecord("sort", LINE, 1, 1.0, "not in the op table")
    record = replace(PLAIN, fallbacks=(some, replace(some, function="copy", seconds=MIN_TIME_SHARE / 2)))
    assert [text.split()[1] for text in advice(record)] == ["sort"]
    nest = ScalarLoopRecord(LINE, "cold")
    watched = replace(record, nests=(nest,), call=CallRecord(0.0, 1000.0))  # most went into the loop
    (told,) = advice(watched)
    assert "is compiled once Python has spent 2 ms in it: call f as usual" in told


def test_only_in_loops_something_can_be_moved_out():
    record = replace(PLAIN, fallbacks=(FallbackRecord("sort", LINE, 3, 1.0, "not in the op table"),))
    assert "loop" not in advice(record)[0]
    assert "move it out of the loop" in advice(replace(record, turns=True))[0]


def test_blocks_that_are_hardly_worth_being_begun():
    step = StepRecord("kernel", "MAgg 9 float64", (CoveredOperator("sum", LINE),))
    program = ProgramRecord("p", steps=(step,), runs=MIN_BRIEF_RUNS, seconds=MAX_BRIEF_SECONDS / 2)
    (told,) = advice(replace(PLAIN, programs=(program,)))
    assert told.startswith("f.py:7: a block of 10 us ran 100 times")
    assert advice(replace(PLAIN, programs=(replace(program, seconds=2 * MAX_BRIEF_SECONDS),))) == ()
