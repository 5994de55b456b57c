"""The driver of whole algorithms: what is run in which order, what is written down, what is left out."""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from bench.algorithms import __main__ as driver
from bench.algorithms import worker
from bench.algorithms.cases import NAMES, Case, cases, iterations, objective, work
from bench.algorithms.systems import FILES, Entered, NotHere, enter
from bench.algorithms.systems.entered import lines_changed, port, statements
from bench.algorithms.systems.plain import nudged
from jitla.cli.demo_algorithms import Fit

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
