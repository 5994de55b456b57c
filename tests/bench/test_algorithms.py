"""The benchmark of whole algorithms: its driver, its scripts, its page."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import jitla
from bench.algorithms import __main__ as driver
from bench.algorithms import charts, report, worker
from bench.algorithms.cases import MADE, NAMES, Case, cases, iterations, objective, work
from bench.algorithms.systems import FILES, Entered, NotHere, enter
from bench.algorithms.systems.entered import lines_changed, port, statements
from bench.algorithms.systems.plain import nudged
from bench.algorithms.tables import (
    allowed,
    best_peer,
    bounds,
    calls_until_ahead,
    left_alone,
    mean_ratio,
    of_numpy,
    of_peers,
    summaries,
)
from jitla.cli.demo_algorithms import Fit
from tools.kernels_chart import FIGURE, PAGE, chart

# The driver of whole algorithms: what is run in which order, what is written down, what is left out.

SMALL = Case("blur", 100, "float64", "dense")


def options(tmp_path: Path, *more: str) -> argparse.Namespace:
    return driver.parsed(["--file", str(tmp_path / "runs.jsonl"), "--seconds", "0", "--threads", "1", *more])


def test_systems_take_turns() -> None:
    order = list(driver.runs([SMALL], ["numpy", "jitla"], 2))
    assert [(system, number) for _, system, number in order] == [
        ("numpy", 0), ("jitla", 0), ("numpy", 1), ("jitla", 1)]


def test_cases_are_told_apart_and_chosen_by_their_parts(tmp_path: Path) -> None:
    every = cases([1000, 100], ["float64", "float32"], [0.1, 0.01], False)
    assert len({case.key for case in every}) == len(every)
    assert {case.script for case in every} == set(NAMES) and every[0].rows == 100
    given = options(tmp_path, "--rows", "1e2,1e3", "--dtypes", "float64", "--only", "blur | 100 ;PCA")
    assert [c.key for c in driver.chosen(given)] == [
        "PCA | 100 | float64 | dense", "blur | 100 | float64 | dense", "PCA | 1000 | float64 | dense"]


@pytest.mark.parametrize("case", [SMALL, Case("PageRank, sparse", 50, "float64", "0.1")], ids=str)
def test_a_case_says_all_that_is_drawn(case: Case) -> None:
    first, again = (objective(w.plain(*w.arguments)) for w in (work(case), work(case)))
    assert first == again


def test_a_run_is_written_down_once(tmp_path: Path) -> None:
    given = options(tmp_path)
    kept = tmp_path / "calibrated"
    kept.mkdir()
    found = driver.one(SMALL, "numpy", given, kept)
    wanted = objective(work(SMALL).plain(*work(SMALL).arguments))
    assert found["count"] == worker.LEAST and found["objective"] == wanted
    record = {"case": SMALL.record(), "system": "numpy", "process": 0, **found}
    driver.begun(given.file)
    driver.told(given.file, record)
    driver.begun(given.file)
    driver.told(given.file, record | {"process": 1})
    assert driver.done(given.file) == {(SMALL.key, "numpy", 0), (SMALL.key, "numpy", 1)}
    lines = given.file.read_text().splitlines()
    assert ["machine" in json.loads(line) for line in lines] == [True, False, False]


def test_files_are_of_one_machine_and_its_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.begun(tmp_path / "runs.jsonl")
    monkeypatch.setattr(driver, "machine", lambda: "Another machine.")
    with pytest.raises(SystemExit, match="another machine"):
        driver.begun(tmp_path / "runs.jsonl")


def test_systems_may_be_called_for_times_of_their_own(tmp_path: Path) -> None:
    given = options(tmp_path, "--seconds", "0.5,jitla=4")
    assert [driver.seconds(s, given) for s in ("numpy", "jitla", "jitla:sync")] == [0.5, 4.0, 4.0]


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    (tmp_path / "calibrated").mkdir()
    given = options(tmp_path, "--limit", "0.01")
    assert driver.one(SMALL, "numpy", given, tmp_path / "calibrated") == {"failed": "not done within 0.01 s"}


def test_every_process_has_a_cache_of_its_own_with_the_same_threads(tmp_path: Path) -> None:
    kept, fresh = tmp_path / "calibrated", tmp_path / "fresh"
    kept.mkdir()
    (kept / "machine.json").write_text("{}")
    found = driver.environment("jitla", 2, kept, fresh)
    assert Path(found["JITLA_CACHE_DIR"], "machine.json").exists()
    assert {found[name] for name in driver.THREADS} == {"2"}
    assert driver.environment("jitla:kept-code", 2, kept, fresh)["JITLA_CACHE_DIR"] == str(tmp_path / "code")


def test_unknown_systems_and_missing_versions_are_no_failures() -> None:
    assert set(driver.ALL) <= set(FILES)
    for system in ("nothing", "jitla:nothing", "numba-expert"):
        with pytest.raises(NotHere):
            enter(system, "PCA", work(Case("PCA", 100, "float64", "dense")).plain, ())


def test_failures_are_told_and_not_raised() -> None:
    def broken() -> dict[str, object]:
        raise ValueError("three")

    assert worker.attempt(broken) == {"failed": "ValueError: three"}


def test_steady_and_full_speed() -> None:
    times = [5.0, 3.0, 1.0, 1.05, 1.0, 1.0, 1.0]
    assert worker.steady(times) == 1.0 and worker.until_full_speed(times) == 8.0
    assert worker.steady([2.0]) == 2.0 and worker.until_full_speed([1.0, 1.0]) == 0.0


def test_a_system_that_times_itself_is_believed() -> None:
    ticks = itertools.count(1.0)
    entered = Entered(lambda: (None, 0.5), clock=lambda: next(ticks))
    times, _, result = worker.called(entered, 0.0)
    assert times == [1.0, 2.0, 3.0] and objective(result) == 0.5


def test_lines_are_counted_that_have_to_be_touched() -> None:
    before = 'a = 1\n# why\n\nb = 2\nc = 3'
    assert statements(before) == ["a = 1", "b = 2", "c = 3"]
    assert lines_changed(before, before) == 0
    assert lines_changed(before, "a = 1\nb = 3\nc = 3") == 1
    assert lines_changed(before, "a = 1\nb = 2\nc = 3\nd = 4\ne = 5") == 2


def test_objectives_and_iterations_are_found() -> None:
    fit = Fit(np.ones(2), 7.0, 3, 9)
    assert objective(fit) == 7.0 and iterations(fit) == 3
    assert objective((np.ones(2), 4.0)) == 4.0 and iterations((1, 2)) is None


def test_nudged_numbers_differ_in_the_last_place() -> None:
    x = np.linspace(-1, 1, 50, dtype=np.float32)
    moved = nudged(x, np.random.default_rng(0))
    assert moved.dtype == x.dtype and (moved != x).all()
    assert (np.abs(moved - x) <= np.spacing(np.abs(x)) + np.finfo(np.float32).tiny).all()
    assert nudged("logit", np.random.default_rng(0)) == "logit"


def test_what_is_missing_in_a_port_is_told_from_what_is_not_written() -> None:
    plain = work(Case("PCA", 100, "float64", "dense")).plain
    with pytest.raises(NotHere, match="is written for loops"):
        port("loops", plain)


# Whole algorithms, decorated, learn what their plain functions do; every one on little data.

ROWS, ENOUGH = 150, 1000  # reweighted equations of fewer rows have no solution that roundings leave alone


def leaves(value: Any) -> Iterator[Any]:
    """Yield the arrays and numbers of a result."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def kind(value: Any) -> Any:
    return (value.dtype, value.shape) if isinstance(value, np.ndarray) else type(value)


