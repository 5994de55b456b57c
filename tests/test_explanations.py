"""Explanations of records: golden texts, programs shared by functions, advice."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import jitla
from jitla.errors import ConfigError
from jitla.explanations.advice import (
    MAX_ADVICE,
    MAX_BRIEF_SECONDS,
    MIN_BRIEF_RUNS,
    MIN_GUARD_CHANGES,
    MIN_TIME_SHARE,
    advice,
)
from jitla.explanations.explanation import LEVELS, coverage_table, explanation
from jitla.explanations.records import (
    CallRecord,
    CodeRecord,
    CompilationRecord,
    CostRecord,
    CoveredOperator,
    FallbackRecord,
    FiredRule,
    FunctionRecord,
    ImmediateRunRecord,
    NumPyCallRecord,
    ProgramRecord,
    RunnerUpRecord,
    ScalarLoopRecord,
    SeparationRecord,
    SourceLine,
    StageRecord,
    StepRecord,
    TimedRunRecord,
    bytes_text,
    duration,
    summary_line,
)

# Explanations of made-up records: the text is what the golden files say, and always the same.

GOLDEN = Path(__file__).parent / "golden" / "explain"

START = SourceLine("project/svm.py", 12, "def l2svm(X, y, w):")
FIRST = SourceLine("project/svm.py", 14, "out = 1 - y * (X @ w)")
SECOND = SourceLine("project/svm.py", 15, "return np.sum(np.maximum(out, 0) ** 2) / 1")
SOLVE = SourceLine("project/svm.py", 20, "d = np.linalg.solve(H, g)")

HOPS = "(1) leaf(form='array', slot=0)  float64[1000,60]\nroots (1)\n"
MATMUL = StepRecord("call", "matmul 1000 float64", (CoveredOperator("matmul", FIRST),),
                    reason="products are BLAS calls", nbytes=488_480, seconds=24.5e-6, shares=(1.0,))
KERNEL = StepRecord(
    "kernel", "MAgg 1000 float64",
    (CoveredOperator("multiply", FIRST), CoveredOperator("subtract", FIRST),
     CoveredOperator("maximum", SECOND), CoveredOperator("square", SECOND), CoveredOperator("sum", SECOND),
     CoveredOperator("cast")), reads=2, writes=1, nbytes=16_000, nnz=800, seconds=8e-6,
    shares=(0.25, 0.125, 0.125, 0.25, 0.25, 0.0))
PROGRAM = ProgramRecord(
    "svm.py:14-15",
    stages=(StageRecord("hops", HOPS, 41e-6), StageRecord("rewrites.static", HOPS, 12e-5),
            StageRecord("rewrites.dynamic", HOPS, 2e-5),
            StageRecord("plan", "K0 MAgg 1000  ($0) -> (%1)\n", 3e-4),
            StageRecord("placement", "nothing leaves\n\nthe host\n", 4.1e-3)),
    fired=(FiredRule("div-by-one", 1, "exact for every value"),
           FiredRule("power-two", 3, "as NumPy's own loop"),
           FiredRule("sum-of-product", 1, "sums of the factors instead of a matrix product", "rounding")),
    steps=(MATMUL, KERNEL), runs=40, materialised=1, compile_seconds=4.6e-3,
    cost=CostRecord(
        "cost", ((0.0, 0.0, 19e-6, 1e-6, 20e-6), (4e-6, 0.0, 6e-6, 0.5e-6, 6.5e-6)),
        (("none", 41e-6), ("all", 26.5e-6)), 25e-6, 17, 2, 3, 5, 2, 4, True,
        RunnerUpRecord(31e-6, ("multiply 1000 of svm.py:14",), ("subtract 1000",), (4e-6, 2e-6, -1e-6, 0.0)),
        8000, 512_000_000),
    seconds=33e-6, timed=2,
    laps=(TimedRunRecord(5.0, (25e-6, 8e-6), 35e-6, 7), TimedRunRecord(6.0, (24e-6, 8e-6), 33e-6, 7)),
    apart=(SeparationRecord("matmul 1000 of svm.py:14", "C1", ("K1",),
                       "matmul is a call of NumPy: products are BLAS calls"),),
    trace=(CoveredOperator("matmul 1000 float64", FIRST), CoveredOperator("multiply 1000 float64", FIRST),
           CoveredOperator("square 1000 float64", SECOND)),
    codes=(CodeRecord("K1", "form full 1-d cb", "define i64 @k() {\n  ret i64 0\n}\n", "k:\n\tretq\n"),),
    source="def make(bound, data):\n    return run\n")
COMPILED = (CompilationRecord(FIRST, "new", "now", 1, 2, 0, 4096, 0.0125, 5.5),
            CompilationRecord(SECOND, "dtype of X: float64 -> float32", "behind", 1, 1, 1, 2048, 0.02, 6.5))
RECORD = FunctionRecord(
    "l2svm", START, calls=3, programs=(PROGRAM, ProgramRecord("svm.py:18")),
    fallbacks=(FallbackRecord("np.linalg.norm", START, 120, 9e-7),
               FallbackRecord("np.linalg.solve", SOLVE, 12, 1.2345, "not in the op table")),
    compilations=COMPILED, assumed=True,
    call=CallRecord(5.75, 0.02, (NumPyCallRecord("np.linalg.solve", 5.8, 0.015, 7),)))


@pytest.mark.parametrize("level", LEVELS)
def test_the_text_is_as_agreed(level: str):
    text = str(explanation(RECORD, level))
    file = GOLDEN / f"{level}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_no_line_ends_in_blanks():
    for level in LEVELS:
        assert all(row == row.rstrip() for row in str(explanation(RECORD, level)).split("\n"))


def test_an_unknown_level_names_the_known_ones():
    with pytest.raises(ConfigError, match="'lvm'.*'plan', 'trace', 'hops', .*'llvm', 'asm', .*'all'"):
        explanation(RECORD, "lvm")


def test_another_level_of_the_same():
    assert str(explanation(RECORD, "hops").at("plan")) == str(explanation(RECORD, "plan"))
    assert repr(explanation(RECORD)) == str(explanation(RECORD))


def test_a_function_that_never_ran_has_an_explanation():
    text = str(explanation(FunctionRecord("f", START)))
    assert text == (
        "f  (svm.py:12)  0 calls, 0 programs\n   has not been called: explain(f, *arguments) calls it; "
        "jitla.spec(sizes) can stand for arrays\n\n== handed to NumPy: nothing\n")


def test_loops_that_are_in_no_plan_have_a_table():
    loops = (ImmediateRunRecord("take", "take 9000 float64", FIRST, 4, 1, 8e-5, 4 * 216_000),
             ImmediateRunRecord("histogram", "", SOLVE, 0, 2))
    text = str(explanation(FunctionRecord("f", START, loops=loops)))
    assert text == (
        "f  (svm.py:12)  0 calls, 0 programs\n\n== run immediately: 2 places\n"
        "   L1  take 9000 float64, 4 runs, 216 kB each, took 20 us each, 1 time by NumPy\n"
        "       svm.py:14  take  | out = 1 - y * (X @ w)\n"
        "   L2  histogram, 2 times by NumPy\n"
        "       svm.py:20  histogram  | d = np.linalg.solve(H, g)\n"
        "== handed to NumPy: nothing\n")
    assert coverage_table((), loops).startswith("== run immediately: 2 places\n")


def test_elements_other_than_zero_are_counted_beside_their_estimate():
    x = np.arange(40.0) % 2  # half of them
    found = jitla.explain(jitla.jit(lambda x: np.diag(x) * 2.0, compile="sync"), x)
    text = str(found)
    assert "at most 40 nonzeros, 20 counted" in text
    assert [s["counted"] for s in found.to_dict()["programs"][0]["steps"]] == [20, 20]
    assert "20 counted" in found.to_html()


def test_what_a_line_takes_of_a_kernel_is_estimated():
    """The first line does one addition for each element, the second an exponential."""
    def f(x):
        y = x + 0.5
        return np.exp(y) * y

    found = jitla.explain(f, np.ones(5000))
    (step,) = found.record.programs[0].steps
    first, second = (step.share(line) for line in dict.fromkeys(c.line for c in step.covers))
    assert len(step.shares) == 3 and abs(first + second - 1.0) < 1e-9 and 0.0 < first < second
    assert "share" in str(found.at("runtime")) and "is an estimate" in str(found.at("runtime"))


def test_the_order_of_fallbacks_is_by_time_then_name():
    table = coverage_table(RECORD.fallbacks[::-1])
    assert table == coverage_table(RECORD.fallbacks)
    assert table.index("solve") < table.index("norm")


def test_times_and_bytes_have_units():
    assert [duration(s) for s in (0.0, 3e-8, 1.5e-5, 90.0)] == ["0 s", "30 ns", "15 us", "90 s"]
    assert [bytes_text(n) for n in (0, 999, 8000, 5 << 20)] == ["0 bytes", "999 bytes", "8 kB", "5.24 MB"]


def test_the_summary_is_one_line_in_one_unit():
    cost = CostRecord("all", ((1e-4, 0.0, 0.0, 0.0, 1e-4),), (("cost", 5e-5), ("none", 2e-3)), peak=64)
    assert summary_line(cost) == (
        "predicted: 0.1 ms by the heuristic 'all'; heuristics: cost 0.05, none 2; peak 64 bytes")


def test_a_limit_of_memory_says_what_it_costs():
    step = StepRecord("kernel", "Cell 10 float64")
    cost = CostRecord("cost", ((0.0, 0.0, 0.0, 0.0, 2e-3),), limit=9000, peak=8000, free=(1e-3, 16000))
    record = replace(RECORD, programs=(replace(PROGRAM, steps=(step,), cost=cost),))
    text = str(explanation(record, "cost"))
    assert "without memory_limit: 1 ms, with 16 kB instead of 8 kB" in text
    assert "peak 8 kB of 9 kB" in str(explanation(record, "plan"))


def test_a_program_without_stages_shows_its_steps():
    record = replace(RECORD, programs=(replace(PROGRAM, stages=()),))
    assert "K1  MAgg 1000 float64, reads 2, writes 1" in str(explanation(record, "plan"))


def test_lines_are_read_from_the_file():
    here = SourceLine.at(__file__, 1)
    assert here.text.startswith('"""Explanations of records') and here.place == "test_explanations.py:1"
    assert SourceLine.at("/nowhere.py", 3).text == ""
    assert SourceLine("<ipython-input-3-72bdb7d7daff>", 2).place == "In[3]:2"


