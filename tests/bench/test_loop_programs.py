"""The benchmark of loop programs: programs, comparisons, figures, and a program in every mode."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.loop_programs.__main__ import chosen, parsed
from bench.loop_programs.comparison import BITS, CLOSE, DIFFERENT, compare
from bench.loop_programs.own.program import Own
from bench.loop_programs.program import Call, Mode, Program
from bench.loop_programs.runner import (
    HEAD,
    describe,
    failures,
    measure_program,
    row_of,
    summarize_suites,
)
from bench.loop_programs.suites import SUITES, find_program, own
from bench.loop_programs.suites.folders import SOURCES
from bench.loop_programs.suites.own import own_programs
from bench.loop_programs.suites.statements import CallText
from bench.loop_programs.worker import (
    Calls,
    Plain,
    call_repeatedly,
    compiled_after,
    find_expected,
    measure,
    mode_of,
    summarize,
)

OWN = [program for programs in own_programs().values() for program in programs]


@pytest.mark.parametrize("program", OWN, ids=lambda program: program.name)
def test_own_programs_run_and_their_inputs_are_deterministic(program: Own) -> None:
    first, second = program.inputs(program.tiny), program.inputs(program.tiny)
    assert compare(first, second) == BITS
    assert len(program.inputs(program.size)) == len(first)
    results = [program.function(*first), program.function(*second)]
    assert compare(results[0], results[1]) == BITS
    assert compare(first, second) == BITS


def test_own_programs_are_many_and_of_many_fields() -> None:
    assert len(OWN) >= 60 and len(own_programs()) == 12
    assert len({program.name for program in OWN}) == len(OWN)


def test_a_program_is_measured_in_every_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "own_programs", lambda: {"finance": [
        program._replace(size=30) for program in own_programs()["finance"] if program.name == "rebalance"]})
    program = find_program("own", "rebalance")

    def run(program: Program, mode: str, folder: Path, seconds: float) -> dict[str, Any]:
        return measure(program, mode, folder, seconds)

    record = measure_program(program, ["plain", "jitla", "njit"], 0.01, run)
    assert not failures(record)
    assert record["jitla"]["same"] in ("bits", "close") and record["jitla"]["calls"] >= 3
    assert len(row_of(record, "jitla")) == len(HEAD)
    summary = summarize_suites([record], "jitla")["own"]
    assert summary["programs"] == summary["njit_programs"] == 1
    assert any("geometric means" in line for line in describe("own", "jitla", summary))


def test_failures_are_reported_and_not_raised() -> None:
    record = measure_program(Program("own", "none", "broken", lambda mode: Call(len, ())), ["jitla"], 1.0,
                             lambda *_: {"failed": "TypeError: x"})
    assert failures(record) == ["own/broken plain: TypeError: x"]
    assert row_of(record, "jitla")[-1] == "failed"
    assert summarize_suites([record], "jitla") == {}


def test_modified_arguments_are_restored_and_compared() -> None:
    def double(x: np.ndarray[Any, Any], names: list[str]) -> Any:
        x *= 2
        names.append("x")
        return x.sum()

    arguments = np.ones(3), ["y"]
    expected = find_expected(double, copy.deepcopy(arguments))
    assert sorted(expected.modified) == [0, 1] and expected.result == 6.0
    calls = call_repeatedly(double, arguments, expected, 0.0, 4)
    assert len(calls.seconds) == 4 and calls.difference == BITS and calls.first_different is None
    assert arguments[0].tolist() == [1.0, 1.0, 1.0]
    other = call_repeatedly(lambda x, names: x.sum() * 2, arguments, expected, 0.0, 1)
    assert other.difference == DIFFERENT and other.first_different == 0


@pytest.mark.parametrize(("expected", "actual", "grade"), [
    (np.float64(1), np.float64(1), BITS), (np.float64(1), 1.0, CLOSE), (1.0, 1.0 + 1e-12, CLOSE),
    (1.0, 1.1, DIFFERENT), (math.nan, math.nan, BITS), (0.0, -0.0, CLOSE), (None, None, BITS),
    (None, 1, DIFFERENT), ((1, 2), [1, 2], CLOSE), ((1, 2), (1, 2, 3), DIFFERENT), ({"a": 1}, {"a": 1}, BITS),
    (np.zeros(3), np.zeros(3), BITS), (np.zeros(3), np.zeros(4), DIFFERENT),
    (np.zeros(3), np.zeros(3, np.float32), CLOSE), (np.zeros(3), -np.zeros(3), CLOSE),
    (np.ones(3, bool), np.array([True, True, False]), DIFFERENT),
])
def test_results_are_graded(expected: Any, actual: Any, grade: int) -> None:
    assert compare(expected, actual) == grade


def test_figures_of_a_mode() -> None:
    seconds = [0.3, 0.2, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05]
    starts = [float(i) for i in range(10)]
    calls = Calls(seconds, seconds, starts)
    figures = summarize(calls, Plain((0.1,), (0.1,)))
    assert compiled_after(calls, 0.1, 0.1) == figures["compiled"] == 4.0
    assert figures["first"] == 0.3 and figures["steady"] == 0.05
    assert figures["speedup_steady"] == pytest.approx(2.0) and figures["speedup_1s"] == pytest.approx(1.0)
    assert figures["regret"] == pytest.approx(0.3) and "speedup_4s" not in figures
    slow = Calls([0.1] * 3, [0.1] * 3, starts[:3])
    assert compiled_after(slow, 0.1, 0.1) is None


def test_calls_are_written_as_text() -> None:
    call = CallText("import numpy as np; n = 3; f(np.zeros(n), 'a;b', [i for i in range(n)])")
    zeros, text, numbers = call.arguments({})
    assert call.function == "f" and zeros.shape == (3,) and text == "a;b" and numbers == [0, 1, 2]
    with pytest.raises(ValueError, match="no call"):
        CallText("n = 3")


def test_programs_are_chosen_by_name_field_and_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in SOURCES:
        assert not variable.startswith("JITLA_"), "processes would warn of an unknown option"
        monkeypatch.delenv(variable, raising=False)
    assert len(chosen(parsed([]))) == len(OWN)
    assert [p.name for p in chosen(parsed(["ising"]))] == ["ising"]
    assert {p.field for p in chosen(parsed(["games"]))} == {"games"}
    assert [suite for suite in SUITES if suite != "own" and SUITES[suite]()] == []
    monkeypatch.setenv("BENCH_NPBENCH", "/nowhere")
    with pytest.raises(NotADirectoryError, match="BENCH_NPBENCH"):
        chosen(parsed(["--suite", "npbench"]))


def test_helpers_are_decorated_only_where_a_program_asks_for_it() -> None:
    marked = []

    def mark(function: Any) -> Any:
        marked.append(function.__name__)
        return function

    find_program("own", "ising").load(Mode("marking", mark))
    assert sorted(marked) == ["energy_change", "ising"]
    marked.clear()
    find_program("own", "ray_caster").load(Mode("marking", mark))
    assert marked == ["ray_caster"]
    assert mode_of("plain").decorate is None
