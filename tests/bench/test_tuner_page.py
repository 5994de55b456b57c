"""The page about searches: numbers of results, flat tables said to be flat, and pictures beside it."""

from __future__ import annotations

import json

from bench.internal.tuner.contest import Orders, Result, judged
from bench.internal.tuner.report import kept, write
from bench.internal.tuner.tables import Table
from jitla.fusion import Knob, Space


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