def test_each_function_is_explained_by_its_own_lines():
    def first(x):
        return np.hypot(x, 3.25) - x

    def second(x):
        y = np.hypot(x, 3.25)
        return y - x

    texts = []
    for function in (first, second):
        fast = jitla.jit(function)
        fast(np.ones(5))
        fast(np.ones(5))
        texts.append(str(jitla.explain(fast)))
    assert "return np.hypot(x, 3.25) - x" in texts[0] and "return y - x" not in texts[0]
    assert "y = np.hypot(x, 3.25)" in texts[1] and "| return y - x" in texts[1]
    assert f":{second.__code__.co_firstlineno + 1}  hypot" in texts[1]
    assert f":{first.__code__.co_firstlineno + 1}\n" not in texts[1]


def test_a_function_with_more_plans_than_can_be_compared_is_explained_all_the_same():
    """The second plan, and every value the other way round, are asked for within the budget of a search."""
    def long(X, y, w):
        z = X @ w
        p = 1 / (1 + np.exp(-z))
        q = 1 - p
        g, h = X.T @ (p - y), p * q
        m, s = (X * h[:, None]).sum(axis=0), (X * X).sum(axis=0)
        v = ((X - X.mean(axis=0)) ** 2).mean(axis=0)
        t = np.tanh(z) + np.sin(z) * p
        u = np.abs(t) - q * np.log1p(p)
        a = (u * t).sum(), (u - t).max(), (t * p + u * q).mean()
        c = np.maximum(u, t) * p - np.minimum(u, t) * q
        d = (c - c.mean()) / c.std()
        e = np.where(d > 0, d * p, -d * q)
        return g, m, s, v, a, d, e, X.T @ e

    X = np.random.default_rng(0).normal(size=(5000, 12))
    found = jitla.explain(jitla.jit(long), X, (X[:, 0] > 0) * 1.0, X[0])
    assert "second-best plan: " in str(found.at("cost")) and found.record.programs[0].apart


