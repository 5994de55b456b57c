"""The pages of benchmarks: bounds of kernels, results of searches."""

from __future__ import annotations

import json

import pytest

from bench.internal.tuner.contest import Orders, Result, judged
from bench.internal.tuner.report import kept, write
from bench.internal.tuner.tables import Table
from bench.peers.outcome import Limits
from jitla.fusion import Knob, Space

# The page about searches: numbers of results, flat tables said to be flat, and pictures beside it.


def test_the_page_is_made_of_results(tmp_path):
    space = Space((Knob("a", tuple(range(40))),), (0,))
    table = Table("cheap", space, {p: 1.0 + 0.1 * p[0] for p in space.points})
    one = judged(table, [2.0, 1.5, 1.02, 1.0])
    assert one.trials == 3 and one.regrets == (0.0, 0.0, 0.0) and len(one.curve) == 32
    never = Result(65, (0.5, 0.4, 0.3), (0.3,) * 32)
    found = {"tuner": kept([one] * 3), "genetic": kept([never] * 3)}
    (tmp_path / "cheap.json").write_text(json.dumps(found))
    (tmp_path / "boards.md").write_text("of other boards\n")
    pairs = Orders(0.75, (0.8, 0.875), 0.81, 0.9, 0.78, 0.5)
    (tmp_path / "cheap.orders.json").write_text(json.dumps(pairs))
    write(tmp_path / "page.md", [table], tmp_path)
    page = (tmp_path / "page.md").read_text()
    assert "| cheap (flat) | 40 | 1 | 1.00 | none | 3 (3–3) |  | never |" in page
    assert "| cheap | 0.0% (0.0%–0.0%) |  | 30.0% (30.0%–30.0%) |" in page
    assert "| cheap |  | 3, 0.0% (3) |" in page and "of other boards" in page
    assert "| cheap | 0.0% | 0.50 | 0.75 | 0.80 | 0.88 | 0.81 | 0.90 | 0.78 |" in page
    for name in ("trials", "regret"):
        assert (tmp_path / "page" / f"{name}.svg").read_text().startswith("<svg")


# What the comparison of kernels takes for the least possible time.

READING, COPYING, ISSUING = 30e9, 50e9, 40e9
LIMITS = Limits(READING, COPYING, ISSUING)


def test_what_is_only_read_takes_as_long_as_reading() -> None:
    assert LIMITS.seconds(3e9, 0, 0) == pytest.approx(0.1)


def test_a_copy_takes_as_long_as_it_was_measured_to() -> None:
    assert LIMITS.seconds(1e9, 1e9, 0) == pytest.approx(2e9 / COPYING)


def test_little_that_is_written_changes_little() -> None:
    # before, a twentieth of writing let everything move at the rate of copies
    none, some = LIMITS.seconds(4e9, 0, 0), LIMITS.seconds(4e9, 0.2e9, 0)
    assert none < some < 1.02 * none


def test_writing_behind_reading_never_gains_time() -> None:
    duplex = Limits(READING, 3 * READING, ISSUING)
    assert duplex.seconds(1e9, 1e9, 0) == pytest.approx(1e9 / READING)


def test_work_counts_where_it_takes_longer() -> None:
    assert LIMITS.seconds(1e9, 0, 8e9) == pytest.approx(8e9 / ISSUING)
    assert LIMITS.seconds(3e9, 0, 1e9) == pytest.approx(0.1)