@pytest.mark.parametrize("name", MADE)
def test_the_same_is_learned(name: str) -> None:
    if "table" in name or "object" in name:
        pytest.importorskip("pandas")
    given = work(Case(name, ENOUGH if "GLM" in name else ROWS, "float64", "dense"))
    fast = jitla.jit(given.plain, compile="sync")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        wanted = given.plain(*given.arguments)
        before = len(told)
        found = fast(*given.arguments)
    assert [str(w.message) for w in told[before:]] == [str(w.message) for w in told[:before]]
    assert type(found) is type(wanted)
    assert objective(found) == pytest.approx(objective(wanted), rel=1e-8)
    pairs = list(zip(leaves(found), leaves(wanted), strict=True))
    assert [kind(a) for a, _ in pairs] == [kind(b) for _, b in pairs]
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)
    assert fast.stats().failures == 0


# The page of the benchmark says what the runs say, and nothing of what was not run.


def run(system: str, steady: float, rows: int = 1000, objective: float = 2.0, **more: Any) -> dict[str, Any]:
    case = Case("PCA", rows, "float64", "dense").record()
    return {"case": case, "system": system, "process": 0, "seconds": 1.0, "steady": steady,
            "first": 5 * steady, "times": [5 * steady, steady], "to_full_speed": 0.0, "peak": 1e6,
            "objective": objective, "calls": 2, "materialised": 4, "kernels": 3, "fallbacks": 0,
            "recompilations": 1, **more}