def test_sparse_results_have_their_entries_counted():
    x = scipy.sparse.random(400, 300, 0.6, format="csr", random_state=1)  # worth a record

    @jitla.jit(compile="sync")
    def halves(x):
        return x.multiply(x), x * 0.5

    found = jitla.explain(halves, x)
    made = {m.title: m for m in found.record.call.stored}
    assert str(found).count("\n== sparse results: ") == 1
    assert [m.times for m in made.values()] == [2]
    for result in halves.__wrapped__(x):
        title = f"{type(result).__name__} 400x300 float64"
        assert made[title].entries == result.nnz <= made[title].most
        assert f"{title}, {result.nnz}" in str(found) and title in found._repr_html_()


def test_views_move_nothing_and_are_no_calls():
    @jitla.jit
    def differences(x):
        return np.roll(x, 1, 0) + np.roll(x, -1, 1) - x, (x + 1.0)[1:].sum()

    (program,) = jitla.explain(differences, np.ones((300, 200))).record.programs
    views = [step for step in program.steps if step.reason == "a view"]
    assert {step.title.split()[0] for step in views} == {"roll", "getitem"}
    assert not any(step.nbytes for step in views) and program.calls == 0


def test_lines_are_known_of_what_comes_after_a_long_loop():
    @jitla.jit
    def late(x):
        for _ in range(50):
            x = x * 0.5 + 1.0
        return np.exp(x).sum() - x[0]

    programs = jitla.explain(late, np.ones(7064)).record.programs
    assert len(programs) > 1
    assert all(covered.line is not None for p in programs for s in p.steps for covered in s.covers)


