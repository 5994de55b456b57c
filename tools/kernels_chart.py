"""Draws the figure of ``docs/reports/kernels.md``: jitla and the best peer, relative to NumPy."""

from __future__ import annotations

import re
from pathlib import Path

from bench.algorithms.charts import bars

PAGE = Path(__file__).parents[1] / "docs" / "reports" / "kernels.md"
FIGURE = PAGE.parent / "kernels" / "speed.svg"


def chart(page: str) -> str:
    """Return the figure for the measured table of `page`."""
    table = page.partition("<!-- MEASURED")[2].partition("<!-- END MEASURED")[0]
    rows = [[cell.strip() for cell in re.split(r" \| ", line.strip("| "))]
            for line in table.splitlines() if line.startswith("| ")]
    names = rows[0]
    groups = {}
    for row in rows[2:]:
        cells = dict(zip(names, row, strict=True))
        numpy, ours = float(cells["numpy"]), float(cells["jitla"])
        groups[row[0]] = {"jitla": numpy / ours, "best peer": numpy / float(cells[cells["best"]])}
    return bars(groups, ["jitla", "best peer"], "times as fast as NumPy")


if __name__ == "__main__":
    FIGURE.write_text(chart(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