RUNS = [
    run("numpy", 4.0), run("numpy", 6.0), run("jitla", 2.0, changed=0), run("jax", 4.0, changed=7),
    run("numba", 1.0, objective=3.0), run("numpy", 8.0, rows=10_000), run("jitla", 10.0, rows=10_000),
    {"case": Case("PCA", 1000, "float64", "dense").record(), "system": "dask", "process": 0, "seconds": 1.0,
     "failed": "ValueError: a | b"},
]


def test_medians_ratios_and_the_best_peer() -> None:
    cases = summaries(RUNS)
    small, large = cases
    assert cases[small]["numpy"].steady == 5.0 and not cases[small]["dask"].ran
    assert of_numpy(cases) == {small: 2.5, large: 0.8}
    assert best_peer(cases[small]) == ("jax", 4.0)  # Numba's objective is another
    assert of_peers(cases) == {small: 2.0}
    assert mean_ratio([2.0, 8.0]) == pytest.approx(4.0) and math.isnan(mean_ratio([]))


def test_what_last_bits_change_is_allowed() -> None:
    cases = summaries([*RUNS, run("numpy-nudged", 4.0, objective=2.0002)])
    assert allowed(next(iter(cases.values()))) == pytest.approx(1e-3)


def test_calls_until_the_total_is_ahead() -> None:
    cases = summaries([run("numpy", 1.0), run("jitla", 0.5)])
    found = next(iter(cases.values()))
    assert calls_until_ahead(found["jitla"], found["numpy"]) == 5  # 2.5 + 4 * 0.5 < 5 * 1.0
    assert calls_until_ahead(found["numpy"], found["jitla"]) is None


def test_promises_are_counted() -> None:
    kept = {name: (good, count) for name, good, count in bounds(summaries(RUNS))}
    assert kept["not slower than NumPy"] == (1, 2)
    assert kept["faster than every peer"] == (1, 1)
    left = [*RUNS[:-2], run("jitla", 10.0, rows=10_000, bypassed=2), RUNS[-1]]
    assert left_alone(summaries(RUNS)) == (1, 0) and left_alone(summaries(left)) == (1, 1)


def test_the_page_has_what_was_run_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, page = tmp_path / "runs.jsonl", tmp_path / "page.md"
    file.write_text("\n".join(map(json.dumps, [{"machine": "A machine."}, *RUNS])) + "\n")
    monkeypatch.setattr("sys.argv", ["report", str(file), "--page", str(page)])
    report.main()
    text = page.read_text()
    assert "\nA machine.\n" in text and "for 1 s (jitla), 1 s (others)" in text
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"machine": "Another machine."}) + "\n")
    monkeypatch.setattr("sys.argv", ["report", str(file), str(other), "--page", str(page)])
    with pytest.raises(SystemExit, match="of several machines"):
        report.main()
    assert "| PCA, 1,000 rows | 5,000 | 2,000 | 2.50 | jax 4,000 | 2.00 |" in text
    assert "1,000 (5,000) (!)" in text and "k-means" not in text
    assert "| PCA, 1,000 rows | dask | ValueError: a / b |" in text and "Ablations" not in text
    for name in ("speed.svg", "scaling.svg"):
        ElementTree.fromstring((tmp_path / "benchmarks" / name).read_text())


def test_the_figure_of_kernels_shows_their_table() -> None:
    assert FIGURE.read_text(encoding="utf-8") == chart(PAGE.read_text(encoding="utf-8"))


def test_bars_and_lines_are_where_their_numbers_say() -> None:
    svg = charts.bars({"a & b": {"x": 10.0, "y": 1.0}}, ["x", "y"], "times")
    assert "a &amp; b" in svg and f'width="{charts.WIDE:.1f}"' in svg
    curve = charts.lines({"c": [(10.0, 1.0), (1000.0, 10.0)]}, "rows", "times")
    places = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in ElementTree.fromstring(curve)
              if c.tag.endswith("circle")]
    assert places[0][0] == charts.MARGIN and places[1][0] == charts.MARGIN + charts.WIDE
    assert places[0][1] - places[1][1] == pytest.approx(charts.HEIGHT)