# Programs that functions share are explained as each of these runs them: its lines, sizes and times.

RNG = np.random.default_rng(5)


def _first(X, y, w):
    out = np.maximum(1.0 - y * (X @ w), 0.0)
    return 0.5 * (out * out).sum(), -(X.T @ (out * y))


def _second(X, y, w):
    margins = X @ w
    out = np.maximum(1.0 - y * margins, 0.0)
    loss = 0.5 * (out * out).sum()
    return loss, -(X.T @ (out * y))


def _data(rows, columns):
    X = RNG.normal(size=(rows, columns))
    return X, np.sign(X[:, 0]), RNG.normal(size=columns)


def _programs(function):
    return {p for site in function.__jitla_state__.all_sites() for p in site.runs()}


def test_a_shared_program_has_the_sizes_lines_and_runs_of_each_function():
    first, second = (jitla.jit(compile="sync")(f) for f in (_first, _second))
    one, two = _data(1613, 11), _data(1201, 17)
    for _ in range(3):
        first(*one)
    second(*two)
    assert _programs(first) & _programs(second)
    for level in LEVELS:
        told = str(second.explain(level=level))
        assert "1613" not in told, level
        last = _first.__code__.co_firstlineno + 2
        assert all(f"test_explanations.py:{n} " not in told for n in range(last - 1, last + 1)), level
    plan = str(second.explain())
    assert "Row 1201x17" in plan and "measured: " in plan and "the first run" in plan
    assert "| margins = X @ w" in plan and "| loss = 0.5 * (out * out).sum()" in plan
    (program,) = second.explain().record.programs
    assert program.runs == program.timed == len(program.laps) == 1
    (program,) = first.explain().record.programs
    assert program.runs == program.timed == 3 and "Row 1613x11" in str(first.explain())


def test_what_is_predicted_is_for_the_sizes_shown():
    def f(x, y):
        return np.exp(x) * y + 1.0

    few, many = (RNG.random((2, n)) for n in (50_000, 60_000))
    fast, slow = jitla.jit(compile="sync")(f), jitla.jit(compile="sync")(lambda x, y: np.exp(x) * y + 1.0)
    fast(*few)
    slow(*many)
    assert _programs(fast) & _programs(slow)
    records = [function.explain().record.programs[0] for function in (fast, slow)]
    assert [r.steps[0].nbytes for r in records] == [3 * 8 * 50_000, 3 * 8 * 60_000]
    small, large = (r.cost.seconds for r in records)
    assert small < large


def test_one_function_is_explained_for_the_sizes_it_met_last():
    fast = jitla.jit(compile="sync")(lambda x: (np.sin(x) * 2.0).sum())
    fast(RNG.random(7001))
    fast(RNG.random(8003))
    assert "MAgg 8003" in str(fast.explain()) and "7001" not in str(fast.explain())
    assert "2 runs of 2 sizes" in str(fast.explain()) and "2 runs of 2 sizes" in fast.explain().to_html()
    assert "MAgg 7001" in str(jitla.explain(fast, RNG.random(7001)))


# What would make functions faster is said of records, what costs most first.

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
    for told in (
            "Python runs the loop (it calls print)", "compiles ahead", changed, "please report", "calibrate"):
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
