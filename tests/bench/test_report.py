"""The page of the benchmark says what the runs say, and nothing of what was not run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.algorithms import charts, report
from bench.algorithms.cases import Case
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
from tools.kernels_chart import FIGURE, PAGE, chart


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
